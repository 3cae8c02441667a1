/*
 * client/pacman.h - what a client may ask of pacman, the package manager of Arch: arguments, packages, mirrors.
 *
 * Pure. Everything that is not known to be harmless is refused: pacman accepts any beginning of a long option, so only whole
 * ones on the list count. Errors: -EINVAL and a sentence that says what to do.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

#define PACMAN_ARGS_MAX     512
#define PACMAN_PACKAGES_MAX 256
#define PACMAN_PATH         "/usr/bin/pacman"

/* Of a query: one that reads the databases of packages and changes nothing, without a network. */
int pacman_check_query(const char *const *args, size_t n, struct diag *diag) MUST_USE;

/* "name", "repo/name", "name>=1.2": never an option, a path or an address. */
int pacman_check_package(const char *name, struct diag *diag) MUST_USE;

struct pacman_mirror {
	char server[1024]; /* for "Server = ", with $repo and $arch */
	char host[256];
	bool local; /* loopback: of an origin that is on @own */
};
/* "https://HOST[:PORT]/PATH", without or with "/$repo/os/$arch" at its end. HOST is Arch's own, one of its well-known mirrors, or
 * @own (NULL-terminated, or NULL; the person's settings) has exactly its origin "https://HOST[:PORT]", or "http:" for one on this machine. */
int pacman_check_mirror(const char *url, const char *const *own, struct pacman_mirror *ret,
			struct diag *diag) MUST_USE;
/* The mirrors of a mirror list that are allowed, one after the other; others are passed over. @fn nonzero stops. */
int pacman_mirrors(const char *list, size_t len, const char *const *own,
		   int (*fn)(void *arg, const struct pacman_mirror *m), void *arg) MUST_USE;
