#include "runner/bwrap_argv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define USUAL_PLACES "/usr/bin:/usr/local/bin:/bin"

/* Is @id nobody's in our user namespace? Then files of all users who are not mapped show it. */
static bool unmapped(uid_t id)
{
	cleanup_file FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned first, below, count;

	if (!f)
		return false;
	while (fscanf(f, "%u %u %u", &first, &below, &count) == 3) {
		if (id >= first && id - first < count)
			return false;
	}
	return !ferror(f);
}

/* In a user namespace without the host's root its files show an unmapped owner, as those of other
 * users do; in the usual places it is root all the same. */
static bool only_ours(const struct stat *st, bool usual)
{
	if (st->st_mode & S_IWOTH)
		return false;
	return st->st_uid == 0 || st->st_uid == geteuid() || (usual && unmapped(st->st_uid));
}

/* 0; -ENOENT nothing to run; -EPERM others could put their own program there. */
static int candidate(const char *dir, size_t n, bool usual, char **ret)
{
	cleanup_free char *path = NULL;
	struct stat st, dst;

	if (n == 0 || dir[0] != '/') /* relative: depends on where we are */
		return -ENOENT;
	if (asprintf(&path, "%.*s/bwrap", (int)n, dir) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || access(path, X_OK) < 0)
		return -ENOENT;
	path[n] = '\0';
	if (stat(path, &dst) < 0)
		return -ENOENT;
	path[n] = '/';
	if (!only_ours(&st, usual) || !only_ours(&dst, usual))
		return -EPERM;
	*ret = steal_ptr(&path);
	return 0;
}

static int find_in(const char *path, bool usual, char **ret)
{
	size_t n;
	int r, worst = -ENOENT;

	for (;; path += n + 1) {
		n = strcspn(path, ":");
		r = candidate(path, n, usual, ret);
		if (r == 0 || r == -ENOMEM)
			return r;
		if (r == -EPERM)
			worst = r;
		if (path[n] == '\0')
			return worst;
	}
}

int bwrap_find(const char *path, struct diag *diag, char **ret)
{
	const char *env = path ? path : getenv("PATH");
	int r = -ENOENT, r2;

	if (env)
		r = find_in(env, false, ret);
	if (r < 0 && r != -ENOMEM && !path) {
		r2 = find_in(USUAL_PLACES, true, ret);
		if (r2 == 0 || r == -ENOENT)
			r = r2;
	}
	if (r == -EPERM)
		return diag_set(diag, r,
				"the only bwrap in PATH can be replaced by other users of this "
				"machine; install the package bubblewrap");
	if (r == -ENOENT)
		return diag_set(diag, r,
				"bwrap was not found in PATH; install the package bubblewrap");
	return r;
}

static int words(struct buf *b, const char *const *w)
{
	int r = 0;

	for (; r == 0 && *w; w++)
		r = buf_put(b, *w, strlen(*w) + 1);
	return r;
}

/* A tmpfs counts as the sandbox's memory only where there is a cgroup. */
static unsigned long long shm_size(uint64_t memory)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	uint64_t most = 256ull << 20;

	if (pages > 0 && size > 0)
		most = (uint64_t)pages / 4 * (uint64_t)size;
	return memory < most ? memory : most;
}

int bwrap_args(const struct run_spec *s, bool tty, struct buf *ret)
{
	char uid[16], gid[16], shm[24];
	const char *const head[] = {
		"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts",
		"--unshare-cgroup-try", "--uid", uid, "--gid", gid, "--hostname",
		s->hostname ? s->hostname : "rattan",
		/* stage3 is the init, so that the end of a command is seen as it is, and the end of
		 * bwrap is the end of everything */
		"--as-pid-1", "--die-with-parent", "--cap-drop", "ALL", "--bind", s->root, "/",
		"--proc", "/proc",
		/* the names of the user's keys; the calls that use keys are refused by the filter */
		"--ro-bind-try", "/dev/null", "/proc/keys", "--ro-bind-try", "/dev/null",
		"/proc/key-users", "--dev", "/dev", "--perms", "1777", "--size", shm, "--tmpfs",
		"/dev/shm",
		/* the tmpfs that bwrap makes for it would take files, half the memory full */
		"--remount-ro", "/dev", "--chdir", "/", NULL};
	/* Over files alone, and only those of the tree: no other is of an id that this user namespace has. */
	const char *const root[] = {"--cap-add",        "CAP_CHOWN",      "--cap-add",
				    "CAP_DAC_OVERRIDE", "--cap-add",      "CAP_DAC_READ_SEARCH",
				    "--cap-add",        "CAP_FOWNER",     "--cap-add",
				    "CAP_FSETID",       "--cap-add",      "CAP_SETFCAP",
				    "--cap-add",        "CAP_SYS_CHROOT", NULL};
	const char *const session[] = {"--new-session", NULL};
	const char *const alone[] = {"--unshare-net", NULL}; /* R5 */
	int r;

	(void)snprintf(uid, sizeof(uid), "%u", s->provision ? 0 : s->uid);
	(void)snprintf(gid, sizeof(gid), "%u", s->provision ? 0 : s->gid);
	(void)snprintf(shm, sizeof(shm), "%llu", shm_size(s->limits.memory));
	r = words(ret, head);
	if (r == 0 && s->provision)
		r = words(ret, root);
	if (r == 0 && !s->network)
		r = words(ret, alone);
	/* With a terminal, which is its own, the command must be in its session to have job control. */
	if (r == 0 && !tty)
		r = words(ret, session);
	return r;
}
