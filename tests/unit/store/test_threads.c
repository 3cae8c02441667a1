/* store: many readers beside a writer, in threads and in processes. */
#include <pthread.h>
#include <sys/wait.h>

#include "tests/unit/store/store_test.h"

#define READERS 3
#define UNITS   150

struct shared {
	struct store *s;
	store_layer layer;
	unsigned done;  /* atomic: units committed */
	unsigned wrong; /* atomic */
	unsigned reads; /* atomic */
};

static uint8_t text[6000];

static void wrong(struct shared *sh)
{
	(void)__atomic_add_fetch(&sh->wrong, 1, __ATOMIC_RELAXED);
}

static int count_names(void *arg, const char *name, size_t len, const struct rec_name *n)
{
	unsigned *count = arg;

	(void)name;
	(void)len;
	(void)n;
	(*count)++;
	return 0;
}

/* What was committed before a call began is seen by it, whole. */
static void read_once(struct shared *sh, struct store_view *v, uint8_t *buf)
{
	unsigned done = __atomic_load_n(&sh->done, __ATOMIC_ACQUIRE), count = 0;
	struct store_extent x;
	struct rec_name n;
	char name[32];

	(void)__atomic_add_fetch(&sh->reads, 1, __ATOMIC_RELAXED);
	if (store_view_names(v, 1, count_names, &count) < 0 || count % 2 || count < 2 * done)
		wrong(sh);
	if (!done)
		return;
	(void)snprintf(name, sizeof(name), "b%u", done - 1);
	if (store_view_name(v, 1, name, strlen(name), &n) < 0 || n.ino != 100 + done - 1)
		wrong(sh);
	if (store_view_extent(v, 100 + done - 1, 0, &x) < 0 ||
	    store_chunk_get(sh->s, &x.chunk, buf, STORE_BLOCK) != (ssize_t)sizeof(text))
		wrong(sh);
}

static void *reader(void *arg)
{
	struct shared *sh = arg;
	uint8_t *buf = malloc(STORE_BLOCK);

	while (buf && __atomic_load_n(&sh->done, __ATOMIC_ACQUIRE) < UNITS) {
		struct store_view *v;

		if (store_view_open(sh->s, sh->layer, &v) < 0) {
			wrong(sh);
			break;
		}
		for (int i = 0; i < 5; i++)
			read_once(sh, v, buf);
		store_view_close(v);
	}
	free(buf);
	return NULL;
}

static int unit(struct store *s, store_layer layer, const char *salt, unsigned i)
{
	struct store_chunk c = {.data = text, .len = sizeof(text)};
	struct store_extent x = {.len = sizeof(text)};
	struct store_batch *b;
	char name[32];
	int r;

	(void)snprintf((char *)text, sizeof(text), "%s%u", salt, i);
	r = store_chunks_put(s, &c, 1);
	if (r == 0)
		r = store_batch_begin(s, layer, &b);
	if (r < 0)
		return r;
	x.chunk = c.digest;
	(void)snprintf(name, sizeof(name), "a%u", i);
	name_set(b, 1, name, 100 + i);
	(void)snprintf(name, sizeof(name), "b%u", i);
	name_set(b, 1, name, 100 + i);
	if (store_batch_extent(b, 100 + i, &x) < 0)
		tap_fatal("extent");
	return store_batch_commit(b);
}

static int write_env(struct store *s, const char *name, unsigned *done)
{
	struct store_env e;
	int r = store_env_get(s, name, &e);

	for (unsigned i = 0; r == 0 && i < UNITS; i++) {
		r = unit(s, e.open, name, i);
		if (r == 0 && done)
			__atomic_store_n(done, i + 1, __ATOMIC_RELEASE);
	}
	return r;
}

static pid_t other_process(const char *dir)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)execl("/proc/self/exe", "test_threads", dir, (char *)NULL);
		_exit(1);
	}
	return pid;
}

static int as_other(const char *dir)
{
	struct store *s = open_store(dir);
	int r = write_env(s, "theirs", NULL);

	store_close(s);
	return r < 0;
}

int main(int argc, char **argv)
{
	char dir[64], name[32];
	struct store_env mine, theirs;
	struct shared sh = {0};
	pthread_t t[READERS];
	int status = 0, n = 0;
	pid_t pid;

	if (argc == 2)
		return as_other(argv[1]);
	make_dir(dir);
	sh.s = open_store(dir);
	if (store_env_create(sh.s, "mine", 0, NULL, &mine) < 0 ||
	    store_env_create(sh.s, "theirs", 0, NULL, &theirs) < 0)
		tap_fatal("create");
	sh.layer = mine.open;
	pid = other_process(dir);
	for (; n < READERS; n++)
		if (pthread_create(&t[n], NULL, reader, &sh) != 0)
			tap_fatal("thread");
	eq_int(write_env(sh.s, "mine", &sh.done), 0, "the writer's units");
	__atomic_store_n(&sh.done, UNITS, __ATOMIC_RELEASE);
	while (n--)
		(void)pthread_join(t[n], NULL);
	eq_int(sh.wrong, 0, "no reader saw a half or a lost unit");
	ok(sh.reads > 0, "%u reads", sh.reads);
	ok(waitpid(pid, &status, 0) == pid && status == 0, "the other process wrote its own");
	(void)snprintf(name, sizeof(name), "b%d", UNITS - 1);
	eq_int(name_at(sh.s, theirs.open, 1, name), 100 + UNITS - 1, "which is there");
	eq_int(name_at(sh.s, mine.open, 1, name), 100 + UNITS - 1, "beside ours");
	store_close(sh.s);
	tree_remove(dir);
	return tap_done();
}
