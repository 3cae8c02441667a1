/*
 * fs/image/touched.h - the paths that differ between two layers, as a tree: what a layer of an image tells.
 *
 * A path is in it with all directories above it. Not locked; a zeroed struct is empty and valid. Memory: the paths, once.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "store/store.h"

struct touched {
	char *name;        /* "": of the root */
	struct touched *v; /* what is below, in the order of the bytes of names */
	size_t n, cap;
};

/* @path from the root, with a slash before it or not; "" and "/": the root alone. */
int touched_add(struct touched *t, const char *path) MUST_USE;
void touched_release(struct touched *t);

/* Everything that differs from @from to @to (sealed; what diff_layers() says, of times too), and all names of each file with
 * several of which one differs: a link to a file of a layer below is nothing that every reader can make. *ret_any: there is
 * something. */
int touched_between(struct store *s, store_layer from, store_layer to, struct touched *t,
		    bool *ret_any, struct diag *diag) MUST_USE;
