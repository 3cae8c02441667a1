/* rattan apply -p: one change after another, and of a text one hunk after another, as git add -p asks. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apply/below.h"
#include "base/io.h"
#include "cli/apply_internal.h"
#include "cli/diff_pairs.h"

enum {
	TEXT_MAX = 32 << 20,
	KEPT_FDS = 4096 /* and above: what is held of the files that were taken */
};

/* A run of lines that differ, and lines around it: old lines [old, old + nold), which become @text's "+" and " " lines. */
struct hunk {
	size_t old, nold; /* from 0 */
	const char *body; /* in the diff's output, behind its head */
	size_t len;
	bool take;
};
struct hunks {
	struct buf diff, old;
	struct hunk *v;
	size_t n, cap;
};

static void hunks_release(struct hunks *h)
{
	buf_release(&h->diff);
	buf_release(&h->old);
	free(h->v);
}

enum answer {
	YES,
	NO,
	QUIT,
	ALL,  /* this and all that follows in the file */
	NONE, /* the opposite */
	SPLIT
};

/* ---- asking ---- */

static void explain(bool hunk)
{
	printf("y - apply this\nn - leave it\nq - leave it and all that follows\n");
	if (hunk)
		printf("a - apply this hunk and the rest of the file\n"
		       "d - leave this hunk and the rest of the file\n"
		       "s - split this hunk into smaller ones\n");
	printf("? - this text\n");
}

static enum answer ask(const char *what, bool hunk, bool split)
{
	cleanup_free char *line = NULL;
	size_t room = 0;

	for (;;) {
		printf("apply this %s [y,n,q%s%s,?]? ", what, hunk ? ",a,d" : "",
		       split ? ",s" : "");
		(void)fflush(stdout);
		if (getline(&line, &room, stdin) <= 0)
			return QUIT;
		switch (line[0]) {
		case 'y':
			return YES;
		case 'n':
			return NO;
		case 'q':
			return QUIT;
		case 'a':
			if (hunk)
				return ALL;
			break;
		case 'd':
			if (hunk)
				return NONE;
			break;
		case 's':
			if (split)
				return SPLIT;
			break;
		default:
			break;
		}
		explain(hunk);
	}
}

/* ---- hunks ---- */

static struct hunk *grow(struct hunks *h, size_t at)
{
	if (h->n == h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 16;
		struct hunk *v = realloc(h->v, cap * sizeof(*v));

		if (!v)
			return NULL;
		h->v = v;
		h->cap = cap;
	}
	memmove(&h->v[at + 1], &h->v[at], (h->n - at) * sizeof(*h->v));
	h->n++;
	return &h->v[at];
}

static const char *line_end(const char *p, const char *end)
{
	const char *nl = memchr(p, '\n', (size_t)(end - p));

	return nl ? nl + 1 : end;
}

/* "@@ -a[,b] +c[,d] @@". */
static int parse(struct hunks *h)
{
	const char *p = (const char *)h->diff.data, *end = p + h->diff.len;
	struct hunk *x = NULL;

	for (const char *next; p < end; p = next) {
		unsigned long a, n = 1;
		char *e;

		next = line_end(p, end);
		if (strncmp(p, "@@ -", 4) != 0) {
			if (x)
				x->len = (size_t)(next - x->body);
			continue;
		}
		a = strtoul(p + 4, &e, 10);
		if (*e == ',')
			n = strtoul(e + 1, &e, 10);
		x = grow(h, h->n);
		if (!x)
			return -ENOMEM;
		/* Without old lines the number is that of the line before. */
		*x = (struct hunk){.old = n ? a - 1 : a, .nold = n, .body = next};
	}
	return 0;
}

/* The places where a hunk can be cut: an unchanged line between changed ones. */
static const char *cut_at(const struct hunk *x, size_t *ret_old)
{
	const char *p = x->body, *end = p + x->len;
	bool changed = false;
	size_t old = 0;

	for (const char *next; p < end; p = next) {
		next = line_end(p, end);
		if (*p == ' ' && changed) {
			for (const char *q = p; q < end; q = line_end(q, end))
				if (*q == '+' || *q == '-') {
					*ret_old = old;
					return p;
				}
			return NULL;
		}
		changed |= *p == '+' || *p == '-';
		old += *p == ' ' || *p == '-';
	}
	return NULL;
}

static int split(struct hunks *h, size_t i)
{
	size_t old;
	const char *at = cut_at(&h->v[i], &old);
	struct hunk *x = grow(h, i + 1);

	if (!x || !at)
		return -ENOMEM;
	h->v[i + 1] = (struct hunk){.old = h->v[i].old + old,
				    .nold = h->v[i].nold - old,
				    .body = at,
				    .len = h->v[i].len - (size_t)(at - h->v[i].body)};
	h->v[i].nold = old;
	h->v[i].len = (size_t)(at - h->v[i].body);
	return 0;
}

static enum answer ask_hunks(struct hunks *h, const char *path)
{
	enum answer a = NO;

	for (size_t i = 0; i < h->n; i++) {
		struct hunk *x = &h->v[i];
		size_t ignored;

		if (a == ALL || a == NONE) {
			x->take = a == ALL;
			continue;
		}
		cli_put(stdout, path);
		printf(": hunk %zu of %zu, from line %zu\n", i + 1, h->n, x->old + 1);
		cli_put_text(stdout, x->body, x->len);
		a = ask("hunk", true, cut_at(x, &ignored) != NULL);
		if (a == QUIT)
			return QUIT;
		if (a == SPLIT) {
			if (split(h, i) < 0)
				return QUIT;
			i--;
			continue;
		}
		x->take = a == YES || a == ALL;
	}
	return a;
}

/* ---- the file that comes of it ---- */

/* The new side's lines of a hunk. "\ No newline at end of file" takes the one before away. */
static int put_hunk(struct buf *out, const struct hunk *x)
{
	const char *p = x->body, *end = p + x->len;
	bool kept = false;
	int r = 0;

	for (const char *next; r == 0 && p < end; p = next) {
		next = line_end(p, end);
		if (*p == '\\' && kept && out->len && out->data[out->len - 1] == '\n')
			out->len--;
		kept = *p == ' ' || *p == '+';
		if (kept)
			r = buf_put(out, p + 1, (size_t)(next - p - 1));
	}
	return r;
}

static int merge(struct hunks *h, struct buf *out)
{
	const char *p = (const char *)h->old.data, *end = p + h->old.len;
	size_t line = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < h->n; i++) {
		const struct hunk *x = &h->v[i];

		if (!x->take)
			continue;
		for (const char *next; r == 0 && line < x->old && p < end; p = next, line++) {
			next = line_end(p, end);
			r = buf_put(out, p, (size_t)(next - p));
		}
		if (r == 0)
			r = put_hunk(out, x);
		for (size_t k = 0; k < x->nold && p < end; k++, line++)
			p = line_end(p, end);
	}
	return r == 0 && p < end ? buf_put(out, p, (size_t)(end - p)) : r;
}

static int to_memfd(const struct buf *b)
{
	cleanup_fd int fd = memfd_create("rattan-hunks", MFD_CLOEXEC);
	int r = fd < 0 ? ret_nerrno() : io_write_full(fd, b->data, b->len);

	return r < 0 ? r : steal_fd(&fd);
}

/* ---- texts, as many as one diff(1) gets ---- */

/* A changed text: both sides as they were read, which is what is asked about and, where it is taken, what comes to the host. */
struct text {
	struct apply_change *c;
	int a, b; /* -1: it is asked about as a whole */
	struct buf diff;
};

struct texts {
	struct apply_looked *l;
	bool *asked;
	int host, tree;
	struct text *v;
	size_t n,
		max; /* @max: the first is asked about at once, and the more answers there are, the more is read ahead */
	size_t next; /* of the changes */
	struct diff_room room;
};

static void texts_clear(struct texts *t)
{
	for (size_t i = 0; i < t->n; i++) {
		cleanup_fdp(&t->v[i].a);
		cleanup_fdp(&t->v[i].b);
		buf_release(&t->v[i].diff);
	}
	t->n = t->room.n = 0;
	t->room.bytes = 0;
}

static bool is_text(const struct buf *b)
{
	return !b->len || !memchr(b->data, 0, b->len);
}

static int open_text(int dir, const char *path)
{
	cleanup_buf struct buf text = {0};
	const char *name;
	cleanup_fd int at = below_parent(dir, path, &name);
	struct stat st;
	int r;

	if (at < 0)
		return at;
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ret_nerrno();
	if (!S_ISREG(st.st_mode) || st.st_size > TEXT_MAX)
		return -EFBIG;
	r = io_read_file(at, name, TEXT_MAX, &text);
	if (r == 0 && !is_text(&text))
		r = -EILSEQ;
	return r < 0 ? r : to_memfd(&text);
}

/* What cannot be read as a text is asked about as a whole. */
static int texts_add(struct texts *t, struct apply_change *c)
{
	struct text *x = &t->v[t->n++];

	*x = (struct text){.c = c, .a = -1, .b = -1};
	x->a = open_text(t->host, c->path);
	if (x->a >= 0)
		x->b = open_text(t->tree, c->path);
	if (x->a >= 0 && x->b >= 0)
		return diff_room_add(&t->room, &x->a, &x->b);
	cleanup_fdp(&x->a);
	x->a = x->b = -1;
	return 0;
}

static int add_line(void *arg, const char *text, size_t n)
{
	int r = buf_put(arg, text, n);

	return r < 0 ? r : buf_put(arg, "\n", 1);
}

/* Without a diff(1) none has hunks. */
static int compare(struct texts *t)
{
	struct diff_pairs x = {0};
	int r = t->room.n ? diff_pairs_start(&x, &t->room) : 0, e;

	for (size_t i = 0; r == 0 && i < t->n; i++) {
		enum diff_verdict v;

		if (t->v[i].a < 0)
			continue;
		r = diff_pairs_next(&x, t->v[i].a, &v);
		if (r == 0 && v == DIFF_TEXT)
			r = diff_pairs_lines(&x, add_line, &t->v[i].diff);
	}
	e = diff_pairs_end(&x);
	return r == -ENOENT ? 0 : r < 0 ? r : e;
}

static bool has_hunks(const struct apply_change *c)
{
	return c->chosen && c->kind == 'M' && c->what & APPLY_CONTENT && S_ISREG(c->mode);
}

/* The texts from the change @from on. */
static int texts_load(struct texts *t, size_t from)
{
	int r = 0;

	texts_clear(t);
	for (t->next = from;
	     r == 0 && t->next < t->l->n && t->n < t->max && !diff_room_full(&t->room, 0);
	     t->next++)
		if (has_hunks(&t->l->v[t->next]))
			r = texts_add(t, &t->l->v[t->next]);
	t->max = t->max * 4 < t->room.max ? t->max * 4 : t->room.max;
	return r < 0 ? r : compare(t);
}

/* ---- one change ---- */

/* What was asked about is what comes, whatever a command makes of the file meanwhile. */
static int choose_bytes(struct text *x, struct hunks *h, size_t taken)
{
	cleanup_buf struct buf out = {0};
	int fd, high, r = 0;

	if (taken == h->n) {
		fd = x->b;
		x->b = -1;
	} else {
		r = merge(h, &out);
		fd = r < 0 ? r : to_memfd(&out);
	}
	if (fd < 0)
		return fd;
	/* Out of the way of those that come after. */
	high = fcntl(fd, F_DUPFD_CLOEXEC, KEPT_FDS);
	if (high >= 0) {
		(void)close(fd);
		fd = high;
	}
	x->c->bytes_fd = fd;
	return 0;
}

static int read_back(int fd, struct buf *ret)
{
	struct stat st;
	ssize_t n;
	int r = fstat(fd, &st) < 0 ? ret_nerrno() : buf_reserve(ret, (size_t)st.st_size);

	if (r < 0)
		return r;
	n = io_pread_full(fd, ret->data + ret->len, (size_t)st.st_size, 0);
	if (n >= 0)
		ret->len += (size_t)n;
	return n < 0 ? (int)n : 0;
}

/* 1: it has no hunks. */
static int ask_text(struct text *x, enum answer *ret)
{
	__attribute__((cleanup(hunks_release))) struct hunks h = {0};
	size_t taken = 0;
	int r;

	if (x->a < 0 || !x->diff.len)
		return 1;
	h.diff = x->diff;
	x->diff = (struct buf){0};
	r = read_back(x->a, &h.old);
	if (r == 0)
		r = parse(&h);
	if (r < 0)
		return r;
	*ret = ask_hunks(&h, x->c->path);
	for (size_t i = 0; i < h.n; i++)
		taken += h.v[i].take;
	x->c->chosen = taken > 0;
	return taken ? choose_bytes(x, &h, taken) : 0;
}

static enum answer ask_whole(struct apply_change *c, const struct apply_seen *seen)
{
	char what[64];
	enum answer a;

	printf("%c ", c->kind);
	if (c->old) {
		cli_put(stdout, c->old);
		printf(" -> ");
	}
	cli_put(stdout, *c->path ? c->path : ".");
	printf("%s", apply_what_text(c->what, c->kind, what));
	if (seen->isdir && (c->kind == 'D' || c->kind == 'T'))
		printf(seen->below ? "  (with all that is in the directory: %llu)"
				   : "  (an empty directory)",
		       (unsigned long long)seen->below);
	printf("\n");
	a = ask("change", false, false);
	c->chosen = a == YES;
	return a;
}

static int ask_one(struct texts *t, size_t i, size_t *at, enum answer *ret)
{
	struct apply_change *c = &t->l->v[i];
	int r = 1;

	if (has_hunks(c) && i >= t->next) {
		r = texts_load(t, i);
		*at = 0;
	}
	while (*at < t->n && t->v[*at].c != c)
		++*at;
	if (r >= 0 && has_hunks(c) && *at < t->n)
		r = ask_text(&t->v[(*at)++], ret);
	if (r == 1)
		*ret = ask_whole(c, &t->l->seen[i]);
	return r < 0 ? r : 0;
}

/* ---- which are questions ---- */

static int path_order(const void *key, const void *change)
{
	return strcmp(key, ((const struct apply_change *)change)->path);
}

/* What was answered of @path itself: of what goes there, or of what comes. */
static bool is_old(const struct texts *t, const struct apply_change *c)
{
	return c->kind == 'D' || (c->kind == 'T' && t->l->seen[c - t->l->v].isdir);
}

static bool is_new(const struct apply_change *c)
{
	return c->kind == 'A' || (c->kind == 'T' && S_ISDIR(c->mode));
}

static bool answered(const struct texts *t, const char *path, bool old, bool yes)
{
	const struct apply_change *v = t->l->v, *end = v + t->l->n;
	const struct apply_change *c = bsearch(path, v, t->l->n, sizeof(*v), path_order);

	while (c && c > v && !strcmp(c[-1].path, path))
		c--;
	for (; c && c < end && !strcmp(c->path, path); c++)
		if (t->l->seen[c - v].wanted && c->chosen == yes &&
		    (old ? is_old(t, c) : is_new(c)))
			return true;
	return false;
}

/* Of a directory above @path; -ENOMEM. */
static int answered_above(const struct texts *t, const char *path, bool old, bool yes)
{
	cleanup_free char *above = strdup(path);

	if (!above)
		return -ENOMEM;
	for (char *slash; (slash = strrchr(above, '/'));) {
		*slash = '\0';
		if (answered(t, above, old, yes))
			return 1;
	}
	return 0;
}

/* It goes with a directory that was said to go, or it has no place when what was declined is left alone: *ret, and 1. 0: it is a question. */
static int settled(const struct texts *t, const struct apply_change *c, bool *ret)
{
	*ret = c->kind == 'D';
	if (c->kind == 'D')
		return answered_above(t, c->path, true, true);
	if ((c->kind == 'A' || c->kind == 'R') && answered(t, c->path, true, false))
		return 1;
	return answered_above(t, c->path, false, false);
}

static int ask_this(struct texts *t, size_t i, size_t *at, bool *quit)
{
	struct apply_change *c = &t->l->v[i];
	enum answer a = NO;
	bool yes = false;
	int r;

	r = settled(t, c, &yes);
	/* Times follow what they are of. */
	if (r == 0 && (*quit || (c->kind == 'M' && !(c->what & ~(uint32_t)APPLY_TIMES)))) {
		yes = false;
		r = 1;
	}
	if (r == 1)
		c->chosen = yes;
	if (r != 0)
		return r < 0 ? r : 0;
	*t->asked = true;
	r = ask_one(t, i, at, &a);
	*quit = a == QUIT;
	return r;
}

static int ask_each(struct texts *t)
{
	bool quit = false;
	size_t at = 0;

	for (size_t i = 0; i < t->l->n; i++) {
		int r = t->l->v[i].chosen && t->l->seen[i].verdict == APPLY_DO
				? ask_this(t, i, &at, &quit)
				: 0;

		if (r < 0)
			return cli_fail_errno(r, NULL, t->l->v[i].path);
	}
	return -1;
}

int apply_ask(struct apply_dir *d, int tree, bool *ret_asked)
{
	cleanup_fd int host = open(d->host, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct texts t = {.l = &d->look, .asked = ret_asked, .host = host, .tree = tree, .max = 1};
	int code;

	if (host < 0)
		return cli_fail(CLI_FAILED, "%s: %s", d->host, err_text(errno));
	io_most_descriptors(); /* what is taken is held until it is applied */
	diff_room_init(&t.room);
	t.v = calloc(t.room.max, sizeof(*t.v));
	if (!t.v)
		return cli_fail(CLI_FAILED, "out of memory");
	code = ask_each(&t);
	texts_clear(&t);
	free(t.v);
	return code;
}
