#include "runner/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fuseabort.h"

#define FD_ABOVE   64          /* above all targets */
#define STACK_SIZE (64u << 10) /* of the child until its exec */

/* The thread sanitizer keeps its books in the memory of the thread that a vforked child would borrow. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define START_BY_FORK 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define START_BY_FORK 1
#endif

struct moved {
	int fd[STAGE3_FD_COUNT], userns_fd, mntns_fd, cgroup_fd;
};

static void __attribute__((noreturn)) fail(int status_fd, uint32_t step)
{
	struct stage3_msg m = {.kind = STAGE3_MSG_FAILED, .step = step, .error = errno};
	ssize_t n = write(status_fd, &m, sizeof(m));

	(void)n; /* when nobody listens there is nobody to tell */
	_exit(STAGE3_EXIT_FAILED);
}

static int move_up(int fd, int *ret)
{
	*ret = -1;
	if (fd < 0)
		return 0;
	*ret = fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE);
	return *ret < 0 ? -1 : 0;
}

/* Sources may lie where targets go: first out of the way, then into place. */
static int arrange(const struct spawn *s, struct moved *m)
{
	int i;

	for (i = 0; i < STAGE3_FD_COUNT; i++) {
		if (move_up(s->fd[i], &m->fd[i]) < 0)
			return -1;
	}
	if (move_up(s->userns_fd, &m->userns_fd) < 0 || move_up(s->mntns_fd, &m->mntns_fd) < 0 ||
	    move_up(s->cgroup_fd, &m->cgroup_fd) < 0)
		return -1;
	for (i = 0; i < STAGE3_FD_COUNT; i++) {
		if (m->fd[i] < 0)
			(void)close(i);
		else if (dup2(m->fd[i], i) < 0)
			return -1;
	}
	return 0;
}

/* R3. */
static void close_rest(void)
{
	struct rlimit rl;
	int fd;

	if (syscall(SYS_close_range, STAGE3_FD_COUNT, ~0u, 0) == 0)
		return;
	/* Linux before 5.9 */
	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur > 1 << 20)
		rl.rlim_cur = 1 << 20;
	for (fd = STAGE3_FD_COUNT; fd < (int)rl.rlim_cur; fd++)
		(void)close(fd);
}

static void default_signals(void)
{
	sigset_t none;
	int sig;

	for (sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL); /* fails for KILL, STOP and libc's own; no matter */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

struct start {
	const struct spawn *spawn;
	pid_t parent;
};

/* Between clone and exec in a process with threads, on its memory: only what is async-signal-safe, and
 * nothing that leaves a trace. Descriptors, credentials, namespaces and signals are the child's own. */
static int child(void *arg)
{
	const struct start *at = arg;
	const struct spawn *s = at->spawn;
	char *const env[] = {NULL};
	struct moved m;

	if (arrange(s, &m) < 0)
		fail(s->fd[STAGE3_FD_STATUS], SPAWN_FDS);
	if (s->tty_at >= 0 && (setsid() < 0 || ioctl(s->tty_at, TIOCSCTTY, 0) < 0))
		fail(STAGE3_FD_STATUS, SPAWN_FDS);
	if (m.cgroup_fd >= 0 && write(m.cgroup_fd, "0", 1) != 1)
		fail(STAGE3_FD_STATUS, SPAWN_CGROUP);
	if (m.userns_fd >= 0 && setns(m.userns_fd, CLONE_NEWUSER) < 0)
		fail(STAGE3_FD_STATUS, SPAWN_USERNS);
	if (m.mntns_fd >= 0 && setns(m.mntns_fd, CLONE_NEWNS) < 0)
		fail(STAGE3_FD_STATUS, SPAWN_MNTNS);
	close_rest();
	/* R4. After setns, which clears it. The parent may have died before the call. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		fail(STAGE3_FD_STATUS, SPAWN_LIFETIME);
	if (getppid() != at->parent) {
		errno = ECANCELED;
		fail(STAGE3_FD_STATUS, SPAWN_LIFETIME);
	}
	default_signals();
	if (chdir("/") < 0)
		fail(STAGE3_FD_STATUS, SPAWN_MNTNS);
	(void)execve(s->bwrap, s->argv, env);
	fail(STAGE3_FD_STATUS, SPAWN_BWRAP);
}

void spawn_init(struct spawn *s)
{
	size_t i;

	*s = (struct spawn){.userns_fd = -1, .mntns_fd = -1, .tty_at = -1, .cgroup_fd = -1};
	for (i = 0; i < ARRAY_SIZE(s->fd); i++)
		s->fd[i] = -1;
}

/* As vfork does it, but on a stack of the child's own: copying the page tables of a server and the pages
 * that both sides then touch costs several times as much as the rest of the start. All signals are
 * blocked until the child has taken the handlers away, so that none of them runs on our memory. */
pid_t spawn_bwrap(const struct spawn *s)
{
	struct start at = {.spawn = s, .parent = getpid()};
	sigset_t all, old;
	char *stack;
	int pid;

	stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return ret_nerrno();
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
#ifdef START_BY_FORK
	pid = fork();
	if (pid == 0)
		_exit(child(&at));
#else
	pid = clone(child, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD, &at);
#endif
	if (pid < 0)
		pid = ret_nerrno();
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)munmap(stack, STACK_SIZE);
	return pid;
}

void spawn_abort_tree(int userns_fd, int mntns_fd, const char *root)
{
	/* Not fork(): a thread that a sanitizer starts in the child would forbid setns(2). */
	pid_t pid = _Fork();

	if (pid == 0) {
		if (setns(userns_fd, CLONE_NEWUSER) == 0 && setns(mntns_fd, CLONE_NEWNS) == 0)
			fuse_abort(root);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}
