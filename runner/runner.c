#include "runner/runner.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/bwrap_argv.h"
#include "runner/plan_encode.h"
#include "runner/runner_internal.h"

#define CAPTURE_DEFAULT (256u << 10)

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
		.uid = 1000,
		.gid = 1000,
		.stdin_fd = -1,
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
	for (i = 0; dir >= 0 && i < 3; i++) {
		static const char *const places[] = {"", "../", "../libexec/rattan/"};

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

/* ---- descriptors ---- */

static int dup_fd(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return r < 0 ? ret_nerrno() : r;
}

/* A pipe whose end in @ours does not block. */
static int make_pipe(int *ours, int *theirs, bool we_read)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return ret_nerrno();
	*ours = p[we_read ? 0 : 1];
	*theirs = p[we_read ? 1 : 0];
	return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? ret_nerrno() : 0;
}

/* A descriptor of the caller's for the command. Not a directory: from it fchdir and fstatat lead all
 * over the host, which neither the mount namespace nor Landlock keeps from them. */
static int pass_fd(int fd, struct diag *diag)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (S_ISDIR(st.st_mode))
		return diag_set(diag, -EINVAL,
				"a directory cannot be a standard stream (descriptor %d): it would "
				"show the command the host",
				fd);
	return dup_fd(fd);
}

static int set_stdin(struct run *r, const struct run_spec *s, struct diag *diag)
{
	int *fd = &r->spawn.fd[STDIN_FILENO], e;

	if (s->stdin_fd >= 0) {
		*fd = pass_fd(s->stdin_fd, diag);
		return *fd < 0 ? *fd : 0;
	}
	if (!s->stdin_data && !s->keep_input) {
		*fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return *fd < 0 ? ret_nerrno() : 0;
	}
	e = make_pipe(&r->in_fd, fd, false);
	if (e == 0 && s->stdin_len > 0)
		e = buf_put(&r->input, s->stdin_data, s->stdin_len);
	r->input_closed = !s->keep_input;
	return e;
}

static int set_stdout(struct run *r, const struct run_spec *s, struct diag *diag)
{
	int *out = &r->spawn.fd[STDOUT_FILENO], *err = &r->spawn.fd[STAGE3_FD_STDERR], e;

	if (s->passthrough) {
		*out = pass_fd(STDOUT_FILENO, diag);
		*err = *out < 0 ? *out : pass_fd(r->merged ? STDOUT_FILENO : STDERR_FILENO, diag);
		return *err < 0 ? *err : 0;
	}
	e = make_pipe(&r->out_fd[0], out, true);
	if (e < 0)
		return e;
	if (!r->merged)
		return make_pipe(&r->out_fd[1], err, true);
	*err = dup_fd(*out);
	return *err < 0 ? *err : 0;
}

static int set_status(struct run *r)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return ret_nerrno();
	r->status_fd = sv[0];
	r->spawn.fd[STAGE3_FD_STATUS] = sv[1];
	return make_pipe(&r->err_fd, &r->spawn.fd[STDERR_FILENO], true);
}

static int set_namespaces(struct run *r, const struct run_spec *s)
{
	if (s->tie_fd >= 0) {
		r->tie_fd = dup_fd(s->tie_fd);
		if (r->tie_fd < 0)
			return r->tie_fd;
	}
	if (s->userns_fd < 0)
		return 0;
	r->root = strdup(s->root);
	if (!r->root)
		return -ENOMEM;
	r->spawn.userns_fd = dup_fd(s->userns_fd);
	if (r->spawn.userns_fd < 0)
		return r->spawn.userns_fd;
	r->spawn.mntns_fd = dup_fd(s->mntns_fd);
	return r->spawn.mntns_fd < 0 ? r->spawn.mntns_fd : 0;
}

/* A terminal is handed on when it is ours to hand on: not by a job in the background. */
static void set_tty(struct run *r, const struct run_spec *s)
{
	if (!s->passthrough || s->stdin_fd < 0 || !isatty(s->stdin_fd) ||
	    tcgetpgrp(s->stdin_fd) != getpgrp())
		return;
	r->tty_fd = s->stdin_fd;
	r->tty = true;
	r->termios_saved = tcgetattr(r->tty_fd, &r->termios) == 0;
}

/* What is lent with a descriptor are its flags, too: a command that makes its input non-blocking would
 * leave the caller's shell with one that is. */
static void save_flags(struct run *r, const struct run_spec *s)
{
	const int fd[3] = {s->stdin_fd, s->passthrough ? STDOUT_FILENO : -1,
			   s->passthrough ? STDERR_FILENO : -1};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fd); i++) {
		r->stream_fd[i] = fd[i];
		r->stream_flags[i] = fd[i] < 0 ? -1 : fcntl(fd[i], F_GETFL);
	}
}

static int set_memfds(struct run *r, const struct run_spec *s, struct diag *diag)
{
	const struct plan_options o = {.tty = r->tty};
	cleanup_buf struct buf plan = {0}, args = {0};
	int e;

	e = plan_encode(s, &o, diag, &plan);
	if (e == 0)
		e = bwrap_args(s, r->tty, &args);
	if (e < 0)
		return e;
	e = plan_memfd("plan", &plan);
	if (e < 0)
		return e;
	r->spawn.fd[STAGE3_FD_PLAN] = e;
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

static int prepare(struct run *r, struct run_spec *s, struct diag *diag)
{
	int e;

	limits_fill(&s->limits);
	r->passthrough = s->passthrough;
	r->merged = s->stderr_mode == RUN_STDERR_MERGED;
	r->shell = s->shell != NULL;
	r->network = s->network;
	r->timeout_ms = s->timeout_ms;
	r->output_max = s->limits.output;
	memcpy(r->spill_fd, s->spill_fd, sizeof(r->spill_fd));
	capture_init(&r->capture[0], s->head_max ? s->head_max : CAPTURE_DEFAULT,
		     s->tail_max ? s->tail_max : CAPTURE_DEFAULT);
	capture_init(&r->capture[1], r->capture[0].head_max, r->capture[0].tail_max);
	set_tty(r, s);
	save_flags(r, s);
	e = bwrap_find(NULL, diag, &r->bwrap);
	if (e < 0)
		return e;
	set_argv(r);
	e = run_open_stage3(s->stage3, diag);
	if (e < 0)
		return e;
	r->spawn.fd[STAGE3_FD_SELF] = e;
	e = set_memfds(r, s, diag);
	if (e == 0)
		e = set_stdin(r, s, diag);
	if (e == 0)
		e = set_stdout(r, s, diag);
	if (e == 0)
		e = set_status(r);
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
	pthread_condattr_t attr;
	struct run *r;
	size_t i;

	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->out_fd[0] = r->out_fd[1] = r->err_fd = r->status_fd = r->in_fd = r->init_fd = -1;
	r->tie_fd = -1;
	r->tty_fd = r->wake_fd = r->pidfd = -1;
	r->spawn.userns_fd = r->spawn.mntns_fd = r->spawn.cgroup_fd = -1;
	for (i = 0; i < ARRAY_SIZE(r->spawn.fd); i++)
		r->spawn.fd[i] = -1;
	(void)pthread_mutex_init(&r->lock, NULL);
	way_out_init(&r->way_out, &r->lock);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&r->cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	*ret = r;
	return 0;
}

/* Signals are for the program's own threads. */
static int thread_start(struct run *r)
{
	sigset_t all, old;
	int e;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	e = pthread_create(&r->thread, NULL, run_thread, r);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (e != 0)
		return -e;
	r->thread_made = true;
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

int run_start(const struct run_spec *spec, struct diag *diag, struct run **ret)
{
	struct run_spec s = *spec;
	struct run *r;
	int e;

	e = spec_check(&s, diag);
	if (e < 0)
		return e;
	e = run_new(&r);
	if (e < 0)
		return e;
	e = prepare(r, &s, diag);
	if (e == 0)
		e = thread_start(r);
	if (e == 0)
		e = wait_spawned(r);
	if (e < 0) {
		run_free(r);
		return diag_set(diag, e, "the command could not be started: %s", err_text(e));
	}
	*ret = r;
	return 0;
}

int run_pidfd(const struct run *r)
{
	return r->pidfd;
}

static void wake(struct run *r)
{
	const uint64_t one = 1;
	ssize_t n = write(r->wake_fd, &one, sizeof(one));

	(void)n; /* EAGAIN: it is awake */
}

int run_kill(struct run *r, unsigned grace_ms)
{
	(void)pthread_mutex_lock(&r->lock);
	if (!r->done) {
		if (!r->kill_asked || grace_ms < r->kill_grace)
			r->kill_grace = grace_ms;
		r->kill_asked = true;
		r->killed = true;
	}
	(void)pthread_mutex_unlock(&r->lock);
	wake(r);
	return 0;
}

static struct timespec after(uint64_t ms)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)(ms / 1000);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

int run_wait(struct run *r, uint64_t timeout_ms, struct run_result *ret)
{
	/* A year is for ever, and does not overflow. */
	const bool forever = timeout_ms > 366ull * 24 * 3600 * 1000;
	struct timespec end = after(forever ? 0 : timeout_ms);
	int done, e = 0;

	(void)pthread_mutex_lock(&r->lock);
	while (!r->done && e == 0)
		e = forever ? pthread_cond_wait(&r->cond, &r->lock)
			    : pthread_cond_timedwait(&r->cond, &r->lock, &end);
	done = r->done;
	if (done)
		*ret = r->result;
	(void)pthread_mutex_unlock(&r->lock);
	return done;
}

int run_output(struct run *r, int stream, struct buf *head, struct buf *tail, uint64_t *ret_skipped)
{
	int e;

	if (stream != 0 && stream != 1)
		return -EINVAL;
	(void)pthread_mutex_lock(&r->lock);
	e = capture_copy(&r->capture[stream], head, tail, ret_skipped);
	(void)pthread_mutex_unlock(&r->lock);
	return e;
}

int run_asked(struct run *r, struct run_asked **ret, size_t *ret_n, uint64_t *ret_total)
{
	const struct way_out *w = &r->way_out;
	int e = 0;

	(void)pthread_mutex_lock(&r->lock);
	*ret_n = w->nasked;
	*ret_total = w->total;
	*ret = w->nasked ? malloc(w->nasked * sizeof(**ret)) : NULL;
	if (*ret)
		memcpy(*ret, w->asked, w->nasked * sizeof(**ret));
	else if (w->nasked)
		e = -ENOMEM;
	(void)pthread_mutex_unlock(&r->lock);
	return e;
}

static bool input_full(const struct run *r)
{
	return !r->input_closed && r->input.len - r->input_at >= RUN_INPUT_MAX;
}

int run_input(struct run *r, const void *p, size_t n)
{
	const uint8_t *at = p;
	size_t part;
	int e = 0;

	(void)pthread_mutex_lock(&r->lock);
	if (r->input_closed)
		e = n == 0 ? 0 : -EPIPE;
	else if (n == 0)
		r->input_closed = true;
	while (e == 0 && n > 0) {
		while (input_full(r))
			(void)pthread_cond_wait(&r->cond, &r->lock);
		if (r->input_closed) {
			e = -EPIPE;
			break;
		}
		part = RUN_INPUT_MAX - (r->input.len - r->input_at);
		if (part > n)
			part = n;
		e = buf_put(&r->input, at, part);
		at += part;
		n -= part;
		wake(r);
	}
	(void)pthread_mutex_unlock(&r->lock);
	wake(r);
	return e;
}

/* The numbers are looked at once the thread is gone, which closes some of them. */
static void close_all(const struct run *r)
{
	const int fds[] = {r->out_fd[0], r->out_fd[1],       r->err_fd,        r->status_fd,
			   r->in_fd,     r->init_fd,         r->pidfd,         r->wake_fd,
			   r->tie_fd,    r->spawn.userns_fd, r->spawn.mntns_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	for (size_t i = 0; i < ARRAY_SIZE(r->spawn.fd); i++)
		if (r->spawn.fd[i] >= 0)
			(void)close(r->spawn.fd[i]);
}

void run_free(struct run *r)
{
	if (!r)
		return;
	if (r->thread_made) {
		(void)run_kill(r, 0);
		(void)pthread_join(r->thread, NULL);
	}
	close_all(r);
	way_out_release(&r->way_out);
	for (size_t i = 0; i < 2; i++)
		capture_release(&r->capture[i]);
	cgroup_free(r->cgroup);
	buf_release(&r->input);
	buf_release(&r->bwrap_text);
	(void)pthread_cond_destroy(&r->cond);
	(void)pthread_mutex_destroy(&r->lock);
	free(r->bwrap);
	free(r->root);
	free(r);
}
