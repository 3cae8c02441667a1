#include "fs/env/keeper.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/env/keeper_internal.h"
#include "fs/fuse/mount.h"

#define QUIET_MS 2000

/* Both ends are one program, so that the message is a struct: no codec, no version. */
enum keeper_op {
	KEEPER_MOUNT = 1,
	KEEPER_UMOUNT,
	KEEPER_BIND,
	KEEPER_UNBIND,
	KEEPER_KEEP,
	KEEPER_DROP
};

struct keeper_msg {
	enum keeper_op op;
	bool rdonly, allow_other, rw, rmdir;
	uint64_t dev, ino;
	uint32_t kind, len; /* KEEPER_KEEP, KEEPER_DROP; @ino is the id */
	union {
		struct {
			char dir[4096];
			char path[4096];
			char host[4096]; /* KEEPER_MOUNT: the name */
		};
		uint8_t data[KEEPER_DATA_MAX];
	};
};

struct keeper_reply {
	int r;
	struct diag diag;
};

void keeper_link_init(struct keeper_link *k, int sock, bool helper)
{
	memset(k, 0, sizeof(*k));
	k->sock = sock;
	k->helper = helper;
	for (size_t i = 0; i < KEEPER_MOUNTS; i++)
		k->mounts[i].fd = -1;
}

/* ---- the work ---- */

static int do_mount(struct keeper_link *k, const struct keeper_msg *m, struct diag *diag,
		    int *ret_fd)
{
	const struct mount_opts o = {.dir = m->dir,
				     .name = m->host,
				     .rdonly = m->rdonly,
				     .helper = k->helper,
				     .allow_other = m->allow_other};
	struct keeper_mount *free_slot = NULL;
	int r;

	for (size_t i = 0; i < KEEPER_MOUNTS && !free_slot; i++)
		if (k->mounts[i].fd < 0)
			free_slot = &k->mounts[i];
	if (!free_slot)
		return diag_set(diag, -EMFILE, "too many mounts of one environment at a time");
	if (mkdir(m->dir, 0700) < 0 && errno != EEXIST)
		return diag_set(diag, ret_nerrno(), "cannot make the mount point %s: %s", m->dir,
				err_text(errno));
	r = mount_fuse(&o, diag, ret_fd);
	if (r < 0 || k->sock < 0)
		return r;
	free_slot->fd = fcntl(*ret_fd, F_DUPFD_CLOEXEC, 3);
	if (free_slot->fd >= 0)
		memcpy(free_slot->dir, m->dir, sizeof(free_slot->dir));
	return 0;
}

static int do_umount(struct keeper_link *k, const struct keeper_msg *m)
{
	int r = mount_detach(m->dir, k->helper);

	/* Our duplicate would keep the connection open after the daemon has closed its own. */
	for (size_t i = 0; i < KEEPER_MOUNTS; i++) {
		if (k->mounts[i].fd >= 0 && !strcmp(k->mounts[i].dir, m->dir)) {
			(void)close(k->mounts[i].fd);
			k->mounts[i].fd = -1;
		}
	}
	if (m->rmdir)
		(void)rmdir(m->dir);
	return r;
}

static int open_beneath(int dirfd, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

	return fd < 0 ? ret_nerrno() : (int)fd;
}

/* The object that the client holds open, found again by its path in this namespace: a descriptor of
 * the client's own mount namespace cannot be bound here (mount(2): EINVAL). No component may be a
 * symlink, so that nothing is swapped between the client's look and ours; the pair of device and
 * inode is compared anyway. */
static int open_source(const struct keeper_msg *m, struct diag *diag, mode_t *ret_type)
{
	cleanup_fd int fd = open_beneath(AT_FDCWD, m->host, O_PATH | O_NOFOLLOW,
					 RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (fd == -ELOOP)
		return diag_set(diag, -EINVAL,
				"%s leads through a symbolic link; name the real path", m->host);
	if (fd < 0)
		return diag_set(diag, fd, "cannot open %s: %s", m->host, err_text(fd));
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (st.st_dev != m->dev || st.st_ino != m->ino)
		return diag_set(
			diag, -ESTALE,
			"%s is not the same here as for the caller: it was replaced, or something was "
			"mounted there after the environment was started (end it and try again)",
			m->host);
	*ret_type = st.st_mode & S_IFMT;
	return steal_fd(&fd);
}

#define IN_TREE (RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* The mount point below the tree's root; missing directories are made. The tree belongs to confined
 * commands, so no symlink in it may be followed: it would be resolved in our namespace. */
static int open_target(const struct keeper_msg *m, mode_t type, struct diag *diag)
{
	cleanup_fd int root = open(m->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char part[sizeof(m->path)];
	int fd;

	if (root < 0)
		return diag_set(diag, ret_nerrno(), "cannot open the mount: %s", err_text(errno));
	fd = open_beneath(root, m->path, O_PATH | O_NOFOLLOW, IN_TREE);
	if (fd != -ENOENT)
		return fd;
	memcpy(part, m->path, sizeof(part));
	for (char *p = part + 1;; p++) {
		char c = *p;

		if (c != '/' && c)
			continue;
		*p = 0;
		fd = open_beneath(root, part, O_PATH | O_NOFOLLOW, IN_TREE);
		if (fd == -ENOENT) {
			char *slash = strrchr(part, '/');
			cleanup_fd int parent = -1;

			*slash = 0;
			parent = open_beneath(root, *part ? part : "/", O_PATH | O_DIRECTORY,
					      IN_TREE);
			*slash = '/';
			if (parent < 0)
				return parent;
			if (c == 0 && type != S_IFDIR)
				fd = mknodat(parent, slash + 1, S_IFREG | 0644, 0);
			else
				fd = mkdirat(parent, slash + 1, 0755);
			if (fd < 0 && errno != EEXIST)
				return ret_nerrno();
			fd = open_beneath(root, part, O_PATH | O_NOFOLLOW, IN_TREE);
		}
		if (fd < 0 || c == 0)
			return fd;
		(void)close(fd);
		*p = c;
	}
}

/* A detached copy of the source gets its flags before it appears anywhere, so that a read-only bind
 * is at no moment writable; recursive, because a file system mounted below counts as well. */
static int copy_tree(int src, bool rw)
{
	struct mount_attr ma = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
	cleanup_fd int tree = open_tree(
		src, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);

	if (tree < 0)
		return ret_nerrno();
	if (!rw)
		ma.attr_set |= MOUNT_ATTR_RDONLY;
	if (mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &ma, sizeof(ma)) < 0)
		return ret_nerrno();
	return steal_fd(&tree);
}

static int do_bind(const struct keeper_msg *m, struct diag *diag)
{
	cleanup_fd int src = -1, dst = -1, tree = -1;
	struct stat st;
	mode_t type = 0;

	src = open_source(m, diag, &type);
	if (src < 0)
		return src;
	dst = open_target(m, type, diag);
	if (dst == -ELOOP)
		return diag_set(diag, -EINVAL, "%s leads through a symbolic link of the tree",
				m->path);
	if (dst < 0)
		return dst;
	if (fstat(dst, &st) < 0)
		return ret_nerrno();
	if (S_ISDIR(type) != S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
		return diag_set(diag, -ENOTDIR,
				"%s and %s must both be directories, or both be files", m->host,
				m->path);
	tree = copy_tree(src, m->rw);
	if (tree < 0)
		return diag_set(diag, tree, "cannot bind %s (Linux 5.12 or later is needed): %s",
				m->host, err_text(tree));
	if (move_mount(tree, "", dst, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return diag_set(diag, ret_nerrno(), "cannot bind %s at %s: %s", m->host, m->path,
				err_text(errno));
	return 0;
}

static int do_unbind(const struct keeper_msg *m, struct diag *diag)
{
	cleanup_fd int root = open(m->dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	char at[64];

	if (root < 0)
		return ret_nerrno();
	fd = open_beneath(root, m->path, O_PATH | O_NOFOLLOW, IN_TREE);
	if (fd < 0)
		return fd;
	(void)snprintf(at, sizeof(at), "/proc/self/fd/%d", fd);
	if (umount2(at, MNT_DETACH) < 0)
		return diag_set(diag, ret_nerrno(), "cannot unbind %s: %s", m->path,
				err_text(errno));
	return 0;
}

static int handle(struct keeper_link *k, const struct keeper_msg *m, struct diag *diag, int *ret_fd)
{
	switch (m->op) {
	case KEEPER_MOUNT:
		return do_mount(k, m, diag, ret_fd);
	case KEEPER_UMOUNT:
		return do_umount(k, m);
	case KEEPER_KEEP:
	case KEEPER_DROP:
		return 0; /* nobody to keep it */
	case KEEPER_BIND:
	case KEEPER_UNBIND:
		/* In the host's namespace it would show up on the host, and need root. */
		if (k->helper || k->sock < 0)
			return diag_set(
				diag, -EOPNOTSUPP,
				"binds need a mount namespace of the environment's own, which this host refuses");
		return m->op == KEEPER_BIND ? do_bind(m, diag) : do_unbind(m, diag);
	}
	return -EINVAL;
}

/* ---- the daemon's side ---- */

static int ask(struct keeper_link *k, const struct keeper_msg *m, int fd, struct diag *diag,
	       int *ret_fd)
{
	struct keeper_reply rp;
	int fds[IO_MAX_FDS], r;
	size_t nfds = 0;
	ssize_t n;

	if (k->sock < 0)
		return handle(k, m, diag, ret_fd);
	r = io_send_fds(k->sock, m, sizeof(*m), &fd, fd >= 0);
	if (r < 0)
		return diag_set(diag, -EPIPE, "the keeper process is gone");
	n = io_recv_fds(k->sock, &rp, sizeof(rp), fds, &nfds);
	for (size_t i = ret_fd ? 1 : 0; i < nfds; i++)
		(void)close(fds[i]);
	if (n != (ssize_t)sizeof(rp)) {
		if (ret_fd && nfds)
			(void)close(fds[0]);
		return diag_set(diag, -EPIPE, "the keeper process is gone");
	}
	if (rp.r < 0 && rp.diag.text[0])
		diag_set(diag, rp.r, "%s", rp.diag.text);
	if (ret_fd && rp.r >= 0) {
		if (nfds == 0)
			return -EBADMSG;
		*ret_fd = fds[0];
	}
	return rp.r;
}

static int put(char *dst, size_t size, const char *s)
{
	size_t n = strlen(s);

	if (n >= size)
		return -ENAMETOOLONG;
	memcpy(dst, s, n + 1);
	return 0;
}

int keeper_mount(struct keeper_link *k, const struct keeper_mount_opts *o, struct diag *diag,
		 int *ret_fd)
{
	struct keeper_msg m = {
		.op = KEEPER_MOUNT, .rdonly = o->rdonly, .allow_other = o->allow_other};
	int r = put(m.dir, sizeof(m.dir), o->dir);

	if (r == 0)
		r = put(m.host, sizeof(m.host), o->name);
	return r < 0 ? r : ask(k, &m, -1, diag, ret_fd);
}

int keeper_umount(struct keeper_link *k, const char *dir, bool rmdir)
{
	struct keeper_msg m = {.op = KEEPER_UMOUNT, .rmdir = rmdir};
	int r = put(m.dir, sizeof(m.dir), dir);

	return r < 0 ? r : ask(k, &m, -1, NULL, NULL);
}

int keeper_bind(struct keeper_link *k, const char *dir, const char *path, const char *host,
		uint64_t dev, uint64_t ino, bool rw, struct diag *diag)
{
	struct keeper_msg m = {.op = KEEPER_BIND, .dev = dev, .ino = ino, .rw = rw};
	int r = put(m.dir, sizeof(m.dir), dir);

	if (r == 0)
		r = put(m.path, sizeof(m.path), path);
	if (r == 0)
		r = put(m.host, sizeof(m.host), host);
	return r < 0 ? r : ask(k, &m, -1, diag, NULL);
}

int keeper_unbind(struct keeper_link *k, const char *dir, const char *path, struct diag *diag)
{
	struct keeper_msg m = {.op = KEEPER_UNBIND};
	int r = put(m.dir, sizeof(m.dir), dir);

	if (r == 0)
		r = put(m.path, sizeof(m.path), path);
	return r < 0 ? r : ask(k, &m, -1, diag, NULL);
}

int keeper_keep(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd)
{
	struct keeper_msg m = {.op = KEEPER_KEEP, .kind = kind, .ino = id, .len = (uint32_t)len};

	if (len > sizeof(m.data))
		return -E2BIG;
	if (len)
		memcpy(m.data, data, len);
	return ask(k, &m, fd, NULL, NULL);
}

void keeper_drop(struct keeper_link *k, enum keeper_kind kind, uint64_t id)
{
	struct keeper_msg m = {.op = KEEPER_DROP, .kind = kind, .ino = id};

	(void)!ask(k, &m, -1, NULL, NULL);
}

/* ---- the keeper's side ---- */

static void answer(struct keeper_link *k, const struct keeper_msg *m, struct keeper_reply *rp)
{
	int fd = -1;

	rp->r = handle(k, m, &rp->diag, &fd);
	/* A daemon that is gone has no use for an answer. */
	(void)!io_send_fds(k->sock, rp, sizeof(*rp), &fd, fd >= 0);
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

static void drop(struct keeper_link *k, uint32_t kind, uint64_t id)
{
	for (struct keeper_item **p = &k->items, *x; (x = *p);) {
		if (x->kind != kind || x->id != id) {
			p = &x->next;
			continue;
		}
		*p = x->next;
		if (x->fd >= 0)
			(void)close(x->fd);
		free(x);
	}
}

static void keep(struct keeper_link *k, const struct keeper_msg *m, int *fd,
		 struct keeper_reply *rp)
{
	rp->r = -EINVAL;
	if (m->len > sizeof(m->data) || m->kind < KEEP_JOURNAL)
		return;
	drop(k, m->kind, m->ino);
	rp->r = 0;
	if (m->op == KEEPER_DROP)
		return;
	rp->r = keeper_hold(k, m->kind, m->ino, m->data, m->len, *fd);
	*fd = -1;
}

/* One request; false when the daemon's end is closed. */
static bool serve_one(struct keeper_link *k)
{
	struct keeper_msg m;
	struct keeper_reply rp = {0};
	cleanup_fd int fd = -1;
	int fds[IO_MAX_FDS];
	size_t nfds = 0;
	ssize_t n = io_recv_fds(k->sock, &m, sizeof(m), fds, &nfds);

	if (n <= 0)
		return false;
	for (size_t i = 1; i < nfds; i++)
		(void)close(fds[i]);
	if (nfds)
		fd = fds[0];
	if (n != (ssize_t)sizeof(m))
		return false;
	if (m.op == KEEPER_KEEP || m.op == KEEPER_DROP) {
		keep(k, &m, &fd, &rp);
		(void)!io_send_fds(k->sock, &rp, sizeof(rp), NULL, 0);
		return true;
	}
	m.dir[sizeof(m.dir) - 1] = m.path[sizeof(m.path) - 1] = m.host[sizeof(m.host) - 1] = 0;
	if (m.op == KEEPER_BIND || m.op == KEEPER_UNBIND)
		answer_in_child(k, &m, &rp);
	else
		answer(k, &m, &rp);
	return true;
}

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
			mount_abort(k->mounts[i].dir);
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
	return keeper_find(k, KEEP_JOURNAL) && keeper_find(k, KEEP_MOUNT);
}

/* Wait until the dying daemon runs no more, for two seconds at most: it is dead, or what is left of it waits in
 * the kernel for an answer that its successor will give. */
static bool wait_quiet(pid_t pid, int *status)
{
	long long end = io_now_ms() + QUIET_MS;

	while (!reap(pid, WNOHANG, status)) {
		const struct timespec ts = {.tv_nsec = 2000000};

		if (io_now_ms() > end || !keeper_runs(pid))
			return false;
		(void)nanosleep(&ts, NULL);
	}
	return true;
}

static enum keeper_end how(struct keeper_link *k, bool dead, int status)
{
	bool again = !dead || WIFSIGNALED(status) ||
		     (WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_REPLACE);

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
	while (pidfd >= 0 && !dead) {
		struct pollfd p[] = {{.fd = open ? k->sock : -1, .events = POLLIN},
				     {.fd = pidfd, .events = POLLIN},
				     {.fd = pulse, .events = POLLIN}};

		/* One that was stuck in its death is freed by this daemon's answers, and has to be reaped. */
		if (old && kill(old, 0) < 0)
			old = 0;
		if (poll(p, ARRAY_SIZE(p), old ? 200 : -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents & (POLLIN | POLLHUP | POLLERR))
			open = serve_one(k);
		if (p[2].revents) {
			pulse = -1;
			dead = wait_quiet(pid, ret_status);
			if (dead || resumable(k))
				return how(k, dead, *ret_status);
			end_mounts(k);
		}
		dead = reap(pid, WNOHANG, ret_status);
	}
	if (!dead)
		(void)reap(pid, 0, ret_status);
	return how(k, true, *ret_status);
}
