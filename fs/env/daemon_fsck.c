/* rattan-fs admin fsck: the store is checked, and what is found goes to the starter as it is found. */
#include <signal.h>
#include <sys/stat.h>

#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"
#include "store/fsck.h"

static char *mutable(const char *s)
{
	return (char *)(uintptr_t)s;
}

static int on_finding(void *arg, const struct store_finding *f)
{
	static const char states[] = {
		[STORE_FINDING_DAMAGE] = 'D',
		[STORE_FINDING_REPAIRABLE] = 'R',
		[STORE_FINDING_REPAIRED] = 'F',
		[STORE_FINDING_NOTE] = 'N',
	};
	char *envs[STORE_FINDING_LIST + 1] = {NULL}, *commits[STORE_FINDING_LIST + 1] = {NULL};
	struct ctl_finding c = {.state = states[f->state],
				.kind = mutable(f->kind),
				.where = mutable(f->where),
				.text = mutable(f->text),
				.path = mutable(f->path),
				.envs = envs,
				.commits = commits,
				.nenvs = f->nenvs,
				.ncommits = f->ncommits};

	for (int i = 0; i < STORE_FINDING_LIST; i++) {
		envs[i] = mutable(f->envs[i]);
		commits[i] = mutable(f->commits[i]);
	}
	return daemon_stream_item(arg, CTL_FSCK_FINDING, true, &ctl_table_finding, &c);
}

static int on_progress(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	struct ctl_progress p = {.stage = mutable(stage), .done = done, .total = total};

	return daemon_stream_item(arg, CTL_FSCK_PROGRESS, true, &ctl_table_progress, &p);
}

int daemon_admin_fsck(const struct daemon_opts *o)
{
	struct daemon_stream t = {.fd = o->ready_fd};
	struct store_fsck_opts fo = {.flags = (o->quick ? STORE_FSCK_QUICK : 0) |
					      (o->repair ? STORE_FSCK_REPAIR : 0),
				     .finding = on_finding,
				     .progress = on_progress,
				     .arg = &t};
	struct store_fsck_sum sum = {0};
	struct diag diag = {0};
	int r;

	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	r = store_fsck(o->data_dir, &fo, &diag, &sum);
	if (r < 0) {
		daemon_stream_error(&t, CTL_FSCK_END, r, &diag);
	} else {
		struct ctl_fsck_sum c = {
			.records = sum.records,
			.chunks = sum.chunks,
			.bytes = sum.bytes,
			.pages = sum.pages,
			.layers = sum.layers,
			.commits = sum.commits,
			.envs = sum.envs,
			.damaged = sum.damaged,
			.repairable = sum.repairable,
			.repaired = sum.repaired,
			.notes = sum.notes,
		};

		r = daemon_stream_item(&t, CTL_FSCK_END, false, &ctl_table_fsck_sum, &c);
	}
	daemon_stream_release(&t);
	return r;
}
