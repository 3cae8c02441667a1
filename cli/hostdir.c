/* Which directories of the host may be opened to an environment, and where. */
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

void cli_dirs_release(struct cli_dirs *d)
{
	for (size_t i = 0; i < d->n; i++) {
		free(d->v[i].host);
		free(d->v[i].mount);
	}
	free(d->v);
	*d = (struct cli_dirs){0};
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n && dir[n - 1] == '/')
		n--;
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

/* Places of the system, whoever owns them. */
static bool system_dir(const char *path)
{
	static const char *const dirs[] = {"/bin",   "/boot",  "/dev",  "/etc",        "/lib",
					   "/lib32", "/lib64", "/proc", "/run",        "/sbin",
					   "/snap",  "/sys",   "/usr",  "/lost+found", "/libx32"};
	static const char *const tops[] = {"/home", "/var", "/tmp", "/var/tmp",
					   "/opt",  "/srv", "/mnt", "/media"};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (below(path, dirs[i]))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(tops); i++)
		if (!strcmp(path, tops[i]))
			return true;
	return below(path, "/var") && !below(path, "/var/tmp");
}

static bool holds(const char *path, const char *dir)
{
	cleanup_free char *real = dir && *dir ? realpath(dir, NULL) : NULL;

	return real && below(real, path);
}

/* Is @path the user's home, or above it? */
static bool holds_home(const char *path)
{
	struct passwd pw, *found = NULL;
	char room[4096];

	if (holds(path, getenv("HOME")))
		return true;
	return !getpwuid_r(getuid(), &pw, room, sizeof(room), &found) && found &&
	       holds(path, found->pw_dir);
}

/* The directory that @make names, when it and @path lie one within the other. */
static bool touches(const char *path, int (*make)(char **ret))
{
	cleanup_free char *dir = NULL, *real = NULL;

	if (make(&dir) < 0)
		return false;
	real = realpath(dir, NULL);
	return below(path, real ? real : dir) || below(real ? real : dir, path);
}

static bool hidden(const char *path)
{
	return strstr(path, "/.") != NULL;
}

static int check_host(const char *path, enum cli_dir_kind kind, bool given_by_place,
		      struct diag *diag)
{
	const char *verb = kind == CLI_OVERLAY ? "overlaid" : "bound";
	struct stat st;

	if (!strcmp(path, "/"))
		return diag_set(diag, -EINVAL, "/ is not %s: name a directory of a project", verb);
	if (holds_home(path))
		return diag_set(diag, -EINVAL,
				"%s is or holds your home directory and is not %s as a whole: name "
				"a directory in it",
				path, verb);
	if (system_dir(path))
		return diag_set(diag, -EINVAL, "%s is a system directory and is not %s", path,
				verb);
	if (touches(path, ctl_data_dir) || touches(path, ctl_runtime_dir))
		return diag_set(diag, -EINVAL,
				"%s holds, or is part of, rattan's own data and is not %s", path,
				verb);
	if (given_by_place)
		return 0;
	if (hidden(path))
		return diag_set(diag, -EINVAL,
				"%s is a hidden directory or below one, and is not %s", path, verb);
	if (kind != CLI_OVERLAY && getuid() && !stat(path, &st) && st.st_uid != getuid())
		return diag_set(diag, -EINVAL,
				"%s belongs to another user and is not bound; --overlay "
				"shows it copy-on-write",
				path);
	return 0;
}

static int check_mount(const char *mount, struct diag *diag)
{
	static const char *const places[] = {"/workspace", "/mnt", "/srv", "/data", "/home"};

	for (const char *s = mount; (s = strstr(s, "/.")); s++)
		if (s[2] == '.' && (!s[3] || s[3] == '/'))
			return diag_set(diag, -EINVAL, "the mount point %s must not contain ..",
					mount);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (below(mount, places[i]) && strcmp(mount, "/home") != 0)
			return 0;
	return diag_set(diag, -EINVAL,
			"the mount point %s must be at or below /workspace, /mnt, /srv or "
			"/data, or below /home",
			mount);
}

static int add(struct cli_dirs *d, enum cli_dir_kind kind, const char *host, const char *mount,
	       bool given_by_place, struct diag *diag)
{
	cleanup_free char *real = realpath(host, NULL), *at = strdup(mount);
	struct cli_dir *v;
	struct stat st;
	int r;

	if (!at)
		return -ENOMEM;
	if (!real && !strcmp(host, "."))
		return diag_set(diag, -EINVAL, "the current directory is gone: %s",
				err_text(errno));
	if (!real || stat(real, &st) < 0)
		return diag_set(diag, -EINVAL, "%s: %s", host, err_text(errno));
	if (!S_ISDIR(st.st_mode))
		return diag_set(diag, -EINVAL, "%s is not a directory", host);
	r = check_host(real, kind, given_by_place, diag);
	if (r >= 0)
		r = check_mount(mount, diag);
	if (r < 0)
		return r;
	v = realloc(d->v, (d->n + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	d->v = v;
	v[d->n].host = steal_ptr(&real);
	v[d->n].mount = steal_ptr(&at);
	v[d->n++].rw = kind == CLI_BIND;
	return 0;
}

int cli_dirs_add(struct cli_dirs *d, enum cli_dir_kind kind, const char *spec, struct diag *diag)
{
	cleanup_free char *s = strdup(spec);
	char *eq = NULL, *mode;

	if (!s)
		return -ENOMEM;
	for (char *q = s; (q = strstr(q, "=/")); q++)
		eq = q;
	if (!eq || eq == s)
		return diag_set(diag, -EINVAL, "'%s' is not HOST=MOUNT, such as ./src=/workspace",
				spec);
	*eq = 0;
	mode = strrchr(eq + 1, ':');
	if (mode && kind != CLI_OVERLAY && (!strcmp(mode, ":ro") || !strcmp(mode, ":rw"))) {
		if (kind == CLI_BIND_RO && mode[2] == 'w')
			return diag_set(diag, -EINVAL, "'%s': --bind-ro is read-only; use --bind",
					spec);
		if (mode[2] == 'o')
			kind = CLI_BIND_RO;
		*mode = 0;
	}
	return add(d, kind, s, eq + 1, false, diag);
}

int cli_dirs_check(const struct cli_dirs *binds, const struct cli_dirs *overlays, struct diag *diag)
{
	for (size_t i = 0; i < overlays->n; i++)
		for (size_t k = 0; k < binds->n; k++)
			if (below(overlays->v[i].mount, binds->v[k].mount))
				return diag_set(diag, -EINVAL,
						"%s cannot be both: %s copy-on-write, and %s bound "
						"at %s",
						overlays->v[i].mount, overlays->v[i].host,
						binds->v[k].host, binds->v[k].mount);
	return 0;
}

int cli_dirs_add_cwd(struct cli_dirs *d, enum cli_dir_kind kind, struct diag *diag)
{
	return add(d, kind, ".", "/workspace", true, diag);
}
