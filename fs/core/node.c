/* The inode table: finding, loading, references, attributes. */
#include <stdlib.h>

#include "base/io.h"
#include "fs/core/ovl_internal.h"

#define INO_BLOCK 4096

struct node *node_find(struct ovl *o, store_ino ino)
{
	struct table_link *l = table_find(&o->nodes, table_hash_u64(ino));

	for (; l; l = table_next(l)) {
		struct node *n = (struct node *)l;

		if (n->ino == ino)
			return n;
	}
	return NULL;
}

int node_new(struct ovl *o, store_ino ino, struct node **ret)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->ino = ino;
	n->pol = policy_trivial(o->policy) ? policy_root(o->policy) : POL_UNKNOWN;
	if (table_add(&o->nodes, &n->link, table_hash_u64(ino)) < 0) {
		free(n);
		return -ENOMEM;
	}
	pthread_mutex_init(&n->lock, NULL);
	memory_grew(o);
	*ret = n;
	return 0;
}

static int node_load(struct ovl *o, store_ino ino, struct node **ret)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	struct node *n;
	int r;

	if (ino_set_has(&o->dead, ino) || ino_set_has(&o->dying, ino))
		return -ESTALE;
	r = store_view_inode(o->view, ino, &rec);
	if (r == -ENOENT)
		return -ESTALE;
	if (r < 0)
		return r == -EBADMSG ? -EIO : r;
	if (rec.nlink == 0)
		return -ESTALE;
	r = node_new(o, ino, &n);
	if (r < 0)
		return r;
	n->rec = rec;
	rec = (struct rec_inode){0};
	n->in_store = true;
	n->held = o->resumed && ino_set_has(&o->old_known, ino);
	if (n->held && ino_set_has(&o->old_written, ino))
		atomic_store(&n->written, true);
	/* Own numbers grow, so what was numbered since the layer began is in no older layer. */
	if (ino >= o->born_mark && ino < STORE_HOST_INO)
		n->born = o->layer;
	*ret = n;
	return 0;
}

int node_get(struct ovl *o, store_ino ino, struct node **ret)
{
	struct node *n = node_find(o, ino);

	if (!n) {
		int r = node_load(o, ino, &n);

		if (r == -ESTALE && o->resumed)
			r = known_load(o, ino, &n);
		if (r < 0)
			return r;
	}
	*ret = n;
	return 0;
}

int node_get_dir(struct ovl *o, store_ino ino, bool live, struct node **ret)
{
	struct node *n;
	int r = node_get(o, ino, &n);

	if (r < 0)
		return r;
	if (!S_ISDIR(n->rec.mode))
		return -ENOTDIR;
	if (live && n->rec.nlink == 0)
		return -ENOENT;
	*ret = n;
	return 0;
}

void bigx_free(struct bigx *b)
{
	while (b) {
		struct bigx *next = b->next;

		free(b->name);
		free(b->value);
		free(b);
		b = next;
	}
}

void content_unref(struct content_ref *c)
{
	if (c && atomic_fetch_sub(&c->refs, 1) == 1) {
		content_close(c->c);
		free(c);
	}
}

static void node_free(struct ovl *o, struct node *n)
{
	host_forget(n);
	redo_drop(o, n);
	if (n->known && !n->held)
		redo_forgot(o, n->ino);
	table_del(&o->nodes, &n->link);
	content_unref(n->content);
	bigx_free(n->bigx);
	for (struct place *p = n->places, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	listing_free(n->listing);
	rec_inode_release(&n->rec);
	pthread_mutex_destroy(&n->lock);
	free(n);
	memory_shrank(o);
}

int node_dead(struct ovl *o, store_ino ino)
{
	return ino_set_add(&o->dead, ino);
}

/* The last reference on an inode without links is gone: its data is not needed any more. What the
 * layer itself recorded is dropped; a record that hides an older one is flushed with count 0, so that
 * diff and the collector see the end of the inode. */
static void node_end(struct ovl *o, struct node *n)
{
	if (n->gone || o->flags & OVL_RDONLY)
		return;
	if (n->in_store && n->born == o->layer) {
		if (node_dead(o, n->ino) < 0)
			return; /* stays as a record with count 0 */
		n->gone = true;
	} else if (!n->in_store) {
		n->gone = true;
	}
	if (n->gone) {
		node_clean(o, n);
		redo_drop(o, n);
		redo_gone(o, n->ino, n->in_store);
	}
}

void node_reap(struct ovl *o, struct node *n)
{
	while (n) {
		struct node *up = NULL;

		if (n->known && !n->held && atomic_load(&n->nlookup) == 0) {
			redo_forgot(o, n->ino);
			n->known = false;
		}
		if (atomic_load(&n->nlookup) > 0 || atomic_load(&n->pins) > 0 || n->names)
			return;
		/* What a forget will end, and what could not be found again. */
		if (n->held &&
		    (n->rec.nlink == 0 || n->host_only || (n->listing && n->listing->logged)))
			return;
		if (n->rec.nlink == 0)
			node_end(o, n);
		if (n->dirty || n->ino == STORE_ROOT_INO)
			return;
		up = n->host_parent;
		if (up)
			atomic_fetch_sub(&up->pins, 1);
		node_free(o, n);
		n = up;
	}
}

void node_free_all(struct ovl *o)
{
	for (size_t i = 0; i < o->nodes.nslots; i++) {
		while (o->nodes.slots[i])
			node_free(o, (struct node *)o->nodes.slots[i]);
	}
	table_release(&o->nodes);
}

void node_pin(struct node *n)
{
	atomic_fetch_add(&n->pins, 1);
}

void node_put(struct ovl *o, struct node *n)
{
	if (!n)
		return;
	atomic_fetch_sub(&n->pins, 1);
	node_reap(o, n);
}

void node_unpin(struct ovl *o, struct node *n)
{
	store_ino ino = n->ino;
	bool last;

	/* Under the lock, so that either we or the ovl_forget() that runs beside us sees both counts
	 * at zero. */
	lock_shared(o);
	last = atomic_fetch_sub(&n->pins, 1) == 1 && atomic_load(&n->nlookup) == 0;
	unlock(o);
	if (!last)
		return;
	lock_excl(o);
	n = node_find(o, ino);
	if (n)
		node_reap(o, n);
	unlock(o);
}

void node_dirty(struct ovl *o, struct node *n)
{
	n->gen = atomic_fetch_add(&o->gen, 1) + 1;
	redo_node(o, n);
	if (n->dirty)
		return;
	pthread_mutex_lock(&o->dirty_lock);
	n->dirty = true;
	n->dirty_prev = NULL;
	n->dirty_next = o->dirty_first;
	if (n->dirty_next)
		n->dirty_next->dirty_prev = n;
	o->dirty_first = n;
	o->ndirty++;
	pthread_mutex_unlock(&o->dirty_lock);
}

void node_clean(struct ovl *o, struct node *n)
{
	if (!n->dirty)
		return;
	pthread_mutex_lock(&o->dirty_lock);
	n->dirty = false;
	if (n->dirty_prev)
		n->dirty_prev->dirty_next = n->dirty_next;
	else
		o->dirty_first = n->dirty_next;
	if (n->dirty_next)
		n->dirty_next->dirty_prev = n->dirty_prev;
	n->dirty_prev = n->dirty_next = NULL;
	o->ndirty--;
	pthread_mutex_unlock(&o->dirty_lock);
}

int node_number(struct ovl *o, store_ino *ret)
{
	if (o->ino_next == o->ino_end) {
		store_ino first;
		int r = store_reserve_inos(o->store, INO_BLOCK, &first);

		if (r < 0)
			return r;
		o->ino_next = first;
		o->ino_end = first + INO_BLOCK;
		if (o->born_mark == UINT64_MAX)
			o->born_mark = first;
	}
	*ret = o->ino_next++;
	return 0;
}

/* ---- attributes ---- */

uint64_t node_size(const struct node *n)
{
	return n->content ? content_size(n->content->c) : n->rec.size;
}

/* The kernel counts a removal before it gives up the directory, and asks for the next change there after that. */
static bool is_unsettled(struct ovl *o, const struct node *n)
{
	const struct node *dir = n->dropped_in ? node_find(o, n->dropped_in) : NULL;

	return n->dropped_in && (!dir || dir->turns == n->dropped_at);
}

void node_attr(struct ovl *o, struct node *n, struct ovl_attr *ret)
{
	const struct rec_inode *r = &n->rec;

	*ret = (struct ovl_attr){
		.st =
			{
				.st_ino = n->ino,
				.st_mode = r->mode,
				.st_nlink = r->nlink,
				.st_uid = r->uid,
				.st_gid = r->gid,
				.st_rdev = r->rdev,
				.st_size = (off_t)node_size(n),
				.st_blocks = (blkcnt_t)(n->content ? content_blocks(n->content->c)
								   : r->blocks),
				.st_blksize = STORE_BLOCK,
				.st_atim = r->atime,
				.st_mtim = r->mtime,
				.st_ctim = r->ctime,
			},
		.btime = r->btime,
		.valid_ms = n->host_only ? host_ttl(o, r->origin.flags) : OVL_FOREVER,
		.unsettled = is_unsettled(o, n) ? n->drops : 0,
	};
	/* One that is only a way to others shows nothing of itself. */
	if (n->pol != POL_UNKNOWN && !(policy_may(o->policy, n->pol) & POLICY_MAY_READ)) {
		ret->st.st_size = 0;
		ret->st.st_blocks = 0;
		ret->st.st_nlink = 1;
		ret->st.st_atim = ret->st.st_mtim = ret->st.st_ctim = ret->btime =
			(struct timespec){0};
	}
}

void node_entry(struct ovl *o, struct node *n, uint32_t name_valid, struct ovl_entry *ret)
{
	ret->ino = n->ino;
	ret->valid_ms = name_valid;
	node_attr(o, n, &ret->attr);
	node_used(n);
	if (n->held)
		atomic_store(&n->given, io_now_ms());
	if (atomic_fetch_add(&n->nlookup, 1) == 0)
		redo_known(o, n);
}

int node_set_place(struct node *n, store_ino parent, const char *name, size_t len)
{
	char *copy = NULL;

	if (name) {
		copy = strndup(name, len);
		if (!copy)
			return -ENOMEM;
	}
	free(n->rec.name);
	n->rec.name = copy;
	n->rec.name_len = copy ? len : 0;
	n->rec.parent = parent;
	return 0;
}

int node_content(struct ovl *o, struct node *n, struct content_ref **ret)
{
	if (!n->content) {
		cleanup_free struct content_ref *c = calloc(1, sizeof(*c));
		struct hostsrc *h = n->src ? n->src->h : NULL;
		int r;

		if (!c)
			return -ENOMEM;
		r = content_open(o->cenv, n->ino, &n->rec, n->rec.origin.root ? h : NULL, &c->c);
		if (r < 0)
			return r;
		atomic_init(&c->refs, 1);
		if (!n->host_only)
			content_follow(c->c);
		n->content = steal_ptr(&c);
	}
	atomic_fetch_add(&n->content->refs, 1);
	*ret = n->content;
	return 0;
}

void node_drop_content(struct node *n, struct content_ref *c, unsigned refs)
{
	if (n->content != c || atomic_load(&c->refs) != refs || !content_spare(c->c))
		return;
	n->content = NULL;
	content_unref(c);
}
