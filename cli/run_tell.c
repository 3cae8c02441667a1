/* What rattan run has to say after the command: what it was refused, and what it has changed. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/run_internal.h"

#define DENIALS_SHOWN 5 /* of those that a failed command met */

/* A command can only say "permission denied": the rule is told here. */
static void say_denials(struct client_run *cr)
{
	struct client_denials d = {0};

	if (client_run_denials(cr, DENIALS_SHOWN, &d) < 0)
		return;
	for (size_t i = 0; i < d.n; i++) {
		fprintf(stderr, "rattan: refused: %s ", d.v[i].op);
		cli_put(stderr, d.v[i].path);
		fputs(" (", stderr);
		cli_put(stderr, d.v[i].why);
		fputs(")\n", stderr);
	}
	if (d.total > d.n && d.n == DENIALS_SHOWN)
		fprintf(stderr, "rattan: refused %llu times in all\n", (unsigned long long)d.total);
	client_denials_release(&d);
}

static void say_asked(const struct run_asked *a)
{
	cleanup_buf struct buf remedy = {0};

	if (net_verdict_remedy(a->verdict, a->host, &remedy) < 0)
		return;
	fprintf(stderr, "rattan: %s: connect ",
		net_verdict_refused(a->verdict) ? "refused" : "not reached");
	if (a->host[0]) {
		cli_put(stderr, a->host);
		fprintf(stderr, ":%u ", a->port);
	}
	fprintf(stderr, "(%s%s%s)\n", net_verdict_text(a->verdict), remedy.len ? "; " : "",
		remedy.len ? (const char *)remedy.data : "");
}

/* What the network was asked for: what was refused when the command failed, and with @all everything. */
static bool say_network(struct run *run, bool failed, bool all)
{
	struct run_asked *v = NULL;
	size_t n, shown = 0;
	uint64_t total;
	bool refused = false;

	if (run_asked(run, &v, &n, &total) < 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		refused = refused || net_verdict_refused(v[i].verdict);
		if (v[i].verdict == NET_OK) {
			if (all)
				fprintf(stderr, "rattan: network: %s:%u, %llu times\n", v[i].host,
					v[i].port, (unsigned long long)v[i].count);
		} else if (all || (failed && shown++ < DENIALS_SHOWN)) {
			say_asked(&v[i]);
		}
	}
	if (!all && shown > DENIALS_SHOWN)
		fprintf(stderr, "rattan: and %zu more on the network; -v shows all\n",
			shown - DENIALS_SHOWN);
	free(v);
	return refused;
}

bool run_tell_refused(struct client_run *cr, bool failed, bool all)
{
	if (failed)
		say_denials(cr);
	return say_network(client_run_of(cr), failed, all);
}

void run_tell_changes(struct ctl *ctl, const char *env, uint64_t token_before)
{
	struct ctl_status s;

	if (ctl_status(ctl, NULL, &s) < 0)
		return;
	if (s.dirty && s.token != token_before) {
		fprintf(stderr,
			"rattan: %s: %llu added, %llu modified, %llu deleted, %llu renamed, not "
			"committed\n",
			env, (unsigned long long)s.added, (unsigned long long)s.modified,
			(unsigned long long)s.deleted, (unsigned long long)s.renamed);
		fprintf(stderr, "rattan: to look:  rattan diff -e %s\n", env);
		if (s.overlays && *s.overlays)
			fprintf(stderr, "rattan: to apply: rattan apply -e %s\n", env);
		fprintf(stderr,
			"rattan: to keep:  rattan commit -e %s -m TEXT   to drop:  rattan reset -e %s\n",
			env, env);
	}
	ctl_status_release(&s);
}

void run_tell_where(const char *env)
{
	char here[CLI_ENV_MAX];

	cli_env_here(here);
	if (strcmp(here, env) != 0)
		fprintf(stderr,
			"rattan: that was in %s; the environment of this directory is %s, for which it "
			"takes -e, or what made it (--overlay-cwd)\n",
			env, here);
}
