/*
 * Requests that libfuse 3.14 does not know, answered from the raw bytes: O_TMPFILE, statx with its
 * birth time, 64-bit copy_file_range, setxattr with flags; and interrupts, which nobody needs to know
 * about.
 */
#include "fs/fuse/session_internal.h"

#include <string.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/fuse/ids.h"
#include "fs/fuse/reply.h"

/* An answer: @r negative errno, or 0 and @len bytes. False: the kernel did not take it. */
static bool raw_reply(const struct worker *w, int r, const void *body, size_t len)
{
	struct fuse_out_header head = {
		.unique = w->req->unique,
		.error = r < 0 ? -reply_errno(r) : 0,
	};
	struct iovec iov[2] = {
		{.iov_base = &head, .iov_len = sizeof(head)},
		{.iov_base = (void *)(uintptr_t)body, .iov_len = r < 0 ? 0 : len},
	};

	reply_hold(w->se, r);
	head.len = (uint32_t)(sizeof(head) + iov[1].iov_len);
	return writev(w->se->loop.fd, iov, 2) >= 0;
}

/* The argument of the request when all @size bytes of it came. */
static const void *raw_arg(const struct worker *w, size_t size)
{
	return w->req_len >= sizeof(*w->req) + size ? w->req + 1 : NULL;
}

static void raw_time(double seconds, uint64_t *ret_sec, uint32_t *ret_nsec)
{
	*ret_sec = (uint64_t)seconds;
	*ret_nsec = (uint32_t)((seconds - (double)*ret_sec) * 1e9);
}

static void raw_attr(const struct session *se, const struct ovl_attr *a, struct fuse_attr *ret)
{
	struct stat st = a->st;

	ids_show(&se->ids, &st);
	*ret = (struct fuse_attr){
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.blocks = (uint64_t)st.st_blocks,
		.atime = (uint64_t)st.st_atim.tv_sec,
		.mtime = (uint64_t)st.st_mtim.tv_sec,
		.ctime = (uint64_t)st.st_ctim.tv_sec,
		.atimensec = (uint32_t)st.st_atim.tv_nsec,
		.mtimensec = (uint32_t)st.st_mtim.tv_nsec,
		.ctimensec = (uint32_t)st.st_ctim.tv_nsec,
		.mode = st.st_mode,
		.nlink = (uint32_t)st.st_nlink,
		.uid = st.st_uid,
		.gid = st.st_gid,
		.rdev = (uint32_t)st.st_rdev,
		.blksize = (uint32_t)st.st_blksize,
	};
}

static void raw_tmpfile(struct worker *w)
{
	const struct fuse_create_in *in = raw_arg(w, sizeof(*in));
	struct session *se = w->se;
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out = {.open.open_flags = FOPEN_NOFLUSH};
	struct tree_open o;
	struct ovl_entry e;
	struct ovl_cred cred;
	int r;

	if (!in) {
		(void)raw_reply(w, -EIO, NULL, 0);
		return;
	}
	cred = ids_cred(&se->ids, w->req->uid, w->req->gid, in->umask);
	root_maker(&se->ids, (pid_t)w->req->pid, &cred);
	r = TREE(se, tmpfile, w->req->nodeid, in->mode, (int)in->flags, &cred, &e, &o);
	if (r == 0) {
		out.open.fh = o.fh;
		out.open.open_flags |= o.keep ? FOPEN_KEEP_CACHE : 0;
		out.entry.nodeid = e.ino;
		out.entry.generation = 1;
		raw_time(reply_seconds(e.valid_ms), &out.entry.entry_valid,
			 &out.entry.entry_valid_nsec);
		raw_time(session_attr_seconds(se, &e.attr), &out.entry.attr_valid,
			 &out.entry.attr_valid_nsec);
		raw_attr(se, &e.attr, &out.entry.attr);
	}
	if (!raw_reply(w, r, &out, sizeof(out)) && r == 0) {
		TREE(se, release, e.ino, o.fh);
		TREE(se, forget, e.ino, 1);
	}
}

static struct proto_sx_time sx_time(struct timespec t)
{
	return (struct proto_sx_time){.tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec};
}

static void fill_statx(const struct session *se, const struct ovl_attr *a, struct proto_statx *ret)
{
	struct stat st = a->st;

	ids_show(&se->ids, &st);
	*ret = (struct proto_statx){
		.mask = STATX_BASIC_STATS | STATX_BTIME,
		.blksize = (uint32_t)st.st_blksize,
		.nlink = (uint32_t)st.st_nlink,
		.uid = st.st_uid,
		.gid = st.st_gid,
		.mode = (uint16_t)st.st_mode,
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.blocks = (uint64_t)st.st_blocks,
		.atime = sx_time(st.st_atim),
		.btime = sx_time(a->btime),
		.ctime = sx_time(st.st_ctim),
		.mtime = sx_time(st.st_mtim),
		.rdev_major = major(st.st_rdev),
		.rdev_minor = minor(st.st_rdev),
	};
}

static void raw_statx(struct worker *w)
{
	const struct proto_statx_in *in = raw_arg(w, sizeof(*in));
	struct proto_statx_out out = {0};
	struct ovl_attr a;
	int r;

	if (!in) {
		(void)raw_reply(w, -EIO, NULL, 0);
		return;
	}
	r = TREE(w->se, getattr, w->req->nodeid, in->getattr_flags & FUSE_GETATTR_FH ? in->fh : 0,
		 &a);
	if (r == 0) {
		raw_time(session_attr_seconds(w->se, &a), &out.attr_valid, &out.attr_valid_nsec);
		fill_statx(w->se, &a, &out.stat);
	}
	(void)raw_reply(w, r, &out, sizeof(out));
}

static void raw_copy(struct worker *w)
{
	const struct fuse_copy_file_range_in *in = raw_arg(w, sizeof(*in));
	struct proto_copy_out out = {0};
	ssize_t n;

	n = !in ? -EIO
		: copy_range(w->se, w->req->nodeid, in->fh_in, in->off_in, in->nodeid_out,
			     in->fh_out, in->off_out, in->len);
	if (n > 0)
		out.bytes_copied = (uint64_t)n;
	(void)raw_reply(w, n < 0 ? (int)n : 0, &out, sizeof(out));
}

static int raw_setxattr(struct worker *w)
{
	const struct proto_setxattr_in *in = raw_arg(w, sizeof(*in));
	const char *name = (const char *)(in + 1), *end;
	size_t room;
	int flags;

	if (!in)
		return -EIO;
	room = w->req_len - sizeof(*w->req) - sizeof(*in);
	end = memchr(name, '\0', room);
	if (!end || in->size > room - (size_t)(end + 1 - name))
		return -EIO;
	flags = (int)(in->flags & (XATTR_CREATE | XATTR_REPLACE));
	if (in->setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID)
		flags |= OVL_XATTR_KILL_SGID;
	return setxattr_told(w, w->req->nodeid, name, end + 1, in->size, flags);
}

/* ---- once more ---- */

static void entry_out(const struct session *se, const struct ovl_entry *e,
		      struct fuse_entry_out *ret)
{
	*ret = (struct fuse_entry_out){.nodeid = e->ino, .generation = 1};
	raw_time(e->valid_ms, &ret->entry_valid, &ret->entry_valid_nsec);
	raw_time(e->attr.valid_ms, &ret->attr_valid, &ret->attr_valid_nsec);
	raw_attr(se, &e->attr, &ret->attr);
}

static bool again_entry(struct worker *w, const struct ovl_done *d)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out = {.open.open_flags = FOPEN_KEEP_CACHE | FOPEN_NOFLUSH};
	size_t len = w->req->opcode == PROTO_TMPFILE ? sizeof(out) : sizeof(out.entry);

	entry_out(w->se, &d->e, &out.entry);
	return raw_reply(w, 0, &out, len);
}

static bool again_attr(struct worker *w, const struct ovl_done *d)
{
	struct fuse_attr_out out = {0};

	if (!d->has_attr)
		return raw_reply(w, -ESTALE, NULL, 0);
	raw_time(d->attr.valid_ms, &out.attr_valid, &out.attr_valid_nsec);
	raw_attr(w->se, &d->attr, &out.attr);
	return raw_reply(w, 0, &out, sizeof(out));
}

static bool again_count(struct worker *w, const struct ovl_done *d)
{
	struct proto_copy_out copied = {.bytes_copied = (uint64_t)d->result};
	struct fuse_write_out written = {.size = (uint32_t)d->result};

	return w->req->opcode == PROTO_COPY_FILE_RANGE_64
		       ? raw_reply(w, 0, &copied, sizeof(copied))
		       : raw_reply(w, 0, &written, sizeof(written));
}

bool raw_again(struct worker *w)
{
	struct ovl_done d;
	bool took;
	int r = TREE(w->se, request_done, session_tag(w), w->req->nodeid, &d);

	if (r == 0)
		return false;
	if (r < 0)
		took = raw_reply(w, r, NULL, 0);
	else if (d.e.ino)
		took = again_entry(w, &d);
	else if (w->req->opcode == FUSE_SETATTR)
		took = again_attr(w, &d);
	else if (w->req->opcode == FUSE_WRITE || w->req->opcode == FUSE_COPY_FILE_RANGE ||
		 w->req->opcode == PROTO_COPY_FILE_RANGE_64)
		took = again_count(w, &d);
	else
		took = raw_reply(w, 0, NULL, 0);
	if (!took && d.e.ino)
		TREE(w->se, forget, d.e.ino, 1);
	return true;
}

/* The one place where ENOSYS is meant: no operation waits for anything that an interrupt could cut
 * short, and the kernel does not send another one. */
static void raw_interrupt(struct worker *w)
{
	const struct fuse_interrupt_in *in = raw_arg(w, sizeof(*in));
	struct fuse_out_header head = {.len = sizeof(head), .error = -ENOSYS};

	if (!in)
		return;
	head.unique = in->unique | PROTO_INT_REQ_BIT;
	/* ENOENT when its request has been answered meanwhile. */
	(void)!write(w->se->loop.fd, &head, sizeof(head));
}

bool raw_serve(struct worker *w)
{
	if (!w->se->inited)
		return false;
	switch (w->req->opcode) {
	case PROTO_TMPFILE:
		raw_tmpfile(w);
		return true;
	case PROTO_STATX:
		raw_statx(w);
		return true;
	case PROTO_COPY_FILE_RANGE_64:
		raw_copy(w);
		return true;
	case FUSE_SETXATTR:
		if (!w->se->setxattr_ext)
			return false;
		(void)raw_reply(w, raw_setxattr(w), NULL, 0);
		return true;
	case FUSE_INTERRUPT:
		raw_interrupt(w);
		return true;
	default:
		return false;
	}
}
