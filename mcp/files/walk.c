#include "mcp/files/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "mcp/files/fsio.h"
#include "mcp/files/pattern.h"

enum {
	DEPTH_MAX = 200,
	AHEAD = 32, /* names */
	IGNORE_FILE_MAX = 1 << 20
};

/* The rules of one directory; a chain up to the repository's top. */
struct level {
	struct ignore_rules rules;
	size_t base; /* length of the directory's path with its "/" */
	struct level *up;
};

struct walker {
	const struct walk_opts *o;
	struct walk_counts *counts;
	char path[PATH_MAX]; /* of the current entry */
	size_t start;        /* length of the start's path with its "/" */
	unsigned depth;
};

struct name {
	unsigned char type;
	bool judged, ignored; /* the second once the first */
	char *s;
};
struct names {
	struct name *v;
	size_t n, cap;
	unsigned ignore; /* enum ignore_file: those that are there */
};

enum ignore_file {
	IGNORE_EXCLUDE = 1 << 0,
	IGNORE_GIT = 1 << 1,
	IGNORE_PLAIN = 1 << 2,
	IGNORE_ANY = IGNORE_EXCLUDE | IGNORE_GIT | IGNORE_PLAIN
};

static void names_release(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].s);
	free(l->v);
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

static int list(DIR *dir, const struct walk_opts *o, struct names *ret)
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

/* ---- ignore rules ---- */

static int load_file(int dir_fd, const char *name, struct ignore_rules *rules)
{
	cleanup_fd int fd = -1;
	cleanup_buf struct buf b = {0};
	struct stat st;

	/* an ignore file that cannot be read ignores nothing */
	if (fsio_open_below(dir_fd, name, &fd, &st) < 0 ||
	    fsio_read_all(fd, (size_t)st.st_size, IGNORE_FILE_MAX, &b) < 0)
		return 0;
	return ignore_parse(rules, (const char *)b.data, b.len);
}

/* @there: enum ignore_file. To look for what is not there would be three messages a directory. */
static int load_level(int dir_fd, struct level *l, unsigned there)
{
	static const struct {
		unsigned file;
		const char *path;
	} all[] = {{IGNORE_EXCLUDE, ".git/info/exclude"},
		   {IGNORE_GIT, ".gitignore"},
		   {IGNORE_PLAIN, ".ignore"}};
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(all); i++)
		if (there & all[i].file)
			r = load_file(dir_fd, all[i].path, &l->rules);
	return r;
}

static const char *const noise[] = {".git",        ".hg",   ".svn",        "node_modules",
				    "__pycache__", ".venv", ".mypy_cache", ".tox"};

static bool ignored(const char *path, const char *name, bool is_dir, const struct level *l)
{
	for (size_t i = 0; is_dir && i < ARRAY_SIZE(noise); i++)
		if (!strcmp(name, noise[i]))
			return true;
	for (; l; l = l->up) {
		int v = l->rules.n ? ignore_verdict(&l->rules, path + l->base, is_dir) : 0;

		if (v)
			return v > 0;
	}
	return false;
}

static void free_levels(struct level *l)
{
	while (l) {
		struct level *up = l->up;

		ignore_release(&l->rules);
		free(l);
		l = up;
	}
}

/* The levels above @path, from the repository's top (or the workspace) down; none when the start is
 * itself ignored by them: it was named, so it is wanted. */
static int load_above(int root_fd, const char *path, struct level **ret)
{
	cleanup_free char *up = strdup(path);
	struct level *top = NULL, **end = &top;
	bool repository = false;
	int r = 0;

	if (!up)
		return -ENOMEM;
	for (char *slash;
	     r >= 0 && !repository && strcmp(up, "/workspace") && (slash = strrchr(up, '/'));) {
		cleanup_fd int fd = -1;
		struct level *l;

		*slash = 0;
		if (!*up || fsio_open_dir(root_fd, up, &fd) < 0)
			break;
		l = calloc(1, sizeof(*l));
		if (!l) {
			r = -ENOMEM;
			break;
		}
		l->base = strlen(up) + 1;
		*end = l;
		end = &l->up;
		r = load_level(fd, l, IGNORE_ANY);
		repository = !faccessat(fd, ".git", F_OK, AT_SYMLINK_NOFOLLOW);
	}
	if (r >= 0 && top) {
		const char *name = strrchr(path, '/');

		if (ignored(path, name + 1, true, top)) {
			free_levels(top);
			top = NULL;
		}
	}
	if (r < 0)
		free_levels(top);
	else
		*ret = top;
	return r;
}

/* ---- the walk ---- */

static int visit_dir(struct walker *w, int fd, size_t len, struct level *up);

static int enter(struct walker *w, int dir_fd, const char *name, size_t len, struct level *here)
{
	int fd, r;

	if (w->o->max_depth && w->depth >= w->o->max_depth)
		return 0;
	if (w->depth >= DEPTH_MAX) {
		w->counts->too_deep++;
		return 0;
	}
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ESTALE || errno == ENOTCONN)
			return ret_nerrno();
		w->counts->unreadable++;
		return 0;
	}
	r = visit_dir(w, fd, len, here);
	return r;
}

/* @n's path becomes the walker's. @len: length of the directory's, without "/". */
static bool set_path(struct walker *w, const struct name *n, size_t len)
{
	size_t k = strlen(n->s);

	if (len + k + 2 > sizeof(w->path))
		return false;
	w->path[len] = '/';
	memcpy(w->path + len + 1, n->s, k + 1);
	return true;
}

static bool judge(struct walker *w, struct name *n, const struct level *here)
{
	if (!n->judged)
		n->ignored = w->o->ignore && ignored(w->path, n->s, n->type == DT_DIR, here);
	n->judged = true;
	return n->ignored;
}

static void look_ahead(struct walker *w, int fd, struct name *n, size_t len,
		       const struct level *here)
{
	if (set_path(w, n, len) && !judge(w, n, here))
		w->o->ahead(w->o->arg, fd, n->s, n->type);
}

static int visit(struct walker *w, int dir_fd, struct name *n, size_t len, struct level *here)
{
	bool is_dir = n->type == DT_DIR;
	struct walk_entry e = {
		.dir_fd = dir_fd,
		.name = n->s,
		.type = n->type,
		.depth = w->depth,
		.path = w->path + w->start,
		.full = w->path,
	};
	int r;

	e.ignored = judge(w, n, here);
	if (e.ignored && is_dir)
		w->counts->ignored_dirs++;
	else if (e.ignored)
		w->counts->ignored_files++;
	r = w->o->fn(w->o->arg, &e);
	if (r < 0 || r == WALK_STOP)
		return r < 0 ? r : 1;
	if (!is_dir || e.ignored || r == WALK_SKIP)
		return 0;
	return enter(w, dir_fd, n->s, len, here);
}

/* Takes @fd. @len: length of the directory's path without "/". */
static int visit_dir(struct walker *w, int fd, size_t len, struct level *up)
{
	__attribute__((cleanup(names_release))) struct names names = {0};
	struct level here = {.base = len + 1, .up = up};
	cleanup_dir DIR *dir = fdopendir(fd);
	int r;

	if (!dir) {
		r = ret_nerrno();
		(void)close(fd);
		return r;
	}
	r = list(dir, w->o, &names);
	if (r < 0 && r != -ENOMEM && r != -ESTALE && r != -ENOTCONN) {
		w->counts->unreadable++;
		r = 0;
	}
	if (r >= 0 && w->o->ignore)
		r = load_level(fd, &here, names.ignore);
	w->depth++;
	for (size_t i = 0; w->o->ahead && !r && i < AHEAD && i < names.n; i++)
		look_ahead(w, fd, &names.v[i], len, &here);
	for (size_t i = 0; !r && i < names.n; i++) {
		if (w->o->ahead && i + AHEAD < names.n)
			look_ahead(w, fd, &names.v[i + AHEAD], len, &here);
		if (!set_path(w, &names.v[i], len)) {
			w->counts->too_deep++;
			continue;
		}
		r = visit(w, fd, &names.v[i], len + 1 + strlen(names.v[i].s), &here);
	}
	w->depth--;
	if (w->o->leave)
		w->o->leave(w->o->arg, fd);
	ignore_release(&here.rules);
	return r;
}

int walk_tree(int root_fd, const char *path, const struct walk_opts *o, struct walk_counts *ret)
{
	cleanup_free struct walker *w = calloc(1, sizeof(*w));
	struct level *above = NULL;
	size_t len = strcmp(path, "/") ? strlen(path) : 0;
	int fd, r;

	if (!w)
		return -ENOMEM;
	if (len + 2 > sizeof(w->path))
		return -ENAMETOOLONG;
	w->o = o;
	w->counts = ret;
	w->start = len + 1;
	memcpy(w->path, path, len);
	r = fsio_open_dir(root_fd, path, &fd);
	if (r < 0)
		return r;
	if (o->ignore && len)
		r = load_above(root_fd, path, &above);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	r = visit_dir(w, fd, len, above);
	free_levels(above);
	return r;
}
