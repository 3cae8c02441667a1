#include "profile/doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/place.h"

#define ENTRIES_MAX 4096

void doc_release(struct doc *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->entries[i].text);
	free(d->entries);
	free(d->cwd);
	*d = (struct doc){0};
}

int doc_add(struct doc *d, const struct field *f, enum doc_what what, enum policy_access access,
	    const char *text)
{
	struct doc_entry *v, e = {.what = what, .access = access};

	if (d->n >= ENTRIES_MAX)
		return field_fail(f, "more than %d entries", ENTRIES_MAX);
	v = realloc(d->entries, (d->n + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	d->entries = v;
	(void)snprintf(e.where, sizeof(e.where), "%s", f->where);
	if (text) {
		e.text = strdup(text);
		if (!e.text)
			return -ENOMEM;
	}
	v[d->n++] = e;
	return 0;
}

/* ---- one entry ---- */

static int add_path(struct doc *d, const struct field *f, enum policy_access access)
{
	static const char *const keys[] = {"type", "path", NULL};
	cleanup_free char *clean = NULL;
	const char *text;
	struct field at;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_need_text(f, "path", &text);
	if (r < 0)
		return r;
	field_at(f, "path", &at);
	r = place_parse(&at, text, &clean);
	return r < 0 ? r : doc_add(d, &at, DOC_PATH, access, clean);
}

static int add_glob(struct doc *d, const struct field *f, enum policy_access access)
{
	static const char *const keys[] = {"type", "pattern", NULL};
	const char *text;
	struct field at;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_need_text(f, "pattern", &text);
	if (r < 0)
		return r;
	field_at(f, "pattern", &at);
	if (access != POLICY_DENY)
		return field_fail(f, "a pattern can only deny; name the paths that it should open");
	if (!*text)
		return field_fail(&at, "is empty");
	return doc_add(d, &at, DOC_GLOB, access, text);
}

static int add_project(struct doc *d, const struct field *value, enum policy_access access)
{
	const char *sub = NULL;
	struct field at;
	int r = field_text(value, "subpath", &sub);

	if (r < 0)
		return r;
	field_at(value, "subpath", &at);
	/* ".." is found when it is joined. */
	if (sub && *sub == '/')
		return field_fail(&at, "'%.120s' is not relative to the project", sub);
	return doc_add(d, sub ? &at : value, DOC_PROJECT, access, sub);
}

static int add_special(struct doc *d, const struct field *f, enum policy_access access)
{
	static const char *const keys[] = {"type", "value", NULL};
	static const char *const value_keys[] = {"kind", "path", "subpath", NULL};
	static const struct {
		const char *kind;
		enum doc_what what;
	} kinds[] = {
		{"root", DOC_ROOT},
		{"minimal", DOC_MINIMAL},
		{"project_roots", DOC_PROJECT},
		{"current_working_directory", DOC_PROJECT},
		{"tmpdir", DOC_TMPDIR},
		{"slash_tmp", DOC_SLASH_TMP},
	};
	struct field value;
	const char *kind;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_object(f, "value", &value);
	if (r == 0)
		return field_fail(f, "'value' is missing");
	if (r > 0)
		r = field_check(&value, value_keys);
	if (r == 0)
		r = field_need_text(&value, "kind", &kind);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kinds[i].kind, kind) != 0)
			continue;
		if (kinds[i].what == DOC_PROJECT)
			return add_project(d, &value, access);
		if (kinds[i].what == DOC_MINIMAL && access == POLICY_WRITE)
			return field_fail(f, "the minimal set can be read, not written");
		return doc_add(d, &value, kinds[i].what, access, NULL);
	}
	/* To skip a deny would widen. */
	if (access == POLICY_DENY)
		return field_fail(&value,
				  "'%.60s' is not a place that is known here, so it cannot "
				  "be denied",
				  kind);
	return doc_add(d, &value, DOC_UNKNOWN, access, kind);
}

static int add_entry(struct doc *d, const struct field *f)
{
	static const char *const keys[] = {"path", "access", NULL};
	static const char *const words[] = {"read", "write", "deny", "none", NULL};
	static const enum policy_access as[] = {POLICY_READ, POLICY_WRITE, POLICY_DENY,
						POLICY_DENY};
	static const char *const types[] = {"path", "glob_pattern", "special", NULL};
	unsigned access, type;
	struct field path;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_need_word(f, "access", words, &access);
	if (r > 0)
		r = field_object(f, "path", &path);
	if (r == 0)
		return field_fail(f, "'path' is missing");
	if (r > 0)
		r = field_need_word(&path, "type", types, &type);
	if (r < 0)
		return r;
	return (type == 0 ? add_path : type == 1 ? add_glob : add_special)(d, &path, as[access]);
}

/* ---- the profile ---- */

static int parse_entries(struct doc *d, const struct field *fs)
{
	struct field list, item;
	unsigned i = 0, depth;
	int r = field_array(fs, "entries", &list);

	/* Of how deep to scan: rules that hold at every lookup need no scan. */
	if (r >= 0)
		r = field_uint(fs, "glob_scan_max_depth", 1u << 30, &depth) < 0 ? -EINVAL : r;
	if (r <= 0)
		return r;
	for (const cJSON *o = list.o->child; o; o = o->next) {
		field_item(&list, i++, o, &item);
		r = add_entry(d, &item);
		if (r < 0)
			return r;
	}
	return 0;
}

/* C4: a sandbox in which nothing can be read starts nothing, and is a mistake. */
static int check_readable(const struct doc *d, const struct field *fs)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->entries[i].access != POLICY_DENY && d->entries[i].what != DOC_UNKNOWN)
			return 0;
	return field_fail(fs, "no entry lets anything be read");
}

static int parse_file_system(struct doc *d, const struct field *f)
{
	static const char *const open_keys[] = {"type", NULL};
	static const char *const keys[] = {"type", "entries", "glob_scan_max_depth", NULL};
	static const char *const types[] = {"unrestricted", "restricted", NULL};
	struct field fs;
	unsigned type;
	int r = field_object(f, "file_system", &fs);

	if (r == 0)
		return field_fail(f, "'file_system' is missing");
	if (r > 0)
		r = field_need_word(&fs, "type", types, &type);
	if (r < 0)
		return r;
	d->unrestricted = type == 0;
	r = field_check(&fs, type == 0 ? open_keys : keys);
	if (r < 0 || type == 0)
		return r;
	r = parse_entries(d, &fs);
	return r < 0 ? r : check_readable(d, &fs);
}

int doc_parse_profile(const struct field *f, struct doc *ret)
{
	static const char *const keys[] = {"type", "file_system", "network", NULL};
	static const char *const types[] = {"managed", "disabled", "external", NULL};
	static const char *const networks[] = {"restricted", "enabled", NULL};
	unsigned type, network = 1;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_need_word(f, "type", types, &type);
	if (r > 0)
		r = type == 1 ? field_word(f, "network", networks, &network)
			      : field_need_word(f, "network", networks, &network);
	if (r < 0)
		return r;
	ret->kind = types[type];
	ret->network = network == 1;
	ret->unrestricted = type != 0;
	ret->no_sandbox = type != 0;
	ret->has_profile = true;
	return type == 0 ? parse_file_system(ret, f) : 0;
}

/* ---- the older shape ---- */

static int add_roots(struct doc *d, const struct field *f)
{
	struct field list, item;
	unsigned i = 0;
	int r = field_array(f, "writable_roots", &list);

	for (const cJSON *o = r > 0 ? list.o->child : NULL; o; o = o->next) {
		cleanup_free char *clean = NULL;

		field_item(&list, i++, o, &item);
		if (!cJSON_IsString(o))
			return field_fail(&item, "must be a text");
		r = place_parse(&item, o->valuestring, &clean);
		if (r == 0)
			r = doc_add(d, &item, DOC_PATH, POLICY_WRITE, clean);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : 0;
}

static int workspace_write(struct doc *d, const struct field *f)
{
	bool no_tmpdir = false, no_tmp = false;
	int r = field_bool(f, "exclude_tmpdir_env_var", &no_tmpdir);

	if (r >= 0)
		r = field_bool(f, "exclude_slash_tmp", &no_tmp);
	if (r >= 0)
		r = field_bool(f, "network_access", &d->network);
	if (r >= 0)
		r = doc_add(d, f, DOC_PROJECT, POLICY_WRITE, NULL);
	if (r >= 0)
		r = add_roots(d, f);
	if (r >= 0 && !no_tmpdir)
		r = doc_add(d, f, DOC_TMPDIR, POLICY_WRITE, NULL);
	if (r >= 0 && !no_tmp)
		r = doc_add(d, f, DOC_SLASH_TMP, POLICY_WRITE, NULL);
	return r;
}

int doc_parse_policy(const struct field *f, struct doc *ret)
{
	static const char *const keys[] = {"type",
					   "writable_roots",
					   "network_access",
					   "exclude_tmpdir_env_var",
					   "exclude_slash_tmp",
					   NULL};
	static const char *const types[] = {"danger-full-access", "external-sandbox", "read-only",
					    "workspace-write", NULL};
	static const char *const networks[] = {"restricted", "enabled", NULL};
	unsigned type, network = 0;
	int r = field_check(f, keys);

	if (r == 0)
		r = field_need_word(f, "type", types, &type);
	if (r < 0)
		return r;
	ret->kind = types[type];
	ret->has_profile = true;
	ret->unrestricted = type <= 1;
	ret->no_sandbox = type <= 1;
	if (type == 0)
		ret->network = true;
	if (type == 1) {
		r = field_word(f, "network_access", networks, &network);
		ret->network = network == 1;
	}
	if (r >= 0 && type == 2)
		r = field_bool(f, "network_access", &ret->network);
	if (r >= 0 && type >= 2)
		r = doc_add(ret, f, DOC_ROOT, POLICY_READ, NULL);
	return r >= 0 && type == 3 ? workspace_write(ret, f) : r < 0 ? r : 0;
}

/* ---- the object of a call ---- */

/* The helper is a program that the client names: it is never run, and not even checked to be there. */
static int check_helper(const struct field *f)
{
	const char *helper;
	int r = field_text(f, "codexLinuxSandboxExe", &helper);

	return r < 0 ? r : 0;
}

static int parse_cwd(const struct field *f, struct doc *ret)
{
	const char *text;
	struct field at;
	int r = field_text(f, "sandboxCwd", &text);

	if (r <= 0)
		return r;
	field_at(f, "sandboxCwd", &at);
	return place_parse(&at, text, &ret->cwd);
}

int doc_parse_meta(const struct field *f, struct doc *ret)
{
	struct field profile, policy;
	/* Whatever else stands here may be another tool's; what may narrow stands in the profile. */
	int has_profile, has_policy, r = field_check(f, NULL);

	if (r < 0)
		return r;
	has_profile = field_object(f, "permissionProfile", &profile);
	if (has_profile < 0)
		return has_profile;
	has_policy = field_object(f, "sandboxPolicy", &policy);
	if (has_policy < 0)
		return has_policy;
	if (!has_profile && !has_policy)
		return field_fail(f, "there is neither permissionProfile nor sandboxPolicy");
	if (has_profile && has_policy)
		return field_fail(f, "permissionProfile and sandboxPolicy are both given, and may "
				     "say different things; send one of them");
	r = parse_cwd(f, ret);
	if (r >= 0)
		r = field_bool(f, "useLegacyLandlock", &ret->landlock);
	if (r >= 0)
		r = check_helper(f);
	if (r < 0)
		return r;
	return has_profile ? doc_parse_profile(&profile, ret) : doc_parse_policy(&policy, ret);
}
