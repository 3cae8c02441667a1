#include "fs/fuse/reply.h"

#include <time.h>

#include "base/io.h"
#include "fs/fuse/ids.h"

/* "For ever" on the wire; the kernel clamps to what its clock can hold. */
#define FOREVER_SECONDS 1e9
#define HOLD_MS         10000

int reply_errno(int r)
{
	/* Beyond 511 lie the kernel's internal codes: an answer with one is refused, and its caller
	 * would wait for ever. */
	if (r >= 0 || r <= -512)
		return EIO;
	/* ENOSYS would make the kernel stop asking, for the whole mount. */
	return r == -ENOSYS ? EOPNOTSUPP : -r;
}

void reply_hold(struct session *se, int r)
{
	long long end;

	if (r != -EIO || !atomic_load(&se->patient) || !se->tree.ops->broken(se->tree.t))
		return;
	end = io_now_ms() + HOLD_MS;
	while (atomic_load(&se->patient) && !atomic_load(&se->loop.stop) && io_now_ms() < end)
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

double reply_seconds(uint32_t valid_ms)
{
	return valid_ms == OVL_FOREVER ? FOREVER_SECONDS : valid_ms / 1000.0;
}

struct fuse_entry_param reply_entry_param(struct session *se, const struct ovl_entry *e)
{
	struct fuse_entry_param p = {
		.ino = e->ino,
		/* Inode numbers are never used again (F2), so one generation serves them all. */
		.generation = 1,
		.attr = e->attr.st,
		.attr_timeout = session_attr_seconds(se, &e->attr),
		.entry_timeout = reply_seconds(e->valid_ms),
	};

	ids_show(&se->ids, &p.attr);
	return p;
}

void reply_status(fuse_req_t req, int r)
{
	reply_hold(op_session(req), r);
	(void)fuse_reply_err(req, r < 0 ? reply_errno(r) : 0);
}

void reply_entry(fuse_req_t req, int r, const struct ovl_entry *e)
{
	struct session *se = op_session(req);
	struct fuse_entry_param p;

	if (r < 0) {
		reply_status(req, r);
		return;
	}
	p = reply_entry_param(se, e);
	if (fuse_reply_entry(req, &p) < 0 && e->ino)
		TREE(se, forget, e->ino, 1);
}

void reply_attr(fuse_req_t req, int r, const struct ovl_attr *a)
{
	struct session *se = op_session(req);
	struct stat st;

	if (r < 0) {
		reply_status(req, r);
		return;
	}
	st = a->st;
	ids_show(&se->ids, &st);
	(void)fuse_reply_attr(req, &st, session_attr_seconds(se, a));
}

void reply_target(fuse_req_t req, int r, const char *target)
{
	if (r < 0)
		reply_status(req, r);
	else
		(void)fuse_reply_readlink(req, target);
}

void reply_statfs(fuse_req_t req, int r, const struct statvfs *st)
{
	if (r < 0)
		reply_status(req, r);
	else
		(void)fuse_reply_statfs(req, st);
}

void reply_bytes(fuse_req_t req, ssize_t r, const void *bytes)
{
	if (r < 0)
		reply_status(req, (int)r);
	else
		(void)fuse_reply_buf(req, bytes, (size_t)r);
}

void reply_written(fuse_req_t req, ssize_t r)
{
	if (r < 0)
		reply_status(req, (int)r);
	else
		(void)fuse_reply_write(req, (size_t)r);
}

void reply_offset(fuse_req_t req, int64_t r)
{
	if (r < 0)
		reply_status(req, (int)r);
	else
		(void)fuse_reply_lseek(req, r);
}

void reply_xattr(fuse_req_t req, ssize_t r, size_t asked, const void *bytes)
{
	if (r >= 0 && !asked)
		(void)fuse_reply_xattr(req, (size_t)r);
	else
		reply_bytes(req, r, bytes);
}

void reply_nosys(fuse_req_t req)
{
	(void)fuse_reply_err(req, ENOSYS);
}
