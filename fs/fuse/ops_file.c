/*
 * Operations on the content of regular files.
 *
 * A tree without handles opens no files: an OPEN is answered ENOSYS, after which the kernel sends neither OPEN
 * nor RELEASE, keeps its cache over closes, and tells us with FORGET when the last user has gone. For
 * the same reason there is no CREATE (the kernel then sends MKNOD) and no FLUSH: write() has
 * already returned the errors that a close could. Only where the policy has to be asked (opens_matter)
 * an OPEN is answered, and that is all that is done for it.
 */
#include <fcntl.h>

#include "fs/fuse/reply.h"
#include "fs/fuse/session_internal.h"

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct session *se = op_session(req);
	struct tree_open o;
	int r;

	if (se->no_open) {
		reply_nosys(req);
		return;
	}
	r = TREE(se, open, ino, fi->flags, &o);
	if (r < 0) {
		reply_status(req, r);
		return;
	}
	fi->fh = o.fh;
	fi->keep_cache = o.keep;
	fi->noflush = 1;
	if (fuse_reply_open(req, fi) < 0)
		TREE(se, release, ino, o.fh);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct session *se = op_session(req);
	struct ovl_cred cred = op_cred(req);
	struct fuse_entry_param p;
	struct tree_open o;
	struct ovl_entry e;
	int r;

	if (!se->tree.ops->handles) {
		reply_nosys(req);
		return;
	}
	r = TREE(se, create, parent, name, mode, fi->flags, &cred, &e, &o);
	if (r < 0) {
		reply_status(req, r);
		return;
	}
	session_attr_changed(se, parent);
	fi->fh = o.fh;
	fi->keep_cache = o.keep;
	fi->noflush = 1;
	p = reply_entry_param(se, &e);
	if (fuse_reply_create(req, &p, fi) < 0) {
		TREE(se, release, e.ino, o.fh);
		TREE(se, forget, e.ino, 1);
	}
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	TREE(op_session(req), release, ino, fi->fh);
	reply_status(req, 0);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct worker *w = op_worker(req);
	size_t n = size < SESSION_OUT_SIZE ? size : SESSION_OUT_SIZE;

	reply_bytes(req, TREE(w->se, read, ino, fi->fh, (uint64_t)off, w->out, n), w->out);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	const struct fuse_write_in *raw = (const void *)(op_worker(req)->req + 1);
	struct session *se = op_session(req);
	/* What comes from the kernel's cache has its place, and any handle that can write. */
	bool append = raw->flags & O_APPEND && !(raw->write_flags & FUSE_WRITE_CACHE);
	bool killed = false;
	ssize_t r;

	r = TREE(se, write, ino, fi->fh, (uint64_t)off, buf, size, append ? TREE_APPEND : 0,
		 raw->write_flags & FUSE_WRITE_KILL_SUIDGID ? &killed : NULL);
	/* The kernel forgets the size and times of what it wrote, not the mode. */
	if (killed)
		session_attr_changed(se, ino);
	/* What is stored into a shared mapping and may not be: the kernel would go on showing it to everybody. */
	if (r == -EACCES && raw->write_flags & FUSE_WRITE_CACHE)
		session_drop_pages(se, ino);
	reply_written(req, r);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	reply_status(req, TREE(op_session(req), fsync, ino, fi ? fi->fh : 0, datasync));
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	struct session *se = op_session(req);
	int r = TREE(se, fallocate, ino, fi->fh, mode, (uint64_t)off, (uint64_t)len);

	if (r == 0)
		session_attr_changed(se, ino);
	reply_status(req, r);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	reply_offset(req, TREE(op_session(req), lseek, ino, fi->fh, off, whence));
}

ssize_t copy_range(struct session *se, store_ino in, uint64_t fh_in, uint64_t off_in, store_ino out,
		   uint64_t fh_out, uint64_t off_out, uint64_t n)
{
	ssize_t r = TREE(se, copy_range, in, fh_in, off_in, out, fh_out, off_out, n);

	/* It may have dropped set-id bits. */
	if (r > 0)
		session_attr_changed(se, out);
	return r;
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
			fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
			int flags)
{
	(void)flags; /* none are defined */
	reply_written(req, copy_range(op_session(req), in, fi_in->fh, (uint64_t)off_in, out,
				      fi_out->fh, (uint64_t)off_out, len));
}

/* Not ENOSYS: what asks (lsattr, terminals) expects the answer of a file that is no device. */
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size)
{
	(void)ino, (void)cmd, (void)arg, (void)fi;
	(void)flags, (void)in, (void)in_size, (void)out_size;
	reply_status(req, -ENOTTY);
}
