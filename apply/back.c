/* Taking runs back, and putting in order what a killed one left. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/apply.h"
#include "apply/back.h"
#include "apply/below.h"
#include "apply/run.h"
#include "apply/stage.h"
#include "base/cleanup.h"

/* ---- after a kill ---- */

static int undo_run(struct trail *t, struct diag *diag)
{
	struct stat st;
	cleanup_fd int root = run_pin(t->root, &st, diag);
	struct work w = {.t = t, .root = root, .stage = -1};
	struct diag left = {0};
	int r;

	if (root < 0)
		return root;
	if (st.st_dev != t->root_dev || st.st_ino != t->root_ino)
		return diag_set(diag, -ESTALE,
				"%s is another directory than the one that an apply was killed in",
				t->root);
	r = work_stage(&w, false);
	if (r == -ENOENT) /* it never began, or was undone but for its mark */
		return t->state == TRAIL_PLANNED ? 0 : work_note_undone(&w);
	if (r < 0)
		return r;
	if (t->state == TRAIL_PLANNED) {
		r = work_clean(&w);
		return r < 0 ? diag_set(
				       diag, r,
				       "%s/%s, which an apply that was killed has left, cannot be removed: %s",
				       t->root, t->stage, err_text(r))
			     : 0;
	}
	r = work_undo(&w, &left) ? -ESTALE : 0;
	work_close(&w);
	if (r < 0)
		return diag_set(
			diag, r,
			"an apply to %s was killed, and could not be undone: %s; what it had "
			"moved away is in %s/%s",
			t->root, left.text, t->root, t->stage);
	return work_note_undone(&w);
}

/* A run that is done may have left its stage, and, if nothing was done since, the directory's time. */
static void clean_done(struct trail *t, bool last)
{
	struct stat st;
	struct diag ignored = {0};
	cleanup_fd int root = run_pin(t->root, &st, &ignored);
	struct work w = {.t = t, .root = root, .stage = -1};

	if (root < 0 || st.st_ino != t->root_ino || st.st_dev != t->root_dev)
		return;
	if (!last && faccessat(root, t->stage, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (work_clean(&w) == 0)
		(void)!trail_mark(t, TRAIL_CLEAN);
}

static int recover_one(int base, uint64_t id, bool last, struct diag *diag)
{
	cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};
	int r = trail_load(base, id, &t);

	if (r == -EBADMSG) {
		(void)diag_set(diag, r, "the journal of the apply %llu is damaged",
			       (unsigned long long)id);
		return 0;
	}
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (t.state == TRAIL_EMPTY)
		return trail_remove(base, id);
	if ((t.state == TRAIL_DONE || t.state == TRAIL_TAKEN_BACK) && !t.clean)
		clean_done(&t, last);
	if (t.state != TRAIL_PLANNED && t.state != TRAIL_READY)
		return 0;
	r = undo_run(&t, diag);
	if (r < 0)
		return 0; /* told of; the others go on */
	if (t.state == TRAIL_PLANNED)
		r = trail_remove(base, id);
	else
		r = trail_undone(&t);
	return r < 0 ? r : 1;
}

static int recover(int base, struct diag *diag)
{
	cleanup_free uint64_t *ids = NULL;
	size_t n = 0;
	int r = trail_list(base, &ids, &n), done = 0;

	for (size_t i = 0; r >= 0 && i < n; i++) {
		r = recover_one(base, ids[i], i + 1 == n, diag);
		done += r > 0;
	}
	return r < 0 ? r : done;
}

int run_open(const char *data_dir, bool make, struct diag *diag, int *ret_base)
{
	cleanup_fd int base = -1;
	struct diag told = {0};
	int r = trail_base(data_dir, make, &base);

	if (r == 0)
		r = trail_lock(base);
	if (r < 0)
		return r == -ENOENT && !make ? r
					     : diag_set(diag, r, "%s/apply cannot be used: %s",
							data_dir, err_text(r));
	r = recover(base, &told);
	if (*told.text)
		return diag_set(diag, -ESTALE, "%s", told.text);
	if (r < 0)
		return r;
	*ret_base = steal_fd(&base);
	return 0;
}

int apply_recover(const char *data_dir, struct diag *diag, uint64_t *ret_last)
{
	cleanup_free uint64_t *ids = NULL;
	cleanup_fd int base = -1;
	size_t n = 0;
	int r = trail_base(data_dir, false, &base), done;

	if (ret_last)
		*ret_last = 0;
	if (r == 0)
		r = trail_lock(base);
	if (r < 0)
		return r == -ENOENT ? 0
				    : diag_set(diag, r, "%s/apply cannot be used: %s", data_dir,
					       err_text(r));
	done = recover(base, diag);
	r = trail_list(base, &ids, &n);
	if (r == 0 && n && ret_last)
		*ret_last = ids[n - 1];
	return r < 0 ? r : done;
}

/* ---- what can be taken back ---- */

static bool ours(const struct trail *t, const char *env)
{
	return t->env && (!env || !strcmp(t->env, env)) && t->state != TRAIL_EMPTY;
}

static bool old(const struct trail *t)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return t->time.tv_sec + RUN_KEEP_DAYS * 86400LL < now.tv_sec;
}

void run_prune(int base, const char *env)
{
	cleanup_free uint64_t *ids = NULL;
	size_t n = 0, seen = 0;

	if (trail_list(base, &ids, &n) < 0)
		return;
	while (n-- > 0) {
		cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};

		if (trail_load(base, ids[n], &t) < 0 || !ours(&t, env))
			continue;
		if (t.back || t.state == TRAIL_TAKEN_BACK)
			(void)!trail_prune(&t);
		else if (t.state == TRAIL_DONE && (++seen > RUN_KEEP || old(&t)))
			(void)!trail_prune(&t);
	}
}

int apply_list(const char *data_dir, const char *env,
	       int (*fn)(void *arg, const struct apply_info *i), void *arg)
{
	cleanup_free uint64_t *ids = NULL;
	cleanup_fd int base = -1;
	size_t n = 0;
	int r = trail_base(data_dir, false, &base);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = trail_list(base, &ids, &n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};
		struct apply_info info;

		if (trail_load(base, ids[i], &t) < 0 || !ours(&t, env))
			continue;
		info = (struct apply_info){
			.id = t.id, .env = t.env, .root = t.root, .time = t.time, .back = t.back};
		for (size_t k = 0; k < t.steps.n; k++)
			info.places += t.steps.v[k].op != STEP_DIR &&
				       !(t.steps.v[k].op == STEP_OUT && t.steps.v[k].moved);
		info.state = t.state == TRAIL_TAKEN_BACK ? APPLY_RUN_BACK
			     : t.state == TRAIL_UNDONE   ? APPLY_RUN_UNDONE
			     : t.state != TRAIL_DONE     ? APPLY_RUN_PENDING
			     : t.pruned                  ? APPLY_RUN_KEPT
							 : APPLY_RUN_DONE;
		r = fn(arg, &info);
	}
	return r;
}

/* The latest that can be: its id, and when it was. */
static int latest(int base, const char *env, struct timespec *ret)
{
	cleanup_free uint64_t *ids = NULL;
	size_t n = 0;
	int r = trail_list(base, &ids, &n);

	if (r < 0)
		return r;
	while (n-- > 0) {
		cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};

		if (trail_load(base, ids[n], &t) == 0 && ours(&t, env) && !t.back &&
		    t.state == TRAIL_DONE && !t.pruned) {
			*ret = t.time;
			return 0;
		}
	}
	return -ENODATA;
}

/* The host is as it was before @of; what is missing is the mark. With conflicts (not @all) there is none: the old bytes of those
 * stay for who forces it. */
static int end_back(struct trail *of, bool all, struct diag *diag, struct apply_sum *sum)
{
	int r = all ? trail_mark(of, TRAIL_TAKEN_BACK) : 0;

	sum->runs++;
	return r < 0 ? diag_set(diag, r,
				"that %s was taken back cannot be noted in the journal: %s",
				of->root, err_text(r))
		     : 0;
}

static int back_one(int base, struct trail *of, bool force, const struct apply_calls *c,
		    struct diag *diag, struct apply_sum *sum)
{
	cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};
	struct stat st;
	cleanup_fd int root = run_pin(of->root, &st, diag);
	struct work w = {
		.t = &t, .root = root, .stage = -1, .progress = c->progress, .arg = c->arg};
	struct known *known = NULL;
	const uint64_t conflicts = sum->conflicts;
	int r = root < 0 ? root : trail_new(base, &t);

	if (r < 0)
		return r;
	t.back = of->id;
	r = back_plan(of, root, base, force, c, &t.steps, sum);
	if (r == 0 && t.steps.n == 0) {
		(void)!trail_remove(base, t.id);
		/* It was taken back, and could not be marked; or the host has done so. */
		return sum->conflicts == conflicts ? end_back(of, true, diag, sum) : 0;
	}
	if (r == 0)
		r = run_begin(&w, of->env, of->root, &st, diag);
	if (r == 0)
		r = known_load(base, of->env, of->root, &known);
	w.known = known;
	if (r == 0)
		r = stage_old(&w, of, diag);
	r = run_end(&w, base, r, diag);
	known_free(known);
	sum->left = (uint64_t)w.left;
	if (r < 0)
		return r;
	sum->id = of->id;
	return end_back(of, sum->conflicts == conflicts, diag, sum);
}

int apply_back(const char *data_dir, const char *env, bool force, const struct apply_calls *c,
	       struct diag *diag, struct apply_sum *sum)
{
	cleanup_free uint64_t *ids = NULL;
	cleanup_fd int base = -1;
	struct timespec when = {0};
	size_t n = 0;
	int r = run_open(data_dir, false, diag, &base);

	*sum = (struct apply_sum){0};
	if (r == 0)
		r = latest(base, env, &when);
	if (r == -ENOENT || r == -ENODATA)
		return diag_set(diag, -ENODATA,
				"nothing of %s was applied that could be taken back", env);
	if (r == 0)
		r = trail_list(base, &ids, &n);
	while (n-- > 0) {
		cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};
		const uint64_t runs = sum->runs;

		if (trail_load(base, ids[n], &t) < 0 || !ours(&t, env) || t.back ||
		    t.state != TRAIL_DONE || !ident_time_same(&t.time, &when))
			continue;
		if (r == 0)
			r = back_one(base, &t, force, c, diag, sum);
		if (c->root)
			c->root(c->arg, t.root, sum->runs > runs);
	}
	if (r == 0)
		run_prune(base, env);
	return r < 0 ? diag_set(diag, r, "%s", err_text(r)) : 0;
}
