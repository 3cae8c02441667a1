/* rattan_write_file: make a file, replace it whole, or append to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/files/files.h"
#include "mcp/files/text.h"
#include "mcp/files/write.h"

enum write_mode {
	WRITE_CREATE,
	WRITE_OVERWRITE,
	WRITE_APPEND
};

struct write_args {
	const char *path, *expect;
	struct buf content;
	enum write_mode mode;
	int file_mode; /* -1: keep, or 644 */
	bool create_dirs;
};

/* ---- arguments ---- */

static int parse_content(struct files_call *fc, struct write_args *a)
{
	const char *text = NULL, *b64 = NULL;
	int r = arg_str(fc->args, ARG("content", "contents", "text"), fc->out, &text);

	if (r >= 0)
		r = arg_str(fc->args, ARG("content_base64"), fc->out, &b64);
	if (r < 0)
		return r;
	if (!text == !b64)
		return tool_error(fc->out, text ? "give content or content_base64, not both"
						: "content is missing; give the text to write"),
		       -EINVAL;
	/* One call more is cheaper than a message nobody can hold. */
	if (strlen(text ? text : b64) >
	    (text ? FILES_CONTENT_MAX : FILES_CONTENT_MAX / 3 * 4 + 4096))
		return tool_error(fc->out,
				  "content is over 1 MiB; write the first part, then the rest "
				  "with mode:\"append\""),
		       -EINVAL;
	r = text ? buf_puts(&a->content, text) : text_unbase64(b64, &a->content);
	if (r == -EINVAL)
		(void)tool_error(fc->out, "content_base64 is not valid base64");
	return r >= 0 ? buf_reserve(&a->content, 0) : r;
}

static int parse_mode(struct files_call *fc, struct write_args *a)
{
	static const char *const names[] = {"create", "overwrite", "append"};
	const char *mode = NULL, *octal = NULL;
	int r = arg_str(fc->args, ARG("mode"), fc->out, &mode);

	if (r >= 0)
		r = arg_str(fc->args, ARG("file_mode"), fc->out, &octal);
	if (r < 0)
		return r;
	for (size_t i = 0; mode; i++) {
		if (i == ARRAY_SIZE(names))
			return tool_error(fc->out, "mode: '%s' is not create, overwrite or append",
					  mode),
			       -EINVAL;
		if (!strcmp(mode, names[i])) {
			a->mode = (enum write_mode)i;
			break;
		}
	}
	if (octal) {
		char *end;
		long v = strtol(octal, &end, 8);

		if (!*octal || *end || v < 0 || v > 07777)
			return tool_error(fc->out,
					  "file_mode: '%s' is not octal permission bits such as "
					  "755",
					  octal),
			       -EINVAL;
		a->file_mode = (int)v;
	}
	return 0;
}

static int parse(struct files_call *fc, struct write_args *a)
{
	int r = arg_str(fc->args, ARG("path", "file_path", "filename", "file"), fc->out, &a->path);

	if (r == 0)
		return tool_error(fc->out, "path is missing; say which file to write"), -EINVAL;
	if (r >= 0)
		r = arg_bool(fc->args, ARG("create_dirs"), fc->out, &a->create_dirs);
	if (r >= 0)
		r = arg_str(fc->args, ARG("expect_version"), fc->out, &a->expect);
	if (r >= 0)
		r = parse_mode(fc, a);
	return r < 0 ? r : parse_content(fc, a);
}

/* ---- results ---- */

int files_put_written(struct files_call *fc, const char *path, const struct fs_where *w,
		      const struct fs_written *done, const struct buf *content, const char *was)
{
	struct buf *b = &fc->out->text;
	char version[11];
	bool small = content->len <= FILES_VERSION_MAX;
	int r;

	files_version(&done->st, small ? content : NULL, version);
	files_seen(fc, path, version);
	files_meta_str(fc, "version", version);
	files_meta_num(fc, "size", content->len);
	if (was)
		files_meta_str(fc, "was", was);
	r = buf_puts(b, "  ");
	if (r >= 0)
		r = text_put_size(b, content->len);
	if (r >= 0)
		r = was ? buf_printf(b, "  %s (was %s)\n", version, was)
			: buf_printf(b, "  %s\n", version);
	if (r >= 0 && done->in_place)
		r = buf_printf(b, "note: written in place (%s)\n", done->in_place);
	if (r >= 0 && w->through_link)
		r = buf_puts(b, "note: the path is a symbolic link; its target was written\n");
	if (r >= 0 && content->len && content->data[content->len - 1] != '\n')
		r = buf_puts(b, "note: no newline at end of file\n");
	if (r >= 0 && content->len > 2 && !memcmp(content->data, "#!", 2) &&
	    !(done->st.st_mode & 0111))
		r = buf_puts(
			b, "note: begins with #! but is not executable; file_mode:\"755\" makes it "
			   "so\n");
	return r;
}

static int put_verb(struct files_call *fc, const char *verb, const char *path)
{
	int r = buf_printf(&fc->out->text, "%s ", verb);

	files_meta_path(fc, path);
	files_meta_str(fc, "result", verb);
	return r < 0 ? r : files_put_path(&fc->out->text, path);
}

static int create(struct files_call *fc, const char *path, const struct write_args *a,
		  const struct fs_where *w)
{
	struct fs_written done;
	int r;

	if (a->expect)
		return tool_error(fc->out, "expect_version was given, but the file does not exist");
	r = fsio_create(w, a->content.data, a->content.len,
			a->file_mode >= 0 ? (mode_t)a->file_mode : 0644, &done);
	if (r >= 0)
		r = put_verb(fc, "created", path);
	if (r >= 0)
		r = buf_printf(
			&fc->out->text, "  %llu lines",
			(unsigned long long)text_count_lines(a->content.data, a->content.len));
	return r < 0 ? r : files_put_written(fc, path, w, &done, &a->content, NULL);
}

static int refuse_existing(struct files_call *fc, const char *path, uint64_t size, const char *was)
{
	cleanup_buf struct buf b = {0};
	int r = files_put_path(&b, path);

	if (r >= 0)
		r = buf_puts(&b, " exists, ");
	if (r >= 0)
		r = text_put_size(&b, size);
	return r < 0 ? r
		     : tool_error(fc->out,
				  "%s, %s; use the edit tool to change it, or mode:\"overwrite\"",
				  (char *)b.data, was);
}

static int overwrite(struct files_call *fc, const char *path, const struct write_args *a,
		     const struct fs_where *w, const struct buf *old, const char *was)
{
	struct udiff_stat d = {0};
	struct fs_written done;
	int r = 0;

	if (old->len <= FILES_VERSION_MAX)
		r = udiff(old->data, old->len, a->content.data, a->content.len, 0, 0, NULL, &d);
	if (r >= 0)
		r = fsio_replace(w, a->content.data, a->content.len, a->file_mode, &done);
	if (r >= 0)
		r = put_verb(fc, "overwrote", path);
	if (r >= 0)
		r = buf_printf(&fc->out->text, "  +%llu −%llu lines", (unsigned long long)d.added,
			       (unsigned long long)d.removed);
	if (r >= 0)
		r = files_put_written(fc, path, w, &done, &a->content, was);
	return r < 0 ? r : files_put_before(fc, was);
}

static int append(struct files_call *fc, const char *path, const struct write_args *a,
		  const struct fs_where *w, const char *was)
{
	cleanup_fd int fd = -1;
	struct fs_written done;
	struct stat st;
	char version[11];
	int r = fsio_append(w, a->content.data, a->content.len, a->file_mode, &done);

	if (r >= 0)
		r = fsio_at_read(w, &fd, &st);
	if (r >= 0)
		r = files_version_of(fd, &st, version);
	if (r >= 0)
		r = put_verb(fc, "appended to", path);
	if (r < 0)
		return r;
	files_seen(fc, path, version);
	files_meta_str(fc, "version", version);
	r = buf_printf(&fc->out->text, "  +%llu lines  ",
		       (unsigned long long)text_count_lines(a->content.data, a->content.len));
	if (r >= 0)
		r = text_put_size(&fc->out->text, (uint64_t)st.st_size);
	return r < 0 ? r : buf_printf(&fc->out->text, "  %s (was %s)\n", version, was);
}

/* The file is there. Equal bytes are success in every mode but append, so that a client that sends
 * a call again after a crash is not told off. */
static int change(struct files_call *fc, const char *path, const struct write_args *a,
		  const struct fs_where *w)
{
	cleanup_buf struct buf old = {0};
	cleanup_fd int fd = -1;
	struct stat st;
	char was[11];
	int r = fsio_at_read(w, &fd, &st);

	if (r >= 0 && st.st_size <= FILES_VERSION_MAX)
		r = fsio_read_all(fd, (size_t)st.st_size, FILES_EDIT_MAX, &old);
	if (r < 0)
		return r;
	files_version(&st, st.st_size <= FILES_VERSION_MAX ? &old : NULL, was);
	files_look_before(fc, path, was);
	if (a->mode != WRITE_APPEND && st.st_size <= FILES_VERSION_MAX &&
	    old.len == a->content.len && !memcmp(old.data, a->content.data, old.len) &&
	    (a->file_mode < 0 || (st.st_mode & 07777) == (mode_t)a->file_mode)) {
		struct fs_written same = {.st = st};

		r = put_verb(fc, "unchanged", path);
		return r < 0 ? r : files_put_written(fc, path, w, &same, &a->content, NULL);
	}
	if (a->mode == WRITE_CREATE)
		return refuse_existing(fc, path, (uint64_t)st.st_size, was);
	if (a->expect) {
		r = files_expect(fc, path, a->expect, was);
		if (r <= 0)
			return r;
	}
	return a->mode == WRITE_APPEND ? append(fc, path, a, w, was)
				       : overwrite(fc, path, a, w, &old, was);
}

static int store(struct files_call *fc, const char *path, const struct write_args *a)
{
	struct fs_where __attribute__((cleanup(cleanup_wherep)))
	w = {.dir_fd = -1, .watch = &fc->watch};
	cleanup_fd int fd = -1;
	struct stat st;
	int r = fsio_locate(fc->at.root_fd, path, a->create_dirs, &w);

	if (r >= 0)
		r = fsio_lock_dir(&w, FILES_LOCK_MS);
	if (r >= 0)
		r = fsio_at(&w, &fd, &st);
	if (r == -ENOENT && w.dir_fd >= 0) {
		r = create(fc, path, a, &w);
		if (r != -EEXIST)
			return r;
		r = 0; /* a command was faster */
	}
	return r < 0 ? r : change(fc, path, a, &w);
}

static int body(struct files_call *fc)
{
	struct write_args a = {.file_mode = -1, .create_dirs = true};
	cleanup_free char *path = NULL;
	int r = parse(fc, &a);

	if (r < 0) {
		buf_release(&a.content);
		return r == -ENOMEM ? r : 0;
	}
	r = files_path_to_change(fc, a.path, &path);
	if (r > 0) {
		r = store(fc, path, &a);
		if (r < 0)
			r = files_fail(fc, path, r, true);
	}
	buf_release(&a.content);
	return r;
}

static int run(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	return files_run(call, args, out, body);
}

const struct mcp_tool tool_write_file = {
	.name = "write_file",
	.title = "Write file",
	.description =
		"Create a file (parents are made). Fails if it exists, unless mode is overwrite or append; "
		"prefer edit for changes. Bytes are written exactly as given, at most 1 MiB a call.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"path\"],"
		"\"properties\":{"
		"\"path\":{\"type\":\"string\",\"description\":\"File path; relative to the workspace\"},"
		"\"content\":{\"type\":\"string\",\"description\":\"Text to write, UTF-8\"},"
		"\"content_base64\":{\"type\":\"string\",\"description\":\"Instead of content: raw "
		"bytes\"},"
		"\"mode\":{\"type\":\"string\",\"enum\":[\"create\",\"overwrite\",\"append\"],"
		"\"default\":\"create\",\"description\":\"What may happen to a file that exists\"},"
		"\"file_mode\":{\"type\":\"string\",\"description\":\"Octal permission bits such as 755; "
		"default: keep, or 644\"},"
		"\"create_dirs\":{\"type\":\"boolean\",\"default\":true,\"description\":\"Make missing parents\"},"
		"\"expect_version\":{\"type\":\"string\",\"description\":\"Only if the file still has this version\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_PREFIXED | TOOL_DESTRUCTIVE | TOOL_SITS | TOOL_CHANGES,
	.run = run,
};
