#include "apply/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int paths_add(struct paths *s, const char *path)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		const char **more = realloc((void *)s->v, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->v = more;
		s->cap = cap;
	}
	s->v[s->n++] = path;
	return 0;
}

static int by_text(const void *pa, const void *pb)
{
	const char *const *a = pa, *const *b = pb;

	return strcmp(*a, *b);
}

void paths_seal(struct paths *s)
{
	if (s->n)
		qsort((void *)s->v, s->n, sizeof(*s->v), by_text);
}

struct part {
	const char *path;
	size_t len;
};

static int by_part(const void *pk, const void *pv)
{
	const struct part *k = pk;
	const char *const *v = pv;
	int c = strncmp(k->path, *v, k->len);

	return c ? c : (*v)[k->len] ? -1 : 0;
}

static const char *find(const struct paths *s, const char *path, size_t len)
{
	const struct part key = {path, len};
	const char *const *found =
		s->n ? bsearch(&key, (const void *)s->v, s->n, sizeof(*s->v), by_part) : NULL;

	return found ? *found : NULL;
}

bool paths_has(const struct paths *s, const char *path)
{
	return find(s, path, strlen(path));
}

const char *paths_above(const struct paths *s, const char *path, bool at)
{
	size_t len = strlen(path);
	const char *found = at ? find(s, path, len) : NULL;

	while (!found && len) {
		do
			len--;
		while (len && path[len] != '/');
		found = find(s, path, len);
	}
	return found;
}

void paths_release(struct paths *s)
{
	free((void *)s->v);
	*s = (struct paths){0};
}
