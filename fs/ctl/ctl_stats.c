/* What takes the space: a short-lived rattan-fs counts, and tells how far it is. */
#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

struct stats {
	const struct ctl_stats_opts *o;
	struct ctl_usage_sum *sum;
	bool ended;
};

static int on_row(struct stats *s, const msgpack_object *item)
{
	struct ctl_usage_row row;
	int r = ctl_item_get(item, &ctl_table_usage_row, &row);

	return r < 0 ? r : s->o->row(s->o->arg, &row);
}

static int on_message(void *arg, const struct ctl_rep_doc *rep)
{
	struct stats *s = arg;

	if (rep->nitems != 1)
		return -EBADMSG;
	switch (rep->rep.id) {
	case CTL_STATS_ROW:
		return on_row(s, &rep->items[0]);
	case CTL_STATS_PROGRESS:
		return ctl_stream_progress(&rep->items[0], s->o->progress, s->o->arg);
	case CTL_STATS_END:
		s->ended = true;
		return ctl_item_get(&rep->items[0], &ctl_table_usage_sum, s->sum);
	default:
		return -EBADMSG;
	}
}

int ctl_stats(const struct ctl_stats_opts *o, struct diag *diag, struct ctl_usage_sum *ret)
{
	struct stats s = {.o = o, .sum = ret};
	cleanup_free char *data = NULL;
	struct ctl_argv a = {.n = 1};
	int r = ctl_admin_argv(&a, "stats", o->data_dir, diag, &data);

	if (r < 0)
		return r;
	a.idle = o->idle;
	a.idle_arg = o->arg;
	r = ctl_spawn_stream(&a, diag, on_message, &s);
	return r == 0 && !s.ended ? -EBADMSG : r;
}
