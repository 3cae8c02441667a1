/* The host directories of an environment, and what has changed in them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/apply_internal.h"

void apply_dir_release(struct apply_dir *d)
{
	for (size_t i = 0; i < d->n; i++) {
		free(d->v[i].path);
		free(d->v[i].old);
	}
	for (size_t i = 0; i < d->look.n; i++)
		cleanup_fdp(&d->look.v[i].bytes_fd);
	apply_looked_release(&d->look);
	free(d->v);
	free(d->host);
	free(d->mount);
}

void applying_release(struct applying *x)
{
	if (x->attached)
		client_detach(x->client, &x->tree);
	if (x->ctl)
		client_ctl_put(x->client, x->ctl, false);
	client_free(x->client);
	for (size_t i = 0; i < x->n; i++)
		apply_dir_release(&x->v[i]);
	free(x->v);
	for (size_t i = 0; i < x->nelsewhere; i++)
		free(x->elsewhere[i]);
	free(x->elsewhere);
	for (size_t i = 0; i < x->nclosed; i++) {
		free(x->closed[i].place);
		free(x->closed[i].path);
		free(x->closed[i].reason);
	}
	free(x->closed);
	free(x->git);
	policy_free(x->policy);
	free(x->data_dir);
	buf_release(&x->back);
	buf_release(&x->stays);
}

static struct apply_dir *dir_of(struct applying *x, const char *path, const char **ret_rest)
{
	struct apply_dir *best = NULL;
	size_t most = 0;

	for (size_t i = 0; i < x->n; i++) {
		size_t len = strlen(x->v[i].mount);

		if (len >= most && !strncmp(path, x->v[i].mount, len) &&
		    (!path[len] || path[len] == '/')) {
			best = &x->v[i];
			most = len;
			*ret_rest = path + len + (path[len] == '/');
		}
	}
	return best;
}

static struct apply_change *add_change(struct apply_dir *d, char kind, const char *path,
				       const char *old, const struct ctl_change *ch)
{
	struct apply_change *c;

	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 64;

		c = realloc(d->v, cap * sizeof(*c));
		if (!c)
			return NULL;
		d->v = c;
		d->cap = cap;
	}
	c = &d->v[d->n];
	*c = (struct apply_change){.kind = kind,
				   .path = strdup(path),
				   .old = old ? strdup(old) : NULL,
				   .what = ch->what & ~(uint32_t)CTL_ELSEWHERE,
				   .mode = ch->mode,
				   .hidden_at = ch->hid_at,
				   .bytes_fd = -1};
	if (ch->hid_mode)
		c->hidden = (struct ident){.there = true,
					   .mode = ch->hid_mode,
					   .dev = ch->hid_dev,
					   .ino = ch->hid_ino,
					   .size = S_ISDIR(ch->hid_mode) ? 0 : ch->hid_size,
					   .mtime = ch->hid_mtime,
					   .ctime = ch->hid_ctime};
	d->n++;
	return c->path && (c->old || !old) ? c : NULL;
}

static int add_elsewhere(struct applying *x, const char *path)
{
	if (x->nelsewhere == x->elsewhere_cap) {
		size_t cap = x->elsewhere_cap ? x->elsewhere_cap * 2 : 64;
		char **more = realloc(x->elsewhere, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		x->elsewhere = more;
		x->elsewhere_cap = cap;
	}
	x->elsewhere[x->nelsewhere] = strdup(path);
	return x->elsewhere[x->nelsewhere] ? (x->nelsewhere++, 0) : -ENOMEM;
}

static int on_change(void *arg, const struct ctl_change *ch)
{
	struct applying *x = arg;
	const char *rest = "", *old = "";
	struct apply_dir *d = dir_of(x, ch->path, &rest);
	struct apply_dir *from = ch->kind == 'R' ? dir_of(x, ch->old_path, &old) : NULL;

	/* What was moved out of one directory is shown from there, wherever it is. */
	if ((ch->what & CTL_ELSEWHERE || (from && d != from)) && add_elsewhere(x, ch->path) < 0)
		return -ENOMEM;
	if (ch->kind == 'M' && ch->what == CTL_ELSEWHERE)
		return 0;
	if (ch->kind != 'R')
		return !d || add_change(d, ch->kind, rest, NULL, ch) ? 0 : -ENOMEM;
	if (d && d == from)
		return add_change(d, 'R', rest, old, ch) ? 0 : -ENOMEM;
	/* Into or out of what is shown: it comes or goes. */
	if (from && !add_change(from, 'D', old, NULL, ch))
		return -ENOMEM;
	if (d && S_ISDIR(ch->mode))
		return -EXDEV;
	return !d || add_change(d, 'A', rest, NULL, ch) ? 0 : -ENOMEM;
}

static int by_path(const void *pa, const void *pb)
{
	const struct apply_change *a = pa, *b = pb;

	int c = strcmp(a->path, b->path);

	/* What goes stands before what comes. */
	return c ? c : (a->kind != 'D') - (b->kind != 'D');
}

/* What a killed apply has left half-way is no change, and what it had brought already no difference: it goes back first. */
static int recover(struct applying *x)
{
	struct diag diag = {0};
	int r = apply_recover(x->data_dir, &diag, &x->last);

	if (r < 0 || *diag.text)
		return cli_fail_errno(r < 0 ? r : -ESTALE, &diag, "apply");
	return -1;
}

int apply_load_changes(struct applying *x)
{
	struct diag diag = {0};
	struct cli_work work;
	int r = recover(x);

	if (r >= 0)
		return r;
	cli_wait_begin(&work, x->ctl, "comparing");
	r = ctl_overlaid(x->ctl, &diag, on_change, x);
	cli_wait_end(&work, x->ctl, r < 0 ? "nothing was applied" : NULL);
	if (r == -EXDEV && !*diag.text)
		return cli_fail(CLI_FAILED,
				"apply: a directory was moved into what a host directory "
				"shows from elsewhere; copy it there instead, and apply "
				"again");
	if (r < 0)
		return cli_fail_errno(r, &diag, "apply");
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].n)
			qsort(x->v[i].v, x->v[i].n, sizeof(*x->v[i].v), by_path);
	return -1;
}

int apply_load_dirs(struct applying *x)
{
	struct ctl_status s;
	struct diag diag = {0};
	size_t n = 0;
	int r = ctl_status(x->ctl, &diag, &s);

	if (r < 0)
		return cli_fail_errno(r, &diag, "apply");
	while (s.overlays && s.overlays[n])
		n++;
	x->v = calloc(n + 1, sizeof(*x->v));
	for (size_t i = 0; x->v && i < n; i++) {
		char *eq = strrchr(s.overlays[i], '=');

		x->v[i].host = eq ? strndup(s.overlays[i], (size_t)(eq - s.overlays[i])) : NULL;
		x->v[i].mount = eq ? strdup(eq + 1) : NULL;
		x->n = i + 1;
		if (!x->v[i].host || !x->v[i].mount)
			r = -ENOMEM;
	}
	if (!x->v)
		r = -ENOMEM;
	if (r >= 0 && s.leases && !x->a->dry_run)
		fprintf(stderr,
			"rattan: %u command%s running in %s: what they write meanwhile is "
			"not in it, or in part\n",
			s.leases, s.leases == 1 ? " is" : "s are", client_env(x->client));
	ctl_status_release(&s);
	if (r < 0)
		return cli_fail_errno(r, NULL, "apply");
	if (!n)
		return cli_fail(CLI_NOT_FOUND,
				"apply: no host directory is laid under environment '%s'; run "
				"commands with --overlay-cwd or --overlay to work on one",
				client_env(x->client));
	return -1;
}
