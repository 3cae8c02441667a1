/* Operations on the content of regular files. */
#include "fs/core/file.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>

static unsigned what(bool change)
{
	return change ? POLICY_MAY_WRITE : POLICY_MAY_READ;
}

/* o->lock held. -EAGAIN: something has to be set up under EX first. */
static int hold(struct ovl *o, struct node *n, bool change, struct held *ret)
{
	struct content_ref *c;
	int r;

	if (!S_ISREG(n->rec.mode))
		return S_ISDIR(n->rec.mode) ? -EISDIR : -EINVAL;
	if (n->pol == POL_UNKNOWN || (change && n->host_only))
		return -EAGAIN;
	if (n->rec.origin.root && n->rec.origin.valid && !n->src)
		return -EAGAIN;
	/* A refusal is found out about again under EX, where it can be told. */
	if (!(policy_may(o->policy, n->pol) & what(change)))
		return -EAGAIN;
	pthread_mutex_lock(&n->lock);
	r = node_content(o, n, &c);
	pthread_mutex_unlock(&n->lock);
	if (r < 0)
		return r == -EBADMSG ? -EIO : r;
	node_used(n);
	node_pin(n);
	*ret = (struct held){.n = n, .c = c};
	return 0;
}

static int hold_excl(struct ovl *o, store_ino ino, bool change, struct held *ret)
{
	struct host_source *src;
	struct node *n;
	int r = node_get(o, ino, &n);

	if (r == 0)
		r = node_may(o, n, what(change), change ? "write" : "read");
	if (r == 0)
		r = host_source_of(o, n, &src);
	if (r == 0 && n->rec.origin.root && n->rec.origin.valid && !src)
		r = -EIO; /* its host directory is gone */
	if (r == 0 && change)
		r = host_materialise(o, n);
	return r < 0 ? r : hold(o, n, change, ret);
}

int file_hold(struct ovl *o, store_ino ino, bool change, struct held *ret)
{
	struct node *n;
	int r;

	lock_shared(o);
	n = node_find(o, ino);
	r = n ? hold(o, n, change, ret) : -EAGAIN;
	unlock(o);
	if (r != -EAGAIN)
		return r;
	lock_excl(o);
	r = hold_excl(o, ino, change, ret);
	unlock(o);
	return r;
}

void file_drop(struct ovl *o, struct held *h, bool changed, bool *killpriv)
{
	struct node *n = h->n;

	if (changed) {
		bool other = false;

		lock_shared(o);
		pthread_mutex_lock(&n->lock);
		if (!atomic_exchange_explicit(&n->written, true, memory_order_relaxed))
			redo_written(o, n);
		if (killpriv)
			other = *killpriv = kill_privileges(o, n);
		n->rec.mtime = n->rec.ctime = now_real();
		node_dirty(o, n);
		redo_touched(o, n, !other);
		pthread_mutex_unlock(&n->lock);
		change_inode(o, n->ino);
		unlock(o);
	} else if (content_size(h->c->c) <= STORE_BLOCK) {
		/* Read as a whole, most likely, and kept by the kernel. */
		lock_shared(o);
		pthread_mutex_lock(&n->lock);
		node_drop_content(n, h->c, 2);
		pthread_mutex_unlock(&n->lock);
		unlock(o);
	}
	content_unref(h->c);
	node_unpin(o, n);
	*h = (struct held){0};
}

/* A host file may have changed since it was looked at; true when there is a new content to read. */
static bool host_reread(struct ovl *o, struct held *h)
{
	struct node *n = h->n;
	bool again;

	lock_excl(o);
	again = n->host_only;
	if (again) {
		atomic_store(&n->checked, INT64_MIN / 2);
		again = host_recheck(o, n) == 0 && n->content != h->c;
	}
	unlock(o);
	return again;
}

static ssize_t io_error(ssize_t k)
{
	return k == -EBADMSG || k == -ESTALE ? -EIO : k;
}

ssize_t ovl_read(struct ovl *o, store_ino ino, uint64_t off, void *buf, size_t n)
{
	ssize_t k = -EIO;
	bool waited = false;

	for (int tries = 0; tries < 3; tries++) {
		struct held h;
		bool again;
		int r = file_hold(o, ino, false, &h);

		if (r < 0)
			return r;
		k = io_error(content_read(h.c->c, off, buf, n));
		again = k == -EIO && host_reread(o, &h);
		waited = content_waited(h.c->c);
		file_drop(o, &h, false, NULL);
		if (!again)
			break;
	}
	if (waited)
		host_ahead(o, ino);
	return k;
}

ssize_t ovl_write(struct ovl *o, store_ino ino, uint64_t off, const void *buf, size_t n,
		  bool killpriv)
{
	return ovl_write_told(o, ino, off, buf, n, killpriv ? &killpriv : NULL);
}

ssize_t ovl_write_told(struct ovl *o, store_ino ino, uint64_t off, const void *buf, size_t n,
		       bool *killpriv)
{
	struct held h;
	ssize_t k = change_begin(o, true);

	if (killpriv)
		*killpriv = false;
	if (k < 0)
		return k;
	k = file_hold(o, ino, true, &h);
	if (k == 0) {
		if (off > INT64_MAX || n > (uint64_t)INT64_MAX - off)
			k = -EFBIG;
		else
			k = io_error(content_write(h.c->c, off, buf, n));
		if (k > 0)
			redo_arm(o, k, 0);
		file_drop(o, &h, k > 0, killpriv);
	}
	change_end(o);
	return k;
}

int file_truncate(struct ovl *o, store_ino ino, off_t size)
{
	struct held h;
	int r = size < 0 ? -EINVAL : file_hold(o, ino, true, &h);

	if (r < 0)
		return r;
	r = (int)io_error(content_truncate(h.c->c, (uint64_t)size));
	file_drop(o, &h, r == 0, NULL);
	return r;
}

int ovl_fallocate(struct ovl *o, store_ino ino, int mode, uint64_t off, uint64_t len)
{
	bool killed; /* the caller does not say who asks */
	struct held h;
	int r;

	if (len == 0 || off > INT64_MAX)
		return -EINVAL;
	if (len > (uint64_t)INT64_MAX - off)
		return -EFBIG;
	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
		break;
	default:
		return -EOPNOTSUPP;
	}
	r = change_begin(o, !(mode & FALLOC_FL_PUNCH_HOLE));
	if (r < 0)
		return r;
	r = file_hold(o, ino, true, &h);
	if (r == 0) {
		r = (int)io_error(content_fallocate(h.c->c, mode, off, len));
		if (r == 0)
			redo_arm(o, 0, 0);
		file_drop(o, &h, r == 0, &killed);
	}
	change_end(o);
	return r;
}

int64_t ovl_lseek(struct ovl *o, store_ino ino, int64_t off, int whence)
{
	struct held h;
	int64_t k;
	int r;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	r = file_hold(o, ino, false, &h);
	if (r < 0)
		return r;
	k = off < 0 ? -ENXIO : io_error(content_seek(h.c->c, off, whence));
	file_drop(o, &h, false, NULL);
	return k;
}

static ssize_t copy_held(struct ovl *from, store_ino in, uint64_t off_in, struct held *out,
			 uint64_t off_out, uint64_t n)
{
	struct held src;
	ssize_t k = file_hold(from, in, false, &src);

	if (k < 0)
		return k;
	if (src.n == out->n && off_in < off_out + n && off_out < off_in + n)
		k = -EINVAL;
	else
		k = io_error(content_copy(src.c->c, off_in, out->c->c, off_out, n));
	file_drop(from, &src, false, NULL);
	return k;
}

ssize_t ovl_copy_from(struct ovl *from, store_ino in, uint64_t off_in, struct ovl *o, store_ino out,
		      uint64_t off_out, uint64_t n)
{
	bool killed;
	struct held dst;
	ssize_t k;

	if (n > INT64_MAX || off_in > INT64_MAX - n)
		return -EOVERFLOW;
	if (off_out > INT64_MAX - n)
		return -EFBIG;
	k = change_begin(o, true);
	if (k < 0)
		return k;
	k = file_hold(o, out, true, &dst);
	if (k == 0) {
		k = copy_held(from, in, off_in, &dst, off_out, n);
		if (k > 0)
			redo_arm(o, k, 0);
		file_drop(o, &dst, k > 0, &killed);
	}
	change_end(o);
	return k;
}

ssize_t ovl_copy_range(struct ovl *o, store_ino in, uint64_t off_in, store_ino out,
		       uint64_t off_out, uint64_t n)
{
	return ovl_copy_from(o, in, off_in, o, out, off_out, n);
}

/* Is there anything of @ino that a crash would lose? */
static bool needs_flush(struct ovl *o, store_ino ino)
{
	struct node *n;
	bool yes;

	lock_shared(o);
	n = node_find(o, ino);
	/* A name is cleaned with its inode and its directory. An inode without links is not there
	 * after a crash, whatever was written. */
	yes = n && n->rec.nlink > 0;
	if (yes) {
		pthread_mutex_lock(&n->lock);
		yes = n->dirty || n->names;
		pthread_mutex_unlock(&n->lock);
	}
	unlock(o);
	return yes;
}

/* Was anything lost that was written to @ino, and nobody told yet? */
static bool lost(struct ovl *o, store_ino ino)
{
	struct node *n;
	bool yes = false;

	lock_shared(o);
	n = node_find(o, ino);
	if (n) {
		pthread_mutex_lock(&n->lock);
		yes = n->content && content_lost(n->content->c);
		pthread_mutex_unlock(&n->lock);
	}
	unlock(o);
	return yes;
}

int ovl_fsync(struct ovl *o, store_ino ino, bool datasync)
{
	int r = 0;

	(void)datasync; /* both are in the same batches */
	if (o->flags & OVL_RDONLY)
		return 0;
	if (needs_flush(o, ino))
		r = sync_join(o);
	return r == 0 && lost(o, ino) ? -EIO : r;
}

int ovl_maybe_mapped(struct ovl *o, int (*fn)(void *arg, store_ino ino), void *arg)
{
	int r = 0;

	lock_shared(o);
	for (size_t i = 0; r == 0 && i < o->nodes.nslots; i++) {
		for (struct table_link *l = o->nodes.slots[i]; r == 0 && l; l = l->next) {
			struct node *n = (struct node *)l;

			if (S_ISREG(n->rec.mode) && (atomic_load(&n->nlookup) > 0 || n->held) &&
			    atomic_load(&n->written))
				r = fn(arg, n->ino);
		}
	}
	if (r == 0)
		r = ino_set_each(&o->old_written, fn, arg);
	unlock(o);
	return r;
}
