/* What a role session comes to when bwrap is not there, fails, hangs, or has died: it never runs with less. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "runner/role.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

static const char *stage3;
static char top[PATH_MAX], sessions[PATH_MAX + 16];

/* A program in bwrap's place; its path. */
static const char *fake(const char *name, const char *text)
{
	static char path[PATH_MAX + 64];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", top, name);
	f = fopen(path, "we");
	if (!f)
		tap_fatal("%s", path);
	fputs(text, f);
	(void)fchmod(fileno(f), 0755);
	(void)fclose(f);
	return path;
}

static int start(const char *bwrap, unsigned wait_ms, struct diag *d, pid_t *pid)
{
	static const char *const argv[] = {"/usr/bin/true", NULL};
	static const struct run_mount m[] = {
		{RUN_MOUNT_RO, "/usr", "/usr"},          {RUN_MOUNT_LINK, "usr/lib", "/lib"},
		{RUN_MOUNT_LINK, "usr/lib64", "/lib64"}, {RUN_MOUNT_LINK, "usr/bin", "/bin"},
		{RUN_MOUNT_DEV, NULL, "/dev"},           {RUN_MOUNT_PROC, NULL, "/proc"}};
	const struct role_spec s = {.name = "test",
				    .dir = sessions,
				    .mounts = m,
				    .n = ARRAY_SIZE(m),
				    .argv = argv,
				    .cwd = "/",
				    .bwrap = bwrap,
				    .stage3 = stage3,
				    .wait_ms = wait_ms};

	*d = (struct diag){0};
	return role_start(&s, d, pid);
}

static void refused(const char *bwrap, unsigned wait_ms, const char *says, const char *what)
{
	struct diag d;
	pid_t pid = 0;
	int r = start(bwrap, wait_ms, &d, &pid);

	ok(r == -ENOTSUP && strstr(d.text, says), "%s: %s", what, d.text);
	ok(waitpid(-1, NULL, WNOHANG) < 0, "%s: nothing is left", what);
}

static int none(void *arg, const struct role_session *s)
{
	(void)s;
	++*(int *)arg;
	return 0;
}

static void bwraps(void)
{
	int n = 0;

	refused("/no/such/bwrap", 0, "/no/such/bwrap is missing", "122");
	refused(fake("two", "#!/bin/sh\necho first >&2\necho second >&2\nexit 1\n"), 0,
		"two failed: first", "123, two lines");
	refused(fake("silent", "#!/bin/sh\nexit 3\n"), 0, "silent failed: exit 3", "123, silent");
	refused(fake("hangs", "#!/bin/sh\nexec sleep 600\n"), 300, "hangs failed: ETIMEDOUT",
		"123, hangs");
	ok(!role_list(sessions, none, &n) && !n, "no session is left");
}

/* The one descriptor that bwrap holds outside is gone before the inner end looks. */
static void died_early(void)
{
	struct diag d;
	pid_t pid = 0;
	int r = start(fake("early",
			   "#!/bin/sh\nexec 9>&-\n"
			   "exec /usr/bin/bwrap $(tr '\\0' ' ' <&7 | sed 's/--json-status-fd 9//') "
			   "-- /proc/self/fd/6\n"),
		      0, &d, &pid);

	ok(r < 0 && strstr(d.text, "Operation canceled"), "121: no orphan: %s", d.text);
}

static void runs(void)
{
	const struct role_spec probe = {.dir = sessions, .stage3 = stage3};
	struct diag d = {0};
	int r = role_probe(&probe, &d), status = -1;
	pid_t pid = 0;

	ok(r == 0, "the probe: %s", d.text);
	r = start(NULL, 0, &d, &pid);
	ok(r == 0 && waitpid(pid, &status, 0) == pid && status == 0, "a session: %s", d.text);
	role_forget(sessions, "test");
}

int main(int argc, char **argv)
{
	if (argc < 2)
		tap_fatal("the path of rattan-stage3 is needed");
	need_namespaces();
	stage3 = argv[1];
	(void)snprintf(top, sizeof(top), "/tmp/rattan-role-XXXXXX");
	if (!mkdtemp(top))
		tap_fatal("mkdtemp");
	(void)snprintf(sessions, sizeof(sessions), "%s/roles", top);
	bwraps();
	runs();
	died_early();
	if (!fork() && execlp("rm", "rm", "-rf", "--", top, (char *)NULL))
		return 1;
	return tap_done();
}
