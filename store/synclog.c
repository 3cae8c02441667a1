/* See synclog.h. */
#include "store/synclog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/key.h"
#include "store/store_internal.h"

/*
 * A frame: its head, all numbers big-endian, the bytes, and zeros up to the next multiple of ALIGN, so that no write
 * touches a page of the file, or a sector of the disk, that holds an earlier frame.
 *
 *	0   "RTNSYNC2"
 *	8   check value: XXH3-64 of the head from byte 16 on, seeded with that of the bytes
 *	16  a number that all frames of one chain share, and no others
 *	24  its place in the chain, from 0
 *	32  layer
 *	40  batches
 *	48  length of the bytes
 *	56  0
 */
#define HEAD      64
#define ALIGN     ((size_t)4096)
#define FIRST     (UINT64_C(1) << 20)   /* bytes of a file */
#define FILL_MOST (UINT64_C(16) << 20)  /* the same, written beforehand */
#define MOST      (UINT64_C(65) << 20)  /* with what long frames make it grow to */
#define SLACK     (UINT64_C(256) << 10) /* behind a frame that made it grow */
#define STAGE     (32 * ALIGN)          /* of a frame; written at once */
#define SPARE     (UINT64_C(8) << 20)   /* what a new file leaves of the disk's room */

static const char magic[8] = {'R', 'T', 'N', 'S', 'Y', 'N', 'C', '2'};
/* Of format 3, and still read: the check value of such a frame is that of its bytes, seeded with that of its head. */
static const char older[8] = {'R', 'T', 'N', 'S', 'Y', 'N', 'C', '1'};

struct store_log {
	struct store *s;
	char name[80], fresh[88]; /* of an environment's name of up to 64 */
	int fd;                   /* of a file of this object's own making; -1: none */
	uint64_t size;            /* of the file */
	uint64_t want;            /* of the next one */
	bool failed;              /* nothing is taken before the next batch */
	/* the chain under way */
	store_layer layer; /* 0: none */
	uint64_t batches, chain, seq, at;
	/* the frame under way */
	uint64_t len, written; /* bytes; and of the file, head included */
	XXH3_state_t *sum;
	struct buf frame;     /* the stage: what comes behind @written */
	uint8_t first[ALIGN]; /* of one that took several stages */
};

int store_log_open(struct store *s, const char *env, struct store_log **ret)
{
	struct store_log *l;

	if (!store_env_name_valid(env))
		return -EINVAL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->s = s;
	l->fd = -1;
	l->want = FIRST;
	(void)snprintf(l->name, sizeof(l->name), "env-%s.log", env);
	(void)snprintf(l->fresh, sizeof(l->fresh), "%s.new", l->name);
	*ret = l;
	return 0;
}

static void file_close(struct store_log *l)
{
	if (l->fd >= 0)
		(void)close(l->fd);
	l->fd = -1;
}

void store_log_close(struct store_log *l)
{
	if (!l)
		return;
	file_close(l);
	buf_release(&l->frame);
	(void)XXH3_freeState(l->sum);
	free(l);
}

void store_log_remove(struct store_log *l)
{
	file_close(l);
	l->layer = 0;
	(void)unlinkat(l->s->dir_fd, l->name, 0);
	/* Of a process that was killed while it made one. */
	(void)unlinkat(l->s->dir_fd, l->fresh, 0);
}

void store_log_forget(struct store *s, const char *env)
{
	struct store_log *l;

	if (store_log_open(s, env, &l) < 0)
		return; /* void all the same: no layer has its number again */
	store_log_remove(l);
	store_log_close(l);
}

/* ---- frames ---- */

/* @bytes: XXH3-64 of the frame's. */
static uint64_t frame_sum(const uint8_t *head, uint64_t bytes)
{
	return XXH3_64bits_withSeed(head + 16, HEAD - 16, bytes);
}

/* Of the frame under way, which is complete but for it. */
static void head_make(const struct store_log *l, uint8_t *head)
{
	memset(head, 0, HEAD);
	memcpy(head, magic, sizeof(magic));
	key_be64(head + 16, l->chain);
	key_be64(head + 24, l->seq);
	key_be64(head + 32, l->layer);
	key_be64(head + 40, l->batches);
	key_be64(head + 48, l->len);
	key_be64(head + 8, frame_sum(head, XXH3_64bits_digest(l->sum)));
}

/* Where frames are looked for: the chain that the first one begins. */
struct walk {
	store_layer layer;
	uint64_t batches, chain, seq;
};

static uint64_t older_sum(const uint8_t *head, const uint8_t *p, size_t n)
{
	return XXH3_64bits_withSeed(p, n, XXH3_64bits(head + 16, HEAD - 16));
}

/* The bytes of the frame at @p, of which @room are there; NULL: none of the chain. */
static const uint8_t *frame_check(const uint8_t *p, size_t room, const struct walk *w, size_t *ret)
{
	bool is_older = room >= HEAD && memcmp(p, older, sizeof(older)) == 0;
	uint64_t n;

	if (room < HEAD || (!is_older && memcmp(p, magic, sizeof(magic)) != 0))
		return NULL;
	n = key_get_be64(p + 48);
	if (n > STORE_LOG_FRAME_MAX || n > room - HEAD || key_get_be64(p + 24) != w->seq ||
	    (w->seq && key_get_be64(p + 16) != w->chain) || key_get_be64(p + 32) != w->layer ||
	    key_get_be64(p + 40) != w->batches)
		return NULL;
	if (key_get_be64(p + 8) !=
	    (is_older ? older_sum(p, p + HEAD, n) : frame_sum(p, XXH3_64bits(p + HEAD, n))))
		return NULL;
	*ret = n;
	return p + HEAD;
}

static int read_file(struct store_log *l, struct buf *ret)
{
	int r = io_read_file(l->s->dir_fd, l->name, MOST, ret);

	return r == -ENOENT ? 0 : r;
}

int store_log_read(struct store_log *l, store_layer layer, uint64_t batches,
		   int (*fn)(void *arg, const uint8_t *p, size_t n), void *arg)
{
	struct walk w = {.layer = layer, .batches = batches};
	cleanup_buf struct buf b = {0};
	size_t at = 0, n;
	int r = read_file(l, &b);

	while (r == 0 && at < b.len) {
		const uint8_t *p = frame_check(b.data + at, b.len - at, &w, &n);

		if (!p)
			break;
		if (w.seq++ == 0)
			w.chain = key_get_be64(b.data + at + 16);
		r = fn(arg, p, n);
		at += (HEAD + n + ALIGN - 1) / ALIGN * ALIGN;
	}
	return r;
}

/* ---- the file ---- */

static int pwrite_full(int fd, const uint8_t *p, size_t n, uint64_t off)
{
	while (n > 0) {
		ssize_t k = pwrite(fd, p, n, (off_t)off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ret_nerrno();
		p += k;
		n -= (size_t)k;
		off += (uint64_t)k;
	}
	return 0;
}

/* Written, not only allocated: what is written to it later changes nothing of the file system's own. */
static int fill(int fd, uint64_t size)
{
	cleanup_free uint8_t *zeros = calloc(1, FIRST);
	int r = zeros ? 0 : -ENOMEM;

	for (uint64_t at = 0; r == 0 && at < size; at += FIRST)
		r = pwrite_full(fd, zeros, FIRST, at);
	if (r == 0 && fsync(fd) < 0)
		r = ret_nerrno();
	return r;
}

/* Who tries takes the last of the room from everybody for a moment, at each fsync; a flush may need none. */
static bool roomy(const struct store_log *l)
{
	struct statvfs v;

	return fstatvfs(l->s->dir_fd, &v) < 0 ||
	       (uint64_t)v.f_bavail * v.f_frsize >= l->want + SPARE;
}

/* Always one of our own: a dead process may still be in the middle of writing to its own. */
static int file_make(struct store_log *l)
{
	int dirfd = l->s->dir_fd, r;
	cleanup_fd int fd = -1;

	file_close(l);
	(void)unlinkat(dirfd, l->fresh, 0);
	if (!roomy(l))
		return -ENOSPC;
	fd = openat(dirfd, l->fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return ret_nerrno();
	r = fill(fd, l->want);
	if (r == 0 && renameat(dirfd, l->fresh, dirfd, l->name) < 0)
		r = ret_nerrno();
	if (r < 0) {
		(void)unlinkat(dirfd, l->fresh, 0);
		return r;
	}
	if (fsync(dirfd) < 0)
		return ret_nerrno();
	l->size = l->want;
	l->fd = steal_fd(&fd);
	return 0;
}

/* The frames so far are void: another chain, from the front of the file. */
static int begin(struct store_log *l, store_layer layer, uint64_t batches)
{
	int r = 0;

	l->layer = layer;
	l->batches = batches;
	l->seq = l->at = 0;
	l->failed = true;
	if (getrandom(&l->chain, sizeof(l->chain), 0) != (ssize_t)sizeof(l->chain))
		return -EIO;
	if (l->fd < 0 || l->size < l->want)
		r = file_make(l);
	l->failed = r < 0;
	return r;
}

/* What is longer than a stage makes the file longer, which a flush of so much would as well; what is not waits for a flush, and
 * finds a longer file then. */
static int reach(struct store_log *l, uint64_t end, bool small)
{
	struct statvfs v;

	if (end <= l->size)
		return 0;
	if (small) {
		l->want = l->size * 4 < FILL_MOST ? l->size * 4 : FILL_MOST;
		return -EFBIG;
	}
	if (end > MOST)
		return -EFBIG;
	if (fstatvfs(l->fd, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize < end - l->size + SPARE)
		return -ENOSPC;
	l->size = end;
	return 0;
}

/* All of the stage, which ends on a whole page of the file. */
static int stage_write(struct store_log *l, bool last)
{
	int r = reach(l, l->at + l->written + l->frame.len, last && l->written == 0);

	if (r == 0 && l->written == 0 && l->frame.len == STAGE)
		memcpy(l->first, l->frame.data, ALIGN);
	if (r == 0)
		r = pwrite_full(l->fd, l->frame.data, l->frame.len, l->at + l->written);
	l->written += l->frame.len;
	buf_clear(&l->frame);
	return r;
}

/* What such a file holds of what was written before nobody knows. */
static int over(struct store_log *l, int r)
{
	if (r < 0 && r != -EFBIG)
		file_close(l);
	l->failed = r < 0;
	return r;
}

int store_log_begin(struct store_log *l, store_layer layer, uint64_t batches)
{
	int r = 0;

	if (l->layer != layer || l->batches != batches)
		r = begin(l, layer, batches);
	else if (l->failed)
		r = -EIO;
	if (r == 0 && !l->sum)
		l->sum = XXH3_createState();
	if (r == 0 && !l->sum)
		r = -ENOMEM;
	if (r == 0)
		r = buf_reserve(&l->frame, STAGE);
	if (r < 0)
		return r;
	XXH3_64bits_reset(l->sum);
	memset(l->frame.data, 0, HEAD);
	l->frame.len = HEAD;
	l->len = l->written = 0;
	return 0;
}

int store_log_put(struct store_log *l, const void *p, size_t n)
{
	const uint8_t *from = p;
	int r = n > STORE_LOG_FRAME_MAX - l->len ? -EFBIG : 0;

	XXH3_64bits_update(l->sum, p, n);
	l->len += n;
	while (r == 0 && n > 0) {
		size_t k = STAGE - l->frame.len < n ? STAGE - l->frame.len : n;

		memcpy(l->frame.data + l->frame.len, from, k);
		l->frame.len += k;
		from += k;
		n -= k;
		if (l->frame.len == STAGE)
			r = stage_write(l, false);
	}
	return r < 0 ? over(l, r) : 0;
}

void store_log_drop(struct store_log *l)
{
	l->failed = true;
}

static int slack(struct store_log *l)
{
	uint64_t end = l->size + SLACK < MOST ? l->size + SLACK : MOST;
	int r = 0;

	memset(l->frame.data, 0, STAGE);
	while (r == 0 && l->size < end) {
		uint64_t n = end - l->size < STAGE ? end - l->size : STAGE;

		r = pwrite_full(l->fd, l->frame.data, n, l->size);
		l->size += n;
	}
	return r;
}

static int finish(struct store_log *l)
{
	size_t pad = (ALIGN - l->frame.len % ALIGN) % ALIGN;
	bool staged = l->written > 0;
	struct stat st;
	int r = fstat(l->fd, &st) < 0 ? ret_nerrno() : 0;

	/* Removed with its directory: what is written now would go with the descriptor. */
	if (r == 0 && st.st_nlink == 0)
		r = -EIO;
	memset(l->frame.data + l->frame.len, 0, pad);
	l->frame.len += pad;
	if (r == 0 && !staged)
		head_make(l, l->frame.data);
	if (r == 0 && l->frame.len)
		r = stage_write(l, true);
	/* Room for what follows and is short. */
	if (r == 0 && staged && l->at + l->written == l->size)
		r = slack(l);
	/* The head of what took several stages: alone it says whether the rest is there. */
	if (r == 0 && staged) {
		head_make(l, l->first);
		r = pwrite_full(l->fd, l->first, ALIGN, l->at);
	}
	if (r == 0 && fdatasync(l->fd) < 0)
		r = ret_nerrno();
	return r;
}

int store_log_end(struct store_log *l)
{
	int r = over(l, finish(l));

	if (r == 0) {
		l->at += l->written;
		l->seq++;
	}
	return r;
}

int store_log_append(struct store_log *l, store_layer layer, uint64_t batches, const void *p,
		     size_t n)
{
	int r = store_log_begin(l, layer, batches);

	if (r == 0)
		r = store_log_put(l, p, n);
	return r == 0 ? store_log_end(l) : r;
}
