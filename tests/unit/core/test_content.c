/* File content: the edges that a random walk does not meet. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <time.h>

#include "content_fixture.h"

struct env {
	struct fixture f;
	struct content_env *e;
	struct hostsrc *host;
};

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void put(struct file *x, uint64_t off, const char *s)
{
	eq_int(content_write(x->c, off, s, strlen(s)), strlen(s), "write at %llu",
	       (unsigned long long)off);
}

static void is_at(struct file *x, uint64_t off, const char *s)
{
	char buf[64];
	size_t n = strlen(s);

	ok(content_read(x->c, off, buf, n) == (ssize_t)n && !memcmp(buf, s, n), "at %llu: %s",
	   (unsigned long long)off, s);
}

/* ---- how it is recorded ---- */

static void test_kinds(struct env *v)
{
	static char block[STORE_BLOCK];
	struct file x;

	memset(block, 'k', sizeof block);
	file_new(&x, &v->f, v->e);
	ok(!content_is_dirty(x.c), "a new content is clean");
	eq_int(file_flush(&x), 0, "flush of nothing");
	eq_int(x.rec.content, REC_EMPTY, "no bytes: nothing is kept");
	put(&x, 0, "small");
	ok(content_is_dirty(x.c), "dirty");
	ok(content_env_dirty(v->e) > 0 && content_env_dirty(v->e) < 1024,
	   "a small file costs little");
	eq_int(file_flush(&x), 0, "flush");
	ok(!content_is_dirty(x.c), "clean");
	eq_int(content_env_dirty(v->e), 0, "nothing dirty");
	ok(x.rec.content == REC_INLINE && x.rec.size == 5 && x.rec.data_len == 5, "inline");
	is_at(&x, 0, "small");
	(void)!content_write(x.c, 5, block, 5000);
	eq_int(file_flush(&x), 0, "flush");
	ok(x.rec.content == REC_CHUNK && x.rec.chunk_len == 5005 && !x.rec.data, "one chunk");
	put(&x, 2 * STORE_BLOCK, "far");
	eq_int(file_flush(&x), 0, "flush");
	eq_int(x.rec.content, REC_EXTENTS, "extents");
	file_reopen(&x);
	is_at(&x, 0, "smallkkk");
	is_at(&x, 2 * STORE_BLOCK, "far");
	is_at(&x, STORE_BLOCK - 1, "\0");
	eq_int(content_truncate(x.c, 100), 0, "cut");
	eq_int(file_flush(&x), 0, "flush");
	ok(x.rec.content == REC_INLINE && x.rec.data_len == 100, "inline again");
	eq_int(content_truncate(x.c, 3 * STORE_BLOCK), 0, "grow");
	eq_int(file_flush(&x), 0, "flush");
	file_reopen(&x);
	is_at(&x, 95, "kkkkk");
	{
		char buf[3];

		ok(content_read(x.c, 2 * STORE_BLOCK, buf, 3) == 3 && !buf[0] && !buf[1] && !buf[2],
		   "what was cut off does not come back");
	}
	eq_int(content_truncate(x.c, 0), 0, "to nothing");
	eq_int(content_blocks(x.c), 0, "no blocks");
	eq_int(file_flush(&x), 0, "flush");
	eq_int(x.rec.content, REC_EMPTY, "nothing kept");
	file_free(&x);
}

static void test_zeros(struct env *v)
{
	static char zeros[2 * STORE_BLOCK];
	struct store_extent e;
	struct file x;

	file_new(&x, &v->f, v->e);
	(void)!content_write(x.c, 0, zeros, sizeof zeros);
	put(&x, sizeof zeros, "x");
	eq_int(file_flush(&x), 0, "flush");
	eq_int(store_view_extent(v->f.v, x.ino, 0, &e), -ENOENT, "zeros are not kept");
	eq_int(store_view_extent(v->f.v, x.ino, 2, &e), 0, "the rest is");
	eq_int(e.len, 1, "without its tail");
	put(&x, 0, "data");
	eq_int(file_flush(&x), 0, "flush");
	(void)!content_write(x.c, 0, zeros, STORE_BLOCK);
	eq_int(file_flush(&x), 0, "flush");
	eq_int(store_view_extent(v->f.v, x.ino, 0, &e), 0, "zeros over data");
	eq_int(e.len, 0, "are a hole");
	file_free(&x);
}

/* ---- limits ---- */

static void test_limits(struct env *v)
{
	const uint64_t max = (uint64_t)INT64_MAX - STORE_BLOCK;
	struct file x;
	char buf[8];

	file_new(&x, &v->f, v->e);
	put(&x, UINT64_C(5) << 32, "past 4 GiB");
	eq_int(file_flush(&x), 0, "flush");
	file_reopen(&x);
	is_at(&x, UINT64_C(5) << 32, "past 4 GiB");
	eq_int(content_write(x.c, max, "x", 1), -EFBIG, "too far");
	eq_int(content_write(x.c, max - 1, "xyz", 3), 1, "as much as fits");
	eq_int(content_read(x.c, max - 1, buf, 8), 1, "is there");
	eq_int(content_size(x.c), max, "the largest size");
	eq_int(content_seek(x.c, (int64_t)(UINT64_C(5) << 32) + STORE_BLOCK, SEEK_DATA),
	       (max - 1) / STORE_BLOCK * STORE_BLOCK, "data at the very end");
	eq_int(content_truncate(x.c, max + 1), -EFBIG, "too large");
	eq_int(content_fallocate(x.c, 0, max, 1), -EFBIG, "too far to allocate");
	ok(content_fallocate(x.c, 0, 0, UINT64_C(1) << 60) == -ENOSPC, "more than any disk has");
	eq_int(content_size(x.c), max, "failed grows change nothing");
	eq_int(content_fallocate(x.c, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP,
	       "no collapse");
	eq_int(content_fallocate(x.c, 0, 0, 0), -EINVAL, "no length");
	eq_int(file_flush(&x), 0, "flush");
	file_reopen(&x);
	is_at(&x, max - 1, "x");
	eq_int(content_truncate(x.c, 0), 0, "to nothing");
	eq_int(file_flush(&x), 0, "flush");
	file_free(&x);
}

/* ---- st_blocks, holes ---- */

static void test_blocks(struct env *v)
{
	static char data[64 << 10];
	struct file x;

	memset(data, 'd', sizeof data);
	file_new(&x, &v->f, v->e);
	eq_int(content_blocks(x.c), 0, "none");
	put(&x, 0, "x");
	eq_int(content_blocks(x.c), 8, "one page for one byte");
	(void)!content_write(x.c, 0, data, sizeof data);
	eq_int(content_blocks(x.c), 128, "64 KiB");
	eq_int(file_flush(&x), 0, "flush");
	eq_int(content_blocks(x.c), 128, "the same after a flush");
	eq_int(x.rec.blocks, 128, "and in the record");
	eq_int(content_truncate(x.c, UINT64_C(200) << 20), 0, "grow");
	put(&x, UINT64_C(200) << 20, "end");
	ok(content_blocks(x.c) < 200, "a sparse file stays small");
	eq_int(content_truncate(x.c, sizeof data), 0, "cut");
	eq_int(content_blocks(x.c), 128, "as before");
	eq_int(content_fallocate(x.c, FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0,
	       "allocate behind the end");
	eq_int(content_blocks(x.c), 2048, "is counted");
	eq_int(content_size(x.c), sizeof data, "the size stays");
	eq_int(content_fallocate(x.c, FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0, "again");
	eq_int(content_blocks(x.c), 2048, "counts once");
	(void)!content_write(x.c, sizeof data, data, sizeof data);
	eq_int(content_blocks(x.c), 2048, "a write uses what was promised");
	eq_int(content_truncate(x.c, 2 * sizeof data), 0, "truncate to the size");
	eq_int(content_blocks(x.c), 256, "gives the promise back");
	eq_int(content_fallocate(x.c, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				 2 * sizeof data),
	       0, "punch all");
	eq_int(content_blocks(x.c), 0, "frees all");
	eq_int(content_seek(x.c, 0, SEEK_DATA), -ENXIO, "all is a hole");
	eq_int(content_seek(x.c, 0, SEEK_HOLE), 0, "from the start");
	file_free(&x);
}

static void test_seek(struct env *v)
{
	static char data[5000];
	struct file x;
	int64_t h;

	memset(data, 'x', sizeof data);
	file_new(&x, &v->f, v->e);
	eq_int(content_seek(x.c, 0, SEEK_DATA), -ENXIO, "an empty file");
	eq_int(content_seek(x.c, 0, SEEK_HOLE), -ENXIO, "has no hole either");
	(void)!content_write(x.c, 100000, data, sizeof data);
	for (int flushed = 0; flushed < 2; flushed++) {
		eq_int(content_seek(x.c, 100000, SEEK_DATA), 100000, "written data is data");
		h = content_seek(x.c, 100000, SEEK_HOLE);
		eq_int(h, 105000, "up to the end");
		ok(content_seek(x.c, 95000, SEEK_DATA) <= 100000, "and not passed over");
		eq_int(content_seek(x.c, 105000, SEEK_HOLE), -ENXIO, "at the end");
		eq_int(content_seek(x.c, -1, SEEK_DATA), -ENXIO, "before the start");
		eq_int(content_seek(x.c, 0, SEEK_CUR), -EINVAL, "another whence");
		eq_int(file_flush(&x), 0, "flush");
	}
	eq_int(content_truncate(x.c, 3 * STORE_BLOCK), 0, "grow");
	h = content_seek(x.c, 100000, SEEK_HOLE);
	ok(h >= 105000 && h < STORE_BLOCK, "a hole behind the data: %lld", (long long)h);
	eq_int(content_seek(x.c, h, SEEK_DATA), -ENXIO, "up to the end");
	eq_int(content_seek(x.c, 3 * STORE_BLOCK - 1, SEEK_HOLE), 3 * STORE_BLOCK - 1,
	       "the last byte");
	file_free(&x);
}

/* ---- copies share ---- */

static void test_copy(struct env *v)
{
	static char data[4 * STORE_BLOCK + 99];
	size_t before;
	struct file a, b;

	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (char)(i * 31 + i / STORE_BLOCK);
	file_new(&a, &v->f, v->e);
	file_new(&b, &v->f, v->e);
	(void)!content_write(a.c, 0, data, sizeof data);
	before = content_env_dirty(v->e);
	eq_int(content_copy(a.c, 0, b.c, 0, UINT64_MAX), sizeof data, "copy what is dirty");
	eq_int(content_env_dirty(v->e), before, "takes no memory");
	put(&b, 5, "XX");
	is_at(&b, 5, "XX");
	ok(content_read(a.c, 0, data, 8) == 8 && data[5] == (char)(5 * 31),
	   "the source keeps its own");
	eq_int(file_flush(&a), 0, "flush");
	eq_int(content_truncate(b.c, 0), 0, "empty the copy");
	eq_int(content_copy(a.c, 0, b.c, 0, sizeof data), sizeof data, "copy what is stored");
	eq_int(content_env_dirty(v->e), 0, "takes no memory either");
	eq_int(file_flush(&b), 0, "flush");
	file_reopen(&b);
	{
		static char got[sizeof data];

		ok(content_read(b.c, 0, got, sizeof got) == sizeof got &&
			   !memcmp(got, data, sizeof got),
		   "and is the same");
	}
	eq_int(content_copy(a.c, sizeof data, b.c, 0, 5), 0, "nothing behind the end");
	file_free(&a);
	file_free(&b);
}

/* ---- what only memory names, beside a collector ---- */

#define KEPT 3 /* blocks */

static void block_of(unsigned seed, unsigned i, uint8_t *p)
{
	for (size_t k = 0; k < STORE_BLOCK; k++)
		p[k] = (uint8_t)(k * 7 + k / 251 + i * 31 + seed);
}

static void write_blocks(struct file *x, unsigned seed, unsigned n)
{
	static uint8_t p[STORE_BLOCK];

	for (unsigned i = 0; i < n; i++) {
		block_of(seed, i, p);
		if (content_write(x->c, (uint64_t)i * STORE_BLOCK, p, STORE_BLOCK) != STORE_BLOCK)
			tap_fatal("write");
	}
}

/* In the store: what is read may come from a cache. */
static unsigned blocks_there(struct store *s, unsigned seed, unsigned n)
{
	static uint8_t p[STORE_BLOCK], got[STORE_BLOCK];
	unsigned there = 0;

	for (unsigned i = 0; i < n; i++) {
		struct digest d;

		block_of(seed, i, p);
		if (digest_of(p, STORE_BLOCK, &d) < 0)
			tap_fatal("digest");
		there += store_chunk_get(s, &d, got, sizeof got) == STORE_BLOCK;
	}
	return there;
}

static void collect(struct store *s)
{
	struct store_gc_opts o = {0};
	struct store_gc_result res;
	struct diag d = {0};

	if (store_gc(s, &o, &d, &res) < 0)
		tap_fatal("gc: %s", d.text);
}

static void test_collected(struct env *v)
{
	struct file a, b;

	file_new(&a, &v->f, v->e);
	file_new(&b, &v->f, v->e);
	write_blocks(&a, 1, KEPT);
	eq_int(file_flush(&a), 0, "flush");
	eq_int(content_copy(a.c, 0, b.c, 0, UINT64_MAX), KEPT * STORE_BLOCK, "copy");
	write_blocks(&a, 2, KEPT);
	eq_int(file_flush(&a), 0, "the source is written over");
	collect(v->f.s);
	eq_int(blocks_there(v->f.s, 1, KEPT), KEPT,
	       "a copy that is in memory alone keeps its blocks");
	eq_int(file_flush(&b), 0, "flush the copy");
	collect(v->f.s);
	eq_int(blocks_there(v->f.s, 1, KEPT), KEPT, "then its record does");
	write_blocks(&b, 3, KEPT);
	eq_int(file_flush(&b), 0, "the copy is written over");
	collect(v->f.s);
	eq_int(blocks_there(v->f.s, 1, KEPT), 0, "then nothing");
	eq_int(blocks_there(v->f.s, 2, KEPT) + blocks_there(v->f.s, 3, KEPT), 2 * KEPT,
	       "(but the others)");
	file_free(&a);
	file_free(&b);
}

static void test_completed(struct env *v)
{
	const unsigned n = 48; /* more than is kept in memory */
	uint8_t *text = malloc((size_t)n * STORE_BLOCK);
	struct file x;

	if (!text)
		tap_fatal("memory");
	for (unsigned i = 0; i < n; i++)
		block_of(9, i, text + (size_t)i * STORE_BLOCK);
	fixture_file(&v->f, "host/large", (const char *)text, (size_t)n * STORE_BLOCK);
	file_of_host(&x, &v->f, v->e, v->host, "large");
	put(&x, 3, "changed");
	eq_int(content_complete(x.c), 0, "complete a large host file");
	collect(v->f.s);
	ok(blocks_there(v->f.s, 9, n) >= n - 16, "%u of its blocks are in the store and stay",
	   blocks_there(v->f.s, 9, n));
	eq_int(file_flush(&x), 0, "flush");
	collect(v->f.s);
	eq_int(blocks_there(v->f.s, 9, n), n - 1, "all but the one that was changed");
	file_free(&x);
	free(text);
}

/* ---- host files ---- */

static void rewrite(struct env *v, const char *rel, const char *text)
{
	fixture_file(&v->f, rel, text, strlen(text));
}

static void test_host(struct env *v)
{
	struct timespec nap = {.tv_nsec = 30 * 1000 * 1000};
	struct file x;
	char buf[64];

	rewrite(v, "host/live", "first");
	file_of_host(&x, &v->f, v->e, v->host, "live");
	is_at(&x, 0, "first");
	ok(!content_incomplete(x.c), "an unchanged host file needs nothing");
	rewrite(v, "host/live", "second, longer");
	eq_int(content_read(x.c, 0, buf, sizeof buf), 14, "it is shown live");
	put(&x, 0, "S");
	ok(content_incomplete(x.c) == false, "a small one is whole after its first change");
	is_at(&x, 0, "Second, longer");
	eq_int(content_size(x.c), 14, "with the size of the moment");
	rewrite(v, "host/live", "third");
	is_at(&x, 0, "Second, longer");
	eq_int(file_flush(&x), 0, "flush");
	ok(x.rec.content == REC_INLINE && x.rec.origin.valid == 0, "nothing of the host is needed");
	file_free(&x);

	/* truncation alone */
	rewrite(v, "host/cut", "0123456789");
	file_of_host(&x, &v->f, v->e, v->host, "cut");
	eq_int(content_truncate(x.c, 4), 0, "cut");
	eq_int(content_truncate(x.c, 8), 0, "grow");
	ok(content_read(x.c, 0, buf, 8) == 8 && !memcmp(buf, "0123\0\0\0\0", 8),
	   "zeros where it was cut");
	ok(content_incomplete(x.c), "the head is the host's");
	eq_int(file_flush(&x), 0, "flush");
	ok(x.rec.content == REC_EXTENTS && x.rec.origin.valid == 4, "so it is recorded");
	file_reopen(&x);
	ok(content_read(x.c, 0, buf, 8) == 8 && !memcmp(buf, "0123\0\0\0\0", 8), "and read back");
	eq_int(content_complete(x.c), 0, "complete");
	ok(!content_incomplete(x.c), "nothing missing");
	(void)nanosleep(&nap, NULL);
	rewrite(v, "host/cut", "abcdefghij");
	ok(content_read(x.c, 0, buf, 8) == 8 && !memcmp(buf, "0123", 4), "the host may change now");
	eq_int(file_flush(&x), 0, "flush");
	ok(x.rec.content == REC_INLINE, "inline");
	file_free(&x);

	/* emptied */
	file_of_host(&x, &v->f, v->e, v->host, "cut");
	eq_int(content_truncate(x.c, 0), 0, "empty");
	ok(!content_incomplete(x.c), "needs nothing");
	put(&x, 0, "mine");
	eq_int(file_flush(&x), 0, "flush");
	file_reopen(&x);
	is_at(&x, 0, "mine");
	file_free(&x);
}

static void test_host_changed(struct env *v)
{
	static char big[3 * STORE_BLOCK];
	struct timespec nap = {.tv_nsec = 30 * 1000 * 1000};
	struct file x;
	char buf[8];

	memset(big, 'h', sizeof big);
	fixture_file(&v->f, "host/big", big, sizeof big);
	file_of_host(&x, &v->f, v->e, v->host, "big");
	put(&x, STORE_BLOCK + 3, "mine");
	ok(content_incomplete(x.c), "two blocks are the host's");
	is_at(&x, 0, "hhh");
	(void)nanosleep(&nap, NULL);
	big[0] = 'X';
	fixture_file(&v->f, "host/big", big, sizeof big);
	eq_int(content_read(x.c, 0, buf, 3), -EIO,
	       "the host changed them: an error, not other bytes");
	is_at(&x, STORE_BLOCK + 3, "mine");
	eq_int(content_complete(x.c), -EIO, "nor can it be completed");
	ok(content_incomplete(x.c), "and stays incomplete");
	is_at(&x, STORE_BLOCK + 3, "mine");
	eq_int(content_truncate(x.c, 0), 0, "but it can be emptied");
	put(&x, 0, "new");
	eq_int(file_flush(&x), 0, "and go on");
	file_free(&x);
}

static void test_host_large(struct env *v)
{
	const uint64_t size = UINT64_C(1) << 30;
	char p[PATH_MAX], buf[8];
	struct file x;
	double start, took;
	int fd, r;

	fixture_path(&v->f, "host/large", p);
	fd = open(p, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0 || pwrite(fd, "begin", 5, 0) != 5 ||
	    pwrite(fd, "middle", 6, 500 << 20) != 6 || pwrite(fd, "end", 3, (off_t)size - 3) != 3)
		tap_fatal("large file");
	(void)close(fd);
	file_of_host(&x, &v->f, v->e, v->host, "large");
	start = now();
	r = content_write(x.c, 700u << 20, "!", 1) == 1;
	took = now() - start;
	ok(r, "one byte of 1 GiB");
	printf("# first write: %.3f ms\n", took * 1e3);
	ok(took < 0.05, "does not copy the file");
	ok(content_env_dirty(v->e) <= STORE_BLOCK, "costs one block");
	start = now();
	while ((r = content_complete_some(x.c, 16 << 20)) == 1)
		if (content_env_dirty(v->e) > 4 * STORE_BLOCK)
			break;
	printf("# completed in %.3f s\n", now() - start);
	eq_int(r, 0, "completed in steps of bounded memory");
	eq_int(unlink(p), 0, "the host file goes");
	is_at(&x, 0, "begin");
	is_at(&x, 500 << 20, "middle");
	is_at(&x, 700 << 20, "!");
	is_at(&x, size - 3, "end");
	eq_int(file_flush(&x), 0, "flush");
	file_reopen(&x);
	is_at(&x, 500 << 20, "middle");
	is_at(&x, size - 3, "end");
	ok(content_read(x.c, size, buf, 8) == 0, "the end");
	start = now();
	r = content_write(x.c, 100u << 20, "?", 1) == 1;
	took = now() - start;
	ok(r && took < 0.05, "one byte of a stored file: %.3f ms", took * 1e3);
	ok(content_env_dirty(v->e) <= STORE_BLOCK, "costs one block");
	file_free(&x);
}

/* ---- what is gone is an error ---- */

static void test_gone(struct env *v)
{
	struct rec_inode rec = {.mode = S_IFREG | 0644, .nlink = 1, .size = 10};
	struct content *c;
	char buf[16], root[] = "/nonexistent", rel[] = "f";

	rec.content = REC_CHUNK;
	rec.chunk_len = 10;
	memset(&rec.chunk, 0x5a, sizeof rec.chunk);
	if (content_open(v->e, 1000, &rec, NULL, &c) < 0)
		tap_fatal("content_open");
	eq_int(content_read(c, 0, buf, 10), -EIO, "a chunk that is not there");
	eq_int(content_write(c, 5, "x", 1), -EIO, "cannot be written into");
	eq_int(content_write(c, 0, "0123456789", 10), 10, "but over");
	eq_int(content_read(c, 0, buf, 10), 10, "and read again");
	content_close(c);
	rec.content = REC_EMPTY;
	rec.origin = (struct rec_origin){.root = root, .rel = rel, .valid = 10, .size = 10};
	if (content_open(v->e, 1001, &rec, NULL, &c) < 0)
		tap_fatal("content_open");
	eq_int(content_read(c, 0, buf, 10), -EIO, "a host file whose source is gone");
	eq_int(content_write(c, 0, "x", 1), -EIO, "cannot be written to");
	eq_int(content_complete(c), -EIO, "nor completed");
	eq_int(content_truncate(c, 0), 0, "but emptied");
	eq_int(content_write(c, 0, "x", 1), 1, "and then used");
	content_close(c);
}

/* ---- flushing ---- */

static void test_snapshots(struct env *v)
{
	struct content_snap *sn, *other;
	struct file x;

	file_new(&x, &v->f, v->e);
	put(&x, 0, "one");
	eq_int(content_snap_take(x.c, &sn), 0, "a snapshot");
	eq_int(content_snap_take(x.c, &other), -EBUSY, "only one at a time");
	put(&x, 0, "two");
	eq_int(file_store(&x, sn), 0, "store");
	ok(x.rec.data_len == 3 && !memcmp(x.rec.data, "one", 3), "it holds what was");
	content_snap_done(sn, true);
	ok(content_is_dirty(x.c), "what came after is dirty");
	is_at(&x, 0, "two");
	eq_int(file_flush(&x), 0, "flush");
	ok(!memcmp(x.rec.data, "two", 3) && !content_is_dirty(x.c), "until it is flushed");
	put(&x, 3, "more");
	eq_int(content_snap_take(x.c, &sn), 0, "a snapshot");
	content_close(x.c);
	content_snap_done(sn, false);
	ok(1, "a snapshot outlives its content");
	rec_inode_release(&x.rec);
}

/* ---- blocks that are there in part ---- */

#define PARTS (3u * STORE_BLOCK)

struct parts {
	struct file x;
	uint8_t want[PARTS], got[PARTS];
};

static void part(struct parts *p, size_t off, int fill, size_t n)
{
	memset(p->want + off, fill, n);
	if (content_write(p->x.c, off, p->want + off, n) != (ssize_t)n)
		tap_fatal("write");
}

static void parts_are(struct parts *p, const char *what)
{
	uint64_t size = content_size(p->x.c);

	ok(content_read(p->x.c, 0, p->got, PARTS) == (ssize_t)size &&
		   !memcmp(p->got, p->want, size) &&
		   content_read(p->x.c, 140001, p->got, 777) == 777 &&
		   !memcmp(p->got, p->want + 140001, 777),
	   "%s", what);
}

static void test_parts(struct env *v)
{
	struct parts *p = calloc(1, sizeof(*p));
	struct content_snap *sn;
	int64_t hole;

	if (!p)
		tap_fatal("memory");
	file_new(&p->x, &v->f, v->e);
	for (size_t i = 0; i < PARTS; i++)
		p->want[i] = (uint8_t)(i >> 8 | 1);
	(void)!content_write(p->x.c, 0, p->want, PARTS);
	eq_int(file_flush(&p->x), 0, "three blocks");
	file_reopen(&p->x);
	part(p, STORE_BLOCK + 4000, 'a', 4096);
	ok(content_env_dirty(v->e) <= 2 * 4096, "a page of a block costs a page");
	eq_int((long long)content_env_owed(v->e), STORE_BLOCK, "and a flush the block");
	part(p, STORE_BLOCK + 4000, 'b', 10);
	part(p, STORE_BLOCK + 8090, 'c', 10);
	part(p, STORE_BLOCK + 3990, 'd', 20);
	part(p, STORE_BLOCK, 'e', 1);
	part(p, 2 * STORE_BLOCK - 1, 'f', 2);
	parts_are(p, "over one another, and across the end");
	eq_int(content_snap_take(p->x.c, &sn), 0, "a snapshot");
	part(p, STORE_BLOCK + 5000, 'g', 100);
	parts_are(p, "written to while one holds it");
	content_snap_done(sn, false);
	parts_are(p, "a flush that fails");
	eq_int(content_snap_take(p->x.c, &sn), 0, "another");
	part(p, STORE_BLOCK + 6000, 'h', 100);
	eq_int(file_store(&p->x, sn), 0, "is stored");
	content_snap_done(sn, true);
	parts_are(p, "what came meanwhile lies over what was flushed");
	eq_int(file_flush(&p->x), 0, "flush");
	eq_int((long long)content_env_owed(v->e), 0, "nothing is owed");
	file_reopen(&p->x);
	parts_are(p, "in the store");

	/* All of a block, in pieces, is a hole when all are zeros. */
	for (size_t i = 0; i < STORE_BLOCK; i += 4096)
		part(p, STORE_BLOCK + i, 0, 4096);
	hole = content_seek(p->x.c, 1, SEEK_HOLE);
	eq_int(hole, STORE_BLOCK, "a block of zeros is a hole");
	eq_int(file_flush(&p->x), 0, "flush");
	file_reopen(&p->x);
	eq_int(content_seek(p->x.c, 1, SEEK_HOLE), hole, "after a flush as well");
	parts_are(p, "zeros");

	/* A small file is recorded by what is in it. */
	part(p, 5, 'i', 5);
	eq_int(content_truncate(p->x.c, STORE_BLOCK), 0,
	       "cut behind a block that is there in part");
	eq_int(file_flush(&p->x), 0, "flush");
	eq_int(p->x.rec.content, REC_CHUNK, "one chunk");
	file_reopen(&p->x);
	ok(content_read(p->x.c, 0, p->got, PARTS) == STORE_BLOCK &&
		   !memcmp(p->got, p->want, STORE_BLOCK),
	   "the block");
	file_free(&p->x);
	free(p);
}

/* What a part lies over is named by nothing once the flush is in the store, and is read until that is through. */
static void test_parts_collected(struct env *v)
{
	struct parts *p = calloc(1, sizeof(*p));
	struct content_snap *sn;
	struct content_env *e;

	if (!p || content_env_new(v->f.s, v->f.v, NULL, &e) < 0)
		tap_fatal("memory");
	file_new(&p->x, &v->f, v->e);
	for (unsigned i = 0; i < PARTS / STORE_BLOCK; i++)
		block_of(77, i, p->want + i * STORE_BLOCK);
	(void)!content_write(p->x.c, 0, p->want, PARTS);
	eq_int(file_flush(&p->x), 0, "three blocks");
	/* One that has not kept them. */
	p->x.e = e;
	file_reopen(&p->x);
	part(p, STORE_BLOCK + 4000, 'a', 4096);
	eq_int(content_snap_take(p->x.c, &sn), 0, "a snapshot");
	part(p, STORE_BLOCK + 9000, 'b', 100);
	eq_int(file_store(&p->x, sn), 0, "is stored");
	collect(v->f.s);
	parts_are(p, "a collector comes before that is through");
	content_snap_done(sn, true);
	collect(v->f.s);
	eq_int(blocks_there(v->f.s, 77, 3), 2, "then nothing keeps what was written over");
	parts_are(p, "and nobody needs it");
	file_free(&p->x);
	content_env_free(e);
	free(p);
}

/* One bit of the block that is all @fill, or (@mend) was. */
static void damage(struct env *v, char fill, bool mend)
{
	char path[PATH_MAX], page[4096], want[4096];
	off_t at = 0;
	int fd;

	fixture_path(&v->f, "store/chunks/data.mdb", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	memset(want, fill, sizeof(want));
	if (mend)
		*want = (char)(fill ^ 1);
	while (fd >= 0 && pread(fd, page, sizeof(page), at) == (ssize_t)sizeof(page) &&
	       memcmp(page, want, sizeof(page)) != 0)
		at += (off_t)sizeof(page);
	*page ^= 1;
	if (fd < 0 || pwrite(fd, page, 1, at) != 1)
		tap_fatal("%s: %m", path);
	(void)close(fd);
}

/* A part of a block whose rest is damaged: everything else is flushed. */
static void test_parts_lost(struct env *v)
{
	static uint8_t bytes[PARTS], got[STORE_BLOCK];
	struct content_snap *sn;
	struct content_env *e;
	struct store_batch *b;
	struct file f;

	for (size_t i = 0; i < PARTS; i++)
		bytes[i] = (uint8_t)(0xe0 + i / STORE_BLOCK);
	file_new(&f, &v->f, v->e);
	(void)!content_write(f.c, 0, bytes, PARTS);
	eq_int(file_flush(&f), 0, "flush");
	damage(v, (char)0xe1, false);
	/* One that has not kept the block. */
	if (content_env_new(v->f.s, v->f.v, NULL, &e) < 0)
		tap_fatal("content_env_new");
	f.e = e;
	file_reopen(&f);
	eq_int(content_write(f.c, STORE_BLOCK + 10, "lost", 4), 4, "into a damaged block");
	put(&f, 10, "kept");
	ok(!content_lost(f.c), "nobody knows yet");
	eq_int(file_flush(&f), 0, "it keeps nothing else from being flushed");
	ok(content_lost(f.c), "and is told");
	ok(!content_lost(f.c), "once");
	file_reopen(&f);
	is_at(&f, 10, "kept");
	eq_int(content_read(f.c, STORE_BLOCK, got, STORE_BLOCK), -EIO, "what is damaged stays so");

	/* The store's transaction is tried again, and meanwhile the block can be read. */
	eq_int(content_write(f.c, STORE_BLOCK + 10, "back", 4), 4, "into a damaged block");
	if (content_snap_take(f.c, &sn) < 0 || store_batch_begin(v->f.s, v->f.layer, &b) < 0)
		tap_fatal("snapshot");
	eq_int(content_snap_store(sn, b, &f.rec), 0, "a flush gives it up");
	store_batch_abort(b);
	damage(v, (char)0xe1, true);
	eq_int(file_store(&f, sn), 0, "it goes well the next time");
	content_snap_done(sn, true);
	ok(!content_lost(f.c), "nothing is lost");
	file_reopen(&f);
	is_at(&f, STORE_BLOCK + 10, "back");
	ok(content_read(f.c, STORE_BLOCK + 14, got, 9) == 9 && got[0] == 0xe1,
	   "over what is there");
	file_free(&f);
	content_env_free(e);
}

int main(void)
{
	struct env v = {0};
	char dir[PATH_MAX];

	fixture_open(&v.f);
	fixture_path(&v.f, "host", dir);
	if (mkdir(dir, 0755) < 0 || hostsrc_open(dir, 0, 0, NULL, &v.host) < 0 ||
	    content_env_new(v.f.s, v.f.v, NULL, &v.e) < 0)
		tap_fatal("open");
	test_kinds(&v);
	test_zeros(&v);
	test_limits(&v);
	test_blocks(&v);
	test_seek(&v);
	test_copy(&v);
	test_collected(&v);
	test_completed(&v);
	test_host(&v);
	test_host_changed(&v);
	test_host_large(&v);
	test_gone(&v);
	test_snapshots(&v);
	test_parts(&v);
	test_parts_collected(&v);
	test_parts_lost(&v);
	eq_int(content_env_dirty(v.e), 0, "nothing stays in the account");
	eq_int((long long)content_env_owed(v.e), 0, "and nothing is owed");
	content_env_free(v.e);
	hostsrc_close(v.host);
	fixture_close(&v.f);
	return tap_done();
}
