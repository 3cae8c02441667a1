/*
 * store: the format, byte by byte. Each record stands here as it is on the disk, written by hand from
 * docs/store-format.md: it decodes, encodes to the same bytes, and has that check value. The table in the document
 * holds the same bytes.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/entry.h"
#include "tests/unit/store/store_test.h"

static const struct golden {
	const char *db, *what;
	const char *key, *value; /* hex; the value without its check value */
	const char *sum;         /* hex */
} golden[] = {
	{"inodes", "a file of five bytes, which lie in the record; two attributes",
	 "0000000000000042fffffffffffffffc",
	 "dc001701cd81a4cd03e8cd03e801000508ce6553f10001ce6553f10002ce6553f10003ffce3b9ac9"
	 "ff40c40568656c6c6fc094c406757365722e61c40176c406757365722e62c400c2c40568656c6c6f"
	 "c0",
	 "7a469122"},
	{"inodes", "a directory that shows a host directory", "0000000000000001fffffffffffffffe",
	 "dc001701cd41ed00000200cd100008000000000000000000c400c090c2c099c4042f757372c4036c"
	 "69620300cd08014dcd10000506",
	 "f51d633b"},
	{"inodes", "a file of one chunk, with two links and big attributes",
	 "0000000000000043fffffffffffffffd",
	 "dc001701cd81ed00000200cd0bb808000000000000000000c400c090c392cd0bb8c4200001020304"
	 "05060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fc0",
	 "d8fae7fd"},
	{"inodes", "a file in extents", "0000000000000044fffffffffffffffd",
	 "dc001701cd818000000100ce00060000cd0300000000000000000040c403626967c090c2c3c0",
	 "1cdd3ff0"},
	{"inodes", "a symlink", "0000000000000045fffffffffffffffd",
	 "dc001701cda1ff000001000500000000000000000040c4016cc4052e2e2f696e90c2c0c0", "74a16169"},
	{"inodes", "a device", "0000000000000046fffffffffffffffd",
	 "dc001701cd21b6000001cd01030000000000000000000040c4046e756c6cc090c2c0c0", "799837ec"},
	{"inodes", "taken back by its layer", "0000000000000047fffffffffffffffd", "", "910e9b9a"},
	{"names", "a name", "000000000000000168656c6c6f00fffffffffffffffc",
	 "000000000000004200008000", "5bc37859"},
	{"names", "a tombstone", "0000000000000001676f6e6500fffffffffffffffc",
	 "000000000000000000000000", "6c2c681b"},
	{"extents", "a block", "00000000000000440000000000000002fffffffffffffffd",
	 "00020000000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "ef900836"},
	{"extents", "a hole", "00000000000000440000000000000003fffffffffffffffd", "00000000",
	 "b225c3fc"},
	{"xattrs", "a value", "0000000000000043757365722e62696700fffffffffffffffd", "0176616c7565",
	 "f9d49f70"},
	{"xattrs", "a tombstone", "0000000000000043757365722e6f6c6400fffffffffffffffc", "00",
	 "aa2685a4"},
	{"links", "a place", "0000000000000043000000000000004074776f00fffffffffffffffd", "01",
	 "d76bfe0f"},
	{"links", "no longer", "0000000000000043000000000000004074776f00fffffffffffffffc", "00",
	 "02bc594f"},
	{"layers", "sealed by a commit", "0000000000000003",
	 "000000000000000200000002000000006553f10000000005000000000000000c0000000000000bb8"
	 "0000000000000001202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f",
	 "35557c49"},
	{"layers", "open, after five batches", "0000000000000005",
	 "000000000000000400000001000000006553f10100000000000000000000000700000000000000"
	 "640000000000000002000000000000000000000000000000000000000000000000000000000000"
	 "00000000000000000005",
	 "cd972f70"},
	{"layers", "open, without a batch", "0000000000000004",
	 "000000000000000300000001000000006553f1010000000000000000000000000000000000000000"
	 "00000000000000000000000000000000000000000000000000000000000000000000000000000000",
	 "06872b82"},
	{"journal", "an inode, a name, an extent, an attribute, a place",
	 "00000000000000030000000000000000",
	 "010008000000000000004202000e000000000000000168656c6c6f00030010000000000000004400"
	 "000000000000020400110000000000000043757365722e6269670005001400000000000000430000"
	 "00000000004074776f00",
	 "f2bb0a4d"},
	{"commits", "a commit", "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f",
	 "9c01c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0301ce65"
	 "53f10005010200a3656e76a56c6162656ca76d657373616765",
	 "bdf60d5b"},
	{"commits", "an automatic state without parent or message",
	 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
	 "9c01c420000000000000000000000000000000000000000000000000000000000000000002020100"
	 "000000a3656e76a0c0",
	 "0b21e18d"},
	{"commit_index", "of all", "000000000000000002",
	 "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f", "a5c1e25c"},
	{"commit_index", "of one environment", "656e76000000000000000002",
	 "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f", "52df87a8"},
	{"refs", "a tag", "7461672f6669727374", "0000000000000003", "5db499dd"},
	{"envs", "an environment", "656e76", "9701010304ce6553f10007a4686f7374", "d6f364f0"},
	{"moves", "a rollback", "656e76000000000000000001", "95a8726f6c6c6261636b0302ce6553f10208",
	 "1bafec3e"},
	{"meta", "the superblock", "7375706572626c6f636b",
	 "84a5626c6f636bce00020000a763726561746564ce6553f100a6646967657374a6736861323536a6"
	 "666f726d617402",
	 "31741ffe"},
	{"meta", "a counter", "6e6578745f6c61796572", "0000000000000005", "5af704ec"},
	{"small", "raw bytes (the key is their SHA-256)",
	 "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "0000000568656c6c6f",
	 ""},
};

/* ---- bytes ---- */

struct bytes {
	size_t n;
	uint8_t b[1024];
};

static struct bytes from_hex(const char *h)
{
	struct bytes r = {0};

	for (; h[0] && h[1]; h += 2) {
		unsigned v;

		if (r.n == sizeof(r.b) || sscanf(h, "%2x", &v) != 1)
			tap_fatal("hex: %s", h);
		r.b[r.n++] = (uint8_t)v;
	}
	return r;
}

static MDB_val val(struct bytes *b)
{
	return (MDB_val){b->n, b->b};
}

static enum store_db db_of(const char *name)
{
	for (int i = 0; i < DB_COUNT; i++)
		if (!strcmp(store_db_name((enum store_db)i), name))
			return (enum store_db)i;
	tap_fatal("no database %s", name);
}

/* ---- both ways ---- */

static bool encodes(const struct store_entry *e, const MDB_val *k, const MDB_val *v)
{
	cleanup_buf struct buf b = {0};
	struct key key;

	return store_entry_encode(e, &key, &b) == 0 && key.len == k->mv_size &&
	       !memcmp(key.b, k->mv_data, key.len) && store_same_bytes(&b, v);
}

static void both_ways(const struct golden *g)
{
	struct bytes kb = from_hex(g->key), vb = from_hex(g->value), sb = from_hex(g->sum);
	MDB_val k = val(&kb), v = val(&vb);
	enum store_db db = db_of(g->db);
	struct store_entry e;
	int r = store_entry_decode(db, &k, &v, &e);

	eq_int(r, 0, "%s: %s", g->db, g->what);
	if (r == 0) {
		ok(encodes(&e, &k, &v), "and back");
		store_entry_release(&e);
	}
	if (store_sum_has(db))
		ok(sb.n == 4 && key_get_be32(sb.b) == store_sum(db, &k, vb.b, vb.n),
		   "its check value: %08x", store_sum(db, &k, vb.b, vb.n));
}

/* ---- what they mean ---- */

static struct store_entry entry(const char *what)
{
	for (size_t i = 0; i < ARRAY_SIZE(golden); i++) {
		static struct bytes kb, vb; /* what is decoded points into them */
		struct store_entry e;
		MDB_val k, v;

		if (strcmp(golden[i].what, what) != 0)
			continue;
		kb = from_hex(golden[i].key);
		vb = from_hex(golden[i].value);
		k = val(&kb);
		v = val(&vb);
		if (store_entry_decode(db_of(golden[i].db), &k, &v, &e) < 0)
			tap_fatal("%s", what);
		return e;
	}
	tap_fatal("no record: %s", what);
}

static void meaning(void)
{
	struct store_entry e =
		entry("a file of five bytes, which lie in the record; two attributes");

	ok(e.key.ino == 66 && e.key.layer == 3 && e.inode.mode == 0100644 && e.inode.uid == 1000 &&
		   e.inode.nlink == 1 && e.inode.size == 5 && e.inode.blocks == 8 &&
		   e.inode.mtime.tv_sec == 1700000000 && e.inode.mtime.tv_nsec == 2 &&
		   e.inode.btime.tv_sec == -1 && e.inode.parent == 64 &&
		   !strcmp(e.inode.name, "hello") && e.inode.content == REC_INLINE &&
		   e.inode.data_len == 5 && e.inode.nxattrs == 2 &&
		   !strcmp(e.inode.xattrs[0].name, "user.a") && e.inode.xattrs[1].len == 0,
	   "an inode");
	store_entry_release(&e);
	e = entry("a directory that shows a host directory");
	ok(!strcmp(e.inode.origin.root, "/usr") && !strcmp(e.inode.origin.rel, "lib") &&
		   e.inode.origin.flags == 3 && e.inode.origin.dev == 2049 &&
		   e.inode.origin.ino == 77 && e.inode.origin.mtime.tv_nsec == 6,
	   "an origin");
	store_entry_release(&e);
	e = entry("a block");
	ok(e.key.ino == 68 && e.key.block == 2 && e.extent.len == STORE_BLOCK &&
		   e.extent.chunk.b[31] == 31,
	   "an extent");
	e = entry("sealed by a commit");
	ok(e.layer.parent == 2 && e.layer.state == STORE_LAYER_SEALED && e.layer.records == 12 &&
		   e.layer.bytes == 3000 && e.layer.journal == 1 && e.layer.commit.b[0] == 32,
	   "a layer");
	e = entry("open, after five batches");
	ok(e.layer.state == STORE_LAYER_OPEN && e.layer.records == 7 && e.layer.batches == 5,
	   "one that is written to");
	e = entry("a commit");
	ok(e.commit.layer == 3 && e.commit.kind == STORE_COMMIT && e.commit.modified == 2 &&
		   !strcmp(e.commit.env, "env") && !strcmp(e.commit.message, "message"),
	   "a commit");
	store_entry_release(&e);
	e = entry("an environment");
	ok(e.env.base == 1 && e.env.head == 3 && e.env.open == 4 &&
		   !strcmp(e.env.base_name, "host"),
	   "an environment");
	e = entry("a rollback");
	ok(e.move.from == 3 && e.move.to == 2 && !strcmp(e.move.op, "rollback"), "a move");
}

/* ---- nothing else is a record ---- */

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Of a key or a value: changed, cut, longer, in a block of exactly its length, so that a sanitizer sees a byte
 * too far. Returns the new length. */
static size_t mutate(uint8_t *to, const struct bytes *from, uint64_t *seed)
{
	size_t n = from->n;

	memcpy(to, from->b, n);
	for (uint64_t times = next(seed) % 3; times; times--)
		if (n)
			to[next(seed) % n] = (uint8_t)next(seed);
	if (next(seed) % 8 == 0)
		n = n ? next(seed) % n : 0;
	else if (next(seed) % 16 == 0)
		to[n++] = (uint8_t)next(seed);
	return n;
}

/* Whatever decodes is spelled as it would be written. */
static unsigned mutations(const struct golden *g, unsigned times, uint64_t seed)
{
	struct bytes kb = from_hex(g->key), vb = from_hex(g->value);
	enum store_db db = db_of(g->db);
	unsigned wrong = 0;

	for (unsigned i = 0; i < times; i++) {
		uint8_t kroom[1025], vroom[1025];
		size_t kn = mutate(kroom, &kb, &seed), vn = mutate(vroom, &vb, &seed);
		uint8_t *kp = malloc(kn ? kn : 1), *vp = malloc(vn ? vn : 1);
		MDB_val k = {kn, kp}, v = {vn, vp};
		struct store_entry e;

		if (!kp || !vp)
			tap_fatal("no memory");
		memcpy(kp, kroom, kn);
		memcpy(vp, vroom, vn);
		if (store_entry_decode(db, &k, &v, &e) == 0) {
			wrong += !encodes(&e, &k, &v);
			store_entry_release(&e);
		}
		free(kp);
		free(vp);
	}
	return wrong;
}

static void each_byte_counts(const struct golden *g)
{
	struct bytes kb = from_hex(g->key), vb = from_hex(g->value);
	enum store_db db = db_of(g->db);
	uint32_t sum = store_sum(db, &(MDB_val){kb.n, kb.b}, vb.b, vb.n);
	unsigned missed = 0;

	for (size_t i = 0; i < kb.n + vb.n; i++) {
		uint8_t *p = i < kb.n ? &kb.b[i] : &vb.b[i - kb.n];

		for (int bit = 0; bit < 8; bit++) {
			*p ^= (uint8_t)(1 << bit);
			missed += store_sum(db, &(MDB_val){kb.n, kb.b}, vb.b, vb.n) == sum;
			*p ^= (uint8_t)(1 << bit);
		}
	}
	if (missed)
		ok(0, "%s: %s: %u changes are not seen", g->db, g->what, missed);
}

/* ---- files beside the databases ---- */

/* What each says of the chunk "hello". Its digest's bytes 16 to 23 choose the bit, 8 to 15 the counter. */
static const struct golden_file {
	const char *name, *what;
	long size, at;
	const char *bytes; /* hex; all others are zeros */
} golden_files[] = {
	{"gc-seen", "the chunk was put or named", 524288, 321611, "40"},
	{"hold-*", "the chunk is held once", 131072, 100984, "01000000"},
};

static struct store_chunk hello(void)
{
	static char text[] = "hello";
	struct store_chunk c = {.data = text, .len = 5};

	if (digest_of(text, 5, &c.digest) < 0)
		tap_fatal("digest");
	return c;
}

static bool is_golden(const char *dir, const char *name, const struct golden_file *g)
{
	cleanup_buf struct buf b = {0};
	struct bytes want = from_hex(g->bytes);
	char path[400];
	size_t others = 0;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (io_read_file(AT_FDCWD, path, 1 << 20, &b) < 0 || b.len != (size_t)g->size)
		return false;
	for (size_t i = 0; i < b.len; i++)
		others += b.data[i] != 0 && (i < (size_t)g->at || i >= (size_t)g->at + want.n);
	return others == 0 && !memcmp(b.data + g->at, want.b, want.n);
}

static bool find_hold(const char *dir, char name[static 300])
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	bool yes = false;

	while (d && !yes && (e = readdir(d))) {
		yes = !strncmp(e->d_name, "hold-", 5);
		(void)snprintf(name, 300, "%s", e->d_name);
	}
	if (d)
		(void)closedir(d);
	return yes;
}

struct beside {
	struct store *s;
	int fd; /* of what is written in the middle of a collection; -1: nothing is */
	const struct golden_file *g;
};

static bool write_golden(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	const struct beside *b = arg;
	struct bytes want = from_hex(b->g->bytes);

	(void)done;
	(void)total;
	if (phase == STORE_GC_MARK && b->fd >= 0 &&
	    (ftruncate(b->fd, b->g->size) < 0 ||
	     pwrite(b->fd, want.b, want.n, b->g->at) != (ssize_t)want.n))
		tap_fatal("write of %s", b->g->name);
	return true;
}

/* How many chunks a collection removes when somebody wrote the golden bytes. */
static long long collected(struct beside *b)
{
	struct store_gc_opts o = {.go_on = write_golden, .arg = b};
	struct store_gc_result res;
	struct diag d = {0};

	return store_gc(b->s, &o, &d, &res) < 0 ? -1 : (long long)res.chunks;
}

static void files_beside(void)
{
	const struct golden_file *seen = &golden_files[0], *hold = &golden_files[1];
	struct store_chunk c = hello();
	struct beside b = {.fd = -1, .g = seen};
	char dir[64], path[400], name[300] = "";

	make_dir(dir);
	b.s = open_store(dir);
	eq_int(collected(&b), 0, "the first collection");
	ok(store_chunks_put(b.s, &c, 1) == 0 && is_golden(dir, "gc-seen", seen),
	   "gc-seen: %s, as it is written", seen->what);
	(void)snprintf(path, sizeof(path), "%s/gc-seen", dir);
	b.fd = open(path, O_RDWR | O_CLOEXEC);
	eq_int(collected(&b), 0, "and as it is read");
	(void)close(b.fd);
	b.fd = -1;
	eq_int(collected(&b), 1, "without it the chunk goes");

	ok(store_chunks_put_held(b.s, &c, 1) == 0 && find_hold(dir, name) &&
		   is_golden(dir, name, hold),
	   "%s: %s, as it is written", name, hold->what);
	store_chunk_unhold(b.s, &c.digest);
	b.g = hold;
	(void)snprintf(path, sizeof(path), "%s/hold-of-another", dir);
	b.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (b.fd < 0 || flock(b.fd, LOCK_EX) < 0)
		tap_fatal("%s", path);
	eq_int(collected(&b), 0, "and as it is read");
	if (unlink(path) < 0)
		tap_fatal("%s", path);
	(void)close(b.fd);
	b.fd = -1;
	eq_int(collected(&b), 1, "without it the chunk goes");
	store_close(b.s);
	tree_remove(dir);
}

/* ---- the document ---- */

static void in_document(const char *path)
{
	cleanup_buf struct buf doc = {0};
	unsigned missing = 0;

	if (io_read_file(AT_FDCWD, path, 1 << 20, &doc) < 0 || buf_put(&doc, "", 1) < 0)
		tap_fatal("cannot read %s", path);
	for (size_t i = 0; i < ARRAY_SIZE(golden); i++) {
		const struct golden *g = &golden[i];
		char row[4096];

		(void)snprintf(row, sizeof(row), "| `%s` | %s | `%s` | `%s%s` |", g->db, g->what,
			       g->key, g->value, g->sum);
		if (strstr((const char *)doc.data, row))
			continue;
		missing++;
		printf("# %s\n", row);
	}
	for (size_t i = 0; i < ARRAY_SIZE(golden_files); i++) {
		const struct golden_file *g = &golden_files[i];
		char row[400];

		(void)snprintf(row, sizeof(row), "| `%s` | %s | %ld | %ld | `%s` |", g->name,
			       g->what, g->size, g->at, g->bytes);
		if (strstr((const char *)doc.data, row))
			continue;
		missing++;
		printf("# %s\n", row);
	}
	eq_int(missing, 0, "the document has the same bytes");
}

int main(int argc, char **argv)
{
	unsigned wrong = 0, times = getenv("RATTAN_LONG") ? 200000 : 3000;

	for (size_t i = 0; i < ARRAY_SIZE(golden); i++) {
		both_ways(&golden[i]);
		each_byte_counts(&golden[i]);
		wrong += mutations(&golden[i], times, i + 1);
	}
	eq_int(wrong, 0, "whatever decodes is spelled as it is written");
	meaning();
	files_beside();
	if (argc > 1)
		in_document(argv[1]);
	return tap_done();
}
