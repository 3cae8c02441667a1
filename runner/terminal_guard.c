#include "runner/terminal_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

struct told {
	bool changed;
	struct termios was, now;
};

void terminal_guard_init(struct terminal_guard *g)
{
	*g = (struct terminal_guard){.fd = -1};
}

static bool same_modes(const struct termios *a, const struct termios *b)
{
	return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag &&
	       a->c_lflag == b->c_lflag;
}

/* Until the other end is closed, by its owner or by the kernel. A shell that has seen the death as well may have its own modes
 * there by now: then they stay. */
static void __attribute__((noreturn)) guard(int tty, int from)
{
	struct told last = {0}, next;
	struct termios modes;
	ssize_t n;

	while ((n = recv(from, &next, sizeof(next), 0)) != 0) {
		if (n == (ssize_t)sizeof(next))
			last = next;
		else if (n > 0 || errno != EINTR)
			break;
	}
	if (n == 0 && last.changed && tcgetattr(tty, &modes) == 0 && same_modes(&modes, &last.now))
		(void)tcsetattr(tty, TCSANOW, &last.was);
	_exit(0);
}

/* It holds nothing else of ours, and what ends or stops us does not reach it. */
static void __attribute__((noreturn)) become_guard(int tty, int from)
{
	sigset_t all;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	(void)setpgid(0, 0);
	/* Both are above the streams, which are open. */
	if (dup2(tty, STDIN_FILENO) < 0 || dup2(from, STDOUT_FILENO) < 0 ||
	    syscall(SYS_close_range, 2, ~0u, 0) < 0)
		_exit(1);
	guard(STDIN_FILENO, STDOUT_FILENO);
}

void terminal_guard_start(struct terminal_guard *g, int tty)
{
	cleanup_fd int copy = fcntl(tty, F_DUPFD_CLOEXEC, 3);
	int p[2];

	if (copy < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return;
	g->pid = fork();
	if (g->pid == 0)
		become_guard(copy, p[0]);
	(void)close(p[0]);
	if (g->pid < 0)
		(void)close(p[1]);
	else
		g->fd = p[1];
}

void terminal_guard_tell(const struct terminal_guard *g, const struct termios *was,
			 const struct termios *now)
{
	struct told m = {.changed = was && now};

	if (g->fd < 0)
		return;
	if (was && now) {
		m.was = *was;
		m.now = *now;
	}
	/* If it was killed there is none. */
	(void)send(g->fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void terminal_guard_end(struct terminal_guard *g)
{
	if (g->fd < 0)
		return;
	(void)close(g->fd);
	g->fd = -1;
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
}
