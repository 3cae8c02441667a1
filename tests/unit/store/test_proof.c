/* store: what was hashed is known again by its pages, a part of it can be read alone, and damage is damage (S4). */
#include <fcntl.h>

#include "store/proof.h"
#include "store/store_internal.h"
#include "tests/unit/store/store_test.h"

#define ODD (40000u) /* a length that is no number of pages */

static uint8_t block[STORE_BLOCK], got[STORE_BLOCK];

static void noise(size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		block[i] = (uint8_t)(seed >> 56);
	}
}

static struct digest put(struct store *s, size_t n)
{
	struct store_chunk c = {.data = block, .len = n};

	if (store_chunks_put(s, &c, 1) < 0)
		tap_fatal("put");
	return c.digest;
}

/* Whether [off, off + n) comes as @want bytes of the block, with nothing written behind them. */
static bool part(struct store *s, const struct digest *d, size_t off, size_t n, size_t want)
{
	size_t is = 0;

	memset(got, 0xee, sizeof(got));
	return store_chunk_get_part(s, d, off, got, n, &is) == 0 && is == want &&
	       !memcmp(got, block + off, want) && (want == sizeof(got) || got[want] == 0xee);
}

static int part_error(struct store *s, const struct digest *d, size_t off)
{
	size_t is;

	return store_chunk_get_part(s, d, off, got, 100, &is);
}

static void parts(const char *dir)
{
	struct store *s = open_store(dir);
	struct digest d, small;

	noise(ODD, 1);
	d = put(s, ODD);
	ok(part(s, &d, 0, 4096, 4096), "a page of what was put");
	ok(part(s, &d, 8192, 8192, 8192), "pages in the middle");
	ok(part(s, &d, 5000, 5000, 5000), "bytes of several pages");
	ok(part(s, &d, ODD - 10, 10, 10) && part(s, &d, ODD - 10, 4096, 10), "the last ones");
	ok(part(s, &d, 36864, 4096, ODD - 36864) && part(s, &d, 0, STORE_BLOCK, ODD),
	   "as far as it goes");
	eq_int(part_error(s, &d, ODD), -EAGAIN, "nothing behind the end");
	small = put(s, PROOF_MIN - 1);
	eq_int(part_error(s, &small, 0), -EAGAIN, "nothing of what is small");
	store_close(s);

	s = open_store(dir);
	eq_int(part_error(s, &d, 0), -EAGAIN, "nor of what this process has not hashed");
	eq_int(store_chunk_get(s, &d, got, sizeof(got)), ODD, "it is read whole");
	ok(part(s, &d, 4096, 4096, 4096), "and known from then on");
	store_close(s);
}

static void packed(const char *dir)
{
	struct store *s = open_store(dir);
	struct store_chunk c = {.data = block, .len = STORE_BLOCK};

	for (size_t i = 0; i < STORE_BLOCK; i++)
		block[i] = (uint8_t)("words again and again "[i % 22] + (i >> 13));
	if (store_chunks_put_packed(s, &c, 1) < 0)
		tap_fatal("put");
	eq_int(part_error(s, &c.digest, 0), -EAGAIN, "what is compressed has no parts");
	ok(store_chunk_get(s, &c.digest, got, sizeof(got)) == STORE_BLOCK &&
		   !memcmp(got, block, sizeof(got)),
	   "and is read whole");
	store_close(s);
}

/* One bit of the chunk's file, at the bytes of the block from @off on. */
static void flip(const char *dir, size_t off)
{
	char path[128];
	struct stat st;
	uint8_t *file, *at, byte;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/chunks/data.mdb", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !(file = malloc((size_t)st.st_size)) ||
	    pread(fd, file, (size_t)st.st_size, 0) != st.st_size ||
	    !(at = memmem(file, (size_t)st.st_size, block + off, 64)))
		tap_fatal("the chunk is not in the file");
	byte = (uint8_t)(*at ^ 1);
	if (pwrite(fd, &byte, 1, at - file) != 1)
		tap_fatal("write");
	free(file);
	(void)close(fd);
}

/* S4 holds for what was read, and found good, before. */
static void damage(const char *dir)
{
	struct store *s = open_store(dir);
	struct digest d;

	noise(STORE_BLOCK, 7);
	d = put(s, STORE_BLOCK);
	eq_int(store_chunk_get(s, &d, got, sizeof(got)), STORE_BLOCK, "a chunk is good");
	flip(dir, 9 * PROOF_PAGE + 100);
	eq_int(part_error(s, &d, 9 * PROOF_PAGE), -EAGAIN,
	       "then its page is damaged, and not served");
	eq_int(store_chunk_get(s, &d, got, sizeof(got)), -EBADMSG, "nor the whole of it");
	ok(part(s, &d, 10 * PROOF_PAGE, 100, 100), "the next page is what it was");
	store_close(s);
}

/* A digest of the set @set. */
static struct digest in_set(uint32_t set, uint8_t n)
{
	struct digest d = {{n}};

	memcpy(d.b + 8, &set, sizeof(set));
	return d;
}

static void bounded(void)
{
	struct proofs *p;
	struct proof x;
	struct digest d[PROOF_WAYS + 1];
	size_t known = 0;

	if (proofs_new(&p) < 0)
		tap_fatal("proofs_new");
	for (uint8_t i = 0; i <= PROOF_WAYS; i++) {
		d[i] = in_set(5, (uint8_t)(i + 1));
		proofs_note(p, &d[i], block, STORE_BLOCK - i);
		(void)proofs_find(p, &d[0], &x); /* in use */
	}
	for (size_t i = 0; i <= PROOF_WAYS; i++)
		known += proofs_find(p, &d[i], &x) && x.len == STORE_BLOCK - i;
	eq_int((long long)known, PROOF_WAYS, "a set keeps no more than it has room for");
	ok(proofs_find(p, &d[0], &x) && !proofs_find(p, &d[1], &x), "what was used last");
	proofs_note(p, &d[0], block, STORE_BLOCK);
	for (size_t i = known = 0; i <= PROOF_WAYS; i++)
		known += proofs_find(p, &d[i], &x);
	eq_int((long long)known, PROOF_WAYS, "noted twice, it is there once");
	ok(proof_fits(p, &x, 0, block, x.len) && !proof_fits(p, &x, 1, block, PROOF_PAGE) &&
		   !proof_fits(p, &x, 0, block, 100) &&
		   !proof_fits(p, &x, 31, block + (size_t)31 * PROOF_PAGE, PROOF_PAGE + 1),
	   "whole pages, at their places");
	proofs_free(p);
}

int main(void)
{
	char dir[64];

	make_dir(dir);
	parts(dir);
	packed(dir);
	damage(dir);
	bounded();
	tree_remove(dir);
	return tap_done();
}
