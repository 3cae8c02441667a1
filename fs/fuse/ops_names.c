/* Operations on names: lookup, and what adds, moves and removes names. */
#include "fs/fuse/ids.h"
#include "fs/fuse/reply.h"
#include "fs/fuse/session_internal.h"

struct ovl_cred op_cred(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	const struct session_ids *ids = &op_session(req)->ids;
	struct ovl_cred cred = ids_cred(ids, ctx->uid, ctx->gid, ctx->umask);

	root_maker(ids, ctx->pid, &cred);
	return cred;
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ovl_entry e;
	int r;

	r = TREE(op_session(req), lookup, parent, name, &e);
	reply_entry(req, r, &e);
}

static void dir_changed(fuse_req_t req, int r, fuse_ino_t dir)
{
	if (r == 0)
		session_attr_changed(op_session(req), dir);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct ovl_cred cred = op_cred(req);
	struct ovl_entry e;
	int r;

	r = TREE(op_session(req), mknod, parent, name, mode, rdev, &cred, &e);
	dir_changed(req, r, parent);
	reply_entry(req, r, &e);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct ovl_cred cred = op_cred(req);
	struct ovl_entry e;
	int r;

	r = TREE(op_session(req), mkdir, parent, name, mode, &cred, &e);
	dir_changed(req, r, parent);
	reply_entry(req, r, &e);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct ovl_cred cred = op_cred(req);
	struct ovl_entry e;
	int r;

	r = TREE(op_session(req), symlink, parent, name, target, &cred, &e);
	dir_changed(req, r, parent);
	reply_entry(req, r, &e);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct ovl_entry e;
	int r;

	r = TREE(op_session(req), link, ino, parent, name, &e);
	dir_changed(req, r, parent);
	reply_entry(req, r, &e);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int r = TREE(op_session(req), unlink, parent, name);

	dir_changed(req, r, parent);
	reply_status(req, r);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	int r = TREE(op_session(req), rmdir, parent, name);

	dir_changed(req, r, parent);
	reply_status(req, r);
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned flags)
{
	struct session *se = op_session(req);
	struct ovl_cred cred = op_cred(req);
	store_ino moved[2] = {0};
	int r;

	r = TREE(se, rename, parent, name, newparent, newname, flags, &cred, moved);
	dir_changed(req, r, parent);
	if (newparent != parent)
		dir_changed(req, r, newparent);
	if (r == 0) {
		session_attr_changed(se, moved[0]);
		session_attr_changed(se, moved[1]);
	}
	reply_status(req, r);
}
