/* Another program, run to its end. */
#include "cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/skopeo.h"

#define SAID_MAX 8192
#define OUT_MAX  (4u << 20)

struct child {
	pid_t pid;
	int out,
		err; /* of its output, and of what it says of errors; @out -1: it goes to the terminal, or nowhere */
};

/* In the new process. */
static void run_it(const char *const *argv, int out, int err)
{
	int null = open("/dev/null", O_RDWR);
	bool tty = isatty(STDERR_FILENO);
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	(void)dup2(null, STDIN_FILENO);
	/* what it draws on a terminal is the bar */
	(void)dup2(out >= 0 ? out : tty ? STDERR_FILENO : null, STDOUT_FILENO);
	(void)dup2(err, STDERR_FILENO);
	(void)execvp(argv[0], (char *const *)(uintptr_t)argv);
	(void)dprintf(STDERR_FILENO, "exec: %s", err_text(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static int start(const char *const *argv, bool output, struct child *c)
{
	int out[2] = {-1, -1}, err[2];
	int r = 0;

	*c = (struct child){.out = -1, .err = -1};
	if (pipe2(err, O_CLOEXEC) < 0)
		return ret_nerrno();
	if (output && pipe2(out, O_CLOEXEC) < 0)
		r = ret_nerrno();
	c->pid = r == 0 ? fork() : -1;
	if (c->pid == 0)
		run_it(argv, out[1], err[1]);
	if (r == 0 && c->pid < 0)
		r = ret_nerrno();
	cleanup_fdp(&err[1]);
	cleanup_fdp(&out[1]);
	c->err = err[0];
	c->out = out[0];
	return r;
}

static int take(int *fd, struct buf *b, size_t max, bool tail)
{
	char piece[16384];
	ssize_t n = read(*fd, piece, sizeof(piece));
	int r;

	if (n <= 0) {
		if (n < 0 && errno == EINTR)
			return 0;
		cleanup_fdp(fd);
		*fd = -1;
		return 0;
	}
	if (tail && b->len > max) { /* what is said last counts */
		memmove(b->data, b->data + b->len / 2, b->len - b->len / 2);
		b->len -= b->len / 2;
	}
	r = buf_put(b, piece, (size_t)n);
	return r == 0 && !tail && b->len > max ? -EFBIG : r;
}

static int listen_to(struct child *c, struct buf *out, struct buf *said)
{
	bool asked = false;
	int r = 0;

	while (r == 0 && (c->out >= 0 || c->err >= 0)) {
		struct pollfd p[2] = {{.fd = c->out, .events = POLLIN},
				      {.fd = c->err, .events = POLLIN}};

		if (transfer_stopped() && !asked) {
			(void)kill(c->pid, SIGTERM);
			asked = true;
		}
		if (poll(p, 2, asked ? 2000 : 500) < 0)
			continue;
		if (asked && !p[0].revents && !p[1].revents)
			(void)kill(c->pid, SIGKILL);
		if (p[0].revents)
			r = take(&c->out, out, OUT_MAX, false);
		if (r == 0 && p[1].revents)
			r = take(&c->err, said, SAID_MAX, true);
	}
	if (r < 0)
		(void)kill(c->pid, SIGKILL);
	return r;
}

int program_run(const char *const *argv, struct buf *out, struct buf *said, int *ret_status)
{
	struct child c;
	int r = start(argv, out != NULL, &c);

	if (r == 0)
		r = listen_to(&c, out, said);
	cleanup_fdp(&c.out);
	cleanup_fdp(&c.err);
	while (c.pid > 0 && waitpid(c.pid, ret_status, 0) < 0 && errno == EINTR)
		;
	return r;
}

bool program_missing(int status)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == 127;
}

const char *program_last_line(struct buf *said)
{
	char *p = (char *)said->data, *nl;
	size_t n = strlen(p);

	while (n && p[n - 1] == '\n')
		p[--n] = 0;
	nl = strrchr(p, '\n');
	return nl ? nl + 1 : p;
}
