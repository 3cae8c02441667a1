/* rattan: the first word is a command, or the MCP server when there is none. */
#include <locale.h>
#include <signal.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"

static const struct cli_command *const commands[] = {
	&cmd_run,       &cmd_shell,  &cmd_apply,  &cmd_unapply, &cmd_status, &cmd_diff,
	&cmd_log,       &cmd_show,   &cmd_ls,     &cmd_cat,     &cmd_commit, &cmd_rollback,
	&cmd_reset,     &cmd_undo,   &cmd_tag,    &cmd_mount,   &cmd_umount, &cmd_fork,
	&cmd_env,       &cmd_import, &cmd_export, &cmd_push,    &cmd_pull,   &cmd_base,
	&cmd_bootstrap, &cmd_fsck,   &cmd_gc,     &cmd_stats,   &cmd_probe,  &cmd_session,
	&cmd_serve,
};

static const struct cli_command *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static const struct cli_command program = {
	.name = "",
	.args = "[COMMAND] [OPTIONS]",
	.summary =
		"Runs commands in a sandbox whose whole file system is copy-on-write; every state can be\n"
		"kept, looked at and gone back to. Without a command: an MCP server on stdin and stdout.",
	.details =
		"Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict or busy, 125 no sandbox;\n"
		"run passes the command's own code through.\n\n"
		"Example:\n"
		"  rattan run --overlay-cwd -- make     # on a copy-on-write view of this directory\n"
		"  rattan diff                          # what it changed\n",
};
static const struct cli_opt program_opts[] = {
	{"probe", 0, CLI_FLAG, NULL, NULL, "the same as doctor"},
	{"version", 'V', CLI_FLAG, NULL, NULL, "which rattan this is"},
	{"help", 'h', CLI_FLAG, NULL, NULL, "this text; rattan COMMAND --help tells more"},
	{0},
};

static int help(void)
{
	printf("usage: rattan %s\n%s\n\n", program.args, program.summary);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
	printf("\n");
	for (const struct cli_opt *o = program_opts; o->name; o++)
		cli_help_opt(o);
	printf("\n%s", program.details);
	return cli_done();
}

/* All of it: the program, then each command as it answers itself. */
static int dump(void)
{
	int r = cli_help_dump(&program, program_opts);

	for (size_t i = 0; r == CLI_OK && i < ARRAY_SIZE(commands); i++)
		r = commands[i]->run(2, (char *[]){(char *)(uintptr_t)commands[i]->name,
						   (char[]){"--dump-help"}, NULL});
	return r;
}

static int unknown(const char *given)
{
	const char *names[ARRAY_SIZE(commands) + 1] = {NULL}, *near;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		names[i] = commands[i]->name;
	near = cli_nearest(given, names);
	if (near)
		return cli_fail(CLI_USAGE, "unknown command '%s'; did you mean %s?", given, near);
	return cli_fail(CLI_USAGE, "unknown command '%s'; rattan --help lists all", given);
}

int main(int argc, char **argv)
{
	const struct cli_command *cmd;

	if (io_std_open() < 0)
		return CLI_FAILED; /* and nowhere to say it */
	(void)setlocale(LC_CTYPE, "");
	(void)signal(SIGPIPE, SIG_DFL);
	if (argc > 1 &&
	    (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")))
		return argc > 2 && (cmd = find(argv[2]))
			       ? cmd->run(2, (char *[]){argv[2], (char[]){"--help"}, NULL})
			       : help();
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("rattan %s\n", RATTAN_VERSION);
		return cli_done();
	}
	if (argc > 1 && !strcmp(argv[1], "--dump-help"))
		return dump();
	if (argc > 1 && !strcmp(argv[1], "--probe"))
		return cmd_probe.run(argc - 1, argv + 1);
	if (argc < 2 || argv[1][0] == '-')
		return cmd_serve.run(argc, argv);
	cmd = find(argv[1]);
	return cmd ? cmd->run(argc - 1, argv + 1) : unknown(argv[1]);
}
