/* A terminal between the caller's and the command's: keys reach the command and nobody else, ^Z stops the caller as well,
 * and the caller's terminal is as it was. Three processes: this one holds the other end of the caller's terminal; a
 * "shell" is the session's leader; the "job" is a program that runs a command. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/io.h"
#include "runner/terminal.h"
#include "tests/unit/runner/rig.h"

static const char *const text =
	"trap 'echo int' INT; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty; echo ready; "
	"read -r x; echo read $x; stty -echo raw; "
	/* TCXONC with TCOOFF, TIOCEXCL */
	"python3 -c 'from fcntl import ioctl; ioctl(0, 0x540c); ioctl(0, 0x540a, 0)'; kill -KILL $$";

static int job(void)
{
	struct run_result res;
	struct terminal *t;
	struct run_spec s;
	struct run *r;
	int sig;

	rig_spec(&s);
	s.shell = text;
	s.passthrough = true;
	s.stdin_fd = 0;
	s.timeout_ms = 0;
	if (terminal_open(&t) < 0)
		return 99;
	terminal_lend(t, &s);
	r = rig_start(&s);
	if (terminal_wait(t, r, 1000, &res, &sig) != 1 || sig)
		return 99;
	run_free(r);
	terminal_free(t);
	/* The terminal is ours again. */
	if (tcgetpgrp(0) != getpgrp())
		return 98;
	return res.state == RUN_SIGNALED ? 42 : 97;
}

static void foreground(pid_t pgrp)
{
	(void)signal(SIGTTOU, SIG_IGN);
	(void)tcsetpgrp(0, pgrp);
}

/* What a shell with job control does. */
static int shell(void)
{
	int status, stops = 0, alone;
	struct termios t;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		(void)setpgid(0, 0);
		foreground(getpid());
		(void)signal(SIGTTOU, SIG_DFL);
		_exit(job());
	}
	(void)setpgid(pid, pid);
	for (;;) {
		if (waitpid(pid, &status, WUNTRACED) < 0)
			return 96;
		if (!WIFSTOPPED(status))
			break;
		stops++;
		foreground(getpgrp());
		printf("stopped\n");
		fflush(stdout);
		(void)usleep(100000);
		foreground(pid);
		(void)kill(-pid, SIGCONT);
		printf("continued\n");
		fflush(stdout);
	}
	foreground(getpgrp());
	if (tcgetattr(0, &t) < 0 || !(t.c_lflag & ECHO) || !(t.c_lflag & ICANON))
		return 95;
	if (ioctl(0, TIOCGEXCL, &alone) < 0 || alone)
		return 93;
	printf("stops %d\n", stops);
	fflush(stdout);
	if (!WIFEXITED(status))
		return 94;
	return WEXITSTATUS(status);
}

static char seen[65536];
static size_t nseen;

/* Until @what was written to the terminal after the last such. */
static int expect(int fd, const char *what)
{
	long long end = io_now_ms() + 20000;
	static size_t from;
	char *at;

	while (!(at = strstr(seen + from, what))) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t n;

		if (io_now_ms() > end || poll(&p, 1, 1000) < 0)
			return 0;
		n = p.revents ? read(fd, seen + nseen, sizeof(seen) - 1 - nseen) : 0;
		if (n < 0)
			return 0;
		nseen += (size_t)n;
		seen[nseen] = '\0';
	}
	from = (size_t)(at - seen) + strlen(what);
	return 1;
}

static void key(int fd, const char *k)
{
	if (write(fd, k, strlen(k)) < 0)
		tap_fatal("terminal");
}

/* ---- a terminal of the command's own ---- */

static void type(struct run *r, const char *keys)
{
	eq_int(run_input(r, keys, strlen(keys)), strlen(keys), "typed");
}

/* Until the command has shown @what. */
static int shown(struct run *r, const char *what)
{
	static char now[65536];
	long long end = io_now_ms() + 20000;

	while (io_now_ms() < end) {
		(void)rig_text(r, 0, now, sizeof(now));
		if (strstr(now, what))
			return 1;
		(void)usleep(20000);
	}
	printf("# shown: %s\n", now);
	return 0;
}

static void own_terminal(void)
{
	static struct rig_out o;
	struct run_spec s;
	struct run *r;

	rig_spec(&s);
	s.shell = "trap 'echo int' INT; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes; stty size; "
		  "echo direct > /dev/tty; read -r x; echo got $x; cat; echo end; exit 3";
	s.tty = true;
	r = rig_start(&s);
	ok(shown(r, "yes\r\n24 80\r\n"), "all streams are a terminal of 80 by 24");
	ok(shown(r, "direct\r\n"), "which is the controlling one");
	type(r, "hello\n");
	ok(shown(r, "hello\r\ngot hello\r\n"), "what is typed is shown and read");
	type(r, "more\n");
	ok(shown(r, "more\r\nmore\r\n"), "again");
	eq_int(run_input(r, NULL, 0), 0, "the end of input");
	ok(shown(r, "end\r\n"), "is seen as one");
	rig_finish(r, &o);
	ok(o.res.state == RUN_EXITED && o.res.code == 3, "the exit code");
	rig_spec(&s);
	s.shell = "trap 'echo int; exit 4' INT; echo ready; while :; do sleep 0.1; done";
	s.tty = true;
	r = rig_start(&s);
	ok(shown(r, "ready"), "another");
	type(r, "\003");
	rig_finish(r, &o);
	ok(strstr(o.out, "int\r\n") && o.res.code == 4, "^C interrupts it");
	s.passthrough = true;
	eq_int(run_start(&s, NULL, &r), -EINVAL, "not beside the caller's streams");
}

int main(int argc, char **argv)
{
	int fd, status = 0;
	pid_t pid;

	rig_setup(argc, argv);
	fflush(stdout);
	pid = forkpty(&fd, NULL, NULL, NULL);
	if (pid < 0)
		tap_fatal("forkpty");
	if (pid == 0)
		_exit(shell());
	ok(expect(fd, "tty\r\n") && expect(fd, "ready\r\n"), "the command has the terminal");
	key(fd, "\003");
	ok(expect(fd, "int\r\n"), "^C reaches the command, and ends neither bwrap nor us");
	key(fd, "\032");
	ok(expect(fd, "stopped\r\n"), "^Z stops the caller, for its shell to see");
	/* Whose end of line it is depends on who is first: the job may have made its terminal raw already. */
	ok(expect(fd, "continued"), "which continues it");
	key(fd, "word\n");
	ok(expect(fd, "read word\r\n"), "and the command reads on");
	ok(expect(fd, "stops 1\r\n"), "stopped once");
	if (waitpid(pid, &status, 0) < 0)
		tap_fatal("waitpid");
	eq_int(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 42,
	       "a command that dies in raw mode leaves the terminal as it was");
	own_terminal();
	if (tap_failed)
		printf("# terminal: %s\n", seen);
	rig_end();
	return tap_done();
}
