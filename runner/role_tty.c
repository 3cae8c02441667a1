/* A terminal between a command of a session and ours: what is typed into ours cannot come from there. */
#include <fcntl.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/role_internal.h"

#define DRAIN_READS 256 /* of 4 KiB each; a terminal holds far less */

int role_leave_keys(void)
{
	/* Without keys in the kernel, or where a filter refuses the call to all, there are none to be had either. */
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS &&
	    errno != EPERM)
		return ret_nerrno();
	return 0;
}

/* The first standard stream that is a terminal; -1: none. */
static int terminal(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (isatty(fd))
			return fd;
	return -1;
}

int role_tty_open(struct role_tty *ret)
{
	int like = terminal();
	cleanup_fd int master = -1, slave = -1;
	struct winsize size;
	struct termios t;

	*ret = (struct role_tty){-1, -1};
	if (like < 0)
		return 0;
	master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
		return ret_nerrno();
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return ret_nerrno();
	if (tcgetattr(like, &t) == 0)
		(void)tcsetattr(slave, TCSANOW, &t);
	if (ioctl(like, TIOCGWINSZ, &size) == 0)
		(void)ioctl(slave, TIOCSWINSZ, &size);
	*ret = (struct role_tty){steal_fd(&master), steal_fd(&slave)};
	return 0;
}

int role_tty_enter(const struct role_tty *t)
{
	if (setsid() < 0)
		return ret_nerrno();
	if (t->slave < 0)
		return 0;
	if (ioctl(t->slave, TIOCSCTTY, 0) < 0)
		return ret_nerrno();
	for (int fd = 0; fd <= 2; fd++)
		if (isatty(fd) && dup2(t->slave, fd) < 0)
			return ret_nerrno();
	return 0;
}

/* ---- copying ---- */

struct relay {
	int master, in, out; /* in: -1 when it is no terminal, or at its end */
	/* What was typed and not taken yet. The command may never read: nobody waits for it, and nothing more is read. */
	char typed[4096];
	size_t ntyped;
	int pidfd, sigfd;
	pid_t pid;
	unsigned asked; /* how often we were asked to end */
	struct termios saved;
	bool raw;
};

/* What it says, for our terminal, which is waited for. True: go on. */
static bool copy(int from, int to)
{
	char block[4096];
	ssize_t n = read(from, block, sizeof(block));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	return n > 0 && io_write_full(to, block, (size_t)n) == 0;
}

static void read_typed(struct relay *l)
{
	ssize_t n = read(l->in, l->typed, sizeof(l->typed));

	if (n > 0)
		l->ntyped = (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		l->in = -1;
}

static void write_typed(struct relay *l)
{
	ssize_t n = write(l->master, l->typed, l->ntyped);

	if (n > 0) {
		l->ntyped -= (size_t)n;
		memmove(l->typed, l->typed + n, l->ntyped);
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		l->ntyped = 0;
		l->in = -1;
	}
}

static void got_signal(struct relay *l)
{
	struct signalfd_siginfo si;
	struct winsize size;

	if (read(l->sigfd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (si.ssi_signo == SIGWINCH) {
		if (ioctl(l->out, TIOCGWINSZ, &size) == 0)
			(void)ioctl(l->master, TIOCSWINSZ, &size);
		return;
	}
	if (++l->asked > 1)
		(void)pidfd_send_signal(l->pidfd, SIGKILL, NULL, 0);
	else if (kill(-l->pid, (int)si.ssi_signo) < 0)
		(void)pidfd_send_signal(l->pidfd, (int)si.ssi_signo, NULL, 0);
}

/* True while the command runs. */
static bool relay_once(struct relay *l)
{
	struct pollfd p[] = {
		{.fd = l->pidfd, .events = POLLIN},
		{.fd = l->sigfd, .events = POLLIN},
		{.fd = l->master, .events = POLLIN | (l->ntyped ? POLLOUT : 0)},
		{.fd = l->ntyped ? -1 : l->in, .events = POLLIN},
	};

	if (poll(p, ARRAY_SIZE(p), -1) < 0)
		return errno == EINTR;
	if (p[1].revents)
		got_signal(l);
	if (p[2].revents & POLLOUT)
		write_typed(l);
	if (p[2].revents & POLLIN && !copy(l->master, l->out)) {
		l->master = -1; /* ours is gone: the command may go on without */
		l->in = -1;
		l->ntyped = 0;
	}
	if (p[3].revents)
		read_typed(l);
	return !p[0].revents;
}

/*
 * What it has written before its end: all of it is there, no more than a terminal holds. What its children still write is nobody's,
 * and may have no end, when our signals are blocked and no key reaches anybody.
 */
static void drain(const struct relay *l, int master)
{
	struct pollfd p = {.fd = master, .events = POLLIN};
	int reads = DRAIN_READS;

	while (master >= 0 && reads-- > 0 && poll(&p, 1, 0) > 0 && p.revents & POLLIN)
		if (!copy(master, l->out))
			return;
}

static int relay_open(struct relay *l, sigset_t *ret_old)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGHUP);
	(void)sigaddset(&set, SIGQUIT);
	(void)sigaddset(&set, SIGWINCH);
	(void)sigprocmask(SIG_BLOCK, &set, ret_old);
	l->sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->sigfd < 0)
		return ret_nerrno();
	l->pidfd = pidfd_open(l->pid, 0);
	if (l->pidfd < 0)
		return ret_nerrno();
	if (l->master >= 0 && fcntl(l->master, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return ret_nerrno();
	if (l->in >= 0 && l->master >= 0 && tcgetattr(l->in, &l->saved) == 0) {
		struct termios t = l->saved;

		cfmakeraw(&t);
		l->raw = tcsetattr(l->in, TCSADRAIN, &t) == 0;
	}
	return 0;
}

int role_tty_relay(struct role_tty *t, pid_t pid, int *ret_status)
{
	int out = isatty(1) ? 1 : isatty(2) ? 2 : 0, r;
	struct relay l = {.master = t->master,
			  .in = t->master >= 0 && isatty(0) ? 0 : -1,
			  .out = out,
			  .pidfd = -1,
			  .sigfd = -1,
			  .pid = pid};
	sigset_t old;

	r = relay_open(&l, &old);
	while (r == 0 && relay_once(&l))
		continue;
	if (r < 0)
		(void)kill(pid, SIGKILL);
	while (waitpid(pid, ret_status, 0) < 0)
		if (errno != EINTR)
			r = ret_nerrno();
	drain(&l, t->master);
	if (l.raw)
		(void)tcsetattr(l.in >= 0 ? l.in : 0, TCSADRAIN, &l.saved);
	cleanup_fdp(&l.sigfd);
	cleanup_fdp(&l.pidfd);
	cleanup_fdp(&t->master);
	cleanup_fdp(&t->slave);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}
