/* rattan-fs admin stats: what takes the space is counted, beside whatever uses the store. */
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"
#include "store/usage.h"

#define TELL_MS 200

struct telling {
	struct daemon_stream t;
	long long last;
};

/* Also how a starter that has gone away is noticed. */
static int on_progress(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	struct ctl_progress p = {.stage = (char *)(uintptr_t)stage, .done = done, .total = total};
	struct telling *x = arg;
	long long now = io_now_ms();

	if (now < x->last + TELL_MS)
		return 0;
	x->last = now;
	return daemon_stream_item(&x->t, CTL_STATS_PROGRESS, true, &ctl_table_progress, &p);
}

static struct ctl_usage_size size(const struct store_usage_size *n)
{
	return (struct ctl_usage_size){n->chunks, n->chunk_bytes, n->records, n->record_bytes};
}

static int tell_row(struct telling *x, const struct store_usage_row *u)
{
	static const char *const kinds[] = {
		[STORE_USAGE_ENV] = "environment",
		[STORE_USAGE_BASE] = "base",
		[STORE_USAGE_REMOVED] = "removed",
		[STORE_USAGE_OTHER] = "other",
	};
	struct ctl_usage_row row = {.reaches = size(&u->reaches),
				    .alone = size(&u->alone),
				    .commits = size(&u->commits),
				    .undo = size(&u->undo),
				    .states = u->states};

	(void)snprintf(row.kind, sizeof(row.kind), "%s", kinds[u->kind]);
	(void)snprintf(row.name, sizeof(row.name), "%s", u->name);
	return daemon_stream_item(&x->t, CTL_STATS_ROW, true, &ctl_table_usage_row, &row);
}

static int count(const struct daemon_opts *o, struct telling *x, struct diag *diag,
		 struct ctl_usage_sum *ret)
{
	cleanup_store struct store *s = NULL;
	struct store_gc_opts keep = {0};
	struct store_usage_opts uo = {.progress = on_progress, .arg = x};
	struct store_usage u;
	int r = store_open(o->data_dir, STORE_RDONLY, diag, &s);

	env_gc_keep(&keep);
	uo.keep_moves = keep.keep_moves;
	uo.keep_days = keep.keep_days;
	if (r == 0)
		r = store_usage(s, &uo, diag, &u);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < u.nrows; i++)
		r = tell_row(x, &u.rows[i]);
	*ret = (struct ctl_usage_sum){.total = size(&u.total),
				      .shared = size(&u.shared),
				      .garbage = size(&u.garbage),
				      .packed = u.packed,
				      .packed_bytes = u.packed_bytes,
				      .packed_raw = u.packed_raw,
				      .chunk_file_bytes = u.chunk_file_bytes,
				      .meta_file_bytes = u.meta_file_bytes,
				      .other_file_bytes = u.other_file_bytes,
				      .free_bytes = u.free_bytes,
				      .damaged = u.damaged};
	store_usage_release(&u);
	return r;
}

int daemon_admin_stats(const struct daemon_opts *o)
{
	struct telling x = {.t = {.fd = o->ready_fd}, .last = io_now_ms()};
	struct ctl_usage_sum sum = {0};
	struct diag diag = {0};
	int r;

	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	r = count(o, &x, &diag, &sum);
	if (r < 0)
		daemon_stream_error(&x.t, CTL_STATS_END, r, &diag);
	else
		r = daemon_stream_item(&x.t, CTL_STATS_END, false, &ctl_table_usage_sum, &sum);
	daemon_stream_release(&x.t);
	return r;
}
