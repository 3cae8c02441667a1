#include "profile/role.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/role_internal.h"

#define LIST_MAX 512

static void words_free(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

static void bind_release(struct role_bind *b)
{
	free(b->source);
	free(b->dest);
	free(b->why);
	free(b->outside);
	free(b->when.name);
	free(b->when.value);
}

void role_free(struct role *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->nparams; i++) {
		free(r->params[i].name);
		words_free(r->params[i].words);
	}
	for (size_t i = 0; i < r->nbinds; i++)
		bind_release(&r->binds[i]);
	for (size_t i = 0; i < r->nenv; i++) {
		free(r->env[i].name);
		free(r->env[i].value);
	}
	words_free(r->make);
	free(r->params);
	free(r->binds);
	free(r->env);
	free(r->cwd);
	free(r);
}

/* ---- reading ---- */

static int copy(const char *s, char **ret)
{
	*ret = s ? strdup(s) : NULL;
	return s && !*ret ? -ENOMEM : 0;
}

/* An optional text, owned. */
static int take_text(const struct field *f, const char *name, char **ret)
{
	const char *s = NULL;
	int r = field_text(f, name, &s);

	return r < 0 ? r : copy(s, ret);
}

static int take_words(const struct field *list, char ***ret, size_t *ret_n)
{
	int n = cJSON_GetArraySize(list->o);
	struct field item;
	unsigned i = 0;
	char **v;

	if (n > LIST_MAX)
		return field_fail(list, "has more than %d elements", LIST_MAX);
	v = calloc((size_t)n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	*ret = v;
	for (const cJSON *o = list->o->child; o; o = o->next, i++) {
		field_item(list, i, o, &item);
		if (!cJSON_IsString(o))
			return field_fail(&item, "must be a text");
		v[i] = strdup(o->valuestring);
		if (!v[i])
			return -ENOMEM;
	}
	*ret_n = i;
	return 0;
}

static const struct role_param *find_param(const struct role *r, const char *name, size_t n)
{
	for (size_t i = 0; i < r->nparams; i++)
		if (!strncmp(r->params[i].name, name, n) && !r->params[i].name[n])
			return &r->params[i];
	return NULL;
}

/* Every {name} is a parameter, so that a slip is found when the profile is read. */
static int check_template(const struct role *r, const struct field *f, const char *s)
{
	for (; s && (s = strchr(s, '{')); s++) {
		size_t n = strcspn(s + 1, "}");

		if (!s[1 + n])
			return field_fail(f, "'%.100s': a { without }", s);
		if (!find_param(r, s + 1, n))
			return field_fail(f, "'{%.*s}' is not a parameter of this role",
					  n > 60 ? 60 : (int)n, s + 1);
	}
	return 0;
}

static int take_param(const struct field *f, struct role_param *p)
{
	static const char *const keys[] = {"about", "optional", "values", NULL};
	struct field list;
	size_t n;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_bool(f, "optional", &p->optional);
	if (r >= 0)
		r = field_array(f, "values", &list);
	return r <= 0 ? r : take_words(&list, &p->words, &n);
}

static int take_params(const struct field *f, struct role *role)
{
	struct field list, at;
	int n, r = field_object(f, "parameters", &list);

	if (r > 0)
		r = field_check(&list, NULL) < 0 ? -EINVAL : 1;
	if (r <= 0)
		return r;
	n = cJSON_GetArraySize(list.o);
	if (n > LIST_MAX)
		return field_fail(&list, "has more than %d parameters", LIST_MAX);
	role->params = calloc((size_t)n + 1, sizeof(*role->params));
	if (!role->params)
		return -ENOMEM;
	for (const cJSON *o = list.o->child; o; o = o->next) {
		struct role_param *p = &role->params[role->nparams++];

		p->name = strdup(o->string);
		if (!p->name)
			return -ENOMEM;
		field_at(&list, o->string, &at);
		r = take_param(&at, p);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_when(const struct role *role, const struct field *f, struct role_bind *b)
{
	struct field when;
	int r = field_object(f, "if", &when);

	if (r <= 0)
		return r;
	if (cJSON_GetArraySize(when.o) != 1 || !cJSON_IsString(when.o->child))
		return field_fail(&when, "must name one parameter and its value");
	if (!find_param(role, when.o->child->string, strlen(when.o->child->string)))
		return field_fail(&when, "'%.60s' is not a parameter of this role",
				  when.o->child->string);
	r = copy(when.o->child->string, &b->when.name);
	return r < 0 ? r : copy(when.o->child->valuestring, &b->when.value);
}

/* What belongs together of the keys of a bind. */
static int check_bind(const struct role *role, const struct field *f, const struct role_bind *b)
{
	bool private = b->kind == ROLE_DEV || b->kind == ROLE_PROC;
	int r;

	if (!b->why || !*b->why)
		return field_fail(f, "'why' is missing: every bind has its reason");
	if (private != !b->source)
		return field_fail(f, private ? "a private directory has no source"
					     : "'source' is missing");
	if (!b->source && !b->dest)
		return field_fail(f, "'dest' is missing");
	if (b->kind == ROLE_RW && (b->real || b->copy_link))
		return field_fail(f, "a link is not followed to a place that may be written");
	r = check_template(role, f, b->source);
	return r < 0 ? r : check_template(role, f, b->dest);
}

static int take_bind(const struct role *role, const struct field *f, struct role_bind *b)
{
	static const char *const keys[] = {"kind", "source",  "dest",     "why",       "if",
					   "real", "outside", "may_miss", "copy_link", NULL};
	static const char *const kinds[] = {"ro", "rw", "dev", "proc", NULL};
	unsigned kind = 0;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_need_word(f, "kind", kinds, &kind);
	b->kind = (enum role_kind)kind;
	if (r >= 0)
		r = take_text(f, "source", &b->source);
	if (r >= 0)
		r = take_text(f, "dest", &b->dest);
	if (r >= 0)
		r = take_text(f, "why", &b->why);
	if (r >= 0)
		r = take_text(f, "outside", &b->outside);
	if (r >= 0)
		r = field_bool(f, "real", &b->real);
	if (r >= 0)
		r = field_bool(f, "copy_link", &b->copy_link);
	if (r >= 0)
		r = field_bool(f, "may_miss", &b->may_miss);
	if (r >= 0)
		r = take_when(role, f, b);
	return r < 0 ? r : check_bind(role, f, b);
}

static int take_binds(const struct field *f, struct role *role)
{
	struct field list, item;
	int n, r = field_array(f, "binds", &list);
	unsigned i = 0;

	if (r == 0)
		return field_fail(f, "'binds' is missing");
	if (r < 0)
		return r;
	n = cJSON_GetArraySize(list.o);
	if (n > LIST_MAX)
		return field_fail(&list, "has more than %d binds", LIST_MAX);
	role->binds = calloc((size_t)n + 1, sizeof(*role->binds));
	if (!role->binds)
		return -ENOMEM;
	for (const cJSON *o = list.o->child; o; o = o->next) {
		field_item(&list, i++, o, &item);
		r = take_bind(role, &item, &role->binds[role->nbinds++]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_env(const struct field *f, struct role *role)
{
	struct field env, at;
	int r = field_object(f, "env", &env);

	if (r > 0)
		r = field_check(&env, NULL) < 0 ? -EINVAL : 1;
	if (r <= 0)
		return r;
	role->env = calloc((size_t)cJSON_GetArraySize(env.o) + 1, sizeof(*role->env));
	if (!role->env)
		return -ENOMEM;
	for (const cJSON *o = env.o->child; o; o = o->next) {
		struct role_pair *p = &role->env[role->nenv++];

		field_at(&env, o->string, &at);
		if (!cJSON_IsString(o) || !*o->string || strchr(o->string, '='))
			return field_fail(&at, "must be a variable with a text");
		r = copy(o->string, &p->name);
		if (r == 0)
			r = copy(o->valuestring, &p->value);
		if (r == 0)
			r = check_template(role, &at, p->value);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_make(const struct field *f, struct role *role)
{
	struct field list;
	int r = field_array(f, "make", &list);

	if (r > 0)
		r = take_words(&list, &role->make, &role->nmake);
	for (size_t i = 0; r >= 0 && i < role->nmake; i++)
		r = check_template(role, &list, role->make[i]);
	return r < 0 ? r : 0;
}

static int take_all(const struct field *f, struct role *role)
{
	static const char *const keys[] = {"family", "name", "about", "parameters", "make",
					   "env",    "cwd",  "binds", NULL};
	int r = field_check(f, keys);

	if (r == 0)
		r = take_params(f, role);
	if (r >= 0)
		r = take_binds(f, role);
	if (r >= 0)
		r = take_env(f, role);
	if (r >= 0)
		r = take_make(f, role);
	if (r >= 0)
		r = take_text(f, "cwd", &role->cwd);
	if (r >= 0 && !role->cwd)
		return field_fail(f, "'cwd' is missing");
	return r < 0 ? r : check_template(role, f, role->cwd);
}

int role_parse(const struct field *f, struct role **ret)
{
	struct role *role = calloc(1, sizeof(*role));
	int r = role ? take_all(f, role) : -ENOMEM;

	if (r < 0) {
		role_free(role);
		return r;
	}
	*ret = role;
	return 0;
}
