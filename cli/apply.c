/* rattan apply: changes go to the host directory that was laid under them. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "apply/below.h"
#include "base/io.h"
#include "cli/apply_internal.h"
#include "cli/managed.h"
#include "cli/profiled.h"

/* ---- the policy ---- */

/* Without a profile: what is shown may be written, but for the names that programs believe without asking, at any depth. */
static int default_policy(struct applying *x, struct diag *diag)
{
	static const char *const names[] = {".git", ".agents", ".codex"};
	cleanup_policy_rules struct policy_rules rules = {.otherwise = POLICY_READ, .deep = true};
	int r = 0;

	for (size_t i = 0; r == 0 && i < x->n; i++)
		r = policy_rules_add(&rules, POLICY_WRITE, POLICY_PATH, x->v[i].mount, NULL, diag);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++)
		r = policy_rules_protect(&rules, names[i], diag);
	return r < 0 ? r : policy_new(&rules, diag, &x->policy);
}

static int connect_profiled(struct applying *x)
{
	cleanup_local struct cli_local local = {0};
	cleanup_profile struct profile *p = NULL;
	cleanup_managed struct cli_managed m = {0};
	struct cli_config config = {0};
	struct ctl_env_opts o;
	struct diag d = {0};
	int r = cli_config_load(&d, &config);

	if (r == 0)
		r = cli_local_init(&config, &d, &local);
	if (r == 0)
		r = cli_profile_read(x->a->profile, &local.l, &d, &p);
	cli_config_release(&config);
	if (r == 0)
		r = policy_new(&p->rules, &d, &x->policy);
	if (r < 0)
		return cli_fail_errno(r, &d, "apply");
	if (p->family == PROFILE_ROLE)
		return cli_fail(CLI_USAGE,
				"apply: a role's session has no environment whose changes "
				"could be applied");
	if (p->family == PROFILE_AGENT)
		return cli_connect(x->a->env, &x->client, &x->ctl);
	r = cli_managed(p, x->a->env, false, &d, &m);
	if (r == 0) {
		o = m.opts;
		o.create = false;
		r = client_new(&o, &x->client);
	}
	if (r == 0)
		r = client_ctl_get(x->client, &d, &x->ctl);
	return r < 0 ? cli_fail_errno(r, &d, "the environment cannot be reached") : -1;
}

/* ---- the work ---- */

static int settle(void *arg, struct diag *diag)
{
	struct applying *x = arg;
	struct ctl_commit cm = {0};
	int r = ctl_checkpoint(x->ctl, "before it was applied", "apply", diag, &cm);

	ctl_commit_release(&cm);
	if (r != -ENODATA)
		return r;
	if (diag)
		*diag = (struct diag){0};
	return 0;
}

static int own(void *arg, const char *path, struct diag *diag)
{
	struct applying *x = arg;

	return ctl_own(x->ctl, path, diag);
}

static int attach(struct applying *x)
{
	struct diag diag = {0};
	int r = client_attach(x->client, NULL, "apply", &diag, &x->tree);

	if (r < 0)
		return cli_fail_errno(r, &diag, "the tree cannot be read");
	x->attached = true;
	return -1;
}

static void add_sum(struct apply_sum *to, const struct apply_sum *s)
{
	to->done += s->done;
	to->conflicts += s->conflicts;
	to->refused += s->refused;
	if (s->id)
		to->id = s->id;
}

static int tell_failed(int r, const struct diag *diag, const struct apply_sum *sum,
		       const char *host)
{
	const char *more = err_no_room(r) ? ": make room, and apply again" : "";
	int code = r == -ECANCELED ? 128 + SIGINT : cli_exit_of(r);

	if (sum->left)
		return cli_fail(code, "%s%s", diag->text, more);
	return cli_fail(code, "%s; nothing was applied to %s%s",
			r == -ECANCELED ? "interrupted" : diag->text, host, more);
}

static struct apply_job job_of(struct applying *x, const struct apply_dir *d, int tree)
{
	return (struct apply_job){.data_dir = x->data_dir,
				  .env = client_env(x->client),
				  .host = d->host,
				  .mount = d->mount,
				  .tree = tree,
				  .v = d->looked ? d->look.v : d->v,
				  .n = d->looked ? d->look.n : d->n,
				  .exact = d->looked,
				  .elsewhere = (const char *const *)x->elsewhere,
				  .nelsewhere = x->nelsewhere,
				  .policy = x->policy,
				  .since = &x->last,
				  .dry_run = x->a->dry_run,
				  .force = x->a->force};
}

static int apply_one(struct applying *x, struct apply_dir *d, int tree, const struct timespec *when,
		     struct apply_sum *sum)
{
	const struct apply_calls calls = {.line = apply_line,
					  .progress = apply_progress,
					  .own = own,
					  .settle = settle,
					  .arg = x};
	struct apply_job job = job_of(x, d, tree);
	struct apply_sum one;
	struct diag diag = {0};
	int r, told;

	job.when = *when;
	x->dir = d;
	told = cJSON_GetArraySize(x->json);
	r = apply_run(&job, &calls, &diag, &one);
	cli_bar_clear(&x->bar);
	apply_tell_closed(x);
	if (r < 0)
		return tell_failed(r, &diag, &one, d->host);
	d->applied = one.id != 0;
	if (x->json && d->applied)
		apply_json_done(x, told);
	add_sum(sum, &one);
	return -1;
}

static int open_tree(struct applying *x, const struct apply_dir *d, int *ret)
{
	int fd = below_dir(x->tree.at.root_fd, d->mount + strspn(d->mount, "/"));

	if (fd < 0)
		return cli_fail_errno(fd, NULL, d->mount);
	*ret = fd;
	return -1;
}

/* What cannot be done is said before anything is asked, and is no question. */
static void say_left(struct applying *x, struct apply_dir *d, struct apply_sum *sum)
{
	x->dir = d;
	for (size_t i = 0; i < d->look.n; i++) {
		const struct apply_seen *s = &d->look.seen[i];
		struct apply_change *c = &d->look.v[i];
		const struct apply_line l = {.verdict = s->verdict,
					     .kind = c->kind,
					     .what = c->what,
					     .path = c->path,
					     .old = c->kind == 'R' ? c->old : NULL,
					     .reason = s->reason,
					     .closed = s->closed};

		c->chosen = s->wanted;
		if (!s->wanted || (s->verdict != APPLY_CONFLICT && s->verdict != APPLY_REFUSED))
			continue;
		c->chosen = false;
		sum->conflicts += s->verdict == APPLY_CONFLICT;
		sum->refused += s->verdict == APPLY_REFUSED;
		apply_line(x, &l);
	}
	apply_tell_closed(x);
}

static int ask_dir(struct applying *x, struct apply_dir *d, int tree, struct apply_sum *sum)
{
	const struct apply_job job = job_of(x, d, tree);
	struct diag diag = {0};
	int r = apply_look(&job, &diag, &d->look);

	if (r < 0)
		return cli_fail_errno(r, &diag, "nothing was applied");
	d->looked = true;
	say_left(x, d, sum);
	return apply_ask(d, tree, &x->asked);
}

/* Nothing has begun, so that nothing has to be ended. */
static void on_stop(int sig)
{
	static const char text[] = "\nrattan: interrupted; nothing was applied\n";

	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(128 + sig);
}

static int ask_all(struct applying *x, struct apply_sum *sum)
{
	const struct sigaction stop = {.sa_handler = on_stop};
	struct sigaction old;
	int code = -1;

	(void)sigaction(SIGINT, &stop, &old);

	for (size_t i = 0; code < 0 && i < x->n; i++) {
		cleanup_fd int tree = -1;

		code = open_tree(x, &x->v[i], &tree);
		if (code < 0)
			code = ask_dir(x, &x->v[i], tree, sum);
	}
	(void)sigaction(SIGINT, &old, NULL);
	return code;
}

static int run_all(struct applying *x, struct apply_sum *sum)
{
	struct timespec when;
	sigset_t old;
	int code = -1;

	(void)clock_gettime(CLOCK_REALTIME, &when);
	apply_begin(x, &old);
	for (size_t i = 0; code < 0 && i < x->n; i++) {
		cleanup_fd int tree = -1;

		if (!x->v[i].n)
			continue;
		code = open_tree(x, &x->v[i], &tree);
		if (code < 0)
			code = apply_one(x, &x->v[i], tree, &when, sum);
	}
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	return code;
}

static void tell_applied(const struct applying *x, const struct apply_sum *sum)
{
	fprintf(stderr, "rattan: %llu applied; to take it back:  rattan unapply -e %s\n",
		(unsigned long long)sum->done, client_env(x->client));
}

/* Of several directories one failed: those before it have what is theirs, and those behind it had no turn. */
static void tell_both(const struct applying *x, const struct apply_sum *sum)
{
	if (!sum->id)
		return;
	(void)fflush(stdout);
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].n) {
			fprintf(stderr,
				"rattan: %s: ", x->v[i].applied ? "applied" : "not applied");
			cli_put(stderr, x->v[i].host);
			fputc('\n', stderr);
		}
	tell_applied(x, sum);
}

static int tell_end(const struct applying *x, const struct apply_sum *sum)
{
	const char *env = client_env(x->client);

	(void)fflush(stdout);
	if (sum->id)
		tell_applied(x, sum);
	else if (!sum->done && x->asked)
		fprintf(stderr, "rattan: nothing was applied\n");
	else if (!sum->done && !sum->conflicts && !sum->refused)
		fprintf(stderr, "rattan: nothing to apply: the host has all of it\n");
	if (sum->refused)
		fprintf(stderr, "rattan: %llu kept back\n", (unsigned long long)sum->refused);
	if (x->git) {
		fprintf(stderr,
			"rattan: git's commits are pulled:  rattan commit -e %s -m TEXT; rattan mount head "
			"DIR -e %s; git pull DIR",
			env, env);
		cli_put(stderr, x->git);
		fputc('\n', stderr);
	}
	if (sum->conflicts)
		fprintf(stderr,
			"rattan: %llu in conflict were left alone; to apply one all the same:  rattan "
			"apply -e %s --force PATH\n",
			(unsigned long long)sum->conflicts, env);
	return sum->conflicts ? CLI_CONFLICT : CLI_OK;
}

static int apply_with(struct applying *x)
{
	struct apply_sum sum = {0};
	struct diag diag = {0};
	int code = apply_load_dirs(x), r;

	if (code < 0 && !x->policy) {
		r = default_policy(x, &diag);
		if (r < 0)
			return cli_fail_errno(r, &diag, "apply");
	}
	if (code < 0)
		code = apply_load_changes(x);
	if (code < 0)
		code = apply_pick(x->v, x->n, x->a->paths, x->a->npaths);
	if (code < 0)
		code = attach(x);
	if (code < 0 && x->a->patch)
		code = ask_all(x, &sum);
	if (code < 0 && x->a->json)
		x->json = cJSON_CreateArray();
	if (code < 0)
		code = run_all(x, &sum);
	if (x->json) {
		r = cli_print_json(x->json);
		x->json = NULL;
		if (code < 0 && r != CLI_OK)
			code = r;
	}
	if (code >= 0) {
		tell_both(x, &sum);
		return code;
	}
	code = tell_end(x, &sum);
	r = cli_done();
	return code ? code : r;
}

static int run_apply(int argc, char **argv)
{
	struct apply_args a = {0};
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &a.env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"dry-run", 'n', CLI_FLAG, &a.dry_run, NULL,
		 "say what would be done, and do nothing"},
		{"force", 0, CLI_FLAG, &a.force, NULL,
		 "with PATHs: also what the host has changed since; it is kept for unapply"},
		{"patch", 'p', CLI_FLAG, &a.patch, NULL, "ask about each change, text by hunks"},
		{"profile", 0, CLI_TEXT, &a.profile, "FILE",
		 "the environment's profile: what it closes never reaches the host"},
		{"json", 0, CLI_FLAG, &a.json, NULL, "the list as JSON"},
		{0},
	};
	cleanup_applying struct applying x = {.a = &a};
	int r = cli_parse(&cmd_apply, opts, argc, argv, false, &a.paths, &a.npaths);

	if (r >= 0)
		return r;
	if (a.force && !a.npaths)
		return cli_fail(CLI_USAGE,
				"apply: --force needs the PATHs whose changes on the host are "
				"to be written over; . is all");
	if (a.patch && a.json)
		return cli_fail(CLI_USAGE, "apply: --patch asks a person, and --json does not");
	r = ctl_data_dir(&x.data_dir);
	if (r < 0)
		return cli_fail_errno(r, NULL, "apply");
	r = a.profile ? connect_profiled(&x) : cli_connect(a.env, &x.client, &x.ctl);
	return r >= 0 ? r : apply_with(&x);
}

const struct cli_command cmd_apply = {
	.name = "apply",
	.args = "[PATH...] [-e NAME] [--dry-run] [--force] [-p] [--profile FILE] [--json]",
	.summary = "bring changes back to the host directory",
	.details =
		"What the environment has changed in a directory that --overlay-cwd or --overlay laid under\n"
		"it goes to that directory: all, or what is at or below a PATH: below this directory, if it is\n"
		"shown, or else /workspace; a path of the host; or a pattern ('*.c' are names at any depth,\n"
		"'src/**/*.c' is a path). What the host has changed since the sandbox saw it is a conflict,\n"
		"and left alone. .git, .agents and .codex are kept back at any depth, or what --profile closes.\n\n"
		"Exit code: 4 when there was a conflict.\n\n"
		"Examples:\n  rattan apply --dry-run\n  rattan apply src '*.md'\n  rattan apply -p\n",
	.run = run_apply,
};
