/* What the kernel knows by number from a process that is dead: host inodes without a record, orders of
 * listings, files that may be mapped. It is looked at when the kernel asks, and goes when it forgets. All EX. */
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

static struct known *known_find(struct ovl *o, store_ino ino)
{
	struct table_link *l = table_find(&o->known, table_hash_u64(ino));

	for (; l; l = table_next(l))
		if (((struct known *)l)->ino == ino)
			return (struct known *)l;
	return NULL;
}

static void known_free(struct known *k)
{
	for (size_t i = 0; i < k->nentries; i++)
		free(k->entries[i]);
	free(k->entries);
	free(k->name);
	free(k);
}

static struct known *known_get(struct ovl *o, store_ino ino)
{
	struct known *k = known_find(o, ino);

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->ino = ino;
	if (table_add(&o->known, &k->link, table_hash_u64(ino)) < 0) {
		free(k);
		return NULL;
	}
	return k;
}

int known_host(struct ovl *o, store_ino ino, store_ino parent, const char *name, size_t len)
{
	struct known *k = known_get(o, ino);
	char *copy = k ? strndup(name, len) : NULL;

	if (!copy)
		return -ENOMEM;
	free(k->name);
	k->name = copy;
	k->len = len;
	k->parent = parent;
	return 0;
}

int known_listed(struct ovl *o, store_ino dir, uint64_t cookie, const char *name, size_t len)
{
	struct known *k = known_get(o, dir);
	struct known_entry *e;

	if (!k)
		return -ENOMEM;
	if (k->nentries == k->cap) {
		size_t cap = k->cap ? k->cap * 2 : 16;
		struct known_entry **more = realloc(k->entries, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->entries = more;
		k->cap = cap;
	}
	e = malloc(sizeof(*e) + len + 1);
	if (!e)
		return -ENOMEM;
	e->cookie = cookie;
	e->len = len;
	memcpy(e->name, name, len);
	e->name[len] = '\0';
	k->entries[k->nentries++] = e;
	return 0;
}

void known_forget(struct ovl *o, store_ino ino)
{
	struct known *k = known_find(o, ino);

	ino_set_del(&o->old_known, ino);
	ino_set_del(&o->old_written, ino);
	if (!k)
		return;
	table_del(&o->known, &k->link);
	known_free(k);
}

void known_release(struct ovl *o)
{
	for (size_t i = 0; i < o->known.nslots; i++)
		for (struct table_link *l = o->known.slots[i], *next; l; l = next) {
			next = l->next;
			known_free((struct known *)l);
		}
	table_release(&o->known);
	ino_set_release(&o->old_known);
	ino_set_release(&o->old_written);
}

void known_renew(struct ovl *o, const struct known *k)
{
	if (k->name) {
		struct redo_name r = {.parent = k->parent, .len = (uint32_t)k->len};

		redo_known_put(o, REDO_HOST, k->ino, &r, sizeof(r), k->name, k->len);
	}
	for (size_t i = 0; i < k->nentries; i++) {
		const struct known_entry *e = k->entries[i];
		struct redo_listed r = {.cookie = e->cookie, .len = (uint32_t)e->len};

		redo_known_put(o, REDO_LISTED, k->ino, &r, sizeof(r), e->name, e->len);
	}
}

int known_order(struct ovl *o, store_ino dir,
		int (*fn)(void *arg, const char *name, size_t len, uint64_t cookie), void *arg)
{
	struct known *k = known_find(o, dir);
	int r = 0;

	for (size_t i = 0; k && r == 0 && i < k->nentries; i++)
		r = fn(arg, k->entries[i]->name, k->entries[i]->len, k->entries[i]->cookie);
	return r;
}

bool known_ordered(struct ovl *o, store_ino dir)
{
	const struct known *k = known_find(o, dir);

	return k && k->nentries;
}

/* The inode is in memory again, and its node says the rest. Is it held? */
bool known_take(struct ovl *o, store_ino ino)
{
	struct known *k = known_find(o, ino);

	if (k && k->name) {
		free(k->name);
		k->name = NULL;
		if (!k->nentries) {
			table_del(&o->known, &k->link);
			known_free(k);
		}
	}
	return ino_set_has(&o->old_known, ino);
}

int known_load(struct ovl *o, store_ino ino, struct node **ret)
{
	struct known *k = known_find(o, ino);
	struct host_source *src;
	cleanup_free char *name = NULL;
	struct node *dir, *n;
	struct stat st;
	store_ino parent;
	size_t len;
	int r;

	if (!k || !k->name || k->busy)
		return -ESTALE;
	/* The way up is loaded first, and may take @k's neighbours out of the table. */
	name = strdup(k->name);
	if (!name)
		return -ENOMEM;
	len = k->len;
	parent = k->parent;
	k->busy = true;
	r = node_get_dir(o, parent, false, &dir);
	k = known_find(o, ino);
	if (k)
		k->busy = false;
	if (r < 0)
		return r == -ENOMEM || r == -EIO ? r : -ESTALE;
	node_pin(dir);
	r = host_source_of(o, dir, &src);
	if (r == 0)
		r = src ? host_stat_child(o, dir, name, len, &st) : -ESTALE;
	if (r == 0)
		r = host_node(o, dir, name, len, &st, &n);
	/* The kernel may hold pages of what the file was before. */
	if (r == 0 && n->ino == ino)
		notify_inode(o, ino);
	node_put(o, dir);
	if (r == 0 && n->ino != ino)
		r = -ENOENT;
	if (r == -ENOENT) { /* the kernel may still believe the name */
		notify_entry(o, parent, name, len);
		r = -ESTALE;
	}
	if (r < 0)
		return r;
	*ret = n;
	return 0;
}
