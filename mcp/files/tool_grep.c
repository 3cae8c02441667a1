/* rattan_grep: search file contents; the answer is grouped by file and bounded as a whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/files.h"
#include "mcp/files/grep.h"
#include "mcp/files/text.h"

enum {
	DEADLINE_MS = 30000,
	HINT_MS = 500,
	ANSWER_MOST = 64 << 10
};

struct grep_args {
	const char *path, *shown_path;
	struct grep_opts o;
};

/* ---- arguments ---- */

static int one_of(struct files_call *fc, const char *name, const char *const *values, unsigned *ret)
{
	const char *s = NULL;
	int r = arg_str(fc->args, ARG(name), fc->out, &s);

	if (r <= 0)
		return r;
	for (unsigned i = 0; values[i]; i++)
		if (!strcmp(s, values[i])) {
			*ret = i;
			return 0;
		}
	return tool_error(fc->out, "%s: '%s' is not one of %s, %s%s%s", name, s, values[0],
			  values[1], values[2] ? ", " : "", values[2] ? values[2] : ""),
	       -EINVAL;
}

static int parse_numbers(struct files_call *fc, struct grep_opts *o)
{
	int64_t max = 100, per_file = 0, offset = 0, context = 0, before = -1, after = -1;
	int r = arg_int(fc->args, ARG("max_matches", "head_limit"), 1, 5000, fc->out, &max);

	if (r >= 0)
		r = arg_int(fc->args, ARG("max_per_file"), 1, 5000, fc->out, &per_file);
	if (r >= 0)
		r = arg_int(fc->args, ARG("offset"), 0, INT32_MAX, fc->out, &offset);
	if (r >= 0)
		r = arg_int(fc->args, ARG("context", "-C"), 0, 50, fc->out, &context);
	if (r >= 0)
		r = arg_int(fc->args, ARG("before", "-B"), 0, 50, fc->out, &before);
	if (r >= 0)
		r = arg_int(fc->args, ARG("after", "-A"), 0, 50, fc->out, &after);
	o->max_matches = (uint64_t)max;
	o->per_file = (uint64_t)per_file;
	o->offset = (uint64_t)offset;
	o->before = (unsigned)(before >= 0 ? before : context);
	o->after = (unsigned)(after >= 0 ? after : context);
	return r;
}

static int parse_flags(struct files_call *fc, struct grep_opts *o)
{
	static const char *const cases[] = {"smart", "sensitive", "insensitive", NULL};
	bool literal = false, word = false, multiline = false, insensitive = false;
	unsigned how = 0;
	int r = one_of(fc, "case", cases, &how);

	if (r >= 0)
		r = arg_bool(fc->args, ARG("-i"), fc->out, &insensitive);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("literal"), fc->out, &literal);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("word"), fc->out, &word);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("multiline"), fc->out, &multiline);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("hidden"), fc->out, &o->hidden);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("use_default_ignore"), fc->out, &o->ignore);
	if (r < 0)
		return r;
	o->flags = (literal ? SEARCH_LITERAL : 0) | (word ? SEARCH_WORD : 0) |
		   (multiline ? SEARCH_MULTILINE : 0);
	if (how == 2 || insensitive || (how == 0 && search_smart_caseless(o->pattern, literal)))
		o->flags |= SEARCH_CASELESS;
	return 0;
}

static int parse(struct files_call *fc, struct grep_args *a)
{
	static const char *const modes[] = {"content", "files", "count", "files_with_matches",
					    NULL};
	static const char *const sorts[] = {"path", "mtime", NULL};
	unsigned mode = 0, sort = 0;
	int r = arg_str(fc->args, ARG("pattern", "query", "regex"), fc->out, &a->o.pattern);

	if (r == 0 || (r > 0 && !*a->o.pattern))
		return tool_error(fc->out, "pattern is missing; give a regular expression"),
		       -EINVAL;
	if (r >= 0)
		r = arg_str(fc->args, ARG("path", "file_path", "directory"), fc->out, &a->path);
	if (r >= 0)
		r = arg_str(fc->args, ARG("glob", "include"), fc->out, &a->o.glob);
	if (r >= 0)
		r = one_of(fc, "output_mode", modes, &mode);
	mode = mode == 3 ? 1 : mode;
	if (r >= 0)
		r = one_of(fc, "sort", sorts, &sort);
	if (r >= 0)
		r = parse_flags(fc, &a->o);
	if (r >= 0)
		r = parse_numbers(fc, &a->o);
	a->o.mode = (enum grep_mode)mode;
	a->o.by_mtime = sort == 1;
	return r;
}

/* ---- the answer ---- */

struct shown {
	uint64_t matches; /* shown */
	uint64_t skipped; /* by offset */
	bool more, capped;
};

static int put_file(struct grep *g, const struct grep_file *f, struct shown *s)
{
	const struct grep_opts *o = g->o;
	uint64_t most = o->per_file     ? o->per_file
			: g->nfiles > 1 ? GREP_PER_FILE
					: UINT64_MAX,
		 here = 0;
	struct buf *b = &g->fc->out->text;
	bool headed = false, gap = false;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < f->rows; i++) {
		const struct grep_row *row = &g->rows[f->first_row + i];

		if (row->match &&
		    (here >= most || s->matches >= o->max_matches || b->len > ANSWER_MOST))
			break;
		if (row->match) {
			here++;
			if (s->skipped < o->offset) {
				s->skipped++;
				gap = headed;
				continue;
			}
			s->matches++;
		} else if (s->skipped < o->offset) {
			continue;
		}
		if (!headed)
			r = buf_printf(b, "%s\n", f->path);
		else if (r >= 0 && headed && (row->gap || gap))
			r = buf_puts(b, "--\n");
		headed = true;
		gap = false;
		if (r >= 0)
			r = buf_printf(b, "%llu%c ", (unsigned long long)row->line,
				       row->match ? ':' : '-');
		if (r >= 0)
			r = buf_put(b, g->text.data + row->off, row->len);
		if (r >= 0)
			r = buf_puts(b, "\n");
	}
	if (r >= 0 && headed && here < f->matches && here >= most) {
		s->capped = true;
		r = buf_printf(b, "[%llu more in this file]\n",
			       (unsigned long long)(f->matches - here));
	}
	return r;
}

static int by_count(const void *a, const void *b)
{
	const struct grep_file *x = a, *y = b;

	if (x->matches != y->matches)
		return x->matches < y->matches ? 1 : -1;
	return strcmp(x->path, y->path);
}

static int by_mtime(const void *a, const void *b)
{
	const struct grep_file *x = a, *y = b;

	if (x->mtime != y->mtime)
		return x->mtime < y->mtime ? 1 : -1;
	return strcmp(x->path, y->path);
}

static int put_list(struct grep *g, struct shown *s)
{
	struct buf *b = &g->fc->out->text;
	int r = 0;

	for (size_t i = g->o->offset; r >= 0 && i < g->nfiles && s->matches < g->o->max_matches;
	     i++) {
		const struct grep_file *f = &g->files[i];

		if (b->len > ANSWER_MOST)
			break;
		s->matches++;
		r = g->o->mode == GREP_COUNT
			    ? buf_printf(b, "%llu %s\n", (unsigned long long)f->matches, f->path)
			    : buf_printf(b, "%s  (%llu)\n", f->path,
					 (unsigned long long)f->matches);
	}
	s->more = g->o->offset + s->matches < g->nfiles;
	return r;
}

static int put_skips(struct grep *g)
{
	struct buf *b = &g->fc->out->text;
	const char *sep = "; skipped ";
	int r = buf_printf(b, " (searched %llu files", (unsigned long long)g->searched);

	if (r >= 0 && g->counts.ignored_dirs + g->counts.ignored_files) {
		r = buf_printf(b, "%s%llu ignored dirs, %llu ignored files", sep,
			       (unsigned long long)g->counts.ignored_dirs,
			       (unsigned long long)g->counts.ignored_files);
		sep = ", ";
	}
	if (r >= 0 && g->binary) {
		r = buf_printf(b, "%s%llu binary", sep, (unsigned long long)g->binary);
		sep = ", ";
	}
	if (r >= 0 && g->counts.unreadable)
		r = buf_printf(b, "%s%llu unreadable", sep,
			       (unsigned long long)g->counts.unreadable);
	if (r >= 0 && g->counts.too_deep)
		r = buf_printf(b, "; %llu directories lie too deep and were left out",
			       (unsigned long long)g->counts.too_deep);
	if (r >= 0 && g->too_hard)
		r = buf_printf(
			b,
			"; the pattern took too many steps on some lines of %llu files, which "
			"were left out",
			(unsigned long long)g->too_hard);
	if (r >= 0 && g->timed_out)
		r = buf_printf(b, "; timed out after %d s", DEADLINE_MS / 1000);
	return r < 0 ? r : buf_puts(b, ")\n");
}

static int put_matches(struct grep *g)
{
	struct buf *b = &g->fc->out->text;
	struct shown s = {0};
	int r = buf_printf(b, "%llu match%s in %zu file%s", (unsigned long long)g->matches,
			   g->matches == 1 ? "" : "es", g->nfiles, g->nfiles == 1 ? "" : "s");

	if (r >= 0)
		r = put_skips(g);
	if (g->o->by_mtime)
		qsort(g->files, g->nfiles, sizeof(*g->files), by_mtime);
	else if (g->o->mode == GREP_FILES)
		qsort(g->files, g->nfiles, sizeof(*g->files), by_count);
	if (r >= 0 && g->o->mode != GREP_CONTENT)
		r = put_list(g, &s);
	for (size_t i = 0; r >= 0 && g->o->mode == GREP_CONTENT && i < g->nfiles; i++)
		r = put_file(g, &g->files[i], &s);
	files_meta_num(g->fc, "shown", s.matches);
	if (g->o->mode == GREP_CONTENT)
		s.more = s.skipped + s.matches < g->matches && s.matches &&
			 (s.matches == g->o->max_matches || b->len > ANSWER_MOST);
	if (r >= 0 && g->o->mode == GREP_CONTENT && !s.matches)
		return buf_puts(b, "[offset is past the last match]\n");
	if (r >= 0 && s.more)
		r = buf_printf(
			b, "[%llu of %llu shown; next: offset=%llu]\n",
			(unsigned long long)s.matches,
			(unsigned long long)(g->o->mode == GREP_CONTENT ? g->matches : g->nfiles),
			(unsigned long long)(g->o->offset + s.matches));
	if (r >= 0 && s.capped)
		r = buf_printf(
			b, "[at most %llu a file; max_per_file shows more]\n",
			(unsigned long long)(g->o->per_file ? g->o->per_file : GREP_PER_FILE));
	return r;
}

/* How many files would match if @o were so; 0 when that cannot be told in time. */
static uint64_t would_match(struct files_call *fc, const char *path, struct grep_opts o)
{
	struct grep g = {.o = &o, .fc = fc};
	uint64_t n = 0;

	o.mode = GREP_COUNT;
	o.until = io_now_ms() + HINT_MS;
	if (search_new(o.pattern, o.flags, NULL, &g.search) >= 0 && grep_search(&g, path) >= 0)
		n = g.nfiles;
	grep_release(&g);
	return n;
}

static int put_none(struct grep *g, const char *path)
{
	struct buf *b = &g->fc->out->text;
	struct grep_opts other = *g->o;
	uint64_t n;
	int r = buf_puts(b, "no matches for /");

	if (r >= 0)
		r = text_put_escaped(b, (const uint8_t *)g->o->pattern, strlen(g->o->pattern));
	if (r >= 0)
		r = buf_puts(b, "/ in ");
	if (r >= 0)
		r = files_put_path(b, path);
	if (r >= 0)
		r = put_skips(g);
	if (r >= 0 && (strstr(g->o->pattern, "\\|") || strstr(g->o->pattern, "\\(")))
		r = buf_puts(b, "hint: in this dialect write a|b and (a), without backslashes\n");
	if (r < 0 || g->timed_out)
		return r;
	if (!(g->o->flags & SEARCH_CASELESS)) {
		other.flags |= SEARCH_CASELESS;
		n = would_match(g->fc, path, other);
		if (n)
			r = buf_printf(b, "hint: %llu files match with case ignored\n",
				       (unsigned long long)n);
		other.flags = g->o->flags;
	}
	if (r >= 0 && g->counts.ignored_dirs + g->counts.ignored_files) {
		other.ignore = false;
		n = would_match(g->fc, path, other);
		if (n)
			r = buf_printf(b,
				       "hint: %llu ignored files match; use_default_ignore=false "
				       "searches them\n",
				       (unsigned long long)n);
	}
	return r;
}

static int answer(struct grep *g, const char *path)
{
	int r = grep_search(g, path);

	if (r < 0)
		return r;
	files_meta_path(g->fc, path);
	files_meta_num(g->fc, "matches", g->matches);
	files_meta_num(g->fc, "files", g->nfiles);
	files_meta_num(g->fc, "searched", g->searched);
	(void)cJSON_AddBoolToObject(files_meta(g->fc), "timed_out", g->timed_out);
	return g->matches ? put_matches(g) : put_none(g, path);
}

static int body(struct files_call *fc)
{
	struct grep_args a = {
		.o = {.hidden = true, .ignore = true, .until = io_now_ms() + DEADLINE_MS}};
	struct grep g = {.o = &a.o, .fc = fc};
	cleanup_free char *path = NULL;
	struct diag diag = {0};
	int r = parse(fc, &a);

	if (r < 0)
		return 0;
	r = files_path(fc, a.path, &path);
	if (r <= 0)
		return r;
	r = search_new(a.o.pattern, a.o.flags, &diag, &g.search);
	if (r == -EINVAL)
		return tool_error(fc->out, "pattern: %s; literal:true searches for the text itself",
				  diag.text);
	if (r >= 0)
		r = answer(&g, path);
	grep_release(&g);
	return r < 0 && r != -ECANCELED ? files_fail(fc, path, r, false) : r;
}

static int run(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	return files_run(call, args, out, body);
}

const struct mcp_tool tool_grep = {
	.name = "grep",
	.title = "Search file contents",
	.description =
		"Search file contents by regular expression (PCRE2). Skips binary, .gitignore'd and "
		"dependency files unless use_default_ignore=false. Case smart: insensitive if the pattern "
		"has no capital.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"pattern\"],"
		"\"properties\":{"
		"\"pattern\":{\"type\":\"string\",\"description\":\"Regular expression\"},"
		"\"path\":{\"type\":\"string\",\"default\":\".\",\"description\":\"File or directory\"},"
		"\"glob\":{\"type\":\"string\",\"description\":\"Only files matching, e.g. *.c or "
		"src/**/*.{ts,tsx}; ! in front excludes; several separated by spaces\"},"
		"\"output_mode\":{\"type\":\"string\",\"enum\":[\"content\",\"files\",\"count\"],"
		"\"default\":\"content\",\"description\":\"What to show\"},"
		"\"context\":{\"type\":\"integer\",\"maximum\":50,\"description\":\"Lines around each match\"},"
		"\"before\":{\"type\":\"integer\",\"maximum\":50,\"description\":\"Lines before it\"},"
		"\"after\":{\"type\":\"integer\",\"maximum\":50,\"description\":\"Lines after it\"},"
		"\"case\":{\"type\":\"string\",\"enum\":[\"smart\",\"sensitive\",\"insensitive\"],"
		"\"default\":\"smart\",\"description\":\"Upper and lower case\"},"
		"\"literal\":{\"type\":\"boolean\",\"description\":\"pattern is plain text\"},"
		"\"word\":{\"type\":\"boolean\",\"description\":\"Whole words only\"},"
		"\"multiline\":{\"type\":\"boolean\",\"description\":\"Let . and the "
		"pattern cross line ends\"},"
		"\"max_matches\":{\"type\":\"integer\",\"maximum\":5000,\"default\":100,\"description\":\"In all\"},"
		"\"max_per_file\":{\"type\":\"integer\",\"description\":\"In each file\"},"
		"\"offset\":{\"type\":\"integer\",\"description\":\"Matches to skip\"},"
		"\"hidden\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Search hidden files too\"},"
		"\"use_default_ignore\":{\"type\":\"boolean\",\"default\":true,\"description\":\"false: ignored files too\"},"
		"\"sort\":{\"type\":\"string\",\"enum\":[\"path\",\"mtime\"],\"default\":\"path\",\"description\":\"Order of files\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_PREFIXED | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_SITS,
	.run = run,
};
