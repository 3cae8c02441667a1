/* store/fsck: what is whole is clean; each kind of damage is named, with the files, trees and commits it touches. */
#include "store/codec.h"
#include "store/fsck.h"
#include "tests/unit/store/sample.h"

struct seen {
	unsigned n;
	char kind[64], path[256], text[512], env[65];
	uint64_t nenvs, ncommits;
	const char *want; /* keep the first of this kind */
};

static int on_finding(void *arg, const struct store_finding *f)
{
	struct seen *s = arg;

	printf("# %d %s %s: %s (%llu trees, %llu commits)\n", (int)f->state, f->kind,
	       f->path ? f->path : "-", f->text, (unsigned long long)f->nenvs,
	       (unsigned long long)f->ncommits);
	s->n++;
	if (s->kind[0] || (s->want && strcmp(s->want, f->kind) != 0))
		return 0;
	(void)snprintf(s->kind, sizeof(s->kind), "%s", f->kind);
	(void)snprintf(s->path, sizeof(s->path), "%s", f->path ? f->path : "");
	(void)snprintf(s->text, sizeof(s->text), "%s", f->text);
	(void)snprintf(s->env, sizeof(s->env), "%s", f->envs[0] ? f->envs[0] : "");
	s->nenvs = f->nenvs;
	s->ncommits = f->ncommits;
	return 0;
}

static struct store_fsck_sum check(const char *dir, struct seen *seen)
{
	struct store_fsck_opts o = {.finding = on_finding, .arg = seen};
	struct store_fsck_sum sum = {0};
	struct diag d = {0};
	int r = store_fsck(dir, &o, &d, &sum);

	if (r < 0)
		tap_fatal("store_fsck: %d %s", r, d.text);
	return sum;
}

static void clean(void)
{
	struct store_fsck_sum sum;
	struct seen seen = {0};
	char dir[64];
	struct store *s;

	make_dir(dir);
	s = open_store(dir);
	sum = check(dir, &seen);
	eq_int(seen.n, 0, "an empty store, beside whoever has it open");
	(void)sample_fill(s);
	sum = check(dir, &seen);
	eq_int(seen.n, 0, "a full one");
	ok(sum.commits == 2 && sum.envs == 1 && sum.layers == 3 && sum.chunks == 5,
	   "all of it was looked at");
	store_close(s);
	sum = check(dir, &seen);
	eq_int(seen.n, 0, "and with nobody there");
	rm_rf(dir);
}

/* One record changed through the store, with a right check value; without a value it is removed. */
static void damage(enum store_db db, const struct store_key *key, const void *value, size_t n,
		   const char *kind, const char *path, uint64_t nenvs, uint64_t ncommits,
		   const char *what)
{
	struct seen seen = {.want = kind};
	cleanup_tx MDB_txn *t = NULL;
	char dir[64];
	struct key at;
	MDB_val k, v = {n, (void *)(uintptr_t)value};
	struct store *s;
	int r;

	make_dir(dir);
	s = open_store(dir);
	(void)sample_fill(s);
	store_key_encode(db, key, &at);
	k = key_val(&at);
	r = store_tx_begin(s, &t);
	if (r == 0)
		r = value ? store_tx_put(s, t, db, &k, &v, 0) : store_tx_del(s, t, db, &k);
	if (r == 0)
		r = store_tx_commit(s, &t);
	if (r < 0)
		tap_fatal("%s: change: %d", what, r);
	store_close(s);
	(void)check(dir, &seen);
	ok(!strcmp(seen.kind, kind) && !strcmp(seen.path, path) && seen.nenvs == nenvs &&
		   seen.ncommits == ncommits,
	   "%s: %s %s in %llu trees, %llu commits", what, seen.kind, seen.path,
	   (unsigned long long)seen.nenvs, (unsigned long long)seen.ncommits);
	rm_rf(dir);
}

static void damages(void)
{
	static const uint8_t other[STORE_NAME_LEN] = {0, 0, 0,    0, 0, 0, 0, SAMPLE_INLINE,
						      0, 0, 0x80, 0},
			     dangling[STORE_NAME_LEN] = {0, 0, 0, 0, 0, 0, 9, 9, 0, 0, 0x80, 0},
			     extent[STORE_EXTENT_LEN] = {0, 2, 0, 0, 1, 2, 3}, there[] = {1},
			     nine[8] = {0, 0, 0, 0, 0, 0, 0, 99}, one[8] = {0, 0, 0, 0, 0, 0, 0, 1};
	const struct store_key
		big = {.ino = SAMPLE_DIR, .name = "big", .len = 3, .layer = 1},
		link = {.ino = SAMPLE_LINKED,
			.block = SAMPLE_DIR,
			.name = "linked",
			.len = 6,
			.layer = 1},
		block = {.ino = SAMPLE_BIG, .block = 2, .layer = 1},
		inode = {.ino = SAMPLE_SMALL, .layer = 1},
		stray = {.ino = SAMPLE_SMALL, .name = "user.x", .len = 6, .layer = 7},
		journal = {.layer = 2}, tag = {.name = "tag/first", .len = 9},
		ino = {.name = "next_ino", .len = 8},
		later = {.ino = STORE_ROOT_INO, .name = "later", .len = 5, .layer = 2};
	const struct store_key extra = {
		.ino = SAMPLE_BIG, .block = 1, .name = "x", .len = 1, .layer = 1};

	damage(DB_NAMES, &big, other, sizeof(other), "place", "/dir/big", 1, 1,
	       "a name of another file");
	damage(DB_NAMES, &big, dangling, sizeof(dangling), "missing", "/dir/big", 1, 1,
	       "a name without its file");
	damage(DB_NAMES, &later, NULL, 0, "place", "/later", 0, 1, "a file without its name");
	damage(DB_LINKS, &link, NULL, 0, "lost", "/dir/linked", 1, 2, "a link that is gone");
	damage(DB_LINKS, &extra, there, 1, "place", "/x", 1, 2, "a link without a name");
	damage(DB_EXTENTS, &block, extent, sizeof(extent), "chunk", "/dir/big", 1, 1,
	       "an extent without its chunk");
	damage(DB_INODES, &inode, NULL, 0, "missing", "/dir/small", 1, 2, "an inode that is gone");
	damage(DB_XATTRS, &stray, there, 1, "record", "", 0, 0, "a record of no layer");
	damage(DB_JOURNAL, &journal, NULL, 0, "journal", "", 0, 0, "a journal that is gone");
	damage(DB_REFS, &tag, nine, 8, "ref", "", 0, 0, "a reference to no layer");
	damage(DB_META, &ino, one, 8, "counter", "", 0, 0, "a counter that is too low");
}

int main(void)
{
	clean();
	damages();
	return tap_done();
}
