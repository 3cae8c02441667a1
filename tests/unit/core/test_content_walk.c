/* A random walk: files against plain byte arrays, with flushes (some failing, some with writes in
 * between), reopening and sealed layers on the way. RATTAN_SEED repeats one. */
#include <errno.h>
#include <linux/falloc.h>
#include <time.h>

#include "content_fixture.h"

#define MAX   (5u * STORE_BLOCK + 777)
#define FILES 3
#define STEPS 1500

struct model {
	struct file x;
	uint8_t *bytes; /* MAX, zero beyond size */
	size_t size;
	bool recorded;
};

struct walk {
	struct fixture f;
	struct content_env *e;
	struct hostsrc *host;
	struct model m[FILES];
	uint64_t rnd;
	uint8_t tmp[MAX + 1];
	const char *bad; /* what went wrong first */
	int step;
};

static uint32_t rnd(struct walk *w, uint32_t n)
{
	w->rnd = w->rnd * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((w->rnd >> 33) % n);
}

static void fail(struct walk *w, const char *what)
{
	if (!w->bad)
		w->bad = what;
}

/* Offsets that like to lie at the edges of blocks and pages. */
static size_t offset(struct walk *w, size_t max)
{
	size_t o = rnd(w, (uint32_t)max + 1);

	switch (rnd(w, 4)) {
	case 0:
		return o / STORE_BLOCK * STORE_BLOCK;
	case 1:
		return o / 4096 * 4096;
	case 2:
		return rnd(w, 3000) < max ? rnd(w, 2000) % (max + 1) : o;
	default:
		return o;
	}
}

static void range(struct walk *w, size_t *off, size_t *len)
{
	size_t a = offset(w, MAX), b = offset(w, MAX);

	if (rnd(w, 2))
		b = a + rnd(w, 5000);
	if (b > MAX)
		b = MAX;
	*off = a < b ? a : b;
	*len = a < b ? b - a : a - b;
}

static void do_write(struct walk *w, struct model *m)
{
	size_t off, len;

	range(w, &off, &len);
	if (len == 0)
		return;
	memset(w->tmp, rnd(w, 4) ? (int)(1 + rnd(w, 255)) : 0, len);
	for (size_t i = 0; i < len; i += 1 + rnd(w, 4000))
		w->tmp[i] = (uint8_t)rnd(w, 256);
	if (content_write(m->x.c, off, w->tmp, len) != (ssize_t)len)
		fail(w, "write");
	memcpy(m->bytes + off, w->tmp, len);
	if (off + len > m->size)
		m->size = off + len;
}

static void do_truncate(struct walk *w, struct model *m)
{
	size_t size = rnd(w, 6) ? offset(w, MAX) : 0;

	if (content_truncate(m->x.c, size) < 0)
		fail(w, "truncate");
	if (size < m->size)
		memset(m->bytes + size, 0, m->size - size);
	m->size = size;
}

static void do_fallocate(struct walk *w, struct model *m)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
	int mode = modes[rnd(w, 5)];
	size_t off, len;

	range(w, &off, &len);
	if (len == 0)
		return;
	if (content_fallocate(m->x.c, mode, off, len) < 0)
		fail(w, "fallocate");
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(m->bytes + off, 0, len);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && off + len > m->size)
		m->size = off + len;
}

static void do_copy(struct walk *w, struct model *in, struct model *out)
{
	size_t from = offset(w, MAX), to = offset(w, MAX), n = offset(w, MAX), did = 0;

	if (rnd(w, 2))
		to = to / STORE_BLOCK * STORE_BLOCK + from % STORE_BLOCK;
	if (to > MAX || (in == out && !(from + n <= to || to + n <= from)))
		return;
	if (n > MAX - to)
		n = MAX - to;
	if (in == out && from + n > in->size) /* it grows while it is copied */
		n = from < in->size ? in->size - from : 0;
	for (;;) {
		ssize_t r = content_copy(in->x.c, from + did, out->x.c, to + did, n - did);

		if (r < 0)
			fail(w, "copy");
		if (r <= 0)
			break;
		did += (size_t)r;
	}
	if (did != (from >= in->size ? 0 : n < in->size - from ? n : in->size - from))
		fail(w, "copy: count");
	memmove(out->bytes + to, in->bytes + from, did);
	if (did && to + did > out->size)
		out->size = to + did;
}

static void do_read(struct walk *w, struct model *m)
{
	size_t off, len, want;

	range(w, &off, &len);
	want = off >= m->size ? 0 : len < m->size - off ? len : m->size - off;
	memset(w->tmp, 0xee, sizeof w->tmp);
	if (content_read(m->x.c, off, w->tmp, len) != (ssize_t)want)
		fail(w, "read: count");
	else if (memcmp(w->tmp, m->bytes + off, want) != 0)
		fail(w, "read: bytes");
}

static void check_seek(struct walk *w, struct model *m)
{
	int64_t at = 0, end;

	while ((size_t)at < m->size) {
		int64_t data = content_seek(m->x.c, at, SEEK_DATA);

		end = data == -ENXIO ? (int64_t)m->size : data;
		if (end < at) {
			fail(w, "seek: data");
			return;
		}
		for (int64_t i = at; i < end; i++)
			if (m->bytes[i]) {
				fail(w, "seek: hole over bytes");
				return;
			}
		if (data == -ENXIO)
			return;
		at = content_seek(m->x.c, data, SEEK_HOLE);
		if (at <= data || (size_t)at > m->size) {
			fail(w, "seek: hole");
			return;
		}
	}
	if (content_seek(m->x.c, (int64_t)m->size, SEEK_DATA) != -ENXIO)
		fail(w, "seek: end");
}

static void check_all(struct walk *w, struct model *m)
{
	if (content_size(m->x.c) != m->size)
		fail(w, "size");
	else if (content_read(m->x.c, 0, w->tmp, MAX) != (ssize_t)m->size ||
		 memcmp(w->tmp, m->bytes, m->size) != 0)
		fail(w, "whole content");
	if (content_blocks(m->x.c) > (MAX + STORE_BLOCK) / 512u + 8)
		fail(w, "blocks");
}

static void do_flush(struct walk *w, struct model *m)
{
	struct content_snap *sn;
	bool ok = rnd(w, 4) != 0, again = rnd(w, 4) == 0;

	if (content_snap_take(m->x.c, &sn) < 0) {
		fail(w, "snap_take");
		return;
	}
	for (uint32_t n = rnd(w, 3); n > 0; n--) { /* while the flush is under way */
		if (rnd(w, 2))
			do_write(w, m);
		else if (rnd(w, 2))
			do_truncate(w, m);
		else
			do_fallocate(w, m);
	}
	if (again && content_snaps_put(&sn, 1) < 0)
		fail(w, "snaps_put");
	if (ok && file_store(&m->x, sn) < 0)
		fail(w, "snap_store");
	check_all(w, m);
	content_snap_done(sn, ok);
	m->recorded |= ok;
}

static void do_reopen(struct walk *w, struct model *m)
{
	if (file_flush(&m->x) < 0)
		fail(w, "flush");
	if (content_is_dirty(m->x.c))
		fail(w, "dirty after a flush");
	m->recorded = true;
	if (rnd(w, 3) == 0) {
		struct store_view *old = fixture_seal(&w->f);

		content_env_set_view(w->e, w->f.v);
		store_view_close(old);
	}
	file_reopen(&m->x);
}

static void do_complete(struct walk *w, struct model *m)
{
	if (content_complete(m->x.c) < 0)
		fail(w, "complete");
	if (content_incomplete(m->x.c))
		fail(w, "incomplete");
}

static void step(struct walk *w)
{
	struct model *m = &w->m[rnd(w, FILES)];

	switch (rnd(w, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		do_write(w, m);
		break;
	case 4:
		do_truncate(w, m);
		break;
	case 5:
	case 6:
		do_fallocate(w, m);
		break;
	case 7:
	case 8:
		do_copy(w, m, &w->m[rnd(w, FILES)]);
		break;
	case 9:
	case 10:
		do_flush(w, m);
		break;
	case 11:
		do_reopen(w, m);
		break;
	case 12:
		check_seek(w, m);
		break;
	case 13:
		if (rnd(w, 8) == 0)
			do_complete(w, m);
		break;
	default:
		do_read(w, m);
	}
	check_all(w, m);
}

static void start(struct walk *w)
{
	char dir[PATH_MAX];
	static uint8_t host[3 * STORE_BLOCK + 99];

	fixture_open(&w->f);
	for (size_t i = 0; i < sizeof host; i++)
		host[i] = (uint8_t)(i * 7 + i / 999);
	fixture_path(&w->f, "host", dir);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	fixture_file(&w->f, "host/h", host, sizeof host);
	if (hostsrc_open(dir, 0, 0, NULL, &w->host) < 0 ||
	    content_env_new(w->f.s, w->f.v, NULL, &w->e) < 0)
		tap_fatal("open");
	for (int i = 0; i < FILES; i++) {
		struct model *m = &w->m[i];

		m->bytes = calloc(1, MAX + STORE_BLOCK);
		if (!m->bytes)
			tap_fatal("memory");
		if (i == 0) {
			file_of_host(&m->x, &w->f, w->e, w->host, "h");
			memcpy(m->bytes, host, sizeof host);
			m->size = sizeof host;
		} else {
			file_new(&m->x, &w->f, w->e);
		}
	}
}

static void walk(uint64_t seed)
{
	struct walk *w = calloc(1, sizeof *w);

	if (!w)
		tap_fatal("memory");
	w->rnd = seed;
	start(w);
	for (w->step = 0; w->step < STEPS && !w->bad; w->step++)
		step(w);
	ok(!w->bad, "walk with seed %llu: %s at step %d", (unsigned long long)seed,
	   w->bad ? w->bad : "fine", w->step);
	for (int i = 0; i < FILES; i++) {
		file_free(&w->m[i].x);
		free(w->m[i].bytes);
	}
	eq_int(content_env_dirty(w->e), 0, "nothing stays in the account");
	content_env_free(w->e);
	hostsrc_close(w->host);
	fixture_close(&w->f);
	free(w);
}

int main(void)
{
	const char *s = getenv("RATTAN_SEED");

	if (s) {
		walk(strtoull(s, NULL, 10));
		return tap_done();
	}
	for (uint64_t seed = 1; seed <= (getenv("RATTAN_LONG") ? 40 : 2); seed++)
		walk(seed);
	walk((uint64_t)time(NULL) ^ (uint64_t)getpid() << 32);
	return tap_done();
}
