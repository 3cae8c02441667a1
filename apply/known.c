/* What runs of this environment have left behind, the latest of each place. */
#include <stdlib.h>
#include <string.h>

#include "apply/known.h"
#include "apply/paths.h"
#include "base/cleanup.h"

struct entry {
	char *path;
	struct known_state s;
	uint64_t run;
	size_t n; /* later ones of a run are later */
};
/* A directory that a run has brought with all that is in it: as something new, or again. */
struct brought {
	uint64_t dev, ino;
	struct timespec at;
};
struct known {
	struct entry *v;
	size_t n, cap, added;
	struct brought *brought;
	size_t nbrought, brought_cap;
};

void known_free(struct known *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < k->n; i++)
		free(k->v[i].path);
	free(k->v);
	free(k->brought);
	free(k);
}

static int add(struct known *k, struct trail *t, struct after *a)
{
	if (k->n == k->cap) {
		size_t cap = k->cap ? k->cap * 2 : 128;
		struct entry *more = realloc(k->v, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->v = more;
		k->cap = cap;
	}
	k->v[k->n] = (struct entry){
		.path = steal_ptr(&a->path),
		.s = {.id = a->id, .at = t->done_at, .back = t->state == TRAIL_DONE ? t->back : 0},
		.run = t->id,
		.n = k->added++};
	k->n++;
	return 0;
}

static int by_path(const void *pa, const void *pb)
{
	const struct entry *a = pa, *b = pb;
	int c = strcmp(a->path, b->path);

	if (c)
		return c;
	if (a->run != b->run)
		return a->run < b->run ? -1 : 1;
	return a->n < b->n ? -1 : a->n > b->n;
}

/* The latest of each stays. */
static void unique(struct known *k)
{
	size_t n = 0;

	for (size_t i = 0; i < k->n; i++) {
		if (i + 1 < k->n && !strcmp(k->v[i].path, k->v[i + 1].path)) {
			free(k->v[i].path);
			continue;
		}
		k->v[n++] = k->v[i];
	}
	k->n = n;
}

/* What was left below a place says nothing of what has come there since, or gone from there: a renamed directory brings its own. */
static int forget_below(struct known *k, const struct trail *t)
{
	cleanup_paths struct paths changed = {0};
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < t->steps.n; i++) {
		const struct step *s = &t->steps.v[i];

		if (s->op == STEP_OUT)
			r = paths_add(&changed, s->place);
		else if (s->op == STEP_IN || s->op == STEP_SWAP)
			r = paths_add(&changed, s->path);
	}
	if (r < 0)
		return r;
	paths_seal(&changed);
	for (size_t i = 0; i < k->n; i++) {
		if (paths_above(&changed, k->v[i].path, false))
			free(k->v[i].path);
		else
			k->v[n++] = k->v[i];
	}
	k->n = n;
	return 0;
}

/* ---- directories that came whole ---- */

static int add_brought(struct known *k, const struct ident *id, const struct timespec *at)
{
	if (k->nbrought == k->brought_cap) {
		size_t cap = k->brought_cap ? k->brought_cap * 2 : 32;
		struct brought *more = realloc(k->brought, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->brought = more;
		k->brought_cap = cap;
	}
	k->brought[k->nbrought++] = (struct brought){.dev = id->dev, .ino = id->ino, .at = *at};
	return 0;
}

/* The names in one of them are those that were noted; what was renamed into it has a past of its own. */
static int see_brought(struct known *k, const struct trail *t)
{
	cleanup_paths struct paths came = {0}, moved = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && i < t->steps.n; i++) {
		const struct step *s = &t->steps.v[i];

		if (s->op == STEP_IN && s->moved)
			r = paths_add(&moved, s->path);
		else if (s->op == STEP_IN || s->op == STEP_SWAP)
			r = paths_add(&came, s->path);
	}
	paths_seal(&came);
	paths_seal(&moved);
	for (size_t i = 0; r == 0 && i < t->nafter; i++) {
		const struct after *a = &t->after[i];
		const char *top, *by;

		/* One that its owner cannot read was not looked into. */
		if (!a->id.there || !S_ISDIR(a->id.mode) || !(a->id.mode & S_IRUSR))
			continue;
		top = paths_above(&came, a->path, true);
		by = paths_above(&moved, a->path, true);
		if (top && (!by || strlen(by) < strlen(top)))
			r = add_brought(k, &a->id, &t->done_at);
	}
	return r;
}

static int by_object(const void *pa, const void *pb)
{
	const struct brought *a = pa, *b = pb;

	if (a->dev != b->dev)
		return a->dev < b->dev ? -1 : 1;
	return a->ino < b->ino ? -1 : a->ino > b->ino;
}

/* Only the latest of each object. */
static void unique_brought(struct known *k)
{
	size_t n = 0;

	if (k->nbrought)
		qsort(k->brought, k->nbrought, sizeof(*k->brought), by_object);
	for (size_t i = 0; i < k->nbrought; i++) {
		if (n && by_object(&k->brought[n - 1], &k->brought[i]) == 0) {
			if (ident_before(&k->brought[n - 1].at, &k->brought[i].at))
				k->brought[n - 1] = k->brought[i];
			continue;
		}
		k->brought[n++] = k->brought[i];
	}
	k->nbrought = n;
}

bool known_absent(const struct known *k, const char *path, const struct ident *dir,
		  const struct timespec *seen)
{
	const struct brought key = {.dev = dir->dev, .ino = dir->ino}, *found;
	const struct known_state *s = known_find(k, path);

	if (s)
		return !s->id.there;
	found = k && k->nbrought && dir->there
			? bsearch(&key, k->brought, k->nbrought, sizeof(key), by_object)
			: NULL;
	return found && ident_before(seen, &found->at);
}

int known_load(int base_fd, const char *env, const char *root, struct known **ret)
{
	struct known *k = calloc(1, sizeof(*k));
	cleanup_free uint64_t *ids = NULL;
	size_t n = 0;
	int r = k ? trail_list(base_fd, &ids, &n) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < n; i++) {
		cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};

		r = trail_load(base_fd, ids[i], &t);
		if (r == -EBADMSG || r == -ENOENT) { /* what it says is not known */
			r = 0;
			continue;
		}
		if (r < 0 || !t.env || strcmp(t.env, env) != 0 || strcmp(t.root, root) != 0)
			continue;
		if (t.state == TRAIL_DONE || t.state == TRAIL_TAKEN_BACK)
			r = forget_below(k, &t);
		if (r == 0 && (t.state == TRAIL_DONE || t.state == TRAIL_TAKEN_BACK))
			r = see_brought(k, &t);
		for (size_t a = 0; r == 0 && a < t.nafter; a++)
			r = add(k, &t, &t.after[a]);
	}
	if (r < 0) {
		known_free(k);
		return r;
	}
	if (k->n)
		qsort(k->v, k->n, sizeof(*k->v), by_path);
	unique(k);
	unique_brought(k);
	*ret = k;
	return 0;
}

bool known_same(const struct known_state *k, const struct ident *is)
{
	if (!k || k->id.there != is->there)
		return false;
	if (!is->there)
		return true;
	return S_ISDIR(is->mode) ? ident_is(&k->id, is) : ident_same(&k->id, is);
}

const struct known_state *known_find(const struct known *k, const char *path)
{
	size_t lo = 0, hi = k ? k->n : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(k->v[mid].path, path);

		if (c == 0)
			return &k->v[mid].s;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

int known_below(const struct known *k, const char *dir,
		int (*fn)(void *arg, const char *path, const struct known_state *s), void *arg)
{
	size_t n = strlen(dir);
	int r = 0;

	for (size_t i = 0; k && r == 0 && i < k->n; i++)
		if (!strncmp(k->v[i].path, dir, n) && k->v[i].path[n] == '/')
			r = fn(arg, k->v[i].path, &k->v[i].s);
	return r;
}
