/* What apply and unapply say, and how they are stopped. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "cli/apply_internal.h"

const char *apply_what_text(uint32_t what, char kind, char ret[static 64])
{
	static const char *const names[] = {"content", "mode", "owner", "attributes", "time"};
	size_t n = 0;

	ret[0] = 0;
	if ((kind != 'M' && kind != 'R') || what == APPLY_CONTENT ||
	    what == (APPLY_CONTENT | APPLY_TIMES))
		return ret;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (what & 1u << i)
			n += (size_t)snprintf(ret + n, 64 - n, "%s%s", n ? ", " : "  (", names[i]);
	if (n)
		(void)snprintf(ret + n, 64 - n, ")");
	return ret;
}

static void put_path(FILE *f, const char *path)
{
	cli_put(f, *path ? path : ".");
}

static void json_line(struct applying *x, const struct apply_line *l)
{
	static const char *const words[] = {"apply", "nothing", "conflict", "refused"};
	cJSON *o = cJSON_CreateObject();
	char kind[2] = {l->kind, 0};

	cli_json_str(o, "verdict", words[l->verdict]);
	cli_json_str(o, "kind", kind);
	cli_json_str(o, "path", l->path);
	if (l->old)
		cli_json_str(o, "old_path", l->old);
	if (*l->reason)
		cli_json_str(o, "reason", l->reason);
	if (x->dir)
		cli_json_str(o, "directory", x->dir->host);
	(void)cJSON_AddBoolToObject(o, "applied", false);
	(void)cJSON_AddItemToArray(x->json, o);
}

void apply_json_done(struct applying *x, int from)
{
	cJSON *o = cJSON_GetArrayItem(x->json, from);

	for (; o; o = o->next) {
		const char *verdict =
			cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "verdict"));

		if (verdict && !strcmp(verdict, "apply"))
			(void)cJSON_ReplaceItemInObjectCaseSensitive(o, "applied",
								     cJSON_CreateTrue());
	}
}

/* ---- what the policy keeps: one line for all that is in one place ---- */

/* Without memory it is not told of. */
static void see_git(struct applying *x, const char *place)
{
	const char *slash = strrchr(place, '/');

	if (x->git || !x->dir || strcasecmp(slash ? slash + 1 : place, ".git") != 0)
		return;
	if (asprintf(&x->git, "%s%s%.*s", x->dir->mount, slash ? "/" : "",
		     slash ? (int)(slash - place) : 0, place) < 0)
		x->git = NULL;
}

/* False without memory: it gets a line of its own. */
static bool count_closed(struct applying *x, const struct apply_line *l)
{
	struct apply_closed *c = x->nclosed ? &x->closed[x->nclosed - 1] : NULL, *more;

	for (size_t i = 0; i < x->nclosed; i++) {
		c = &x->closed[i];
		if (c->dir == x->dir && strlen(c->place) == l->closed &&
		    !strncmp(c->place, l->path, l->closed)) {
			c->n++;
			return true;
		}
	}
	more = reallocarray(x->closed, x->nclosed + 1, sizeof(*more));
	if (!more)
		return false;
	x->closed = more;
	c = &more[x->nclosed];
	*c = (struct apply_closed){.dir = x->dir,
				   .place = strndup(l->path, l->closed),
				   .path = strdup(l->path),
				   .reason = strdup(l->reason),
				   .n = 1};
	if (!c->place || !c->path || !c->reason) {
		free(c->place);
		free(c->path);
		free(c->reason);
		return false;
	}
	see_git(x, c->place);
	x->nclosed++;
	return true;
}

void apply_tell_closed(struct applying *x)
{
	(void)fflush(stdout);
	for (size_t i = 0; i < x->nclosed; i++) {
		struct apply_closed *c = &x->closed[i];

		fprintf(stderr, "rattan: kept back: ");
		if (c->n > 1)
			fprintf(stderr, "%llu changes in ", (unsigned long long)c->n);
		put_path(stderr, c->n > 1 ? c->place : c->path);
		fprintf(stderr, ": ");
		cli_put(stderr, c->reason);
		fputc('\n', stderr);
		free(c->place);
		free(c->path);
		free(c->reason);
	}
	x->nclosed = 0;
}

void apply_line(void *arg, const struct apply_line *l)
{
	struct applying *x = arg;
	char what[64];

	cli_bar_clear(&x->bar);
	if (x->json) {
		json_line(x, l);
		return;
	}
	if (l->verdict == APPLY_DO) {
		printf("%c ", l->kind);
		if (l->old) {
			put_path(stdout, l->old);
			printf(" -> ");
		}
		put_path(stdout, l->path);
		printf("%s\n", apply_what_text(l->what, l->kind, what));
		return;
	}
	if (l->verdict == APPLY_REFUSED && l->closed && count_closed(x, l))
		return;
	(void)fflush(stdout);
	fprintf(stderr, "rattan: %s: ",
		l->verdict == APPLY_CONFLICT  ? "conflict"
		: l->verdict == APPLY_REFUSED ? "kept back"
					      : "nothing to do");
	if (l->old) {
		put_path(stderr, l->old);
		fprintf(stderr, " -> ");
	}
	put_path(stderr, l->path);
	fprintf(stderr, ": ");
	cli_put(stderr, l->reason);
	fputc('\n', stderr);
}

int apply_progress(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	static const struct timespec now;
	struct applying *x = arg;

	if (sigtimedwait(&x->stops, NULL, &now) > 0)
		return 1;
	if (io_now_ms() - x->began > 1000)
		cli_bar_put(&x->bar, "applying", stage, done, total);
	return 0;
}

void apply_begin(struct applying *x, sigset_t *old)
{
	cli_ending_signals(&x->stops);
	(void)sigprocmask(SIG_BLOCK, &x->stops, old);
	cli_bar_start(&x->bar);
	x->began = io_now_ms();
}
