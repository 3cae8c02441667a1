/* store: the log of an environment, whole, torn, void, and full. */
#include <fcntl.h>

#include "base/io.h"
#include "store/synclog.h"
#include "tests/unit/store/store_test.h"

#define BIG   ((size_t)900 << 10)
#define PIECE ((size_t)128 << 10)
#define FILL                                       \
	(((size_t)1 << 20) - 4096 - (BIG + 4096) - \
	 64) /* of a file of 1 MiB, behind "small" and BIG */

struct got {
	char text[64];
	unsigned frames;
	size_t bytes;
};

static int see(void *arg, const uint8_t *p, size_t n)
{
	struct got *g = arg;
	size_t at = strlen(g->text);

	g->frames++;
	g->bytes += n;
	if (n < 8 && at + n < sizeof(g->text))
		memcpy(g->text + at, p, n);
	return 0;
}

/* What another process would find. */
static struct got look(struct store *s, store_layer layer, uint64_t batches)
{
	struct got g = {0};
	struct store_log *l;

	if (store_log_open(s, "e", &l) < 0 || store_log_read(l, layer, batches, see, &g) < 0)
		tap_fatal("store_log_read");
	store_log_close(l);
	return g;
}

static void append(struct store_log *l, store_layer layer, uint64_t batches, const char *text)
{
	int r = store_log_append(l, layer, batches, text, strlen(text));

	if (r < 0)
		tap_fatal("store_log_append: %d", r);
}

/* One byte of the file is another one. */
static void damage(const char *dir, off_t at)
{
	char path[128];
	uint8_t b;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/env-e.log", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &b, 1, at) != 1)
		tap_fatal("%s: %m", path);
	b ^= 0x10;
	if (pwrite(fd, &b, 1, at) != 1)
		tap_fatal("%s: %m", path);
	(void)close(fd);
}

static void test_frames(struct store *s, struct store_log *l, const char *dir)
{
	struct got g = look(s, 3, 1);

	eq_int(g.frames, 0, "no file, no frames");
	append(l, 3, 1, "one ");
	append(l, 3, 1, "two ");
	append(l, 3, 1, "three");
	g = look(s, 3, 1);
	eq_str(g.text, "one two three", "frames come in order");
	eq_int(look(s, 3, 2).frames, 0, "not over another batch");
	eq_int(look(s, 4, 1).frames, 0, "nor over another layer");
	damage(dir, 2 * 4096 + 64);
	g = look(s, 3, 1);
	eq_str(g.text, "one two ", "a torn frame ends them");
	damage(dir, 4096 + 30);
	g = look(s, 3, 1);
	eq_str(g.text, "one ", "so does a torn head");
}

/* What earlier chains left behind the last frame is not of it. */
static void test_again(struct store *s, struct store_log *l)
{
	append(l, 3, 2, "a ");
	append(l, 3, 2, "b ");
	append(l, 3, 2, "c ");
	append(l, 3, 3, "x ");
	eq_str(look(s, 3, 3).text, "x ", "the next batch voids what is there");
	eq_int(look(s, 3, 2).frames, 0, "and nobody finds it");
	append(l, 5, 0, "y ");
	eq_str(look(s, 5, 0).text, "y ", "another layer does, too");
}

/* The same numbers once more, as after a batch that was tried and did not come about: still two chains. */
static void test_chains(struct store *s)
{
	struct store_log *l;

	if (store_log_open(s, "e", &l) < 0)
		tap_fatal("open");
	append(l, 7, 1, "old0 ");
	append(l, 7, 1, "old1 ");
	append(l, 8, 1, "between ");
	append(l, 7, 1, "new0 ");
	eq_str(look(s, 7, 1).text, "new0 ", "frames of two chains are not mixed");
	store_log_close(l);
}

static void test_full(struct store *s, struct store_log *l)
{
	uint8_t *p = calloc(1, STORE_LOG_FRAME_MAX + 1);
	struct got g;
	int r;

	if (!p)
		tap_fatal("memory");
	append(l, 9, 1, "first");
	r = store_log_append(l, 9, 1, p, STORE_LOG_FRAME_MAX + 1);
	eq_int(r, -EFBIG, "no frame is that long");
	append(l, 9, 2, "small");
	eq_int(store_log_append(l, 9, 2, p, BIG), 0, "a large frame");
	eq_int(store_log_append(l, 9, 2, p, FILL), 0, "and what fills the file");
	eq_int(store_log_append(l, 9, 2, "x", 1), -EFBIG, "there is no room for the next");
	ok(store_log_append(l, 9, 2, "x", 1) < 0, "nothing is taken before the next batch");
	eq_int(look(s, 9, 2).frames, 3, "what was there is");
	eq_int(store_log_append(l, 9, 3, p, BIG), 0, "then it is");
	eq_int(store_log_append(l, 9, 3, p, BIG), 0, "and there is more room");
	eq_int(store_log_append(l, 9, 3, p, BIG), 0, "for some more");
	g = look(s, 9, 3);
	eq_int(g.frames, 3, "all are there");
	eq_int((long long)g.bytes, 3 * (long long)BIG, "whole");
	free(p);
}

/* In pieces, longer than the file; the last byte tells what was sent. */
static void test_long(struct store *s, struct store_log *l, const char *dir)
{
	uint8_t *p = malloc(PIECE);
	struct got g;

	if (!p)
		tap_fatal("memory");
	append(l, 11, 1, "a ");
	for (size_t piece = PIECE - 3; piece <= PIECE; piece += 3) {
		int r = store_log_begin(l, 11, 1);

		for (int i = 0; r == 0 && i < 50; i++) {
			memset(p, i, PIECE);
			r = store_log_put(l, p, piece);
		}
		eq_int(r, 0, "a frame in pieces");
		eq_int(store_log_end(l), 0, "which ends");
	}
	g = look(s, 11, 1);
	eq_int(g.frames, 3, "all are there");
	eq_int((long long)g.bytes, 2 + 50 * (2 * (long long)PIECE - 3), "whole");
	damage(dir, 4096 + 40 * (off_t)PIECE);
	eq_str(look(s, 11, 1).text, "a ", "one that is damaged far behind its head ends them");
	eq_int(store_log_begin(l, 11, 2), 0, "one that is begun");
	eq_int(store_log_put(l, p, PIECE), 0, "and written in part");
	store_log_drop(l);
	eq_int(look(s, 11, 2).frames, 0, "and dropped is not there");
	ok(store_log_append(l, 11, 2, "x", 1) < 0, "and nothing is before the next batch");
	/* To the last byte that a frame may have, and one more. */
	eq_int(store_log_begin(l, 11, 3), 0, "the longest");
	for (size_t left = STORE_LOG_FRAME_MAX; left > 0; left -= PIECE)
		if (store_log_put(l, p, PIECE) < 0)
			tap_fatal("store_log_put");
	eq_int(store_log_end(l), 0, "is taken");
	eq_int((long long)look(s, 11, 3).bytes, (long long)STORE_LOG_FRAME_MAX, "whole");
	free(p);
}

/* As store format 3 had it: it was acknowledged, and whoever wrote it may not open the store any more. */
static void test_older(struct store_log *l, const char *dir)
{
	static const uint8_t frame[64 + 8] = {
		'R',  'T',  'N',  'S',  'Y',       'N',      'C',      '1',      0xf3,    0x47,
		0xd9, 0x08, 0x40, 0x3f, 0xe3,      0xa2,     1,        2,        3,       4,
		5,    6,    7,    8,    [39] = 12, [47] = 4, [55] = 8, [64] = 5, [71] = 9};
	struct got g = {0};
	char path[128];
	int fd;

	append(l, 12, 3, "x");
	(void)snprintf(path, sizeof(path), "%s/env-e.log", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pwrite(fd, frame, sizeof(frame), 0) != (ssize_t)sizeof(frame))
		tap_fatal("%s: %m", path);
	eq_int(store_log_read(l, 12, 4, see, &g), 0, "an older frame that counts");
	eq_int((long long)g.bytes, 8, "is read");
	g = (struct got){0};
	eq_int(store_log_read(l, 12, 5, see, &g), 0, "one that is void");
	damage(dir, 65);
	eq_int(store_log_read(l, 12, 4, see, &g), 0, "one that is torn");
	eq_int(g.frames, 0, "are not");
	(void)close(fd);
}

/* A process that was killed may still be in the middle of a write when the next one works. */
static void test_two(struct store *s)
{
	struct store_log *l, *old;

	if (store_log_open(s, "e", &l) < 0 || store_log_open(s, "e", &old) < 0)
		tap_fatal("open");
	append(old, 20, 1, "old ");
	append(l, 20, 2, "new ");
	ok(store_log_append(old, 20, 1, "late ", 5) < 0, "a file that was replaced takes nothing");
	eq_str(look(s, 20, 2).text, "new ", "what a dead process writes late harms nobody");
	store_log_remove(l);
	eq_int(look(s, 20, 2).frames, 0, "removed");
	append(l, 20, 2, "again");
	eq_str(look(s, 20, 2).text, "again", "and made anew");
	store_log_remove(l);
	store_log_close(l);
	store_log_close(old);
}

/* The file has the whole name of the longest one: somebody may be told to remove it. */
static void test_name(struct store *s, const char *dir)
{
	char name[65], path[160];
	struct store_log *l;
	int fd;

	memset(name, 'n', 64);
	name[64] = 0;
	if (store_log_open(s, name, &l) < 0)
		tap_fatal("store_log_open");
	append(l, 1, 1, "x");
	snprintf(path, sizeof(path), "%s/env-%s.log", dir, name);
	eq_int(access(path, F_OK), 0, "a log of the longest name");
	(void)strcat(path, ".new");
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		tap_fatal("%s", path);
	(void)close(fd);
	store_log_remove(l);
	ok(access(path, F_OK) < 0, "nothing stays of one that was being made");
	store_log_close(l);
}

int main(void)
{
	struct store_log *l;
	struct store *s;
	char dir[64];

	make_dir(dir);
	s = open_store(dir);
	eq_int(store_log_open(s, "../e", &l), -EINVAL, "no name");
	if (store_log_open(s, "e", &l) < 0)
		tap_fatal("store_log_open");
	test_frames(s, l, dir);
	test_again(s, l);
	test_full(s, l);
	test_long(s, l, dir);
	test_older(l, dir);
	test_chains(s);
	store_log_close(l);
	test_two(s);
	test_name(s, dir);
	store_close(s);
	tree_remove(dir);
	return tap_done();
}
