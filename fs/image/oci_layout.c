/* Files and blobs of an OCI layout: a directory, or an archive of one. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/image/oci.h"

#define PIECE (256u << 10)

struct oci_blob {
	struct oci_layout *l;
	struct oci_descriptor want; /* size UINT64_MAX: whatever it is, unverified */
	int fd;                     /* of a directory's file, or -1 */
	struct archive *a;          /* else; it stands at the entry */
	struct digest_run *run;
	uint64_t got, there; /* bytes that were read, and that the file has */
	uint8_t *buf;
};

/* ---- the layout ---- */

int oci_layout_open(struct oci_layout *l, const char *path)
{
	struct stat st;

	l->path = path;
	l->dir_fd = -1;
	if (!strcmp(path, "-"))
		return diag_set(l->diag, -EINVAL,
				"an OCI image is read more than once: give a directory or a file");
	if (stat(path, &st) < 0)
		return diag_set(l->diag, ret_nerrno(), "cannot open %s: %s", path, err_text(errno));
	if (S_ISREG(st.st_mode))
		return 0;
	if (!S_ISDIR(st.st_mode))
		return diag_set(l->diag, -EOPNOTSUPP,
				"%s is no directory and no file: an OCI image is read more than "
				"once, and not from a pipe",
				path);
	l->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return l->dir_fd < 0 ? diag_set(l->diag, ret_nerrno(), "cannot open %s: %s", path,
					err_text(errno))
			     : 0;
}

void oci_layout_close(struct oci_layout *l)
{
	cleanup_fdp(&l->dir_fd);
	l->dir_fd = -1;
}

static bool same_name(const char *in_archive, const char *name)
{
	while (in_archive[0] == '.' && in_archive[1] == '/')
		in_archive += 2;
	return !strcmp(in_archive, name);
}

/* The archive at the entry @name. */
static int find_entry(struct oci_layout *l, const char *name, struct archive **ret,
		      uint64_t *ret_size)
{
	struct archive *a = archive_read_new();
	struct archive_entry *e;
	int r = -ENOENT, k;

	if (!a)
		return -ENOMEM;
	(void)archive_read_support_filter_gzip(a);
	(void)archive_read_support_filter_xz(a);
	(void)archive_read_support_filter_zstd(a);
	(void)archive_read_support_format_tar(a);
	if (archive_read_open_filename(a, l->path, PIECE) != ARCHIVE_OK)
		r = diag_set(l->diag, -EBADMSG,
			     "%s is neither an OCI layout nor an archive of one: %s", l->path,
			     archive_error_string(a));
	while (r == -ENOENT && (k = archive_read_next_header(a, &e)) != ARCHIVE_EOF) {
		const char *path = k < ARCHIVE_WARN ? NULL : archive_entry_pathname(e);

		if (k < ARCHIVE_WARN)
			r = diag_set(l->diag, -EBADMSG, "the archive %s is damaged: %s", l->path,
				     archive_error_string(a));
		else if (path && same_name(path, name) && archive_entry_filetype(e) == AE_IFREG &&
			 !archive_entry_hardlink(e))
			r = 0;
		if (progress_stop(l->p))
			r = diag_set(l->diag, -ECANCELED, "stopped");
	}
	if (r < 0)
		(void)archive_read_free(a);
	else {
		*ret = a;
		*ret_size = (uint64_t)archive_entry_size(e);
	}
	return r;
}

static int open_file(struct oci_layout *l, const char *name, struct oci_blob *b)
{
	struct stat st;

	if (l->dir_fd < 0)
		return find_entry(l, name, &b->a, &b->there);
	b->fd = openat(l->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (b->fd < 0)
		return ret_nerrno();
	if (fstat(b->fd, &st) < 0)
		return ret_nerrno();
	b->there = (uint64_t)st.st_size;
	return S_ISREG(st.st_mode) ? 0
				   : diag_set(l->diag, -EBADMSG,
					      "the image is damaged: %s in it is no file", name);
}

/* ---- blobs ---- */

void oci_blob_free(struct oci_blob *b)
{
	if (!b)
		return;
	cleanup_fdp(&b->fd);
	if (b->a)
		(void)archive_read_free(b->a);
	digest_free(b->run);
	free(b->buf);
	free(b);
}

static int blob_new(struct oci_layout *l, const char *name, struct oci_blob **ret)
{
	struct oci_blob *b = calloc(1, sizeof(*b));
	int r = b ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	b->l = l;
	b->fd = -1;
	b->buf = malloc(PIECE);
	r = b->buf ? digest_begin(&b->run) : -ENOMEM;
	if (r == 0)
		r = open_file(l, name, b);
	if (r < 0)
		oci_blob_free(b);
	else
		*ret = b;
	return r;
}

int oci_blob_begin(struct oci_layout *l, const struct oci_descriptor *d, struct oci_blob **ret)
{
	char hex[DIGEST_LEN * 2 + 1], name[DIGEST_LEN * 2 + 32];
	int r;

	digest_hex(&d->digest, hex);
	(void)snprintf(name, sizeof(name), "blobs/sha256/%s", hex);
	r = blob_new(l, name, ret);
	if (r < 0)
		return diag_set(l->diag, r == -ENOENT ? -EBADMSG : r,
				"the image is not complete: its blob sha256:%s cannot be read: %s",
				hex, err_text(r));
	(*ret)->want = *d;
	return 0;
}

static ssize_t blob_read(void *arg, const void **ret)
{
	struct oci_blob *b = arg;
	uint64_t left = b->want.size - b->got;
	size_t want = left < PIECE ? (size_t)left : PIECE;
	ssize_t n;

	if (progress_stop(b->l->p))
		return -ECANCELED;
	if (!want)
		return 0;
	if (b->a) {
		n = archive_read_data(b->a, b->buf, want);
		if (n < 0)
			return -EBADMSG;
	} else {
		do
			n = read(b->fd, b->buf, want);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return ret_nerrno();
	}
	b->got += (uint64_t)n;
	b->l->p->done += (uint64_t)n;
	*ret = b->buf;
	if (digest_add(b->run, b->buf, (size_t)n) < 0)
		return -ENOMEM;
	return n;
}

struct byte_source oci_blob_bytes(struct oci_blob *b)
{
	return (struct byte_source){.read = blob_read, .arg = b};
}

int oci_blob_end(struct oci_blob *b)
{
	char hex[DIGEST_LEN * 2 + 1];
	struct digest is;
	const void *p;
	ssize_t n;
	int r;

	while ((n = blob_read(b, &p)) > 0)
		;
	r = n < 0 ? (int)n : digest_end(b->run, &is);
	if (r < 0)
		return r == -ECANCELED ? diag_set(b->l->diag, r, "stopped") : r;
	digest_hex(&b->want.digest, hex);
	if (b->got != b->want.size || b->there != b->want.size ||
	    memcmp(&is, &b->want.digest, sizeof(is)) != 0)
		return diag_set(
			b->l->diag, -EBADMSG,
			"the image is damaged: its blob sha256:%s has other bytes than these", hex);
	return 0;
}

/* ---- small ones, whole ---- */

static int read_all(struct oci_blob *b, struct buf *out)
{
	const void *p;
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = blob_read(b, &p)) != 0)
		r = n < 0                                 ? (int)n
		    : out->len + (size_t)n > OCI_JSON_MAX ? -EFBIG
							  : buf_put(out, p, (size_t)n);
	return r;
}

int oci_file(struct oci_layout *l, const char *name, struct buf *out)
{
	struct oci_blob *b;
	int r = blob_new(l, name, &b);

	if (r < 0)
		return r;
	b->want.size = UINT64_MAX;
	r = read_all(b, out);
	oci_blob_free(b);
	return r;
}

int oci_blob(struct oci_layout *l, const struct oci_descriptor *d, struct buf *out)
{
	struct oci_blob *b;
	int r;

	if (d->size > OCI_JSON_MAX)
		return diag_set(l->diag, -EBADMSG,
				"the image is damaged: a manifest or configuration of %llu bytes",
				(unsigned long long)d->size);
	r = oci_blob_begin(l, d, &b);
	if (r < 0)
		return r;
	r = read_all(b, out);
	if (r == 0)
		r = oci_blob_end(b);
	oci_blob_free(b);
	return r;
}
