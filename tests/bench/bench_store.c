/*
 * What the store's calls cost: `bench_store [DIR]`, a release build, a directory on the disk that is
 * to be measured. What is durable is measured by the wall clock, the rest by CPU time. One figure a
 * line; docs/store-format.md says what they are for.
 */
#include <time.h>

#include "store/store_internal.h"
#include "tests/unit/store/store_test.h"

static uint8_t *noise_data;
static uint8_t got[STORE_BLOCK];

static double clock_now(clockid_t id)
{
	struct timespec t;

	(void)clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double now(void)
{
	return clock_now(CLOCK_MONOTONIC);
}

/* For what does not wait: the same on a machine that has other work. */
static double cpu_now(void)
{
	return clock_now(CLOCK_PROCESS_CPUTIME_ID);
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void show(const char *what, double *v, size_t n, double unit, const char *unit_name)
{
	qsort(v, n, sizeof(*v), by_value);
	printf("%-52s p50 %8.2f  p99 %8.2f %s\n", what, v[n / 2] * unit, v[n * 99 / 100] * unit,
	       unit_name);
}

static void die_on(int r, const char *what)
{
	if (r < 0)
		tap_fatal("%s: %d", what, r);
}

static void chunks(struct store *s)
{
	enum {
		N = 2048,
		STEP = 512
	};
	struct store_chunk *c = calloc(N, sizeof(*c));
	uint64_t x = 88172645463325252u;
	double t;

	noise_data = malloc((size_t)N * STORE_BLOCK);
	if (!c || !noise_data)
		tap_fatal("no memory");
	for (size_t i = 0; i < (size_t)N * STORE_BLOCK; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(noise_data + i, &x, 8);
	}
	for (size_t i = 0; i < N; i++)
		c[i] = (struct store_chunk){noise_data + i * STORE_BLOCK, STORE_BLOCK, {{0}}};
	t = now();
	for (size_t i = 0; i < N; i += STEP)
		die_on(store_chunks_put(s, c + i, STEP), "put");
	t = now() - t;
	printf("%-52s %12.0f MB/s\n", "put, 128 KiB of noise, 64 MiB a call, durable",
	       N * (double)STORE_BLOCK / 1e6 / t);
	t = cpu_now();
	for (size_t i = 0; i < N; i += STEP)
		die_on(store_chunks_put(s, c + i, STEP), "put again");
	t = cpu_now() - t;
	printf("%-52s %12.0f MB/s\n", "put again (hash and look)",
	       N * (double)STORE_BLOCK / 1e6 / t);
	t = cpu_now();
	for (size_t i = 0; i < N; i++)
		if (store_chunk_get(s, &c[i * 7 % N].digest, got, sizeof(got)) != STORE_BLOCK)
			tap_fatal("get");
	t = cpu_now() - t;
	printf("%-52s %12.0f MB/s %8.1f us\n", "get, 128 KiB, warm, verified",
	       N * (double)STORE_BLOCK / 1e6 / t, t / N * 1e6);
	free(c);
	free(noise_data);
}

static void fill_names(struct store *s, store_layer open, int first, int n)
{
	struct store_batch *b;
	struct rec_inode rec = file_rec(0);
	char name[32];

	die_on(store_batch_begin(s, open, &b), "begin");
	for (int i = first; i < first + n; i++) {
		(void)snprintf(name, sizeof(name), "name-%d", i);
		name_set(b, 1, name, 1000 + (store_ino)i);
		die_on(store_batch_inode(b, 1000 + (store_ino)i, &rec), "inode");
	}
	die_on(store_batch_commit(b), "commit");
}

static int count(void *arg, const char *name, size_t len, const struct rec_name *n)
{
	(void)name;
	(void)len;
	(void)n;
	++*(int *)arg;
	return 0;
}

static void lookups(struct store *s, store_layer open, const char *when)
{
	enum {
		N = 200000
	};
	struct store_view *v;
	struct rec_inode rec;
	struct rec_name n;
	char name[32];
	int names = 0;
	double t;

	die_on(store_view_open(s, open, &v), "view");
	t = cpu_now();
	for (unsigned i = 0; i < N; i++) {
		int len = snprintf(name, sizeof(name), "name-%u", i * 7919 % 1000);

		die_on(store_view_name(v, 1, name, (size_t)len, &n), "name");
	}
	printf("name lookup, %-39s %12.0f ns\n", when, (cpu_now() - t) / N * 1e9);
	t = cpu_now();
	for (unsigned i = 0; i < N; i++) {
		die_on(store_view_inode(v, 1000 + i * 7919 % 1000, &rec), "inode");
		rec_inode_release(&rec);
	}
	printf("inode read,  %-39s %12.0f ns\n", when, (cpu_now() - t) / N * 1e9);
	t = cpu_now();
	die_on(store_view_names(v, 1, count, &names), "names");
	printf("listing,     %-39s %12.0f us (%d names)\n", when, (cpu_now() - t) * 1e6, names);
	store_view_close(v);
}

static void commit_some(struct store *s, struct store_env *e, int first, int n)
{
	static double batch[20000], seal[20000], view[20000];

	for (int i = 0; i < n; i++) {
		char label[32];
		struct store_commit c;
		struct store_view *v;
		double t = now();

		fill_names(s, e->open, (first + i) * 10 % 1000, 10);
		batch[i] = now() - t;
		(void)snprintf(label, sizeof(label), "commit-%d", first + i);
		c = commit_of(label);
		t = now();
		die_on(store_env_seal(s, e, &c), "seal");
		seal[i] = now() - t;
		t = cpu_now();
		die_on(store_view_open(s, e->open, &v), "view");
		view[i] = cpu_now() - t;
		store_view_close(v);
	}
	printf("-- %d commits, after %d earlier ones\n", n, first);
	show("batch commit, 20 records, durable", batch, (size_t)n, 1e6, "us");
	show("seal, durable", seal, (size_t)n, 1e6, "us");
	show("view of the new layer", view, (size_t)n, 1e6, "us");
}

static void moves(struct store *s, struct store_env *e, store_layer far)
{
	static double took[200];
	store_layer head = e->head;

	for (int i = 0; i < 200; i++) {
		double t = now();

		die_on(store_env_move(s, e, i % 2 ? head : far, "rollback"), "move");
		took[i] = now() - t;
	}
	show("move to the first commit and back, durable", took, 200, 1e6, "us");
}

static void reopen(const char *dir, store_layer layer, uint64_t layers)
{
	double t = cpu_now(), v;
	struct store *s = open_store(dir);
	struct store_view *view;

	t = cpu_now() - t;
	v = cpu_now();
	die_on(store_view_open(s, layer, &view), "view");
	v = cpu_now() - v;
	printf("open %.2f ms, first view over %llu layers %.2f ms\n", t * 1e3,
	       (unsigned long long)layers, v * 1e3);
	store_view_close(view);
	store_close(s);
}

int main(int argc, char **argv)
{
	char dir[64];
	struct store *s;
	struct store_env e;
	struct store_stats st;
	store_layer first;

	if (argc > 1 && setenv("TMPDIR", argv[1], 1) < 0)
		tap_fatal("setenv");
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	make_dir(dir);
	s = open_store(dir);
	chunks(s);
	die_on(store_env_create(s, "bench", 0, NULL, &e), "create");
	fill_names(s, e.open, 0, 1000);
	lookups(s, e.open, "1,000 names, no history");
	first = e.open;
	commit_some(s, &e, 0, 1000);
	lookups(s, e.open, "after 1,000 commits of 10 changes");
	moves(s, &e, first);
	commit_some(s, &e, 1000, 9000);
	lookups(s, e.open, "after 10,000 commits");
	moves(s, &e, first);
	die_on(store_stats(s, &st), "stats");
	printf("meta file %.1f MB, chunk file %.1f MB for %.1f MB\n",
	       (double)st.meta_file_bytes / 1e6, (double)st.chunk_file_bytes / 1e6,
	       2048 * (double)STORE_BLOCK / 1e6);
	store_close(s);
	reopen(dir, e.open, st.layers);
	tree_remove(dir);
	return 0;
}
