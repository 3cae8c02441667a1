/*
 * store: S2. A process that works on the store is killed at any moment, many times over; what it had
 * reported as done is there, and no batch is there by half.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/store/store_test.h"

#define ROUNDS    25
#define UNITS_MAX 100000

static uint8_t bytes[40000], got[STORE_BLOCK];
static bool reported[UNITS_MAX]; /* the unit, and the seal after every tenth */

/* The content of unit @i: sizes on both sides of a page. */
static size_t content(uint64_t i)
{
	size_t n = i % 3 == 0 ? 3000 : 5000 + (size_t)(i % 7) * 5000;
	uint64_t seed = i * 2654435761u + 1;

	for (size_t k = 0; k < n; k++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		bytes[k] = (uint8_t)(seed >> 56);
	}
	return n;
}

static void label_of(uint64_t i, char out[static 32])
{
	(void)snprintf(out, 32, "unit-%llu", (unsigned long long)i);
}

static int unit_batch(struct store *s, store_layer open, uint64_t i)
{
	struct store_chunk c = {.data = bytes, .len = content(i)};
	struct store_extent x = {.len = (uint32_t)c.len};
	struct store_batch *b;
	char f[32], g[32];
	int r = store_chunks_put(s, &c, 1);

	if (r == 0)
		r = store_batch_begin(s, open, &b);
	if (r < 0)
		return r;
	x.chunk = c.digest;
	(void)snprintf(f, sizeof(f), "f%llu", (unsigned long long)i);
	(void)snprintf(g, sizeof(g), "g%llu", (unsigned long long)i);
	name_set(b, 1, f, 1000 + i);
	if (store_batch_extent(b, 1000 + i, &x) < 0)
		tap_fatal("extent");
	name_set(b, 1, g, 1000 + i);
	return store_batch_commit(b);
}

/* Work until killed, writing each finished unit's number to @fd. */
static int worker(const char *dir, int fd, uint64_t i)
{
	struct store *s = open_store(dir);
	struct store_env e;

	if (store_env_get(s, "e", &e) < 0)
		return 1;
	for (;; i++) {
		int r = unit_batch(s, e.open, i);

		if (r == 0 && i % 10 == 9) {
			char label[32];
			struct store_commit c;

			label_of(i, label);
			c = commit_of(label);
			r = store_env_seal(s, &e, &c);
		}
		if (r < 0) {
			(void)fprintf(stderr, "# unit %llu: %d\n", (unsigned long long)i, r);
			return 1;
		}
		if (write(fd, &i, sizeof(i)) != sizeof(i))
			return 1;
	}
}

static bool unit_is_whole(struct store *s, store_layer layer, uint64_t i)
{
	struct store_extent x;
	struct store_view *v;
	struct rec_name n;
	char name[32];
	size_t len;
	bool whole;

	if (store_view_open(s, layer, &v) < 0)
		return false;
	(void)snprintf(name, sizeof(name), "g%llu", (unsigned long long)i);
	whole = store_view_name(v, 1, name, strlen(name), &n) == 0 && n.ino == 1000 + i &&
		store_view_extent(v, 1000 + i, 0, &x) == 0;
	store_view_close(v);
	len = content(i);
	return whole && store_chunk_get(s, &x.chunk, got, sizeof(got)) == (ssize_t)len &&
	       !memcmp(got, bytes, len);
}

/* *@next: the first number whose unit is not there at all. */
static bool verify(const char *dir, uint64_t acked, uint64_t *next)
{
	struct store *s = open_store(dir);
	struct store_env e;
	uint64_t i = 0;
	bool good = store_env_get(s, "e", &e) == 0;

	for (; good; i++) {
		char f[32], label[32];
		struct store_commit c;

		(void)snprintf(f, sizeof(f), "f%llu", (unsigned long long)i);
		if (name_at(s, e.open, 1, f) == -1)
			break;
		good = unit_is_whole(s, e.open, i);
		/* A worker may be killed between a batch and its seal; the next one goes on after. */
		if (good && i % 10 == 9 && i < UNITS_MAX && reported[i]) {
			label_of(i, label);
			c = commit_of(label);
			good = store_commit_get(s, &c.id, &c) == 0;
			if (good)
				store_commit_release(&c);
		}
	}
	store_close(s);
	*next = i;
	return good && i >= acked;
}

static uint64_t note(uint64_t i)
{
	if (i < UNITS_MAX)
		reported[i] = true;
	return i + 1;
}

/* Start a worker, kill it after @us, and count what it acknowledged. */
static uint64_t one_round(const char *dir, uint64_t first, unsigned us)
{
	uint64_t acked = first, i;
	char fd_text[16], first_text[32];
	struct timespec t = {0, (long)us * 1000};
	int p[2], status;
	pid_t pid;

	if (pipe(p) < 0)
		tap_fatal("pipe");
	(void)snprintf(fd_text, sizeof(fd_text), "%d", p[1]);
	(void)snprintf(first_text, sizeof(first_text), "%llu", (unsigned long long)first);
	pid = fork();
	if (pid == 0) {
		(void)close(p[0]);
		(void)execl("/proc/self/exe", "test_crash", dir, fd_text, first_text, (char *)NULL);
		_exit(1);
	}
	(void)close(p[1]);
	/* the clock starts when it works */
	if (pid < 0 || read(p[0], &i, sizeof(i)) != sizeof(i))
		tap_fatal("the worker did not start");
	acked = note(i);
	(void)nanosleep(&t, NULL);
	(void)kill(pid, SIGKILL);
	while (read(p[0], &i, sizeof(i)) == sizeof(i))
		acked = note(i);
	(void)close(p[0]);
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		tap_fatal("the worker ended by itself");
	return acked;
}

int main(int argc, char **argv)
{
	char dir[64];
	struct store_env e;
	struct store *s;
	uint64_t next = 0, acked;
	unsigned seed = (unsigned)getpid();

	if (argc == 4)
		return worker(argv[1], atoi(argv[2]), strtoull(argv[3], NULL, 10));
	make_dir(dir);
	s = open_store(dir);
	if (store_env_create(s, "e", 0, NULL, &e) < 0)
		tap_fatal("create");
	store_close(s);
	for (int i = 0; i < ROUNDS; i++) {
		seed = seed * 1103515245 + 12345;
		acked = one_round(dir, next, 500 + (seed >> 8) % 30000);
		ok(verify(dir, acked, &next), "round %d: %llu units acknowledged, %llu there", i,
		   (unsigned long long)acked, (unsigned long long)next);
	}
	tree_remove(dir);
	return tap_done();
}
