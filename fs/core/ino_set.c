#include "fs/core/ino_set.h"

#include <stdlib.h>

struct ino_link {
	struct table_link link;
	store_ino ino;
};

static struct ino_link *ino_find(const struct ino_set *s, store_ino ino)
{
	struct table_link *l = table_find(&s->t, table_hash_u64(ino));

	for (; l; l = table_next(l)) {
		if (((struct ino_link *)l)->ino == ino)
			return (struct ino_link *)l;
	}
	return NULL;
}

int ino_set_add(struct ino_set *s, store_ino ino)
{
	struct ino_link *k = ino_find(s, ino);

	if (k)
		return 0;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->ino = ino;
	if (table_add(&s->t, &k->link, table_hash_u64(ino)) < 0) {
		free(k);
		return -ENOMEM;
	}
	return 0;
}

void ino_set_del(struct ino_set *s, store_ino ino)
{
	struct ino_link *k = ino_find(s, ino);

	if (k) {
		table_del(&s->t, &k->link);
		free(k);
	}
}

void ino_set_release(struct ino_set *s)
{
	for (size_t i = 0; i < s->t.nslots; i++) {
		for (struct table_link *l = s->t.slots[i], *next; l; l = next) {
			next = l->next;
			free(l);
		}
	}
	table_release(&s->t);
}

int ino_set_each(const struct ino_set *s, int (*fn)(void *arg, store_ino ino), void *arg)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->t.nslots; i++) {
		for (struct table_link *l = s->t.slots[i]; r == 0 && l; l = l->next)
			r = fn(arg, ((struct ino_link *)l)->ino);
	}
	return r;
}

bool ino_set_has(const struct ino_set *s, store_ino ino)
{
	return ino_find(s, ino) != NULL;
}

void ino_set_move(struct ino_set *to, struct ino_set *from)
{
	if (to->t.n == 0) {
		table_release(&to->t);
		*to = *from;
		*from = (struct ino_set){0};
		return;
	}
	for (size_t i = 0; i < from->t.nslots; i++) {
		for (struct table_link *l = from->t.slots[i], *next; l; l = next) {
			next = l->next;
			/* @to has slots: it is not empty. */
			if (ino_set_has(to, ((struct ino_link *)l)->ino) ||
			    table_add(&to->t, l, l->hash) < 0)
				free(l);
		}
	}
	table_release(&from->t);
}
