/*
 * fs/image/oci_steps.h - the history of a state as the layers of an image.
 *
 * One for each commit and each layer of a base, from the base on; what was sealed by itself (checkpoints) belongs to the
 * commit that follows. A step that changes nothing is a line of the history without a layer.
 */
#pragma once

#include "fs/image/oci.h"
#include "fs/image/touched.h"

/* What a line of the history says of a commit made it, before the commit's id. */
#define OCI_BY_COMMIT "rattan commit "

struct oci_step {
	store_layer from, to; /* @from 0: nothing stands below */
	bool base;            /* of the base; else of a commit */
	bool named;           /* @commit says what it is */
	struct store_commit commit;
	bool empty;
	struct oci_descriptor blob; /* of the layer as it is kept; not of an empty one */
	struct digest diff;         /* of the layer unpacked */
};
struct oci_steps {
	struct oci_step *v;
	size_t n;
};
/* @squash: one, of all. The last ends at @layer. -E2BIG: more than images can have. */
int oci_steps_find(struct store *s, store_layer layer, bool squash, struct oci_steps *ret,
		   struct diag *diag) MUST_USE;
void oci_steps_release(struct oci_steps *x);
/* "rootfs" and "history" into the image's configuration @config; @was: the history of the base's image, or NULL. */
int oci_steps_tell(const struct oci_steps *x, const cJSON *was, cJSON *config) MUST_USE;
