/*
 * Whole runs over a host directory and a tree, which is another directory here: what is planned, in words, and what comes of it. Then every rename
 * of a run goes wrong in each way that it can: it fails; the process is gone after it; somebody has put something else there in that moment. And
 * every wait for the disk fails, alone or with all renames after it.
 */
#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apply/apply.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "tests/lib/tap.h"

static char top[] = "/tmp/rattan-run.XXXXXX", host[64], tree[64], data[64];

/* ---- what happens to the renames ---- */

static struct {
	unsigned n;  /* so far */
	unsigned at; /* of this one, from 1; 0: of none */
	enum {
		FAIL,
		STICK, /* it fails, and all after it */
		DIE,   /* after it */
		SWAP   /* somebody is faster: @path is another file */
	} how;
	const char *path; /* of the host */
	unsigned fails;   /* this one fails as well, before */
	bool keep;
	bool did;
	bool stuck; /* no rename goes through */
	bool messy; /* no removal does */
} hook;
static struct {
	unsigned n, at;
	enum {
		KEPT,   /* and what was written is there all the same */
		TORN,   /* its end is not */
		STICKS, /* it is there, and from then on no rename goes through */
	} how;
} syncs;

int __real_renameat2(int, const char *, int, const char *, unsigned);
int __wrap_renameat2(int from, const char *a, int to, const char *b, unsigned flags);

static void host_path(const char *rel, char ret[static PATH_MAX])
{
	if (snprintf(ret, PATH_MAX, "%s/%s", host, rel) >= PATH_MAX)
		tap_fatal("a long path");
}

static void put(const char *dir, const char *rel, const char *text)
{
	char path[PATH_MAX];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/%.200s", dir, rel);
	(void)unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || io_write_full(fd, text, strlen(text)) < 0)
		tap_fatal("%s: %s", path, strerror(errno));
}

static int set_aside(const char *rel)
{
	char at[PATH_MAX], kept[PATH_MAX];

	host_path(rel, at);
	host_path("../kept", kept);
	return rename(at, kept);
}

int __wrap_renameat2(int from, const char *a, int to, const char *b, unsigned flags)
{
	int r;

	if (++hook.n == hook.at && hook.how == STICK)
		hook.stuck = true;
	if (hook.stuck) {
		errno = ENOSPC;
		return -1;
	}
	if (hook.n == hook.fails) {
		errno = EIO;
		return -1;
	}
	if (hook.n != hook.at)
		return __real_renameat2(from, a, to, b, flags);
	if (hook.how == FAIL) {
		errno = EIO;
		return -1;
	}
	if (hook.how == SWAP) {
		if (hook.keep) /* what was there is not gone, so that its number is not another's */
			(void)!set_aside(hook.path);
		put(host, hook.path, "somebody's");
		hook.did = true;
	}
	r = __real_renameat2(from, a, to, b, flags);
	if (hook.how == DIE)
		_exit(42);
	return r;
}

static int waited(int fd, int r)
{
	struct stat st;

	if (++syncs.n != syncs.at)
		return r;
	hook.stuck = syncs.how == STICKS;
	if (syncs.how == TORN && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    ftruncate(fd, st.st_size - 1) < 0)
		tap_fatal("ftruncate");
	errno = ENOSPC;
	return -1;
}

int __real_fsync(int);
int __wrap_fsync(int fd);
int __real_syncfs(int);
int __wrap_syncfs(int fd);

int __wrap_fsync(int fd)
{
	return waited(fd, __real_fsync(fd));
}

int __wrap_syncfs(int fd)
{
	return waited(fd, __real_syncfs(fd));
}

int __real_unlinkat(int, const char *, int);
int __wrap_unlinkat(int dir, const char *name, int flags);

int __wrap_unlinkat(int dir, const char *name, int flags)
{
	if (!hook.messy)
		return __real_unlinkat(dir, name, flags);
	errno = EROFS;
	return -1;
}

/* ---- the two directories ---- */

static int gone(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void anew(void)
{
	const char *const dirs[] = {host, tree, data};

	for (size_t i = 0; i < 3; i++) {
		(void)nftw(dirs[i], gone, 16, FTW_DEPTH | FTW_PHYS);
		if (mkdir(dirs[i], 0755) < 0)
			tap_fatal("mkdir");
	}
}

static void make_dir(const char *dir, const char *rel)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%.200s", dir, rel);
	if (mkdir(path, 0755) < 0)
		tap_fatal("%s", path);
}

static struct buf *seen;

static int see(const char *path, const struct stat *st, int type, struct FTW *at)
{
	cleanup_buf struct buf text = {0};
	const char *rel = path + strlen(host);

	(void)type;
	(void)at;
	if (S_ISREG(st->st_mode) && io_read_file(AT_FDCWD, path, 1 << 20, &text) < 0)
		return -1;
	return buf_printf(seen, "%s%s %o %lld %.*s\n", *rel ? rel + 1 : ".",
			  S_ISDIR(st->st_mode) ? "/" : "", (unsigned)st->st_mode & 07777,
			  (long long)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
			  (int)text.len, text.len ? (const char *)text.data : "");
}

static int by_line(const void *pa, const void *pb)
{
	const char *const *a = pa, *const *b = pb;

	return strcmp(*a, *b);
}

/* All of the host directory, sorted. Freed by the caller. */
static char *snapshot(void)
{
	cleanup_buf struct buf b = {0}, out = {0};
	char *lines[256], *save = NULL;
	size_t n = 0;

	seen = &b;
	if (nftw(host, see, 16, FTW_PHYS) != 0 || buf_put(&b, "", 1) < 0)
		tap_fatal("snapshot");
	for (char *l = strtok_r((char *)b.data, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
		if (n < 256)
			lines[n++] = l;
	qsort(lines, n, sizeof(*lines), by_line);
	for (size_t i = 0; i < n; i++)
		if (buf_printf(&out, "%s\n", lines[i]) < 0)
			tap_fatal("no memory");
	return strndup((char *)out.data, out.len);
}

/* ---- a run ---- */

static struct apply_change list[32];
static size_t nlist;
static struct buf said;

static struct apply_change *change(char kind, const char *path, const char *old, uint32_t what)
{
	struct apply_change *c = &list[nlist++];
	const char *at = kind == 'D' ? NULL : path, *was = old ? old : path;
	char p[PATH_MAX];
	struct stat st;

	*c = (struct apply_change){.kind = kind,
				   .path = (char *)(uintptr_t)path,
				   .old = (char *)(uintptr_t)old,
				   .what = what,
				   .chosen = true,
				   .bytes_fd = -1};
	host_path(was, p);
	if (lstat(p, &st) == 0) {
		ident_of(&st, &c->hidden);
		c->mode = st.st_mode;
	}
	(void)clock_gettime(CLOCK_REALTIME, &c->hidden_at);
	if (at) {
		(void)snprintf(p, sizeof(p), "%s/%.200s", tree, at);
		if (lstat(p, &st) < 0)
			tap_fatal("the tree has no %s", at);
		c->mode = st.st_mode;
	}
	return c;
}

static void line(void *arg, const struct apply_line *l)
{
	static const char *const words[] = {"", "= ", "! ", "- "};

	(void)arg;
	if (buf_printf(&said, "%s%c %s%s%s%s%s\n", words[l->verdict], l->kind, l->old ? l->old : "",
		       l->old ? " > " : "", l->path, *l->reason ? ": " : "", l->reason) < 0)
		tap_fatal("no memory");
}

static int by_path(const void *pa, const void *pb)
{
	const struct apply_change *a = pa, *b = pb;
	int c = strcmp(a->path, b->path);

	return c ? c : (a->kind != 'D') - (b->kind != 'D');
}

static struct policy *policy;
static struct apply_sum sum;
static const uint64_t *since;

static int run(bool dry, bool force, struct diag *diag)
{
	const struct apply_calls calls = {.line = line};
	cleanup_fd int fd = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct apply_job job = {.data_dir = data,
				      .env = "e",
				      .host = host,
				      .mount = "/workspace",
				      .tree = fd,
				      .v = list,
				      .n = nlist,
				      .policy = policy,
				      .since = since,
				      .dry_run = dry,
				      .force = force};

	qsort(list, nlist, sizeof(*list), by_path);
	buf_clear(&said);
	hook.n = syncs.n = 0;
	*diag = (struct diag){0};
	return apply_run(&job, &calls, diag, &sum);
}

static int back(struct diag *diag)
{
	const struct apply_calls calls = {.line = line};

	buf_clear(&said);
	hook.n = syncs.n = 0;
	*diag = (struct diag){0};
	return apply_back(data, "e", false, &calls, diag, &sum);
}

static void is_said(const char *want, const char *what)
{
	if (buf_put(&said, "", 1) < 0)
		tap_fatal("no memory");
	eq_str((const char *)said.data, want, "%s", what);
}

static void is_host(const char *want, const char *what)
{
	cleanup_free char *now = snapshot();

	eq_str(now, want, "%s", what);
}

/* ---- the plan ---- */

static void tick(void)
{
	const struct timespec t = {.tv_nsec = 20000000};

	(void)nanosleep(&t, NULL);
}

/* Every kind of change; what a directory that goes holds is chosen with it. */
static void everything(void)
{
	anew();
	nlist = 0;
	put(host, "edit", "one");
	put(host, "gone", "g");
	put(host, "old", "r");
	put(host, "type", "t");
	make_dir(host, "dir");
	put(host, "dir/in", "i");
	put(host, "dir/out", "o");
	make_dir(host, "from");
	put(host, "from/kept", "k");
	tick();
	put(tree, "edit", "two");
	put(tree, "name", "r");
	make_dir(tree, "type");
	put(tree, "type/x", "x");
	put(tree, "new", "n");
	put(tree, "saved", "o");
	make_dir(tree, "to");
	put(tree, "to/kept", "k");
	(void)change('M', "edit", NULL, APPLY_CONTENT);
	(void)change('D', "gone", NULL, 0);
	(void)change('R', "name", "old", 0);
	(void)change('T', "type", NULL, APPLY_CONTENT);
	(void)change('A', "type/x", NULL, 0);
	(void)change('A', "new", NULL, 0);
	(void)change('D', "dir", NULL, 0);
	(void)change('R', "saved", "dir/out", 0);
	(void)change('R', "to", "from", 0);
	tick();
}

static void test_plan(void)
{
	struct diag d;
	cleanup_free char *before = NULL, *after = NULL;

	everything();
	before = snapshot();
	eq_int(run(true, false, &d), 0, "a dry run");
	is_said("D dir\nM edit\nD gone\nR old > name\nA new\nR dir/out > saved\nR from > to\nT type\nA type/x\n",
		"every kind");
	is_host(before, "a dry run changes nothing");
	eq_int(run(false, false, &d), 0, "a run: %s", d.text);
	after = snapshot();
	ok(strstr(after, "edit 644") && strstr(after, "two\n") && strstr(after, "saved 644") &&
		   strstr(after, "to/kept") && strstr(after, "type/x") && !strstr(after, "dir") &&
		   !strstr(after, "gone") && !strstr(after, "from"),
	   "and all of it is there");
	eq_int(back(&d), 0, "taken back: %s", d.text);
	is_host(before, "byte for byte");
	eq_int(back(&d), -ENODATA, "once");
}

static void test_drift(void)
{
	struct diag d;

	everything();
	put(host, "edit", "theirs");
	put(host, "gone", "theirs");
	put(host, "new", "theirs");
	put(host, "dir/theirs", "t");
	eq_int(run(true, false, &d), 0, "drifted");
	is_said("! D dir: dir/theirs in it was made or changed on the host since\n"
		"! M edit: it was changed on the host since the sandbox saw it\n"
		"! D gone: it was changed on the host since the sandbox saw it\n"
		"R old > name\n! A new: the host has something of that name by now\nR dir/out > saved\nR from > to\nT type\nA type/x\n",
		"what has drifted is left alone, and no more");
	eq_int(run(true, true, &d), 0, "forced");
	is_said("D dir\nM edit\nD gone\nR old > name\n! A new: the host has something of that name by now\n"
		"R dir/out > saved\nR from > to\nT type\nA type/x\n",
		"but for what has no base");
}

static void test_chosen(void)
{
	struct diag d;

	everything();
	for (size_t i = 0; i < nlist; i++)
		list[i].chosen = !strcmp(list[i].path, "dir") || !strcmp(list[i].path, "type/x");
	eq_int(run(true, false, &d), 0, "some");
	is_said("D dir\nR dir/out > saved\nT type\nA type/x\n", "what they need comes along");
}

static void test_policy(void)
{
	cleanup_policy_rules struct policy_rules rules = {.otherwise = POLICY_READ, .deep = true};
	struct diag d = {0};

	everything();
	policy_free(policy);
	if (policy_rules_add(&rules, POLICY_WRITE, POLICY_PATH, "/workspace", NULL, &d) < 0 ||
	    policy_rules_add(&rules, POLICY_DENY, POLICY_PATH, "/workspace/dir/in", NULL, &d) < 0 ||
	    policy_rules_add(&rules, POLICY_READ, POLICY_PATH, "/workspace/edit", NULL, &d) < 0 ||
	    policy_rules_add(&rules, POLICY_DENY, POLICY_PATH, "/workspace/to", NULL, &d) < 0 ||
	    policy_new(&rules, &d, &policy) < 0)
		tap_fatal("%s", d.text);
	eq_int(run(true, false, &d), 0, "with a policy");
	if (buf_put(&said, "", 1) < 0)
		tap_fatal("no memory");
	ok(strstr((char *)said.data, "- D dir: ") && strstr((char *)said.data, "- M edit: ") &&
		   strstr((char *)said.data, "- R from > to: ") &&
		   strstr((char *)said.data, "\nD gone\n"),
	   "what it closes is kept back");
	policy_free(policy);
	if (policy_new(NULL, &d, &policy) < 0)
		tap_fatal("policy");
}

/* ---- what goes wrong ---- */

/* How many renames a run takes. */
static unsigned renames(void)
{
	struct diag d;

	hook.at = 0;
	everything();
	if (run(false, false, &d) < 0)
		tap_fatal("%s", d.text);
	return hook.n;
}

static void test_failing(unsigned n)
{
	unsigned wrong = 0;

	for (unsigned i = 1; i <= n; i++) {
		cleanup_free char *before = NULL, *now = NULL;
		struct diag d;
		int r;

		everything();
		before = snapshot();
		hook.at = i;
		hook.how = FAIL;
		r = run(false, false, &d);
		hook.at = 0;
		now = snapshot();
		wrong += r != -EIO || strcmp(before, now) != 0 || sum.left != 0 ||
			 strstr(d.text, "undone");
	}
	eq_int(wrong, 0, "each of %u renames fails, and nothing is applied", n);
}

/* After a failure: the directory is as it was, or what is not is counted and told, and the next run puts it back. */
static bool as_said(const char *before, const struct diag *d)
{
	cleanup_free char *now = snapshot(), *next = NULL;
	struct diag ignored = {0};

	if (!sum.left)
		return !strcmp(before, now) && !strstr(d->text, "undone") &&
		       !strstr(d->text, "nothing was");
	if (!strstr(d->text, "; and of what was done, this could not be undone: ") ||
	    !strstr(d->text, "No space left on device; the next apply or unapply tries it again"))
		return false;
	if (apply_recover(data, &ignored, NULL) != 1)
		return false;
	next = snapshot();
	return !strcmp(before, next);
}

/* Each rename is the first of those that fail, and what was done before it cannot be undone. */
static void test_stuck(unsigned n)
{
	unsigned wrong = 0, left = 0;

	for (unsigned i = 1; i <= n; i++) {
		cleanup_free char *before = NULL;
		struct diag d;
		int r;

		everything();
		before = snapshot();
		hook.at = i;
		hook.how = STICK;
		r = run(false, false, &d);
		hook.at = 0;
		hook.stuck = false;
		left += sum.left > 0;
		wrong += r != -ENOSPC || !as_said(before, &d);
	}
	eq_int(wrong, 0, "what could not be undone after each of %u renames is told", n);
	eq_int(left, n - 1, "after each but the first there was something");
}

/* All is undone, but the stage stays: which it says. */
static void test_messy(void)
{
	cleanup_free char *before = NULL, *next = NULL;
	struct diag d;

	everything();
	before = snapshot();
	hook.at = 2;
	hook.how = FAIL;
	hook.messy = true;
	eq_int(run(false, false, &d), -EIO, "a rename fails, and nothing can be removed");
	hook.at = 0;
	hook.messy = false;
	ok(sum.left > 0 && strstr(d.text, "cannot be removed: Read-only file system"),
	   "what is left is told: %s", d.text);
	eq_int(apply_recover(data, &d, NULL), 1, "the next run removes it");
	next = snapshot();
	eq_str(next, before, "and all is as it was");
}

/* Who made a list before another run, or a taking back, is told to make it again. */
static void test_since(void)
{
	uint64_t last, old;
	struct diag d = {0};

	everything();
	eq_int(apply_recover(data, &d, &last), 0, "nothing is to be put in order");
	since = &last;
	eq_int(run(true, false, &d), 0, "a list that is of now");
	eq_int(run(false, false, &d), 0, "is applied");
	eq_int(run(false, false, &d), -EAGAIN, "one of before that is not");
	ok(strstr(d.text, "apply again"), "and it says what to do: %s", d.text);
	old = last;
	eq_int(apply_recover(data, &d, &last), 0, "again");
	ok(last > old, "the latest run is known");
	eq_int(back(&d), 0, "taken back");
	eq_int(run(true, false, &d), -EAGAIN, "nor is one of before that");
	since = NULL;
}

/* How many waits for the disk a run, or its way back, takes. */
static unsigned waits(bool there)
{
	struct diag d;

	syncs.at = 0;
	everything();
	if (run(false, false, &d) < 0 || (!there && back(&d) < 0))
		tap_fatal("%s", d.text);
	return syncs.n;
}

static void test_no_disk(int how)
{
	unsigned wrong = 0, failed = 0, left = 0;

	for (unsigned i = 1, n = waits(true); i <= n; i++) {
		cleanup_free char *before = NULL;
		struct diag d;
		int r;

		everything();
		before = snapshot();
		syncs.at = i;
		syncs.how = how;
		r = run(false, false, &d);
		syncs.at = 0;
		hook.stuck = false;
		failed += r < 0;
		left += r < 0 && sum.left > 0;
		wrong += r < 0 && !as_said(before, &d);
	}
	eq_int(wrong, 0, "a disk that is full at any time: as it was, or told");
	ok(failed >= 5, "it failed %u times", failed);
	ok(how == STICKS ? left >= 2 : left == 0, "%u times it could not be undone", left);
}

/* One way or the other, and what is taken back is counted, also where that could not be noted any more. */
static void test_no_disk_back(int how)
{
	unsigned wrong = 0, counted = 0, left = 0;

	for (unsigned i = 1, n = waits(false); i <= n; i++) {
		cleanup_free char *before = NULL, *after = NULL, *now = NULL, *next = NULL;
		struct diag d;
		bool marked;
		int r;

		everything();
		before = snapshot();
		wrong += run(false, false, &d) != 0;
		after = snapshot();
		syncs.at = i;
		syncs.how = how;
		r = back(&d);
		syncs.at = 0;
		hook.stuck = false;
		now = snapshot();
		wrong += sum.runs ? strcmp(before, now) != 0 : r == 0 || !as_said(after, &d);
		counted += r < 0 && sum.runs > 0;
		left += r < 0 && sum.left > 0;
		/* What the disk was not waited for may be on it: it is marked then. */
		marked = sum.runs && how != TORN;
		wrong += r < 0 && back(&d) != 0 && !marked;
		wrong += back(&d) != -ENODATA;
		next = snapshot();
		wrong += strcmp(before, next) != 0;
	}
	eq_int(wrong, 0, "the same on the way back, and the next time it is through");
	ok(counted > 0, "taken back, and it failed then: %u times", counted);
	ok(how == STICKS ? left >= 2 : left == 0, "%u times it could not be undone", left);
}

static int child(int (*fn)(struct diag *d), unsigned at)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		struct diag d;

		hook.at = at;
		hook.how = DIE;
		_exit(fn(&d) < 0 ? 1 : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		tap_fatal("child");
	return WEXITSTATUS(status);
}

static int run_it(struct diag *d)
{
	return run(false, false, d);
}

static void test_killed(unsigned n)
{
	unsigned wrong = 0;
	struct diag d;

	for (unsigned i = 1; i <= n; i++) {
		cleanup_free char *before = NULL, *now = NULL, *after = NULL, *again = NULL;

		everything();
		before = snapshot();
		wrong += child(run_it, i) != 42;
		wrong += apply_recover(data, &d, NULL) != 1;
		now = snapshot();
		wrong += strcmp(before, now) != 0;
		wrong += run(false, false, &d) != 0;
		after = snapshot();
		wrong += child(back, i) != 42;
		wrong += apply_recover(data, &d, NULL) != 1;
		again = snapshot();
		wrong += strcmp(after, again) != 0;
	}
	eq_int(wrong, 0, "killed after each of %u renames there and back, it is undone", n);
}

/* The first rename that takes @path from the host: before it somebody has put another file there. */
static void test_swapped(unsigned n, const char *path)
{
	unsigned wrong = 0, met = 0;

	for (unsigned i = 1; i <= n; i++) {
		cleanup_buf struct buf text = {0};
		cleanup_free char *before = NULL, *now = NULL;
		char at[PATH_MAX];
		struct diag d;
		int r;

		everything();
		hook.at = i;
		hook.how = SWAP;
		hook.path = path;
		hook.did = false;
		r = run(false, false, &d);
		hook.at = 0;
		host_path(path, at);
		/* Once it is through, what somebody has put there since is simply there. */
		if (!hook.did || io_read_file(AT_FDCWD, at, 100, &text) < 0 || text.len != 10 ||
		    memcmp(text.data, "somebody's", 10) != 0) {
			wrong++;
			continue;
		}
		met += r == -ESTALE;
		if (r < 0 && (sum.left != 0 || strstr(d.text, "undone")))
			wrong++;
	}
	eq_int(wrong, 0, "nothing that somebody puts at %s is lost", path);
	ok(met > 0, "and where it was in the way (%u times) nothing was applied", met);
}

/* The same while a run that failed is undone. */
static void test_swapped_back(unsigned n, const char *path)
{
	unsigned lost = 0, met = 0;

	for (unsigned i = n + 1; i < 2 * n; i++) {
		cleanup_buf struct buf text = {0};
		char at[PATH_MAX];
		struct diag d;

		everything();
		hook.at = i;
		hook.fails = n;
		hook.keep = true;
		hook.how = SWAP;
		hook.path = path;
		hook.did = false;
		(void)!run(false, false, &d);
		hook.at = hook.fails = 0;
		hook.keep = false;
		host_path(path, at);
		met += hook.did;
		if (hook.did && (io_read_file(AT_FDCWD, at, 100, &text) < 0 || text.len != 10 ||
				 memcmp(text.data, "somebody's", 10) != 0))
			lost++;
	}
	eq_int(lost, 0, "nothing that somebody puts at %s while it is undone is lost", path);
	ok(met > 0, "in %u moments of it", met);
}

static bool is_text(const char *rel, const char *want)
{
	cleanup_buf struct buf text = {0};
	char at[PATH_MAX];

	host_path(rel, at);
	return io_read_file(AT_FDCWD, at, 100, &text) == 0 && text.len == strlen(want) &&
	       !memcmp(text.data, want, text.len);
}

/* The same inode with other bytes: what somebody has made of the file, or a new one that has got the number of one that was
 * removed. */
static void rewrite(const char *rel, const char *text)
{
	char at[PATH_MAX];
	cleanup_fd int fd = -1;

	host_path(rel, at);
	fd = open(at, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd < 0 || io_write_full(fd, text, strlen(text)) < 0)
		tap_fatal("%s", at);
}

/* A new directory with a file of somebody's that has the number of the one that was at @rel; false: it has another. */
static bool remake(const char *rel)
{
	struct stat was, is;
	char at[PATH_MAX], in[PATH_MAX];

	host_path(rel, at);
	if (lstat(at, &was) < 0)
		tap_fatal("%s", at);
	(void)nftw(at, gone, 16, FTW_DEPTH | FTW_PHYS);
	tick();
	if (mkdir(at, 0755) < 0 || lstat(at, &is) < 0)
		tap_fatal("%s", at);
	(void)snprintf(in, sizeof(in), "%.200s/mine", rel);
	put(host, in, "somebody's");
	return was.st_ino == is.st_ino;
}

/* Killed after its @i-th rename: did it bring @rel? */
static bool killed_with(unsigned i, const char *rel)
{
	char at[PATH_MAX];

	everything();
	(void)child(run_it, i);
	host_path(rel, at);
	return access(at, F_OK) == 0;
}

/* What somebody makes of a place between a run that was killed and the next one is not lost. */
static void test_touched(unsigned n)
{
	unsigned lost = 0, dirs = 0, stuck = 0, freed = 0;
	struct diag d;

	for (unsigned i = 1; i <= n; i++) {
		if (killed_with(i, "new")) {
			rewrite("new", "somebody's");
			d = (struct diag){0};
			(void)!apply_recover(data, &d, NULL);
			lost += !is_text("new", "somebody's");
		}
		if (killed_with(i, "type/x") && remake("type")) {
			d = (struct diag){0};
			(void)!apply_recover(data, &d, NULL);
			lost += !is_text("type/mine", "somebody's");
			dirs++;
		}
		if (killed_with(i, "edit") && is_text("edit", "two")) {
			rewrite("edit", "somebody's");
			d = (struct diag){0};
			stuck += apply_recover(data, &d, NULL) == 0 &&
				 strstr(d.text,
					"edit has been changed or made since then; move it to "
					"another place") != NULL;
			lost += !is_text("edit", "somebody's");
			(void)set_aside("edit");
			d = (struct diag){0};
			freed += apply_recover(data, &d, NULL) == 1 && is_text("edit", "one");
		}
	}
	eq_int(lost, 0, "what somebody has made since a run was killed is kept");
	ok(stuck > 0 && freed == stuck,
	   "what is in the way (%u times) is named, and when it is gone, %u times, the old bytes come back",
	   stuck, freed);
	printf("# a directory had the number of the one before %u times\n", dirs);
}

int main(void)
{
	struct diag d = {0};
	unsigned n;

	if (!mkdtemp(top))
		tap_fatal("no directory");
	(void)snprintf(host, sizeof(host), "%s/host", top);
	(void)snprintf(tree, sizeof(tree), "%s/tree", top);
	(void)snprintf(data, sizeof(data), "%s/data", top);
	if (policy_new(NULL, &d, &policy) < 0)
		tap_fatal("policy");
	test_plan();
	test_drift();
	test_chosen();
	test_policy();
	n = renames();
	test_failing(n);
	test_stuck(n);
	test_messy();
	test_since();
	for (int how = KEPT; how <= STICKS; how++) {
		test_no_disk(how);
		test_no_disk_back(how);
	}
	test_killed(n);
	test_touched(n);
	test_swapped(n, "edit");
	test_swapped(n, "gone");
	test_swapped_back(n, "edit");
	test_swapped_back(n, "new");
	policy_free(policy);
	buf_release(&said);
	(void)nftw(top, gone, 16, FTW_DEPTH | FTW_PHYS);
	return tap_done();
}
