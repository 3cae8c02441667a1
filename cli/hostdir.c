/* Directories of the host on the command line; which may be opened is client/hostdir.h's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

void cli_dirs_release(struct cli_dirs *d)
{
	for (size_t i = 0; i < d->n; i++) {
		hostdir_release(&d->v[i].dir);
		free(d->v[i].mount);
	}
	free(d->v);
	*d = (struct cli_dirs){0};
}

static int add(struct cli_dirs *d, enum cli_dir_kind kind, const char *host, const char *mount,
	       struct diag *diag)
{
	cleanup_hostdir struct hostdir dir = {.fd = -1};
	cleanup_free char *at = strdup(mount);
	struct cli_dir *v;
	int r;

	if (!at)
		return -ENOMEM;
	r = hostdir_open(host, d->roots, diag, &dir);
	if (r == 0)
		r = hostdir_check_mount(mount, diag);
	if (r < 0)
		return r;
	v = realloc(d->v, (d->n + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	d->v = v;
	v[d->n].dir = dir;
	dir = (struct hostdir){.fd = -1};
	v[d->n].mount = steal_ptr(&at);
	v[d->n++].rw = kind == CLI_BIND;
	return 0;
}

int cli_dirs_add(struct cli_dirs *d, enum cli_dir_kind kind, const char *spec, struct diag *diag)
{
	cleanup_free char *s = strdup(spec);
	char *eq = NULL, *mode;

	if (!s)
		return -ENOMEM;
	for (char *q = s; (q = strstr(q, "=/")); q++)
		eq = q;
	if (!eq || eq == s)
		return diag_set(diag, -EINVAL, "'%s' is not HOST=MOUNT, such as ./src=/workspace",
				spec);
	*eq = 0;
	mode = strrchr(eq + 1, ':');
	if (mode && kind != CLI_OVERLAY && (!strcmp(mode, ":ro") || !strcmp(mode, ":rw"))) {
		if (kind == CLI_BIND_RO && mode[2] == 'w')
			return diag_set(diag, -EINVAL, "'%s': --bind-ro is read-only; use --bind",
					spec);
		if (mode[2] == 'o')
			kind = CLI_BIND_RO;
		*mode = 0;
	}
	return add(d, kind, s, eq + 1, diag);
}

int cli_dirs_check(const struct cli_dirs *binds, const struct cli_dirs *overlays, struct diag *diag)
{
	for (size_t i = 0; i < overlays->n; i++)
		for (size_t k = 0; k < binds->n; k++)
			if (hostdir_below(overlays->v[i].mount, binds->v[k].mount))
				return diag_set(diag, -EINVAL,
						"%s cannot be both: %s copy-on-write, and %s bound "
						"at %s",
						overlays->v[i].mount, overlays->v[i].dir.path,
						binds->v[k].dir.path, binds->v[k].mount);
	return 0;
}

int cli_dirs_add_cwd(struct cli_dirs *d, enum cli_dir_kind kind, struct diag *diag)
{
	return add(d, kind, ".", "/workspace", diag);
}
