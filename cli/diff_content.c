/* How two states of files differ: modes, attributes, and content, of what is there on both sides by diff(1). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/diff_internal.h"

#define CONTENT_MAX (32 << 20)

struct side {
	int fd;      /* -1: nothing there */
	bool big;    /* more than is handed out: without a descriptor */
	char *label; /* owned; NULL: /dev/null */
	uint32_t mode;
};

struct pair {
	struct side a, b;
	bool compare; /* by diff(1) */
};

static void side_release(struct side *s)
{
	cleanup_fdp(&s->fd);
	free(s->label);
	*s = (struct side){.fd = -1};
}

static const char *label(const struct side *s)
{
	return s->label ? s->label : "/dev/null";
}

static bool there(const struct side *s)
{
	return s->fd >= 0 || s->big;
}

static int load(struct ctl *ctl, const char *rev, const char *path, char letter, struct side *s)
{
	int r = ctl_cat(ctl, rev, path, NULL, &s->fd, &s->mode);

	if (r < 0)
		s->fd = -1;
	s->big = r == -EFBIG;
	if (there(s) && asprintf(&s->label, "%c%s", letter, path) < 0) {
		s->label = NULL;
		return -ENOMEM;
	}
	return r == -ENOENT || r == -EISDIR || r == -EFBIG ? 0 : r;
}

static bool readable(const struct side *s)
{
	return s->fd < 0 || S_ISREG(s->mode) || S_ISLNK(s->mode);
}

static uint64_t size_of(const struct side *s)
{
	struct stat st;

	return s->fd >= 0 && fstat(s->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static bool huge(const struct side *s)
{
	return s->big || size_of(s) > CONTENT_MAX;
}

/* ---- all of it is new, or gone ---- */

static int put_hunk_head(const struct cli_page *pg, const struct buf *content, bool added)
{
	cleanup_buf struct buf b = {0};
	const char *at = (const char *)content->data, *end = at + content->len;
	size_t lines = 0;
	int r;

	for (const char *nl; at < end; at = nl ? nl + 1 : end, lines++)
		nl = memchr(at, '\n', (size_t)(end - at));
	if (lines == 1)
		r = buf_puts(&b, added ? "@@ -0,0 +1 @@" : "@@ -1 +0,0 @@");
	else
		r = buf_printf(&b, added ? "@@ -0,0 +1,%zu @@" : "@@ -1,%zu +0,0 @@", lines);
	if (r == 0)
		diff_put_line(pg, (const char *)b.data, b.len);
	return r;
}

static int read_all(int fd, struct buf *ret)
{
	char part[65536];
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = io_read_full(fd, part, sizeof(part))) != 0)
		r = n < 0 ? (int)n : buf_put(ret, part, (size_t)n);
	return r;
}

/* As diff(1) shows it beside nothing, without starting one. */
static int put_whole(const struct cli_page *pg, const struct side *a, const struct side *b)
{
	const bool added = a->fd < 0;
	cleanup_buf struct buf content = {0}, line = {0};
	const char *at, *end;
	int r = read_all(added ? b->fd : a->fd, &content);

	if (r < 0 || !content.len)
		return r;
	at = (const char *)content.data;
	end = at + content.len;
	if (memchr(at, 0, content.len)) {
		printf("Binary files ");
		cli_put(stdout, label(a));
		printf(" and ");
		cli_put(stdout, label(b));
		printf(" differ\n");
		return 0;
	}
	r = diff_put_head(pg, "--- ", label(a));
	if (r == 0)
		r = diff_put_head(pg, "+++ ", label(b));
	if (r == 0)
		r = put_hunk_head(pg, &content, added);
	for (const char *nl; r == 0 && at < end; at = nl ? nl + 1 : end) {
		nl = memchr(at, '\n', (size_t)(end - at));
		buf_clear(&line);
		r = buf_puts(&line, added ? "+" : "-");
		if (r == 0)
			r = buf_put(&line, at, (size_t)((nl ? nl : end) - at));
		if (r == 0)
			diff_put_line(pg, (const char *)line.data, line.len);
		if (r == 0 && !nl)
			printf("\\ No newline at end of file\n");
	}
	return r;
}

/* ---- one change ---- */

/* What no content shows. The mode of what has content is told with both of its values. */
static void put_what(const struct change *c)
{
	static const struct {
		uint32_t bit;
		const char *text;
	} names[] = {{CTL_MODE, "mode"}, {CTL_OWNER, "owner"}, {CTL_XATTRS, "extended attributes"}};

	if (c->kind != 'M' && c->kind != 'R')
		return;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!(c->what & names[i].bit) || (names[i].bit == CTL_MODE && !S_ISDIR(c->mode)))
			continue;
		printf("%s of ", names[i].text);
		cli_put(stdout, c->path);
		if (names[i].bit == CTL_MODE)
			printf(": now %06o\n", c->mode);
		else
			printf(": changed\n");
	}
}

static int put_line(void *arg, const char *text, size_t n)
{
	diff_put_line(arg, text, n);
	return 0;
}

static int put_binary(const char *label_a, const char *label_b)
{
	cleanup_buf struct buf text = {0};
	int r = buf_puts(&text, "Binary files ");

	if (r == 0)
		r = diff_quote(&text, label_a);
	if (r == 0)
		r = buf_puts(&text, " and ");
	if (r == 0)
		r = diff_quote(&text, label_b);
	if (r == 0)
		r = buf_puts(&text, " differ\n");
	if (r == 0)
		(void)fwrite(text.data, 1, text.len, stdout);
	return r;
}

/* What diff(1) says of them, when they differ. */
static int put_compared(const struct cli_page *pg, const struct pair *p, struct diff_pairs *x)
{
	enum diff_verdict v;
	int r = diff_pairs_next(x, p->a.fd, &v);

	if (r < 0 || v == DIFF_SAME)
		return r;
	if (v == DIFF_BINARY)
		return put_binary(label(&p->a), label(&p->b));
	r = diff_put_head(pg, "--- ", label(&p->a));
	if (r == 0)
		r = diff_put_head(pg, "+++ ", label(&p->b));
	return r < 0 ? r : diff_pairs_lines(x, put_line, (void *)(uintptr_t)pg);
}

static int put_sides(const struct cli_page *pg, const struct pair *p, struct diff_pairs *x)
{
	const struct side *a = &p->a, *b = &p->b;

	if (!there(a) && !there(b))
		return 0;
	if (a->fd >= 0 && b->fd >= 0 && a->mode != b->mode) {
		printf("mode of ");
		cli_put(stdout, label(b) + 1);
		printf(": %06o -> %06o\n", a->mode, b->mode);
	}
	if (!readable(a) || !readable(b))
		return 0;
	if (huge(a) || huge(b)) {
		cli_put(stdout, label(a));
		printf(" and ");
		cli_put(stdout, label(b));
		printf(" differ; they are over 32 MiB and not shown\n");
		return 0;
	}
	return p->compare ? put_compared(pg, p, x) : put_whole(pg, a, b);
}

static bool has_content(const struct change *c)
{
	return !S_ISDIR(c->mode) || c->kind == 'T';
}

static bool on_both_sides(const struct change *c)
{
	return has_content(c) && c->kind != 'A' && c->kind != 'D';
}

struct revs {
	struct ctl *ctl;
	const char *a, *b;
};

static int load_sides(const struct revs *v, const struct change *c, struct pair *p)
{
	int r = 0;

	*p = (struct pair){.a = {.fd = -1}, .b = {.fd = -1}};
	if (c->kind != 'A')
		r = load(v->ctl, v->a, c->old_path ? c->old_path : c->path, 'a', &p->a);
	if (r == 0 && c->kind != 'D')
		r = load(v->ctl, v->b, c->path, 'b', &p->b);
	return r;
}

/* What is new or gone is loaded when its turn comes. */
static int put_alone(const struct cli_page *pg, const struct revs *v, const struct change *c)
{
	struct pair p;
	int r = load_sides(v, c, &p);

	if (r == 0)
		r = put_sides(pg, &p, NULL);
	side_release(&p.a);
	side_release(&p.b);
	return r;
}

/* ---- as many as one diff(1) gets ---- */

struct batch {
	const struct cli_page *pg;
	struct revs revs;
	struct pair *v;
	size_t n;
	struct diff_room room; /* for those that are compared */
	uint64_t alone;        /* bytes of the others */
};

static void batch_release(struct batch *b)
{
	for (size_t i = 0; i < b->n; i++) {
		side_release(&b->v[i].a);
		side_release(&b->v[i].b);
	}
	b->n = 0;
	b->room.n = 0;
	b->room.bytes = b->alone = 0;
}

/* *ret_full: no more after it. */
static int batch_add(struct batch *b, const struct change *c, bool *ret_full)
{
	struct pair *p = &b->v[b->n];
	int r = load_sides(&b->revs, c, p);

	b->n++;
	if (r < 0)
		return r;
	p->compare = p->a.fd >= 0 && p->b.fd >= 0 && readable(&p->a) && readable(&p->b) &&
		     !huge(&p->a) && !huge(&p->b);
	if (p->compare)
		r = diff_room_add(&b->room, &p->a.fd, &p->b.fd);
	else
		b->alone += size_of(&p->a) + size_of(&p->b);
	*ret_full = b->n == b->room.max || diff_room_full(&b->room, b->alone);
	return r;
}

/* Changes from *at on, until there are enough of those that need a diff(1); *at: behind the last one that was printed. */
static int put_batch(struct batch *b, const struct change **at, const struct change *end)
{
	const struct change *last = *at;
	struct diff_pairs x = {0};
	bool full = false;
	size_t next = 0;
	int r = 0, e;

	for (; r == 0 && !full && last < end; last++)
		if (on_both_sides(last)) {
			r = batch_add(b, last, &full);
			if (r < 0)
				*at = last;
		}
	if (r == 0 && b->room.n)
		r = diff_pairs_start(&x, &b->room);
	for (; r == 0 && *at < last && !ferror(stdout); (*at)++) {
		const struct change *c = *at;

		put_what(c);
		if (on_both_sides(c))
			r = put_sides(b->pg, &b->v[next++], &x);
		else if (has_content(c))
			r = put_alone(b->pg, &b->revs, c);
		if (r < 0)
			break;
	}
	e = diff_pairs_end(&x);
	batch_release(b);
	return r == 0 && !ferror(stdout) ? e : r;
}

int diff_put_contents(const struct cli_page *pg, struct ctl *ctl, const char *rev_a,
		      const char *rev_b, const struct change *v, size_t n,
		      const struct change **ret_at)
{
	struct batch b = {.pg = pg, .revs = {ctl, rev_a, rev_b}};
	const struct change *at = v, *end = v + n;
	int r = 0;

	diff_room_init(&b.room);
	b.v = calloc(b.room.max, sizeof(*b.v));
	if (!b.v)
		r = -ENOMEM;
	while (r == 0 && at < end && !ferror(stdout))
		r = put_batch(&b, &at, end);
	*ret_at = at < end ? at : v;
	free(b.v);
	return r;
}
