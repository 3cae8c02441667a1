/* Serving an environment until something ends it: what a daemon does from its start. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/ctl/ctl_io.h"
#include "fs/ctl/ctl_server.h"
#include "fs/env/daemon_internal.h"
#include "fs/env/env.h"
#include "fs/env/mend.h"
#include "fs/env/pulse.h"

#define IDLE_S  600
#define LOG_MAX (1 << 20)

struct loop {
	struct env *env;
	struct ctl_server *server;  /* NULL: no socket */
	int signal_fd, keeper_sock; /* -1: none */
	int listen_fd;              /* from the last daemon; -1: none */
	int mounts_fd;     /* POLLPRI when the table of mounts changed; -1: cannot be known */
	bool look;         /* whether ours is still there */
	long long idle_ms; /* 0: never */
	long long idle_since;
	struct mend mend;
	bool replace; /* by another one, that goes on with what the journal has */
};

#define LOOK_MS 50

static long long idle_limit(void)
{
	return env_setting("RATTAN_IDLE_S", IDLE_S, 100000000) * 1000LL;
}

static void bound_log(void)
{
	struct stat st;

	/* Opened for appending, so that what follows starts at the front. */
	if (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > LOG_MAX)
		(void)!ftruncate(STDERR_FILENO, 0);
}

/* How long to sleep; 0: unused for long enough. */
static int time_left(struct loop *l)
{
	long long now = io_now_ms(), left;
	int most = env_prune(l->env) ? 1000 : 60000;

	if (l->look)
		most = LOOK_MS;
	most = mend_wait(&l->mend, most);
	if (!l->idle_ms || !l->server)
		return most;
	if (ctl_server_connections(l->server) || env_leases(l->env)) {
		l->idle_since = now;
		return most;
	}
	left = l->idle_since + l->idle_ms - now;
	return left <= 0 ? 0 : left > most ? most : (int)left;
}

/* False when it is time to end. */
static bool loop_once(struct loop *l)
{
	enum {
		SIG,
		KEEPER,
		LISTEN,
		EVENT,
		ENDED,
		MOUNTS,
		BROKEN,
		N
	};
	struct pollfd p[N] = {
		[SIG] = {.fd = l->signal_fd, .events = POLLIN},
		[KEEPER] = {.fd = l->keeper_sock, .events = POLLRDHUP},
		[LISTEN] = {.fd = l->server ? ctl_server_fd(l->server) : -1, .events = POLLIN},
		[EVENT] = {.fd = l->server ? ctl_server_event_fd(l->server) : -1, .events = POLLIN},
		[ENDED] = {.fd = env_ended_fd(l->env), .events = POLLIN},
		[MOUNTS] = {.fd = l->mounts_fd, .events = POLLPRI},
		[BROKEN] = {.fd = mend_fd(&l->mend, l->env), .events = POLLIN},
	};
	int timeout = time_left(l);

	if (timeout == 0) {
		log_info("unused for %lld s", l->idle_ms / 1000);
		return false;
	}
	if (poll(p, N, timeout) < 0 && errno != EINTR)
		return false;
	bound_log();
	if (p[SIG].revents)
		return false;
	if (p[KEEPER].revents & (POLLRDHUP | POLLHUP | POLLERR)) {
		log_error("the keeper process ended");
		return false;
	}
	l->look |= p[MOUNTS].revents != 0;
	if (p[ENDED].revents || (l->look && env_detached(l->env, &l->look))) {
		log_warn("the mount was taken away");
		env_tell_gone(l->env);
		return false;
	}
	if (p[LISTEN].revents)
		ctl_server_accept(l->server);
	if (p[EVENT].revents && ctl_server_event(l->server))
		return false;
	if (p[BROKEN].revents)
		mend_broken(&l->mend, l->env);
	l->replace = mend_due(&l->mend, l->env);
	return !l->replace;
}

/* The socket, the answer to the starter, and service until something ends it. */
static int serve(struct loop *l, const char *run_dir, int *ready_fd)
{
	struct diag diag = {0};
	char sock[4096];
	int fd = -1, r = 0;

	if (run_dir) {
		r = daemon_run_file(run_dir, "sock", sock, sizeof(sock));
		fd = l->listen_fd;
		/* One that was killed in its orderly end has taken the name away already: nobody
		 * would find what the keeper held. */
		if (r == 0 && fd >= 0 && access(sock, F_OK) < 0) {
			(void)close(fd);
			fd = -1;
		}
		if (r == 0 && fd < 0)
			r = ctl_sock_listen(sock, &fd);
		if (r == 0) {
			env_keep_listen(l->env, fd);
			r = ctl_server_new(l->env, fd, &l->server);
		}
		if (r < 0)
			diag_set(&diag, r, "cannot listen in %s: %s", run_dir, err_text(r));
	}
	(void)daemon_tell(ready_fd, r, &diag, NULL, 0);
	l->idle_since = io_now_ms();
	l->mounts_fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
	while (r == 0 && loop_once(l))
		;
	cleanup_fdp(&l->mounts_fd);
	/* Like a crash: what is not flushed is in the journal, and what the kernel asked meanwhile it asks
	 * again. */
	if (r == 0 && l->server && (l->replace || ctl_server_replace(l->server)))
		_exit(KEEPER_REPLACE);
	/* Nobody new comes in; those who are here finish or see the end. */
	if (run_dir && r == 0)
		(void)unlink(sock);
	ctl_server_free(l->server);
	return r;
}

static int serve_env(const struct env_opts *eo, struct loop *l, const char *run_dir, int *ready_fd)
{
	struct diag diag = {0};
	int r, k;

	mend_init(&l->mend, eo->kept);
	r = env_open(eo, &diag, &l->env);
	if (r < 0 && eo->kept && daemon_may_pass(r)) {
		(void)daemon_tell(ready_fd, r, &diag, NULL, 0);
		_exit(KEEPER_RETRY);
	}
	if (r < 0)
		return daemon_tell(ready_fd, r, &diag, NULL, 0);
	r = serve(l, run_dir, ready_fd);
	k = env_close(l->env);
	if (k < 0)
		log_error("the last flush failed: %s", err_text(k));
	return r < 0 ? r : k;
}

static void fill_env_opts(const struct daemon_opts *o, struct env_opts *eo)
{
	eo->data_dir = o->data_dir;
	eo->name = o->env;
	eo->base = o->base;
	eo->create = o->create;
	eo->disk_max = o->disk_max;
	eo->overlays = (char *const *)(uintptr_t)o->overlays;
	eo->writable = o->has_writable ? (char *const *)(uintptr_t)o->writable : NULL;
}

int daemon_serve(const struct daemon_opts *o)
{
	cleanup_fd int alive = -1, signal_fd = -1;
	struct loop l = {.keeper_sock = -1, .listen_fd = -1};
	struct diag diag = {0};
	struct env_opts eo = {.host_dir = o->dir, .tied_fd = -1, .ids = daemon_host_ids(o)};
	char *const everything[] = {(char *)(uintptr_t) "/", NULL};
	int ready_fd = o->ready_fd, r;
	bool parent;

	r = daemon_detach(o, &parent);
	if (parent)
		return 0;
	if (r == 0)
		r = daemon_prepare(&signal_fd);
	if (r == 0 && o->run_dir)
		r = daemon_alive(o->run_dir, &diag, &alive);
	if (r == 0)
		r = daemon_note_mount(o->run_dir, o->dir);
	if (r < 0)
		return daemon_tell(&ready_fd, r, &diag, NULL, 0);
	fill_env_opts(o, &eo);
	if (!o->has_writable)
		eo.writable = everything;
	keeper_link_init(&eo.link, -1, geteuid() != 0);
	eo.allow_other = o->stored_ids && geteuid() == 0;
	l.signal_fd = signal_fd;
	r = serve_env(&eo, &l, o->run_dir, &ready_fd);
	(void)!daemon_note_mount(o->run_dir, NULL);
	return r;
}

static int take_fd(struct keeper_link *k, enum keeper_kind kind)
{
	struct keeper_item *x = keeper_find(k, kind);
	int fd = x ? x->fd : -1;

	if (x)
		x->fd = -1;
	return fd;
}

int daemon_begin(const struct daemon_begin *b)
{
	cleanup_fd int signal_fd = -1;
	struct loop l = {.keeper_sock = b->sock, .listen_fd = -1, .idle_ms = idle_limit()};
	struct env_opts eo = {.mount_root = b->mnt, .own_ns = b->own_ns};
	struct diag diag = {0};
	int ready_fd = b->ready_fd, r = daemon_prepare(&signal_fd);

	if (r < 0 && b->again && daemon_may_pass(r))
		_exit(KEEPER_RETRY);
	if (r < 0)
		return daemon_tell(&ready_fd, r, NULL, NULL, 0);
	daemon_no_core(b->own_ns);
	r = pulse_start(b->pulse);
	if (r < 0)
		log_warn("the keeper will see this process's end late: %s", err_text(r));
	fill_env_opts(b->o, &eo);
	keeper_link_init(&eo.link, b->sock, b->kept->helper);
	/* Always: a single mapped id cannot show others (fs/fuse/session.h). 0 in a namespace of our
	 * own. */
	eo.ids = daemon_host_ids(&(struct daemon_opts){.stored_ids = false});
	eo.tied_fd = take_fd(b->kept, KEEP_TIED);
	eo.kept = b->again ? b->kept : NULL;
	l.listen_fd = take_fd(b->kept, KEEP_LISTEN);
	l.signal_fd = signal_fd;
	/* The keeper's end of what says that it lives; the lock stays with both. */
	(void)close(take_fd(b->kept, KEEP_TIE));
	(void)take_fd(b->kept, KEEP_ALIVE);
	if (!b->why->text[0])
		return serve_env(&eo, &l, b->o->run_dir, &ready_fd);
	log_warn("%s; mounting on the host instead", b->why->text);
	r = env_open(&eo, &diag, &l.env);
	if (r < 0) /* without a namespace: that is the cause to tell */
		return daemon_tell(&ready_fd, r, r == -ENOENT || r == -EEXIST ? &diag : b->why,
				   NULL, 0);
	r = serve(&l, b->o->run_dir, &ready_fd);
	return env_close(l.env) < 0 ? -EIO : r;
}
