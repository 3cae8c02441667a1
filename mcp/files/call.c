#include "mcp/files/call.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/near.h"
#include "mcp/files/seen.h"
#include "mcp/files/text.h"
#include "mcp/record.h"
#include "mcp/sandbox.h"
#include "mcp/session.h"

static int temp_begin(void *arg, const char *path)
{
	const struct files_call *fc = arg;

	return record_temp(session_record(tool_session(fc->call)), client_env(fc->client), path);
}

static void temp_end(void *arg, int slot)
{
	const struct files_call *fc = arg;

	record_temp_done(session_record(tool_session(fc->call)), slot);
}

static int run_at(struct files_call *fc, const struct seat *seat,
		  int (*body)(struct files_call *fc))
{
	struct client *client = seat->client;
	struct tool_result *out = fc->out;
	int r = 0;

	fc->client = client;
	fc->watch = (struct fs_watch){temp_begin, temp_end, fc};
	for (int attempt = 0; attempt < 2; attempt++) {
		struct diag diag = {0};
		struct client_tree t;

		r = client_attach(client, seat->terms, "a file tool", &diag, &t);
		if (r < 0)
			return tool_error(out, "the environment cannot be reached: %s",
					  *diag.text ? diag.text : err_text(r));
		fc->at = t.at;
		session_tidy(tool_session(fc->call), client, t.at.root_fd);
		r = body(fc);
		client_detach(client, &t);
		if (r != -ESTALE && r != -ENOTCONN)
			return r;
		/* the daemon was replaced, or a rollback mounted a new root: nothing was answered */
		buf_clear(&out->text);
		cJSON_Delete(out->meta);
		out->meta = NULL;
	}
	return tool_error(out, "the environment's file system went away twice (%s); try again",
			  err_text(r));
}

int files_run(struct tool_call *call, const cJSON *args, struct tool_result *out,
	      int (*body)(struct files_call *fc))
{
	struct files_call fc = {.call = call, .args = args, .out = out, .base = FILES_WORKSPACE};
	struct seat seat;
	int r;

	if (!tool_sit(call, args, out, &seat))
		return 0;
	if (seat.profile && seat.profile->cwd)
		fc.base = seat.profile->cwd;
	r = run_at(&fc, &seat, body);
	tool_rise(call, &seat);
	return r;
}

static bool windows_path(const char *p)
{
	return (isalpha((unsigned char)p[0]) && p[1] == ':' && (p[2] == '\\' || p[2] == '/')) ||
	       (p[0] == '\\' && p[1] == '\\');
}

static bool starts(const char *p, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(p, dir, n) && (!p[n] || p[n] == '/');
}

/* Spellings that can only be meant for the host. 1 fine, 0 refused. */
static int refuse_foreign(struct files_call *fc, const char *raw)
{
	if (!strncmp(raw, "file://", 7))
		return tool_error(fc->out,
				  "path: '%s' is a URL; give the path in the sandbox, such "
				  "as src/main.c (relative to %s)",
				  raw, FILES_WORKSPACE);
	if (windows_path(raw))
		return tool_error(fc->out,
				  "path: '%s' is a path of a Windows host, which is not "
				  "visible here; the project is at %s",
				  raw, FILES_WORKSPACE);
	if (raw[0] == '~' && raw[1] && raw[1] != '/')
		return tool_error(fc->out,
				  "path: homes of other users are not expanded; \"~\" here is %s, "
				  "and a file whose name begins with it is ./%s",
				  TOOL_HOME, raw);
	if (starts(raw, "/Users") || starts(raw, "/Volumes"))
		return tool_error(fc->out,
				  "path: '%s' is a path of the host, which is not visible "
				  "here; the project is at %s",
				  raw, FILES_WORKSPACE);
	return 1;
}

static int squeeze(const char *base, const char *raw, char **ret)
{
	cleanup_buf struct buf b = {0};
	int r = 0;

	if (raw[0] != '/')
		r = buf_puts(&b, strcmp(base, "/") != 0 ? base : "");
	while (r >= 0) {
		size_t n;

		raw += strspn(raw, "/");
		n = strcspn(raw, "/");
		if (!n)
			break;
		if (n != 1 || raw[0] != '.') {
			r = buf_puts(&b, "/");
			if (r >= 0)
				r = buf_put(&b, raw, n);
		}
		raw += n;
	}
	if (r >= 0 && !b.len)
		r = buf_puts(&b, "/");
	return r < 0 ? r : buf_steal(&b, ret, NULL);
}

int files_path(struct files_call *fc, const char *raw, char **ret)
{
	cleanup_free char *path = NULL;
	int r;

	if (!raw)
		raw = ".";
	if (!*raw)
		return tool_error(fc->out,
				  "path is empty; give a file path, relative to %s or absolute "
				  "in the sandbox",
				  FILES_WORKSPACE);
	r = refuse_foreign(fc, raw);
	if (r <= 0)
		return r;
	if (raw[0] == '~')
		r = squeeze(TOOL_HOME, raw + 1 + strspn(raw + 1, "/"), &path);
	else
		r = squeeze(fc->base, raw, &path);
	if (r < 0)
		return r;
	if (strlen(path) >= PATH_MAX)
		return tool_error(fc->out, "path is longer than %d bytes", PATH_MAX - 1);
	if (starts(path, "/proc") || starts(path, "/sys") || starts(path, "/dev"))
		return tool_error(fc->out,
				  "path: %s belongs to the kernel and is not served by the file "
				  "tools; use shell_run, for example: cat %s",
				  path, path);
	*ret = steal_ptr(&path);
	return 1;
}

int files_put_path(struct buf *b, const char *path)
{
	size_t ws = strlen(FILES_WORKSPACE);

	if (starts(path, FILES_WORKSPACE))
		path = path[ws] ? path + ws + 1 : ".";
	return text_put_name(b, path, strlen(path));
}

/* ---- errors ---- */

enum {
	SIMILAR_MAX = 3,
	SIMILAR_SCAN = 4096
};

static unsigned unlikeness(const char *want, const char *have)
{
	unsigned d = near_distance(want, have, true);
	size_t stem = strcspn(want, ".");

	if (d > 2 && stem > 2 && !strncasecmp(want, have, stem))
		return 3; /* another ending of the same name */
	return d;
}

/* The names in @dir most like @name: at most SIMILAR_MAX, as " a, b". */
static int put_similar(struct buf *b, DIR *dir, const char *name)
{
	char best[SIMILAR_MAX][NAME_MAX + 1];
	unsigned score[SIMILAR_MAX];
	size_t have = 0;
	unsigned limit = strlen(name) < 4 ? 1 : 3;
	const struct dirent *e;

	for (int i = 0; i < SIMILAR_SCAN && (e = readdir(dir)); i++) {
		unsigned d = unlikeness(name, e->d_name);
		size_t at = have;

		if (d > limit || !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		while (at && score[at - 1] > d)
			at--;
		if (at == SIMILAR_MAX)
			continue;
		if (have < SIMILAR_MAX)
			have++;
		for (size_t k = have - 1; k > at; k--) {
			score[k] = score[k - 1];
			memcpy(best[k], best[k - 1], sizeof(best[k]));
		}
		score[at] = d;
		(void)snprintf(best[at], sizeof(best[at]), "%s", e->d_name);
	}
	for (size_t i = 0; i < have; i++) {
		int r = buf_puts(b, i ? ", " : "; similar names there: ");

		if (r >= 0)
			r = text_put_name(b, best[i], strlen(best[i]));
		if (r < 0)
			return r;
	}
	return 0;
}

/* "; the nearest directory that exists is X; similar names there: ..." */
static int put_nearest(struct buf *b, int root_fd, const char *path)
{
	cleanup_free char *up = strdup(path);

	if (!up)
		return -ENOMEM;
	for (;;) {
		char *slash = strrchr(up, '/');
		int fd, r;

		if (!slash)
			return 0;
		*slash = 0;
		r = fsio_open_dir(root_fd, *up ? up : "/", &fd);
		if (r < 0)
			continue;

		cleanup_dir DIR *dir = fdopendir(fd);

		if (!dir) {
			(void)close(fd);
			return 0;
		}
		r = buf_puts(b, "; the nearest directory that exists is ");
		if (r >= 0)
			r = files_put_path(b, *up ? up : "/");
		return r < 0 ? r : put_similar(b, dir, slash + 1);
	}
}

static int put_writable(struct buf *b, const char *places)
{
	int r = buf_puts(b, "; writable places are ");

	if (r >= 0 && !*places)
		return buf_puts(b, "none");
	while (r >= 0 && *places) {
		size_t n = strcspn(places, "\n");

		r = text_put_name(b, places, n);
		places += n + (places[n] != 0);
		if (r >= 0 && *places)
			r = buf_puts(b, ", ");
	}
	return r;
}

static bool in_writable(const char *path, const char *places)
{
	while (*places) {
		size_t n = strcspn(places, "\n");

		if (n == 1 && *places == '/')
			return true;
		if (!strncmp(path, places, n) && (!path[n] || path[n] == '/'))
			return true;
		places += n + (places[n] != 0);
	}
	return false;
}

/* The rule that was in the way since this call began: 1 when there is one. */
static int put_rule(struct buf *b, struct files_call *fc)
{
	struct client_denials d = {0};
	int r = client_denials(fc->client, fc->at.denied, 1, &d);

	if (r < 0)
		return 0;
	if (d.n)
		r = buf_printf(b, ": the sandbox's policy forbids it: %s", d.v[0].why);
	r = r < 0 ? r : d.n > 0;
	client_denials_release(&d);
	return r;
}

static int put_denied(struct buf *b, struct files_call *fc, const char *path, int r, bool writing)
{
	int told = !writing || in_writable(path, fc->at.writable) ? put_rule(b, fc) : 0;

	if (told)
		return told < 0 ? told : 0;
	if (!writing)
		return buf_puts(b, ": permission denied (its mode or the sandbox's policy forbids "
				   "reading)");
	if (in_writable(path, fc->at.writable) && r != -EROFS)
		return buf_puts(b, ": permission denied; the file or its directory is not writable "
				   "(see its mode with list_dir; shell_run chmod u+w)");
	r = buf_puts(b, ": read-only in this sandbox");
	return r < 0 ? r : put_writable(b, fc->at.writable);
}

static int put_reason(struct buf *b, struct files_call *fc, const char *path, int r, bool writing)
{
	switch (-r) {
	case ENOENT:
		r = buf_puts(b, ": no such file or directory");
		return r < 0 ? r : put_nearest(b, fc->at.root_fd, path);
	case EACCES:
	case EPERM:
	case EROFS:
		return put_denied(b, fc, path, r, writing);
	case EISDIR:
		return buf_puts(b, ": is a directory; give the path of a file");
	case ENOTDIR:
		return buf_puts(b, ": a part of this path is not a directory");
	case ELOOP:
		return buf_puts(b, ": too many symbolic links; look at it with shell_run ls -l");
	case EOPNOTSUPP:
		return buf_puts(b, ": is a FIFO, socket or device; only regular files are opened");
	case EFBIG:
		return buf_puts(b, ": is too big for this tool; use shell_run");
	case ENOSPC:
	case EDQUOT:
		return buf_puts(b, ": no space left in the environment; env_gc gives some back");
	case EBUSY:
		return buf_puts(b,
				": another tool is changing a file in this directory; try again");
	default:
		return buf_printf(b, ": %s", err_text(r));
	}
}

int files_fail(struct files_call *fc, const char *path, int r, bool writing)
{
	cleanup_buf struct buf b = {0};
	int err = r;

	if (err == -ENOMEM || err == -ESTALE || err == -ENOTCONN)
		return err;
	r = files_put_path(&b, path);
	if (r >= 0)
		r = put_reason(&b, fc, path, err, writing);
	return r < 0 ? r : tool_error(fc->out, "%s", (char *)b.data);
}

/* ---- versions and meta ---- */

void files_version(const struct stat *st, const struct buf *content, char ret[static 11])
{
	const uint64_t facts[] = {
		st->st_ino,
		(uint64_t)st->st_size,
		(uint64_t)st->st_mtim.tv_sec,
		(uint64_t)st->st_mtim.tv_nsec,
		(uint64_t)st->st_ctim.tv_sec,
		(uint64_t)st->st_ctim.tv_nsec,
	};
	uint32_t v = content ? text_version(content->data, content->len)
			     : text_version(facts, sizeof(facts));

	(void)snprintf(ret, 11, "v:%08x", v);
}

int files_version_of(int fd, const struct stat *st, char ret[static 11])
{
	cleanup_buf struct buf b = {0};
	int r = 0;

	if (st->st_size <= FILES_VERSION_MAX)
		r = fsio_read_all(fd, (size_t)st->st_size, FILES_VERSION_MAX, &b);
	if (r < 0 && r != -EFBIG)
		return r;
	files_version(st, st->st_size > FILES_VERSION_MAX || r == -EFBIG ? NULL : &b, ret);
	return 0;
}

int files_expect(struct files_call *fc, const char *path, const char *expect, const char *version)
{
	cleanup_buf struct buf b = {0};
	const char *bare = !strncmp(expect, "v:", 2) ? expect + 2 : expect;
	int r;

	if (!strcasecmp(bare, version + 2))
		return 1;
	r = files_put_path(&b, path);
	return r < 0 ? r
		     : tool_error(fc->out,
				  "%s changed: it is %s now, not v:%s; read it again and repeat",
				  (char *)b.data, version, bare);
}

void files_seen(struct files_call *fc, const char *path, const char *version)
{
	struct seen *s = session_seen(tool_session(fc->call));

	if (s)
		seen_put(s, client_env(fc->client), path, version);
}

void files_look_before(struct files_call *fc, const char *path, const char *version)
{
	struct seen *s = session_seen(tool_session(fc->call));

	if (!s || !seen_other(s, client_env(fc->client), path, version, fc->before))
		fc->before[0] = 0;
}

int files_put_before(struct files_call *fc, const char *was)
{
	return fc->before[0]
		       ? buf_printf(&fc->out->text,
				    "note: it had changed since you last saw it (%s, then %s)\n",
				    fc->before, was)
		       : 0;
}

cJSON *files_meta(struct files_call *fc)
{
	if (!fc->out->meta)
		fc->out->meta = cJSON_CreateObject();
	return fc->out->meta;
}

/* Meta repeats what the text says; without memory for it the answer is still whole. */
void files_meta_str(struct files_call *fc, const char *key, const char *s)
{
	(void)cJSON_AddStringToObject(files_meta(fc), key, s);
}

void files_meta_num(struct files_call *fc, const char *key, uint64_t v)
{
	(void)cJSON_AddNumberToObject(files_meta(fc), key, (double)v);
}

void files_meta_path(struct files_call *fc, const char *path)
{
	cleanup_buf struct buf b = {0};

	if (text_put_escaped(&b, (const uint8_t *)path, strlen(path)) >= 0)
		files_meta_str(fc, "path", (const char *)b.data);
}
