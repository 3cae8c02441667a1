/* The keeper: it starts the daemon, holds what the next one goes on with (fs/env/keeper.h), and starts that when
 * this one dies or is replaced. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/ctl/ctl_io.h"
#include "fs/env/daemon_internal.h"
#include "fs/env/env.h"
#include "fs/env/heal.h"
#include "fs/fuse/mount.h"

/* Daemons that die so soon after their start, so often in a row, are not helped by another. */
#define QUICK_MS  1000
#define QUICK_MAX 3
/* Where one cannot go on for a lack that may pass, others try, for so long. */
#define RETRY_MS  250
#define RETRY_MAX 40

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
	daemon_no_core(kp->state.own_ns);
	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	io_most_descriptors(); /* one for each command that runs */
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
		while (daemon_may_pass(r) && try_again(kp));
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
	if (r < 0 && daemon_run_file(kp->o->run_dir, "sock", sock, sizeof(sock)) == 0)
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
	while (r < 0 && again && daemon_may_pass(r) && try_again(kp));
	if (r < 0)
		return daemon_tell(&ready_fd, r, NULL, NULL, 0);
	*ret_forked = true;
	if (pid == 0) {
		(void)close(sv[0]);
		(void)close(pulse[0]);
		return daemon_begin(&(struct daemon_begin){.o = kp->o,
							   .mnt = kp->mnt,
							   .kept = &kp->link,
							   .sock = sv[1],
							   .pulse = pulse[1],
							   .ready_fd = ready_fd,
							   .own_ns = kp->state.own_ns,
							   .again = again,
							   .why = kp->why});
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
	if (daemon_run_file(o->run_dir, "sock", sock, sizeof(sock)) == 0)
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
		r = daemon_run_file(o->run_dir, "mnt", mnt, sizeof(mnt));
		return r < 0 ? r : keeper_again(o, mnt);
	}
	r = daemon_detach(o, &parent);
	if (parent)
		return 0;
	if (r == 0)
		r = daemon_run_file(o->run_dir, "mnt", mnt, sizeof(mnt));
	if (r == 0)
		r = daemon_alive(o->run_dir, &diag, &alive);
	if (r < 0)
		return daemon_tell(&ready_fd, r, &diag, NULL, 0);
	heal_dead(alive, mnt);
	/* Inherited by keeper and daemon: the lock belongs to the open file, not to a process. */
	return env_start(o, mnt, alive);
}
