/*
 * tests/unit/core/data_fixture.h - a store in a directory of its own with one open layer, for the tests of
 * content, hostbase and diff.
 */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

struct fixture {
	char dir[128]; /* holds "store" and whatever the test makes */
	struct store *s;
	store_layer layer;
	struct store_view *v;
};

static inline void fixture_path(const struct fixture *f, const char *name,
				char out[static PATH_MAX])
{
	(void)snprintf(out, PATH_MAX, "%s/%s", f->dir, name);
}

static inline void fixture_open(struct fixture *f)
{
	const char *tmp = getenv("TMPDIR");
	struct diag d = {0};
	char path[PATH_MAX];

	(void)snprintf(f->dir, sizeof f->dir, "%s/rattan-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(f->dir))
		tap_fatal("mkdtemp %s", f->dir);
	fixture_path(f, "store", path);
	if (store_open(path, STORE_CREATE, &d, &f->s) < 0)
		tap_fatal("store_open: %s", d.text);
	if (store_layer_new(f->s, 0, &f->layer) < 0 || store_view_open(f->s, f->layer, &f->v) < 0)
		tap_fatal("no layer");
}

static inline void fixture_close(struct fixture *f)
{
	store_view_close(f->v);
	store_close(f->s);
	tree_remove(f->dir);
}

/* Seal the layer and go on on a child of it; the old view is the caller's to close. */
static inline struct store_view *fixture_seal(struct fixture *f)
{
	struct store_view *old = f->v;
	store_layer child;

	if (store_layer_seal(f->s, f->layer) < 0 || store_layer_new(f->s, f->layer, &child) < 0 ||
	    store_view_open(f->s, child, &f->v) < 0)
		tap_fatal("seal");
	f->layer = child;
	return old;
}

static inline void fixture_file(const struct fixture *f, const char *name, const void *p, size_t n)
{
	char path[PATH_MAX];
	int fd;

	fixture_path(f, name, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, p, n) != (ssize_t)n || close(fd) < 0)
		tap_fatal("write %s", path);
}
