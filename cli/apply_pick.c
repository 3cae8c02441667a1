/* Paths and patterns of `rattan apply`. */
#include <stdlib.h>
#include <string.h>

#include "cli/apply_internal.h"
#include "cli/place.h"

/* What of a PATH is tried first; the other where that names no change. */
struct word {
	struct cli_place place;
	const char *text;
	bool other, used;
};

static void words_release(struct word *v, size_t n)
{
	for (size_t i = 0; v && i < n; i++)
		cli_place_release(&v[i].place);
	free(v);
}

/* A pattern without a slash is one of names, wherever they are. */
static bool name_pattern(const char *text)
{
	return !strchr(text, '/') && glob_special(text);
}

static int add_one(struct glob_set *g, const struct apply_dir *d, size_t n, const struct word *w,
		   int rule, struct diag *diag)
{
	char *text;
	int r = 0;

	if (!name_pattern(w->text))
		return glob_add(g, w->place.at[w->other], rule, diag);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (asprintf(&text, "%s/{**/,}%s", d[i].mount, w->text) < 0)
			return -ENOMEM;
		r = glob_add(g, text, rule, diag);
		free(text);
	}
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

static void mark(struct glob_set *g, const struct apply_dir *d, struct apply_change *c,
		 struct word *words)
{
	int hit = match(g, d->mount, c->path);

	if (hit < 0 && c->old)
		hit = match(g, d->mount, c->old);
	c->chosen = hit >= 0;
	if (hit >= 0)
		words[hit].used = true;
}

/* Each change that one of @words names. */
static int choose(struct apply_dir *d, size_t n, struct word *words, int nwords, struct diag *diag)
{
	struct glob_set *g = NULL;
	int r = glob_new(&g);

	for (int i = 0; r == 0 && i < nwords; i++) {
		words[i].used = false;
		r = add_one(g, d, n, &words[i], i, diag);
	}
	if (r == 0)
		r = glob_seal(g);
	for (size_t i = 0; r == 0 && i < n; i++)
		for (size_t k = 0; k < d[i].n; k++)
			mark(g, &d[i], &d[i].v[k], words);
	glob_free(g);
	return r;
}

/* -EXDEV of *ret_at: it is in no directory that is shown. */
static int read_words(const struct apply_dir *d, size_t n, char *const *paths, int npaths,
		      struct word *words, int *ret_at)
{
	char **shown = calloc(n + 1, sizeof(*shown));
	int r = shown ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (asprintf(&shown[i], "%s=%s", d[i].host, d[i].mount) < 0) {
			shown[i] = NULL;
			r = -ENOMEM;
		}
	for (int i = 0; r == 0 && i < npaths; i++) {
		*ret_at = i;
		words[i].text = paths[i];
		if (!name_pattern(paths[i]))
			r = cli_place_in((const char *const *)shown, paths[i], &words[i].place);
	}
	for (size_t i = 0; shown && i < n; i++)
		free(shown[i]);
	free(shown);
	return r;
}

/* Once more, when one that named nothing can mean something else. */
static bool turn(struct word *words, int n)
{
	bool again = false;

	for (int i = 0; i < n; i++) {
		if (words[i].used || words[i].other || !words[i].place.at[1])
			continue;
		words[i].other = true;
		again = true;
	}
	return again;
}

static int pick(struct apply_dir *d, size_t n, char *const *paths, int npaths, struct word *words)
{
	struct diag diag = {0};
	int at = 0, r = words ? read_words(d, n, paths, npaths, words, &at) : -ENOMEM;

	if (r == -EXDEV)
		return cli_fail(CLI_NOT_FOUND,
				"apply: '%s' is in no directory that the environment shows; rattan "
				"status names them",
				paths[at]);
	if (r == 0)
		r = choose(d, n, words, npaths, &diag);
	if (r == 0 && turn(words, npaths))
		r = choose(d, n, words, npaths, &diag);
	if (r < 0)
		return cli_fail_errno(r, &diag, "apply");
	for (int i = 0; i < npaths; i++)
		if (!words[i].used)
			return cli_fail(CLI_NOT_FOUND,
					"apply: no change is at or below '%s'; rattan apply "
					"--dry-run names all",
					paths[i]);
	return -1;
}

int apply_pick(struct apply_dir *d, size_t n, char *const *paths, int npaths)
{
	struct word *words;
	int code;

	if (!npaths) {
		for (size_t i = 0; i < n; i++)
			for (size_t k = 0; k < d[i].n; k++)
				d[i].v[k].chosen = true;
		return -1;
	}
	words = calloc((size_t)npaths, sizeof(*words));
	code = pick(d, n, paths, npaths, words);
	words_release(words, (size_t)npaths);
	return code;
}
