/*
 * tests/unit/core/content_fixture.h - one content with its record, flushed and opened again at will.
 */
#pragma once

#include "data_fixture.h"
#include "fs/core/content.h"
#include "fs/core/hostsrc.h"

struct file {
	struct fixture *f;
	struct content_env *e;
	store_ino ino;
	struct rec_inode rec; /* as last flushed */
	struct hostsrc *host;
	struct content *c;
};

static inline void file_load(struct file *x)
{
	if (content_open(x->e, x->ino, &x->rec, x->host, &x->c) < 0)
		tap_fatal("content_open");
}

static inline void file_new(struct file *x, struct fixture *f, struct content_env *e)
{
	*x = (struct file){.f = f, .e = e};
	if (store_reserve_inos(f->s, 1, &x->ino) < 0)
		tap_fatal("no inode number");
	x->rec.mode = S_IFREG | 0644;
	x->rec.nlink = 1;
	x->rec.parent = STORE_ROOT_INO;
	x->rec.name = strdup("f");
	x->rec.name_len = 1;
	file_load(x);
}

/* A file that shows @rel of @host. */
static inline void file_of_host(struct file *x, struct fixture *f, struct content_env *e,
				struct hostsrc *host, const char *rel)
{
	struct stat st;

	file_new(x, f, e);
	content_close(x->c);
	if (hostsrc_stat(host, rel, &st) < 0)
		tap_fatal("host file %s", rel);
	x->host = host;
	x->rec.size = (uint64_t)st.st_size;
	x->rec.blocks = (uint64_t)st.st_blocks;
	x->rec.origin = (struct rec_origin){.root = strdup(hostsrc_root(host)),
					    .rel = strdup(rel),
					    .valid = (uint64_t)st.st_size,
					    .size = (uint64_t)st.st_size,
					    .dev = st.st_dev,
					    .ino = st.st_ino,
					    .mtime = st.st_mtim};
	file_load(x);
}

static inline void file_free(struct file *x)
{
	content_close(x->c);
	rec_inode_release(&x->rec);
}

/* Steps 2 and 3 of a flush. */
static inline int file_store(struct file *x, struct content_snap *sn)
{
	struct store_batch *b;
	int r = store_batch_begin(x->f->s, x->f->layer, &b);

	if (r < 0)
		return r;
	r = content_snap_store(sn, b, &x->rec);
	if (r == 0)
		r = store_batch_inode(b, x->ino, &x->rec);
	if (r < 0)
		store_batch_abort(b);
	else
		r = store_batch_commit(b);
	return r;
}

static inline int file_flush(struct file *x)
{
	struct content_snap *sn;
	int r = content_snap_take(x->c, &sn);

	if (r < 0)
		return r;
	r = file_store(x, sn);
	content_snap_done(sn, r == 0);
	return r;
}

/* Forget all that is in memory and read the record back. */
static inline void file_reopen(struct file *x)
{
	content_close(x->c);
	rec_inode_release(&x->rec);
	if (store_view_inode(x->f->v, x->ino, &x->rec) < 0)
		tap_fatal("no record of inode %llu", (unsigned long long)x->ino);
	file_load(x);
}
