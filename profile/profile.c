#include "profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/policy.h"
#include "profile/resolve.h"
#include "profile/role.h"

void profile_free(struct profile *p)
{
	if (!p)
		return;
	free(p->name);
	policy_rules_release(&p->rules);
	free(p->cwd);
	free(p->tmp);
	free(p->home);
	for (size_t i = 0; i < p->nnotes; i++)
		free(p->notes[i]);
	free(p->notes);
	if (p->net)
		net_rules_release(p->net);
	free(p->net);
	role_free(p->role);
	free(p);
}

static int profile_new(enum profile_family family, const char *name, struct profile **ret)
{
	struct profile *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->family = family;
	p->name = strdup(name);
	if (!p->name) {
		free(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

/* A bad pattern is found here, and not by the mount that would hold it (R37). */
static int check_rules(const struct profile *p, struct diag *diag)
{
	struct policy *policy;
	int r = policy_new(&p->rules, diag, &policy);

	if (r == 0)
		policy_free(policy);
	return r;
}

/* Rules on a network narrow one that the document gives, and are idle without. Where they count they hold, or
 * nothing runs (C12). */
static int set_net(const struct doc *d, const struct profile_local *l, struct diag *diag,
		   struct profile *p)
{
	if (!p->network || !l->net || !net_rules_any(l->net))
		return 0;
	if (d->no_sandbox)
		return diag_set(
			diag, -EINVAL,
			"network: there are rules on domains (--allow-domain, --deny-domain or the "
			"settings), and the profile (%s) asks for no sandbox in which they could "
			"hold",
			d->kind);
	if (p->landlock_only)
		return diag_set(
			diag, -EINVAL,
			"network: there are rules on domains, which Landlock alone cannot hold");
	p->net = calloc(1, sizeof(*p->net));
	return p->net ? net_rules_join(p->net, l->net) : -ENOMEM;
}

static int from_doc(enum profile_family family, const struct doc *d, const char *name,
		    const struct profile_local *l, struct diag *diag, struct profile **ret)
{
	cleanup_profile struct profile *p = NULL;
	int r = profile_new(family, name, &p);

	if (r == 0)
		r = (family == PROFILE_AGENT ? resolve_agent : resolve_managed)(d, l, diag, p);
	if (r == 0)
		r = check_rules(p, diag);
	if (r == 0)
		r = set_net(d, l, diag, p);
	if (r == 0)
		*ret = steal_ptr(&p);
	return r;
}

int profile_from_meta(const cJSON *meta, const struct profile_local *l, struct diag *diag,
		      struct profile **ret)
{
	cleanup_doc struct doc d = {0};
	struct field f = {.o = meta, .where = PROFILE_META_KEY, .diag = diag};
	int r;

	if (!meta || cJSON_IsNull(meta))
		return diag_set(diag, -EINVAL,
				"the call has no _meta[\"" PROFILE_META_KEY "\"], which says what "
				"it may do, and runs nothing without it");
	if (!cJSON_IsObject(meta))
		return field_fail(&f, "must be an object");
	f.where[0] = 0;
	r = doc_parse_meta(&f, &d);
	if (r < 0)
		return r;
	/* What a client did not send is not guessed. */
	if (!d.cwd)
		return diag_set(diag, -EINVAL, "sandboxCwd is missing");
	return from_doc(PROFILE_MANAGED, &d, d.kind, l, diag, ret);
}

/* ---- modes ---- */

struct mode_entry {
	enum doc_what what;
	enum policy_access access;
};

int profile_from_mode(enum profile_mode mode, const struct profile_local *l, struct diag *diag,
		      struct profile **ret)
{
	static const struct mode_entry entries[] = {
		{DOC_ROOT, POLICY_READ},
		{DOC_PROJECT, POLICY_WRITE},
		{DOC_TMPDIR, POLICY_WRITE},
		{DOC_SLASH_TMP, POLICY_WRITE},
	};
	static const struct {
		const char *name;
		size_t n;
	} modes[] = {
		[PROFILE_MODE_READ_ONLY] = {"read-only", 1},
		[PROFILE_MODE_WORKSPACE_WRITE] = {"workspace-write", ARRAY_SIZE(entries)},
		[PROFILE_MODE_FULL_ACCESS] = {"danger-full-access", 0},
	};
	cleanup_doc struct doc d = {0};
	const struct field f = {.where = "mode", .diag = diag};
	int r = 0;

	d.unrestricted = d.network = d.no_sandbox = mode == PROFILE_MODE_FULL_ACCESS;
	d.kind = modes[mode].name;
	for (size_t i = 0; r == 0 && i < modes[mode].n; i++)
		r = doc_add(&d, &f, entries[i].what, entries[i].access, NULL);
	return r < 0 ? r : from_doc(PROFILE_MANAGED, &d, modes[mode].name, l, diag, ret);
}

/* ---- files ---- */

static int check_family(const struct field *f, enum profile_family *ret)
{
	static const char *const families[] = {"agent", "managed", "role", NULL};
	unsigned family = PROFILE_MANAGED;
	int r = field_word(f, "family", families, &family);

	*ret = (enum profile_family)family;
	return r < 0 ? r : 0;
}

static int from_object(const struct field *f, const char *name, const struct profile_local *l,
		       struct profile **ret)
{
	static const char *const keys[] = {"name",
					   "family",
					   "about",
					   "permissionProfile",
					   "sandboxCwd",
					   "useLegacyLandlock",
					   "network",
					   "sandboxPolicy",
					   "codexLinuxSandboxExe",
					   NULL};
	cleanup_doc struct doc d = {0};
	enum profile_family family;
	int r = check_family(f, &family);

	if (r == 0)
		r = field_text(f, "name", &name);
	if (r < 0)
		return r;
	if (family == PROFILE_ROLE) {
		cleanup_profile struct profile *p = NULL;

		r = profile_new(family, name, &p);
		if (r == 0)
			r = role_parse(f, &p->role);
		if (r == 0)
			*ret = steal_ptr(&p);
		return r;
	}
	r = field_check(f, keys);
	if (r == 0)
		r = doc_parse_meta(f, &d);
	return r < 0 ? r : from_doc(family, &d, name, l, f->diag, ret);
}

/* cJSON cuts a string at U+0000: a rule would say less than its author wrote. */
static bool has_nul(const char *text, size_t n)
{
	for (size_t i = 0; i + 6 <= n; i++) {
		if (text[i] != '\\')
			continue;
		if (!strncasecmp(text + i, "\\u0000", 6))
			return true;
		i++;
	}
	return false;
}

int profile_from_text(const char *text, size_t n, const char *name, const struct profile_local *l,
		      struct diag *diag, struct profile **ret)
{
	struct field f = {.diag = diag};
	const char *end = NULL;
	cJSON *o;
	int r;

	if (n > PROFILE_TEXT_MAX)
		return diag_set(diag, -EINVAL, "%s: a profile has at most 1 MiB", name);
	if (memchr(text, 0, n) || has_nul(text, n))
		return diag_set(diag, -EINVAL, "%s: holds the character U+0000", name);
	o = cJSON_ParseWithLengthOpts(text, n, &end, false);
	if (!o)
		return diag_set(diag, -EINVAL, "%s: is not JSON, near byte %zu", name,
				end ? (size_t)(end - text) : 0);
	while (end < text + n && strchr(" \t\r\n", *end))
		end++;
	f.o = o;
	if (end != text + n) {
		r = diag_set(diag, -EINVAL, "%s: something follows the JSON object", name);
	} else if (!cJSON_IsObject(o)) {
		r = diag_set(diag, -EINVAL, "%s: must be an object", name);
	} else {
		static const char *const keys[] = {PROFILE_META_KEY, NULL};

		if (cJSON_GetObjectItemCaseSensitive(o, PROFILE_META_KEY)) {
			r = field_check(&f, keys);
			if (r == 0)
				r = field_object(&f, PROFILE_META_KEY, &f) > 0 ? 0 : -EINVAL;
			f.where[0] = 0;
		} else {
			r = field_check(&f, NULL);
		}
		if (r == 0)
			r = from_object(&f, name, l, ret);
	}
	cJSON_Delete(o);
	return r;
}

/* ---- variables ---- */

void profile_vars_free(char **vars)
{
	for (size_t i = 0; vars && vars[i]; i++)
		free(vars[i]);
	free(vars);
}

int profile_vars(const struct profile *p, char ***ret)
{
	const char *user = getenv("USER");
	const char *const values[][2] = {
		{"HOME", p->home},
		{"TMPDIR", p->tmp},
		{"USER", user},
		{"LOGNAME", user},
		{"CODEX_SANDBOX_NETWORK_DISABLED", p->network ? NULL : "1"},
	};
	char **v = calloc(ARRAY_SIZE(values) + 1, sizeof(*v));
	size_t n = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (!values[i][1])
			continue;
		if (asprintf(&v[n], "%s=%s", values[i][0], values[i][1]) < 0) {
			v[n] = NULL;
			profile_vars_free(v);
			return -ENOMEM;
		}
		n++;
	}
	*ret = v;
	return 0;
}

/* ---- looking ---- */

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_net(const struct net_rules *a, const struct net_rules *b)
{
	return a && b ? net_rules_same(a, b) : a == b;
}

bool profile_same(const struct profile *a, const struct profile *b)
{
	return a->family == b->family && a->network == b->network && same_net(a->net, b->net) &&
	       a->landlock_only == b->landlock_only && same_text(a->cwd, b->cwd) &&
	       same_text(a->tmp, b->tmp) && same_text(a->home, b->home) &&
	       policy_rules_same(&a->rules, &b->rules);
}

static int put_rule(struct buf *b, const struct policy_rule *x)
{
	return buf_printf(b, "%-5s %s%s%s  # %s\n", policy_access_name(x->access), x->text,
			  x->kind == POLICY_GLOB ? " (pattern)" : "",
			  x->bare ? " (protected names are ordinary here)" : "",
			  x->reason ? x->reason : "");
}

static int put_list(struct buf *b, const char *word, const struct net_list *l)
{
	int r = 0;

	for (size_t i = 0; !r && i < l->n; i++)
		r = buf_printf(b, "%-5s domain %s  # of the local rules\n", word, l->v[i]);
	return r;
}

static int put_network(struct buf *b, const struct profile *p)
{
	int r;

	if (!p->net)
		return buf_printf(b, "network %s\n", p->network ? "the host's" : "none");
	r = buf_puts(b, "network its own, and out of it the domains that are allowed\n");
	if (!r)
		r = put_list(b, "deny", &p->net->deny);
	if (!r)
		r = put_list(b, "allow", &p->net->allow);
	if (!r)
		r = buf_printf(b, "deny  addresses that are not public%s\n",
			       p->net->local ? ", but for loopback" : "");
	return r;
}

static int put_settings(struct buf *b, const struct profile *p)
{
	int r = put_network(b, p);

	if (!r && p->cwd)
		r = buf_printf(b, "cwd   %s\n", p->cwd);
	if (!r && p->tmp)
		r = buf_printf(b, "tmp   %s\n", p->tmp);
	if (!r && p->home)
		r = buf_printf(b, "home  %s\n", p->home);
	if (!r && p->landlock_only)
		r = buf_puts(b, "landlock required, and enough for these rules\n");
	return r;
}

int profile_explain(const struct profile *p, struct buf *ret)
{
	static const char *const families[] = {"agent", "managed", "role"};
	int r = buf_printf(ret, "profile %s (%s)\n", p->name, families[p->family]);

	if (p->role)
		return r < 0 ? r : role_explain(p->role, ret);
	for (size_t i = 0; !r && i < p->rules.n; i++)
		r = put_rule(ret, &p->rules.v[i]);
	if (!r)
		r = buf_printf(ret, "%-5s everything else\n",
			       policy_access_name(p->rules.otherwise == POLICY_NONE
							  ? POLICY_DENY
							  : p->rules.otherwise));
	for (size_t i = 0; !r && p->rules.names && p->rules.names[i]; i++)
		r = buf_printf(ret, "protect %s  # at the top of each writable place\n",
			       p->rules.names[i]);
	if (!r)
		r = put_settings(ret, p);
	for (size_t i = 0; !r && i < p->nnotes; i++)
		r = buf_printf(ret, "note  %s\n", p->notes[i]);
	return r;
}
