/* A tar archive, or a layer of an OCI image, into a tree: libarchive reads it. */
#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "fs/image/image_internal.h"

static void cleanup_archivep(struct archive **a)
{
	if (*a)
		(void)archive_read_free(*a);
}
#define cleanup_archive __attribute__((cleanup(cleanup_archivep)))

struct reading {
	const struct byte_source *src;
	struct archive *a;
	struct sink *k;
	struct diag *diag;
	bool layer;
	int failed; /* of the source; libarchive's own errors are about the archive */
	unsigned strip;
};

/* ---- bytes ---- */

static la_ssize_t on_read(struct archive *a, void *arg, const void **ret)
{
	struct reading *x = arg;
	ssize_t n = x->src->read(x->src->arg, ret);

	if (n >= 0)
		return n;
	x->failed = (int)n;
	archive_set_error(a, (int)-n, "%s", err_text((int)n));
	return -1;
}

static la_int64_t on_skip(struct archive *a, void *arg, la_int64_t n)
{
	struct reading *x = arg;

	(void)a;
	return x->src->skip ? x->src->skip(x->src->arg, n) : 0;
}

static int bad(struct reading *x, const char *path)
{
	const char *why = archive_error_string(x->a);

	if (x->failed)
		return diag_set(x->diag, x->failed, "cannot read the archive: %s",
				err_text(x->failed));
	if (archive_errno(x->a) == ENOMEM)
		return -ENOMEM;
	return diag_set(x->diag, -EBADMSG, "the archive is damaged%s%s: %s", path ? " at " : "",
			path ? path : "", why ? why : "it cannot be read");
}

static int begin(struct reading *x)
{
	int ok;

	x->a = archive_read_new();
	if (!x->a)
		return -ENOMEM;
	/* What needs a program of its own (lrzip, grzip, lzop) stays out. */
	ok = archive_read_support_filter_gzip(x->a) == ARCHIVE_OK &&
	     archive_read_support_filter_bzip2(x->a) == ARCHIVE_OK &&
	     archive_read_support_filter_xz(x->a) == ARCHIVE_OK &&
	     archive_read_support_filter_zstd(x->a) == ARCHIVE_OK &&
	     archive_read_support_format_tar(x->a) == ARCHIVE_OK &&
	     archive_read_support_format_empty(x->a) == ARCHIVE_OK &&
	     archive_read_set_read_callback(x->a, on_read) == ARCHIVE_OK &&
	     archive_read_set_skip_callback(x->a, on_skip) == ARCHIVE_OK &&
	     archive_read_set_callback_data(x->a, x) == ARCHIVE_OK;
	if (!ok)
		return diag_set(x->diag, -EOPNOTSUPP, "libarchive cannot read archives here: %s",
				archive_error_string(x->a));
	return archive_read_open1(x->a) == ARCHIVE_OK ? 0 : bad(x, NULL);
}

/* ---- one entry ---- */

static int copy_data(struct reading *x, store_ino ino, const char *path, uint64_t size)
{
	const void *p;
	la_int64_t off;
	size_t n;
	int r;

	for (;;) {
		int e = archive_read_data_block(x->a, &p, &n, &off);

		if (e == ARCHIVE_EOF)
			return 0;
		if (e < ARCHIVE_WARN || off < 0)
			return bad(x, path);
		if ((uint64_t)off > size || n > size - (uint64_t)off)
			return diag_set(
				x->diag, -EBADMSG,
				"the archive is damaged at %s: more bytes than its size says",
				path);
		r = n ? sink_write(x->k, ino, (uint64_t)off, p, n) : 0;
		if (r < 0)
			return r;
	}
}

static int put_acl(struct reading *x, store_ino ino, struct archive_entry *ae, int type,
		   const char *name)
{
	cleanup_buf struct buf b = {0};
	unsigned skipped = 0;
	int r = acl_from_entry(ae, type, &b, &skipped);

	while (skipped--)
		sink_skip(x->k);
	return r < 0 || !b.len ? r : sink_xattr(x->k, ino, name, b.data, b.len);
}

/* A list may come as the kernel's attribute, too, which has numbers for sure. */
static int put_xattrs(struct reading *x, store_ino ino, struct archive_entry *ae)
{
	bool access = false, dflt = false;
	const char *name;
	const void *value;
	size_t len;
	int r = 0;

	(void)archive_entry_xattr_reset(ae);
	while (r == 0 && archive_entry_xattr_next(ae, &name, &value, &len) == ARCHIVE_OK) {
		if (!name)
			continue;
		access |= !strcmp(name, ACL_ACCESS_NAME);
		dflt |= !strcmp(name, ACL_DEFAULT_NAME);
		r = sink_xattr(x->k, ino, name, value, len);
	}
	if (r == 0 && !access)
		r = put_acl(x, ino, ae, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, ACL_ACCESS_NAME);
	if (r == 0 && !dflt)
		r = put_acl(x, ino, ae, ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, ACL_DEFAULT_NAME);
	return r;
}

/* Without the slashes with which an archive may write a directory. */
static size_t trimmed(const char *path)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		n--;
	return n;
}

/* ".wh.NAME" hides NAME, ".wh..wh..opq" what is in the directory. 0: it is none. */
static int whiteout(struct reading *x, const char *entry)
{
	cleanup_buf struct buf whole = {0}, b = {0};
	const char *path, *slash, *name;
	int r = x->layer ? buf_put(&whole, entry, trimmed(entry)) : 0;

	if (r < 0 || !x->layer)
		return r;
	path = (const char *)whole.data;
	slash = strrchr(path, '/');
	name = slash ? slash + 1 : path;
	if (strncmp(name, WHITEOUT, strlen(WHITEOUT)) != 0)
		return 0;
	r = buf_put(&b, path, (size_t)(name - path));
	if (!strcmp(name, WHITEOUT_INSIDE))
		return r < 0                                                       ? r
		       : (r = sink_whiteout(x->k, (const char *)b.data, true)) < 0 ? r
										   : 1;
	/* aufs's own files: of its directory for hard links, and the like */
	if (!strncmp(name + strlen(WHITEOUT), WHITEOUT, strlen(WHITEOUT)))
		return 1;
	name += strlen(WHITEOUT);
	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return diag_set(x->diag, -EBADMSG, "the layer is damaged: %s hides nothing", path);
	if (r == 0)
		r = buf_puts(&b, name);
	if (r == 0)
		r = sink_whiteout(x->k, (const char *)b.data, false);
	return r < 0 ? r : 1;
}

static void fill(struct archive_entry *ae, struct sink_entry *e)
{
	e->st.st_mode = archive_entry_mode(ae);
	e->st.st_uid = (uid_t)archive_entry_uid(ae);
	e->st.st_gid = (gid_t)archive_entry_gid(ae);
	if (S_ISCHR(e->st.st_mode) || S_ISBLK(e->st.st_mode))
		e->st.st_rdev = makedev((unsigned)archive_entry_rdevmajor(ae),
					(unsigned)archive_entry_rdevminor(ae));
	e->st.st_mtim.tv_sec = archive_entry_mtime(ae);
	e->st.st_mtim.tv_nsec = archive_entry_mtime_nsec(ae);
	e->hardlink = archive_entry_hardlink(ae);
	e->target = e->hardlink ? NULL : archive_entry_symlink(ae);
}

static int numbers_ok(struct reading *x, struct archive_entry *ae, const char *path)
{
	int64_t uid = archive_entry_uid(ae), gid = archive_entry_gid(ae);
	long ns = archive_entry_mtime_nsec(ae);

	if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX || ns < 0 ||
	    ns > 999999999 || archive_entry_size(ae) < 0)
		return diag_set(
			x->diag, -EBADMSG,
			"the archive is damaged at %s: an owner, time or size that cannot be",
			path);
	return 0;
}

/* Behind the first @strip components; NULL: there is nothing behind them. */
static const char *stripped(const char *path, unsigned strip)
{
	while (*path == '/' || (path[0] == '.' && path[1] == '/'))
		path++;
	for (; strip && *path; strip--) {
		path += strcspn(path, "/");
		path += strspn(path, "/");
	}
	return strip ? NULL : path;
}

/* A path, and that of a hard link, behind what is stripped: 1; 0: the entry is above. ".." stays for the sink to refuse. */
static int strip_entry(const struct reading *x, struct archive_entry *ae, struct sink_entry *e)
{
	const char *path = stripped(e->path, x->strip);

	if (!path || (!*path && !S_ISDIR(archive_entry_mode(ae))))
		return 0;
	e->path = *path ? path : "./";
	if (!e->hardlink)
		return 1;
	e->hardlink = stripped(e->hardlink, x->strip);
	return e->hardlink && *e->hardlink
		       ? 1
		       : diag_set(x->diag, -EBADMSG,
				  "%s is a hard link to what is left out with --strip", path);
}

static int one_entry(struct reading *x, struct archive_entry *ae)
{
	struct sink_entry e = {.path = archive_entry_pathname(ae)};
	uint64_t size = 0;
	store_ino ino;
	int r;

	if (!e.path)
		return diag_set(x->diag, -EBADMSG,
				"the archive is damaged: an entry without a name");
	r = whiteout(x, e.path);
	if (r)
		return r < 0 ? r : 0;
	r = numbers_ok(x, ae, e.path);
	if (r < 0)
		return r;
	fill(ae, &e);
	if (x->strip && (r = strip_entry(x, ae, &e)) <= 0)
		return r;
	if (S_ISSOCK(e.st.st_mode) && !e.hardlink) {
		sink_skip(x->k);
		return 0;
	}
	r = sink_put(x->k, &e, &ino);
	if (r < 0 || !ino)
		return r;
	if (S_ISREG(e.st.st_mode)) {
		size = (uint64_t)archive_entry_size(ae);
		r = copy_data(x, ino, e.path, size);
	}
	if (r == 0)
		r = sink_attr(x->k, ino, &e, size);
	return r < 0 ? r : put_xattrs(x, ino, ae);
}

int from_tar(const struct byte_source *src, bool layer, unsigned strip, struct sink *k,
	     struct diag *diag)
{
	struct reading x = {.src = src, .k = k, .diag = diag, .layer = layer, .strip = strip};
	cleanup_archive struct archive *a = NULL;
	int r = begin(&x);

	a = x.a;
	while (r == 0) {
		struct archive_entry *ae;
		int e = archive_read_next_header(a, &ae);

		if (e == ARCHIVE_EOF)
			break;
		r = e < ARCHIVE_WARN ? bad(&x, NULL) : one_entry(&x, ae);
	}
	return r;
}
