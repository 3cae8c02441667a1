/* The thread of a run: fork, streams, deadline, the end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/orphan.h"
#include "runner/runner_internal.h"

#define READ_SIZE     65536u
#define TEXT_MAX      4096u
#define TERM_GRACE_MS 2000
#define LAST_MS       1000 /* from the kill of init to the kill of bwrap */
#define GONE_MS       10000
#define TREE_MS       200 /* from the end of the tree's keeper to the forced one of its mount */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* ---- ending it ---- */

static void tell(const struct run *r, enum stage3_msg_kind kind, int value)
{
	struct stage3_msg m = {.kind = kind, .value = value};

	(void)send(r->status_fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void kill_bwrap(const struct run *r)
{
	/* Not reaped yet: the pid is ours. Its init dies with it. */
	if (!r->reaped)
		(void)kill(r->pid, SIGKILL);
}

/* Init first: then bwrap reaps it, and has the times of all that ran in it. */
static void kill_hard(struct run *r)
{
	if (r->last_at)
		return;
	r->last_at = io_now_ms() + LAST_MS;
	if (r->init_fd < 0 || syscall(SYS_pidfd_send_signal, r->init_fd, SIGKILL, NULL, 0) < 0)
		kill_bwrap(r);
	if (r->cgroup && !(r->seen & RUN_SEEN_HELLO))
		cgroup_kill(r->cgroup);
}

/* The tree is gone: what the command would still do is lost, and what it reads are errors. */
static void kill_untied(struct run *r)
{
	r->tree_gone = true;
	r->tree_at = io_now_ms() + TREE_MS;
	close_fd(&r->tie_fd);
	kill_hard(r);
}

/* A process that waits in the kernel for the mount's answer is not ended by a signal, and its server may be
 * unable to let go of it (fs/env/heal.h). The daemon had time to write what mappings hold. */
static void end_tree(struct run *r)
{
	r->tree_at = 0;
	if (r->spawn.userns_fd >= 0 && r->spawn.mntns_fd >= 0)
		spawn_abort_tree(r->spawn.userns_fd, r->spawn.mntns_fd, r->root);
}

static void end_gently(struct run *r, unsigned grace_ms)
{
	long long at = io_now_ms() + grace_ms;

	if (grace_ms == 0 || !(r->seen & RUN_SEEN_HELLO)) {
		kill_hard(r);
		return;
	}
	if (!r->kill_at)
		tell(r, STAGE3_MSG_TERM, SIGTERM);
	if (!r->kill_at || at < r->kill_at)
		r->kill_at = at;
}

static void check_clock(struct run *r)
{
	long long now = io_now_ms();
	bool late = false;

	if (r->deadline && now >= r->deadline) {
		r->deadline = 0;
		(void)pthread_mutex_lock(&r->lock);
		late = !r->kill_asked;
		r->timed_out = late;
		(void)pthread_mutex_unlock(&r->lock);
		if (late)
			end_gently(r, TERM_GRACE_MS);
	}
	if (r->way_out.serve_by && now >= r->way_out.serve_by) {
		way_out_check(&r->way_out, now);
		kill_hard(r);
	}
	if (r->kill_at && now >= r->kill_at)
		kill_hard(r);
	if (r->tree_at && now >= r->tree_at)
		end_tree(r);
	if (r->last_at && now >= r->last_at) {
		kill_bwrap(r);
		if (r->cgroup)
			cgroup_kill(r->cgroup);
		r->last_at = now + LAST_MS;
	}
}

static int clock_timeout(const struct run *r)
{
	const long long at[] = {r->deadline, r->last_at ? 0 : r->kill_at, r->last_at, r->tree_at,
				r->way_out.serve_by};
	long long first = 0, left;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(at); i++) {
		if (at[i] && (!first || at[i] < first))
			first = at[i];
	}
	if (!first)
		return -1;
	left = first - io_now_ms();
	return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

/* ---- the terminal ---- */

/* The command's job was stopped, with ^Z most often. Who holds its terminal decides; where that is nobody who could stop and be
 * continued, it goes on. */
static void job_stopped(struct run *r, int sig)
{
	const uint64_t one = 1;
	ssize_t n;

	if (r->stop_fd < 0) {
		tell(r, STAGE3_MSG_CONT, 1);
		return;
	}
	(void)pthread_mutex_lock(&r->lock);
	r->stopped = sig;
	(void)pthread_mutex_unlock(&r->lock);
	n = write(r->stop_fd, &one, sizeof(one));
	(void)n; /* EAGAIN: it is readable */
}

/* ---- what is read ---- */

/* A message, or the one of its own size. */
static void take_note(struct run *r, const struct stage3_note *note, ssize_t n)
{
	if (n < (ssize_t)offsetof(struct stage3_note, text) ||
	    note->len != (size_t)n - offsetof(struct stage3_note, text))
		return;
	memcpy(&r->note, note, (size_t)n);
	r->note.name[sizeof(r->note.name) - 1] = 0;
}

static ssize_t receive(struct run *r, struct stage3_msg *m)
{
	union {
		struct stage3_msg m;
		struct stage3_note note;
	} in;
	int fds[IO_MAX_FDS];
	size_t nfds = 0, i;
	ssize_t n;

	n = io_recv_fds(r->status_fd, &in, sizeof(in), fds, &nfds);
	*m = in.m;
	if (n > (ssize_t)sizeof(*m)) {
		if (in.m.kind == STAGE3_MSG_NOTE)
			take_note(r, &in.note, n);
		*m = (struct stage3_msg){.kind = STAGE3_MSG_NOTE};
		n = sizeof(*m);
	}
	for (i = 0; i < nfds; i++) {
		if (n == (ssize_t)sizeof(*m) && m->kind == STAGE3_MSG_HELLO && r->init_fd < 0)
			r->init_fd = fds[i];
		else if (n == (ssize_t)sizeof(*m) && m->kind == STAGE3_MSG_LISTENING)
			way_out_socket(&r->way_out, m->value, fds[i]);
		else
			(void)close(fds[i]);
	}
	return n;
}

/* Its time was the command's; what it left running has none. */
static void command_ended(struct run *r)
{
	r->deadline = 0;
	(void)pthread_mutex_lock(&r->lock);
	run_result_fill(r, &r->command);
	r->command_ended = true;
	(void)pthread_cond_broadcast(&r->cond);
	(void)pthread_mutex_unlock(&r->lock);
}

static void read_status(struct run *r)
{
	struct stage3_msg m;
	bool asked;
	ssize_t n;

	n = receive(r, &m);
	if (n != (ssize_t)sizeof(m)) {
		if (n != -EAGAIN && n != -EINTR)
			close_fd(&r->status_fd);
		return;
	}
	switch (m.kind) {
	case STAGE3_MSG_HELLO:
		r->seen |= RUN_SEEN_HELLO;
		(void)pthread_mutex_lock(&r->lock);
		r->greeted = true;
		(void)pthread_cond_broadcast(&r->cond);
		asked = r->kill_asked || r->timed_out;
		(void)pthread_mutex_unlock(&r->lock);
		if (asked) /* before there was an init to tell */
			kill_hard(r);
		break;
	case STAGE3_MSG_READY:
		r->seen |= RUN_SEEN_READY;
		r->ready = m;
		break;
	case STAGE3_MSG_FAILED:
		if (!(r->seen & RUN_SEEN_FAILED))
			r->failed = m;
		r->seen |= RUN_SEEN_FAILED;
		break;
	case STAGE3_MSG_EXITED:
		r->seen |= RUN_SEEN_EXITED;
		r->wait_status = m.value;
		if (r->linger)
			command_ended(r);
		break;
	case STAGE3_MSG_STOPPED:
		job_stopped(r, m.value);
		break;
	default:
		break;
	}
}

static void spill(struct run *r, int stream, const uint8_t *p, size_t n)
{
	uint64_t room;

	if (r->spilled >= r->output_max || n > r->output_max - r->spilled) {
		(void)pthread_mutex_lock(&r->lock);
		r->out_limited = true;
		(void)pthread_mutex_unlock(&r->lock);
	}
	room = r->output_max > r->spilled ? r->output_max - r->spilled : 0;
	if (n > room)
		n = (size_t)room;
	r->spilled += n;
	if (n == 0 || r->spill_fd[stream] < 0)
		return;
	if (io_write_full(r->spill_fd[stream], p, n) < 0) {
		/* A full disk: what is in memory remains, and the result says that there is less. */
		r->spill_fd[stream] = -1;
		(void)pthread_mutex_lock(&r->lock);
		r->out_limited = true;
		(void)pthread_mutex_unlock(&r->lock);
	}
}

/* false: nothing more for now. */
static bool read_stream(struct run *r, int stream)
{
	uint8_t p[READ_SIZE];
	ssize_t n;

	n = read(r->out_fd[stream], p, sizeof(p));
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			close_fd(&r->out_fd[stream]);
		return false;
	}
	(void)pthread_mutex_lock(&r->lock);
	r->out_bytes[stream] += (uint64_t)n;
	capture_put(&r->capture[stream], p, (size_t)n);
	(void)pthread_mutex_unlock(&r->lock);
	spill(r, stream, p, (size_t)n);
	return true;
}

static void read_bwrap_text(struct run *r)
{
	char p[512];
	ssize_t n;

	n = read(r->err_fd, p, sizeof(p));
	if (n > 0 && r->bwrap_text.len + (size_t)n <= TEXT_MAX)
		(void)!buf_put(&r->bwrap_text, p, (size_t)n); /* without memory: without words */
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_fd(&r->err_fd);
}

/* No network is what a command without one gets: who was promised one with rules does not go on without. */
static void check_way_out(struct run *r, enum way_out_state before)
{
	if (r->way_out.state == before)
		return;
	if (r->way_out.state == WAY_OUT_SERVED)
		tell(r, STAGE3_MSG_GO, 0);
	if (r->way_out.state == WAY_OUT_LOST)
		kill_hard(r);
}

/* ---- what is written ---- */

static void input_end_locked(struct run *r)
{
	close_fd(&r->in_fd);
	r->input_closed = true;
	buf_release(&r->input);
	r->input_at = 0;
	(void)pthread_cond_broadcast(&r->cond);
}

/* What has been written is not kept, also where there is always more to come. */
static void input_written_locked(struct run *r, size_t n)
{
	r->input_at += n;
	if (r->input_at == r->input.len) {
		buf_clear(&r->input);
		r->input_at = 0;
	} else if (r->input_at >= RUN_INPUT_MAX) {
		r->input.len -= r->input_at;
		memmove(r->input.data, r->input.data + r->input_at, r->input.len);
		r->input_at = 0;
	}
}

static void write_input(struct run *r)
{
	ssize_t n;

	(void)pthread_mutex_lock(&r->lock);
	if (r->in_fd >= 0 && r->input_at < r->input.len) {
		n = write(r->in_fd, r->input.data + r->input_at, r->input.len - r->input_at);
		if (n > 0)
			input_written_locked(r, (size_t)n);
		else if (n < 0 && errno != EAGAIN && errno != EINTR)
			input_end_locked(r);
	}
	if (r->in_fd >= 0 && r->input_closed && r->input.len == 0)
		input_end_locked(r);
	(void)pthread_mutex_unlock(&r->lock);
}

static bool input_waits(struct run *r)
{
	bool w;

	(void)pthread_mutex_lock(&r->lock);
	w = r->in_fd >= 0 && (r->input_at < r->input.len || r->input_closed);
	(void)pthread_mutex_unlock(&r->lock);
	return w;
}

/* What waited gets its command. The clocks begin now. */
static void begin(struct run *r, int plan, int tie)
{
	struct stage3_msg m = {.kind = STAGE3_MSG_PLAN};

	(void)clock_gettime(CLOCK_MONOTONIC, &r->started);
	if (r->timeout_ms)
		r->deadline = io_now_ms() + (long long)r->timeout_ms;
	if (tie >= 0) {
		close_fd(&r->tie_fd);
		r->tie_fd = tie;
	}
	if (io_send_fds(r->status_fd, &m, sizeof(m), &plan, 1) < 0)
		kill_hard(r);
	(void)close(plan);
}

static void read_wake(struct run *r)
{
	unsigned grace = 0;
	int plan, tie;
	bool asked, go_on, front;
	uint64_t v, signals;

	if (read(r->wake_fd, &v, sizeof(v)) < 0)
		return;
	(void)pthread_mutex_lock(&r->lock);
	plan = steal_fd(&r->plan_fd);
	tie = steal_fd(&r->tie_next);
	asked = r->kill_asked;
	grace = r->kill_grace;
	go_on = r->continue_asked;
	front = r->continue_front;
	r->continue_asked = false;
	signals = r->signals;
	r->signals = 0;
	(void)pthread_mutex_unlock(&r->lock);
	if (plan >= 0)
		begin(r, plan, tie);
	for (int sig = 1; signals && sig < 64; sig++)
		if (signals & 1ull << sig)
			tell(r, STAGE3_MSG_SIGNAL, sig);
	if (go_on)
		tell(r, STAGE3_MSG_CONT, front);
	if (asked)
		end_gently(r, grace);
}

/* ---- the loop ---- */

static bool reap(struct run *r)
{
	int status;
	pid_t pid;

	pid = wait4(r->pid, &status, WNOHANG, &r->usage);
	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	if (pid == r->pid && !(r->seen & RUN_SEEN_EXITED))
		r->wait_status = status;
	r->reaped = true;
	return true;
}

static void loop(struct run *r)
{
	enum {
		WAKE,
		CHILD,
		STATUS,
		TIE,
		ERR,
		OUT0,
		OUT1,
		IN,
		NET,
		COUNT
	};

	for (;;) {
		const enum way_out_state way = r->way_out.state;
		struct pollfd p[COUNT] = {
			[WAKE] = {.fd = r->wake_fd, .events = POLLIN},
			[CHILD] = {.fd = r->pidfd, .events = POLLIN},
			[STATUS] = {.fd = r->status_fd, .events = POLLIN},
			[TIE] = {.fd = r->tie_fd, .events = POLLRDHUP},
			[ERR] = {.fd = r->err_fd, .events = POLLIN},
			[OUT0] = {.fd = r->out_fd[0], .events = POLLIN},
			[OUT1] = {.fd = r->out_fd[1], .events = POLLIN},
			[IN] = {.fd = input_waits(r) ? r->in_fd : -1, .events = POLLOUT},
			[NET] = {.fd = r->way_out.control, .events = POLLIN},
		};

		if (poll(p, COUNT, clock_timeout(r)) < 0 && errno != EINTR)
			kill_hard(r);
		if (p[WAKE].revents)
			read_wake(r);
		if (p[STATUS].revents)
			read_status(r);
		if (p[TIE].revents)
			kill_untied(r);
		if (p[ERR].revents)
			read_bwrap_text(r);
		if (p[OUT0].revents)
			(void)read_stream(r, 0);
		if (p[OUT1].revents)
			(void)read_stream(r, 1);
		if (p[IN].revents)
			write_input(r);
		if (p[NET].revents)
			way_out_read(&r->way_out);
		check_way_out(r, way);
		if (p[CHILD].revents && reap(r))
			return;
		check_clock(r);
	}
}

static void drain_status(struct run *r)
{
	struct pollfd p = {.events = POLLIN};

	for (;;) {
		p.fd = r->status_fd;
		if (p.fd < 0 || poll(&p, 1, 0) <= 0)
			return;
		read_status(r);
	}
}

/* R4: bwrap has ended. Most often because init did; but it may have been killed, and its init be on
 * its way to its own death. */
static void wait_gone(struct run *r)
{
	struct pollfd p = {.events = POLLIN};
	long long end = io_now_ms() + GONE_MS;

	drain_status(r);
	if (r->init_fd < 0 && r->status_fd >= 0) {
		/* An init that has not said hello can no longer, and ends; or it just did. */
		(void)shutdown(r->status_fd, SHUT_RD);
		drain_status(r);
		if (r->init_fd < 0)
			orphan_end(r->status_ino);
	}
	p.fd = r->init_fd;
	while (p.fd >= 0 && poll(&p, 1, 0) == 0 && io_now_ms() < end) {
		(void)syscall(SYS_pidfd_send_signal, r->init_fd, SIGKILL, NULL, 0);
		(void)poll(&p, 1, 100);
		if (r->tree_at && io_now_ms() >= r->tree_at)
			end_tree(r);
	}
	if (r->cgroup && r->init_fd < 0)
		cgroup_kill(r->cgroup);
}

/* What a call says on a FUSE mount whose connection was ended, by its server or by somebody else (fuse_get_req() in the kernel's
 * fs/fuse/dev.c). */
static bool tree_ended(struct run *r)
{
	struct statfs st;
	int fd;

	(void)pthread_mutex_lock(&r->lock);
	fd = r->tree_fd;
	(void)pthread_mutex_unlock(&r->lock);
	return fd >= 0 && fstatfs(fd, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

static void drain(struct run *r)
{
	struct pollfd tie = {.fd = r->tie_fd, .events = POLLRDHUP};
	int i;

	drain_status(r);
	/* It may have ended by the tree's end before we heard of that. */
	if (poll(&tie, 1, 0) > 0)
		r->tree_gone = true;
	else if ((r->seen & RUN_SEEN_EXITED) && r->wait_status && !r->last_at)
		r->tree_gone = tree_ended(r);
	for (i = 0; i < 2; i++) {
		while (r->out_fd[i] >= 0 && read_stream(r, i))
			;
	}
	if (r->err_fd >= 0)
		read_bwrap_text(r);
}

static void flags_restore(const struct run *r)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(r->stream_fd); i++) {
		if (r->stream_flags[i] >= 0)
			(void)fcntl(r->stream_fd[i], F_SETFL, r->stream_flags[i]);
	}
}

static void close_child_ends(struct run *r)
{
	int i;

	for (i = 0; i < STAGE3_FD_COUNT; i++)
		close_fd(&r->spawn.fd[i]);
}

static int start(struct run *r)
{
	pid_t pid;
	int pidfd;

	(void)clock_gettime(CLOCK_MONOTONIC, &r->started);
	if (r->way_out.state != WAY_OUT_NONE) {
		int e = way_out_start(&r->way_out);

		if (e < 0)
			return e;
	}
	pid = spawn_bwrap(&r->spawn);
	close_child_ends(r);
	if (pid < 0)
		return (int)pid;
	r->pid = pid;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0) {
		int e = ret_nerrno();

		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		return e;
	}
	if (r->timeout_ms)
		r->deadline = io_now_ms() + (long long)r->timeout_ms;
	(void)pthread_mutex_lock(&r->lock);
	r->pidfd = pidfd;
	r->spawned = true;
	(void)pthread_cond_broadcast(&r->cond);
	(void)pthread_mutex_unlock(&r->lock);
	return 0;
}

void *run_thread(void *arg)
{
	struct run *r = arg;
	struct run_result result = {0};
	int e;

	e = start(r);
	if (e == 0) {
		loop(r);
		wait_gone(r);
		drain(r);
		way_out_end(&r->way_out);
		flags_restore(r);
		run_result_fill(r, &result);
	}
	way_out_end(&r->way_out);
	close_fd(&r->spawn.userns_fd);
	close_fd(&r->spawn.mntns_fd);
	(void)pthread_mutex_lock(&r->lock);
	r->spawn_error = e;
	r->result = result;
	input_end_locked(r);
	r->done = true;
	(void)pthread_cond_broadcast(&r->cond);
	(void)pthread_mutex_unlock(&r->lock);
	return NULL;
}
