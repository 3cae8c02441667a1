/* Records, directories and places at either side. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/core/diff_internal.h"

int diff_record(struct diff *d, enum side side, store_ino ino, struct rec_inode *ret)
{
	int r = d->view[side] ? store_view_inode(d->view[side], ino, ret) : -ENOENT;

	if (r == 0 && ret->nlink == 0) {
		rec_inode_release(ret);
		r = -ENOENT;
	}
	return r;
}

static int look_name(struct diff *d, enum side side, store_ino parent, const char *name, size_t len,
		     struct rec_name *ret)
{
	return d->view[side] ? store_view_name(d->view[side], parent, name, len, ret) : -ENOENT;
}

/* ---- host directories ---- */

int host_key_cmp(const struct host_key *a, const struct host_key *b)
{
	int r = strcmp(a->root, b->root);

	return r ? r : strcmp(a->rel, b->rel);
}

int diff_source(struct diff *d, const struct host_key *key, struct hostsrc **ret)
{
	struct diff_source *s;
	int r;

	if (d->flags & DIFF_STORED) {
		d->host_counts = true;
		*ret = NULL;
		return 0;
	}
	for (s = d->sources; s; s = s->next)
		if (!strcmp(s->key.root, key->root) && s->key.flags == key->flags)
			break;
	if (!s) {
		s = arena_get(&d->arena, sizeof *s);
		if (!s)
			return -ENOMEM;
		*s = (struct diff_source){.next = d->sources, .key = *key};
		r = hostsrc_open(key->root, key->flags, 0, NULL, &s->h);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			s->h = NULL; /* gone: it shows nothing */
		d->sources = s;
	}
	*ret = s->h;
	return 0;
}

static int key_of(struct diff *d, const struct rec_inode *rec, struct host_key *ret)
{
	const struct rec_origin *o = &rec->origin;
	char *root, *rel;

	if (!o->root)
		return 0;
	root = arena_get(&d->arena, strlen(o->root) + 1);
	rel = arena_get(&d->arena, (o->rel ? strlen(o->rel) : 0) + 1);
	if (!root || !rel)
		return -ENOMEM;
	memcpy(root, o->root, strlen(o->root) + 1);
	*rel = '\0';
	if (o->rel)
		memcpy(rel, o->rel, strlen(o->rel) + 1);
	*ret = (struct host_key){root, rel, o->flags};
	return 0;
}

/* ---- directories ---- */

static struct dir **dir_slot(const struct diff *d, store_ino ino)
{
	return &d->dirs[(ino * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (d->dirs_cap - 1)];
}

static int dirs_grow(struct diff *d)
{
	size_t old_cap = d->dirs_cap;
	struct dir **old = d->dirs;

	if (d->ndirs < d->dirs_cap)
		return 0;
	d->dirs_cap = old_cap ? old_cap * 4 : 64;
	d->dirs = calloc(d->dirs_cap, sizeof(struct dir *));
	if (!d->dirs) {
		d->dirs = old;
		d->dirs_cap = old_cap;
		return -ENOMEM;
	}
	for (size_t i = 0; i < old_cap; i++)
		for (struct dir *p = old[i], *next; p; p = next) {
			struct dir **slot = dir_slot(d, p->ino);

			next = p->chain;
			p->chain = *slot;
			*slot = p;
		}
	free(old);
	return 0;
}

static int dir_load_side(struct diff *d, enum side side, struct dir *dir)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	int r = diff_record(d, side, dir->ino, &rec);
	char *name;

	if (r == -ENOENT || (r == 0 && !S_ISDIR(rec.mode)))
		return 0;
	if (r < 0)
		return r;
	name = arena_get(&d->arena, rec.name_len + 1);
	if (!name)
		return -ENOMEM;
	if (rec.name_len)
		memcpy(name, rec.name, rec.name_len);
	name[rec.name_len] = '\0';
	dir->there[side] = true;
	dir->parent[side] = rec.parent;
	dir->name[side] = name;
	dir->len[side] = rec.name_len;
	dir->shows[side] = rec.origin.root;
	return dir->key.root ? 0 : key_of(d, &rec, &dir->key);
}

int diff_dir(struct diff *d, store_ino ino, struct dir **ret)
{
	struct dir *dir;
	int r = dirs_grow(d);

	if (r < 0)
		return r;
	for (dir = *dir_slot(d, ino); dir; dir = dir->chain)
		if (dir->ino == ino) {
			*ret = dir;
			return 0;
		}
	dir = arena_get(&d->arena, sizeof *dir);
	if (!dir)
		return -ENOMEM;
	*dir = (struct dir){.ino = ino, .chain = *dir_slot(d, ino)};
	r = dir_load_side(d, FROM, dir);
	if (r == 0)
		r = dir_load_side(d, TO, dir);
	if (r < 0)
		return r;
	*dir_slot(d, ino) = dir;
	d->ndirs++;
	*ret = dir;
	return 0;
}

/* ---- paths ---- */

static int dir_key_cmp(const void *pa, const void *pb)
{
	const struct dir *const *a = pa, *const *b = pb;

	return host_key_cmp(&(*a)->key, &(*b)->key);
}

/* The directories with touched names that show a host directory, by what they show. Between an
 * unrecorded host directory and the tree stands always one of them: whoever recorded what lies below
 * recorded a name in each directory on the way. */
static int shown_make(struct diff *d)
{
	store_ino last = 0;

	for (int side = 0; side < 2; side++) {
		d->shown[side] = calloc(d->nnames + 1, sizeof(struct dir *));
		if (!d->shown[side])
			return -ENOMEM;
	}
	for (size_t i = 0; i < d->nnames; i++) {
		struct dir *dir;
		int r;

		if (d->names[i].parent == last)
			continue;
		last = d->names[i].parent;
		r = diff_dir(d, last, &dir);
		if (r < 0)
			return r;
		for (int side = 0; side < 2; side++)
			if (dir->there[side] && dir->shows[side])
				d->shown[side][d->nshown[side]++] = dir;
	}
	for (int side = 0; side < 2; side++)
		qsort(d->shown[side], d->nshown[side], sizeof(struct dir *), dir_key_cmp);
	d->shown_ready = true;
	return 0;
}

static struct dir *shown_find(const struct diff *d, enum side side, const char *root, char *rel)
{
	struct dir probe = {.key = {.root = root, .rel = rel}}, *p = &probe, **found;

	found = d->nshown[side]
			? bsearch(&p, d->shown[side], d->nshown[side], sizeof p, dir_key_cmp)
			: NULL;
	return found ? *found : NULL;
}

/* For a host directory that is not recorded at this side. */
static int climb_host(struct diff *d, enum side side, struct dir *dir)
{
	cleanup_free char *rel = NULL;
	size_t full = strlen(dir->key.rel), n = full;
	struct dir *top = NULL;
	struct rec_name rn;
	const char *rest;
	int r = d->shown_ready ? 0 : shown_make(d);

	if (r < 0)
		return r;
	rel = strdup(dir->key.rel);
	if (!rel)
		return -ENOMEM;
	while (n > 0 && !top) {
		while (n > 0 && rel[n - 1] != '/')
			n--;
		rel[n ? n - 1 : 0] = '\0';
		top = shown_find(d, side, dir->key.root, rel);
		n = n ? n - 1 : 0;
	}
	if (!top)
		return 0;
	rest = dir->key.rel + n + (n ? 1 : 0);
	r = look_name(d, side, top->ino, rest, strcspn(rest, "/"), &rn);
	if (r != -ENOENT) /* something recorded hides it */
		return r;
	dir->up[side] = top;
	dir->rest[side] = rest;
	dir->rest_len[side] = strlen(rest);
	return 0;
}

static int climb_recorded(struct diff *d, enum side side, struct dir *dir)
{
	struct dir *parent;
	struct rec_name rn;
	int r = look_name(d, side, dir->parent[side], dir->name[side], dir->len[side], &rn);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (rn.ino != dir->ino) /* removed, or replaced by another */
		return 0;
	r = diff_dir(d, dir->parent[side], &parent);
	if (r < 0)
		return r;
	dir->up[side] = parent;
	dir->rest[side] = dir->name[side];
	dir->rest_len[side] = dir->len[side];
	return 0;
}

/* One directory up. */
static int climb(struct diff *d, enum side side, struct dir *dir)
{
	if (dir->climbed[side])
		return 0;
	dir->climbed[side] = true;
	if (dir->there[side])
		return climb_recorded(d, side, dir);
	return dir->key.root ? climb_host(d, side, dir) : 0;
}

/* @top with what lies between it and @dir, which came @len bytes below. */
static char *path_below(struct diff *d, enum side side, const struct dir *dir,
			const struct dir *top, size_t len)
{
	const char *above = top->ino == STORE_ROOT_INO ? "" : top->path[side];
	size_t n = strlen(above);
	char *path = arena_get(&d->arena, n + len + 1), *at = path + n + len;

	if (!path)
		return NULL;
	*at = '\0';
	for (; dir != top; dir = dir->up[side]) {
		at -= dir->rest_len[side];
		memcpy(at, dir->rest[side], dir->rest_len[side]);
		*--at = '/';
	}
	memcpy(path, above, n);
	return path;
}

/* Upwards step by step, and not by a call for each: a tree may be deeper than a stack. */
int diff_path(struct diff *d, enum side side, struct dir *dir, const char **ret)
{
	size_t len = 0, steps = 0;
	struct dir *top = dir;
	int r = 0;

	*ret = dir->path[side];
	if (dir->known[side])
		return 0;
	while (r == 0 && top && !top->known[side] && top->ino != STORE_ROOT_INO) {
		r = climb(d, side, top);
		len += 1 + top->rest_len[side];
		/* a loop in damaged records ends here */
		top = ++steps > d->ndirs ? NULL : top->up[side];
	}
	if (r < 0)
		return r;
	if (top && (top->ino == STORE_ROOT_INO ? d->view[side] != NULL : top->path[side] != NULL)) {
		dir->path[side] = top == dir ? "" : path_below(d, side, dir, top, len);
		if (!dir->path[side])
			return -ENOMEM;
	}
	dir->known[side] = true;
	*ret = dir->path[side];
	return 0;
}

/* ---- objects ---- */

int diff_object_of(struct diff *d, enum side side, store_ino ino, struct obj *ret)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	int r = diff_record(d, side, ino, &rec);

	*ret = (struct obj){0};
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	ret->at = OBJ_STORE;
	ret->ino = ino;
	ret->mode = rec.mode;
	ret->size = rec.size;
	return key_of(d, &rec, &ret->key);
}

int diff_host_object(struct diff *d, const struct host_key *dir, const char *name, size_t len,
		     struct obj *ret)
{
	struct hostsrc *h;
	struct stat st;
	const char *rel;
	int r = diff_source(d, dir, &h);

	*ret = (struct obj){0};
	if (r < 0 || !h)
		return r;
	rel = arena_join(&d->arena, dir->rel, name, len);
	if (!rel)
		return -ENOMEM;
	if (!*dir->rel)
		rel++;
	r = hostsrc_stat(h, rel, &st);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	*ret = (struct obj){.at = OBJ_HOST,
			    .mode = st.st_mode,
			    .size = (uint64_t)st.st_size,
			    .key = {dir->root, rel, dir->flags},
			    .uid = st.st_uid,
			    .gid = st.st_gid,
			    .rdev = st.st_rdev,
			    .mtime = st.st_mtim};
	return 0;
}

/* Is @key what @dir shows by that name? */
static bool at_home(const struct dir *dir, enum side side, const char *name, size_t len,
		    const struct host_key *key)
{
	const char *rel = key->rel;
	size_t n = dir->key.root ? strlen(dir->key.rel) : 0;

	if (!dir->shows[side] || !dir->key.root || strcmp(dir->key.root, key->root) != 0 ||
	    strncmp(rel, dir->key.rel, n) != 0)
		return false;
	rel += n;
	if (n && *rel++ != '/')
		return false;
	return strlen(rel) == len && !memcmp(rel, name, len);
}

static int stored_object(struct diff *d, enum side side, const struct dir *dir, const char *name,
			 size_t len, store_ino ino, struct obj *ret)
{
	int r = diff_object_of(d, side, ino, ret);

	if (r == 0 && ret->key.root)
		ret->elsewhere = !at_home(dir, side, name, len, &ret->key);
	return r;
}

int diff_object(struct diff *d, enum side side, struct dir *dir, const char *name, size_t len,
		struct obj *ret)
{
	struct rec_name rn;
	const char *path;
	int r = diff_path(d, side, dir, &path);

	*ret = (struct obj){0};
	if (r < 0 || !path)
		return r;
	r = look_name(d, side, dir->ino, name, len, &rn);
	if (r == 0)
		return rn.ino ? stored_object(d, side, dir, name, len, rn.ino, ret) : 0;
	if (r != -ENOENT)
		return r;
	/* a directory that is recorded here without a host directory shows none */
	if (!dir->key.root || (dir->there[side] && !dir->shows[side]))
		return 0;
	return diff_host_object(d, &dir->key, name, len, ret);
}

void diff_look_release(struct diff *d)
{
	for (struct diff_source *s = d->sources; s; s = s->next)
		hostsrc_close(s->h);
	free(d->shown[FROM]);
	free(d->shown[TO]);
	free(d->dirs);
}
