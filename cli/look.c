/* rattan ls and cat: what a state holds, without a mount. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"

/* "[REV:]PATH": a revision ends at the last colon before the first slash. @spec is cut; *ret_rev NULL: the working tree.
 * *ret_path is owned by the caller. */
static int split(char *spec, const char **ret_rev, char **ret_path)
{
	char *slash = strchr(spec, '/'), *colon, *path = spec;
	char saved = 0;

	if (slash) {
		saved = *slash;
		*slash = 0;
	}
	colon = strrchr(spec, ':');
	if (slash)
		*slash = saved;
	*ret_rev = NULL;
	if (colon) {
		*colon = 0;
		*ret_rev = spec;
		path = colon + 1;
	}
	while (!strncmp(path, "./", 2))
		path += 2;
	if (!strcmp(path, "."))
		path = (char *)(uintptr_t) "";
	if (*path == '/')
		*ret_path = strdup(path);
	else if (asprintf(ret_path, "/workspace%s%s", *path ? "/" : "", path) < 0)
		*ret_path = NULL;
	return *ret_path ? 0 : -ENOMEM;
}

/* ---- ls ---- */

struct listing {
	bool details, zero;
	size_t cut; /* bytes of a path that are the directory's */
	cJSON *json;
};

static char type_letter(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	case S_IFCHR:
		return 'c';
	case S_IFBLK:
		return 'b';
	default:
		return '-';
	}
}

static void put_details(const struct ctl_file *f)
{
	char when[32] = "";
	struct tm tm;

	if (localtime_r(&f->mtime.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	printf("%c%04o %12llu  %s  ", type_letter(f->mode), f->mode & 07777,
	       (unsigned long long)f->size, when);
}

static void put_json_file(const struct listing *l, const struct ctl_file *f)
{
	char type[2] = {type_letter(f->mode), 0}, mode[12];
	cJSON *o = cJSON_CreateObject();

	(void)snprintf(mode, sizeof(mode), "%06o", f->mode);
	cli_json_str(o, "path", f->path);
	cli_json_str(o, "type", type);
	cli_json_str(o, "mode", mode);
	(void)cJSON_AddNumberToObject(o, "size", (double)f->size);
	(void)cJSON_AddNumberToObject(o, "mtime", (double)f->mtime.tv_sec);
	if (f->target)
		cli_json_str(o, "target", f->target);
	(void)cJSON_AddItemToArray(l->json, o);
}

static int on_file(void *arg, const struct ctl_file *f)
{
	const struct listing *l = arg;
	const char *name = f->path + (strlen(f->path) > l->cut ? l->cut : 0);

	if (l->json) {
		put_json_file(l, f);
		return 0;
	}
	if (l->details)
		put_details(f);
	if (l->zero) {
		(void)fwrite(name, 1, strlen(name) + 1, stdout);
		return 0;
	}
	cli_put(stdout, name);
	if (l->details && f->target) {
		printf(" -> ");
		cli_put(stdout, f->target);
	}
	printf("%s\n", S_ISDIR(f->mode) ? "/" : "");
	return 0;
}

static int list(const char *env, char *spec, bool below, struct listing *l)
{
	cleanup_env struct cli_env e = {0};
	cleanup_free char *path = NULL;
	struct diag diag = {0};
	const char *rev;
	int r = split(spec, &rev, &path);

	if (r < 0)
		return cli_fail_errno(r, NULL, "ls");
	r = cli_connect(env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	l->cut = strlen(path) + (path[strlen(path) - 1] != '/');
	r = ctl_ls(e.ctl, rev, path, below, &diag, on_file, l);
	return r < 0 ? cli_fail_errno(r, &diag, "ls") : -1;
}

static int run_ls(int argc, char **argv)
{
	const char *env = NULL;
	bool below = false, json = false;
	struct listing l = {0};
	char here[] = ".";
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"long", 'l', CLI_FLAG, &l.details, NULL, "with mode, size and time"},
		{"recursive", 'R', CLI_FLAG, &below, NULL, "with everything below"},
		{"null", 'z', CLI_FLAG, &l.zero, NULL, "names as they are, each ended by a NUL"},
		{"json", 0, CLI_FLAG, &json, NULL, "as JSON"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_ls, opts, argc, argv, false, &rest, &n), code;

	if (r >= 0)
		return r;
	if (n > 1)
		return cli_fail(CLI_USAGE, "ls: one place at a time; '%s' is too much", rest[1]);
	if (l.zero && (json || l.details))
		return cli_fail(CLI_USAGE, "ls: --null is names alone: --long and --json do not go "
					   "with it");
	if (json)
		l.json = cJSON_CreateArray();
	r = list(env, n ? rest[0] : here, below, &l);
	if (r >= 0) {
		cJSON_Delete(l.json);
		return r;
	}
	code = l.json ? cli_print_json(l.json) : cli_done();
	return code;
}

const struct cli_command cmd_ls = {
	.name = "ls",
	.args = "[[REV:]PATH] [-e NAME] [-l] [-R] [-z | --json]",
	.summary = "names in a directory of any state",
	.details =
		"REV as for rollback; without one the working tree. PATH is relative to /workspace.\n\n"
		"Examples:\n  rattan ls\n  rattan ls -l head:src\n  rattan ls -R base:/etc\n",
	.run = run_ls,
};

/* ---- cat ---- */

static int put_file(int fd)
{
	bool tty = isatty(STDOUT_FILENO);
	char piece[65536];
	ssize_t n;

	while ((n = io_read_full(fd, piece, sizeof(piece))) > 0) {
		/* What a file holds says nothing to a terminal. */
		if (tty)
			cli_put_text(stdout, piece, (size_t)n);
		else if (fwrite(piece, 1, (size_t)n, stdout) != (size_t)n)
			break;
	}
	return n < 0 ? (int)n : 0;
}

static int run_cat(int argc, char **argv)
{
	const char *env = NULL;
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{0},
	};
	cleanup_env struct cli_env e = {0};
	char **rest;
	int n, r = cli_parse(&cmd_cat, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (!n)
		return cli_fail(CLI_USAGE, "cat: give a file: rattan cat head:src/main.c");
	r = cli_connect(env, &e.client, &e.ctl);
	for (int i = 0; r < 0 && i < n; i++) {
		cleanup_free char *path = NULL;
		cleanup_fd int fd = -1;
		struct diag diag = {0};
		const char *rev;
		uint32_t mode;
		int k = split(rest[i], &rev, &path);

		if (k == 0)
			k = ctl_cat(e.ctl, rev, path, &diag, &fd, &mode);
		if (k == 0)
			k = put_file(fd);
		if (k < 0)
			r = cli_fail_errno(k, &diag, rest[i]);
	}
	return r >= 0 ? r : cli_done();
}

const struct cli_command cmd_cat = {
	.name = "cat",
	.args = "[REV:]PATH... [-e NAME]",
	.summary = "a file's content in any state",
	.details =
		"REV as for rollback; without one the working tree. PATH is relative to /workspace. Of a\n"
		"symbolic link: where it leads. Files of more than 64 MiB: rattan mount.\n\n"
		"Example:\n  rattan cat head:src/main.c\n",
	.run = run_cat,
};
