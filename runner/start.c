/* Starting a run: its specification checked, its descriptors, its thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/thread.h"
#include "runner/bwrap_argv.h"
#include "runner/plan_encode.h"
#include "runner/runner_internal.h"

#define CAPTURE_DEFAULT (256u << 10)
#define STUCK_MS        5000 /* until what waits and does not answer is given up */

void run_limits_default(struct run_limits *l)
{
	*l = (struct run_limits){
		.cpu_s = 24 * 3600,   /* of one process */
		.memory = UINT64_MAX, /* three quarters of the machine's where there is a cgroup */
		.processes = 4096,    /* threads included */
		.open_files = 65536,
		.file_size = 64ull << 30,
		.output = 64ull << 20,
	};
}

static void limits_fill(struct run_limits *l)
{
	struct run_limits d;

	run_limits_default(&d);
	l->cpu_s = l->cpu_s ? l->cpu_s : d.cpu_s;
	l->memory = l->memory ? l->memory : d.memory;
	l->processes = l->processes ? l->processes : d.processes;
	l->open_files = l->open_files ? l->open_files : d.open_files;
	l->file_size = l->file_size ? l->file_size : d.file_size;
	l->output = l->output ? l->output : d.output;
}

void run_spec_init(struct run_spec *s)
{
	*s = (struct run_spec){
		.userns_fd = -1,
		.mntns_fd = -1,
		.tie_fd = -1,
		.tree_fd = -1,
		.uid = 1000,
		.gid = 1000,
		.stdin_fd = -1,
		.terminal_fd = -1,
		.spill_fd = {-1, -1},
	};
}

static int spec_check(const struct run_spec *s, struct diag *diag)
{
	const char *const *e;

	if (!s->root || s->root[0] != '/')
		return diag_set(diag, -EINVAL, "the root of the sandbox is not an absolute path");
	if (!!s->shell == !!s->argv || (s->argv && !s->argv[0]))
		return diag_set(diag, -EINVAL, "a run needs either shell text or an argument list");
	if (s->cwd && s->cwd[0] != '/')
		return diag_set(diag, -EINVAL, "the working directory \"%s\" is not absolute",
				s->cwd);
	if ((s->userns_fd < 0) != (s->mntns_fd < 0))
		return diag_set(diag, -EINVAL,
				"a user namespace and a mount namespace come together");
	if (s->provision && s->no_exec_workspace)
		return diag_set(diag, -EINVAL,
				"provisioning executes what it installs: nothing can be kept from "
				"that");
	if (s->tty && (s->stdin_fd >= 0 || s->passthrough))
		return diag_set(diag, -EINVAL, "a terminal of its own leaves no room for streams");
	if (s->terminal_fd >= 0 && (s->stdin_fd < 0 || !s->passthrough))
		return diag_set(diag, -EINVAL,
				"a terminal in the place of streams that are not given");
	if (s->network && s->net_rules)
		return diag_set(diag, -EINVAL, "rules on a network are for one of its own");
	if (s->hostname && (!*s->hostname || strlen(s->hostname) > 64))
		return diag_set(diag, -EINVAL, "a host name has 1 to 64 characters");
	for (e = s->env; e && *e; e++) {
		if (**e == '=' || !strchr(*e, '='))
			return diag_set(diag, -EINVAL, "\"%.60s\" is not NAME=value", *e);
	}
	return 0;
}

/* One of ours: beside this program in the build tree, or where they are installed. */
static int open_own(const char *name, const char *folder, struct diag *diag)
{
	static const char *const places[] = {"", "../", "../libexec/rattan/", "../lib/rattan/"};
	char self[PATH_MAX], place[64], *slash;
	cleanup_fd int dir = -1;
	ssize_t n;
	size_t i;
	int fd;

	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return diag_set(diag, ret_nerrno(), "/proc is not mounted");
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		slash[slash == self] = '\0';
	dir = open(self, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (i = 0; dir >= 0 && i < ARRAY_SIZE(places); i++) {
		(void)snprintf(place, sizeof(place), "%s%s%s%s", places[i], i == 1 ? folder : "",
			       i == 1 ? "/" : "", name);
		fd = openat(dir, place, O_PATH | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	return diag_set(diag, -ENOENT,
			"%s was not found beside this program; is the installation complete?",
			name);
}

static int open_program(const char *path, const char *name, const char *folder, struct diag *diag)
{
	int fd;

	if (!path)
		return open_own(name, folder, diag);
	fd = open(path, O_PATH | O_CLOEXEC);
	return fd < 0 ? diag_set(diag, ret_nerrno(), "%s: %s", path, err_text(errno)) : fd;
}

int run_open_stage3(const char *path, struct diag *diag)
{
	return open_program(path, "rattan-stage3", "stage3", diag);
}

static int set_namespaces(struct run *r, const struct run_spec *s)
{
	if (s->tie_fd >= 0) {
		r->tie_fd = run_dup(s->tie_fd);
		if (r->tie_fd < 0)
			return r->tie_fd;
	}
	if (s->tree_fd >= 0) {
		r->tree_fd = run_dup(s->tree_fd);
		if (r->tree_fd < 0)
			return r->tree_fd;
	}
	if (s->userns_fd < 0)
		return 0;
	r->root = strdup(s->root);
	if (!r->root)
		return -ENOMEM;
	r->spawn.userns_fd = run_dup(s->userns_fd);
	if (r->spawn.userns_fd < 0)
		return r->spawn.userns_fd;
	r->spawn.mntns_fd = run_dup(s->mntns_fd);
	return r->spawn.mntns_fd < 0 ? r->spawn.mntns_fd : 0;
}

static bool has_terminal(const struct run_spec *s)
{
	return s->tty || s->terminal_fd >= 0;
}

static int open_plan(const struct run_spec *s, struct diag *diag)
{
	const struct plan_options o = {.tty = has_terminal(s), .back = s->terminal_back};
	cleanup_buf struct buf plan = {0};
	int e = plan_encode(s, &o, diag, &plan);

	return e < 0 ? e : plan_memfd("plan", &plan);
}

static int set_plan(struct run *r, const struct run_spec *s, struct diag *diag)
{
	int fd = open_plan(s, diag);

	if (fd < 0)
		return fd;
	r->spawn.fd[STAGE3_FD_PLAN] = fd;
	return 0;
}

static int set_args(struct run *r, const struct run_spec *s)
{
	cleanup_buf struct buf args = {0};
	int e = bwrap_args(s, has_terminal(s), &args);

	if (e == 0)
		e = plan_memfd("args", &args);
	if (e < 0)
		return e;
	r->spawn.fd[STAGE3_FD_ARGS] = e;
	return 0;
}

static void set_argv(struct run *r)
{
	static const char *const words[] = {"bwrap", "--args", "7", "--", "/proc/self/fd/6", NULL};

	_Static_assert(STAGE3_FD_ARGS == 7 && STAGE3_FD_SELF == 6, "the words above");
	_Static_assert(sizeof(words) == sizeof(r->argv), "room");
	memcpy(r->argv, words,
	       sizeof(words)); /* execve takes them as char *, and changes nothing */
	r->spawn.argv = r->argv;
	r->spawn.bwrap = r->bwrap;
}

static int set_way_out(struct run *r, const struct run_spec *s, struct diag *diag)
{
	int e;

	if (!s->net_rules)
		return 0;
	e = open_program(s->net, "rattan-net", "net", diag);
	return e < 0 ? e : way_out_prepare(&r->way_out, s->net_rules, e);
}

/* What is the command's and not the sandbox's. */
static void set_command(struct run *r, const struct run_spec *s)
{
	r->shell = s->shell != NULL;
	r->linger = s->linger;
	r->timeout_ms = s->timeout_ms;
	r->output_max = s->limits.output;
	memcpy(r->spill_fd, s->spill_fd, sizeof(r->spill_fd));
	capture_init(&r->capture[0], s->head_max ? s->head_max : CAPTURE_DEFAULT,
		     s->tail_max ? s->tail_max : CAPTURE_DEFAULT);
	capture_init(&r->capture[1], r->capture[0].head_max, r->capture[0].tail_max);
	r->spare = s->spare;
}

static int prepare(struct run *r, const struct run_spec *s, bool with_plan, struct diag *diag)
{
	int e;

	r->passthrough = s->passthrough;
	r->merged = s->stderr_mode == RUN_STDERR_MERGED || s->tty;
	r->network = s->network;
	run_streams_lent(r, s);
	e = bwrap_find(NULL, diag, &r->bwrap);
	if (e < 0)
		return e;
	set_argv(r);
	e = run_open_stage3(s->stage3, diag);
	if (e < 0)
		return e;
	r->spawn.fd[STAGE3_FD_SELF] = e;
	e = with_plan ? set_plan(r, s, diag) : 0;
	if (e == 0)
		e = set_args(r, s);
	if (e == 0)
		e = run_streams_make(r, s, diag);
	if (e == 0)
		e = set_namespaces(r, s);
	if (e == 0)
		e = set_way_out(r, s, diag);
	if (e < 0)
		return e;
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake_fd < 0)
		return ret_nerrno();
	/* Where there is none, the rlimits hold, and the result says so. */
	e = cgroup_new(&s->limits, &r->cgroup);
	if (e == 0)
		r->spawn.cgroup_fd = cgroup_procs_fd(r->cgroup);
	return e == -ENOMEM ? e : 0;
}

/* ---- life ---- */

static int run_new(struct run **ret)
{
	struct run *r;

	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->out_fd[0] = r->out_fd[1] = r->err_fd = r->status_fd = r->in_fd = r->init_fd = -1;
	r->tie_fd = r->tree_fd = r->plan_fd = r->tie_next = -1;
	r->wake_fd = r->stop_fd = r->pidfd = -1;
	spawn_init(&r->spawn);
	(void)pthread_mutex_init(&r->lock, NULL);
	way_out_init(&r->way_out, &r->lock);
	(void)thread_cond_init(&r->cond);
	*ret = r;
	return 0;
}

static int wait_spawned(struct run *r)
{
	int e;

	(void)pthread_mutex_lock(&r->lock);
	while (!r->spawned && !r->done)
		(void)pthread_cond_wait(&r->cond, &r->lock);
	e = r->spawned ? 0 : r->spawn_error;
	(void)pthread_mutex_unlock(&r->lock);
	return e;
}

static int start_new(const struct run_spec *s, bool with_plan, struct diag *diag, struct run **ret)
{
	struct run *r;
	int e = run_new(&r);

	if (e < 0)
		return e;
	if (with_plan)
		set_command(r, s);
	e = prepare(r, s, with_plan, diag);
	if (e == 0)
		e = thread_start(&r->thread, run_thread, r);
	r->thread_made = e == 0;
	if (e == 0)
		e = wait_spawned(r);
	if (e < 0)
		run_free(r);
	else
		*ret = r;
	return e;
}

/* One that is stuck is killed like a command that is: nobody else can, who has no run yet. If it said hello at this very moment
 * the command has begun, and was killed. */
static bool greeted(struct run *r)
{
	struct timespec end = run_after(STUCK_MS);
	bool yes, stuck = false;
	int e = 0;

	(void)pthread_mutex_lock(&r->lock);
	while (!r->greeted && !r->done) {
		if (e == ETIMEDOUT && !stuck) {
			stuck = true;
			(void)pthread_mutex_unlock(&r->lock);
			(void)run_kill(r, 0);
			(void)pthread_mutex_lock(&r->lock);
			continue;
		}
		e = stuck ? pthread_cond_wait(&r->cond, &r->lock)
			  : pthread_cond_timedwait(&r->cond, &r->lock, &end);
	}
	yes = r->greeted;
	(void)pthread_mutex_unlock(&r->lock);
	return yes;
}

/* Its thread takes it from here. False: what waited has ended before it took the plan, and nothing has run. */
static bool begin(struct run *r, int plan_fd, int tie_fd, int tree_fd)
{
	(void)pthread_mutex_lock(&r->lock);
	r->plan_fd = plan_fd;
	r->tie_next = tie_fd;
	r->tree_fd = tree_fd;
	(void)pthread_mutex_unlock(&r->lock);
	run_wake(r);
	return greeted(r);
}

/* 1: in a sandbox that waited; 0: none fits. */
static int start_in_spare(const struct run_spec *s, struct diag *diag, struct run **ret)
{
	cleanup_fd int plan = -1, tie = -1, tree = -1;
	struct run *r;

	if (!run_spare_fits(s))
		return 0;
	plan = open_plan(s, diag);
	if (plan < 0)
		return plan;
	r = run_spare_take(s);
	if (!r)
		return 0;
	tie = s->tie_fd < 0 ? -1 : run_dup(s->tie_fd);
	tree = s->tree_fd < 0 ? -1 : run_dup(s->tree_fd);
	if ((tie >= 0 || s->tie_fd < 0) && (tree >= 0 || s->tree_fd < 0)) {
		set_command(r, s);
		if (begin(r, steal_fd(&plan), steal_fd(&tie), steal_fd(&tree))) {
			*ret = r;
			return 1;
		}
	}
	r->spare = NULL; /* the next one is asked for when this command's own has ended */
	run_free(r);
	return 0;
}

int run_start(const struct run_spec *spec, struct diag *diag, struct run **ret)
{
	struct run_spec s = *spec;
	int e;

	e = spec_check(&s, diag);
	if (e < 0)
		return e;
	limits_fill(&s.limits);
	e = start_in_spare(&s, diag, ret);
	if (e == 0)
		e = start_new(&s, true, diag, ret);
	return e < 0 ? diag_set(diag, e, "the command could not be started: %s", err_text(e)) : 0;
}

int run_start_waiting(const struct run_spec *s, struct run **ret)
{
	struct diag diag = {0};

	return start_new(s, false, &diag, ret);
}
