/* Collecting garbage: a short-lived rattan-fs does it and tells how far it is. */
#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

struct gc {
	const struct ctl_gc_opts *o;
	struct ctl_gc_sum *sum;
	bool ended;
};

static int on_message(void *arg, const struct ctl_rep_doc *rep)
{
	struct gc *g = arg;

	if (rep->nitems != 1)
		return -EBADMSG;
	switch (rep->rep.id) {
	case CTL_GC_PROGRESS:
		return ctl_stream_progress(&rep->items[0], g->o->progress, g->o->arg);
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
	char states[16], days[16];
	int r = ctl_admin_argv(&a, "gc", o->data_dir, diag, &data);

	if (r < 0)
		return r;
	if (o->dry_run)
		ctl_argv_add(&a, "--dry-run");
	if (o->shrink)
		ctl_argv_add(&a, "--shrink");
	if (o->compress)
		ctl_argv_add(&a, "--compress");
	if (o->removed)
		ctl_argv_add(&a, "--removed");
	(void)snprintf(states, sizeof(states), "%u", o->keep_states);
	(void)snprintf(days, sizeof(days), "%u", o->keep_days);
	if (o->keep_states)
		ctl_argv_opt(&a, "--keep-states", states);
	if (o->keep_days)
		ctl_argv_opt(&a, "--keep-days", days);
	a.idle = o->idle;
	a.idle_arg = o->arg;
	r = ctl_spawn_stream(&a, diag, on_message, &g);
	return r == 0 && !g.ended ? -EBADMSG : r;
}
