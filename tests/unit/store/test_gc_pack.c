/* store: a collection compresses what stays, and every byte is what it was, for whoever reads meanwhile as well. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/unit/store/gc_test.h"

enum {
	EACH = 40, /* of each size */
	NOISE = 1000
};
static const size_t sizes[] = {300, 1500, 3900, 4077, 6000, 20000, 100000, STORE_BLOCK};
#define KINDS (sizeof(sizes) / sizeof(sizes[0]))

static struct store *s;
static struct digest text[KINDS * EACH];
static uint8_t block[STORE_BLOCK];

/* Words, and a number by which each chunk is another one. */
static size_t words(unsigned i)
{
	static const char *const w[] = {"int ",         "return ",      "static ",
					"const char *", "if (r < 0)\n", "\t"};
	uint64_t x = i + 1;
	size_t n = sizes[i % KINDS], k = 0;

	for (size_t j = 0; j < sizeof(block);) {
		const char *at;

		x = x * 6364136223846793005u + 1442695040888963407u;
		at = w[(x >> 33) % (sizeof(w) / sizeof(w[0]))];
		while (*at && j < sizeof(block))
			block[j++] = (uint8_t)*at++;
	}
	for (; k < 8; k++)
		block[k] = (uint8_t)('a' + (i >> 4 * k) % 16);
	return n;
}

static void put_all(store_layer layer)
{
	struct store_batch *b;

	for (unsigned i = 0; i < KINDS * EACH; i++) {
		size_t n = words(i);
		struct store_chunk c = {.data = block, .len = n};
		struct rec_inode rec = file_rec(n);

		if (store_chunks_put(s, &c, 1) < 0 || store_batch_begin(s, layer, &b) < 0)
			tap_fatal("put");
		text[i] = c.digest;
		rec.content = REC_CHUNK;
		rec.chunk = c.digest;
		rec.chunk_len = (uint32_t)n;
		if (store_batch_inode(b, 100 + i, &rec) < 0 || store_batch_commit(b) < 0)
			tap_fatal("name");
	}
	for (uint64_t i = 0; i < 8; i++)
		if (gc_write(s, layer, NOISE + i, 0, i) < 0)
			tap_fatal("noise");
}

static bool there(unsigned i)
{
	static _Thread_local uint8_t got[STORE_BLOCK];
	size_t n = sizes[i % KINDS];
	struct digest is;

	return store_chunk_get(s, &text[i], got, sizeof(got)) == (ssize_t)n &&
	       digest_of(got, n, &is) == 0 && !memcmp(&is, &text[i], sizeof(is));
}

static bool all_there(void)
{
	bool yes = true;

	for (unsigned i = 0; i < KINDS * EACH; i++)
		yes = yes && there(i);
	for (uint64_t i = 0; i < 8; i++)
		yes = yes && gc_there(s, i);
	return yes;
}

static atomic_bool stop, lost;
static atomic_uint looks;

static void *reader(void *arg)
{
	for (unsigned i = 0; !atomic_load(&stop); i = (i + 7) % (KINDS * EACH)) {
		if (!there(i))
			atomic_store(&lost, true);
		atomic_fetch_add(&looks, 1);
	}
	return arg;
}

static bool wait_for_reader(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	unsigned was = atomic_load(&looks);

	(void)arg;
	(void)done;
	(void)total;
	while (phase == STORE_GC_PACK && atomic_load(&looks) < was + 3)
		(void)usleep(100);
	return true;
}

static void beside_a_reader(void)
{
	struct store_stats before, after;
	struct store_gc_result res;
	pthread_t t;

	if (store_stats(s, &before) < 0 || pthread_create(&t, NULL, reader, NULL))
		tap_fatal("start");
	res = gc_run(s, (struct store_gc_opts){.pack = true, .go_on = wait_for_reader});
	atomic_store(&stop, true);
	(void)pthread_join(t, NULL);
	if (store_stats(s, &after) < 0)
		tap_fatal("stats");
	eq_int(atomic_load(&lost), false, "a reader misses nothing meanwhile");
	eq_int(res.packed, (KINDS - 1) * EACH, "all text of 512 bytes and more");
	ok(res.packed_to < res.packed_from / 3, "%llu bytes to %llu",
	   (unsigned long long)res.packed_from, (unsigned long long)res.packed_to);
	eq_int(after.chunks, before.chunks, "each is kept once");
	ok(after.chunk_bytes < before.chunk_bytes / 2,
	   "in less than half of the pages: %llu KiB, %llu before",
	   (unsigned long long)after.chunk_bytes / 1024,
	   (unsigned long long)before.chunk_bytes / 1024);
	ok(all_there(), "and all of it reads back");
}

static void again(store_layer layer)
{
	struct store_stats before, after;

	eq_int(gc_run(s, (struct store_gc_opts){.pack = true}).packed, 0,
	       "nothing is left to do the second time");
	if (store_stats(s, &before) < 0)
		tap_fatal("stats");
	put_all(layer);
	if (store_stats(s, &after) < 0)
		tap_fatal("stats");
	eq_int(after.chunks, before.chunks, "S3: what is compressed is found by who puts it again");
	eq_int(after.chunk_bytes, before.chunk_bytes, "and stays compressed");
}

static void not_asked(store_layer layer)
{
	struct store_gc_result res;

	put_all(layer);
	res = gc_run(s, (struct store_gc_opts){0});
	eq_int(res.packed, 0, "who does not ask gets it as it is");
	res = gc_run(s, (struct store_gc_opts){.pack = true, .dry_run = true});
	eq_int(res.packed, 0, "nor a dry run");
}

int main(void)
{
	char dir[64];
	struct store_env e;

	make_dir(dir);
	s = open_store(dir);
	if (store_env_create(s, "e", 0, "none", &e) < 0)
		tap_fatal("env");
	not_asked(e.open);
	beside_a_reader();
	again(e.open);
	store_close(s);
	s = open_store(dir);
	ok(all_there(), "and after it was opened anew");
	eq_int(gc_run(s, (struct store_gc_opts){.shrink = true}).chunks, 0,
	       "nothing of it is garbage");
	if (store_env_remove(s, "e") < 0)
		tap_fatal("remove");
	ok(gc_run(s, (struct store_gc_opts){.removed = true}).chunks >= KINDS * EACH,
	   "until nothing names it");
	store_close(s);
	tree_remove(dir);
	return tap_done();
}
