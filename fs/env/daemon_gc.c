/* rattan-fs admin gc: garbage is collected, and how far it is goes to the starter. */
#include <signal.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"
#include "store/store.h"

#define TELL_MS 200

struct telling {
	struct daemon_stream t;
	long long last;
};

/* Also how a starter that has gone away is noticed. */
static bool go_on(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	static const char *const stages[] = {
		[STORE_GC_LOOK] = "layers",
		[STORE_GC_ERASE] = "removed layers",
		[STORE_GC_MARK] = "records",
		[STORE_GC_SWEEP] = "chunks",
		[STORE_GC_PACK] = "chunks to compress",
		[STORE_GC_SHRINK] = "free pages",
	};
	struct ctl_progress p = {
		.stage = (char *)(uintptr_t)stages[phase], .done = done, .total = total};
	struct telling *x = arg;
	long long now = io_now_ms();

	if (now < x->last + TELL_MS)
		return true;
	x->last = now;
	return daemon_stream_item(&x->t, CTL_GC_PROGRESS, true, &ctl_table_progress, &p) == 0;
}

static int collect(const struct daemon_opts *o, struct telling *x, struct diag *diag,
		   struct ctl_gc_sum *ret)
{
	struct store_gc_opts go = {.dry_run = o->dry_run,
				   .shrink = o->shrink,
				   .pack = o->compress,
				   .removed = o->removed,
				   .keep_moves = o->keep_states,
				   .keep_days = o->keep_days,
				   .go_on = go_on,
				   .arg = x};
	cleanup_store struct store *s = NULL;
	struct store_gc_result g;
	int r = store_open(o->data_dir, 0, diag, &s);

	env_gc_keep(&go);
	if (r == 0)
		r = store_gc(s, &go, diag, &g);
	if (r < 0)
		return r;
	*ret = (struct ctl_gc_sum){.layers = g.layers,
				   .records = g.records,
				   .states = g.states,
				   .moves = g.moves,
				   .chunks = g.chunks,
				   .chunk_bytes = g.chunk_bytes,
				   .live_chunks = g.live_chunks,
				   .packed = g.packed,
				   .packed_from = g.packed_from,
				   .packed_to = g.packed_to,
				   .damaged = g.damaged,
				   .free_bytes = g.free_bytes,
				   .given_back = g.given_back};
	return 0;
}

int daemon_admin_gc(const struct daemon_opts *o)
{
	struct telling x = {.t = {.fd = o->ready_fd}, .last = io_now_ms()};
	struct ctl_gc_sum sum = {0};
	struct diag diag = {0};
	int r;

	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	r = collect(o, &x, &diag, &sum);
	if (r < 0)
		daemon_stream_error(&x.t, CTL_GC_END, r, &diag);
	else
		r = daemon_stream_item(&x.t, CTL_GC_END, false, &ctl_table_gc_sum, &sum);
	daemon_stream_release(&x.t);
	return r;
}
