/* Where the names of an inode are: a back reference in the record while there is one name, the links
 * database from the second on (docs/store-format.md). */
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

static bool place_is(const struct place *p, store_ino parent, const char *name, size_t len)
{
	return p->parent == parent && p->len == len && !memcmp(p->name, name, len);
}

/* A change to be logged: what can fail happens here. */
static int plan_log(struct place_plan *p, store_ino parent, const char *name, size_t len,
		    bool present)
{
	struct place *k = calloc(1, sizeof(*k) + len + 1);

	if (!k)
		return -ENOMEM;
	k->parent = parent;
	k->present = present;
	k->len = len;
	memcpy(k->name, name, len);
	k->next = p->log;
	p->log = k;
	return 0;
}

/* @name NULL: no back reference. */
static int plan_place(struct place_plan *p, store_ino parent, const char *name, size_t len)
{
	p->set = true;
	p->parent = parent;
	p->len = name ? len : 0;
	p->name = name ? strndup(name, len) : NULL;
	return name && !p->name ? -ENOMEM : 0;
}

void place_cancel(struct place_plan *p)
{
	for (struct place *k = p->log, *next; k; k = next) {
		next = k->next;
		free(k);
	}
	free(p->name);
	*p = (struct place_plan){0};
}

static void log_one(struct ovl *o, struct node *n, struct place *k)
{
	struct place **at = &n->places;

	redo_place(o, n->ino, k->parent, k->name, k->len, k->present);
	while (*at && !place_is(*at, k->parent, k->name, k->len))
		at = &(*at)->next;
	if (*at) {
		(*at)->present = k->present;
		(*at)->gen = atomic_fetch_add(&o->gen, 1) + 1;
		free(k);
		return;
	}
	k->gen = atomic_fetch_add(&o->gen, 1) + 1;
	k->next = n->places;
	n->places = k;
}

void place_do(struct ovl *o, struct node *n, struct place_plan *p)
{
	for (struct place *k = p->log, *next; k; k = next) {
		next = k->next;
		log_one(o, n, k);
	}
	if (p->set) {
		free(n->rec.name);
		n->rec.name = p->name;
		n->rec.name_len = p->len;
		n->rec.parent = p->parent;
	}
	*p = (struct place_plan){0};
}

int place_log(struct ovl *o, struct node *n, store_ino parent, const char *name, size_t len,
	      bool present)
{
	struct place_plan p = {0};
	int r = plan_log(&p, parent, name, len, present);

	if (r == 0)
		place_do(o, n, &p);
	return r;
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

int place_spread(struct node *n, struct place_plan *p)
{
	int r = plan_log(p, n->rec.parent, n->rec.name ? n->rec.name : "", n->rec.name_len, true);

	return r < 0 ? r : plan_place(p, 0, NULL, 0);
}

int place_add(struct node *n, store_ino parent, const char *name, size_t len, struct place_plan *p)
{
	int r = 0;

	if (S_ISDIR(n->rec.mode) || n->rec.nlink == 0)
		return plan_place(p, parent, name, len);
	if (n->rec.parent)
		r = place_spread(n, p);
	return r < 0 ? r : plan_log(p, parent, name, len, true);
}

/* The place that is left when one goes. */
struct only {
	store_ino gone;
	const char *gone_name;
	size_t gone_len;
	store_ino parent;
	size_t len;
	char name[STORE_NAME_MAX + 1];
};

static int take_other(void *arg, store_ino parent, const char *name, size_t len)
{
	struct only *w = arg;

	if (parent == w->gone && len == w->gone_len && !memcmp(name, w->gone_name, len))
		return 0;
	if (len > STORE_NAME_MAX)
		return -EBADMSG;
	w->parent = parent;
	w->len = len;
	memcpy(w->name, name, len);
	w->name[len] = '\0';
	return 1;
}

int place_del(struct ovl *o, struct node *n, store_ino parent, const char *name, size_t len,
	      struct place_plan *p)
{
	struct only w = {.gone = parent, .gone_name = name, .gone_len = len};
	int r;

	/* An inode that ends keeps its last place: it is of use to nobody, but for a message. */
	if (S_ISDIR(n->rec.mode) || n->rec.nlink < 2)
		return 0;
	/* A host file with more links than the tree shows keeps its count, not its place. */
	if (n->rec.parent)
		return plan_place(p, 0, NULL, 0);
	r = plan_log(p, parent, name, len, false);
	if (r < 0 || n->rec.nlink != 2)
		return r;
	r = place_each(o, n, take_other, &w);
	if (r <= 0) /* none known: the other names are the host's */
		return r;
	r = plan_log(p, w.parent, w.name, w.len, false);
	return r < 0 ? r : plan_place(p, w.parent, w.name, w.len);
}

int place_move(struct node *n, store_ino from, const char *name, size_t len, store_ino to,
	       const char *newname, size_t newlen, struct place_plan *p)
{
	int r;

	if (n->rec.parent || S_ISDIR(n->rec.mode) || n->rec.nlink < 2)
		return plan_place(p, to, newname, newlen);
	/* done in the other order: the old name may be the new one's place of before */
	r = plan_log(p, to, newname, newlen, true);
	return r < 0 ? r : plan_log(p, from, name, len, false);
}
