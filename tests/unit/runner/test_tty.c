/* A terminal that is handed on: keys reach the command and nobody else, ^Z stops the caller as well,
 * and the terminal comes back. Three processes: this one holds the other end of the terminal; a
 * "shell" is the session's leader; the "job" is a program that runs a command with passthrough. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/io.h"
#include "tests/unit/runner/rig.h"

static const char *const text =
	"trap 'echo int' INT; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty; echo ready; "
	"read -r x; echo read $x; stty -echo raw; kill -KILL $$";

static int job(void)
{
	struct run_result res;
	struct run_spec s;
	struct run *r;

	rig_spec(&s);
	s.shell = text;
	s.passthrough = true;
	s.stdin_fd = 0;
	s.timeout_ms = 0;
	r = rig_start(&s);
	if (run_wait(r, UINT64_MAX, &res) != 1)
		return 99;
	run_free(r);
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
	int status, stops = 0;
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
	ok(expect(fd, "continued\r\n"), "which continues it");
	key(fd, "word\n");
	ok(expect(fd, "read word\r\n"), "and the command reads on");
	ok(expect(fd, "stops 1\r\n"), "stopped once");
	if (waitpid(pid, &status, 0) < 0)
		tap_fatal("waitpid");
	eq_int(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 42,
	       "a command that dies in raw mode leaves the terminal as it was");
	if (tap_failed)
		printf("# terminal: %s\n", seen);
	rig_end();
	return tap_done();
}
