#include "apply/apply.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/expand.h"
#include "apply/paths.h"
#include "apply/plan.h"
#include "apply/run.h"
#include "apply/stage.h"
#include "apply/work.h"
#include "base/cleanup.h"

static void say(const struct apply_calls *c, const struct decision *d, struct apply_sum *sum)
{
	const struct apply_line l = {.verdict = d->verdict,
				     .kind = d->c->kind,
				     .what = d->c->what,
				     .path = d->c->path,
				     .old = d->c->kind == 'R' ? d->c->old : NULL,
				     .reason = d->reason,
				     .closed = d->closed};

	if (d->verdict == APPLY_NOTHING && !*d->reason) /* times alone, which are nobody's */
		return;
	sum->done += d->verdict == APPLY_DO;
	sum->conflicts += d->verdict == APPLY_CONFLICT;
	sum->refused += d->verdict == APPLY_REFUSED;
	if (c->line)
		c->line(c->arg, &l);
}

static void say_all(const struct apply_calls *c, const struct plan *p, struct apply_sum *sum)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].wanted)
			say(c, &p->v[i], sum);
}

/* ---- what the tree shows from places of the host that change ---- */

static int own(const struct apply_calls *c, const struct plan *p, const char *path,
	       struct diag *diag)
{
	cleanup_free char *full = NULL;

	if (asprintf(&full, "%s/%s", p->j->mount, path) < 0) {
		full = NULL;
		return -ENOMEM;
	}
	return c->own(c->arg, full, diag);
}

/* Where on the host something goes, or another takes its place. */
static int places_that_go(const struct plan *p, struct paths *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->steps.n; i++) {
		const struct step *s = &p->steps.v[i];

		if (s->op == STEP_OUT || s->op == STEP_SWAP)
			r = paths_add(ret, s->place);
	}
	paths_seal(ret);
	return r;
}

/* Nothing of it is to be missing in the tree, chosen or not. */
static int own_all(const struct plan *p, const struct apply_calls *c, struct diag *diag)
{
	cleanup_paths struct paths going = {0};
	const struct apply_job *j = p->j;
	int r = c->own ? places_that_go(p, &going) : 0;

	for (size_t i = 0; c->own && r == 0 && i < j->nelsewhere; i++) {
		struct diag lost = {0};

		/* What is lost already is no reason to leave the rest; who brings it says so. */
		r = c->own(c->arg, j->elsewhere[i], &lost);
		if (r == -ESTALE || r == -ENOENT)
			r = 0;
		if (r < 0)
			(void)diag_set(diag, r, "%s", lost.text);
	}
	for (size_t i = 0; c->own && r == 0 && i < p->n; i++) {
		const struct apply_change *ch = p->v[i].c;

		if (ch->kind == 'R' && paths_above(&going, ch->old, true))
			r = own(c, p, ch->path, diag);
	}
	return r;
}

int run_pin(const char *host, struct stat *ret_st, struct diag *diag)
{
	cleanup_fd int fd = open(host, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, ret_st) < 0)
		return diag_set(diag, ret_nerrno(), "the directory %s cannot be opened: %s", host,
				err_text(errno));
	return steal_fd(&fd);
}

int run_begin(struct work *w, const char *env, const char *root, const struct stat *st,
	      struct diag *diag)
{
	struct trail *t = w->t;
	int r;

	t->env = strdup(env);
	t->root = strdup(root);
	t->root_dev = st->st_dev;
	t->root_ino = st->st_ino;
	if (!t->env || !t->root)
		return -ENOMEM;
	r = trail_plan(t);
	if (r < 0)
		return diag_set(diag, r, "the journal cannot be written: %s", err_text(r));
	r = work_stage(w, true);
	return r < 0 ? diag_set(diag, r, "%s cannot be written to: %s", root, err_text(r)) : 0;
}

/* All is staged: from here on it is either done or undone. */
static int take_steps(struct work *w, struct diag *diag)
{
	int r = work_do(w, diag);

	if (r == 0) {
		r = trail_done(w->t);
		if (r == 0)
			return 0;
		(void)diag_set(diag, r, "the journal cannot be written: %s", err_text(r));
		r = work_failed(w, r, diag);
		/* The file may say that it is done all the same. */
		if (w->left)
			(void)!trail_mark(w->t, TRAIL_READY);
	}
	/* What could not be undone the next run tries again. */
	trail_after_drop(w->t);
	if (w->left == 0 && work_note_undone(w) == 0)
		(void)!trail_undone(w->t);
	return r;
}

int run_end(struct work *w, int base, int r, struct diag *diag)
{
	if (r == 0)
		r = work_sync(w->stage);
	if (r == 0)
		r = trail_ready(w->t);
	if (r == 0) {
		r = take_steps(w, diag);
		if (r == 0 && work_clean(w) == 0)
			(void)!trail_mark(w->t, TRAIL_CLEAN);
		work_close(w);
		return r;
	}
	(void)diag_set(diag, r, "what was prepared cannot be made durable: %s", err_text(r));
	if (w->stage < 0 || work_clean(w) == 0)
		(void)!trail_remove(base, w->t->id);
	work_close(w);
	return r;
}

/* What comes or goes with all that is in it. */
static int places_that_change(const struct trail *t, struct paths *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < t->steps.n; i++) {
		const struct step *s = &t->steps.v[i];

		if (s->op == STEP_OUT)
			r = paths_add(ret, s->place);
		else if (s->op == STEP_IN || s->op == STEP_SWAP)
			r = paths_add(ret, s->path);
	}
	paths_seal(ret);
	return r;
}

/* What is left alone is not what the environment has seen, whatever is done to the directories above it. What was not chosen, and
 * nothing is done to, stays what it has seen: it can be chosen the next time. */
static int note_conflicts(const struct plan *p, struct trail *t)
{
	static const struct ident nobodys = {.there = true};
	cleanup_paths struct paths changed = {0};
	int r = places_that_change(t, &changed);

	for (size_t i = 0; r == 0 && i < p->n; i++) {
		const char *path = p->v[i].c->path;

		if (p->v[i].verdict == APPLY_CONFLICT ||
		    (!p->v[i].wanted && !known_find(p->known, path) &&
		     paths_above(&changed, path, true)))
			r = trail_after_add(t, path, &nobodys);
	}
	return r;
}

static int bring(const struct apply_calls *c, struct plan *p, int base, const struct stat *st,
		 struct diag *diag, struct apply_sum *sum)
{
	cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};
	struct work w = {.t = &t,
			 .root = p->root,
			 .stage = -1,
			 .known = p->known,
			 .progress = c->progress,
			 .arg = c->arg};
	int r = own_all(p, c, diag);

	if (r == 0 && c->settle)
		r = c->settle(c->arg, diag);
	if (r == 0)
		r = trail_new(base, &t);
	if (r < 0)
		return diag_set(diag, r, "the changes cannot be prepared: %s", err_text(r));
	if (p->j->when.tv_sec)
		t.time = p->j->when;
	t.steps = p->steps;
	p->steps = (struct steps){0};
	r = run_begin(&w, p->j->env, p->j->host, st, diag);
	if (r == 0)
		r = note_conflicts(p, &t);
	if (r == 0)
		r = stage_tree(&w, p, diag);
	r = run_end(&w, base, r, diag);
	sum->left = (uint64_t)w.left;
	if (r == 0)
		sum->id = t.id;
	return r;
}

/* Of a directory that the environment shows at several places there are several runs, of one time. */
static bool is_part(const struct trail *t, const struct apply_job *j)
{
	return t->time.tv_sec == j->when.tv_sec && t->time.tv_nsec == j->when.tv_nsec && t->env &&
	       !strcmp(t->env, j->env);
}

/* Somebody else has applied, or taken back, since the list of changes was made. */
static int check_since(int base, const struct apply_job *j, struct diag *diag)
{
	cleanup_free uint64_t *ids = NULL;
	size_t n = 0;
	int r = j->since ? trail_list(base, &ids, &n) : 0;

	while (r == 0 && n-- > 0 && ids[n] > *j->since) {
		cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};

		if (trail_load(base, ids[n], &t) == 0 && t.root && !strcmp(t.root, j->host) &&
		    !is_part(&t, j))
			r = diag_set(diag, -EAGAIN,
				     "something else was applied to %s, or taken back, meanwhile; "
				     "apply again",
				     j->host);
	}
	return r;
}

/* What both apply_look() and apply_run() begin with: @p is made. */
struct beginning {
	int base, root;
	struct stat st;
	struct expanded x;
	struct apply_job all;
	struct known *known;
	struct plan p;
};

static int begin(const struct apply_job *j, struct beginning *b, struct diag *diag)
{
	int r = run_open(j->data_dir, true, diag, &b->base);

	if (r == 0)
		r = check_since(b->base, j, diag);
	if (r == 0) {
		b->root = run_pin(j->host, &b->st, diag);
		r = b->root < 0 ? b->root : known_load(b->base, j->env, j->host, &b->known);
	}
	b->all = *j;
	b->p = (struct plan){.j = &b->all, .root = b->root, .known = b->known};
	if (r == 0 && !j->exact) {
		r = expand(j, b->root, b->known, &b->x);
		b->all.v = b->x.v;
		b->all.n = b->x.n;
	}
	return r == 0 ? plan_make(&b->p, diag) : r;
}

static void begin_release(struct beginning *b)
{
	plan_release(&b->p);
	known_free(b->known);
	expand_release(&b->x);
	cleanup_fdp(&b->root);
	cleanup_fdp(&b->base);
}
#define BEGINNING                      \
	{                              \
		.base = -1, .root = -1 \
	}

void apply_looked_release(struct apply_looked *l)
{
	for (size_t i = 0; i < l->nowned; i++)
		free(l->owned[i]);
	free(l->owned);
	free(l->v);
	free(l->seen);
	*l = (struct apply_looked){0};
}

int apply_look(const struct apply_job *j, struct diag *diag, struct apply_looked *ret)
{
	struct beginning b = BEGINNING;
	int r = begin(j, &b, diag);

	*ret = (struct apply_looked){0};
	if (r == 0) {
		ret->seen = calloc(b.p.n + 1, sizeof(*ret->seen));
		r = ret->seen ? 0 : -ENOMEM;
	}
	for (size_t i = 0; r == 0 && i < b.p.n; i++) {
		const struct decision *d = &b.p.v[i];
		struct apply_seen *s = &ret->seen[i];

		s->wanted = d->wanted;
		s->verdict = d->verdict;
		s->below = d->below;
		s->isdir = d->c->kind != 'R' && d->is.there && S_ISDIR(d->is.mode);
		s->closed = d->closed;
		memcpy(s->reason, d->reason, sizeof(s->reason));
	}
	if (r == 0) {
		ret->v = b.x.v;
		ret->n = b.x.n;
		ret->owned = b.x.owned;
		ret->nowned = b.x.nowned;
		b.x = (struct expanded){0};
	}
	begin_release(&b);
	return r < 0 ? diag_set(diag, r, "%s", err_text(r)) : 0;
}

int apply_run(const struct apply_job *j, const struct apply_calls *c, struct diag *diag,
	      struct apply_sum *sum)
{
	struct beginning b = BEGINNING;
	int r;

	*sum = (struct apply_sum){0};
	r = begin(j, &b, diag);
	if (r == 0)
		say_all(c, &b.p, sum);
	if (r == 0 && b.p.steps.n && !j->dry_run)
		r = bring(c, &b.p, b.base, &b.st, diag, sum);
	if (r == 0 && !j->dry_run)
		run_prune(b.base, j->env);
	begin_release(&b);
	return r < 0 ? diag_set(diag, r, "%s", err_text(r)) : 0;
}
