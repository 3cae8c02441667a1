/* A directory of the host that is to go: with all that is in it, if nobody has touched that. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/plan.h"
#include "base/cleanup.h"

struct look {
	struct plan *p;
	struct decision *d;
	const struct timespec *at;
	dev_t dev;
	char path[4096];
};

static int look_inside(struct look *l, int dir, const char *name, const struct stat *st, int state);

/* 1: it may go. */
static int look_at(struct look *l, int dir, const char *name, int state)
{
	struct decision *out = plan_old(l->p, l->path);
	unsigned may = policy_may(l->p->j->policy, state);
	struct ident id;
	struct stat st;

	/* What goes elsewhere is looked at by itself. */
	if (out && out->c->kind == 'R' && !out->copied)
		return 1;
	l->d->below++;
	if (!(may & POLICY_MAY_WRITE)) {
		plan_say(l->d, APPLY_REFUSED, "it holds %s, which the policy keeps", l->path);
		return 0;
	}
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 1 : ret_nerrno();
	if (st.st_dev != l->dev) {
		plan_say(l->d, APPLY_REFUSED, "another file system is mounted at %s", l->path);
		return 0;
	}
	ident_of(&st, &id);
	if (!l->p->j->force && !ident_before(&st.st_ctim, l->at) &&
	    !known_same(known_find(l->p->known, l->path), &id)) {
		plan_say(l->d, APPLY_CONFLICT, "%s in it was made or changed on the host since",
			 l->path);
		return 0;
	}
	return S_ISDIR(st.st_mode) ? look_inside(l, dir, name, &st, state) : 1;
}

static int look_inside(struct look *l, int dir, const char *name, const struct stat *st, int state)
{
	cleanup_fd int fd = below_read(dir, name, st);
	cleanup_dir DIR *d = NULL;
	size_t len = strlen(l->path);
	int r = 1;

	if (fd < 0) {
		plan_say(l->d, APPLY_REFUSED, "%s cannot be read: %s", l->path, err_text(fd));
		return 0;
	}
	d = fdopendir(fd);
	if (!d)
		return ret_nerrno();
	(void)steal_fd(&fd);
	for (struct dirent *e; r == 1 && (errno = 0, e = readdir(d));) {
		size_t n = strlen(e->d_name);

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (len + n + 2 > sizeof(l->path)) {
			plan_say(l->d, APPLY_REFUSED, "the paths in it are too long");
			return 0;
		}
		l->path[len] = '/';
		memcpy(l->path + len + 1, e->d_name, n + 1);
		r = look_at(l, dirfd(d), e->d_name,
			    policy_child(l->p->j->policy, state, e->d_name, n));
		l->path[len] = '\0';
	}
	return r;
}

int plan_below(struct plan *p, struct decision *d, const struct timespec *at)
{
	struct look l = {.p = p, .d = d, .at = at};
	const char *name;
	cleanup_fd int dir = below_parent(p->root, d->place, &name);
	struct stat st;
	size_t n = strlen(d->place);
	int r;

	if (dir < 0)
		return dir;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ret_nerrno();
	if (n >= sizeof(l.path))
		return -ENAMETOOLONG;
	memcpy(l.path, d->place, n + 1);
	l.dev = st.st_dev;
	r = look_inside(&l, dir, name, &st, plan_state(p, d->place));
	return r < 0 ? r : 0;
}
