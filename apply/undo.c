/* Undoing the steps of a run, in whatever moment it ended: each looks where its object is. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/work_internal.h"
#include "base/cleanup.h"

static bool same_file(const struct ident *a, const struct ident *b)
{
	return a->there && b->there && a->dev == b->dev && a->ino == b->ino;
}

/* Born after @want was looked at: another one, with a number that was free again. Where nobody says when it was born it is not. */
static bool born_later(int dir, const char *name, const struct ident *want)
{
	struct statx st;

	if (statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &st) < 0 ||
	    !(st.stx_mask & STATX_BTIME))
		return false;
	return ident_before(&want->ctime,
			    &(const struct timespec){st.stx_btime.tv_sec, st.stx_btime.tv_nsec});
}

/* @found, at a place of the host that is everybody's, is what this run has brought there. A file that has other bytes by now is
 * not, though it may be the same inode: it is somebody's. */
static bool is_brought(int dir, const char *name, const struct ident *found,
		       const struct ident *want)
{
	return ident_is(found, want) && !born_later(dir, name, want);
}

/* No such place: on the way to it something is missing, or a file or a link of the time before. */
static bool nowhere(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* Its mode is what it was before it was moved about. */
static int mode_back(int dir, const char *name, const struct step *s)
{
	const struct attrs was = {.mode = s->was.mode};

	return S_ISDIR(s->was.mode) ? work_place(dir, name, &was, ATTRS_MODE) : 0;
}

static int undo_out(struct work *w, const struct step *s)
{
	const struct slot_name slot = work_slot(s);
	struct ident id;
	const char *name;
	cleanup_fd int dir = -1;
	int r = work_ident(w->stage, slot.s, &id);

	if (r < 0 || !same_file(&id, &s->was)) /* it was not taken, or is back */
		return r;
	dir = below_parent(w->root, s->place, &name);
	if (dir < 0)
		return dir;
	r = work_rename_at(dir, w->stage, slot.s, dir, name, RENAME_NOREPLACE);
	return r < 0 ? r : mode_back(dir, name, s);
}

/* What came into the slot is what was meant. Between the look and the rename somebody may have put another one there: it goes back, by
 * @flags, and the next time is another try. */
static int is_ours(struct work *w, const struct ident *mine, const struct slot_name *slot, int dir,
		   const char *name, unsigned flags)
{
	struct ident id;
	int r = work_ident(w->stage, slot->s, &id);

	if (r < 0 || same_file(&id, mine))
		return r;
	r = work_rename(w->stage, slot->s, dir, name, flags);
	return r < 0 ? r : -ESTALE;
}

static int undo_in(struct work *w, const struct step *s)
{
	const struct ident *mine = s->moved ? &s->was : &s->now;
	const struct slot_name slot = work_slot(s);
	struct ident id;
	const char *name;
	cleanup_fd int dir = -1;
	int r = work_ident(w->stage, slot.s, &id);

	if (r < 0 || id.there)
		return r;
	dir = below_parent(w->root, s->path, &name);
	if (nowhere(dir)) /* nor is its directory one by now: it never came */
		return 0;
	r = dir < 0 ? dir : work_ident(dir, name, &id);
	if (r < 0)
		return r;
	/* It never came, or somebody has put another one in its place. Of what was the host's before, only that it is the same. */
	if (!(s->moved ? ident_is(&id, mine) : is_brought(dir, name, &id, mine)))
		return 0;
	r = work_loosen(dir, name, &id);
	if (r == 0)
		r = work_rename_at(dir, dir, name, w->stage, slot.s, RENAME_NOREPLACE);
	return r < 0 ? r : is_ours(w, mine, &slot, dir, name, RENAME_NOREPLACE);
}

static int undo_swap(struct work *w, const struct step *s)
{
	const struct slot_name slot = work_slot(s);
	struct ident here, there;
	const char *name;
	cleanup_fd int dir = -1;
	int r = work_ident(w->stage, slot.s, &there);

	if (r < 0 || !there.there || same_file(&there, &s->now)) /* it never went, or is back */
		return r;
	if (!same_file(&there, &s->was)) /* somebody's, which shall not go with the stage */
		return -ESTALE;
	dir = below_parent(w->root, s->path, &name);
	r = dir < 0 ? dir : work_ident(dir, name, &here);
	if (r == 0 && !here.there) { /* what came was removed: nobody's is in the way */
		r = work_rename_at(dir, w->stage, slot.s, dir, name, RENAME_NOREPLACE);
		return r < 0 ? r : mode_back(dir, name, s);
	}
	if (r == 0 && !is_brought(dir, name, &here, &s->now))
		r = -ESTALE;
	if (r == 0)
		r = work_loosen(dir, name, &here);
	if (r == 0)
		r = work_rename_at(dir, w->stage, slot.s, dir, name, RENAME_EXCHANGE);
	if (r == 0)
		r = is_ours(w, &s->now, &slot, dir, name, RENAME_EXCHANGE);
	return r < 0 ? r : mode_back(dir, name, s);
}

static int undo_attr(struct work *w, const struct step *s)
{
	cleanup_fd int fd = below_open(w->root, s->path);
	struct ident id;
	struct stat st;

	if (fd < 0) /* it is not there yet, or any more: then it was not changed */
		return nowhere(fd) ? 0 : fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	ident_of(&st, &id);
	if (!same_file(&id, &s->was) || (id.mode & S_IFMT) != (s->was.mode & S_IFMT) ||
	    id.size != s->was.size) /* no step of this kind changes that */
		return 0;
	return attrs_set(fd, &s->old, s->what);
}

static int undo_dir(struct work *w, const struct step *s)
{
	cleanup_fd int fd = s->place ? below_dir(w->root, s->place) : -1;
	struct stat st;

	if (fd < 0)
		return s->place && !nowhere(fd) ? fd : 0;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (st.st_dev != s->was.dev || st.st_ino != s->was.ino)
		return 0;
	return attrs_set(fd, &s->old, ATTRS_MODE | ATTRS_TIMES);
}

static int undo_step(struct work *w, const struct step *s)
{
	switch (s->op) {
	case STEP_OUT:
		return undo_out(w, s);
	case STEP_IN:
		return undo_in(w, s);
	case STEP_SWAP:
		return undo_swap(w, s);
	case STEP_ATTR:
		return undo_attr(w, s);
	case STEP_DIR:
	default:
		return 0;
	}
}

static int count(const struct step *s, int r, struct diag *diag)
{
	const char *path = s->place ? s->place : s->path;

	if (r == 0)
		return 0;
	path = path && *path ? path : "the directory itself";
	if (r == -ESTALE || r == -EEXIST)
		(void)diag_set(diag, r,
			       "%s has been changed or made since then; move it to another place",
			       path);
	else
		(void)diag_set(diag, r, "%s: %s", path, err_text(r));
	return 1;
}

static int clean(struct work *w, struct diag *diag)
{
	int r = work_clean(w);

	if (r == 0)
		return 0;
	(void)diag_set(diag, r, "%s cannot be removed: %s", w->t->stage, err_text(r));
	return 1;
}

int work_undo(struct work *w, struct diag *diag)
{
	const struct steps *l = &w->t->steps;
	int left = 0;

	work_open_dirs(w);
	for (size_t i = l->n; i-- > 0;)
		left += count(&l->v[i], undo_step(w, &l->v[i]), diag);
	/* What is in the stage now was never the host's, unless something could not go back. */
	if (left == 0)
		left += clean(w, diag);
	for (size_t i = l->n; i-- > 0;)
		if (l->v[i].op == STEP_DIR)
			left += count(&l->v[i], undo_dir(w, &l->v[i]), diag);
	return left;
}
