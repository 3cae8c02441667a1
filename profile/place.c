#include "profile/place.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define LINKS_MAX 40 /* as the kernel's */

bool place_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1)
		return true;
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

/* ---- as it is written ---- */

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The path of a file URI: no host but this one, no query, no fragment. */
static int unescape(const struct field *f, const char *s, struct buf *ret)
{
	int r = 0;

	if (!strncmp(s, "//", 2)) {
		s += 2;
		if (!strncmp(s, "localhost/", 10))
			s += 9;
		if (*s != '/')
			return field_fail(f, "a file URI must name this host: file:///PATH");
	}
	for (; !r && *s; s++) {
		char c = *s;

		if (c == '?' || c == '#')
			return field_fail(f, "a file URI may not have a query or a fragment");
		if (c == '%') {
			int high = hex(s[1]), low = high < 0 ? -1 : hex(s[2]);

			if (low < 0 || (high == 0 && low == 0))
				return field_fail(f, "the URI has a bad %% escape");
			c = (char)(high * 16 + low);
			s += 2;
		}
		r = buf_put(ret, &c, 1);
	}
	return r;
}

static int add_clean(const struct field *f, const char *s, struct buf *b)
{
	int r = 0;

	while (!r) {
		size_t n;

		s += strspn(s, "/");
		n = strcspn(s, "/");
		if (!n)
			break;
		if (n == 2 && s[0] == '.' && s[1] == '.')
			return field_fail(f, "\"..\" is not allowed in a path");
		if (n > 255)
			return field_fail(f, "has a name of more than 255 bytes");
		if (n != 1 || s[0] != '.') {
			r = buf_puts(b, "/");
			if (!r)
				r = buf_put(b, s, n);
		}
		s += n;
	}
	if (!r && b->len >= PLACE_MAX)
		return field_fail(f, "is longer than %d bytes", PLACE_MAX - 1);
	return r;
}

static int finish(struct buf *b, char **ret)
{
	int r = b->len ? 0 : buf_puts(b, "/");

	return r ? r : buf_steal(b, ret, NULL);
}

int place_parse(const struct field *f, const char *text, char **ret)
{
	cleanup_buf struct buf uri = {0}, b = {0};
	int r;

	if (!strncmp(text, "file:", 5)) {
		r = unescape(f, text + 5, &uri);
		if (r < 0)
			return r;
		text = uri.len ? (const char *)uri.data : "";
	}
	if (*text != '/')
		return field_fail(f, "'%.120s' is not an absolute path", text);
	r = add_clean(f, text, &b);
	return r < 0 ? r : finish(&b, ret);
}

int place_join(const struct field *f, const char *dir, const char *path, char **ret)
{
	cleanup_buf struct buf b = {0};
	int r = strcmp(dir, "/") != 0 ? buf_puts(&b, dir) : 0;

	if (!r)
		r = add_clean(f, path, &b);
	return r < 0 ? r : finish(&b, ret);
}

/* ---- where it leads ---- */

struct walk {
	struct buf at;   /* resolved so far, without a slash at the end */
	struct buf rest; /* to do */
	int links;
	bool gone; /* a name was not there: nothing below it is looked at */
};

/* The link at @w->at, whose name begins at @from: its target goes in front of the rest. */
static int follow(struct walk *w, size_t from)
{
	cleanup_buf struct buf next = {0};
	char target[PLACE_MAX];
	ssize_t n = readlink((const char *)w->at.data, target, sizeof(target) - 1);
	int r;

	if (n <= 0)
		return n < 0 ? ret_nerrno() : -ENOENT;
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	target[n] = 0;
	r = buf_puts(&next, target);
	if (!r && w->rest.len)
		r = buf_puts(&next, (const char *)w->rest.data);
	if (r < 0)
		return r;
	buf_release(&w->rest);
	w->rest = next;
	next = (struct buf){0};
	w->at.len = target[0] == '/' ? 0 : from;
	w->at.data[w->at.len] = 0;
	return 0;
}

static void up(struct walk *w)
{
	while (w->at.len && w->at.data[--w->at.len] != '/')
		continue;
	if (w->at.data)
		w->at.data[w->at.len] = 0;
}

/* One component: 1, or 0 at the end. */
static int step(struct walk *w, int (*link)(void *arg, const char *path), void *arg)
{
	const char *s = w->rest.len ? (const char *)w->rest.data : "";
	size_t skip = strspn(s, "/"), n = strcspn(s + skip, "/"), from = w->at.len;
	cleanup_free char *name = strndup(s + skip, n);
	struct stat st;
	int r;

	if (!name)
		return -ENOMEM;
	if (!n)
		return 0;
	memmove(w->rest.data, w->rest.data + skip + n, w->rest.len - skip - n + 1);
	w->rest.len -= skip + n;
	if (!strcmp(name, "."))
		return 1;
	if (!strcmp(name, "..")) {
		up(w);
		return 1;
	}
	r = buf_printf(&w->at, "/%s", name);
	if (r < 0)
		return r;
	if (w->at.len >= PLACE_MAX)
		return -ENAMETOOLONG;
	if (w->gone)
		return 1;
	if (lstat((const char *)w->at.data, &st) < 0) {
		w->gone = true;
		return 1;
	}
	if (!S_ISLNK(st.st_mode))
		return 1;
	r = link(arg, (const char *)w->at.data);
	if (!r)
		r = follow(w, from);
	return r < 0 ? r : 1;
}

int place_resolve(const char *path, int (*link)(void *arg, const char *path), void *arg, char **ret)
{
	struct walk w = {0};
	int r = buf_puts(&w.rest, path);

	while (!r || r == 1) {
		r = step(&w, link, arg);
		if (r != 1)
			break;
	}
	if (!r && !w.at.len)
		r = buf_puts(&w.at, "/");
	if (!r)
		r = buf_steal(&w.at, ret, NULL);
	buf_release(&w.at);
	buf_release(&w.rest);
	return r;
}
