/* rattan unapply: what was applied comes back. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/apply_internal.h"

static int on_info(void *arg, const struct apply_info *i)
{
	static const char *const states[] = {"applied", "taken back", "failed, undone",
					     "killed; the next apply or unapply undoes it",
					     "applied, too old to be taken back"};
	char when[32] = "";
	struct tm tm;
	size_t *n = arg;

	if (localtime_r(&i->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	printf("%llu  %s  %zu place%s  ", (unsigned long long)i->id, when, i->places,
	       i->places == 1 ? "" : "s");
	cli_put(stdout, i->root);
	if (i->back)
		printf("  (took %llu back)\n", (unsigned long long)i->back);
	else
		printf("  (%s)\n", states[i->state]);
	(*n)++;
	return 0;
}

static int list_runs(const char *data_dir, const char *env)
{
	size_t n = 0;
	int r = apply_list(data_dir, env, on_info, &n);

	if (r < 0)
		return cli_fail_errno(r, NULL, "unapply");
	if (!n)
		printf("nothing of %s was applied yet\n", env);
	return cli_done();
}

/* For struct apply_calls. A name for which there is no memory is not told. */
static void on_root(void *arg, const char *root, bool back)
{
	struct applying *x = arg;

	(void)!buf_put(back ? &x->back : &x->stays, root, strlen(root) + 1);
}

static void tell_roots(const struct buf *b, const char *what)
{
	for (size_t at = 0; at < b->len; at += strlen((const char *)b->data + at) + 1) {
		fprintf(stderr, "rattan: %s: ", what);
		cli_put(stderr, (const char *)b->data + at);
		fputc('\n', stderr);
	}
}

static int tell_failed(const struct applying *x, int r, const struct diag *diag,
		       const struct apply_sum *sum)
{
	const char *more = err_no_room(r) ? ": make room, and unapply again" : "";
	const char *what = r == -ECANCELED && !sum->left ? "interrupted" : diag->text;
	int code = r == -ECANCELED ? 128 + SIGINT : cli_exit_of(r);

	code = cli_fail(code, "%s%s%s", what,
			sum->runs || sum->left ? "" : "; nothing was taken back", more);
	if (sum->runs) {
		tell_roots(&x->back, "taken back");
		tell_roots(&x->stays, "not taken back");
	}
	return code;
}

static int take_back(struct applying *x, const char *env)
{
	const struct apply_calls calls = {
		.line = apply_line, .progress = apply_progress, .root = on_root, .arg = x};
	struct apply_sum sum;
	struct diag diag = {0};
	sigset_t old;
	int r;

	apply_begin(x, &old);
	r = apply_back(x->data_dir, env, x->a->force, &calls, &diag, &sum);
	cli_bar_clear(&x->bar);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (r == -ENODATA)
		return cli_fail(CLI_NOT_FOUND, "%s", diag.text);
	if (r < 0)
		return tell_failed(x, r, &diag, &sum);
	(void)fflush(stdout);
	fprintf(stderr, "rattan: %llu taken back\n", (unsigned long long)sum.done);
	if (sum.conflicts)
		fprintf(stderr,
			"rattan: %llu in conflict were left alone; rattan unapply -e %s "
			"--force takes them back all the same\n",
			(unsigned long long)sum.conflicts, env);
	r = cli_done();
	return sum.conflicts ? CLI_CONFLICT : r;
}

static int run_unapply(int argc, char **argv)
{
	struct apply_args a = {0};
	const struct cli_opt opts[] = {
		{"env", 'e', CLI_TEXT, &a.env, "NAME",
		 "environment; default: this directory's, or 'default'"},
		{"list", 'l', CLI_FLAG, &a.list, NULL, "what was applied, and change nothing"},
		{"force", 0, CLI_FLAG, &a.force, NULL, "also what was changed on the host since"},
		{0},
	};
	cleanup_applying struct applying x = {.a = &a};
	int r = cli_parse(&cmd_unapply, opts, argc, argv, false, &a.paths, &a.npaths);

	if (r >= 0)
		return r;
	if (a.npaths)
		return cli_fail(CLI_USAGE,
				"unapply: takes no path; it takes the last apply back as a "
				"whole");
	r = ctl_data_dir(&x.data_dir);
	if (r < 0)
		return cli_fail_errno(r, NULL, "unapply");
	if (!a.env) {
		r = cli_connect(NULL, &x.client, &x.ctl);
		if (r >= 0)
			return r;
	}

	const char *env = a.env ? a.env : client_env(x.client);

	return a.list ? list_runs(x.data_dir, env) : take_back(&x, env);
}

const struct cli_command cmd_unapply = {
	.name = "unapply",
	.args = "[-e NAME] [--list] [--force]",
	.summary = "take the last apply back",
	.details =
		"The host directory becomes what it was: what was removed comes again, with times, modes and\n"
		"attributes; what was made goes. What was changed since is a conflict, and left alone. Again:\n"
		"the apply before that.\n\n"
		"Example:\n  rattan unapply --list\n",
	.run = run_unapply,
};
