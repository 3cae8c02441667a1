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

int env_bound_hold(struct env_bound *b, const struct env_holder *h)
{
	struct env_holder *l = realloc(b->holders, (b->nholders + 1) * sizeof(*l));

	if (!l)
		return -ENOMEM;
	b->holders = l;
	l[b->nholders++] = *h;
	return 0;
}

static void let_go_at(struct env *e, struct env_bound *b, size_t i)
{
	struct env_holder *h = &b->holders[i];

	keeper_drop(&e->link, KEEP_BIND, h->id);
	if (h->pidfd >= 0)
		(void)close(h->pidfd);
	*h = b->holders[--b->nholders];
}

static struct env_holder *holder_of(struct env_bound *b, const void *owner)
{
	for (size_t i = 0; i < b->nholders; i++)
		if (b->holders[i].owner == owner)
			return &b->holders[i];
	return NULL;
}

/* False: it was not @owner's. */
static bool let_go(struct env *e, struct env_bound *b, const void *owner)
{
	struct env_holder *h = holder_of(b, owner);

	if (h)
		let_go_at(e, b, (size_t)(h - b->holders));
	return h;
}

void env_bound_release(struct env_bound *b)
{
	for (size_t i = 0; i < b->nholders; i++)
		if (b->holders[i].pidfd >= 0)
			(void)close(b->holders[i].pidfd);
	free(b->host);
	free(b->mount);
	free(b->holders);
}

void env_binds_free(struct env *e)
{
	for (size_t i = 0; i < e->nbinds; i++)
		env_bound_release(&e->binds[i]);
	free(e->binds);
	e->binds = NULL;
	e->nbinds = 0;
}

int env_binds_check_locked(const struct env *e, char *const *overlays, struct diag *diag)
{
	for (; overlays && overlays[0] && overlays[1]; overlays += 2)
		for (size_t i = 0; i < e->nbinds; i++)
			if (path_in(overlays[1], e->binds[i].mount))
				return diag_set(
					diag, -EEXIST,
					"environment \"%s\" has %s bound at %s for another session, so %s cannot be shown copy-on-write there; wait until that has ended, or use another --env",
					e->rec.name, e->binds[i].host, e->binds[i].mount,
					overlays[0]);
	return 0;
}

struct env_bound *env_bound_find(struct env *e, const struct env_bound *b)
{
	for (size_t i = 0; i < e->nbinds; i++) {
		struct env_bound *o = &e->binds[i];

		if (!strcmp(o->mount, b->mount) && !strcmp(o->host, b->host) && o->rw == b->rw &&
		    o->dev == b->dev && o->ino == b->ino)
			return o;
	}
	return NULL;
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

/* Takes over what @b owns; not on failure. */
static int append(struct env *e, struct env_bound *b)
{
	struct env_bound *l = realloc(e->binds, (e->nbinds + 1) * sizeof(*l));

	if (!l)
		return -ENOMEM;
	e->binds = l;
	l[e->nbinds++] = *b;
	*b = (struct env_bound){0};
	return 0;
}

static void remove_at(struct env *e, size_t i)
{
	for (size_t k = 0; k < e->binds[i].nholders; k++)
		keeper_drop(&e->link, KEEP_BIND, e->binds[i].holders[k].id);
	env_bound_release(&e->binds[i]);
	e->nbinds--;
	memmove(&e->binds[i], &e->binds[i + 1], (e->nbinds - i) * sizeof(*e->binds));
}

/* The mount's policy lets nobody make the mount point: a fresh mount, with the point made below it. The
 * bind is the last of the list; on failure it is not there any more. */
static int bind_fresh(struct env *e, struct diag *diag)
{
	size_t last = e->nbinds - 1;
	struct diag again = {0};
	int r = env_check_idle_locked(e, NULL, NULL);

	if (r < 0)
		diag_set(
			diag, r,
			"%s does not exist and cannot be made while commands run in the environment",
			e->binds[last].mount);
	else
		r = env_fresh_locked(e, diag);
	if (r == 0 && e->binds[last].gone)
		r = diag_set(diag, -ESTALE, "%s was replaced while it was bound",
			     e->binds[last].host);
	if (r == 0)
		return 0;
	remove_at(e, last);
	if (!e->cur.up && env_up_locked(e, &again) < 0)
		log_error("no mount after a failed bind: %s", again.text);
	return r;
}

static int unbind_at(struct env *e, size_t i, struct diag *diag)
{
	cleanup_free char *mount = steal_ptr(&e->binds[i].mount);
	bool there = e->cur.up && !e->binds[i].gone && !e->policy.root;
	int r = there ? keeper_unbind(&e->link, e->cur.dir, mount, diag) : 0;

	e->mounts++;
	remove_at(e, i);
	/* A command has moved what it is mounted on, or below: it goes with the mount. */
	if (r < 0 && env_check_idle_locked(e, NULL, NULL) == 0)
		r = env_fresh_locked(e, diag);
	return r < 0 ? diag_set(diag, r, "cannot unbind %s: %s", mount, err_text(r)) : 0;
}

/* So that another daemon knows it, too: it would serve the bind without. */
static int hold_kept(struct env *e, struct env_bound *b, const void *owner, pid_t pid,
		     struct diag *diag)
{
	struct env_holder h = {.owner = owner, .pid = pid, .pidfd = -1, .id = ++e->next_id};
	int r = env_keep_bind_locked(e, b, &h);

	if (r < 0)
		return diag_set(diag, r, "cannot keep a bind for another rattan-fs: %s",
				err_text(r));
	r = env_bound_hold(b, &h);
	if (r < 0)
		keeper_drop(&e->link, KEEP_BIND, h.id);
	return r;
}

/* Also of a process that is back: what its connection to a former daemon asked for is this one's. */
static int hold_again(struct env *e, struct env_bound *b, const void *owner, pid_t pid,
		      struct diag *diag)
{
	if (holder_of(b, owner))
		return 0;
	for (size_t i = 0; i < b->nholders; i++) {
		struct env_holder *h = &b->holders[i];

		if (h->owner || h->pid != pid)
			continue;
		if (h->pidfd >= 0)
			(void)close(steal_fd(&h->pidfd));
		h->owner = owner;
		return 0;
	}
	return hold_kept(e, b, owner, pid, diag);
}

static int bind_locked(struct env *e, const void *owner, pid_t pid, struct env_bound *b,
		       struct diag *diag)
{
	struct env_bound *same;
	int r = env_ensure_locked(e, diag), kept;

	if (r < 0)
		return r;
	same = env_bound_find(e, b);
	if (same && !same->gone)
		return hold_again(e, same, owner, pid, diag);
	if (same) /* it is there again */
		remove_at(e, (size_t)(same - e->binds));
	r = check_others(e, b->mount, diag);
	/* It is a mount on the mount, which a profile does not judge. */
	if (r == 0 && env_policy_whole(&e->policy))
		r = env_check_leases_locked(e, diag);
	if (r == 0 && e->nbinds >= 64)
		r = diag_set(diag, -EMFILE, "64 binds are the limit");
	if (r < 0)
		return r;

	e->mounts++;
	/* A mount for provisioning shows none: it is there in the next one. */
	r = e->policy.root ? 0
			   : keeper_bind(&e->link, e->cur.dir, b->mount, b->host, b->dev, b->ino,
					 b->rw, diag);
	if (r < 0 && r != -EACCES && r != -EROFS && r != -EPERM)
		return diag_set(diag, r, "cannot bind %s at %s: %s", b->host, b->mount,
				err_text(r));
	if (append(e, b) < 0) {
		if (r == 0 && !e->policy.root)
			(void)!keeper_unbind(&e->link, e->cur.dir, b->mount, NULL);
		return -ENOMEM;
	}
	kept = hold_kept(e, &e->binds[e->nbinds - 1], owner, pid, diag);
	if (kept == 0)
		return r == 0 ? 0 : bind_fresh(e, diag);
	if (r == 0)
		(void)!unbind_at(e, e->nbinds - 1, NULL);
	else
		remove_at(e, e->nbinds - 1);
	return kept;
}

int env_bind(struct env *e, const void *owner, pid_t pid, int host_fd, const char *host,
	     const char *mount, bool rw, struct diag *diag)
{
	struct env_bound b = {.rw = rw};
	struct stat st;
	int r;

	if (!host || !mount || host_fd < 0)
		return diag_set(diag, -EINVAL,
				"a bind needs a descriptor, its path and a mount point");
	if (e->through)
		return diag_set(
			diag, -EOPNOTSUPP,
			"environment \"%s\" shows the host itself: there is nowhere to bind "
			"something else",
			e->rec.name);
	r = check_place(mount, diag);
	if (r < 0)
		return r;
	if (!env_path_clean(host) || fstat(host_fd, &st) < 0)
		return diag_set(diag, -EINVAL, "\"%s\" is no absolute path of an open directory",
				host);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return diag_set(diag, -ENOTDIR, "%s is neither a directory nor a file", host);
	b.host = strdup(host);
	b.mount = strdup(mount);
	b.dev = st.st_dev;
	b.ino = st.st_ino;
	b.type = st.st_mode & S_IFMT;
	if (b.host && b.mount) {
		ENV_LOCK(e);
		r = bind_locked(e, owner, pid, &b, diag);
	} else {
		r = -ENOMEM;
	}
	env_bound_release(&b);
	return r;
}

int env_unbind(struct env *e, const void *owner, const char *mount, struct diag *diag)
{
	ENV_LOCK(e);
	for (size_t i = 0; mount && i < e->nbinds; i++) {
		if (strcmp(e->binds[i].mount, mount) != 0 || !let_go(e, &e->binds[i], owner))
			continue;
		return e->binds[i].nholders ? 0 : unbind_at(e, i, diag);
	}
	return diag_set(diag, -ENOENT, "nothing is bound at %s", mount ? mount : "?");
}

void env_unbind_all(struct env *e, const void *owner)
{
	struct diag diag = {0};

	ENV_LOCK(e);
	for (size_t i = e->nbinds; i-- > 0;)
		if (let_go(e, &e->binds[i], owner) && !e->binds[i].nholders &&
		    unbind_at(e, i, &diag) < 0)
			log_warn("%s", diag.text);
}

bool env_binds_prune_locked(struct env *e)
{
	struct diag diag = {0};
	bool left = false;

	for (size_t i = e->nbinds; i-- > 0;) {
		struct env_bound *b = &e->binds[i];
		bool some = false;

		for (size_t k = b->nholders; k-- > 0;) {
			struct env_holder *h = &b->holders[k];

			if (h->owner)
				continue;
			if (h->pidfd >= 0 && !env_process_gone(h->pidfd)) {
				left = true;
				continue;
			}
			let_go_at(e, b, k);
			some = true;
		}
		if (some && !b->nholders && unbind_at(e, i, &diag) < 0)
			log_warn("%s", diag.text);
	}
	return left;
}
