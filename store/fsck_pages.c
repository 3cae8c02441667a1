/* The pages of both files, and the records in them. */
#include <stdio.h>

#include "store/fsck_internal.h"

/* ---- what is wrong with a page ---- */

struct in_db {
	struct fsck *f;
	enum store_db db;
	const char *where;
	fsck_record_fn fn;
	uint64_t n;
};

static void key_text(const MDB_val *k, char *to, size_t size)
{
	size_t n = 0;

	to[0] = 0;
	for (size_t i = 0; i < k->mv_size && n + 3 < size && i < 24; i++)
		n += (size_t)snprintf(to + n, size - n, "%02x", ((const uint8_t *)k->mv_data)[i]);
}

static int on_bad(void *arg, uint64_t pgno, const char *what, const MDB_val *lo, const MDB_val *hi)
{
	struct in_db *d = arg;
	char from[64], to[64];

	d->f->pages_bad = true;
	if (strcmp(d->where, "chunks") != 0)
		d->f->structure_bad = true;
	key_text(lo, from, sizeof(from));
	key_text(hi, to, sizeof(to));
	return fsck_tell(d->f, STORE_FINDING_DAMAGE, "page", d->where, NULL,
			 "page %llu of %s is damaged: %s%s%s%s%s%s", (unsigned long long)pgno,
			 d->where, what, *from || *to ? "; it holds the keys" : "",
			 *from ? " from " : "", from, *to ? " to " : "", to);
}

/* ---- which databases there are ---- */

static int on_main(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct in_db *d = arg;
	struct fsck *f = d->f;

	for (int i = 0; i < DB_COUNT; i++) {
		const char *name = store_db_name((enum store_db)i);

		if (k->mv_size != strlen(name) || memcmp(k->mv_data, name, k->mv_size) != 0)
			continue;
		f->have[i] = pages_sub(v, flags, &f->db[i]) == 0;
		if (f->have[i])
			return 0;
		return fsck_tell(f, STORE_FINDING_DAMAGE, "page", name, NULL,
				 "the record that says where the database %s is, is damaged", name);
	}
	f->structure_bad = true;
	return fsck_tell(f, STORE_FINDING_DAMAGE, "page", "meta", NULL,
			 "there is a database of a name that rattan does not use");
}

static int find_dbs(struct fsck *f, const struct pages_db *main)
{
	struct in_db d = {.f = f, .where = "meta"};
	struct pages_cb cb = {on_main, on_bad, &d};
	int r = pages_walk(f->meta, main, NULL, PAGES_MARK | PAGES_COUNT, &cb);

	for (int i = 0; i < DB_COUNT && r == 0; i++) {
		if (f->have[i])
			continue;
		f->structure_bad = f->pages_bad = true;
		r = fsck_tell(f, STORE_FINDING_DAMAGE, "page", store_db_name((enum store_db)i),
			      NULL, "the database %s is missing", store_db_name((enum store_db)i));
	}
	return r;
}

static int meta_pages(struct fsck *f, struct pages *p, const char *where,
		      const struct pages_snap *s)
{
	const char *what = pages_meta_bad(p);
	int r = 0;

	f->pages_bad |= what || s->cut;
	if (what)
		r = fsck_tell(f, STORE_FINDING_DAMAGE, "page", where, NULL,
			      "a meta page of %s is damaged: %s", where, what);
	if (r == 0 && s->cut)
		r = fsck_tell(f, STORE_FINDING_DAMAGE, "page", where, NULL,
			      "%s/data.mdb is shorter than its meta page says", where);
	return r;
}

/* ---- the snapshot ---- */

static int begin(struct fsck *f, struct pages_snap s[static 2])
{
	uint64_t txn[2];
	int r = -EAGAIN;

	for (int tries = 0; tries < 100 && r == -EAGAIN; tries++) {
		r = fsck_pin_renew(&f->pin, txn);
		if (r == 0 && f->meta)
			r = pages_begin(f->meta, txn[0], &s[0]);
		if (r == 0 && f->chunks)
			r = pages_begin(f->chunks, txn[1], &s[1]);
	}
	return r;
}

int fsck_structure(struct fsck *f)
{
	struct pages_snap s[2] = {0};
	int r = begin(f, s);

	if (r == -EBADMSG)
		return fsck_tell(f, STORE_FINDING_DAMAGE, "page", "meta", NULL,
				 "no meta page can be read: nothing in the store can be found");
	if (r == 0 && f->meta)
		r = meta_pages(f, f->meta, "meta", &s[0]);
	if (r == 0 && f->chunks)
		r = meta_pages(f, f->chunks, "chunks", &s[1]);
	if (r == 0 && f->meta)
		r = find_dbs(f, &s[0].main);
	f->db[DB_CHUNKS] = s[1].main;
	f->have[DB_CHUNKS] = f->chunks != NULL && r == 0;
	f->sum.pages = s[0].pages + s[1].pages;
	f->txn[0] = s[0].txn;
	f->txn[1] = s[1].txn;
	return r;
}

/* ---- records ---- */

/* A damaged record: by its key, as far as that can be read. */
static int tell_record(struct fsck *f, const struct store_entry *e)
{
	struct fsck_at at = {e->db, e->key, e->key.ino};
	const char *name = store_db_name(e->db);

	if (e->db == DB_LAYERS && fsck_layer_bad(f, e->key.layer) < 0)
		return -ENOMEM;
	if (e->db == DB_COMMITS) {
		char hex[DIGEST_LEN * 2 + 1];

		f->commits_bad = true;

		digest_hex(&e->key.id, hex);
		return fsck_tell(f, STORE_FINDING_DAMAGE, "record", name, NULL,
				 "the record of commit %s is damaged", hex);
	}
	if (e->db == DB_LAYERS || e->db == DB_JOURNAL)
		return fsck_tell(f, STORE_FINDING_DAMAGE, "record", name, NULL,
				 "a record of layer %llu in %s is damaged",
				 (unsigned long long)e->key.layer, name);
	if (!store_db_versioned(e->db))
		return fsck_tell(f, STORE_FINDING_DAMAGE, "record", name, NULL,
				 "the record \"%.*s\" in %s is damaged", (int)e->key.len,
				 e->key.name ? e->key.name : "", name);
	return fsck_tell(f, STORE_FINDING_DAMAGE, "record", name, e->key.ino ? &at : NULL,
			 "a record of inode %llu in %s, written by layer %llu, is damaged",
			 (unsigned long long)e->key.ino, name, (unsigned long long)e->key.layer);
}

static int on_entry(void *arg, const struct store_entry *e, int err)
{
	struct in_db *d = arg;

	return err < 0 ? tell_record(d->f, e) : d->fn(d->f, e);
}

static int on_record(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct in_db *d = arg;
	struct fsck *f = d->f;
	int r;

	if (flags & ~1u)
		return fsck_tell(f, STORE_FINDING_DAMAGE, "page", d->where, NULL,
				 "a record of %s is marked as a database", d->where);
	f->sum.records += d->db != (int)DB_CHUNKS;
	r = fsck_progress(f, d->where, d->n++, f->db[d->db].entries);
	return r ? r : store_walk_one(d->db, k, v, on_entry, d);
}

int fsck_records(struct fsck *f, enum store_db db, fsck_record_fn fn)
{
	struct in_db d = {f, db, store_db_name(db), fn, 0};
	struct pages_cb cb = {on_record, on_bad, &d};
	unsigned flags = PAGES_MARK | PAGES_COUNT | ((int)db == DB_CHUNKS ? PAGES_SHALLOW : 0);

	if (!f->have[db])
		return 0;
	return pages_walk((int)db == DB_CHUNKS ? f->chunks : f->meta, &f->db[db], NULL, flags, &cb);
}

/* ---- the free list ---- */

int fsck_free(struct fsck *f)
{
	struct pages *files[2] = {f->meta, f->chunks};
	static const char *const names[2] = {"meta", "chunks"};
	int r = 0;

	for (int i = 0; i < 2 && r == 0; i++) {
		struct in_db d = {.f = f, .where = names[i]};
		struct pages_cb cb = {NULL, on_bad, &d};
		uint64_t free, lost;
		bool sound = f->sum.damaged == 0;

		if (!files[i] || (i == 1 && !f->have[DB_CHUNKS]))
			continue;
		r = pages_free_check(files[i], &cb, &free, &lost);
		/* What hangs below a damaged page is not lost. */
		if (r == 0 && lost && sound)
			r = fsck_tell(f, STORE_FINDING_NOTE, "lost-pages", names[i], NULL,
				      "%llu pages of %s are neither used nor free",
				      (unsigned long long)lost, names[i]);
	}
	return r;
}
