/* What an operation on the tree leaves behind, for the journal. Everything that happens in one hold of o->lock
 * exclusive is one batch, appended when it ends, so that batches are in the order of their effects. */
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

#define BUF_KEEP   (64u << 10)
#define RENEW_MORE (1u << 20) /* out-of-date bytes of JOURNAL_KNOWN before it is written anew */

/* The request that this thread serves. It is told by thread, not by call, because every operation
 * of ovl.h belongs to one and few look at it. */
static _Thread_local struct {
	uint64_t tag;
	unsigned slot;
	bool armed;
	int64_t result;
	store_ino ino;
} request;

static bool logs(const struct ovl *o)
{
	return o->journal && !o->replaying;
}

static void put(struct ovl *o, struct buf *b, uint32_t type, store_ino ino, const void *body,
		size_t len, const void *more, size_t n)
{
	struct redo_head h = {.type = type, .len = (uint32_t)(len + n), .ino = ino};
	size_t was = b->len;

	if (buf_put(b, &h, sizeof(h)) < 0 || (len && buf_put(b, body, len) < 0) ||
	    (n && buf_put(b, more, n) < 0)) {
		b->len = was;
		atomic_store(&o->log_failed, true);
	}
}

/* ---- requests ---- */

void ovl_request(struct ovl *o, uint64_t tag, unsigned slot)
{
	(void)o;
	request.tag = tag;
	request.slot = slot;
	request.armed = false;
}

void redo_arm(struct ovl *o, int64_t result, store_ino ino)
{
	if (!request.tag || !logs(o))
		return;
	request.armed = true;
	request.result = result;
	request.ino = ino;
}

static unsigned request_slot(const struct ovl *o)
{
	/* A few lives apart: what the last one's requests came to is still there. */
	return (o->life * (JOURNAL_SLOTS / REDO_LIVES) + request.slot) % JOURNAL_SLOTS;
}

static void put_done(struct ovl *o, struct buf *b)
{
	struct redo_done d = {.tag = request.tag,
			      .ino = request.ino,
			      .result = request.result,
			      .slot = request_slot(o)};

	put(o, b, REDO_DONE, 0, &d, sizeof(d), NULL, 0);
}

static void finish_request(struct ovl *o)
{
	struct journal_done d = {.tag = request.tag, .ino = request.ino, .result = request.result};

	if (!request.armed)
		return;
	request.armed = false;
	journal_done(o->journal, request_slot(o), &d);
}

/* ---- records of JOURNAL_CHANGES (EX) ---- */

void redo_name(struct ovl *o, store_ino dir, const char *name, size_t len, store_ino ino,
	       uint32_t type)
{
	struct redo_name r = {.ino = ino, .type = type, .len = (uint32_t)len};

	if (logs(o))
		put(o, &o->changed, REDO_NAME, dir, &r, sizeof(r), name, len);
}

void redo_hidden(struct ovl *o, store_ino dir, const char *name, size_t len, const struct hidden *h)
{
	uint8_t bytes[HIDDEN_LEN];

	if (!logs(o))
		return;
	hidden_encode(h, bytes);
	put(o, &o->changed, REDO_HIDDEN, dir, bytes, sizeof(bytes), name, len);
}

void redo_place(struct ovl *o, store_ino ino, store_ino parent, const char *name, size_t len,
		bool present)
{
	struct redo_name r = {.parent = parent, .ino = present, .len = (uint32_t)len};

	if (logs(o))
		put(o, &o->changed, REDO_PLACE, ino, &r, sizeof(r), name, len);
}

void redo_gone(struct ovl *o, store_ino ino, bool dead)
{
	uint8_t d = dead;

	if (logs(o))
		put(o, &o->changed, REDO_GONE, ino, &d, sizeof(d), NULL, 0);
}

void redo_node(struct ovl *o, struct node *n)
{
	if (!logs(o) || !o->excl || n->redo_pending)
		return;
	n->redo_pending = true;
	n->redo_next = o->redo_nodes;
	o->redo_nodes = n;
}

void redo_drop(struct ovl *o, struct node *n)
{
	if (!n->redo_pending)
		return;
	for (struct node **p = &o->redo_nodes; *p; p = &(*p)->redo_next) {
		if (*p != n)
			continue;
		*p = n->redo_next;
		break;
	}
	n->redo_pending = false;
}

static void put_bigx(struct ovl *o, struct buf *b, struct node *n)
{
	for (struct bigx *x = n->bigx; x; x = x->next) {
		struct redo_xattr r = {.name_len = (uint32_t)strlen(x->name),
				       .value_len = (uint32_t)x->len,
				       .present = x->value != NULL};
		struct redo_head h = {.type = REDO_XATTR,
				      .ino = n->ino,
				      .len = (uint32_t)sizeof(r) + r.name_len + r.value_len};

		if (x->logged)
			continue;
		if (buf_put(b, &h, sizeof(h)) < 0 || buf_put(b, &r, sizeof(r)) < 0 ||
		    buf_put(b, x->name, r.name_len) < 0 ||
		    (r.value_len && buf_put(b, x->value, r.value_len) < 0))
			atomic_store(&o->log_failed, true);
		x->logged = true;
	}
}

struct redo_node redo_node_info(struct ovl *o, struct node *n)
{
	struct redo_node r = {.born = n->born};

	if (n->tmpfile)
		r.flags |= REDO_NODE_TMPFILE;
	if (atomic_load_explicit(&n->written, memory_order_relaxed))
		r.flags |= REDO_NODE_WRITTEN;
	if (n->rec.nlink == 0 && n->pol != POL_UNKNOWN) {
		unsigned may = policy_may(o->policy, n->pol);

		r.flags |= may & POLICY_MAY_WRITE ? REDO_NODE_MAY_WRITE : 0;
		r.flags |= may & POLICY_MAY_READ ? REDO_NODE_MAY_READ : 0;
	}
	return r;
}

/* ATTR. Where the bytes are is not told: the last flush says it, and what came since are records of the
 * content. */
static void put_node(struct ovl *o, struct buf *b, struct node *n)
{
	struct rec_inode rec = n->rec;
	struct redo_node r = redo_node_info(o, n);
	struct redo_head h = {.type = REDO_NODE, .ino = n->ino};
	size_t at = b->len;

	rec.content = REC_EMPTY;
	rec.data = NULL;
	rec.data_len = 0;
	memset(&rec.chunk, 0, sizeof(rec.chunk));
	rec.chunk_len = 0;
	if (buf_put(b, &h, sizeof(h)) < 0 || buf_put(b, &r, sizeof(r)) < 0 ||
	    rec_inode_encode(&rec, b) < 0) {
		b->len = at;
		atomic_store(&o->log_failed, true);
		return;
	}
	h.len = (uint32_t)(b->len - at - sizeof(h));
	memcpy(b->data + at, &h, sizeof(h));
	put_bigx(o, b, n);
	n->redo_epoch = o->redo_epoch;
}

/* ---- batches ---- */

static void empty(struct buf *b)
{
	buf_clear(b);
	if (b->cap > BUF_KEEP)
		buf_release(b);
}

static void append_known(struct ovl *o)
{
	struct iovec iov = {o->known_log.data, o->known_log.len};

	if (iov.iov_len && journal_append(o->journal, JOURNAL_KNOWN, &iov, 1) < 0)
		atomic_store(&o->log_failed, true);
	empty(&o->known_log);
}

/* Inodes before what is said of them: a directory that is new comes before its names. */
static void append_changed(struct ovl *o)
{
	struct iovec iov[] = {{o->changed_nodes.data, o->changed_nodes.len},
			      {o->changed.data, o->changed.len}};

	if (journal_append(o->journal, JOURNAL_CHANGES, iov, 2) < 0)
		atomic_store(&o->log_failed, true);
	empty(&o->changed_nodes);
	empty(&o->changed);
}

/* Without memory for it the operation is done all the same; who comes after a crash is told. */
static void note_failure(struct ovl *o)
{
	if (!o->log_failed)
		return;
	atomic_store(&o->log_failed, false);
	journal_break(o->journal);
}

void redo_commit(struct ovl *o)
{
	if (!logs(o))
		return;
	/* First: a record that nothing needs does no harm. */
	append_known(o);
	while (o->redo_nodes) {
		struct node *n = o->redo_nodes;

		o->redo_nodes = n->redo_next;
		n->redo_pending = false;
		put_node(o, &o->changed_nodes, n);
	}
	if (o->changed.len || o->changed_nodes.len) {
		if (request.armed)
			put_done(o, &o->changed);
		append_changed(o);
		finish_request(o);
	}
	note_failure(o);
	if (journal_size(o->journal, JOURNAL_KNOWN) > 2 * o->known_size + RENEW_MORE)
		redo_renew(o);
}

/* o->lock shared and node.lock */
void redo_touched(struct ovl *o, struct node *n, bool only_times)
{
	uint8_t space[256];
	struct buf b = {0};
	struct redo_times t = {.mtime = n->rec.mtime.tv_sec,
			       .mtime_nsec = (uint32_t)n->rec.mtime.tv_nsec,
			       .ctime = n->rec.ctime.tv_sec,
			       .ctime_nsec = (uint32_t)n->rec.ctime.tv_nsec};
	struct redo_head h = {.type = REDO_TIMES, .len = sizeof(t), .ino = n->ino};
	struct redo_done d = {.tag = request.tag,
			      .ino = request.ino,
			      .result = request.result,
			      .slot = request_slot(o)};
	struct redo_head dh = {.type = REDO_DONE, .len = sizeof(d)};
	struct iovec iov = {.iov_base = space};
	bool failed;

	if (!logs(o))
		return;
	if (only_times && n->redo_epoch == o->redo_epoch) {
		memcpy(space, &h, sizeof(h));
		memcpy(space + sizeof(h), &t, sizeof(t));
		iov.iov_len = sizeof(h) + sizeof(t);
		if (request.armed) {
			memcpy(space + iov.iov_len, &dh, sizeof(dh));
			memcpy(space + iov.iov_len + sizeof(dh), &d, sizeof(d));
			iov.iov_len += sizeof(dh) + sizeof(d);
		}
		failed = journal_append(o->journal, JOURNAL_CHANGES, &iov, 1) < 0;
	} else {
		put_node(o, &b, n);
		if (request.armed)
			put_done(o, &b);
		iov = (struct iovec){b.data, b.len};
		failed = journal_append(o->journal, JOURNAL_CHANGES, &iov, 1) < 0;
		buf_release(&b);
	}
	finish_request(o);
	if (failed)
		journal_break(o->journal);
}

/* ---- records of JOURNAL_KNOWN ---- */

static void known_put(struct ovl *o, uint32_t type, store_ino ino)
{
	struct redo_head h = {.type = type, .ino = ino};
	struct iovec iov = {&h, sizeof(h)};

	if (o->excl)
		put(o, &o->known_log, type, ino, NULL, 0, NULL, 0);
	else if (journal_append(o->journal, JOURNAL_KNOWN, &iov, 1) < 0)
		journal_break(o->journal);
}

void redo_known(struct ovl *o, struct node *n)
{
	if (!logs(o))
		return;
	n->known = true;
	known_put(o, REDO_KNOWN, n->ino);
	if (atomic_load_explicit(&n->written, memory_order_relaxed))
		known_put(o, REDO_WRITTEN, n->ino);
}

void redo_host(struct ovl *o, struct node *n)
{
	struct redo_name r = {.parent = n->rec.parent, .len = (uint32_t)n->rec.name_len};

	if (!logs(o))
		return;
	put(o, &o->known_log, REDO_HOST, n->ino, &r, sizeof(r), n->rec.name, n->rec.name_len);
	n->known = true;
}

void redo_orphan(struct ovl *o, struct node *n)
{
	struct redo_node r = redo_node_info(o, n);

	if (!logs(o))
		return;
	put(o, &o->known_log, REDO_ORPHAN, n->ino, &r, sizeof(r), NULL, 0);
	n->known = true;
}

void redo_number(struct ovl *o, const struct host_number *k)
{
	struct redo_number r = {.dev = k->dev, .ino = k->ino, .salt = k->salt};

	if (logs(o))
		put(o, &o->known_log, REDO_NUMBER, k->number, &r, sizeof(r), NULL, 0);
}

void redo_forgot(struct ovl *o, store_ino ino)
{
	if (logs(o))
		put(o, &o->known_log, REDO_FORGOT, ino, NULL, 0, NULL, 0);
}

void redo_written(struct ovl *o, struct node *n)
{
	if (!logs(o))
		return;
	n->known = true;
	known_put(o, REDO_WRITTEN, n->ino);
}

void redo_listed(struct ovl *o, store_ino dir, const struct listing_entry *e)
{
	struct redo_listed r = {.cookie = e->cookie, .len = (uint32_t)e->len};

	if (logs(o))
		put(o, &o->known_log, REDO_LISTED, dir, &r, sizeof(r), e->name, e->len);
}

void redo_listing(struct ovl *o, struct node *dir)
{
	struct listing *l = dir->listing;

	if (!logs(o) || !l)
		return;
	for (size_t i = 0; i < l->n; i++)
		if (l->slots[i])
			redo_listed(o, dir->ino, l->slots[i]);
	l->logged = true;
	dir->known = true;
}

/* ---- JOURNAL_KNOWN anew ---- */

static void renew_some(struct ovl *o, size_t least)
{
	if (o->known_log.len > least)
		append_known(o);
}

static void renew_node(struct ovl *o, struct node *n)
{
	bool known = n->known;

	n->known = false;
	if (n->host_only && known)
		redo_host(o, n);
	if (n->rec.nlink == 0 && !n->gone && !n->host_only)
		redo_orphan(o, n);
	if (atomic_load(&n->nlookup) > 0 || n->held)
		redo_known(o, n);
	if (n->listing && n->listing->logged)
		redo_listing(o, n);
}

static int renew_written(void *arg, store_ino ino)
{
	known_put(arg, REDO_WRITTEN, ino);
	return 0;
}

static int renew_known(void *arg, store_ino ino)
{
	known_put(arg, REDO_KNOWN, ino);
	return 0;
}

static void renew_tables(struct ovl *o)
{
	for (size_t i = 0; i < o->nodes.nslots; i++)
		for (struct table_link *l = o->nodes.slots[i]; l; l = l->next) {
			renew_node(o, (struct node *)l);
			renew_some(o, BUF_KEEP);
		}
	for (size_t i = 0; i < o->host_numbers.nslots; i++)
		for (struct table_link *l = o->host_numbers.slots[i]; l; l = l->next) {
			redo_number(o, (struct host_number *)l);
			renew_some(o, BUF_KEEP);
		}
	for (size_t i = 0; i < o->known.nslots; i++)
		for (struct table_link *l = o->known.slots[i]; l; l = l->next) {
			known_renew(o, (struct known *)l);
			renew_some(o, BUF_KEEP);
		}
	(void)ino_set_each(&o->old_known, renew_known, o);
	(void)ino_set_each(&o->old_written, renew_written, o);
	renew_some(o, 0);
}

void redo_known_put(struct ovl *o, uint32_t type, store_ino ino, const void *body, size_t len,
		    const void *more, size_t n)
{
	put(o, &o->known_log, type, ino, body, len, more, n);
}

/* EX */
void redo_renew(struct ovl *o)
{
	journal_renew(o->journal);
	atomic_store(&o->log_failed, false);
	renew_tables(o);
	journal_renewed(o->journal, !o->log_failed);
	o->known_size = journal_size(o->journal, JOURNAL_KNOWN);
	note_failure(o);
}
