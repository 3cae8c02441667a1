#include "fs/ctl/ctl_ops.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/core/ovl.h"
#include "fs/ctl/ctl_io.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/env.h"
#include "policy/denials.h"

#define ANSWER_MAX (256u << 20) /* a stream that is larger is refused, not kept in memory */

/* An answer in the making: whole messages behind each other (length, bytes), and the items of the one that
 * is being filled. */
struct answer {
	struct buf done, items;
	uint32_t n;
	uint64_t id;
	int fds[IO_MAX_FDS];
	size_t nfds;
	enum ctl_end end;
};

static void answer_release(struct answer *a)
{
	buf_release(&a->done);
	buf_release(&a->items);
	ctl_close_fds(a->fds, a->nfds);
}

static int answer_close_message(struct answer *a, const struct ctl_rep *rp)
{
	cleanup_buf struct buf msg = {.max = CTL_FRAME_MAX};
	uint32_t len;
	int r = ctl_rep_encode(rp, &a->items, a->n, &msg);

	len = (uint32_t)msg.len;
	if (r == 0)
		r = buf_put(&a->done, &len, sizeof(len));
	if (r == 0)
		r = buf_put(&a->done, msg.data, msg.len);
	buf_clear(&a->items);
	a->n = 0;
	return r;
}

static int answer_add(struct answer *a, const struct ctl_table *t, const void *item)
{
	int r = ctl_item_put(&a->items, t, item);

	if (r < 0)
		return r;
	a->n++;
	if (a->items.len < CTL_ITEMS_SOFT)
		return 0;
	return answer_close_message(a, &(struct ctl_rep){.id = a->id, .more = true});
}

/* ---- operations: each fills the answer or returns an error ---- */

struct call {
	struct env *env;
	const void *owner;
	struct env_looks *looks;
	struct ctl_req rq;
	int *fds; /* what came with the request; -1 what was taken */
	size_t nfds;
	int sock;
	struct answer *a;
	struct diag diag;
};

/* Whose store was removed serves nobody any more, and makes room for the next one when nothing runs. */
static int check_store(struct call *c)
{
	int r = env_check_store(c->env, &c->diag);

	if (r < 0 && env_check_idle(c->env, c->owner, NULL) == 0)
		c->a->end = CTL_END_NOW;
	return r;
}

static int op_open(struct call *c)
{
	struct diag note = {0};
	struct ctl_opened opened = {0};
	const struct env_asked asked = {.overlays = c->rq.overlays,
					.base = c->rq.base,
					.through = c->rq.through,
					.same_dirs = c->rq.same_dirs,
					.tell_dirs = c->rq.tell_dirs};
	int r = check_store(c);

	if (r == 0)
		r = env_agree(c->env, &asked, &c->diag, &note);

	if (r < 0)
		return r;
	opened.made = env_made(c->env);
	(void)snprintf(opened.note, sizeof(opened.note), "%s", note.text);
	return answer_add(c->a, &ctl_table_opened, &opened);
}

static int op_attach(struct call *c)
{
	const struct env_want want = {.what = c->rq.what,
				      .brief = c->rq.brief,
				      .through = c->rq.through,
				      .provision = c->rq.provision,
				      .writable = c->rq.writable,
				      .policy = &c->rq.policy};
	struct ctl_attach at;
	int r = check_store(c);

	if (r == 0)
		r = env_attach(c->env, c->owner, &want, &c->diag, &at);

	if (r < 0)
		return r;
	c->a->fds[c->a->nfds++] = at.root_fd;
	if (at.userns_fd >= 0) {
		c->a->fds[c->a->nfds++] = at.userns_fd;
		c->a->fds[c->a->nfds++] = at.mntns_fd;
	}
	if (at.tied_fd >= 0)
		c->a->fds[c->a->nfds++] = at.tied_fd;
	/* Not before: who is refused changes nothing for the others. */
	r = c->rq.disk ? env_set_disk_max(c->env, c->rq.disk, &c->diag) : 0;
	return r < 0 ? r : answer_add(c->a, &ctl_table_attach, &at);
}

static int op_lease(struct call *c)
{
	int r = env_lease(c->env, c->owner, c->rq.what, c->nfds ? c->fds[0] : -1, &c->diag);

	if (r == 0 && c->nfds)
		c->fds[0] = -1;
	return r;
}

static int op_keep(struct call *c)
{
	return env_provision_keep(c->env, c->owner, &c->diag);
}

static int op_drop(struct call *c)
{
	return env_provision_drop(c->env, c->owner, &c->diag);
}

static int op_unlease(struct call *c)
{
	env_unlease(c->env, c->owner);
	return 0;
}

static pid_t peer(const struct call *c)
{
	struct ucred who = {.pid = 0};
	socklen_t len = sizeof(who);

	return getsockopt(c->sock, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 ? who.pid : 0;
}

static int op_bind(struct call *c)
{
	return env_bind(c->env, c->owner, peer(c), c->nfds ? c->fds[0] : -1, c->rq.host,
			c->rq.mount, c->rq.rw, &c->diag);
}

static int op_unbind(struct call *c)
{
	return env_unbind(c->env, c->owner, c->rq.mount, &c->diag);
}

static int op_status(struct call *c)
{
	struct ctl_status st;
	int r = env_status(c->env, &c->diag, &st);

	if (r < 0)
		return r;
	r = answer_add(c->a, &ctl_table_status, &st);
	ctl_item_release(&ctl_table_status, &st);
	return r;
}

static int op_commit(struct call *c)
{
	struct ctl_commit cm;
	int r = c->rq.op == CTL_OP_CHECKPOINT
			? env_checkpoint(c->env, c->rq.message, c->rq.label, &c->diag, &cm)
			: env_commit(c->env, c->rq.message, c->rq.label, c->rq.expect, &c->diag,
				     &cm);

	if (r < 0)
		return r;
	r = answer_add(c->a, &ctl_table_commit, &cm);
	ctl_item_release(&ctl_table_commit, &cm);
	return r;
}

static int op_move(struct call *c)
{
	struct ctl_moved mv;
	enum env_move what = c->rq.op == CTL_OP_ROLLBACK ? ENV_ROLLBACK
			     : c->rq.op == CTL_OP_RESET  ? ENV_RESET
							 : ENV_UNDO;
	int r = env_move(c->env, c->owner, what, c->rq.rev, c->rq.force, &c->diag, &mv);

	return r < 0 ? r : answer_add(c->a, &ctl_table_moved, &mv);
}

static int op_tag(struct call *c)
{
	struct ctl_ref ref;
	int r = c->rq.op == CTL_OP_TAG
			? env_tag(c->env, c->rq.label, c->rq.rev, c->rq.force, &c->diag, &ref)
			: env_untag(c->env, c->rq.label, &c->diag, &ref);

	if (r == 0)
		r = answer_add(c->a, &ctl_table_ref, &ref);
	ctl_item_release(&ctl_table_ref, &ref);
	return r;
}

static int add_ref(void *arg, const struct ctl_ref *ref)
{
	return answer_add(arg, &ctl_table_ref, ref);
}

static int op_refs(struct call *c)
{
	return env_refs(c->env, c->rq.all, add_ref, c->a);
}

static int add_commit(void *arg, const struct ctl_commit *cm)
{
	return answer_add(arg, &ctl_table_commit, cm);
}

static int op_log(struct call *c)
{
	struct ctl_commit cm;
	int r;

	if (!c->rq.rev)
		return env_log(c->env, c->rq.all, c->rq.automatic, add_commit, c->a);
	r = env_log_one(c->env, c->rq.rev, &c->diag, &cm);
	if (r < 0)
		return r;
	r = answer_add(c->a, &ctl_table_commit, &cm);
	ctl_item_release(&ctl_table_commit, &cm);
	return r;
}

static int add_change(void *arg, const struct ctl_change *ch)
{
	return answer_add(arg, &ctl_table_change, ch);
}

static int op_diff(struct call *c)
{
	return env_diff(c->env, c->rq.rev, c->rq.rev2, c->rq.all, &c->diag, add_change, c->a);
}

static int op_cat(struct call *c)
{
	struct ctl_note n = {0};
	int fd, r = env_cat(c->env, c->looks, c->rq.rev, c->rq.path, &c->diag, &fd, &n.mode);

	if (r < 0)
		return r;
	c->a->fds[c->a->nfds++] = fd;
	return answer_add(c->a, &ctl_table_note, &n);
}

static int add_file(void *arg, const struct ctl_file *f)
{
	return answer_add(arg, &ctl_table_file, f);
}

static int op_ls(struct call *c)
{
	return env_ls(c->env, c->rq.rev, c->rq.path, c->rq.all, &c->diag, add_file, c->a);
}

static int op_own(struct call *c)
{
	return env_own(c->env, c->rq.path, &c->diag);
}

static int add_path(void *arg, const char *path, char what)
{
	const struct ctl_note n = {.path = (char *)(uintptr_t)path, .what = what};

	return answer_add(arg, &ctl_table_note, &n);
}

static int op_changes(struct call *c)
{
	struct ctl_note last = {0};
	int r = env_changes(c->env, c->rq.token, &c->diag, &last.token, add_path, c->a);

	return r < 0 ? r : answer_add(c->a, &ctl_table_note, &last);
}

static int add_denial(void *arg, const struct denial *d)
{
	const struct ctl_denial x = {.path = (char *)(uintptr_t)d->path,
				     .op = (char *)(uintptr_t)d->op,
				     .why = (char *)(uintptr_t)d->why,
				     .count = d->count};

	return answer_add(arg, &ctl_table_denial, &x);
}

/* Last, without a place: the next token, and how often something was refused. */
static int op_denials(struct call *c)
{
	struct ctl_denial last = {0};
	int r = env_denials(c->env, c->rq.token, &c->diag, &last.token, &last.count, add_denial,
			    c->a);

	return r < 0 ? r : answer_add(c->a, &ctl_table_denial, &last);
}

static int op_flush(struct call *c)
{
	return env_flush(c->env, &c->diag);
}

static int op_shutdown(struct call *c)
{
	int r = c->rq.force ? 0 : env_check_idle(c->env, c->owner, &c->diag);

	/* A full disk is told now, while somebody listens; by force it ends all the same. */
	if (r == 0) {
		r = env_flush(c->env, &c->diag);
		if (c->rq.force)
			r = 0;
	}
	c->a->end = r == 0 ? CTL_END_NOW : CTL_END_NOT;
	return r;
}

static int op_restart(struct call *c)
{
	int r = env_prepare_replace(c->env, c->owner, &c->diag);

	c->a->end = r == 0 ? CTL_END_REPLACE : CTL_END_NOT;
	return r;
}

static int (*const ops[CTL_OP_LAST + 1])(struct call *c) = {
	[CTL_OP_OPEN] = op_open,         [CTL_OP_ATTACH] = op_attach,
	[CTL_OP_LEASE] = op_lease,       [CTL_OP_UNLEASE] = op_unlease,
	[CTL_OP_KEEP] = op_keep,         [CTL_OP_BIND] = op_bind,
	[CTL_OP_UNBIND] = op_unbind,     [CTL_OP_STATUS] = op_status,
	[CTL_OP_COMMIT] = op_commit,     [CTL_OP_ROLLBACK] = op_move,
	[CTL_OP_RESET] = op_move,        [CTL_OP_UNDO] = op_move,
	[CTL_OP_LOG] = op_log,           [CTL_OP_DIFF] = op_diff,
	[CTL_OP_CAT] = op_cat,           [CTL_OP_CHANGES] = op_changes,
	[CTL_OP_FLUSH] = op_flush,       [CTL_OP_SHUTDOWN] = op_shutdown,
	[CTL_OP_RESTART] = op_restart,   [CTL_OP_DENIALS] = op_denials,
	[CTL_OP_CHECKPOINT] = op_commit, [CTL_OP_LS] = op_ls,
	[CTL_OP_OWN] = op_own,           [CTL_OP_TAG] = op_tag,
	[CTL_OP_UNTAG] = op_tag,         [CTL_OP_REFS] = op_refs,
	[CTL_OP_DROP] = op_drop,
};

/* ---- around them ---- */

static int decode(const struct buf *msg, struct call *c)
{
	uint64_t version = 0;
	int r = ctl_req_decode(msg->data, msg->len, &c->rq, &version);

	if (r == -EPROTONOSUPPORT)
		return diag_set(
			&c->diag, r,
			"this rattan-fs speaks control protocol %d and the client %llu: end it with the "
			"version that started it, then try again",
			CTL_PROTO, (unsigned long long)version);
	return r < 0 ? diag_set(&c->diag, r, "the request makes no sense") : 0;
}

static int send_all(int sock, struct answer *a)
{
	size_t at = 0;

	while (at < a->done.len) {
		struct buf msg = {0};
		uint32_t len;
		int r;

		memcpy(&len, a->done.data + at, sizeof(len));
		at += sizeof(len);
		msg.data = a->done.data + at;
		msg.len = len;
		at += len;
		r = ctl_frame_send(sock, &msg, a->fds, at == a->done.len ? a->nfds : 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int finish(struct answer *a, int err, const struct diag *d)
{
	struct ctl_rep rp = {.id = a->id, .err = err};
	int r;

	if (err < 0) {
		buf_clear(&a->items);
		a->n = 0;
		memcpy(rp.text, d->text[0] ? d->text : err_text(err),
		       strnlen(d->text[0] ? d->text : err_text(err), sizeof(rp.text) - 1));
	}
	r = answer_close_message(a, &rp);
	if (r == 0 || err < 0)
		return r;
	/* What was asked for does not fit a message: say so instead. */
	rp.err = r;
	(void)snprintf(rp.text, sizeof(rp.text), "the answer is too large: %s", err_text(r));
	return answer_close_message(a, &rp);
}

int ctl_serve(struct env *env, const void *owner, struct env_looks *looks, int sock,
	      const struct buf *msg, int *fds, size_t nfds, enum ctl_end *ret_end)
{
	struct answer a = {.done.max = ANSWER_MAX, .items.max = CTL_FRAME_MAX};
	struct call c = {.env = env,
			 .owner = owner,
			 .looks = looks,
			 .fds = fds,
			 .nfds = nfds,
			 .sock = sock,
			 .a = &a};
	int r = decode(msg, &c);
	bool fatal = r < 0;

	a.id = c.rq.id;
	if (r == 0)
		r = ops[c.rq.op](&c);
	if (r == -E2BIG && !c.diag.text[0])
		diag_set(&c.diag, r, "the answer is too large to be kept in memory");
	if (r > 0)
		r = -EIO;
	log_debug("%s: %s", ctl_op_name(c.rq.op), r < 0 ? err_text(r) : "ok");
	r = finish(&a, r, &c.diag);
	if (r == 0)
		r = send_all(sock, &a);
	*ret_end = a.end;
	answer_release(&a);
	ctl_req_release(&c.rq);
	ctl_close_fds(fds, nfds);
	return fatal && r == 0 ? -EBADMSG : r;
}
