#include <string.h>

#include "store/key.h"
#include "store/store_internal.h"

/* Steps over versions out of sight (of branches, or newer than the view) before seeking past them:
 * a step costs a tenth of a seek. */
#define STEPS     6
/* Keys out of order in one scan: damage, but not yet a circle. */
#define BACKWARDS 64

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

/* A key's version: its last eight bytes. */
static store_layer layer_of(const MDB_val *key)
{
	return ~key_get_be64((const uint8_t *)key->mv_data + key->mv_size - 8);
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
	if (store_sum_strip(db, &key, &bare) < 0)
		return store_sum_was(db, &key, &val, k->b, plen) ? -EBADMSG : 1;
	return order(&key, k) < 0 ? 1 : -EBADMSG;
}

/* A seek that found another record than exactly @k: is there nothing damaged between? The cursor stays. */
static int look_around(MDB_cursor *c, enum store_db db, const struct key *k)
{
	MDB_val key, val;
	int r = before(c, db, k, false);

	return r == 1 ? store_cur_raw(c, &key, &val, MDB_NEXT) : r;
}

/* No version of @k's in sight; the cursor's record is the first of others. */
static int absent(enum store_db db, const struct key *k, const MDB_val *key, const MDB_val *val)
{
	MDB_val bare = *val;

	return store_sum_strip(db, key, &bare) < 0 && store_sum_was(db, key, val, k->b, k->len - 8)
		       ? -EBADMSG
		       : -ENOENT;
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
			if (r == -ENOENT && near) {
				int beside = before(c, db, &k, false);

				r = beside < 0 ? beside : r;
			}
			return r;
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

int store_ver_scan(MDB_cursor *c, enum store_db db, const struct store_anc *a, const void *from,
		   size_t flen, size_t plen, store_ver_fn fn, void *arg)
{
	struct key k = {.len = flen}; /* where to seek; its first glen bytes: the current group */
	size_t glen = 0;
	MDB_val key, val;
	bool done = false;   /* the group's visible version has been seen */
	bool hidden = false; /* or a damaged key stands where it was */
	MDB_val bad_key = {0}, bad_val = {0};
	int r, steps = 0, backwards = 0;

	memcpy(k.b, from, flen);
	for (r = seek(c, &k, &key, &val); r == 0;
	     r = steps < STEPS ? step(c, &key, &val) : seek(c, &k, &key, &val)) {
		if (!starts(&key, from, plen))
			return 0;
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
		}
	}
	return r == -ENOENT ? 0 : r;
}
