/* rattan_read_file: numbered lines of a text file, or its bytes as hex or base64. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/files/call.h"
#include "mcp/files/files.h"
#include "mcp/files/list.h"
#include "mcp/files/readwin.h"
#include "mcp/files/text.h"

enum {
	LINES_DEFAULT = 2000,
	BYTES_DEFAULT = 32768,
	BYTES_LEAST = 256,
	BYTES_MOST = 262144,
	CHUNK = 1 << 20,
	HEAD = 65536,          /* of a big file, to know its encoding by */
	COUNT_MOST = 64 << 20, /* lines of bigger files are not counted to the end */
	DEADLINE_MS =
		5000, /* for which a file is looked through; a hole of a terabyte costs nothing to make */
};

struct read_args {
	const char *path, *as;
	int64_t offset, limit, max_bytes, column;
	bool numbers;
};

/* What is read: the whole content in memory, or a descriptor of something big and its head. */
struct source {
	int fd;
	struct stat st;
	struct buf content; /* whole when not big; as UTF-8 when it was UTF-16 or 32 */
	bool big;
	struct text_shape shape;
	char version[11];
	long long until; /* of looking through what is big */
};

static int parse(struct files_call *fc, struct read_args *a)
{
	struct tool_result *out = fc->out;
	int r = arg_str(fc->args, ARG("path", "file_path", "filename", "file"), out, &a->path);

	if (r == 0)
		return tool_error(out, "path is missing; say which file to read"), -EINVAL;
	if (r >= 0)
		r = arg_int(fc->args, ARG("offset"), INT32_MIN, INT64_MAX >> 1, out, &a->offset);
	if (r >= 0)
		r = arg_int(fc->args, ARG("limit"), 1, 20000, out, &a->limit);
	if (r >= 0)
		r = arg_int(fc->args, ARG("max_bytes"), BYTES_LEAST, BYTES_MOST, out,
			    &a->max_bytes);
	if (r >= 0)
		r = arg_int(fc->args, ARG("column"), 1, INT64_MAX >> 1, out, &a->column);
	if (r >= 0)
		r = arg_bool(fc->args, ARG("line_numbers"), out, &a->numbers);
	if (r >= 0)
		r = arg_str(fc->args, ARG("as"), out, &a->as);
	if (r >= 0 && a->column && a->limit != 1 && strcmp(a->as, "base64") != 0)
		a->limit = 1;
	return r;
}

/* ---- the source ---- */

static int load(struct source *s)
{
	int r = fsio_read_all(
		s->fd, s->st.st_size > FILES_VERSION_MAX ? HEAD : (size_t)s->st.st_size,
		s->st.st_size > FILES_VERSION_MAX ? HEAD : FILES_VERSION_MAX, &s->content);

	if (r < 0 && r != -EFBIG)
		return r;
	s->big = r == -EFBIG;
	s->shape = text_shape_of(s->content.data, s->content.len);
	files_version(&s->st, s->big ? NULL : &s->content, s->version);
	return 0;
}

static int to_utf8(struct source *s)
{
	cleanup_buf struct buf text = {0};
	int r;

	if (s->shape.encoding < TEXT_UTF16LE || s->shape.encoding > TEXT_UTF32BE)
		return 0;
	r = text_to_utf8(s->shape.encoding, s->content.data, s->content.len, &text);
	if (r < 0)
		return r;
	enum text_encoding e = s->shape.encoding;
	struct buf old = s->content;

	s->content = text;
	text = old;
	s->shape = text_shape_of(s->content.data, s->content.len);
	s->shape.encoding = e;
	return 0;
}

/* Give every chunk of the file to the window until it needs no more. */
static int scan(struct files_call *fc, struct source *s, struct readwin *w, struct buf *out)
{
	cleanup_free uint8_t *p = NULL;
	off_t off = 0;
	size_t keep = 0;

	if (!s->big) {
		size_t skip = s->shape.encoding == TEXT_UTF8_BOM ? 3 : 0;

		return readwin_feed(w, s->content.data + skip, s->content.len - skip, true, out);
	}
	p = malloc(CHUNK);
	if (!p)
		return -ENOMEM;
	for (;;) {
		ssize_t n = io_pread_full(s->fd, p + keep, CHUNK - keep, off);
		size_t have, use;
		bool eof;
		int r;

		if (n < 0)
			return (int)n;
		off += n;
		have = keep + (size_t)n;
		eof = have < CHUNK;
		const uint8_t *nl = eof ? NULL : memrchr(p, '\n', have);

		use = nl ? (size_t)(nl - p) + 1 : have;
		r = readwin_feed(w, p, use, eof, out);
		if (r < 0 || eof || tool_cancelled(fc->call))
			return r;
		if (w->full && off > COUNT_MOST)
			return 1;
		if (io_now_ms() > s->until)
			return w->last ? 1 : -ETIMEDOUT;
		keep = have - use;
		memmove(p, p + use, keep);
	}
}

/* ---- answers ---- */

static int put_head(struct files_call *fc, const char *path, const struct source *s,
		    const struct readwin *w, bool partial)
{
	struct buf *b = &fc->out->text;
	int r = files_put_path(b, path);

	if (r >= 0)
		r = buf_printf(b, "  lines %llu-%llu of %s%llu  %s %s ",
			       (unsigned long long)(w->last ? w->first : 0),
			       (unsigned long long)w->last, partial ? "≥" : "",
			       (unsigned long long)w->line, text_encoding_name(s->shape.encoding),
			       text_eol_name(s->shape.eol));
	if (r >= 0)
		r = text_put_size(b, (uint64_t)s->st.st_size);
	if (r >= 0)
		r = buf_printf(b, "  %s\n", s->version);
	if (r >= 0 && s->shape.encoding == TEXT_OTHER)
		r = buf_printf(b, "[%llu bytes are not UTF-8 and are shown as \\xNN%s]\n",
			       (unsigned long long)s->shape.invalid,
			       s->big ? " (counted in the first 64 KiB)" : "");
	return r;
}

static int put_foot(struct files_call *fc, const struct read_args *a, const struct readwin *w,
		    bool partial)
{
	struct buf *b = &fc->out->text;
	unsigned long long next = w->last + 1;

	if (w->cut)
		return buf_printf(b, "[cut at %lld bytes; next: offset=%llu]\n",
				  (long long)a->max_bytes, next);
	if (w->last < w->line || partial)
		return a->column ? 0
				 : buf_printf(b, "[more lines follow; next: offset=%llu]\n", next);
	return w->no_newline ? buf_puts(b, "[no newline at end of file]\n") : 0;
}

static void put_meta(struct files_call *fc, const char *path, const struct source *s,
		     const struct readwin *w, bool partial)
{
	files_meta_path(fc, path);
	files_meta_num(fc, "first_line", w->last ? w->first : 0);
	files_meta_num(fc, "last_line", w->last);
	files_meta_num(fc, partial ? "total_lines_at_least" : "total_lines", w->line);
	files_meta_num(fc, "size", (uint64_t)s->st.st_size);
	files_meta_str(fc, "encoding", text_encoding_name(s->shape.encoding));
	files_meta_str(fc, "eol", text_eol_name(s->shape.eol));
	files_meta_str(fc, "version", s->version);
	(void)cJSON_AddBoolToObject(files_meta(fc), "truncated", w->last < w->line || partial);
}

static int first_line(struct files_call *fc, struct source *s, int64_t offset, uint64_t *ret)
{
	struct readwin count = {.full = true};
	cleanup_buf struct buf none = {0};
	int r;

	if (offset >= 0) {
		*ret = offset ? (uint64_t)offset : 1;
		return 0;
	}
	/* from the end: the lines have to be counted first, however big the file */
	for (; s->big;) {
		cleanup_free uint8_t *p = malloc(CHUNK);
		ssize_t n = CHUNK;

		if (!p)
			return -ENOMEM;
		for (off_t off = 0; n == CHUNK && !tool_cancelled(fc->call); off += n) {
			n = io_pread_full(s->fd, p, CHUNK, off);
			if (n < 0)
				return (int)n;
			r = readwin_feed(&count, p, (size_t)n, n < CHUNK, &none);
			if (r >= 0 && io_now_ms() > s->until)
				r = -ETIMEDOUT;
			if (r < 0)
				return r;
		}
		break;
	}
	if (!s->big)
		count.line = text_count_lines(s->content.data, s->content.len);
	*ret = count.line > (uint64_t)-offset ? count.line + 1 - (uint64_t)-offset : 1;
	return 0;
}

static int answer_text(struct files_call *fc, const char *path, const struct read_args *a,
		       struct source *s)
{
	cleanup_buf struct buf body = {0};
	struct readwin w = {.limit = (uint64_t)a->limit,
			    .max_bytes = (size_t)a->max_bytes,
			    .column = (uint64_t)a->column,
			    .numbers = a->numbers};
	int r = to_utf8(s), partial = 0;

	s->until = io_now_ms() + DEADLINE_MS;
	if (r >= 0)
		r = first_line(fc, s, a->offset, &w.first);
	if (r >= 0)
		r = partial = scan(fc, s, &w, &body);
	if (r == -ETIMEDOUT)
		return tool_error(
			fc->out,
			"the line is too far into the file, which was looked through for %d s; use "
			"shell_run with tail, or as:\"base64\" with column",
			DEADLINE_MS / 1000);
	if (r < 0)
		return r;
	if (tool_cancelled(fc->call))
		return -ECANCELED;
	if (!w.last && w.line && !partial)
		return tool_error(fc->out, "offset %lld is past the end: the file has %llu lines",
				  (long long)a->offset, (unsigned long long)w.line);
	put_meta(fc, path, s, &w, partial);
	r = put_head(fc, path, s, &w, partial);
	if (r >= 0 && !w.line)
		return buf_puts(&fc->out->text, "(empty file)\n");
	if (r >= 0)
		r = buf_put(&fc->out->text, body.data, body.len);
	return r < 0 ? r : put_foot(fc, a, &w, partial);
}

static int refuse_binary(struct files_call *fc, const char *path, const struct source *s)
{
	cleanup_buf struct buf b = {0};
	char room[64];
	const char *kind = text_magic(s->content.data, s->content.len, room, sizeof(room));
	int r = files_put_path(&b, path);

	if (r >= 0)
		r = buf_printf(&b, ": binary file, %s, ", kind ? kind : "unknown kind");
	if (r >= 0)
		r = text_put_size(&b, (uint64_t)s->st.st_size);
	return r < 0 ? r
		     : tool_error(fc->out,
				  "%s; use as:\"hex\" or as:\"base64\", or shell_run "
				  "file/strings",
				  (char *)b.data);
}

/* Bytes as they are: rows of 16 for hex (offset counts rows), from byte `column` for base64. */
static int answer_bytes(struct files_call *fc, const char *path, const struct read_args *a,
			struct source *s, bool hex)
{
	/* a row is 79 characters of 16 bytes, base64 is 4 of 3 */
	size_t most = hex ? (size_t)a->max_bytes / 79 * 16 : (size_t)a->max_bytes / 4 * 3, n;
	uint64_t rows = ((uint64_t)s->st.st_size + 15) / 16, from;
	cleanup_free uint8_t *p = malloc(most);
	struct buf *b = &fc->out->text;
	ssize_t got;
	int r;

	if (!p)
		return -ENOMEM;
	if (hex && (uint64_t)a->limit * 16 < most)
		most = (size_t)a->limit * 16;
	if (!hex)
		from = a->column ? (uint64_t)a->column - 1 : 0;
	else if (a->offset < 0)
		from = (rows > (uint64_t)-a->offset ? rows - (uint64_t)-a->offset : 0) * 16;
	else
		from = (a->offset ? (uint64_t)a->offset - 1 : 0) * 16;
	got = io_pread_full(s->fd, p, most, (off_t)from);
	if (got < 0)
		return (int)got;
	n = (size_t)got;
	if (!n && s->st.st_size)
		return tool_error(fc->out, "byte %llu is past the end: the file has %llu bytes",
				  (unsigned long long)from, (unsigned long long)s->st.st_size);
	files_meta_path(fc, path);
	files_meta_num(fc, "size", (uint64_t)s->st.st_size);
	files_meta_str(fc, "version", s->version);
	r = files_put_path(b, path);
	if (r >= 0)
		r = buf_printf(b, "  bytes %llu-%llu of %llu  %s  %s\n",
			       (unsigned long long)(from + (n != 0)),
			       (unsigned long long)(from + n), (unsigned long long)s->st.st_size,
			       hex ? "hex" : "base64", s->version);
	if (r >= 0)
		r = hex ? text_hex(p, n, from, b) : text_base64(p, n, b);
	if (r >= 0 && !hex)
		r = buf_puts(b, "\n");
	if (r < 0 || from + n >= (uint64_t)s->st.st_size)
		return r;
	return hex ? buf_printf(b, "[more rows follow; next: offset=%llu]\n",
				(unsigned long long)((from + n) / 16 + 1))
		   : buf_printf(b, "[more bytes follow; next: column=%llu]\n",
				(unsigned long long)(from + n + 1));
}

static int answer(struct files_call *fc, const char *path, const struct read_args *a,
		  struct source *s)
{
	int r = load(s);
	char room[64];

	if (r < 0)
		return r;
	files_seen(fc, path, s->version);
	if (!strcmp(a->as, "hex") || !strcmp(a->as, "base64"))
		return answer_bytes(fc, path, a, s, a->as[0] == 'h');
	if (s->big && s->shape.encoding >= TEXT_UTF16LE && s->shape.encoding <= TEXT_UTF32BE)
		return tool_error(fc->out,
				  "this %s file is over 8 MiB; convert it with shell_run iconv",
				  text_encoding_name(s->shape.encoding));
	if (!strcmp(a->as, "auto") &&
	    (text_is_binary(s->content.data, s->content.len) ||
	     text_magic(s->content.data, s->content.len < 4 ? 0 : s->content.len, room,
			sizeof(room)) == room))
		return refuse_binary(fc, path, s);
	return answer_text(fc, path, a, s);
}

static int body(struct files_call *fc)
{
	struct read_args a = {.as = "auto",
			      .offset = 1,
			      .limit = LINES_DEFAULT,
			      .max_bytes = BYTES_DEFAULT,
			      .numbers = true};
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;
	struct source s = {.fd = -1};
	int r = parse(fc, &a);

	if (r < 0)
		return 0;
	if (strcmp(a.as, "auto") && strcmp(a.as, "text") && strcmp(a.as, "hex") &&
	    strcmp(a.as, "base64"))
		return tool_error(fc->out, "as: '%s' is not auto, text, hex or base64", a.as);
	r = files_path(fc, a.path, &path);
	if (r <= 0)
		return r;
	r = files_open_read(fc, path, &fd, &s.st);
	if (r == -EISDIR)
		return files_list(fc, path,
				  &(struct files_list_opts){.note = "is a directory; its "
								    "entries:",
							    .depth = 1,
							    .max_entries = 500,
							    .hidden = true,
							    .sizes = true});
	if (r >= 0) {
		s.fd = fd;
		r = answer(fc, path, &a, &s);
		buf_release(&s.content);
	}
	return r < 0 ? files_fail(fc, path, r, false) : 0;
}

static int run(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	return files_run(call, args, out, body);
}

const struct mcp_tool tool_read_file = {
	.name = "read_file",
	.title = "Read file",
	.description =
		"Read a text file in the sandbox: a header line (range, total, encoding, line ending, size, "
		"version), then numbered lines `N→text`. Default: from line 1, at most 2000 lines / 32 KiB; "
		"go on with offset. Binary files only with as=hex|base64. To search use grep; do not page "
		"through big files.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"path\"],"
		"\"properties\":{"
		"\"path\":{\"type\":\"string\",\"description\":\"File path; relative to the workspace\"},"
		"\"offset\":{\"type\":\"integer\",\"default\":1,\"description\":\"First line, from 1; "
		"negative = that many lines before the end. With as=hex: row of 16 bytes\"},"
		"\"limit\":{\"type\":\"integer\",\"maximum\":20000,\"default\":2000,"
		"\"description\":\"Most lines to return\"},"
		"\"max_bytes\":{\"type\":\"integer\",\"minimum\":256,\"maximum\":262144,"
		"\"default\":32768,\"description\":\"Most bytes to return\"},"
		"\"column\":{\"type\":\"integer\",\"description\":\"Shows one very long "
		"line from this byte; with as=base64: first byte of the file\"},"
		"\"line_numbers\":{\"type\":\"boolean\",\"default\":true,\"description\":\"false: the bare text, to copy from\"},"
		"\"as\":{\"type\":\"string\",\"enum\":[\"auto\",\"text\",\"hex\",\"base64\"],"
		"\"default\":\"auto\",\"description\":\"auto refuses binary files\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_PREFIXED | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_SITS | TOOL_LONG,
	.run = run,
};
