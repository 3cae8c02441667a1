/* Starting rattan-fs and hearing how it went. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

#define LOG_MAX      (256 * 1024)
/* For what was stopped to see it, and to take away what it has made: it may be at a slow disk. What waits for others, a pipe, does
 * not see it. */
#define STOP_MS      30000
#define STOP_PIPE_MS 1000

void ctl_argv_add(struct ctl_argv *a, const char *s)
{
	/* One too many is seen by ctl_spawn. */
	if (a->n <= CTL_ARGV_MAX)
		a->v[a->n++] = s;
}

void ctl_argv_opt(struct ctl_argv *a, const char *opt, const char *value)
{
	if (!value)
		return;
	ctl_argv_add(a, opt);
	ctl_argv_add(a, value);
}

/* Beside this program, beside it in the build tree, or where it is installed. */
static int find_program(char *ret, size_t size)
{
	static const char *const places[] = {"", "../fs/", "../libexec/rattan/", "../lib/rattan/"};
	const char *set = getenv("RATTAN_FS");
	char self[4096];
	ssize_t n;
	char *slash;

	if (set && *set == '/' && strlen(set) < size) {
		memcpy(ret, set, strlen(set) + 1);
		return 0;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return ret_nerrno();
	self[n] = 0;
	slash = strrchr(self, '/');
	if (slash)
		slash[1] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int k = snprintf(ret, size, "%s%srattan-fs", self, places[i]);

		if (k > 0 && (size_t)k < size && access(ret, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

/* Nothing of the caller's but its environment goes along: standard streams, directory, session and
 * every other descriptor are replaced (a daemon that kept a pipe would keep its reader waiting). */
static int start(const struct ctl_argv *a, const char *log, int ready, pid_t *ret_pid)
{
	char *const *argv = (char *const *)(uintptr_t)a->v;
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, dfl;
	int r;

	if (posix_spawn_file_actions_init(&fa))
		return -ENOMEM;
	if (posix_spawnattr_init(&at)) {
		posix_spawn_file_actions_destroy(&fa);
		return -ENOMEM;
	}
	sigemptyset(&none);
	sigfillset(&dfl);
	r = posix_spawn_file_actions_adddup2(&fa, ready, 3);
	if (r == 0 && a->in_fd)
		r = posix_spawn_file_actions_adddup2(&fa, a->in_fd, 0);
	else if (r == 0 && !a->std_in)
		r = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	if (r == 0 && !a->std_out)
		r = posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&fa, 2, log ? log : "/dev/null",
						     O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(&fa, 4);
	if (r == 0)
		r = posix_spawn_file_actions_addchdir_np(&fa, "/");
	if (r == 0)
		r = posix_spawnattr_setsigmask(&at, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(&at, &dfl);
	if (r == 0)
		r = posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
							  POSIX_SPAWN_SETSIGDEF);
	if (r == 0)
		r = posix_spawn(ret_pid, argv[0], &fa, &at, argv, environ);
	posix_spawnattr_destroy(&at);
	posix_spawn_file_actions_destroy(&fa);
	return -r;
}

static int read_answer(int fd, struct buf *out)
{
	for (;;) {
		ssize_t k;
		int r = buf_reserve(out, 65536);

		if (r < 0)
			return r;
		k = io_read_full(fd, out->data + out->len, 65535);
		if (k < 0)
			return (int)k;
		out->len += (size_t)k;
		if (k == 0)
			return 0;
		if (out->len > MP_MAX_BYTES)
			return -E2BIG;
	}
}

static void shorten_log(const char *log)
{
	struct stat st;

	if (log && lstat(log, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > LOG_MAX)
		(void)!truncate(log, 0);
}

static int launch(struct ctl_argv *a, const char *log, struct diag *diag, int *ret_fd,
		  pid_t *ret_pid)
{
	cleanup_fd int rd = -1, wr = -1, hi = -1;
	char program[4096];
	int pipefd[2], r;

	if (a->n > CTL_ARGV_MAX)
		return diag_set(diag, -E2BIG, "too many overlays and writable places");
	r = find_program(program, sizeof(program));
	if (r < 0)
		return diag_set(
			diag, -ECONNREFUSED,
			"cannot find the program rattan-fs beside this one; set RATTAN_FS to its path");
	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return ret_nerrno();
	rd = pipefd[0];
	wr = pipefd[1];
	/* Above the descriptors that the actions set. */
	hi = fcntl(wr, F_DUPFD_CLOEXEC, 10);
	if (hi < 0)
		return ret_nerrno();
	a->v[0] = program;
	ctl_argv_opt(a, "--ready-fd", "3");
	a->v[a->n] = NULL;
	shorten_log(log);
	r = start(a, log, hi, ret_pid);
	if (r < 0)
		return diag_set(diag, -ECONNREFUSED, "cannot start %s: %s", program, err_text(r));
	*ret_fd = steal_fd(&rd);
	return 0;
}

static int no_answer(const char *log, struct diag *diag)
{
	return diag_set(diag, -ECONNREFUSED, "rattan-fs ended without an answer%s%s",
			log ? "; see " : "", log ? log : "");
}

static int answer_error(struct ctl_rep_doc *rep, struct diag *diag)
{
	int r = rep->rep.err;

	if (r < 0) {
		diag_set(diag, r, "%s", rep->rep.text[0] ? rep->rep.text : err_text(r));
		ctl_rep_release(rep);
	}
	return r;
}

int ctl_spawn(struct ctl_argv *a, const char *log, struct diag *diag, struct buf *raw,
	      struct ctl_rep_doc *ret)
{
	cleanup_fd int rd = -1;
	uint64_t version;
	pid_t pid;
	int r = launch(a, log, diag, &rd, &pid);

	if (r < 0)
		return r;
	r = read_answer(rd, raw);
	/* It forks to live on; what we started ends at once, so that no zombie is left. */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (r == 0)
		r = ctl_rep_decode(raw->data, raw->len, ret, &version);
	return r < 0 ? no_answer(log, diag) : answer_error(ret, diag);
}

int ctl_await(int fd, int (*idle)(void *arg), void *arg)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r = 0;

	while (idle && r == 0) {
		int k = poll(&p, 1, CTL_TICK_MS);

		if (k > 0 || (k < 0 && errno != EINTR)) /* who reads sees what it is */
			return 0;
		r = idle(arg);
	}
	return r;
}

static bool has_ended(pid_t pid, int *status)
{
	pid_t r = waitpid(pid, status, WNOHANG);

	return r == pid || (r < 0 && errno != EINTR);
}

/* Did it end with 0? */
static bool end(pid_t pid, int patience_ms)
{
	static const struct timespec tick = {.tv_nsec = 20000000};
	long long until = io_now_ms() + patience_ms;
	int status = -1;

	while (!has_ended(pid, &status)) {
		if (io_now_ms() >= until) {
			(void)kill(pid, SIGKILL);
			until = LLONG_MAX;
		}
		(void)nanosleep(&tick, NULL);
	}
	return status == 0;
}

/* One message of a stream: its length in four bytes, big-endian, then the message. */
static int read_frame(int fd, struct buf *raw)
{
	uint8_t head[4];
	uint32_t n;
	int r;

	if (io_read_full(fd, head, 4) != 4)
		return -EBADMSG;
	n = (uint32_t)head[0] << 24 | (uint32_t)head[1] << 16 | (uint32_t)head[2] << 8 | head[3];
	if (n > CTL_FRAME_MAX)
		return -EBADMSG;
	buf_clear(raw);
	r = buf_reserve(raw, n + 1);
	if (r < 0)
		return r;
	if (io_read_full(fd, raw->data, n) != (ssize_t)n)
		return -EBADMSG;
	raw->len = n;
	return 0;
}

int ctl_spawn_stream(struct ctl_argv *a, struct diag *diag,
		     int (*fn)(void *arg, const struct ctl_rep_doc *rep), void *arg)
{
	cleanup_buf struct buf raw = {0};
	cleanup_fd int rd = -1;
	bool more = true;
	pid_t pid;
	int r = launch(a, NULL, diag, &rd, &pid);

	if (r < 0)
		return r;
	while (r == 0 && more) {
		struct ctl_rep_doc rep;
		uint64_t version;

		r = ctl_await(rd, a->idle, a->idle_arg);
		if (r)
			break;
		r = read_frame(rd, &raw);
		if (r == 0)
			r = ctl_rep_decode(raw.data, raw.len, &rep, &version);
		if (r < 0) {
			r = no_answer(NULL, diag);
			break;
		}
		more = rep.rep.more;
		r = answer_error(&rep, diag);
		if (r < 0)
			break;
		r = fn(arg, &rep);
		ctl_rep_release(&rep);
	}
	/* Nobody reads on: it ends at its next message. */
	(void)close(steal_fd(&rd));
	a->ended_well = end(pid, a->std_in || a->in_fd || a->std_out ? STOP_PIPE_MS : STOP_MS);
	return r;
}
