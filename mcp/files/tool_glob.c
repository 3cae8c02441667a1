/* rattan_glob: names of files that match a pattern, newest first. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/call.h"
#include "mcp/files/files.h"
#include "mcp/files/pattern.h"
#include "mcp/files/walk.h"

enum {
	FOUND_MOST = 100000,
	DEADLINE_MS = 30000,
	ANSWER_MOST = 64 << 10
};

struct found {
	char *path;
	struct timespec mtime;
	bool dir;
};

struct globber {
	struct files_call *fc;
	const char *pattern, *exclude;
	bool by_mtime, partial;
	struct found *v;
	size_t n, cap;
	uint64_t looked;
	long long until;
};

static int add(struct globber *g, const struct walk_entry *e)
{
	struct found f = {.dir = e->type == DT_DIR};
	struct stat st;

	if (g->by_mtime && !fstatat(e->dir_fd, e->name, &st, AT_SYMLINK_NOFOLLOW))
		f.mtime = st.st_mtim;
	if (g->n == g->cap) {
		size_t cap = g->cap ? g->cap * 2 : 64;
		struct found *v = realloc(g->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		g->v = v;
		g->cap = cap;
	}
	f.path = strdup(e->full);
	if (!f.path)
		return -ENOMEM;
	g->v[g->n++] = f;
	return 0;
}

static int on_entry(void *arg, const struct walk_entry *e)
{
	struct globber *g = arg;
	int r = 0;

	if (g->exclude && pattern_filter(g->exclude, e->path))
		return WALK_SKIP;
	if (!e->ignored && pattern_match_anywhere(g->pattern, e->path))
		r = add(g, e);
	if (r < 0)
		return r;
	if (g->n >= FOUND_MOST || (++g->looked % 256 == 0 && io_now_ms() > g->until)) {
		g->partial = true;
		return WALK_STOP;
	}
	return tool_cancelled(g->fc->call) ? -ECANCELED : WALK_ON;
}

static int newest_first(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->mtime.tv_sec != y->mtime.tv_sec)
		return x->mtime.tv_sec < y->mtime.tv_sec ? 1 : -1;
	if (x->mtime.tv_nsec != y->mtime.tv_nsec)
		return x->mtime.tv_nsec < y->mtime.tv_nsec ? 1 : -1;
	return strcmp(x->path, y->path);
}

static int put_found(struct globber *g, const char *path, uint64_t limit)
{
	struct buf *b = &g->fc->out->text;
	uint64_t shown = 0;
	int r = buf_printf(b, "%zu match%s for %s in ", g->n, g->n == 1 ? "" : "es", g->pattern);

	if (r >= 0)
		r = files_put_path(b, path);
	if (r >= 0)
		r = buf_printf(b, "%s (looked at %llu names)\n", g->partial ? ", not complete" : "",
			       (unsigned long long)g->looked);
	if (g->by_mtime && g->n)
		qsort(g->v, g->n, sizeof(*g->v), newest_first);
	for (; r >= 0 && shown < g->n && shown < limit && b->len < ANSWER_MOST; shown++) {
		r = files_put_path(b, g->v[shown].path);
		if (r >= 0)
			r = buf_puts(b, g->v[shown].dir ? "/\n" : "\n");
	}
	files_meta_num(g->fc, "matches", g->n);
	files_meta_num(g->fc, "shown", shown);
	if (r >= 0 && shown < g->n)
		r = buf_printf(b, "[%zu more; raise limit or narrow the pattern]\n",
			       g->n - (size_t)shown);
	return r;
}

/* An absolute pattern names its own start: the directories before the first wildcard. */
static const char *split_absolute(const char *pattern, char **ret_dir)
{
	size_t wild = strcspn(pattern, "*?[{\\"), slash = wild;

	while (slash && pattern[slash - (pattern[slash] != '/')] != '/')
		slash--;
	if (slash && pattern[slash] != '/')
		slash--;
	*ret_dir = strndup(pattern, slash ? slash : 1);
	return pattern + slash + 1;
}

static int search(struct files_call *fc, struct globber *g, const char *raw, bool ignore,
		  uint64_t limit)
{
	cleanup_free char *dir = NULL, *path = NULL;
	struct walk_opts wo = {.ignore = ignore, .hidden = true, .fn = on_entry, .arg = g};
	struct walk_counts counts = {0};
	int r;

	if (g->pattern[0] == '/') {
		g->pattern = split_absolute(g->pattern, &dir);
		if (!dir)
			return -ENOMEM;
		raw = dir;
	}
	r = files_path(fc, raw, &path);
	if (r <= 0)
		return r;
	r = walk_tree(fc->at.root_fd, path, &wo, &counts);
	g->partial |= counts.too_deep > 0;
	if (r >= 0)
		r = put_found(g, path, limit);
	return r < 0 && r != -ECANCELED ? files_fail(fc, path, r, false) : r;
}

static int body(struct files_call *fc)
{
	struct globber g = {.fc = fc, .by_mtime = true, .until = io_now_ms() + DEADLINE_MS};
	const char *raw = NULL, *sort = NULL;
	int64_t limit = 200;
	bool ignore = true;
	int r = arg_str(fc->args, ARG("pattern", "glob"), fc->out, &g.pattern);

	if (r == 0 || (r > 0 && !*g.pattern))
		return tool_error(fc->out, "pattern is missing; give a pattern such as **/*.c");
	if (r >= 0)
		r = arg_str(fc->args, ARG("path", "directory"), fc->out, &raw);
	if (r >= 0)
		r = arg_str(fc->args, ARG("exclude"), fc->out, &g.exclude);
	if (r >= 0)
		r = arg_int(fc->args, ARG("limit"), 1, 5000, fc->out, &limit);
	if (r >= 0)
		r = arg_str(fc->args, ARG("sort"), fc->out, &sort);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("use_default_ignore"), fc->out, &ignore);
	if (r < 0)
		return 0;
	if (sort && strcmp(sort, "mtime") != 0 && strcmp(sort, "path") != 0)
		return tool_error(fc->out, "sort: '%s' is not mtime or path", sort);
	g.by_mtime = !sort || !strcmp(sort, "mtime");
	r = search(fc, &g, raw, ignore, (uint64_t)limit);
	for (size_t i = 0; i < g.n; i++)
		free(g.v[i].path);
	free(g.v);
	return r;
}

static int run(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	return files_run(call, args, out, body);
}

const struct mcp_tool tool_glob = {
	.name = "glob",
	.title = "Find files by name",
	.description =
		"Find files whose path matches a pattern: **, *, ?, [...], {a,b}. One without / matches "
		"names at any depth. Newest first; skips what .gitignore names.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"pattern\"],"
		"\"properties\":{"
		"\"pattern\":{\"type\":\"string\",\"description\":\"Such as **/*.c\"},"
		"\"path\":{\"type\":\"string\",\"default\":\".\",\"description\":\"Directory to look in\"},"
		"\"exclude\":{\"type\":\"string\",\"description\":\"Patterns to leave out, separated by spaces\"},"
		"\"limit\":{\"type\":\"integer\",\"maximum\":5000,\"default\":200,\"description\":\"Most paths\"},"
		"\"sort\":{\"type\":\"string\",\"enum\":[\"mtime\",\"path\"],\"default\":\"mtime\",\"description\":\"mtime: newest first\"},"
		"\"use_default_ignore\":{\"type\":\"boolean\",\"default\":true,\"description\":\"false: ignored files too\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_PREFIXED | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_SITS,
	.run = run,
};
