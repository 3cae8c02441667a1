/* rattan run --profile. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/managed.h"
#include "cli/profiled.h"
#include "cli/run_internal.h"
#include "profile/program.h"

/* Before all others, which win. */
static int put_var_first(struct run_plan *p, const char *var)
{
	char *last;
	int r = run_keep_var(p, strdup(var));

	if (r < 0)
		return r;
	last = p->vars[p->nvars - 1];
	memmove(p->vars + 1, p->vars, (p->nvars - 1) * sizeof(*p->vars));
	p->vars[0] = last;
	return 0;
}

/* What a profile says of the run itself. */
int run_profile_spec(const struct run_args *a, const struct run_plan *p, struct run_spec *spec)
{
	const struct profile *pr = p->profile;
	struct diag diag = {0};
	int r;

	if (!pr)
		return -1;
	spec->cwd = a->cwd ? a->cwd : pr->cwd;
	spec->network = pr->network && !pr->net;
	spec->net_rules = pr->net;
	spec->require_landlock = pr->landlock_only;
	if (pr->family != PROFILE_MANAGED)
		return -1;
	spec->uid = getuid() ? getuid() : spec->uid;
	spec->gid = getuid() ? getgid() : spec->gid;
	r = profile_check_program(pr, spec->shell ? "sh" : spec->argv[0], NULL, &diag);
	if (r < 0)
		(void)cli_fail_errno(r, &diag, "the sandbox could not start");
	return r < 0 ? CLI_NO_SANDBOX : -1;
}

static int check_profiled(const struct run_args *a, const struct profile *p)
{
	const struct cli_view_opts *v = &a->view;

	if (v->binds.n || v->binds_ro.n || v->overlays.n || v->writable.n || v->bind_cwd ||
	    v->overlay_cwd || v->base)
		return cli_fail(CLI_USAGE,
				"%s: with --profile the profile alone says what is "
				"opened: --bind, --overlay, --writable-root and --base "
				"do not go with it",
				a->by);
	if (p->family != PROFILE_ROLE && (a->set.n || a->session))
		return cli_fail(CLI_USAGE, "%s: --set and --session are for a role's profile",
				a->by);
	if (a->write_through && p->family != PROFILE_MANAGED)
		return cli_fail(CLI_USAGE, "%s: --write-through is for a managed profile", a->by);
	if (p->family == PROFILE_ROLE && a->interactive && !a->explain)
		return cli_fail(CLI_USAGE,
				"shell: a role's session has no shell of rattan's; "
				"rattan run --profile FILE -- bash starts the role's own");
	/* What cannot be held there is not silently left out. */
	if (p->family == PROFILE_ROLE &&
	    (a->text || a->shell || a->cwd || a->timeout || a->promises || a->rm || v->env ||
	     v->no_exec || v->limits.n || v->net.allow.n || v->net.deny.n || v->net.local))
		return cli_fail(CLI_USAGE,
				"%s: a role's session has no environment, no limits, no filter of "
				"calls, and the host's network: --env, --rm, --limit, --timeout, "
				"--promises, --no-exec-workspace, --cwd, --shell, -c, "
				"--allow-domain and its like do not go with it",
				a->by);
	return -1;
}

static int with_opts(const struct run_args *a, struct run_plan *plan, const struct ctl_env_opts *o,
		     const char *scratch)
{
	struct ctl_env_opts mine = *o;
	struct diag diag = {0};
	cleanup_fd int scratch_fd =
		-1; /* held until the end: nobody empties it under the command */
	struct client *c;
	int code, r;

	mine.disk_max = plan->view.limits.disk;
	r = client_new(&mine, &c);
	if (r < 0)
		return run_not_started(r, NULL);
	plan->terms.tmp = scratch;
	if (scratch)
		r = client_scratch(c, &plan->terms, &diag, &scratch_fd);
	code = r < 0 ? run_not_started(r, &diag) : run_with_client(a, plan, c);
	client_free(c);
	return code;
}

/* The environment's own tree, with the places that the profile makes writable. */
static int run_agent(const struct run_args *a, struct run_plan *plan, const struct profile *p)
{
	cleanup_free const char **places = calloc(p->rules.n + 1, sizeof(*places));
	struct ctl_env_opts o = {.env = a->view.env, .create = true, .writable = places};

	if (!places)
		return cli_fail(CLI_FAILED, "out of memory");
	for (size_t i = 0, n = 0; i < p->rules.n; i++)
		if (p->rules.v[i].access == POLICY_WRITE)
			places[n++] = p->rules.v[i].text;
	plan->profile = p;
	return with_opts(a, plan, &o, NULL);
}

static int run_managed(const struct run_args *a, struct run_plan *plan, const struct profile *p)
{
	cleanup_managed struct cli_managed m = {0};
	struct diag diag = {0};
	int r = cli_managed(p, a->view.env, a->write_through, &diag, &m);

	/* Those of the command line stand behind, and win. */
	for (size_t i = 0; r == 0 && m.vars[i]; i++)
		r = put_var_first(plan, m.vars[i]);
	if (r < 0)
		return run_not_started(r, &diag);
	for (size_t i = 0; i < p->nnotes; i++)
		fprintf(stderr, "rattan: %s\n", p->notes[i]);
	plan->profile = p;
	return with_opts(a, plan, &m.opts, p->tmp);
}

int run_profiled(const struct run_args *a, struct run_plan *plan)
{
	cleanup_local struct cli_local local = {0};
	cleanup_profile struct profile *p = NULL;
	cleanup_net_rules struct net_rules net = {0};
	struct cli_config config = {0};
	struct diag d = {0};
	int r = cli_limits_parse(&a->view.limits, &plan->view.limits, &d);

	if (r == 0)
		r = cli_config_load(&d, &config);
	if (r == 0)
		r = cli_net_rules(&a->view.net, &config, &d, &net);
	if (r == 0)
		r = cli_local_init(&config, &d, &local);
	local.l.net = &net;
	if (r == 0 && a->write_through)
		r = cli_local_through(&local, a->view.env);
	if (r == 0)
		r = cli_profile_read(a->profile, &local.l, &d, &p);
	cli_config_release(&config);
	if (r < 0)
		return cli_fail_errno(r, &d, a->by);
	r = check_profiled(a, p);
	if (r >= 0)
		return r;
	if (!p->network && !p->role && a->view.net.allow.n)
		fprintf(stderr,
			"rattan: the profile has no network, and --allow-domain gives it none\n");
	if (a->write_through && plan->view.limits.disk)
		return cli_fail(CLI_USAGE,
				"%s: --limit disk counts what an environment keeps, and "
				"with --write-through it keeps nothing",
				a->by);
	if (a->explain)
		return cli_profile_explain(p, &local.l, &a->set, a->cmd, a->ncmd);
	if (p->family == PROFILE_ROLE)
		return cli_role_run(p, &local.l, &a->set, a->session, a->cmd, plan->vars);
	return p->family == PROFILE_AGENT ? run_agent(a, plan, p) : run_managed(a, plan, p);
}
