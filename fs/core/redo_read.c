/* The journal of a dead process, applied to a tree that was opened over the last flush. Nobody else uses the
 * tree yet, and nothing is logged: the records stay in the journal until a flush has them. */
#include <stdlib.h>

#include "base/log.h"
#include "fs/core/ovl_internal.h"

struct redo {
	struct ovl *o;
	struct content_redo contents;
	/* Ended; and spoken of, but nowhere to be found: then a flush that was not heard of has seen its end, which
	 * stands further on in the journal. */
	struct ino_set gone, missing;
	struct table orphans;
	uint64_t records;
	bool foreign; /* not from the journal that is there: nothing in it is named by a record */
};

struct orphan {
	struct table_link link;
	store_ino ino;
	struct redo_node info;
};

/* ---- inodes ---- */

/* Whatever is known of @ino, also without links; -ENOENT: nothing. */
static int any_node(struct ovl *o, store_ino ino, struct node **ret)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	struct node *n = node_find(o, ino);
	int r = 0;

	if (!n) {
		r = store_view_inode(o->view, ino, &rec);
		if (r == 0)
			r = node_new(o, ino, &n);
		if (r < 0)
			return r == -EBADMSG ? -EIO : r;
		n->rec = rec;
		rec = (struct rec_inode){0};
		n->in_store = true;
	}
	n->held = known_take(o, ino);
	*ret = n;
	return 0;
}

/* Where the bytes are stays what the store says. */
static void keep_content(struct rec_inode *to, struct rec_inode *from)
{
	to->content = from->content;
	to->data = steal_ptr(&from->data);
	to->data_len = from->data_len;
	to->chunk = from->chunk;
	to->chunk_len = from->chunk_len;
	to->size = from->size;
	to->blocks = from->blocks;
	if (!to->origin.root || !from->origin.root)
		return;
	to->origin.valid = from->origin.valid;
	to->origin.dev = from->origin.dev;
	to->origin.ino = from->origin.ino;
	to->origin.size = from->origin.size;
	to->origin.mtime = from->origin.mtime;
}

static void set_info(struct ovl *o, struct node *n, const struct redo_node *info)
{
	n->born = info->born;
	n->tmpfile = info->flags & REDO_NODE_TMPFILE;
	if (info->flags & REDO_NODE_WRITTEN)
		atomic_store(&n->written, true);
	/* Without a place its policy cannot be told from one. */
	if (n->rec.nlink == 0 && !policy_trivial(o->policy))
		n->pol = policy_leaf(info->flags & REDO_NODE_MAY_WRITE  ? POLICY_WRITE
				     : info->flags & REDO_NODE_MAY_READ ? POLICY_READ
									: POLICY_DENY);
	else
		n->pol = policy_trivial(o->policy) ? policy_root(o->policy) : POL_UNKNOWN;
}

static int read_node(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	cleanup_rec_inode struct rec_inode rec = {0}, old = {0};
	struct ovl *o = x->o;
	struct redo_node info;
	struct node *n;
	int r;

	if (len < sizeof(info))
		return -EBADMSG;
	memcpy(&info, p, sizeof(info));
	r = rec_inode_decode(p + sizeof(info), len - sizeof(info), &rec);
	if (r < 0)
		return r;
	r = any_node(o, ino, &n);
	if (r == -ENOENT) {
		r = node_new(o, ino, &n);
		if (r == 0)
			n->held = known_take(o, ino);
	} else if (r == 0 && S_ISREG(rec.mode) && S_ISREG(n->rec.mode))
		keep_content(&rec, &n->rec);
	if (r < 0)
		return r;
	old = n->rec;
	n->rec = rec;
	rec = (struct rec_inode){0};
	set_info(o, n, &info);
	node_dirty(o, n);
	return 0;
}

static int read_times(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct redo_times t;
	struct node *n;
	int r;

	if (len != sizeof(t))
		return -EBADMSG;
	memcpy(&t, p, sizeof(t));
	r = any_node(x->o, ino, &n);
	if (r < 0)
		return r;
	n->rec.mtime = (struct timespec){.tv_sec = t.mtime, .tv_nsec = t.mtime_nsec};
	n->rec.ctime = (struct timespec){.tv_sec = t.ctime, .tv_nsec = t.ctime_nsec};
	node_dirty(x->o, n);
	return 0;
}

static int read_content(struct redo *x, store_ino ino, uint32_t type, const uint8_t *p, size_t len)
{
	struct content_ref *c;
	struct host_source *src;
	struct node *n;
	int r = any_node(x->o, ino, &n);

	if (r < 0)
		return r;
	if (!S_ISREG(n->rec.mode))
		return -EBADMSG;
	r = host_source_of(x->o, n, &src);
	if (r == 0)
		r = node_content(x->o, n, &c);
	if (r < 0)
		return r;
	r = content_redo(c->c, &x->contents, type, p, len);
	content_unref(c);
	atomic_store(&n->written, true);
	node_dirty(x->o, n);
	return r;
}

static int read_xattr(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	cleanup_free char *name = NULL;
	struct redo_xattr h;
	struct node *n;
	int r;

	if (len < sizeof(h))
		return -EBADMSG;
	memcpy(&h, p, sizeof(h));
	if (h.name_len > len - sizeof(h) || h.value_len != len - sizeof(h) - h.name_len)
		return -EBADMSG;
	name = strndup((const char *)p + sizeof(h), h.name_len);
	if (!name)
		return -ENOMEM;
	r = any_node(x->o, ino, &n);
	if (r == 0)
		r = bigx_log(x->o, n, name, h.present ? p + sizeof(h) + h.name_len : NULL,
			     h.value_len);
	return r;
}

static int gone(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct ovl *o = x->o;
	struct node *n = node_find(o, ino);

	if (len != 1)
		return -EBADMSG;
	if (n) {
		while (n->names)
			name_drop(o, n->names);
		n->in_store = *p != 0;
		n->born = *p ? o->layer : 0;
		n->rec.nlink = 0;
		n->held = false;
		node_reap(o, n);
	} else if (*p) {
		int r = node_dead(o, ino);

		if (r < 0)
			return r;
	}
	/* A number of a host file may come again. */
	ino_set_del(&x->missing, ino);
	return ino_set_add(&x->gone, ino);
}

/* ---- names ---- */

/* As the kernel would have made it. */
static bool name_ok(const char *name, size_t len)
{
	return len && len <= STORE_NAME_MAX && !memchr(name, '/', len) && !memchr(name, 0, len) &&
	       !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

static int name_of(const uint8_t *p, size_t len, struct redo_name *ret, const char **ret_name)
{
	if (len < sizeof(*ret))
		return -EBADMSG;
	memcpy(ret, p, sizeof(*ret));
	*ret_name = (const char *)p + sizeof(*ret);
	return ret->len == len - sizeof(*ret) && name_ok(*ret_name, ret->len) ? 0 : -EBADMSG;
}

static int read_name(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct redo_name h;
	const char *name;
	struct node *dir;
	int r = name_of(p, len, &h, &name);

	if (r == 0)
		r = any_node(x->o, ino, &dir);
	if (r == 0 && !S_ISDIR(dir->rec.mode))
		r = -EBADMSG;
	return r < 0 ? r : name_put(x->o, dir, name, h.len, h.ino, h.type);
}

static int read_hidden(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct hidden h;
	struct node *dir;
	int r;

	if (len <= HIDDEN_LEN || len > HIDDEN_LEN + STORE_NAME_MAX)
		return -EBADMSG;
	r = hidden_decode(p, HIDDEN_LEN, &h);
	if (r == 0)
		r = any_node(x->o, ino, &dir);
	return r < 0 ? r
		     : name_put_hidden(x->o, dir, (const char *)p + HIDDEN_LEN, len - HIDDEN_LEN,
				       &h);
}

static int read_place(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct redo_name h;
	const char *name;
	struct node *n;
	int r = name_of(p, len, &h, &name);

	if (r == 0)
		r = any_node(x->o, ino, &n);
	return r < 0 ? r : place_log(x->o, n, h.parent, name, h.len, h.ino != 0);
}

static int read_done(struct redo *x, const uint8_t *p, size_t len)
{
	struct redo_done d;

	if (len != sizeof(d))
		return -EBADMSG;
	memcpy(&d, p, sizeof(d));
	if (d.slot >= JOURNAL_SLOTS)
		return -EBADMSG;
	x->o->done[d.slot] = (struct journal_done){.tag = d.tag, .ino = d.ino, .result = d.result};
	return 0;
}

static int read_one(struct redo *x, const struct redo_head *h, const uint8_t *p)
{
	switch (h->type) {
	case REDO_NODE:
		return read_node(x, h->ino, p, h->len);
	case REDO_TIMES:
		return read_times(x, h->ino, p, h->len);
	case REDO_XATTR:
		return read_xattr(x, h->ino, p, h->len);
	case REDO_HIDDEN:
		return read_hidden(x, h->ino, p, h->len);
	case REDO_PLACE:
		return read_place(x, h->ino, p, h->len);
	case REDO_NAME:
		return read_name(x, h->ino, p, h->len);
	case REDO_GONE:
		return gone(x, h->ino, p, h->len);
	case REDO_DONE:
		return read_done(x, p, h->len);
	default:
		return read_content(x, h->ino, h->type, p, h->len);
	}
}

static int read_change(struct redo *x, const struct redo_head *h, const uint8_t *p)
{
	int r;

	x->records++;
	if (x->foreign && (h->type == REDO_BLOCK || h->type == REDO_DONE))
		return -EBADMSG;
	/* Nor may a later record bring it into being: what comes then builds on what could not be applied. */
	if (ino_set_has(&x->missing, h->ino) && h->type != REDO_GONE && h->type != REDO_DONE)
		return 0;
	r = read_one(x, h, p);
	return r == -ENOENT ? ino_set_add(&x->missing, h->ino) : r;
}

static int not_gone(void *arg, store_ino ino)
{
	(void)arg;
	log_error("the journal speaks of inode %llu, which is not there and did not end",
		  (unsigned long long)ino);
	return -EBADMSG;
}

/* ---- what is known ---- */

static struct orphan *orphan_find(struct redo *x, store_ino ino)
{
	struct table_link *l = table_find(&x->orphans, table_hash_u64(ino));

	for (; l; l = table_next(l))
		if (((struct orphan *)l)->ino == ino)
			return (struct orphan *)l;
	return NULL;
}

static int read_orphan(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct orphan *w = orphan_find(x, ino);

	if (len != sizeof(struct redo_node))
		return -EBADMSG;
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return -ENOMEM;
		w->ino = ino;
		if (table_add(&x->orphans, &w->link, table_hash_u64(ino)) < 0) {
			free(w);
			return -ENOMEM;
		}
	}
	memcpy(&w->info, p, len);
	return 0;
}

static int read_number(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct redo_number r;

	if (len != sizeof(r))
		return -EBADMSG;
	memcpy(&r, p, sizeof(r));
	return host_number_set(x->o, r.dev, r.ino, r.salt, ino);
}

static int read_listed(struct redo *x, store_ino ino, const uint8_t *p, size_t len)
{
	struct redo_listed r;

	if (len < sizeof(r))
		return -EBADMSG;
	memcpy(&r, p, sizeof(r));
	if (r.len != len - sizeof(r) || !name_ok((const char *)p + sizeof(r), r.len))
		return -EBADMSG;
	return known_listed(x->o, ino, r.cookie, (const char *)p + sizeof(r), r.len);
}

static int forgot(struct redo *x, store_ino ino)
{
	struct orphan *w = orphan_find(x, ino);

	known_forget(x->o, ino);
	if (w) {
		table_del(&x->orphans, &w->link);
		free(w);
	}
	return 0;
}

static int read_known(struct redo *x, const struct redo_head *h, const uint8_t *p)
{
	struct redo_name n;
	const char *name;
	int r;

	switch (h->type) {
	case REDO_HOST:
		r = name_of(p, h->len, &n, &name);
		return r < 0 ? r : known_host(x->o, h->ino, n.parent, name, n.len);
	case REDO_ORPHAN:
		return read_orphan(x, h->ino, p, h->len);
	case REDO_KNOWN:
		return ino_set_add(&x->o->old_known, h->ino);
	case REDO_WRITTEN:
		return ino_set_add(&x->o->old_written, h->ino);
	case REDO_FORGOT:
		return forgot(x, h->ino);
	case REDO_NUMBER:
		return read_number(x, h->ino, p, h->len);
	case REDO_LISTED:
		return read_listed(x, h->ino, p, h->len);
	default:
		return -EBADMSG;
	}
}

/* ---- all ---- */

static int each_record(struct redo *x, const uint8_t *p, size_t n,
		       int (*fn)(struct redo *x, const struct redo_head *h, const uint8_t *p))
{
	while (n > 0) {
		struct redo_head h;
		int r;

		if (n < sizeof(h))
			return -EBADMSG;
		memcpy(&h, p, sizeof(h));
		p += sizeof(h);
		n -= sizeof(h);
		if (h.len > n)
			return -EBADMSG;
		r = fn(x, &h, p);
		if (r < 0) {
			log_error("the journal's record %u of inode %llu: %s", h.type,
				  (unsigned long long)h.ino, err_text(r));
			return r;
		}
		p += h.len;
		n -= h.len;
	}
	return 0;
}

static int change_batch(void *arg, const uint8_t *p, size_t n)
{
	return each_record(arg, p, n, read_change);
}

static int known_batch(void *arg, const uint8_t *p, size_t n)
{
	return each_record(arg, p, n, read_known);
}

/* Inodes without a name that somebody has open: the kernel will say when nobody has any more. */
static int hold_orphan(struct redo *x, const struct orphan *w)
{
	struct node *n;
	int r;

	if (ino_set_has(&x->gone, w->ino))
		return 0;
	r = any_node(x->o, w->ino, &n);
	if (r < 0)
		return r == -ENOENT ? 0 : r; /* made by a request that was never finished */
	if (n->rec.nlink == 0)
		set_info(x->o, n, &w->info);
	node_reap(x->o, n);
	return 0;
}

/* Also frees the list. */
static int hold_orphans(struct redo *x, int r)
{
	for (size_t i = 0; i < x->orphans.nslots; i++)
		for (struct table_link *l = x->orphans.slots[i], *next; l; l = next) {
			next = l->next;
			if (r == 0)
				r = hold_orphan(x, (struct orphan *)l);
			free(l);
		}
	table_release(&x->orphans);
	return r;
}

static int release(struct redo *x, int r)
{
	if (r == 0)
		r = ino_set_each(&x->missing, not_gone, NULL);
	r = hold_orphans(x, r);
	unlock(x->o);
	if (x->records)
		atomic_fetch_add(&x->o->changes, 1);
	content_redo_release(&x->contents);
	ino_set_release(&x->gone);
	ino_set_release(&x->missing);
	return r;
}

int redo_begin(struct ovl *o, struct redo **ret)
{
	struct redo *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->o = o;
	x->foreign = true;
	lock_excl(o);
	*ret = x;
	return 0;
}

int redo_batch(struct redo *x, const uint8_t *p, size_t n)
{
	return change_batch(x, p, n);
}

int redo_end(struct redo *x, int r)
{
	r = release(x, r);
	free(x);
	return r;
}

int redo_all(struct ovl *o)
{
	struct redo x = {.o = o};
	uint64_t layer, seed;
	int r;

	journal_base(o->journal, &layer, &seed);
	o->seed = seed;
	for (unsigned i = 0; i < JOURNAL_SLOTS; i++)
		journal_done_get(o->journal, i, &o->done[i]);
	lock_excl(o);
	r = journal_read(o->journal, JOURNAL_KNOWN, known_batch, &x);
	/* Over another layer everything was flushed before it was sealed. */
	if (r == 0 && layer == o->layer)
		r = journal_read(o->journal, JOURNAL_CHANGES, change_batch, &x);
	r = release(&x, r);
	journal_sweep(o->journal);
	return r;
}
