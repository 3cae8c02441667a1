#include "fs/env/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/ctl/ctl_io.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/ctl/ctl_server.h"
#include "fs/env/daemon_internal.h"
#include "fs/env/env.h"
#include "fs/env/pulse.h"
#include "fs/fuse/mount.h"

#define IDLE_S  600
#define LOG_MAX (1 << 20)

/* The id that agents have inside (docs/architecture.md): what the single mapped id is stored as. */
#define AGENT_ID 1000

/* ---- common to all modes ---- */

int daemon_tell(int *ready_fd, int r, const struct diag *d, const struct buf *items, uint32_t n)
{
	struct ctl_rep rp = {.id = 0, .err = r};
	cleanup_buf struct buf msg = {0};
	const char *text = d && d->text[0] ? d->text : err_text(r);

	if (r < 0) {
		memcpy(rp.text, text, strnlen(text, sizeof(rp.text) - 1));
		log_error("%s", rp.text);
	}
	if (*ready_fd >= 0) {
		/* A starter that is gone needs no answer. */
		if (ctl_rep_encode(&rp, items, n, &msg) == 0)
			(void)!io_write_full(*ready_fd, msg.data, msg.len);
		(void)close(steal_fd(ready_fd));
	}
	return r;
}

int daemon_prepare(int *ret_signal_fd)
{
	struct rlimit rl;
	sigset_t set;
	int fd;

	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	/* A limit of the size of files (ulimit -f) is a full disk, not an end. */
	(void)signal(SIGXFSZ, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return ret_nerrno();
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return ret_nerrno();
	*ret_signal_fd = fd;
	return 0;
}

int daemon_detach(const struct daemon_opts *o, bool *ret_parent)
{
	pid_t pid;

	*ret_parent = false;
	if (o->foreground)
		return 0;
	pid = fork();
	if (pid < 0)
		return ret_nerrno();
	*ret_parent = pid > 0;
	return 0;
}

static int run_file(const char *run_dir, const char *name, char *ret, size_t size)
{
	int n = snprintf(ret, size, "%s/%s", run_dir, name);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int daemon_alive(const char *run_dir, struct diag *diag, int *ret_fd)
{
	cleanup_fd int fd = -1;
	long long end = io_now_ms() + 30000;
	char path[4096];
	int r = run_file(run_dir, "alive", path, sizeof(path));

	if (r < 0)
		return r;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return diag_set(diag, ret_nerrno(), "cannot open %s: %s", path, err_text(errno));
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		const struct timespec ts = {.tv_nsec = 2000000};

		if (errno != EWOULDBLOCK && errno != EINTR)
			return ret_nerrno();
		if (io_now_ms() > end)
			return diag_set(
				diag, -EBUSY,
				"another rattan-fs runs at %s and does not end; only one can serve an environment",
				run_dir);
		(void)nanosleep(&ts, NULL);
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

int daemon_note_mount(const char *run_dir, const char *dir)
{
	cleanup_fd int fd = -1;
	char path[4096];
	int r = run_dir ? run_file(run_dir, "hostmount", path, sizeof(path)) : 0;

	if (!run_dir || r < 0)
		return r;
	if (!dir)
		return unlink(path) < 0 && errno != ENOENT ? ret_nerrno() : 0;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? ret_nerrno() : io_write_full(fd, dir, strlen(dir));
}

struct session_ids daemon_host_ids(const struct daemon_opts *o)
{
	if (o->stored_ids)
		return (struct session_ids){.squash = false};
	return (struct session_ids){.squash = true,
				    .show_uid = geteuid(),
				    .show_gid = getegid(),
				    .store_uid = AGENT_ID,
				    .store_gid = AGENT_ID};
}

/* ---- serving until the end ---- */

struct loop {
	struct env *env;
	struct ctl_server *server;  /* NULL: no socket */
	int signal_fd, keeper_sock; /* -1: none */
	long long idle_ms;          /* 0: never */
	long long idle_since;
};

static long long idle_limit(void)
{
	const char *s = getenv("RATTAN_IDLE_S");
	char *end;
	long v;

	if (!s || !*s)
		return IDLE_S * 1000LL;
	errno = 0;
	v = strtol(s, &end, 10);
	if (errno || *end || v < 0 || v > 100000000)
		return IDLE_S * 1000LL;
	return v * 1000LL;
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

	if (!l->idle_ms || !l->server)
		return 60000;
	if (ctl_server_connections(l->server) || env_leases(l->env)) {
		l->idle_since = now;
		return 60000;
	}
	left = l->idle_since + l->idle_ms - now;
	return left <= 0 ? 0 : left > 60000 ? 60000 : (int)left;
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
		N
	};
	struct pollfd p[N] = {
		[SIG] = {.fd = l->signal_fd, .events = POLLIN},
		[KEEPER] = {.fd = l->keeper_sock, .events = POLLRDHUP},
		[LISTEN] = {.fd = l->server ? ctl_server_fd(l->server) : -1, .events = POLLIN},
		[EVENT] = {.fd = l->server ? ctl_server_event_fd(l->server) : -1, .events = POLLIN},
		[ENDED] = {.fd = env_ended_fd(l->env), .events = POLLIN},
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
	if (p[ENDED].revents) {
		log_info("the mount was taken away");
		return false;
	}
	if (p[LISTEN].revents)
		ctl_server_accept(l->server);
	if (p[EVENT].revents && ctl_server_event(l->server))
		return false;
	return true;
}

/* The socket, the answer to the starter, and service until something ends it. */
static int serve(struct loop *l, const char *run_dir, int *ready_fd)
{
	struct diag diag = {0};
	char sock[4096];
	int fd = -1, r = 0;

	if (run_dir) {
		r = run_file(run_dir, "sock", sock, sizeof(sock));
		if (r == 0)
			r = ctl_sock_listen(sock, &fd);
		if (r == 0)
			r = ctl_server_new(l->env, fd, &l->server);
		if (r < 0)
			diag_set(&diag, r, "cannot listen in %s: %s", run_dir, err_text(r));
	}
	(void)daemon_tell(ready_fd, r, &diag, NULL, 0);
	l->idle_since = io_now_ms();
	while (r == 0 && loop_once(l))
		;
	/* Nobody new comes in; those who are here finish or see the end. */
	if (run_dir && r == 0)
		(void)unlink(sock);
	ctl_server_free(l->server);
	return r;
}

static int serve_env(const struct env_opts *eo, struct loop *l, const char *run_dir, int *ready_fd)
{
	struct diag diag = {0};
	int r = env_open(eo, &diag, &l->env), k;

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
	eo->overlays = (char *const *)(uintptr_t)o->overlays;
	eo->writable = o->has_writable ? (char *const *)(uintptr_t)o->writable : NULL;
}

int daemon_serve(const struct daemon_opts *o)
{
	cleanup_fd int alive = -1, signal_fd = -1;
	struct loop l = {.keeper_sock = -1};
	struct diag diag = {0};
	struct env_opts eo = {.host_dir = o->dir, .ids = daemon_host_ids(o)};
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

/* ---- keeper and daemon ---- */

static int be_daemon(const struct daemon_opts *o, const char *mnt, int sock, int pulse, bool helper,
		     bool own_ns, const struct diag *why, int ready_fd)
{
	cleanup_fd int signal_fd = -1;
	struct loop l = {.keeper_sock = sock, .idle_ms = idle_limit()};
	struct env_opts eo = {.mount_root = mnt, .own_ns = own_ns};
	struct diag diag = {0};
	int r = daemon_prepare(&signal_fd);

	if (r < 0)
		return daemon_tell(&ready_fd, r, NULL, NULL, 0);
	/* No core file with file contents in it, and no look into this process by others of our user
	 * id; its own /proc/self stays open to it. */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	r = pulse_start(pulse);
	if (r < 0)
		log_warn("the keeper will see this process's end late: %s", err_text(r));
	fill_env_opts(o, &eo);
	keeper_link_init(&eo.link, sock, helper);
	/* Always: a single mapped id cannot show others (fs/fuse/session.h). 0 in a namespace of our
	 * own. */
	eo.ids = daemon_host_ids(&(struct daemon_opts){.stored_ids = false});
	l.signal_fd = signal_fd;
	if (!why->text[0])
		return serve_env(&eo, &l, o->run_dir, &ready_fd);
	log_warn("%s; mounting on the host instead", why->text);
	r = env_open(&eo, &diag, &l.env);
	if (r < 0) /* without a namespace: that is the cause to tell */
		return daemon_tell(&ready_fd, r, r == -ENOENT || r == -EEXIST ? &diag : why, NULL,
				   0);
	r = serve(&l, o->run_dir, &ready_fd);
	return env_close(l.env) < 0 ? -EIO : r;
}

static int be_keeper(const struct daemon_opts *o, const char *mnt, bool own_ns,
		     const struct diag *why)
{
	bool helper = !own_ns && geteuid() != 0;
	int sv[2], pulse[2], ready_fd = o->ready_fd, status;
	char sock[4096];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0 ||
	    pipe2(pulse, O_CLOEXEC) < 0)
		return daemon_tell(&ready_fd, ret_nerrno(), NULL, NULL, 0);
	pid = fork();
	if (pid < 0)
		return daemon_tell(&ready_fd, ret_nerrno(), NULL, NULL, 0);
	if (pid == 0) {
		(void)close(sv[0]);
		(void)close(pulse[0]);
		return be_daemon(o, mnt, sv[1], pulse[1], helper, own_ns, why, ready_fd);
	}
	(void)close(sv[1]);
	(void)close(pulse[1]);
	if (ready_fd >= 0)
		(void)close(ready_fd);
	(void)prctl(PR_SET_NAME, "rattan-keeper", 0, 0, 0);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	status = keeper_run(sv[0], pulse[0], helper, pid);
	if (!WIFSIGNALED(status))
		return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
	log_error("the daemon was killed by signal %d (%s); the next client starts another",
		  WTERMSIG(status), sigdescr_np(WTERMSIG(status)));
	if (run_file(o->run_dir, "sock", sock, sizeof(sock)) == 0)
		(void)unlink(sock);
	return -EIO;
}

/* Entering the namespaces may fail half-way, so a child tries. 0: it is in and goes on as the keeper;
 * its parent gets the child's end of the story in @why, "" when it went well. */
static int enter_in_child(const char *mnt, struct diag *why, bool *ret_parent)
{
	cleanup_fd int rd = -1, wr = -1;
	int pipefd[2];
	pid_t pid;

	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return ret_nerrno();
	rd = pipefd[0];
	wr = pipefd[1];
	/* Not fork(): the thread that a sanitizer starts in the child would forbid unshare(2). */
	pid = _Fork();
	if (pid < 0)
		return ret_nerrno();
	*ret_parent = pid > 0;
	if (pid > 0) {
		(void)close(steal_fd(&wr));
		if (io_read_full(rd, why, sizeof(*why)) != (ssize_t)sizeof(*why))
			return diag_set(why, -EIO, "the keeper process died");
		why->text[sizeof(why->text) - 1] = 0;
		return 0;
	} else {
		struct diag d = {0};
		int r = mount_enter_ns(mnt, &d);

		if (r < 0)
			diag_set(&d, r, "cannot make a namespace for the mount: %s", err_text(r));
		r = io_write_full(wr, &d, sizeof(d));
		if (d.text[0] || r < 0)
			_exit(1);
		return 0;
	}
}

static int env_start(const struct daemon_opts *o, const char *mnt)
{
	struct diag why = {0};
	bool parent = false;
	int ready_fd = o->ready_fd, r;

	if (mkdir(mnt, 0700) < 0 && errno != EEXIST)
		return daemon_tell(&ready_fd, ret_nerrno(), NULL, NULL, 0);
	r = enter_in_child(mnt, &why, &parent);
	if (r < 0)
		return daemon_tell(&ready_fd, r, &why, NULL, 0);
	if (!parent)
		return be_keeper(o, mnt, true, &why);
	if (!why.text[0]) {
		/* In the foreground there is something to wait for. */
		if (ready_fd >= 0)
			(void)close(steal_fd(&ready_fd));
		while (o->foreground && (waitpid(-1, NULL, 0) > 0 || errno == EINTR))
			;
		return 0;
	}
	return be_keeper(o, mnt, false, &why);
}

int daemon_env(const struct daemon_opts *o)
{
	cleanup_fd int alive = -1;
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r;
	char mnt[4096];
	bool parent;

	r = daemon_detach(o, &parent);
	if (parent)
		return 0;
	if (r == 0)
		r = run_file(o->run_dir, "mnt", mnt, sizeof(mnt));
	if (r == 0)
		r = daemon_alive(o->run_dir, &diag, &alive);
	if (r < 0)
		return daemon_tell(&ready_fd, r, &diag, NULL, 0);
	/* Inherited by keeper and daemon: the lock belongs to the open file, not to a process. */
	return env_start(o, mnt);
}
