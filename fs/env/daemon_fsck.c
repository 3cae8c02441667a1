/* rattan-fs admin fsck: the store is checked, and what is found goes to the starter as it is found. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "fs/core/diff.h"
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

/* ---- ids of commits, which the store's own fsck cannot compute: it knows nothing of trees ---- */

struct ids {
	struct store *s;
	struct daemon_stream *t;
	struct store_fsck_sum *sum;
	struct buf all; /* digests */
};

static int see_commit(void *arg, const struct store_commit *c)
{
	struct ids *x = arg;

	return c->damaged ? 0 : buf_put(&x->all, c->id.b, DIGEST_LEN);
}

static PRINTF(4, 5) int tell(struct ids *x, enum store_finding_state state, const char *commit,
			     const char *fmt, ...)
{
	char text[300];
	struct store_finding f = {.state = state, .kind = "commit", .where = "commits"};
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f.text = text;
	f.commits[0] = commit;
	f.ncommits = commit ? 1 : 0;
	if (state == STORE_FINDING_DAMAGE)
		x->sum->damaged++;
	else
		x->sum->notes++;
	return on_finding(x->t, &f);
}

static int check_id(struct ids *x, const struct digest *id)
{
	char hex[DIGEST_LEN * 2 + 1];
	struct store_commit c = {0}, now = {0};
	bool same = true;
	int r = store_commit_get(x->s, id, &c), gone;

	if (r < 0) /* a collector took it meanwhile */
		return r == -ENOENT ? 0 : r;
	r = diff_commit_check(x->s, &c, &same);
	gone = r < 0 ? store_commit_get(x->s, id, &now) : 0;
	store_commit_release(&now);
	store_commit_release(&c);
	digest_hex(id, hex);
	if (r == -EBADMSG && gone == 0)
		return tell(x, STORE_FINDING_DAMAGE, hex,
			    "commit %.12s: a record that its id covers cannot be read", hex);
	if (r < 0 && r != -ENODATA)
		return gone == -ENOENT ? 0 : r;
	return same ? 0
		    : tell(x, STORE_FINDING_DAMAGE, hex,
			   "commit %.12s: what the store holds of it is not what was committed",
			   hex);
}

static int check_ids(struct ids *x)
{
	size_t n;
	int r = store_commits(x->s, NULL, see_commit, x);

	n = x->all.len / DIGEST_LEN;
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct digest id;

		memcpy(id.b, x->all.data + i * DIGEST_LEN, DIGEST_LEN);
		if (i % 64 == 0)
			r = on_progress(x->t, "commits", i, n);
		if (r == 0)
			r = check_id(x, &id);
	}
	return r;
}

static int commit_ids(const char *dir, struct daemon_stream *t, struct diag *diag,
		      struct store_fsck_sum *sum)
{
	struct ids x = {.t = t, .sum = sum};
	struct diag why = {0};
	int r = store_open(dir, STORE_RDONLY, &why, &x.s);

	if (r < 0)
		return tell(&x, STORE_FINDING_NOTE, NULL,
			    "the ids of commits were not computed again: %s", why.text);
	r = check_ids(&x);
	store_close(x.s);
	buf_release(&x.all);
	return r < 0 ? diag_set(diag, r, "cannot compute the ids of commits: %s", err_text(r)) : 0;
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
	/* Of a damaged store it is known which commits are touched. */
	if (r == 0 && !sum.damaged)
		r = commit_ids(o->data_dir, &t, &diag, &sum);
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
