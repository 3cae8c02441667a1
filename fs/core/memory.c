/*
 * The memory of inodes that nobody asks for any more. The front end (the kernel) holds every inode that it ever
 * looked up until its own memory is short, which ours may be long before: beyond a number of them it is asked
 * to give back those that were not asked for lately. Runs in the notifier's thread.
 */
#include <malloc.h>
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

#define SWEEP_SLOTS 512 /* in one hold of o->lock */
#define PRUNE_BATCH 1024
/* So many freed are worth asking the heap to give memory back to the system: when no more come, or at last. */
#define TRIM_SOME   1024
#define TRIM_MANY   65536

struct sweep {
	struct ovl *o;
	size_t want;  /* to be given back */
	size_t slots; /* still to be looked at */
	store_ino batch[PRUNE_BATCH];
	size_t n;
	bool failed; /* the front end cannot */
};

void memory_grew(struct ovl *o)
{
	if (o->notify.prune && !o->prune_failed && o->nodes.n > o->inodes_max)
		notify_housekeeping(o);
}

void memory_shrank(struct ovl *o)
{
	if (++o->freed >= TRIM_SOME)
		notify_housekeeping(o);
}

static void sweep_node(struct sweep *s, struct node *n)
{
	if (atomic_load(&n->nlookup) == 0) {
		node_reap(s->o, n);
		return;
	}
	if (atomic_load(&n->pins) > 0 || n->dirty || n->names)
		return;
	if (atomic_exchange_explicit(&n->used, false, memory_order_relaxed))
		return;
	if (s->n < PRUNE_BATCH && s->n < s->want)
		s->batch[s->n++] = n->ino;
}

/* EX. Some slots from where the last sweep ended. */
static void sweep_some(struct sweep *s)
{
	struct table *t = &s->o->nodes;

	for (unsigned i = 0; i < SWEEP_SLOTS && s->slots > 0 && s->n < PRUNE_BATCH;
	     i++, s->slots--) {
		size_t at = s->o->sweep_at++ & (t->nslots - 1);

		for (struct table_link *l = t->slots[at], *next; l; l = next) {
			/* A node takes its host directory along, which may be the next one. */
			next = l->next;
			if (next)
				node_pin((struct node *)next);
			sweep_node(s, (struct node *)l);
			if (next)
				atomic_fetch_sub(&((struct node *)next)->pins, 1);
		}
	}
}

static void sweep(struct sweep *s)
{
	while (s->slots > 0 && s->want > 0 && !s->failed) {
		s->n = 0;
		while (s->slots > 0 && s->n < PRUNE_BATCH && s->n < s->want) {
			lock_excl(s->o);
			sweep_some(s);
			unlock(s->o);
		}
		if (s->n > 0)
			s->failed = s->o->notify.prune(s->o->notify.arg, s->batch, s->n) < 0;
		s->want -= s->n;
	}
}

static bool trim_due(struct ovl *o)
{
	bool due, more;

	lock_excl(o);
	due = o->freed >= TRIM_SOME && (o->freed == o->freed_seen || o->freed >= TRIM_MANY);
	more = o->freed >= TRIM_SOME && !due;
	if (due)
		o->freed = 0;
	o->freed_seen = o->freed;
	unlock(o);
	if (more)
		notify_housekeeping(o);
	return due;
}

void memory_housekeeping(struct ovl *o)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (s && o->notify.prune) {
		s->o = o;
		lock_shared(o);
		/* Twice around: the first time, what was used since the last is spared. */
		if (!o->prune_failed && o->nodes.n > o->inodes_max) {
			s->want = o->nodes.n - o->inodes_max + o->inodes_max / 8;
			s->slots = 2 * o->nodes.nslots;
		}
		unlock(o);
		sweep(s);
	}
	if (s && s->failed) {
		lock_excl(o);
		o->prune_failed = true;
		unlock(o);
	}
	free(s);
	if (trim_due(o))
		(void)malloc_trim(0);
}
