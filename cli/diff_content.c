/* How two states of a file differ: mode, attributes, and content by diff(1). */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/utf8.h"
#include "cli/diff_internal.h"
#include "cli/pager.h"

enum {
	CONTENT_MAX = 32 << 20
};

struct side {
	int fd; /* -1: nothing there */
	uint32_t mode;
	char label[4200];
};

static int load(struct ctl *ctl, const char *rev, const char *path, char letter, struct side *s)
{
	int r = ctl_cat(ctl, rev, path, NULL, &s->fd, &s->mode);

	(void)snprintf(s->label, sizeof(s->label), r < 0 ? "/dev/null" : "%c%s", letter, path);
	if (r < 0)
		s->fd = -1;
	return r == -ENOENT || r == -EISDIR ? 0 : r;
}

static bool readable(const struct side *s)
{
	return s->fd < 0 || S_ISREG(s->mode) || S_ISLNK(s->mode);
}

static bool huge(const struct side *s)
{
	struct stat st;

	return s->fd >= 0 && !fstat(s->fd, &st) && st.st_size > CONTENT_MAX;
}

/* A name that could end its line, or say something to a terminal, as git and patch(1) quote it. */
static int put_label(struct buf *out, const char *label)
{
	const uint8_t *p = (const uint8_t *)label, *end = p + strlen(label);
	bool plain = !strpbrk(label, "\"\\");
	int r;

	for (size_t n; plain && p < end; p += n) {
		n = utf8_len(p, (size_t)(end - p));
		plain = n && utf8_shown(p, n);
		n = n ? n : 1;
	}
	if (plain)
		return buf_puts(out, label);
	r = buf_puts(out, "\"");
	for (p = (const uint8_t *)label; r == 0 && p < end; p++) {
		if (*p == '"' || *p == '\\')
			r = buf_printf(out, "\\%c", *p);
		else if (*p < 0x20 || *p >= 0x7f)
			r = buf_printf(out, "\\%03o", *p);
		else
			r = buf_put(out, p, 1);
	}
	return r < 0 ? r : buf_puts(out, "\"");
}

static enum cli_colour colour_of(const char *line)
{
	if (!strncmp(line, "--- ", 4) || !strncmp(line, "+++ ", 4))
		return CLI_BOLD;
	return *line == '-'   ? CLI_RED
	       : *line == '+' ? CLI_GREEN
	       : *line == '@' ? CLI_CYAN
			      : CLI_PLAIN;
}

/* ---- all of it is new, or gone ---- */

/* A line of a unified diff, what is the file's as it is or, to a terminal, made safe. */
static void put_line(const struct cli_page *pg, const char *text, size_t n)
{
	const enum cli_colour c = colour_of(text);

	if (!pg->tty) {
		(void)fwrite(text, 1, n, stdout);
		(void)putchar('\n');
		return;
	}
	if (c != CLI_PLAIN)
		cli_colour(pg, c);
	cli_put_text(stdout, text, n);
	if (c != CLI_PLAIN)
		cli_colour(pg, CLI_PLAIN);
	(void)putchar('\n');
}

static int put_hunk_head(const struct cli_page *pg, const struct buf *content, bool added)
{
	cleanup_buf struct buf b = {0};
	const char *at = (const char *)content->data, *end = at + content->len;
	size_t lines = 0;
	int r;

	for (const char *nl; at < end; at = nl ? nl + 1 : end, lines++)
		nl = memchr(at, '\n', (size_t)(end - at));
	if (lines == 1)
		r = buf_puts(&b, added ? "@@ -0,0 +1 @@" : "@@ -1 +0,0 @@");
	else
		r = buf_printf(&b, added ? "@@ -0,0 +1,%zu @@" : "@@ -1,%zu +0,0 @@", lines);
	if (r == 0)
		put_line(pg, (const char *)b.data, b.len);
	return r;
}

static int put_head(const struct cli_page *pg, const char *mark, const char *label)
{
	cleanup_buf struct buf b = {0};
	int r = buf_puts(&b, mark);

	if (r == 0)
		r = put_label(&b, label);
	if (r == 0)
		put_line(pg, (const char *)b.data, b.len);
	return r;
}

static int read_all(int fd, struct buf *ret)
{
	char part[65536];
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = io_read_full(fd, part, sizeof(part))) != 0)
		r = n < 0 ? (int)n : buf_put(ret, part, (size_t)n);
	return r;
}

/* As diff(1) shows it beside nothing, without starting one. */
static int put_whole(const struct cli_page *pg, const struct side *a, const struct side *b)
{
	const bool added = a->fd < 0;
	cleanup_buf struct buf content = {0}, line = {0};
	const char *at, *end;
	int r = read_all(added ? b->fd : a->fd, &content);

	if (r < 0 || !content.len)
		return r;
	at = (const char *)content.data;
	end = at + content.len;
	if (memchr(at, 0, content.len)) {
		printf("Binary files ");
		cli_put(stdout, a->label);
		printf(" and ");
		cli_put(stdout, b->label);
		printf(" differ\n");
		return 0;
	}
	r = put_head(pg, "--- ", a->label);
	if (r == 0)
		r = put_head(pg, "+++ ", b->label);
	if (r == 0)
		r = put_hunk_head(pg, &content, added);
	for (const char *nl; r == 0 && at < end; at = nl ? nl + 1 : end) {
		nl = memchr(at, '\n', (size_t)(end - at));
		buf_clear(&line);
		r = buf_puts(&line, added ? "+" : "-");
		if (r == 0)
			r = buf_put(&line, at, (size_t)((nl ? nl : end) - at));
		if (r == 0)
			put_line(pg, (const char *)line.data, line.len);
		if (r == 0 && !nl)
			printf("\\ No newline at end of file\n");
	}
	return r;
}

/* ---- both are there ---- */

/* What a file holds says nothing to a terminal, either. */
static int show(const struct cli_page *pg, int fd)
{
	cleanup_file FILE *f = fdopen(fd, "r");
	cleanup_free char *line = NULL;
	size_t room = 0;
	ssize_t n;

	if (!f) {
		int r = ret_nerrno();

		(void)close(fd);
		return r;
	}
	while ((n = getline(&line, &room, f)) > 0)
		put_line(pg, line, (size_t)n - (line[n - 1] == '\n'));
	return 0;
}

/* diff(1) on the two descriptors, by their names in /proc; to a terminal by way of us. */
static int start_diff(const struct side *a, const struct side *b, int out_fd, pid_t *ret_pid)
{
	cleanup_buf struct buf la = {0}, lb = {0};
	char pa[40] = "/dev/null", pb[40] = "/dev/null";
	posix_spawn_file_actions_t act;
	int r = put_label(&la, a->label);

	if (r == 0)
		r = put_label(&lb, b->label);
	if (r < 0)
		return r;

	char *argv[] = {(char[]){"diff"},
			(char[]){"-u"},
			(char[]){"--label"},
			(char *)la.data,
			(char[]){"--label"},
			(char *)lb.data,
			pa,
			pb,
			NULL};

	if (posix_spawn_file_actions_init(&act))
		return -ENOMEM;
	/* dup2 onto themselves would keep CLOEXEC in old libcs: use numbers of their own */
	if (a->fd >= 0) {
		(void)snprintf(pa, sizeof(pa), "/proc/self/fd/%d", 100);
		(void)posix_spawn_file_actions_adddup2(&act, a->fd, 100);
	}
	if (b->fd >= 0) {
		(void)snprintf(pb, sizeof(pb), "/proc/self/fd/%d", 101);
		(void)posix_spawn_file_actions_adddup2(&act, b->fd, 101);
	}
	if (out_fd >= 0)
		(void)posix_spawn_file_actions_adddup2(&act, out_fd, STDOUT_FILENO);
	(void)fflush(stdout);
	r = posix_spawnp(ret_pid, "diff", &act, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&act);
	return -r;
}

static int spawn_diff(const struct cli_page *pg, const struct side *a, const struct side *b)
{
	int pipe_fd[2] = {-1, -1}, r, status;
	pid_t pid;

	if (pg->tty && pipe2(pipe_fd, O_CLOEXEC) < 0)
		return ret_nerrno();
	r = start_diff(a, b, pipe_fd[1], &pid);
	if (pipe_fd[1] >= 0)
		(void)close(pipe_fd[1]);
	if (r < 0) {
		if (pipe_fd[0] >= 0)
			(void)close(pipe_fd[0]);
		return r;
	}
	if (pipe_fd[0] >= 0)
		r = show(pg, pipe_fd[0]);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return ret_nerrno();
	/* Nobody reads any more: the same end as when we had written it. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE)
		(void)raise(SIGPIPE);
	if (r < 0)
		return r;
	return WIFEXITED(status) && WEXITSTATUS(status) < 2 ? 0 : -EIO;
}

/* What no content shows. The mode of what has content is told with both of its values. */
static void put_what(const struct change *c)
{
	static const struct {
		uint32_t bit;
		const char *text;
	} names[] = {{CTL_MODE, "mode"}, {CTL_OWNER, "owner"}, {CTL_XATTRS, "extended attributes"}};

	if (c->kind != 'M' && c->kind != 'R')
		return;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!(c->what & names[i].bit) || (names[i].bit == CTL_MODE && !S_ISDIR(c->mode)))
			continue;
		printf("%s of ", names[i].text);
		cli_put(stdout, c->path);
		if (names[i].bit == CTL_MODE)
			printf(": now %06o\n", c->mode);
		else
			printf(": changed\n");
	}
}

int diff_put_content(const struct cli_page *pg, struct ctl *ctl, const char *rev_a,
		     const char *rev_b, const struct change *c)
{
	struct side a = {.fd = -1, .label = "/dev/null"}, b = a;
	cleanup_fd int fda = -1, fdb = -1;
	int r = 0;

	put_what(c);
	if (S_ISDIR(c->mode) && c->kind != 'T')
		return 0;
	if (c->kind != 'A')
		r = load(ctl, rev_a, c->old_path ? c->old_path : c->path, 'a', &a);
	fda = a.fd;
	if (r >= 0 && c->kind != 'D')
		r = load(ctl, rev_b, c->path, 'b', &b);
	fdb = b.fd;
	if (r < 0)
		return r;
	if (a.fd < 0 && b.fd < 0)
		return 0;
	if (a.fd >= 0 && b.fd >= 0 && a.mode != b.mode) {
		printf("mode of ");
		cli_put(stdout, b.label + 1);
		printf(": %06o -> %06o\n", a.mode, b.mode);
	}
	if (!readable(&a) || !readable(&b))
		return 0;
	if (huge(&a) || huge(&b)) {
		cli_put(stdout, a.label);
		printf(" and ");
		cli_put(stdout, b.label);
		printf(" differ; they are over 32 MiB and not shown\n");
		return 0;
	}
	return a.fd < 0 || b.fd < 0 ? put_whole(pg, &a, &b) : spawn_diff(pg, &a, &b);
}
