/* rattan shell: an interactive shell in the sandbox. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/run_internal.h"

/*
 * Bash reads its start files as ever, which set a prompt most often, and then what names the environment before it; the words are
 * for eval, since another shell takes <(...) for an error. Names of environments have no character that means something to a shell.
 */
static const char text[] =
	"RATTAN_ENV=%s; export RATTAN_ENV\n"
	"rattan_rc='[ -r ~/.bashrc ] && . ~/.bashrc; PS1=\"($RATTAN_ENV) ${PS1-\\$ }\"; unset rattan_rc'\n"
	"export rattan_rc\n"
	"if command -v bash > /dev/null; then\n"
	"  eval 'exec bash --rcfile <(printf %%s \"$rattan_rc\") -i'\n"
	"fi\n"
	"unset rattan_rc; PS1=\"($RATTAN_ENV) \\$ \"; export PS1; exec sh -i\n";

char *shell_text(const char *env)
{
	char *s;

	return asprintf(&s, text, env) < 0 ? NULL : s;
}

static int run(int argc, char **argv)
{
	return run_main(&cmd_shell, argc, argv, true);
}

const struct cli_command cmd_shell = {
	.name = "shell",
	.args = "[OPTIONS]",
	.summary = "an interactive shell in the sandbox",
	.details =
		"A shell on the same copy-on-write file system as that of `rattan run`, with a terminal of its own, job\n"
		"control, and the environment's name in its prompt and in RATTAN_ENV. What is changed in it stays in the\n"
		"environment when it ends; the options are those of `rattan run`.\n\n"
		"Exit code: the shell's; 125 when the sandbox could not start.\n\n"
		"Example:\n"
		"  rattan shell --overlay-cwd\n",
	.run = run,
};
