/* store: a walk hands on every record of every database, and goes on past a damaged one. */
#include "store/walk.h"
#include "tests/unit/store/store_test.h"

struct seen {
	unsigned n[DB_ALL], bad[DB_ALL];
	store_ino bad_ino;
	unsigned stop_at;
};

static int on_record(void *arg, const struct store_entry *e, int err)
{
	struct seen *s = arg;

	if (err < 0) {
		s->bad[e->db]++;
		s->bad_ino = e->key.ino;
		return 0;
	}
	s->n[e->db]++;
	return s->stop_at && --s->stop_at == 0 ? 7 : 0;
}

static struct seen walk_all(struct store *s)
{
	cleanup_rd struct store_rd rd = {0};
	struct seen seen = {0};

	if (store_rd_begin(s, &rd) < 0 || store_walk(s, rd.r->txn, WALK_META, on_record, &seen) ||
	    store_walk_chunks(s, NULL, on_record, &seen))
		tap_fatal("walk");
	return seen;
}

/* One record in each database. */
static void fill(struct store *s)
{
	static uint8_t big[STORE_BLOCK];
	struct store_chunk c[2] = {{big, sizeof(big), {{0}}}, {"small", 5, {{0}}}};
	struct store_commit cm = commit_of("one");
	struct rec_inode r = file_rec(STORE_BLOCK * 2);
	struct store_extent e = {.block = 1, .len = STORE_BLOCK};
	struct store_batch *b;
	struct store_env env;

	memset(big, 7, sizeof(big));
	if (store_env_create(s, "e", 0, "empty", &env) < 0 || store_chunks_put(s, c, 2) < 0 ||
	    store_batch_begin(s, env.open, &b) < 0)
		tap_fatal("store");
	r.content = REC_EXTENTS;
	r.big_xattrs = true;
	e.chunk = c[0].digest;
	name_set(b, 1, "f", 70);
	if (store_batch_inode(b, 70, &r) < 0 || store_batch_extent(b, 70, &e) < 0 ||
	    store_batch_xattr(b, 70, "user.x", "v", 1) < 0 ||
	    store_batch_link(b, 70, 1, "f", 1, true) < 0 || store_batch_commit(b) < 0 ||
	    store_env_seal(s, &env, &cm) < 0 || store_env_move(s, &env, 0, "reset") < 0 ||
	    store_ref_set(s, "tag/t", 1) < 0)
		tap_fatal("store");
}

static void walks(void)
{
	static const unsigned want[DB_ALL] = {
		[DB_INODES] = 1,       [DB_NAMES] = 1,  [DB_EXTENTS] = 1, [DB_XATTRS] = 1,
		[DB_LINKS] = 1,        [DB_LAYERS] = 2, [DB_JOURNAL] = 1, [DB_COMMITS] = 1,
		[DB_COMMIT_INDEX] = 2, [DB_REFS] = 1,   [DB_ENVS] = 1,    [DB_MOVES] = 1,
		[DB_META] = 4,         [DB_SMALL] = 1,  [DB_CHUNKS] = 1,
	};
	char dir[64];
	struct store *s;
	struct seen seen;

	make_dir(dir);
	s = open_store(dir);
	fill(s);
	seen = walk_all(s);
	for (int i = 0; i < DB_ALL; i++)
		ok(seen.n[i] == want[i] && !seen.bad[i], "%u of %s", seen.n[i],
		   store_db_name((enum store_db)i));
	seen = (struct seen){.stop_at = 1};
	eq_int(store_walk_chunks(s, NULL, on_record, &seen), 7, "the callback ends a walk");
	store_close(s);
	tree_remove(dir);
}

static void goes_on(void)
{
	cleanup_tx MDB_txn *t = NULL;
	uint8_t junk[9] = "no record";
	struct key k = {0};
	MDB_val kv, v = {sizeof(junk), junk};
	char dir[64];
	struct store *s;
	struct seen seen;

	make_dir(dir);
	s = open_store(dir);
	fill(s);
	/* One without a check value, and one with a check value but no record. */
	key_num(&k, 60);
	key_layer(&k, 1);
	kv = key_val(&k);
	if (store_tx_begin(s, &t) < 0 || mdb_put(t, s->db[DB_INODES], &kv, &v, 0) ||
	    store_tx_put(s, t, DB_EXTENTS, &kv, &v, 0) < 0 || store_tx_commit(s, &t) < 0)
		tap_fatal("put");
	seen = walk_all(s);
	ok(seen.bad[DB_INODES] == 1 && seen.n[DB_INODES] == 1, "past a wrong check value");
	ok(seen.bad[DB_EXTENTS] == 1 && seen.n[DB_EXTENTS] == 1, "past what is no record");
	store_close(s);
	tree_remove(dir);
}

/* Each byte of each value changed in place is seen by whoever reads the record. */
static void check_values(void)
{
	struct store_key sk = {.ino = 70, .layer = 1};
	uint8_t name[STORE_NAME_LEN + STORE_SUM_LEN];
	struct rec_name rn = {70, S_IFREG};
	struct key k;
	unsigned missed = 0;
	MDB_val kv, v = {sizeof(name), name};

	store_key_encode(DB_INODES, &sk, &k);
	kv = key_val(&k);
	store_name_encode(&rn, name);
	key_be32(name + STORE_NAME_LEN, store_sum(DB_NAMES, &kv, name, STORE_NAME_LEN));
	for (size_t i = 0; i < (sizeof(name) + k.len) * 8; i++) {
		uint8_t *p = i / 8 < sizeof(name) ? name + i / 8 : k.b + i / 8 - sizeof(name);
		MDB_val cut = v;

		*p ^= (uint8_t)(1u << i % 8);
		missed += store_sum_strip(DB_NAMES, &kv, &cut) == 0;
		*p ^= (uint8_t)(1u << i % 8);
	}
	eq_int(missed, 0, "every bit of key and value counts");
	eq_int(store_sum_strip(DB_INODES, &kv, &v), -EBADMSG, "and so does the database");
	eq_int(store_sum_strip(DB_NAMES, &kv, &v), 0, "a sound one passes");
	ok(v.mv_size == STORE_NAME_LEN, "and loses its check value");
}

int main(void)
{
	walks();
	goes_on();
	check_values();
	return tap_done();
}
