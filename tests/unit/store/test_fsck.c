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
	tree_remove(dir);
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
	tree_remove(dir);
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

/* ---- repair ---- */

static int repair(const char *dir, struct seen *seen, struct store_fsck_sum *sum)
{
	struct store_fsck_opts o = {.flags = STORE_FSCK_REPAIR, .finding = on_finding, .arg = seen};
	struct diag d = {0};

	*sum = (struct store_fsck_sum){0};
	return store_fsck(dir, &o, &d, sum);
}

/* As damage(), but what sound data tells: written anew, noted, and clean then. */
static void repaired(enum store_db db, const struct store_key *key, const void *value, size_t n,
		     const char *kind, const char *what)
{
	struct seen seen = {.want = kind}, after = {0};
	struct store_fsck_sum sum;
	cleanup_tx MDB_txn *t = NULL;
	char dir[64], path[96];
	struct key at;
	MDB_val k, v = {n, (void *)(uintptr_t)value};
	struct stat st;
	struct store *s;
	int r;

	make_dir(dir);
	s = open_store(dir);
	(void)sample_fill(s);
	store_key_encode(db, key, &at);
	k = key_val(&at);
	if (store_tx_begin(s, &t) < 0 ||
	    (value ? store_tx_put(s, t, db, &k, &v, 0) : store_tx_del(s, t, db, &k)) < 0 ||
	    store_tx_commit(s, &t) < 0)
		tap_fatal("%s", what);
	eq_int(repair(dir, &seen, &sum), -EBUSY, "%s: not while the store is open", what);
	store_close(s);
	r = repair(dir, &seen, &sum);
	ok(r == 0 && sum.repaired > 0 && !sum.damaged && !sum.repairable &&
		   !strcmp(seen.kind, kind),
	   "%s: repaired: %d, %s", what, r, seen.text);
	(void)snprintf(path, sizeof(path), "%s/repairs.log", dir);
	ok(stat(path, &st) == 0 && st.st_size > 0, "a note is kept");
	(void)check(dir, &after);
	eq_int(after.n, 0, "and nothing is left");
	s = open_store(dir);
	ok(name_at(s, 1, SAMPLE_DIR, "big") == SAMPLE_BIG &&
		   name_at(s, 2, 1, "later") == SAMPLE_LATER,
	   "what was there is there");
	store_close(s);
	tree_remove(dir);
}

static void repairs(void)
{
	static const uint8_t two[8] = {0, 0, 0, 0, 0, 0, 0, 2}, junk[3] = {9, 0, 1};
	struct digest one;
	struct rec_inode dir = {.mode = S_IFDIR | 0700,
				.nlink = 7,
				.parent = STORE_ROOT_INO,
				.name = (char[]){"dir"},
				.name_len = 3,
				.mtime = {1700000000, 123456789},
				.ctime = {1700000000, 123456789}};
	cleanup_buf struct buf b = {0};
	struct store_key journal = {.layer = 1}, stray = {.layer = 77},
			 counter = {.name = "next_layer", .len = 10},
			 super = {.name = "superblock", .len = 10},
			 index = {.name = "", .number = 1},
			 env_index = {.name = "env", .len = 3, .number = 2},
			 inode = {.ino = SAMPLE_DIR, .layer = 1};

	if (digest_of("one", 3, &one) < 0 || rec_inode_encode(&dir, &b) < 0)
		tap_fatal("encode");
	repaired(DB_JOURNAL, &journal, NULL, 0, "journal", "a journal that is gone");
	repaired(DB_JOURNAL, &journal, junk, sizeof(junk), "journal", "one of nonsense");
	repaired(DB_JOURNAL, &stray, junk, sizeof(junk), "journal", "one of no layer");
	repaired(DB_META, &counter, two, 8, "counter", "a counter");
	repaired(DB_META, &super, NULL, 0, "superblock", "the superblock");
	repaired(DB_COMMIT_INDEX, &index, NULL, 0, "commit-index", "an entry of all commits");
	repaired(DB_COMMIT_INDEX, &env_index, one.b, DIGEST_LEN, "commit-index", "a wrong entry");
	repaired(DB_INODES, &inode, b.data, b.len, "nlink", "a link count");
}

static void format_file(void)
{
	struct seen seen = {0};
	struct store_fsck_sum sum;
	char dir[64], path[96];
	struct store *s = NULL;
	FILE *f;

	make_dir(dir);
	store_close(open_store(dir));
	(void)snprintf(path, sizeof(path), "%s/format", dir);
	f = fopen(path, "we");
	if (!f || fputs("rattan stare, format 2\n", f) < 0 || fclose(f))
		tap_fatal("%s: %m", path);
	sum = check(dir, &seen);
	ok(sum.repairable == 1 && !strcmp(seen.kind, "format"), "a damaged format file");
	ok(repair(dir, &seen, &sum) == 0 && sum.repaired == 1 && !sum.repairable,
	   "is written anew");
	eq_int(store_open(dir, 0, NULL, &s), 0, "and opens");
	store_close(s);
	tree_remove(dir);
}

int main(void)
{
	clean();
	damages();
	repairs();
	format_file();
	return tap_done();
}
