#include "mcp/shelltext.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/json.h"

#define FOLD_LEAST 4
#define COUNT_MAX  (16u << 20)

static bool is_scratch(const char *path)
{
	return !strncmp(path, "/tmp/", 5) || !strncmp(path, "/var/tmp/", 9);
}

int changes_add(void *arg, const char *path, char what)
{
	struct changes *c = arg;
	int r;

	/* What a compiler made and took away again is no news. */
	if (what == 'd' && is_scratch(path))
		return 0;
	c->total++;
	if (c->kept >= CHANGES_KEPT)
		return 0;
	c->kept++;
	r = what == 'd' ? buf_puts(&c->paths, "-") : 0;
	return r ? r : buf_put(&c->paths, path, strlen(path) + 1);
}

void changes_release(struct changes *c)
{
	buf_release(&c->paths);
	client_denials_release(&c->denied);
	free(c->asked);
	*c = (struct changes){0};
}

int sh_size(struct buf *out, uint64_t n)
{
	if (n < 1024)
		return buf_printf(out, "%" PRIu64 " B", n);
	if (n < 1024 * 1024)
		return buf_printf(out, "%.1f KiB", (double)n / 1024);
	if (n < 1024ull * 1024 * 1024)
		return buf_printf(out, "%.1f MiB", (double)n / (1024 * 1024));
	return buf_printf(out, "%.1f GiB", (double)n / (1024.0 * 1024 * 1024));
}

/* Bytes of the escape sequence at @p (which is ESC): CSI, OSC and the two-byte ones. */
static size_t escape_len(const uint8_t *p, size_t n)
{
	size_t i = 2;

	if (n < 2)
		return n;
	if (p[1] == '[') {
		while (i < n && p[i] >= 0x20 && p[i] < 0x40)
			i++;
		return i < n && p[i] >= 0x40 && p[i] < 0x7f ? i + 1 : i;
	}
	if (p[1] == ']') {
		while (i < n && p[i] != 7 && p[i] != '\n') {
			if (p[i] == 27 && i + 1 < n && p[i + 1] == '\\')
				return i + 2;
			i++;
		}
		return i < n && p[i] == 7 ? i + 1 : i;
	}
	if (p[1] >= 0x20 && p[1] < 0x30)
		return n < 3 ? n : 3;
	return p[1] >= 0x30 && p[1] < 0x7f ? 2 : 1;
}

/* A progress bar redraws its line: only the last state counts. */
static void redraw(struct buf *out, size_t line)
{
	out->len = line;
	if (out->data)
		out->data[line] = 0;
}

static int clean_one(struct buf *out, const uint8_t *p, size_t n, size_t *line, size_t *ret_used)
{
	size_t k = utf8_len(p, n);

	*ret_used = k ? k : 1;
	if (!k)
		return buf_printf(out, "\\x%02x", p[0]);
	if (p[0] == 27) {
		*ret_used = escape_len(p, n);
		return 0;
	}
	if (p[0] == '\r') {
		if (n > 1 && p[1] != '\n' && p[1] != '\r')
			redraw(out, *line);
		return 0;
	}
	if (p[0] == '\b') {
		if (out->len > *line)
			redraw(out, out->len - 1);
		return 0;
	}
	if (k == 1 && (p[0] < 0x20 || p[0] == 0x7f) && p[0] != '\n' && p[0] != '\t')
		return 0;
	if (k == 2 && p[0] == 0xc2 && p[1] < 0xa0) /* C1: to a terminal 0x9b is what ESC [ is */
		return 0;
	if (p[0] == '\n')
		*line = out->len + 1;
	return buf_put(out, p, k);
}

int sh_clean(struct buf *out, const uint8_t *p, size_t n)
{
	size_t line = out->len, i = 0;
	int r = 0;

	while (!r && i < n) {
		size_t from = i, used;

		while (i < n && ((p[i] >= 0x20 && p[i] < 0x7f) || p[i] == '\t'))
			i++;
		if (i > from)
			r = buf_put(out, p + from, i - from);
		if (r || i == n)
			break;
		r = clean_one(out, p + i, n - i, &line, &used);
		i += used;
	}
	return r;
}

/* Bytes of the line at @p, its end included. */
static size_t line_len(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *nl = memchr(p, '\n', (size_t)(end - p));

	return (size_t)((nl ? nl + 1 : end) - p);
}

int sh_fold(struct buf *out, size_t from)
{
	cleanup_buf struct buf b = {0};
	const uint8_t *p = out->data + from, *end = out->data + out->len;
	int r = 0;

	if (!out->data || from >= out->len)
		return 0;
	while (!r && p < end) {
		size_t n = line_len(p, end), times = 1;

		while (p[n - 1] == '\n' && (size_t)(end - p) >= (times + 1) * n &&
		       !memcmp(p, p + times * n, n))
			times++;
		if (times < FOLD_LEAST)
			times = 1;
		r = buf_put(&b, p, n);
		if (!r && times > 1)
			r = buf_printf(&b, "[repeated %zu×]\n", times);
		p += times * n;
	}
	if (r || b.len >= out->len - from)
		return r;
	out->len = from;
	return buf_put(out, b.data, b.len);
}

static const char *signal_name(int sig)
{
	const char *n = sigabbrev_np(sig);

	return n ? n : "?";
}

/* " (SIGSEGV)" after the code by which a shell tells that the last of its commands died of a signal; "" after any other. */
static const char *of_signal(int code, char ret[static 24])
{
	const char *name = code > 128 ? sigabbrev_np(code - 128) : NULL;

	ret[0] = 0;
	if (name)
		(void)snprintf(ret, 24, " (SIG%s)", name);
	return ret;
}

static int put_end(struct buf *out, const struct job_info *in)
{
	const struct run_result *res = &in->result;
	char sig[24];

	if (res->state == RUN_NOT_STARTED)
		return buf_printf(out, "not started: %s%s%s", res->step, res->step[0] ? ": " : "",
				  res->error[0] ? res->error : "no reason was given");
	if (res->timed_out)
		return buf_printf(out, "timed out after %.2fs, killed", res->wall_s);
	if (in->cancelled)
		return buf_printf(out, "killed after %.2fs", res->wall_s);
	if (res->state == RUN_SIGNALED && res->error[0])
		return buf_printf(out, "killed after %.2fs: %s", res->wall_s, res->error);
	if (res->state == RUN_SIGNALED)
		return buf_printf(out, "signal SIG%s (exit %d) in %.2fs", signal_name(res->signal),
				  res->code, res->wall_s);
	if (res->pipe[0])
		return buf_printf(out, "exit %d%s (pipe: %s) in %.2fs", res->code,
				  of_signal(res->code, sig), res->pipe, res->wall_s);
	return buf_printf(out, "exit %d%s in %.2fs", res->code, of_signal(res->code, sig),
			  res->wall_s);
}

int sh_limited(struct buf *out, const struct job_info *in)
{
	int r = buf_puts(out, "[the first ");

	if (!r)
		r = sh_size(out, in->size[0] + in->size[1]);
	return r ? r : buf_puts(out, " of its output are kept, the rest was discarded]\n");
}

/* Without "//", "/./" and "/../", as a shell says where it is. Into @ret, which has room. */
static void plain_path(const char *p, char *ret)
{
	size_t n = 0;

	while (*(p += strspn(p, "/"))) {
		size_t len = strcspn(p, "/");

		if (len == 2 && !strncmp(p, "..", 2)) {
			while (n && ret[--n] != '/')
				;
		} else if (len != 1 || *p != '.') {
			ret[n++] = '/';
			memcpy(ret + n, p, len);
			n += len;
		}
		p += len;
	}
	ret[n] = 0;
}

const char *sh_ended_in(const struct job_info *in)
{
	char from[4096], to[sizeof(in->result.ended_in)];

	if (!in->result.ended_in[0] || !in->cwd || strlen(in->cwd) >= sizeof(from))
		return NULL;
	plain_path(in->cwd, from);
	plain_path(in->result.ended_in, to);
	return strcmp(from, to) ? in->result.ended_in : NULL;
}

int sh_state(struct buf *out, const struct job_info *in)
{
	int r = in->ended ? 0 : buf_printf(out, "running for %.1fs", in->age_s);

	if (!r && in->command_ended)
		r = buf_puts(out, ", its command: ");
	return r || (!in->ended && !in->command_ended) ? r : put_end(out, in);
}

int sh_status(struct buf *out, const struct job_info *in, const struct changes *ch, uint64_t lines)
{
	int r;

	if (in->ended || in->command_ended)
		r = put_end(out, in);
	else
		r = buf_printf(out, "running as job %s after %.1fs", in->id, in->age_s);
	if (r || (in->ended && in->result.state == RUN_NOT_STARTED))
		return r;
	if (in->size[0] + in->size[1]) {
		r = buf_printf(out, "  out %" PRIu64 " line%s ", lines, lines == 1 ? "" : "s");
		if (!r)
			r = sh_size(out, in->size[0]);
	}
	if (!r && in->separate && in->size[1]) {
		r = buf_puts(out, "  err ");
		if (!r)
			r = sh_size(out, in->size[1]);
	}
	if (!r && ch && ch->known && ch->total)
		r = buf_printf(out, "  changed %u file%s", ch->total, ch->total == 1 ? "" : "s");
	return r;
}

static int read_raw(struct job *j, int stream, uint64_t from, size_t n, struct buf *ret)
{
	ssize_t k;
	int r = buf_reserve(ret, n + 1);

	if (r)
		return r;
	k = job_read(j, stream, from, ret->data, n);
	if (k < 0)
		return (int)k;
	ret->len = (size_t)k;
	return 0;
}

int sh_range(struct buf *out, struct job *j, int stream, uint64_t from, uint64_t to)
{
	cleanup_buf struct buf raw = {0};
	int r;

	if (to <= from)
		return 0;
	r = read_raw(j, stream, from, (size_t)(to - from), &raw);
	return r ? r : sh_clean(out, raw.data, raw.len);
}

/* Ranges are cut at line ends where one is near, else between characters. */
static uint64_t cut_back(const struct buf *raw, size_t n)
{
	const uint8_t *nl = n ? memrchr(raw->data, '\n', n) : NULL;

	if (nl && (size_t)(nl + 1 - raw->data) > n / 2)
		return (uint64_t)(nl + 1 - raw->data);
	while (n && raw->data[n - 1] >= 0x80 && (raw->data[n - 1] & 0xc0) == 0x80)
		n--;
	if (n && raw->data[n - 1] >= 0xc0)
		n--;
	return n;
}

static size_t cut_front(const struct buf *raw)
{
	const uint8_t *nl = raw->len ? memchr(raw->data, '\n', raw->len) : NULL;
	size_t i = 0;

	if (nl && (size_t)(nl + 1 - raw->data) < raw->len / 2)
		return (size_t)(nl + 1 - raw->data);
	while (i < raw->len && i < 3 && (raw->data[i] & 0xc0) == 0x80)
		i++;
	return i;
}

int sh_output(struct buf *out, struct job *j, int stream, size_t max, const char *id,
	      uint64_t *ret_left)
{
	cleanup_buf struct buf head = {0};
	cleanup_buf struct buf tail = {0};
	uint64_t size = job_size(j, stream), head_end, tail_at;
	size_t skip;
	int r;

	*ret_left = 0;
	if (size <= max)
		return sh_range(out, j, stream, 0, size);
	r = read_raw(j, stream, 0, max * 2 / 5, &head);
	if (!r)
		r = read_raw(j, stream, size - max * 3 / 5, max * 3 / 5, &tail);
	if (r)
		return r;
	head_end = cut_back(&head, head.len);
	skip = cut_front(&tail);
	tail_at = size - max * 3 / 5 + skip;
	r = sh_clean(out, head.data, (size_t)head_end);
	if (!r && out->len && out->data[out->len - 1] != '\n')
		r = buf_puts(out, "\n");
	if (!r)
		r = buf_printf(out,
			       "[... %" PRIu64 " bytes left out; see them with shell_job_output "
			       "job_id=\"%s\" offset=%" PRIu64
			       "%s, or read_file or grep with path=\"" JOB_OUTPUT_DIR
			       "%s.%s\" ...]\n",
			       tail_at - head_end, id, head_end, stream ? " stream=\"stderr\"" : "",
			       id, stream ? "err" : "log");
	if (!r)
		r = sh_clean(out, tail.data + skip, tail.len - skip);
	if (!r)
		*ret_left = tail_at - head_end;
	return r;
}

uint64_t sh_lines(struct job *j, int stream)
{
	uint8_t block[16384];
	uint64_t off = 0, lines = 0;
	uint8_t last = '\n';

	while (off < COUNT_MAX) {
		ssize_t n = job_read(j, stream, off, block, sizeof(block));

		if (n <= 0)
			break;
		for (const uint8_t *p = block; (p = memchr(p, '\n', (size_t)(block + n - p))); p++)
			lines++;
		last = block[n - 1];
		off += (uint64_t)n;
	}
	return lines + (last != '\n');
}
