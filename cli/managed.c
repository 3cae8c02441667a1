#include "cli/managed.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Made anew for every environment, or for every command. */
static const char *const not_shown[] = {"proc", "sys", "dev", "run", "lost+found", "boot"};
#define SHOWN_MAX 64

void cli_managed_release(struct cli_managed *m)
{
	for (size_t i = 0; i < m->opts.noverlays; i++)
		free((void *)(uintptr_t)m->overlays[i].host);
	free(m->overlays);
	profile_vars_free(m->vars);
	buf_release(&m->policy);
	*m = (struct cli_managed){0};
}

static bool is_shown(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(not_shown); i++)
		if (!strcmp(not_shown[i], name))
			return false;
	return name[0] != '.';
}

/* A top directory of the host at its own place. */
static int show(struct cli_managed *m, const char *name)
{
	char *path;
	struct stat st;

	if (asprintf(&path, "/%s", name) < 0)
		return -ENOMEM;
	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || m->opts.noverlays == SHOWN_MAX) {
		free(path);
		return 0;
	}
	m->overlays[m->opts.noverlays++] = (struct ctl_overlay){path, path};
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int show_host(struct cli_managed *m, struct diag *diag)
{
	struct dirent **v = NULL;
	int n = scandir("/", &v, NULL, by_name), r = 0;

	if (n < 0)
		return diag_set(diag, ret_nerrno(), "/ cannot be read: %s", err_text(errno));
	m->overlays = calloc(SHOWN_MAX, sizeof(*m->overlays));
	if (!m->overlays)
		r = -ENOMEM;
	for (int i = 0; i < n; i++) {
		if (r == 0 && is_shown(v[i]->d_name))
			r = show(m, v[i]->d_name);
		free(v[i]);
	}
	free(v);
	return r;
}

int cli_managed_tree(const char *cwd, const char *env, bool through, struct diag *diag,
		     struct cli_managed *ret)
{
	char own[CLI_ENV_MAX];
	int r = through ? 0 : show_host(ret, diag);

	if (r < 0)
		return r;
	cli_env_name(cwd ? cwd : "/", false, own);
	(void)snprintf(ret->name, sizeof(ret->name), "%.50s-%s", own,
		       through ? "through" : "profile");
	ret->opts.env = env ? env : ret->name;
	ret->opts.create = true;
	ret->opts.through = through;
	ret->opts.overlays = ret->overlays;
	return 0;
}

int cli_managed(const struct profile *p, const char *env, bool through, struct diag *diag,
		struct cli_managed *ret)
{
	int r = policy_rules_encode(&p->rules, &ret->policy);

	if (r == 0)
		r = cli_managed_tree(p->cwd, env, through, diag, ret);
	if (r == 0)
		r = profile_vars(p, &ret->vars);
	if (r == 0)
		ret->opts.policy = (struct ctl_bytes){ret->policy.data, ret->policy.len};
	return r;
}
