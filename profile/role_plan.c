#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/place.h"
#include "profile/role.h"
#include "profile/role_internal.h"

struct planning {
	const struct role *role;
	const struct role_value *values;
	size_t nvalues;
	struct diag *diag;
	struct role_plan *plan;
};

void role_plan_release(struct role_plan *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->mounts[i].source);
		free(p->mounts[i].dest);
		free(p->mounts[i].why);
	}
	free(p->mounts);
	for (size_t i = 0; p->make && p->make[i]; i++)
		free(p->make[i]);
	free(p->make);
	for (size_t i = 0; p->env && p->env[i]; i++)
		free(p->env[i]);
	free(p->env);
	free(p->cwd);
	*p = (struct role_plan){0};
}

/* ---- parameters ---- */

static const char *value_of(const struct planning *p, const char *name, size_t n)
{
	for (size_t i = 0; i < p->nvalues; i++)
		if (!strncmp(p->values[i].name, name, n) && !p->values[i].name[n])
			return p->values[i].value;
	return NULL;
}

static bool is_word(char *const *words, const char *s)
{
	for (; *words; words++)
		if (!strcmp(*words, s))
			return true;
	return false;
}

static int check_param(const struct planning *p, const struct role_param *param)
{
	const char *v = value_of(p, param->name, strlen(param->name));
	struct field f = {.diag = p->diag};
	cleanup_free char *clean = NULL;
	int r;

	(void)snprintf(f.where, sizeof(f.where), "%s", param->name);
	if (!v && !param->optional)
		return field_fail(&f, "this parameter of the role is missing; give --set %s=VALUE",
				  param->name);
	if (!v)
		return 0;
	if (param->words)
		return is_word(param->words, v)
			       ? 0
			       : field_fail(&f, "'%.100s' is not a value of this parameter", v);
	r = place_parse(&f, v, &clean);
	if (r == 0 && strcmp(clean, v) != 0)
		r = field_fail(&f, "'%.100s' must be written without //, . and a slash at the end",
			       v);
	if (r == 0 && !strcmp(v, "/"))
		r = field_fail(&f, "/ is not opened to a role");
	return r;
}

static int check_values(const struct planning *p)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->nvalues; i++) {
		bool known = false;

		for (size_t k = 0; k < p->role->nparams; k++)
			known |= !strcmp(p->role->params[k].name, p->values[i].name);
		if (!known)
			r = diag_set(p->diag, -EINVAL, "'%.60s' is not a parameter of this role",
				     p->values[i].name);
	}
	for (size_t i = 0; r == 0 && i < p->role->nparams; i++)
		r = check_param(p, &p->role->params[i]);
	return r;
}

/* 1 and *ret, owned; 0: a parameter in it has no value. */
static int fill(const struct planning *p, const char *s, char **ret)
{
	cleanup_buf struct buf b = {0};
	int r = buf_puts(&b, "");

	while (r == 0 && *s) {
		size_t n = strcspn(s, "{");
		const char *v;

		r = buf_put(&b, s, n);
		s += n;
		if (r < 0 || !*s)
			break;
		n = strcspn(s + 1, "}");
		v = value_of(p, s + 1, n);
		if (!v)
			return 0;
		r = buf_puts(&b, v);
		s += n + 2;
	}
	if (r == 0)
		r = buf_steal(&b, ret, NULL);
	return r < 0 ? r : 1;
}

/* ---- binds ---- */

static int append(struct planning *p, struct role_mount *m)
{
	struct role_mount *v = realloc(p->plan->mounts, (p->plan->n + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	p->plan->mounts = v;
	v[p->plan->n++] = *m;
	*m = (struct role_mount){0};
	return 0;
}

static int to_link(struct role_mount *m)
{
	char target[PATH_MAX];
	ssize_t n = readlink(m->source, target, sizeof(target) - 1);

	if (n <= 0)
		return n < 0 ? ret_nerrno() : -ENOENT;
	target[n] = 0;
	free(m->source);
	m->kind = ROLE_LINK;
	m->source = strdup(target);
	return m->source ? 0 : -ENOMEM;
}

/* Will be there: it is made before anything is mounted. */
static bool is_made(const struct planning *p, const char *path)
{
	for (char **m = p->plan->make; *m; m++)
		if (!strcmp(*m, path))
			return true;
	return false;
}

/* What the host has at the source decides. 1: mount it, 0: skip it. */
static int look(struct planning *p, const struct role_bind *b, struct role_mount *m)
{
	cleanup_free char *real = NULL;
	struct stat st;

	if (lstat(m->source, &st) < 0 && errno == ENOENT && is_made(p, m->source))
		return 1;
	if (lstat(m->source, &st) < 0)
		return b->may_miss && errno == ENOENT
			       ? 0
			       : diag_set(p->diag, -EINVAL, "%s (%s): %s", m->source, m->why,
					  err_text(errno));
	if (S_ISLNK(st.st_mode) && b->copy_link)
		return to_link(m) < 0 ? -ENOMEM : 1;
	if (!b->real && !b->outside)
		return 1;
	real = realpath(m->source, NULL);
	if (!real)
		return diag_set(p->diag, -EINVAL, "%s (%s): %s", m->source, m->why,
				err_text(errno));
	if (b->outside && place_in(real, b->outside))
		return 0;
	if (b->real) {
		free(m->source);
		m->source = steal_ptr(&real);
	}
	return 1;
}

static int plan_bind(struct planning *p, const struct role_bind *b, struct role_mount *m)
{
	int r = 1;

	if (b->when.name) {
		const char *v = value_of(p, b->when.name, strlen(b->when.name));

		if (!v || strcmp(v, b->when.value) != 0)
			return 0;
	}
	m->kind = b->kind;
	m->why = strdup(b->why);
	if (!m->why)
		return -ENOMEM;
	if (b->source)
		r = fill(p, b->source, &m->source);
	if (r > 0)
		r = fill(p, b->dest ? b->dest : b->source, &m->dest);
	if (r > 0 && b->source)
		r = look(p, b, m);
	return r <= 0 ? r : append(p, m);
}

static void mount_release(struct role_mount *m)
{
	free(m->source);
	free(m->dest);
	free(m->why);
}

static int plan_binds(struct planning *p)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < p->role->nbinds; i++) {
		struct role_mount m = {0};

		r = plan_bind(p, &p->role->binds[i], &m);
		mount_release(&m);
	}
	return r < 0 ? r : 0;
}

/* ---- the rest ---- */

static int plan_env(struct planning *p)
{
	const struct role *role = p->role;
	int r = 1;

	p->plan->env = calloc(role->nenv + 1, sizeof(*p->plan->env));
	if (!p->plan->env)
		return -ENOMEM;
	for (size_t i = 0, k = 0; r >= 0 && i < role->nenv; i++) {
		cleanup_free char *value = NULL;

		r = fill(p, role->env[i].value, &value);
		if (r <= 0)
			continue;
		if (asprintf(&p->plan->env[k], "%s=%s", role->env[i].name, value) < 0) {
			p->plan->env[k] = NULL;
			return -ENOMEM;
		}
		k++;
	}
	return r < 0 ? r : 0;
}

static int plan_make(struct planning *p)
{
	const struct role *role = p->role;
	int r = 1;

	p->plan->make = calloc(role->nmake + 1, sizeof(*p->plan->make));
	if (!p->plan->make)
		return -ENOMEM;
	for (size_t i = 0, k = 0; r >= 0 && i < role->nmake; i++) {
		r = fill(p, role->make[i], &p->plan->make[k]);
		k += r > 0;
	}
	return r < 0 ? r : 0;
}

int role_plan(const struct role *role, const struct role_value *values, size_t n, struct diag *diag,
	      struct role_plan *ret)
{
	struct role_plan plan = {0};
	struct planning p = {
		.role = role, .values = values, .nvalues = n, .diag = diag, .plan = &plan};
	int r = check_values(&p);

	if (r == 0)
		r = plan_make(&p);
	if (r == 0)
		r = plan_binds(&p);
	if (r == 0)
		r = plan_env(&p);
	if (r == 0)
		r = fill(&p, role->cwd, &plan.cwd);
	if (r == 0)
		r = diag_set(diag, -EINVAL, "the role's cwd needs a parameter that was not given");
	if (r < 0) {
		role_plan_release(&plan);
		return r;
	}
	*ret = plan;
	return 0;
}

/* As it is written: what it comes to depends on the values. */
int role_explain(const struct role *role, struct buf *ret)
{
	static const char *const kinds[] = {"ro", "rw", "dev", "proc", "link"};
	int r = 0;

	for (size_t i = 0; !r && i < role->nbinds; i++) {
		const struct role_bind *b = &role->binds[i];
		const char *dest = b->dest ? b->dest : b->source;

		r = buf_printf(ret, "%-5s %s", kinds[b->kind], b->source ? b->source : dest);
		if (!r && b->source && b->dest)
			r = buf_printf(ret, " at %s", dest);
		if (!r && b->when.name)
			r = buf_printf(ret, " (if %s is %s)", b->when.name, b->when.value);
		if (!r)
			r = buf_printf(ret, "  # %s\n", b->why);
	}
	return r ? r
		 : buf_puts(ret, "ro    /  # nothing else is there, and nothing can be added\n");
}
