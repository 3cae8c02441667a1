/* The requests that a client makes. */
#include "fs/ctl/ctl_client.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

/* ---- the mount ---- */

int ctl_attach_as(struct ctl *c, const struct ctl_attach_opts *o, struct diag *diag,
		  struct ctl_attach *ret)
{
	struct ctl_req rq = {.op = CTL_OP_ATTACH,
			     .what = (char *)(uintptr_t)o->what,
			     .brief = o->brief,
			     .provision = o->provision,
			     .through = c->through,
			     .disk = c->disk,
			     .writable = o->policy || o->provision ? NULL : c->writable};
	int r;

	if (!o->provision)
		rq.policy = o->policy ? *o->policy : c->policy;
	r = ctl_call(c, &rq, -1, diag, &ctl_table_attach, ret);
	ret->root_fd = ret->userns_fd = ret->mntns_fd = ret->tied_fd = -1;
	if (r < 0)
		return r;
	if (c->nfds < 1 || c->nfds > 4)
		return diag_set(diag, -EBADMSG, "the daemon's answer to attach lacks descriptors");
	ret->root_fd = c->fds[0];
	if (c->nfds >= 3) {
		ret->userns_fd = c->fds[1];
		ret->mntns_fd = c->fds[2];
	}
	if (c->nfds % 2 == 0)
		ret->tied_fd = c->fds[c->nfds - 1];
	c->nfds = 0;
	return 0;
}

int ctl_attach(struct ctl *c, struct diag *diag, struct ctl_attach *ret)
{
	return ctl_attach_as(c, &(struct ctl_attach_opts){0}, diag, ret);
}

void ctl_attach_release(struct ctl_attach *a)
{
	int fds[] = {a->root_fd, a->userns_fd, a->mntns_fd, a->tied_fd};

	ctl_close_fds(fds, ARRAY_SIZE(fds));
	a->root_fd = a->userns_fd = a->mntns_fd = a->tied_fd = -1;
}

int ctl_lease(struct ctl *c, const char *what, int pidfd, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_LEASE, .what = (char *)(uintptr_t)what};

	return ctl_call(c, &rq, pidfd, diag, NULL, NULL);
}

int ctl_unlease(struct ctl *c)
{
	struct ctl_req rq = {.op = CTL_OP_UNLEASE};

	return ctl_call(c, &rq, -1, NULL, NULL, NULL);
}

int ctl_keep(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_KEEP};

	return ctl_call(c, &rq, -1, diag, NULL, NULL);
}

int ctl_drop(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_DROP};

	return ctl_call(c, &rq, -1, diag, NULL, NULL);
}

int ctl_bind(struct ctl *c, int host_fd, const char *host, const char *mount, bool rw,
	     struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_BIND,
			     .host = (char *)(uintptr_t)host,
			     .mount = (char *)(uintptr_t)mount,
			     .rw = rw};

	return ctl_call(c, &rq, host_fd, diag, NULL, NULL);
}

int ctl_unbind(struct ctl *c, const char *mount, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_UNBIND, .mount = (char *)(uintptr_t)mount};

	return ctl_call(c, &rq, -1, diag, NULL, NULL);
}

/* ---- state ---- */

int ctl_status(struct ctl *c, struct diag *diag, struct ctl_status *ret)
{
	struct ctl_req rq = {.op = CTL_OP_STATUS};
	int r = ctl_call(c, &rq, -1, diag, &ctl_table_status, ret);

	if (r == 0 && !ret->overlays) {
		ret->overlays = calloc(1, sizeof(*ret->overlays));
		if (!ret->overlays) {
			ctl_status_release(ret);
			r = -ENOMEM;
		}
	}
	return r;
}

void ctl_status_release(struct ctl_status *s)
{
	ctl_item_release(&ctl_table_status, s);
}

void ctl_commit_release(struct ctl_commit *c)
{
	ctl_item_release(&ctl_table_commit, c);
}

int ctl_commit(struct ctl *c, const char *message, const char *label, const char *expect,
	       struct diag *diag, struct ctl_commit *ret)
{
	struct ctl_req rq = {.op = CTL_OP_COMMIT,
			     .message = (char *)(uintptr_t)message,
			     .label = (char *)(uintptr_t)label,
			     .expect = (char *)(uintptr_t)expect};

	return ctl_call(c, &rq, -1, diag, &ctl_table_commit, ret);
}

int ctl_checkpoint(struct ctl *c, const char *message, const char *label, struct diag *diag,
		   struct ctl_commit *ret)
{
	struct ctl_req rq = {.op = CTL_OP_CHECKPOINT,
			     .message = (char *)(uintptr_t)message,
			     .label = (char *)(uintptr_t)label};

	return ctl_call(c, &rq, -1, diag, &ctl_table_commit, ret);
}

void ctl_ref_release(struct ctl_ref *r)
{
	ctl_item_release(&ctl_table_ref, r);
}

int ctl_tag(struct ctl *c, const char *name, const char *rev, bool force, struct diag *diag,
	    struct ctl_ref *ret)
{
	struct ctl_req rq = {.op = CTL_OP_TAG,
			     .label = (char *)(uintptr_t)name,
			     .rev = (char *)(uintptr_t)rev,
			     .force = force};

	return ctl_call(c, &rq, -1, diag, &ctl_table_ref, ret);
}

int ctl_untag(struct ctl *c, const char *name, struct diag *diag, struct ctl_ref *ret)
{
	struct ctl_req rq = {.op = CTL_OP_UNTAG, .label = (char *)(uintptr_t)name};

	return ctl_call(c, &rq, -1, diag, &ctl_table_ref, ret);
}

int ctl_rollback(struct ctl *c, const char *rev, bool force, struct diag *diag,
		 struct ctl_moved *ret)
{
	struct ctl_req rq = {.op = CTL_OP_ROLLBACK, .rev = (char *)(uintptr_t)rev, .force = force};

	return ctl_call(c, &rq, -1, diag, &ctl_table_moved, ret);
}

int ctl_reset(struct ctl *c, bool force, struct diag *diag, struct ctl_moved *ret)
{
	struct ctl_req rq = {.op = CTL_OP_RESET, .force = force};

	return ctl_call(c, &rq, -1, diag, &ctl_table_moved, ret);
}

int ctl_undo(struct ctl *c, bool force, struct diag *diag, struct ctl_moved *ret)
{
	struct ctl_req rq = {.op = CTL_OP_UNDO, .force = force};

	return ctl_call(c, &rq, -1, diag, &ctl_table_moved, ret);
}

/* The streams differ in the type that the caller's function takes. */
struct each {
	int (*on_commit)(void *arg, const struct ctl_commit *cm);
	int (*on_change)(void *arg, const struct ctl_change *ch);
	int (*on_ref)(void *arg, const struct ctl_ref *r);
	int (*on_path)(void *arg, const char *path, char what);
	int (*on_file)(void *arg, const struct ctl_file *f);
	void *arg;
	uint64_t token;
};

static int each_commit(void *arg, void *item)
{
	const struct each *e = arg;

	return e->on_commit(e->arg, item);
}

static int each_change(void *arg, void *item)
{
	const struct each *e = arg;
	const struct ctl_change *ch = item;

	return ch->path ? e->on_change(e->arg, ch) : -EBADMSG;
}

static int each_ref(void *arg, void *item)
{
	const struct each *e = arg;

	return e->on_ref(e->arg, item);
}

static int each_file(void *arg, void *item)
{
	const struct each *e = arg;
	const struct ctl_file *f = item;

	return f->path ? e->on_file(e->arg, f) : -EBADMSG;
}

static int each_path(void *arg, void *item)
{
	const struct ctl_note *n = item;
	struct each *e = arg;

	if (n->token)
		e->token = n->token;
	return n->path ? e->on_path(e->arg, n->path, n->what) : 0;
}

int ctl_log_one(struct ctl *c, const char *rev, struct diag *diag, struct ctl_commit *ret)
{
	struct ctl_req rq = {.op = CTL_OP_LOG, .rev = (char *)(uintptr_t)rev};

	return ctl_call(c, &rq, -1, diag, &ctl_table_commit, ret);
}

int ctl_log(struct ctl *c, bool all, bool with_automatic, struct diag *diag,
	    int (*fn)(void *arg, const struct ctl_commit *cm), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_LOG, .all = all, .automatic = with_automatic};
	struct each e = {.on_commit = fn, .arg = arg};
	struct ctl_commit item;

	return ctl_stream(c, &rq, diag, &ctl_table_commit, &item, each_commit, &e);
}

int ctl_refs(struct ctl *c, bool all, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_ref *r), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_REFS, .all = all};
	struct each e = {.on_ref = fn, .arg = arg};
	struct ctl_ref item;

	return ctl_stream(c, &rq, diag, &ctl_table_ref, &item, each_ref, &e);
}

int ctl_diff(struct ctl *c, const char *a, const char *b, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg)
{
	struct ctl_req rq = {
		.op = CTL_OP_DIFF, .rev = (char *)(uintptr_t)a, .rev2 = (char *)(uintptr_t)b};
	struct each e = {.on_change = fn, .arg = arg};
	struct ctl_change item;

	return ctl_stream(c, &rq, diag, &ctl_table_change, &item, each_change, &e);
}

int ctl_overlaid(struct ctl *c, struct diag *diag,
		 int (*fn)(void *arg, const struct ctl_change *ch), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_DIFF, .rev = (char *)(uintptr_t) "base", .all = true};
	struct each e = {.on_change = fn, .arg = arg};
	struct ctl_change item;

	return ctl_stream(c, &rq, diag, &ctl_table_change, &item, each_change, &e);
}

int ctl_cat(struct ctl *c, const char *rev, const char *path, struct diag *diag, int *ret_fd,
	    uint32_t *ret_mode)
{
	struct ctl_req rq = {
		.op = CTL_OP_CAT, .rev = (char *)(uintptr_t)rev, .path = (char *)(uintptr_t)path};
	struct ctl_note note;
	int r = ctl_call(c, &rq, -1, diag, &ctl_table_note, &note);

	if (r < 0)
		return r;
	ctl_item_release(&ctl_table_note, &note);
	if (c->nfds != 1)
		return diag_set(diag, -EBADMSG, "the daemon's answer to cat lacks the content");
	*ret_fd = c->fds[0];
	*ret_mode = note.mode;
	c->nfds = 0;
	return 0;
}

int ctl_ls(struct ctl *c, const char *rev, const char *path, bool below, struct diag *diag,
	   int (*fn)(void *arg, const struct ctl_file *f), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_LS,
			     .rev = (char *)(uintptr_t)rev,
			     .path = (char *)(uintptr_t)path,
			     .all = below};
	struct each e = {.on_file = fn, .arg = arg};
	struct ctl_file item;

	return ctl_stream(c, &rq, diag, &ctl_table_file, &item, each_file, &e);
}

int ctl_changes(struct ctl *c, uint64_t token, struct diag *diag, uint64_t *ret_token,
		int (*fn)(void *arg, const char *path, char what), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_CHANGES, .token = token};
	struct each e = {.on_path = fn, .arg = arg};
	struct ctl_note item;
	int r = ctl_stream(c, &rq, diag, &ctl_table_note, &item, each_path, &e);

	if (r >= 0)
		*ret_token = e.token;
	return r;
}

struct denials {
	int (*fn)(void *arg, const struct ctl_denial *d);
	void *arg;
	uint64_t token, total;
};

static int each_denial(void *arg, void *item)
{
	struct denials *e = arg;
	const struct ctl_denial *d = item;

	if (d->path)
		return e->fn(e->arg, d);
	e->token = d->token;
	e->total = d->count;
	return 0;
}

int ctl_denials(struct ctl *c, uint64_t token, struct diag *diag, uint64_t *ret_token,
		uint64_t *ret_total, int (*fn)(void *arg, const struct ctl_denial *d), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_DENIALS, .token = token};
	struct denials e = {.fn = fn, .arg = arg};
	struct ctl_denial item;
	int r = ctl_stream(c, &rq, diag, &ctl_table_denial, &item, each_denial, &e);

	if (r >= 0) {
		*ret_token = e.token;
		*ret_total = e.total;
	}
	return r;
}

int ctl_own(struct ctl *c, const char *path, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_OWN, .path = (char *)(uintptr_t)path};

	return ctl_call(c, &rq, -1, diag, NULL, NULL);
}

int ctl_flush(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_FLUSH};

	return ctl_call(c, &rq, -1, diag, NULL, NULL);
}
