#include "mcp/files/grep.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/pattern.h"
#include "mcp/files/scout.h"
#include "mcp/files/text.h"

enum {
	BLOCK = 16 << 20, /* of files bigger than WHOLE */
	WHOLE = 64 << 20,
	SNIFF = 8192,
	SHOWN = 400,         /* bytes of a line around the match */
	TEXT_MOST = 4 << 20, /* of all rows kept */
	SPAN_MOST = 20,      /* lines of one match that spans lines */
	FIRST_READ = 64 << 10,
	SLOW_NS = 30000, /* from the cache it is a tenth of that */
	SLOW_MANY = 4,
	AHEAD_FOR = 256,  /* files, then it is looked at again */
	SCOUT_FROM = 256, /* files: to start threads takes as long as to search some */
};

void grep_release(struct grep *g)
{
	for (size_t i = 0; i < g->nfiles; i++)
		free(g->files[i].path);
	free(g->files);
	free(g->rows);
	buf_release(&g->text);
	buf_release(&g->block);
	search_free(g->search);
	scout_free(g->scout);
}

/* ---- rows ---- */

static int put_row(struct grep *g, uint64_t line, const uint8_t *p, size_t n, size_t focus,
		   bool match)
{
	size_t from = 0, off = g->text.len;
	struct grep_row row = {.line = line, .off = (uint32_t)off, .match = match};
	int r = 0;

	if (n && p[n - 1] == '\r')
		n--;
	row.gap = g->last_shown && line > g->last_shown + 1;
	if (n > SHOWN) {
		from = focus > SHOWN / 4 ? text_cut(p, n, focus - SHOWN / 4) : 0;
		if (from + SHOWN > n)
			from = text_cut(p, n, n - SHOWN);
	}
	if (from)
		r = buf_puts(&g->text, "…");
	if (r >= 0)
		r = text_put_escaped(&g->text, p + from, text_cut(p + from, n - from, SHOWN));
	if (r >= 0 && n - from > SHOWN)
		r = buf_puts(&g->text, "…");
	if (r < 0)
		return r;
	row.len = (uint32_t)(g->text.len - off);
	if (g->nrows == g->rows_cap) {
		size_t cap = g->rows_cap ? g->rows_cap * 2 : 128;
		struct grep_row *v = realloc(g->rows, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		g->rows = v;
		g->rows_cap = cap;
	}
	g->rows[g->nrows++] = row;
	g->cur->rows++;
	g->last_shown = line;
	return 0;
}

struct cursor {
	struct grep *g;
	const uint8_t *p;
	size_t n;
	uint64_t line; /* of the next line that "after" may show */
	size_t off;
	unsigned after; /* lines still to show */
};

static size_t line_end(const struct cursor *c, size_t off)
{
	const uint8_t *nl = off < c->n ? memchr(c->p + off, '\n', c->n - off) : NULL;

	return nl ? (size_t)(nl - c->p) : c->n;
}

/* The lines after the last match, up to offset @stop. */
static int put_after(struct cursor *c, size_t stop)
{
	while (c->after && c->off < stop && c->off < c->n) {
		size_t end = line_end(c, c->off);
		int r = put_row(c->g, c->line, c->p + c->off, end - c->off, 0, false);

		if (r < 0)
			return r;
		c->off = end + 1;
		c->line++;
		c->after--;
	}
	return 0;
}

static int put_before(struct cursor *c, const struct search_hit *h)
{
	size_t off = h->start;
	unsigned n = 0;

	while (n < c->g->o->before && off && off > c->off && h->line - n > 1) {
		const uint8_t *nl = off > 1 ? memrchr(c->p, '\n', off - 1) : NULL;

		off = nl ? (size_t)(nl - c->p) + 1 : 0;
		n++;
	}
	for (; n; n--) {
		size_t end = line_end(c, off);
		int r = put_row(c->g, h->line - n, c->p + off, end - off, 0, false);

		if (r < 0)
			return r;
		off = end + 1;
	}
	return 0;
}

static bool keeps(const struct grep *g)
{
	const struct grep_opts *o = g->o;
	uint64_t most = o->per_file ? o->per_file : o->offset + o->max_matches;

	if (o->mode != GREP_CONTENT || g->text.len > TEXT_MOST || g->cur->matches > most)
		return false;
	return o->by_mtime || g->stored < o->offset + o->max_matches;
}

static int on_hit(void *arg, const struct search_hit *h)
{
	struct cursor *c = arg;
	struct grep *g = c->g;
	size_t off = h->start;
	int r;

	/* what the first file kept beyond its share is not shown once there is a second */
	if (!g->o->per_file && g->nfiles == 2 && !g->cur->matches && g->stored > GREP_PER_FILE)
		g->stored = GREP_PER_FILE;
	g->cur->matches++;
	g->matches++;
	r = put_after(c, h->start);
	if (r < 0 || !keeps(g))
		return r;
	/* beyond the first screenful a file only counts when it is one of many */
	if (!g->o->per_file && g->nfiles > 1 && g->cur->matches > GREP_PER_FILE)
		return 0;
	g->stored++;
	r = put_before(c, h);
	for (unsigned i = 0; r >= 0 && off <= h->end && i < SPAN_MOST; i++) {
		size_t end = line_end(c, off);

		if (h->line + i > g->last_shown)
			r = put_row(g, h->line + i, c->p + off, end - off,
				    i || h->match < off ? 0 : h->match - off, true);
		off = end + 1;
		c->line = h->line + i + 1;
		if (end >= c->n)
			break;
	}
	c->off = off;
	c->after = g->o->after;
	return r;
}

/* ---- files ---- */

static int add_file(struct grep *g, const char *full, const struct stat *st)
{
	cleanup_buf struct buf b = {0};
	int r = files_put_path(&b, full);

	if (r < 0)
		return r;
	if (g->nfiles == g->files_cap) {
		size_t cap = g->files_cap ? g->files_cap * 2 : 32;
		struct grep_file *v = realloc(g->files, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		g->files = v;
		g->files_cap = cap;
	}
	g->cur = &g->files[g->nfiles];
	*g->cur = (struct grep_file){.first_row = g->nrows, .mtime = st->st_mtim.tv_sec};
	r = buf_steal(&b, &g->cur->path, NULL);
	if (r >= 0)
		g->nfiles++;
	return r;
}

static int search_block(struct grep *g, const uint8_t *p, size_t n, uint64_t first_line)
{
	struct cursor c = {.g = g, .p = p, .n = n};
	int r = search_run(g->search, p, n, first_line, g->o->until, on_hit, &c);

	if (r == -ERANGE) {
		g->too_hard++;
		r = 0;
	}
	return r < 0 ? r : put_after(&c, n);
}

/* A file too big for memory: blocks that end at line ends. */
static int search_big(struct grep *g, int fd)
{
	uint64_t line = 1;
	off_t off = 0;

	for (;;) {
		ssize_t n = io_pread_full(fd, g->block.data, BLOCK, off);
		const uint8_t *nl;
		size_t use;
		int r;

		if (n <= 0)
			return (int)n;
		nl = n == BLOCK ? memrchr(g->block.data, '\n', (size_t)n) : NULL;
		use = nl ? (size_t)(nl - g->block.data) + 1 : (size_t)n;
		r = search_block(g, g->block.data, use, line);
		if (r < 0)
			return r;
		if (tool_cancelled(g->fc->call))
			return -ECANCELED;
		line += text_count_lines(g->block.data, use);
		off += (off_t)use;
	}
}

static int search_text(struct grep *g, size_t n)
{
	cleanup_buf struct buf text = {0};
	enum text_encoding e = text_bom(g->block.data, n);
	int r;

	if (e == TEXT_UTF8 || e == TEXT_UTF8_BOM) {
		size_t skip = e == TEXT_UTF8_BOM ? 3 : 0;

		return search_block(g, g->block.data + skip, n - skip, 1);
	}
	r = text_to_utf8(e, g->block.data, n, &text);
	return r < 0 ? r : search_block(g, text.data, text.len, 1);
}

/* The rest of the file, when it was longer than the first read. */
static int read_rest(struct grep *g, int fd, size_t have, size_t size, size_t *ret)
{
	g->block.len = have; /* what a bigger buffer keeps */
	int r = buf_reserve(&g->block, size - have + 1);

	if (r < 0)
		return r;
	ssize_t n = io_pread_full(fd, g->block.data + have, size - have, (off_t)have);

	if (n < 0)
		return (int)n;
	*ret = have + (size_t)n;
	return 0;
}

static int64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* What is not cached is waited for, one file after the other; so where it is not, files are asked for before their turn. */
static void note_read(struct grep *g, int64_t took_ns)
{
	if (g->ahead)
		return;
	g->slow = took_ns > SLOW_NS ? g->slow + 1 : 0;
	if (g->slow < SLOW_MANY)
		return;
	g->slow = 0;
	g->ahead = AHEAD_FOR;
}

static int open_entry(int dir_fd, const char *name)
{
	return openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static void on_ahead(void *arg, int dir_fd, const char *name, unsigned char type)
{
	struct grep *g = arg;
	cleanup_fd int fd = -1;

	if ((!g->ahead && !g->scout) || type != DT_REG || g->o->glob)
		return;
	fd = open_entry(dir_fd, name);
	if (fd >= 0 && g->ahead) {
		g->ahead--;
		(void)posix_fadvise(fd, 0, FIRST_READ, POSIX_FADV_WILLNEED);
	}
	if (fd >= 0 && g->scout)
		scout_send(g->scout, dir_fd, name, steal_fd(&fd));
}

static void on_leave(void *arg, int dir_fd)
{
	struct grep *g = arg;

	if (g->scout)
		scout_leave(g->scout, dir_fd);
}

/* Is all that there is to say of the file said? Else *ret_fd may be the file. */
static bool scouted(struct grep *g, int dir_fd, const char *name, int *ret_fd)
{
	enum scout_said said;

	if (!g->scouted && g->searched >= SCOUT_FROM && !g->o->glob) {
		g->scouted = true;
		if (scout_new(g->o->pattern, g->o->flags, g->o->until, &g->scout) < 0)
			g->scout = NULL; /* one thread does, too */
	}
	*ret_fd = -1;
	said = g->scout ? scout_ask(g->scout, dir_fd, name, ret_fd) : SCOUT_UNKNOWN;
	g->searched += said == SCOUT_NOTHING;
	g->binary += said == SCOUT_BINARY;
	return said == SCOUT_NOTHING || said == SCOUT_BINARY;
}

/* All of a small file with one call: it is not asked once more for its end. */
static ssize_t read_first(struct grep *g, int fd, off_t size)
{
	int64_t began = now_ns();
	ssize_t n, more;

	do
		n = pread(fd, g->block.data, FIRST_READ, 0);
	while (n < 0 && errno == EINTR);
	note_read(g, now_ns() - began);
	if (n < 0)
		return ret_nerrno();
	if (n == FIRST_READ || (size && n >= size))
		return n;
	more = io_pread_full(fd, g->block.data + n, FIRST_READ - (size_t)n, n);
	return more < 0 ? more : n + more;
}

static int search_fd(struct grep *g, int fd, const struct stat *st, const char *full)
{
	size_t size = (size_t)st->st_size, have;
	ssize_t n = read_first(g, fd, st->st_size);
	int r = 0;

	if (n < 0)
		return (int)n;
	have = (size_t)n;
	g->searched++;
	if (text_bom(g->block.data, have) < TEXT_UTF16LE &&
	    memchr(g->block.data, 0, have < SNIFF ? have : SNIFF)) {
		g->searched--;
		g->binary++;
		return 0;
	}
	if (have == FIRST_READ && size > FIRST_READ)
		r = read_rest(g, fd, have, size > WHOLE ? BLOCK : size, &have);
	if (r >= 0)
		r = add_file(g, full, st);
	if (r < 0)
		return r;
	g->last_shown = 0;
	r = size > WHOLE ? search_big(g, fd) : search_text(g, have);
	if (!g->cur->matches) {
		g->nfiles--;
		free(g->cur->path);
		g->cur->path = NULL;
	}
	return r;
}

/* What a search has to know. Not the time of access: the first read of a file voids that in the kernel, and to ask for it
 * would be a message a file. */
static int look_at(int fd, struct stat *ret)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE | STATX_MTIME, &sx) < 0)
		return -1;
	*ret = (struct stat){
		.st_mode = sx.stx_mode,
		.st_size = (off_t)sx.stx_size,
		.st_mtim.tv_sec = sx.stx_mtime.tv_sec,
	};
	return 0;
}

/* Takes @opened, which is the file, or -1. */
static int search_entry(struct grep *g, int dir_fd, const char *name, int opened, const char *full)
{
	cleanup_fd int fd = opened >= 0 ? opened : open_entry(dir_fd, name);
	struct stat st;

	if (fd < 0 || look_at(fd, &st) < 0) {
		if (errno == ESTALE || errno == ENOTCONN)
			return ret_nerrno();
		g->counts.unreadable++;
		return 0;
	}
	return S_ISREG(st.st_mode) ? search_fd(g, fd, &st, full) : 0;
}

static int on_entry(void *arg, const struct walk_entry *e)
{
	struct grep *g = arg;
	int fd, r;

	if (e->type != DT_REG || e->ignored || (g->o->glob && !pattern_filter(g->o->glob, e->path)))
		return WALK_ON;
	r = scouted(g, e->dir_fd, e->name, &fd) ? 0
						: search_entry(g, e->dir_fd, e->name, fd, e->full);
	if (r == -ETIMEDOUT || (g->searched % 64 == 0 && io_now_ms() > g->o->until)) {
		g->timed_out = true;
		return WALK_STOP;
	}
	if (r < 0)
		return r;
	return tool_cancelled(g->fc->call) ? -ECANCELED : WALK_ON;
}

static int search_named(struct grep *g, int fd, const struct stat *st, const char *path)
{
	int r = search_fd(g, fd, st, path);

	if (r == -ETIMEDOUT) {
		g->timed_out = true;
		r = 0;
	}
	return r;
}

int grep_search(struct grep *g, const char *path)
{
	struct walk_opts wo = {
		.ignore = g->o->ignore,
		.hidden = g->o->hidden,
		.fn = on_entry,
		.ahead = on_ahead,
		.leave = on_leave,
		.arg = g,
	};
	cleanup_fd int fd = -1;
	struct stat st;
	int r = buf_reserve(&g->block, FIRST_READ);

	if (r < 0)
		return r;
	r = files_open_read(g->fc, path, &fd, &st);
	if (r == -EISDIR) {
		r = walk_tree(g->fc->at.root_fd, path, &wo, &g->counts);
		return r < 0 ? r : 0;
	}
	return r < 0 ? r : search_named(g, fd, &st, path);
}
