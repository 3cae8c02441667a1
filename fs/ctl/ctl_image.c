/* Root file systems in and out of the store: a short-lived rattan-fs does it and tells how far it is. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

struct work {
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	void *arg;
	const struct ctl_table *table; /* of what it ends with */
	void *sum;
	bool ended;
};

static int on_message(void *arg, const struct ctl_rep_doc *rep)
{
	struct work *w = arg;

	if (rep->nitems != 1)
		return -EBADMSG;
	switch (rep->rep.id) {
	case CTL_IMAGE_PROGRESS:
		return ctl_stream_progress(&rep->items[0], w->progress, w->arg);
	case CTL_IMAGE_END:
		w->ended = true;
		return ctl_item_get(&rep->items[0], w->table, w->sum);
	default:
		return -EBADMSG;
	}
}

static int work(struct ctl_argv *a, struct work *w, struct diag *diag)
{
	int r = ctl_spawn_stream(a, diag, on_message, w);

	/* Told to stop too late: it is done, though nothing is known of it. */
	if ((r > 0 || r == -ECANCELED) && a->ended_well)
		return 0;
	return r == 0 && !w->ended ? -EBADMSG : r;
}

/* The current directory of what we start is "/". */
static int absolute(const char *path, struct diag *diag, char **ret)
{
	*ret = strcmp(path, "-") ? realpath(path, NULL) : strdup(path);
	if (!*ret)
		return diag_set(diag, ret_nerrno(), "cannot find %s: %s", path, err_text(errno));
	return 0;
}

/* A pipe, or what a shell calls /dev/fd/N: whoever reads it needs our descriptor. *ret_fd stays 0 for a file. */
static int open_stream(const struct ctl_import_opts *o, struct diag *diag, int *ret_fd)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int hi;

	if (!strcmp(o->src, "-") || strcmp(o->kind, "tar") != 0 || stat(o->src, &st) < 0 ||
	    S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		return 0;
	fd = open(o->src, O_RDONLY | O_CLOEXEC);
	/* not one of those that the new process gets */
	hi = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
	if (hi < 0)
		return diag_set(diag, ret_nerrno(), "cannot open %s: %s", o->src, err_text(errno));
	*ret_fd = hi;
	return 0;
}

/* Who is in a directory stays in it: one that is called "." is filled, and no other one takes its place (fs/image/staged.h). */
static int keep_current(char **path)
{
	struct stat is, st;
	char *dot;

	if (stat(".", &is) < 0 || lstat(*path, &st) < 0 || is.st_dev != st.st_dev ||
	    is.st_ino != st.st_ino)
		return 0;
	if (asprintf(&dot, "%s/.", *path) < 0)
		return -ENOMEM;
	free(*path);
	*path = dot;
	return 0;
}

/* Of something that is not there yet. */
static int absolute_new(const char *path, struct diag *diag, char **ret)
{
	cleanup_free char *copy = strdup(path), *dir = NULL;
	const char *name;
	char *slash;
	size_t n;

	if (!copy)
		return -ENOMEM;
	if (!strcmp(path, "-")) {
		*ret = steal_ptr(&copy);
		return 0;
	}
	for (n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = 0;
	slash = strrchr(copy, '/');
	name = slash ? slash + 1 : copy;
	if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) {
		int r = absolute(path, diag, ret);

		return r < 0 ? r : keep_current(ret);
	}
	if (slash)
		*slash = 0;
	dir = realpath(!slash ? "." : *copy ? copy : "/", NULL);
	if (!dir && errno == ENOENT && slash)
		return diag_set(diag, -ENOENT,
				"there is no directory %s to export to; make it first (mkdir -p)",
				copy);
	if (!dir)
		return diag_set(diag, ret_nerrno(), "cannot write to %s: %s", path,
				err_text(errno));
	if (asprintf(ret, "%s/%s", strcmp(dir, "/") ? dir : "", name) < 0) {
		*ret = NULL;
		return -ENOMEM;
	}
	return keep_current(ret);
}

int ctl_import(const struct ctl_import_opts *o, struct diag *diag, struct ctl_import_sum *ret)
{
	struct work w = {
		.progress = o->progress, .arg = o->arg, .table = &ctl_table_import, .sum = ret};
	cleanup_free char *data = NULL, *src = NULL;
	struct ctl_argv a = {
		.n = 1, .std_in = !strcmp(o->src, "-"), .idle = o->idle, .idle_arg = o->arg};
	char max[24], strip[12];
	int r = open_stream(o, diag, &a.in_fd);

	if (r == 0)
		r = absolute(a.in_fd ? "-" : o->src, diag, &src);
	if (r == 0)
		r = ctl_admin_argv_make(&a, "import", o->data_dir, diag, &data);
	if (r < 0) {
		if (a.in_fd)
			(void)close(a.in_fd);
		return r;
	}
	ctl_argv_opt(&a, "--kind", o->kind);
	ctl_argv_opt(&a, "--src", src);
	ctl_argv_opt(&a, "--name", o->name);
	ctl_argv_opt(&a, "--tag", o->tag);
	(void)snprintf(strip, sizeof(strip), "%u", o->strip);
	if (o->strip)
		ctl_argv_opt(&a, "--strip", strip);
	if (o->replace)
		ctl_argv_add(&a, "--replace");
	if (o->reread)
		ctl_argv_add(&a, "--reread");
	(void)snprintf(max, sizeof(max), "%llu", (unsigned long long)o->disk_max);
	if (o->disk_max)
		ctl_argv_opt(&a, "--disk-max", max);
	r = work(&a, &w, diag);
	if (a.in_fd)
		(void)close(a.in_fd);
	return r;
}

int ctl_export(const struct ctl_export_opts *o, struct diag *diag, struct ctl_export_sum *ret)
{
	struct work w = {
		.progress = o->progress, .arg = o->arg, .table = &ctl_table_export, .sum = ret};
	cleanup_free char *data = NULL, *dest = NULL;
	struct ctl_argv a = {
		.n = 1, .std_out = !strcmp(o->dest, "-"), .idle = o->idle, .idle_arg = o->arg};
	int r = absolute_new(o->dest, diag, &dest);

	if (r == 0)
		r = ctl_admin_argv(&a, "export", o->data_dir, diag, &data);
	if (r < 0)
		return r;
	ctl_argv_opt(&a, "--kind", o->kind);
	ctl_argv_opt(&a, "--env", o->env ? o->env : "default");
	ctl_argv_opt(&a, "--rev", o->rev);
	ctl_argv_opt(&a, "--dest", dest);
	ctl_argv_opt(&a, "--tag", o->tag);
	ctl_argv_opt(&a, "--pack", o->pack);
	if (o->squash)
		ctl_argv_add(&a, "--squash");
	if (o->host)
		ctl_argv_add(&a, "--with-host");
	return work(&a, &w, diag);
}

int ctl_image_have(const char *data_dir, const char *layout, struct diag *diag,
		   struct ctl_had_sum *ret)
{
	cleanup_free char *data = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_argv a = {.n = 1};
	struct ctl_rep_doc rep;
	int r = ctl_admin_argv_make(&a, "have", data_dir, diag, &data);

	if (r < 0)
		return r;
	ctl_argv_opt(&a, "--src", layout);
	r = ctl_spawn(&a, NULL, diag, &raw, &rep);
	if (r < 0)
		return r;
	r = rep.nitems == 1 ? ctl_item_get(&rep.items[0], &ctl_table_had, ret) : -EBADMSG;
	ctl_rep_release(&rep);
	return r;
}

int ctl_base_list(const char *data_dir, struct diag *diag,
		  int (*fn)(void *arg, const struct ctl_base_info *b), void *arg)
{
	cleanup_free char *data = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_rep_doc rep;
	int r = ctl_admin_list("bases", data_dir, diag, &data, &raw, &rep);

	if (r <= 0)
		return r;
	r = 0;
	for (uint32_t i = 0; i < rep.nitems && r == 0; i++) {
		struct ctl_base_info b;

		r = ctl_item_get(&rep.items[i], &ctl_table_base, &b);
		if (r == 0)
			r = fn(arg, &b);
	}
	ctl_rep_release(&rep);
	return r;
}

int ctl_base_history(const char *data_dir, const char *name, const char *env, struct diag *diag,
		     int (*fn)(void *arg, const struct ctl_step *s), void *arg)
{
	cleanup_free char *data = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_argv a = {.n = 1};
	struct ctl_rep_doc rep;
	int r = ctl_admin_argv(&a, "history", data_dir, diag, &data);

	if (r < 0)
		return r;
	ctl_argv_opt(&a, "--name", name);
	ctl_argv_opt(&a, "--env", env);
	r = ctl_spawn(&a, NULL, diag, &raw, &rep);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < rep.nitems && r == 0; i++) {
		struct ctl_step s;

		r = ctl_item_get(&rep.items[i], &ctl_table_step, &s);
		if (r < 0)
			break;
		r = fn(arg, &s);
		ctl_item_release(&ctl_table_step, &s);
	}
	ctl_rep_release(&rep);
	return r;
}

int ctl_base_remove(const char *data_dir, const char *name, struct diag *diag)
{
	cleanup_free char *data = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_argv a = {.n = 1};
	struct ctl_rep_doc rep;
	int r = ctl_admin_argv(&a, "base-remove", data_dir, diag, &data);

	if (r < 0)
		return r;
	ctl_argv_opt(&a, "--name", name);
	r = ctl_spawn(&a, NULL, diag, &raw, &rep);
	if (r == 0)
		ctl_rep_release(&rep);
	return r;
}
