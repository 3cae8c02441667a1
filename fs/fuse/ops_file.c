/*
 * Operations on the content of regular files.
 *
 * Files are not opened here: an OPEN is answered ENOSYS, after which the kernel sends neither OPEN
 * nor RELEASE, keeps its cache over closes, and tells us with FORGET when the last user has gone. For
 * the same reason there is no CREATE (the kernel then sends MKNOD) and no FLUSH: write() has
 * already returned the errors that a close could. Only where the policy has to be asked (ovl_opens_matter)
 * an OPEN is answered, and that is all that is done for it.
 */
#include <fcntl.h>

#include "fs/fuse/reply.h"
#include "fs/fuse/session_internal.h"

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	bool change = (fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC;
	int r;

	if (op_session(req)->no_open) {
		reply_nosys(req);
		return;
	}
	r = ovl_may_open(op_session(req)->ovl, ino, change);
	if (r < 0) {
		reply_status(req, r);
		return;
	}
	fi->keep_cache = 1;
	fi->noflush = 1;
	(void)fuse_reply_open(req, fi);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct worker *w = op_worker(req);
	size_t n = size < SESSION_OUT_SIZE ? size : SESSION_OUT_SIZE;

	(void)fi;
	reply_bytes(req, ovl_read(w->se->ovl, ino, (uint64_t)off, w->out, n), w->out);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	const struct fuse_write_in *raw = (const void *)(op_worker(req)->req + 1);
	struct session *se = op_session(req);
	bool killed = false;
	ssize_t r;

	(void)fi;
	r = ovl_write_told(se->ovl, ino, (uint64_t)off, buf, size,
			   raw->write_flags & FUSE_WRITE_KILL_SUIDGID ? &killed : NULL);
	/* The kernel forgets the size and times of what it wrote, not the mode. */
	if (killed)
		session_attr_changed(se, ino);
	reply_written(req, r);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)fi;
	reply_status(req, ovl_fsync(op_session(req)->ovl, ino, datasync));
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	struct session *se = op_session(req);
	int r = ovl_fallocate(se->ovl, ino, mode, (uint64_t)off, (uint64_t)len);

	(void)fi;
	if (r == 0)
		session_attr_changed(se, ino);
	reply_status(req, r);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	(void)fi;
	reply_offset(req, ovl_lseek(op_session(req)->ovl, ino, off, whence));
}

ssize_t copy_range(struct session *se, store_ino in, uint64_t off_in, store_ino out,
		   uint64_t off_out, uint64_t n)
{
	ssize_t r = ovl_copy_range(se->ovl, in, off_in, out, off_out, n);

	/* It may have dropped set-id bits. */
	if (r > 0)
		session_attr_changed(se, out);
	return r;
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
			fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
			int flags)
{
	(void)fi_in;
	(void)fi_out;
	(void)flags; /* none are defined */
	reply_written(req, copy_range(op_session(req), in, (uint64_t)off_in, out, (uint64_t)off_out,
				      len));
}

/* Not ENOSYS: what asks (lsattr, terminals) expects the answer of a file that is no device. */
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size)
{
	(void)ino, (void)cmd, (void)arg, (void)fi;
	(void)flags, (void)in, (void)in_size, (void)out_size;
	reply_status(req, -ENOTTY);
}
