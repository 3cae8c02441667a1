/* A host directory read in place: what it shows, what it refuses, and the identity of its files. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/xattr.h>
#include <time.h>

#include "data_fixture.h"
#include "fs/core/hostsrc.h"
#include "tests/lib/fds.h"

static void make_tree(struct fixture *f)
{
	char p[PATH_MAX], q[PATH_MAX];

	fixture_path(f, "src", p);
	fixture_path(f, "src/sub", q);
	if (mkdir(p, 0755) < 0 || mkdir(q, 0755) < 0)
		tap_fatal("mkdir");
	fixture_path(f, "src/closed", q);
	if (mkdir(q, 0711) < 0)
		tap_fatal("mkdir");
	fixture_file(f, "src/sub/file", "hello world", 11);
	fixture_file(f, "src/secret", "x", 1);
	fixture_file(f, "outside", "y", 1);
	fixture_path(f, "src/secret", q);
	if (chmod(q, 0640) < 0)
		tap_fatal("chmod");
	fixture_path(f, "src/link", q);
	if (symlink("sub/file", q) < 0)
		tap_fatal("symlink");
	fixture_path(f, "src/out", q);
	if (symlink("..", q) < 0)
		tap_fatal("symlink");
	fixture_path(f, "src/fifo", q);
	if (mkfifo(q, 0644) < 0)
		tap_fatal("mkfifo");
}

struct names {
	char seen[512];
	unsigned types;
	int n;
};

static int add_name(void *arg, const char *name, uint64_t ino, unsigned type)
{
	struct names *l = arg;

	l->n++;
	l->types |= 1u << type;
	(void)snprintf(l->seen + strlen(l->seen), sizeof l->seen - strlen(l->seen), "[%s]", name);
	return ino ? 0 : -EIO;
}

static int stop(void *arg, const char *name, uint64_t ino, unsigned type)
{
	(void)arg;
	(void)name;
	(void)ino;
	(void)type;
	return 7;
}

static void test_looking(struct hostsrc *h)
{
	struct names l = {0};
	char target[4096];
	struct stat st, root;

	eq_int(hostsrc_stat(h, "", &root), 0, "the root itself");
	ok(S_ISDIR(root.st_mode), "is a directory");
	eq_int(hostsrc_stat(h, "sub/file", &st), 0, "a file below");
	eq_int(st.st_size, 11, "its size");
	ok(hostsrc_ino(h, &st) == (STORE_HOST_INO | UINT64_C(5) << 40 | st.st_ino),
	   "its number is told from the source and the host's number");
	st.st_dev++;
	ok(hostsrc_ino(h, &st) == 0, "files of another device are numbered by the core");
	eq_int(hostsrc_stat(h, "link", &st), 0, "a symlink");
	ok(S_ISLNK(st.st_mode), "is not followed");
	eq_int(hostsrc_readlink(h, "link", target), 0, "and can be read");
	eq_str(target, "sub/file", "its target");
	eq_int(hostsrc_readlink(h, "sub", target), -EINVAL, "a directory has no target");
	eq_int(hostsrc_stat(h, "none", &st), -ENOENT, "nothing there");
	eq_int(hostsrc_list(h, "", add_name, &l), 0, "list");
	eq_int(l.n, 6, "all names: %s", l.seen);
	ok(l.types == (1u << DT_REG | 1u << DT_DIR | 1u << DT_LNK | 1u << DT_FIFO),
	   "types are known");
	eq_int(hostsrc_list(h, "", stop, NULL), 7, "a callback can stop");
	eq_int(hostsrc_list(h, "sub/file", add_name, &l), -ENOTDIR, "a file has no names");
}

static void test_confined(struct fixture *f, struct hostsrc *h)
{
	struct stat st;
	char buf[8], abs[PATH_MAX];

	fixture_path(f, "outside", abs);
	ok(hostsrc_stat(h, "../outside", &st) < 0, "no way up");
	ok(hostsrc_stat(h, "sub/../../outside", &st) < 0, "not from within either");
	ok(hostsrc_stat(h, "out/outside", &st) < 0, "not through a symlink");
	ok(hostsrc_stat(h, abs, &st) < 0, "no absolute paths");
	eq_int(hostsrc_pread(h, "link", HOSTSRC_ANY, NULL, 0, buf, 1), -ELOOP,
	       "symlinks are not read through");
	ok(hostsrc_pread(h, "fifo", HOSTSRC_ANY, NULL, 0, buf, 1) < 0,
	   "a fifo is no file and does not block");
}

static void test_public(struct fixture *f)
{
	struct hostsrc *h;
	struct names l = {0};
	struct stat st;
	char buf[8], p[PATH_MAX];

	fixture_path(f, "src", p);
	if (hostsrc_open(p, REC_ORIGIN_PUBLIC, 0, NULL, &h) < 0)
		tap_fatal("open");
	eq_int(hostsrc_flags(h), REC_ORIGIN_PUBLIC, "flags");
	eq_str(hostsrc_root(h), p, "root");
	eq_int(hostsrc_stat(h, "secret", &st), -ENOENT, "what not everyone may read is not there");
	eq_int(hostsrc_pread(h, "secret", HOSTSRC_ANY, NULL, 0, buf, 1), -ENOENT, "nor read");
	eq_int(hostsrc_stat(h, "closed", &st), -ENOENT, "nor a directory that cannot be listed");
	eq_int(hostsrc_getxattr(h, "secret", "user.x", buf, 1), -ENOENT, "nor its attributes");
	eq_int(hostsrc_list(h, "", add_name, &l), 0, "list");
	ok(!strstr(l.seen, "secret") && !strstr(l.seen, "closed"), "nor listed: %s", l.seen);
	ok(strstr(l.seen, "[sub]") && strstr(l.seen, "[link]"), "the rest is");
	eq_int(hostsrc_stat(h, "sub/file", &st), 0, "the rest is shown");
	hostsrc_close(h);
}

static void test_reading(struct fixture *f, struct hostsrc *h)
{
	struct hostsrc_id id;
	struct hostsrc *other;
	struct stat st;
	char buf[32], p[PATH_MAX], q[PATH_MAX];
	struct timespec nap = {.tv_nsec = 40 * 1000 * 1000};

	eq_int(hostsrc_pread(h, "sub/file", HOSTSRC_ANY, NULL, 6, buf, sizeof buf), 5,
	       "read up to the end");
	ok(!memcmp(buf, "world", 5), "the bytes");
	eq_int(hostsrc_pread(h, "sub/file", HOSTSRC_ANY, NULL, 99, buf, sizeof buf), 0,
	       "behind the end");
	if (hostsrc_stat(h, "sub/file", &st) < 0)
		tap_fatal("stat");
	hostsrc_id_of(&st, &id);
	eq_int(hostsrc_pread(h, "sub/file", HOSTSRC_SAME, &id, 0, buf, 5), 5, "with its identity");
	/* replaced by rename, as editors do */
	fixture_file(f, "src/sub/new", "HELLO WORLD", 11);
	fixture_path(f, "src/sub/new", p);
	fixture_path(f, "src/sub/file", q);
	(void)rename(p, q);
	(void)nanosleep(&nap, NULL);
	eq_int(hostsrc_pread(h, "sub/file", HOSTSRC_SAME, &id, 0, buf, 5), 5,
	       "a replaced file is read while its descriptor is there");
	ok(!memcmp(buf, "hello", 5), "and is what it was");
	fixture_path(f, "src", p);
	if (hostsrc_open(p, 0, 6, NULL, &other) < 0)
		tap_fatal("hostsrc_open");
	eq_int(hostsrc_pread(other, "sub/file", HOSTSRC_SAME, &id, 0, buf, 5), -ESTALE,
	       "and refused without");
	eq_int(hostsrc_pread(other, "sub/file", HOSTSRC_FILE, &id, 0, buf, 5), -ESTALE,
	       "also by its number alone");
	eq_int(hostsrc_seek(other, "sub/file", HOSTSRC_FILE, &id, 0, SEEK_DATA), -ESTALE,
	       "nor are its holes looked for in another");
	hostsrc_close(other);
	eq_int(hostsrc_pread(h, "sub/file", HOSTSRC_ANY, NULL, 0, buf, 5), 5,
	       "the new one is read");
	ok(!memcmp(buf, "HELLO", 5), "and is the new one");
	if (hostsrc_stat(h, "sub/file", &st) < 0)
		tap_fatal("stat");
	hostsrc_id_of(&st, &id);
	/* changed in place, size and all */
	fixture_file(f, "src/sub/file", "hello worlds", 12);
	eq_int(hostsrc_pread(h, "sub/file", HOSTSRC_SAME, &id, 0, buf, 5), -ESTALE,
	       "a changed file is refused");
	eq_int(hostsrc_pread(h, "sub", HOSTSRC_ANY, NULL, 0, buf, 1), -EISDIR,
	       "a directory is not read");
	(void)unlink(q);
	(void)nanosleep(&nap, NULL);
	eq_int(hostsrc_pread(h, "sub/file", HOSTSRC_ANY, NULL, 0, buf, 5), -ENOENT,
	       "a removed file is gone");
	fixture_file(f, "src/sub/file", "hello world", 11);
}

static void test_sparse(struct fixture *f, struct hostsrc *h)
{
	char p[PATH_MAX];
	int fd;

	fixture_path(f, "src/sub/sparse", p);
	fd = open(p, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, 1 << 20) < 0 || pwrite(fd, "x", 1, 700000) != 1)
		tap_fatal("sparse file");
	(void)close(fd);
	ok(hostsrc_seek(h, "sub/sparse", HOSTSRC_ANY, NULL, 0, SEEK_DATA) >= 0, "data is found");
	ok(hostsrc_seek(h, "sub/sparse", HOSTSRC_ANY, NULL, 0, SEEK_DATA) <= 700000,
	   "at or before it");
	eq_int(hostsrc_seek(h, "sub/sparse", HOSTSRC_ANY, NULL, 1 << 20, SEEK_DATA), -ENXIO,
	       "none behind the end");
}

static void test_xattrs(struct fixture *f, struct hostsrc *h)
{
	char p[PATH_MAX], buf[64];

	fixture_path(f, "src/sub/file", p);
	if (setxattr(p, "user.note", "abc", 3, 0) < 0) {
		ok(1, "user xattrs # SKIP the file system has none");
		return;
	}
	eq_int(hostsrc_getxattr(h, "sub/file", "user.note", buf, sizeof buf), 3, "an xattr");
	ok(!memcmp(buf, "abc", 3), "its value");
	ok(hostsrc_listxattr(h, "sub/file", buf, sizeof buf) >= 10, "the list");
	eq_int(hostsrc_getxattr(h, "sub/file", "user.none", buf, sizeof buf), -ENODATA, "none");
}

/* ---- many files and threads: the descriptor cache ---- */

#define MANY 300

struct many {
	struct hostsrc *h;
	unsigned seed;
	int bad;
};

static void *read_many(void *arg)
{
	struct many *m = arg;

	for (int i = 0; i < 3000; i++) {
		char rel[32], buf[16], want[16];
		unsigned k = (m->seed = m->seed * 1103515245u + 12345u) / 65536u % MANY;
		ssize_t n;

		(void)snprintf(rel, sizeof rel, "many/%u", k);
		(void)snprintf(want, sizeof want, "%05u", k);
		n = hostsrc_pread(m->h, rel, HOSTSRC_ANY, NULL, 0, buf, sizeof buf);
		if (n != 5 || memcmp(buf, want, 5) != 0)
			m->bad++;
	}
	return NULL;
}

static void test_many(struct fixture *f, struct hostsrc *h)
{
	struct many m[3];
	pthread_t t[3];
	char p[PATH_MAX];
	int before = count_fds(), bad = 0;

	fixture_path(f, "src/many", p);
	if (mkdir(p, 0755) < 0)
		tap_fatal("mkdir");
	for (unsigned i = 0; i < MANY; i++) {
		char name[32], text[16];

		(void)snprintf(name, sizeof name, "src/many/%u", i);
		(void)snprintf(text, sizeof text, "%05u", i);
		fixture_file(f, name, text, 5);
	}
	for (unsigned i = 0; i < 3; i++) {
		m[i] = (struct many){h, i + 1, 0};
		if (pthread_create(&t[i], NULL, read_many, &m[i]))
			tap_fatal("thread");
	}
	for (unsigned i = 0; i < 3; i++) {
		(void)pthread_join(t[i], NULL);
		bad += m[i].bad;
	}
	eq_int(bad, 0, "each file reads as itself, from several threads");
	ok(count_fds() - before <= 128, "%d descriptors are kept", count_fds() - before);
}

/* A process with few descriptors and many directories: none of them takes the last one. */
static void test_sources(struct fixture *f)
{
	enum {
		SOURCES = 40,
		FILES = 12,
		LIMIT = 512
	};
	struct hostsrc *h[SOURCES];
	struct hostsrc_all all;
	struct rlimit old, low;
	int before = count_fds(), most = 0, bad = 0;
	char p[PATH_MAX], rel[32], buf[8];
	struct stat st;

	if (getrlimit(RLIMIT_NOFILE, &old) < 0)
		tap_fatal("getrlimit");
	low = (struct rlimit){.rlim_cur = LIMIT, .rlim_max = old.rlim_max};
	(void)setrlimit(RLIMIT_NOFILE, &low);
	hostsrc_all_init(&all);
	fixture_path(f, "src", p);
	for (size_t i = 0; i < SOURCES; i++) {
		if (hostsrc_open(p, 0, (unsigned)i, &all, &h[i]) < 0)
			tap_fatal("source %zu: %m", i);
	}
	for (unsigned k = 0; k < FILES; k++) {
		for (size_t i = 0; i < SOURCES; i++) {
			(void)snprintf(rel, sizeof(rel), "many/%u", k);
			bad += hostsrc_look(h[i], rel, &st) < 0;
			bad += hostsrc_pread(h[i], rel, HOSTSRC_ANY, NULL, 0, buf, 5) != 5;
			most = count_fds() > most ? count_fds() : most;
		}
	}
	eq_int(bad, 0, "every file of %d sources is read with %d descriptors", SOURCES, LIMIT);
	ok(most - before <= SOURCES + LIMIT / 2 + 4, "%d more are open at most", most - before);
	for (size_t i = 0; i < SOURCES; i++)
		hostsrc_close(h[i]);
	(void)setrlimit(RLIMIT_NOFILE, &old);
	eq_int(count_fds(), before, "none afterwards");
}

static void count_one(void *arg, uint64_t dev, uint64_t ino)
{
	const struct hostsrc_id *id = arg;

	eq_int(dev == id->dev && ino == id->ino, 1, "a held file without a name is told");
}

static void look_at(struct hostsrc *h, const char *rel, struct hostsrc_id *ret)
{
	struct stat st;

	if (hostsrc_look(h, rel, &st) < 0)
		tap_fatal("look %s", rel);
	hostsrc_id_of(&st, ret);
}

/* Looked at and never read, then replaced: still to be had, until it is let go. */
static void test_held(struct fixture *f, struct hostsrc *h)
{
	char p[PATH_MAX], q[PATH_MAX], buf[8] = "";
	struct hostsrc_id id;
	struct stat st;

	fixture_file(f, "src/held", "older", 5);
	look_at(h, "held", &id);
	eq_int(hostsrc_nameless(h, 0, count_one, &id), true, "a file is held");
	fixture_file(f, "src/held.new", "newer!", 6);
	fixture_path(f, "src/held.new", p);
	fixture_path(f, "src/held", q);
	(void)rename(p, q);
	eq_int(hostsrc_stat_held(h, "held", &id, &st), 0, "a replaced file has attributes");
	ok(st.st_size == 5 && st.st_nlink == 1, "its own");
	eq_int(hostsrc_pread(h, "held", HOSTSRC_FILE, &id, 0, buf, 8), 5, "and is read");
	eq_str(buf, "older", "as it was");
	eq_int(hostsrc_pread(h, "held", HOSTSRC_ANY, NULL, 0, buf, 8), 6,
	       "its name leads to the new one");
	eq_int(hostsrc_nameless(h, 0, count_one, &id), true, "and it is held on");
	hostsrc_forget(h, "held", id.dev, id.ino);
	eq_int(hostsrc_pread(h, "held", HOSTSRC_FILE, &id, 0, buf, 8), -ESTALE,
	       "what was let go is gone");
	eq_int(hostsrc_stat_held(h, "held", &id, &st), -ESTALE, "with its attributes");
	eq_int(hostsrc_nameless(h, 0, count_one, NULL), false, "nothing is held");
}

#define HELD 60

/* Of many the last ones are held, and no more than there is room for. */
static void test_held_bounded(struct fixture *f)
{
	struct rlimit rl, few;
	struct hostsrc_id id[HELD];
	struct hostsrc *h;
	char p[PATH_MAX], buf[4];
	int had = 0;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		tap_fatal("getrlimit");
	few = rl;
	few.rlim_cur = 16 * HELD / 2;
	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		tap_fatal("setrlimit");
	fixture_path(f, "src", p);
	if (hostsrc_open(p, 0, 7, NULL, &h) < 0)
		tap_fatal("hostsrc_open");
	for (unsigned i = 0; i < HELD; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "src/few%u", i);
		fixture_file(f, name, "few", 3);
		look_at(h, name + 4, &id[i]);
	}
	for (unsigned i = 0; i < HELD; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "src/few%u", i);
		fixture_path(f, name, p);
		(void)unlink(p);
		had += hostsrc_pread(h, name + 4, HOSTSRC_FILE, &id[i], 0, buf, 3) == 3;
	}
	eq_int(had, HELD / 2, "the last ones that were looked at can be read");
	hostsrc_close(h);
	(void)setrlimit(RLIMIT_NOFILE, &rl);
}

struct flicker {
	char path[PATH_MAX];
	atomic_bool stop;
};

static void *flicker(void *arg)
{
	struct flicker *k = arg;

	while (!atomic_load(&k->stop)) {
		int fd = open(k->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		if (fd < 0 || close(fd) < 0 || unlink(k->path) < 0)
			tap_fatal("%s", k->path);
	}
	return NULL;
}

/* A file is there or not, whatever comes between finding and looking. */
static void test_flicker(struct fixture *f, struct hostsrc *h)
{
	struct flicker k = {.stop = false};
	unsigned none = 0, seen = 0, other = 0;
	pthread_t t;

	fixture_path(f, "src/flicker", k.path);
	if (pthread_create(&t, NULL, flicker, &k))
		tap_fatal("thread");
	for (unsigned i = 0; i < 60000; i++) {
		struct stat st;
		int r = hostsrc_stat(h, "flicker", &st);

		none += r == 0 && st.st_nlink == 0;
		seen += r == 0;
		other += r < 0 && r != -ENOENT;
	}
	atomic_store(&k.stop, true);
	(void)pthread_join(t, NULL);
	eq_int(none, 0, "a file that was found (%u times) has a link", seen);
	eq_int(other, 0, "and else it is not there");
}

int main(void)
{
	struct fixture f;
	struct hostsrc *h;
	char p[PATH_MAX];

	(void)umask(022);
	fixture_open(&f);
	make_tree(&f);
	fixture_path(&f, "src", p);
	ok(hostsrc_open("relative", 0, 0, NULL, &h) == -EINVAL, "a relative root is refused");
	ok(hostsrc_open("/nonexistent/dir", 0, 0, NULL, &h) == -ENOENT,
	   "a missing root is refused");
	if (hostsrc_open(p, 0, 5, NULL, &h) < 0)
		tap_fatal("hostsrc_open");
	test_looking(h);
	test_confined(&f, h);
	test_public(&f);
	test_reading(&f, h);
	test_sparse(&f, h);
	test_xattrs(&f, h);
	test_many(&f, h);
	test_sources(&f);
	test_held(&f, h);
	test_held_bounded(&f);
	test_flicker(&f, h);
	hostsrc_close(h);
	fixture_close(&f);
	return tap_done();
}
