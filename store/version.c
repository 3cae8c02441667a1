#include <string.h>

#include "store/key.h"
#include "store/store_internal.h"

/* Steps over versions out of sight (of branches, or newer than the view) before seeking past them:
 * a step costs a tenth of a seek. */
#define STEPS 6

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

/* A key's version: its last eight bytes. */
static store_layer layer_of(const MDB_val *key)
{
	return ~key_get_be64((const uint8_t *)key->mv_data + key->mv_size - 8);
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
		store_layer l;

		if (!starts(&key, prefix, plen) || key.mv_size != plen + 8)
			return -ENOENT;
		/* Also of what is stepped over: which layer it is of may be what is damaged. */
		r = store_sum_strip(db, &key, &val);
		if (r < 0)
			return r;
		l = layer_of(&key);
		if (store_anc_has(a, l) && val.mv_size) {
			*ret = val;
			return 0;
		}
		if (++steps < STEPS)
			continue;
		l = store_anc_below(a, l);
		if (l == 0)
			return -ENOENT;
		steps = 0;
		k.len = plen;
		key_layer(&k, l);
	}
	return r;
}

int store_ver_scan(MDB_cursor *c, enum store_db db, const struct store_anc *a, const void *from,
		   size_t flen, size_t plen, store_ver_fn fn, void *arg)
{
	struct key k = {.len = flen}; /* where to seek; its first glen bytes: the current group */
	size_t glen = 0;
	MDB_val key, val;
	bool done = false; /* the group's visible version has been seen */
	int r, steps = 0;

	memcpy(k.b, from, flen);
	for (r = seek(c, &k, &key, &val); r == 0;
	     r = steps < STEPS ? step(c, &key, &val) : seek(c, &k, &key, &val)) {
		if (!starts(&key, from, plen))
			return 0;
		if (key.mv_size > sizeof(k.b))
			return -EBADMSG;
		if (key.mv_size != glen + 8 || memcmp(key.mv_data, k.b, glen)) {
			glen = key.mv_size - 8;
			memcpy(k.b, key.mv_data, glen);
			done = false;
			steps = 0;
		} else if (steps >= STEPS) {
			steps = 0;
		}
		if (!done) {
			bool bad = store_sum_strip(db, &key, &val) < 0;

			done = bad || (val.mv_size && store_anc_has(a, layer_of(&key)));
			r = done ? fn(arg, k.b + plen, glen - plen, bad ? NULL : &val) : 0;
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
