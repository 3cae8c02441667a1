/* What the next host needs to find a session: a record that is locked as long as the bwrap outside lives. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/role_internal.h"
#include "runner/runner_internal.h"

#define RECORD ".session"
#define ALIVE  ".alive"
#define INNER  ".inner"
#define LOCK   ".lock"

#define END_MS 5000

/* "DIR/NAME.suffix"; owned, or NULL without memory. */
static char *path_of(const char *dir, const char *name, const char *suffix)
{
	char *path;

	return asprintf(&path, "%s/%s%s", dir, name, suffix) < 0 ? NULL : path;
}

static void remove_one(const char *dir, const char *name, const char *suffix,
		       int (*fn)(const char *path))
{
	cleanup_free char *path = path_of(dir, name, suffix);

	if (path)
		(void)fn(path);
}

void role_forget(const char *dir, const char *name)
{
	remove_one(dir, name, RECORD, unlink);
	remove_one(dir, name, ALIVE, unlink);
	remove_one(dir, name, INNER, unlink);
	remove_one(dir, name, ".stage", rmdir);
}

/* Does a process hold the FIFO's end to read? */
static bool lives(const char *dir, const char *name)
{
	cleanup_free char *path = path_of(dir, name, ALIVE);
	cleanup_fd int fd = path ? open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW) : -1;

	return fd >= 0;
}

static int read_inner(const char *dir, const char *name, struct role_inner *ret)
{
	cleanup_free char *path = path_of(dir, name, INNER);
	cleanup_buf struct buf b = {0};
	int pid, r = path ? io_read_file(AT_FDCWD, path, 256, &b) : -ENOMEM;

	if (r < 0)
		return r;
	if (!b.len || sscanf((char *)b.data, "%d %llu %39s", &pid, &ret->start, ret->boot) != 3)
		return -EBADMSG;
	ret->pid = pid;
	return 0;
}

/* 0, or -ETIMEDOUT. */
static int kill_and_wait(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	(void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
	return poll(&p, 1, END_MS) > 0 ? 0 : -ETIMEDOUT;
}

/* The bwrap outside is gone, and what was to end with it may have seen to it that it did not. */
static void end_left(const char *dir, const char *name)
{
	struct role_inner in;
	int pidfd;

	if (read_inner(dir, name, &in) < 0 || role_inner_open(&in, &pidfd) < 0)
		return;
	(void)!kill_and_wait(pidfd);
	(void)close(pidfd);
}

int role_record_inner(const char *dir, const char *name, pid_t outer)
{
	cleanup_free char *path = path_of(dir, name, INNER);
	cleanup_fd int fd = -1, pidfd = -1;
	struct role_inner in;
	char text[128];
	int n, r = path ? role_inner_of(outer, -1, &in, &pidfd) : -ENOMEM;

	if (r < 0)
		return r;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	n = snprintf(text, sizeof(text), "%d %llu %s\n", (int)in.pid, in.start, in.boot);
	return fd < 0 ? ret_nerrno() : io_write_full(fd, text, (size_t)n);
}

int role_end(const char *dir, const struct role_session *s, int pidfd)
{
	cleanup_fd int inner = -1;
	int r = 0;

	(void)!role_inner_of(s->pid, pidfd, NULL, &inner);
	if (inner >= 0)
		r = kill_and_wait(inner);
	if (kill_and_wait(pidfd) < 0)
		r = -ETIMEDOUT;
	if (r == 0)
		role_settle(dir, s->name);
	return r;
}

static int make_fifo(const char *dir, const char *name, struct role_record *r)
{
	cleanup_free char *path = path_of(dir, name, ALIVE);

	if (!path)
		return -ENOMEM;
	if (mkfifo(path, 0600) < 0)
		return ret_nerrno();
	r->both_fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (r->both_fd < 0)
		return ret_nerrno();
	r->read_fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	return r->read_fd < 0 ? ret_nerrno() : 0;
}

/* The lock of a name goes with its session: who has waited for one that is gone begins again. */
static int lock_name(const char *dir, const char *name, int flags, int *ret_fd)
{
	cleanup_free char *path = path_of(dir, name, LOCK);
	struct stat st;

	if (!path)
		return -ENOMEM;
	for (;;) {
		cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

		if (fd < 0)
			return ret_nerrno();
		if (flock(fd, LOCK_EX | LOCK_NB) < 0)
			return errno == EWOULDBLOCK ? -EBUSY : ret_nerrno();
		if (fstat(fd, &st) < 0)
			return ret_nerrno();
		if (st.st_nlink) {
			*ret_fd = steal_fd(&fd);
			return 0;
		}
	}
}

int role_record_make(const char *dir, const char *name, struct role_record *ret)
{
	int r;

	/* Who lists sessions has it for a moment. */
	for (int i = 0; (r = lock_name(dir, name, O_CREAT, &ret->lock_fd)) == -EBUSY; i++) {
		if (i >= 25 || lives(dir, name))
			break;
		(void)usleep(20000);
	}
	if (r < 0)
		return r;
	if (lives(dir, name))
		return -EBUSY;
	end_left(dir, name);
	role_forget(dir, name);
	r = make_fifo(dir, name, ret);
	return r;
}

void role_record_release(struct role_record *r)
{
	cleanup_fdp(&r->lock_fd);
	cleanup_fdp(&r->read_fd);
	cleanup_fdp(&r->both_fd);
	*r = (struct role_record){-1, -1, -1};
}

int role_record_write(const char *dir, const char *name)
{
	cleanup_free char *path = path_of(dir, name, RECORD);
	cleanup_fd int fd = -1;
	char text[32];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	if (!path)
		return -ENOMEM;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? ret_nerrno() : io_write_full(fd, text, (size_t)n);
}

int role_find(const char *dir, const char *name, struct role_session *ret, int *ret_pidfd)
{
	cleanup_free char *path = path_of(dir, name, RECORD);
	cleanup_buf struct buf b = {0};
	struct role_session s = {0};
	cleanup_fd int pidfd = -1;

	if (!path)
		return -ENOMEM;
	if (strlen(name) >= sizeof(s.name) || strchr(name, '/') || !lives(dir, name) ||
	    io_read_file(AT_FDCWD, path, 64, &b) < 0 || !b.len)
		return -ENOENT;
	s.pid = (pid_t)strtol((char *)b.data, NULL, 10);
	memcpy(s.name, name, strlen(name));
	pidfd = s.pid > 1 ? (int)syscall(SYS_pidfd_open, s.pid, 0) : -1;
	/* It lives still, so the number was its own all the time. */
	if (pidfd < 0 || !lives(dir, name))
		return -ENOENT;
	*ret = s;
	*ret_pidfd = steal_fd(&pidfd);
	return 0;
}

/* Not while another is being started under its name. */
void role_settle(const char *dir, const char *name)
{
	cleanup_fd int fd = -1;

	if (lock_name(dir, name, 0, &fd) < 0 || lives(dir, name))
		return;
	end_left(dir, name);
	role_forget(dir, name);
	remove_one(dir, name, LOCK, unlink);
}

/* "NAME.suffix": the name, in @ret. */
static bool named(const char *file, const char *suffix, char ret[static 65])
{
	size_t n = strlen(file), k = strlen(suffix);

	if (n <= k || n - k > 64 || strcmp(file + n - k, suffix) != 0)
		return false;
	memcpy(ret, file, n - k);
	ret[n - k] = 0;
	return true;
}

int role_list(const char *dir, int (*fn)(void *arg, const struct role_session *s), void *arg)
{
	cleanup_dir DIR *d = opendir(dir);
	const struct dirent *e;
	int r = 0;

	if (!d)
		return errno == ENOENT ? 0 : ret_nerrno();
	while (r == 0 && (e = readdir(d))) {
		struct role_session s;
		char name[65];
		int pidfd;

		/* What nobody uses goes; a session that is being started has its lock. */
		if (named(e->d_name, LOCK, name))
			role_settle(dir, name);
		if (!named(e->d_name, RECORD, name))
			continue;
		if (role_find(dir, name, &s, &pidfd) < 0) {
			role_settle(dir, name);
			continue;
		}
		(void)close(pidfd);
		r = fn(arg, &s);
	}
	return r;
}

/* ---- another command in it ---- */

/* Nothing that entering the namespaces gave us stays. */
static int drop_all(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{0}};

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return ret_nerrno();
	if (syscall(SYS_capset, &h, d) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return ret_nerrno();
	return 0;
}

static void __attribute__((noreturn)) attached(const char *const *argv, const char *const *env,
					       const char *cwd, const struct role_tty *tty)
{
	sigset_t none;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	/* As for the session's own command: what our caller ignores, as a shell does for what runs in its background, would not
	 * reach this one from the terminal of its own. */
	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (role_tty_enter(tty) < 0 || role_leave_keys() < 0)
		_exit(125);
	(void)syscall(SYS_close_range, 3, ~0u, 0); /* R3 */
	if (chdir(cwd) < 0 || drop_all() < 0)
		_exit(125);
	(void)execvpe(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
	_exit(errno == ENOENT ? 127 : 126);
}

int role_attach(const struct role_session *s, int outer_pidfd, const char *const *argv,
		const char *const *env, const char *cwd, struct diag *diag)
{
	struct role_tty tty = {-1, -1};
	cleanup_fd int pidfd = -1;
	int status, r = role_inner_of(s->pid, outer_pidfd, NULL, &pidfd);
	pid_t pid;

	if (r < 0)
		return diag_set(diag, -ESRCH, "the session '%s' has ended", s->name);
	for (int fd = 0; r == 0 && fd <= 2; fd++)
		r = run_check_stream(fd, diag);
	if (r < 0)
		return r;
	/* Before its namespaces: the terminal is the host's, as ours is. */
	r = role_tty_open(&tty);
	if (r < 0)
		return diag_set(diag, r, "no terminal: %s", err_text(r));
	/* What is in there is of the same user, and sees a process of ours until the command is executed: the caller's variables
	 * and memory are not for it. Its capabilities would keep them, and are given up before. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		r = ret_nerrno();
	if (r == 0 && setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC) < 0)
		r = diag_set(diag, ret_nerrno(), "the session '%s' cannot be entered: %s", s->name,
			     err_text(errno));
	pid = r < 0 ? -1 : fork();
	if (pid == 0)
		attached(argv, env, cwd, &tty);
	if (r == 0)
		r = pid < 0 ? ret_nerrno() : role_tty_relay(&tty, pid, &status);
	cleanup_fdp(&tty.master);
	cleanup_fdp(&tty.slave);
	if (r < 0)
		return r;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
