/* The keeper's life: it answers the daemon, and sees its end. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fuseabort.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/env/keeper_internal.h"
#include "fs/fuse/mount.h"

#define QUIET_MS 2000

static void nap(void)
{
	const struct timespec ts = {.tv_nsec = 2000000};

	(void)nanosleep(&ts, NULL);
}

/* ---- answers ---- */

static void answer(struct keeper_link *k, const struct keeper_msg *m, struct keeper_reply *rp)
{
	int fd = -1, r;

	rp->r = keeper_do(k, m, &rp->diag, &fd);
	r = io_send_fds(k->sock, rp, sizeof(*rp), &fd, fd >= 0);
	if (r < 0 &&
	    fd >= 0) { /* too many of the user's are under way: no answer would be a wait for ever */
		rp->r = diag_set(&rp->diag, r, "a descriptor cannot be handed over: %s",
				 err_text(r));
		/* A daemon that is gone has no use for an answer. */
		(void)!io_send_fds(k->sock, rp, sizeof(*rp), NULL, 0);
	}
	if (fd >= 0)
		(void)close(fd);
}

/* Paths of a bind go through the mount, which the daemon serves. If it died just then, this process
 * would wait for ever for an answer, because its own duplicates keep the connection open. So a child
 * without duplicates goes there, and the keeper stays awake. */
static void answer_in_child(struct keeper_link *k, const struct keeper_msg *m,
			    struct keeper_reply *rp)
{
	pid_t pid = fork();

	if (pid > 0)
		return;
	if (pid < 0) {
		rp->r = ret_nerrno();
		(void)!io_send_fds(k->sock, rp, sizeof(*rp), NULL, 0);
		return;
	}
	keeper_release(k);
	(void)umask(022);
	answer(k, m, rp);
	_exit(0);
}

/* How many are left. */
static size_t drop(struct keeper_link *k, uint32_t kind, uint64_t id)
{
	size_t n = 0;

	for (struct keeper_item **p = &k->items, *x; (x = *p);) {
		if (x->kind != kind || x->id != id) {
			p = &x->next;
			n++;
			continue;
		}
		*p = x->next;
		if (x->fd >= 0)
			(void)close(x->fd);
		free(x);
	}
	return n;
}

static const char *const kinds[] = {
	[KEEP_JOURNAL] = "the journal",
	[KEEP_LOCK] = "the environment's lock",
	[KEEP_LISTEN] = "the control socket",
	[KEEP_MOUNT] = "the mount",
	[KEEP_BIND] = "a bind",
	[KEEP_LEASE] = "a command",
	[KEEP_POLICY] = "the policy of the mount",
	[KEEP_MEND] = "what failed before",
};

static int hold(struct keeper_link *k, const struct keeper_msg *m, int *fd)
{
	if (m->with_fd && *fd < 0)
		return -EMFILE;
	if (m->kind == KEEP_MOUNT && k->lost)
		return -ENOLINK;
	return keeper_hold(k, m->kind, m->ino, m->data, m->len, steal_fd(fd));
}

static int keep(struct keeper_link *k, const struct keeper_msg *m, int *fd)
{
	size_t n;
	int r;

	if (m->kind < KEEP_JOURNAL || m->kind >= ARRAY_SIZE(kinds))
		return -EINVAL;
	n = drop(k, m->kind, m->ino);
	if (m->op == KEEPER_DROP)
		return 0;
	r = n < KEEPER_ITEMS_MAX ? hold(k, m, fd) : -ENOSPC;
	if (r < 0 && r != -ENOLINK)
		log_error("%s cannot be kept for another daemon (%s)%s", kinds[m->kind],
			  err_text(r), m->quiet ? ": commands will end with this one" : "");
	/* Nobody waits to be told. */
	k->lost |= r < 0 && m->quiet;
	return r;
}

static bool well_formed(struct keeper_msg *m, size_t n)
{
	if (n < KEEPER_MSG_HEAD)
		return false;
	if (m->op == KEEPER_KEEP || m->op == KEEPER_DROP)
		return m->len == n - KEEPER_MSG_HEAD;
	if (n != sizeof(*m))
		return false;
	m->dir[sizeof(m->dir) - 1] = m->path[sizeof(m->path) - 1] = m->host[sizeof(m->host) - 1] =
		0;
	return true;
}

/* One request; false when the daemon's end is closed. @lives: it waits for an answer. */
static bool serve_one(struct keeper_link *k, bool lives)
{
	struct keeper_msg m;
	struct keeper_reply rp = {0};
	cleanup_fd int fd = -1;
	int fds[IO_MAX_FDS];
	size_t nfds = 0;
	ssize_t n = io_recv_fds(k->sock, &m, sizeof(m), fds, &nfds);

	/* It is asked again for what it could not take in now. */
	if (n < 0) {
		nap();
		return lives;
	}
	if (n == 0)
		return false;
	for (size_t i = 1; i < nfds; i++)
		(void)close(fds[i]);
	if (nfds)
		fd = fds[0];
	/* None of ours: nor would it be understood that somebody waits for the answer. */
	if (!well_formed(&m, (size_t)n)) {
		log_error(
			"the daemon said what cannot be understood; it will be told that nobody listens");
		(void)shutdown(k->sock, SHUT_RDWR);
		return false;
	}
	if (m.op == KEEPER_KEEP || m.op == KEEPER_DROP) {
		rp.r = keep(k, &m, &fd);
		if (!m.quiet)
			(void)!io_send_fds(k->sock, &rp, sizeof(rp), NULL, 0);
		return true;
	}
	if (!lives)
		return true;
	if (m.op == KEEPER_BIND || m.op == KEEPER_UNBIND)
		answer_in_child(k, &m, &rp);
	else
		answer(k, &m, &rp);
	return true;
}

/* What the daemon said before its end. */
static void hear_out(struct keeper_link *k)
{
	struct pollfd p = {.fd = k->sock, .events = POLLIN};

	while (poll(&p, 1, 0) > 0 && (p.revents & POLLIN) && serve_one(k, false))
		;
}

/* ---- the end of a daemon ---- */

/* Reap what ended; true when the daemon is among it. */
static bool reap(pid_t daemon, int flags, int *status)
{
	int st;
	pid_t p;

	while ((p = waitpid(-1, &st, flags)) > 0 || (p < 0 && errno == EINTR)) {
		if (p != daemon)
			continue;
		*status = st;
		return true;
	}
	return p < 0;
}

/* Nobody serves them any more: who waits for an answer, a last thread of the daemon included, gets an
 * error now. */
static void end_mounts(const struct keeper_link *k)
{
	for (size_t i = 0; i < KEEPER_MOUNTS; i++)
		if (k->mounts[i].fd >= 0)
			fuse_abort(k->mounts[i].dir);
}

void keeper_end_strays(struct keeper_link *k)
{
	const struct keeper_item *x = keeper_find(k, KEEP_MOUNT);

	for (size_t i = 0; i < KEEPER_MOUNTS; i++) {
		struct keeper_mount *m = &k->mounts[i];

		if (m->fd < 0 || (x && !strncmp(m->dir, (const char *)x->data, sizeof(m->dir))))
			continue;
		fuse_abort(m->dir);
		(void)!mount_detach(m->dir, k->helper);
		(void)close(m->fd);
		m->fd = -1;
		(void)rmdir(m->dir);
	}
}

void keeper_give_up(struct keeper_link *k)
{
	end_mounts(k);
	for (size_t i = 0; i < KEEPER_MOUNTS; i++)
		if (k->mounts[i].fd >= 0 && k->helper)
			(void)!mount_detach(k->mounts[i].dir, true);
	keeper_release(k);
}

/* The last daemon has told how its mount began, and what it had not flushed. */
static bool resumable(struct keeper_link *k)
{
	return !k->lost && keeper_find(k, KEEP_JOURNAL) && keeper_find(k, KEEP_MOUNT);
}

/* Wait until the dying daemon runs no more, for two seconds at most: it is dead, or what is left of it waits in
 * the kernel for an answer that its successor will give. */
static bool wait_quiet(pid_t pid, int *status)
{
	long long end = io_now_ms() + QUIET_MS;

	while (!reap(pid, WNOHANG, status)) {
		if (io_now_ms() > end || !keeper_runs(pid))
			return false;
		nap();
	}
	return true;
}

static enum keeper_end how(struct keeper_link *k, bool dead, int status)
{
	bool again = !dead || WIFSIGNALED(status) ||
		     (WIFEXITED(status) && (WEXITSTATUS(status) == KEEPER_REPLACE ||
					    WEXITSTATUS(status) == KEEPER_RETRY));

	if (again && resumable(k))
		return KEEPER_DIED;
	return again ? KEEPER_LOST : KEEPER_ENDED;
}

enum keeper_end keeper_run(struct keeper_link *k, int pulse, pid_t pid, pid_t old, int *ret_status)
{
	cleanup_fd int pidfd = pidfd_open(pid, 0);
	bool open = true, dead = false;

	*ret_status = 0;
	/* A daemon that only closed its end is still flushing. */
	while (!dead) {
		struct pollfd p[] = {{.fd = open ? k->sock : -1, .events = POLLIN},
				     {.fd = pidfd, .events = POLLIN},
				     {.fd = pulse, .events = POLLIN}};

		/* One that was stuck in its death is freed by this daemon's answers, and has to be reaped. */
		if (old && kill(old, 0) < 0)
			old = 0;
		if (poll(p, ARRAY_SIZE(p), old || pidfd < 0 ? 200 : -1) < 0 && errno != EINTR)
			nap(); /* no memory: the daemon is served all the same */
		if (p[0].revents & (POLLIN | POLLHUP | POLLERR))
			open = serve_one(k, true);
		if (p[2].revents) {
			pulse = -1;
			dead = wait_quiet(pid, ret_status);
			hear_out(k);
			if (dead || resumable(k))
				return how(k, dead, *ret_status);
			end_mounts(k);
		}
		dead = reap(pid, WNOHANG, ret_status);
	}
	hear_out(k);
	return how(k, true, *ret_status);
}
