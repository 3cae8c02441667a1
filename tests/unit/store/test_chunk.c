/* store: chunks are kept once, found again, verified, and a full map harms nothing. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "store/store_internal.h"
#include "tests/unit/store/store_test.h"

static uint8_t block[STORE_BLOCK], got[STORE_BLOCK];

/* Bytes that do not compress, different for each seed. */
static void noise(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(seed >> 56);
	}
}

static void put_get(struct store *s, size_t n, uint64_t seed, bool packed, bool text)
{
	struct store_chunk c = {.data = block, .len = n};
	int r;

	if (text)
		for (size_t i = 0; i < n; i++)
			block[i] = (uint8_t)("the same words again and again "[i % 31] + (i >> 12));
	else
		noise(block, n, seed);
	r = packed ? store_chunks_put_packed(s, &c, 1) : store_chunks_put(s, &c, 1);
	memset(got, 0xee, sizeof(got));
	ok(r == 0 && store_chunk_get(s, &c.digest, got, sizeof(got)) == (ssize_t)n &&
		   !memcmp(got, block, n),
	   "%zu bytes of %s%s", n, text ? "text" : "noise", packed ? ", packed" : "");
}

static void sizes(struct store *s)
{
	static const size_t sizes[] = {1, 4000, 4076, 4077, 4096, 5000, 65536, STORE_BLOCK};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		put_get(s, sizes[i], i, false, false);
		put_get(s, sizes[i], i + 100, true, false);
		put_get(s, sizes[i], i, true, true);
	}
}

static void once(struct store *s)
{
	struct store_chunk c[3] = {{.data = "same same same", .len = 14},
				   {.data = "same same same", .len = 14},
				   {.data = "other", .len = 5}};
	struct store_stats before, after;
	struct digest none;

	if (store_stats(s, &before) < 0)
		tap_fatal("stats");
	eq_int(store_chunks_put(s, c, 3), 0, "two equal ones and another");
	eq_int(store_chunks_put(s, c, 3), 0, "and all again");
	if (store_stats(s, &after) < 0)
		tap_fatal("stats");
	eq_int(after.chunks - before.chunks, 2, "S3: kept once each");
	ok(!memcmp(&c[0].digest, &c[1].digest, DIGEST_LEN), "equal digests");
	memset(&none, 1, sizeof(none));
	eq_int(store_chunk_get(s, &none, got, sizeof(got)), -ENOENT, "an unknown digest");
	c[0].len = 0;
	eq_int(store_chunks_put(s, c, 1), -EINVAL, "no empty chunks");
	c[0].len = STORE_BLOCK + 1;
	eq_int(store_chunks_put(s, c, 1), -EINVAL, "none past a block");
	eq_int(store_chunk_get(s, &none, got, 100), -EINVAL, "a buffer that is too small");
	eq_int(store_chunks_put(s, NULL, 0), 0, "nothing is fine");
}

/* Chunks that are made while others are written. */
#define MAKE 300
static struct made {
	uint8_t *bytes[MAKE];
	atomic_int live, most, made, dropped;
	size_t fails; /* of this one */
} made;

static int make_one(void *arg, size_t i, struct store_chunk *c)
{
	struct made *m = arg;
	int live = atomic_fetch_add(&m->live, 1) + 1, most = atomic_load(&m->most);

	while (live > most && !atomic_compare_exchange_weak(&m->most, &most, live))
		;
	atomic_fetch_add(&m->made, 1);
	if (i == m->fails)
		return -ENODATA;
	m->bytes[i] = malloc(STORE_BLOCK);
	if (!m->bytes[i])
		return -ENOMEM;
	noise(m->bytes[i], STORE_BLOCK, 7000 + i);
	*c = (struct store_chunk){.data = m->bytes[i], .len = i % 50 == 3 ? 0 : STORE_BLOCK};
	return 0;
}

/* Nothing has been given back yet: until the helpers have gone as far ahead as they may. */
static void let_them_go_ahead(const struct made *m)
{
	int was = -1;

	for (int same = 0; same < 50; same = atomic_load(&m->made) == was ? same + 1 : 0) {
		was = atomic_load(&m->made);
		(void)usleep(2000);
	}
}

static void drop_one(void *arg, size_t i)
{
	struct made *m = arg;

	if (atomic_load(&m->dropped) == 0)
		let_them_go_ahead(m);
	atomic_fetch_sub(&m->live, 1);
	atomic_fetch_add(&m->dropped, 1);
	free(m->bytes[i]);
	m->bytes[i] = NULL;
}

static void making(struct store *s)
{
	const struct store_making m = {make_one, drop_one, &made};
	static struct store_chunk c[MAKE];
	struct store_stats before, after;
	unsigned bad = 0;

	made.fails = MAKE;
	if (store_stats(s, &before) < 0)
		tap_fatal("stats");
	eq_int(store_chunks_put_making(s, c, MAKE, &m), 0, "many that are made");
	if (store_stats(s, &after) < 0)
		tap_fatal("stats");
	eq_int(after.chunks - before.chunks, MAKE - MAKE / 50, "all but those without bytes");
	eq_int(atomic_load(&made.made), MAKE, "each once");
	eq_int(atomic_load(&made.dropped), MAKE, "and given back");
	ok(atomic_load(&made.most) < MAKE * 3 / 4, "in time: %d at most", atomic_load(&made.most));
	for (size_t i = 0; i < MAKE; i++) {
		if (i % 50 == 3)
			continue;
		noise(block, STORE_BLOCK, 7000 + i);
		bad += store_chunk_get(s, &c[i].digest, got, sizeof(got)) != STORE_BLOCK ||
		       memcmp(got, block, STORE_BLOCK) != 0;
	}
	eq_int(bad, 0, "each under its own digest");
	made.fails = 150;
	eq_int(store_chunks_put_making(s, c, MAKE, &m), -ENODATA, "one that cannot be made");
	eq_int(atomic_load(&made.live), 0, "all are given back");
}

static void charged(struct store *s)
{
	struct store_chunk c = {.data = block, .len = 20000};
	struct store_extent x = {.len = 20000};
	struct store_layer_info info;
	struct store_batch *b;
	struct store_env e;

	noise(block, sizeof(block), 777);
	if (store_env_create(s, "charged", 0, NULL, &e) < 0 || store_chunks_put(s, &c, 1) < 0)
		tap_fatal("setup");
	x.chunk = c.digest;
	for (int i = 0; i < 2; i++) {
		x.block = (uint64_t)i;
		if (store_batch_begin(s, e.open, &b) < 0 || store_batch_extent(b, 70, &x) < 0 ||
		    store_batch_commit(b) < 0)
			tap_fatal("batch");
	}
	ok(store_layer_get(s, e.open, &info) == 0 && info.bytes == 20000,
	   "a layer is charged once for what it brought in");
}

static uint64_t bytes_of(struct store *s, store_layer layer)
{
	struct store_layer_info info;

	if (store_layer_get(s, layer, &info) < 0)
		tap_fatal("layer");
	return info.bytes;
}

/* A batch with @data as extent @at, and as a chunk of its own; or the same that is given up. */
static int with_records(struct store *s, store_layer layer, const void *data, size_t len,
			uint64_t at, bool give_up, struct digest *ret)
{
	struct store_extent x = {.block = at, .len = (uint32_t)len};
	struct store_batch *b;
	int r;

	if (store_batch_begin(s, layer, &b) < 0)
		tap_fatal("begin");
	r = store_batch_chunk(b, data, len, &x.chunk);
	*ret = x.chunk;
	if (r == 0)
		r = store_batch_extent(b, 71, &x);
	if (r == 0 && !give_up)
		return store_batch_commit(b);
	store_batch_abort(b);
	return r;
}

static void with_a_batch(struct store *s)
{
	struct store_stats before, after;
	struct digest d, none;
	struct store_env e;
	uint64_t written;

	noise(block, sizeof(block), 778);
	if (store_env_create(s, "small", 0, NULL, &e) < 0)
		tap_fatal("setup");
	eq_int(with_records(s, e.open, block, STORE_SMALL + 1, 0, false, &none), -EINVAL,
	       "a chunk with a batch: none that takes more than a page");
	eq_int(with_records(s, e.open, block, 3000, 0, true, &d), 0, "a batch is given up");
	eq_int(store_chunk_get(s, &d, got, sizeof(got)), -ENOENT, "and nothing of it is there");
	written = store_written(s);
	eq_int(with_records(s, e.open, block, STORE_SMALL, 0, false, &d), 0, "the largest");
	eq_int(store_chunk_get(s, &d, got, sizeof(got)), STORE_SMALL, "is there");
	ok(!memcmp(got, block, STORE_SMALL), "byte for byte");
	ok(store_written(s) >= written + STORE_SMALL, "counted as new");
	eq_int((long long)bytes_of(s, e.open), STORE_SMALL, "and charged to the layer");
	if (store_stats(s, &before) < 0)
		tap_fatal("stats");
	eq_int(with_records(s, e.open, block, STORE_SMALL, 1, false, &d), 0, "the same again");
	if (store_stats(s, &after) < 0)
		tap_fatal("stats");
	eq_int(after.chunks - before.chunks, 0, "S3: kept once");
	eq_int((long long)bytes_of(s, e.open), STORE_SMALL, "and charged once");
}

/* S4: flip one byte of a chunk on disk; it is refused, its neighbours are not. */
static void damage(const char *dir)
{
	struct store *s = open_store(dir);
	struct store_chunk c[3];
	static uint8_t three[3][STORE_BLOCK];
	char path[128];
	uint8_t *file, byte;
	struct stat st;
	int fd;

	for (int i = 0; i < 3; i++) {
		noise(three[i], STORE_BLOCK, 5000 + (uint64_t)i);
		c[i] = (struct store_chunk){.data = three[i], .len = STORE_BLOCK};
	}
	if (store_chunks_put(s, c, 3) < 0)
		tap_fatal("put");
	store_close(s);
	(void)snprintf(path, sizeof(path), "%s/chunks/data.mdb", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !(file = malloc((size_t)st.st_size)) ||
	    pread(fd, file, (size_t)st.st_size, 0) != st.st_size)
		tap_fatal("read");
	uint8_t *at = memmem(file, (size_t)st.st_size, three[1] + 1000, 64);
	if (!at)
		tap_fatal("the chunk is not in the file");
	byte = (uint8_t)(*at ^ 1);
	if (pwrite(fd, &byte, 1, at - file) != 1)
		tap_fatal("write");
	free(file);
	(void)close(fd);
	s = open_store(dir);
	eq_int(store_chunk_get(s, &c[1].digest, got, sizeof(got)), -EBADMSG, "damage is found");
	ok(store_chunk_get(s, &c[0].digest, got, sizeof(got)) == STORE_BLOCK &&
		   store_chunk_get(s, &c[2].digest, got, sizeof(got)) == STORE_BLOCK,
	   "the others are readable");
	store_close(s);
}

/* A map of a few MiB stands for a full disk: -ENOSPC, and all that was acknowledged is there. */
static void full(void)
{
	struct store_limits lim = {4 << 20, 4 << 20};
	struct store_chunk c = {.data = block, .len = STORE_BLOCK};
	struct digest kept[64];
	struct store *s;
	struct store_batch *b;
	struct store_env e;
	char dir[64], name[256];
	int n = 0, r = 0, bad = 0;

	make_dir(dir);
	if (store_open_limits(dir, STORE_CREATE, &lim, NULL, &s) < 0 ||
	    store_env_create(s, "e", 0, NULL, &e) < 0)
		tap_fatal("open");
	for (n = 0; n < 64; n++) {
		noise(block, sizeof(block), 9000 + (uint64_t)n);
		r = store_chunks_put(s, &c, 1);
		if (r < 0)
			break;
		kept[n] = c.digest;
	}
	ok(r == -ENOSPC && n > 10, "the chunk map fills: %d after %d", r, n);
	eq_int(store_chunks_put(s, &c, 1), -ENOSPC, "and stays full");
	for (int i = 0; i < n; i++)
		bad += store_chunk_get(s, &kept[i], got, sizeof(got)) != STORE_BLOCK;
	eq_int(bad, 0, "every chunk that was acknowledged is there");
	memset(name, 'n', sizeof(name));
	for (n = 0; n < 1000; n++) {
		if (store_batch_begin(s, e.open, &b) < 0)
			tap_fatal("begin");
		for (int i = 0; i < 100; i++) {
			struct rec_name rn = {(store_ino)n, S_IFREG};

			(void)snprintf(name, 16, "%06d-%04d", n, i);
			name[11] = 'n';
			if (store_batch_name(b, 1, name, 200, &rn) < 0)
				tap_fatal("name");
		}
		r = store_batch_commit(b);
		if (r < 0)
			break;
	}
	ok(r == -ENOSPC && n > 10, "the meta map fills: %d after %d", r, n);
	for (int i = 0; i < 100; i++) {
		(void)snprintf(name, 16, "%06d-%04d", n, i);
		name[11] = 'n';
		name[200] = 0;
		bad += name_at(s, e.open, 1, name) != -1;
		(void)snprintf(name, 16, "%06d-%04d", n - 1, i);
		name[11] = 'n';
		bad += name_at(s, e.open, 1, name) != n - 1;
	}
	eq_int(bad, 0, "the batch that failed left nothing, the one before is whole");
	store_close(s);
	s = open_store(dir);
	eq_int(store_batch_begin(s, e.open, &b), 0, "with room again");
	name_set(b, 1, "more", 5);
	eq_int(store_batch_commit(b), 0, "it goes on");
	store_close(s);
	tree_remove(dir);
}

static void digests(void)
{
	struct digest d, e;
	char hex[DIGEST_LEN * 2 + 1];

	eq_int(digest_of("abc", 3, &d), 0, "a digest");
	digest_hex(&d, hex);
	eq_str(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	       "the one of FIPS 180-2");
	ok(digest_parse(hex, &e) == 0 && !memcmp(&d, &e, sizeof(d)), "parsed back");
	hex[63] = 'g';
	eq_int(digest_parse(hex, &e), -EINVAL, "no hex digit");
	hex[63] = 0;
	eq_int(digest_parse(hex, &e), -EINVAL, "too short");
}

int main(void)
{
	char dir[64];
	struct store *s;

	make_dir(dir);
	s = open_store(dir);
	digests();
	sizes(s);
	once(s);
	making(s);
	charged(s);
	with_a_batch(s);
	store_close(s);
	damage(dir);
	full();
	tree_remove(dir);
	return tap_done();
}
