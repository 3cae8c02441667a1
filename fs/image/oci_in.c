/* An OCI image into the store: each of its layers a layer, and those that are there already are not read again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/image/oci.h"

#define NESTED_MAX 4

static void cleanup_jsonp(cJSON **o)
{
	cJSON_Delete(*o);
}
#define cleanup_json __attribute__((cleanup(cleanup_jsonp)))

/* ---- which image ---- */

static int index_json(struct oci_layout *l, cJSON **ret)
{
	cleanup_buf struct buf b = {0};
	int r = oci_file(l, "index.json", &b);

	if (r == -ENOENT)
		return diag_set(l->diag, -EBADMSG,
				"%s is no OCI image layout: it has no index.json", l->path);
	if (r < 0)
		return diag_set(l->diag, r, "cannot read index.json of %s: %s", l->path,
				err_text(r));
	*ret = oci_parse(b.data ? (const void *)b.data : "", b.len, "index.json", l->diag);
	return *ret ? 0 : -EBADMSG;
}

static int blob_json(struct oci_layout *l, const struct oci_descriptor *d, const char *what,
		     cJSON **ret)
{
	cleanup_buf struct buf b = {0};
	int r = oci_blob(l, d, &b);

	if (r < 0)
		return r;
	*ret = oci_parse(b.data ? (const void *)b.data : "", b.len, what, l->diag);
	return *ret ? 0 : -EBADMSG;
}

static int find_manifest(struct oci_layout *l, const char *tag, struct oci_manifest *ret)
{
	cleanup_json cJSON *o = NULL;
	struct oci_descriptor d;
	bool nested = false;
	int r = index_json(l, &o);

	if (r == 0)
		r = oci_choose(o, tag, &d, &nested, l->diag);
	for (int i = 0; r == 0; i++) {
		cJSON_Delete(o);
		o = NULL;
		r = blob_json(l, &d, nested ? "an index" : "its manifest", &o);
		/* Some say what they are only inside. */
		if (r == 0 && !nested && !cJSON_HasObjectItem(o, "layers"))
			nested = cJSON_HasObjectItem(o, "manifests");
		if (r < 0 || !nested)
			break;
		r = i < NESTED_MAX
			    ? oci_choose_platform(o, &d, &nested, l->diag)
			    : diag_set(l->diag, -EBADMSG,
				       "the image is damaged: an index in an index without end");
	}
	return r < 0 ? r : oci_manifest_parse(o, ret, l->diag);
}

/* ---- its layers ---- */

int oci_chain_next(struct digest *chain, bool first, const struct digest *blob)
{
	uint8_t both[2 * DIGEST_LEN];

	if (first) {
		*chain = *blob;
		return 0;
	}
	memcpy(both, chain->b, DIGEST_LEN);
	memcpy(both + DIGEST_LEN, blob->b, DIGEST_LEN);
	return digest_of(both, sizeof(both), chain);
}

void oci_chain_ref(const struct digest *chain, char ret[static 80])
{
	memcpy(ret, "oci/", 4);
	digest_hex(chain, ret + 4);
}

bool oci_chain_known(struct store *s, const char *ref, store_layer below, store_layer *ret)
{
	struct store_layer_info li;

	return store_ref_get(s, ref, ret) == 0 && store_layer_get(s, *ret, &li) == 0 &&
	       li.state == STORE_LAYER_SEALED && li.parent == below;
}

static int read_layer(struct importing *x, struct oci_layout *l, const struct oci_descriptor *d,
		      const char *ref)
{
	struct byte_source src;
	struct oci_blob *b;
	struct sink *k;
	int r = oci_blob_begin(l, d, &b);

	if (r < 0)
		return r;
	r = importing_sink(x, &k);
	if (r < 0) {
		oci_blob_free(b);
		return r;
	}
	src = oci_blob_bytes(b);
	r = from_tar(&src, true, 0, k, x->diag);
	/* Damage to the blob is what happened to an archive that cannot be read, so it is told first. */
	if (r == -EBADMSG) {
		struct diag first = *x->diag;

		*x->diag = (struct diag){0};
		if (oci_blob_end(b) == 0)
			*x->diag = first;
	} else if (r == 0) {
		r = oci_blob_end(b);
	}
	oci_blob_free(b);
	if (r < 0) {
		sink_abort(k);
		return r;
	}
	return importing_finish(x, k, ref);
}

static int layers(struct importing *x, struct oci_layout *l, const struct oci_manifest *m)
{
	struct digest chain = {{0}};
	int r = 0;

	for (size_t i = 0; i < m->n; i++)
		x->p.total += m->layers[i].size;
	for (size_t i = 0; r == 0 && i < m->n; i++) {
		store_layer there;
		char ref[80];

		r = oci_chain_next(&chain, i == 0, &m->layers[i].digest);
		if (r < 0)
			break;
		oci_chain_ref(&chain, ref);
		if (oci_chain_known(x->o->store, ref, importing_top(x), &there)) {
			x->p.done += m->layers[i].size;
			r = importing_reuse(x, there);
		} else {
			r = read_layer(x, l, &m->layers[i], ref);
		}
	}
	return r;
}

static int empty_image(struct importing *x)
{
	struct sink *k;
	int r = importing_sink(x, &k);

	return r < 0 ? r : importing_finish(x, k, NULL);
}

static int config(struct importing *x, struct oci_layout *l, const struct oci_manifest *m)
{
	cleanup_buf struct buf b = {0};
	cleanup_json cJSON *o = NULL;
	size_t n;
	int r = oci_blob(l, &m->config, &b);

	if (r < 0)
		return r;
	o = oci_parse(b.data ? (const void *)b.data : "", b.len, "its configuration", l->diag);
	if (!o || memchr(b.data, 0, b.len))
		return diag_set(l->diag, -EBADMSG, "the image is damaged: its configuration");
	return buf_steal(&b, &x->info.config, &n);
}

int from_oci(struct importing *x)
{
	struct oci_layout l = {.p = &x->p, .diag = x->diag, .dir_fd = -1};
	struct oci_manifest m = {0};
	struct tree_counts n = {0};
	int r = oci_layout_open(&l, x->o->src);

	if (r == 0)
		r = find_manifest(&l, x->o->tag, &m);
	if (r == 0)
		r = config(x, &l, &m);
	if (r == 0)
		r = m.n ? layers(x, &l, &m) : empty_image(x);
	if (r == 0)
		r = tree_count(x->o->store, importing_top(x), true, &x->p, x->diag, &n);
	x->done->entries = n.entries;
	x->done->bytes = n.bytes;
	oci_manifest_release(&m);
	oci_layout_close(&l);
	return r;
}
