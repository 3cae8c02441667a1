/* A state as an OCI image layout: each step of its history a layer. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/image/oci_steps.h"
#include "fs/image/staged.h"

#define PART "blobs/sha256/.part"

struct layer {
	struct digest_run *raw, *packed; /* unpacked, and as it is kept */
	struct packer *pack;
	int fd;
	struct oci_descriptor d;
	struct digest diff;
};

static void cleanup_jsonp(cJSON **o)
{
	cJSON_Delete(*o);
}
#define cleanup_json __attribute__((cleanup(cleanup_jsonp)))

/* ---- the layer ---- */

static int write_raw(void *arg, const void *p, size_t n)
{
	struct layer *l = arg;
	int r = digest_add(l->raw, p, n);

	return r < 0 ? r : packer_write(l->pack, p, n);
}

static int write_packed(void *arg, const void *p, size_t n)
{
	struct layer *l = arg;
	int r = digest_add(l->packed, p, n);

	l->d.size += n;
	return r < 0 ? r : io_write_full(l->fd, p, n);
}

static void blob_name(const struct digest *d, char ret[static 96])
{
	memcpy(ret, "blobs/sha256/", 14);
	digest_hex(d, ret + 13);
}

static int layer_begin(struct layer *l, int dir, enum image_pack pack)
{
	static const char *const types[] = {[IMAGE_GZIP] = OCI_LAYER "+gzip",
					    [IMAGE_ZSTD] = OCI_LAYER "+zstd",
					    [IMAGE_PLAIN] = OCI_LAYER};
	int r = digest_begin(&l->raw);

	(void)snprintf(l->d.type, sizeof(l->d.type), "%s", types[pack]);
	if (r == 0)
		r = digest_begin(&l->packed);
	if (r == 0)
		r = packer_open(pack, &(struct byte_sink){write_packed, l}, &l->pack);
	if (r < 0)
		return r;
	l->fd = openat(dir, PART, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return l->fd < 0 ? ret_nerrno() : 0;
}

static int layer_end(struct layer *l, int dir)
{
	char name[96];
	int r = packer_close(steal_ptr(&l->pack));

	if (r == 0)
		r = digest_end(l->raw, &l->diff);
	if (r == 0)
		r = digest_end(l->packed, &l->d.digest);
	if (r == 0 && close(steal_fd(&l->fd)) < 0)
		r = ret_nerrno();
	if (r < 0)
		return r;
	blob_name(&l->d.digest, name);
	return renameat(dir, PART, dir, name) < 0 ? ret_nerrno() : 0;
}

/* Two commits that change the same have one blob between them. */
static int put_tree(const struct image_export *o, int dir, const struct tree_part *part,
		    struct oci_step *step, struct progress *p, struct diag *diag,
		    struct image_out *done)
{
	struct layer l = {.fd = -1};
	int r = layer_begin(&l, dir, o->pack);

	if (r == 0)
		r = to_layer_tar(o->store, step->to, part, &(struct byte_sink){write_raw, &l}, p,
				 diag, done);
	if (r == 0)
		r = layer_end(&l, dir);
	(void)!packer_close(steal_ptr(&l.pack));
	cleanup_fdp(&l.fd);
	digest_free(l.raw);
	digest_free(l.packed);
	(void)unlinkat(dir, PART, 0);
	step->blob = l.d;
	step->diff = l.diff;
	return r;
}

static int put_step(const struct image_export *o, int dir, struct oci_step *step,
		    struct progress *p, struct diag *diag, struct image_out *done)
{
	struct touched t = {0};
	struct tree_part part = {.from = step->from, .touched = &t};
	bool any = true;
	int r = step->from ? touched_between(o->store, step->from, step->to, &t, &any, diag) : 0;

	step->empty = !any;
	if (r == 0 && any)
		r = put_tree(o, dir, step->from ? &part : NULL, step, p, diag, done);
	if (r == 0 && any)
		done->layers++;
	touched_release(&t);
	return r;
}

/* ---- JSON ---- */

static int put_file(int dir, const char *name, const void *p, size_t n)
{
	cleanup_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	int r = fd < 0 ? ret_nerrno() : io_write_full(fd, p, n);

	return r == 0 && close(steal_fd(&fd)) < 0 ? ret_nerrno() : r;
}

static int put_json(int dir, const cJSON *o, const char *name, struct oci_descriptor *ret)
{
	cleanup_free char *text = cJSON_PrintUnformatted(o);
	char blob[96];
	int r = text ? digest_of(text, strlen(text), &ret->digest) : -ENOMEM;

	if (r < 0)
		return r;
	ret->size = strlen(text);
	blob_name(&ret->digest, blob);
	return put_file(dir, name ? name : blob, text, strlen(text));
}

static bool add_text(cJSON *o, const char *key, const char *value)
{
	return cJSON_AddStringToObject(o, key, value);
}

static void digest_text(const struct digest *d, char ret[static 80])
{
	memcpy(ret, "sha256:", 8);
	digest_hex(d, ret + 7);
}

/* Into @to, under @key or, where it is a list, at its end. */
static bool add_descriptor(cJSON *to, const char *key, const struct oci_descriptor *d, cJSON **ret)
{
	cJSON *o = cJSON_CreateObject();
	char digest[80];

	digest_text(&d->digest, digest);
	if (!o || !add_text(o, "mediaType", d->type) || !add_text(o, "digest", digest) ||
	    !cJSON_AddNumberToObject(o, "size", (double)d->size) ||
	    !(key ? cJSON_AddItemToObject(to, key, o) : cJSON_AddItemToArray(to, o))) {
		cJSON_Delete(o);
		return false;
	}
	if (ret)
		*ret = o;
	return true;
}

/* What the base's image said of itself, without what no longer holds; its history apart. */
static cJSON *config_begin(const struct image_export *o, cJSON **ret_history)
{
	struct image_info info = {0};
	cJSON *c = NULL;

	if (o->base && image_info_read(o->store, o->base, &info) == 0 && info.config)
		c = cJSON_Parse(info.config);
	image_info_release(&info);
	if (!cJSON_IsObject(c)) {
		cJSON_Delete(c);
		c = cJSON_CreateObject();
	}
	cJSON_DeleteItemFromObjectCaseSensitive(c, "rootfs");
	*ret_history = cJSON_DetachItemFromObjectCaseSensitive(c, "history");
	cJSON_DeleteItemFromObjectCaseSensitive(c, "created");
	return c;
}

static bool platform(cJSON *c)
{
	char arch[32], variant[8];

	oci_machine(arch, variant);
	if (!cJSON_HasObjectItem(c, "architecture") &&
	    (!add_text(c, "architecture", arch) || (*variant && !add_text(c, "variant", variant))))
		return false;
	return cJSON_HasObjectItem(c, "os") || add_text(c, "os", "linux");
}

static int put_config(const struct image_export *o, int dir, const struct oci_steps *x,
		      struct oci_descriptor *ret)
{
	cleanup_json cJSON *was = NULL, *c = config_begin(o, &was);
	int r = c && platform(c) ? oci_steps_tell(x, was, c) : -ENOMEM;

	*ret = (struct oci_descriptor){.type = OCI_CONFIG};
	return r == 0 ? put_json(dir, c, NULL, ret) : r;
}

static int put_manifest(int dir, const struct oci_descriptor *config, const struct oci_steps *x,
			struct oci_descriptor *ret)
{
	cleanup_json cJSON *m = cJSON_CreateObject();
	cJSON *layers;
	bool ok = m && cJSON_AddNumberToObject(m, "schemaVersion", 2) &&
		  add_text(m, "mediaType", OCI_MANIFEST) &&
		  add_descriptor(m, "config", config, NULL);

	layers = ok ? cJSON_AddArrayToObject(m, "layers") : NULL;
	ok = layers;
	for (size_t i = 0; ok && i < x->n; i++)
		ok = x->v[i].empty || add_descriptor(layers, NULL, &x->v[i].blob, NULL);
	*ret = (struct oci_descriptor){.type = OCI_MANIFEST};
	return ok ? put_json(dir, m, NULL, ret) : -ENOMEM;
}

/* In a directory that others may write to meanwhile. */
static int put_top(struct staged *to, const char *name, cJSON *json)
{
	struct oci_descriptor unused;
	int r = staged_make(to, name);

	if (r == 0)
		r = put_json(to->fd, json, name, &unused);
	if (r == -EEXIST)
		staged_not_made(to);
	return r;
}

static int put_index(struct staged *to, const struct oci_descriptor *manifest, const char *tag)
{
	cleanup_json cJSON *i = cJSON_CreateObject(), *layout = cJSON_CreateObject();
	cJSON *list, *d, *notes;
	bool ok = i && layout && add_text(layout, "imageLayoutVersion", "1.0.0") &&
		  cJSON_AddNumberToObject(i, "schemaVersion", 2) &&
		  add_text(i, "mediaType", OCI_INDEX);
	int r;

	list = ok ? cJSON_AddArrayToObject(i, "manifests") : NULL;
	ok = list && add_descriptor(list, NULL, manifest, &d);
	notes = ok ? cJSON_AddObjectToObject(d, "annotations") : NULL;
	ok = notes && add_text(notes, OCI_REF_NAME, tag);
	r = ok ? put_top(to, "index.json", i) : -ENOMEM;
	/* The last: without it nobody takes what was begun for an image. */
	return r < 0 ? r : put_top(to, "oci-layout", layout);
}

static int put_image(const struct image_export *o, struct staged *to, struct oci_steps *x,
		     struct progress *p, struct diag *diag, struct image_out *ret)
{
	struct oci_descriptor config, manifest = {0};
	int dir = to->fd, r = 0;

	if (x->n > 1)
		p->total = 0; /* what the layers have together is not known */
	for (size_t i = 0; r == 0 && i < x->n; i++)
		r = put_step(o, dir, &x->v[i], p, diag, ret);
	if (r == 0)
		r = put_config(o, dir, x, &config);
	if (r == 0)
		r = put_manifest(dir, &config, x, &manifest);
	if (r == 0)
		r = put_index(to, &manifest, o->tag ? o->tag : "latest");
	ret->digest = manifest.digest;
	return r;
}

static int fill(const struct image_export *o, struct staged *to, struct oci_steps *x,
		struct progress *p, struct diag *diag, struct image_out *ret)
{
	int r = fchmod(to->fd, 0755) < 0 ? ret_nerrno() : staged_make(to, "blobs");

	if (r == 0 && mkdirat(to->fd, "blobs", 0755) < 0)
		r = ret_nerrno();
	if (r == -EEXIST)
		staged_not_made(to);
	if (r == 0 && mkdirat(to->fd, "blobs/sha256", 0755) < 0)
		r = ret_nerrno();
	return r < 0 ? r : put_image(o, to, x, p, diag, ret);
}

int to_oci(const struct image_export *o, struct progress *p, struct diag *diag,
	   struct image_out *ret)
{
	struct oci_steps x;
	struct staged s;
	int r = oci_steps_find(o->store, o->layer, o->squash, &x, diag);

	if (r == 0)
		r = staged_dir(&s, o->dest, diag);
	if (r == 0)
		r = staged_end(&s, fill(o, &s, &x, p, diag, ret), diag);
	oci_steps_release(&x);
	return r;
}
