#include "apply/expand.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/paths.h"
#include "apply/same.h"
#include "base/cleanup.h"

void expand_release(struct expanded *x)
{
	for (size_t i = 0; i < x->nowned; i++)
		free(x->owned[i]);
	free(x->owned);
	free(x->v);
	*x = (struct expanded){0};
}

static struct apply_change *add(struct expanded *x)
{
	if (x->n == x->cap) {
		size_t cap = x->cap ? x->cap * 2 : 64;
		struct apply_change *more = realloc(x->v, cap * sizeof(*more));

		if (!more)
			return NULL;
		x->v = more;
		x->cap = cap;
	}
	return &x->v[x->n++];
}

/* Takes @path. */
static char *keep(struct expanded *x, char *path)
{
	if (path && x->nowned == x->owned_cap) {
		size_t cap = x->owned_cap ? x->owned_cap * 2 : 64;
		char **more = realloc(x->owned, cap * sizeof(*more));

		if (!more) {
			free(path);
			return NULL;
		}
		x->owned = more;
		x->owned_cap = cap;
	}
	if (path)
		x->owned[x->nowned++] = path;
	return path;
}

/* ---- two directories ---- */

struct pair {
	const struct apply_job *j;
	struct expanded *x;
	const struct known *known;
	struct paths from, to; /* of the renames */
	struct paths tops;     /* the directories that are looked through */
	struct timespec at;    /* until then what is there was seen */
	bool chosen;
};

static bool moves(const struct pair *p, const char *path, bool out)
{
	return paths_has(out ? &p->from : &p->to, path);
}

/* Is the place in a directory that is looked through, and not in one that comes there, or goes from there, by a rename? */
static bool covered(const struct pair *p, const char *path, bool old)
{
	const char *top = paths_above(&p->tops, path, false);
	const char *moved = paths_above(old ? &p->from : &p->to, path, false);

	return top && (!moved || strlen(top) > strlen(moved));
}

/* What the list says of @path's name, but for what comes there by a rename, whose base is another; NULL: nothing. The list is sorted. */
static const struct apply_change *listed(const struct pair *p, const char *path)
{
	const struct apply_change *said = NULL;
	size_t lo = 0, hi = p->j->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(p->j->v[mid].path, path) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* The last one of the name: what comes stands behind what goes. */
	for (; lo < p->j->n && !strcmp(p->j->v[lo].path, path); lo++)
		if (p->j->v[lo].kind != 'R')
			said = &p->j->v[lo];
	return said;
}

static int put(const struct pair *p, char kind, const char *path, uint32_t what,
	       const struct same_end *host, const struct same_end *tree)
{
	char *own = keep(p->x, strdup(path));
	struct apply_change *c = own ? add(p->x) : NULL;
	const struct apply_change *said = listed(p, path);

	if (!c)
		return -ENOMEM;
	*c = (struct apply_change){.kind = kind,
				   .path = own,
				   .what = what,
				   .mode = tree ? tree->st.st_mode : host->st.st_mode,
				   .hidden_at = p->at,
				   .chosen = p->chosen || (said && said->chosen),
				   .bytes_fd = kind == 'M' && said ? said->bytes_fd : -1};
	if (host && ident_before(&host->st.st_ctim, &p->at) && !known_find(p->known, path)) {
		ident_of(&host->st, &c->hidden);
	} else if (said && said->hidden.there) {
		c->hidden = said->hidden;
		c->hidden_at = said->hidden_at;
	}
	return 0;
}

static int both(const struct pair *p, const char *path, const struct same_end *host,
		const struct same_end *tree);

static int stat_end(struct same_end *e)
{
	return fstatat(e->dir, e->name, &e->st, AT_SYMLINK_NOFOLLOW) < 0 ? ret_nerrno() : 0;
}

static int only_tree(const struct pair *p, const char *path, const struct same_end *tree);

/* One name that the host has: it goes when the tree has none, or one that came there from elsewhere. */
static int see_host(const struct pair *p, const char *path, int host_dir, int tree_dir,
		    const char *name)
{
	struct same_end host = {.dir = host_dir, .name = name};
	struct stat st;

	if (moves(p, path, true))
		return 0;
	if (!moves(p, path, false) && fstatat(tree_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return stat_end(&host) < 0 ? 0 : put(p, 'D', path, 0, &host, NULL);
}

/* One name that the tree has. */
static int see_tree(const struct pair *p, const char *path, int host_dir, int tree_dir,
		    const char *name)
{
	struct same_end host = {.dir = host_dir, .name = name},
			tree = {.dir = tree_dir, .name = name};
	int r = stat_end(&tree);

	if (r < 0 || moves(p, path, false))
		return r;
	r = host_dir < 0 ? -ENOENT : stat_end(&host);
	if (r == 0 && moves(p, path, true))
		r = -ENOENT;
	if (r == -ENOENT)
		return only_tree(p, path, &tree);
	return r < 0 ? r : both(p, path, &host, &tree);
}

static int each_name(const struct pair *p, const char *path, const struct same_end *of,
		     int host_dir, int tree_dir, bool tree)
{
	cleanup_fd int fd = below_read(of->dir, of->name, &of->st);
	cleanup_dir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	int r = 0;

	if (!d)
		return fd < 0 ? fd : ret_nerrno();
	(void)steal_fd(&fd);
	for (struct dirent *e; r == 0 && (errno = 0, e = readdir(d));) {
		cleanup_free char *below = NULL;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (asprintf(&below, "%s/%s", path, e->d_name) < 0) {
			below = NULL;
			return -ENOMEM;
		}
		r = tree ? see_tree(p, below, host_dir, tree_dir, e->d_name)
			 : see_host(p, below, host_dir, tree_dir, e->d_name);
	}
	return r;
}

static int in_tree(const struct pair *p, const char *path, const struct same_end *tree)
{
	cleanup_fd int dir =
		openat(tree->dir, tree->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return dir < 0 ? ret_nerrno() : each_name(p, path, tree, -1, dir, true);
}

static int only_tree(const struct pair *p, const char *path, const struct same_end *tree)
{
	int r = put(p, 'A', path, 0, NULL, tree);

	return r == 0 && S_ISDIR(tree->st.st_mode) ? in_tree(p, path, tree) : r;
}

static int both_dirs(const struct pair *p, const char *path, const struct same_end *host,
		     const struct same_end *tree)
{
	cleanup_fd int a = openat(host->dir, host->name,
				  O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
		       b = openat(tree->dir, tree->name,
				  O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = a < 0 || b < 0 ? ret_nerrno() : each_name(p, path, host, a, b, false);

	return r < 0 ? r : each_name(p, path, tree, a, b, true);
}

static int both(const struct pair *p, const char *path, const struct same_end *host,
		const struct same_end *tree)
{
	uint32_t what = 0;
	int r;

	if ((host->st.st_mode & S_IFMT) != (tree->st.st_mode & S_IFMT)) {
		r = put(p, 'T', path, APPLY_CONTENT, host, tree);
		return r == 0 && S_ISDIR(tree->st.st_mode) ? in_tree(p, path, tree) : r;
	}
	r = same(host, tree, &what);
	if (r == 0 && what)
		r = put(p, 'M', path, what, host, tree);
	return r == 0 && S_ISDIR(host->st.st_mode) ? both_dirs(p, path, host, tree) : r;
}

static int expand_one(struct pair p, int root, const struct apply_change *gone,
		      const struct apply_change *new)
{
	const struct known_state *left = known_find(p.known, gone->path);
	struct ident id;
	struct same_end host, tree;
	cleanup_fd int a = below_parent(root, gone->path, &host.name),
		       b = below_parent(p.j->tree, new->path, &tree.name);
	int r;

	host.dir = a;
	tree.dir = b;
	r = a < 0 ? a : b < 0 ? b : stat_end(&host);
	if (r == 0)
		r = stat_end(&tree);
	if (r < 0)
		return r;
	ident_of(&host.st, &id);
	if (gone->hidden.there && ident_is(&gone->hidden, &id))
		p.at = gone->hidden_at;
	if (known_same(left, &id) && ident_before(&p.at, &left->at))
		p.at = left->at;
	p.chosen = gone->chosen || new->chosen;
	return both(&p, gone->path, &host, &tree);
}

/* ---- the list ---- */

static int by_path(const void *pa, const void *pb)
{
	const struct apply_change *a = pa, *b = pb;
	int c = strcmp(a->path, b->path);

	return c ? c : (a->kind != 'D') - (b->kind != 'D');
}

/* Where the directory above was moved away, the old one went with it: the two were never at one place of the host. */
static bool is_pair(const struct pair *p, const struct apply_change *a,
		    const struct apply_change *b)
{
	return !paths_above(&p->from, a->path, false) && a->kind == 'D' && b->kind == 'A' &&
	       S_ISDIR(a->mode) && S_ISDIR(b->mode) && !strcmp(a->path, b->path);
}

/* New directories as well: what is in them is what the tree has, whatever the list says. */
static bool is_top(const struct apply_job *j, size_t i)
{
	const struct apply_change *c = &j->v[i];

	return (c->kind == 'A' || c->kind == 'T') && S_ISDIR(c->mode);
}

static int copy_change(struct expanded *x, const struct apply_change *c)
{
	struct apply_change *to = add(x);

	if (!to)
		return -ENOMEM;
	*to = *c;
	return 0;
}

static int expand_new(struct pair p, const struct apply_change *new)
{
	struct same_end tree;
	cleanup_fd int dir = below_parent(p.j->tree, new->path, &tree.name);
	int r = dir < 0 ? dir : 0;

	tree.dir = dir;
	if (r == 0)
		r = stat_end(&tree);
	p.chosen = new->chosen;
	if (r < 0 || new->kind == 'A')
		return r < 0 ? r : only_tree(&p, new->path, &tree);
	r = copy_change(p.x, new);
	return r < 0 ? r : in_tree(&p, new->path, &tree);
}

static int expand_all(int root, const struct pair *p)
{
	const struct apply_job *j = p->j;
	int r = 0;

	for (size_t i = 0; r == 0 && i < j->n; i++) {
		const struct apply_change *c = &j->v[i];

		if (c->kind != 'R' && covered(p, c->path, c->kind == 'D'))
			continue;
		if (i + 1 < j->n && is_pair(p, c, c + 1))
			r = expand_one(*p, root, c, &j->v[++i]);
		else
			r = is_top(j, i) ? expand_new(*p, c) : copy_change(p->x, c);
	}
	return r;
}

static int prepare(struct pair *p)
{
	const struct apply_job *j = p->j;
	int r = 0;

	for (size_t i = 0; r == 0 && i < j->n; i++) {
		const struct apply_change *c = &j->v[i];

		if (is_top(j, i))
			r = paths_add(&p->tops, c->path);
		if (r == 0 && c->kind == 'R')
			r = paths_add(&p->from, c->old);
		if (r == 0 && c->kind == 'R')
			r = paths_add(&p->to, c->path);
	}
	paths_seal(&p->from);
	paths_seal(&p->to);
	paths_seal(&p->tops);
	return r;
}

int expand(const struct apply_job *j, int root, const struct known *known, struct expanded *x)
{
	struct pair p = {.j = j, .x = x, .known = known};
	int r;

	*x = (struct expanded){0};
	r = prepare(&p);
	if (r == 0)
		r = expand_all(root, &p);
	if (x->n)
		qsort(x->v, x->n, sizeof(*x->v), by_path);
	paths_release(&p.from);
	paths_release(&p.to);
	paths_release(&p.tops);
	return r;
}
