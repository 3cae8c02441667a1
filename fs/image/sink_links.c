/* Names that a layer gives to inodes of the layers below: nothing in the inode tells that they are this layer's. */
#include <stdlib.h>
#include <string.h>

#include "fs/image/sink_internal.h"

struct sink_link {
	store_ino dir;
	char *name; /* NULL: a free place */
};

static struct sink_link *place(struct sink_link *v, size_t cap, store_ino dir, const char *name)
{
	uint64_t h = dir * UINT64_C(0x9e3779b97f4a7c15);

	for (const char *p = name; *p; p++)
		h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
	for (size_t i = (size_t)(h >> 16) & (cap - 1);; i = (i + 1) & (cap - 1))
		if (!v[i].name || (v[i].dir == dir && !strcmp(v[i].name, name)))
			return &v[i];
}

static int grow(struct sink_links *l)
{
	size_t cap = l->cap ? l->cap * 2 : 64;
	struct sink_link *more;

	if (l->n * 4 < l->cap * 3)
		return 0;
	more = calloc(cap, sizeof(*more));
	if (!more)
		return -ENOMEM;
	for (size_t i = 0; i < l->cap; i++)
		if (l->v[i].name)
			*place(more, cap, l->v[i].dir, l->v[i].name) = l->v[i];
	free(l->v);
	l->v = more;
	l->cap = cap;
	return 0;
}

int sink_link_note(struct sink *k, store_ino dir, const char *name)
{
	struct sink_link *p;
	int r = grow(&k->links);

	if (r < 0)
		return r;
	p = place(k->links.v, k->links.cap, dir, name);
	if (p->name)
		return 0;
	p->name = strdup(name);
	if (!p->name)
		return -ENOMEM;
	p->dir = dir;
	k->links.n++;
	return 0;
}

bool sink_link_noted(const struct sink *k, store_ino dir, const char *name)
{
	return k->links.n && place(k->links.v, k->links.cap, dir, name)->name;
}

void sink_links_free(struct sink *k)
{
	for (size_t i = 0; i < k->links.cap; i++)
		free(k->links.v[i].name);
	free(k->links.v);
}
