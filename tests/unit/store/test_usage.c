/* store: what takes the space is counted to the byte, and what is said to be an owner's alone is what its removal gives back. */
#include "base/cleanup.h"
#include "store/usage.h"
#include "tests/unit/store/gc_test.h"

#define AS_STORED(seed) (gc_size(seed) + 4)

static struct store *s;

static struct store_env env(const char *name, store_layer base)
{
	struct store_env e;

	if (store_env_create(s, name, base, "debian", &e) < 0)
		tap_fatal("env %s", name);
	return e;
}

static void write_ok(store_layer layer, store_ino ino, uint64_t block, uint64_t seed)
{
	int r = gc_write(s, layer, ino, block, seed);

	if (r < 0)
		tap_fatal("write: %d", r);
}

static struct store_usage usage(size_t memory)
{
	const struct store_usage_opts o = {.memory = memory};
	struct diag d = {0};
	struct store_usage u;
	int r = store_usage(s, &o, &d, &u);

	if (r < 0)
		tap_fatal("store_usage: %d %s", r, d.text);
	return u;
}

static struct store_usage_row row(const struct store_usage *u, enum store_usage_kind kind,
				  const char *name)
{
	for (size_t i = 0; i < u->nrows; i++)
		if (u->rows[i].kind == kind && !strcmp(u->rows[i].name, name))
			return u->rows[i];
	return (struct store_usage_row){0};
}

static void size_is(struct store_usage_size n, uint64_t chunks, uint64_t bytes, const char *what)
{
	ok(n.chunks == chunks && n.chunk_bytes == bytes, "%s: %llu chunks, %llu bytes", what,
	   (unsigned long long)n.chunks, (unsigned long long)n.chunk_bytes);
}

/* A base; 'one' and its fork 'two' on it; 'three' on nothing, which holds a chunk of the base's, too. */
static void fill_store(void)
{
	struct store_env one, two, three;
	store_layer base, first;

	if (store_layer_new(s, 0, &base) < 0)
		tap_fatal("layer");
	write_ok(base, 100, 0, 1);
	write_ok(base, 101, 3, 2);
	if (store_layer_seal(s, base) < 0 || store_ref_set(s, "base/debian", base) < 0)
		tap_fatal("base");
	one = env("one", base);
	write_ok(one.open, 200, 0, 3);
	gc_seal(s, &one, "one-1", false);
	if (store_env_fork(s, "one", "two", one.head, &two) < 0)
		tap_fatal("fork");
	write_ok(one.open, 201, 0, 6);
	gc_seal(s, &one, "one-2", false);
	write_ok(one.open, 202, 0, 10);
	write_ok(one.open, 202, 0, 14); /* 10 is garbage */
	write_ok(two.open, 300, 0, 7);
	three = env("three", 0);
	write_ok(three.open, 400, 0, 1);
	write_ok(three.open, 401, 1, 11);
	gc_seal(s, &three, "three-1", false);
	first = three.head;
	write_ok(three.open, 400, 0, 18); /* only undo goes back there */
	gc_seal(s, &three, "three-auto", true);
	if (store_env_move(s, &three, first, "rollback") < 0)
		tap_fatal("move");
}

static void numbers(void)
{
	const uint64_t base = AS_STORED(1) + AS_STORED(2);
	struct store_usage u = usage(0);
	struct store_usage_row one = row(&u, STORE_USAGE_ENV, "one"),
			       two = row(&u, STORE_USAGE_ENV, "two"),
			       three = row(&u, STORE_USAGE_ENV, "three"),
			       deb = row(&u, STORE_USAGE_BASE, "debian");

	size_is(u.total, 9,
		base + AS_STORED(3) + AS_STORED(6) + AS_STORED(10) + AS_STORED(14) + AS_STORED(7) +
			AS_STORED(11) + AS_STORED(18),
		"all");
	size_is(u.garbage, 1, AS_STORED(10), "garbage");
	size_is(u.shared, 3, base + AS_STORED(3), "shared");
	size_is(one.reaches, 5, base + AS_STORED(3) + AS_STORED(6) + AS_STORED(14), "one reaches");
	size_is(one.alone, 2, AS_STORED(6) + AS_STORED(14), "one alone");
	size_is(one.commits, 1, AS_STORED(6), "its commits");
	size_is(two.reaches, 4, base + AS_STORED(3) + AS_STORED(7), "two reaches");
	size_is(two.alone, 1, AS_STORED(7), "two alone");
	size_is(three.reaches, 3, AS_STORED(1) + AS_STORED(11) + AS_STORED(18), "three reaches");
	size_is(three.alone, 2, AS_STORED(11) + AS_STORED(18), "three alone");
	size_is(three.undo, 1, AS_STORED(18), "what undo keeps");
	eq_int(three.states, 2, "both ends of a move, of which one is an automatic state");
	size_is(deb.reaches, 2, base, "the base reaches");
	size_is(deb.alone, 0, 0, "the base alone");
	eq_int(one.reaches.records, 3 + 1 + 2 + 1, "records: inodes and extents");
	ok(u.total.records == 12 && u.total.record_bytes > 12 * 24, "%llu records of %llu bytes",
	   (unsigned long long)u.total.records, (unsigned long long)u.total.record_bytes);
	ok(u.packed == 0 && u.damaged == 0, "nothing is compressed or damaged");
	ok(u.chunk_file_bytes >= u.total.chunk_bytes - AS_STORED(14) && u.meta_file_bytes > 0,
	   "the files");
	store_usage_release(&u);
}

static void in_passes(void)
{
	struct store_usage a = usage(0), b = usage(1);

	ok(!memcmp(&a.total, &b.total, sizeof(a.total)) &&
		   !memcmp(&a.shared, &b.shared, sizeof(a.shared)) &&
		   !memcmp(&a.garbage, &b.garbage, sizeof(a.garbage)),
	   "with little memory it is the same in sum");
	ok(a.nrows == b.nrows && !memcmp(a.rows, b.rows, a.nrows * sizeof(*a.rows)), "and by row");
	store_usage_release(&a);
	store_usage_release(&b);
}

/* What was said before is what a collection then gives back. */
static void removed(const char *name, uint64_t at_once, uint64_t with_commits)
{
	uint64_t bytes;

	if (store_env_remove(s, name) < 0)
		tap_fatal("remove %s", name);
	bytes = gc_run(s, (struct store_gc_opts){0}).chunk_bytes;
	eq_int(bytes, at_once, "given back by removing %s", name);
	bytes += gc_run(s, (struct store_gc_opts){.removed = true}).chunk_bytes;
	eq_int(bytes, with_commits, "and with its commits");
}

static void given_back(void)
{
	static const char *const names[] = {"three", "one", "two"};
	struct store_usage u = usage(0);
	struct store_usage_row r;

	eq_int(gc_run(s, (struct store_gc_opts){0}).chunk_bytes, u.garbage.chunk_bytes,
	       "garbage is what a collection removes");
	store_usage_release(&u);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		u = usage(0);
		r = row(&u, STORE_USAGE_ENV, names[i]);
		eq_int(u.garbage.chunks + u.garbage.records, 0, "no garbage");
		store_usage_release(&u);
		/* What 'two' shares with a commit of 'one', which is gone, goes when that does: with --removed. */
		removed(names[i], r.alone.chunk_bytes - r.commits.chunk_bytes,
			r.alone.chunk_bytes + (i == 2 ? AS_STORED(3) : 0));
	}
	u = usage(0);
	r = row(&u, STORE_USAGE_BASE, "debian");
	size_is(r.alone, 2, u.total.chunk_bytes, "all that is left is the base's alone");
	store_usage_release(&u);
}

static void removed_commits(void)
{
	struct store_env e = env("gone", 0);
	struct store_usage u;

	write_ok(e.open, 500, 0, 22);
	gc_seal(s, &e, "gone-1", false);
	if (store_env_remove(s, "gone") < 0)
		tap_fatal("remove");
	u = usage(0);
	size_is(row(&u, STORE_USAGE_REMOVED, "").alone, 1, AS_STORED(22),
		"commits of a removed environment");
	ok(row(&u, STORE_USAGE_ENV, "gone").kind == 0, "which has no row");
	store_usage_release(&u);
}

static void compressed(void)
{
	static uint8_t zeros[STORE_BLOCK];
	struct store_chunk c = {.data = zeros, .len = sizeof(zeros)};
	struct store_env e = env("packed", 0);
	struct store_extent x = {.len = sizeof(zeros)};
	struct store_batch *b;
	struct store_usage u;

	if (store_chunks_put_packed(s, &c, 1) < 0 || store_batch_begin(s, e.open, &b) < 0)
		tap_fatal("put");
	x.chunk = c.digest;
	if (store_batch_extent(b, 600, &x) < 0 || store_batch_commit(b) < 0)
		tap_fatal("name");
	u = usage(0);
	ok(u.packed == 1 && u.packed_raw == sizeof(zeros) && u.packed_bytes < 1000,
	   "%llu bytes as %llu", (unsigned long long)u.packed_raw,
	   (unsigned long long)u.packed_bytes);
	eq_int(row(&u, STORE_USAGE_ENV, "packed").alone.chunk_bytes, u.packed_bytes, "as stored");
	store_usage_release(&u);
}

static int stop(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)stage;
	(void)total;
	return done ? -ECANCELED : 0;
}

static void stopped(void)
{
	const struct store_usage_opts o = {.progress = stop};
	struct diag d = {0};
	struct store_usage u;

	eq_int(store_usage(s, &o, &d, &u), -ECANCELED, "stopped");
	ok(!u.rows && u.nrows == 0, "and nothing is handed out");
}

int main(void)
{
	char dir[64];

	make_dir(dir);
	s = open_store(dir);
	fill_store();
	numbers();
	in_passes();
	given_back();
	removed_commits();
	compressed();
	stopped();
	store_close(s);
	tree_remove(dir);
	return tap_done();
}
