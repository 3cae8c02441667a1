/* rattan mount and umount: a commit as a read-only file system on the host. */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/cli.h"

static int mount_rev(const char *env, const char *rev, const char *dir, bool rw)
{
	cleanup_free char *real = realpath(dir, NULL);
	char name[CLI_ENV_MAX];
	cleanup_env struct cli_env e = {0};
	struct diag diag = {0};
	struct stat st;
	int r;

	if (!real && errno == ENOENT)
		return cli_fail(CLI_NOT_FOUND,
				"mount: there is no directory %s; make it first (mkdir -p)", dir);
	if (!real)
		return cli_fail(cli_exit_of(-errno), "mount: %s: %s", dir, err_text(errno));
	if (!stat(real, &st) && !S_ISDIR(st.st_mode))
		return cli_fail(CLI_FAILED, "mount: %s is not a directory", dir);
	r = cli_connect(env, &e.client, &e.ctl);
	if (r >= 0)
		return r;
	(void)snprintf(name, sizeof(name), "%s", client_env(e.client));
	r = ctl_mount(NULL, name, rev, real, rw, &diag);
	if (r < 0)
		return cli_fail_errno(r, &diag, "mount");
	printf("%s of %s is at %s; rattan umount %s takes it away%s\n", rev, name, dir, dir,
	       rw ? ", with what is written there" : "");
	return cli_done();
}

static int run_mount(int argc, char **argv)
{
	const char *env = NULL;
	bool rw = false;
	const struct cli_opt opts[] = {
		{"rw", 0, CLI_FLAG, &rw, NULL, "writable; what is written goes away at umount"},
		{"env", 'e', CLI_TEXT, &env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{0},
	};
	char **rest;
	int n, r = cli_parse(&cmd_mount, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n != 2)
		return cli_fail(CLI_USAGE,
				"mount: give a revision and an empty directory: rattan mount head "
				"DIR");
	return mount_rev(env, rest[0], rest[1], rw);
}

static int run_umount(int argc, char **argv)
{
	const struct cli_opt opts[] = {{0}};
	cleanup_free char *real = NULL;
	struct diag diag = {0};
	char **rest;
	int n, r = cli_parse(&cmd_umount, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	if (n != 1)
		return cli_fail(CLI_USAGE, "umount: give the directory");
	real = realpath(rest[0], NULL);
	if (!real)
		return cli_fail(cli_exit_of(-errno), "umount: %s: %s", rest[0], err_text(errno));
	r = ctl_umount(real, &diag);
	return r < 0 ? cli_fail_errno(r, &diag, "umount") : CLI_OK;
}

const struct cli_command cmd_mount = {
	.name = "mount",
	.args = "REV DIR [--rw] [-e NAME]",
	.summary = "a commit as a file system on the host, read-only or to try things in",
	.details =
		"Needs fusermount3. REV as for rollback. Served until umount. With --rw it can be written to: nothing\n"
		"but this mount sees that, and it is gone when the mount is.\n\n"
		"Example:\n  mkdir -p /tmp/view && rattan mount head /tmp/view\n"
		"  rattan umount /tmp/view && rattan mount head /tmp/view --rw   # to try things in\n",
	.run = run_mount,
};

const struct cli_command cmd_umount = {
	.name = "umount",
	.args = "DIR",
	.summary = "take a mounted commit away",
	.details = "Example:\n  rattan umount /tmp/view\n",
	.run = run_umount,
};
