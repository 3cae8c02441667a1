#include "mcp/files/packages.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "mcp/files/fsio.h"

enum {
	LIST_MOST = 8 << 20, /* bytes of one package's list */
	OWNERS_MOST = 200000
};

void packages_release(struct packages *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->v[i].name);
		free(p->v[i].package);
	}
	free(p->v);
	*p = (struct packages){0};
}

static int add(struct packages *p, const char *name, size_t n, const char *package, size_t m)
{
	struct owner o;

	if (p->n == OWNERS_MOST)
		return 0;
	if (p->n == p->cap) {
		size_t cap = p->cap ? p->cap * 2 : 512;
		struct owner *v = realloc(p->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->v = v;
		p->cap = cap;
	}
	o = (struct owner){strndup(name, n), strndup(package, m)};
	if (!o.name || !o.package) {
		free(o.name);
		free(o.package);
		return -ENOMEM;
	}
	p->v[p->n++] = o;
	return 0;
}

/* One path of a list: is it a program's? */
static int take_line(struct packages *p, const char *line, size_t n, const char *package, size_t m)
{
	const char *slash = n ? memrchr(line, '/', n) : NULL;
	const char *end = line + n;

	if (!slash || slash + 1 == end || slash - line < 3 || memcmp(slash - 3, "bin", 3) != 0)
		return 0;
	return add(p, slash + 1, (size_t)(end - slash - 1), package, m);
}

static int take_list(struct packages *p, int root_fd, const char *path, const char *package,
		     size_t m)
{
	cleanup_buf struct buf b = {0};
	cleanup_fd int fd = -1;
	struct stat st;
	int r = 0;

	if (fsio_open_read(root_fd, path, &fd, &st) < 0 ||
	    fsio_read_all(fd, (size_t)st.st_size, LIST_MOST, &b) < 0)
		return 0;
	for (const char *s = (const char *)b.data, *end = s + b.len; r == 0 && s < end;) {
		const char *nl = memchr(s, '\n', (size_t)(end - s));
		size_t n = (size_t)((nl ? nl : end) - s);

		r = take_line(p, s, n, package, m);
		s += n + 1;
	}
	return r;
}

/* dpkg: NAME.list or NAME:ARCH.list. */
static size_t debian_name(const char *file)
{
	size_t n = strlen(file), name = strcspn(file, ":");

	if (n <= 5 || strcmp(file + n - 5, ".list") != 0)
		return 0;
	return name < n - 5 ? name : n - 5;
}

/* pacman: a directory NAME-VERSION-RELEASE. */
static size_t arch_name(const char *file)
{
	const char *dash = strrchr(file, '-');

	dash = dash && dash > file ? memrchr(file, '-', (size_t)(dash - file)) : NULL;
	return dash ? (size_t)(dash - file) : 0;
}

static int read_place(struct packages *p, int root_fd, const char *dir, const char *file,
		      size_t (*name_of)(const char *entry))
{
	const struct dirent *e;
	cleanup_dir DIR *d = NULL;
	char path[PATH_MAX];
	int fd, r = 0;

	if (fsio_open_dir(root_fd, dir, &fd) < 0)
		return 0;
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	while (r == 0 && (e = readdir(d))) {
		size_t n = e->d_name[0] == '.' ? 0 : name_of(e->d_name);

		(void)snprintf(path, sizeof(path), "%s/%s%s", dir, e->d_name, file);
		if (n)
			r = take_list(p, root_fd, path, e->d_name, n);
	}
	return r;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct owner *)a)->name, ((const struct owner *)b)->name);
}

int packages_read(int root_fd, struct packages *ret)
{
	int r;

	*ret = (struct packages){0};
	r = read_place(ret, root_fd, PACKAGES_DPKG, "", debian_name);
	if (r == 0)
		r = read_place(ret, root_fd, PACKAGES_PACMAN, "/files", arch_name);
	if (r < 0) {
		packages_release(ret);
		return r;
	}
	if (ret->n)
		qsort(ret->v, ret->n, sizeof(*ret->v), by_name);
	return 0;
}

const char *packages_of(const struct packages *p, const char *name)
{
	const struct owner want = {.name = (char *)(uintptr_t)name}, *got;

	got = p->n ? bsearch(&want, p->v, p->n, sizeof(*p->v), by_name) : NULL;
	return got ? got->package : NULL;
}
