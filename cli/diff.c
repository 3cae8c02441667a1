/* rattan diff: what changed, by name and by content. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/cli.h"

enum {
	CONTENT_MAX = 32 << 20
};

struct change {
	char kind, *path, *old_path;
	uint32_t mode;
	uint64_t size;
};
struct changes {
	struct change *v;
	size_t n, cap;
	const char *below; /* only at or below this path; NULL: all */
};

static void changes_release(struct changes *c)
{
	for (size_t i = 0; i < c->n; i++) {
		free(c->v[i].path);
		free(c->v[i].old_path);
	}
	free(c->v);
}

static bool at_or_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n && dir[n - 1] == '/')
		n--;
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

static int on_change(void *arg, const struct ctl_change *ch)
{
	struct changes *c = arg;
	struct change *v;

	if (c->below && !at_or_below(ch->path, c->below) &&
	    !(ch->old_path && at_or_below(ch->old_path, c->below)))
		return 0;
	if (c->n == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 64;

		v = realloc(c->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		c->v = v;
		c->cap = cap;
	}
	v = &c->v[c->n];
	*v = (struct change){
		.kind = ch->kind, .path = strdup(ch->path), .mode = ch->mode, .size = ch->size};
	if (ch->old_path)
		v->old_path = strdup(ch->old_path);
	c->n++;
	return v->path && (v->old_path || !ch->old_path) ? 0 : -ENOMEM;
}

/* ---- by name ---- */

static void put_name(const struct change *c)
{
	printf("%c ", c->kind);
	if (c->old_path && c->kind == 'R') {
		cli_put(stdout, c->old_path);
		printf(" -> ");
	}
	cli_put(stdout, c->path);
	printf("%s\n", S_ISDIR(c->mode) ? "/" : "");
}

static void put_stat(const struct changes *c)
{
	uint64_t bytes = 0;
	size_t count[128] = {0};

	for (size_t i = 0; i < c->n; i++) {
		count[c->v[i].kind & 127]++;
		bytes += S_ISREG(c->v[i].mode) && c->v[i].kind != 'D' ? c->v[i].size : 0;
	}
	printf("%zu changed: %zu added, %zu modified, %zu deleted, %zu renamed, %zu of another type; now ",
	       c->n, count['A'], count['M'], count['D'], count['R'], count['T']);
	cli_put_size(stdout, bytes);
	printf("\n");
}

static int put_json(const struct changes *c)
{
	cJSON *list = cJSON_CreateArray();

	for (size_t i = 0; i < c->n; i++) {
		char kind[2] = {c->v[i].kind, 0}, mode[12];
		cJSON *o = cJSON_CreateObject();

		(void)snprintf(mode, sizeof(mode), "%06o", c->v[i].mode);
		cli_json_str(o, "kind", kind);
		cli_json_str(o, "path", c->v[i].path);
		if (c->v[i].old_path)
			cli_json_str(o, "old_path", c->v[i].old_path);
		cli_json_str(o, "mode", mode);
		(void)cJSON_AddNumberToObject(o, "size", (double)c->v[i].size);
		(void)cJSON_AddItemToArray(list, o);
	}
	return cli_print_json(list);
}

/* ---- by content ---- */

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

/* diff(1) on the two descriptors, by their names in /proc. */
static int spawn_diff(const struct side *a, const struct side *b)
{
	char pa[40] = "/dev/null", pb[40] = "/dev/null";
	char la[sizeof(a->label)], lb[sizeof(b->label)];
	char *argv[] = {(char[]){"diff"},
			(char[]){"-u"},
			(char[]){"--label"},
			la,
			(char[]){"--label"},
			lb,
			pa,
			pb,
			NULL};
	posix_spawn_file_actions_t act;
	int r, status;
	pid_t pid;

	if (posix_spawn_file_actions_init(&act))
		return -ENOMEM;
	memcpy(la, a->label, sizeof(la));
	memcpy(lb, b->label, sizeof(lb));
	/* dup2 onto themselves would keep CLOEXEC in old libcs: use numbers of their own */
	if (a->fd >= 0) {
		(void)snprintf(pa, sizeof(pa), "/proc/self/fd/%d", 100);
		(void)posix_spawn_file_actions_adddup2(&act, a->fd, 100);
	}
	if (b->fd >= 0) {
		(void)snprintf(pb, sizeof(pb), "/proc/self/fd/%d", 101);
		(void)posix_spawn_file_actions_adddup2(&act, b->fd, 101);
	}
	(void)fflush(stdout);
	r = posix_spawnp(&pid, "diff", &act, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&act);
	if (r)
		return -r;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return ret_nerrno();
	/* Nobody reads any more: the same end as when we had written it. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE)
		(void)raise(SIGPIPE);
	return WIFEXITED(status) && WEXITSTATUS(status) < 2 ? 0 : -EIO;
}

static int put_content(struct ctl *ctl, const char *rev_a, const char *rev_b,
		       const struct change *c)
{
	struct side a = {.fd = -1, .label = "/dev/null"}, b = a;
	cleanup_fd int fda = -1, fdb = -1;
	int r = 0;

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
	if (a.fd >= 0 && b.fd >= 0 && a.mode != b.mode)
		printf("mode of %s: %06o -> %06o\n", b.label + 1, a.mode, b.mode);
	if (!readable(&a) || !readable(&b))
		return 0;
	if (huge(&a) || huge(&b)) {
		printf("%s and %s differ; they are over 32 MiB and not shown\n", a.label, b.label);
		return 0;
	}
	return spawn_diff(&a, &b);
}

/* ---- the command ---- */

struct args {
	const char *env;
	bool stat, names, json;
	const char *a, *b, *path;
};

/* [A [B]] [PATH]: a path is what has a slash. */
static int words(struct args *a, char **rest, int n, char **ret_path)
{
	for (int i = 0; i < n; i++) {
		if (strchr(rest[i], '/') || !strcmp(rest[i], ".")) {
			const char *s = rest[i];

			if (i != n - 1)
				return cli_fail(CLI_USAGE, "diff: a path comes last: '%s'", s);
			while (!strncmp(s, "./", 2))
				s += 2;
			if (!strcmp(s, "."))
				s = "";
			if (*s == '/' ? !(*ret_path = strdup(s))
				      : asprintf(ret_path, "/workspace/%s", s) < 0)
				return cli_fail(CLI_FAILED, "out of memory");
			a->path = *ret_path;
		} else if (i == 0) {
			a->a = rest[i];
		} else if (i == 1) {
			a->b = rest[i];
		} else {
			return cli_fail(CLI_USAGE,
					"diff: too much: '%s'; a path has a slash, such as ./%s",
					rest[i], rest[i]);
		}
	}
	return -1;
}

static int put_all(const struct args *a, struct ctl *ctl, const struct changes *c)
{
	if (a->json)
		return put_json(c);
	for (size_t i = 0; !a->stat && i < c->n; i++)
		put_name(&c->v[i]);
	if (a->stat)
		put_stat(c);
	for (size_t i = 0; !a->stat && !a->names && i < c->n; i++) {
		int r = put_content(ctl, a->a ? a->a : "head", a->b, &c->v[i]);

		if (r == -ENOENT)
			return cli_fail(CLI_FAILED,
					"diff: the program diff is not installed; --name-status "
					"needs none");
		if (r < 0)
			return cli_fail_errno(r, NULL, c->v[i].path);
	}
	return cli_done();
}

static int diff(struct args *a, char **rest, int n)
{
	__attribute__((cleanup(changes_release))) struct changes c = {0};
	cleanup_env struct cli_env e = {0};
	cleanup_free char *path = NULL;
	struct diag diag = {0};
	int r = words(a, rest, n, &path);

	if (r >= 0)
		return r;
	r = cli_connect(a->env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	c.below = a->path;
	r = ctl_diff(e.ctl, a->a, a->b, &diag, on_change, &c);
	if (r == -ENOENT && n && *diag.text)
		return cli_fail(CLI_NOT_FOUND, "%s; a path has a slash, such as ./src", diag.text);
	return r < 0 ? cli_fail_errno(r, &diag, "diff") : put_all(a, e.ctl, &c);
}

static int run(int argc, char **argv)
{
	struct args a = {0};
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &a.env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"name-status", 0, CLI_FLAG, &a.names, NULL,
		 "only the kind of change and the path"},
		{"stat", 0, CLI_FLAG, &a.stat, NULL, "only how much"},
		{"json", 0, CLI_FLAG, &a.json, NULL, "the list as JSON"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_diff, opts, argc, argv, false, &rest, &n);

	return r >= 0 ? r : diff(&a, rest, n);
}

const struct cli_command cmd_diff = {
	.name = "diff",
	.args = "[A [B]] [PATH] [-e NAME] [--name-status | --stat | --json]",
	.summary = "what changed",
	.details =
		"Without revisions: from head to the working tree; A: from A to the working tree; A B:\n"
		"between the two. PATH (with a slash; relative to /workspace) limits it to that file or\n"
		"directory. Kinds: A added, M modified, D deleted, R renamed, T of another type.\n\n"
		"Examples:\n  rattan diff\n  rattan diff base head --name-status\n  rattan diff ./src\n",
	.run = run,
};
