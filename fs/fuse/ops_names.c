/* Operations on names: lookup, and what adds, moves and removes names. */
#include "fs/fuse/ids.h"
#include "fs/fuse/reply.h"
#include "fs/fuse/session_internal.h"

struct ovl_cred op_cred(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return ids_cred(&op_session(req)->ids, ctx->uid, ctx->gid, ctx->umask);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ovl_entry e;
	int r;

	r = ovl_lookup(op_session(req)->ovl, parent, name, &e);
	reply_entry(req, r, &e);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct ovl_cred cred = op_cred(req);
	struct ovl_entry e;
	int r;

	r = ovl_mknod(op_session(req)->ovl, parent, name, mode, rdev, &cred, &e);
	reply_entry(req, r, &e);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct ovl_cred cred = op_cred(req);
	struct ovl_entry e;
	int r;

	r = ovl_mkdir(op_session(req)->ovl, parent, name, mode, &cred, &e);
	reply_entry(req, r, &e);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct ovl_cred cred = op_cred(req);
	struct ovl_entry e;
	int r;

	r = ovl_symlink(op_session(req)->ovl, parent, name, target, &cred, &e);
	reply_entry(req, r, &e);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct ovl_entry e;
	int r;

	r = ovl_link(op_session(req)->ovl, ino, parent, name, &e);
	reply_entry(req, r, &e);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	reply_status(req, ovl_unlink(op_session(req)->ovl, parent, name));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	reply_status(req, ovl_rmdir(op_session(req)->ovl, parent, name));
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned flags)
{
	reply_status(req,
		     ovl_rename(op_session(req)->ovl, parent, name, newparent, newname, flags));
}
