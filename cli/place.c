/* Which place of an environment a PATH of the command line is. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/place.h"

void cli_place_release(struct cli_place *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(p->at); i++)
		free(p->at[i]);
	*p = (struct cli_place){0};
}

/* Without ".", ".." and doubled slashes, by name alone; @path is absolute. */
static void tidy(char *path)
{
	char *end = path;
	const char *s = path;

	while (*s) {
		size_t n;

		s += strspn(s, "/");
		n = strcspn(s, "/");
		if (n == 2 && !memcmp(s, "..", 2)) {
			while (end > path && *--end != '/')
				continue;
		} else if (n && !(n == 1 && *s == '.')) {
			*end++ = '/';
			memmove(end, s, n);
			end += n;
		}
		s += n;
	}
	if (end == path)
		*end++ = '/';
	*end = 0;
}

static int join(const char *dir, const char *rest, char **ret)
{
	if (asprintf(ret, "%s/%s", dir, rest) < 0) {
		*ret = NULL;
		return -ENOMEM;
	}
	tidy(*ret);
	return 0;
}

/* 1: a directory that is shown has @path, as *ret in the tree; the innermost, where one lies in another. */
static int shown(const char *const *overlays, const char *path, char **ret)
{
	const char *best = NULL, *mount = NULL;
	size_t most = 0;

	for (; overlays && *overlays; overlays++) {
		const char *eq = strrchr(*overlays, '=');
		size_t n = eq ? (size_t)(eq - *overlays) : 0;

		if (n <= most || strncmp(path, *overlays, n) != 0 || (path[n] && path[n] != '/'))
			continue;
		best = path + n;
		mount = eq + 1;
		most = n;
	}
	if (!best)
		return 0;
	return join(mount, best, ret) < 0 ? -ENOMEM : 1;
}

/* As shown, also where links of the host lead to the directory: what of @path there is may be called otherwise. */
static int shown_as(const char *const *overlays, const char *path, char **ret)
{
	cleanup_free char *dir = strdup(path);
	int r = dir ? shown(overlays, path, ret) : -ENOMEM;
	char *end;

	while (r == 0 && *dir) {
		cleanup_free char *real = realpath(dir, NULL), *whole = NULL;

		if (real && join(real, path + strlen(dir), &whole) < 0)
			return -ENOMEM;
		if (whole)
			r = shown(overlays, whole, ret);
		end = strrchr(dir, '/');
		*(end ? end : dir) = 0;
	}
	return r;
}

static int beside(const char *const *overlays, const char *word, struct cli_place *p)
{
	cleanup_free char *cwd = realpath(".", NULL), *host = NULL, *found = NULL;
	bool named = !strcmp(word, ".") || !strcmp(word, "..") || !strncmp(word, "./", 2) ||
		     !strncmp(word, "../", 3);
	int r = cwd ? join(cwd, word, &host) : 0;

	if (r == 0 && host)
		r = shown_as(overlays, host, &found);
	if (r < 0)
		return r;
	p->at[0] = steal_ptr(&found);
	if (p->at[0] && named)
		return 0;
	/* From elsewhere, what is above the working directory is not to be guessed. */
	if (!strncmp(word, "..", 2) && named)
		return -EXDEV;
	return join("/workspace", word, &p->at[p->at[0] ? 1 : 0]);
}

int cli_place_in(const char *const *overlays, const char *word, struct cli_place *p)
{
	cleanup_free char *path = NULL;
	int r;

	*p = (struct cli_place){0};
	if (*word != '/') {
		r = beside(overlays, word, p);
	} else {
		r = join("", word, &path);
		if (r == 0)
			r = shown_as(overlays, path, &p->at[0]);
		if (r >= 0 && (!p->at[0] || strcmp(p->at[0], path) != 0))
			p->at[p->at[0] ? 1 : 0] = steal_ptr(&path);
	}
	if (r >= 0 && p->at[1] && !strcmp(p->at[0], p->at[1])) {
		free(p->at[1]);
		p->at[1] = NULL;
	}
	if (r < 0)
		cli_place_release(p);
	return r < 0 ? r : 0;
}

int cli_place(struct ctl *ctl, const char *word, const char *name, struct cli_place *p)
{
	struct ctl_status s;
	struct diag diag = {0};
	int r = ctl_status(ctl, &diag, &s);

	if (r < 0)
		return cli_fail_errno(r, &diag, name);
	r = cli_place_in((const char *const *)s.overlays, word, p);
	ctl_status_release(&s);
	if (r == -EXDEV)
		return cli_fail(
			CLI_NOT_FOUND,
			"%s: '%s' is in no directory that the environment shows; rattan status "
			"names them, and /workspace/... is a path in it",
			name, word);
	return r < 0 ? cli_fail_errno(r, NULL, name) : -1;
}

static int stop(void *arg, const struct ctl_file *f)
{
	(void)arg;
	(void)f;
	return -ECANCELED;
}

/* 1: something is there, at @rev. */
static int there(struct ctl *ctl, const char *rev, const char *path)
{
	struct diag ignored = {0};
	int r = ctl_ls(ctl, rev, path, false, &ignored, stop, NULL);

	return r == 0 || r == -ECANCELED ? 1 : r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

int cli_place_unchanged(struct ctl *ctl, const struct cli_place *p, const char *a, const char *b,
			const char *word, const char *name)
{
	const char *const revs[] = {a, b};

	for (size_t i = 0; i < ARRAY_SIZE(p->at); i++)
		for (size_t k = 0; p->at[i] && k < ARRAY_SIZE(revs); k++) {
			int r = there(ctl, revs[k], p->at[i]);

			if (r < 0)
				return cli_fail_errno(r, NULL, p->at[i]);
			if (!r)
				continue;
			if (isatty(STDERR_FILENO)) {
				fputs("rattan: nothing has changed at ", stderr);
				cli_put(stderr, p->at[i]);
				fputc('\n', stderr);
			}
			return -1;
		}
	return cli_fail(
		CLI_NOT_FOUND,
		"%s: there is neither a change nor a file at '%s' (%s%s%s in the environment); "
		"rattan diff --name-status names every change",
		name, word, p->at[0], p->at[1] ? ", or " : "", p->at[1] ? p->at[1] : "");
}
