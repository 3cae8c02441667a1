/* Open files: each has a descriptor of the host's file, opened as it was asked for. */
#include "fs/through/through_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- handles ---- */

/* t->lock. A free place in the table. */
static int handle_slot(struct through *t, size_t *ret)
{
	struct handle **v;
	size_t cap = t->cap_handles + HANDLE_CHUNK;

	if (t->nopen >= t->handles_max)
		return -ENFILE;
	for (*ret = t->slot; *ret < t->nhandles; ++*ret)
		if (!t->handles[*ret])
			return 0;
	if (t->nhandles == t->cap_handles) {
		v = reallocarray(t->handles, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		t->handles = v;
		t->cap_handles = cap;
	}
	*ret = t->nhandles++;
	return 0;
}

int handle_room(struct through *t)
{
	int r;

	through_lock(t);
	r = t->nopen < t->handles_max ? 0 : -ENFILE;
	through_unlock(t);
	return r;
}

int handle_new(struct through *t, struct tnode *n, int fd, bool writes, struct tree_open *ret)
{
	struct handle *h = calloc(1, sizeof(*h));
	size_t at;
	int r = h ? 0 : -ENOMEM;

	through_lock(t);
	if (r == 0)
		r = handle_slot(t, &at);
	if (r == 0) {
		*h = (struct handle){.n = n, .fd = fd, .writes = writes};
		(void)pthread_mutex_init(&h->lock, NULL);
		n->refs++;
		n->handles++;
		if (writes)
			atomic_store(&n->written, true);
		t->handles[at] = h;
		t->slot = at + 1;
		t->nopen++;
		*ret = (struct tree_open){.fh = at + 1};
		h = NULL;
	}
	through_unlock(t);
	free(h);
	if (r < 0 && fd >= 0)
		(void)close(fd);
	return r;
}

static void handle_free(struct handle *h)
{
	if (h->fd >= 0)
		(void)close(h->fd);
	(void)pthread_mutex_destroy(&h->lock);
	free(h);
}

void handles_free(struct through *t)
{
	for (size_t i = 0; i < t->nhandles; i++)
		if (t->handles[i])
			handle_free(t->handles[i]);
	free(t->handles);
}

struct handle *handle_of(struct through *t, store_ino ino, uint64_t fh)
{
	struct handle *h = NULL;

	through_lock(t);
	if (fh && fh <= t->nhandles)
		h = t->handles[fh - 1];
	if (h && h->n->ino != ino)
		h = NULL;
	through_unlock(t);
	return h;
}

void th_release(void *arg, store_ino ino, uint64_t fh)
{
	struct through *t = arg;
	struct handle *h = NULL;

	(void)ino;
	through_lock(t);
	if (fh && fh <= t->nhandles && t->handles[fh - 1]) {
		h = t->handles[fh - 1];
		t->handles[fh - 1] = NULL;
		t->slot = fh - 1 < t->slot ? fh - 1 : t->slot;
		t->nopen--;
		h->n->handles--;
		h->n->refs--;
		tnode_drop(t, h->n);
	}
	through_unlock(t);
	if (h)
		handle_free(h);
}

/* ---- opening ---- */

/* Appending is each write's (th_write); O_DIRECT keeps the kernel's cache of the mount out, and our buffers are not
 * aligned. */
int file_flags(int flags)
{
	return (flags & (O_ACCMODE | O_SYNC | O_DSYNC | O_NOATIME)) | O_CLOEXEC | O_NONBLOCK |
	       O_NOCTTY;
}

static bool changes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

/* Has the host put another file at its name? Then the caller looks that one up. What has no name left is meant itself. */
static int still_named(struct through *t, struct tnode *n)
{
	char name[STORE_NAME_MAX + 1];
	cleanup_use struct use up = {0};
	struct stat st;
	int r = tnode_use_parent(t, n, name, &up);

	if (r < 0 || !*name)
		return 0;
	if (fstatat(up.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return st.st_dev == n->id.dev && st.st_ino == n->id.ino ? 0 : -ESTALE;
}

int th_open(void *arg, store_ino ino, int flags, struct tree_open *ret)
{
	struct through *t = arg;
	cleanup_use struct use u = {0};
	struct judge_node j;
	int fd, r = tnode_use(t, ino, FRESH_NOW, &u);

	if (r == 0 && u.n->id.type != S_IFREG)
		r = u.n->id.type == S_IFDIR ? -EISDIR : -ELOOP;
	if (r == 0)
		r = still_named(t, u.n);
	if (r < 0)
		return r;
	j = at_node(&u);
	r = judge_open(&t->judge, &j, changes(flags));
	if (r < 0)
		return r;
	fd = TNODE_TRY(t, openat(t->proc_fd, fd_name(u.fd).s, file_flags(flags)));
	if (fd < 0)
		return ret_nerrno();
	return handle_new(t, u.n, fd, (flags & O_ACCMODE) != O_RDONLY, ret);
}

int th_opendir(void *arg, store_ino ino, struct tree_open *ret)
{
	struct through *t = arg;
	cleanup_use struct use u = {0};
	struct judge_node j;
	int fd = -1, r = tnode_use_dir(t, ino, FRESH_ENOUGH, &u);

	if (r < 0)
		return r;
	j = at_node(&u);
	r = judge_open(&t->judge, &j, false);
	if (r < 0)
		return r;
	if (!u.n->made_up) {
		fd = TNODE_TRY(
			t, openat(t->proc_fd, fd_name(u.fd).s, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		if (fd < 0)
			return ret_nerrno();
	}
	return handle_new(t, u.n, fd, false, ret);
}

/* ---- content ---- */

/* The handle, with @what still allowed where its file is now. Changes look each time. */
static int file_use(struct through *t, store_ino ino, uint64_t fh, unsigned what, const char *op,
		    struct use *u, struct handle **ret)
{
	int r;

	*ret = handle_of(t, ino, fh);
	if (!*ret || (*ret)->fd < 0)
		return -EBADF;
	r = tnode_use(t, ino, what & POLICY_MAY_WRITE ? FRESH_NOW : FRESH_ENOUGH, u);
	return r == 0 ? may_node(u, what, op) : r;
}

/* Reads, or writes with @flags, until @n bytes are done, the file ends or something fails: what was done counts. */
static ssize_t all_of(int fd, uint64_t off, void *buf, size_t n, bool write, int flags)
{
	size_t at = 0;

	while (at < n) {
		struct iovec v = {.iov_base = (uint8_t *)buf + at, .iov_len = n - at};
		ssize_t k = write ? pwritev2(fd, &v, 1, (off_t)(off + at), flags)
				  : preadv(fd, &v, 1, (off_t)(off + at));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && at == 0)
			return ret_nerrno();
		if (k <= 0)
			break;
		at += (size_t)k;
	}
	return (ssize_t)at;
}

ssize_t th_read(void *t, store_ino ino, uint64_t fh, uint64_t off, void *buf, size_t n)
{
	cleanup_use struct use u = {0};
	struct handle *h;
	int r = file_use(t, ino, fh, POLICY_MAY_READ, "read", &u, &h);

	return r < 0 ? r : all_of(h->fd, off, buf, n, false, 0);
}

ssize_t th_write(void *t, store_ino ino, uint64_t fh, uint64_t off, const void *buf, size_t n,
		 unsigned how, bool *killpriv)
{
	cleanup_use struct use u = {0};
	struct handle *h;
	int r = file_use(t, ino, fh, POLICY_MAY_WRITE, "write", &u, &h);

	if (r < 0)
		return r;
	if (killpriv)
		*killpriv = attr_kill(h->fd);
	return all_of(h->fd, off, (void *)(uintptr_t)buf, n, true,
		      how & TREE_APPEND ? RWF_APPEND : 0);
}

int th_fallocate(void *t, store_ino ino, uint64_t fh, int mode, uint64_t off, uint64_t len)
{
	cleanup_use struct use u = {0};
	struct handle *h;
	int r = file_use(t, ino, fh, POLICY_MAY_WRITE, "write", &u, &h);

	if (r < 0)
		return r;
	do
		r = fallocate(h->fd, mode, (off_t)off, (off_t)len);
	while (r < 0 && errno == EINTR);
	return r < 0 ? ret_nerrno() : 0;
}

int64_t th_lseek(void *t, store_ino ino, uint64_t fh, int64_t off, int whence)
{
	cleanup_use struct use u = {0};
	struct handle *h;
	int r = file_use(t, ino, fh, POLICY_MAY_READ, "read", &u, &h);
	off_t at;

	if (r < 0)
		return r;
	at = lseek(h->fd, off, whence);
	return at < 0 ? ret_nerrno() : at;
}

ssize_t th_copy_range(void *t, store_ino in, uint64_t fh_in, uint64_t off_in, store_ino out,
		      uint64_t fh_out, uint64_t off_out, uint64_t n)
{
	cleanup_use struct use from = {0}, to = {0};
	struct handle *a, *b;
	loff_t x = (loff_t)off_in, y = (loff_t)off_out;
	int r = file_use(t, in, fh_in, POLICY_MAY_READ, "read", &from, &a);
	ssize_t k;

	if (r < 0)
		return r;
	r = file_use(t, out, fh_out, POLICY_MAY_WRITE, "write", &to, &b);
	if (r < 0)
		return r;
	k = copy_file_range(a->fd, &x, b->fd, &y, n, 0);
	/* The caller copies by itself then. */
	return k < 0 ? (errno == EXDEV ? -EOPNOTSUPP : ret_nerrno()) : k;
}

int th_fsync(void *t, store_ino ino, uint64_t fh, bool datasync)
{
	const struct handle *h = handle_of(t, ino, fh);

	if (!h || h->fd < 0)
		return -EBADF;
	return (datasync ? fdatasync(h->fd) : fsync(h->fd)) < 0 ? ret_nerrno() : 0;
}

int th_fsyncdir(void *t, store_ino ino, uint64_t fh, bool datasync)
{
	const struct handle *h = handle_of(t, ino, fh);

	if (!h)
		return -EBADF;
	return h->fd < 0 ? 0 : th_fsync(t, ino, fh, datasync);
}
