/* Paths and patterns of `rattan apply`. */
#include <stdlib.h>
#include <string.h>

#include "cli/apply_internal.h"

/* What is given, as patterns of the tree. */
static int add_pattern(struct glob_set *g, const char *pattern, int rule, struct diag *diag)
{
	return glob_add(g, pattern, rule, diag);
}

static int add_below(struct glob_set *g, const struct apply_dir *d, const char *rest, int rule,
		     struct diag *diag)
{
	char *text;
	int r;

	if (asprintf(&text, "%s%s%s", d->mount, *rest ? "/" : "", rest) < 0)
		return -ENOMEM;
	r = add_pattern(g, text, rule, diag);
	free(text);
	return r;
}

/* A path of the host, where a directory shows it. 1: it was one. */
static int add_host(struct glob_set *g, const struct apply_dir *d, size_t n, const char *path,
		    int rule, struct diag *diag)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(d[i].host);
		int r;

		if (strncmp(path, d[i].host, len) != 0 || (path[len] && path[len] != '/'))
			continue;
		r = add_below(g, &d[i], path + len + (path[len] == '/'), rule, diag);
		return r < 0 ? r : 1;
	}
	return 0;
}

static int add_one(struct glob_set *g, const struct apply_dir *d, size_t n, const char *path,
		   int rule, struct diag *diag)
{
	char *text;
	int r = 0;

	if (*path == '/') {
		r = add_host(g, d, n, path, rule, diag);
		return r ? (r < 0 ? r : 0) : add_pattern(g, path, rule, diag);
	}
	while (!strncmp(path, "./", 2))
		path += 2;
	if (!strcmp(path, "."))
		path = "";
	/* A pattern without a slash is one of names, wherever they are. */
	if (!strchr(path, '/') && glob_special(path)) {
		for (size_t i = 0; r == 0 && i < n; i++) {
			if (asprintf(&text, "%s/{**/,}%s", d[i].mount, path) < 0)
				return -ENOMEM;
			r = add_pattern(g, text, rule, diag);
			free(text);
		}
		return r;
	}
	if (asprintf(&text, "/workspace%s%s", *path ? "/" : "", path) < 0)
		return -ENOMEM;
	r = add_pattern(g, text, rule, diag);
	free(text);
	return r;
}

/* Which pattern names the place or a directory above it; negative: none. */
static int match(struct glob_set *g, const char *mount, const char *path)
{
	const char *parts[] = {mount, path};
	int state = glob_start(g), hit = GLOB_NO_HIT;

	for (size_t i = 0; i < 2; i++) {
		const char *p = parts[i];

		while (hit < 0 && *p) {
			size_t n;

			p += strspn(p, "/");
			n = strcspn(p, "/");
			if (!n)
				break;
			state = glob_step(g, state, p, n);
			hit = glob_hit(g, state);
			p += n;
		}
	}
	return hit;
}

static void mark(struct glob_set *g, const struct apply_dir *d, struct apply_change *c, bool *used)
{
	int hit = match(g, d->mount, c->path);

	if (hit < 0 && c->old)
		hit = match(g, d->mount, c->old);
	c->chosen = hit >= 0;
	if (hit >= 0)
		used[hit] = true;
}

static int build(struct glob_set *g, const struct apply_dir *d, size_t n, char *const *paths,
		 int npaths, struct diag *diag)
{
	int r = 0;

	for (int i = 0; r == 0 && i < npaths; i++)
		r = add_one(g, d, n, paths[i], i, diag);
	return r < 0 ? r : glob_seal(g);
}

int apply_pick(struct apply_dir *d, size_t n, char *const *paths, int npaths)
{
	cleanup_free bool *used = calloc((size_t)npaths + 1, sizeof(*used));
	struct glob_set *g = NULL;
	struct diag diag = {0};
	int r = used ? 0 : -ENOMEM, code = -1;

	if (r == 0 && npaths) {
		r = glob_new(&g);
		if (r == 0)
			r = build(g, d, n, paths, npaths, &diag);
	}
	for (size_t i = 0; r == 0 && i < n; i++)
		for (size_t k = 0; k < d[i].n; k++) {
			if (npaths)
				mark(g, &d[i], &d[i].v[k], used);
			else
				d[i].v[k].chosen = true;
		}
	for (int i = 0; r == 0 && code < 0 && i < npaths; i++)
		if (!used[i])
			code = cli_fail(CLI_NOT_FOUND,
					"apply: no change is at or below '%s'; rattan apply "
					"--dry-run names all",
					paths[i]);
	glob_free(g);
	return r < 0 ? cli_fail_errno(r, &diag, "apply") : code;
}
