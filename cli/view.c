/* What `run` and `serve` have in common: which tree a command sees. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

void cli_view_release(struct cli_view *v)
{
	cli_dirs_release(&v->binds);
	cli_dirs_release(&v->overlays);
	free(v->ov);
	free(v->writable);
	net_rules_release(&v->net);
	cli_config_release(&v->config);
	*v = (struct cli_view){0};
}

void cli_view_opts_release(struct cli_view_opts *o)
{
	cli_list_release(&o->binds);
	cli_list_release(&o->binds_ro);
	cli_list_release(&o->overlays);
	cli_list_release(&o->writable);
	cli_list_release(&o->limits);
	cli_list_release(&o->net.allow);
	cli_list_release(&o->net.deny);
}

static bool refused(const struct cli_view *v)
{
	return v->refused && v->refused->text[0];
}

static int add_cwd(struct cli_view *v, struct cli_dirs *d, enum cli_dir_kind kind,
		   struct diag *diag)
{
	int r = cli_dirs_add_cwd(d, kind, diag);

	if (r != -EINVAL || !v->refused)
		return r;
	return diag_set(v->refused, 0,
			"%s. The client has started this server there: it can start it in the "
			"project, or with --overlay /the/project=/workspace --env NAME in the "
			"place of --overlay-cwd",
			diag->text);
}

/* @option: in the words of the command line, with what it was given. */
static int refuse(struct cli_view *v, int r, const char *option, const char *spec,
		  struct diag *diag)
{
	if (r != -EINVAL || !v->refused)
		return r;
	return diag_set(v->refused, 0,
			"%s. This server was started with %s%s%s: put that right where the client "
			"has its configuration, or in rattan's settings, and start it again",
			diag->text, option, *spec ? " " : "", spec);
}

static int add_dirs(struct cli_view *v, struct cli_dirs *d, enum cli_dir_kind kind,
		    const struct cli_list *l, const char *option, struct diag *diag)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < l->n && !refused(v); i++)
		r = refuse(v, cli_dirs_add(d, kind, l->v[i], diag), option, l->v[i], diag);
	return r;
}

static int collect(const struct cli_view_opts *o, struct cli_view *v, struct diag *diag)
{
	int r = 0;

	v->binds.roots = v->overlays.roots = (const char *const *)v->config.bind_roots;
	if (o->overlay_cwd)
		r = add_cwd(v, &v->overlays, CLI_OVERLAY, diag);
	if (o->bind_cwd)
		r = add_cwd(v, &v->binds, CLI_BIND, diag);
	if (r >= 0)
		r = add_dirs(v, &v->overlays, CLI_OVERLAY, &o->overlays, "--overlay", diag);
	if (r >= 0)
		r = add_dirs(v, &v->binds, CLI_BIND, &o->binds, "--bind", diag);
	if (r >= 0)
		r = add_dirs(v, &v->binds, CLI_BIND_RO, &o->binds_ro, "--bind-ro", diag);
	if (r < 0 || refused(v))
		return r < 0 ? r : 0;
	return refuse(v, cli_dirs_check(&v->binds, &v->overlays, diag), "both", "", diag);
}

int cli_view(const struct cli_view_opts *o, struct cli_view *v, struct diag *diag)
{
	int r;

	if (o->bind_cwd && o->overlay_cwd)
		return diag_set(diag, -EINVAL,
				"--bind-cwd and --overlay-cwd exclude each other: the "
				"directory is written through to, or it is not");
	r = cli_config_load(diag, &v->config);
	if (r == 0)
		r = cli_net_rules(&o->net, &v->config, diag, &v->net);
	v->net_on = o->net.allow.n > 0;
	if (r == 0)
		r = collect(o, v, diag);
	if (r < 0)
		return r;
	v->ov = calloc(v->overlays.n + 1, sizeof(*v->ov));
	if (!v->ov)
		return -ENOMEM;
	for (size_t i = 0; i < v->overlays.n; i++)
		v->ov[i] = (struct ctl_overlay){v->overlays.v[i].dir.path, v->overlays.v[i].mount};
	if ((o->overlay_cwd || o->bind_cwd) && !refused(v))
		cli_env_name(o->overlay_cwd ? v->overlays.v[0].dir.path : v->binds.v[0].dir.path,
			     o->bind_cwd, v->name);
	v->env = o->env ? o->env : *v->name ? v->name : NULL;
	v->by_place = v->env == v->name;
	r = cli_limits_parse(&o->limits, &v->limits, diag);
	return r < 0 ? r : cli_writable(&o->writable, &v->writable);
}
