/*
 * cli/skopeo.h - images in registries: their names, and skopeo, the program that talks to a registry for us.
 *
 * Credentials, certificates, proxies and the policy of signatures are skopeo's (skopeo login, /etc/containers): nothing of them
 * passes through here. One thread.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct registry_name {
	char host[256]; /* with its port */
	char name[256]; /* "library/debian" */
	char ref[160];  /* ":TAG" or "@sha256:DIGEST" */
	bool local;     /* this machine: http is tried, too, as with every client of registries */
};
/* "oci:HOST/NAME[:TAG|@sha256:DIGEST]"; the tag is "latest". -EINVAL with a sentence. */
int registry_name_parse(const char *text, struct registry_name *ret, struct diag *diag) MUST_USE;

struct skopeo {
	const struct registry_name *at;
	bool insecure; /* http, or a certificate that nobody has signed */
};
/* The manifest, or index of manifests, as it is. @digest: of the one that is asked for instead of what @at says ("sha256:..."); or
 * NULL. -ENOENT no such image; -EACCES, -EHOSTUNREACH; -ENOPKG there is no skopeo; -ECANCELED a signal: a sentence each. */
int skopeo_manifest(const struct skopeo *k, const char *digest, struct buf *out,
		    struct diag *diag) MUST_USE;
/* The image into, or out of, the layout at @layout, under the tag "latest"; what is there is not copied again. */
int skopeo_pull(const struct skopeo *k, const char *layout, struct diag *diag) MUST_USE;
int skopeo_push(const struct skopeo *k, const char *layout, struct diag *diag) MUST_USE;

/* ---- a directory for a layout on its way ---- */

/* Below TMPDIR, or /var/tmp; for this user alone. What an earlier process left when it was killed is removed. Until the end, signals
 * that end a program wait. */
struct transfer {
	char *dir; /* owned */
	int fd;    /* holds its lock */
};
int transfer_begin(struct transfer *t, struct diag *diag) MUST_USE;
/* Gone; a signal that came meanwhile ends the process now, after "interrupted; SAID" (NULL: that all was done). */
void transfer_end(struct transfer *t, const char *said);
/* Has a signal come? */
bool transfer_stopped(void);
