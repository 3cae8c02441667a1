/*
 * cli/bootstrap.h - what is asked of `rattan bootstrap arch`, and the archive's honesty.
 */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

/* ---- bootstrap_plan.c: the command line and the file of --config, which has the same names ---- */

struct bootstrap_plan {
	const char *
		archive; /* a path of this machine, or where a mirror has it; NULL: this machine's pacman makes the tree */
	const char *sha256; /* 64 hexadecimal digits; or */
	const char *
		signature; /* a detached one, as archive; one of the two is required, but for an archive of a mirror, which has it beside it */
	const char *
		keyring; /* of gpgv, that has made it; NULL: Arch's, of the host's package. Without an archive of gpg, of those who may have signed packages; NULL: this host's pacman's */
	const cJSON *mirrors, *packages, *directories; /* arrays that are checked; NULL: none */
	bool refresh;  /* all packages of the archive are brought up to date, too */
	cJSON *config; /* owns what the rest lends; NULL: there is none */
};
/* What the command line says is there already, and wins. @own: the settings' mirrors. -EINVAL with a sentence. */
int bootstrap_plan_load(struct bootstrap_plan *p, const char *config, const char *const *own,
			struct diag *diag) MUST_USE;
/* Of a mirror: "https://..." */
bool bootstrap_is_url(const char *archive);
void bootstrap_plan_release(struct bootstrap_plan *p);

/* ---- bootstrap_check.c ---- */

/* Is the file @path, which is p->archive or what was fetched from there, what was meant? Its SHA-256, and its signature, each where the plan names it. -EBADMSG it is not. *ret is what it was
 * then, for bootstrap_same(); *ret_fd, to read, is the caller's. */
int bootstrap_check(const struct bootstrap_plan *p, const char *path, struct diag *diag,
		    struct stat *ret, int *ret_fd) MUST_USE;
/* Is it still that file, unchanged? */
bool bootstrap_same(const char *path, const struct stat *was);
