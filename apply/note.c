/* What a run leaves behind, written down: to tell later whether somebody has touched it. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/work_internal.h"
#include "base/cleanup.h"

static int note_below(struct trail *t, int dir, const char *name, const char *path);

static int note_inside(struct trail *t, int dir, const char *name, const char *path)
{
	cleanup_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_dir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	int r = 0;

	if (!d) /* not readable: what is in it will be taken for changed */
		return 0;
	(void)steal_fd(&fd);
	for (struct dirent *e; r == 0 && (e = readdir(d));) {
		cleanup_free char *below = NULL;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", e->d_name) < 0) {
			below = NULL;
			return -ENOMEM;
		}
		r = note_below(t, dirfd(d), e->d_name, below);
	}
	return r;
}

static int note_below(struct trail *t, int dir, const char *name, const char *path)
{
	struct ident id;
	int r = work_ident(dir, name, &id);

	if (r == 0)
		r = trail_after_add(t, path, &id);
	return r == 0 && S_ISDIR(id.mode) ? note_inside(t, dir, name, path) : r;
}

/* What earlier runs left below a directory that was renamed is known by its new name. */
struct moving {
	struct work *w;
	const char *from, *to;
};

static int note_known(void *arg, const char *path, const struct known_state *k)
{
	const struct moving *m = arg;
	cleanup_free char *now = NULL;
	struct ident id = {0};
	struct stat st;
	int r;

	if (asprintf(&now, "%s%s", m->to, path + strlen(m->from)) < 0) {
		now = NULL;
		return -ENOMEM;
	}
	r = below_stat(m->w->root, now, &st);
	if (r == 0)
		ident_of(&st, &id);
	else if (r != -ENOENT) /* that it is not there is known as well */
		return 0;
	return known_same(k, &id) ? trail_after_add(m->w->t, now, &id) : 0;
}

/* What the run itself took out of it as well. */
static int note_taken(struct moving *m)
{
	static const struct known_state none;
	const struct steps *l = &m->w->t->steps;
	size_t n = strlen(m->from);
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n; i++) {
		const char *place = l->v[i].place;

		if (l->v[i].op == STEP_OUT && !strncmp(place, m->from, n) && place[n] == '/')
			r = note_known(m, place, &none);
	}
	return r;
}

static int note_moved(struct work *w, const struct step *in)
{
	struct moving m = {.w = w, .to = in->path};
	int r;

	for (size_t i = 0; i < w->t->steps.n; i++)
		if (w->t->steps.v[i].op == STEP_OUT && w->t->steps.v[i].slot == in->slot)
			m.from = w->t->steps.v[i].place;
	r = m.from ? known_below(w->known, m.from, note_known, &m) : 0;
	return r == 0 && m.from ? note_taken(&m) : r;
}

/* Is what stands there what the step has left there? Somebody may have been at the place since. */
static bool is_left(const struct step *s, const struct ident *is)
{
	bool came = s->op == STEP_SWAP || (s->op == STEP_IN && !s->moved);
	const struct ident *want = came ? &s->now : &s->was;

	/* Where something else came instead, that has a step of its own. */
	if (s->op == STEP_OUT)
		return !is->there;
	/* a directory that is new */
	if (s->op == STEP_DIR && !s->was.there)
		return S_ISDIR(is->mode);
	return is->there && is->dev == want->dev && is->ino == want->ino;
}

int work_note(struct work *w, const struct step *s)
{
	const char *path = s->op == STEP_OUT ? s->place : s->path, *name;
	cleanup_fd int dir = -1;
	struct stat st;
	struct ident id = {0};
	int r;

	/* Taken back is what somebody had made beside us: it is his, and not what a change is based on. */
	if (!path || (s->forced && w->t->back))
		return 0;
	r = below_stat(w->root, path, &st);
	if (r == 0)
		ident_of(&st, &id);
	else if (r != -ENOENT)
		return 0;
	if (!is_left(s, &id))
		return 0;
	if (s->moved && s->op == STEP_IN && S_ISDIR(id.mode)) {
		int k = note_moved(w, s);

		if (k < 0)
			return k;
	}
	if (s->moved || (s->op != STEP_IN && s->op != STEP_SWAP))
		return trail_after_add(w->t, path, &id);
	dir = below_parent(w->root, path, &name);
	return dir < 0 ? 0 : note_below(w->t, dir, name, path);
}

/* What is changed after this moment has a later time. */
void work_note_time(struct trail *t)
{
	const struct timespec tick = {.tv_nsec = 1000000};
	struct timespec now;

	/* File systems stamp with one or with the other. */
	(void)clock_gettime(CLOCK_REALTIME, &t->done_at);
	for (int i = 0; i < 50; i++) {
		(void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
		if (ident_before(&t->done_at, &now))
			return;
		(void)nanosleep(&tick, NULL);
	}
}

int work_note_undone(struct work *w)
{
	struct trail *t = w->t;
	int r = 0;

	for (size_t i = 0; r == 0 && i < t->steps.n; i++) {
		const struct step *s = &t->steps.v[i];
		struct ident id;
		struct stat st;

		if (!s->place || s->forced || s->op == STEP_DIR ||
		    below_stat(w->root, s->place, &st) < 0)
			continue;
		ident_of(&st, &id);
		if (ident_is(&id, &s->was) && id.mode == s->was.mode)
			r = trail_after_add(t, s->place, &id);
	}
	work_note_time(t);
	return r;
}
