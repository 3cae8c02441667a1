/* Host files that are held although their names are gone: telling the kernel, and letting go of them. */
#include "fs/core/ovl_internal.h"

void host_lost(struct ovl *o, struct node *n)
{
	if (n->host_only && n->rec.name)
		notify_entry(o, n->rec.parent, n->rec.name, n->rec.name_len);
}

void host_forget(struct node *n)
{
	/* What was changed here still needs the rest of its host file. */
	if (n->host_only && n->src && S_ISREG(n->rec.mode))
		hostsrc_forget(n->src->h, n->rec.origin.rel, n->rec.origin.dev, n->rec.origin.ino);
}

struct nameless {
	struct ovl *o;
	struct host_source *src;
	uint64_t dev, ino;
};

static struct node *node_of(const struct nameless *x, store_ino number)
{
	struct node *n = number ? node_find(x->o, number) : NULL;

	return n && n->rec.origin.dev == x->dev && n->rec.origin.ino == x->ino ? n : NULL;
}

/* The kernel lets go of what nobody uses when its name is gone; what it forgets is closed. */
static void nameless(void *arg, uint64_t dev, uint64_t ino)
{
	struct nameless *x = arg;
	struct ovl *o = x->o;
	const struct stat st = {.st_dev = dev, .st_ino = ino};
	store_ino numbers[2] = {hostsrc_ino(x->src->h, &st)};
	struct node *n;

	x->dev = dev;
	x->ino = ino;
	lock_excl(o);
	numbers[1] = host_number_known(o, dev, ino);
	n = node_of(x, numbers[0]);
	if (!n)
		n = node_of(x, numbers[1]);
	if (n)
		host_lost(o, n);
	else if (!ino_set_has(&o->partial, numbers[0]) && !ino_set_has(&o->partial, numbers[1]))
		hostsrc_forget(x->src->h, NULL, dev, ino);
	unlock(o);
}

bool host_let_go(struct ovl *o)
{
	bool left = false;

	for (size_t i = 0; i < ARRAY_SIZE(o->srcs); i++) {
		struct nameless x = {.o = o};

		lock_shared(o);
		x.src = o->srcs[i]; /* stays until the end */
		unlock(o);
		if (x.src && hostsrc_nameless(x.src->h, HOST_HELD_MS, nameless, &x))
			left = true;
	}
	return left;
}
