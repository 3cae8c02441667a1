/*
 * rattan-stage3: the inner end of the sandbox. Started by bwrap as pid 1 with the descriptors of
 * stage3_abi.h; takes no arguments, reads no environment, needs no library of the tree.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stage3/init.h"
#include "stage3/limits.h"
#include "stage3/listen.h"
#include "stage3/plan.h"
#include "stage3/root.h"
#include "stage3/status.h"
#include "stage3/steps.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* The holes of a Landlock ruleset, and directories within directories to the depth that it goes. */
#define CHILD_STACK (512u << 10)

static void *pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* The sandbox was built before its command was known. Without a runner there is nothing to wait for. */
static int plan_await(void)
{
	struct stage3_msg m;
	int fd, r = status_receive_fd(&m, &fd);

	if (r < 0)
		return r;
	if (m.kind != STAGE3_MSG_PLAN || fd < 0)
		return -ECANCELED;
	if (fd == STAGE3_FD_PLAN)
		return 0;
	r = dup3(fd, STAGE3_FD_PLAN, O_CLOEXEC) < 0 ? -errno : 0;
	(void)close(fd);
	return r;
}

/* The plan lies in a sealed memfd: nobody can change it after it was checked, or cut it short. */
static int plan_load(struct plan *ret, const char ***ret_spare)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	size_t need, n;
	struct stat st;
	char **room;
	void *p;
	int have, r;

	have = fcntl(STAGE3_FD_PLAN, F_GET_SEALS);
	if (have < 0 || fstat(STAGE3_FD_PLAN, &st) < 0)
		return -errno;
	if ((have & seals) != seals || st.st_size <= 0 || st.st_size > STAGE3_PLAN_MAX)
		return -EBADMSG;
	n = (size_t)st.st_size;
	p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, STAGE3_FD_PLAN, 0);
	if (p == MAP_FAILED)
		return -errno;
	r = plan_pointers(p, n, &need);
	if (r < 0)
		return r;
	/* The pointers, and as many again for a shell's arguments: the last that is allocated. */
	room = pages((2 * need + 8) * sizeof(*room));
	if (!room)
		return -ENOMEM;
	*ret_spare = (const char **)(uintptr_t)(room + need);
	return plan_decode(p, n, room, need, ret);
}

static int init_prepare(const struct plan *plan)
{
	struct stage3_msg hello = {.kind = STAGE3_MSG_HELLO};
	int fd, r;

	/* As anything but a PID namespace's init we could neither kill all nor only the sandbox. */
	if (getpid() != 1)
		return -EPERM;
	if (fcntl(STAGE3_FD_STATUS, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	/* For the command, which inherits it. Afterwards our /proc files are no longer ours. */
	r = limits_oom(plan);
	if (r < 0)
		return r;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (fd < 0)
		return -errno;
	r = status_send_fd(&hello, fd);
	(void)close(fd);
	return r;
}

static int child_main(void *arg)
{
	_exit(steps_run(arg));
}

/* As vfork does it, on a stack of the child's own: init sleeps until the child's exec, and no page
 * tables are copied, which costs as much as all the steps together. The memory is shared, and with it
 * that init is not dumpable; descriptors, credentials, limits and signals are the child's own. */
static pid_t child_start(struct steps *s)
{
	char *stack = pages(CHILD_STACK);
	pid_t pid;

	if (!stack)
		return -ENOMEM;
	pid = clone(child_main, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, s);
	if (pid < 0)
		return -errno;
	(void)munmap(stack, CHILD_STACK);
	return pid;
}

/* A session that outlives whoever started it must not outlive the bwrap outside. That bwrap may have died
 * before the call that ties us to it, of which a parent in another PID namespace shows no trace: then nobody
 * holds the other end of the pipe. */
static int alone_prepare(void)
{
	struct pollfd p = {.fd = STAGE3_FD_LIFE};

	if (getpid() != 1)
		return -EPERM;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	(void)close(STAGE3_FD_LIFE_HELD); /* bwrap may have done so */
	if (poll(&p, 1, 0) < 0)
		return -errno;
	return p.revents & (POLLHUP | POLLERR | POLLNVAL) ? -ECANCELED : 0;
}

static int fail(enum stage3_step step, int error)
{
	status_failed(step, error);
	return STAGE3_EXIT_FAILED;
}

int main(void)
{
	static const int streams[] = {STDIN_FILENO, STDOUT_FILENO, STAGE3_FD_STDERR};
	struct plan plan;
	size_t i;
	struct steps steps = {.plan = &plan, .root_fd = -1};
	sigset_t all;
	const char **spare = NULL;
	int r, tty_fd = -1, root_fd = -1, child_fd;
	pid_t pid;

	(void)sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
		return fail(STAGE3_STEP_INIT, errno);
	r = fcntl(STAGE3_FD_PLAN, F_GETFD) < 0 ? plan_await() : 0;
	if (r == 0)
		r = plan_load(&plan, &spare);
	if (r < 0)
		return fail(STAGE3_STEP_PLAN, r);
	steps.sh_argv = spare;
	r = plan.flags & STAGE3_PLAN_PID1 ? alone_prepare() : init_prepare(&plan);
	if (r < 0)
		return fail(STAGE3_STEP_INIT, r);
	if (plan.flags & STAGE3_PLAN_PID1)
		return steps_run(&steps);
	if (plan.flags & STAGE3_PLAN_LISTEN) {
		r = listen_offer();
		if (r < 0)
			return fail(STAGE3_STEP_NETWORK, r);
		steps.done |= 1u << STAGE3_STEP_NETWORK;
	}
	if (plan.flags & STAGE3_PLAN_ROOT) {
		r = root_pair(&child_fd, &root_fd);
		if (r < 0)
			return fail(STAGE3_STEP_ROOT, r);
		steps.root_fd = child_fd;
	}
	pid = child_start(&steps);
	if (pid < 0)
		return fail(STAGE3_STEP_INIT, pid);
	if (root_fd >= 0) {
		(void)close(child_fd);
		root_fd = root_take(root_fd);
	}

	/* Init holds no stream of the command's but its terminal: a reader sees the end when the command closes. */
	for (i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		if (plan.flags & STAGE3_PLAN_TTY && tty_fd < 0 && tcgetpgrp(streams[i]) >= 0)
			tty_fd = streams[i];
		else
			(void)close(streams[i]);
	}
	(void)close(STDERR_FILENO);
	(void)close(STAGE3_FD_PLAN);
	(void)close(STAGE3_FD_SELF);
	_exit(init_run(pid, tty_fd, plan.flags & STAGE3_PLAN_LINGER, plan.flags & STAGE3_PLAN_NOTE,
		       root_fd));
}
