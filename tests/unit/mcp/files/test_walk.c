/* A walk that has directories listed before their turn sees what one without sees. */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "mcp/files/lister.h"
#include "mcp/files/walk.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

enum {
	DIRS = 12
};

static char top[] = "/tmp/rattan-walk.XXXXXX";
static int root_fd;

static void put(const char *path, const char *text)
{
	int fd = openat(root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		tap_fatal("%s", path);
	(void)close(fd);
}

static void make_dir(const char *path)
{
	if (mkdirat(root_fd, path, 0755) < 0)
		tap_fatal("%s", path);
}

/* d00 ... d11, each with four below, each of those with two; rules on two levels, and a directory that cannot be read. */
static void make_tree(void)
{
	char path[128];

	make_dir("w");
	put("w/.gitignore", "e2/\nz*\n");
	for (int i = 0; i < DIRS; i++) {
		(void)snprintf(path, sizeof(path), "w/d%02d", i);
		make_dir(path);
		(void)snprintf(path, sizeof(path), "w/d%02d/file", i);
		put(path, "");
		(void)snprintf(path, sizeof(path), "w/d%02d/zero", i);
		put(path, "");
		for (int k = 0; k < 8; k++) {
			(void)snprintf(path, sizeof(path), k < 4 ? "w/d%02d/e%d" : "w/d%02d/e%d/f",
				       i, k % 4);
			make_dir(path);
			(void)snprintf(path + strlen(path), 8, "/file");
			put(path, "");
		}
		if (i == 7)
			put("w/d07/.gitignore", "!zero\ne1\n");
	}
	make_dir("w/d03/shut");
	if (fchmodat(root_fd, "w/d03/shut", 0, 0) < 0)
		tap_fatal("chmod");
}

struct seen {
	struct buf text;
	const char *stop; /* a path */
	bool waited;
	const char *wait_at, *wait_for;
};

/* Does this process hold the directory @path of the tree? */
static bool held(const char *path)
{
	char want[PATH_MAX], link[64], got[PATH_MAX];

	(void)snprintf(want, sizeof(want), "%s/%s", top, path);
	for (int fd = 0; fd < 256; fd++) {
		ssize_t n;

		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, got, sizeof(got) - 1);
		if (n > 0 && (size_t)n == strlen(want) && !memcmp(got, want, (size_t)n))
			return true;
	}
	return false;
}

static int on_entry(void *arg, const struct walk_entry *e)
{
	static const struct timespec nap = {.tv_nsec = 1000000};
	struct seen *s = arg;

	if (buf_printf(&s->text, "%s %u %d %u\n", e->full, e->depth, e->ignored, e->type) < 0)
		tap_fatal("memory");
	for (int i = 0; s->wait_at && !strcmp(e->path, s->wait_at) && !s->waited && i < 20000;
	     i++) {
		s->waited = held(s->wait_for);
		if (!s->waited)
			(void)nanosleep(&nap, NULL);
	}
	return s->stop && !strcmp(e->path, s->stop) ? WALK_STOP : WALK_ON;
}

static void on_ahead(void *arg, int dir_fd, const char *name, unsigned char type)
{
	(void)arg, (void)dir_fd, (void)name, (void)type;
}

static int walk(struct seen *s, bool ahead, struct walk_counts *counts)
{
	const struct walk_opts o = {
		.ignore = true, .fn = on_entry, .ahead = ahead ? on_ahead : NULL, .arg = s};

	*counts = (struct walk_counts){0};
	return walk_tree(root_fd, "/w", &o, counts);
}

static void same(const char *stop, const char *what)
{
	struct seen with = {.stop = stop}, without = {.stop = stop};
	struct walk_counts a, b;
	int fds = count_fds(), r = walk(&without, false, &a);

	eq_int(walk(&with, true, &b), r, "%s: the same end", what);
	eq_int(count_fds(), fds, "%s: no descriptor is left", what);
	ok(with.text.len == without.text.len &&
		   !memcmp(with.text.data, without.text.data, with.text.len),
	   "%s: the same names in the same order", what);
	ok(!memcmp(&a, &b, sizeof(a)), "%s: the same is counted", what);
	if (!stop)
		eq_int(b.unreadable, geteuid() ? 1 : 0, "what cannot be read among it");
	buf_release(&with.text);
	buf_release(&without.text);
}

/* While files of one directory are looked at, the next one is listed. */
static void beside(void)
{
	struct seen s = {.wait_at = "d05/file", .wait_for = "w/d06"};
	struct walk_counts counts;

	eq_int(walk(&s, true, &counts), 0, "a walk");
	ok(s.waited, "in whose midst the next directory is open");
	buf_release(&s.text);
}

static bool take(struct lister *l, int dir_fd, const char *name, struct names *ret)
{
	for (int i = 0; i < 100000; i++) {
		lister_ask(l, dir_fd, name);
		(void)usleep(100);
		if (lister_take(l, dir_fd, name, ret))
			return true;
	}
	return false;
}

static void by_hand(void)
{
	const struct names_opts o = {0};
	int fds = count_fds(), w = openat(root_fd, "w", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct lister *l = NULL;
	struct names names;

	eq_int(lister_new(&o, &l), 0, "a lister");
	ok(!lister_take(l, w, "d00", &names), "what was not asked for is not listed");
	ok(take(l, w, "d00", &names), "what was is");
	ok(names.n == 6 && !strcmp(names.v[0].s, "e0") && !strcmp(names.v[5].s, "zero"), "by name");
	names_release(&names);
	lister_ask(l, w, "none");
	(void)usleep(10000);
	ok(!lister_take(l, w, "none", &names), "what is not there is left to who walks");
	for (int i = 0; i < 200; i++)
		lister_ask(l, w, "d01");
	lister_leave(l, w);
	ok(!lister_take(l, w, "d01", &names), "a directory that was left is forgotten");
	lister_ask(l, w, "d02");
	lister_free(l);
	(void)close(w);
	eq_int(count_fds(), fds, "no descriptor is left");
}

int main(void)
{
	if (!mkdtemp(top))
		tap_fatal("mkdtemp");
	root_fd = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	make_tree();
	same(NULL, "all of it");
	same("d04/e1", "stopped in a directory");
	same(".gitignore", "stopped at once");
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
		beside();
		by_hand();
	}
	if (fchmodat(root_fd, "w/d03/shut", 0755, 0) < 0)
		tap_fatal("chmod");
	tree_remove(top);
	return tap_done();
}
