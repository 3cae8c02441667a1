/* An export from its beginning to its end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/image/image_internal.h"
#include "fs/image/staged.h"

int image_pack_parse(const char *s, enum image_pack *ret)
{
	static const char *const names[] = {
		[IMAGE_GZIP] = "gzip", [IMAGE_ZSTD] = "zstd", [IMAGE_PLAIN] = "none"};

	for (int i = IMAGE_GZIP; i <= IMAGE_PLAIN; i++)
		if (!strcmp(s, names[i])) {
			*ret = (enum image_pack)i;
			return 0;
		}
	return -EINVAL;
}

/* ---- a tar archive in a file, or on standard output ---- */

static int write_fd(void *arg, const void *p, size_t n)
{
	return io_write_full(*(const int *)arg, p, n);
}

static int write_packed(void *arg, const void *p, size_t n)
{
	return packer_write(arg, p, n);
}

static int tar_into(const struct image_export *o, int fd, struct progress *p, struct diag *diag,
		    struct image_out *ret)
{
	const struct byte_sink out = {write_fd, &fd};
	struct packer *k = NULL;
	int r = packer_open(o->pack_given ? o->pack : IMAGE_PLAIN, &out, &k), e;

	if (r < 0)
		return r;
	r = to_tar(o, &(struct byte_sink){write_packed, k}, p, diag, ret);
	e = packer_close(k);
	return r < 0 ? r : e;
}

static int tar_file(const struct image_export *o, struct progress *p, struct diag *diag,
		    struct image_out *ret)
{
	struct staged s;
	int r = staged_file(&s, o->dest, diag);

	return r < 0 ? r : staged_end(&s, tar_into(o, s.fd, p, diag, ret), diag);
}

static int tar(const struct image_export *o, struct progress *p, struct diag *diag,
	       struct image_out *ret)
{
	return strcmp(o->dest, "-") ? tar_file(o, p, diag, ret)
				    : tar_into(o, STDOUT_FILENO, p, diag, ret);
}

int image_export(const struct image_export *o, struct diag *diag, struct image_out *ret)
{
	struct progress p = {.watch = &o->watch};
	struct tree_counts n;
	int fd = -1, r;

	*ret = (struct image_out){0};
	/* It stays while it is read. */
	r = store_layer_pin(o->store, o->layer, &fd);
	if (r < 0)
		return diag_set(diag, r, "cannot keep the tree from being collected: %s",
				err_text(r));
	r = tree_count(o->store, o->layer, o->host, &p, diag, &n);
	p.total = n.bytes;
	if (r == 0)
		r = o->kind == IMAGE_DIR   ? to_dir(o, &p, diag, ret)
		    : o->kind == IMAGE_TAR ? tar(o, &p, diag, ret)
					   : to_oci(o, &p, diag, ret);
	(void)close(fd);
	return r < 0 ? diag_set(diag, r, "cannot export to %s: %s", o->dest, err_text(r)) : 0;
}
