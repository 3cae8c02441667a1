/* Whose the layers are, and what that makes of the sizes. */
#include "store/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "store/usage_internal.h"

/* ---- rows, and roots that belong to them ---- */

struct usage_root {
	store_layer layer;
	uint32_t owner; /* NOBODY: other, unless somebody else reaches it */
};
#define NOBODY UINT32_MAX

static size_t nrows(const struct usage *u)
{
	return u->rows.len / sizeof(struct store_usage_row);
}

static struct store_usage_row *row_at(struct usage *u, size_t i)
{
	return (struct store_usage_row *)(void *)u->rows.data + i;
}

static bool row_is(struct usage *u, size_t i, enum store_usage_kind kind, const char *name)
{
	return row_at(u, i)->kind == kind && !strcmp(row_at(u, i)->name, name);
}

/* Roots come by environment, so that it is mostly the last one again. */
static int row_of(struct usage *u, enum store_usage_kind kind, const char *name, size_t *ret)
{
	struct store_usage_row row = {.kind = kind};
	size_t n = nrows(u), i = u->last_row;
	int r = 0;

	if (i >= n || !row_is(u, i, kind, name))
		for (i = 0; i < n && !row_is(u, i, kind, name);)
			i++;
	if (i == n) {
		(void)snprintf(row.name, sizeof(row.name), "%s", name);
		r = buf_put(&u->rows, &row, sizeof(row));
	}
	*ret = u->last_row = i;
	return r;
}

static int own(struct usage *u, enum store_usage_kind kind, const char *name, enum usage_part part,
	       store_layer layer)
{
	struct usage_root root = {.layer = layer};
	size_t row;
	int r = row_of(u, kind, name, &row);

	root.owner = (uint32_t)(row * USAGE_PARTS + part);
	return r < 0 ? r : buf_put(&u->roots, &root, sizeof(root));
}

static int see_ref(struct usage *u, const char *ref, store_layer layer)
{
	struct usage_root nobody = {.layer = layer, .owner = NOBODY};
	char name[65] = "";
	const char *rest = strchr(ref, '/');

	if (rest && !strncmp(ref, "env/", 4) && strchr(rest + 1, '/')) {
		(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(rest + 1, "/"), rest + 1);
		return own(u, STORE_USAGE_ENV, name, USAGE_TREE, layer);
	}
	/* "base/host-shape/DIGEST": what a base of the host was made of. */
	if (rest && !strncmp(ref, "base/", 5) && strchr(rest + 1, '/'))
		return own(u, STORE_USAGE_BASE, "host", USAGE_TREE, layer);
	if (rest && (!strncmp(ref, "base/", 5) || !strncmp(ref, "image/", 6)))
		return own(u, STORE_USAGE_BASE, rest + 1, USAGE_TREE, layer);
	/* A layer of an image goes with the last base that stands on it. */
	if (!strncmp(ref, "oci/", 4))
		return buf_put(&u->roots, &nobody, sizeof(nobody));
	return own(u, STORE_USAGE_OTHER, "", USAGE_TREE, layer);
}

static int env_cmp(const void *a, const void *b)
{
	return memcmp(a, b, 65);
}

static int see_root(struct gc *g, enum gc_root why, const char *name, store_layer n)
{
	struct usage *u = g->root_arg;
	char key[65] = "";

	if (!n)
		return 0;
	switch (why) {
	case GC_ROOT_ENV:
		return own(u, STORE_USAGE_ENV, name, USAGE_TREE, n);
	case GC_ROOT_UNDO:
		return own(u, STORE_USAGE_ENV, name, USAGE_UNDO, n);
	case GC_ROOT_COMMIT:
		(void)snprintf(key, sizeof(key), "%s", name);
		if (g->envs.len && bsearch(key, g->envs.data, g->envs.len / 65, 65, env_cmp))
			return own(u, STORE_USAGE_ENV, name, USAGE_COMMIT, n);
		return own(u, STORE_USAGE_REMOVED, "", USAGE_COMMIT, n);
	case GC_ROOT_REF:
		return see_ref(u, name, n);
	case GC_ROOT_PIN:
	case GC_ROOT_YOUNG:
		break;
	}
	return own(u, STORE_USAGE_OTHER, "", USAGE_TREE, n);
}

/* ---- sets of owners, each kept once ---- */

static uint64_t *set_at(struct usage *u, uint32_t n)
{
	return (uint64_t *)(void *)u->sets.data + (size_t)n * u->words;
}

static uint32_t nsets(const struct usage *u)
{
	return (uint32_t)(u->sizes.len / sizeof(struct store_usage_size));
}

struct store_usage_size *usage_size(struct usage *u, uint32_t set)
{
	return (struct store_usage_size *)(void *)u->sizes.data + set;
}

/* Where it is in the index, or where it goes. */
static size_t index_place(struct usage *u, const uint64_t *set)
{
	uint64_t h = 1;
	size_t i;

	for (size_t w = 0; w < u->words; w++)
		h = (h ^ set[w]) * UINT64_C(0x9e3779b97f4a7c15) ^ (h >> 29);
	for (i = (h >> 20) & (u->nindex - 1); u->index[i]; i = (i + 1) & (u->nindex - 1))
		if (!memcmp(set_at(u, u->index[i] - 1), set, u->words * sizeof(*set)))
			break;
	return i;
}

static int index_grow(struct usage *u)
{
	size_t n = u->nindex ? u->nindex * 2 : 1024;
	uint32_t *more = calloc(n, sizeof(*more));

	if (!more)
		return -ENOMEM;
	free(u->index);
	u->index = more;
	u->nindex = n;
	for (uint32_t i = 0; i < nsets(u); i++)
		more[index_place(u, set_at(u, i))] = i + 1;
	return 0;
}

/* @set is not one of those that are kept. */
static int set_keep(struct usage *u, const uint64_t *set, uint32_t *ret)
{
	static const struct store_usage_size none;
	size_t i;
	int r = nsets(u) >= u->nindex / 2 ? index_grow(u) : 0;

	if (r < 0)
		return r;
	i = index_place(u, set);
	if (u->index[i]) {
		*ret = u->index[i] - 1;
		return 0;
	}
	*ret = nsets(u);
	r = buf_put(&u->sets, set, u->words * sizeof(*set));
	if (r == 0)
		r = buf_put(&u->sizes, &none, sizeof(none));
	if (r == 0)
		u->index[i] = *ret + 1;
	return r;
}

int usage_union(struct usage *u, uint32_t a, uint32_t b, uint32_t *ret)
{
	cleanup_free uint64_t *set = NULL;

	*ret = a;
	if (a == b || b == 0)
		return 0;
	if (a == 0) {
		*ret = b;
		return 0;
	}
	set = calloc(u->words, sizeof(*set));
	if (!set)
		return -ENOMEM;
	for (size_t w = 0; w < u->words; w++)
		set[w] = set_at(u, a)[w] | set_at(u, b)[w];
	return set_keep(u, set, ret);
}

static int set_of_owner(struct usage *u, uint32_t owner, uint32_t *ret)
{
	cleanup_free uint64_t *set = calloc(u->words, sizeof(*set));

	if (!set)
		return -ENOMEM;
	set[owner / 64] |= UINT64_C(1) << (owner % 64);
	return set_keep(u, set, ret);
}

/* ---- whose the layers are ---- */

static int root_cmp(const void *a, const void *b)
{
	const struct usage_root *x = a, *y = b;

	if (x->layer != y->layer)
		return x->layer > y->layer ? -1 : 1;
	return (x->owner > y->owner) - (x->owner < y->owner);
}

static int add_roots(struct usage *u, store_layer layer, const struct usage_root **at,
		     const struct usage_root *end, uint32_t *set)
{
	uint32_t last = NOBODY;
	int r = 0;

	for (; r == 0 && *at < end && (*at)->layer >= layer; ++*at) {
		uint32_t one = u->other;

		/* One that is not there is a move's: only the log remembers it. */
		if ((*at)->layer != layer || ((*at)->owner == NOBODY && *set))
			continue;
		if ((*at)->owner != last && (*at)->owner % USAGE_PARTS == USAGE_UNDO &&
		    (*at)->owner != NOBODY)
			row_at(u, (*at)->owner / USAGE_PARTS)->states++;
		last = (*at)->owner;
		if (last != NOBODY)
			r = set_of_owner(u, last, &one);
		if (r == 0)
			r = usage_union(u, *set, one, set);
	}
	return r;
}

/* From the newest layer down: parents have smaller numbers, so that all that stands on a layer comes before it. */
static int spread(struct usage *u)
{
	const struct usage_root *at = (const void *)u->roots.data;
	size_t n = u->roots.len / sizeof(*at);
	const struct usage_root *end = at + n;
	int r = 0;

	u->of_layer = calloc(u->g.nlayers + 1, sizeof(*u->of_layer));
	if (!u->of_layer)
		return -ENOMEM;
	if (n)
		qsort(u->roots.data, n, sizeof(*at), root_cmp);
	for (size_t i = u->g.nlayers; r == 0 && i-- > 0;) {
		const struct gc_layer *l = &u->g.layers[i], *below = NULL;

		r = add_roots(u, l->n, &at, end, &u->of_layer[i]);
		if (l->parent)
			below = gc_layer_find(&u->g, l->parent);
		if (r == 0 && below && below < l)
			r = usage_union(u, u->of_layer[below - u->g.layers], u->of_layer[i],
					&u->of_layer[below - u->g.layers]);
	}
	return r;
}

static int find_owners(struct usage *u)
{
	cleanup_free uint64_t *none = NULL;
	uint32_t empty;
	size_t other;
	int r = gc_layers_find(&u->g);

	if (r == 0)
		r = row_of(u, STORE_USAGE_OTHER, "", &other);
	if (r < 0)
		return r;
	u->words = (nrows(u) * USAGE_PARTS + 63) / 64;
	none = calloc(u->words, sizeof(*none));
	if (!none)
		return -ENOMEM;
	r = set_keep(u, none, &empty);
	if (r == 0)
		r = set_of_owner(u, (uint32_t)(other * USAGE_PARTS + USAGE_TREE), &u->other);
	return r < 0 ? r : spread(u);
}

/* ---- what that makes ---- */

static void add(struct store_usage_size *to, const struct store_usage_size *n)
{
	to->chunks += n->chunks;
	to->chunk_bytes += n->chunk_bytes;
	to->records += n->records;
	to->record_bytes += n->record_bytes;
}

static bool has(const uint64_t *set, size_t owner)
{
	return set[owner / 64] >> (owner % 64) & 1;
}

static void add_alone(struct store_usage_row *row, const uint64_t *set, size_t first,
		      const struct store_usage_size *n)
{
	add(&row->alone, n);
	if (has(set, first + USAGE_COMMIT))
		add(&row->commits, n);
	else if (!has(set, first + USAGE_TREE))
		add(&row->undo, n);
}

static void add_set(struct usage *u, uint32_t i)
{
	const struct store_usage_size *n = usage_size(u, i);
	const uint64_t *set = set_at(u, i);
	size_t rows = 0, last = 0, row;

	add(&u->res->total, n);
	for (size_t w = 0; w < u->words; w++)
		for (uint64_t left = set[w]; left; left &= left - 1) {
			row = (w * 64 + (size_t)__builtin_ctzll(left)) / USAGE_PARTS;
			if (rows && row == last)
				continue;
			add(&row_at(u, row)->reaches, n);
			last = row;
			rows++;
		}
	if (rows == 0)
		add(&u->res->garbage, n);
	else if (rows == 1)
		add_alone(row_at(u, last), set, last * USAGE_PARTS, n);
	else
		add(&u->res->shared, n);
}

static int by_alone(const void *a, const void *b)
{
	const struct store_usage_row *x = a, *y = b;
	uint64_t m = x->alone.chunk_bytes + x->alone.record_bytes,
		 n = y->alone.chunk_bytes + y->alone.record_bytes;

	if (x->kind != y->kind)
		return x->kind > y->kind ? 1 : -1;
	return m != n ? (m < n ? 1 : -1) : strcmp(x->name, y->name);
}

/* Logs of environments, locks and notes. */
static int other_files(const struct store *s, uint64_t *ret)
{
	int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	struct stat st;

	if (!d) {
		int r = ret_nerrno();

		cleanup_fdp(&fd);
		return r;
	}
	while ((e = readdir(d)))
		if (fstatat(s->dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			*ret += (uint64_t)st.st_blocks * 512;
	return 0;
}

static int files(struct usage *u)
{
	struct store_stats st;
	int r = store_stats(u->g.s, &st);

	if (r < 0)
		return r;
	u->res->chunk_file_bytes = st.chunk_file_bytes;
	u->res->meta_file_bytes = st.meta_file_bytes;
	r = gc_free_inside(&u->g, &u->res->free_bytes);
	return r < 0 ? r : other_files(u->g.s, &u->res->other_file_bytes);
}

static int finish(struct usage *u)
{
	char *rows;
	size_t n = nrows(u);
	int r;

	for (uint32_t i = 0; i < nsets(u); i++)
		add_set(u, i);
	qsort(u->rows.data, n, sizeof(struct store_usage_row), by_alone);
	r = buf_steal(&u->rows, &rows, &(size_t){0});
	if (r < 0)
		return r;
	u->res->rows = (struct store_usage_row *)(void *)rows;
	u->res->nrows = n;
	return 0;
}

void store_usage_release(struct store_usage *u)
{
	free(u->rows);
	*u = (struct store_usage){0};
}

static void release(struct usage *u)
{
	free(u->g.layers);
	buf_release(&u->g.commits);
	buf_release(&u->g.moves);
	buf_release(&u->g.envs);
	buf_release(&u->rows);
	buf_release(&u->roots);
	buf_release(&u->sets);
	buf_release(&u->sizes);
	free(u->index);
	free(u->of_layer);
}

int store_usage(struct store *s, const struct store_usage_opts *o, struct diag *diag,
		struct store_usage *ret)
{
	const struct store_gc_opts as = {
		.dry_run = true, .keep_moves = o->keep_moves, .keep_days = o->keep_days};
	struct store_gc_result unused = {0};
	struct diag why = {0};
	struct usage u = {.g = {.s = s, .o = &as, .res = &unused, .diag = &why, .lock_fd = -1},
			  .o = o};
	int r;

	*ret = (struct store_usage){0};
	u.res = ret;
	u.g.root = see_root;
	u.g.root_arg = &u;
	u.g.now = (int64_t)time(NULL);
	r = find_owners(&u);
	if (r == 0)
		r = usage_scan(&u);
	if (r == 0)
		r = files(&u);
	if (r == 0)
		r = finish(&u);
	release(&u);
	if (r == -EBADMSG)
		return diag_set(
			diag, r,
			"a part of the store is damaged, and cannot be counted: see rattan fsck");
	return r < 0 ? diag_set(diag, r, "cannot count what is in the store: %s", err_text(r)) : 0;
}
