#include "apply/work.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/copy.h"
#include "apply/work_internal.h"
#include "base/cleanup.h"

#define PROGRESS_EVERY 64

int work_stage(struct work *w, bool make)
{
	int fd;

	if (make) {
		cleanup_fd int top = openat(w->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (top < 0 || mkdirat(top, w->t->stage, 0700) < 0)
			return ret_nerrno();
	}
	fd = openat(w->root, w->t->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	w->stage = fd;
	return 0;
}

void work_close(struct work *w)
{
	if (w->stage >= 0)
		(void)close(w->stage);
	w->stage = -1;
}

int work_sync(int fd)
{
	return syncfs(fd) < 0 ? ret_nerrno() : 0;
}

/* Of the directory at the top before the stage was made in it, or when all is done. */
static void times_of_top(const struct trail *t, struct stat *st)
{
	bool before = t->state == TRAIL_PLANNED;

	for (size_t i = 0; i < t->steps.n; i++) {
		const struct step *s = &t->steps.v[i];
		const char *path = before ? s->place : s->path;
		const struct attrs *a = before ? &s->old : &s->new;

		if (s->op != STEP_DIR || !path || *path)
			continue;
		st->st_atim = a->atime;
		st->st_mtim = a->mtime;
	}
}

int work_clean(struct work *w)
{
	struct stat st;
	int r;

	work_close(w);
	/* Its removal is seen in the directory's times, which are set again behind it. */
	r = fstat(w->root, &st) < 0 ? ret_nerrno() : below_remove(w->root, w->t->stage);
	if (r == 0 && (w->t->state == TRAIL_PLANNED || w->t->state == TRAIL_DONE))
		times_of_top(w->t, &st);
	if (r == 0)
		(void)!attrs_set(w->root, &(struct attrs){.atime = st.st_atim, .mtime = st.st_mtim},
				 ATTRS_TIMES);
	return r;
}

/* ---- names ---- */

struct slot_name work_slot(const struct step *s)
{
	struct slot_name n;

	(void)snprintf(n.s, sizeof(n.s), "%u", s->slot);
	return n;
}

int work_ident(int dir, const char *name, struct ident *ret)
{
	struct stat st;

	*ret = (struct ident){0};
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : ret_nerrno();
	ident_of(&st, ret);
	return 0;
}

int work_place(int dir, const char *name, const struct attrs *a, unsigned what)
{
	cleanup_fd int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? ret_nerrno() : attrs_set(fd, a, what);
}

/* A directory that goes to another one is written to: its "..". */
int work_loosen(int dir, const char *name, const struct ident *id)
{
	const struct attrs a = {.mode = id->mode | 0700};

	if (!S_ISDIR(id->mode) || (id->mode & 0200) || id->uid != geteuid())
		return 0;
	return work_place(dir, name, &a, ATTRS_MODE);
}

int work_rename(int from, const char *name, int to, const char *as, unsigned flags)
{
	return renameat2(from, name, to, as, flags) < 0 ? ret_nerrno() : 0;
}

/* The same where the directory @at, one of the two, may be closed to its owner: its step among the last sets its mode. */
int work_rename_at(int at, int from, const char *name, int to, const char *as, unsigned flags)
{
	int r = work_rename(from, name, to, as, flags);
	struct stat st;

	if (r != -EACCES || fstat(at, &st) < 0 || st.st_uid != geteuid())
		return r;
	r = attrs_set(at, &(struct attrs){.mode = st.st_mode | 0700}, ATTRS_MODE);
	return r < 0 ? r : work_rename(from, name, to, as, flags);
}

/* ---- the steps ---- */

/* A directory may have been opened by us. */
static bool unchanged(const struct ident *is, const struct ident *was)
{
	uint32_t more = S_ISDIR(was->mode) ? 0700 : 0;

	return ident_is(is, was) && (is->mode | more) == (was->mode | more);
}

/* What is to go is what was looked at, and may be renamed. */
static int ready_to_go(int dir, const char *name, const struct step *s)
{
	struct ident id;
	int r = work_ident(dir, name, &id);

	if (r == 0 && !unchanged(&id, &s->was))
		r = -ESTALE;
	return r < 0 ? r : work_loosen(dir, name, &id);
}

/* What went is that. Between the look and the rename somebody may have put another one there: it goes back, by @flags. */
static int went(struct work *w, const struct step *s, int dir, const char *name, unsigned flags)
{
	const struct slot_name slot = work_slot(s);
	struct ident id;
	int r = work_ident(w->stage, slot.s, &id);

	if (r < 0 || ident_is(&id, &s->was))
		return r;
	r = work_rename(w->stage, slot.s, dir, name, flags);
	return r < 0 ? r : -ESTALE;
}

static int do_out(struct work *w, const struct step *s)
{
	const struct slot_name slot = work_slot(s);
	const char *name;
	cleanup_fd int dir = below_parent(w->root, s->place, &name);
	int r = dir < 0 ? dir : ready_to_go(dir, name, s);

	if (r == 0)
		r = work_rename_at(dir, dir, name, w->stage, slot.s, RENAME_NOREPLACE);
	return r < 0 ? r : went(w, s, dir, name, RENAME_NOREPLACE);
}

/* What came is a directory: its mode and times, which its way here has changed. */
static int settle_dir(int dir, const char *name, const struct step *s)
{
	const struct attrs was = {.mode = s->was.mode};

	if (s->moved)
		return S_ISDIR(s->was.mode) ? work_place(dir, name, &was, ATTRS_MODE) : 0;
	return S_ISDIR(s->new.mode) ? work_place(dir, name, &s->new, ATTRS_MODE | ATTRS_TIMES) : 0;
}

static int do_in(struct work *w, const struct step *s)
{
	const struct slot_name slot = work_slot(s);
	const char *name;
	cleanup_fd int dir = below_parent(w->root, s->path, &name);
	int r = dir < 0 ? dir : work_rename_at(dir, w->stage, slot.s, dir, name, RENAME_NOREPLACE);

	if (r == -EEXIST)
		return -ESTALE;
	return r < 0 ? r : settle_dir(dir, name, s);
}

static int do_swap(struct work *w, const struct step *s)
{
	const struct slot_name slot = work_slot(s);
	const char *name;
	cleanup_fd int dir = below_parent(w->root, s->path, &name);
	int r = dir < 0 ? dir : ready_to_go(dir, name, s);

	if (r == 0)
		r = work_rename_at(dir, w->stage, slot.s, dir, name, RENAME_EXCHANGE);
	if (r == 0)
		r = went(w, s, dir, name, RENAME_EXCHANGE);
	return r < 0 ? r : settle_dir(dir, name, s);
}

static int do_attr(struct work *w, const struct step *s)
{
	cleanup_fd int fd = below_open(w->root, s->path);
	struct ident id;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	ident_of(&st, &id);
	if (id.dev != s->was.dev || id.ino != s->was.ino)
		return -ESTALE;
	if (S_ISDIR(st.st_mode)) { /* open until nothing below it is looked at any more */
		struct attrs a = s->new;

		a.mode |= st.st_uid == geteuid() ? 0700 : 0;
		return attrs_set(fd, &a, s->what);
	}
	return attrs_set(fd, &s->new, s->what);
}

static int do_dir(struct work *w, const struct step *s)
{
	cleanup_fd int fd = s->path ? below_dir(w->root, s->path) : -1;

	if (!s->path)
		return 0;
	return fd < 0 ? fd : attrs_set(fd, &s->new, ATTRS_MODE | ATTRS_TIMES);
}

static int do_step(struct work *w, const struct step *s)
{
	switch (s->op) {
	case STEP_OUT:
		return do_out(w, s);
	case STEP_IN:
		return do_in(w, s);
	case STEP_SWAP:
		return do_swap(w, s);
	case STEP_ATTR:
		return do_attr(w, s);
	case STEP_DIR:
		return do_dir(w, s);
	default:
		return -EINVAL;
	}
}

/* Where the directory of a step is by now; a new one is only at @path. */
static int find_dir(struct work *w, const struct step *s, struct stat *st)
{
	const char *const at[] = {s->place, s->path};

	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		cleanup_fd int fd = at[i] ? below_dir(w->root, at[i]) : -1;

		if (fd < 0 || fstat(fd, st) < 0)
			continue;
		if (!s->place || (st->st_ino == s->was.ino && st->st_dev == s->was.dev))
			return steal_fd(&fd);
	}
	return -1;
}

/* A directory that its owner may not write lets no name be changed. */
void work_open_dirs(struct work *w)
{
	for (size_t i = 0; i < w->t->steps.n; i++) {
		const struct step *s = &w->t->steps.v[i];
		struct stat st;
		cleanup_fd int fd = s->op == STEP_DIR ? find_dir(w, s, &st) : -1;

		if (fd >= 0 && (st.st_mode & 0700) != 0700 && st.st_uid == geteuid())
			(void)!attrs_set(fd, &(struct attrs){.mode = st.st_mode | 0700},
					 ATTRS_MODE);
	}
}

/* ---- what stays of it ---- */

/* What was replaced or removed, out of the stage, where everything that moved elsewhere has left it. */
static int keep_old(struct work *w, struct diag *diag)
{
	cleanup_fd int old = trail_old(w->t, true);
	int r = old < 0 ? old : 0;

	for (size_t i = 0; r == 0 && i < w->t->steps.n; i++) {
		const struct step *s = &w->t->steps.v[i];
		const struct slot_name slot = work_slot(s);
		const struct copy_from from = {w->stage, slot.s};

		if (s->moved || (s->op != STEP_OUT && s->op != STEP_SWAP))
			continue;
		r = copy_all(&from, old, slot.s, NULL);
		if (r < 0)
			return diag_set(diag, r, "%s could not be kept for taking back: %s",
					s->place, err_text(r));
	}
	return r == 0 ? work_sync(old) : r;
}

/* ---- all of it ---- */

static const char *shown(const struct step *s)
{
	const char *p = s->path ? s->path : s->place;

	return p && *p ? p : "the directory itself";
}

int work_failed(struct work *w, int r, struct diag *diag)
{
	const struct diag what = diag ? *diag : (struct diag){0};
	struct diag left = {0};

	w->left = work_undo(w, &left);
	if (!w->left || !diag)
		return r;
	*diag = (struct diag){0};
	return diag_set(diag, r,
			"%s; and of what was done, this could not be undone: %s; the next apply or "
			"unapply tries it again, and needs %s/%s for that",
			what.text, left.text, w->t->root, w->t->stage);
}

static int failed(struct work *w, const struct step *s, int r, struct diag *diag)
{
	if (r == -ECANCELED)
		(void)diag_set(diag, r, "interrupted");
	else if (r == -ESTALE)
		(void)diag_set(diag, r, "%s was changed on the host in this moment: try again",
			       shown(s));
	else
		(void)diag_set(diag, r, "%s: %s", shown(s), err_text(r));
	return work_failed(w, r, diag);
}

int work_do(struct work *w, struct diag *diag)
{
	struct trail *t = w->t;
	int r = 0;

	work_open_dirs(w);
	for (size_t i = 0; i < t->steps.n; i++) {
		if (w->progress && i % PROGRESS_EVERY == 0 &&
		    w->progress(w->arg, "changes", i, t->steps.n))
			r = -ECANCELED;
		/* The directories' own times come when nothing changes them any more. */
		if (r == 0 && t->steps.v[i].op != STEP_DIR)
			r = do_step(w, &t->steps.v[i]);
		if (r < 0)
			return failed(w, &t->steps.v[i], r, diag);
	}
	r = keep_old(w, diag);
	for (size_t i = 0; r == 0 && i < t->steps.n; i++)
		r = work_note(w, &t->steps.v[i]);
	for (size_t i = t->steps.n; r == 0 && i-- > 0;) {
		if (t->steps.v[i].op == STEP_DIR)
			r = do_step(w, &t->steps.v[i]);
		if (r < 0)
			return failed(w, &t->steps.v[i], r, diag);
	}
	if (r == 0)
		r = work_sync(w->stage);
	if (r < 0) {
		(void)diag_set(diag, r, "the changes could not be made durable: %s", err_text(r));
		return work_failed(w, r, diag);
	}
	work_note_time(t);
	return 0;
}
