/* Listings by getdents64 with small buffers, so that a directory is listed in many calls. */
#include <dirent.h>
#include <sys/syscall.h>

#include "tests/mount/walk.h"

#define CROWD 40

struct dirent64_raw {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

static void names_add(struct names *n, const char *name)
{
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return;
	if ((n->n & (n->n - 1)) == 0) {
		n->v = realloc(n->v, (n->n ? 2 * n->n : 1) * sizeof(*n->v));
		if (!n->v)
			die("memory");
	}
	(void)snprintf(n->v[n->n++], sizeof(n->v[0]), "%s", name);
}

void names_read(int fd, size_t size, size_t most, struct names *n)
{
	_Alignas(8) char buf[4096];
	long k;

	if (size < 300) /* one name has to fit */
		size = 300;
	while (!most || n->n < most) {
		k = syscall(SYS_getdents64, fd, buf, size < sizeof(buf) ? size : sizeof(buf));
		if (k < 0)
			die("getdents");
		if (k == 0)
			return;
		for (long at = 0; at < k;) {
			struct dirent64_raw *e = (struct dirent64_raw *)(void *)(buf + at);

			names_add(n, e->name);
			at += e->len;
		}
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

void names_sort(struct names *n)
{
	if (n->n)
		qsort(n->v, n->n, sizeof(*n->v), by_name);
}

size_t names_count(const struct names *n, const char *name)
{
	size_t k = 0;

	for (size_t i = 0; i < n->n; i++)
		k += !strcmp(n->v[i], name);
	return k;
}

void names_free(struct names *n)
{
	free(n->v);
	*n = (struct names){0};
}

static void touch(int fd, char kind, unsigned i, bool make)
{
	char name[16];
	int f;

	(void)snprintf(name, sizeof(name), "%c%02u", kind, i);
	if (!make && unlinkat(fd, name, 0) < 0)
		die("unlink %s", name);
	if (!make)
		return;
	f = openat(fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (f < 0)
		die("create %s", name);
	(void)close(f);
}

/* What was there all the time is listed once, what came or went at most once. */
static void listed(struct walk *w, const char *p, const struct names *before,
		   const struct names *got)
{
	for (size_t i = 0; i < before->n; i++) {
		const char *name = before->v[i];
		bool went = name[0] == 'z' && (name[2] - '0') % 2 == 0;
		size_t k = names_count(got, name);

		if (k > 1 || (k == 0 && !went))
			bad(w, "%s: '%s' is listed %zu times", p, name, k);
	}
	for (size_t i = 0; i < got->n; i++)
		if (got->v[i][0] == 'y' && names_count(got, got->v[i]) > 1)
			bad(w, "%s: the new '%s' is listed more than once", p, got->v[i]);
}

/* In the mount only: all is as before when it ends. Names of z and y are used by nothing else. */
void step_listing(struct walk *w, const char *p)
{
	struct names before = {0}, got = {0};
	size_t size = 300 + rnd(w, 600);
	int fd = openat(w->dir[OURS], p, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), again;

	if (fd < 0)
		return;
	say(w, "listing %s", p);
	for (unsigned i = 0; i < CROWD; i++)
		touch(fd, 'z', i, true);
	names_read(fd, 4096, 0, &before);
	again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (again < 0)
		die("open %s", p);
	names_read(again, size, 1 + rnd(w, CROWD), &got);
	for (unsigned i = 0; i < CROWD; i++) {
		if (i % 2 == 0)
			touch(fd, 'z', i, false);
		touch(fd, 'y', i, true);
	}
	names_read(again, size, 0, &got);
	listed(w, p, &before, &got);
	for (unsigned i = 0; i < CROWD; i++) {
		if (i % 2)
			touch(fd, 'z', i, false);
		touch(fd, 'y', i, false);
	}
	names_free(&before);
	names_free(&got);
	(void)close(again);
	(void)close(fd);
}
