#include "profile/resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "policy/glob.h"
#include "profile/casefold.h"
#include "profile/place.h"
#include "profile/resolving.h"

static const char *const platform[] = {"/bin", "/sbin",  "/usr",       "/etc",
				       "/lib", "/lib64", "/nix/store", "/run/current-system/sw"};
/* The sandbox's own, whatever the host has there. */
static const char *const private_places[] = {"/proc", "/dev"};

/* ---- entries ---- */

static int refuse(const struct resolving *r, const struct doc_entry *e, const char *path,
		  const char *why)
{
	return diag_set(r->diag, -EINVAL, "%s: %s %s", e->where, path, why);
}

/* What a rule cannot hold, or may not open. */
static int check_place(const struct resolving *r, const struct doc_entry *e, const char *path)
{
	for (size_t i = 0; e->access == POLICY_DENY && i < ARRAY_SIZE(private_places); i++)
		if (place_in(path, private_places[i]))
			return refuse(r, e, path,
				      "is the sandbox's own, not the host's, and cannot be denied");
	for (const char *const *c = r->local->closed; c && *c && e->access != POLICY_DENY; c++)
		if (place_in(path, *c))
			return refuse(r, e, path, "is, or is part of, rattan's own data");
	return 0;
}

static const char *word(enum policy_access a)
{
	return a == POLICY_READ ? "read" : a == POLICY_WRITE ? "write" : "deny";
}

static int entry_place(struct resolving *r, const struct doc_entry *e, const char *path,
		       const char *what)
{
	char why[256];
	int x = check_place(r, e, path);

	(void)snprintf(why, sizeof(why), "%s (%s)", what, e->where);
	return x < 0 ? x : resolving_add(r, e->access, path, why);
}

static int nothing(struct resolving *r, const struct doc_entry *e, const char *why)
{
	return rules_note(r->p, "%s: %s of %s has no effect", e->where, word(e->access), why);
}

static int need_cwd(const struct resolving *r, const struct doc_entry *e)
{
	return r->cwd ? 0
		      : diag_set(r->diag, -EINVAL, "sandboxCwd is missing, and %s needs it",
				 e->where);
}

static int entry_project(struct resolving *r, const struct doc_entry *e)
{
	const struct field f = {.diag = r->diag};
	cleanup_free char *path = NULL;
	struct field at = f;
	int x = need_cwd(r, e);

	(void)snprintf(at.where, sizeof(at.where), "%s", e->where);
	if (x == 0)
		x = place_join(&at, r->cwd, e->text ? e->text : "", &path);
	return x < 0 ? x : entry_place(r, e, path, e->text ? "below the project" : "the project");
}

static int entry_minimal(struct resolving *r, const struct doc_entry *e)
{
	struct stat st;
	int x = 0;

	for (size_t i = 0; x == 0 && i < ARRAY_SIZE(platform); i++)
		if (stat(platform[i], &st) == 0)
			x = entry_place(r, e, platform[i], "the system's programs and settings");
	return x;
}

static int entry_tmpdir(struct resolving *r, const struct doc_entry *e)
{
	const struct profile_local *l = r->local;

	if (l->session_tmp)
		return entry_place(r, e, l->session_tmp, "the session's temporary files");
	if (l->tmpdir && l->tmpdir[0] == '/')
		return entry_place(r, e, l->tmpdir, "$TMPDIR");
	return nothing(r, e, "$TMPDIR, which is not set,");
}

static int entry_slash_tmp(struct resolving *r, const struct doc_entry *e)
{
	struct stat st;

	if (stat("/tmp", &st) < 0 || !S_ISDIR(st.st_mode))
		return nothing(r, e, "/tmp, which is no directory,");
	return entry_place(r, e, "/tmp", "temporary files");
}

static int entry_glob(struct resolving *r, const struct doc_entry *e)
{
	static const char projects[] = "codex-project-roots://";
	const char *text = e->text;
	cleanup_free char *path = NULL, *why = NULL, *literal = NULL;
	struct field at = {.diag = r->diag};
	int x = 0;

	(void)snprintf(at.where, sizeof(at.where), "%s", e->where);
	if (!strncmp(text, projects, sizeof(projects) - 1))
		text += sizeof(projects) - 1 + strspn(text + sizeof(projects) - 1, "/");
	if (text[0] != '/')
		x = need_cwd(r, e);
	if (x == 0)
		x = place_join(&at, text[0] == '/' ? "/" : r->cwd, text, &path);
	if (x < 0)
		return x;
	literal = glob_literal(path);
	if (literal)
		return entry_place(r, e, literal, "denied");
	x = asprintf(&why, "denied (%s)", e->where);
	if (x < 0) {
		why = NULL;
		return -ENOMEM;
	}
	return policy_rules_add(&r->p->rules, POLICY_DENY, POLICY_GLOB, path, why, r->diag);
}

static int add_entry(struct resolving *r, const struct doc_entry *e)
{
	switch (e->what) {
	case DOC_PATH:
		return entry_place(r, e, e->text, e->access == POLICY_DENY ? "denied" : "opened");
	case DOC_GLOB:
		return entry_glob(r, e);
	case DOC_ROOT:
		/* A denied root is what everything is anyway; a rule for it would change nothing. */
		return e->access == POLICY_DENY ? 0
						: rules_add(r->p, r->diag, e->access, "/",
							    "the whole disk (%s)", e->where);
	case DOC_MINIMAL:
		return entry_minimal(r, e);
	case DOC_PROJECT:
		return entry_project(r, e);
	case DOC_TMPDIR:
		return entry_tmpdir(r, e);
	case DOC_SLASH_TMP:
		return entry_slash_tmp(r, e);
	case DOC_UNKNOWN:
	default:
		return rules_note(r->p, "%s: '%s' is not a place that is known here; skipped",
				  e->where, e->text);
	}
}

/* ---- what the whole says (R8, R9) ---- */

static void measure(struct resolving *r)
{
	const struct doc *d = r->doc;
	bool root_read = d->unrestricted, root_write = d->unrestricted, narrow = false;

	for (size_t i = 0; i < d->n; i++) {
		const struct doc_entry *e = &d->entries[i];
		bool root = e->what == DOC_ROOT;

		if (e->what == DOC_UNKNOWN)
			continue;
		root_read |= root && e->access != POLICY_DENY;
		root_write |= root && e->access == POLICY_WRITE;
		r->denies |= e->access == POLICY_DENY;
		narrow |= e->access != POLICY_WRITE && !(root && e->access == POLICY_READ) &&
			  e->what != DOC_MINIMAL;
	}
	r->p->full_read = root_read && !r->denies;
	r->p->full_write = root_write && !narrow;
}

/* Landlock adds rights going down a tree; it cannot take one away from what lies below (C10). */
static int check_landlock(const struct resolving *r)
{
	const struct doc *d = r->doc;

	if (!r->p->landlock_only || r->p->full_write)
		return 0;
	if (!r->p->full_read)
		return diag_set(r->diag, -EINVAL,
				"Landlock alone was asked for, and cannot hold a profile in which "
				"not everything may be read");
	for (size_t i = 0; i < d->n; i++) {
		const struct doc_entry *e = &d->entries[i];

		if (e->access == POLICY_READ && e->what != DOC_ROOT && e->what != DOC_MINIMAL &&
		    e->what != DOC_UNKNOWN)
			return diag_set(r->diag, -EINVAL,
					"Landlock alone was asked for, and cannot keep a place "
					"read-only within a writable one: %s",
					e->where);
		if (e->access == POLICY_WRITE && (e->what == DOC_PATH || e->what == DOC_PROJECT))
			return diag_set(r->diag, -EINVAL,
					"Landlock alone was asked for, and cannot protect .git, "
					".agents and .codex in a writable place: %s",
					e->where);
	}
	return 0;
}

/* ---- the whole ---- */

static int add_entries(struct resolving *r)
{
	int x = 0;

	if (r->doc->unrestricted)
		x = rules_add(r->p, r->diag, POLICY_WRITE, "/", "nothing is restricted");
	for (size_t i = 0; x == 0 && i < r->doc->n; i++)
		x = add_entry(r, &r->doc->entries[i]);
	return x;
}

static int add_own(struct resolving *r)
{
	const struct profile_local *l = r->local;
	int x = 0;

	/* The parents of both stay closed (R45). */
	if (l->session_tmp && !r->p->full_write)
		x = resolving_add(r, POLICY_WRITE, l->session_tmp, "the session's temporary files");
	for (const char *const *g = l->runtime; x == 0 && g && *g && !r->p->full_read; g++)
		x = resolving_add(r, POLICY_READ, *g, "granted by this side's settings");
	for (size_t i = 0; x == 0 && i < ARRAY_SIZE(private_places) && !r->p->full_read; i++)
		x = rules_add(r->p, r->diag, POLICY_READ, private_places[i],
			      "the sandbox's own is mounted there");
	for (const char *const *c = l->closed; x == 0 && c && *c; c++)
		x = resolving_add(r, POLICY_DENY, *c, "rattan's own data");
	return x;
}

/* Another name of a denied file is that file. But a grant that contains something denied then closes every file
 * with several links in it; so the system's own directories, where nobody can make one, become grants of their own
 * that say what the larger one said, and no pattern that reaches into them makes their files suspicious. */
static int set_strict(struct resolving *r)
{
	struct policy_rules *rules = &r->p->rules;
	int x = 0;

	if (!r->denies)
		return 0;
	for (size_t i = 0; x == 0 && i < ARRAY_SIZE(platform); i++) {
		enum policy_access now = rules_verdict(rules, platform[i]);
		size_t n = rules->n;
		struct stat st;

		if (now < POLICY_READ || lstat(platform[i], &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		x = rules_add(r->p, r->diag, now, platform[i],
			      "the system's own, as what it lies in");
		if (x == 0 && rules->n > n)
			rules->v[n].bare = true;
		for (size_t k = 0; x == 0 && k < rules->n; k++)
			if (rules->v[k].kind == POLICY_PATH && rules->v[k].access == now &&
			    !strcmp(rules->v[k].text, platform[i]))
				rules->v[k].solid = true;
	}
	rules->strict = true;
	return x;
}

static bool opens_anything(const struct profile *p)
{
	for (size_t i = 0; i < p->rules.n; i++)
		if (p->rules.v[i].access != POLICY_DENY)
			return true;
	return false;
}

static int copy(const char *s, char **ret)
{
	if (!s)
		return 0;
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

static int start(struct resolving *r)
{
	struct profile *p = r->p;
	const struct doc *d = r->doc;
	int x;

	p->network = d->network;
	p->landlock_only = d->landlock || r->local->landlock_only;
	r->cwd = d->cwd ? d->cwd : r->local->cwd;
	measure(r);
	x = check_landlock(r);
	if (x == 0)
		x = copy(r->cwd, &p->cwd);
	return x;
}

static int resolve_all(struct resolving *r)
{
	struct profile *p = r->p;
	int x = start(r);

	if (x == 0)
		x = add_entries(r);
	if (x == 0 && !opens_anything(p))
		x = diag_set(r->diag, -EINVAL, "no entry of the profile lets anything be read");
	if (x == 0)
		x = add_own(r);
	if (x == 0 && !p->full_write)
		x = resolving_protect(r);
	if (x == 0)
		x = resolving_pin(r);
	if (x == 0)
		x = set_strict(r);
	if (x == 0)
		x = casefold_check(&p->rules, r->diag);
	if (x == 0)
		x = copy(r->local->session_tmp, &p->tmp);
	if (x == 0)
		x = copy(p->full_read ? r->local->home : r->local->session_tmp, &p->home);
	return x;
}

int resolve_managed(const struct doc *d, const struct profile_local *l, struct diag *diag,
		    struct profile *p)
{
	struct resolving r = {.doc = d, .local = l, .diag = diag, .p = p};
	int x = resolve_all(&r);

	resolving_release(&r);
	return x;
}

int resolve_agent(const struct doc *d, const struct profile_local *l, struct diag *diag,
		  struct profile *p)
{
	int x = 0;

	p->network = d->network;
	p->landlock_only = d->landlock || l->landlock_only;
	if (p->network)
		return diag_set(diag, -EINVAL,
				"network: an agent's profile has none; use a managed one");
	for (size_t i = 0; x == 0 && i < d->n; i++) {
		const struct doc_entry *e = &d->entries[i];
		bool root = e->what == DOC_ROOT;

		if ((!root && e->what != DOC_PATH) || e->access == POLICY_DENY)
			return diag_set(diag, -EINVAL,
					"%s: an agent's profile opens paths and the root, and no "
					"more",
					e->where);
		/* What is run is told the writable places alone. */
		if (!root && e->access == POLICY_READ)
			return diag_set(
				diag, -EINVAL,
				"%s: an agent's profile reads everything, and cannot keep a "
				"place read-only; use a managed one",
				e->where);
		x = rules_add(p, diag, e->access, root ? "/" : e->text, "%s (%s)",
			      e->access == POLICY_WRITE ? "writable" : "readable", e->where);
	}
	p->full_read = true;
	p->full_write = rules_verdict(&p->rules, "/") == POLICY_WRITE;
	return x == 0 && d->cwd ? copy(d->cwd, &p->cwd) : x;
}
