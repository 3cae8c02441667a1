#include "runner/way_out.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "net/msg.h"
#include "runner/plan_encode.h"

#define SERVE_MS 10000 /* it takes milliseconds; a busy machine, more */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

void way_out_init(struct way_out *w, pthread_mutex_t *lock)
{
	*w = (struct way_out){.lock = lock, .control = -1, .listening = {-1, -1}};
	spawn_init(&w->spawn);
}

static int open_null(struct way_out *w)
{
	for (int i = 0; i < 3; i++) {
		w->spawn.fd[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (w->spawn.fd[i] < 0)
			return ret_nerrno();
	}
	return 0;
}

int way_out_prepare(struct way_out *w, const struct net_rules *rules, int program)
{
	static const char *const words[] = {"rattan-net", NULL};
	cleanup_buf struct buf b = {0};
	int sv[2], r;

	_Static_assert(NET_FD_RULES == (int)STAGE3_FD_PLAN &&
			       NET_FD_CONTROL == (int)STAGE3_FD_STATUS && STAGE3_FD_SELF == 6,
		       "spawn's places");
	_Static_assert(sizeof(words) == sizeof(w->argv), "room");
	w->spawn.fd[STAGE3_FD_SELF] = program;
	r = net_rules_encode(rules, &b);
	if (r == 0)
		r = open_null(w);
	if (r < 0)
		return r;
	r = plan_memfd("rules", &b);
	if (r < 0)
		return r;
	w->spawn.fd[NET_FD_RULES] = r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return ret_nerrno();
	w->control = sv[0];
	w->spawn.fd[NET_FD_CONTROL] = sv[1];
	memcpy(w->argv, words, sizeof(words)); /* execve changes nothing */
	w->spawn.argv = w->argv;
	w->spawn.bwrap = "/proc/self/fd/6";
	w->state = WAY_OUT_WAITS;
	return 0;
}

int way_out_start(struct way_out *w)
{
	pid_t pid = spawn_bwrap(&w->spawn);

	for (size_t i = 0; i < ARRAY_SIZE(w->spawn.fd); i++)
		close_fd(&w->spawn.fd[i]);
	if (pid < 0)
		return (int)pid;
	w->pid = pid;
	return 0;
}

static void lose(struct way_out *w, int error)
{
	w->state = WAY_OUT_LOST;
	w->serve_by = 0;
	w->error = error;
	close_fd(&w->control);
}

void way_out_socket(struct way_out *w, int which, int fd)
{
	const struct net_msg m = {.kind = NET_MSG_LISTEN};
	int r;

	if (w->state != WAY_OUT_WAITS || which < 0 || which > 1 || w->listening[which] >= 0) {
		(void)close(fd);
		return;
	}
	w->listening[which] = fd;
	if (w->listening[0] < 0 || w->listening[1] < 0)
		return;
	r = io_send_fds(w->control, &m, sizeof(m), w->listening, 2);
	/* They are the proxy's alone: when it ends nobody listens. */
	close_fd(&w->listening[0]);
	close_fd(&w->listening[1]);
	if (r < 0) {
		lose(w, -r);
		return;
	}
	w->state = WAY_OUT_ASKED;
	w->serve_by = io_now_ms() + SERVE_MS;
}

void way_out_check(struct way_out *w, long long now)
{
	if (w->serve_by && now >= w->serve_by)
		lose(w, ETIMEDOUT);
}

/* ---- what was asked ---- */

static struct run_asked *find(const struct way_out *w, const struct net_msg *m)
{
	for (size_t i = 0; i < w->nasked; i++) {
		struct run_asked *a = &w->asked[i];

		if (a->port == m->port && a->verdict == (enum net_verdict)m->verdict &&
		    !strcmp(a->host, m->host))
			return a;
	}
	return NULL;
}

static void keep_locked(struct way_out *w, const struct net_msg *m)
{
	const bool allowed = m->verdict == NET_OK;
	struct run_asked *a = find(w, m), *v;

	w->total += 1 + m->lost;
	if (a) {
		a->count++;
		return;
	}
	/* A command that asks for thousands of hosts does not fill our memory; nor does what it may do push out what
	 * it may not. */
	if (w->kept[allowed] == WAY_OUT_KEPT)
		return;
	v = realloc(w->asked, (w->nasked + 1) * sizeof(*v));
	if (!v)
		return;
	w->asked = v;
	w->kept[allowed]++;
	a = &v[w->nasked++];
	*a = (struct run_asked){
		.port = m->port, .verdict = (enum net_verdict)m->verdict, .count = 1};
	memcpy(a->host, m->host, sizeof(a->host) - 1);
}

/* rattan-net reads what is hostile, and people and models read this: it is a host in its one spelling, or none. */
static void check_host(struct net_msg *m)
{
	struct net_host h;

	m->host[sizeof(m->host) - 1] = 0;
	if (net_host_parse(m->host, strlen(m->host), &h) == 0 && !strcmp(h.text, m->host))
		return;
	m->host[0] = 0;
	m->port = 0;
}

static void take(struct way_out *w, struct net_msg *m)
{
	switch (m->kind) {
	case NET_MSG_READY:
		if (w->state == WAY_OUT_ASKED) {
			w->state = WAY_OUT_SERVED;
			w->serve_by = 0;
			w->was_served = true;
		}
		break;
	case NET_MSG_ASKED:
		check_host(m);
		if (m->verdict >= NET_VERDICT_COUNT)
			m->verdict = NET_BAD_REQUEST;
		(void)pthread_mutex_lock(w->lock);
		keep_locked(w, m);
		(void)pthread_mutex_unlock(w->lock);
		break;
	case NET_MSG_FAILED:
	default:
		lose(w, m->error > 0 ? m->error : EPROTO);
		break;
	}
}

/* false: nothing more for now, or ever. */
static bool read_one(struct way_out *w)
{
	struct net_msg m;
	struct stage3_msg spawning;
	ssize_t n = recv(w->control, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n == (ssize_t)sizeof(m)) {
		take(w, &m);
	} else if (n == (ssize_t)sizeof(spawning)) {
		/* Of the child, which did not come as far as to execute it (spawn.h). */
		memcpy(&spawning, &m, sizeof(spawning));
		lose(w, spawning.error > 0 ? spawning.error : EPROTO);
	} else {
		lose(w, 0);
	}
	return w->control >= 0;
}

void way_out_read(struct way_out *w)
{
	/* Not for ever: a command that asks and asks does not keep the run from its other work. */
	for (int i = 0; i < 64 && w->control >= 0 && read_one(w); i++)
		;
}

void way_out_end(struct way_out *w)
{
	while (w->control >= 0 && read_one(w))
		;
	close_fd(&w->control);
	close_fd(&w->listening[0]);
	close_fd(&w->listening[1]);
	if (w->pid <= 0)
		return;
	(void)kill(w->pid, SIGKILL);
	while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
		;
	w->pid = 0;
}

void way_out_release(struct way_out *w)
{
	way_out_end(w);
	for (size_t i = 0; i < ARRAY_SIZE(w->spawn.fd); i++)
		close_fd(&w->spawn.fd[i]);
	free(w->asked);
	w->asked = NULL;
}
