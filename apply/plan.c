#include "apply/plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static int path_of(void *arg, void *where, struct buf *out)
{
	const struct plan *p = arg;

	return buf_printf(out, "%s/%s", p->j->mount, (const char *)where);
}

void plan_release(struct plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].place_buf);
	free(p->v);
	free((void *)p->news);
	free((void *)p->olds);
	steps_release(&p->steps);
	if (p->judge.policy)
		judge_release(&p->judge);
}

/* ---- what is chosen, and what that needs ---- */

/* Who cannot give files away is not asked to. */
static void trim(struct decision *d)
{
	if (geteuid() != 0)
		d->c->what &= ~(uint32_t)APPLY_OWNER;
	if (!*d->c->path) /* its times follow its names */
		d->c->what &= ~(uint32_t)APPLY_TIMES;
	if (d->c->kind == 'M' && !d->c->what) {
		d->wanted = false;
		plan_say(d, APPLY_NOTHING, "%s", "");
	}
}

/* Does the host's place @path lie below something that goes? */
static struct decision *above_gone(const struct plan *p, const char *path)
{
	cleanup_free char *above = strdup(path);

	for (char *slash; above && (slash = strrchr(above, '/'));) {
		struct decision *d;

		*slash = '\0';
		d = plan_old(p, above);
		if (d && d->wanted && d->c->kind != 'R')
			return d;
	}
	return NULL;
}

static bool want(struct decision *d)
{
	bool more = d && !d->wanted && d->verdict == APPLY_DO;

	if (more)
		d->wanted = true;
	return more;
}

/* One round: true when something was added. */
static bool want_more(const struct plan *p, struct decision *d)
{
	struct decision *in;
	bool more = false;
	char *place;

	if (!d->wanted) /* what goes elsewhere out of a directory that goes */
		return d->c->kind == 'R' && above_gone(p, d->c->old) ? want(d) : false;
	if (d->c->kind == 'D')
		return false;
	if (plan_place(p, d->c->path, &place, &in) < 0)
		return false;
	more |= want(in);
	if (place)
		more |= want(plan_old(p, place));
	free(place);
	return more;
}

static void choose(struct plan *p)
{
	bool more;

	for (size_t i = 0; i < p->n; i++) {
		p->v[i].wanted = p->v[i].asked = p->v[i].c->chosen;
		trim(&p->v[i]);
	}
	more = !p->j->exact;
	while (more) {
		more = false;
		for (size_t i = 0; i < p->n; i++)
			more |= want_more(p, &p->v[i]);
	}
}

/* ---- what depends on what ---- */

static bool stands(const struct decision *d)
{
	return d->wanted && d->verdict == APPLY_DO;
}

static bool fail(struct decision *d, const char *why, const struct decision *of)
{
	plan_say(d, APPLY_CONFLICT, "%s %s is left alone", why, of->c->path);
	return true;
}

static bool one_depends(const struct plan *p, struct decision *d)
{
	struct decision *in, *old;
	bool more = false;
	char *place;

	/* It would go along with its directory. */
	if (d->c->kind == 'R' && !d->copied && !stands(d)) {
		struct decision *top = above_gone(p, d->c->old);

		if (top && stands(top))
			return fail(top, "it holds what goes elsewhere, and", d);
	}
	if (!stands(d) || d->c->kind == 'D' || plan_place(p, d->c->path, &place, &in) < 0)
		return false;
	old = place ? plan_old(p, place) : NULL;
	if (in && !stands(in))
		more = fail(d, "its directory", in);
	else if (old && old != d && !stands(old) && old->verdict != APPLY_NOTHING)
		more = fail(d, "what is in its place, ", old);
	free(place);
	return more;
}

static void depend(struct plan *p)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < p->n; i++)
			more |= one_depends(p, &p->v[i]);
	}
	/* What goes with its directory needs no step of its own. */
	for (size_t i = 0; i < p->n; i++) {
		struct decision *d = &p->v[i], *top;

		if (d->c->kind != 'D' || !d->wanted)
			continue;
		top = above_gone(p, d->c->path);
		d->subsumed = top && stands(top) && d->verdict != APPLY_REFUSED;
		if (d->subsumed)
			d->verdict = APPLY_DO;
	}
}

/* ---- all of it ---- */

/* A rename with other bytes is a removal and something new; so is one whose place is not free to be renamed to. */
static void see_copies(struct plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		p->v[i].copied = p->v[i].c->kind == 'R' && p->v[i].c->what & APPLY_CONTENT &&
				 !S_ISDIR(p->v[i].c->mode);
}

int plan_make(struct plan *p, struct diag *diag)
{
	const struct apply_job *j = p->j;
	int r;

	judge_init(&p->judge, j->policy, path_of, p);
	p->v = calloc(j->n + 1, sizeof(*p->v));
	if (!p->v)
		return -ENOMEM;
	p->n = j->n;
	for (size_t i = 0; i < p->n; i++)
		p->v[i].c = &j->v[i];
	r = plan_index(p);
	if (r < 0)
		return r;
	see_copies(p);
	choose(p);
	for (size_t i = 0; r == 0 && i < p->n; i++)
		if (p->v[i].wanted)
			r = plan_judge(p, &p->v[i]);
	if (r < 0)
		return r;
	depend(p);
	return plan_steps(p, diag);
}
