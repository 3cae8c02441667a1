/*
 * Memory: what the core holds for inodes that the front end has given back is given back as well; beyond a
 * number of inodes the front end is asked for some; and a directory of many names is no slower than many
 * directories of few. test_core_memory [files]
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/io.h"
#include "tests/lib/sanitizer.h"
#include "tests/unit/core/ovl_fixture.h"

#define PER_DIR 1000

/* A front end that holds what it looked up, as the kernel does, until it is asked for it. */
struct front {
	struct fx f;
	store_ino *held; /* one reference each */
	size_t n, cap;
	unsigned dirs;
	atomic_size_t asked;
	struct {
		pthread_mutex_t lock;
		store_ino *v; /* what we were asked for */
		size_t n, cap;
	} prune;
};

static void grow(store_ino **v, size_t *cap)
{
	*cap = *cap ? *cap * 2 : 1024;
	*v = realloc(*v, *cap * sizeof(**v));
	if (!*v)
		tap_fatal("memory");
}

static void hold(struct front *k, store_ino ino)
{
	if (k->n == k->cap)
		grow(&k->held, &k->cap);
	k->held[k->n++] = ino;
}

static void forget_all(struct front *k)
{
	while (k->n > 0)
		ovl_forget(k->f.o, k->held[--k->n], 1);
}

static size_t heap(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* A sanitizer's allocator counts nothing there, and pads what it gives. */
static bool heap_counts(void)
{
	size_t before = heap();
	void *p = malloc(1 << 20);
	bool grew = p && heap() >= before + (1 << 20);

	free(p);
	return grew;
}

static uint64_t inodes(struct front *k)
{
	struct ovl_counts c;

	ovl_counts(k->f.o, &c);
	return c.inodes;
}

static int skip(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct front *k = arg;

	(void)name;
	if (cookie > 2 && e->attr.st.st_nlink)
		hold(k, e->ino);
	return 0;
}

static store_ino make_dir(struct front *k)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;
	char name[32];

	snprintf(name, sizeof(name), "d%u", k->dirs++);
	if (ovl_mkdir(k->f.o, STORE_ROOT_INO, name, 0755, &c, &e) < 0)
		tap_fatal("mkdir");
	hold(k, e.ino);
	return e.ino;
}

static void make_files(struct front *k, unsigned files, unsigned per_dir)
{
	struct ovl_cred c = fx_cred();
	store_ino dir = 0;

	for (unsigned i = 0; i < files; i++) {
		struct ovl_entry e;
		char name[32];

		if (i % per_dir == 0)
			dir = make_dir(k);
		snprintf(name, sizeof(name), "file%u", i);
		if (ovl_mknod(k->f.o, dir, name, S_IFREG | 0644, 0, &c, &e) < 0 ||
		    ovl_write(k->f.o, e.ino, 0, name, sizeof(name), false) != sizeof(name))
			tap_fatal("create");
		hold(k, e.ino);
		if (i % 5000 == 4999 && ovl_flush(k->f.o) < 0)
			tap_fatal("flush");
	}
}

/* Looks at everything: names with "plus", attributes, bytes. */
static void touch_all(struct front *k)
{
	size_t had = k->n;
	struct ovl_attr a;
	char buf[32];

	if (ovl_readdir(k->f.o, STORE_ROOT_INO, 0, true, skip, k) < 0)
		tap_fatal("readdir");
	for (size_t i = had, end = k->n; i < end; i++)
		if (ovl_readdir(k->f.o, k->held[i], 0, true, skip, k) < 0)
			tap_fatal("readdir");
	for (size_t i = had; i < k->n; i++) {
		if (ovl_getattr(k->f.o, k->held[i], &a) < 0)
			tap_fatal("getattr");
		if (S_ISREG(a.st.st_mode) && ovl_read(k->f.o, k->held[i], 0, buf, sizeof(buf)) < 0)
			tap_fatal("read");
	}
}

static void test_forget(unsigned files)
{
	struct front k = {.n = 0};
	bool counts = heap_counts();
	size_t before, made, kept, again;
	double each;

	fx_open(&k.f);
	fx_mount(&k.f);
	make_files(&k, 100, 100);
	forget_all(&k);
	if (ovl_flush(k.f.o) < 0)
		tap_fatal("flush");
	before = heap();
	make_files(&k, files, PER_DIR);
	if (ovl_flush(k.f.o) < 0)
		tap_fatal("flush");
	made = heap();
	each = (double)(made - before - k.cap * sizeof(*k.held)) / files;
	printf("# %u files held: %llu inodes, %.0f bytes each\n", files,
	       (unsigned long long)inodes(&k), each);
	ok(!counts || each < 1000, "a file that is held costs less than a thousand bytes");
	forget_all(&k);
	kept = heap() - before - k.cap * sizeof(*k.held);
	printf("# given back: %llu inodes, %zu KiB kept\n", (unsigned long long)inodes(&k),
	       kept >> 10);
	ok(inodes(&k) < 10, "what is given back is gone");
	ok(!counts || kept < (16u << 20), "and so is its memory, but for a bounded log of changes");
	for (int i = 0; i < 3; i++) {
		touch_all(&k);
		forget_all(&k);
	}
	again = heap() - before - k.cap * sizeof(*k.held);
	printf("# listed, looked at, read, three times: %llu inodes, %zu KiB kept\n",
	       (unsigned long long)inodes(&k), again >> 10);
	ok(inodes(&k) < 10 && (!counts || again < kept + (4u << 20)),
	   "reading leaves nothing behind");
	free(k.held);
	fx_close(&k.f);
}

static int prune(void *arg, const store_ino *inos, size_t n)
{
	struct front *k = arg;

	pthread_mutex_lock(&k->prune.lock);
	for (size_t i = 0; i < n; i++) {
		if (k->prune.n == k->prune.cap)
			grow(&k->prune.v, &k->prune.cap);
		k->prune.v[k->prune.n++] = inos[i];
	}
	pthread_mutex_unlock(&k->prune.lock);
	atomic_fetch_add(&k->asked, n);
	return 0;
}

static int no_prune(void *arg, const store_ino *inos, size_t n)
{
	struct front *k = arg;

	(void)inos;
	atomic_fetch_add(&k->asked, n);
	return -EINVAL;
}

/* Gives back what was asked for, but for what is in use. */
static void give_back(struct front *k, store_ino in_use)
{
	pthread_mutex_lock(&k->prune.lock);
	for (size_t i = 0; i < k->prune.n; i++)
		if (k->prune.v[i] != in_use)
			ovl_forget(k->f.o, k->prune.v[i], 1);
	k->prune.n = 0;
	pthread_mutex_unlock(&k->prune.lock);
}

static void test_prune(unsigned files)
{
	struct front k = {.n = 0};
	unsigned max = files / 4;
	store_ino in_use;
	struct ovl_attr a;
	long long end;

	pthread_mutex_init(&k.prune.lock, NULL);
	fx_open(&k.f);
	k.f.opts.inodes_max = max;
	k.f.opts.notify = (struct ovl_notify){.arg = &k, .prune = prune};
	fx_mount(&k.f);
	make_files(&k, files, PER_DIR);
	in_use = k.held[k.n - 1];
	if (ovl_flush(k.f.o) < 0)
		tap_fatal("flush");
	end = io_now_ms() + 20000;
	while (inodes(&k) > max && io_now_ms() < end) {
		give_back(&k, in_use);
		(void)make_dir(&k); /* a change wakes the housekeeping */
		(void)usleep(20000);
	}
	give_back(&k, in_use);
	printf("# %u files, at most %u: %llu inodes, asked for %zu\n", files, max,
	       (unsigned long long)inodes(&k), atomic_load(&k.asked));
	ok(inodes(&k) <= max, "the front end is asked until few enough are held");
	eq_int(ovl_getattr(k.f.o, in_use, &a), 0, "what it has in use stays");
	fx_close(&k.f); /* until then it may ask for more */
	free(k.held);
	free(k.prune.v);
}

/* An older kernel. */
static void test_no_prune(void)
{
	struct front k = {.n = 0};
	size_t asked;

	fx_open(&k.f);
	k.f.opts.inodes_max = 100;
	k.f.opts.notify = (struct ovl_notify){.arg = &k, .prune = no_prune};
	fx_mount(&k.f);
	make_files(&k, 2000, PER_DIR);
	if (ovl_flush(k.f.o) < 0)
		tap_fatal("flush");
	for (int i = 0; i < 3000 && !atomic_load(&k.asked); i++) {
		(void)make_dir(&k); /* a change wakes the housekeeping */
		(void)usleep(20000);
	}
	asked = atomic_load(&k.asked);
	forget_all(&k);
	make_dir(&k);
	make_dir(&k);
	(void)usleep(700000);
	ok(asked > 0 && atomic_load(&k.asked) == asked, "who cannot is asked once");
	free(k.held);
	fx_close(&k.f);
}

int main(int argc, char **argv)
{
	const char *env = getenv("RATTAN_LONG");
	unsigned files = argc > 1     ? (unsigned)strtoul(argv[1], NULL, 10)
			 : env        ? 1000000
			 : UNDER_TSAN ? 10000
				      : 50000;

	test_forget(files);
	test_prune(files < 20000 ? files : 20000);
	test_no_prune();
	return tap_done();
}
