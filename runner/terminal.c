#include "runner/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "runner/terminal_guard.h"

#define COPY_MAX 4096u
#define FRONT_MS \
	200 /* between two looks whether we are in the foreground by now: no signal tells it */
#define LAST_COPIES 64 /* of what was shown before a stop: a terminal holds far less */

static void close_fd(int *fd)
{
	cleanup_fdp(fd);
	*fd = -1;
}

struct terminal {
	int master, slave; /* -1: there is no terminal */
	int in, out;       /* ours; in -1: nothing can be read of it */
	bool front;        /* the command begins in its foreground */
	bool keyboard;     /* the command wants what is typed */
	bool raw;          /* our terminal has raw modes, and @saved is what it had */
	struct termios saved;
	struct terminal_guard guard;
	sigset_t set, old;
	int sigfd;

	char shown[COPY_MAX], typed[COPY_MAX]; /* read, and not written yet */
	size_t nshown, ntyped;
	bool ended, abandoned; /* abandoned: asked to end when there was only output left */
	unsigned asked;        /* how often we were asked to end */
	int signal;            /* the first time with this */
};

/* ---- our terminal ---- */

/* Where it is not the controlling one there is no job control either. */
static bool in_front(const struct terminal *t)
{
	const pid_t pgrp = tcgetpgrp(t->in >= 0 ? t->in : t->out);

	return pgrp < 0 || pgrp == getpgrp();
}

static void raw_modes(const struct terminal *t, struct termios *ret)
{
	*ret = t->saved;
	cfmakeraw(ret);
}

static void set_raw(const struct terminal *t)
{
	struct termios modes;

	raw_modes(t, &modes);
	terminal_guard_tell(&t->guard, &t->saved, &modes);
	(void)tcsetattr(t->in, TCSADRAIN, &modes);
}

/* What was typed before, while our terminal still made lines of it: the end of input among it would be a NUL afterwards. */
static void read_ahead(struct terminal *t)
{
	struct pollfd p = {.fd = t->in, .events = POLLIN};

	while (t->ntyped < sizeof(t->typed) && poll(&p, 1, 0) > 0 && p.revents == POLLIN) {
		ssize_t n = read(t->in, t->typed + t->ntyped, sizeof(t->typed) - t->ntyped);

		if (n < 0)
			return;
		if (n == 0)
			t->typed[t->ntyped] = 'D' & 0x1f;
		t->ntyped += n ? (size_t)n : 1;
	}
}

/* What the command wants, when we may. */
static void take(struct terminal *t)
{
	if (!t->keyboard || t->raw || t->in < 0 || t->ended || !in_front(t))
		return;
	if (tcgetattr(t->in, &t->saved) < 0)
		return;
	if (t->saved.c_lflag & ICANON)
		read_ahead(t);
	t->raw = true;
	set_raw(t);
}

static void give_back(struct terminal *t)
{
	if (t->raw)
		(void)tcsetattr(t->in, TCSADRAIN, &t->saved);
	if (t->raw)
		terminal_guard_tell(&t->guard, NULL, NULL);
	t->raw = false;
}

static void resize(const struct terminal *t)
{
	struct winsize size;

	if (ioctl(t->out, TIOCGWINSZ, &size) == 0)
		(void)ioctl(t->master, TIOCSWINSZ, &size);
}

/* ---- copying ---- */

/* The command's terminal makes CR LF of LF; ours does so once more, unless it is in raw mode. */
static void undo_newlines(struct terminal *t)
{
	struct termios modes;
	size_t n = 0;

	if (t->raw || tcgetattr(t->out, &modes) < 0 || !(modes.c_oflag & OPOST) ||
	    !(modes.c_oflag & ONLCR))
		return;
	for (size_t i = 0; i < t->nshown; i++)
		if (t->shown[i] != '\r' || i + 1 == t->nshown || t->shown[i + 1] != '\n')
			t->shown[n++] = t->shown[i];
	t->nshown = n;
}

static void read_shown(struct terminal *t)
{
	ssize_t n = read(t->master, t->shown, sizeof(t->shown));

	if (n > 0) {
		t->nshown = (size_t)n;
		undo_newlines(t);
	}
}

static void write_shown(struct terminal *t)
{
	ssize_t n = write(t->out, t->shown, t->nshown);

	if (n > 0) {
		t->nshown -= (size_t)n;
		memmove(t->shown, t->shown + n, t->nshown);
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		t->nshown = 0; /* ours is gone: the command may go on without */
	}
}

/* False: nothing can be typed any more. In raw mode there is no other end of it. */
static bool read_typed(struct terminal *t)
{
	ssize_t n = read(t->in, t->typed, sizeof(t->typed));

	if (n > 0)
		t->ntyped = (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		t->in = -1;
	return t->in >= 0;
}

static void write_typed(struct terminal *t)
{
	ssize_t n = write(t->master, t->typed, t->ntyped);

	if (n > 0) {
		t->ntyped -= (size_t)n;
		memmove(t->typed, t->typed + n, t->ntyped);
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		t->ntyped = 0;
	}
}

static bool more_shown(const struct terminal *t)
{
	struct pollfd p = {.fd = t->master, .events = POLLIN};

	return poll(&p, 1, 0) > 0 && p.revents & POLLIN;
}

/* ---- stopping, and going on ---- */

/* All of our job, and back only when we were continued: the signal is blocked, and so stays pending until it is let through here, when
 * it stops us before the call returns. A SIGCONT that comes in between takes it away. Where no shell would continue us the
 * kernel ignores it. */
static void stop_us(int sig)
{
	sigset_t one;

	(void)sigemptyset(&one);
	(void)sigaddset(&one, sig);
	(void)kill(0, sig);
	(void)pthread_sigmask(SIG_UNBLOCK, &one, NULL);
	(void)pthread_sigmask(SIG_BLOCK, &one, NULL);
}

static void job_stopped(struct terminal *t, struct run *r)
{
	int sig = run_stopped(r);
	const bool asks = sig == SIGTTIN || sig == SIGTTOU;

	if (!sig)
		return;
	t->keyboard = t->keyboard || asks;
	if (asks && in_front(t)) {
		take(t);
		run_continue(r, true);
		return;
	}
	for (unsigned i = 0; i < LAST_COPIES && (t->nshown || more_shown(t)); i++) {
		if (!t->nshown)
			read_shown(t);
		write_shown(t);
	}
	give_back(t);
	stop_us(asks ? sig : SIGTSTP);
	take(t);
	resize(t);
	run_continue(r, t->keyboard);
}

/* Somebody stopped us, without a word to the command, and we go on; our shell may have had the terminal. */
static void continued(struct terminal *t)
{
	if (t->raw && !in_front(t))
		t->raw = false;
	else if (t->raw)
		set_raw(t);
	resize(t);
}

static void end_command(struct terminal *t, struct run *r, int sig, unsigned grace_ms)
{
	t->abandoned = t->ended;
	t->signal = t->asked ? t->signal : sig;
	(void)run_kill(r, t->asked++ ? 0 : grace_ms);
}

static void got_signal(struct terminal *t, struct run *r, unsigned grace_ms)
{
	struct signalfd_siginfo si;

	if (read(t->sigfd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	switch (si.ssi_signo) {
	case SIGWINCH:
		resize(t);
		return;
	case SIGCONT:
		continued(t);
		return;
	case SIGTSTP:
		run_signal(r, SIGTSTP);
		return;
	case SIGINT:
	case SIGQUIT:
		if (t->master >= 0 && !t->ended) {
			run_signal(r, (int)si.ssi_signo);
			return;
		}
		break;
	default:
		break;
	}
	end_command(t, r, (int)si.ssi_signo, grace_ms);
}

/* ---- the loop ---- */

/* False: there is nothing more. */
static bool once(struct terminal *t, struct run *r, unsigned grace_ms, struct run_result *ret)
{
	const bool has = t->master >= 0;
	const short wants = (short)((t->nshown ? 0 : POLLIN) | (t->ntyped ? POLLOUT : 0));
	struct pollfd p[] = {
		{.fd = t->sigfd, .events = POLLIN},
		{.fd = t->ended ? -1 : run_pidfd(r), .events = POLLIN},
		{.fd = t->ended ? -1 : run_stop_fd(r), .events = POLLIN},
		{.fd = has && wants ? t->master : -1, .events = wants},
		{.fd = t->nshown ? t->out : -1, .events = POLLOUT},
		{.fd = t->raw && !t->ntyped && !t->ended ? t->in : -1, .events = POLLIN},
	};
	const bool waits = has && t->keyboard && !t->raw && t->in >= 0;

	/* All that wrote are gone: what they wrote is there at once. */
	if (poll(p, ARRAY_SIZE(p), t->ended && !t->nshown ? 0 : waits ? FRONT_MS : -1) < 0)
		return errno == EINTR;
	if (p[0].revents)
		got_signal(t, r, grace_ms);
	if (p[2].revents)
		job_stopped(t, r);
	if (p[3].revents & POLLOUT)
		write_typed(t);
	if (p[3].revents & POLLIN && !t->nshown)
		read_shown(t);
	if (p[4].revents)
		write_shown(t);
	if (p[5].revents && t->raw && !read_typed(t))
		end_command(t, r, SIGHUP, grace_ms);
	if (t->ended)
		return t->nshown ? !t->abandoned : has && more_shown(t);
	if (p[1].revents) {
		/* Its init is dead or dying. */
		t->ended = run_wait(r, UINT64_MAX, ret) == 1;
		t->ntyped = 0;
		return t->ended;
	}
	take(t);
	return true;
}

int terminal_wait(struct terminal *t, struct run *r, unsigned grace_ms, struct run_result *ret,
		  int *ret_signal)
{
	close_fd(&t->slave); /* the command's, by now */
	t->keyboard = t->front;
	if (t->master >= 0)
		take(t);
	while (once(t, r, grace_ms, ret))
		continue;
	give_back(t);
	*ret_signal = t->signal;
	return t->ended ? 1 : run_wait(r, UINT64_MAX, ret);
}

/* ---- its life ---- */

static void find_streams(struct terminal *t)
{
	const bool tty[3] = {isatty(0), isatty(1), isatty(2)};

	t->out = tty[1] ? 1 : tty[2] ? 2 : tty[0] ? 0 : -1;
	for (int fd = 0; fd <= 2 && t->in < 0; fd++)
		if (tty[fd] && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY)
			t->in = fd;
	t->front = t->out >= 0 && tty[0] && tty[1] && in_front(t);
}

/* The modes of a terminal at which somebody types lines: ours, where it is in the hands of another program, a shell's editor
 * most often, has that one's. */
static void line_modes(struct termios *m)
{
	m->c_iflag |= BRKINT | ICRNL | IXON;
	m->c_iflag &= ~(tcflag_t)(INLCR | IGNCR | ISTRIP);
	m->c_oflag |= OPOST | ONLCR;
	m->c_lflag |= ICANON | ISIG | IEXTEN | ECHO | ECHOE | ECHOK;
}

static int make_terminal(struct terminal *t)
{
	struct termios modes;

	t->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (t->master < 0 || grantpt(t->master) < 0 || unlockpt(t->master) < 0)
		return ret_nerrno();
	t->slave = ioctl(t->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (t->slave < 0)
		return ret_nerrno();
	if (tcgetattr(t->out, &modes) == 0) {
		/* In the background it may write, and that is all that it may. */
		modes.c_lflag &= ~(tcflag_t)TOSTOP;
		if (!t->front)
			line_modes(&modes);
		(void)tcsetattr(t->slave, TCSANOW, &modes);
	}
	resize(t);
	return 0;
}

static void choose_signals(struct terminal *t)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	static const int jobs[] = {SIGWINCH, SIGTSTP, SIGCONT};

	(void)sigemptyset(&t->set);
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		(void)sigaddset(&t->set, ends[i]);
	for (size_t i = 0; t->out >= 0 && i < ARRAY_SIZE(jobs); i++)
		(void)sigaddset(&t->set, jobs[i]);
}

static int open_all(struct terminal *t)
{
	sigset_t block;

	find_streams(t);
	choose_signals(t);
	block = t->set;
	if (t->out >= 0) {
		/* Modes are set from the background, too, when we are stopped there. */
		(void)sigaddset(&block, SIGTTIN);
		(void)sigaddset(&block, SIGTTOU);
	}
	(void)pthread_sigmask(SIG_BLOCK, &block, &t->old);
	t->sigfd = signalfd(-1, &t->set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (t->sigfd < 0)
		return ret_nerrno();
	if (t->out < 0)
		return 0;
	/* Before the terminal is made: it holds nothing of it. */
	if (t->in >= 0)
		terminal_guard_start(&t->guard, t->in);
	return make_terminal(t);
}

int terminal_open(struct terminal **ret)
{
	struct terminal *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->master = t->slave = t->in = t->out = t->sigfd = -1;
	terminal_guard_init(&t->guard);
	r = open_all(t);
	if (r < 0) {
		terminal_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void terminal_lend(const struct terminal *t, struct run_spec *s)
{
	s->terminal_fd = t->slave;
	s->terminal_back = t->slave >= 0 && !t->front;
}

void terminal_free(struct terminal *t)
{
	if (!t)
		return;
	give_back(t);
	terminal_guard_end(&t->guard);
	close_fd(&t->sigfd);
	close_fd(&t->slave);
	close_fd(&t->master);
	(void)pthread_sigmask(SIG_SETMASK, &t->old, NULL);
	free(t);
}
