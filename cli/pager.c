#include "cli/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

static bool is_there(const char *name)
{
	const char *path = getenv("PATH");
	char file[4200];

	for (size_t n; path && *path; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		(void)snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, name);
		if (!access(file, X_OK))
			return true;
	}
	return false;
}

static bool dumb(void)
{
	const char *term = getenv("TERM");

	return !term || !*term || !strcmp(term, "dumb");
}

/* Text for a shell; NULL: none. */
static const char *choose(void)
{
	const char *given = getenv("PAGER");

	if (given)
		return *given && strcmp(given, "cat") != 0 ? given : NULL;
	return !dumb() && is_there("less") ? "less" : NULL;
}

static pid_t spawn_shell(const char *text, int in)
{
	char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)text, NULL};
	posix_spawn_file_actions_t act;
	pid_t pid;

	if (posix_spawn_file_actions_init(&act))
		return 0;
	(void)posix_spawn_file_actions_adddup2(&act, in, STDIN_FILENO);
	if (posix_spawnp(&pid, "sh", &act, NULL, argv, environ) != 0)
		pid = 0;
	(void)posix_spawn_file_actions_destroy(&act);
	return pid;
}

void cli_page_start(struct cli_page *p, bool off)
{
	const char *no = getenv("NO_COLOR"), *text;
	int fd[2];

	*p = (struct cli_page){.tty = isatty(STDOUT_FILENO)};
	p->colours = p->tty && !(no && *no) && !dumb();
	text = p->tty && !off ? choose() : NULL;
	if (!text || pipe2(fd, O_CLOEXEC) < 0)
		return;
	/* It ends where all fits on the screen, shows colours, and leaves what it has shown. */
	(void)setenv("LESS", "FRX", 0);
	(void)fflush(stdout);
	p->pid = spawn_shell(text, fd[0]);
	/* ^C is for it: it ends a search, and the program with q. */
	if (p->pid && dup2(fd[1], STDOUT_FILENO) >= 0)
		(void)signal(SIGINT, SIG_IGN);
	(void)close(fd[0]);
	(void)close(fd[1]);
}

void cli_page_end(struct cli_page *p)
{
	if (!p->pid)
		return;
	(void)fflush(stdout);
	(void)close(STDOUT_FILENO);
	/* What is printed by mistake afterwards goes nowhere, and not into a file of this number. */
	(void)!open("/dev/null", O_WRONLY);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	p->pid = 0;
}

void cli_colour(const struct cli_page *p, enum cli_colour c)
{
	static const char *const codes[] = {"0", "1", "31", "32", "33", "36"};

	if (p->colours)
		printf("\033[%sm", codes[c]);
}
