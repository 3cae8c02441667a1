/* What is known of a base beside its tree, and the list of bases. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/core/ovl.h"
#include "fs/image/image_internal.h"

#define INFO_NAME "image.json"
#define INFO_MAX  (32u << 20) /* a configuration of 4 MiB, each byte of it as an escape of six */
#define BASE_REF  "base/"
#define SHAPE     "base/host-shape/"

void image_info_release(struct image_info *i)
{
	free(i->config);
	*i = (struct image_info){0};
}

/* ---- writing ---- */

static char *info_text(const struct image_info *i)
{
	cJSON *o = cJSON_CreateObject();
	char *text = NULL;

	if (o && cJSON_AddNumberToObject(o, "entries", (double)i->entries) &&
	    cJSON_AddNumberToObject(o, "bytes", (double)i->bytes) &&
	    cJSON_AddStringToObject(o, "source", i->source) &&
	    cJSON_AddStringToObject(o, "manager", i->manager) &&
	    (!i->config || cJSON_AddStringToObject(o, "config", i->config)))
		text = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	return text;
}

int image_info_write(struct store *s, const struct image_info *i, store_layer *ret)
{
	struct sink_entry e = {.path = INFO_NAME, .st = {.st_mode = S_IFREG | 0644}};
	struct sink_opts o = {.store = s};
	cleanup_free char *text = info_text(i);
	struct sink *k;
	store_ino ino;
	int r = text ? sink_open(&o, &k) : -ENOMEM;

	if (r < 0)
		return r;
	r = sink_put(k, &e, &ino);
	if (r == 0)
		r = sink_write(k, ino, 0, text, strlen(text));
	if (r == 0)
		r = sink_attr(k, ino, &e, strlen(text));
	if (r < 0) {
		sink_abort(k);
		return r;
	}
	return sink_finish(k, ret);
}

/* ---- reading ---- */

static int read_text(struct ovl *o, char **ret)
{
	struct ovl_entry e;
	int r = ovl_walk(o, "/" INFO_NAME, &e);
	char *text;
	ssize_t n;

	if (r < 0)
		return r;
	if (!S_ISREG(e.attr.st.st_mode) || e.attr.st.st_size > INFO_MAX) {
		ovl_forget(o, e.ino, 1);
		return -EBADMSG;
	}
	text = calloc(1, (size_t)e.attr.st.st_size + 1);
	n = text ? ovl_read(o, e.ino, 0, text, (size_t)e.attr.st.st_size) : -ENOMEM;
	ovl_forget(o, e.ino, 1);
	if (n < 0) {
		free(text);
		return (int)n;
	}
	*ret = text;
	return 0;
}

static uint64_t number(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	return cJSON_IsNumber(v) && v->valuedouble > 0 && v->valuedouble < 1e18
		       ? (uint64_t)v->valuedouble
		       : 0;
}

static int parse(const char *text, struct image_info *ret)
{
	cJSON *o = cJSON_Parse(text);
	const char *source = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "source"));
	const char *config = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "config"));
	const char *manager = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "manager"));
	int r = cJSON_IsObject(o) ? 0 : -EBADMSG;

	*ret = (struct image_info){.entries = number(o, "entries"), .bytes = number(o, "bytes")};
	(void)snprintf(ret->source, sizeof(ret->source), "%s", source ? source : "");
	(void)snprintf(ret->manager, sizeof(ret->manager), "%s", manager ? manager : "");
	if (r == 0 && config && !(ret->config = strdup(config)))
		r = -ENOMEM;
	cJSON_Delete(o);
	return r;
}

int image_info_read(struct store *s, const char *name, struct image_info *ret)
{
	struct ovl_opts oo = {.store = s, .flags = OVL_RDONLY};
	cleanup_free char *text = NULL;
	struct ovl *o;
	char ref[80];
	int r;

	if (snprintf(ref, sizeof(ref), "image/%s", name) >= (int)sizeof(ref))
		return -ENOENT;
	r = store_ref_get(s, ref, &oo.layer);
	if (r == 0)
		r = ovl_open(&oo, &o);
	if (r < 0)
		return r;
	r = read_text(o, &text);
	(void)ovl_close(o);
	return r < 0 ? r : parse(text, ret);
}

/* ---- the list ---- */

struct names {
	struct named_base {
		char name[65];
		store_layer layer;
	} * v;
	size_t n;
};

/* Collected first: the callback may not call the store. */
static int see_ref(void *arg, const char *name, store_layer layer)
{
	struct names *l = arg;
	struct named_base *v;

	if (strncmp(name, BASE_REF, strlen(BASE_REF)) != 0 ||
	    !strncmp(name, SHAPE, strlen(SHAPE)) || !store_env_name_valid(name + strlen(BASE_REF)))
		return 0;
	v = reallocarray(l->v, l->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	l->v = v;
	v[l->n] = (struct named_base){.layer = layer};
	(void)snprintf(v[l->n].name, sizeof(v[l->n].name), "%s", name + strlen(BASE_REF));
	l->n++;
	return 0;
}

static int describe(struct store *s, const struct named_base *n, struct image_base *ret)
{
	struct store_layer_info li;
	struct image_info info = {0};
	struct store_commit c = {0};
	int r = store_layer_get(s, n->layer, &li), k;

	*ret = (struct image_base){0};
	memcpy(ret->name, n->name, sizeof(ret->name));
	if (r < 0)
		return r;
	ret->created = li.created;
	k = store_commit_of_layer(s, n->layer, &c);
	ret->has_id = k == 0;
	if (k == 0)
		ret->id = c.id;
	store_commit_release(&c);
	if (k < 0 && k != -ENOENT)
		return k;
	k = image_info_read(s, n->name, &info);
	if (k == 0) {
		ret->entries = info.entries;
		ret->bytes = info.bytes;
		memcpy(ret->manager, info.manager, sizeof(ret->manager));
	}
	(void)snprintf(ret->source, sizeof(ret->source), "%s",
		       *info.source                   ? info.source
		       : image_name_reserved(n->name) ? "host"
						      : "?");
	image_info_release(&info);
	return k == -ENOMEM ? k : 0;
}

int image_bases(struct store *s, int (*fn)(void *arg, const struct image_base *b), void *arg)
{
	struct names l = {0};
	int r = store_refs(s, see_ref, &l);

	for (size_t i = 0; r == 0 && i < l.n; i++) {
		struct image_base b;

		r = describe(s, &l.v[i], &b);
		if (r == 0)
			r = fn(arg, &b);
		else if (r == -ENOENT) /* removed meanwhile */
			r = 0;
	}
	free(l.v);
	return r;
}
