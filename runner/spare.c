#include "runner/spare.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "runner/bwrap_argv.h"
#include "runner/runner_internal.h"

#define KEEP_S 600

/* What a sandbox is built from; equal: one may serve for the other. */
struct box {
	struct buf args; /* bwrap's */
	struct stat ns[2];
	struct run_limits limits; /* the cgroup's */
	uint64_t tree_id[2];
	bool merged;
	char *stage3;
};

struct run_spare {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	/* under lock */
	bool stop, building;
	bool stale;        /* what is being built is not to wait */
	bool wanted;       /* a run has ended, and nothing waits */
	struct run *run;   /* waits; NULL: none */
	struct run *unfit; /* did, and is to end: by the thread, so that no command waits for it */
	struct box box, run_box; /* of the last run, of what waits */
	struct run_spec spec;    /* of the last run, with copies of what was lent */
	struct timespec until;   /* for how long it waits */
};

/* ---- what it is built from ---- */

static void box_release(struct box *b)
{
	buf_release(&b->args);
	free(b->stage3);
	*b = (struct box){0};
}

static int box_of(const struct run_spec *s, struct box *ret)
{
	struct box b = {.limits = s->limits,
			.tree_id = {s->tree_id[0], s->tree_id[1]},
			.merged = s->stderr_mode == RUN_STDERR_MERGED};
	const int fd[2] = {s->userns_fd, s->mntns_fd};
	int r = bwrap_args(s, false, &b.args);

	for (size_t i = 0; r == 0 && i < 2; i++)
		if (fd[i] >= 0 && fstat(fd[i], &b.ns[i]) < 0)
			r = ret_nerrno();
	if (r == 0 && s->stage3 && !(b.stage3 = strdup(s->stage3)))
		r = -ENOMEM;
	if (r < 0)
		box_release(&b);
	else
		*ret = b;
	return r;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool box_same(const struct box *a, const struct box *b)
{
	for (size_t i = 0; i < 2; i++)
		if (a->ns[i].st_dev != b->ns[i].st_dev || a->ns[i].st_ino != b->ns[i].st_ino)
			return false;
	return a->tree_id[0] == b->tree_id[0] && a->tree_id[1] == b->tree_id[1] &&
	       a->merged == b->merged && a->limits.memory == b->limits.memory &&
	       a->limits.processes == b->limits.processes && same_text(a->stage3, b->stage3) &&
	       a->args.len == b->args.len && !memcmp(a->args.data, b->args.data, a->args.len);
}

/* With streams of its own making, and no way out that begins with it. */
bool run_spare_fits(const struct run_spec *s)
{
	return s->spare && !s->provision && s->stdin_fd < 0 && !s->stdin_data && !s->keep_input &&
	       !s->tty && !s->passthrough && !s->net_rules;
}

static void spec_release(struct run_spec *s)
{
	const int fd[] = {s->userns_fd, s->mntns_fd, s->tie_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
		if (fd[i] >= 0)
			(void)close(fd[i]);
	free((char *)(uintptr_t)s->root);
	free((char *)(uintptr_t)s->hostname);
	free((char *)(uintptr_t)s->stage3);
	run_spec_init(s);
}

static int copy_fd(int fd, int *ret)
{
	*ret = fd < 0 ? -1 : run_dup(fd);
	return fd >= 0 && *ret < 0 ? *ret : 0;
}

static int copy_text(const char *text, const char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? -ENOMEM : 0;
}

static int spec_copy(const struct run_spec *s, struct run_spec *ret)
{
	struct run_spec c;
	int r;

	run_spec_init(&c);
	c.uid = s->uid;
	c.gid = s->gid;
	c.network = s->network;
	c.stderr_mode = s->stderr_mode;
	c.limits = s->limits;
	memcpy(c.tree_id, s->tree_id, sizeof(c.tree_id));
	r = copy_fd(s->userns_fd, &c.userns_fd);
	if (r == 0)
		r = copy_fd(s->mntns_fd, &c.mntns_fd);
	if (r == 0)
		r = copy_fd(s->tie_fd, &c.tie_fd);
	if (r == 0)
		r = copy_text(s->root, &c.root);
	if (r == 0)
		r = copy_text(s->hostname, &c.hostname);
	if (r == 0)
		r = copy_text(s->stage3, &c.stage3);
	if (r < 0)
		spec_release(&c);
	else
		*ret = c;
	return r;
}

/* ---- for runs ---- */

/* The next one shall be like @s, whose box is @b and is taken. */
static void remember(struct run_spare *p, const struct run_spec *s, struct box *b)
{
	struct run_spec c;
	bool known = box_same(&p->box, b);

	if (known || spec_copy(s, &c) < 0) {
		box_release(b);
		return;
	}
	spec_release(&p->spec);
	box_release(&p->box);
	p->spec = c;
	p->box = *b;
}

struct run *run_spare_take(const struct run_spec *s)
{
	struct run_spare *p = s->spare;
	struct run *run, *before = NULL;
	struct box b;

	if (box_of(s, &b) < 0)
		return NULL;
	(void)pthread_mutex_lock(&p->lock);
	run = steal_ptr(&p->run);
	if (run && !box_same(&p->run_box, &b)) {
		before = steal_ptr(&p->unfit);
		p->unfit = steal_ptr(&run);
		(void)pthread_cond_broadcast(&p->change);
	}
	remember(p, s, &b);
	(void)pthread_mutex_unlock(&p->lock);
	run_free(before);
	return run;
}

void run_spare_ended(struct run_spare *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->wanted = !p->run && !p->building && p->spec.root;
	(void)pthread_cond_broadcast(&p->change);
	(void)pthread_mutex_unlock(&p->lock);
}

void run_spare_drop(struct run_spare *p)
{
	struct run *before;

	(void)pthread_mutex_lock(&p->lock);
	before = steal_ptr(&p->unfit);
	p->unfit = steal_ptr(&p->run);
	p->wanted = false;
	p->stale = true;
	(void)pthread_cond_broadcast(&p->change);
	(void)pthread_mutex_unlock(&p->lock);
	run_free(before);
}

/* ---- building ---- */

static bool passed(const struct timespec *t)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec >= t->tv_nsec);
}

static void end_locked(struct run_spare *p, struct run **which)
{
	struct run *run = steal_ptr(which);

	(void)pthread_mutex_unlock(&p->lock);
	run_free(run);
	(void)pthread_mutex_lock(&p->lock);
}

/* Nobody is told of a failure: the next command has a sandbox of its own, and its own words about it. */
static void build_locked(struct run_spare *p)
{
	struct run_spec spec;
	struct run *run = NULL;
	struct box b;

	p->wanted = false;
	if (spec_copy(&p->spec, &spec) < 0)
		return;
	p->building = true;
	p->stale = false;
	(void)pthread_mutex_unlock(&p->lock);
	if (box_of(&spec, &b) == 0 && run_start_waiting(&spec, &run) < 0)
		box_release(&b);
	spec_release(&spec);
	(void)pthread_mutex_lock(&p->lock);
	p->building = false;
	if (run && p->stale) {
		box_release(&b);
		end_locked(p, &run);
	}
	if (!run)
		return;
	box_release(&p->run_box);
	p->run_box = b;
	p->run = run;
	(void)clock_gettime(CLOCK_MONOTONIC, &p->until);
	p->until.tv_sec += KEEP_S;
}

static void *spare_main(void *arg)
{
	struct run_spare *p = arg;

	(void)pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		if (p->unfit)
			end_locked(p, &p->unfit);
		else if (p->wanted)
			build_locked(p);
		else if (p->run && passed(&p->until))
			end_locked(p, &p->run);
		else if (p->run)
			(void)pthread_cond_timedwait(&p->change, &p->lock, &p->until);
		else
			(void)pthread_cond_wait(&p->change, &p->lock);
	}
	(void)pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ---- life ---- */

int run_spare_new(struct run_spare **ret)
{
	struct run_spare *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	run_spec_init(&p->spec);
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)thread_cond_init(&p->change);
	r = thread_start(&p->thread, spare_main, p);
	if (r < 0) {
		(void)pthread_cond_destroy(&p->change);
		(void)pthread_mutex_destroy(&p->lock);
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void run_spare_free(struct run_spare *p)
{
	if (!p)
		return;
	(void)pthread_mutex_lock(&p->lock);
	p->stop = true;
	(void)pthread_cond_broadcast(&p->change);
	(void)pthread_mutex_unlock(&p->lock);
	(void)pthread_join(p->thread, NULL);
	run_free(p->run);
	run_free(p->unfit);
	spec_release(&p->spec);
	box_release(&p->box);
	box_release(&p->run_box);
	(void)pthread_cond_destroy(&p->change);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}

bool run_spare_waits(struct run_spare *p)
{
	bool yes;

	(void)pthread_mutex_lock(&p->lock);
	yes = p->run;
	(void)pthread_mutex_unlock(&p->lock);
	return yes;
}
