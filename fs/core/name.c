/* Names that differ from the store: the table, and the order in which a name is looked for. */
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

static uint64_t name_hash(const struct ovl *o, store_ino parent, const char *name, size_t len)
{
	return table_hash(o->seed ^ table_hash_u64(parent), name, len);
}

static struct name *name_find(struct ovl *o, struct node *dir, const char *name, size_t len)
{
	struct table_link *l;

	if (!dir->names)
		return NULL;
	l = table_find(&o->names, name_hash(o, dir->ino, name, len));
	for (; l; l = table_next(l)) {
		struct name *e = (struct name *)l;

		if (e->dir == dir && e->len == len && !memcmp(e->name, name, len))
			return e;
	}
	return NULL;
}

/* From memory or the store: 1 decided, 0 the host decides, or an error. */
static int name_recorded(struct ovl *o, struct node *dir, const char *name, size_t len,
			 struct found *f)
{
	const struct name *e = name_find(o, dir, name, len);
	struct rec_name rn;
	int r;

	if (e) {
		f->ino = e->ino;
		f->type = e->type;
		f->covers = e->covers;
		return 1;
	}
	if (dir->listing) {
		const struct listing_entry *le = listing_find(o, dir->listing, name, len);

		if (le && !le->host) {
			f->ino = le->ino;
			f->type = le->type;
			f->covers = true;
			return 1;
		}
		if (!le && !dir->rec.origin.root)
			return 1;
	}
	if (dir->new_dir)
		return 1;
	r = dir->in_store ? store_view_name(o->view, dir->ino, name, len, &rn) : -ENOENT;
	if (r == 0) {
		f->ino = rn.ino;
		f->type = rn.type;
		f->covers = rn.ino != 0;
		return 1;
	}
	if (r != -ENOENT)
		return r == -EBADMSG ? -EIO : r;
	return dir->rec.origin.root ? 0 : 1;
}

int name_lookup(struct ovl *o, struct node *dir, const char *name, size_t len, bool excl,
		struct found *ret)
{
	struct found f = {0};
	int r = name_recorded(o, dir, name, len, &f);

	if (r < 0)
		return r;
	/* A host name may appear later under one that is removed here: always leave a tombstone. */
	f.covers = f.covers || dir->rec.origin.root;
	if (r == 0) {
		if (!excl)
			return -EAGAIN;
		r = host_stat_child(o, dir, name, len, &f.st);
		if (r == 0) {
			f.host = true;
			f.type = f.st.st_mode & S_IFMT;
		} else if (r != -ENOENT) {
			return r;
		}
	}
	*ret = f;
	return 0;
}

int name_node(struct ovl *o, struct node *dir, const char *name, size_t len, struct found *f,
	      struct node **ret_n)
{
	struct node *n = NULL;
	int r = name_lookup(o, dir, name, len, true, f);

	if (r < 0)
		return r;
	if (f->host) {
		r = host_node(o, dir, name, len, &f->st, &n);
		if (r < 0)
			return r;
		f->ino = n->ino;
	} else if (f->ino) {
		r = node_get(o, f->ino, &n);
		if (r < 0) /* a name without its inode is damage, not an old handle */
			return r == -ESTALE ? -EIO : r;
	}
	if (n)
		node_found(o, dir, name, len, n);
	*ret_n = n;
	return 0;
}

int name_prepare(struct ovl *o, struct node *dir, const char *name, size_t len, struct name **ret)
{
	struct name *e = name_find(o, dir, name, len);

	if (!e) {
		e = calloc(1, sizeof(*e) + len + 1);
		if (!e)
			return -ENOMEM;
		e->dir = dir;
		e->len = len;
		memcpy(e->name, name, len);
		/* In the table at once, as an entry that says nothing yet would be found: only room is
		 * made sure of here. */
		if (!o->names.nslots) {
			if (table_add(&o->names, &e->link, 0) < 0) {
				free(e);
				return -ENOMEM;
			}
			table_del(&o->names, &e->link);
		}
	}
	*ret = e;
	return 0;
}

static void name_free(struct name *e)
{
	free(e->hidden);
	free(e);
}

void name_cancel(struct name *e)
{
	if (e && !e->linked)
		name_free(e);
}

void name_cancelp(struct name **e)
{
	name_cancel(*e);
}

static void name_link(struct ovl *o, struct name *e)
{
	struct node *dir = e->dir;

	/* Cannot fail: name_prepare made the first slots. */
	if (table_add(&o->names, &e->link, name_hash(o, dir->ino, e->name, e->len)) < 0)
		return;
	e->linked = true;
	e->prev = NULL;
	e->next = dir->names;
	if (e->next)
		e->next->prev = e;
	dir->names = e;
	o->nnames++;
}

void name_drop(struct ovl *o, struct name *e)
{
	if (e->linked) {
		table_del(&o->names, &e->link);
		if (e->prev)
			e->prev->next = e->next;
		else
			e->dir->names = e->next;
		if (e->next)
			e->next->prev = e->prev;
		o->nnames--;
	}
	name_free(e);
}

/* Without memory it stays unknown, and the change is taken for a conflict when it is brought back. */
static void name_hide(struct ovl *o, struct name *e, const struct stat *st)
{
	e->hidden = malloc(sizeof(*e->hidden));
	if (!e->hidden)
		return;
	hidden_of(st, e->hidden);
	redo_hidden(o, e->dir->ino, e->name, e->len, e->hidden);
}

void name_set(struct ovl *o, struct name **ep, const struct found *before, store_ino ino,
	      uint32_t type)
{
	struct name *e = *ep;
	struct node *dir = e->dir;

	*ep = NULL;
	listing_set(o, dir, e->name, e->len, ino, type);
	change_name(o, dir->ino, e->name, e->len);
	redo_name(o, dir->ino, e->name, e->len, ino, type);
	if (!e->linked) {
		e->covers = before->covers;
		if (ino == 0 && !e->covers) {
			name_free(e);
			return;
		}
		if (before->host && !(dir->rec.origin.flags & REC_ORIGIN_PUBLIC))
			name_hide(o, e, &before->st);
		name_link(o, e);
	} else if (ino == 0 && !e->covers) {
		name_drop(o, e);
		return;
	}
	e->ino = ino;
	e->type = type;
	e->gen = atomic_fetch_add(&o->gen, 1) + 1;
}

int name_put(struct ovl *o, struct node *dir, const char *name, size_t len, store_ino ino,
	     uint32_t type)
{
	struct name *e;
	int r = name_prepare(o, dir, name, len, &e);

	if (r < 0)
		return r;
	if (!e->linked)
		name_link(o, e);
	/* A flush that was not heard of may have put it into the store. */
	e->covers = true;
	e->ino = ino;
	e->type = type;
	e->gen = atomic_fetch_add(&o->gen, 1) + 1;
	return 0;
}

int name_put_hidden(struct ovl *o, struct node *dir, const char *name, size_t len,
		    const struct hidden *h)
{
	struct name *e = name_find(o, dir, name, len);

	if (!e) /* a flush that was not heard of has both */
		return 0;
	if (!e->hidden)
		e->hidden = malloc(sizeof(*e->hidden));
	if (!e->hidden)
		return -ENOMEM;
	*e->hidden = *h;
	return 0;
}

void name_committed(struct ovl *o, struct name *e, uint64_t gen)
{
	struct node *dir = e->dir;

	dir->new_dir = false;
	/* From here on the store is asked for this name; its directory was in the same flush. */
	if (dir->rec.nlink > 0)
		dir->in_store = true;
	if (e->gen <= gen)
		name_drop(o, e);
}

void name_free_all(struct ovl *o)
{
	for (size_t i = 0; i < o->names.nslots; i++) {
		for (struct table_link *l = o->names.slots[i], *next; l; l = next) {
			next = l->next;
			name_free((struct name *)l);
		}
	}
	table_release(&o->names);
}

void dir_touched(struct ovl *o, struct node *dir, const struct timespec *now, int subdirs)
{
	dir->rec.mtime = dir->rec.ctime = *now;
	/* A host file system that does not count subdirectories says 1: leave it. */
	if (dir->rec.nlink >= 2)
		dir->rec.nlink = (uint32_t)((int64_t)dir->rec.nlink + subdirs);
	node_dirty(o, dir);
}
