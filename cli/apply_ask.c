/* rattan apply -p: one change after another, and of a text one hunk after another, as git add -p asks. */
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apply/below.h"
#include "base/io.h"
#include "cli/apply_internal.h"

enum {
	TEXT_MAX = 32 << 20
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

static int run_diff(int a, int b, struct buf *out)
{
	char pa[] = "/proc/self/fd/100", pb[] = "/proc/self/fd/101";
	char *argv[] = {(char[]){"diff"}, (char[]){"-u"}, (char[]){"-a"}, pa, pb, NULL};
	posix_spawn_file_actions_t act;
	int p[2], r, status;
	uint8_t piece[8192];
	ssize_t n;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return ret_nerrno();
	if (posix_spawn_file_actions_init(&act))
		r = ENOMEM;
	else {
		(void)posix_spawn_file_actions_adddup2(&act, a, 100);
		(void)posix_spawn_file_actions_adddup2(&act, b, 101);
		(void)posix_spawn_file_actions_adddup2(&act, p[1], STDOUT_FILENO);
		r = posix_spawnp(&pid, "diff", &act, NULL, argv, environ);
		(void)posix_spawn_file_actions_destroy(&act);
	}
	(void)close(p[1]);
	r = -r;
	while (r == 0 && (n = read(p[0], piece, sizeof(piece))) != 0)
		r = n < 0 ? (errno == EINTR ? 0 : ret_nerrno()) : buf_put(out, piece, (size_t)n);
	(void)close(p[0]);
	if (r < 0)
		return r;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return ret_nerrno();
	return WIFEXITED(status) && WEXITSTATUS(status) < 2 ? 0 : -EIO;
}

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

/* ---- one change ---- */

static int open_text(int dir, const char *path, struct buf *out)
{
	const char *name;
	cleanup_fd int at = below_parent(dir, path, &name);
	struct stat st;
	int fd, r;

	if (at < 0)
		return at;
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ret_nerrno();
	if (!S_ISREG(st.st_mode) || st.st_size > TEXT_MAX)
		return -EFBIG;
	r = io_read_file(at, name, TEXT_MAX, out);
	fd = r < 0 ? r : to_memfd(out);
	return fd;
}

static bool is_text(const struct buf *b)
{
	return !b->len || !memchr(b->data, 0, b->len);
}

/* -1: it has no hunks; the change is asked about as a whole. */
static int ask_text(struct apply_change *c, int host, int tree, enum answer *ret)
{
	__attribute__((cleanup(hunks_release))) struct hunks h = {0};
	cleanup_buf struct buf new = {0}, out = {0};
	cleanup_fd int a = open_text(host, c->path, &h.old), b = open_text(tree, c->path, &new);
	size_t taken = 0;
	int r;

	if (a < 0 || b < 0 || !is_text(&h.old) || !is_text(&new))
		return -1;
	r = run_diff(a, b, &h.diff);
	if (r == 0)
		r = h.diff.len ? parse(&h) : 0;
	if (r < 0 || !h.n)
		return -1;
	*ret = ask_hunks(&h, c->path);
	for (size_t i = 0; i < h.n; i++)
		taken += h.v[i].take;
	c->chosen = taken > 0;
	if (taken == 0 || taken == h.n)
		return 0;
	r = merge(&h, &out);
	if (r == 0)
		r = c->bytes_fd = to_memfd(&out);
	return r < 0 ? r : 0;
}

static enum answer ask_whole(struct apply_change *c)
{
	enum answer a;

	printf("%c ", c->kind);
	if (c->old) {
		cli_put(stdout, c->old);
		printf(" -> ");
	}
	cli_put(stdout, *c->path ? c->path : ".");
	printf("\n");
	a = ask("change", false, false);
	c->chosen = a == YES;
	return a;
}

int apply_ask(struct apply_dir *d, int tree)
{
	cleanup_fd int host = open(d->host, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool quit = false;

	if (host < 0)
		return cli_fail(CLI_FAILED, "%s: %s", d->host, err_text(errno));
	for (size_t i = 0; i < d->n; i++) {
		struct apply_change *c = &d->v[i];
		bool text = c->kind == 'M' && c->what & APPLY_CONTENT && S_ISREG(c->mode);
		enum answer a = NO;
		int r = -1;

		if (!c->chosen)
			continue;
		/* Times follow what they are of. */
		if (quit || (c->kind == 'M' && !(c->what & ~(uint32_t)APPLY_TIMES))) {
			c->chosen = false;
			continue;
		}
		if (text)
			r = ask_text(c, host, tree, &a);
		if (r == -1)
			a = ask_whole(c);
		else if (r < 0)
			return cli_fail_errno(r, NULL, c->path);
		quit = a == QUIT;
	}
	return -1;
}
