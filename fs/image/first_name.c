#include "fs/image/first_name.h"

#include <stdlib.h>
#include <string.h>

static struct first_name *place(struct first_name *v, size_t cap, uint64_t ino)
{
	size_t i = (size_t)((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (cap - 1);

	while (v[i].path && v[i].ino != ino)
		i = (i + 1) & (cap - 1);
	return &v[i];
}

static int grow(struct first_names *f)
{
	size_t cap = f->cap ? f->cap * 2 : 256;
	struct first_name *more;

	if (f->n * 4 < f->cap * 3)
		return 0;
	more = calloc(cap, sizeof(*more));
	if (!more)
		return -ENOMEM;
	for (size_t i = 0; i < f->cap; i++)
		if (f->v[i].path)
			*place(more, cap, f->v[i].ino) = f->v[i];
	free(f->v);
	f->v = more;
	f->cap = cap;
	return 0;
}

int first_name(struct first_names *f, uint64_t ino, const char *path, const char **ret)
{
	struct first_name *p;
	int r = grow(f);

	*ret = NULL;
	if (r < 0)
		return r;
	p = place(f->v, f->cap, ino);
	*ret = p->path;
	if (p->path)
		return 0;
	p->path = strdup(path);
	if (!p->path)
		return -ENOMEM;
	p->ino = ino;
	f->n++;
	return 0;
}

void first_names_release(struct first_names *f)
{
	for (size_t i = 0; i < f->cap; i++)
		free(f->v[i].path);
	free(f->v);
	*f = (struct first_names){0};
}
