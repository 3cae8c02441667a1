/* Where the names of an inode are: a back reference in the record while there is one name, the links
 * database from the second on (docs/store-format.md). */
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

static bool place_is(const struct place *p, store_ino parent, const char *name, size_t len)
{
	return p->parent == parent && p->len == len && !memcmp(p->name, name, len);
}

static int place_log(struct ovl *o, struct node *n, store_ino parent, const char *name, size_t len,
		     bool present)
{
	struct place *p;

	for (p = n->places; p; p = p->next) {
		if (place_is(p, parent, name, len))
			break;
	}
	if (!p) {
		p = calloc(1, sizeof(*p) + len + 1);
		if (!p)
			return -ENOMEM;
		p->parent = parent;
		p->len = len;
		memcpy(p->name, name, len);
		p->next = n->places;
		n->places = p;
	}
	p->present = present;
	p->gen = atomic_fetch_add(&o->gen, 1) + 1;
	return 0;
}

struct each {
	struct node *n;
	int (*fn)(void *arg, store_ino parent, const char *name, size_t len);
	void *arg;
	struct place *found; /* collected: @fn may read the store */
	int r;
};

static int each_stored(void *arg, store_ino parent, const char *name, size_t len)
{
	struct each *e = arg;
	struct place *p;

	for (p = e->n->places; p; p = p->next) {
		if (place_is(p, parent, name, len))
			return 0;
	}
	p = calloc(1, sizeof(*p) + len + 1);
	if (!p)
		return -ENOMEM;
	p->parent = parent;
	p->len = len;
	memcpy(p->name, name, len);
	p->next = e->found;
	e->found = p;
	return 0;
}

int place_each(struct ovl *o, struct node *n,
	       int (*fn)(void *arg, store_ino parent, const char *name, size_t len), void *arg)
{
	struct each e = {.n = n, .fn = fn, .arg = arg};
	int r = 0;

	if (n->rec.parent)
		return fn(arg, n->rec.parent, n->rec.name ? n->rec.name : "", n->rec.name_len);
	if (n->in_store)
		r = store_view_links(o->view, n->ino, each_stored, &e);
	for (struct place *p = n->places; r == 0 && p; p = p->next) {
		if (p->present)
			r = fn(arg, p->parent, p->name, p->len);
	}
	for (struct place *p = e.found, *next; p; p = next) {
		next = p->next;
		if (r == 0)
			r = fn(arg, p->parent, p->name, p->len);
		free(p);
	}
	return r;
}

int place_add(struct ovl *o, struct node *n, store_ino parent, const char *name, size_t len)
{
	int r = 0;

	if (S_ISDIR(n->rec.mode) || n->rec.nlink < 2)
		return node_set_place(n, parent, name, len);
	if (n->rec.parent) {
		r = place_log(o, n, n->rec.parent, n->rec.name, n->rec.name_len, true);
		if (r == 0)
			r = node_set_place(n, 0, NULL, 0);
	}
	return r < 0 ? r : place_log(o, n, parent, name, len, true);
}

struct only {
	store_ino parent;
	size_t len;
	char name[STORE_NAME_MAX + 1];
};

static int take_first(void *arg, store_ino parent, const char *name, size_t len)
{
	struct only *w = arg;

	if (len > STORE_NAME_MAX)
		return -EBADMSG;
	w->parent = parent;
	w->len = len;
	memcpy(w->name, name, len);
	w->name[len] = '\0';
	return 1;
}

int place_del(struct ovl *o, struct node *n, store_ino parent, const char *name, size_t len)
{
	struct only w = {0};
	int r;

	if (S_ISDIR(n->rec.mode) || n->rec.parent || n->rec.nlink == 0) {
		/* A host file with more links than the tree shows keeps its count, not its place. */
		return node_set_place(n, 0, NULL, 0);
	}
	r = place_log(o, n, parent, name, len, false);
	if (r < 0 || n->rec.nlink != 1)
		return r;
	r = place_each(o, n, take_first, &w);
	if (r <= 0) /* none known: the other names are the host's */
		return r;
	r = place_log(o, n, w.parent, w.name, w.len, false);
	return r < 0 ? r : node_set_place(n, w.parent, w.name, w.len);
}

int place_move(struct ovl *o, struct node *n, store_ino from, const char *name, size_t len,
	       store_ino to, const char *newname, size_t newlen)
{
	int r;

	if (n->rec.parent || S_ISDIR(n->rec.mode) || n->rec.nlink < 2)
		return node_set_place(n, to, newname, newlen);
	r = place_log(o, n, from, name, len, false);
	return r < 0 ? r : place_log(o, n, to, newname, newlen, true);
}
