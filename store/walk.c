#include "store/walk.h"

int store_walk_one(enum store_db db, const MDB_val *k, const MDB_val *v, store_walk_fn fn,
		   void *arg)
{
	MDB_val bare = *v;
	struct store_entry e;
	int err = db == DB_CHUNKS ? 0 : store_sum_strip(db, k, &bare), r;

	if (err == 0) {
		err = store_entry_decode(db, k, &bare, &e);
	} else {
		memset(&e, 0, sizeof(e));
		e.db = db;
		(void)!store_key_decode(db, k->mv_data, k->mv_size, &e.key);
	}
	r = err == -ENOMEM ? err : fn(arg, &e, err);
	if (err == 0)
		store_entry_release(&e);
	return r;
}

static int walk_db(MDB_txn *t, MDB_dbi dbi, enum store_db db, MDB_val *from, store_walk_fn fn,
		   void *arg)
{
	MDB_cursor *c;
	MDB_val k = {0}, v;
	int r = store_lm_err(mdb_cursor_open(t, dbi, &c));

	if (r < 0)
		return r;
	if (from)
		k = *from;
	for (r = store_cur_raw(c, &k, &v, from ? MDB_SET_RANGE : MDB_FIRST); r == 0;
	     r = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		r = store_walk_one(db, &k, &v, fn, arg);
		if (r)
			break;
	}
	mdb_cursor_close(c);
	return r == -ENOENT ? 0 : r;
}

int store_walk(struct store *s, MDB_txn *t, unsigned dbs, store_walk_fn fn, void *arg)
{
	int r = 0;

	for (int i = 0; i < DB_COUNT && r == 0; i++)
		if (dbs & WALK(i))
			r = walk_db(t, s->db[i], (enum store_db)i, NULL, fn, arg);
	return r;
}

int store_walk_chunks(struct store *s, const struct digest *from, store_walk_fn fn, void *arg)
{
	MDB_val k = {DIGEST_LEN, (void *)(uintptr_t)from};
	struct store_reader *rd;
	int r = store_reader_get(&s->chunks, &rd);

	if (r < 0)
		return r;
	r = walk_db(rd->txn, s->chunk_db, (enum store_db)DB_CHUNKS, from ? &k : NULL, fn, arg);
	store_reader_put(&s->chunks, rd);
	return r;
}
