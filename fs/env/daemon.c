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
#include "fs/env/heal.h"
#include "fs/env/mend.h"
#include "fs/env/pulse.h"
#include "fs/fuse/mount.h"

#define IDLE_S  600
#define LOG_MAX (1 << 20)

/* Daemons that die so soon after their start, so often in a row, are not helped by another. */
#define QUICK_MS  1000
#define QUICK_MAX 3
/* Where one cannot go on for a lack that may pass, others try, for so long. */
#define RETRY_MS  250
#define RETRY_MAX 40

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

static void most_descriptors(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
}

int daemon_prepare(int *ret_signal_fd)
{
	sigset_t set;
	int fd;

	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	/* A limit of the size of files (ulimit -f) is a full disk, not an end. */
	(void)signal(SIGXFSZ, SIG_IGN);
	most_descriptors();
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
	cleanup_free char *real = NULL;
	cleanup_fd int fd = -1;
	char path[4096];
	int r = run_dir ? run_file(run_dir, "hostmount", path, sizeof(path)) : 0;

	if (!run_dir || r < 0)
		return r;
	if (!dir)
		return unlink(path) < 0 && errno != ENOENT ? ret_nerrno() : 0;
	real = realpath(dir, NULL);
	if (!real)
		return ret_nerrno();
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? ret_nerrno() : io_write_full(fd, real, strlen(real));
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
		r = run_file(run_dir, "sock", sock, sizeof(sock));
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

/* What the last daemon left is still with the keeper, and for a lack of memory or a disk that fails it must not be
 * given up at the first try. */
static bool may_pass(int r)
{
	return r == -ENOMEM || r == -EAGAIN || r == -EIO || r == -ENFILE || r == -EMFILE ||
	       r == -EBUSY || r == -ENOSPC || r == -EDQUOT;
}

static int serve_env(const struct env_opts *eo, struct loop *l, const char *run_dir, int *ready_fd)
{
	struct diag diag = {0};
	int r, k;

	mend_init(&l->mend, eo->kept);
	r = env_open(eo, &diag, &l->env);
	if (r < 0 && eo->kept && may_pass(r)) {
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

/* ---- keeper and daemon ---- */

struct keeping {
	const struct daemon_opts *o;
	const char *mnt;
	char exe[4096]; /* where this program is, or a newer build of it by now */
	struct keeper_link link;
	struct keeper_state state;
	const struct diag *why; /* no namespace: its text is not empty */
};

/* Where it was when it was started: there the next build will be. */
static int find_self(char *ret, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", ret, size - 1);

	if (n < 0)
		return ret_nerrno();
	ret[n] = 0;
	return 0;
}

static int take_fd(struct keeper_link *k, enum keeper_kind kind)
{
	struct keeper_item *x = keeper_find(k, kind);
	int fd = x ? x->fd : -1;

	if (x)
		x->fd = -1;
	return fd;
}

/* No core file with file contents in it; a limit of one byte is also no program to which it would be given (core(5)).
 * Nor a look into this process by others of our user id: from within a namespace of ours nobody can, and who owns it
 * may have to enter it (fs/env/heal.h). */
static void no_core(bool own_ns)
{
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){.rlim_cur = 1, .rlim_max = 1});
	if (!own_ns)
		(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* @kept: this process's copy of what the keeper holds. @again: it holds a dead daemon's mount. */
static int be_daemon(const struct keeping *kp, struct keeper_link *kept, int sock, int pulse,
		     bool again, int ready_fd)
{
	const struct daemon_opts *o = kp->o;
	cleanup_fd int signal_fd = -1;
	struct loop l = {.keeper_sock = sock, .listen_fd = -1, .idle_ms = idle_limit()};
	struct env_opts eo = {.mount_root = kp->mnt, .own_ns = kp->state.own_ns};
	struct diag diag = {0};
	int r = daemon_prepare(&signal_fd);

	if (r < 0 && again && may_pass(r))
		_exit(KEEPER_RETRY);
	if (r < 0)
		return daemon_tell(&ready_fd, r, NULL, NULL, 0);
	no_core(kp->state.own_ns);
	r = pulse_start(pulse);
	if (r < 0)
		log_warn("the keeper will see this process's end late: %s", err_text(r));
	fill_env_opts(o, &eo);
	keeper_link_init(&eo.link, sock, kept->helper);
	/* Always: a single mapped id cannot show others (fs/fuse/session.h). 0 in a namespace of our
	 * own. */
	eo.ids = daemon_host_ids(&(struct daemon_opts){.stored_ids = false});
	eo.tied_fd = take_fd(kept, KEEP_TIED);
	eo.kept = again ? kept : NULL;
	l.listen_fd = take_fd(kept, KEEP_LISTEN);
	l.signal_fd = signal_fd;
	/* The keeper's end of what says that it lives; the lock stays with both. */
	(void)close(take_fd(kept, KEEP_TIE));
	(void)take_fd(kept, KEEP_ALIVE);
	if (!kp->why->text[0])
		return serve_env(&eo, &l, o->run_dir, &ready_fd);
	log_warn("%s; mounting on the host instead", kp->why->text);
	r = env_open(&eo, &diag, &l.env);
	if (r < 0) /* without a namespace: that is the cause to tell */
		return daemon_tell(&ready_fd, r, r == -ENOENT || r == -EEXIST ? &diag : kp->why,
				   NULL, 0);
	r = serve(&l, o->run_dir, &ready_fd);
	return env_close(l.env) < 0 ? -EIO : r;
}

/* This process becomes a keeper anew, of the build that is installed now, with the same namespaces and
 * descriptors. Returns only when that fails. */
static int exec_again(struct keeping *kp)
{
	char number[16], *argv[] = {kp->exe,
				    (char *)(uintptr_t) "env",
				    (char *)(uintptr_t) "--data-dir",
				    (char *)(uintptr_t)kp->o->data_dir,
				    (char *)(uintptr_t) "--run-dir",
				    (char *)(uintptr_t)kp->o->run_dir,
				    (char *)(uintptr_t) "--env",
				    (char *)(uintptr_t)kp->o->env,
				    (char *)(uintptr_t) "--takeover",
				    number,
				    NULL};
	int fd, r = keeper_save(&kp->link, &kp->state, &fd);

	if (r < 0)
		return r;
	(void)snprintf(number, sizeof(number), "%d", fd);
	(void)execv(kp->exe, argv);
	return ret_nerrno();
}

static void tell_end(const struct keeping *kp, enum keeper_end end, int status)
{
	const char *next =
		end == KEEPER_DIED ? "another goes on" : "the next client starts another";

	if (WIFSIGNALED(status))
		log_error("the daemon was killed by signal %d (%s); %s", WTERMSIG(status),
			  sigdescr_np(WTERMSIG(status)), next);
	else if (WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_REPLACE)
		log_info("the daemon is replaced by %s", kp->exe);
	else if (WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_RETRY)
		log_info("this daemon could not go on; %s", next);
	else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		log_error("the daemon ended with status %#x; %s", (unsigned)status, next);
}

static void nap(void)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
}

/* A moment later; false: it has been tried for long enough. */
static bool try_again(struct keeping *kp)
{
	if (++kp->state.tries >= RETRY_MAX)
		return false;
	nap();
	return true;
}

/* The daemon's life, and what comes after it. */
static int keep(struct keeping *kp, pid_t pid, int pulse)
{
	long long start = io_now_ms();
	char sock[4096];
	int status, r = 0;
	enum keeper_end end;

	(void)prctl(PR_SET_NAME, "rattan-keeper", 0, 0, 0);
	no_core(kp->state.own_ns);
	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	most_descriptors(); /* one for each command that runs */
	end = keeper_run(&kp->link, pulse, pid, kp->state.old_pid, &status);
	tell_end(kp, end, status);
	if (WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_RETRY) {
		kp->state.tries++;
		nap();
	} else {
		kp->state.tries = 0;
		kp->state.quick = io_now_ms() - start < QUICK_MS ? kp->state.quick + 1 : 0;
	}
	kp->state.old_pid = pid;
	if (end == KEEPER_DIED && kp->state.quick < QUICK_MAX && kp->state.tries < RETRY_MAX) {
		(void)close(kp->link.sock);
		(void)close(pulse);
		do
			r = exec_again(kp);
		while (may_pass(r) && try_again(kp));
		log_error("cannot start %s again: %s", kp->exe, err_text(r));
	} else if (end == KEEPER_DIED && kp->state.quick < QUICK_MAX) {
		log_error("no daemon could go on within %d s; its mounts are given up",
			  RETRY_MS * RETRY_MAX / 1000);
		r = -EIO;
	} else if (end == KEEPER_DIED) {
		log_error("the daemon died %u times in a row; its mounts are given up",
			  kp->state.quick);
		r = -EIO;
	} else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		r = -EIO;
	}
	/* While the lock is held: afterwards it may be another daemon's. */
	if (r < 0 && run_file(kp->o->run_dir, "sock", sock, sizeof(sock)) == 0)
		(void)unlink(sock);
	keeper_give_up(&kp->link);
	return r;
}

/* *ret_pid is 0 in the daemon. */
static int fork_daemon(int sv[static 2], int pulse[static 2], pid_t *ret_pid)
{
	int all[4], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return ret_nerrno();
	r = pipe2(pulse, O_CLOEXEC) < 0 ? ret_nerrno() : 0;
	if (r < 0) {
		(void)close(sv[0]);
		(void)close(sv[1]);
		return r;
	}
	*ret_pid = fork();
	if (*ret_pid >= 0)
		return 0;
	r = ret_nerrno();
	memcpy(all, sv, 2 * sizeof(int));
	memcpy(all + 2, pulse, 2 * sizeof(int));
	ctl_close_fds(all, ARRAY_SIZE(all));
	return r;
}

/* Fork the daemon of a keeper whose link is filled. */
static int start_daemon(struct keeping *kp, bool again, int ready_fd, bool *ret_forked)
{
	const struct keeper_item *alive = keeper_find(&kp->link, KEEP_ALIVE);
	int sv[2], pulse[2], r;
	pid_t pid = -1;

	do
		r = fork_daemon(sv, pulse, &pid);
	while (r < 0 && again && may_pass(r) && try_again(kp));
	if (r < 0)
		return daemon_tell(&ready_fd, r, NULL, NULL, 0);
	*ret_forked = true;
	if (pid == 0) {
		(void)close(sv[0]);
		(void)close(pulse[0]);
		return be_daemon(kp, &kp->link, sv[1], pulse[1], again, ready_fd);
	}
	if (alive)
		heal_note(alive->fd, (pid_t[]){getpid(), pid, kp->state.old_pid}, 3);
	(void)close(sv[1]);
	(void)close(pulse[1]);
	if (ready_fd >= 0)
		(void)close(ready_fd);
	kp->link.sock = sv[0];
	return keep(kp, pid, pulse[0]);
}

static int be_keeper(const struct daemon_opts *o, const char *mnt, int alive, bool own_ns,
		     const struct diag *why)
{
	struct keeping kp = {.o = o, .mnt = mnt, .why = why, .state = {.own_ns = own_ns}};
	int ready_fd = o->ready_fd, tie[2], r;
	bool forked = false;

	keeper_link_init(&kp.link, -1, !own_ns && geteuid() != 0);
	r = find_self(kp.exe, sizeof(kp.exe));
	if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, tie) < 0)
		r = ret_nerrno();
	if (r == 0)
		r = keeper_hold(&kp.link, KEEP_TIE, 0, NULL, 0, tie[0]);
	if (r == 0)
		r = keeper_hold(&kp.link, KEEP_TIED, 0, NULL, 0, tie[1]);
	if (r == 0)
		r = keeper_hold(&kp.link, KEEP_ALIVE, 0, NULL, 0, fcntl(alive, F_DUPFD_CLOEXEC, 3));
	if (r < 0)
		return daemon_tell(&ready_fd, r, NULL, NULL, 0);
	return start_daemon(&kp, false, ready_fd, &forked);
}

/* The daemon died, or asked for a successor; its keeper has become this process. */
static int keeper_again(const struct daemon_opts *o, const char *mnt)
{
	const struct diag none = {0};
	struct keeping kp = {.o = o, .mnt = mnt, .why = &none};
	char sock[4096];
	bool forked = false;
	int r = keeper_load(o->takeover_fd, &kp.link, &kp.state);

	if (r == 0)
		r = find_self(kp.exe, sizeof(kp.exe));
	if (r == 0) {
		keeper_end_strays(&kp.link);
		r = start_daemon(&kp, true, -1, &forked);
		if (forked)
			return r;
	}
	log_error("cannot go on with what the last rattan-fs left: %s", err_text(r));
	if (run_file(o->run_dir, "sock", sock, sizeof(sock)) == 0)
		(void)unlink(sock);
	keeper_give_up(&kp.link);
	return r;
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

static int env_start(const struct daemon_opts *o, const char *mnt, int alive)
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
		return be_keeper(o, mnt, alive, true, &why);
	if (!why.text[0]) {
		/* In the foreground there is something to wait for. */
		if (ready_fd >= 0)
			(void)close(steal_fd(&ready_fd));
		while (o->foreground && (waitpid(-1, NULL, 0) > 0 || errno == EINTR))
			;
		return 0;
	}
	return be_keeper(o, mnt, alive, false, &why);
}

int daemon_env(const struct daemon_opts *o)
{
	cleanup_fd int alive = -1;
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r;
	char mnt[4096];
	bool parent;

	if (o->takeover_fd >= 0) {
		r = run_file(o->run_dir, "mnt", mnt, sizeof(mnt));
		return r < 0 ? r : keeper_again(o, mnt);
	}
	r = daemon_detach(o, &parent);
	if (parent)
		return 0;
	if (r == 0)
		r = run_file(o->run_dir, "mnt", mnt, sizeof(mnt));
	if (r == 0)
		r = daemon_alive(o->run_dir, &diag, &alive);
	if (r < 0)
		return daemon_tell(&ready_fd, r, &diag, NULL, 0);
	heal_dead(alive, mnt);
	/* Inherited by keeper and daemon: the lock belongs to the open file, not to a process. */
	return env_start(o, mnt, alive);
}
