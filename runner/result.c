#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "runner/runner_internal.h"

static const struct {
	uint32_t step;
	const char *name;
	const char *what; /* continues "the sandbox could not be built: " */
} steps[] = {
	{STAGE3_STEP_PLAN, "plan",
	 "rattan-stage3 does not understand its plan (is it of the same version?)"},
	{STAGE3_STEP_INIT, "init", "its first process could not be set up"},
	{STAGE3_STEP_NETWORK, "network", "the ports of its network's proxy could not be taken"},
	{STAGE3_STEP_STDIO, "stdio", "the standard streams could not be set up"},
	{STAGE3_STEP_FDS, "descriptors", "descriptors could not be closed"},
	{STAGE3_STEP_SESSION, "session", "no session could be made"},
	{STAGE3_STEP_SIGNALS, "signals", "signals could not be reset"},
	{STAGE3_STEP_CWD, "cwd", "the working directory cannot be entered"},
	{STAGE3_STEP_SHELL, "shell", "there is neither bash nor sh in the environment"},
	{STAGE3_STEP_NO_NEW_PRIVS, "no_new_privs", "no_new_privs could not be set"},
	{STAGE3_STEP_LANDLOCK, "landlock", "the Landlock rules could not be applied"},
	{STAGE3_STEP_LIMITS, "limits", "resource limits could not be set"},
	{STAGE3_STEP_ROOT, "root", "the calls of a provisioning run could not be caught"},
	{STAGE3_STEP_SECCOMP, "seccomp", "the system call filter could not be loaded"},
	{STAGE3_STEP_EXEC, "exec", "the command cannot be executed"},
	{SPAWN_FDS, "descriptors", "descriptors could not be arranged"},
	{SPAWN_CGROUP, "cgroup", "its cgroup could not be entered"},
	{SPAWN_USERNS, "namespaces", "the user namespace of the environment could not be entered"},
	{SPAWN_MNTNS, "namespaces", "the mount namespace of the environment could not be entered"},
	{SPAWN_LIFETIME, "lifetime", "it could not be tied to this process"},
	{SPAWN_BWRAP, "bwrap", "bwrap could not be executed"},
};

static void not_started(struct run_result *ret, const char *step)
{
	ret->state = RUN_NOT_STARTED;
	ret->code = STAGE3_EXIT_FAILED;
	(void)snprintf(ret->step, sizeof(ret->step), "%s", step);
}

static void from_failed(const struct run *r, struct run_result *ret)
{
	const char *name = "unknown", *what = "unknown step";
	size_t i;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (steps[i].step == r->failed.step) {
			name = steps[i].name;
			what = steps[i].what;
		}
	}
	not_started(ret, name);
	if (r->failed.step == STAGE3_STEP_EXEC && !r->shell) {
		/* Everything was in place; it is the command that is not there. As a shell says it. */
		ret->state = RUN_EXITED;
		ret->code = r->failed.error == ENOENT ? STAGE3_EXIT_NOTFOUND : STAGE3_EXIT_NOEXEC;
	}
	if (ret->code == STAGE3_EXIT_NOTFOUND)
		(void)snprintf(ret->error, sizeof(ret->error), "the command was not found");
	else
		(void)snprintf(ret->error, sizeof(ret->error), "%s: %s", what,
			       err_text(r->failed.error));
}

static void from_status(int status, struct run_result *ret)
{
	if (WIFSIGNALED(status)) {
		ret->state = RUN_SIGNALED;
		ret->signal = WTERMSIG(status);
		ret->code = 128 + ret->signal;
	} else {
		ret->state = RUN_EXITED;
		ret->code = WEXITSTATUS(status);
	}
}

/* bwrap ended before stage3 said anything: its own words are the reason. */
static void from_bwrap(struct run *r, struct run_result *ret)
{
	const char *text = r->bwrap_text.len ? (const char *)r->bwrap_text.data : "";

	not_started(ret, "bwrap");
	while (!strncmp(text, "bwrap: ", 7))
		text += 7;
	if (*text)
		(void)snprintf(ret->error, sizeof(ret->error), "bwrap: %.*s",
			       (int)strcspn(text, "\n"), text);
	else if (WIFSIGNALED(r->wait_status))
		(void)snprintf(ret->error, sizeof(ret->error),
			       "bwrap was killed by signal %d before the command started",
			       WTERMSIG(r->wait_status));
	else
		(void)snprintf(ret->error, sizeof(ret->error),
			       "bwrap ended without building the sandbox (exit code %d)",
			       WEXITSTATUS(r->wait_status));
}

static void put_enforced(struct run_result *ret, const char *word)
{
	size_t n = strlen(ret->enforced);

	(void)snprintf(ret->enforced + n, sizeof(ret->enforced) - n, "%s%s", n ? "," : "", word);
}

/* What came after the first ABI; of the network's rights only who has them not is confined (plan_encode.c). */
static void put_landlock(struct run_result *ret, int abi, uint32_t handled)
{
	static const struct {
		uint32_t right;
		const char *name;
	} later[] = {
		{STAGE3_REFER, "refer"},
		{STAGE3_TRUNCATE, "truncate"},
		{STAGE3_IOCTL_DEV, "ioctl_dev"},
		{STAGE3_SCOPE_UNIX, "scope_unix"},
		{STAGE3_SCOPE_SIGNAL, "scope_signal"},
	};
	char text[128];
	size_t i, n;
	bool lacks = false;

	n = (size_t)snprintf(text, sizeof(text), "landlock:%d", abi);
	for (i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
		if (handled & later[i].right)
			continue;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", lacks ? " " : "(no ",
				      later[i].name);
		lacks = true;
	}
	if (lacks)
		(void)snprintf(text + n, sizeof(text) - n, ")");
	put_enforced(ret, text);
	if (handled & STAGE3_RIGHTS_NET)
		put_enforced(ret, "landlock_tcp");
}

static void from_ready(const struct run *r, struct run_result *ret)
{
	static const struct {
		uint32_t step;
		const char *name;
	} confine[] = {
		{STAGE3_STEP_NO_NEW_PRIVS, "no_new_privs"},
		{STAGE3_STEP_LIMITS, "rlimits"},
		{STAGE3_STEP_SECCOMP, "seccomp"},
	};
	size_t i;

	/* bwrap has no half measures: it ends when it cannot make one of these. */
	put_enforced(ret, "userns,mntns,pidns,ipcns,utsns");
	if (!r->network)
		put_enforced(ret, "netns");
	if (r->way_out.was_served)
		put_enforced(ret, "network_rules");
	for (i = 0; i < sizeof(confine) / sizeof(confine[0]); i++) {
		if (r->ready.steps & 1u << confine[i].step)
			put_enforced(ret, confine[i].name);
	}
	if (r->ready.value > 0)
		put_landlock(ret, r->ready.value, r->ready.rights);
	if (r->cgroup)
		put_enforced(ret, "cgroup");
}

static double seconds(const struct timeval *tv)
{
	return (double)tv->tv_sec + (double)tv->tv_usec / 1e6;
}

/* The way out came first: what stage3 says then is that nobody answered it. */
static void from_way_out(const struct run *r, struct run_result *ret)
{
	const int error = r->way_out.error;

	if (r->way_out.was_served) {
		from_status(SIGKILL, ret);
		(void)snprintf(ret->error, sizeof(ret->error),
			       "its network ended (rattan-net was stopped or killed)");
		return;
	}
	not_started(ret, "network");
	(void)snprintf(ret->error, sizeof(ret->error), "rattan-net did not start%s%s",
		       error ? ": " : "", error ? err_text(error) : "");
}

/* Exit codes of several commands, of which one failed: else nothing is told that the code does not tell. */
static bool is_pipe(const char *s, size_t n)
{
	return n < sizeof(((struct run_result *)0)->pipe) && strspn(s, "0123456789 ") >= n &&
	       memchr(s, ' ', n) && strspn(s, "0 ") < n;
}

static void from_note(const struct stage3_note *note, struct run_result *ret)
{
	const char *text = note->text;
	size_t len = note->len < sizeof(note->text) ? note->len : sizeof(note->text);
	const char *bar = memchr(text, '|', len), *dir = bar ? bar + 1 : text;
	size_t n = len - (size_t)(dir - text);

	ret->left = note->left;
	memcpy(ret->left_name, note->name, sizeof(ret->left_name));
	if (!bar)
		return;
	if (is_pipe(text, (size_t)(bar - text)))
		(void)snprintf(ret->pipe, sizeof(ret->pipe), "%.*s", (int)(bar - text), text);
	if (n && *dir == '/' && n < sizeof(ret->ended_in) && !memchr(dir, 0, n))
		(void)snprintf(ret->ended_in, sizeof(ret->ended_in), "%.*s", (int)n, dir);
}

void run_result_fill(struct run *r, struct run_result *ret)
{
	struct timespec now;

	*ret = (struct run_result){0};
	if (r->seen & RUN_SEEN_READY)
		from_ready(r, ret);
	if (r->way_out.state == WAY_OUT_LOST && !(r->seen & RUN_SEEN_EXITED))
		from_way_out(r, ret);
	else if (r->seen & RUN_SEEN_FAILED)
		from_failed(r, ret);
	else if (r->seen & RUN_SEEN_EXITED)
		from_status(r->wait_status, ret);
	else if ((r->seen & RUN_SEEN_READY) || r->killed || r->timed_out || r->tree_gone)
		/* Init did not live to tell: killed by us, by the kernel for memory, or from outside. */
		from_status(SIGKILL, ret);
	else
		from_bwrap(r, ret);
	if (r->tree_gone && !ret->step[0])
		(void)snprintf(ret->error, sizeof(ret->error),
			       "its file system ended (rattan-fs was stopped or killed)");
	/* Not of one that waited and has ended unused: what is the command's may be written at this moment. */
	if (ret->state == RUN_EXITED) {
		from_note(&r->note, ret);
		if (r->linger)
			ret->left = 0;
	}
	ret->timed_out = r->timed_out;
	ret->killed = r->killed;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	ret->wall_s = (double)(now.tv_sec - r->started.tv_sec) +
		      (double)(now.tv_nsec - r->started.tv_nsec) / 1e9;
	ret->user_s = seconds(&r->usage.ru_utime);
	ret->sys_s = seconds(&r->usage.ru_stime);
	ret->max_rss = (uint64_t)r->usage.ru_maxrss * 1024;
	memcpy(ret->out_bytes, r->out_bytes, sizeof(ret->out_bytes));
	ret->out_limited = r->out_limited;
}
