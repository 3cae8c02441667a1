#include "cli/profiled.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "policy/policy.h"
#include "profile/place.h"
#include "profile/role.h"

void cli_local_release(struct cli_local *l)
{
	free(l->cwd);
	free(l->tmp);
	free(l->own[0]);
	free(l->own[1]);
	*l = (struct cli_local){0};
}

/* As the host names it, or as it will. */
static int own_dir(int (*make)(char **ret), char **ret)
{
	cleanup_free char *dir = NULL;
	struct diag d = {0};
	const struct field f = {.diag = &d};
	int r = make(&dir);

	if (r < 0)
		return r;
	*ret = realpath(dir, NULL);
	return *ret ? 0 : place_parse(&f, dir, ret);
}

int cli_local_init(const struct cli_config *c, struct diag *diag, struct cli_local *ret)
{
	const char *tmpdir = getenv("TMPDIR"), *home = getenv("HOME");
	int r;

	ret->cwd = realpath(".", NULL);
	if (!ret->cwd)
		return diag_set(diag, -EINVAL, "the current directory is gone: %s",
				err_text(errno));
	r = own_dir(ctl_data_dir, &ret->own[0]);
	if (r == 0)
		r = own_dir(ctl_runtime_dir, &ret->own[1]);
	if (r < 0)
		return diag_set(diag, r, "where rattan's own data is cannot be told: %s",
				err_text(r));
	ret->closed[0] = ret->own[0];
	ret->closed[1] = ret->own[1];
	ret->l = (struct profile_local){
		.cwd = ret->cwd,
		.session_tmp = CLI_SESSION_TMP,
		.tmpdir = tmpdir && *tmpdir == '/' ? tmpdir : NULL,
		.home = home && *home == '/' ? home : NULL,
		.runtime = (const char *const *)c->runtime,
		.closed = ret->closed,
		.landlock_only = c->landlock_only,
	};
	return 0;
}

int cli_local_through(struct cli_local *l, const char *env)
{
	char own[CLI_ENV_MAX];

	cli_env_name(l->cwd, false, own);
	if (asprintf(&l->tmp, "/tmp/rattan-tmp-%u-%s", (unsigned)geteuid(), env ? env : own) < 0) {
		l->tmp = NULL;
		return -ENOMEM;
	}
	l->l.session_tmp = l->tmp;
	return 0;
}

int cli_profile_read(const char *file, const struct profile_local *l, struct diag *diag,
		     struct profile **ret)
{
	cleanup_buf struct buf b = {0};
	int r = io_read_file(AT_FDCWD, file, PROFILE_TEXT_MAX, &b);

	if (r == -ENOENT)
		return diag_set(diag, r, "there is no profile %s", file);
	if (r < 0)
		return diag_set(diag, -EINVAL, "%s: %s", file, err_text(r));
	return profile_from_text(b.len ? (const char *)b.data : "", b.len, file, l, diag, ret);
}

/* ---- explaining ---- */

static int explain_path(struct policy *policy, const char *path)
{
	cleanup_buf struct buf b = {0};
	struct policy_why why;
	int r = policy_explain(policy, path, &why);

	if (r == 0)
		r = policy_why_text(policy, &why, &b);
	if (r < 0)
		return cli_fail(cli_exit_of(r), "%s: %s", path,
				r == -EINVAL ? "is no absolute path without .." : err_text(r));
	printf("%-5s ", policy_access_name(why.access));
	cli_put(stdout, path);
	printf("  # ");
	cli_put(stdout, b.len ? (const char *)b.data : "");
	printf("\n");
	return CLI_OK;
}

static int explain_paths(const struct profile *p, char *const *paths, int n)
{
	struct policy *policy;
	struct diag d = {0};
	int code = CLI_OK, r = policy_new(&p->rules, &d, &policy);

	if (r < 0)
		return cli_fail_errno(r, &d, "the profile's rules");
	for (int i = 0; code == CLI_OK && i < n; i++)
		code = explain_path(policy, paths[i]);
	policy_free(policy);
	return code == CLI_OK ? cli_done() : code;
}

static void put_plan(const struct role_plan *plan)
{
	static const char *const kinds[] = {"ro", "rw", "dev", "proc", "link"};

	for (size_t i = 0; i < plan->n; i++) {
		const struct role_mount *m = &plan->mounts[i];

		printf("%-5s ", kinds[m->kind]);
		cli_put(stdout, m->dest);
		if (m->source && strcmp(m->source, m->dest) != 0) {
			printf(m->kind == ROLE_LINK ? " -> " : " from ");
			cli_put(stdout, m->source);
		}
		printf("  # ");
		cli_put(stdout, m->why);
		printf("\n");
	}
	printf("ro    /  # nothing else is there, and nothing can be added\n");
	for (char **e = plan->env; *e; e++) {
		printf("env   ");
		cli_put(stdout, *e);
		printf("\n");
	}
	printf("cwd   ");
	cli_put(stdout, plan->cwd);
	printf("\n");
}

/* ---- roles ---- */

/* "NAME=VALUE"; the names are ours. */
static int split(const struct cli_list *set, struct diag *diag, struct role_value **ret)
{
	struct role_value *v = calloc(set->n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	*ret = v;
	for (size_t i = 0; i < set->n; i++) {
		const char *eq = strchr(set->v[i], '=');

		if (!eq || eq == set->v[i])
			return diag_set(diag, -EINVAL, "--set '%s' is not NAME=VALUE", set->v[i]);
		v[i].name = strndup(set->v[i], (size_t)(eq - set->v[i]));
		v[i].value = eq + 1;
		if (!v[i].name)
			return -ENOMEM;
	}
	return 0;
}

/* The control sockets there would lead out of the session, to whatever the user may do; a path that is a link is refused when it is
 * bound. */
static int check_own(const struct role_plan *plan, const char *const *own, struct diag *diag)
{
	for (size_t i = 0; i < plan->n; i++) {
		const struct role_mount *m = &plan->mounts[i];
		cleanup_free char *real = NULL;

		if (m->kind != ROLE_RO && m->kind != ROLE_RW)
			continue;
		real = realpath(m->source, NULL);
		for (const char *const *o = own; *o; o++)
			if (hostdir_below(real ? real : m->source, *o) ||
			    hostdir_below(*o, real ? real : m->source))
				return diag_set(diag, -EINVAL,
						"%s (%s) holds, or is part of, rattan's own data, "
						"which no session is given",
						m->source, m->why);
	}
	return 0;
}

static int make_plan(const struct profile *p, const struct profile_local *l,
		     const struct cli_list *set, struct diag *diag, struct role_plan *ret)
{
	struct role_value *values = NULL;
	int r = split(set, diag, &values);

	if (r == 0)
		r = role_plan(p->role, values, set->n, diag, ret);
	if (r == 0) {
		r = check_own(ret, l->closed, diag);
		if (r < 0)
			role_plan_release(ret);
	}
	for (size_t i = 0; values && i < set->n; i++)
		free((void *)(uintptr_t)values[i].name);
	free(values);
	return r;
}

int cli_profile_explain(const struct profile *p, const struct profile_local *l,
			const struct cli_list *set, char *const *paths, int npaths)
{
	cleanup_buf struct buf b = {0};
	struct role_plan plan = {0};
	struct diag d = {0};
	int r;

	if (npaths && p->role)
		return cli_fail(CLI_USAGE, "run: a role has binds, and no rules on paths");
	if (npaths)
		return explain_paths(p, paths, npaths);
	if (p->role && set->n) {
		r = make_plan(p, l, set, &d, &plan);
		if (r < 0)
			return cli_fail_errno(r, &d, "the role");
		put_plan(&plan);
		role_plan_release(&plan);
		return cli_done();
	}
	r = profile_explain(p, &b);
	if (r < 0)
		return cli_fail_errno(r, NULL, "the profile");
	/* A line feed ends a line; everything else that is no text is shown as what it is. */
	for (char *s = (char *)b.data, *end; s && *s; s = end) {
		end = strchr(s, '\n');
		*end++ = 0;
		cli_put(stdout, s);
		printf("\n");
	}
	return cli_done();
}

static int start_session(const struct role_plan *plan, const char *session, char *const *argv,
			 char *const *env, struct diag *diag, pid_t *ret)
{
	cleanup_free struct run_mount *mounts = calloc(plan->n + 1, sizeof(*mounts));
	cleanup_free char *dir = NULL;
	struct role_spec s = {.name = session,
			      .n = plan->n,
			      .make = (const char *const *)plan->make,
			      .argv = (const char *const *)argv,
			      .env = (const char *const *)env,
			      .cwd = plan->cwd};
	int r = mounts ? cli_session_dir(&dir) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < plan->n; i++) {
		static const enum run_mount_kind kinds[] = {
			[ROLE_RO] = RUN_MOUNT_RO,     [ROLE_RW] = RUN_MOUNT_RW,
			[ROLE_DEV] = RUN_MOUNT_DEV,   [ROLE_PROC] = RUN_MOUNT_PROC,
			[ROLE_LINK] = RUN_MOUNT_LINK,
		};
		const struct role_mount *m = &plan->mounts[i];

		mounts[i] = (struct run_mount){kinds[m->kind], m->source, m->dest};
	}
	s.mounts = mounts;
	s.dir = dir;
	return r < 0 ? r : role_start(&s, diag, ret);
}

/* The role's variables, and after them the command line's, which win. */
static int join_env(char *const *role, char *const *more, char ***ret)
{
	size_t n = 0, k = 0;
	char **v;

	while (role[n])
		n++;
	while (more && more[k])
		k++;
	v = calloc(n + k + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	memcpy(v, role, n * sizeof(*v));
	if (k)
		memcpy(v + n, more, k * sizeof(*v));
	*ret = v;
	return 0;
}

/* A session's name, from the profile's, which may be its file's path. */
static void own_name(const char *profile, char ret[static 64])
{
	const char *slash = strrchr(profile, '/'), *s = slash ? slash + 1 : profile;
	size_t n = 0;

	for (; *s && n < 40; s++)
		if (isalnum((unsigned char)*s) || (n && strchr("._-", *s)))
			ret[n++] = *s;
	(void)snprintf(ret + n, 64 - n, "%s-%d", n ? "" : "role", (int)getpid());
}

int cli_role_run(const struct profile *p, const struct profile_local *l, const struct cli_list *set,
		 const char *session, char *const *argv, char *const *env)
{
	cleanup_free char **all = NULL;
	struct role_plan plan = {0};
	struct diag d = {0};
	char name[64];
	sigset_t signals;
	pid_t pid;
	int r = make_plan(p, l, set, &d, &plan);

	if (r < 0)
		return cli_fail_errno(r, &d, "the role");
	own_name(p->name, name);
	cli_session_signals(&signals);
	r = join_env(plan.env, env, &all);
	if (r == 0)
		r = start_session(&plan, session ? session : name, argv, all, &d, &pid);
	role_plan_release(&plan);
	if (r == -ENOTSUP)
		return cli_fail(CLI_NO_SANDBOX, "sandbox-unavailable: %s", d.text);
	if (r < 0)
		return cli_fail_errno(r, &d, "the session was not started");
	return cli_session_wait(pid, session ? session : name);
}
