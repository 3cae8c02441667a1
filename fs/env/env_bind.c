/* Host directories bound over the tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/env/env_internal.h"

/* Where a bind may appear. Never over what a command's behaviour rests on (/usr, /etc, ...). */
static const struct {
	const char *dir;
	bool itself;
} places[] = {
	{"/workspace", true}, {"/mnt", true}, {"/srv", true}, {"/data", true}, {"/home", false}};

/* Is @path @dir or below it? */
static bool path_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == 0 || path[n] == '/');
}

static int check_place(const char *mount, struct diag *diag)
{
	if (!env_path_clean(mount))
		return diag_set(
			diag, -EINVAL,
			"\"%s\" is no mount point: use an absolute path without '.', '..' or repeated slashes",
			mount);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (path_in(mount, places[i].dir) &&
		    (places[i].itself || mount[strlen(places[i].dir)]))
			return 0;
	return diag_set(
		diag, -EINVAL,
		"nothing may be bound at %s; only at or below /workspace, /mnt, /srv, /data, or below /home",
		mount);
}

/* One bind inside another would make its mount point in the other's host directory, and the order
 * of making them again after a rollback would matter. */
static int check_others(struct env *e, const char *mount, struct diag *diag)
{
	for (size_t i = 0; i < e->nbinds; i++) {
		const struct env_bound *b = &e->binds[i];

		if (path_in(mount, b->mount) || path_in(b->mount, mount))
			return diag_set(diag, -EEXIST, "%s is already bound at %s", b->host,
					b->mount);
	}
	return 0;
}

static int append(struct env *e, const struct env_bound *b)
{
	struct env_bound *l = realloc(e->binds, (e->nbinds + 1) * sizeof(*l));

	if (!l)
		return -ENOMEM;
	e->binds = l;
	l[e->nbinds++] = *b;
	return 0;
}

static void remove_at(struct env *e, size_t i)
{
	free(e->binds[i].host);
	free(e->binds[i].mount);
	e->nbinds--;
	memmove(&e->binds[i], &e->binds[i + 1], (e->nbinds - i) * sizeof(*e->binds));
}

/* The mount's policy lets nobody make the mount point: a fresh mount, with the point made below it. */
static int bind_fresh(struct env *e, const char *mount, struct diag *diag)
{
	struct diag again = {0};
	int r = env_check_idle_locked(e, NULL, NULL);

	if (r < 0)
		return diag_set(
			diag, r,
			"%s does not exist and cannot be made while commands run in the environment",
			mount);
	r = env_quiesce_locked(e);
	if (r < 0)
		return diag_set(diag, r, "cannot write to the store: %s", err_text(r));
	env_down_locked(e);
	r = env_drop_ovl_locked(e);
	if (r < 0)
		log_error("flush before a fresh mount: %s", err_text(r));
	r = env_up_locked(e, diag);
	if (r == 0)
		return 0;
	remove_at(e, e->nbinds - 1);
	if (env_up_locked(e, &again) < 0)
		log_error("no mount after a failed bind: %s", again.text);
	return r;
}

static int bind_locked(struct env *e, struct env_bound *b, struct diag *diag)
{
	int r = env_ensure_locked(e, diag);

	if (r == 0)
		r = check_others(e, b->mount, diag);
	if (r == 0 && e->nbinds >= 64)
		r = diag_set(diag, -EMFILE, "64 binds are the limit");
	if (r < 0)
		return r;
	r = keeper_bind(&e->link, e->cur.dir, b->mount, b->host, b->dev, b->ino, b->rw, diag);
	if (r < 0 && r != -EACCES && r != -EROFS && r != -EPERM)
		return diag_set(diag, r, "cannot bind %s at %s: %s", b->host, b->mount,
				err_text(r));
	if (append(e, b) < 0) {
		if (r == 0)
			(void)!keeper_unbind(&e->link, e->cur.dir, b->mount, NULL);
		return -ENOMEM;
	}
	b->host = b->mount = NULL; /* the list's now */
	return r == 0 ? 0 : bind_fresh(e, e->binds[e->nbinds - 1].mount, diag);
}

int env_bind(struct env *e, int host_fd, const char *host, const char *mount, bool rw,
	     struct diag *diag)
{
	cleanup_free char *h = NULL, *m = NULL;
	struct env_bound b = {.rw = rw};
	struct stat st;
	int r;

	if (!host || !mount || host_fd < 0)
		return diag_set(diag, -EINVAL,
				"a bind needs a descriptor, its path and a mount point");
	r = check_place(mount, diag);
	if (r < 0)
		return r;
	if (!env_path_clean(host) || fstat(host_fd, &st) < 0)
		return diag_set(diag, -EINVAL, "\"%s\" is no absolute path of an open directory",
				host);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return diag_set(diag, -ENOTDIR, "%s is neither a directory nor a file", host);
	h = b.host = strdup(host);
	m = b.mount = strdup(mount);
	b.dev = st.st_dev;
	b.ino = st.st_ino;
	b.type = st.st_mode & S_IFMT;
	if (!h || !m)
		return -ENOMEM;
	ENV_LOCK(e);
	r = bind_locked(e, &b, diag);
	if (!b.host) {
		h = NULL;
		m = NULL;
	}
	return r;
}

int env_unbind(struct env *e, const char *mount, struct diag *diag)
{
	ENV_LOCK(e);
	for (size_t i = 0; mount && i < e->nbinds; i++) {
		int r;

		if (strcmp(e->binds[i].mount, mount) != 0)
			continue;
		r = e->cur.up ? keeper_unbind(&e->link, e->cur.dir, mount, diag) : 0;
		if (r == 0)
			remove_at(e, i);
		return r < 0 ? diag_set(diag, r, "cannot unbind %s: %s", mount, err_text(r)) : 0;
	}
	return diag_set(diag, -ENOENT, "nothing is bound at %s", mount ? mount : "?");
}
