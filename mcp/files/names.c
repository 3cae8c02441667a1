#include "mcp/files/names.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void names_release(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].s);
	free(l->v);
	if (l->dir)
		(void)closedir(l->dir);
	*l = (struct names){0};
}

static int names_add(struct names *l, const char *s, unsigned char type)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 32;
		struct name *v = realloc(l->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n] = (struct name){.type = type, .s = strdup(s)};
	return l->v[l->n].s ? (l->n++, 0) : -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->s, ((const struct name *)b)->s);
}

static int by_kind(const void *a, const void *b)
{
	bool da = ((const struct name *)a)->type == DT_DIR,
	     db = ((const struct name *)b)->type == DT_DIR;

	return da != db ? db - da : by_name(a, b);
}

static unsigned char type_of(int dir_fd, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type;
	if (fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return (unsigned char)IFTODT(st.st_mode);
}

static unsigned ignore_file(const char *name)
{
	return !strcmp(name, ".git")         ? IGNORE_EXCLUDE
	       : !strcmp(name, ".gitignore") ? IGNORE_GIT
	       : !strcmp(name, ".ignore")    ? IGNORE_PLAIN
					     : 0;
}

static int list(DIR *dir, const struct names_opts *o, struct names *ret)
{
	const struct dirent *e;
	int r = 0;

	while (r >= 0 && (errno = 0, e = readdir(dir))) {
		ret->ignore |= e->d_name[0] == '.' ? ignore_file(e->d_name) : 0;
		if (e->d_name[0] == '.' &&
		    (!o->hidden || !e->d_name[1] || (e->d_name[1] == '.' && !e->d_name[2])))
			continue;
		r = names_add(ret, e->d_name, type_of(dirfd(dir), e));
	}
	if (r >= 0 && errno)
		r = ret_nerrno();
	if (ret->n)
		qsort(ret->v, ret->n, sizeof(*ret->v), o->dirs_first ? by_kind : by_name);
	return r;
}

void names_of(int fd, const struct names_opts *o, struct names *ret)
{
	*ret = (struct names){.dir = fdopendir(fd)};
	if (ret->dir) {
		ret->r = list(ret->dir, o, ret);
		return;
	}
	ret->r = ret_nerrno();
	(void)close(fd);
}

void names_below(int dir_fd, const char *name, const struct names_opts *o, struct names *ret)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		*ret = (struct names){.r = ret_nerrno()};
	else
		names_of(fd, o, ret);
}
