#include "client/hostdir.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_client.h"

void hostdir_release(struct hostdir *d)
{
	if (d->path && d->fd >= 0)
		(void)close(d->fd);
	free(d->path);
	*d = (struct hostdir){.fd = -1};
}

bool hostdir_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n && dir[n - 1] == '/')
		n--;
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

/* Places of the system, whoever owns them, and whoever lists them. */
static bool system_dir(const char *path)
{
	static const char *const dirs[] = {"/bin",   "/boot",  "/dev",  "/etc",        "/lib",
					   "/lib32", "/lib64", "/proc", "/run",        "/sbin",
					   "/snap",  "/sys",   "/usr",  "/lost+found", "/libx32"};
	static const char *const tops[] = {
		"/home",  "/var",     "/tmp",     "/var/tmp", "/opt",       "/srv",      "/mnt",
		"/media", "/var/lib", "/var/log", "/root",    "/var/spool", "/var/cache"};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (hostdir_below(path, dirs[i]))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(tops); i++)
		if (!strcmp(path, tops[i]))
			return true;
	return false;
}

/* The user's home, resolved; NULL: there is none. */
static char *find_home(void)
{
	const char *env = getenv("HOME");
	struct passwd pw, *found = NULL;
	char room[4096], *home = env && *env == '/' ? realpath(env, NULL) : NULL;

	if (!home && !getpwuid_r(getuid(), &pw, room, sizeof(room), &found) && found)
		home = realpath(found->pw_dir, NULL);
	if (home && !strcmp(home, "/")) {
		free(home);
		home = NULL;
	}
	return home;
}

/* The directory that @make names, when it and @path lie one within the other. */
static bool touches(const char *path, int (*make)(char **ret))
{
	cleanup_free char *dir = NULL, *real = NULL;

	if (make(&dir) < 0)
		return false;
	real = realpath(dir, NULL);
	return hostdir_below(path, real ? real : dir) || hostdir_below(real ? real : dir, path);
}

/* A component of @path below @dir begins with a dot. */
static bool hidden_below(const char *path, const char *dir)
{
	return strstr(path + strlen(dir), "/.") != NULL;
}

/* 1: below a listed root; 0: below none; -EINVAL: below one, but hidden there. */
static int listed(const char *path, const char *const *roots, struct diag *diag)
{
	for (; roots && *roots; roots++) {
		cleanup_free char *real = realpath(*roots, NULL);

		if (!real || !strcmp(real, "/") || !hostdir_below(path, real))
			continue;
		return hidden_below(path, real)
			       ? diag_set(
					 diag, -EINVAL,
					 "%s is a hidden directory or below one, and is not opened",
					 path)
			       : 1;
	}
	return 0;
}

static int check_never(const char *path, const char *home, struct diag *diag)
{
	if (!strcmp(path, "/"))
		return diag_set(diag, -EINVAL, "/ is not opened: name a directory of a project");
	if (home && hostdir_below(home, path))
		return diag_set(diag, -EINVAL,
				"%s is or holds your home directory and is not opened as a whole: "
				"name a directory in it",
				path);
	if (system_dir(path))
		return diag_set(diag, -EINVAL, "%s is a system directory and is not opened", path);
	if (touches(path, ctl_data_dir) || touches(path, ctl_runtime_dir))
		return diag_set(diag, -EINVAL,
				"%s holds, or is part of, rattan's own data and is not opened",
				path);
	return 0;
}

int hostdir_settings(char **ret)
{
	const char *dir = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int n = -1;

	if (dir && *dir == '/')
		n = asprintf(ret, "%s/rattan/config.json", dir);
	else if (home && *home == '/')
		n = asprintf(ret, "%s/.config/rattan/config.json", home);
	else
		return -ENOENT;
	return n < 0 ? -ENOMEM : 0;
}

/* @why, and where it could be opened all the same. */
static int unlisted(const char *path, const char *why, struct diag *diag)
{
	cleanup_free char *settings = NULL;

	if (hostdir_settings(&settings) < 0)
		settings = NULL;
	return diag_set(diag, -EINVAL,
			"%s %s and is not opened; list it, or a directory above it, as "
			"\"bind_roots\" in %s",
			path, why, settings ? settings : "the settings");
}

static int check_place(const char *path, const char *home, struct diag *diag)
{
	if (home && hostdir_below(path, home))
		return hidden_below(path, home)
			       ? diag_set(
					 diag, -EINVAL,
					 "%s is a hidden directory or below one, and is not opened",
					 path)
			       : 0;
	return unlisted(path, "lies outside your home directory", diag);
}

static int check(const struct hostdir *d, const char *const *roots, struct diag *diag)
{
	cleanup_free char *home = find_home();
	struct stat st;
	int r = check_never(d->path, home, diag);

	if (r == 0)
		r = listed(d->path, roots, diag);
	if (r != 0)
		return r < 0 ? r : 0;
	r = check_place(d->path, home, diag);
	if (r < 0)
		return r;
	if (fstat(d->fd, &st) < 0)
		return ret_nerrno();
	/* Root has all there is, and in a container often nothing that it owns. */
	if (getuid() && st.st_uid != getuid())
		return unlisted(d->path, "belongs to another user", diag);
	return 0;
}

static int open_real(const char *path, struct diag *diag, struct hostdir *d)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
			       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	bool here = !strcmp(path, ".");

	d->fd = -1;
	d->path = realpath(path, NULL);
	if (!d->path && errno == ENOENT && !here)
		return diag_set(diag, -EINVAL,
				"there is no directory %s; make it first, or give its right name",
				path);
	if (!d->path)
		return diag_set(diag, -EINVAL, "%s: %s",
				here ? "the current directory is gone" : path, err_text(errno));
	d->fd = (int)syscall(SYS_openat2, AT_FDCWD, d->path, &how, sizeof(how));
	if (d->fd >= 0)
		return 0;
	if (errno == ENOTDIR)
		return diag_set(diag, -EINVAL, "%s is not a directory", path);
	return diag_set(diag, -EINVAL, "%s: %s", d->path,
			errno == ELOOP ? "was replaced by a link while it was looked at"
				       : err_text(errno));
}

int hostdir_open(const char *path, const char *const *roots, struct diag *diag, struct hostdir *ret)
{
	struct hostdir d;
	int r = open_real(path, diag, &d);

	if (r == 0)
		r = check(&d, roots, diag);
	if (r < 0) {
		hostdir_release(&d);
		return r;
	}
	*ret = d;
	return 0;
}

int hostdir_check_mount(const char *mount, struct diag *diag)
{
	static const char *const places[] = {"/workspace", "/mnt", "/srv", "/data", "/home"};

	for (const char *s = mount; (s = strstr(s, "/.")); s++)
		if (s[2] == '.' && (!s[3] || s[3] == '/'))
			return diag_set(diag, -EINVAL, "the mount point %s must not contain ..",
					mount);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (hostdir_below(mount, places[i]) && strcmp(mount, "/home") != 0)
			return 0;
	return diag_set(diag, -EINVAL,
			"the mount point %s must be at or below /workspace, /mnt, /srv or "
			"/data, or below /home",
			mount);
}
