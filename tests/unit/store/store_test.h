/*
 * tests/unit/store/store_test.h - a store in a directory of its own, removed at the end.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

/* A fresh directory; its name is kept in @path. */
static inline void make_dir(char path[static 64])
{
	const char *tmp = getenv("TMPDIR");

	if (!tmp || strlen(tmp) > 32)
		tmp = "/tmp";
	(void)snprintf(path, 64, "%s/rattan-store-XXXXXX", tmp);
	if (!mkdtemp(path))
		tap_fatal("mkdtemp: %m");
}

static inline struct store *open_store(const char *dir)
{
	struct store *s = NULL;
	struct diag d = {0};
	int r = store_open(dir, STORE_CREATE, &d, &s);

	if (r < 0)
		tap_fatal("store_open: %d %s", r, d.text);
	return s;
}

static inline struct rec_inode file_rec(uint64_t size)
{
	return (struct rec_inode){.mode = S_IFREG | 0644, .nlink = 1, .size = size};
}

static inline void name_set(struct store_batch *b, store_ino parent, const char *name,
			    store_ino ino)
{
	struct rec_name n = {ino, S_IFREG};

	if (store_batch_name(b, parent, name, strlen(name), &n) < 0)
		tap_fatal("store_batch_name");
}

/* The inode behind a name; 0 a tombstone, -1 when there is none in sight. */
static inline long long name_at(struct store *s, store_layer layer, store_ino parent,
				const char *name)
{
	struct store_view *v;
	struct rec_name n;
	int r = store_view_open(s, layer, &v);

	if (r < 0)
		return -2;
	r = store_view_name(v, parent, name, strlen(name), &n);
	store_view_close(v);
	return r == 0 ? (long long)n.ino : r == -ENOENT ? -1 : -2;
}

/* A commit whose id is the digest of @label. */
static inline struct store_commit commit_of(const char *label)
{
	struct store_commit c = {.kind = STORE_COMMIT, .time = {1000, 5}};

	(void)snprintf(c.label, sizeof(c.label), "%s", label);
	if (digest_of(label, strlen(label), &c.id) < 0)
		tap_fatal("digest_of");
	return c;
}
