/* Names for states: an environment's tags, and the other refs of the store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/env_internal.h"

/* Nobody's names for anything: what bases were made of, what is known of imported ones, layers of images. */
static const char *const own_refs[] = {"base/host-shape/", "image/", "oci/"};

int env_check_tag(const char *name, struct diag *diag)
{
	if (name && store_tag_valid(name))
		return 0;
	return diag_set(
		diag, -EINVAL,
		"'%.80s' is no name for a state: 1 to 64 of A-Z a-z 0-9 . _ -, the first no dot or "
		"dash; not head or base, nor hex digits alone, which are the beginning of an id",
		name ? name : "");
}

int env_tag_taken(struct env *e, const char *name, store_layer by, struct diag *diag)
{
	struct store_commit c = {0};
	char hex[DIGEST_LEN * 2 + 1] = "base";

	if (store_commit_of_layer(e->store, by, &c) == 0)
		digest_hex(&c.id, hex);
	store_commit_release(&c);
	return diag_set(
		diag, -EEXIST,
		"'%s' names %.12s already: choose another name, or move it with rattan tag --force",
		name, hex);
}

/* What @layer is. */
static int describe(const struct env *e, store_layer layer, struct ctl_ref *ret)
{
	struct store_commit c = {0};
	int r = store_commit_of_layer(e->store, layer, &c);

	if (r == 0) {
		digest_hex(&c.id, ret->id);
		ret->automatic = c.kind == STORE_AUTO;
		ret->time = c.time;
		ret->message = strdup(c.message ? c.message : "");
		if (!ret->message)
			r = -ENOMEM;
	}
	store_commit_release(&c);
	ret->at_base = layer == e->rec.base;
	/* One that cannot be read hides none of the others. */
	ret->damaged = r == -EBADMSG;
	return r == -ENOENT || r == -EBADMSG ? 0 : r;
}

static void id_of(const struct env *e, store_layer layer, char ret[static 65])
{
	struct store_commit c = {0};

	if (layer && store_commit_of_layer(e->store, layer, &c) == 0)
		digest_hex(&c.id, ret);
	store_commit_release(&c);
}

int env_tag(struct env *e, const char *name, const char *rev, bool force, struct diag *diag,
	    struct ctl_ref *ret)
{
	store_layer layer = 0, was = 0;
	int r = env_check_tag(name, diag);

	*ret = (struct ctl_ref){0};
	if (r < 0)
		return r;
	ENV_LOCK(e);
	r = env_check_kept(e, diag);
	if (r == 0)
		r = rev ? env_resolve(e->store, e->rec.name, rev, diag, &layer)
			: env_head_locked(e, &layer);
	if (r == 0)
		r = store_tag_set(e->store, e->rec.name, name, layer, force, &was);
	if (r == -EEXIST && !diag->text[0])
		return env_tag_taken(e, name, was, diag);
	if (r == 0) {
		(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
		if (was != layer)
			id_of(e, was, ret->was);
		r = describe(e, layer, ret);
	}
	return r < 0 ? diag_set(diag, r, "no tag was set: %s", err_text(r)) : 0;
}

int env_untag(struct env *e, const char *name, struct diag *diag, struct ctl_ref *ret)
{
	store_layer layer;
	int r;

	*ret = (struct ctl_ref){0};
	if (!name)
		return diag_set(diag, -EINVAL, "no name was given");
	ENV_LOCK(e);
	r = store_tag_get(e->store, e->rec.name, name, &layer);
	if (r == 0)
		r = store_tag_del(e->store, e->rec.name, name);
	if (r == 0) {
		(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
		r = describe(e, layer, ret);
	}
	if (r == -ENOENT)
		return diag_set(diag, r, "%s has no tag '%.80s'", e->rec.name, name);
	return r < 0 ? diag_set(diag, r, "the tag was not removed: %s", err_text(r)) : 0;
}

/* ---- listing ---- */

struct refs {
	const char *env;
	bool all;
	struct {
		char *name;
		store_layer layer;
	} * v;
	size_t n, room;
};

static void refs_release(struct refs *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].name);
	free(l->v);
}

static bool is_own(const char *ref)
{
	for (size_t i = 0; i < ARRAY_SIZE(own_refs); i++)
		if (!strncmp(ref, own_refs[i], strlen(own_refs[i])))
			return true;
	return false;
}

/* As a revision is written: 1, 0 not shown, -ENOMEM. */
static int shown_name(const struct refs *l, const char *ref, char **ret)
{
	const char *env = strncmp(ref, "env/", 4) != 0 ? NULL : ref + 4;
	const char *end = env ? strchr(env, '/') : NULL;
	bool own = end && (size_t)(end - env) == strlen(l->env) &&
		   !strncmp(env, l->env, (size_t)(end - env));

	if (env ? !end || strncmp(end, "/tag/", 5) != 0 || (!own && !l->all) : is_own(ref))
		return 0;
	if (!env || own)
		*ret = strdup(env ? end + 5 : ref);
	else if (asprintf(ret, "%.*s:%s", (int)(end - env), env, end + 5) < 0)
		*ret = NULL;
	return *ret ? 1 : -ENOMEM;
}

/* Collected first: the callback may not call the store. */
static int add_ref(void *arg, const char *ref, store_layer layer)
{
	struct refs *l = arg;
	char *name;
	void *v;
	int r = shown_name(l, ref, &name);

	if (r <= 0)
		return r;
	if (l->n == l->room) {
		v = reallocarray(l->v, l->room + 32, sizeof(*l->v));
		if (!v) {
			free(name);
			return -ENOMEM;
		}
		l->v = v;
		l->room += 32;
	}
	l->v[l->n].name = name;
	l->v[l->n++].layer = layer;
	return 0;
}

int env_refs(struct env *e, bool all, int (*fn)(void *arg, const struct ctl_ref *ref), void *arg)
{
	struct refs l = {.env = e->rec.name, .all = all};
	int r;

	ENV_LOCK(e);
	r = store_refs(e->store, add_ref, &l);
	for (size_t i = 0; r == 0 && i < l.n; i++) {
		struct ctl_ref ref = {0};

		(void)snprintf(ref.name, sizeof(ref.name), "%s", l.v[i].name);
		r = describe(e, l.v[i].layer, &ref);
		if (r == 0)
			r = fn(arg, &ref);
		ctl_item_release(&ctl_table_ref, &ref);
	}
	refs_release(&l);
	return r;
}
