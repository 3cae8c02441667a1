/* Looking a record up in the snapshot, and saying which files and commits a finding touches. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/fsck_internal.h"

#define PROGRESS_MS 250
#define DEPTH_MAX   4096

/* ---- looking up ---- */

static int decode(enum store_db db, const MDB_val *k, MDB_val *v, struct store_entry *ret)
{
	int r = store_sum_strip(db, k, v);

	return r < 0 ? r : store_entry_decode(db, k, v, ret);
}

int fsck_get(struct fsck *f, enum store_db db, const struct store_key *want,
	     struct store_entry *ret)
{
	struct pages_pos pos;
	struct key at;
	MDB_val key, k, v;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!f->have[db])
		return -EBADMSG;
	store_key_encode(db, want, &at);
	key = key_val(&at);
	r = pages_find(f->meta, &f->db[db], &key, 0, &pos, &k, &v);
	if (r == 0 && (k.mv_size != at.len || memcmp(k.mv_data, at.b, at.len) != 0))
		r = -ENOENT;
	return r < 0 ? r : decode(db, &k, &v, ret);
}

int fsck_find(struct fsck *f, enum store_db db, const struct store_key *want, store_layer layer,
	      struct store_entry *ret, store_layer *ret_layer)
{
	struct store_key from = *want;
	struct pages_pos pos;
	struct key at;
	MDB_val key, k, v;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!f->have[db])
		return -EBADMSG;
	from.layer = layer;
	store_key_encode(db, &from, &at);
	key = key_val(&at);
	r = pages_find(f->meta, &f->db[db], &key, 0, &pos, &k, &v);
	while (r == 0) {
		store_layer l;

		if (k.mv_size != at.len || memcmp(k.mv_data, at.b, at.len - 8) != 0)
			return -ENOENT;
		l = ~key_get_be64((const uint8_t *)k.mv_data + k.mv_size - 8);
		if (fsck_sees(f, layer, l)) {
			r = decode(db, &k, &v, ret);
			if (ret_layer)
				*ret_layer = l;
			if (r < 0 || !ret->gone)
				return r;
		}
		r = pages_next(f->meta, &f->db[db], 0, &pos, &k, &v);
	}
	return r;
}

/* ---- where a file is ---- */

static int one_up(struct fsck *f, store_layer layer, store_ino *ino, struct buf *name)
{
	struct store_key k = {.ino = *ino};
	struct store_entry e;
	int r = fsck_find(f, DB_INODES, &k, layer, &e, NULL);
	bool back = r == 0 && e.inode.parent;

	buf_clear(name);
	if (back) {
		*ino = e.inode.parent;
		r = buf_put(name, e.inode.name ? e.inode.name : "", e.inode.name_len);
	}
	if (r == 0)
		store_entry_release(&e);
	return back || r == -ENOMEM ? r : -ENOENT;
}

/* A file with several links, or one whose record is damaged: the first of its links, else any name. */
static int by_link(struct fsck *f, store_layer layer, store_ino *ino, struct buf *name)
{
	struct store_key from = {.ino = *ino, .name = "", .layer = UINT64_MAX};
	struct pages_pos pos;
	struct key at;
	MDB_val key, k, v;
	int r = f->have[DB_LINKS] ? 0 : -ENOENT;

	store_key_encode(DB_LINKS, &from, &at);
	at.len = 8;
	key = key_val(&at);
	if (r == 0)
		r = pages_find(f->meta, &f->db[DB_LINKS], &key, 0, &pos, &k, &v);
	while (r == 0) {
		struct store_entry e;

		if (k.mv_size < 8 || memcmp(k.mv_data, at.b, 8) != 0)
			return -ENOENT;
		if (decode(DB_LINKS, &k, &v, &e) == 0 && !e.gone && e.linked &&
		    fsck_sees(f, layer, e.key.layer)) {
			buf_clear(name);
			*ino = e.key.block;
			return buf_put(name, e.key.name, e.key.len);
		}
		r = pages_next(f->meta, &f->db[DB_LINKS], 0, &pos, &k, &v);
	}
	return r;
}

struct any_name {
	struct fsck *f;
	store_layer layer;
	store_ino ino;
	store_ino parent;
	struct buf *name;
};

static int name_is(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct any_name *a = arg;
	MDB_val bare = *v;
	struct store_entry e;

	(void)flags;
	if (decode(DB_NAMES, k, &bare, &e) < 0 || e.gone || e.name.ino != a->ino ||
	    !fsck_sees(a->f, a->layer, e.key.layer))
		return 0;
	a->parent = e.key.ino;
	buf_clear(a->name);
	return buf_put(a->name, e.key.name, e.key.len) < 0 ? -ENOMEM : 1;
}

/* The way down, when the way up is what is damaged: a look at every name. */
static int by_name(struct fsck *f, store_layer layer, store_ino *ino, struct buf *name)
{
	struct any_name a = {f, layer, *ino, 0, name};
	struct pages_cb cb = {name_is, NULL, &a};
	uint64_t cost = f->db[DB_NAMES].entries / 8 + 1;
	int r;

	if (!f->have[DB_NAMES] || f->budget < cost)
		return -ENOENT;
	f->budget -= cost;
	r = pages_walk(f->meta, &f->db[DB_NAMES], NULL, 0, &cb);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	*ino = a.parent;
	return 0;
}

static int path_add(struct buf *path, const struct buf *name)
{
	size_t n = name->len + 1;
	int r = buf_reserve(path, n);

	if (r < 0)
		return r;
	memmove(path->data + n, path->data, path->len);
	path->data[0] = '/';
	memcpy(path->data + 1, name->data, name->len);
	path->len += n;
	return 0;
}

static int path_of(struct fsck *f, store_ino ino, store_layer layer, struct buf *path)
{
	cleanup_buf struct buf name = {0};
	int r = 0;

	for (unsigned depth = 0; r == 0 && ino != STORE_ROOT_INO && depth < DEPTH_MAX; depth++) {
		r = one_up(f, layer, &ino, &name);
		if (r == -ENOENT)
			r = by_link(f, layer, &ino, &name);
		if (r == -ENOENT || r == -EBADMSG)
			r = by_name(f, layer, &ino, &name);
		if (r == 0)
			r = path_add(path, &name);
	}
	if (r == 0 && path->len == 0)
		r = buf_put(path, "/", 1);
	return r == 0 && ino != STORE_ROOT_INO ? -ENOENT : r;
}

/* The path of what @at is about; *@ret_has false when nobody can say. */
static int find_path(struct fsck *f, const struct fsck_at *at, struct buf *path, bool *ret_has)
{
	bool in_dir = (at->db == DB_NAMES || at->db == DB_LINKS) && at->key.len;
	int r;

	*ret_has = false;
	if (!at->ino || !fsck_layer(f, at->key.layer))
		return 0;
	r = path_of(f, in_dir && at->db == DB_LINKS ? at->key.block : at->ino, at->key.layer, path);
	/* Of a name: its directory's, and the name. */
	if (r == 0 && in_dir) {
		if (path->len == 1)
			buf_clear(path);
		r = buf_put(path, "/", 1);
		if (r == 0)
			r = buf_put(path, at->key.name, at->key.len);
	}
	if (r == 0)
		r = buf_put(path, "", 1);
	*ret_has = r == 0;
	return r == -ENOMEM ? r : 0;
}

/* ---- who sees it ---- */

static bool sees_it(struct fsck *f, const struct fsck_at *at, const struct fsck_view *v)
{
	struct store_entry e;
	store_layer l = 0;
	int r;

	if (!fsck_sees(f, v->layer, at->key.layer))
		return false;
	if (v->layer == at->key.layer)
		return true;
	r = fsck_find(f, at->db, &at->key, v->layer, &e, &l);
	if (r == 0)
		store_entry_release(&e);
	/* A newer version hides it; what is lost would be found instead of an older one. */
	return r == -ENOENT || (r != -ENOMEM && l <= at->key.layer);
}

static void find_views(struct fsck *f, const struct fsck_at *at, struct store_finding *out,
		       char hex[STORE_FINDING_LIST][DIGEST_LEN * 2 + 1])
{
	if (f->budget < f->nviews)
		return;
	for (size_t i = 0; i < f->nviews; i++) {
		const struct fsck_view *v = &f->views[i];

		if (v->layer != at->key.layer)
			f->budget--;
		if (!sees_it(f, at, v))
			continue;
		if (v->env[0]) {
			if (out->nenvs < STORE_FINDING_LIST)
				out->envs[out->nenvs] = v->env;
			out->nenvs++;
			continue;
		}
		if (out->ncommits < STORE_FINDING_LIST) {
			digest_hex(&v->commit, hex[out->ncommits]);
			out->commits[out->ncommits] = hex[out->ncommits];
		}
		out->ncommits++;
	}
}

/* ---- telling ---- */

int fsck_emit(struct fsck *f, const struct store_finding *out)
{
	if (f->quiet)
		return 0;
	f->sum.damaged += out->state == STORE_FINDING_DAMAGE;
	f->sum.repairable += out->state == STORE_FINDING_REPAIRABLE;
	f->sum.repaired += out->state == STORE_FINDING_REPAIRED;
	f->sum.notes += out->state == STORE_FINDING_NOTE;
	if (f->only_count)
		return 0;
	return f->o->finding(f->o->arg, out);
}

int fsck_tell(struct fsck *f, enum store_finding_state state, const char *kind, const char *where,
	      const struct fsck_at *at, const char *fmt, ...)
{
	char hex[STORE_FINDING_LIST][DIGEST_LEN * 2 + 1], text[512];
	struct store_finding out = {.state = state, .kind = kind, .where = where, .text = text};
	cleanup_buf struct buf path = {0};
	bool has = false;
	va_list ap;
	int r = 0;

	if (f->quiet)
		return 0;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (at) {
		find_views(f, at, &out, hex);
		r = find_path(f, at, &path, &has);
	}
	if (r < 0)
		return r;
	out.path = has ? (const char *)path.data : NULL;
	return fsck_emit(f, &out);
}

int fsck_progress(struct fsck *f, const char *stage, uint64_t done, uint64_t total)
{
	long long now;

	if (!f->o->progress || done % 256)
		return 0;
	now = io_now_ms();
	if (now - f->told < PROGRESS_MS)
		return 0;
	f->told = now;
	return f->o->progress(f->o->arg, stage, done, total);
}
