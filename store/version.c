#include <string.h>

#include "store/key.h"
#include "store/store_internal.h"

/* Steps over versions out of sight (of branches, or newer than the view) before seeking past them:
 * a step costs a tenth of a seek. */
#define STEPS     6
/* Keys out of order in one scan: damage, but not yet a circle. */
#define BACKWARDS 64
/* Records that a search went past because of a damaged one. */
#define PASSED    65536

static int seek(MDB_cursor *c, const struct key *k, MDB_val *key, MDB_val *val)
{
	*key = (MDB_val){k->len, (void *)(uintptr_t)k->b};
	return store_cur_raw(c, key, val, MDB_SET_RANGE);
}

static int step(MDB_cursor *c, MDB_val *key, MDB_val *val)
{
	return store_cur_raw(c, key, val, MDB_NEXT);
}

static bool starts(const MDB_val *key, const void *prefix, size_t n)
{
	return key->mv_size >= n + 8 && !memcmp(key->mv_data, prefix, n);
}

static int order(const MDB_val *key, const struct key *k)
{
	size_t n = key->mv_size < k->len ? key->mv_size : k->len;
	int r = memcmp(key->mv_data, k->b, n);

	return r ? r : key->mv_size < k->len ? -1 : key->mv_size > k->len;
}

static int compare(const MDB_val *a, const MDB_val *b)
{
	size_t n = a->mv_size < b->mv_size ? a->mv_size : b->mv_size;
	int r = memcmp(a->mv_data, b->mv_data, n);

	return r ? r : (a->mv_size > b->mv_size) - (a->mv_size < b->mv_size);
}

/* A key's version: its last eight bytes. */
static store_layer layer_of(const MDB_val *key)
{
	return ~key_get_be64((const uint8_t *)key->mv_data + key->mv_size - 8);
}

/* A page whose table of records is damaged may show one twice, in the place of another that is gone: then what stands before
 * @key, the cursor's, is not smaller. 1, the cursor where it was, or -EBADMSG. */
static int not_twice(MDB_cursor *c, const MDB_val *key)
{
	MDB_val prev, val;
	int r = store_cur_raw(c, &prev, &val, MDB_PREV);

	if (r == -ENOENT)
		return 1; /* it is the first, and the cursor has not moved */
	if (r == 0 && compare(&prev, key) >= 0)
		r = -EBADMSG;
	if (r == 0)
		r = store_cur_raw(c, &prev, &val, MDB_NEXT);
	return r < 0 ? r : 1;
}

/*
 * Damage to a key makes its record another one, and an older version, or none, would pass for the newest. It
 * stands where it stood: beside the place where it is looked for. -EBADMSG: the record before the cursor's (at
 * the end: the last one) was one of @k's. 1: the cursor stands there now; 0: there is none.
 */
static int before(MDB_cursor *c, enum store_db db, const struct key *k, bool at_end)
{
	size_t plen = k->len - 8;
	MDB_val key, val, bare;
	int r = store_cur_raw(c, &key, &val, at_end ? MDB_LAST : MDB_PREV);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	bare = val;
	if (store_sum_strip(db, &key, &bare) < 0 && store_sum_was(db, &key, &val, k->b, plen))
		return -EBADMSG;
	return order(&key, k) < 0 ? not_twice(c, &key) : -EBADMSG;
}

/* A seek that found another record than exactly @k: is there nothing damaged between? The cursor stays. */
static int look_around(MDB_cursor *c, enum store_db db, const struct key *k)
{
	MDB_val key, val;
	int r = before(c, db, k, false);

	return r == 1 ? store_cur_raw(c, &key, &val, MDB_NEXT) : r;
}

/* The other side of not_twice(): -EBADMSG when what follows @key is not greater. The cursor goes on by one. */
static int in_order(MDB_cursor *c, const MDB_val *key)
{
	MDB_val next, val;
	int r = store_cur_raw(c, &next, &val, MDB_NEXT);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return compare(key, &next) < 0 ? 1 : -EBADMSG;
}

/* No version of @k's in sight; the cursor's record is the first of others. */
static int absent(enum store_db db, const struct key *k, const MDB_val *key, const MDB_val *val)
{
	MDB_val bare = *val;

	return store_sum_strip(db, key, &bare) < 0 && store_sum_was(db, key, val, k->b, k->len - 8)
		       ? -EBADMSG
		       : -ENOENT;
}

/* -ENOENT, unless something damaged stands beside the place, before the record at the cursor or in its stead. */
static int nothing_hidden(MDB_cursor *c, enum store_db db, const struct key *k, const MDB_val *key)
{
	MDB_val back, val;
	int r = in_order(c, key);

	if (r == 1)
		r = store_cur_raw(c, &back, &val, MDB_PREV);
	if (r == 0)
		r = before(c, db, k, false);
	return r < 0 ? r : -ENOENT;
}

int store_ver_find(MDB_cursor *c, enum store_db db, const struct store_anc *a, const void *prefix,
		   size_t plen, MDB_val *ret)
{
	struct key k = {.len = plen};
	MDB_val key, val;
	int r, steps = 0;

	memcpy(k.b, prefix, plen);
	key_layer(&k, a->layer);
	r = seek(c, &k, &key, &val);
	for (; r == 0; r = steps ? step(c, &key, &val) : seek(c, &k, &key, &val)) {
		bool near = steps == 0 && order(&key, &k) != 0; /* not exactly what was sought */
		MDB_val bare = val;
		store_layer l;

		if (!starts(&key, prefix, plen) || key.mv_size != plen + 8) {
			r = absent(db, &k, &key, &val);
			return r == -ENOENT && near ? nothing_hidden(c, db, &k, &key) : r;
		}
		/* Also of what is stepped over: which layer it is of may be what is damaged. */
		r = store_sum_strip(db, &key, &bare);
		if (r < 0)
			return r;
		l = layer_of(&key);
		if (store_anc_has(a, l) && bare.mv_size) {
			*ret = bare;
			r = near ? before(c, db, &k, false) : 0;
			return r < 0 ? r : 0;
		}
		r = near ? look_around(c, db, &k) : 0;
		if (r < 0)
			return r;
		if (++steps < STEPS)
			continue;
		l = store_anc_below(a, l);
		if (l == 0)
			return -ENOENT;
		steps = 0;
		k.len = plen;
		key_layer(&k, l);
	}
	if (r == -ENOENT && steps == 0) {
		r = before(c, db, &k, true);
		return r < 0 ? r : -ENOENT;
	}
	return r;
}

static bool sound(enum store_db db, const MDB_val *key, const MDB_val *val)
{
	MDB_val bare = *val;

	return store_sum_strip(db, key, &bare) == 0;
}

/* Did @key begin with the scan's prefix before it was damaged? Then *ret is as it was: the check value knows. */
static bool was_ours(enum store_db db, const MDB_val *key, const MDB_val *val, const void *prefix,
		     size_t plen, struct key *ret)
{
	MDB_val mended;

	if (key->mv_size < plen + 8 || key->mv_size > sizeof(ret->b) || sound(db, key, val))
		return false;
	ret->len = key->mv_size;
	memcpy(ret->b, key->mv_data, ret->len);
	memcpy(ret->b, prefix, plen);
	mended = (MDB_val){ret->len, ret->b};
	return sound(db, &mended, val);
}

/* The first record of a scan from @k. A damaged key misleads the search, but stands where it stood: what the search went past
 * is before the place that it found. */
static int scan_first(MDB_cursor *c, enum store_db db, const struct key *k, size_t plen,
		      MDB_val *key, MDB_val *val)
{
	struct key mended;
	int r = seek(c, k, key, val), back, n = 0;

	if (r < 0 && r != -ENOENT)
		return r;
	back = store_cur_raw(c, key, val, r == 0 ? MDB_PREV : MDB_LAST);
	while (back == 0 && ((starts(key, k->b, plen) && order(key, k) >= 0) ||
			     was_ours(db, key, val, k->b, plen, &mended))) {
		if (++n > PASSED)
			return -EBADMSG;
		back = store_cur_raw(c, key, val, MDB_PREV);
	}
	if (back < 0 && back != -ENOENT)
		return back;
	return store_cur_raw(c, key, val, back == 0 ? MDB_NEXT : MDB_FIRST);
}

int store_ver_scan(MDB_cursor *c, enum store_db db, const struct store_anc *a, const void *from,
		   size_t flen, size_t plen, store_ver_fn fn, void *arg)
{
	struct key k = {.len = flen}; /* where to seek; its first glen bytes: the current group */
	struct key mended;
	size_t glen = 0;
	MDB_val key, val;
	bool done = false;   /* the group's visible version has been seen */
	bool hidden = false; /* or a damaged key stands where it was */
	MDB_val bad_key = {0}, bad_val = {0};
	MDB_val last_key = {0}, last_val = {0};
	bool lost = false; /* one stands twice: another is gone */
	bool strange = false;
	int r, steps = 0, backwards = 0;

	memcpy(k.b, from, flen);
	for (r = scan_first(c, db, &k, plen, &key, &val); r == 0;
	     r = steps < STEPS ? step(c, &key, &val) : seek(c, &k, &key, &val)) {
		bool astray = !starts(&key, from, plen);

		bool back = last_key.mv_size && compare(&key, &last_key) <= 0;

		if (back && sound(db, &key, &val) && sound(db, &last_key, &last_val))
			lost = true;
		if (astray && !was_ours(db, &key, &val, from, plen, &mended)) {
			/* One that is damaged may be any, and others of ours may follow it. */
			if (!sound(db, &key, &val) && ++backwards <= BACKWARDS) {
				strange = true;
				lost |= back || key.mv_size < plen + 8;
				steps = 0;
				continue;
			}
			r = in_order(c, &key);
			return r < 0 ? r : lost ? -EBADMSG : 0;
		}
		lost |= strange;
		strange = false;
		last_key = key;
		last_val = val;
		/* In its place, and damaged. */
		if (astray)
			key = (MDB_val){mended.len, mended.b};
		if (key.mv_size > sizeof(k.b))
			return -EBADMSG;
		if (key.mv_size != glen + 8 || memcmp(key.mv_data, k.b, glen)) {
			/* Damaged pages may lead in a circle. */
			if (glen && order(&key, &k) < 0 && ++backwards > BACKWARDS)
				return -EBADMSG;
			glen = key.mv_size - 8;
			memcpy(k.b, key.mv_data, glen);
			k.len = glen;
			hidden =
				bad_key.mv_size && store_sum_was(db, &bad_key, &bad_val, k.b, glen);
			bad_key.mv_size = 0;
			done = false;
			steps = 0;
		} else if (steps >= STEPS) {
			steps = 0;
		}
		if (!done) {
			MDB_val bare = val;
			bool bad = store_sum_strip(db, &key, &bare) < 0;

			if (astray && store_anc_has(a, layer_of(&key)))
				hidden = true;
			done = bad || hidden || (bare.mv_size && store_anc_has(a, layer_of(&key)));
			if (bad) {
				bad_key = key;
				bad_val = val;
			}
			r = done ? fn(arg, k.b + plen, glen - plen, bad || hidden ? NULL : &bare)
				 : 0;
			if (r)
				return r;
		}
		if (++steps >= STEPS) {
			/* layer 0 sorts last in a group: seeking there leaves the group */
			store_layer l = done ? 0 : store_anc_below(a, layer_of(&key));

			k.len = glen;
			key_layer(&k, l);
			last_key.mv_size = 0;
		}
	}
	return r == -ENOENT ? (lost ? -EBADMSG : 0) : r;
}
