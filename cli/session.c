/* rattan session: role sessions that live, whoever started them. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

int cli_session_dir(char **ret)
{
	cleanup_free char *dir = NULL;
	int r = ctl_runtime_dir(&dir);

	if (r < 0)
		return r;
	return asprintf(ret, "%s/roles", dir) < 0 ? -ENOMEM : 0;
}

void cli_session_signals(sigset_t *ret)
{
	(void)sigemptyset(ret);
	(void)sigaddset(ret, SIGINT);
	(void)sigaddset(ret, SIGTERM);
	(void)sigaddset(ret, SIGHUP);
	(void)sigaddset(ret, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, ret, NULL);
}

/* An orderly end of ours is the session's; a hard one is not. */
int cli_session_wait(pid_t pid, const char *name)
{
	cleanup_free char *dir = NULL;
	int status = 0, got = 0;
	cleanup_fd int pidfd = -1;
	struct role_session s = {.pid = pid};
	sigset_t set;

	(void)snprintf(s.name, sizeof(s.name), "%s", name);
	cli_session_signals(&set);
	if (cli_session_dir(&dir) < 0)
		dir = NULL;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		int sig = sigwaitinfo(&set, NULL);

		if (sig > 0 && sig != SIGCHLD) {
			got = sig;
			if (!dir || pidfd < 0 || role_end(dir, &s, pidfd) < 0)
				(void)kill(pid, SIGKILL);
		}
	}
	/* The bwrap outside has ended; all that was inside ends with it, willing or not. */
	if (dir)
		role_settle(dir, name);
	if (got)
		return 128 + got;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int print_one(void *arg, const struct role_session *s)
{
	(void)arg;
	printf("%-40s  pid %d\n", s->name, (int)s->pid);
	return 0;
}

static int list(const char *dir)
{
	int r = role_list(dir, print_one, NULL);

	return r < 0 ? cli_fail_errno(r, NULL, "the sessions cannot be listed") : cli_done();
}

/* What the next host asks before it launches anything. */
static int probe(const char *dir)
{
	const struct role_spec s = {.dir = dir};
	struct diag d = {0};
	int r = role_probe(&s, &d);

	return r < 0 ? cli_fail(CLI_NO_SANDBOX, "sandbox-unavailable: %s",
				d.text[0] ? d.text : err_text(r))
		     : CLI_OK;
}

static int end(const char *dir, const struct role_session *s, int pidfd)
{
	int r = role_end(dir, s, pidfd);

	return r < 0 ? cli_fail(CLI_FAILED, "session %s does not end: %s", s->name, err_text(r))
		     : CLI_OK;
}

static int await(const char *name, int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	while (poll(&p, 1, -1) < 0)
		if (errno != EINTR)
			return cli_fail(CLI_FAILED, "session %s: %s", name, err_text(errno));
	return CLI_OK;
}

static int attach(const struct role_session *s, int pidfd, char **argv)
{
	static const char *const env[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"TMPDIR=/tmp", NULL};
	struct diag d = {0};
	int r = role_attach(s, pidfd, (const char *const *)argv, env, "/", &d);

	return r < 0 ? cli_fail_errno(r, &d, "the session cannot be entered") : r;
}

static int with_session(const char *dir, char **rest, int n)
{
	struct role_session s;
	cleanup_fd int pidfd = -1;

	if (n < 2)
		return cli_fail(CLI_USAGE, "session: %s needs the name of a session", rest[0]);
	if (role_find(dir, rest[1], &s, &pidfd) < 0)
		return cli_fail(CLI_NOT_FOUND, "no session '%s' lives; rattan session lists all",
				rest[1]);
	if (!strcmp(rest[0], "end"))
		return end(dir, &s, pidfd);
	if (!strcmp(rest[0], "wait"))
		return await(rest[1], pidfd);
	if (n < 3)
		return cli_fail(CLI_USAGE, "session: attach needs a command: attach %s -- CMD",
				rest[1]);
	return attach(&s, pidfd, rest + 2);
}

static int run(int argc, char **argv)
{
	static const char *const words[] = {"attach", "end", "wait", NULL};
	const struct cli_opt opts[] = {{0}};
	cleanup_free char *dir = NULL;
	char **rest;
	int n, r = cli_parse(&cmd_session, opts, argc, argv, false, &rest, &n);

	if (r >= 0)
		return r;
	r = cli_session_dir(&dir);
	if (r < 0)
		return cli_fail_errno(r, NULL, "the sessions cannot be found");
	if (!n || !strcmp(rest[0], "list"))
		return list(dir);
	if (!strcmp(rest[0], "probe"))
		return probe(dir);
	for (const char *const *w = words; *w; w++)
		if (!strcmp(*w, rest[0]))
			return with_session(dir, rest, n);
	return cli_fail(CLI_USAGE, "session: '%s' is not attach, end, list, probe or wait",
			rest[0]);
}

const struct cli_command cmd_session = {
	.name = "session",
	.args = "[list | probe | wait NAME | end NAME | attach NAME -- COMMAND [ARG...]]",
	.summary = "role sessions that live",
	.details =
		"A session that `rattan run --profile` started with a role lives on when that rattan dies\n"
		"hard; it is found by its name here, waited for, ended, or entered with another command. probe\n"
		"says whether sessions can be had on this host.\n\n"
		"Example:\n"
		"  rattan session attach review -- sh\n",
	.run = run,
};
