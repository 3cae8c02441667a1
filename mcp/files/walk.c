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
#include "mcp/files/lister.h"
#include "mcp/files/names.h"
#include "mcp/files/pattern.h"

enum {
	DEPTH_MAX = 200,
	AHEAD = 32,     /* names */
	AHEAD_DIRS = 2, /* whose names are listed before their turn */
	LIST_FROM = 4,  /* directories: to start a thread takes as long as to list some */
	IGNORE_FILE_MAX = 1 << 20
};

static struct names_opts names_opts(const struct walk_opts *o)
{
	return (struct names_opts){.hidden = o->hidden, .dirs_first = o->dirs_first};
}

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
	struct lister *lister; /* NULL: not yet, or it cannot be had */
	unsigned long dirs;    /* entered */
};

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

static int visit_dir(struct walker *w, struct names *names, size_t len, struct level *up);

/* From some directories on it is worth a thread to list the next ones. */
static void want_lister(struct walker *w)
{
	struct names_opts o = names_opts(w->o);

	if (w->o->ahead && ++w->dirs == LIST_FROM && lister_new(&o, &w->lister) < 0)
		w->lister = NULL; /* one thread does, too */
}

static int enter(struct walker *w, int dir_fd, const char *name, size_t len, struct level *here)
{
	struct names_opts o = names_opts(w->o);
	struct names names;

	if (w->o->max_depth && w->depth >= w->o->max_depth)
		return 0;
	if (w->depth >= DEPTH_MAX) {
		w->counts->too_deep++;
		return 0;
	}
	want_lister(w);
	if (!w->lister || !lister_take(w->lister, dir_fd, name, &names))
		names_below(dir_fd, name, &o, &names);
	if (!names.dir) {
		if (names.r == -ESTALE || names.r == -ENOTCONN || names.r == -ENOMEM)
			return names.r;
		w->counts->unreadable++;
		return 0;
	}
	return visit_dir(w, &names, len, here);
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

/* The next directories after @i, each once. @asked: how far they were. */
static void list_ahead(struct walker *w, struct names *l, size_t i, size_t *asked, size_t len,
		       const struct level *here)
{
	unsigned n = 0;

	if (!w->lister)
		return;
	for (i++; i < l->n && n < AHEAD_DIRS; i++) {
		if (l->v[i].type != DT_DIR)
			continue;
		n++;
		if (i < *asked || !set_path(w, &l->v[i], len) || judge(w, &l->v[i], here))
			continue;
		lister_ask(w->lister, dirfd(l->dir), l->v[i].s);
	}
	*asked = i > *asked ? i : *asked;
}

static int visit_names(struct walker *w, struct names *l, size_t len, struct level *here)
{
	int fd = dirfd(l->dir), r = 0;
	size_t asked = 0;

	for (size_t i = 0; w->o->ahead && i < AHEAD && i < l->n; i++)
		look_ahead(w, fd, &l->v[i], len, here);
	for (size_t i = 0; !r && i < l->n; i++) {
		if (w->o->ahead && i + AHEAD < l->n)
			look_ahead(w, fd, &l->v[i + AHEAD], len, here);
		if (!i || l->v[i].type == DT_DIR)
			list_ahead(w, l, i, &asked, len, here);
		if (!set_path(w, &l->v[i], len)) {
			w->counts->too_deep++;
			continue;
		}
		r = visit(w, fd, &l->v[i], len + 1 + strlen(l->v[i].s), here);
	}
	return r;
}

/* Takes @names. @len: length of the directory's path without "/". */
static int visit_dir(struct walker *w, struct names *names, size_t len, struct level *up)
{
	struct level here = {.base = len + 1, .up = up};
	int r = names->r;

	if (r < 0 && r != -ENOMEM && r != -ESTALE && r != -ENOTCONN) {
		w->counts->unreadable++;
		r = 0;
	}
	if (r >= 0 && w->o->ignore)
		r = load_level(dirfd(names->dir), &here, names->ignore);
	w->depth++;
	if (r >= 0)
		r = visit_names(w, names, len, &here);
	w->depth--;
	if (w->o->leave)
		w->o->leave(w->o->arg, dirfd(names->dir));
	if (w->lister)
		lister_leave(w->lister, dirfd(names->dir));
	ignore_release(&here.rules);
	names_release(names);
	return r;
}

int walk_tree(int root_fd, const char *path, const struct walk_opts *o, struct walk_counts *ret)
{
	cleanup_free struct walker *w = calloc(1, sizeof(*w));
	struct names_opts no = names_opts(o);
	struct level *above = NULL;
	struct names names;
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
	names_of(fd, &no, &names);
	r = names.dir ? visit_dir(w, &names, len, above) : names.r;
	lister_free(w->lister);
	free_levels(above);
	return r;
}
