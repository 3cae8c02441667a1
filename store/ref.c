#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/codec.h"

#define REF_MAX    255
#define PREFIX_MIN 4 /* digits of an id that name a commit */

static bool ref_ok(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= REF_MAX;
}

static MDB_val ref_key(const char *name)
{
	return (MDB_val){strlen(name), (void *)(uintptr_t)name};
}

int store_ref_set(struct store *s, const char *name, store_layer layer)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_layer_rec rec;
	MDB_val k = ref_key(name), v;
	uint8_t b[8];
	int r = ref_ok(name) ? store_tx_begin(s, &t) : -EINVAL;

	if (r == 0)
		r = store_layer_read(s, t, layer, &rec);
	if (r == 0 && rec.state == STORE_LAYER_DROPPED)
		r = -ENOENT;
	if (r < 0)
		return r;
	key_be64(b, layer);
	v = (MDB_val){8, b};
	r = store_tx_put(s, t, DB_REFS, &k, &v, 0);
	return r < 0 ? r : store_tx_commit(s, &t);
}

static int ref_read(struct store *s, MDB_txn *t, const char *name, store_layer *ret)
{
	MDB_val k = ref_key(name), v;
	int r = ref_ok(name) ? store_tx_get(s, t, DB_REFS, &k, &v) : -EINVAL;

	return r < 0 ? r : store_num_decode(&v, ret);
}

int store_ref_get(struct store *s, const char *name, store_layer *ret)
{
	cleanup_rd struct store_rd rd = {0};
	int r = store_rd_begin(s, &rd);

	return r < 0 ? r : ref_read(s, rd.r->txn, name, ret);
}

int store_ref_del(struct store *s, const char *name)
{
	cleanup_tx MDB_txn *t = NULL;
	MDB_val k = ref_key(name);
	int r = ref_ok(name) ? store_tx_begin(s, &t) : -EINVAL;

	if (r == 0)
		r = store_tx_del(s, t, DB_REFS, &k);
	return r < 0 ? r : store_tx_commit(s, &t);
}

static int ref_lend(const MDB_val *k, const MDB_val *v,
		    int (*fn)(void *arg, const char *name, store_layer layer), void *arg)
{
	char name[REF_MAX + 1];

	if (k->mv_size > REF_MAX || v->mv_size != 8)
		return -EBADMSG;
	memcpy(name, k->mv_data, k->mv_size);
	name[k->mv_size] = 0;
	return fn(arg, name, key_get_be64(v->mv_data));
}

int store_refs_read(struct store *s, MDB_txn *t,
		    int (*fn)(void *arg, const char *name, store_layer layer), void *arg)
{
	MDB_cursor *c;
	MDB_val k, v;
	int r = store_lm_err(mdb_cursor_open(t, s->db[DB_REFS], &c)), got;

	if (r < 0)
		return r;
	for (got = store_cur_get(c, DB_REFS, &k, &v, MDB_FIRST); got == 0 && r == 0;
	     got = store_cur_get(c, DB_REFS, &k, &v, MDB_NEXT))
		r = ref_lend(&k, &v, fn, arg);
	mdb_cursor_close(c);
	return r ? r : got == -ENOENT ? 0 : got;
}

int store_refs(struct store *s, int (*fn)(void *arg, const char *name, store_layer layer),
	       void *arg)
{
	cleanup_rd struct store_rd rd = {0};
	int r = store_rd_begin(s, &rd);

	return r < 0 ? r : store_refs_read(s, rd.r->txn, fn, arg);
}

/* ---- tags: "env/ENV/tag/NAME" ---- */

bool store_tag_valid(const char *name)
{
	size_t n = strlen(name);

	if (n < 1 || n > STORE_TAG_MAX || name[0] == '.' || name[0] == '-')
		return false;
	if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != n)
		return false;
	if (!strcasecmp(name, "head") || !strcasecmp(name, "base"))
		return false;
	/* What may be the beginning of an id means an id. */
	return n < PREFIX_MIN || strspn(name, "0123456789abcdefABCDEF") != n;
}

static const char *tag_ref(const char *env, const char *name, char room[static REF_MAX + 1])
{
	(void)snprintf(room, REF_MAX + 1, "env/%s/tag/%s", env, name);
	return room;
}

/* Only a sealed layer has a name: what is open changes. */
int store_tag_put(struct store *s, MDB_txn *t, const char *env, const char *name, store_layer layer,
		  bool move, store_layer *ret_was)
{
	char ref[REF_MAX + 1];
	MDB_val k = ref_key(tag_ref(env, name, ref)), v;
	struct store_layer_rec rec;
	uint8_t b[8];
	int r = ref_read(s, t, ref, ret_was);

	if (r == 0 && *ret_was != layer && !move)
		return -EEXIST;
	if (r == -ENOENT)
		*ret_was = 0;
	if (r < 0 && r != -ENOENT)
		return r;
	r = store_layer_read(s, t, layer, &rec);
	if (r < 0 || rec.state == STORE_LAYER_DROPPED)
		return r < 0 ? r : -ENOENT;
	if (rec.state != STORE_LAYER_SEALED)
		return -EINVAL;
	key_be64(b, layer);
	v = (MDB_val){8, b};
	return store_tx_put(s, t, DB_REFS, &k, &v, 0);
}

int store_tag_set(struct store *s, const char *env, const char *name, store_layer layer, bool move,
		  store_layer *ret_was)
{
	cleanup_tx MDB_txn *t = NULL;
	int r = store_env_name_valid(env) && store_tag_valid(name) ? store_tx_begin(s, &t)
								   : -EINVAL;

	if (r == 0)
		r = store_tag_put(s, t, env, name, layer, move, ret_was);
	return r < 0 ? r : store_tx_commit(s, &t);
}

int store_tag_get(struct store *s, const char *env, const char *name, store_layer *ret)
{
	char ref[REF_MAX + 1];

	if (!store_env_name_valid(env) || !store_tag_valid(name))
		return -ENOENT;
	return store_ref_get(s, tag_ref(env, name, ref), ret);
}

int store_tag_del(struct store *s, const char *env, const char *name)
{
	char ref[REF_MAX + 1];

	if (!store_env_name_valid(env) || !store_tag_valid(name))
		return -ENOENT;
	return store_ref_del(s, tag_ref(env, name, ref));
}

struct tags {
	const char *prefix; /* of their refs */
	size_t n;
	struct store_anc *before; /* only of these */
	struct {
		char name[STORE_TAG_MAX + 1];
		store_layer layer;
	} * v;
	size_t have, room;
};

static int tag_collect(void *arg, const char *name, store_layer layer)
{
	struct tags *l = arg;
	void *v;

	if (strncmp(name, l->prefix, l->n) != 0 || strlen(name + l->n) > STORE_TAG_MAX ||
	    !store_anc_has(l->before, layer))
		return 0;
	if (l->have == l->room) {
		v = reallocarray(l->v, l->room + 16, sizeof(*l->v));
		if (!v)
			return -ENOMEM;
		l->v = v;
		l->room += 16;
	}
	(void)snprintf(l->v[l->have].name, sizeof(l->v->name), "%s", name + l->n);
	l->v[l->have++].layer = layer;
	return 0;
}

/* Collected first: the scan lends what a write may move. */
int store_tags_copy(struct store *s, MDB_txn *t, const char *from, const char *to, store_layer at)
{
	char prefix[REF_MAX + 1];
	struct tags l = {.prefix = tag_ref(from, "", prefix), .n = strlen(prefix)};
	store_layer was;
	int r = store_anc_get(s, t, at, &l.before);

	if (r == 0)
		r = store_refs_read(s, t, tag_collect, &l);
	for (size_t i = 0; r == 0 && i < l.have; i++)
		r = store_tag_put(s, t, to, l.v[i].name, l.v[i].layer, true, &was);
	store_anc_unref(l.before);
	free(l.v);
	return r;
}

int store_env_refs_drop(struct store *s, MDB_txn *t, const char *env)
{
	char prefix[80];
	size_t n;
	MDB_cursor *c;
	MDB_val k, v;
	int r;

	(void)snprintf(prefix, sizeof(prefix), "env/%s/", env);
	n = strlen(prefix);
	r = store_lm_err(mdb_cursor_open(t, s->db[DB_REFS], &c));
	if (r < 0)
		return r;
	while (r == 0) {
		k = (MDB_val){n, prefix};
		r = store_cur_raw(c, &k, &v, MDB_SET_RANGE);
		if (r == 0 && (k.mv_size < n || memcmp(k.mv_data, prefix, n)))
			r = -ENOENT;
		if (r == 0)
			r = store_lm_err(mdb_cursor_del(c, 0));
	}
	mdb_cursor_close(c);
	return r == -ENOENT ? 0 : r;
}

/* ---- revisions ---- */

/* Is the id at @k one that begins with the @n hex digits of @hex? */
static bool has_prefix(const MDB_val *k, const char *hex, size_t n)
{
	char text[DIGEST_LEN * 2 + 1];
	struct digest d;

	if (k->mv_size != DIGEST_LEN)
		return false;
	memcpy(d.b, k->mv_data, DIGEST_LEN);
	digest_hex(&d, text);
	return !strncasecmp(text, hex, n);
}

/* The layer of the only commit whose id begins with @hex. */
static int by_prefix(struct store_rd *rd, const char *hex, size_t n, struct diag *diag,
		     store_layer *ret)
{
	char full[DIGEST_LEN * 2 + 1];
	struct store_commit commit;
	struct digest from, id;
	MDB_cursor *c;
	MDB_val k, v;
	int r;

	memset(full, '0', sizeof(full) - 1);
	full[sizeof(full) - 1] = 0;
	memcpy(full, hex, n);
	r = digest_parse(full, &from);
	if (r == 0)
		r = store_rd_cursor(rd, DB_COMMITS, &c);
	if (r < 0)
		return r;
	k = (MDB_val){DIGEST_LEN, from.b};
	r = store_cur_raw(c, &k, &v, MDB_SET_RANGE);
	if (r == 0 && !has_prefix(&k, hex, n))
		r = -ENOENT;
	if (r < 0)
		return r;
	memcpy(id.b, k.mv_data, DIGEST_LEN);
	r = store_cur_raw(c, &k, &v, MDB_NEXT);
	if (r == 0 && has_prefix(&k, hex, n))
		return diag_set(diag, -EEXIST,
				"more than one commit begins with '%.*s'; give more digits", (int)n,
				hex);
	r = store_commit_get(rd->s, &id, &commit);
	if (r < 0)
		return r;
	*ret = commit.layer;
	store_commit_release(&commit);
	return 0;
}

/* What stands before the "~". */
static int by_name(struct store_rd *rd, const char *env, const char *name, struct diag *diag,
		   store_layer *ret)
{
	bool head = !*name || !strcmp(name, "head") || !strcmp(name, "HEAD");
	size_t n = strlen(name), hex = strspn(name, "0123456789abcdefABCDEF");
	char tag[REF_MAX + 1];
	struct store_env e;
	int r;

	if (head || !strcmp(name, "base")) {
		if (!env)
			return diag_set(diag, -EINVAL, "'%s' needs an environment", name);
		r = store_env_get(rd->s, env, &e);
		if (r < 0)
			return diag_set(diag, r, "there is no environment '%s'", env);
		if (head)
			return store_head_read(rd->s, rd->r->txn, e.head, ret);
		*ret = e.base;
		return 0;
	}
	r = -ENOENT;
	if (env && store_env_name_valid(env) && store_tag_valid(name))
		r = ref_read(rd->s, rd->r->txn, tag_ref(env, name, tag), ret);
	if (r == -ENOENT && n + 4 < sizeof(tag)) {
		(void)snprintf(tag, sizeof(tag), "tag/%s", name);
		r = ref_read(rd->s, rd->r->txn, tag, ret);
		if (r == -ENOENT && strchr(name, '/'))
			r = ref_read(rd->s, rd->r->txn, name, ret);
	}
	if (r == -ENOENT && hex == n && n >= PREFIX_MIN && n <= DIGEST_LEN * 2)
		r = by_prefix(rd, name, n, diag, ret);
	if (r < 0)
		return diag_set(diag, r, "'%s' is no commit, tag, \"head\" or \"base\"%s", name,
				hex == n && n < PREFIX_MIN ? " (a commit id needs 4 digits)" : "");
	return 0;
}

static int back(struct store_rd *rd, const char *rev, uint64_t steps, struct diag *diag,
		store_layer *layer)
{
	for (uint64_t i = 0; i < steps; i++) {
		struct store_layer_rec rec = {0};
		int r = *layer ? store_layer_read(rd->s, rd->r->txn, *layer, &rec) : -ENOENT;

		if (r == 0 && rec.parent == 0)
			r = -ENOENT;
		if (r < 0)
			return diag_set(diag, r, "'%s' goes back past the beginning", rev);
		r = store_head_read(rd->s, rd->r->txn, rec.parent, layer);
		if (r < 0)
			return r;
	}
	return 0;
}

int store_resolve(struct store *s, const char *env, const char *rev, struct diag *diag,
		  store_layer *ret)
{
	cleanup_rd struct store_rd rd = {0};
	cleanup_free char *name = strdup(rev);
	char *tilde, *end;
	uint64_t steps = 0;
	store_layer layer = 0;
	int r = name ? store_rd_begin(s, &rd) : -ENOMEM;

	if (r < 0)
		return diag_set(diag, r, "cannot look up '%s': %s", rev, err_text(r));
	tilde = strrchr(name, '~');
	if (tilde) {
		*tilde = 0;
		steps = 1;
		if (tilde[1]) {
			errno = 0;
			steps = strtoull(tilde + 1, &end, 10);
			if (errno || *end || !isdigit((unsigned char)tilde[1]))
				return diag_set(diag, -EINVAL, "'%s': a number must follow '~'",
						rev);
		}
	}
	if (!tilde && !*rev)
		return diag_set(diag, -EINVAL, "an empty revision");
	r = by_name(&rd, env, name, diag, &layer);
	if (r == 0)
		r = back(&rd, rev, steps, diag, &layer);
	if (r == 0)
		*ret = layer;
	return r;
}
