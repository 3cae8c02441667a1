/* Links on the way to a place, and the protected names. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "profile/place.h"
#include "profile/resolving.h"

#define GIT_FILE_MAX 4096u

/* What git, agents and Codex believe without asking: whoever can write it steers the next session. */
static const char *const protected_names[] = {".git", ".agents", ".codex"};

void resolving_release(struct resolving *r)
{
	for (size_t i = 0; i < r->npins; i++) {
		free(r->pins[i].path);
		free(r->pins[i].why);
	}
	free(r->pins);
}

/* ---- links ---- */

static int pin(struct resolving *r, const char *link, const char *why)
{
	struct pin *v = realloc(r->pins, (r->npins + 1) * sizeof(*v));
	struct pin new = {.path = strdup(link), .why = strdup(why), .grant = r->grant};

	if (v)
		r->pins = v;
	if (!v || !new.path || !new.why) {
		free(new.path);
		free(new.why);
		return -ENOMEM;
	}
	v[r->npins++] = new;
	return 0;
}

static int on_link(void *arg, const char *link)
{
	struct resolving *r = arg;

	return pin(r, link, r->path);
}

int resolving_pin(struct resolving *r)
{
	int e = 0;

	for (size_t i = 0; !e && i < r->npins; i++) {
		const struct pin *pin = &r->pins[i];

		if (pin->grant || rules_verdict(&r->p->rules, pin->path) == POLICY_WRITE)
			e = rules_add(r->p, r->diag, POLICY_READ, pin->path,
				      "a link on the way to %s", pin->why);
	}
	return e;
}

static bool is_link(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISLNK(st.st_mode);
}

int resolving_add(struct resolving *r, enum policy_access access, const char *path, const char *why)
{
	cleanup_free char *real = NULL;
	int e;

	r->path = path;
	r->grant = access != POLICY_DENY;
	e = place_resolve(path, on_link, r, &real);
	if (e == -ELOOP)
		return diag_set(r->diag, -EINVAL, "%s: too many links", path);
	if (e < 0)
		return e;
	for (const char *const *c = r->local->closed; r->grant && c && *c; c++)
		if (place_in(real, *c))
			return diag_set(
				r->diag, -EINVAL,
				"%s leads to %s, which is, or is part of, rattan's own data", path,
				real);
	if (!strcmp(real, path))
		return rules_add(r->p, r->diag, access, path, "%s", why);
	e = rules_add(r->p, r->diag, access, real, "%s, which %s leads to", why, path);
	/* A link that is opened for writing may not itself be replaced. */
	if (e == 0 && !(access == POLICY_WRITE && is_link(path)))
		e = rules_add(r->p, r->diag, access, path, "%s", why);
	return e;
}

/* ---- what is protected in a writable place (R16 to R20) ---- */

/* Where temporary files go is nobody's project; the session's own directory is. */
static bool ambient(const struct resolving *r, const char *root)
{
	const struct profile_local *l = r->local;

	if (l->session_tmp && !strcmp(root, l->session_tmp))
		return false;
	return !strcmp(root, "/tmp") || (l->tmpdir && !strcmp(root, l->tmpdir));
}

/* A place that is closed because of what another one says, where it could be written otherwise. */
static int close_target(struct resolving *r, const char *path, const char *why)
{
	cleanup_free char *real = NULL;
	int x;

	r->path = path;
	r->grant = false;
	x = place_resolve(path, on_link, r, &real);
	if (x < 0)
		return x == -ELOOP ? 0 : x;
	if (rules_verdict(&r->p->rules, real) != POLICY_WRITE)
		return 0;
	return rules_add(r->p, r->diag, POLICY_READ, real, "%s", why);
}

/* "gitdir: PATH": the directory is as good as .git itself. */
static int protect_git_file(struct resolving *r, const char *root, const char *file)
{
	cleanup_buf struct buf b = {0};
	cleanup_free char *path = NULL;
	struct stat st;
	char *target;
	int x;

	if (lstat(file, &st) < 0 || !S_ISREG(st.st_mode) ||
	    io_read_file(AT_FDCWD, file, GIT_FILE_MAX, &b) < 0 || !b.len ||
	    strncmp((const char *)b.data, "gitdir:", 7) != 0)
		return 0;
	target = (char *)b.data + 7;
	target += strspn(target, " \t");
	target[strcspn(target, "\r\n")] = 0;
	if (!*target)
		return 0;
	x = asprintf(&path, "%s%s%s", target[0] == '/' ? "" : root, target[0] == '/' ? "" : "/",
		     target);
	if (x < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return access(path, F_OK) ? 0 : close_target(r, path, "the directory that .git names");
}

/* What the protected names of @root lead to; the names themselves are the policy's. */
static int protect_root(struct resolving *r, const char *root)
{
	int x = 0;

	for (size_t i = 0; x == 0 && i < ARRAY_SIZE(protected_names); i++) {
		cleanup_free char *path = NULL;

		if (asprintf(&path, "%s/%s", strcmp(root, "/") != 0 ? root : "",
			     protected_names[i]) < 0) {
			path = NULL;
			return -ENOMEM;
		}
		if (is_link(path))
			x = close_target(r, path, "what a protected name leads to");
		if (x == 0 && i == 0)
			x = protect_git_file(r, root, path);
	}
	return x;
}

int resolving_protect(struct resolving *r)
{
	struct policy_rules *rules = &r->p->rules;
	size_t n = rules->n;
	int x = 0;

	for (size_t i = 0; x == 0 && i < ARRAY_SIZE(protected_names); i++)
		x = policy_rules_protect(rules, protected_names[i], r->diag);
	for (size_t i = 0; x == 0 && i < n; i++) {
		/* The list may move while it grows. */
		cleanup_free char *root = strdup(rules->v[i].text);

		if (!root)
			return -ENOMEM;
		if (rules->v[i].access != POLICY_WRITE)
			continue;
		rules->v[i].bare = ambient(r, root);
		if (!rules->v[i].bare)
			x = protect_root(r, root);
	}
	return x;
}
