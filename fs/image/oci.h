/*
 * fs/image/oci.h - OCI image layouts: what the JSON says, and the blobs behind it.
 *
 * Everything read is a stranger's: JSON is bounded in size and depth, digests are looked at before they become names
 * of files, and a blob's bytes count only when its digest and size are what the descriptor says.
 */
#pragma once

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "fs/image/image_internal.h"
#include "store/digest.h"

#define OCI_JSON_MAX    (4u << 20)
#define OCI_LAYERS_MAX  512
#define OCI_REF_NAME    "org.opencontainers.image.ref.name"
#define OCI_INDEX       "application/vnd.oci.image.index.v1+json"
#define OCI_MANIFEST    "application/vnd.oci.image.manifest.v1+json"
#define OCI_CONFIG      "application/vnd.oci.image.config.v1+json"
#define OCI_LAYER       "application/vnd.oci.image.layer.v1.tar"
#define DOCKER_LIST     "application/vnd.docker.distribution.manifest.list.v2+json"
#define DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"

/* ---- oci_json.c: pure ---- */

struct oci_descriptor {
	char type[160];
	struct digest digest;
	uint64_t size;
};
/* -EBADMSG; -EOPNOTSUPP: of another digest than SHA-256. */
int oci_descriptor_parse(const cJSON *o, struct oci_descriptor *ret, struct diag *diag) MUST_USE;
/* Text of at most OCI_JSON_MAX bytes that is one JSON object and nothing more; NULL after a sentence. */
cJSON *oci_parse(const void *p, size_t n, const char *what, struct diag *diag);
/* The manifest of @index that is meant: by @tag, or the only one. *ret_nested: it is an index itself. */
int oci_choose(const cJSON *index, const char *tag, struct oci_descriptor *ret, bool *ret_nested,
	       struct diag *diag) MUST_USE;
/* This machine's, of an index of several platforms. */
int oci_choose_platform(const cJSON *index, struct oci_descriptor *ret, bool *ret_nested,
			struct diag *diag) MUST_USE;
struct oci_manifest {
	struct oci_descriptor config;
	struct oci_descriptor *layers;
	size_t n;
};
int oci_manifest_parse(const cJSON *o, struct oci_manifest *ret, struct diag *diag) MUST_USE;
void oci_manifest_release(struct oci_manifest *m);
/* This machine as images name it: "amd64"; "" when it has no such name. */
void oci_machine(char ret_arch[static 32], char ret_variant[static 8]);

/* ---- oci_in.c: layers that the store has ---- */

/* What a layer is: what it stands on, and its own digest, both of bytes that were verified. The digests that an image's
 * configuration gives of unpacked layers are a stranger's word, and name nothing here. */
int oci_chain_next(struct digest *chain, bool first, const struct digest *blob) MUST_USE;
void oci_chain_ref(const struct digest *chain, char ret[static 80]);
/* Is there a layer for it on top of @below (0: on nothing), of which nothing is being removed? */
bool oci_chain_known(struct store *s, const char *ref, store_layer below, store_layer *ret);

/* ---- oci_layout.c: a directory, or a tar archive of one ---- */

struct oci_layout {
	const char *path; /* lent */
	int dir_fd;       /* -1: an archive */
	struct progress *p;
	struct diag *diag;
};
int oci_layout_open(struct oci_layout *l, const char *path) MUST_USE;
void oci_layout_close(struct oci_layout *l);
/* A small file as it is. -ENOENT. */
int oci_file(struct oci_layout *l, const char *name, struct buf *out) MUST_USE;
/* A small blob, verified. */
int oci_blob(struct oci_layout *l, const struct oci_descriptor *d, struct buf *out) MUST_USE;
/* A blob as it comes; what was read counts when oci_blob_end says 0. */
struct oci_blob;
int oci_blob_begin(struct oci_layout *l, const struct oci_descriptor *d,
		   struct oci_blob **ret) MUST_USE;
struct byte_source oci_blob_bytes(struct oci_blob *b);
/* Reads what is left. -EBADMSG: it is not what the descriptor says. */
int oci_blob_end(struct oci_blob *b) MUST_USE;
void oci_blob_free(struct oci_blob *b);
