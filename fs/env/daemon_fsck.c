/* rattan-fs admin fsck: the store is checked, and what is found goes to the starter as it is found. */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"
#include "store/fsck.h"

struct teller {
	int fd;
	struct buf items, msg;
};

static int send_msg(struct teller *t, const struct ctl_rep *rp, bool item)
{
	static const uint8_t room[4];
	uint32_t n;
	int r;

	buf_clear(&t->msg);
	r = buf_put(&t->msg, room, 4);
	if (r == 0)
		r = ctl_rep_encode(rp, item ? &t->items : NULL, item, &t->msg);
	if (r < 0)
		return r;
	n = (uint32_t)t->msg.len - 4;
	for (int i = 0; i < 4; i++)
		t->msg.data[i] = (uint8_t)(n >> (24 - 8 * i));
	return io_write_full(t->fd, t->msg.data, t->msg.len);
}

static int send_item(struct teller *t, enum ctl_fsck_msg id, const struct ctl_table *table,
		     const void *item)
{
	struct ctl_rep rp = {.id = id, .more = id != CTL_FSCK_END};
	int r;

	buf_clear(&t->items);
	r = ctl_item_put(&t->items, table, item);
	return r < 0 ? r : send_msg(t, &rp, true);
}

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
	return send_item(arg, CTL_FSCK_FINDING, &ctl_table_finding, &c);
}

static int on_progress(void *arg, const char *stage, uint64_t done, uint64_t total)
{
	struct ctl_progress p = {.stage = mutable(stage), .done = done, .total = total};

	return send_item(arg, CTL_FSCK_PROGRESS, &ctl_table_progress, &p);
}

int daemon_admin_fsck(const struct daemon_opts *o)
{
	struct teller t = {.fd = o->ready_fd};
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
		struct ctl_rep rp = {.id = CTL_FSCK_END, .err = r};
		const char *text = diag.text[0] ? diag.text : err_text(r);

		memcpy(rp.text, text, strnlen(text, sizeof(rp.text) - 1));
		(void)!send_msg(&t, &rp, false);
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

		r = send_item(&t, CTL_FSCK_END, &ctl_table_fsck_sum, &c);
	}
	buf_release(&t.items);
	buf_release(&t.msg);
	return r;
}
