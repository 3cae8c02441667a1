/* Which layers nothing reaches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/gc.h"
#include "store/key.h"

/* A layer that nothing names may be one that is being made (a base): it is left alone for a day. */
#define YOUNG_S 86400

/* ---- the set of layers ---- */

struct gc_layer *gc_layer_find(const struct gc *g, store_layer n)
{
	size_t lo = 0, hi = g->nlayers;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (g->layers[mid].n == n)
			return &g->layers[mid];
		if (g->layers[mid].n < n)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

bool gc_layer_dead(const struct gc *g, store_layer layer)
{
	const struct gc_layer *l = gc_layer_find(g, layer);

	return l && !l->live;
}

/* It and all that it sees. Parents have smaller numbers, so this ends. */
int gc_reach(struct gc *g, store_layer n)
{
	struct gc_layer *first = n ? gc_layer_find(g, n) : NULL;

	if (first)
		first->named = true;
	while (n && n < g->next_layer) {
		struct gc_layer *l = gc_layer_find(g, n);

		if (!l)
			return diag_set(g->diag, -EBADMSG,
					"layer %llu is named but not there: the store is damaged",
					(unsigned long long)n);
		if (l->live)
			return 0;
		l->live = true;
		if (l->parent >= n)
			return diag_set(g->diag, -EBADMSG, "the record of layer %llu is damaged",
					(unsigned long long)n);
		n = l->parent;
	}
	return 0;
}

static int reach_as(struct gc *g, enum gc_root why, const char *name, store_layer n)
{
	int r = gc_reach(g, n);

	return r == 0 && g->root ? g->root(g, why, name, n) : r;
}

static int load_layers(struct gc *g, MDB_txn *t)
{
	cleanup_buf struct buf b = {0};
	MDB_cursor *c;
	MDB_val k, v;
	size_t n;
	int r = gc_cursor(t, g->s->db[DB_LAYERS], &c), got;

	if (r < 0)
		return r;
	for (got = store_cur_raw(c, &k, &v, MDB_FIRST); got == 0 && r == 0;
	     got = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		struct store_layer_rec rec = {0};
		struct gc_layer l = {0};

		if (k.mv_size != 8)
			r = -EBADMSG;
		if (r == 0) {
			l.n = key_get_be64(k.mv_data);
			r = store_layer_read(g->s, t, l.n, &rec);
		}
		l.parent = rec.parent;
		l.state = rec.state;
		l.created = rec.created.tv_sec;
		l.has_commit = !store_digest_is_zero(&rec.commit);
		if (r == 0)
			r = buf_put(&b, &l, sizeof(l));
	}
	mdb_cursor_close(c);
	if (r == 0 && got != -ENOENT)
		r = got;
	if (r < 0)
		return r;
	n = b.len / sizeof(struct gc_layer);
	r = n ? buf_steal(&b, (char **)&g->layers, &(size_t){0}) : 0;
	g->nlayers = r == 0 ? n : 0;
	g->next_layer = g->nlayers ? g->layers[g->nlayers - 1].n + 1 : 1;
	return r;
}

/* ---- roots ---- */

static int root_env(void *arg, const struct store_env *e)
{
	struct gc *g = arg;
	int r = reach_as(g, GC_ROOT_ENV, e->name, e->base);

	if (r == 0)
		r = reach_as(g, GC_ROOT_ENV, e->name, e->head);
	return r < 0 ? r : reach_as(g, GC_ROOT_ENV, e->name, e->open);
}

static int list_env(void *arg, const struct store_env *e)
{
	struct gc *g = arg;

	return buf_put(&g->envs, e->name, sizeof(e->name));
}

static int root_ref(void *arg, const char *name, store_layer layer)
{
	return reach_as(arg, GC_ROOT_REF, name, layer);
}

static int root_pin(void *arg, store_layer layer)
{
	struct gc *g = arg;

	/* somebody's file name is no proof that there is such a layer */
	return gc_layer_find(g, layer) ? reach_as(g, GC_ROOT_PIN, "", layer) : 0;
}

/* What may begin to name a layer at any time; everything else that names one adds a layer. */
int gc_reach_moving(struct gc *g, MDB_txn *t)
{
	int r = store_envs_read(g->s, t, root_env, g);

	if (r == 0)
		r = store_refs_read(g->s, t, root_ref, g);
	return r < 0 ? r : store_pins(g->s, root_pin, g);
}

/* Names are padded with zeros, and come in this order. */
static int by_name(const void *a, const void *b)
{
	return memcmp(a, b, 65);
}

static bool env_exists(const struct gc *g, const char *name)
{
	char key[65] = "";

	(void)snprintf(key, sizeof(key), "%s", name);
	return g->envs.len && bsearch(key, g->envs.data, g->envs.len / 65, 65, by_name);
}

static bool kept(const struct gc *g, unsigned rank, int64_t time)
{
	unsigned n = g->o->keep_moves ? g->o->keep_moves : STORE_GC_KEEP_MOVES;
	unsigned days = g->o->keep_days ? g->o->keep_days : STORE_GC_KEEP_DAYS;

	/* The newest always: undo works after a long holiday. A clock that was set back prunes nothing. */
	return rank == 0 || (rank < n && g->now - time <= (int64_t)days * 86400);
}

/* The environment of a key that is its name, NUL, a number. */
static int split_key(const MDB_val *k, char env[static 65], uint64_t *ret_seq)
{
	size_t n = k->mv_size - 9;

	if (k->mv_size < 9 || n > 64 || ((const char *)k->mv_data)[n])
		return -EBADMSG;
	memset(env, 0, 65);
	memcpy(env, k->mv_data, n);
	*ret_seq = key_get_be64((const uint8_t *)k->mv_data + n + 1);
	return 0;
}

/* The entries of a log by environment, each one's newest first. @rank counts within the environment what @fn
 * asks to be counted by returning 1. */
static int each_newest(struct gc *g, MDB_txn *t, enum store_db db,
		       int (*fn)(struct gc *g, MDB_txn *t, const char *env, uint64_t seq,
				 unsigned rank, const MDB_val *k, const MDB_val *v))
{
	char env[65], last[65] = "";
	unsigned rank = 0;
	MDB_cursor *c;
	MDB_val k, v;
	int r = gc_cursor(t, g->s->db[db], &c), got;

	if (r < 0)
		return r;
	for (got = store_cur_get(c, db, &k, &v, MDB_LAST); got == 0 && r == 0;
	     got = store_cur_get(c, db, &k, &v, MDB_PREV)) {
		uint64_t seq;

		r = split_key(&k, env, &seq);
		if (r < 0)
			break;
		if (strcmp(env, last) != 0)
			rank = 0;
		memcpy(last, env, sizeof(last));
		r = fn(g, t, env, seq, rank, &k, &v);
		rank += r > 0;
		r = r > 0 ? 0 : r;
	}
	mdb_cursor_close(c);
	return r < 0 ? r : got == -ENOENT ? 0 : got;
}

static int see_move(struct gc *g, MDB_txn *t, const char *env, uint64_t seq, unsigned rank,
		    const MDB_val *k, const MDB_val *v)
{
	uint8_t n = (uint8_t)k->mv_size;
	struct store_move m;
	int r = store_move_decode(v, &m);

	(void)t;
	(void)seq;
	if (r < 0)
		return r;
	if (env_exists(g, env) && kept(g, rank, m.time.tv_sec)) {
		r = gc_layer_find(g, m.from) ? reach_as(g, GC_ROOT_UNDO, env, m.from) : 0;
		if (r == 0 && gc_layer_find(g, m.to))
			r = reach_as(g, GC_ROOT_UNDO, env, m.to);
		return r < 0 ? r : 1;
	}
	r = buf_put(&g->moves, &n, 1);
	if (r == 0)
		r = buf_put(&g->moves, k->mv_data, k->mv_size);
	return r < 0 ? r : 1;
}

static int see_commit(struct gc *g, MDB_txn *t, const char *env, uint64_t seq, unsigned rank,
		      const MDB_val *k, const MDB_val *v)
{
	struct gc_commit cand = {.seq = seq};
	struct store_commit c = {0};
	MDB_val id, rec;
	bool keep, automatic;
	int r;

	(void)k;
	if (!*env || v->mv_size != DIGEST_LEN) /* the index of all repeats the others */
		return *env ? -EBADMSG : 0;
	memcpy(cand.id.b, v->mv_data, DIGEST_LEN);
	id = (MDB_val){DIGEST_LEN, cand.id.b};
	r = store_tx_get(g->s, t, DB_COMMITS, &id, &rec);
	if (r == 0)
		r = store_commit_decode(&rec, &cand.id, &c);
	if (r < 0)
		return r == -ENOENT ? -EBADMSG : r;
	automatic = c.kind == STORE_AUTO;
	cand.layer = c.layer;
	cand.automatic = automatic;
	(void)memcpy(cand.env, env, sizeof(cand.env));
	keep = automatic ? env_exists(g, env) && kept(g, rank, c.time.tv_sec)
	       : c.kind == STORE_COMMIT
		       ? !g->o->removed || env_exists(g, env)
		       : false; /* a base is its name's, or that of what stands on it */
	store_commit_release(&c);
	r = keep ? reach_as(g, automatic ? GC_ROOT_UNDO : GC_ROOT_COMMIT, env, cand.layer)
		 : buf_put(&g->commits, &cand, sizeof(cand));
	return r < 0 ? r : automatic;
}

/* Is it being made, by somebody who has not named it yet? */
static bool young(const struct gc *g, const struct gc_layer *l)
{
	bool nameless =
		!l->has_commit && (l->state == STORE_LAYER_OPEN || l->state == STORE_LAYER_SEALED);

	return nameless && g->now - l->created < YOUNG_S;
}

int gc_by_layer(const void *a, const void *b)
{
	const struct gc_commit *x = a, *y = b;

	return (x->layer > y->layer) - (x->layer < y->layer);
}

int gc_layers_find(struct gc *g)
{
	cleanup_rd struct store_rd rd = {0};
	int r = store_rd_begin(g->s, &rd);

	if (r == 0)
		r = load_layers(g, rd.r->txn);
	if (r == 0)
		r = store_envs_read(g->s, rd.r->txn, list_env, g);
	if (r == 0)
		r = gc_reach_moving(g, rd.r->txn);
	if (r == 0)
		r = each_newest(g, rd.r->txn, DB_MOVES, see_move);
	if (r == 0)
		r = each_newest(g, rd.r->txn, DB_COMMIT_INDEX, see_commit);
	for (size_t i = 0; r == 0 && i < g->nlayers; i++)
		if (young(g, &g->layers[i]))
			r = g->layers[i].live ? gc_reach(g, g->layers[i].n)
					      : reach_as(g, GC_ROOT_YOUNG, "", g->layers[i].n);
	if (r == -EBADMSG)
		return diag_set(
			g->diag, r,
			"a record of the store is damaged, so that it cannot be told what is "
			"garbage; nothing was removed");
	if (r < 0)
		return diag_set(g->diag, r, "cannot look for garbage: %s", err_text(r));
	if (g->commits.len)
		qsort(g->commits.data, g->commits.len / sizeof(struct gc_commit),
		      sizeof(struct gc_commit), gc_by_layer);
	return 0;
}
