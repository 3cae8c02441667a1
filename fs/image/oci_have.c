/* What of an image need not be fetched, because the store has it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/image/oci.h"

static void cleanup_jsonp(cJSON **o)
{
	cJSON_Delete(*o);
}
#define cleanup_json __attribute__((cleanup(cleanup_jsonp)))

/* A file of the blob's size and no bytes, so that who fills the layout takes it for there. Whoever reads it after all finds
 * that its digest is wrong. */
static int stand_in(int dir, const struct oci_descriptor *d)
{
	char name[32 + 2 * DIGEST_LEN] = "blobs/sha256/";
	cleanup_fd int fd = -1;

	digest_hex(&d->digest, name + strlen(name));
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == EEXIST ? 0 : ret_nerrno(); /* the same layer twice */
	return ftruncate(fd, (off_t)d->size) < 0 ? ret_nerrno() : 0;
}

static int stand_ins(struct store *s, int dir, const struct oci_manifest *m, struct image_had *ret)
{
	struct digest chain = {{0}};
	store_layer below = 0;
	int r = 0;

	if ((mkdirat(dir, "blobs", 0700) < 0 && errno != EEXIST) ||
	    (mkdirat(dir, "blobs/sha256", 0700) < 0 && errno != EEXIST))
		return ret_nerrno();
	for (size_t i = 0; r == 0 && i < m->n; i++) {
		char ref[80];

		r = oci_chain_next(&chain, i == 0, &m->layers[i].digest);
		if (r < 0)
			break;
		oci_chain_ref(&chain, ref);
		if (!oci_chain_known(s, ref, below, &below))
			break;
		r = stand_in(dir, &m->layers[i]);
		ret->layers++;
		ret->bytes += m->layers[i].size;
	}
	return r;
}

static int look(struct store *s, struct oci_layout *l, const cJSON *o, struct image_had *ret)
{
	struct oci_manifest m;
	struct oci_descriptor d;
	bool nested;
	int r;

	if (cJSON_HasObjectItem(o, "manifests")) {
		r = oci_choose_platform(o, &d, &nested, l->diag);
		ret->choose = r == 0;
		ret->manifest = d.digest;
		return r;
	}
	r = oci_manifest_parse(o, &m, l->diag);
	if (r < 0)
		return r;
	r = s ? stand_ins(s, l->dir_fd, &m, ret) : 0;
	oci_manifest_release(&m);
	return r;
}

int image_have(struct store *s, const char *layout, struct diag *diag, struct image_had *ret)
{
	struct progress p = {0};
	struct oci_layout l = {.p = &p, .diag = diag, .dir_fd = -1};
	cleanup_buf struct buf b = {0};
	cleanup_json cJSON *o = NULL;
	int r = oci_layout_open(&l, layout);

	*ret = (struct image_had){0};
	if (r == 0 && l.dir_fd < 0)
		r = -ENOTDIR;
	if (r == 0)
		r = oci_file(&l, IMAGE_WANTED, &b);
	if (r == 0) {
		o = oci_parse(b.data ? (const void *)b.data : "", b.len, "its manifest", diag);
		r = o ? look(s, &l, o, ret) : -EBADMSG;
	}
	oci_layout_close(&l);
	return r < 0 ? diag_set(diag, r, "cannot read the image's manifest: %s", err_text(r)) : 0;
}
