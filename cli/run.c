/* rattan run: one command in the sandbox, with our own standard streams. */
#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/run_internal.h"
#include "runner/terminal.h"

enum {
	GRACE_MS = 3000,
	ENV_FILE_MAX = 1 << 20
};

static void plan_release(struct run_plan *p)
{
	cli_view_release(&p->view);
	for (size_t i = 0; i < p->nvars; i++)
		free(p->vars[i]);
	free(p->vars);
}
#define cleanup_plan __attribute__((cleanup(plan_release)))

/* ---- from options to a plan ---- */

/* Takes @var; NULL is what an allocation that failed gave. */
int run_keep_var(struct run_plan *p, char *var)
{
	char **v = var ? realloc(p->vars, (p->nvars + 2) * sizeof(*v)) : NULL;

	if (!v) {
		free(var);
		return -ENOMEM;
	}
	p->vars = v;
	v[p->nvars++] = var;
	v[p->nvars] = NULL;
	return 0;
}

static bool var_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(isalnum((unsigned char)s[i]) || s[i] == '_') ||
		    (!i && isdigit((unsigned char)s[i])))
			return false;
	return n > 0;
}

/* "NAME=value", or "NAME" for the caller's own value of it. */
static int add_var(struct run_plan *p, const char *by, const char *s, struct diag *diag)
{
	size_t n = strcspn(s, "=");
	const char *value;
	char *var;

	if (!var_name(s, n))
		return diag_set(diag, -EINVAL, "%s: '%s' is not NAME=VALUE", by, s);
	if (s[n])
		return run_keep_var(p, strdup(s));
	value = getenv(s);
	if (!value)
		return diag_set(diag, -EINVAL,
				"%s: -E %s: there is no such variable here; give -E %s=VALUE", by,
				s, s);
	return run_keep_var(p, asprintf(&var, "%s=%s", s, value) < 0 ? NULL : var);
}

static int add_env_file(struct run_plan *p, const char *by, const char *path, struct diag *diag)
{
	cleanup_buf struct buf b = {0};
	int r = io_read_file(AT_FDCWD, path, ENV_FILE_MAX, &b);

	if (r < 0)
		return diag_set(diag, -EINVAL, "%s: --env-file %s: %s", by, path, err_text(r));
	if (!b.len)
		return 0;
	for (char *s = (char *)b.data, *end; *s; s = end) {
		size_t n = strcspn(s, "\n");

		end = s + n + (s[n] != 0);
		s[n] = 0;
		s += strspn(s, " \t");
		if (!*s || *s == '#')
			continue;
		r = add_var(p, by, s, diag);
		if (r < 0)
			return r;
	}
	return 0;
}

static int plan_rest(const struct run_args *a, struct run_plan *p, struct diag *diag)
{
	const char *term = isatty(STDOUT_FILENO) ? getenv("TERM") : NULL;
	int r = 0;

	/* For editors and colours; -E and --env-file come later and win. */
	if (term && *term)
		r = add_var(p, a->by, "TERM", diag);
	if (r < 0)
		return r;
	if (a->timeout) {
		char *end;

		p->timeout_s = strtod(a->timeout, &end);
		if (end == a->timeout || *end || !(p->timeout_s > 0) || p->timeout_s > 1e9)
			return diag_set(diag, -EINVAL,
					"%s: --timeout %s is not a number of seconds above 0",
					a->by, a->timeout);
	}
	for (size_t i = 0; r >= 0 && i < a->env_files.n; i++)
		r = add_env_file(p, a->by, a->env_files.v[i], diag);
	for (size_t i = 0; r >= 0 && i < a->setenv.n; i++)
		r = add_var(p, a->by, a->setenv.v[i], diag);
	if (r < 0)
		return r;
	if (a->cwd && a->cwd[0] != '/')
		return diag_set(diag, -EINVAL,
				"%s: --cwd %s must be absolute, a directory in the sandbox", a->by,
				a->cwd);
	if (a->explain)
		return 0;
	if (a->interactive)
		return a->ncmd ? diag_set(diag, -EINVAL,
					  "shell: '%s' is too much: rattan run -- %s runs it",
					  a->cmd[0], a->cmd[0])
			       : 0;
	if (!a->text && !a->ncmd)
		return diag_set(diag, -EINVAL,
				"%s: there is no command; give one after --, or -c TEXT", a->by);
	if (a->text && a->ncmd)
		return diag_set(diag, -EINVAL, "%s: -c has the whole command; '%s' is too much",
				a->by, a->cmd[0]);
	if (a->shell && a->ncmd != 1)
		return diag_set(diag, -EINVAL,
				"%s: --shell takes the command as one argument; quote it", a->by);
	return 0;
}

/* ---- the run ---- */

static void terminal_freep(struct terminal **t)
{
	terminal_free(*t);
}
#define cleanup_terminal __attribute__((cleanup(terminal_freep)))

int run_not_started(int r, const struct diag *diag)
{
	(void)cli_fail_errno(r, diag, "the sandbox could not start");
	/* what is wrong with the request or the data, not with the host, keeps its own code */
	switch (-r) {
	case EINVAL:
	case EBUSY:
	case EEXIST:
	case ESTALE:
		return cli_exit_of(r);
	case EBADMSG:
	case ENOTDIR:
	case EACCES:
	case ENOTEMPTY:
	case EPROTONOSUPPORT:
		return CLI_FAILED;
	default:
		return CLI_NO_SANDBOX;
	}
}

static int code_of(const struct run_args *a, const struct run_result *res, int sig)
{
	if (res->state == RUN_NOT_STARTED && a->cwd && !strcmp(res->step, "cwd"))
		return cli_fail(CLI_NO_SANDBOX, "the sandbox could not start: --cwd %s: %s", a->cwd,
				res->error);
	if (res->state == RUN_NOT_STARTED)
		return cli_fail(CLI_NO_SANDBOX, "the sandbox could not start: %s: %s", res->step,
				res->error);
	if (res->timed_out)
		return cli_fail(CLI_TIMED_OUT, "the command was ended after %s s", a->timeout);
	if (sig)
		return 128 + sig;
	if (!*res->error)
		return res->code;
	if (res->code == 127 && a->cmd && a->ncmd == 1 && !strcmp(res->step, "exec") &&
	    strpbrk(a->cmd[0], " |&;<>$"))
		return cli_fail(res->code, "%s: %s; shell text goes after -c", a->cmd[0],
				res->error);
	/* Said here because there is no shell to say it. */
	return a->cmd && a->ncmd && !strcmp(res->step, "exec")
		       ? cli_fail(res->code, "%s: %s", a->cmd[0], res->error)
		       : cli_fail(res->code, "the command was ended: %s", res->error);
}

/* What root did stays when it went well; else nothing of it does. An exit code, or 0: the command's own stands. */
static int keep(struct client_run *cr, bool well)
{
	struct diag diag = {0};
	int r = well ? client_run_keep(cr, &diag) : client_run_drop(cr, &diag);

	if (!well && r == 0)
		fputs("rattan: the command failed: what it changed is taken back\n", stderr);
	if (r == 0)
		return 0;
	r = cli_fail_errno(r, &diag, "what was provisioned");
	return well ? r : 0;
}

static int run_it(const struct run_args *a, const struct run_plan *p, struct client *c,
		  int *ret_code)
{
	struct client_terms terms = p->terms;
	cleanup_terminal struct terminal *term = NULL;
	cleanup_free char *own = NULL;
	const char *text = NULL;
	struct client_run *cr;
	struct run_result res = {0};
	struct diag diag = {0};
	struct run_spec spec;
	int r, sig, kept = 0;

	run_spec_init(&spec);
	if (a->interactive)
		text = own = shell_text(client_env(c));
	else if (a->text || a->shell)
		text = a->text ? a->text : a->cmd[0];
	spec.shell = text;
	if (!text)
		spec.argv = (const char *const *)a->cmd;
	spec.cwd = a->cwd;
	spec.env = (const char *const *)p->vars;
	spec.promises = a->promises;
	spec.timeout_ms = (uint64_t)(p->timeout_s * 1000);
	spec.no_exec_workspace = a->view.no_exec;
	spec.limits = p->view.limits.run;
	spec.net_rules = p->view.net_on ? &p->view.net : NULL;
	spec.stdin_fd = STDIN_FILENO;
	spec.passthrough = true;
	*ret_code = run_profile_spec(a, p, &spec);
	if (*ret_code >= 0)
		return -ECANCELED;
	cli_net_tell_shut(spec.net_rules);
	r = terminal_open(&term);
	if (r < 0) {
		*ret_code = cli_fail_errno(
			r, NULL,
			"cannot open a terminal for the command (/dev/ptmx); with its input and output "
			"redirected it needs none");
		return r;
	}
	terminal_lend(term, &spec);
	terms.provision = a->provision;
	r = client_run_start(c, terms.tmp || a->provision ? &terms : NULL, &spec,
			     a->interactive ? "rattan shell"
			     : text         ? text
					    : a->cmd[0],
			     &diag, &cr);
	if (r < 0) {
		*ret_code = run_not_started(r, &diag);
		return r;
	}
	r = terminal_wait(term, client_run_of(cr), GRACE_MS, &res, &sig);
	if (r >= 0)
		(void)run_tell_refused(cr, res.code != 0, a->verbose);
	if (a->provision)
		kept = keep(cr, r >= 0 && !sig && res.state == RUN_EXITED && !res.code &&
					!res.timed_out);
	client_run_free(cr);
	if (a->verbose && *res.enforced)
		fprintf(stderr, "rattan: what held: %s\n", res.enforced);
	*ret_code =
		r < 0 ? cli_fail_errno(r, NULL, "waiting for the command") : code_of(a, &res, sig);
	if (kept > 0 && r >= 0)
		*ret_code = kept;
	return r < 0 ? r : 0;
}

/* ---- before and after ---- */

static int bind_all(const struct run_plan *p, struct client *c, struct diag *diag)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < p->view.binds.n; i++) {
		const struct cli_dir *d = &p->view.binds.v[i];

		r = client_add_bind(c, d->dir.fd, d->dir.path, d->mount, d->rw, diag);
	}
	return r;
}

static uint64_t token_of(struct ctl *ctl)
{
	struct ctl_status s;
	uint64_t token;

	if (ctl_status(ctl, NULL, &s) < 0)
		return 0;
	token = s.token;
	ctl_status_release(&s);
	return token;
}

static void drop(struct ctl *ctl)
{
	struct diag diag = {0};
	struct ctl_moved moved;
	int r = ctl_reset(ctl, false, &diag, &moved);

	if (r < 0 && r != -ENODATA)
		(void)cli_fail_errno(r, &diag, "the changes could not be dropped");
}

int run_with_client(const struct run_args *a, const struct run_plan *p, struct client *c)
{
	bool talk = a->verbose || isatty(STDERR_FILENO);
	struct diag diag = {0};
	struct ctl *ctl;
	uint64_t token;
	int code, r = client_ctl_get(c, &diag, &ctl);

	if (r < 0)
		return run_not_started(r, &diag);
	if (*ctl_opened_note(ctl))
		fprintf(stderr, "rattan: %s\n", ctl_opened_note(ctl));
	if (talk && a->view.env && ctl_opened_new(ctl))
		fprintf(stderr, "rattan: %s is a new environment\n", a->view.env);
	token = talk ? token_of(ctl) : 0;
	client_ctl_put(c, ctl, false);
	r = bind_all(p, c, &diag);
	if (r < 0)
		return run_not_started(r, &diag);
	r = run_it(a, p, c, &code);
	if (r < 0 || (!talk && !a->rm))
		return code;
	r = client_ctl_get(c, &diag, &ctl);
	if (r < 0) /* the command's own result stands */
		return code;
	if (a->rm)
		drop(ctl);
	else
		run_tell_changes(ctl, client_env(c), token);
	client_ctl_put(c, ctl, false);
	if (talk && !p->view.env)
		run_tell_where(client_env(c));
	return code;
}

static int start(const struct run_args *a)
{
	cleanup_plan struct run_plan p = {0};
	struct diag diag = {0};
	struct client *c;
	int code, r = plan_rest(a, &p, &diag);

	if (r >= 0 && a->profile)
		return run_profiled(a, &p);
	if (r >= 0)
		r = cli_view(&a->view, &p.view, &diag);
	if (r < 0)
		return cli_fail_errno(r, &diag, a->by);

	const struct ctl_env_opts o = {
		.env = p.view.env,
		.base = a->view.base,
		.create = true,
		.overlays = p.view.ov,
		.noverlays = p.view.overlays.n,
		.same_dirs = p.view.by_place,
		.tell_dirs = true,
		.writable = p.view.writable,
		.disk_max = p.view.limits.disk,
	};

	r = client_new(&o, &c);
	if (r < 0)
		return run_not_started(r, NULL);
	code = run_with_client(a, &p, c);
	client_free(c);
	return code;
}

static int check_options(const struct run_args *a)
{
	if (a->interactive && (a->text || a->shell))
		return cli_fail(CLI_USAGE, "shell: a command is for rattan run");
	if (a->interactive && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
		return cli_fail(CLI_USAGE, "shell: standard input and output are not a terminal; "
					   "rattan run -- bash reads commands from elsewhere");
	if (a->keep && a->rm)
		return cli_fail(CLI_USAGE, "%s: --keep and --rm exclude each other", a->by);
	if (a->provision && (a->profile || a->view.no_exec || a->view.writable.n ||
			     a->view.binds.n || a->view.binds_ro.n || a->view.bind_cwd))
		return cli_fail(CLI_USAGE,
				"%s: --provision is root's, to whom all of the environment is open "
				"and nothing of the host: --profile, --bind, --writable-root and "
				"--no-exec-workspace do not go with it",
				a->by);
	if (a->write_through && !a->profile)
		return cli_fail(CLI_USAGE, "%s: --write-through needs a --profile that says where",
				a->by);
	if (a->write_through && a->rm)
		return cli_fail(CLI_USAGE,
				"%s: --rm drops what an environment keeps, and with "
				"--write-through it keeps nothing",
				a->by);
	if ((a->session || a->set.n) && !a->profile)
		return cli_fail(CLI_USAGE,
				"%s: --session and --set are for a role's profile: give --profile",
				a->by);
	if (a->explain && !a->profile)
		return cli_fail(CLI_USAGE, "%s: --explain needs a --profile to explain", a->by);
	return -1;
}

int run_main(const struct cli_command *cmd, int argc, char **argv, bool interactive)
{
	struct run_args a = {.by = cmd->name, .interactive = interactive};
	const struct cli_opt opts[] = {
		CLI_VIEW_OPTS(a.view),
		{"cwd", 0, CLI_TEXT, &a.cwd, "DIR",
		 "where the command starts; default: /workspace"},
		{"setenv", 'E', CLI_LIST, &a.setenv, "NAME[=VALUE]",
		 "set a variable, or pass ours on"},
		{"env-file", 0, CLI_LIST, &a.env_files, "FILE", "a file of NAME=VALUE lines"},
		{"timeout", 0, CLI_TEXT, &a.timeout, "SECONDS",
		 "end the command then, with code 124"},
		{"promises", 0, CLI_TEXT, &a.promises, "LIST",
		 "system calls to allow; default: ordinary work"},
		{"command", 'c', CLI_TEXT, &a.text, "TEXT", "shell text to run"},
		{"shell", 0, CLI_FLAG, &a.shell, NULL, "the one argument is shell text"},
		{"profile", 0, CLI_TEXT, &a.profile, "FILE",
		 "what the command may do; see --explain"},
		{"explain", 0, CLI_FLAG, &a.explain, NULL,
		 "say what the profile comes to, or its verdict on the paths given, and run nothing"},
		{"set", 0, CLI_LIST, &a.set, "NAME=VALUE", "a parameter of a role's profile"},
		{"session", 0, CLI_TEXT, &a.session, "NAME", "name of a role's session"},
		{"write-through", 0, CLI_FLAG, &a.write_through, NULL,
		 "with a managed profile: what is written goes to the host at once"},
		{"provision", 0, CLI_FLAG, &a.provision, NULL,
		 "as root of the environment; a failure takes everything back"},
		{"keep", 0, CLI_FLAG, &a.keep, NULL,
		 "leave changes in the environment (the default)"},
		{"rm", 0, CLI_FLAG, &a.rm, NULL, "drop uncommitted changes at the end"},
		{"verbose", 'v', CLI_FLAG, &a.verbose, NULL,
		 "say what held and what changed, also off a terminal"},
		{0},
	};
	int r = cli_parse(cmd, opts, argc, argv, true, &a.cmd, &a.ncmd);

	if (r < 0)
		r = check_options(&a);
	if (r < 0)
		r = start(&a);
	cli_view_opts_release(&a.view);
	cli_list_release(&a.setenv);
	cli_list_release(&a.env_files);
	cli_list_release(&a.set);
	return r;
}

static int run(int argc, char **argv)
{
	return run_main(&cmd_run, argc, argv, false);
}

const struct cli_command cmd_run = {
	.name = "run",
	.args = "[OPTIONS] [--] COMMAND [ARG...]",
	.summary = "run a command in the sandbox",
	.details =
		"The command sees a copy-on-write file system; what it changes stays in the environment\n"
		"until it is committed or reset, and never touches the host (but through --bind, which\n"
		"lasts as long as this command). There is no network, unless --allow-domain opens one.\n\n"
		"Without -e the environment is 'default'; with --overlay-cwd or --bind-cwd it is one named\n"
		"after this directory, and the other commands find that from here and from below.\n\n"
		"Exit code: the command's; 128+N for signal N; 126 and 127 as a shell's; 125 when the\n"
		"sandbox could not start.\n\n"
		"Examples:\n"
		"  rattan run --overlay-cwd -- make\n"
		"  rattan run -c 'echo hello > /tmp/x; ls -l /tmp'\n",
	.run = run,
};
