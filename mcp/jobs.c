#include "mcp/jobs_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/thread.h"
#include "mcp/record.h"

#define THREAD_STACK (256u << 10)

int jobs_new(struct record *rec,
	     void (*ended)(void *arg, struct client *c, const char *id, const char *command),
	     void *arg, struct jobs **ret)
{
	struct jobs *js = calloc(1, sizeof(*js));

	if (!js)
		return -ENOMEM;
	js->ended = ended;
	js->arg = arg;
	js->rec = rec;
	js->nonce = rec ? record_nonce(rec) : 0;
	(void)pthread_mutex_init(&js->lock, NULL);
	(void)thread_cond_init(&js->change);
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
	free(j->cwd);
	free(j->env);
	buf_release(&j->shut);
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
		   struct client *c, struct job **ret)
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
	j->cwd = strdup(spec->cwd ? spec->cwd : "");
	j->env = strdup(client_env(c));
	j->client = c;
	if (!j->command || !j->cwd || !j->env)
		r = -ENOMEM;
	if (!r && spec->net_rules)
		r = net_rules_shut(spec->net_rules, &j->shut);
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

	r = job_new(js, spec, command, c, &j);
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

/* Whoever learns of the end finds what it led to. */
static void tell_end(struct job *j)
{
	struct jobs *js = j->js;
	bool stopping;

	(void)pthread_mutex_lock(&js->lock);
	stopping = js->stopping;
	(void)pthread_mutex_unlock(&js->lock);
	if (js->ended && !stopping)
		js->ended(js->arg, j->client, j->id, j->command);
}

/* For the next server, which has nothing but this. What our own end kills has not ended: it is lost. */
static void record_end(struct job *j, const struct run_result *res, bool cancelled)
{
	char how[RECORD_HOW_MAX];

	if (res->state == RUN_NOT_STARTED)
		(void)snprintf(how, sizeof(how), "not started");
	else if (res->timed_out || cancelled)
		(void)snprintf(how, sizeof(how), res->timed_out ? "timed out" : "killed");
	else
		(void)snprintf(how, sizeof(how), "exit %d", res->code);
	record_job_end(j->js->rec, j->id, how);
}

static void finish(struct job *j, const struct run_result *res)
{
	struct jobs *js = j->js;
	struct client_run *cr;
	bool recorded, cancelled;

	/* Frees the lease: a rollback need not wait until somebody asks for the result. */
	(void)pthread_mutex_lock(&j->run_lock);
	cr = steal_ptr(&j->cr);
	/* Without memory it is not known what was asked; the command's own result is. */
	(void)!run_asked(client_run_of(cr), &j->asked, &j->nasked, &j->asked_total);
	client_run_free(cr);
	(void)pthread_mutex_unlock(&j->run_lock);
	if (j->background)
		tell_end(j);
	(void)pthread_mutex_lock(&js->lock);
	j->result = *res;
	j->ended_ms = io_now_ms();
	j->ended = true;
	js->running--;
	recorded = j->recorded && !js->stopping;
	cancelled = j->cancelled;
	(void)pthread_cond_broadcast(&js->change);
	(void)pthread_mutex_unlock(&js->lock);
	if (recorded)
		record_end(j, res, cancelled);
}

/* The client is about to learn of it. */
static void record_start(struct job *j)
{
	bool first, told, ended;

	(void)pthread_mutex_lock(&j->js->lock);
	first = !j->announced;
	j->announced = true;
	(void)pthread_mutex_unlock(&j->js->lock);
	if (!first)
		return;
	told = record_job(j->js->rec, j->id, j->env, j->command);
	/* Its end is written behind it, by one of the two. */
	(void)pthread_mutex_lock(&j->js->lock);
	j->recorded = told;
	ended = told && j->ended;
	(void)pthread_mutex_unlock(&j->js->lock);
	if (ended)
		record_end(j, &j->result, j->cancelled);
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

bool job_command_of(struct job *j, struct run_result *ret)
{
	bool ended;

	(void)pthread_mutex_lock(&j->run_lock);
	ended = j->cr && run_command(client_run_of(j->cr), ret);
	(void)pthread_mutex_unlock(&j->run_lock);
	return ended;
}

bool job_command_ended(struct job *j)
{
	struct run_result res;

	return job_command_of(j, &res);
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

	j->background = true;
	if (listed)
		record_start(j);
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
	record_start(j);
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

ssize_t job_input(struct job *j, const void *p, size_t n)
{
	ssize_t r = -EPIPE;

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
