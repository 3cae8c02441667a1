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
	listed_release(&i->files);
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

static int write_file(struct sink *k, const char *name, const void *p, size_t n)
{
	struct sink_entry e = {.path = name, .st = {.st_mode = S_IFREG | 0644}};
	store_ino ino;
	int r = sink_put(k, &e, &ino);

	if (r == 0)
		r = sink_write(k, ino, 0, p, n);
	return r < 0 ? r : sink_attr(k, ino, &e, n);
}

int image_info_write(struct store *s, const struct image_info *i, store_layer *ret)
{
	struct sink_opts o = {.store = s};
	cleanup_free char *text = info_text(i);
	struct sink *k;
	int r = text ? sink_open(&o, &k) : -ENOMEM;

	if (r < 0)
		return r;
	r = write_file(k, INFO_NAME, text, strlen(text));
	if (r == 0 && i->files.on)
		r = write_file(k, IMAGE_FILES, i->files.b.data, i->files.b.len);
	if (r < 0) {
		sink_abort(k);
		return r;
	}
	return sink_finish(k, ret);
}

/* ---- reading ---- */

static int read_into(struct ovl *o, const struct ovl_entry *e, size_t max, struct buf *out)
{
	size_t n = (size_t)e->attr.st.st_size < max ? (size_t)e->attr.st.st_size : max;
	int r = S_ISREG(e->attr.st.st_mode) ? buf_reserve(out, n + 1) : -EBADMSG;
	ssize_t k = r < 0 ? r : ovl_read(o, e->ino, 0, out->data, n);

	if (k < 0)
		return (int)k;
	out->len = (size_t)k;
	out->data[k] = 0;
	return 0;
}

int image_file_read(struct store *s, store_layer layer, const char *file, size_t max,
		    struct buf *out)
{
	struct ovl_opts oo = {.store = s, .flags = OVL_RDONLY, .layer = layer};
	struct ovl_entry e;
	struct ovl *o;
	int r = ovl_open(&oo, &o);

	if (r < 0)
		return r;
	r = ovl_lookup(o, STORE_ROOT_INO, file, &e);
	if (r == 0 && !e.ino)
		r = -ENOENT;
	if (r == 0) {
		r = read_into(o, &e, max, out);
		ovl_forget(o, e.ino, 1);
	}
	(void)ovl_close(o);
	return r;
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
	cleanup_buf struct buf text = {0};
	store_layer layer;
	char ref[80];
	int r;

	if (snprintf(ref, sizeof(ref), IMAGE_REF "%s", name) >= (int)sizeof(ref))
		return -ENOENT;
	r = store_ref_get(s, ref, &layer);
	if (r == 0)
		r = image_file_read(s, layer, INFO_NAME, INFO_MAX, &text);
	return r < 0 ? r : parse((const char *)text.data, ret);
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
