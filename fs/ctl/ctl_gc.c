/* Collecting garbage: a short-lived rattan-fs does it and tells how far it is. */
#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

struct gc {
	const struct ctl_gc_opts *o;
	struct ctl_gc_sum *sum;
	bool ended;
};

static int on_progress(struct gc *g, const msgpack_object *item)
{
	struct ctl_progress p;
	int r = ctl_item_get(item, &ctl_table_progress, &p);

	if (r < 0)
		return r;
	if (g->o->progress && p.stage)
		r = g->o->progress(g->o->arg, p.stage, p.done, p.total);
	ctl_item_release(&ctl_table_progress, &p);
	return r;
}

static int on_message(void *arg, const struct ctl_rep_doc *rep)
{
	struct gc *g = arg;

	if (rep->nitems != 1)
		return -EBADMSG;
	switch (rep->rep.id) {
	case CTL_GC_PROGRESS:
		return on_progress(g, &rep->items[0]);
	case CTL_GC_END:
		g->ended = true;
		return ctl_item_get(&rep->items[0], &ctl_table_gc_sum, g->sum);
	default:
		return -EBADMSG;
	}
}

int ctl_gc(const struct ctl_gc_opts *o, struct diag *diag, struct ctl_gc_sum *ret)
{
	struct gc g = {.o = o, .sum = ret};
	cleanup_free char *data = NULL;
	struct ctl_argv a = {.n = 1};
	int r = ctl_data_path(o->data_dir, false, NULL, &data);

	if (r == -ENOENT)
		return diag_set(diag, r, "there is no store yet");
	if (r < 0)
		return diag_set(diag, r, "cannot use the data directory: %s", err_text(r));
	ctl_argv_add(&a, "admin");
	ctl_argv_add(&a, "gc");
	ctl_argv_opt(&a, "--data-dir", data);
	if (o->dry_run)
		ctl_argv_add(&a, "--dry-run");
	if (o->shrink)
		ctl_argv_add(&a, "--shrink");
	if (o->removed)
		ctl_argv_add(&a, "--removed");
	r = ctl_spawn_stream(&a, diag, on_message, &g);
	return r == 0 && !g.ended ? -EBADMSG : r;
}
