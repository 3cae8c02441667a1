/* Which layers an image has, and what its history says of each. */
#include "fs/image/oci_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/utf8.h"

/* ---- which ---- */

struct bases {
	struct buf layers; /* store_layer each */
};

static int see_ref(void *arg, const char *name, store_layer layer)
{
	struct bases *b = arg;

	/* Not the directories that a base lacks, and a sandbox needs: they go with what follows. */
	return strncmp(name, "base/", 5) || strchr(name + 5, '/')
		       ? 0
		       : buf_put(&b->layers, &layer, sizeof(layer));
}

static bool is_base(const struct bases *b, store_layer layer)
{
	for (size_t i = 0; i < b->layers.len; i += sizeof(layer))
		if (!memcmp(b->layers.data + i, &layer, sizeof(layer)))
			return true;
	return false;
}

void oci_steps_release(struct oci_steps *x)
{
	for (size_t i = 0; i < x->n; i++)
		store_commit_release(&x->v[i].commit);
	free(x->v);
	*x = (struct oci_steps){0};
}

/* Newest first. */
static int add(struct oci_steps *x, store_layer layer, bool base, struct store_commit *c)
{
	struct oci_step *v = reallocarray(x->v, x->n + 1, sizeof(*v));

	if (!v) {
		if (c)
			store_commit_release(c);
		return -ENOMEM;
	}
	x->v = v;
	v[x->n] = (struct oci_step){.to = layer, .base = base, .named = c != NULL};
	if (c)
		v[x->n].commit = *c;
	x->n++;
	return 0;
}

static int look(struct store *s, store_layer layer, bool top, const struct bases *b,
		struct oci_steps *x)
{
	struct store_commit c;
	bool base = is_base(b, layer), named;
	int r = store_commit_of_layer(s, layer, &c);

	if (r < 0 && r != -ENOENT)
		return r;
	named = r == 0;
	if (named && c.kind == STORE_BASE)
		base = true;
	if (!top && !base && !(named && c.kind == STORE_COMMIT)) {
		if (named)
			store_commit_release(&c);
		return 0;
	}
	return add(x, layer, base, named ? &c : NULL);
}

static int collect(struct store *s, store_layer layer, const struct bases *b, struct oci_steps *x)
{
	struct store_layer_info li;
	int r = 0;

	for (store_layer at = layer; r == 0 && at; at = li.parent) {
		r = store_layer_get(s, at, &li);
		if (r == 0)
			r = look(s, at, at == layer, b, x);
	}
	return r;
}

int oci_steps_find(struct store *s, store_layer layer, bool squash, struct oci_steps *ret,
		   struct diag *diag)
{
	struct bases b = {{0}};
	int r = store_refs(s, see_ref, &b);

	*ret = (struct oci_steps){0};
	if (r == 0)
		r = squash ? look(s, layer, true, &b, ret) : collect(s, layer, &b, ret);
	buf_release(&b.layers);
	if (r == 0 && ret->n > OCI_LAYERS_MAX)
		r = diag_set(diag, -E2BIG,
			     "its history has %zu commits, and an image can have %d layers; "
			     "--squash makes one of all",
			     ret->n, OCI_LAYERS_MAX);
	if (r < 0) {
		oci_steps_release(ret);
		return diag_set(diag, r, "cannot read the history of the state: %s", err_text(r));
	}
	for (size_t i = 0; i < ret->n / 2; i++) {
		struct oci_step t = ret->v[i];

		ret->v[i] = ret->v[ret->n - 1 - i];
		ret->v[ret->n - 1 - i] = t;
	}
	for (size_t i = 1; i < ret->n; i++)
		ret->v[i].from = ret->v[i - 1].to;
	return 0;
}

/* ---- what is said of them ---- */

/* A message is bytes; JSON is text. */
static bool add_bytes(cJSON *o, const char *key, const char *text)
{
	cleanup_buf struct buf b = {0};
	size_t n = strlen(text);
	int r = buf_put(&b, "", 0);

	for (size_t at = 0; r == 0 && at < n;) {
		size_t len = utf8_len(text + at, n - at);

		r = len ? buf_put(&b, text + at, len) : buf_puts(&b, "\xef\xbf\xbd");
		at += len ? len : 1;
	}
	return r == 0 && cJSON_AddStringToObject(o, key, b.data ? (const char *)b.data : "");
}

static bool add_time(cJSON *o, const struct timespec *t)
{
	char day[40], text[64];
	struct tm tm;

	if (!gmtime_r(&t->tv_sec, &tm) || !strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm))
		return true; /* a year that no date has: it is left out */
	(void)snprintf(text, sizeof(text), "%s.%09ldZ", day, t->tv_nsec);
	return cJSON_AddStringToObject(o, "created", text);
}

static cJSON *line_of(const struct oci_step *s)
{
	const struct store_commit *c = &s->commit;
	char by[32 + 2 * DIGEST_LEN] = "rattan export", hex[2 * DIGEST_LEN + 1];
	cJSON *o = cJSON_CreateObject();
	bool ok = o;

	if (s->named && !s->base) {
		digest_hex(&c->id, hex);
		(void)snprintf(by, sizeof(by), OCI_BY_COMMIT "%s", hex);
		ok = ok && add_time(o, &c->time);
	} else if (s->base) {
		(void)snprintf(by, sizeof(by), "rattan import");
	}
	ok = ok && cJSON_AddStringToObject(o, "created_by", by);
	if (s->named && !s->base && c->message && *c->message)
		ok = ok && add_bytes(o, "comment", c->message);
	else if (s->named && !s->base && *c->label)
		ok = ok && add_bytes(o, "comment", c->label);
	if (s->empty)
		ok = ok && cJSON_AddBoolToObject(o, "empty_layer", true);
	if (!ok) {
		cJSON_Delete(o);
		return NULL;
	}
	return o;
}

static bool makes_layer(const cJSON *line)
{
	return !cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "empty_layer"));
}

/* Does the history of the base's image speak of these layers? */
static bool fits(const struct oci_steps *x, const cJSON *was)
{
	const cJSON *l;
	size_t n = 0;

	if (!cJSON_IsArray(was))
		return false;
	cJSON_ArrayForEach(l, was) n += makes_layer(l);
	for (size_t i = 0; i < x->n; i++) {
		if (x->v[i].base && x->v[i].empty)
			return false;
		n -= x->v[i].base;
	}
	return n == 0;
}

static bool push(cJSON *list, cJSON *o)
{
	if (o && cJSON_AddItemToArray(list, o))
		return true;
	cJSON_Delete(o);
	return false;
}

int oci_steps_tell(const struct oci_steps *x, const cJSON *was, cJSON *config)
{
	cJSON *rootfs = cJSON_AddObjectToObject(config, "rootfs"), *ids, *history;
	bool ok = rootfs && cJSON_AddStringToObject(rootfs, "type", "layers"), old = fits(x, was);
	const struct oci_step *last = x->n ? &x->v[x->n - 1] : NULL;
	const cJSON *l;

	ids = ok ? cJSON_AddArrayToObject(rootfs, "diff_ids") : NULL;
	history = ids ? cJSON_AddArrayToObject(config, "history") : NULL;
	ok = history;
	if (ok && old)
		cJSON_ArrayForEach(l, was) ok = ok && push(history, cJSON_Duplicate(l, true));
	for (size_t i = 0; ok && i < x->n; i++) {
		char diff[80] = "sha256:";

		digest_hex(&x->v[i].diff, diff + 7);
		if (!x->v[i].empty)
			ok = push(ids, cJSON_CreateString(diff));
		if (!old || !x->v[i].base)
			ok = ok && push(history, line_of(&x->v[i]));
	}
	if (ok && last && last->named && !last->base)
		ok = add_time(config, &last->commit.time);
	return ok ? 0 : -ENOMEM;
}
