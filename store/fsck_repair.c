/*
 * What sound data tells, written anew: journals and counts of layers from the keys that they wrote, the index of commits
 * from the commits, counters, link counts from links, the superblock, the format file. Everything in one transaction, with the
 * store for ourselves, and only where LMDB's pages are whole.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/fsck_internal.h"

#define NOTES "repairs.log"

struct repair {
	struct fsck *f;
	struct store *s;
	MDB_txn *t;
	struct buf notes; /* lines for the log */
};

/* ---- telling ---- */

static int done(struct repair *r, const char *kind, const char *where, const char *fmt, ...)
	PRINTF(4, 5);

static int done(struct repair *r, const char *kind, const char *where, const char *fmt, ...)
{
	struct store_finding out = {.state = STORE_FINDING_REPAIRED, .kind = kind, .where = where};
	char text[300];
	va_list ap;
	int e;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	out.text = text;
	e = buf_printf(&r->notes, "%lld %s: %s\n", (long long)time(NULL), kind, text);
	if (e < 0)
		return e;
	r->f->sum.repaired++;
	return r->f->o->finding(r->f->o->arg, &out);
}

static int write_notes(struct repair *r)
{
	cleanup_fd int fd = openat(r->f->dir_fd, NOTES,
				   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return ret_nerrno();
	return r->notes.len ? io_write_full(fd, r->notes.data, r->notes.len) : 0;
}

/* ---- small things ---- */

static int put_num(struct repair *r, const char *name, uint64_t n)
{
	MDB_val k = {strlen(name), (void *)(uintptr_t)name}, v;
	uint8_t b[8];

	key_be64(b, n);
	v = (MDB_val){sizeof(b), b};
	return store_tx_put(r->s, r->t, DB_META, &k, &v, 0);
}

static int fix_counters(struct repair *r)
{
	static const char *const names[FSCK_COUNTERS] = {"next_ino", "next_layer", "next_commit",
							 "next_move"};
	struct fsck *f = r->f;
	int e = 0;

	for (int i = 0; i < FSCK_COUNTERS && e == 0; i++) {
		if (f->counters[i] >= f->least[i])
			continue;
		e = put_num(r, names[i], f->least[i]);
		if (e == 0)
			e = done(r, "counter", "meta", "set %s from %llu to %llu", names[i],
				 (unsigned long long)f->counters[i],
				 (unsigned long long)f->least[i]);
	}
	return e;
}

static int fix_super(struct repair *r)
{
	struct store_super sb = {STORE_FORMAT, STORE_BLOCK, time(NULL), STORE_DIGEST_NAME};
	cleanup_buf struct buf b = {0};
	char name[] = "superblock";
	MDB_val k = {strlen(name), name}, v;
	int e = 0;

	if (r->f->have_super)
		return 0;
	e = store_super_encode(&sb, &b);
	v = (MDB_val){b.len, b.data};
	if (e == 0)
		e = store_tx_put(r->s, r->t, DB_META, &k, &v, 0);
	return e < 0 ? e : done(r, "superblock", "meta", "wrote the superblock anew");
}

static int fix_nlinks(struct repair *r)
{
	const struct buf *all = &r->f->nlinks;
	int e = 0;

	/* Where names may be lost, the count may be what is right. */
	for (size_t at = 0; !r->f->names_bad && at < all->len && e == 0;
	     at += sizeof(struct fsck_nlink)) {
		cleanup_rec_inode struct rec_inode i = {0};
		cleanup_buf struct buf b = {0};
		struct fsck_nlink w;
		struct store_key sk = {0};
		struct key key;
		MDB_val k, v;

		memcpy(&w, all->data + at, sizeof(w));
		sk.ino = w.ino;
		sk.layer = w.layer;
		store_key_encode(DB_INODES, &sk, &key);
		k = key_val(&key);
		e = store_tx_get(r->s, r->t, DB_INODES, &k, &v);
		if (e == 0)
			e = rec_inode_decode(v.mv_data, v.mv_size, &i);
		i.nlink = w.should;
		if (e == 0)
			e = rec_inode_encode(&i, &b);
		v = (MDB_val){b.len, b.data};
		if (e == 0)
			e = store_tx_put(r->s, r->t, DB_INODES, &k, &v, 0);
		if (e == 0)
			e = done(r, "nlink", "inodes",
				 "inode %llu in layer %llu has %u links, not %u",
				 (unsigned long long)w.ino, (unsigned long long)w.layer, w.should,
				 w.has);
	}
	return e;
}

/* ---- journals ---- */

struct writing {
	store_layer layer;
	struct buf entries;
	uint64_t records, keys;
};

struct journals {
	struct repair *r;
	struct writing *v; /* by layer */
	size_t n;
};

static struct writing *find_writing(struct journals *j, store_layer layer)
{
	size_t lo = 0, hi = j->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (j->v[mid].layer < layer)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < j->n && j->v[lo].layer == layer ? &j->v[lo] : NULL;
}

/* All keys of @db that @which says yes to. The keys are collected first: deleting moves the cursor. */
static int delete_keys(struct repair *r, enum store_db db,
		       bool (*which)(void *arg, const MDB_val *k), void *arg)
{
	cleanup_buf struct buf keys = {0};
	MDB_val k = {0}, v;
	MDB_cursor *c;
	int e = store_lm_err(mdb_cursor_open(r->t, r->s->db[db], &c));

	if (e < 0)
		return e;
	for (e = store_cur_raw(c, &k, &v, MDB_FIRST); e == 0;
	     e = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		struct key copy = {.len = k.mv_size};

		if (k.mv_size > sizeof(copy.b) || !which(arg, &k))
			continue;
		memcpy(copy.b, k.mv_data, k.mv_size);
		e = buf_put(&keys, &copy, sizeof(copy));
		if (e < 0)
			break;
	}
	mdb_cursor_close(c);
	e = e == -ENOENT ? 0 : e;
	for (size_t i = 0; i < keys.len && e == 0; i += sizeof(struct key)) {
		struct key copy;

		memcpy(&copy, keys.data + i, sizeof(copy));
		k = key_val(&copy);
		e = store_tx_del(r->s, r->t, db, &k);
	}
	return e;
}

static bool journal_goes(void *arg, const MDB_val *k)
{
	struct journals *j = arg;
	store_layer l = k->mv_size == 16 ? key_get_be64(k->mv_data) : 0;

	return find_writing(j, l) || !fsck_layer(j->r->f, l);
}

static int journal_write(struct repair *r, struct writing *w)
{
	struct store_key sk = {.layer = w->layer, .number = w->records};
	MDB_val k, v = {w->entries.len, w->entries.data};
	struct key key;
	int e;

	if (w->entries.len == 0)
		return 0;
	store_key_encode(DB_JOURNAL, &sk, &key);
	k = key_val(&key);
	e = store_tx_put(r->s, r->t, DB_JOURNAL, &k, &v, 0);
	w->records++;
	buf_clear(&w->entries);
	return e;
}

static int journal_entry(void *arg, const struct store_entry *e, int err)
{
	struct journals *j = arg;
	struct writing *w = err ? NULL : find_writing(j, e->key.layer);
	struct key key;
	uint8_t head[3];
	int r = 0;

	if (!w)
		return 0;
	store_key_encode(e->db, &e->key, &key);
	store_journal_head(e->db, key.len - 8, head);
	if (w->entries.len + sizeof(head) + key.len - 8 > STORE_JOURNAL_MAX)
		r = journal_write(j->r, w);
	if (r == 0)
		r = buf_put(&w->entries, head, sizeof(head));
	if (r == 0)
		r = buf_put(&w->entries, key.b, key.len - 8);
	w->keys++;
	return r;
}

static int layer_counts(struct repair *r, struct writing *w)
{
	struct store_layer_rec rec;
	int e = journal_write(r, w);

	if (e == 0)
		e = store_layer_read(r->s, r->t, w->layer, &rec);
	if (e < 0)
		return e;
	rec.records = w->keys;
	rec.journal = w->records;
	e = store_layer_write(r->s, r->t, w->layer, &rec);
	return e < 0 ? e
		     : done(r, "journal", "journal",
			    "wrote the journal of layer %llu anew: %llu keys",
			    (unsigned long long)w->layer, (unsigned long long)w->keys);
}

static int fix_journals(struct repair *r)
{
	struct fsck *f = r->f;
	struct journals j = {.r = r, .v = calloc(f->nlayers + 1, sizeof(*j.v))};
	int e = j.v ? 0 : -ENOMEM;

	for (size_t i = 0; i < f->nlayers && e == 0; i++)
		if (f->layers[i].rebuild)
			j.v[j.n++].layer = f->layers[i].layer;
	if (e == 0 && (j.n || f->stray_journal)) {
		e = delete_keys(r, DB_JOURNAL, journal_goes, &j);
		if (e == 0 && f->stray_journal)
			e = done(r, "journal", "journal",
				 "removed journals of layers that do not exist");
		if (e == 0 && j.n)
			e = store_walk(r->s, r->t,
				       WALK(DB_INODES) | WALK(DB_NAMES) | WALK(DB_EXTENTS) |
					       WALK(DB_XATTRS) | WALK(DB_LINKS),
				       journal_entry, &j);
	}
	for (size_t i = 0; i < j.n && e == 0; i++)
		e = layer_counts(r, &j.v[i]);
	for (size_t i = 0; i < j.n; i++)
		buf_release(&j.v[i].entries);
	free(j.v);
	return e;
}

/* ---- the index of commits ---- */

struct listed {
	struct digest id;
	store_layer layer;
	uint64_t seq; /* 0: no index knew it */
	char env[65];
};

struct index {
	struct repair *r;
	struct buf all; /* struct listed, by id */
	uint64_t last;
};

static int index_commit(void *arg, const struct store_entry *e, int err)
{
	struct index *x = arg;
	struct listed l = {0};

	if (err)
		return 0;
	l.id = e->key.id;
	l.layer = e->commit.layer;
	memcpy(l.env, e->commit.env, sizeof(l.env));
	return buf_put(&x->all, &l, sizeof(l));
}

static int by_id(const void *a, const void *b)
{
	return memcmp(a, b, DIGEST_LEN);
}

/* The old order, where an entry still tells it. */
static int index_seq(void *arg, const struct store_entry *e, int err)
{
	struct index *x = arg;
	struct listed *l;

	if (err || !x->all.len)
		return 0;
	l = bsearch(&e->indexed, x->all.data, x->all.len / sizeof(*l), sizeof(*l), by_id);
	if (l && (!l->seq || e->key.number < l->seq))
		l->seq = e->key.number;
	if (e->key.number > x->last)
		x->last = e->key.number;
	return 0;
}

static int by_seq(const void *a, const void *b)
{
	const struct listed *x = a, *y = b;

	if (!x->seq != !y->seq)
		return x->seq ? -1 : 1;
	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return x->layer < y->layer ? -1 : x->layer > y->layer;
}

static int index_put(struct index *x, struct listed *l, uint64_t *last)
{
	struct store_key sk[2] = {{.name = "", .number = l->seq},
				  {.name = l->env, .len = strlen(l->env), .number = l->seq}};
	int e = 0;

	/* Two with one number: the later one of them comes after all. */
	if (!l->seq || l->seq == *last)
		l->seq = sk[0].number = sk[1].number = ++x->last;
	*last = l->seq;
	for (int i = 0; i < 2 && e == 0; i++) {
		MDB_val k, v = {DIGEST_LEN, l->id.b};
		struct key key;

		store_key_encode(DB_COMMIT_INDEX, &sk[i], &key);
		k = key_val(&key);
		e = store_tx_put(x->r->s, x->r->t, DB_COMMIT_INDEX, &k, &v, 0);
	}
	return e;
}

static int fix_index(struct repair *r)
{
	struct index x = {.r = r};
	struct listed *v;
	uint64_t last = 0;
	size_t n;
	int e;

	if (!r->f->index_bad)
		return 0;
	e = store_walk(r->s, r->t, WALK(DB_COMMITS), index_commit, &x);
	n = x.all.len / sizeof(*v);
	v = (struct listed *)(void *)x.all.data;
	if (e == 0)
		e = store_walk(r->s, r->t, WALK(DB_COMMIT_INDEX), index_seq, &x);
	if (e == 0)
		e = store_lm_err(mdb_drop(r->t, r->s->db[DB_COMMIT_INDEX], 0));
	if (e == 0 && n)
		qsort(v, n, sizeof(*v), by_seq);
	for (size_t i = 0; i < n && e == 0; i++)
		e = index_put(&x, &v[i], &last);
	if (e == 0)
		e = put_num(r, "next_commit", x.last + 1);
	buf_release(&x.all);
	return e < 0 ? e : done(r, "commit-index", "commit_index", "listed %zu commits anew", n);
}

/* ---- chunks that no file has ---- */

static int fix_unused(struct repair *r)
{
	const struct buf *bad = &r->f->unused_chunks;
	MDB_txn *t = NULL;
	int e = bad->len ? store_lm_err(mdb_txn_begin(r->s->chunks.env, NULL, 0, &t)) : 0;

	for (size_t i = 0; i < bad->len && e == 0; i += DIGEST_LEN) {
		MDB_val k = {DIGEST_LEN, bad->data + i};

		e = store_lm_err(mdb_del(t, r->s->chunk_db, &k, NULL));
		if (e == -ENOENT)
			e = store_tx_del(r->s, r->t, DB_SMALL, &k);
		if (e == 0 || e == -ENOENT)
			e = done(r, "unused-chunk", "chunks",
				 "removed a damaged chunk that no file has");
	}
	if (t && e == 0)
		return store_tx_commit(r->s, &t);
	store_tx_abortp(&t);
	return e;
}

/* ---- the whole ---- */

/* Nobody wrote since it was looked at? */
static int unchanged(struct repair *r, struct diag *diag)
{
	MDB_envinfo m, c;

	if (mdb_env_info(r->s->meta.env, &m) || mdb_env_info(r->s->chunks.env, &c))
		return -EIO;
	if (m.me_last_txnid == r->f->txn[0] && c.me_last_txnid == r->f->txn[1])
		return 0;
	return diag_set(diag, -EBUSY,
			"the store in '%s' was written to meanwhile; nothing was repaired",
			r->f->dir);
}

static int write_all(struct repair *r)
{
	int e = store_tx_begin(r->s, &r->t);

	if (e == 0)
		e = fix_super(r);
	if (e == 0)
		e = fix_journals(r);
	if (e == 0)
		e = fix_counters(r);
	if (e == 0)
		e = fix_index(r);
	if (e == 0)
		e = fix_nlinks(r);
	if (e == 0)
		e = fix_unused(r);
	if (e == 0)
		e = store_tx_commit(r->s, &r->t);
	if (e == 0 && r->f->format_bad) {
		e = store_create_end(r->s);
		if (e == 0)
			e = done(r, "format", "format", "wrote the format file anew");
	}
	return e;
}

int fsck_repair(struct fsck *f, struct diag *diag)
{
	struct repair r = {.f = f};
	int e = store_open(f->dir, STORE_ALONE, diag, &r.s), k;

	if (e == 0)
		e = unchanged(&r, diag);
	if (e == 0)
		e = write_all(&r);
	store_tx_abortp(&r.t);
	store_close(r.s);
	k = e == 0 ? write_notes(&r) : 0;
	buf_release(&r.notes);
	return e ? e : k;
}
