#include "stage3/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stage3/limits.h"
#include "stage3/note.h"
#include "stage3/root.h"
#include "stage3/seccomp.h"
#include "stage3/status.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static int step_stdio(struct steps *s)
{
	int fd;

	(void)s;
	if (dup2(STAGE3_FD_STDERR, STDERR_FILENO) < 0)
		return -errno;
	/* A stream that is missing would be taken by the next file that is opened. */
	for (fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			return -errno;
	}
	return 0;
}

static void close_from(unsigned first, unsigned last)
{
	struct rlimit rl;
	unsigned fd;

	if (syscall(SYS_close_range, first, last, 0) == 0)
		return;
	/* Linux before 5.9 */
	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur > 1 << 20)
		rl.rlim_cur = 1 << 20;
	for (fd = first; fd <= last && fd < rl.rlim_cur; fd++)
		(void)close((int)fd);
}

/* R3: nothing but the three streams, and the status descriptor until exec. */
static int step_fds(struct steps *s)
{
	close_from(3, STAGE3_FD_STATUS - 1);
	if (s->root_fd >= 0) {
		if (dup3(s->root_fd, STAGE3_FD_STATUS + 1, O_CLOEXEC) < 0)
			return -errno;
		s->root_fd = STAGE3_FD_STATUS + 1;
	}
	close_from(STAGE3_FD_STATUS + 1 + (s->root_fd >= 0), ~0u);
	return fcntl(STAGE3_FD_STATUS, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
}

/* With a terminal the command stays in the session that has it, as a job of its own: then a key meant for it does not reach
 * bwrap. Without one it gets a session of its own. */
static int step_session(struct steps *s)
{
	int fd;

	if (!(s->plan->flags & STAGE3_PLAN_TTY))
		return setsid() < 0 ? -errno : 0;
	if (setpgid(0, 0) < 0)
		return -errno;
	if (s->plan->flags & STAGE3_PLAN_TTY_BACK)
		return 0;
	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		/* SIGTTOU is blocked: the call would stop us otherwise. Of what is not our terminal it is an error. */
		if (tcsetpgrp(fd, getpid()) == 0)
			return 0;
	}
	return -ENOTTY;
}

/* A server ignores SIGPIPE and blocks what it likes; a command starts with everything as usual. */
static int step_signals(struct steps *s)
{
	sigset_t none;
	int sig;

	(void)s;
	for (sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL); /* fails for KILL, STOP and libc's own; no matter */
	(void)sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

static int step_cwd(struct steps *s)
{
	return chdir(s->plan->cwd) < 0 ? -errno : 0;
}

static int step_no_new_privs(struct steps *s)
{
	(void)s;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int step_landlock(struct steps *s)
{
	return landlock_apply(s->plan, &s->landlock);
}

static int step_limits(struct steps *s)
{
	return limits_apply(s->plan);
}

/* Before the other filters, which may not let the call pass. What it catches none of the steps behind it calls. */
static int step_root(struct steps *s)
{
	return s->root_fd >= 0 ? root_catch(s->root_fd) : 0;
}

static int step_seccomp(struct steps *s)
{
	return seccomp_apply(s->plan);
}

/* Not looked up in PATH: which shell runs is not the caller's choice. */
static int step_shell(struct steps *s)
{
	static const char *const shells[] = {"/bin/bash", "/usr/bin/bash", "/bin/sh",
					     "/usr/bin/sh"};
	size_t i;

	if (!(s->plan->flags & STAGE3_PLAN_SHELL))
		return 0;
	for (i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
		if (access(shells[i], X_OK) < 0)
			continue;
		s->shell = shells[i];
		s->sh_argv[0] = i < 2 ? "bash" : "sh";
		s->sh_argv[1] = "-c";
		s->sh_argv[2] = "--"; /* the text may begin with a dash */
		s->sh_argv[3] = s->plan->argv[0];
		s->sh_argv[4] = NULL;
		if (!(s->plan->flags & STAGE3_PLAN_NOTE))
			return 0;
		if (i < 2)
			return note_prepare();
		note_forget(s->plan->envp);
		return 0;
	}
	return -ENOENT;
}

/* execve changes none of the words, whatever its prototype says. */
static void exec_sh(const struct steps *s, const char *shell)
{
	(void)execve(shell, (char *const *)(uintptr_t)s->sh_argv, s->plan->envp);
}

/* execve, and as a shell does, /bin/sh for a script that does not name its interpreter. */
static int exec_path(const struct steps *s, const char *path)
{
	size_t i;

	(void)execve(path, s->plan->argv, s->plan->envp);
	if (errno != ENOEXEC)
		return -errno;
	s->sh_argv[0] = "sh";
	s->sh_argv[1] = path;
	for (i = 1; i <= s->plan->argc; i++)
		s->sh_argv[i + 1] = s->plan->argv[i];
	exec_sh(s, "/bin/sh");
	return -errno;
}

static const char *env_path(const struct plan *plan)
{
	size_t i;

	for (i = 0; i < plan->envc; i++) {
		if (!strncmp(plan->envp[i], "PATH=", 5))
			return plan->envp[i] + 5;
	}
	return "/usr/local/bin:/usr/bin:/bin";
}

static int exec_search(const struct steps *s)
{
	const char *name = s->plan->argv[0], *at = env_path(s->plan), *end;
	char path[STAGE3_PATH_MAX];
	int r = -ENOENT, e, n;

	for (;; at = end + 1) {
		end = strchrnul(at, ':');
		/* An empty word is the current directory. */
		n = snprintf(path, sizeof(path), "%.*s/%s", end > at ? (int)(end - at) : 1,
			     end > at ? at : ".", name);
		if (n > 0 && (size_t)n < sizeof(path)) {
			e = exec_path(s, path);
			/* The first that is there but cannot be run explains more than the last. */
			if (e != -ENOENT && e != -ENOTDIR && r == -ENOENT)
				r = e;
		}
		if (!*end)
			return r;
	}
}

static int step_exec(struct steps *s)
{
	struct stage3_msg m = {.kind = STAGE3_MSG_READY,
			       .value = s->landlock.abi,
			       .rights = s->landlock.handled,
			       .steps = s->done};
	int r;

	r = status_send(&m);
	if (r < 0)
		return r;
	if (s->shell) {
		exec_sh(s, s->shell);
		return -errno;
	}
	if (s->plan->argv[0][0] == '\0')
		return -ENOENT;
	if (strchr(s->plan->argv[0], '/'))
		return exec_path(s, s->plan->argv[0]);
	return exec_search(s);
}

static const struct {
	enum stage3_step step;
	int (*take)(struct steps *s);
} steps_table[] = {
	{STAGE3_STEP_STDIO, step_stdio},
	{STAGE3_STEP_FDS, step_fds},
	{STAGE3_STEP_SESSION, step_session},
	{STAGE3_STEP_SIGNALS, step_signals},
	{STAGE3_STEP_CWD, step_cwd},
	{STAGE3_STEP_SHELL, step_shell},
	{STAGE3_STEP_NO_NEW_PRIVS, step_no_new_privs},
	/* Landlock needs open(2) and comes before the filter; so do the limits. */
	{STAGE3_STEP_LANDLOCK, step_landlock},
	{STAGE3_STEP_LIMITS, step_limits},
	{STAGE3_STEP_ROOT, step_root},
	{STAGE3_STEP_SECCOMP, step_seccomp},
	{STAGE3_STEP_EXEC, step_exec},
};

int steps_run(struct steps *s)
{
	size_t i;
	int r;

	for (i = 0; i < sizeof(steps_table) / sizeof(steps_table[0]); i++) {
		r = steps_table[i].take(s);
		if (r < 0) {
			status_failed(steps_table[i].step, r);
			if (steps_table[i].step != STAGE3_STEP_EXEC || s->shell)
				return STAGE3_EXIT_FAILED;
			return r == -ENOENT ? STAGE3_EXIT_NOTFOUND : STAGE3_EXIT_NOEXEC;
		}
		s->done |= 1u << steps_table[i].step;
	}
	return STAGE3_EXIT_FAILED;
}
