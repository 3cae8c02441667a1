/*
 * mcp/files/packages.h - which package a program belongs to, from what the tree's package manager has written down.
 *
 * dpkg's and pacman's lists of files are read, nothing is run. A tree without either knows no packages.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Where they are written down. */
#define PACKAGES_DPKG   "/var/lib/dpkg/info"
#define PACKAGES_PACMAN "/var/lib/pacman/local"

struct owner {
	char *name, *package;
};
struct packages {
	struct owner *v; /* by name once packages_read is done */
	size_t n, cap;
};

/* All names directly in directories that end with "bin". What cannot be read is left out. */
int packages_read(int root_fd, struct packages *ret) MUST_USE;
/* The package of a program called @name, or NULL. */
const char *packages_of(const struct packages *p, const char *name);
void packages_release(struct packages *p);
