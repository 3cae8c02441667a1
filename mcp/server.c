#include "mcp/server.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "mcp/jobs.h"
#include "mcp/session.h"

/* From the end of input to our own, in milliseconds; clients send SIGTERM after two seconds. */
#define END_CALLS_MS   800
#define END_DISCARD_MS 1350
/* Without a parent and without input this long, nobody is there. */
#define ORPHAN_IDLE_MS 60000

struct loop {
	struct server *s;
	struct rpc_reader in;
	int in_fd, out_fd, sig_fd, parent_fd;
	bool orphan;
	long long last_input_ms;
};

/* ---- descriptors and signals ---- */

/* M1: whatever writes to standard output, or reads standard input, does not touch the protocol. */
static int take_stdio(int *ret_in, int *ret_out)
{
	cleanup_fd int in = -1;
	cleanup_fd int out = -1;
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return ret_nerrno();
	if (fcntl(STDERR_FILENO, F_GETFD) < 0 && dup2(null, STDERR_FILENO) < 0)
		return ret_nerrno();
	in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	if (in < 0)
		return ret_nerrno();
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (out < 0)
		return ret_nerrno();
	if (dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return ret_nerrno();
	if (null <= STDERR_FILENO)
		(void)steal_fd(&null);
	*ret_in = steal_fd(&in);
	*ret_out = steal_fd(&out);
	return 0;
}

static int take_signals(int *ret_fd)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL))
		return -EINVAL;
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return ret_nerrno();
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return ret_nerrno();
	*ret_fd = fd;
	return 0;
}

/* ---- reading ---- */

static void too_long(struct server *s)
{
	struct reply_to to = {.post = true};

	reply_error(s, &to, RPC_PARSE, "Parse error: a line is longer than 16 MiB", NULL);
}

/* False: the client has closed its end, or cannot be read. */
static bool read_lines(struct loop *l)
{
	int r = rpc_reader_fill(&l->in);
	char *line;
	size_t n;

	l->last_input_ms = io_now_ms();
	if (r <= 0) {
		if (r < 0)
			log_error("reading from the client failed: %s", err_text(r));
		return false;
	}
	while ((r = rpc_reader_next(&l->in, &line, &n))) {
		if (r < 0)
			too_long(l->s);
		else
			server_handle_line(l->s, line, n);
	}
	return true;
}

static bool orphan_idle(struct loop *l)
{
	unsigned n;

	(void)pthread_mutex_lock(&l->s->lock);
	n = l->s->ncalls;
	(void)pthread_mutex_unlock(&l->s->lock);
	return l->orphan && !n && io_now_ms() - l->last_input_ms > ORPHAN_IDLE_MS;
}

static int poll_timeout(struct loop *l, bool pending)
{
	int ms = call_tick(l->s);

	/* Whoever holds the writer may have left posted lines behind. */
	if (pending && (ms < 0 || ms > 20))
		ms = 20;
	if (l->orphan && (ms < 0 || ms > 5000))
		ms = 5000;
	return ms;
}

static void serve(struct loop *l)
{
	struct server *s = l->s;

	l->last_input_ms = io_now_ms();
	for (;;) {
		bool pending = rpc_pending(&s->out);
		struct pollfd p[] = {
			{.fd = l->in_fd, .events = POLLIN},
			{.fd = l->sig_fd, .events = POLLIN},
			{.fd = s->wake_fd, .events = POLLIN},
			{.fd = l->parent_fd, .events = POLLIN},
			{.fd = l->out_fd, .events = pending ? POLLOUT : 0},
		};
		int r = poll(p, ARRAY_SIZE(p), poll_timeout(l, pending));

		if (r < 0 && errno != EINTR)
			return;
		if (p[1].revents || p[2].revents || orphan_idle(l))
			return;
		if (p[3].revents) {
			l->parent_fd = -1;
			l->orphan = true;
		}
		if (p[0].revents && !read_lines(l))
			return;
		if (p[4].revents & (POLLERR | POLLHUP | POLLNVAL))
			return;
		if (pending)
			rpc_flush(&s->out);
	}
}

/* ---- start and end ---- */

static void server_free(struct server *s)
{
	if (!s)
		return;
	session_free(s->session);
	server_free_tools(s);
	rpc_writer_release(&s->out);
	if (s->wake_fd >= 0)
		(void)close(s->wake_fd);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_cond_destroy(&s->work);
	(void)pthread_cond_destroy(&s->idle);
	free(s);
}

static int server_new(const struct mcp_serve_opts *o, int out_fd, struct server **ret)
{
	struct server *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->opts = o;
	(void)pthread_mutex_init(&s->lock, NULL);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = s->wake_fd < 0 ? ret_nerrno() : rpc_writer_init(&s->out, out_fd);
	if (!r)
		r = thread_cond_init(&s->work);
	if (!r)
		r = thread_cond_init(&s->idle);
	if (!r)
		r = server_load_tools(s);
	if (!r)
		r = session_new(o, &s->session);
	if (r) {
		server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct ending {
	struct server *s;
	pthread_mutex_t lock;
	pthread_cond_t done_cond;
	bool done; /* lock */
};

static void *discard_thread(void *arg)
{
	struct ending *e = arg;

	session_discard(e->s->session);
	(void)pthread_mutex_lock(&e->lock);
	e->done = true;
	(void)pthread_cond_signal(&e->done_cond);
	(void)pthread_mutex_unlock(&e->lock);
	return NULL;
}

/* M4, but never longer than a client waits: a daemon that was asked finishes without us. True: done. */
static bool discard_until(struct server *s, long long deadline_ms)
{
	struct timespec until = {.tv_sec = deadline_ms / 1000,
				 .tv_nsec = deadline_ms % 1000 * 1000000};
	struct ending *e = calloc(1, sizeof(*e));
	pthread_t t;
	bool done;

	if (!e || thread_cond_init(&e->done_cond)) {
		free(e);
		return false;
	}
	e->s = s;
	(void)pthread_mutex_init(&e->lock, NULL);
	if (pthread_create(&t, NULL, discard_thread, e)) {
		free(e);
		return false;
	}
	(void)pthread_mutex_lock(&e->lock);
	while (!e->done)
		if (pthread_cond_timedwait(&e->done_cond, &e->lock, &until))
			break;
	done = e->done;
	(void)pthread_mutex_unlock(&e->lock);
	if (!done) {
		/* The thread still uses it; the process is about to end. */
		(void)pthread_detach(t);
		return false;
	}
	(void)pthread_join(t, NULL);
	(void)pthread_mutex_destroy(&e->lock);
	(void)pthread_cond_destroy(&e->done_cond);
	free(e);
	return true;
}

/* Commands first, so that nothing writes any more; then what waits for them; then the changes. True:
 * no thread is left that uses @s. */
static bool finish(struct server *s)
{
	long long t0 = io_now_ms();
	bool calls, jobs, discarded;

	jobs_kill_all(session_jobs(s->session));
	calls = call_stop_all(s, t0 + END_CALLS_MS);
	jobs = jobs_wait_all(session_jobs(s->session), t0 + END_CALLS_MS);
	rpc_flush(&s->out);
	discarded = discard_until(s, t0 + END_DISCARD_MS);
	rpc_stop(&s->out);
	if (!calls || !jobs || !discarded)
		log_warn("ended before all was done:%s%s%s", calls ? "" : " calls",
			 jobs ? "" : " jobs", discarded ? "" : " discard");
	return calls && jobs && discarded;
}

int mcp_serve(const struct mcp_serve_opts *o)
{
	struct loop l = {.sig_fd = -1, .parent_fd = -1};
	cleanup_fd int in = -1;
	cleanup_fd int out = -1;
	cleanup_fd int sig = -1;
	cleanup_fd int parent = -1;
	int r;

	log_setup("rattan", o->log_level);
	if (o->refusal)
		log_warn("%s", o->refusal);
	r = take_stdio(&in, &out);
	if (!r)
		r = take_signals(&sig);
	if (!r)
		r = server_new(o, out, &l.s);
	if (r)
		return r;
	/* A watch, not PDEATHSIG: that fires when the thread that started us ends. */
	parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
	if (parent >= 0)
		(void)fcntl(parent, F_SETFD, FD_CLOEXEC);
	/* Keep no directory busy; host paths in the settings are absolute. */
	(void)!chdir("/");
	l.in_fd = in;
	l.out_fd = out;
	l.sig_fd = sig;
	l.parent_fd = parent;
	rpc_reader_init(&l.in, in);
	serve(&l);
	if (finish(l.s))
		server_free(l.s);
	else
		(void)steal_fd(&out); /* a thread may still hold it: the process ends at once */
	rpc_reader_release(&l.in);
	return 0;
}
