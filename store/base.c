/* Imported trees and their names. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/codec.h"

#define BASE_REF  "base/"
#define IMAGE_REF "image/"
#define CHAIN_REF "oci/"

static int ref_put(struct store *s, MDB_txn *t, const char *name, store_layer layer, unsigned flags)
{
	MDB_val k = {strlen(name), (void *)(uintptr_t)name}, v;
	struct store_layer_rec rec;
	uint8_t b[8];
	int r = store_layer_read(s, t, layer, &rec);

	if (r == 0 && rec.state != STORE_LAYER_SEALED)
		r = -ENOENT;
	if (r < 0)
		return r == -ENOENT ? -EAGAIN : r;
	key_be64(b, layer);
	v = (MDB_val){8, b};
	return store_tx_put(s, t, DB_REFS, &k, &v, flags);
}

static int commit_put(struct store *s, MDB_txn *t, const char *name, const struct store_commit *c)
{
	struct store_commit made = *c;
	struct store_layer_rec rec;
	int r = store_layer_read(s, t, c->layer, &rec);

	if (r == 0 && (rec.state != STORE_LAYER_SEALED || !store_digest_is_zero(&rec.commit)))
		r = -EAGAIN;
	if (r < 0)
		return r == -ENOENT ? -EAGAIN : r;
	made.kind = STORE_BASE;
	(void)snprintf(made.env, sizeof(made.env), "%s", name);
	r = store_commit_add(s, t, &made);
	if (r < 0)
		return r == -EEXIST ? -EAGAIN : r;
	rec.commit = made.id;
	return store_layer_write(s, t, c->layer, &rec);
}

/* ---- refs that nothing needs any more ---- */

/* Layers that are left, and refs of layers that may be needed no more: each a length, then the text. */
struct left {
	struct buf bases; /* store_layer each */
	struct buf chains;
};

struct chain {
	store_layer layer;
	char name[256];
};

static int see_ref(void *arg, const char *name, store_layer layer)
{
	struct left *l = arg;
	struct chain c = {.layer = layer};

	if (!strncmp(name, BASE_REF, strlen(BASE_REF)))
		return buf_put(&l->bases, &layer, sizeof(layer));
	if (strncmp(name, CHAIN_REF, strlen(CHAIN_REF)) != 0)
		return 0;
	(void)snprintf(c.name, sizeof(c.name), "%s", name);
	return buf_put(&l->chains, &c, sizeof(c));
}

/* Does a base stand on @layer? */
static int needed(struct store *s, MDB_txn *t, const struct left *l, store_layer layer, bool *ret)
{
	*ret = false;
	for (size_t i = 0; i < l->bases.len && !*ret; i += sizeof(layer)) {
		struct store_anc *a;
		store_layer base;
		int r;

		memcpy(&base, l->bases.data + i, sizeof(base));
		r = store_anc_get(s, t, base, &a);
		if (r < 0)
			return r;
		*ret = base == layer || store_anc_has(a, layer);
		store_anc_unref(a);
	}
	return 0;
}

static int ref_del(struct store *s, MDB_txn *t, const char *name)
{
	MDB_val k = {strlen(name), (void *)(uintptr_t)name};

	return store_tx_del(s, t, DB_REFS, &k);
}

static int chains_del(struct store *s, MDB_txn *t, const struct left *l)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->chains.len; i += sizeof(struct chain)) {
		struct chain c;
		bool stays;

		memcpy(&c, l->chains.data + i, sizeof(c));
		r = needed(s, t, l, c.layer, &stays);
		if (r == 0 && !stays)
			r = ref_del(s, t, c.name);
	}
	return r;
}

/* Each "oci/..." of a layer that no base stands on. */
static int unneeded_del(struct store *s, MDB_txn *t)
{
	struct left l = {0};
	int r = store_refs_read(s, t, see_ref, &l);

	if (r == 0)
		r = chains_del(s, t, &l);
	buf_release(&l.bases);
	buf_release(&l.chains);
	return r;
}

int store_base_set(struct store *s, const struct store_base *b)
{
	cleanup_tx MDB_txn *t = NULL;
	char ref[80];
	int r = store_env_name_valid(b->name) ? store_tx_begin(s, &t) : -EINVAL;

	for (size_t i = 0; r == 0 && i < b->ncommits; i++)
		r = commit_put(s, t, b->name, &b->commits[i]);
	(void)snprintf(ref, sizeof(ref), BASE_REF "%s", b->name);
	if (r == 0)
		r = ref_put(s, t, ref, b->layer, b->replace ? 0 : MDB_NOOVERWRITE);
	for (size_t i = 0; r == 0 && i < b->nrefs; i++)
		r = ref_put(s, t, b->refs[i].name, b->refs[i].layer, 0);
	/* The layers of the one that had the name. */
	if (r == 0 && b->replace)
		r = unneeded_del(s, t);
	return r < 0 ? r : store_tx_commit(s, &t);
}

int store_base_remove(struct store *s, const char *name)
{
	cleanup_tx MDB_txn *t = NULL;
	char ref[80];
	int r = store_env_name_valid(name) ? store_tx_begin(s, &t) : -ENOENT, k;

	if (r < 0)
		return r;
	(void)snprintf(ref, sizeof(ref), BASE_REF "%s", name);
	r = ref_del(s, t, ref);
	(void)snprintf(ref, sizeof(ref), IMAGE_REF "%s", name);
	k = r == 0 ? ref_del(s, t, ref) : 0;
	if (k < 0 && k != -ENOENT)
		r = k;
	if (r == 0)
		r = unneeded_del(s, t);
	return r < 0 ? r : store_tx_commit(s, &t);
}
