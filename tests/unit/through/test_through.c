/* The host's own tree: what is written is on the host, what the policy closes stays closed whatever the host and others
 * do meanwhile, and few descriptors serve many files. */
#include "fs/through/through.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "policy/rules.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

#define SECRET "secret of the host"

static const struct ovl_cred cred = {.umask = 022};

struct fx {
	char top[64];
	struct through *t;
	struct tree tree;
	atomic_int told; /* inodes that the kernel is to forget */
};

static void told(void *arg, store_ino ino)
{
	struct fx *f = arg;

	(void)ino;
	atomic_fetch_add(&f->told, 1);
}

static void rule(struct policy_rules *r, enum policy_access a, enum policy_kind k, const char *path)
{
	if (policy_rules_add(r, a, k, path, NULL, NULL) < 0)
		tap_fatal("rule %s", path);
}

static void host(const char *top, const char *path, const char *text)
{
	char s[256];
	int fd;

	(void)snprintf(s, sizeof(s), "%s%s", top, path);
	if (!text) {
		if (mkdir(s, 0755) < 0)
			tap_fatal("mkdir %s", s);
		return;
	}
	fd = open(s, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		tap_fatal("write %s", s);
	(void)close(fd);
}

static void host_move(const struct fx *f, const char *a, const char *b)
{
	char x[256], y[256];

	(void)snprintf(x, sizeof(x), "%s%s", f->top, a);
	(void)snprintf(y, sizeof(y), "%s%s", f->top, b);
	if (rename(x, y) < 0)
		tap_fatal("%s to %s", x, y);
}

/* /w is written, /w/ro read, /w/priv and NAME.env denied, .git protected; the rest is read. */
static void start(struct fx *f, size_t fds_max, size_t handles_max)
{
	static const char *const dirs[] = {"/w",     "/w/ro", "/w/priv", "/w/d",
					   "/w/d/e", "/out",  "/proc"};
	cleanup_policy_rules struct policy_rules rules = {0};
	struct through_opts o = {.policy = &rules,
				 .root = f->top,
				 .nodes_fds_max = fds_max,
				 .handles_max = handles_max,
				 .notify = {.arg = f, .inval_inode = told}};

	(void)snprintf(f->top, sizeof(f->top), "/tmp/through-test-XXXXXX");
	if (!mkdtemp(f->top))
		tap_fatal("mkdtemp");
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		host(f->top, dirs[i], NULL);
	host(f->top, "/w/file", "old");
	host(f->top, "/w/ro/file", "fixed");
	host(f->top, "/w/priv/key", SECRET);
	host(f->top, "/w/d/e/x", "deep");
	host(f->top, "/out/file", "outside");
	rule(&rules, POLICY_READ, POLICY_PATH, "/");
	rule(&rules, POLICY_WRITE, POLICY_PATH, "/w");
	rule(&rules, POLICY_READ, POLICY_PATH, "/w/ro");
	rule(&rules, POLICY_DENY, POLICY_PATH, "/w/priv");
	rule(&rules, POLICY_WRITE, POLICY_PATH, "/gone/out");
	rule(&rules, POLICY_DENY, POLICY_GLOB, "/w/**/*.env");
	if (policy_rules_protect(&rules, ".git", NULL) < 0)
		tap_fatal("protect");
	if (through_open(&o, NULL, &f->t) < 0)
		tap_fatal("through_open");
	f->tree = through_tree(f->t);
}

static void stop(struct fx *f)
{
	char cmd[128];

	through_close(f->t);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", f->top);
	if (system(cmd) != 0)
		tap_fatal("%s", cmd);
}

#define CALL(f, op, ...) ((f)->tree.ops->op((f)->tree.t, __VA_ARGS__))

/* The number at the end of @path, with one reference; every other is given back. */
static int walk(struct fx *f, const char *path, struct ovl_entry *ret)
{
	store_ino at = STORE_ROOT_INO;
	char name[256];
	int r = 0;

	*ret = (struct ovl_entry){.ino = STORE_ROOT_INO};
	while (r == 0 && *path) {
		size_t len = strcspn(++path, "/");

		memcpy(name, path, len);
		name[len] = 0;
		path += len;
		r = CALL(f, lookup, at, name, ret);
		if (at != STORE_ROOT_INO)
			CALL(f, forget, at, 1);
		at = ret->ino;
	}
	return r;
}

static store_ino ino_of(struct fx *f, const char *path)
{
	struct ovl_entry e;

	return walk(f, path, &e) == 0 ? e.ino : 0;
}

/* open, read, release: what is read, or an error. */
static int read_ino(struct fx *f, store_ino ino, char *buf, size_t size)
{
	struct tree_open o;
	int r = CALL(f, open, ino, O_RDONLY, &o);
	ssize_t n;

	if (r < 0)
		return r;
	n = CALL(f, read, ino, o.fh, 0, buf, size - 1);
	CALL(f, release, ino, o.fh);
	if (n >= 0)
		buf[n] = 0;
	return n < 0 ? (int)n : 0;
}

static int make(struct fx *f, const char *dir, const char *name)
{
	struct ovl_entry e;
	store_ino d = ino_of(f, dir);
	struct tree_open o;
	int r = CALL(f, create, d, name, 0644, O_RDWR | O_CREAT | O_EXCL, &cred, &e, &o);

	if (r == 0) {
		CALL(f, release, e.ino, o.fh);
		CALL(f, forget, e.ino, 1);
	}
	CALL(f, forget, d, 1);
	return r;
}

static bool there(const struct fx *f, const char *path, const char *text)
{
	char s[256], buf[64] = "";
	int fd;
	bool is;

	(void)snprintf(s, sizeof(s), "%s%s", f->top, path);
	fd = open(s, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	is = !text || (read(fd, buf, sizeof(buf) - 1) >= 0 && !strcmp(buf, text));
	(void)close(fd);
	return is;
}

/* ---- tests ---- */

static void test_plain(struct fx *f)
{
	store_ino w = ino_of(f, "/w");
	struct ovl_entry e;
	struct tree_open o;
	struct stat st = {0};
	struct ovl_attr a;
	char buf[64];

	eq_int(CALL(f, create, w, "new", 0666, O_RDWR | O_CREAT | O_EXCL, &cred, &e, &o), 0,
	       "create");
	eq_int(e.attr.st.st_mode, S_IFREG | 0644, "with the caller's mask");
	eq_int(CALL(f, write, e.ino, o.fh, 0, "hello", 5, 0, NULL), 5, "write");
	ok(there(f, "/w/new", "hello"), "is on the host at once");
	host(f->top, "/w/new", "hello there");
	eq_int(CALL(f, write, e.ino, o.fh, 0, "!", 1, TREE_APPEND, NULL), 1, "appending");
	ok(there(f, "/w/new", "hello there!"), "is behind what the host wrote");
	st.st_mode = 0400;
	eq_int(CALL(f, setattr, e.ino, o.fh, &st, OVL_SET_MODE, &a), 0, "chmod");
	eq_int(a.st.st_mode & 07777, 0400, "is shown");
	st.st_size = 2;
	eq_int(CALL(f, setattr, e.ino, o.fh, &st, OVL_SET_SIZE, &a), 0,
	       "truncate by who has it open");
	st.st_mtim = (struct timespec){.tv_sec = 7, .tv_nsec = 123456789};
	eq_int(CALL(f, setattr, e.ino, 0, &st, OVL_SET_MTIME, &a), 0, "utimens");
	eq_int(a.st.st_mtim.tv_nsec, 123456789, "to the nanosecond");
	eq_int(CALL(f, setxattr, e.ino, "user.k", "v", 1, 0), geteuid() ? -EACCES : 0,
	       "not who has no right");
	st.st_mode = 0600;
	eq_int(CALL(f, setattr, e.ino, 0, &st, OVL_SET_MODE, &a), 0, "chmod back");
	eq_int(CALL(f, setxattr, e.ino, "user.k", "v", 1, 0), 0, "setxattr");
	eq_int(CALL(f, getxattr, e.ino, "user.k", buf, sizeof(buf)), 1, "getxattr");
	eq_int(CALL(f, fallocate, e.ino, o.fh, 0, 0, 1 << 20), 0, "fallocate");
	eq_int(CALL(f, fallocate, e.ino, o.fh, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		    1 << 20),
	       0, "punch");
	eq_int(CALL(f, lseek, e.ino, o.fh, 0, SEEK_HOLE), 0, "a hole is a hole");
	eq_int(CALL(f, fsync, e.ino, o.fh, false), 0, "fsync");
	eq_int(CALL(f, link, e.ino, w, "second", &e), 0, "link");
	eq_int(e.attr.st.st_nlink, 2, "counts two");
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, unlink, w, "new"), 0, "unlink");
	eq_int(CALL(f, unlink, w, "second"), 0, "and the other");
	eq_int(CALL(f, read, e.ino, o.fh, 0, buf, 4), 4, "who has it open reads it");
	CALL(f, release, e.ino, o.fh);
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, mkdir, w, "dir", 0777, &cred, &e), 0, "mkdir");
	eq_int(CALL(f, rmdir, w, "dir"), 0, "rmdir");
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, symlink, w, "link", "/out/file", &cred, &e), 0, "symlink");
	eq_int(CALL(f, readlink, e.ino, (char[4096]){0}), 0, "readlink");
	eq_int(CALL(f, open, e.ino, O_RDWR, &o), -ELOOP, "no link is followed");
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, mknod, w, "null", S_IFCHR | 0666, makedev(1, 3), &cred, &e), -EPERM,
	       "no devices");
	CALL(f, forget, w, 1);
}

static void test_policy(struct fx *f)
{
	store_ino w = ino_of(f, "/w"), moved[2];
	struct ovl_entry e;
	struct tree_open o;
	struct stat st = {.st_mode = 0777};
	struct ovl_attr a;
	uint64_t total;

	eq_int(walk(f, "/w/priv", &e), -EACCES, "a denied place");
	eq_int(make(f, "/w", "a.env"), -EACCES, "a pattern, of what is not there");
	eq_int(make(f, "/w", ".GIT"), -EACCES, "a protected name");
	eq_int(make(f, "/out", "x"), -EACCES, "outside");
	eq_int(make(f, "/w/ro", "x"), -EACCES, "in a read-only part");
	eq_int(CALL(f, rename, w, "ro", w, "rw", 0, &cred, moved), -EACCES,
	       "which stays where it is");
	eq_int(CALL(f, rename, w, "file", w, "f.env", 0, &cred, moved), -EACCES,
	       "to a closed name");
	eq_int(CALL(f, rename, w, "file", w, "priv", RENAME_EXCHANGE, &cred, moved), -EACCES,
	       "exchange with one");
	eq_int(walk(f, "/w/ro/file", &e), 0, "what can be read");
	eq_int(CALL(f, open, e.ino, O_WRONLY, &o), -EACCES, "is not opened for writing");
	eq_int(CALL(f, setattr, e.ino, 0, &st, OVL_SET_MODE, &a), -EACCES, "nor changed");
	eq_int(CALL(f, link, e.ino, w, "own", &(struct ovl_entry){0}), -EACCES, "nor linked to");
	CALL(f, forget, e.ino, 1);
	eq_int(walk(f, "/gone", &e), -ENOENT, "a way that is missing");
	eq_int(CALL(f, mkdir, STORE_ROOT_INO, "gone", 0755, &cred, &e), 0, "can be made");
	CALL(f, forget, e.ino, 1);
	eq_int(make(f, "/gone", "x"), -EACCES, "but nothing else");
	eq_int(walk(f, "/proc", &e), 0, "what is mounted for each command");
	eq_int(e.attr.st.st_mode, S_IFDIR | 0555, "is an empty directory");
	eq_int(CALL(f, mkdir, e.ino, "x", 0755, &cred, &(struct ovl_entry){0}), -EACCES,
	       "and stays so");
	CALL(f, forget, e.ino, 1);
	ok(through_denied(f->t) > 8, "refusals are counted");
	total = through_denied(f->t);
	ok(total && there(f, "/w/ro/file", "fixed") && there(f, "/w/priv/key", SECRET),
	   "nothing changed");
	CALL(f, forget, w, 1);
}

/* What the host moves is judged where it is now: at once when it is opened, within a second when it is open. */
static void test_moved(struct fx *f)
{
	store_ino x = ino_of(f, "/w/d/e/x"), d = ino_of(f, "/w/d/e");
	struct tree_open o;
	struct ovl_entry e;
	char buf[64];

	eq_int(CALL(f, open, x, O_RDWR, &o), 0, "it is open");
	host_move(f, "/w/d/e", "/w/priv/e");
	eq_int(CALL(f, write, x, o.fh, 0, "evil", 4, 0, NULL), -EACCES,
	       "no write goes where nothing may");
	eq_int(CALL(f, create, d, "new", 0644, O_RDWR | O_CREAT, &cred, &e, &o), -EACCES,
	       "nothing is made");
	eq_int(read_ino(f, x, buf, sizeof(buf)), -EACCES, "it is not opened again");
	(void)usleep((THROUGH_TTL_MS + 100) * 1000);
	eq_int(CALL(f, read, x, o.fh, 0, buf, 4), -EACCES, "who has it open reads no more");
	ok(atomic_load(&f->told) > 0, "the kernel is told");
	ok(there(f, "/w/priv/e/x", "deep"), "it is as it was");
	host_move(f, "/w/priv/e", "/w/e2");
	eq_int(read_ino(f, x, buf, sizeof(buf)), 0, "moved to an open place it is read");
	host_move(f, "/w/e2", "/out/e");
	eq_int(CALL(f, write, x, o.fh, 0, "evil", 4, 0, NULL), -EACCES, "and outside only that");
	eq_int(read_ino(f, x, buf, sizeof(buf)), 0, "as everything there");
	CALL(f, release, x, o.fh);
	CALL(f, forget, x, 1);
	CALL(f, forget, d, 1);
}

/* A directory that the host has moved and that was met at its new place first: what lies below is judged there, too. */
static void test_moved_above(struct fx *f)
{
	store_ino x, d;
	struct tree_open o;
	struct ovl_entry e;
	struct ovl_attr a;
	char buf[64];

	host(f->top, "/w/up", NULL);
	host(f->top, "/w/up/x", "deep");
	d = ino_of(f, "/w/up");
	x = ino_of(f, "/w/up/x");
	eq_int(CALL(f, open, x, O_RDWR, &o), 0, "it is open");
	host_move(f, "/w/up", "/w/ro/up");
	eq_int(walk(f, "/w/ro/up", &e), 0, "its directory is met where only reading is allowed");
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, write, x, o.fh, 0, "evil", 4, 0, NULL), -EACCES, "so it is not written");
	eq_int(read_ino(f, x, buf, sizeof(buf)), 0, "but read");
	host_move(f, "/w/ro/up", "/w/priv/up");
	(void)usleep((THROUGH_TTL_MS + 100) * 1000);
	eq_int(CALL(f, getattr, d, 0, &a), -EACCES, "its directory is known to be closed");
	eq_int(read_ino(f, x, buf, sizeof(buf)), -EACCES, "so it is not opened");
	eq_int(CALL(f, read, x, o.fh, 0, buf, 4), -EACCES, "nor read by who has it open");
	ok(there(f, "/w/priv/up/x", "deep"), "it is as it was");
	CALL(f, release, x, o.fh);
	CALL(f, forget, x, 1);
	CALL(f, forget, d, 1);
}

/* What was made without a name, and got one. */
static void test_moved_tmpfile(struct fx *f)
{
	store_ino w = ino_of(f, "/w"), d;
	struct tree_open o;
	struct ovl_entry x, e;
	char buf[64];

	eq_int(CALL(f, tmpfile, w, 0600, O_RDWR, &cred, &x, &o), 0, "tmpfile");
	eq_int(CALL(f, write, x.ino, o.fh, 0, "mine", 4, 0, NULL), 4, "write");
	host(f->top, "/w/tmp", NULL);
	d = ino_of(f, "/w/tmp");
	eq_int(CALL(f, link, x.ino, d, "named", &e), 0, "link");
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, write, x.ino, o.fh, 0, "mind", 4, 0, NULL), 4, "it is written as before");
	host_move(f, "/w/tmp/named", "/w/ro/named");
	eq_int(CALL(f, write, x.ino, o.fh, 0, "evil", 4, 0, NULL), -EACCES,
	       "until the host moves it");
	host_move(f, "/w/ro/named", "/w/tmp/named");
	host_move(f, "/w/tmp", "/w/priv/tmp");
	eq_int(CALL(f, write, x.ino, o.fh, 0, "evil", 4, 0, NULL), -EACCES,
	       "or the directory of it");
	eq_int(read_ino(f, x.ino, buf, sizeof(buf)), -EACCES, "and it is not opened");
	ok(there(f, "/w/priv/tmp/named", "mind"), "it is as it was");
	CALL(f, release, x.ino, o.fh);
	CALL(f, forget, x.ino, 1);
	CALL(f, forget, d, 1);
	CALL(f, forget, w, 1);
}

/* Of two names that by which it was found first is removed. */
static void test_moved_link(struct fx *f)
{
	store_ino w = ino_of(f, "/w"), x;
	struct tree_open o;
	struct ovl_entry e;
	char buf[64];

	host(f->top, "/w/one", "two names");
	x = ino_of(f, "/w/one");
	eq_int(CALL(f, open, x, O_RDWR, &o), 0, "it is open");
	eq_int(CALL(f, link, x, w, "two", &e), 0, "link");
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, unlink, w, "one"), 0, "unlink of the first");
	eq_int(CALL(f, write, x, o.fh, 0, "TWO", 3, 0, NULL), 3, "it is written as before");
	eq_int(read_ino(f, x, buf, sizeof(buf)), 0, "and read");
	host_move(f, "/w/two", "/w/ro/two");
	eq_int(CALL(f, write, x, o.fh, 0, "evil", 4, 0, NULL), -EACCES, "until the host moves it");
	ok(there(f, "/w/ro/two", "TWO names"), "it is as it was");
	CALL(f, release, x, o.fh);
	CALL(f, forget, x, 1);
	CALL(f, forget, w, 1);
}

static void test_replaced(struct fx *f)
{
	store_ino x = ino_of(f, "/w/file");
	struct tree_open o;
	char buf[64];

	host(f->top, "/w/save", "saved");
	host_move(f, "/w/save", "/w/file");
	eq_int(CALL(f, open, x, O_RDWR, &o), -ESTALE,
	       "a file that was replaced is looked up again");
	CALL(f, forget, x, 1);
	x = ino_of(f, "/w/file");
	eq_int(read_ino(f, x, buf, sizeof(buf)), 0, "and then opened");
	eq_str(buf, "saved", "the new one");
	CALL(f, forget, x, 1);
}

/* The host was faster: the kernel takes the file for a new one. */
static void test_made_meanwhile(struct fx *f)
{
	store_ino w = ino_of(f, "/w");
	struct tree_open o;
	struct ovl_entry e;

	host(f->top, "/w/first", "of the host");
	eq_int(CALL(f, create, w, "first", 0644, O_RDWR | O_CREAT | O_EXCL, &cred, &e, &o), -EEXIST,
	       "what is there is not made");
	eq_int(CALL(f, create, w, "first", 0644, O_RDWR | O_CREAT, &cred, &e, &o), 0, "but opened");
	ok(e.attr.st.st_size == 11 && there(f, "/w/first", "of the host"), "as it is");
	CALL(f, release, e.ino, o.fh);
	CALL(f, forget, e.ino, 1);
	eq_int(CALL(f, create, w, "first", 0644, O_WRONLY | O_CREAT | O_TRUNC, &cred, &e, &o), 0,
	       "or to be written anew");
	ok(e.attr.st.st_size == 0 && there(f, "/w/first", ""), "and is empty then");
	CALL(f, release, e.ino, o.fh);
	CALL(f, forget, e.ino, 1);
	CALL(f, forget, w, 1);
}

/* A tree far larger than the descriptors: each is given back and found again. */
static void test_many(struct fx *f)
{
	enum {
		N = 200
	};
	store_ino inos[N];
	struct through_counts c;
	char path[64], buf[64];
	int bad = 0;

	host(f->top, "/w/many", NULL);
	for (int i = 0; i < N; i++) {
		(void)snprintf(path, sizeof(path), "/w/many/%d", i);
		host(f->top, path, NULL);
		(void)snprintf(path, sizeof(path), "/w/many/%d/f", i);
		host(f->top, path, path);
		inos[i] = ino_of(f, path);
	}
	through_counts(f->t, &c);
	ok(c.nodes >= 2 * N && c.nodes_fds <= 40, "%zu nodes, %zu descriptors", c.nodes,
	   c.nodes_fds);
	for (int i = 0; i < N; i++) {
		(void)snprintf(path, sizeof(path), "/w/many/%d/f", i);
		bad += read_ino(f, inos[i], buf, sizeof(buf)) != 0 || strcmp(buf, path) != 0;
	}
	eq_int(bad, 0, "each is read all the same");
	host_move(f, "/w/many", "/w/other");
	for (int i = 0; i < N; i++) {
		int r = read_ino(f, inos[i], buf, sizeof(buf));

		(void)snprintf(path, sizeof(path), "/w/many/%d/f", i);
		bad += r != -ESTALE && (r != 0 || strcmp(buf, path) != 0);
	}
	eq_int(bad, 0, "after a move each is what it was, or stale");
	for (int i = 0; i < N; i++)
		CALL(f, forget, inos[i], 1);
	through_counts(f->t, &c);
	ok(c.nodes < 10, "what nobody knows is forgotten: %zu", c.nodes);
}

/* Whoever opens too many is told so, and takes nothing from the rest of the process. */
static void test_too_many(struct fx *f)
{
	store_ino x = ino_of(f, "/w/file"), w = ino_of(f, "/w"), held[50];
	struct tree_open o[11];
	struct through_counts c;
	struct ovl_entry e;
	struct ovl_attr a;
	int fd = dup(0), now;

	(void)close(fd);
	for (int i = 0; i < 10; i++)
		eq_int(CALL(f, open, x, O_RDONLY, &o[i]), 0, "open");
	eq_int(CALL(f, open, x, O_RDONLY, &o[10]), -ENFILE, "one too many");
	eq_int(CALL(f, opendir, w, &o[10]), -ENFILE, "nor a directory");
	eq_int(CALL(f, create, w, "more", 0644, O_RDWR | O_CREAT, &cred, &e, &o[10]), -ENFILE,
	       "nor a new one");
	ok(!there(f, "/w/more", NULL), "which is not made");
	CALL(f, release, x, o[3].fh);
	eq_int(CALL(f, open, x, O_RDONLY, &o[3]), 0, "one is free again");
	for (int i = 0; i < 10; i++)
		CALL(f, release, x, o[i].fh);
	CALL(f, forget, x, 1);
	for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
		eq_int(CALL(f, mknod, w, "short", S_IFREG | 0600, 0, &cred, &e), 0, "a file");
		eq_int(CALL(f, unlink, w, "short"), 0, "is removed");
		eq_int(CALL(f, setattr, e.ino, 0, &(struct stat){.st_mode = 0644}, OVL_SET_MODE,
			    &a),
		       0, "and still known");
		held[i] = e.ino;
	}
	through_counts(f->t, &c);
	ok(c.nodes_fds <= 40, "removed files hold %zu descriptors", c.nodes_fds);
	for (size_t i = 0; i < ARRAY_SIZE(held); i++)
		CALL(f, forget, held[i], 1);
	CALL(f, forget, w, 1);
	now = dup(0);
	ok(now <= fd, "no descriptor is left over: %d, %d", now, fd);
	(void)close(now);
}

/* As the process's limit is: nodes and openings together leave some. */
static void test_limit(void)
{
	struct rlimit old, few = {0};
	struct tree_open o[256];
	struct fx f = {0};
	int n = 0, r = 0, own[8];
	store_ino x;

	if (getrlimit(RLIMIT_NOFILE, &old) < 0)
		tap_fatal("getrlimit");
	few = (struct rlimit){.rlim_cur = ARRAY_SIZE(o), .rlim_max = old.rlim_max};
	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		tap_fatal("setrlimit");
	start(&f, 0, 0);
	x = ino_of(&f, "/w/file");
	while (n < (int)ARRAY_SIZE(o) && (r = CALL(&f, open, x, O_RDONLY, &o[n])) == 0)
		n++;
	eq_int(r, -ENFILE, "a limit of its own");
	ok(n >= 100, "of %d openings", n);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		own[i] = dup(0);
		ok(own[i] >= 0, "the process goes on");
	}
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		(void)close(own[i]);
	while (n)
		CALL(&f, release, x, o[--n].fh);
	CALL(&f, forget, x, 1);
	(void)setrlimit(RLIMIT_NOFILE, &old);
	stop(&f);
}

/* ---- races ---- */

struct race {
	struct fx *f;
	atomic_bool stop;
	atomic_int leaks;
};

/* The host swaps a directory with a link to the closed one, and moves it back and forth. */
static void *swapping(void *arg)
{
	struct race *r = arg;
	char a[128], b[128], l[128];

	(void)snprintf(a, sizeof(a), "%s/w/swap", r->f->top);
	(void)snprintf(b, sizeof(b), "%s/w/aside", r->f->top);
	(void)snprintf(l, sizeof(l), "%s/w/lure", r->f->top);
	while (!atomic_load(&r->stop)) {
		(void)!renameat2(AT_FDCWD, a, AT_FDCWD, l, RENAME_EXCHANGE);
		(void)!rename(l, b);
		(void)!rename(b, l);
	}
	return NULL;
}

static void *using(void *arg)
{
	struct race *r = arg;
	struct fx *f = r->f;
	char buf[64];

	for (int i = 0; i < 3000; i++) {
		store_ino x = ino_of(f, "/w/swap/key");

		if (x && read_ino(f, x, buf, sizeof(buf)) == 0 && !strcmp(buf, SECRET))
			atomic_fetch_add(&r->leaks, 1);
		if (x)
			CALL(f, forget, x, 1);
		x = ino_of(f, "/w/swap");
		if (x) {
			struct ovl_entry e;
			struct tree_open o;

			if (CALL(f, create, x, "mine", 0644, O_RDWR | O_CREAT, &cred, &e, &o) ==
			    0) {
				CALL(f, release, e.ino, o.fh);
				CALL(f, forget, e.ino, 1);
			}
			CALL(f, forget, x, 1);
		}
	}
	return NULL;
}

static void test_race(struct fx *f)
{
	struct race r = {.f = f};
	struct through_counts c;
	pthread_t swap, use[2];
	char l[128];

	host(f->top, "/w/swap", NULL);
	host(f->top, "/w/swap/key", "harmless");
	(void)snprintf(l, sizeof(l), "%s/w/lure", f->top);
	if (symlink("priv", l) < 0)
		tap_fatal("symlink");
	(void)pthread_create(&swap, NULL, swapping, &r);
	for (int i = 0; i < 2; i++)
		(void)pthread_create(&use[i], NULL, using, &r);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(use[i], NULL);
	atomic_store(&r.stop, true);
	(void)pthread_join(swap, NULL);
	eq_int(atomic_load(&r.leaks), 0, "a link that is swapped in leads nowhere");
	ok(!there(f, "/w/priv/mine", NULL), "and nothing is made behind it");
	through_counts(f->t, &c);
	ok(c.handles == 0 && c.nodes < 10, "nothing is left over: %zu nodes", c.nodes);
}

int main(void)
{
	struct fx f = {0};

	need_namespaces(); /* nor can a thread have a mask of its own where they are refused */
	(void)umask(077);
	start(&f, 0, 0);
	test_plain(&f);
	test_policy(&f);
	test_moved(&f);
	test_moved_above(&f);
	test_moved_tmpfile(&f);
	test_moved_link(&f);
	test_replaced(&f);
	test_made_meanwhile(&f);
	stop(&f);
	start(&f, 32, 10);
	test_too_many(&f);
	test_many(&f);
	test_race(&f);
	stop(&f);
	test_limit();
	return tap_done();
}
