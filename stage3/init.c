#include "stage3/init.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage3/note.h"
#include "stage3/root.h"
#include "stage3/root_who.h"
#include "stage3/stage3_abi.h"
#include "stage3/status.h"

struct init {
	pid_t child;
	int tty_fd;
	bool ending; /* asked to end: wait for all, so that each can finish in the grace time */
	bool linger; /* wait for all in any case */
	bool noted;
	bool exited, told;
	int status;
};

static void report(enum stage3_msg_kind kind, int value)
{
	struct stage3_msg m = {.kind = kind, .value = value};

	(void)status_send(&m);
}

/* false when no child is left. */
static bool reap(struct init *in)
{
	int status, flags = WNOHANG | (in->tty_fd >= 0 ? WUNTRACED : 0);
	pid_t pid;

	while ((pid = waitpid(-1, &status, flags)) > 0) {
		if (pid != in->child)
			continue;
		if (WIFSTOPPED(status)) {
			report(STAGE3_MSG_STOPPED, WSTOPSIG(status));
			continue;
		}
		in->exited = true;
		in->status = status;
	}
	return pid == 0 || errno != ECHILD;
}

static void message(struct init *in, const struct stage3_msg *m)
{
	switch (m->kind) {
	case STAGE3_MSG_TERM:
		in->ending = true;
		(void)kill(-1, m->value);
		/* What is stopped cannot end. */
		(void)kill(-1, SIGCONT);
		break;
	case STAGE3_MSG_CONT:
		if (in->tty_fd >= 0 && m->value == 1)
			(void)tcsetpgrp(in->tty_fd, in->child);
		(void)kill(-in->child, SIGCONT);
		break;
	case STAGE3_MSG_SIGNAL:
		(void)kill(-in->child, m->value);
		break;
	case STAGE3_MSG_KILL:
	default: /* a runner that says what we do not know gets a dead sandbox, not a loose one */
		_exit(128 + SIGKILL);
	}
}

static void read_message(struct init *in)
{
	struct stage3_msg m;
	ssize_t n;

	n = recv(STAGE3_FD_STATUS, &m, sizeof(m), MSG_DONTWAIT);
	if (n == (ssize_t)sizeof(m))
		message(in, &m);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		_exit(128 + SIGKILL); /* the runner is gone: so is the sandbox (R4) */
}

static int exit_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void tell_exit(struct init *in)
{
	if (!in->told && !in->ending)
		note_send(in->noted);
	if (!in->told)
		report(STAGE3_MSG_EXITED, in->status);
	in->told = true;
}

int init_run(pid_t child, int tty_fd, bool linger, bool noted, int root_fd)
{
	struct init in = {.child = child, .tty_fd = tty_fd, .linger = linger, .noted = noted};
	struct signalfd_siginfo si;
	struct pollfd p[3] = {{.fd = STAGE3_FD_STATUS, .events = POLLIN},
			      {.events = POLLIN},
			      {.fd = root_fd, .events = POLLIN}};
	struct root_people people = {0};
	sigset_t chld;
	bool left = true;

	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	p[1].fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	if (p[1].fd < 0)
		return STAGE3_EXIT_FAILED;
	/* The first look is for a child that ended before the signalfd was there. */
	for (;;) {
		left = reap(&in);
		if (in.exited && ((!in.ending && !in.linger) || !left))
			break;
		if (in.exited)
			tell_exit(&in);
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return STAGE3_EXIT_FAILED;
		if (p[2].revents & POLLIN)
			root_serve(p[2].fd, &people);
		else if (p[2].revents) /* nobody is left who could ask */
			p[2].fd = -1;
		if (p[1].revents && read(p[1].fd, &si, sizeof(si)) < 0 && errno != EAGAIN)
			return STAGE3_EXIT_FAILED;
		if (p[0].revents)
			read_message(&in);
	}
	tell_exit(&in);
	return exit_code(in.status);
}
