/* What a client was made with: copies, for it outlives whoever made it. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/client_internal.h"

static int dup_text(const char *s, const char **ret)
{
	*ret = NULL;
	if (!s)
		return 0;
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

static int dup_overlays(const struct ctl_env_opts *o, struct ctl_env_opts *ret)
{
	struct ctl_overlay *v;
	size_t i;
	int r = 0;

	if (o->noverlays == 0)
		return 0;
	v = calloc(o->noverlays, sizeof(*v));
	if (!v)
		return -ENOMEM;
	ret->overlays = v;
	ret->noverlays = o->noverlays;
	for (i = 0; r == 0 && i < o->noverlays; i++) {
		r = dup_text(o->overlays[i].host, &v[i].host);
		if (r == 0)
			r = dup_text(o->overlays[i].mount, &v[i].mount);
	}
	return r;
}

static int dup_writable(const struct ctl_env_opts *o, struct ctl_env_opts *ret)
{
	const char **v;
	size_t n = 0, i;
	int r = 0;

	if (!o->writable)
		return 0;
	while (o->writable[n])
		n++;
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	ret->writable = v;
	for (i = 0; r == 0 && i < n; i++)
		r = dup_text(o->writable[i], &v[i]);
	return r;
}

static int dup_policy(const struct ctl_env_opts *o, struct ctl_env_opts *ret)
{
	if (!o->policy.len)
		return 0;
	ret->policy.data = malloc(o->policy.len);
	if (!ret->policy.data)
		return -ENOMEM;
	memcpy(ret->policy.data, o->policy.data, o->policy.len);
	ret->policy.len = o->policy.len;
	return 0;
}

static void drop_text(const char *s)
{
	free((void *)(uintptr_t)s);
}

void client_opts_release(struct ctl_env_opts *o)
{
	size_t i;

	drop_text(o->data_dir);
	drop_text(o->env);
	drop_text(o->base);
	for (i = 0; i < o->noverlays; i++) {
		drop_text(o->overlays[i].host);
		drop_text(o->overlays[i].mount);
	}
	free((void *)(uintptr_t)o->overlays);
	for (i = 0; o->writable && o->writable[i]; i++)
		drop_text(o->writable[i]);
	free((void *)(uintptr_t)o->writable);
	free(o->policy.data);
}

int client_opts_dup(const struct ctl_env_opts *o, struct ctl_env_opts *ret)
{
	int r;

	*ret = (struct ctl_env_opts){.create = o->create,
				     .no_start = o->no_start,
				     .through = o->through,
				     .same_dirs = o->same_dirs,
				     .tell_dirs = o->tell_dirs,
				     .disk_max = o->disk_max};
	r = dup_text(o->data_dir, &ret->data_dir);
	if (r == 0)
		r = dup_text(o->env ? o->env : "default", &ret->env);
	if (r == 0)
		r = dup_text(o->base, &ret->base);
	if (r == 0)
		r = dup_overlays(o, ret);
	if (r == 0)
		r = dup_writable(o, ret);
	if (r == 0)
		r = dup_policy(o, ret);
	return r;
}
