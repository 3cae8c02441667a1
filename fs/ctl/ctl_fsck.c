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

static int on_progress(struct fsck *f, const msgpack_object *item)
{
	struct ctl_progress p;
	int r = ctl_item_get(item, &ctl_table_progress, &p);

	if (r < 0)
		return r;
	if (f->o->progress && p.stage)
		r = f->o->progress(f->o->arg, p.stage, p.done, p.total);
	ctl_item_release(&ctl_table_progress, &p);
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
		return on_progress(f, &rep->items[0]);
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
	int r = ctl_data_path(o->data_dir, false, NULL, &data);

	if (r == -ENOENT)
		return diag_set(diag, r, "there is no store yet");
	if (r < 0)
		return diag_set(diag, r, "cannot use the data directory: %s", err_text(r));
	ctl_argv_add(&a, "admin");
	ctl_argv_add(&a, "fsck");
	ctl_argv_opt(&a, "--data-dir", data);
	if (o->quick)
		ctl_argv_add(&a, "--quick");
	if (o->repair)
		ctl_argv_add(&a, "--repair");
	r = ctl_spawn_stream(&a, diag, on_message, &f);
	return r == 0 && !f.ended ? -EBADMSG : r;
}
