#include "apply/stage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/copy.h"
#include "apply/work_internal.h"
#include "base/cleanup.h"

#define TRIES          5
#define PROGRESS_EVERY 16

static bool stopped(const struct work *w, size_t done, size_t total)
{
	return w->progress && done % PROGRESS_EVERY == 0 &&
	       w->progress(w->arg, "files", done, total);
}

int stage_note(struct work *w, struct step *s)
{
	const struct slot_name slot = work_slot(s);
	int r = work_ident(w->stage, slot.s, &s->now);

	return r == 0 && !s->now.there ? -ENOENT : r;
}

static int copy_once(const struct plan *p, const struct decision *d, const struct copy_from *from,
		     int dir, const char *name, struct attrs *ret)
{
	(void)p;
	if (d->c->bytes_fd >= 0)
		return copy_bytes(from, d->c->bytes_fd, dir, name, ret);
	/* What is in a directory are changes of their own: the policy is asked about each. */
	return S_ISDIR(d->c->mode) ? copy_alone(from, dir, name, ret)
				   : copy_all(from, dir, name, ret);
}

/* A file that somebody writes to just now is copied again. */
static int copy_change(const struct plan *p, const struct decision *d, int dir, const char *name,
		       struct attrs *ret)
{
	const struct timespec pause = {.tv_nsec = 50000000};
	const char *last;
	cleanup_fd int at = below_parent(p->j->tree, d->c->path, &last);
	const struct copy_from from = {at, last};
	int r = at;

	for (int i = 0; at >= 0 && i < TRIES; i++) {
		r = copy_once(p, d, &from, dir, name, ret);
		if (r != -EAGAIN)
			return r;
		r = below_remove(dir, name);
		if (r < 0)
			return r;
		r = -EAGAIN;
		(void)nanosleep(&pause, NULL);
	}
	return r;
}

static int tell(const struct decision *d, int r, struct diag *diag)
{
	const char *path = *d->c->path ? d->c->path : "the directory itself";

	if (r == -EAGAIN)
		return diag_set(diag, r, "%s is being written to; try again when that has ended",
				path);
	return r < 0 ? diag_set(diag, r, "%s cannot be brought: %s", path, err_text(r)) : r;
}

/* Its owner is the one of what it replaces, unless that is the change, and who may say so. */
static int keep_owner(struct work *w, const struct decision *d, struct step *s)
{
	const struct slot_name slot = work_slot(s);
	struct attrs a = s->new;

	if (s->op != STEP_SWAP || (d->c->what & APPLY_OWNER))
		return 0;
	a.uid = s->was.uid;
	a.gid = s->was.gid;
	/* A new owner takes set-id bits away. */
	return work_place(w->stage, slot.s, &a,
			  S_ISDIR(a.mode) ? ATTRS_OWNER : ATTRS_OWNER | ATTRS_MODE);
}

static int stage_step(struct work *w, const struct plan *p, struct step *s)
{
	const struct slot_name slot = work_slot(s);
	struct decision *d = plan_new(p, s->path);
	int r;

	if (!d)
		return -ENOENT;
	attrs_release(&s->new);
	r = copy_change(p, d, w->stage, slot.s, &s->new);
	return r < 0 ? r : keep_owner(w, d, s);
}

/* ---- what comes along with a directory that is new ---- */

struct top {
	const char *path; /* the step's */
	char slot[16];
};

static int by_path(const void *pa, const void *pb)
{
	const struct top *a = pa, *b = pb;

	return strcmp(a->path, b->path);
}

/* The step that brings the directory which @path lies in, at any depth. */
static const struct top *top_of(const struct top *v, size_t n, const char *path)
{
	cleanup_free char *above = strdup(path);

	for (char *slash; above && (slash = strrchr(above, '/'));) {
		const struct top key = {.path = above}, *found;

		*slash = '\0';
		found = n ? bsearch(&key, v, n, sizeof(*v), by_path) : NULL;
		if (found)
			return found;
	}
	return NULL;
}

static int stage_along(struct work *w, const struct plan *p, const struct decision *d,
		       const struct top *tops, size_t n)
{
	const struct top *top = top_of(tops, n, d->c->path);
	cleanup_attrs struct attrs a = {0};
	cleanup_free char *at = NULL;
	const char *name;
	cleanup_fd int dir = -1;
	int r;

	if (!top)
		return -ENOENT;
	if (asprintf(&at, "%s%s", top->slot, d->c->path + strlen(top->path)) < 0) {
		at = NULL;
		return -ENOMEM;
	}
	dir = below_parent(w->stage, at, &name);
	return dir < 0 ? dir : (r = copy_change(p, d, dir, name, &a)) < 0 ? r : 0;
}

/* Directories get their modes and times when nothing is put into them any more. */
static int settle_along(struct work *w, const struct plan *p, const struct decision *d,
			const struct top *tops, size_t n)
{
	const struct top *top = top_of(tops, n, d->c->path);
	cleanup_attrs struct attrs a = {0};
	cleanup_free char *at = NULL;
	cleanup_fd int from = below_open(p->j->tree, d->c->path), to = -1;
	int r = from < 0 ? from : attrs_get(from, &a);

	if (r < 0 || !top)
		return r;
	if (asprintf(&at, "%s%s", top->slot, d->c->path + strlen(top->path)) < 0) {
		at = NULL;
		return -ENOMEM;
	}
	to = below_open(w->stage, at);
	a.mode |= 0700; /* what comes from elsewhere goes into it; a step of its own ends that */
	return to < 0 ? to : attrs_set(to, &a, ATTRS_MODE | ATTRS_TIMES);
}

static bool along(const struct plan *p, const struct decision *d)
{
	struct decision *in;
	char *place;
	bool yes;

	if (!d->wanted || d->verdict != APPLY_DO || (d->c->kind != 'A' && !d->copied) ||
	    plan_place(p, d->c->path, &place, &in) < 0)
		return false;
	yes = !place;
	free(place);
	return yes;
}

static int stage_all_along(struct work *w, const struct plan *p, const struct top *tops, size_t n,
			   struct diag *diag)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->nnews; i++) {
		const struct decision *d = p->news[i];

		if (stopped(w, i, p->nnews))
			return -ECANCELED;
		if (along(p, d))
			r = tell(d, stage_along(w, p, d, tops, n), diag);
	}
	for (size_t i = p->nnews; r == 0 && i-- > 0;) {
		const struct decision *d = p->news[i];

		if (S_ISDIR(d->c->mode) && along(p, d))
			r = tell(d, settle_along(w, p, d, tops, n), diag);
	}
	return r;
}

int stage_tree(struct work *w, const struct plan *p, struct diag *diag)
{
	struct steps *l = &w->t->steps;
	cleanup_free struct top *tops = calloc(l->n + 1, sizeof(*tops));
	size_t n = 0;
	int r = tops ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < l->n; i++) {
		struct step *s = &l->v[i];
		const struct slot_name slot = work_slot(s);

		if (s->moved || (s->op != STEP_IN && s->op != STEP_SWAP))
			continue;
		if (stopped(w, i, l->n))
			return -ECANCELED;
		r = tell(plan_new(p, s->path), stage_step(w, p, s), diag);
		tops[n].path = s->path;
		memcpy(tops[n++].slot, slot.s, sizeof(slot.s));
	}
	if (r == 0 && n)
		qsort(tops, n, sizeof(*tops), by_path);
	if (r == 0)
		r = stage_all_along(w, p, tops, n, diag);
	for (size_t i = 0; r == 0 && i < l->n; i++)
		if (!l->v[i].moved && (l->v[i].op == STEP_IN || l->v[i].op == STEP_SWAP))
			r = stage_note(w, &l->v[i]);
	/* Attributes to come are the tree's, as they are now. */
	for (size_t i = 0; r == 0 && i < l->n; i++) {
		struct step *s = &l->v[i];
		cleanup_fd int fd = s->op == STEP_ATTR ? below_open(p->j->tree, s->path) : -1;

		if (s->op != STEP_ATTR)
			continue;
		attrs_release(&s->new);
		r = fd < 0 ? fd : attrs_get(fd, &s->new);
	}
	return r < 0 && diag && !*diag->text
		       ? diag_set(diag, r, "the changes cannot be read: %s", err_text(r))
		       : r;
}

int stage_old(struct work *w, const struct trail *from, struct diag *diag)
{
	struct steps *l = &w->t->steps;
	cleanup_fd int old = -1;
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n; i++) {
		struct step *s = &l->v[i];
		const struct slot_name slot = work_slot(s);
		struct copy_from what = {.name = slot.s};

		if (s->moved || (s->op != STEP_IN && s->op != STEP_SWAP))
			continue;
		if (old < 0)
			old = trail_old(from, false);
		what.dir = old;
		r = old < 0 ? old : copy_all(&what, w->stage, slot.s, NULL);
		if (r == 0)
			r = work_place(w->stage, slot.s, &s->new,
				       S_ISDIR(s->new.mode) ? ATTRS_ALL & ~(unsigned)ATTRS_MODE
							    : ATTRS_ALL);
		if (r == 0)
			r = stage_note(w, s);
		if (r < 0)
			return diag_set(diag, r, "%s cannot be taken back: %s", s->path,
					err_text(r));
	}
	return r;
}
