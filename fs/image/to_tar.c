/* A tree as a tar archive. */
#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "fs/core/ovl.h"
#include "fs/image/image_internal.h"

#define ZEROS (256u << 10)

struct writing {
	const struct byte_sink *out;
	struct archive *a;
	struct archive_entry *e;
	struct progress *p;
	struct diag *diag;
	struct image_out *done;
	bool sparse, layer;
	uint64_t at; /* of the file's bytes that were written */
	uint8_t *zeros;
	int failed; /* of the sink */
};

static la_ssize_t on_write(struct archive *a, void *arg, const void *p, size_t n)
{
	struct writing *w = arg;
	int r = w->out->write(w->out->arg, p, n);

	if (r == 0)
		return (la_ssize_t)n;
	w->failed = r;
	archive_set_error(a, -r, "%s", err_text(r));
	return -1;
}

static int bad(struct writing *w, const char *path)
{
	if (w->failed)
		return diag_set(w->diag, w->failed, "cannot write the archive: %s",
				err_text(w->failed));
	return diag_set(w->diag, -EIO, "cannot write %s into the archive: %s", path,
			archive_error_string(w->a));
}

/* ---- the head of an entry ---- */

static int put_xattr(void *arg, const char *name, const void *value, size_t len)
{
	struct writing *w = arg;

	if (!strcmp(name, ACL_ACCESS_NAME))
		return acl_to_entry(w->e, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, value, len);
	if (!strcmp(name, ACL_DEFAULT_NAME))
		return acl_to_entry(w->e, ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, value, len);
	archive_entry_xattr_add_entry(w->e, name, value, len);
	return 0;
}

/* Where its bytes are, of a file with holes. */
static int put_ranges(struct writing *w, struct ovl *o, const struct tree_entry *t)
{
	int64_t size = t->st->st_size, at = 0, data, hole;

	while (at < size) {
		data = ovl_lseek(o, t->ino, at, SEEK_DATA);
		if (data == -ENXIO)
			break;
		hole = data < 0 ? data : ovl_lseek(o, t->ino, data, SEEK_HOLE);
		if (hole < 0)
			return (int)hole;
		if (hole > size)
			hole = size;
		if (data == 0 && hole == size)
			return 0; /* none */
		archive_entry_sparse_add_entry(w->e, data, hole - data);
		at = hole;
	}
	/* Nothing but a hole. */
	if (size && archive_entry_sparse_count(w->e) == 0)
		archive_entry_sparse_add_entry(w->e, size, 0);
	return 0;
}

/* libarchive (3.6) tells a file with holes under the name that fits an old header: a name that does not would be lost. */
static bool name_plain(const char *path)
{
	size_t n = 0;

	while ((signed char)path[n] > 0)
		n++;
	return !path[n] && n < 100;
}

static void put_stat(struct writing *w, const struct tree_entry *t)
{
	const struct stat *st = t->st;

	archive_entry_clear(w->e);
	archive_entry_set_pathname(w->e, *t->path ? t->path : "./");
	archive_entry_set_mode(w->e, st->st_mode);
	archive_entry_set_uid(w->e, st->st_uid);
	archive_entry_set_gid(w->e, st->st_gid);
	archive_entry_set_mtime(w->e, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	archive_entry_set_size(w->e, S_ISREG(st->st_mode) && !t->link ? st->st_size : 0);
	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) {
		archive_entry_set_rdevmajor(w->e, major(st->st_rdev));
		archive_entry_set_rdevminor(w->e, minor(st->st_rdev));
	}
	if (t->link)
		archive_entry_set_hardlink(w->e, t->link);
	else if (t->target)
		archive_entry_set_symlink(w->e, t->target);
}

/* ---- its bytes ---- */

static int write_bytes(struct writing *w, const void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		la_ssize_t k = archive_write_data(w->a, (const uint8_t *)p + at, n - at);

		if (k <= 0)
			return bad(w, archive_entry_pathname(w->e));
		at += (size_t)k;
	}
	w->at += n;
	w->done->bytes += n;
	return 0;
}

static int fill_to(struct writing *w, uint64_t off)
{
	int r = 0;

	while (r == 0 && w->at < off) {
		uint64_t n = off - w->at;

		r = write_bytes(w, w->zeros, n < ZEROS ? (size_t)n : ZEROS);
		if (r == 0 && progress_stop(w->p))
			r = -ECANCELED;
	}
	return r;
}

static int put_data(void *arg, uint64_t off, const void *p, size_t n)
{
	struct writing *w = arg;
	int r = fill_to(w, off);

	return r < 0 ? r : write_bytes(w, p, n);
}

static int header(struct writing *w, const char *path)
{
	return archive_write_header(w->a, w->e) < ARCHIVE_WARN ? bad(w, path) : 0;
}

static int enter(void *arg, struct ovl *o, const struct tree_entry *t)
{
	struct writing *w = arg;
	bool data = S_ISREG(t->st->st_mode) && !t->link;
	int r = 0;

	if (S_ISSOCK(t->st->st_mode)) { /* an archive has no kind for it */
		w->done->skipped++;
		return 0;
	}
	if (w->layer && !strncmp(t->name, WHITEOUT, strlen(WHITEOUT)))
		return diag_set(w->diag, -EOPNOTSUPP,
				"/%s cannot be in an OCI image: there a name that begins with "
				".wh. hides another one",
				t->path);
	put_stat(w, t);
	if (!t->link)
		r = tree_xattrs(o, t->ino, put_xattr, w);
	if (r == 0 && data && w->sparse && name_plain(t->path))
		r = put_ranges(w, o, t);
	if (r == 0)
		r = header(w, t->path);
	w->at = 0;
	w->done->entries++;
	if (r == 0 && data) {
		r = tree_data(o, t, w->p, put_data, w);
		if (r == 0)
			r = fill_to(w, (uint64_t)t->st->st_size);
	}
	return r < 0 ? diag_set(w->diag, r, "cannot export %s: %s", t->path, err_text(r)) : 0;
}

/* A whiteout: an empty file whose name says what is hidden. */
static int hides(void *arg, const char *path, bool inside)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	cleanup_buf struct buf b = {0};
	struct writing *w = arg;
	int r = inside ? buf_puts(&b, path) : buf_put(&b, path, (size_t)(name - path));

	if (r == 0)
		r = buf_puts(&b, inside ? "/" WHITEOUT_INSIDE : WHITEOUT);
	if (r == 0 && !inside)
		r = buf_puts(&b, name);
	if (r < 0)
		return r;
	archive_entry_clear(w->e);
	archive_entry_set_pathname(w->e, (const char *)b.data);
	archive_entry_set_mode(w->e, S_IFREG | 0600);
	archive_entry_set_mtime(w->e, 0, 0);
	archive_entry_set_size(w->e, 0);
	return header(w, path);
}

static int begin(struct writing *w)
{
	w->a = archive_write_new();
	w->e = archive_entry_new();
	w->zeros = calloc(1, ZEROS);
	if (!w->a || !w->e || !w->zeros)
		return -ENOMEM;
	if (archive_write_set_format_pax(w->a) != ARCHIVE_OK ||
	    archive_write_set_format_option(w->a, "pax", "xattrheader", "SCHILY") != ARCHIVE_OK ||
	    archive_write_add_filter_none(w->a) != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(w->a, 10240) != ARCHIVE_OK ||
	    archive_write_open(w->a, w, NULL, on_write, NULL) != ARCHIVE_OK)
		return bad(w, "anything");
	return 0;
}

static int write_tree(struct writing *w, struct store *s, store_layer layer,
		      const struct tree_part *part)
{
	struct tree_visit v = {.enter = enter, .hides = hides, .arg = w, .p = w->p, .part = part};
	int r = begin(w);

	if (r == 0)
		r = tree_walk(s, layer, &v, w->diag);
	if (r == 0 && archive_write_close(w->a) != ARCHIVE_OK)
		r = bad(w, "the end");
	if (r < 0 && w->a)
		(void)archive_write_fail(w->a);
	archive_entry_free(w->e);
	if (w->a)
		(void)archive_write_free(w->a);
	free(w->zeros);
	return r;
}

int to_tar(const struct image_export *o, const struct byte_sink *out, struct progress *p,
	   struct diag *diag, struct image_out *ret)
{
	struct writing w = {.out = out, .p = p, .diag = diag, .done = ret, .sparse = true};

	return write_tree(&w, o->store, o->layer, NULL);
}

int to_layer_tar(struct store *s, store_layer to, const struct tree_part *part,
		 const struct byte_sink *out, struct progress *p, struct diag *diag,
		 struct image_out *ret)
{
	struct writing w = {.out = out, .p = p, .diag = diag, .done = ret, .layer = true};

	return write_tree(&w, s, to, part);
}

/* ---- packing ---- */

struct packer {
	struct archive *a; /* NULL: as it is */
	struct byte_sink out;
	int failed;
};

static la_ssize_t on_packed(struct archive *a, void *arg, const void *p, size_t n)
{
	struct packer *k = arg;
	int r = k->out.write(k->out.arg, p, n);

	(void)a;
	k->failed = r;
	return r < 0 ? -1 : (la_ssize_t)n;
}

/* One file of no format, through a filter: the time of packing is not in it. */
static bool packer_begin(struct packer *k, enum image_pack pack)
{
	struct archive_entry *e = archive_entry_new();
	bool ok = e && archive_write_set_format_raw(k->a) == ARCHIVE_OK;

	if (ok && pack == IMAGE_GZIP)
		ok = archive_write_add_filter_gzip(k->a) == ARCHIVE_OK &&
		     archive_write_set_filter_option(k->a, "gzip", "timestamp", NULL) == ARCHIVE_OK;
	else if (ok)
		ok = archive_write_add_filter_zstd(k->a) == ARCHIVE_OK;
	ok = ok && archive_write_set_bytes_in_last_block(k->a, 1) == ARCHIVE_OK &&
	     archive_write_open(k->a, k, NULL, on_packed, NULL) == ARCHIVE_OK;
	if (ok) {
		archive_entry_set_pathname(e, "data");
		archive_entry_set_filetype(e, AE_IFREG);
		ok = archive_write_header(k->a, e) == ARCHIVE_OK;
	}
	archive_entry_free(e);
	return ok;
}

int packer_open(enum image_pack pack, const struct byte_sink *out, struct packer **ret)
{
	struct packer *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->out = *out;
	*ret = k;
	if (pack == IMAGE_PLAIN)
		return 0;
	k->a = archive_write_new();
	if (k->a && packer_begin(k, pack))
		return 0;
	(void)!packer_close(k);
	*ret = NULL;
	return -EOPNOTSUPP;
}

int packer_write(struct packer *k, const void *data, size_t n)
{
	if (!k->a)
		return k->out.write(k->out.arg, data, n);
	for (size_t at = 0; at < n;) {
		la_ssize_t w = archive_write_data(k->a, (const uint8_t *)data + at, n - at);

		if (w <= 0)
			return k->failed ? k->failed : -EIO;
		at += (size_t)w;
	}
	return 0;
}

int packer_close(struct packer *k)
{
	int r = 0;

	if (!k)
		return 0;
	if (k->a) {
		if (archive_write_close(k->a) != ARCHIVE_OK)
			r = k->failed ? k->failed : -EIO;
		(void)archive_write_free(k->a);
	}
	free(k);
	return r;
}
