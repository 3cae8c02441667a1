/* Checking a store: a short-lived rattan-fs does it and streams what it finds. */
#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

struct fsck {
	const struct ctl_fsck_opts *o;
	struct ctl_fsck_sum *sum;
	bool ended;
};

static int on_finding(struct fsck *f, const msgpack_object *item)
{
	struct ctl_finding c;
	int r = ctl_item_get(item, &ctl_table_finding, &c);

	if (r < 0)
		return r;
	r = c.kind && c.where && c.text ? f->o->finding(f->o->arg, &c) : -EBADMSG;
	ctl_item_release(&ctl_table_finding, &c);
	return r;
}

static int on_message(void *arg, const struct ctl_rep_doc *rep)
{
	struct fsck *f = arg;

	if (rep->nitems != 1)
		return -EBADMSG;
	switch (rep->rep.id) {
	case CTL_FSCK_FINDING:
		return on_finding(f, &rep->items[0]);
	case CTL_FSCK_PROGRESS:
		return ctl_stream_progress(&rep->items[0], f->o->progress, f->o->arg);
	case CTL_FSCK_END:
		f->ended = true;
		return ctl_item_get(&rep->items[0], &ctl_table_fsck_sum, f->sum);
	default:
		return -EBADMSG;
	}
}

int ctl_fsck(const struct ctl_fsck_opts *o, struct diag *diag, struct ctl_fsck_sum *ret)
{
	struct fsck f = {.o = o, .sum = ret};
	cleanup_free char *data = NULL;
	struct ctl_argv a = {.n = 1};
	int r = ctl_admin_argv(&a, "fsck", o->data_dir, diag, &data);

	if (r < 0)
		return r;
	if (o->quick)
		ctl_argv_add(&a, "--quick");
	if (o->repair)
		ctl_argv_add(&a, "--repair");
	a.idle = o->idle;
	a.idle_arg = o->arg;
	r = ctl_spawn_stream(&a, diag, on_message, &f);
	return r == 0 && !f.ended ? -EBADMSG : r;
}
