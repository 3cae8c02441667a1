/* rattan_list_dir: the entries of a directory, or the facts about a file. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "mcp/files/files.h"
#include "mcp/files/list.h"
#include "mcp/files/pattern.h"
#include "mcp/files/text.h"
#include "mcp/files/walk.h"

enum {
	IGNORED_COUNT_MOST = 10000,
	ANSWER_MOST = 64 << 10
};

struct lister {
	struct files_call *fc;
	const struct files_list_opts *o;
	struct buf rows;
	uint64_t shown, left_out, total;
};

static int put_ignored(struct lister *l, const struct walk_entry *e)
{
	int fd = openat(e->dir_fd, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dir DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	unsigned n = 0;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return buf_puts(&l->rows, " (ignored)\n");
	}
	for (const struct dirent *d; n < IGNORED_COUNT_MOST && (d = readdir(dir));)
		n += strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
	return buf_printf(&l->rows, " (ignored, %u%s entr%s)\n", n,
			  n == IGNORED_COUNT_MOST ? "+" : "", n == 1 ? "y" : "ies");
}

static const char *kind_of(unsigned char type)
{
	switch (type) {
	case DT_FIFO:
		return "  (fifo)";
	case DT_SOCK:
		return "  (socket)";
	case DT_CHR:
	case DT_BLK:
		return "  (device)";
	default:
		return "";
	}
}

static int put_file(struct lister *l, const struct walk_entry *e)
{
	struct stat st;
	int r = buf_puts(&l->rows, kind_of(e->type));

	if (r >= 0 && e->type == DT_REG && l->o->sizes &&
	    !fstatat(e->dir_fd, e->name, &st, AT_SYMLINK_NOFOLLOW)) {
		r = buf_puts(&l->rows, "  ");
		if (r >= 0)
			r = text_put_size(&l->rows, (uint64_t)st.st_size);
		if (r >= 0 && st.st_mode & 0111)
			r = buf_puts(&l->rows, "  x");
	}
	if (r >= 0 && e->type == DT_LNK) {
		char target[PATH_MAX];
		ssize_t n = readlinkat(e->dir_fd, e->name, target, sizeof(target));

		r = buf_puts(&l->rows, " -> ");
		if (r >= 0 && n > 0)
			r = text_put_name(&l->rows, target, (size_t)n);
	}
	return r < 0 ? r : buf_puts(&l->rows, e->ignored ? "  (ignored)\n" : "\n");
}

static int on_entry(void *arg, const struct walk_entry *e)
{
	struct lister *l = arg;
	int r;

	if (l->o->exclude && pattern_filter(l->o->exclude, e->path))
		return WALK_SKIP;
	l->total += e->depth == 1;
	if (l->shown >= l->o->max_entries || l->rows.len > ANSWER_MOST) {
		l->left_out++;
		return WALK_SKIP;
	}
	l->shown++;
	r = text_put_name(&l->rows, e->path, strlen(e->path));
	if (r < 0)
		return r;
	if (e->type != DT_DIR)
		r = put_file(l, e);
	else if ((r = buf_puts(&l->rows, "/")) >= 0)
		r = e->ignored ? put_ignored(l, e) : buf_puts(&l->rows, "\n");
	if (r < 0)
		return r;
	return tool_cancelled(l->fc->call) ? -ECANCELED : WALK_ON;
}

static int put_list(struct lister *l, const char *path)
{
	struct buf *b = &l->fc->out->text;
	int r;

	files_meta_path(l->fc, path);
	files_meta_num(l->fc, "entries", l->total);
	r = files_put_path(b, path);
	if (r >= 0)
		r = l->o->note ? buf_printf(b, " %s", l->o->note) : 0;
	if (r >= 0)
		r = buf_printf(b, "  %llu entr%s\n", (unsigned long long)l->total,
			       l->total == 1 ? "y" : "ies");
	if (r >= 0)
		r = buf_put(b, l->rows.data, l->rows.len);
	if (r >= 0 && l->left_out)
		r = buf_printf(b, "[%llu more; raise max_entries, or list a directory below]\n",
			       (unsigned long long)l->left_out);
	return r;
}

int files_list(struct files_call *fc, const char *path, const struct files_list_opts *o)
{
	struct lister l = {.fc = fc, .o = o};
	struct walk_opts wo = {.ignore = true,
			       .hidden = o->hidden,
			       .max_depth = o->depth,
			       .dirs_first = true,
			       .fn = on_entry,
			       .arg = &l};
	struct walk_counts counts = {0};
	int r = walk_tree(fc->at.root_fd, path, &wo, &counts);

	if (r >= 0)
		r = put_list(&l, path);
	if (r >= 0 && counts.unreadable)
		r = buf_printf(&fc->out->text, "[%llu directories cannot be read]\n",
			       (unsigned long long)counts.unreadable);
	buf_release(&l.rows);
	return r;
}

/* ---- a file's facts ---- */

static int put_text_facts(struct files_call *fc, int fd, const struct stat *st)
{
	cleanup_buf struct buf content = {0};
	struct buf *b = &fc->out->text;
	struct text_shape s;
	char version[11], room[64];
	const char *kind;
	int r = 0;

	if (st->st_size <= FILES_VERSION_MAX)
		r = fsio_read_all(fd, (size_t)st->st_size, FILES_VERSION_MAX, &content);
	if (r < 0)
		return r;
	files_version(st, st->st_size <= FILES_VERSION_MAX ? &content : NULL, version);
	files_meta_str(fc, "version", version);
	if (st->st_size > FILES_VERSION_MAX)
		return buf_printf(b, "  %s", version);
	s = text_shape_of(content.data, content.len);
	kind = text_magic(content.data, content.len, room, sizeof(room));
	if (kind || text_is_binary(content.data, content.len))
		return buf_printf(b, "  %s  %s", kind ? kind : "binary", version);
	return buf_printf(b, "  %llu lines %s %s  %s", (unsigned long long)s.lines,
			  text_encoding_name(s.encoding), text_eol_name(s.eol), version);
}

static const char *kind_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	default:
		return "device";
	}
}

static int put_facts(struct files_call *fc, const char *path, const struct stat *st)
{
	struct buf *b = &fc->out->text;
	cleanup_fd int fd = -1;
	char when[40] = "";
	struct tm tm;
	struct stat now;
	int r = files_put_path(b, path);

	files_meta_path(fc, path);
	files_meta_num(fc, "size", (uint64_t)st->st_size);
	if (gmtime_r(&st->st_mtim.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (r >= 0)
		r = buf_printf(b, "  %s %04o  ", kind_name(st->st_mode),
			       (unsigned)(st->st_mode & 07777));
	if (r >= 0)
		r = text_put_size(b, (uint64_t)st->st_size);
	if (r >= 0)
		r = buf_printf(b, "  %s", when);
	if (r >= 0 && S_ISREG(st->st_mode) && fsio_open_read(fc->at.root_fd, path, &fd, &now) >= 0)
		r = put_text_facts(fc, fd, &now);
	return r < 0 ? r : buf_puts(b, "\n");
}

/* ---- the tool ---- */

static int body(struct files_call *fc)
{
	struct files_list_opts o = {.depth = 1, .hidden = true, .sizes = true};
	int64_t depth = 1, most = 500;
	const char *raw = NULL;
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;
	struct stat st;
	int r = arg_str(fc->args, ARG("path", "file_path", "directory", "dir_path"), fc->out, &raw);

	if (r >= 0)
		r = arg_int(fc->args, ARG("depth"), 1, 5, fc->out, &depth);
	if (r >= 0)
		r = arg_int(fc->args, ARG("max_entries", "limit"), 1, 5000, fc->out, &most);
	if (r >= 0)
		r = arg_str(fc->args, ARG("exclude"), fc->out, &o.exclude);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("hidden"), fc->out, &o.hidden);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("sizes"), fc->out, &o.sizes);
	if (r < 0)
		return 0;
	o.depth = (unsigned)depth;
	o.max_entries = (uint64_t)most;
	r = files_path(fc, raw, &path);
	if (r <= 0)
		return r;
	r = fsio_lookup(fc->at.root_fd, path, &fd, &st);
	if (r >= 0)
		r = S_ISDIR(st.st_mode) ? files_list(fc, path, &o) : put_facts(fc, path, &st);
	return r < 0 && r != -ECANCELED ? files_fail(fc, path, r, false) : r;
}

static int run(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	return files_run(call, args, out, body);
}

const struct mcp_tool tool_list_dir = {
	.name = "list_dir",
	.title = "List directory",
	.description =
		"List a directory: directories first, with sizes and link targets; ignored ones are not "
		"entered. On a file: type, mode, size, time, lines, encoding, version.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
		"\"path\":{\"type\":\"string\",\"default\":\".\",\"description\":\"Directory or file\"},"
		"\"depth\":{\"type\":\"integer\",\"maximum\":5,\"default\":1,\"description\":\"Levels to show\"},"
		"\"exclude\":{\"type\":\"string\",\"description\":\"Patterns to leave out, separated by spaces\"},"
		"\"hidden\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Names with a dot too\"},"
		"\"max_entries\":{\"type\":\"integer\",\"maximum\":5000,\"default\":500,\"description\":\"Most entries\"},"
		"\"sizes\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Show sizes\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_PREFIXED | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_SITS,
	.run = run,
};
