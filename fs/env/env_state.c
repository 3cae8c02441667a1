/* Commit, rollback, reset, undo: moves of a pointer, and what has to happen around them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/core/diff.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/env_internal.h"

#define MESSAGE_MAX (64u << 10)

/* The id of the commit that sealed @layer in hex; "" when none did (the base). */
static int commit_hex(struct env *e, store_layer layer, char ret[static 65])
{
	struct store_commit c = {0};
	int r = store_commit_of_layer(e->store, layer, &c);

	ret[0] = 0;
	if (r == 0)
		digest_hex(&c.id, ret);
	store_commit_release(&c);
	return r == -ENOENT ? 0 : r;
}

struct seal {
	struct env *e;
	const char *message, *label;
	bool automatic;
	struct store_commit c; /* filled in */
};

/* Called by the core after its flush and with changes held off: the open layer in the store is now
 * all there is. */
static int seal(void *arg, store_layer *ret_open)
{
	struct seal *s = arg;
	struct env *e = s->e;
	struct diff_counts n = {0};
	struct store_commit head = {0};
	struct digest parent = {0};
	store_layer from;
	int r = store_head_commit(e->store, e->rec.head, &from);

	if (r < 0)
		return r;
	r = store_commit_of_layer(e->store, from, &head);
	if (r == 0)
		parent = head.id;
	store_commit_release(&head);
	if (r < 0 && r != -ENOENT)
		return r;
	(void)clock_gettime(CLOCK_REALTIME, &s->c.time);
	r = diff_commit_id(e->store, &parent, from, e->rec.open, s->message, s->label, &s->c.time,
			   &s->c.id, &n);
	if (r < 0)
		return r;
	/* An automatic state is kept even when only times differ: a move must not drop anything. */
	if (!s->automatic && n.added + n.modified + n.deleted + n.renamed == 0)
		return -ENODATA;
	s->c.kind = s->automatic ? STORE_AUTO : STORE_COMMIT;
	s->c.added = n.added;
	s->c.modified = n.modified + n.renamed;
	s->c.deleted = n.deleted;
	memcpy(s->c.label, s->label, strnlen(s->label, sizeof(s->c.label) - 1));
	s->c.message = strdup(s->message);
	if (!s->c.message)
		return -ENOMEM;
	r = store_env_seal(e->store, &e->rec, &s->c);
	if (r == 0)
		*ret_open = e->rec.open;
	return r;
}

static int check_text(const char *message, const char *label, struct diag *diag)
{
	if (strlen(message) > MESSAGE_MAX)
		return diag_set(diag, -E2BIG, "the message is longer than %u bytes", MESSAGE_MAX);
	if (strlen(label) > 127)
		return diag_set(diag, -E2BIG, "the label is longer than 127 bytes");
	return 0;
}

static int check_expect(struct env *e, const char *expect, struct diag *diag)
{
	store_layer want, at;
	char head[65];
	int r;

	if (!expect)
		return 0;
	r = env_resolve(e->store, e->rec.name, expect, diag, &want);
	if (r < 0)
		return r;
	r = store_head_commit(e->store, e->rec.head, &at);
	if (r < 0 || want == at)
		return r;
	if (commit_hex(e, at, head) < 0)
		head[0] = 0;
	return diag_set(diag, -ESTALE,
			"head is %.12s, not %s: somebody committed or moved meanwhile",
			head[0] ? head : "the base", expect);
}

static void hex_unless_zero(const struct digest *d, char ret[static 65])
{
	for (size_t i = 0; i < DIGEST_LEN && !ret[0]; i++)
		if (d->b[i])
			digest_hex(d, ret);
}

/* All but the message. */
static void describe(const struct store_commit *c, struct ctl_commit *ret)
{
	memset(ret, 0, sizeof(*ret));
	hex_unless_zero(&c->id, ret->id);
	hex_unless_zero(&c->parent, ret->parent);
	memcpy(ret->env, c->env, sizeof(ret->env));
	memcpy(ret->label, c->label, sizeof(ret->label));
	ret->automatic = c->kind == STORE_AUTO;
	ret->time = c->time;
	ret->added = c->added;
	ret->modified = c->modified;
	ret->deleted = c->deleted;
}

static int to_ctl_commit(const struct store_commit *c, struct ctl_commit *ret)
{
	describe(c, ret);
	ret->message = strdup(c->message ? c->message : "");
	return ret->message ? 0 : -ENOMEM;
}

static int commit_locked(struct env *e, struct seal *s, struct diag *diag)
{
	struct ovl_counts n;
	store_layer at;
	int r = session_push_dirty(e->cur.se);

	if (r < 0)
		return diag_set(diag, r, "cannot collect what is mapped: %s", err_text(r));
	r = store_head_commit(e->store, e->rec.head, &at);
	if (r < 0)
		return diag_set(diag, r, "cannot read the head: %s", err_text(r));
	ovl_counts(e->cur.ovl, &n);
	/* On top of an automatic state, what that one holds is still to be committed. */
	if (!n.layer_changed && at == e->rec.head)
		return diag_set(diag, -ENODATA, "nothing to commit");
	r = ovl_commit(e->cur.ovl, seal, s);
	if (r == -ENODATA)
		return diag_set(diag, r, "nothing to commit");
	if (r == -EIO)
		return diag_set(
			diag, r,
			"the commit failed and changed nothing: some file cannot be read whole, because the "
			"host file behind it was changed meanwhile or is damaged; remove it here, or reset");
	return r < 0 ? diag_set(diag, r, "the commit failed and changed nothing: %s", err_text(r))
		     : 0;
}

int env_commit(struct env *e, const char *message, const char *label, const char *expect,
	       struct diag *diag, struct ctl_commit *ret)
{
	struct seal s = {.e = e, .message = message ? message : "", .label = label ? label : ""};
	int r = check_text(s.message, s.label, diag);

	if (r < 0)
		return r;
	ENV_LOCK(e);
	r = env_check_kept(e, diag);
	if (r == 0)
		r = env_ensure_locked(e, diag);
	if (r == 0)
		r = check_expect(e, expect, diag);
	if (r == 0)
		r = commit_locked(e, &s, diag);
	if (r == 0) {
		/* Done: nothing that could fail any more. */
		describe(&s.c, ret);
		ret->message = steal_ptr(&s.c.message);
	}
	store_commit_release(&s.c);
	return r;
}

/* ---- moves ---- */

static const struct {
	const char *op, *label;
} moves[] = {
	[ENV_ROLLBACK] = {"rollback", "before rollback"},
	[ENV_RESET] = {"reset", "before reset"},
	[ENV_UNDO] = {"undo", "before undo"},
};

static int find_target(struct env *e, enum env_move what, const char *rev, struct diag *diag,
		       store_layer *ret)
{
	struct store_layer_info info;
	char op[32];
	int r;

	if (what == ENV_RESET)
		return store_head_commit(e->store, e->rec.head, ret);
	if (what == ENV_UNDO) {
		r = store_env_last_move(e->store, e->rec.name, op, ret);
		return r == -ENOENT ? diag_set(diag, -ENODATA, "nothing to undo") : r;
	}
	if (!rev)
		return diag_set(diag, -EINVAL, "a rollback needs a revision");
	r = env_resolve(e->store, e->rec.name, rev, diag, ret);
	if (r == 0)
		r = store_layer_get(e->store, *ret, &info);
	if (r == 0 && info.state != STORE_LAYER_SEALED)
		r = diag_set(diag, -EINVAL, "\"%s\" is not a sealed state", rev);
	return r;
}

/* With nothing served any more, so that no change can slip in between the seal and the move. */
static int seal_and_move(struct env *e, enum env_move what, store_layer target, struct diag *diag,
			 struct ctl_moved *ret)
{
	struct seal s = {.e = e, .message = "", .label = moves[what].label, .automatic = true};
	struct ovl_counts n;
	int r = 0;

	ovl_counts(e->cur.ovl, &n);
	if (n.layer_changed) {
		r = ovl_commit_as_is(e->cur.ovl, seal, &s);
		ret->saved = r == 0;
	}
	store_commit_release(&s.c);
	if (r == 0)
		r = commit_hex(e, e->rec.head, ret->from);
	if (r == 0)
		r = commit_hex(e, target, ret->to);
	if (r == 0)
		r = store_env_move(e->store, &e->rec, target, moves[what].op);
	return r < 0 ? diag_set(diag, r, "the %s failed and moved nothing: %s", moves[what].op,
				err_text(r))
		     : 0;
}

static int move_locked(struct env *e, enum env_move what, store_layer target, struct diag *diag,
		       struct ctl_moved *ret)
{
	struct ovl_counts n;
	struct diag up = {0};
	int r = env_quiesce_locked(e), k;

	/* The bulk is on the disk before anything is taken away: a full disk changes nothing. */
	if (r < 0)
		return diag_set(diag, r, "cannot write what is not on the disk yet: %s",
				err_text(r));
	ovl_counts(e->cur.ovl, &n);
	if (what == ENV_RESET && !n.layer_changed && target == e->rec.head) {
		r = commit_hex(e, e->rec.head, ret->from);
		memcpy(ret->to, ret->from, sizeof(ret->to));
		return r;
	}
	r = env_leave_locked(e, diag);
	if (r < 0)
		return r;
	r = seal_and_move(e, what, target, diag, ret);
	if (r < 0) {
		if (env_again_locked(e, &up) < 0)
			log_error("mounting again: %s", up.text);
		return r;
	}
	/* All that it held is sealed. */
	(void)!env_drop_ovl_locked(e);
	k = env_up_locked(e, &up);
	if (k < 0)
		return diag_set(diag, k, "the %s is done, but mounting again failed: %s",
				moves[what].op, up.text[0] ? up.text : err_text(k));
	return r;
}

int env_move(struct env *e, const void *owner, enum env_move what, const char *rev, bool force,
	     struct diag *diag, struct ctl_moved *ret)
{
	store_layer target;
	int r;

	memset(ret, 0, sizeof(*ret));
	ENV_LOCK(e);
	r = env_check_kept(e, diag);
	if (r == 0)
		r = env_ensure_locked(e, diag);
	if (r == 0)
		r = find_target(e, what, rev, diag, &target);
	if (r < 0)
		return r;
	if (force)
		env_kill_leases_locked(e, owner);
	else
		r = env_check_idle_locked(e, owner, diag);
	return r < 0 ? r : move_locked(e, what, target, diag, ret);
}

/* ---- history ---- */

struct log_ctx {
	bool automatic;
	int (*fn)(void *arg, const struct ctl_commit *cm);
	void *arg;
	struct digest before; /* the parent of the last one */
};

static int log_one(void *arg, const struct store_commit *c)
{
	struct log_ctx *x = arg;
	struct ctl_commit cm;
	int r;

	x->before = c->parent;
	if (c->kind == STORE_AUTO && !x->automatic)
		return 0;
	r = to_ctl_commit(c, &cm);
	cm.damaged = c->damaged;
	if (r == 0)
		r = x->fn(x->arg, &cm);
	ctl_item_release(&ctl_table_commit, &cm);
	return r;
}

/* What came before it is not known either: it is the last one told. */
static int log_damaged(struct log_ctx *x, const struct digest *id)
{
	struct ctl_commit cm = {.damaged = true};

	digest_hex(id, cm.id);
	return x->fn(x->arg, &cm);
}

/* What another environment committed before this one was forked from it. */
static int log_before(struct env *e, struct log_ctx *x)
{
	int r = 0;

	while (r == 0) {
		const struct digest id = x->before;
		struct store_commit c = {0};

		r = store_commit_get(e->store, &id, &c);
		if (r == 0)
			r = log_one(x, &c);
		store_commit_release(&c);
		if (r == -EBADMSG)
			return log_damaged(x, &id);
	}
	return r == -ENOENT ? 0 : r;
}

int env_log(struct env *e, bool all, bool automatic,
	    int (*fn)(void *arg, const struct ctl_commit *cm), void *arg)
{
	struct log_ctx x = {.automatic = automatic, .fn = fn, .arg = arg};
	struct store_commit at = {0};
	store_layer head;
	char name[65];
	int r;

	{
		ENV_LOCK(e);
		memcpy(name, e->rec.name, sizeof(name));
		head = e->rec.head;
	}
	if (all)
		return store_commits(e->store, NULL, log_one, &x);
	/* One that has no commits of its own is at another's, or at its base. */
	r = store_commit_of_layer(e->store, head, &at);
	x.before = at.id;
	store_commit_release(&at);
	if (r == 0 || r == -ENOENT)
		r = store_commits(e->store, name, log_one, &x);
	return r < 0 ? r : log_before(e, &x);
}
