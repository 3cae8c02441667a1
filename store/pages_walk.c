#include <stdlib.h>

#include "store/pages_internal.h"

/* ---- a tree ---- */

struct walk {
	struct pages *p;
	const struct pages_db *db;
	const MDB_val *from;
	const struct pages_cb *cb;
	unsigned flags;
	uint64_t branch, leaf, overflow, entries;
	bool damaged;
	uint8_t *level[DEPTH_MAX + 1]; /* the pages on the way down */
};

static int compare(const struct walk *w, const MDB_val *a, const MDB_val *b)
{
	size_t n = a->mv_size < b->mv_size ? a->mv_size : b->mv_size;
	int r;

	if (w->flags & PAGES_INTKEY && a->mv_size == 8 && b->mv_size == 8) {
		uint64_t x, y;

		memcpy(&x, a->mv_data, 8);
		memcpy(&y, b->mv_data, 8);
		return x < y ? -1 : x > y;
	}
	r = n ? memcmp(a->mv_data, b->mv_data, n) : 0;
	return r ? r : a->mv_size < b->mv_size ? -1 : a->mv_size > b->mv_size;
}

static int bad(struct walk *w, uint64_t pgno, const char *what, const MDB_val *lo,
	       const MDB_val *hi)
{
	w->damaged = true;
	return w->cb->bad ? w->cb->bad(w->cb->arg, pgno, what, lo, hi) : 0;
}

/* Note @n pages as used; false: one of them was already. */
static bool mark(struct pages *p, uint64_t pgno, uint64_t n)
{
	bool fresh = true;

	for (; n--; pgno++) {
		if (pgno > p->last)
			return false;
		fresh = fresh && !(p->used[pgno / 64] >> (pgno % 64) & 1);
		p->used[pgno / 64] |= UINT64_C(1) << (pgno % 64);
	}
	return fresh;
}

/* Keys in order, and within what the pages above say. */
static const char *order_bad(const struct walk *w, const uint8_t *pg, bool leaf, const MDB_val *lo,
			     const MDB_val *hi)
{
	MDB_val last = *lo;

	for (unsigned i = leaf ? 0 : 1; i < count_of(pg); i++) {
		MDB_val k = key_of(pg, i);

		if (w->flags & PAGES_INTKEY && k.mv_size != 8)
			return "a key has an impossible length";
		if (last.mv_size && compare(w, &k, &last) < (i == 0 || (!leaf && i == 1) ? 0 : 1))
			return "its keys are out of order";
		last = k;
	}
	if (hi->mv_size && last.mv_size && count_of(pg) && compare(w, &last, hi) >= 0)
		return "its keys are out of order";
	return NULL;
}

static int value_room(struct pages *p, size_t n)
{
	uint8_t *v;

	if (n <= p->value_cap)
		return 0;
	v = realloc(p->value, n);
	if (!v)
		return -ENOMEM;
	p->value = v;
	p->value_cap = n;
	return 0;
}

/* A value with pages of its own: *@ret_bad when that cannot be. */
static int big_value(struct pages *p, struct walk *w, unsigned flags, const uint8_t *at, size_t n,
		     MDB_val *v, const char **ret_bad)
{
	struct page_head h;
	uint64_t pgno, npages = (HEAD + n + p->size - 1) / p->size;
	uint32_t count;
	int r;

	memcpy(&pgno, at, 8);
	*v = (MDB_val){n, NULL};
	if (n > VALUE_MAX || pgno < 2 || pgno > p->there || npages > p->there - pgno + 1) {
		*ret_bad = "a value lies past the last page";
		return 0;
	}
	if (w)
		w->overflow += npages;
	if (flags & PAGES_MARK && !mark(p, pgno, npages)) {
		*ret_bad = "a value lies in pages that something else uses";
		return 0;
	}
	if (flags & PAGES_SHALLOW)
		return 0;
	r = value_room(p, HEAD + n);
	if (r < 0)
		return r;
	if (pages_read(p, p->value, HEAD + n, pgno * p->size) < 0) {
		*ret_bad = "a value cannot be read";
		return 0;
	}
	memcpy(&h, p->value, sizeof(h));
	memcpy(&count, p->value + 12, 4);
	if (h.pgno != pgno || (h.flags & P_KIND) != P_OVERFLOW || count != npages)
		*ret_bad = "the header of a value's first page is wrong";
	v->mv_data = p->value + HEAD;
	return 0;
}

static int one_record(struct walk *w, const uint8_t *pg, unsigned i)
{
	struct node_head n = node_of(pg, i);
	MDB_val k = key_of(pg, i), v;
	const uint8_t *data = (const uint8_t *)k.mv_data + k.mv_size;
	const char *what = NULL;
	int r = 0;

	w->entries++;
	if (w->from && compare(w, &k, w->from) < 0)
		return 0;
	if (n.flags & F_BIG)
		r = big_value(w->p, w, w->flags, data, data_len(n), &v, &what);
	else
		v = (MDB_val){data_len(n), (void *)(uintptr_t)data};
	if (r < 0)
		return r;
	if (what) {
		/* The record is handed on when it could be read: its header alone may be wrong. */
		r = bad(w, head_of(pg)->pgno, what, &k, &k);
		if (r || !v.mv_data)
			return r;
	}
	return w->cb->record(w->cb->arg, &k, &v, n.flags);
}

static int walk_page(struct walk *w, uint64_t pgno, unsigned depth, MDB_val lo, MDB_val hi)
{
	const char *what;
	const uint8_t *lent = pages_load(w->p, pgno, &what);
	uint8_t *pg = w->level[depth];
	bool leaf = lent && (head_of(lent)->flags & P_LEAF);
	unsigned first = 0;
	int r = 0;

	if (!pg)
		pg = w->level[depth] = malloc(w->p->size);
	if (!pg)
		return -ENOMEM;
	/* A copy of its own: those above are needed again after those below were looked at. */
	if (lent)
		memcpy(pg, lent, w->p->size);
	if (!what && leaf != (depth == w->db->depth))
		what = "it stands at the wrong height of its tree";
	if (!what)
		what = order_bad(w, pg, leaf, &lo, &hi);
	if (!what && w->flags & PAGES_MARK && !mark(w->p, pgno, 1))
		what = "something else uses it";
	if (what)
		return bad(w, pgno, what, &lo, &hi);
	w->branch += !leaf;
	w->leaf += leaf;
	for (unsigned i = 0; leaf && r == 0 && i < count_of(pg); i++)
		r = one_record(w, pg, i);
	/* Go down at once to where @from is. */
	while (!leaf && w->from && first + 1 < count_of(pg)) {
		MDB_val k = key_of(pg, first + 1);

		if (compare(w, &k, w->from) > 0)
			break;
		first++;
	}
	for (unsigned i = first; !leaf && r == 0 && i < count_of(pg); i++) {
		MDB_val from = i ? key_of(pg, i) : lo;
		MDB_val to = i + 1 < count_of(pg) ? key_of(pg, i + 1) : hi;

		r = walk_page(w, child_of(node_of(pg, i)), depth + 1, from, to);
	}
	return r;
}

int pages_walk(struct pages *p, const struct pages_db *db, const MDB_val *from, unsigned flags,
	       const struct pages_cb *cb)
{
	struct walk w = {.p = p, .db = db, .from = from, .cb = cb, .flags = flags};
	MDB_val none = {0};
	int r = 0;

	if (db->root == PAGES_NONE ? db->depth != 0 : db->depth < 1 || db->depth > DEPTH_MAX)
		return bad(&w, db->root, "the height of its tree is impossible", &none, &none);
	if (db->root != PAGES_NONE)
		r = walk_page(&w, db->root, 1, none, none);
	for (int i = 0; i <= DEPTH_MAX; i++)
		free(w.level[i]);
	if (r == 0 && flags & PAGES_COUNT && !w.damaged &&
	    (w.branch != db->branch || w.leaf != db->leaf || w.overflow != db->overflow ||
	     w.entries != db->entries))
		r = bad(&w, db->root, "the counts of its pages and records are wrong", &none,
			&none);
	return r;
}

int pages_sub(const MDB_val *v, unsigned flags, struct pages_db *ret)
{
	struct disk_db d;

	if (flags != F_SUB || v->mv_size != sizeof(d))
		return -EBADMSG;
	memcpy(&d, v->mv_data, sizeof(d));
	if (d.flags != 0)
		return -EBADMSG;
	pages_take_db(&d, ret);
	return 0;
}

/* ---- one record ---- */

static int bytes_compare(const MDB_val *a, const MDB_val *b)
{
	struct walk w = {0};

	return compare(&w, a, b);
}

/* The first of the keys of a page that is not below @key; of a branch page the last that is not above. */
static unsigned search(const uint8_t *pg, const MDB_val *key, bool leaf)
{
	unsigned lo = leaf ? 0 : 1, hi = count_of(pg);

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;
		MDB_val k = key_of(pg, mid);
		int c = bytes_compare(&k, key);

		if (leaf ? c < 0 : c <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return leaf ? lo : lo - 1;
}

/* Down to the leaf where @key would be. @hi: where the next leaf begins, without bytes when there is none. */
static int descend(struct pages *p, const struct pages_db *db, const MDB_val *key,
		   struct pages_pos *pos, uint8_t hi[static KEY_LIMIT], size_t *hi_len)
{
	uint64_t pgno = db->root;

	*hi_len = 0;
	for (unsigned depth = 1; depth <= db->depth && depth <= DEPTH_MAX; depth++) {
		const char *what;
		const uint8_t *pg = pages_load(p, pgno, &what);
		bool leaf = depth == db->depth;
		unsigned i;

		if (!pg || leaf != !!(head_of(pg)->flags & P_LEAF))
			return -EBADMSG;
		i = search(pg, key, leaf);
		if (leaf) {
			*pos = (struct pages_pos){pgno, i};
			return i < count_of(pg) ? 0 : -ENOENT;
		}
		if (i + 1 < count_of(pg)) {
			MDB_val k = key_of(pg, i + 1);

			memcpy(hi, k.mv_data, k.mv_size);
			*hi_len = k.mv_size;
		}
		pgno = child_of(node_of(pg, i));
	}
	return -EBADMSG;
}

static int at_pos(struct pages *p, const struct pages_pos *pos, unsigned flags, MDB_val *k,
		  MDB_val *v)
{
	const char *what = NULL;
	const uint8_t *pg = pages_load(p, pos->pgno, &what);
	struct node_head n;
	const uint8_t *data;
	int r = 0;

	if (!pg || pos->i >= count_of(pg))
		return -EBADMSG;
	n = node_of(pg, pos->i);
	*k = key_of(pg, pos->i);
	data = (const uint8_t *)k->mv_data + k->mv_size;
	if (n.flags & F_BIG)
		r = big_value(p, NULL, flags & PAGES_SHALLOW, data, data_len(n), v, &what);
	else
		*v = (MDB_val){data_len(n), (void *)(uintptr_t)data};
	return r < 0 ? r : what ? -EBADMSG : 0;
}

int pages_find(struct pages *p, const struct pages_db *db, const MDB_val *key, unsigned flags,
	       struct pages_pos *pos, MDB_val *k, MDB_val *v)
{
	uint8_t at[KEY_LIMIT], hi[KEY_LIMIT];
	MDB_val want = *key;
	size_t n;
	int r = -ENOENT;

	/* A leaf that ends below @key: the next one begins with what is looked for. */
	while (db->root != PAGES_NONE) {
		r = descend(p, db, &want, pos, hi, &n);
		if (r != -ENOENT || n == 0)
			break;
		memcpy(at, hi, n);
		want = (MDB_val){n, at};
	}
	return r < 0 ? r : at_pos(p, pos, flags, k, v);
}

int pages_next(struct pages *p, const struct pages_db *db, unsigned flags, struct pages_pos *pos,
	       MDB_val *k, MDB_val *v)
{
	uint8_t after[KEY_LIMIT + 1];
	const char *what;
	const uint8_t *pg = pages_load(p, pos->pgno, &what);
	MDB_val key = {0, after};

	if (!pg || pos->i >= count_of(pg))
		return -EBADMSG;
	if (pos->i + 1 < count_of(pg)) {
		pos->i++;
		return at_pos(p, pos, flags, k, v);
	}
	/* The shortest key above this one. */
	*k = key_of(pg, pos->i);
	memcpy(after, k->mv_data, k->mv_size);
	after[k->mv_size] = 0;
	key.mv_size = k->mv_size + 1;
	return pages_find(p, db, &key, flags, pos, k, v);
}

/* ---- the free list ---- */

struct free_walk {
	struct pages *p;
	const struct pages_cb *cb;
	uint64_t n;
};

static int free_bad(struct free_walk *f, uint64_t pgno, const char *what)
{
	MDB_val none = {0};

	return f->cb->bad ? f->cb->bad(f->cb->arg, pgno, what, &none, &none) : 0;
}

static int free_record(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct free_walk *f = arg;
	const uint8_t *p = v->mv_data;
	uint64_t n = 0, last = UINT64_MAX, txn;
	int r = 0;

	memcpy(&txn, k->mv_data, 8);
	if (flags & F_SUB || v->mv_size < 8 || v->mv_size % 8 || !txn || txn > f->p->txn)
		return free_bad(f, 0, "a record of the free list is damaged");
	memcpy(&n, p, 8);
	if (n > v->mv_size / 8 - 1)
		return free_bad(f, 0, "a record of the free list is damaged");
	for (uint64_t i = 1; r == 0 && i <= n; i++) {
		uint64_t pgno;

		memcpy(&pgno, p + 8 * i, 8);
		if (pgno >= last || pgno < 2 || pgno > f->p->last)
			return free_bad(f, pgno, "a record of the free list is damaged");
		last = pgno;
		f->n++;
		if (!mark(f->p, pgno, 1))
			r = free_bad(f, pgno, "it is in use, and on the free list");
	}
	return r;
}

/* Of a list that is damaged, what it says of the end counts for nothing. */
static int rest_record(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct free_walk *f = arg;
	const uint8_t *p = v->mv_data;
	uint64_t n, pgno;

	(void)k;
	if (flags & F_SUB || v->mv_size < 8)
		return 1;
	memcpy(&n, p, 8);
	if (n > v->mv_size / 8 - 1)
		return 1;
	for (uint64_t i = 1; i <= n; i++) {
		memcpy(&pgno, p + 8 * i, 8);
		if (pgno > f->p->there && pgno <= f->p->last && mark(f->p, pgno, 1))
			f->n++;
	}
	return 0;
}

static int rest_bad(void *arg, uint64_t pgno, const char *what, const MDB_val *lo,
		    const MDB_val *hi)
{
	(void)arg;
	(void)pgno;
	(void)what;
	(void)lo;
	(void)hi;
	return 1;
}

int pages_rest_free(struct pages *p, bool *ret)
{
	struct free_walk f = {.p = p};
	struct pages_cb cb = {rest_record, rest_bad, &f};
	int r = pages_walk(p, &p->free, NULL, PAGES_MARK | PAGES_INTKEY, &cb);

	*ret = r == 0 && f.n == p->last - p->there;
	memset(p->used, 0, p->words * sizeof(*p->used));
	return r < 0 ? r : 0;
}

/* pages_walk hands one argument to both callbacks; @bad is the caller's. */
static int free_tree_bad(void *arg, uint64_t pgno, const char *what, const MDB_val *lo,
			 const MDB_val *hi)
{
	struct free_walk *f = arg;

	return f->cb->bad ? f->cb->bad(f->cb->arg, pgno, what, lo, hi) : 0;
}

int pages_free_check(struct pages *p, const struct pages_cb *cb, uint64_t *ret_free,
		     uint64_t *ret_lost)
{
	struct free_walk f = {.p = p, .cb = cb};
	struct pages_cb own = {free_record, free_tree_bad, &f};
	uint64_t used = 2; /* the meta pages */
	int r = pages_walk(p, &p->free, NULL, PAGES_MARK | PAGES_COUNT | PAGES_INTKEY, &own);

	for (size_t i = 0; i < p->words; i++)
		used += (uint64_t)__builtin_popcountll(p->used[i]);
	*ret_free = f.n;
	*ret_lost = used < p->last + 1 ? p->last + 1 - used : 0;
	return r;
}
