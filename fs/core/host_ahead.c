/*
 * Files of a host directory that are read one after the other, each when its turn comes, are waited for one after the other
 * where the disk is cold: the kernel reads ahead in a file, never into the next one. So once a few of a directory have been
 * waited for, the next ones of its listing are asked for, without waiting: more of them with each that was waited for, so that
 * a program that reads a handful of a large directory costs the disk little.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/core/ovl_internal.h"

#define WAITED_FOR 4u  /* files, before any is asked for */
#define AHEAD_MOST 16u /* at a time */
#define LOOK_MOST  64u /* names that are looked at for it */

struct ahead {
	struct hostsrc *h;
	char *rel; /* the directory */
	char *names[AHEAD_MOST];
	unsigned n;
};

/* How many, now that @waited have been waited for. */
static unsigned worth(unsigned waited)
{
	unsigned n = 4;

	if (waited < WAITED_FOR)
		return 0;
	while (waited-- > WAITED_FOR && n < AHEAD_MOST)
		n *= 2;
	return n;
}

/* SHARED. A file of the host that may be read. Of a directory of which that is not known yet nothing is. */
static bool may_ahead(struct ovl *o, const struct node *dir, const struct listing_entry *e)
{
	if (!e || !e->host || !S_ISREG(e->type))
		return false;
	if (policy_trivial(o->policy))
		return true;
	return dir->pol != POL_UNKNOWN &&
	       policy_may(o->policy, policy_child(o->policy, dir->pol, e->name, e->len)) &
		       POLICY_MAY_READ;
}

/* SHARED. The next names of the directory that nobody has asked for. */
static void collect(struct ovl *o, const struct node *dir, unsigned want, struct ahead *a)
{
	struct listing *l = dir->listing;
	size_t from = atomic_load(&l->ahead), at;

	do {
		unsigned n = 0;

		for (at = from; at < l->n && at - from < LOOK_MOST && n < want; at++)
			n += may_ahead(o, dir, l->slots[at]);
		if (at == from)
			return;
	} while (!atomic_compare_exchange_weak(&l->ahead, &from, at));
	for (size_t i = from; i < at; i++) {
		const struct listing_entry *e = l->slots[i];

		if (may_ahead(o, dir, e) && (a->names[a->n] = strdup(e->name)))
			a->n++;
	}
}

static void find_next(struct ovl *o, store_ino ino, struct ahead *a)
{
	struct node *n, *dir;
	unsigned want;

	lock_shared(o);
	n = node_find(o, ino);
	dir = n && n->host_only ? n->host_parent : NULL;
	if (dir && dir->listing && dir->src && dir->rec.origin.rel) {
		want = worth(atomic_fetch_add(&dir->listing->waited, 1) + 1);
		a->h = dir->src->h;
		a->rel = want ? strdup(dir->rec.origin.rel) : NULL;
		if (a->rel)
			collect(o, dir, want, a);
	}
	unlock(o);
}

void host_ahead(struct ovl *o, store_ino ino)
{
	struct ahead a = {0};
	int fd;

	find_next(o, ino, &a);
	if (a.n && hostsrc_dir(a.h, a.rel, &fd) == 0) {
		for (unsigned i = 0; i < a.n; i++)
			hostsrc_ahead(a.h, fd, a.names[i]);
		(void)close(fd);
	}
	for (unsigned i = 0; i < a.n; i++)
		free(a.names[i]);
	free(a.rel);
}
