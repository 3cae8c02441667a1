/*
 * The collector on a store of many files, and what a writer beside it sees. Usage: bench_gc DIR [FILES]. DIR must
 * not exist; it takes 45 KiB a file. `meson benchmark gc` runs it small.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/store.h"

#define FILE_LEN 32000 /* 8 pages of LMDB's */
#define STEP     64
#define MAX_LAT  200000

static void die_on(int r, const char *what)
{
	if (r >= 0)
		return;
	(void)fprintf(stderr, "bench_gc: %s: %s\n", what, strerror(-r));
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fill(uint8_t *p, uint64_t seed)
{
	for (size_t i = 0; i < FILE_LEN; i += 8) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		memcpy(p + i, &seed, 8);
	}
}

/* Files [first, first + n), each one block. */
static void write_files(struct store *s, store_layer open, uint64_t first, uint64_t n,
			uint64_t seed)
{
	static uint8_t bytes[STEP][FILE_LEN];

	for (uint64_t i = 0; i < n; i += STEP) {
		struct store_chunk c[STEP];
		struct store_batch *b;
		uint64_t k, m = n - i < STEP ? n - i : STEP;

		for (k = 0; k < m; k++) {
			fill(bytes[k], seed + i + k);
			c[k] = (struct store_chunk){.data = bytes[k], .len = FILE_LEN};
		}
		die_on(store_chunks_put(s, c, m), "put");
		die_on(store_batch_begin(s, open, &b), "batch");
		for (k = 0; k < m; k++) {
			struct rec_inode r = {.mode = S_IFREG | 0644,
					      .nlink = 1,
					      .size = FILE_LEN,
					      .content = REC_CHUNK,
					      .chunk = c[k].digest,
					      .chunk_len = FILE_LEN};
			struct rec_name name = {1000 + first + i + k, S_IFREG};
			char text[32];

			(void)snprintf(text, sizeof(text), "f%llu",
				       (unsigned long long)(first + i + k));
			die_on(store_batch_inode(b, name.ino, &r), "inode");
			die_on(store_batch_name(b, 1, text, strlen(text), &name), "name");
		}
		die_on(store_batch_commit(b), "commit");
	}
}

/* ---- a writer that commits one file after the other ---- */

struct writer {
	struct store *s;
	store_layer open;
	bool stop;
	double lat[MAX_LAT];
	size_t n;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	static uint8_t bytes[FILE_LEN];
	uint64_t seed = UINT64_C(1) << 60;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED) && w->n < MAX_LAT) {
		struct store_chunk c = {.data = bytes, .len = FILE_LEN};
		struct store_extent x = {.block = w->n, .len = FILE_LEN};
		struct store_batch *b;
		double t;

		fill(bytes, seed++);
		t = now_s();
		die_on(store_chunks_put(w->s, &c, 1), "put");
		x.chunk = c.digest;
		die_on(store_batch_begin(w->s, w->open, &b), "batch");
		die_on(store_batch_extent(b, 500, &x), "extent");
		die_on(store_batch_commit(b), "commit");
		w->lat[w->n++] = now_s() - t;
		(void)nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
	}
	return NULL;
}

static int by_time(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void start(struct writer *w, pthread_t *t)
{
	w->n = 0;
	w->stop = false;
	die_on(-pthread_create(t, NULL, writer_main, w), "thread");
}

static void finish(struct writer *w, pthread_t t, const char *what)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
	(void)pthread_join(t, NULL);
	if (!w->n)
		return;
	qsort(w->lat, w->n, sizeof(w->lat[0]), by_time);
	printf("a put and a commit of one file, %s: p50 %.1f ms, p99 %.1f ms, max %.1f ms (%zu of them)\n",
	       what, w->lat[w->n / 2] * 1e3, w->lat[w->n * 99 / 100] * 1e3, w->lat[w->n - 1] * 1e3,
	       w->n);
}

static long peak_kib(void)
{
	char line[128];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	if (f)
		(void)fclose(f);
	return kib;
}

static long most_kib;

static bool go_on(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	long kib = peak_kib();

	(void)arg;
	(void)phase;
	(void)done;
	(void)total;
	most_kib = kib > most_kib ? kib : most_kib;
	return true;
}

static void collect(struct store *s, struct store_gc_opts o, const char *what)
{
	struct store_gc_result g;
	struct diag d = {0};
	double t = now_s();
	long before = peak_kib();
	int r;

	most_kib = before;
	o.go_on = go_on;
	r = store_gc(s, &o, &d, &g);
	if (r < 0) {
		(void)fprintf(stderr, "bench_gc: %s\n", d.text);
		exit(1);
	}
	printf("%s: %.2f s, %ld KiB of memory; %llu records and %llu chunks (%llu MiB) go, %llu chunks stay, %llu "
	       "MiB back to the disk\n",
	       what, now_s() - t, most_kib - before, (unsigned long long)g.records,
	       (unsigned long long)g.chunks, (unsigned long long)g.chunk_bytes >> 20,
	       (unsigned long long)g.live_chunks, (unsigned long long)g.given_back >> 20);
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/rattan-bench-gc-XXXXXX";
	uint64_t files = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000;
	const char *where = argc > 1 ? argv[1] : mkdtemp(dir);
	static struct writer w;
	struct store_env a, b;
	struct store *s;
	struct diag d = {0};
	pthread_t t;

	die_on(store_open(where, STORE_CREATE, &d, &s), d.text);
	die_on(store_env_create(s, "a", 0, NULL, &a), "a");
	die_on(store_env_create(s, "b", 0, NULL, &b), "b");
	write_files(s, a.open, 0, files, 1);
	write_files(s, a.open, 0, files / 10, UINT64_C(1) << 40);
	write_files(s, b.open, files, files / 5, UINT64_C(1) << 41);
	die_on(store_env_remove(s, "b"), "remove");
	printf("%llu files of %d bytes, %llu written over, %llu in a removed environment\n",
	       (unsigned long long)files, FILE_LEN, (unsigned long long)files / 10,
	       (unsigned long long)files / 5);
	w.s = s;
	w.open = a.open;
	start(&w, &t);
	sleep(argc > 2 ? 10 : 1);
	finish(&w, t, "alone");
	collect(s, (struct store_gc_opts){.dry_run = true}, "dry run");
	start(&w, &t);
	collect(s, (struct store_gc_opts){0}, "collection");
	finish(&w, t, "beside it");
	start(&w, &t);
	collect(s, (struct store_gc_opts){.shrink = true}, "nothing to do, and shrink");
	finish(&w, t, "beside that");
	store_close(s);
	return 0;
}
