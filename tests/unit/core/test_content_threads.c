/* One file, many threads: writers that each own a part of it, a flusher, a copier, and a host file that
 * is completed while it is written to. Meant to be run under TSan as well. */
#include <errno.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "content_fixture.h"

#define WRITERS 3
#define PART    300000u /* no multiple of anything: neighbours share blocks */
#define ROUNDS  400

struct shared {
	struct fixture f;
	struct content_env *e;
	struct hostsrc *host;
	struct file x, copy;
	uint8_t base[WRITERS * PART];
	atomic_bool stop;
	atomic_int bad;
};

struct writer {
	struct shared *s;
	unsigned i;
	uint32_t seed;
	uint8_t mine[PART];
};

static uint32_t rnd(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) % n;
}

static void *write_part(void *arg)
{
	struct writer *w = arg;
	struct shared *s = w->s;
	uint8_t *buf = malloc(PART);

	if (!buf)
		tap_fatal("memory");
	memcpy(w->mine, s->base + w->i * PART, PART);
	for (int k = 0; k < ROUNDS; k++) {
		uint32_t off = rnd(&w->seed, PART), n = 1 + rnd(&w->seed, k % 8 ? 5000 : PART);
		uint64_t at = (uint64_t)w->i * PART + off;

		if (n > PART - off)
			n = PART - off;
		switch (rnd(&w->seed, 3)) {
		case 0:
			memset(w->mine + off, (int)(k + 1), n);
			if (content_write(s->x.c, at, w->mine + off, n) != (ssize_t)n)
				s->bad++;
			break;
		case 1:
			memset(w->mine + off, 0, n);
			if (content_fallocate(s->x.c, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					      at, n) < 0)
				s->bad++;
			break;
		default:
			if (content_read(s->x.c, at, buf, n) != (ssize_t)n ||
			    memcmp(buf, w->mine + off, n) != 0)
				s->bad++;
		}
	}
	free(buf);
	return NULL;
}

static void *flush_all(void *arg)
{
	struct shared *s = arg;

	for (int k = 0; !s->stop; k++) {
		struct content_snap *sn;
		bool ok = k % 5 != 0;

		if (content_snap_take(s->x.c, &sn) < 0) {
			s->bad++;
			continue;
		}
		if (ok && file_store(&s->x, sn) < 0)
			s->bad++;
		content_snap_done(sn, ok);
		content_env_set_view(s->e, s->f.v);
		if (file_flush(&s->copy) < 0)
			s->bad++;
	}
	return NULL;
}

static void *copy_around(void *arg)
{
	struct shared *s = arg;

	while (!s->stop) {
		if (content_copy(s->x.c, 0, s->copy.c, 0, WRITERS * PART) < 0 ||
		    content_seek(s->x.c, 0, SEEK_HOLE) < 0 || content_complete(s->x.c) < 0)
			s->bad++;
		(void)content_size(s->x.c);
		(void)content_blocks(s->x.c);
		(void)content_is_dirty(s->x.c);
		(void)content_incomplete(s->x.c);
		(void)content_env_dirty(s->e);
	}
	return NULL;
}

static void setup(struct shared *s)
{
	char dir[PATH_MAX];

	fixture_open(&s->f);
	fixture_path(&s->f, "host", dir);
	for (size_t i = 0; i < sizeof s->base; i++)
		s->base[i] = (uint8_t)(i / 1000);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	fixture_file(&s->f, "host/h", s->base, sizeof s->base);
	if (hostsrc_open(dir, 0, 0, NULL, &s->host) < 0 ||
	    content_env_new(s->f.s, s->f.v, NULL, &s->e) < 0)
		tap_fatal("open");
	file_of_host(&s->x, &s->f, s->e, s->host, "h");
	file_new(&s->copy, &s->f, s->e);
}

static void check_after(struct shared *s, struct writer *w)
{
	uint8_t *got = malloc(sizeof s->base);
	int differ = 0;

	if (!got)
		tap_fatal("memory");
	eq_int(file_flush(&s->x), 0, "a last flush");
	ok(!content_is_dirty(s->x.c), "clean");
	file_reopen(&s->x);
	eq_int(content_read(s->x.c, 0, got, sizeof s->base), sizeof s->base, "read all");
	for (unsigned i = 0; i < WRITERS; i++)
		differ += memcmp(got + i * PART, w[i].mine, PART) != 0;
	eq_int(differ, 0, "every part is what its writer left");
	free(got);
}

/* ---- a block that is there in part, changed at the moment at which a flush is through ---- */

#define BLOCKS 32u
#define PIECE  (32u << 10)
#define FLUSH  30

struct late {
	struct fixture f;
	struct content_env *e;
	struct file x;
	uint8_t piece[PIECE], block[STORE_BLOCK];
	atomic_int round, done, written; /* rounds */
	atomic_int at;                   /* the writer's block */
	int bad;
};

static void pieces(struct late *l, int round, const atomic_int *until)
{
	for (unsigned i = 0; i < BLOCKS && (!until || atomic_load(until) < round); i++) {
		memset(l->piece, round + 1, PIECE);
		memcpy(l->piece, &i, sizeof(i));
		if (content_write(l->x.c, (uint64_t)i * STORE_BLOCK + 4096, l->piece, PIECE) !=
		    (ssize_t)PIECE)
			l->bad++;
		atomic_store(&l->at, (int)i + 1);
	}
}

static void *write_late(void *arg)
{
	struct late *l = arg;

	for (int round = 1; round <= FLUSH; round++) {
		while (atomic_load(&l->round) < round)
			;
		pieces(l, round, &l->done);
		atomic_store(&l->written, round);
	}
	return NULL;
}

/* What no record names any more goes, and every block is there all the same. */
static int check_late(struct late *l)
{
	struct store_gc_opts o = {0};
	struct store_gc_result res;
	struct diag d = {0};
	int differ = 0;

	if (store_gc(l->f.s, &o, &d, &res) < 0)
		tap_fatal("store_gc: %s", d.text);
	for (unsigned i = 0; i < BLOCKS; i++)
		differ += content_read(l->x.c, (uint64_t)i * STORE_BLOCK, l->block, STORE_BLOCK) !=
				  (ssize_t)STORE_BLOCK ||
			  l->block[STORE_BLOCK - 1] != (uint8_t)(i + 1);
	return differ;
}

static void test_late(void)
{
	struct late *l = calloc(1, sizeof(*l));
	struct content_snap *sn;
	int differ = 0;
	pthread_t t;

	if (!l)
		tap_fatal("memory");
	fixture_open(&l->f);
	if (content_env_new(l->f.s, l->f.v, NULL, &l->e) < 0)
		tap_fatal("open");
	file_new(&l->x, &l->f, l->e);
	for (unsigned i = 0; i < BLOCKS; i++) {
		memset(l->block, (int)i + 1, STORE_BLOCK);
		if (content_write(l->x.c, (uint64_t)i * STORE_BLOCK, l->block, STORE_BLOCK) !=
		    (ssize_t)STORE_BLOCK)
			tap_fatal("write");
	}
	eq_int(file_flush(&l->x), 0, "blocks");
	file_reopen(&l->x);
	if (pthread_create(&t, NULL, write_late, l))
		tap_fatal("thread");
	for (int round = 1; round <= FLUSH; round++) {
		pieces(l, 100 + round, NULL);
		if (content_snap_take(l->x.c, &sn) < 0 || file_store(&l->x, sn) < 0)
			tap_fatal("flush");
		atomic_store(&l->at, 0);
		atomic_store(&l->round, round);
		while (atomic_load(&l->at) < 1 + round % 8)
			;
		content_snap_done(sn, true);
		atomic_store(&l->done, round);
		while (atomic_load(&l->written) < round)
			;
		differ += check_late(l);
	}
	(void)pthread_join(t, NULL);
	eq_int(l->bad, 0, "every write was taken");
	eq_int(differ, 0, "nothing lies over a chunk that was collected");
	eq_int(file_flush(&l->x), 0, "a last flush");
	ok(!content_lost(l->x.c), "which lost nothing");
	file_free(&l->x);
	content_env_free(l->e);
	fixture_close(&l->f);
	free(l);
}

int main(void)
{
	struct shared *s = calloc(1, sizeof *s);
	struct writer *w = calloc(WRITERS, sizeof *w);
	pthread_t t[WRITERS + 2];

	if (!s || !w)
		tap_fatal("memory");
	setup(s);
	for (unsigned i = 0; i < WRITERS; i++) {
		w[i].s = s;
		w[i].i = i;
		w[i].seed = i * 77 + 1;
		if (pthread_create(&t[i], NULL, write_part, &w[i]))
			tap_fatal("thread");
	}
	if (pthread_create(&t[WRITERS], NULL, flush_all, s) ||
	    pthread_create(&t[WRITERS + 1], NULL, copy_around, s))
		tap_fatal("thread");
	for (unsigned i = 0; i < WRITERS; i++)
		(void)pthread_join(t[i], NULL);
	s->stop = true;
	(void)pthread_join(t[WRITERS], NULL);
	(void)pthread_join(t[WRITERS + 1], NULL);
	eq_int(s->bad, 0, "no call failed and every writer read what it had written");
	check_after(s, w);
	file_free(&s->x);
	file_free(&s->copy);
	eq_int(content_env_dirty(s->e), 0, "nothing stays in the account");
	content_env_free(s->e);
	hostsrc_close(s->host);
	fixture_close(&s->f);
	free(w);
	free(s);
	test_late();
	return tap_done();
}
