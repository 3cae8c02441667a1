/* A host directory behind the tree: what changes there, what a commit takes from it, and numbers. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fs/core/diff.h"
#include "policy/rules.h"
#include "tests/unit/core/ovl_fixture.h"

struct told {
	atomic_uint n;
	_Atomic store_ino ino;
	atomic_uint names;
	char name[16]; /* the last one */
};

static void inval(void *arg, store_ino ino)
{
	struct told *t = arg;

	atomic_store(&t->ino, ino);
	atomic_fetch_add(&t->n, 1);
}

static void inval_name(void *arg, store_ino parent, const char *name, size_t len)
{
	struct told *t = arg;

	(void)parent;
	snprintf(t->name, sizeof(t->name), "%.*s", (int)len, name);
	atomic_fetch_add(&t->names, 1);
}

static void eq_told(struct told *t, unsigned n, const char *name, const char *what)
{
	for (int i = 0; i < 500 && atomic_load(&t->names) < n; i++)
		(void)usleep(10000);
	eq_int(atomic_load(&t->names), n, "%s", what);
	eq_str(t->name, name, "which is the name");
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[2 * PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		tap_fatal("cannot write %s", path);
}

static void put_big(const char *dir, const char *name, char fill, size_t n)
{
	char *s = malloc(n + 1);

	if (!s)
		tap_fatal("memory");
	memset(s, fill, n);
	s[n] = '\0';
	put(dir, name, s);
	free(s);
}

static void move(const char *dir, const char *from, const char *to)
{
	char a[2 * PATH_MAX], b[2 * PATH_MAX];

	snprintf(a, sizeof(a), "%s/%s", dir, from);
	snprintf(b, sizeof(b), "%s/%s", dir, to);
	if (rename(a, b) < 0)
		tap_fatal("rename %s", a);
}

static void eq_file(struct fx *f, const char *path, const char *want, const char *what)
{
	char buf[256] = "";
	ssize_t n = fx_read(f, path, 0, buf, sizeof(buf) - 1);

	eq_int(n, (long long)strlen(want), "%s: length", what);
	eq_str(buf, want, "%s", what);
}

static void test_live(struct fx *f, const char *host, struct told *t)
{
	struct ovl_entry e, e2;
	struct ovl_attr a;

	put(host, "live", "one");
	if (fx_get(f, "live", &e) < 0)
		tap_fatal("walk");
	eq_int(e.valid_ms, 1000, "a host name is believed for a second");
	eq_int(e.attr.valid_ms, 1000, "and so are its attributes");
	eq_file(f, "live", "one", "host content");
	put(host, "live", "three");
	if (fx_get(f, "live", &e2) < 0)
		tap_fatal("walk");
	eq_int((long long)(e2.ino - e.ino), 0, "the same inode after a change there");
	eq_int(e2.attr.st.st_size, 5, "with its new size");
	eq_file(f, "live", "three", "and its new content");
	for (int i = 0; i < 200 && !atomic_load(&t->n); i++)
		usleep(10000);
	ok(atomic_load(&t->n) > 0 && atomic_load(&t->ino) == e.ino, "the front end was told");
	eq_int(ovl_write(f->o, e.ino, 0, "T", 1, false), 1, "the first write");
	eq_int(ovl_getattr(f->o, e.ino, &a), 0, "getattr");
	eq_int(a.valid_ms, OVL_FOREVER, "makes it ours for ever");
	eq_int((long long)(a.st.st_ino - e.ino), 0, "under the same number");
	ovl_forget(f->o, e.ino, 2);
	eq_file(f, "live", "Three", "changed here");
	eq_int(fx_stat(f, "nothing", &a.st), -ENOENT, "a name that is not there");
	put(host, "nothing", "now");
	eq_file(f, "nothing", "now", "a name that came on the host");
}

static void test_commit(struct fx *f, const char *host)
{
	struct stat st;
	char buf[4] = "";
	uint64_t records;
	struct store_layer_info li;

	put_big(host, "big", 'h', 1000000);
	put_big(host, "meta", 'm', 300000);
	eq_int(fx_write(f, "big", 5, "X", 1), 1, "one byte of a big host file");
	st.st_mode = 0600;
	eq_int(fx_set(f, "meta", &st, OVL_SET_MODE), 0, "the mode of another");
	eq_int(ovl_commit(f->o, fx_seal, f), 0, "commit");
	put_big(host, "big", 'z', 1000001);
	eq_int(fx_stat(f, "big", &st), 0, "stat");
	eq_int(st.st_size, 1000000, "the size is that of the commit");
	eq_int(fx_read(f, "big", 999998, buf, 4), 2, "its end");
	eq_str(buf, "hh", "is what it was then");
	eq_int(fx_read(f, "big", 5, buf, 1), 1, "and its change");
	eq_int(buf[0], 'X', "is there");
	if (store_layer_get(f->s, f->layer, &li) < 0)
		tap_fatal("layer");
	records = li.records;
	eq_int((long long)records, 0, "nothing is left over for the next layer");
	/* Partly copied, flushed, forgotten, reopened: still completed by the commit. */
	put_big(host, "late", 'l', 500000);
	eq_int(fx_write(f, "late", 0, "Y", 1), 1, "one byte of a third");
	fx_umount(f);
	fx_mount(f);
	eq_int(ovl_commit(f->o, fx_seal, f), 0, "commit after a reopening");
	put_big(host, "late", 'z', 1);
	eq_int(fx_read(f, "late", 499998, buf, 4), 2, "its end");
	eq_str(buf, "ll", "is the host's of before");
}

static void test_dirs(struct fx *f, const char *host)
{
	char path[2 * PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/dir", host);
	if (mkdir(path, 0755) < 0)
		tap_fatal("mkdir");
	put(path, "in", "inside");
	put(path, "gone", "gone");
	eq_int(fx_rename(f, "dir", "moved", 0), 0, "a host directory is renamed");
	eq_file(f, "moved/in", "inside", "its files went along");
	eq_int(fx_stat(f, "dir", &st), -ENOENT, "and its name is gone");
	eq_int(fx_make(f, "dir", FX_DIR, 0755), 0, "a new one in its place");
	eq_int(fx_stat(f, "dir/in", &st), -ENOENT, "is empty");
	eq_int(fx_remove(f, "moved/gone", false), 0, "a host file is removed");
	put(path, "gone", "again");
	eq_int(fx_stat(f, "moved/gone", &st), -ENOENT, "and stays so when it is written there");
	eq_int(fx_remove(f, "moved", true), -ENOTEMPTY, "rmdir of what holds host files");
	eq_int(fx_remove(f, "moved/in", false), 0, "the last one is removed");
	eq_int(fx_remove(f, "moved", true), 0, "rmdir");
	eq_int(access(path, F_OK), 0, "the host has everything");
	fx_umount(f);
	fx_mount(f);
	eq_int(fx_stat(f, "moved", &st), -ENOENT, "the same after a reopening");
	eq_int(fx_stat(f, "dir/in", &st), -ENOENT, "and empty");
}

static void test_links(struct fx *f, const char *host)
{
	char a[2 * PATH_MAX], b[2 * PATH_MAX];
	struct stat x, y;

	put(host, "l1", "shared");
	snprintf(a, sizeof(a), "%s/l1", host);
	snprintf(b, sizeof(b), "%s/l2", host);
	if (link(a, b) < 0)
		tap_fatal("link");
	eq_int(fx_write(f, "l1", 0, "S", 1), 1, "one name of a host file is written");
	eq_file(f, "l2", "Shared", "the other shows it");
	if (ovl_commit(f->o, fx_seal, f) < 0)
		tap_fatal("commit");
	fx_umount(f);
	fx_mount(f);
	eq_file(f, "l2", "Shared", "after a reopening, too");
	if (fx_stat(f, "l1", &x) < 0 || fx_stat(f, "l2", &y) < 0)
		tap_fatal("stat");
	ok(x.st_ino == y.st_ino && x.st_nlink == 2 && y.st_nlink == 2, "they are one inode");
	eq_int(fx_remove(f, "l1", false), 0, "one is removed");
	eq_file(f, "l2", "Shared", "the other stays");
	eq_int(fx_stat(f, "l2", &y), 0, "with");
	eq_int(y.st_nlink, 1, "one link");
}

/* The host gives the inode number of a removed file to a new one. */
static void test_reuse(struct fx *f, const char *host)
{
	char path[2 * PATH_MAX];
	struct stat x, y;
	bool reused = false;

	put(host, "old", "old content");
	snprintf(path, sizeof(path), "%s/old", host);
	if (stat(path, &x) < 0 || fx_write(f, "old", 0, "O", 1) != 1)
		tap_fatal("write");
	if (ovl_commit(f->o, fx_seal, f) < 0 || unlink(path) < 0)
		tap_fatal("commit");
	for (int i = 0; i < 50 && !reused; i++) {
		char name[16];

		snprintf(name, sizeof(name), "new%d", i);
		put(host, name, "new content");
		snprintf(path, sizeof(path), "%s/%s", host, name);
		if (stat(path, &y) < 0)
			tap_fatal("stat");
		reused = x.st_ino == y.st_ino;
		eq_file(f, name, "new content", "a new host file is itself");
	}
	printf("# number reused: %d\n", reused);
	eq_file(f, "old", "Old content", "and the old one stays what it was here");
}

/* Held open here, replaced there by another file of the same name. */
static void test_replaced(struct fx *f, const char *host, struct told *t)
{
	struct ovl_entry old, new;
	struct ovl_attr a;
	struct stat st = {.st_mode = 0600};
	char buf[8] = "";

	put(host, "doc", "first!");
	if (fx_get(f, "doc", &old) < 0 || ovl_read(f->o, old.ino, 0, buf, 2) != 2)
		tap_fatal("read");
	put(host, "doc.new", "second");
	move(host, "doc.new", "doc");
	(void)usleep(40000);
	eq_int(ovl_read(f->o, old.ino, 2, buf + 2, 4), 4, "who has it open reads on");
	eq_str(buf, "first!", "in the file that it was");
	eq_file(f, "doc", "second", "its name has the new one");
	eq_int(ovl_write(f->o, old.ino, 0, "F", 1, false), -ESTALE,
	       "a write to the old one is refused");
	eq_int(ovl_setattr(f->o, old.ino, &st, OVL_SET_MODE, &a), -ESTALE, "and a chmod");
	eq_told(t, 2, "doc", "each time the name is told to be another's");
	eq_file(f, "doc", "second", "so that the new one is not hidden");
	if (fx_get(f, "doc", &new) < 0)
		tap_fatal("walk");
	ok(new.ino != old.ino, "which is another inode");
	eq_int(ovl_write(f->o, new.ino, 0, "S", 1, false), 1, "and is written to");
	eq_file(f, "doc", "Second", "as it was");
	ovl_forget(f->o, old.ino, 1);
	ovl_forget(f->o, new.ino, 1);
	/* Recorded here with the host's bytes: the name counts. */
	put(host, "tool", "one");
	eq_int(fx_set(f, "tool", &st, OVL_SET_MODE), 0, "a mode of our own");
	put(host, "tool.new", "two");
	move(host, "tool.new", "tool");
	(void)usleep(40000);
	eq_file(f, "tool", "two", "shows the file that has the name");
}

/* Believed, and never read before another has its name. */
static void test_believed(struct fx *f, const char *host, struct told *t)
{
	struct timespec ttl = {.tv_sec = 1, .tv_nsec = 100000000};
	char path[2 * PATH_MAX], buf[4096] = "";
	unsigned told = atomic_load(&t->names);
	struct ovl_entry file, link;
	struct ovl_attr a;

	put(host, "believed", "before");
	snprintf(path, sizeof(path), "%s/pointer", host);
	if (symlink("believed", path) < 0)
		tap_fatal("symlink");
	if (fx_get(f, "believed", &file) < 0 || fx_get(f, "pointer", &link) < 0)
		tap_fatal("look");
	put(host, "new", "after, and longer");
	move(host, "new", "believed");
	put(host, "new", "no link");
	move(host, "new", "pointer");
	eq_int(ovl_read(f->o, file.ino, 0, buf, sizeof(buf)), 6, "a replaced file is read");
	eq_str(buf, "before", "whole, as it was");
	(void)nanosleep(&ttl, NULL);
	eq_int(ovl_getattr(f->o, file.ino, &a), 0, "it has attributes also later");
	eq_int(a.st.st_size, 6, "its own");
	eq_int(ovl_readlink(f->o, link.ino, buf), -ESTALE,
	       "what is no link any more is looked for anew");
	eq_told(t, told + 1, "pointer", "and the kernel told");
	ovl_forget(f->o, link.ino, 1);
	ovl_forget(f->o, file.ino, 1);
	eq_int(ovl_read(f->o, file.ino, 0, buf, sizeof(buf)), -ESTALE,
	       "what was forgotten is gone");
}

static int number(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	(void)cookie;
	if (!strcmp(name, "counted"))
		*(store_ino *)arg = e->ino;
	return 0;
}

static void test_listing(struct fx *f, const char *host)
{
	struct ovl_entry root, e;
	store_ino got = 0;

	put(host, "counted", "1");
	if (fx_get(f, "counted", &e) < 0 || fx_get(f, "", &root) < 0)
		tap_fatal("walk");
	usleep(1100000); /* a listing is believed for a second */
	eq_int(ovl_readdir(f->o, STORE_ROOT_INO, 0, false, number, &got), 0, "readdir");
	ok(got == e.ino, "a listing has the numbers that lookup gives");
	ovl_forget(f->o, e.ino, 1);
	ovl_forget(f->o, root.ino, 1);
}

static int count(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	(void)name;
	(void)cookie;
	(void)e;
	++*(int *)arg;
	return 0;
}

/* A host directory that changes twice within a tick of its clock. */
static void test_same_tick(struct fx *f, const char *host)
{
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}};
	char dir[2 * PATH_MAX];
	struct ovl_entry d;
	long long began;
	int n = 0;

	f->opts.host_ttl_ms = 50;
	fx_umount(f);
	fx_mount(f);
	snprintf(dir, sizeof(dir), "%s/tick", host);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	put(dir, "one", "");
	if (fx_get(f, "tick", &d) < 0)
		tap_fatal("walk");
	for (int tries = 0; tries < 100; tries++) {
		began = io_now_ms();
		n = 0;
		(void)clock_gettime(CLOCK_REALTIME, &t[1]);
		if (utimensat(AT_FDCWD, dir, t, 0) < 0 ||
		    ovl_readdir(f->o, d.ino, 0, false, count, &n) < 0)
			tap_fatal("readdir");
		if (io_now_ms() - began < 10)
			break;
		(void)usleep(60000);
	}
	eq_int(n, 3, "a host directory with one name");
	put(dir, "two", "");
	if (utimensat(AT_FDCWD, dir, t, 0) < 0)
		tap_fatal("utimens");
	(void)usleep(60000);
	n = 0;
	eq_int(ovl_readdir(f->o, d.ino, 0, false, count, &n), 0, "is listed again");
	eq_int(n, 4, "and shows the second, although its time is the same");
	ovl_forget(f->o, d.ino, 1);
	f->opts.host_ttl_ms = 0;
	fx_umount(f);
	fx_mount(f);
}

static void remount(struct fx *f)
{
	fx_umount(f);
	fx_mount(f);
}

/* What was removed here comes back on the host under another name, with the same inode number: nothing
 * of the removed one may be seen in it. */
static void test_number_of_the_dead(struct fx *f, const char *host)
{
	struct ovl_entry e;
	char dir[2 * PATH_MAX], c = 0;
	struct stat st;

	put_big(host, "dead", 'h', 400000);
	snprintf(dir, sizeof(dir), "%s/deaddir", host);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	put(dir, "in", "inside");
	if (fx_write(f, "dead", 0, "X", 1) != 1 || ovl_commit(f->o, fx_seal, f) < 0)
		tap_fatal("commit");
	eq_int(fx_remove(f, "dead", false), 0, "a changed host file is removed");
	eq_int(fx_remove(f, "deaddir/in", false), 0, "and what is in a directory");
	eq_int(fx_remove(f, "deaddir", true), 0, "and the directory");
	if (ovl_commit(f->o, fx_seal, f) < 0)
		tap_fatal("commit");
	remount(f);
	move(host, "dead", "alive");
	move(host, "deaddir", "alivedir");
	eq_int(fx_write(f, "alive", 300000, "Y", 1), 1, "another name of it is written");
	eq_int(fx_make(f, "alivedir/new", FX_FILE, 0644), 0, "and a file made in the other");
	remount(f);
	eq_int(fx_read(f, "alive", 0, &c, 1), 1, "its first byte");
	eq_int(c, 'h', "is the host's, not the dead file's");
	eq_int(fx_read(f, "alive", 300000, &c, 1), 1, "its own change");
	eq_int(c, 'Y', "is there");
	eq_int(fx_stat(f, "alivedir/in", &st), 0, "a name removed in the dead directory is there");
	/* Removed, but held open: as well. */
	put(host, "held", "held");
	if (fx_get(f, "held", &e) < 0 || ovl_write(f->o, e.ino, 0, "H", 1, false) != 1)
		tap_fatal("write");
	eq_int(fx_remove(f, "held", false), 0, "an open file is removed");
	move(host, "held", "free");
	eq_file(f, "free", "held", "its other name on the host is another file");
	eq_int(fx_stat(f, "free", &st), 0, "which");
	ok(st.st_ino != e.ino && st.st_nlink == 1, "has a number of its own");
	ovl_forget(f->o, e.ino, 1);
}

/* The same between the end of an inode and the flush that drops its record. */
static void test_ended_not_flushed(struct fx *f, const char *host)
{
	struct ovl_entry e, again;
	struct ovl_attr a;
	char c = 0;

	put_big(host, "ended", 'h', 400000);
	if (fx_get(f, "ended", &e) < 0 || ovl_write(f->o, e.ino, 0, "X", 1, false) != 1 ||
	    ovl_flush(f->o) < 0)
		tap_fatal("write");
	eq_int(fx_remove(f, "ended", false), 0, "a changed and flushed host file is removed");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_getattr(f->o, e.ino, &a), -ESTALE, "its number means nothing any more");
	eq_int(ovl_lookup(f->o, e.ino, ".", &again), -ESTALE, "by a handle neither");
	move(host, "ended", "begun");
	eq_int(fx_read(f, "begun", 0, &c, 1), 1, "its other name on the host is read");
	eq_int(c, 'h', "and shows the host's bytes");
	eq_int(fx_write(f, "begun", 300000, "Y", 1), 1, "and written");
	eq_int(ovl_flush(f->o), 0, "flush");
	remount(f);
	eq_int(fx_read(f, "begun", 300000, &c, 1), 1, "after a reopening it is read");
	eq_int(c, 'Y', "and has what was written");
}

#define MANY 3000

static void *flush_once(void *arg)
{
	struct fx *f = arg;

	return ovl_flush(f->o) < 0 ? arg : NULL;
}

/* While a flush puts the first changes of a host directory away, its removed names stay removed. */
static void test_removed_while_flushed(struct fx *f, const char *host)
{
	char dir[2 * PATH_MAX], name[32];
	unsigned back = 0, looks = 0;
	struct ovl_entry d, e;
	pthread_t t;
	void *failed;

	snprintf(dir, sizeof(dir), "%s/many", host);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		put(dir, name, "");
	}
	if (fx_get(f, "many", &d) < 0)
		tap_fatal("walk");
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		if (ovl_unlink(f->o, d.ino, name) < 0)
			tap_fatal("unlink");
	}
	/* More to be marked clean, before the directory is. */
	for (int i = 0; i < 2 * MANY; i++) {
		snprintf(name, sizeof(name), "more%d", i);
		if (fx_make(f, name, FX_FILE, 0644) < 0 || fx_write(f, name, 0, "m", 1) != 1)
			tap_fatal("write");
	}
	if (pthread_create(&t, NULL, flush_once, f) != 0)
		tap_fatal("thread");
	while (pthread_tryjoin_np(t, &failed) != 0) {
		snprintf(name, sizeof(name), "n%u", looks++ * 7 % MANY);
		if (ovl_lookup(f->o, d.ino, name, &e) < 0)
			tap_fatal("lookup");
		if (!e.ino)
			continue;
		back++;
		ovl_forget(f->o, e.ino, 1);
	}
	ok(!failed, "flushed");
	eq_int(back, 0, "none of %u looks found a removed name", looks);
	ovl_forget(f->o, d.ino, 1);
}

/* As an environment seals: with an id that is a digest over what differs. */
static int seal_with_id(void *arg, store_layer *ret)
{
	struct timespec now = {.tv_sec = 1};
	struct diff_counts n = {0};
	struct store_layer_info li;
	struct digest none = {0}, id;
	struct fx *f = arg;
	int r = store_layer_get(f->s, f->layer, &li);

	if (r == 0)
		r = diff_commit_id(f->s, &none, li.parent, f->layer, "", "", &now, &id, &n);
	return r < 0 ? r : fx_seal(arg, ret);
}

/* A host file that changed under a partly copied one cannot be completed. */
static void test_torn(struct fx *f, const char *host)
{
	struct stat st;
	char c = 0;

	put_big(host, "torn", 't', 300000);
	eq_int(fx_write(f, "torn", 5, "X", 1), 1, "one byte of a host file");
	put_big(host, "torn", 'z', 300001);
	eq_int(ovl_commit(f->o, fx_seal, f), -EIO, "no commit promises bytes that nobody has");
	eq_int(ovl_commit_as_is(f->o, seal_with_id, f), 0, "but what is there can be put away");
	remount(f);
	eq_int(fx_stat(f, "torn", &st), 0, "it is there");
	eq_int(fx_read(f, "torn", 5, &c, 1), 1, "the block that was changed");
	eq_int(c, 'X', "is kept");
	eq_int(fx_read(f, "torn", 200000, &c, 1), -EIO, "the rest is not made up");
	eq_int(fx_remove(f, "torn", false), 0, "it can be removed");
	eq_int(ovl_commit(f->o, fx_seal, f), 0, "and then committed");
}

struct seen {
	unsigned n;
	bool locked;
};

static int see(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct seen *s = arg;

	(void)cookie;
	(void)e;
	s->n++;
	if (!strncmp(name, "file", 4))
		s->locked = true;
	return 0;
}

/* Names that can be listed and not looked at, as in a directory without x or at a mount of somebody
 * else: root has no such directories. */
static void test_unreadable(struct fx *f, const char *host, bool plus)
{
	char dir[2 * PATH_MAX];
	struct seen s = {0};
	struct ovl_entry d;

	if (geteuid() == 0) {
		ok(true, "unreadable names # SKIP root reads everything");
		return;
	}
	snprintf(dir, sizeof(dir), "%s/locked%d", host, plus);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	put(dir, "file1", "");
	put(dir, "file2", "");
	if (chmod(dir, 0444) < 0 || fx_get(f, plus ? "locked1" : "locked0", &d) < 0)
		tap_fatal("chmod");
	eq_int(ovl_readdir(f->o, d.ino, 0, plus, see, &s), 0, "a directory without x is listed");
	ok(s.n == 4 && s.locked, "with all its names");
	ovl_forget(f->o, d.ino, 1);
	if (chmod(dir, 0755) < 0)
		tap_fatal("chmod");
}

/* Three names on the host, one of them removed here: the two that are left are as open as their places. */
static void test_links_under_policy(void)
{
	static const char *const writable[] = {"/w", NULL};
	char host[PATH_MAX], dir[2 * PATH_MAX];
	cleanup_policy_rules struct policy_rules rules = {0};
	struct ovl_entry w, a, b;
	char buf[8] = "";
	struct fx f;

	fx_open(&f);
	fx_path(&f, "policed", host);
	snprintf(dir, sizeof(dir), "%s/w", host);
	if (mkdir(host, 0755) < 0 || mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	put(dir, "a", "linked");
	for (const char *n = "bc"; *n; n++) {
		char from[3 * PATH_MAX], to[3 * PATH_MAX];

		snprintf(from, sizeof(from), "%s/a", dir);
		snprintf(to, sizeof(to), "%s/%c", dir, *n);
		if (link(from, to) < 0)
			tap_fatal("link");
	}
	fx_child(&f, fx_host_layer(&f, host, 0));
	if (policy_rules_writable(writable, NULL, &rules) < 0)
		tap_fatal("rules");
	f.opts.policy = &rules;
	fx_mount(&f);
	/* It is recorded by the name that it was found by. */
	if (fx_get(&f, "w", &w) < 0 || fx_get(&f, "w/a", &a) < 0 || fx_get(&f, "w/b", &b) < 0)
		tap_fatal("look");
	eq_int(ovl_unlink(f.o, w.ino, "a"), 0, "one name of three is removed");
	eq_int(ovl_read(f.o, b.ino, 0, buf, 6), 6, "who found another reads on");
	eq_int(ovl_write(f.o, b.ino, 0, "L", 1, false), 1, "and writes");
	ovl_forget(f.o, b.ino, 2);
	ovl_forget(f.o, w.ino, 1);
	remount(&f);
	eq_file(&f, "w/b", "Linked", "it is found again later");
	eq_file(&f, "w/c", "Linked", "by both names");
	if (fx_get(&f, "w/c", &b) < 0)
		tap_fatal("look");
	eq_int(ovl_write(f.o, b.ino, 1, "I", 1, false), 1, "and written to");
	ovl_forget(f.o, b.ino, 1);
	fx_close(&f);
}

int main(void)
{
	char host[PATH_MAX];
	struct told t = {0};
	struct fx f;

	umask(022);
	fx_open(&f);
	fx_path(&f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	fx_child(&f, fx_host_layer(&f, host, 0));
	f.opts.notify =
		(struct ovl_notify){.arg = &t, .inval_inode = inval, .inval_entry = inval_name};
	fx_mount(&f);
	test_live(&f, host, &t);
	test_commit(&f, host);
	test_dirs(&f, host);
	test_links(&f, host);
	test_reuse(&f, host);
	test_listing(&f, host);
	test_replaced(&f, host, &t);
	test_believed(&f, host, &t);
	test_same_tick(&f, host);
	test_ended_not_flushed(&f, host);
	test_number_of_the_dead(&f, host);
	test_removed_while_flushed(&f, host);
	test_torn(&f, host);
	test_unreadable(&f, host, false);
	test_unreadable(&f, host, true);
	fx_close(&f);
	test_links_under_policy();
	return tap_done();
}
