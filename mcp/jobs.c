#include "mcp/jobs.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define THREAD_STACK (256u << 10)

struct job {
	struct jobs *js;
	char id[JOB_ID_MAX];
	char *command;
	char *env;
	bool separate, input;
	int spill_fd[2]; /* read by all with pread; closed with the last reference */
	long long started_ms;

	pthread_mutex_t run_lock; /* held while the run is used, so that its end waits */
	struct client_run *cr;    /* run_lock; NULL once it has ended */
	uint64_t token, denied;   /* constant once started */
	struct run_asked *asked;  /* run_lock; of one that has ended */
	size_t nasked;
	uint64_t asked_total;

	/* jobs.lock */
	unsigned refs;
	bool ended, listed, cancelled;
	long long ended_ms;
	struct run_result result;
	struct job *next; /* newest first */
};

struct jobs {
	pthread_mutex_t lock;
	pthread_cond_t change; /* a job has ended, or a thread has gone */
	uint32_t nonce;
	unsigned counter;          /* lock */
	unsigned running, threads; /* lock */
	bool stopping;             /* lock */
	struct job *all;           /* lock: running and kept ones */
};

int jobs_new(struct jobs **ret)
{
	struct jobs *js = calloc(1, sizeof(*js));
	pthread_condattr_t a;

	if (!js)
		return -ENOMEM;
	/* Ids must not come again in the next process: a stale one would name another command. */
	if (getrandom(&js->nonce, sizeof(js->nonce), 0) != (ssize_t)sizeof(js->nonce))
		js->nonce = (uint32_t)io_now_ms() ^ ((uint32_t)getpid() << 16);
	(void)pthread_mutex_init(&js->lock, NULL);
	(void)pthread_condattr_init(&a);
	(void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&js->change, &a);
	(void)pthread_condattr_destroy(&a);
	*ret = js;
	return 0;
}

static void job_free(struct job *j)
{
	client_run_free(j->cr);
	for (int i = 0; i < 2; i++)
		if (j->spill_fd[i] >= 0)
			(void)close(j->spill_fd[i]);
	(void)pthread_mutex_destroy(&j->run_lock);
	free(j->asked);
	free(j->command);
	free(j->env);
	free(j);
}

void jobs_free(struct jobs *js)
{
	if (!js)
		return;
	while (js->all) {
		struct job *j = js->all;

		js->all = j->next;
		job_free(j);
	}
	(void)pthread_mutex_destroy(&js->lock);
	(void)pthread_cond_destroy(&js->change);
	free(js);
}

/* ---- the list: it holds one reference ---- */

static void remove_locked(struct jobs *js, struct job *j)
{
	struct job **p = &js->all;

	while (*p && *p != j)
		p = &(*p)->next;
	if (!*p)
		return;
	*p = j->next;
	j->next = NULL;
	j->refs--;
}

/* An ended job that is not listed has no place once its starter is done; of the listed ones the
 * oldest go. Returns a job that nobody holds any more, for the caller to free after unlocking, or NULL. */
static struct job *prune_locked(struct jobs *js)
{
	struct job *oldest = NULL;
	unsigned kept = 0;

	for (struct job *j = js->all; j; j = j->next) {
		if (!j->ended)
			continue;
		if (!j->listed && j->refs == 1) {
			remove_locked(js, j);
			return j;
		}
		kept += j->listed;
		if (j->listed)
			oldest = j;
	}
	if (kept <= JOBS_MAX_KEPT)
		return NULL;
	remove_locked(js, oldest);
	return oldest->refs ? NULL : oldest;
}

void job_put(struct job *j)
{
	struct jobs *js = j->js;
	struct job *pruned = NULL;
	bool last;

	(void)pthread_mutex_lock(&js->lock);
	last = --j->refs == 0;
	if (!last)
		pruned = prune_locked(js);
	(void)pthread_mutex_unlock(&js->lock);
	if (pruned)
		job_free(pruned);
	if (last)
		job_free(j);
}

/* ---- start ---- */

/* Without a name, so that nobody else opens it and nothing is left behind. */
static int open_spill(void)
{
	const char *dir = getenv("TMPDIR");
	char path[64] = "/tmp/rattan-out-XXXXXX";
	int fd;

	fd = open(dir && dir[0] == '/' ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	(void)unlink(path);
	return fd;
}

static int job_new(struct jobs *js, const struct run_spec *spec, const char *command,
		   const char *env, struct job **ret)
{
	struct job *j = calloc(1, sizeof(*j));
	int r = 0;

	if (!j)
		return -ENOMEM;
	(void)pthread_mutex_init(&j->run_lock, NULL);
	j->js = js;
	j->spill_fd[0] = j->spill_fd[1] = -1;
	j->separate = spec->stderr_mode == RUN_STDERR_SEPARATE;
	j->input = spec->keep_input;
	j->command = strdup(command);
	j->env = strdup(env);
	if (!j->command || !j->env)
		r = -ENOMEM;
	for (int i = 0; !r && i < (j->separate ? 2 : 1); i++) {
		j->spill_fd[i] = open_spill();
		if (j->spill_fd[i] < 0)
			r = j->spill_fd[i];
	}
	if (r) {
		job_free(j);
		return r;
	}
	j->started_ms = io_now_ms();
	j->refs = 1;
	*ret = j;
	return 0;
}

static int enter(struct jobs *js, struct job *j, struct diag *diag)
{
	int r = 0;

	(void)pthread_mutex_lock(&js->lock);
	if (js->stopping)
		r = -ESHUTDOWN;
	else if (js->running >= JOBS_MAX_RUNNING)
		r = diag_set(diag, -EAGAIN,
			     "%d commands are running already; wait for one or kill one "
			     "(shell_job_list)",
			     JOBS_MAX_RUNNING);
	if (!r) {
		(void)snprintf(j->id, sizeof(j->id), "j%u-%08x", ++js->counter, js->nonce);
		js->running++;
		j->refs++;
		j->next = js->all;
		js->all = j;
	}
	(void)pthread_mutex_unlock(&js->lock);
	return r;
}

static void leave(struct jobs *js, struct job *j)
{
	(void)pthread_mutex_lock(&js->lock);
	js->running--;
	remove_locked(js, j);
	(void)pthread_cond_broadcast(&js->change);
	(void)pthread_mutex_unlock(&js->lock);
}

int job_start(struct jobs *js, struct client *c, const struct client_terms *terms,
	      struct run_spec *spec, const char *command, struct diag *diag, struct job **ret)
{
	struct job *j;
	bool stopping;
	int r;

	r = job_new(js, spec, command, client_env(c), &j);
	if (r)
		return diag_set(diag, r, "no file for the output: %s", err_text(r));
	r = enter(js, j, diag);
	if (r) {
		job_free(j);
		return r;
	}
	spec->spill_fd[0] = j->spill_fd[0];
	spec->spill_fd[1] = j->spill_fd[1];
	spec->head_max = spec->tail_max = 4096; /* all is in the file */
	if (!spec->limits.output)
		spec->limits.output = JOB_OUTPUT_MAX;
	(void)pthread_mutex_lock(&j->run_lock);
	r = client_run_start(c, terms, spec, command, diag, &j->cr);
	if (!r) {
		j->token = client_run_token(j->cr);
		j->denied = client_run_denied(j->cr);
	}
	(void)pthread_mutex_unlock(&j->run_lock);
	if (r) {
		leave(js, j);
		job_put(j);
		return r;
	}
	/* The end may have come while it started: jobs_kill_all saw no run then. */
	(void)pthread_mutex_lock(&js->lock);
	stopping = js->stopping;
	(void)pthread_mutex_unlock(&js->lock);
	if (stopping)
		(void)!job_kill(j, 0, false);
	*ret = j;
	return 0;
}

/* ---- running ---- */

static void finish(struct job *j, const struct run_result *res)
{
	struct jobs *js = j->js;
	struct client_run *cr;

	/* Frees the lease: a rollback need not wait until somebody asks for the result. */
	(void)pthread_mutex_lock(&j->run_lock);
	cr = steal_ptr(&j->cr);
	/* Without memory it is not known what was asked; the command's own result is. */
	(void)!run_asked(client_run_of(cr), &j->asked, &j->nasked, &j->asked_total);
	client_run_free(cr);
	(void)pthread_mutex_unlock(&j->run_lock);
	(void)pthread_mutex_lock(&js->lock);
	j->result = *res;
	j->ended_ms = io_now_ms();
	j->ended = true;
	js->running--;
	(void)pthread_cond_broadcast(&js->change);
	(void)pthread_mutex_unlock(&js->lock);
}

int job_run(struct job *j, unsigned ms)
{
	struct run_result res = {0};
	int r;

	if (!j->cr)
		return 1;
	r = run_wait(client_run_of(j->cr), ms, &res);
	if (!r)
		return 0;
	if (r < 0) {
		res.state = RUN_NOT_STARTED;
		(void)snprintf(res.step, sizeof(res.step), "wait");
		(void)snprintf(res.error, sizeof(res.error), "%s", err_text(r));
	}
	finish(j, &res);
	return 1;
}

static void *watch(void *arg)
{
	struct job *j = arg;
	struct jobs *js = j->js;

	while (!job_run(j, 3600 * 1000))
		continue;
	job_put(j);
	(void)pthread_mutex_lock(&js->lock);
	js->threads--;
	(void)pthread_cond_broadcast(&js->change);
	(void)pthread_mutex_unlock(&js->lock);
	return NULL;
}

int job_background(struct job *j, bool listed)
{
	struct jobs *js = j->js;
	pthread_attr_t attr;
	pthread_t t;
	int r;

	(void)pthread_mutex_lock(&js->lock);
	j->listed = listed;
	j->refs++; /* the thread's */
	js->threads++;
	(void)pthread_mutex_unlock(&js->lock);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, THREAD_STACK);
	r = pthread_create(&t, &attr, watch, j);
	(void)pthread_attr_destroy(&attr);
	if (!r)
		return 0;
	(void)pthread_mutex_lock(&js->lock);
	j->refs--;
	js->threads--;
	(void)pthread_mutex_unlock(&js->lock);
	(void)!job_kill(j, 0, true);
	while (!job_run(j, 1000))
		continue;
	return -r;
}

void job_keep(struct job *j)
{
	(void)pthread_mutex_lock(&j->js->lock);
	j->listed = true;
	(void)pthread_mutex_unlock(&j->js->lock);
}

int job_kill(struct job *j, unsigned grace_ms, bool cancelled)
{
	int r = -ESRCH;

	(void)pthread_mutex_lock(&j->run_lock);
	if (j->cr)
		r = run_kill(client_run_of(j->cr), grace_ms);
	(void)pthread_mutex_unlock(&j->run_lock);
	if (!r && cancelled) {
		(void)pthread_mutex_lock(&j->js->lock);
		j->cancelled = true;
		(void)pthread_mutex_unlock(&j->js->lock);
	}
	return r;
}

int job_input(struct job *j, const void *p, size_t n)
{
	int r = -EPIPE;

	(void)pthread_mutex_lock(&j->run_lock);
	if (j->cr && j->input)
		r = run_input(client_run_of(j->cr), p, n);
	(void)pthread_mutex_unlock(&j->run_lock);
	return r;
}

static void until_ms(long long ms, struct timespec *ret)
{
	*ret = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
}

bool job_wait(struct job *j, unsigned ms)
{
	struct timespec until;
	bool ended;

	until_ms(io_now_ms() + ms, &until);
	(void)pthread_mutex_lock(&j->js->lock);
	while (!j->ended)
		if (pthread_cond_timedwait(&j->js->change, &j->js->lock, &until))
			break;
	ended = j->ended;
	(void)pthread_mutex_unlock(&j->js->lock);
	return ended;
}

/* ---- looking ---- */

struct job *jobs_find(struct jobs *js, const char *id)
{
	struct job *j;

	(void)pthread_mutex_lock(&js->lock);
	for (j = js->all; j; j = j->next)
		if (j->listed && !strcmp(j->id, id))
			break;
	if (j)
		j->refs++;
	(void)pthread_mutex_unlock(&js->lock);
	return j;
}

size_t jobs_list(struct jobs *js, struct job **ret, size_t max)
{
	size_t n = 0;

	(void)pthread_mutex_lock(&js->lock);
	for (struct job *j = js->all; j && n < max; j = j->next) {
		if (!j->listed)
			continue;
		j->refs++;
		ret[n++] = j;
	}
	(void)pthread_mutex_unlock(&js->lock);
	return n;
}

uint64_t job_token(const struct job *j)
{
	return j->token;
}

uint64_t job_denied(const struct job *j)
{
	return j->denied;
}

int job_asked(struct job *j, struct run_asked **ret, size_t *ret_n, uint64_t *ret_total)
{
	int r = 0;

	(void)pthread_mutex_lock(&j->run_lock);
	if (j->cr) {
		r = run_asked(client_run_of(j->cr), ret, ret_n, ret_total);
	} else {
		*ret = j->nasked ? malloc(j->nasked * sizeof(**ret)) : NULL;
		*ret_n = *ret ? j->nasked : 0;
		*ret_total = j->asked_total;
		if (*ret)
			memcpy(*ret, j->asked, j->nasked * sizeof(**ret));
	}
	(void)pthread_mutex_unlock(&j->run_lock);
	return r;
}

uint64_t job_size(struct job *j, int stream)
{
	struct stat st;

	if (j->spill_fd[stream] < 0 || fstat(j->spill_fd[stream], &st))
		return 0;
	return (uint64_t)st.st_size;
}

ssize_t job_read(struct job *j, int stream, uint64_t off, void *p, size_t n)
{
	if (j->spill_fd[stream] < 0)
		return 0;
	return io_pread_full(j->spill_fd[stream], p, n, (off_t)off);
}

void job_get_info(struct job *j, struct job_info *ret)
{
	long long now = io_now_ms();

	*ret = (struct job_info){
		.command = j->command, .env = j->env, .separate = j->separate, .input = j->input};
	memcpy(ret->id, j->id, sizeof(ret->id));
	(void)pthread_mutex_lock(&j->js->lock);
	ret->ended = j->ended;
	ret->cancelled = j->cancelled;
	ret->age_s = (double)((j->ended ? j->ended_ms : now) - j->started_ms) / 1000;
	ret->ended_s = j->ended ? (double)(now - j->ended_ms) / 1000 : 0;
	ret->result = j->result;
	(void)pthread_mutex_unlock(&j->js->lock);
	ret->size[0] = job_size(j, 0);
	ret->size[1] = job_size(j, 1);
}

/* ---- the end ---- */

static void kill_running(struct jobs *js, bool stopping)
{
	struct job *list[JOBS_MAX_RUNNING];
	size_t n = 0;

	(void)pthread_mutex_lock(&js->lock);
	js->stopping |= stopping;
	for (struct job *j = js->all; j && n < JOBS_MAX_RUNNING; j = j->next) {
		if (j->ended)
			continue;
		j->refs++;
		list[n++] = j;
	}
	(void)pthread_mutex_unlock(&js->lock);
	for (size_t i = 0; i < n; i++) {
		(void)!job_kill(list[i], 0, false);
		job_put(list[i]);
	}
}

void jobs_kill_all(struct jobs *js)
{
	kill_running(js, true);
}

bool jobs_end_running(struct jobs *js, long long deadline_ms)
{
	struct timespec until;
	bool all;

	kill_running(js, false);
	until_ms(deadline_ms, &until);
	(void)pthread_mutex_lock(&js->lock);
	while (js->running)
		if (pthread_cond_timedwait(&js->change, &js->lock, &until))
			break;
	all = !js->running;
	(void)pthread_mutex_unlock(&js->lock);
	return all;
}

bool jobs_wait_all(struct jobs *js, long long deadline_ms)
{
	struct timespec until;
	bool all;

	until_ms(deadline_ms, &until);
	(void)pthread_mutex_lock(&js->lock);
	while (js->running || js->threads)
		if (pthread_cond_timedwait(&js->change, &js->lock, &until))
			break;
	all = !js->running && !js->threads;
	(void)pthread_mutex_unlock(&js->lock);
	return all;
}
