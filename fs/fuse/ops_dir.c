/*
 * Listings.
 *
 * Where no opening matters, OPENDIR is answered ENOSYS: the kernel then sends neither OPENDIR nor RELEASEDIR, and keeps
 * each listing that it has got to the end until it knows of a change. Of names that come on the host it does not: it is told to
 * drop such a listing as soon as it is complete. Before that it keeps nothing of it, and what was told
 * too early (the end not yet taken in) has dropped the bytes all the same, without which it asks again.
 */
#include "fs/fuse/reply.h"
#include "fs/fuse/session_internal.h"

#include <string.h>

#define LISTING_LEAST 4096

struct listing {
	fuse_req_t req;
	bool plus;
	char *out;
	size_t len, cap;
};

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct session *se = op_session(req);
	struct tree_open o;
	int r;

	if (se->no_opendir) {
		reply_nosys(req);
		return;
	}
	r = TREE(se, opendir, ino, &o);
	if (r < 0) {
		reply_status(req, r);
		return;
	}
	fi->fh = o.fh;
	fi->keep_cache = o.keep;
	fi->cache_readdir = o.keep;
	if (fuse_reply_open(req, fi) < 0)
		TREE(se, release, ino, o.fh);
}

static size_t add_plus(const struct listing *l, const char *name, uint64_t cookie,
		       const struct ovl_entry *e)
{
	struct fuse_entry_param p = reply_entry_param(op_session(l->req), e);

	/* The kernel takes no reference for these two; 0 says "only a name". */
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		p.ino = 0;
	return fuse_add_direntry_plus(l->req, l->out + l->len, l->cap - l->len, name, &p,
				      (off_t)cookie);
}

static size_t add_plain(const struct listing *l, const char *name, uint64_t cookie,
			const struct ovl_entry *e)
{
	struct stat st = {.st_ino = e->ino, .st_mode = e->attr.st.st_mode};

	return fuse_add_direntry(l->req, l->out + l->len, l->cap - l->len, name, &st,
				 (off_t)cookie);
}

/* Nonzero: no room for this entry. */
static int add_entry(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct listing *l = arg;
	size_t need = l->plus ? add_plus(l, name, cookie, e) : add_plain(l, name, cookie, e);

	if (need > l->cap - l->len)
		return 1;
	l->len += need;
	return 0;
}

static void list(fuse_req_t req, fuse_ino_t ino, uint64_t fh, size_t size, off_t off, bool plus)
{
	struct worker *w = op_worker(req);
	struct listing l = {
		.req = req,
		.plus = plus,
		.out = (char *)w->out,
		.cap = size < SESSION_OUT_SIZE ? size : SESSION_OUT_SIZE,
	};
	int r;

	r = TREE(w->se, readdir, ino, fh, (uint64_t)off, plus, add_entry, &l);
	/* The kernel asks for a page at least: its caller's buffer may be smaller, and what did not fit into it is
	 * asked for again. */
	if (l.len && size <= LISTING_LEAST)
		TREE(w->se, keep_order, ino);
	if (!l.len && r == 0 && w->se->no_opendir && TREE(w->se, names_change, ino))
		session_notify_inode(w->se, ino);
	/* Entries that were accepted hold references: they must reach the kernel, and the error
	 * comes back when it asks for what follows them. */
	reply_bytes(req, r < 0 && !l.len ? r : (ssize_t)l.len, w->out);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, fi->fh, size, off, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	list(req, ino, fi->fh, size, off, true);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	TREE(op_session(req), release, ino, fi->fh);
	reply_status(req, 0);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	reply_status(req, TREE(op_session(req), fsyncdir, ino, fi ? fi->fh : 0, datasync));
}
