/* store: a disk that is really full (a tmpfs of a few MiB): -ENOSPC, and nothing else is harmed. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "store/synclog.h"
#include "tests/unit/store/store_test.h"

static uint8_t block[STORE_BLOCK], got[STORE_BLOCK];

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		(void)close(fd);
	return n < 0 ? -1 : 0;
}

/* A tmpfs at @dir that only this process sees; -1 where that is not allowed. */
static int private_tmpfs(const char *dir)
{
	char map[64];
	uid_t uid = geteuid();

	if (uid != 0) {
		gid_t gid = getegid();

		(void)snprintf(map, sizeof(map), "0 %u 1", (unsigned)uid);
		if (unshare(CLONE_NEWUSER) < 0 || write_text("/proc/self/uid_map", map) < 0 ||
		    write_text("/proc/self/setgroups", "deny") < 0)
			return -1;
		/* without a mapped gid the kernel makes no file: EOVERFLOW */
		(void)snprintf(map, sizeof(map), "0 %u 1", (unsigned)gid);
		if (write_text("/proc/self/gid_map", map) < 0)
			return -1;
	}
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return mount("tmpfs", dir, "tmpfs", 0, "size=12m,mode=700");
}

static void fill_block(uint64_t seed)
{
	for (size_t i = 0; i < sizeof(block); i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		block[i] = (uint8_t)(seed >> 56);
	}
}

/* Use up what is left, to the last byte, so that every write of the store's must fail. */
static int hog(const char *dir)
{
	char path[96];
	int fd;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/hog", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		tap_fatal("hog");
	do
		n = write(fd, block, 4096);
	while (n > 0);
	(void)close(fd);
	return unlink(path) < 0 ? -1 : open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void chunks_fill(struct store *s)
{
	struct store_chunk c = {.data = block, .len = sizeof(block)};
	struct digest kept[128];
	int n = 0, r = 0, bad = 0;

	for (; n < 128; n++) {
		fill_block(100 + (uint64_t)n);
		r = store_chunks_put(s, &c, 1);
		if (r < 0)
			break;
		kept[n] = c.digest;
	}
	ok(r == -ENOSPC && n > 20, "chunks fill the disk: %d after %d", r, n);
	for (int i = 0; i < 5; i++) {
		fill_block(1000 + (uint64_t)i);
		bad += store_chunks_put(s, &c, 1) != -ENOSPC;
	}
	eq_int(bad, 0, "and go on to be refused");
	for (int i = 0; i < n; i++)
		bad += store_chunk_get(s, &kept[i], got, sizeof(got)) != (ssize_t)sizeof(got);
	eq_int(bad, 0, "every chunk that was acknowledged is there");
}

static int names_batch(struct store *s, store_layer open, int i)
{
	struct store_batch *b;
	char name[240] = "";

	if (store_batch_begin(s, open, &b) < 0)
		tap_fatal("begin");
	memset(name, 'x', sizeof(name));
	for (int k = 0; k < 200; k++) {
		(void)snprintf(name, 16, "%06d-%04d", i % 1000000, k % 10000);
		name[11] = 'x';
		name[230] = 0;
		name_set(b, 1, name, (store_ino)i + 1);
	}
	return store_batch_commit(b);
}

static int count(void *arg, const char *name, size_t len, const struct rec_name *n)
{
	(void)name;
	(void)len;
	(void)n;
	++*(int *)arg;
	return 0;
}

static void names_fill(struct store *s, store_layer open)
{
	struct store_view *v;
	int n = 0, r = 0, seen = 0, bad = 0;

	for (; n < 1000 && r == 0; n += r == 0)
		r = names_batch(s, open, n);
	eq_int(r, -ENOSPC, "names are refused after %d batches", n);
	for (int i = 0; i < 5; i++)
		bad += names_batch(s, open, n) != -ENOSPC;
	eq_int(bad, 0, "and go on to be refused");
	if (store_view_open(s, open, &v) < 0 || store_view_names(v, 1, count, &seen) < 0)
		tap_fatal("view");
	store_view_close(v);
	eq_int(seen, n * 200, "whole batches are there, no halves");
}

/* A log of an environment does without the last of the room. */
static void log_stands_back(struct store *s, store_layer open)
{
	struct store_log *l;

	if (store_log_open(s, "e", &l) < 0)
		tap_fatal("store_log_open");
	eq_int(store_log_append(l, open, 1, "x", 1), -ENOSPC, "no log is made of it");
	store_log_remove(l);
	store_log_close(l);
}

int main(void)
{
	char dir[64], data[80], ballast[80];
	struct store *s;
	struct store_env e;
	int fd;

	make_dir(dir);
	if (private_tmpfs(dir) < 0) {
		printf("1..0 # SKIP may not mount a tmpfs\n");
		tree_remove(dir);
		return 0;
	}
	(void)snprintf(data, sizeof(data), "%s/data", dir);
	(void)snprintf(ballast, sizeof(ballast), "%s/ballast", dir);
	fd = open(ballast, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || posix_fallocate(fd, 0, 2 << 20) != 0)
		tap_fatal("ballast");
	(void)close(fd);
	s = open_store(data);
	if (store_env_create(s, "e", 0, NULL, &e) < 0)
		tap_fatal("create");
	chunks_fill(s);
	names_fill(s, e.open);
	fd = hog(dir);
	ok(unlink(ballast) == 0, "room is made");
	log_stands_back(s, e.open);
	eq_int(names_batch(s, e.open, 500000), 0, "and the same store goes on");
	store_close(s);
	s = open_store(data);
	ok(names_batch(s, e.open, 500001) == 0, "also after opening it again");
	store_close(s);
	if (fd >= 0)
		(void)close(fd);
	(void)umount2(dir, MNT_DETACH);
	tree_remove(dir);
	return tap_done();
}
