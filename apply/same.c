#include "apply/same.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/apply.h"
#include "apply/attrs.h"
#include "apply/below.h"
#include "base/cleanup.h"
#include "base/io.h"

#define PIECE (64u << 10)

static int same_bytes(int a, int b, bool *ret)
{
	cleanup_free char *buf = malloc((size_t)2 * PIECE);
	off_t at = 0;

	if (!buf)
		return -ENOMEM;
	for (;;) {
		ssize_t n = io_pread_full(a, buf, PIECE, at);
		ssize_t m = n < 0 ? n : io_pread_full(b, buf + PIECE, PIECE, at);

		if (n < 0 || m < 0)
			return (int)(n < 0 ? n : m);
		*ret = n == m && !memcmp(buf, buf + PIECE, (size_t)n);
		if (!*ret || n == 0)
			return 0;
		at += n;
	}
}

static int same_content(const struct same_end *a, const struct same_end *b, bool *ret)
{
	char ta[4097] = "", tb[4097] = "";
	cleanup_fd int fa = -1, fb = -1;

	*ret = true;
	if (S_ISLNK(a->st.st_mode)) {
		if (readlinkat(a->dir, a->name, ta, sizeof(ta) - 1) < 0 ||
		    readlinkat(b->dir, b->name, tb, sizeof(tb) - 1) < 0)
			return ret_nerrno();
		*ret = !strcmp(ta, tb);
	}
	if (!S_ISREG(a->st.st_mode))
		return 0;
	*ret = a->st.st_size == b->st.st_size;
	if (!*ret)
		return 0;
	fa = below_read(a->dir, a->name, &a->st);
	fb = fa < 0 ? -1 : below_read(b->dir, b->name, &b->st);
	return fa < 0 ? fa : fb < 0 ? fb : same_bytes(fa, fb, ret);
}

static int attrs_of(const struct same_end *e, struct attrs *ret)
{
	cleanup_fd int fd = openat(e->dir, e->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? ret_nerrno() : attrs_get(fd, ret);
}

static bool same_xattrs(const struct attrs *a, const struct attrs *b)
{
	size_t equal = 0;

	for (size_t i = 0; i < a->nx; i++)
		for (size_t k = 0; k < b->nx; k++)
			equal += !strcmp(a->x[i].name, b->x[k].name) &&
				 a->x[i].len == b->x[k].len &&
				 !memcmp(a->x[i].value, b->x[k].value, a->x[i].len);
	return a->nx == b->nx && equal == a->nx;
}

int same(const struct same_end *host, const struct same_end *tree, uint32_t *ret)
{
	cleanup_attrs struct attrs a = {0}, b = {0};
	bool equal;
	int r = same_content(host, tree, &equal);

	if (r == 0)
		r = attrs_of(host, &a);
	if (r == 0)
		r = attrs_of(tree, &b);
	if (r < 0)
		return r;
	*ret = equal ? 0 : APPLY_CONTENT;
	if (a.mode != b.mode && !S_ISLNK(a.mode))
		*ret |= APPLY_MODE;
	if (geteuid() == 0 && (a.uid != b.uid || a.gid != b.gid))
		*ret |= APPLY_OWNER;
	if (!same_xattrs(&a, &b))
		*ret |= APPLY_XATTRS;
	if (!ident_time_same(&a.mtime, &b.mtime))
		*ret |= APPLY_TIMES;
	return 0;
}
