/* tests/unit/image/fixture.h - a store in a directory of its own, and archives to import. */
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/core/ovl.h"
#include "fs/image/image.h"
#include "store/store.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

struct fx {
	char dir[PATH_MAX / 2];
	struct store *s;
	struct diag diag;
};

static inline const char *fx_path(struct fx *f, const char *name)
{
	static char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	return path;
}

static inline void fx_open(struct fx *f)
{
	const char *tmp = getenv("TMPDIR");

	*f = (struct fx){0};
	(void)snprintf(f->dir, sizeof(f->dir), "%s/rattan-image-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(f->dir))
		tap_fatal("mkdtemp");
	if (store_open(fx_path(f, "data"), STORE_CREATE, &f->diag, &f->s) < 0)
		tap_fatal("store_open: %s", f->diag.text);
}

static inline void fx_close(struct fx *f)
{
	store_close(f->s);
	tree_remove(f->dir);
}

/* What a tree has at @path: its mode, 0 for nothing. */
static inline mode_t fx_mode(struct fx *f, store_layer layer, const char *path,
			     struct ovl_attr *ret)
{
	struct ovl_opts oo = {.store = f->s, .layer = layer, .flags = OVL_RDONLY};
	struct ovl_entry e = {0};
	struct ovl *o;
	int r = ovl_open(&oo, &o);

	if (r < 0)
		tap_fatal("ovl_open: %s", err_text(r));
	r = ovl_walk(o, path, &e);
	if (r == 0 && ret)
		*ret = e.attr;
	if (r == 0)
		ovl_forget(o, e.ino, 1);
	(void)ovl_close(o);
	return r == 0 ? e.attr.st.st_mode : 0;
}

/* ---- an archive in a file ---- */

struct tarball {
	struct archive *a;
};

static inline void tar_begin(struct tarball *t, const char *path)
{
	t->a = archive_write_new();
	if (!t->a || archive_write_set_format_pax(t->a) != ARCHIVE_OK ||
	    archive_write_open_filename(t->a, path) != ARCHIVE_OK)
		tap_fatal("archive");
}

static inline void tar_add(struct tarball *t, const char *path, mode_t mode, const char *text,
			   const char *link)
{
	struct archive_entry *e = archive_entry_new();
	size_t n = text ? strlen(text) : 0;

	archive_entry_set_pathname(e, path);
	archive_entry_set_mode(e, mode);
	archive_entry_set_mtime(e, 1000, 5);
	archive_entry_set_size(e, S_ISREG(mode) ? (la_int64_t)n : 0);
	if (link && S_ISLNK(mode))
		archive_entry_set_symlink(e, link);
	else if (link)
		archive_entry_set_hardlink(e, link);
	if (archive_write_header(t->a, e) < ARCHIVE_WARN ||
	    (n && archive_write_data(t->a, text, n) != (la_ssize_t)n))
		tap_fatal("archive: %s", archive_error_string(t->a));
	archive_entry_free(e);
}

static inline void tar_end(struct tarball *t)
{
	if (archive_write_free(t->a) != ARCHIVE_OK)
		tap_fatal("archive");
}

static inline int fx_import(struct fx *f, const char *file, const char *name,
			    struct image_done *ret)
{
	struct image_import o = {.store = f->s, .kind = IMAGE_TAR, .name = name};
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", f->dir, file);
	o.src = path;
	f->diag = (struct diag){0};
	return image_import(&o, &f->diag, ret);
}
