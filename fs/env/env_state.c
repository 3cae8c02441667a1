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
	const char *tag; /* the label of what is no automatic state; NULL: none */
	bool automatic;
	bool checkpoint;       /* automatic, and what changed is not looked at */
	struct store_commit c; /* filled in */
};

static int seal_id(struct seal *s, const struct digest *parent, store_layer from,
		   struct diff_counts *n)
{
	struct env *e = s->e;
	int r = -E2BIG;

	s->c.parent = *parent;
	if (!s->checkpoint)
		r = diff_commit_id(e->store, parent, from, e->rec.open, s->message, s->label,
				   &s->c.time, &s->c.id, n);
	/* A move keeps what it leaves, also when that cannot be told. */
	if (r == -E2BIG && s->automatic)
		r = diff_state_id(&s->c, e->rec.open, &s->c.id);
	return r;
}

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
	int r = env_head_locked(e, &from);

	if (r < 0)
		return r;
	r = store_commit_of_layer(e->store, from, &head);
	if (r == 0)
		parent = head.id;
	store_commit_release(&head);
	if (r < 0 && r != -ENOENT)
		return r;
	(void)clock_gettime(CLOCK_REALTIME, &s->c.time);
	memcpy(s->c.label, s->label, strnlen(s->label, sizeof(s->c.label) - 1));
	s->c.message = strdup(s->message);
	if (!s->c.message)
		return -ENOMEM;
	r = seal_id(s, &parent, from, &n);
	if (r < 0)
		return r;
	/* An automatic state is kept even when only times differ: a move must not drop anything. */
	if (!s->automatic && n.added + n.modified + n.deleted + n.renamed == 0)
		return -ENODATA;
	s->c.kind = s->automatic ? STORE_AUTO : STORE_COMMIT;
	s->c.added = n.added;
	s->c.modified = n.modified + n.renamed;
	s->c.deleted = n.deleted;
	r = store_env_seal_tagged(e->store, &e->rec, &s->c, s->tag);
	if (r == 0)
		*ret_open = e->rec.open;
	return r;
}

int env_head_locked(struct env *e, store_layer *ret)
{
	int r = 0;

	if (e->head_at != e->rec.head || !e->head_at)
		r = store_head_commit(e->store, e->rec.head, &e->head_commit);
	e->head_at = r == 0 ? e->rec.head : 0;
	*ret = e->head_commit;
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
	r = env_head_locked(e, &at);
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

/* Before any work: nobody else gives names in this environment. */
static int check_label(struct env *e, const char *label, struct diag *diag)
{
	store_layer by;
	int r = label ? store_tag_get(e->store, e->rec.name, label, &by) : -ENOENT;

	if (r == 0)
		return env_tag_taken(e, label, by, diag);
	return r == -ENOENT ? 0 : diag_set(diag, r, "cannot look up '%s': %s", label, err_text(r));
}

static int commit_locked(struct env *e, struct seal *s, struct diag *diag)
{
	struct ovl_counts n;
	store_layer at;
	int r = env_push_locked(e);

	if (r < 0)
		return diag_set(diag, r, "cannot collect what is mapped: %s", err_text(r));
	r = env_head_locked(e, &at);
	if (r < 0)
		return diag_set(diag, r, "cannot read the head: %s", err_text(r));
	ovl_counts(e->cur.ovl, &n);
	/* On top of an automatic state, what that one holds is still to be committed. */
	if (!n.layer_changed && at == e->rec.head)
		return diag_set(diag, -ENODATA, "nothing to commit");
	r = check_label(e, s->tag, diag);
	if (r < 0)
		return r;
	r = ovl_commit(e->cur.ovl, seal, s);
	if (r == -ENODATA)
		return diag_set(diag, r, "nothing to commit");
	if (r == -EIO)
		return diag_set(
			diag, r,
			"the commit failed and changed nothing: some file cannot be read whole, because the "
			"host file behind it was changed meanwhile or is damaged; remove it here, or reset");
	if (r == -E2BIG)
		return diag_set(diag, r, "the commit failed and changed nothing: " ENV_TOO_LONG);
	return r < 0 ? diag_set(diag, r, "the commit failed and changed nothing: %s", err_text(r))
		     : 0;
}

/* What is the head is known from before: however many states lie between, it is not looked for. */
static void keep_head(struct env *e, store_layer at)
{
	e->head_commit = at;
	e->head_at = e->rec.head;
}

static int checkpoint_locked(struct env *e, struct seal *s, struct diag *diag)
{
	struct ovl_counts n;
	store_layer at;
	int r = env_push_locked(e);

	if (r < 0)
		return diag_set(diag, r, "cannot collect what is mapped: %s", err_text(r));
	ovl_counts(e->cur.ovl, &n);
	if (!n.layer_changed)
		return diag_set(diag, -ENODATA, "nothing has changed since the last state");
	r = env_head_locked(e, &at);
	if (r == 0)
		r = ovl_commit_as_is(e->cur.ovl, seal, s);
	if (r == 0)
		keep_head(e, at);
	return r < 0 ? diag_set(diag, r, "the state was not kept: %s", err_text(r)) : 0;
}

/* One or the other, and told: nothing of it can fail any more when it is done. */
static int seal_state(struct env *e, struct seal *s, const char *expect, struct diag *diag,
		      struct ctl_commit *ret)
{
	int r = check_text(s->message, s->label, diag);

	if (r < 0)
		return r;
	ENV_LOCK(e);
	r = env_check_kept(e, diag);
	if (r == 0)
		r = env_ensure_locked(e, diag);
	if (r == 0)
		r = env_provision_settle_locked(e, diag);
	if (r == 0)
		r = check_expect(e, expect, diag);
	if (r == 0)
		r = s->checkpoint ? checkpoint_locked(e, s, diag) : commit_locked(e, s, diag);
	if (r == 0) {
		describe(&s->c, ret);
		ret->message = steal_ptr(&s->c.message);
	}
	store_commit_release(&s->c);
	return r;
}

int env_commit(struct env *e, const char *message, const char *label, const char *expect,
	       struct diag *diag, struct ctl_commit *ret)
{
	struct seal s = {.e = e,
			 .message = message ? message : "",
			 .label = label ? label : "",
			 .tag = label && *label ? label : NULL};
	int r = s.tag ? env_check_tag(s.tag, diag) : 0;

	return r < 0 ? r : seal_state(e, &s, expect, diag, ret);
}

int env_checkpoint(struct env *e, const char *message, const char *label, struct diag *diag,
		   struct ctl_commit *ret)
{
	struct seal s = {.e = e,
			 .message = message ? message : "",
			 .label = label ? label : "",
			 .automatic = true,
			 .checkpoint = true};

	return seal_state(e, &s, NULL, diag, ret);
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
		return env_head_locked(e, ret);
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

/* What is half provisioned is no state to move away from: its own end would undo the move. */
static int end_provisioning(struct env *e, enum env_move what, bool force, struct diag *diag)
{
	if (!force || !e->leases)
		return env_provision_settle_locked(e, diag);
	if (what == ENV_UNDO && e->provisioning)
		return diag_set(
			diag, -EBUSY,
			"packages are being installed in environment \"%s\", which rollback and "
			"reset can be forced to end, undo cannot",
			e->rec.name);
	return env_provision_end_locked(e, diag);
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
	if (r == 0 && !force)
		r = env_check_idle_locked(e, owner, diag);
	if (r == 0 && e->provisioning) {
		r = end_provisioning(e, what, force, diag);
		if (r == 0)
			r = find_target(e, what, rev, diag, &target);
	}
	if (r < 0)
		return r;
	if (force)
		env_kill_leases_locked(e, owner);
	return move_locked(e, what, target, diag, ret);
}

/* ---- for provisioning ---- */

int env_checkpoint_locked(struct env *e, const char *message, struct diag *diag)
{
	struct seal s = {
		.e = e, .message = message, .label = "", .automatic = true, .checkpoint = true};
	int r = checkpoint_locked(e, &s, diag);

	store_commit_release(&s.c);
	return r == -ENODATA ? 0 : r;
}

int env_go_back_locked(struct env *e, store_layer target, struct diag *diag)
{
	struct ctl_moved moved = {0};

	return move_locked(e, ENV_ROLLBACK, target, diag, &moved);
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
	if ((c->kind == STORE_AUTO && !x->automatic) || c->kind == STORE_BASE)
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

int env_log_one(struct env *e, const char *rev, struct diag *diag, struct ctl_commit *ret)
{
	struct store_commit c = {0};
	store_layer layer;
	int r;

	{
		ENV_LOCK(e);
		r = env_resolve(e->store, e->rec.name, rev, diag, &layer);
	}
	if (r < 0)
		return r;
	r = store_commit_of_layer(e->store, layer, &c);
	if (r == 0)
		r = to_ctl_commit(&c, ret);
	store_commit_release(&c);
	if (r == -ENOENT)
		return diag_set(diag, r, "%s is a base, which no commit has made", rev);
	return r < 0 ? diag_set(diag, r, "%s: %s", rev, err_text(r)) : 0;
}
