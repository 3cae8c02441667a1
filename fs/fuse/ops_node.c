/* Operations on one inode: references, attributes, extended attributes. */
#include "fs/fuse/session_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/fuse/ids.h"
#include "fs/fuse/reply.h"

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	TREE(op_session(req), forget, ino, nlookup);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		TREE(op_session(req), forget, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ovl_attr a;
	int r;

	r = TREE(op_session(req), getattr, ino, fi ? fi->fh : 0, &a);
	reply_attr(req, r, &a);
}

/* The kernel's bits as the core's; @raw is the request's own word, of which libfuse passes less. */
static unsigned set_flags(uint32_t raw)
{
	static const struct {
		uint32_t kernel;
		unsigned core;
	} map[] = {
		{FATTR_MODE, OVL_SET_MODE},
		{FATTR_UID, OVL_SET_UID},
		{FATTR_GID, OVL_SET_GID},
		{FATTR_SIZE, OVL_SET_SIZE},
		{FATTR_ATIME, OVL_SET_ATIME},
		{FATTR_MTIME, OVL_SET_MTIME},
		{FATTR_ATIME_NOW, OVL_SET_ATIME_NOW},
		{FATTR_MTIME_NOW, OVL_SET_MTIME_NOW},
		{FATTR_CTIME, OVL_SET_CTIME},
		{FATTR_KILL_SUIDGID, OVL_SET_KILLPRIV},
	};
	unsigned set = 0;

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		if (raw & map[i].kernel)
			set |= map[i].core;
	return set;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	struct session *se = op_session(req);
	const struct fuse_setattr_in *raw = (const void *)(op_worker(req)->req + 1);
	struct stat st = *attr;
	struct ovl_attr a;
	int r;

	(void)to_set;
	st.st_uid = ids_store_uid(&se->ids, st.st_uid);
	st.st_gid = ids_store_gid(&se->ids, st.st_gid);
	r = TREE(se, setattr, ino, fi ? fi->fh : 0, &st, set_flags(raw->valid), &a);
	reply_attr(req, r, &a);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[4096];
	int r;

	r = TREE(op_session(req), readlink, ino, target);
	reply_target(req, r, target);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	int r;

	r = TREE(op_session(req), statfs, ino, &st);
	reply_statfs(req, r, &st);
}

/* An ACL is always fetched whole: what is shown may be shorter than what is kept. */
static ssize_t get_acl(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct session *se = op_session(req);
	uint8_t *out = op_worker(req)->out;
	ssize_t n = TREE(se, getxattr, ino, name, out, SESSION_OUT_SIZE);

	if (n < 0)
		return n;
	n = (ssize_t)ids_acl_show(&se->ids, out, (size_t)n);
	return size && (size_t)n > size ? -ERANGE : n;
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct worker *w = op_worker(req);
	size_t room = size < SESSION_OUT_SIZE ? size : SESSION_OUT_SIZE;
	ssize_t r;

	if (!root_getxattr(w->se, ino, name, w->out, room, &r))
		r = ids_is_acl(name) ? get_acl(req, ino, name, room)
				     : TREE(w->se, getxattr, ino, name, w->out, room);
	reply_xattr(req, r, size, w->out);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct worker *w = op_worker(req);
	size_t room = size < SESSION_OUT_SIZE ? size : SESSION_OUT_SIZE;
	ssize_t r;

	r = TREE(w->se, listxattr, ino, (char *)w->out, room);
	reply_xattr(req, r, size, w->out);
}

int setxattr_told(struct worker *w, store_ino ino, const char *name, const void *value, size_t size,
		  int flags)
{
	const void *stored = value;
	int r;

	if (root_setxattr(w->se, ino, name, value, size, flags, &r))
		return r;
	if (size <= SESSION_OUT_SIZE) {
		memcpy(w->out, value, size);
		if (ids_is_acl(name))
			ids_acl_store(&w->se->ids, w->out, size);
		else
			size = root_capability(&w->se->ids, name, w->out, size);
		stored = w->out;
	}
	r = TREE(w->se, setxattr, ino, name, stored, size, flags);
	if (r == 0)
		session_attr_changed(w->se, ino);
	return r;
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	reply_status(req, setxattr_told(op_worker(req), ino, name, value, size, flags));
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct session *se = op_session(req);
	int r = TREE(se, removexattr, ino, name);

	if (r == 0)
		session_attr_changed(se, ino);
	reply_status(req, r);
}
