#include "fs/ctl/ctl_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_internal.h"

#define OPEN_TRIES 50    /* a tenth of a second each at most */
#define NEXT_MS    30000 /* for another daemon to go on, which first reads all of the journal */

/* ---- one call ---- */

static void drop_fds(struct ctl *c)
{
	ctl_close_fds(c->fds, c->nfds);
	c->nfds = 0;
}

static int went_away(struct ctl *c, struct diag *diag)
{
	if (c->sock >= 0)
		(void)close(c->sock);
	c->sock = -1;
	return diag_set(
		diag, -EPIPE,
		"the file system's daemon was replaced or went away during the call; what it had acknowledged is "
		"kept, so ask again (a commit may have been made: look at the log), or see %s/log",
		c->place);
}

static int send_request(struct ctl *c, struct ctl_req *rq, int fd, struct diag *diag)
{
	cleanup_buf struct buf msg = {.max = CTL_FRAME_MAX};
	int r;

	rq->id = ++c->last_id;
	r = ctl_req_encode(rq, &msg);
	if (r < 0)
		return diag_set(diag, r, "the request is too large: %s", err_text(r));
	if (c->sock < 0)
		return went_away(c, diag);
	r = ctl_frame_send(c->sock, &msg, &fd, fd >= 0);
	return r < 0 ? went_away(c, diag) : 0;
}

/* The next message of the answer. 0, or the answer's own error. */
static int recv_answer(struct ctl *c, struct diag *diag, struct ctl_rep_doc *ret)
{
	uint64_t version;
	int r;

	drop_fds(c);
	if (ctl_await(c->sock, c->waiting, c->waiting_arg)) {
		(void)close(c->sock);
		c->sock = -1;
		return diag_set(diag, -ECANCELED, "interrupted");
	}
	r = ctl_frame_recv(c->sock, &c->in, c->fds, &c->nfds);
	if (r <= 0) {
		c->nfds = 0;
		return went_away(c, diag);
	}
	r = ctl_rep_decode(c->in.data, c->in.len, ret, &version);
	if (r == -EPROTONOSUPPORT)
		return diag_set(
			diag, r,
			"the running rattan-fs speaks control protocol %llu and this program "
			"%d: end it with the version that started it, then try again",
			(unsigned long long)version, CTL_PROTO);
	if (r < 0 || ret->rep.id != c->last_id) {
		if (r == 0)
			ctl_rep_release(ret);
		return went_away(c, diag);
	}
	if (ret->rep.err < 0) {
		r = diag_set(diag, ret->rep.err, "%s",
			     ret->rep.text[0] ? ret->rep.text : err_text(ret->rep.err));
		ctl_rep_release(ret);
	}
	return r;
}

/* A request whose answer is one message, with one item of @t when @t is given. */
static int call(struct ctl *c, struct ctl_req *rq, int fd, struct diag *diag,
		const struct ctl_table *t, void *item)
{
	struct ctl_rep_doc rep;
	int r = send_request(c, rq, fd, diag);

	if (r == 0)
		r = recv_answer(c, diag, &rep);
	if (r < 0)
		return r;
	if (t)
		r = rep.nitems == 1 ? ctl_item_get(&rep.items[0], t, item) : -EBADMSG;
	ctl_rep_release(&rep);
	return r < 0 ? diag_set(diag, r, "the daemon's answer to %s makes no sense",
				ctl_op_name(rq->op))
		     : 0;
}

/* A request whose answer is a stream of items. After @fn stopped, the rest is read and dropped, so
 * that the connection stays usable. */
static int stream(struct ctl *c, struct ctl_req *rq, struct diag *diag, const struct ctl_table *t,
		  void *item, int (*fn)(void *arg, void *item), void *arg)
{
	int stopped = 0, r = send_request(c, rq, -1, diag);
	bool more = true;

	while (r == 0 && more) {
		struct ctl_rep_doc rep;

		r = recv_answer(c, diag, &rep);
		if (r < 0)
			break;
		more = rep.rep.more;
		for (uint32_t i = 0; i < rep.nitems && stopped == 0; i++) {
			stopped = ctl_item_get(&rep.items[i], t, item);
			if (stopped < 0)
				break;
			stopped = fn(arg, item);
			ctl_item_release(t, item);
		}
		ctl_rep_release(&rep);
	}
	return r < 0 ? r : stopped;
}

/* ---- opening ---- */

static const char *or_default(const char *s, const char *d)
{
	return s ? s : d;
}

static int connect_to(const char *place, struct ctl *c)
{
	cleanup_free char *path = NULL;
	int r;

	if (asprintf(&path, "%s/sock", place) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	r = ctl_sock_connect(path, &c->sock);
	if (r == 0)
		r = ctl_sock_check_peer(c->sock);
	if (r < 0 && c->sock >= 0) {
		(void)close(c->sock);
		c->sock = -1;
	}
	return r;
}

static void free_list(char **l)
{
	for (size_t i = 0; l && l[i]; i++)
		free(l[i]);
	free(l);
}

/* "HOST=MOUNT" for each overlay. */
static int overlay_args(const struct ctl_env_opts *o, char ***ret)
{
	char **l = calloc(o->noverlays + 1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	for (size_t i = 0; i < o->noverlays; i++) {
		if (asprintf(&l[i], "%s=%s", o->overlays[i].host, o->overlays[i].mount) < 0) {
			l[i] = NULL;
			free_list(l);
			return -ENOMEM;
		}
	}
	*ret = l;
	return 0;
}

static int start_daemon(const struct ctl_env_opts *o, const char *data, const char *place,
			struct diag *diag)
{
	cleanup_free char *log = NULL;
	cleanup_buf struct buf raw = {0};
	struct ctl_argv a = {.n = 1};
	struct ctl_rep_doc rep;
	char **overlays = NULL;
	char disk[24];
	int r = overlay_args(o, &overlays);

	if (r < 0 || asprintf(&log, "%s/log", place) < 0) {
		log = NULL;
		free_list(overlays);
		return -ENOMEM;
	}
	ctl_argv_add(&a, "env");
	ctl_argv_opt(&a, "--data-dir", data);
	ctl_argv_opt(&a, "--run-dir", place);
	ctl_argv_opt(&a, "--env", or_default(o->env, "default"));
	ctl_argv_opt(&a, "--base", o->through ? CTL_BASE_THROUGH : o->base);
	for (size_t i = 0; i < o->noverlays; i++)
		ctl_argv_opt(&a, "--overlay", overlays[i]);
	for (size_t i = 0; !o->policy.len && o->writable && o->writable[i]; i++)
		ctl_argv_opt(&a, "--writable", o->writable[i]);
	/* Until it is told the policy nothing is writable. */
	if (o->policy.len || (o->writable && !o->writable[0]))
		ctl_argv_opt(&a, "--writable", "none");
	(void)snprintf(disk, sizeof(disk), "%llu", (unsigned long long)o->disk_max);
	if (o->disk_max)
		ctl_argv_opt(&a, "--disk-max", disk);
	if (o->create)
		ctl_argv_add(&a, "--create");
	r = ctl_spawn(&a, log, diag, &raw, &rep);
	if (r == 0)
		ctl_rep_release(&rep);
	free_list(overlays);
	return r;
}

/* Two clients at once: the second waits for the lock and then finds the first one's daemon. */
static int connect_or_start(const struct ctl_env_opts *o, const char *data, struct diag *diag,
			    struct ctl *c)
{
	cleanup_fd int lock = -1;
	int r = connect_to(c->place, c);

	if (r == -EPERM)
		return diag_set(
			diag, r,
			"another user's process serves %s/sock, and is told nothing; remove it",
			c->place);
	if (r == 0)
		return 0;
	if (o->no_start)
		return diag_set(diag, -ECONNREFUSED, "no rattan-fs runs for environment \"%s\"",
				or_default(o->env, "default"));
	r = ctl_place_lock(c->place, diag, &lock);
	if (r < 0)
		return r;
	if (connect_to(c->place, c) == 0)
		return 0;
	(void)ctl_place_heal(c->place);
	r = start_daemon(o, data, c->place, diag);
	/* Nothing of that name is there: looking for it made the directory. */
	if (r == -ENOENT && !o->create && ctl_place_wait_gone(c->place, 1000) == 0)
		ctl_place_remove(c->place);
	if (r < 0)
		return r;
	r = connect_to(c->place, c);
	if (r < 0)
		return diag_set(diag, -ECONNREFUSED,
				"rattan-fs was started but cannot be reached (%s); see %s/log",
				err_text(r), c->place);
	return 0;
}

/* Overlays that must be there. */
static int agree(const struct ctl_env_opts *o, struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_OPEN};
	char **overlays = NULL;
	int r;

	if (o->noverlays) {
		overlays = calloc(o->noverlays * 2 + 1, sizeof(*overlays));
		if (!overlays)
			return -ENOMEM;
		for (size_t i = 0; i < o->noverlays; i++) {
			overlays[2 * i] = (char *)(uintptr_t)o->overlays[i].host;
			overlays[2 * i + 1] = (char *)(uintptr_t)o->overlays[i].mount;
		}
	}
	rq.overlays = overlays;
	rq.through = o->through;
	r = call(c, &rq, -1, diag, NULL, NULL);
	free(overlays);
	return r;
}

/* For attachments. */
static int remember(const struct ctl_env_opts *o, struct ctl *c)
{
	size_t n = 0;

	while (o->writable && o->writable[n])
		n++;
	if (o->writable)
		c->writable = calloc(n + 1, sizeof(*c->writable));
	if (o->writable && !c->writable)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		c->writable[i] = strdup(o->writable[i]);
		if (!c->writable[i])
			return -ENOMEM;
	}
	if (!o->policy.len)
		return 0;
	c->policy.data = malloc(o->policy.len);
	if (!c->policy.data)
		return -ENOMEM;
	memcpy(c->policy.data, o->policy.data, o->policy.len);
	c->policy.len = o->policy.len;
	return 0;
}

int ctl_open(const struct ctl_env_opts *o, struct diag *diag, struct ctl **ret)
{
	cleanup_free char *data = NULL;
	cleanup_ctl struct ctl *c = calloc(1, sizeof(*c));
	int r = -EPIPE;

	if (!c)
		return -ENOMEM;
	c->sock = -1;
	c->through = o->through;
	c->disk = o->disk_max;
	r = remember(o, c);
	if (r == 0)
		r = ctl_data_path(o->data_dir, o->create && !o->no_start, diag, &data);
	if (r == 0)
		r = ctl_place(data, or_default(o->env, "default"), diag, &c->place);
	if (r < 0)
		return r;
	/* A daemon that is just ending, or dies, accepts and closes: its successor answers the next try. */
	for (int tries = 0; tries < OPEN_TRIES; tries++) {
		struct diag d = {0};

		r = connect_or_start(o, data, &d, c);
		if (r == 0)
			r = agree(o, c, &d);
		if (r == -EPIPE && tries < OPEN_TRIES - 1) {
			(void)!ctl_place_wait_gone(c->place, 100);
			continue;
		}
		if (r < 0)
			return diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r));
		break;
	}
	*ret = steal_ptr(&c);
	return 0;
}

bool ctl_alive(const struct ctl *c)
{
	char byte;
	ssize_t n;

	if (c->sock < 0)
		return false;
	/* Between calls there is nothing to read: anything else is the end, or out of step. */
	n = recv(c->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

void ctl_close(struct ctl *c)
{
	if (!c)
		return;
	drop_fds(c);
	if (c->sock >= 0)
		(void)close(c->sock);
	buf_release(&c->in);
	free_list(c->writable);
	free(c->policy.data);
	free(c->place);
	free(c);
}

void ctl_on_wait(struct ctl *c, int (*fn)(void *arg), void *arg)
{
	c->waiting = fn;
	c->waiting_arg = arg;
}

int ctl_fd(const struct ctl *c)
{
	return c->sock;
}

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
	r = call(c, &rq, -1, diag, &ctl_table_attach, ret);
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

	return call(c, &rq, pidfd, diag, NULL, NULL);
}

int ctl_unlease(struct ctl *c)
{
	struct ctl_req rq = {.op = CTL_OP_UNLEASE};

	return call(c, &rq, -1, NULL, NULL, NULL);
}

int ctl_keep(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_KEEP};

	return call(c, &rq, -1, diag, NULL, NULL);
}

int ctl_drop(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_DROP};

	return call(c, &rq, -1, diag, NULL, NULL);
}

int ctl_bind(struct ctl *c, int host_fd, const char *host, const char *mount, bool rw,
	     struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_BIND,
			     .host = (char *)(uintptr_t)host,
			     .mount = (char *)(uintptr_t)mount,
			     .rw = rw};

	return call(c, &rq, host_fd, diag, NULL, NULL);
}

int ctl_unbind(struct ctl *c, const char *mount, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_UNBIND, .mount = (char *)(uintptr_t)mount};

	return call(c, &rq, -1, diag, NULL, NULL);
}

/* ---- state ---- */

int ctl_status(struct ctl *c, struct diag *diag, struct ctl_status *ret)
{
	struct ctl_req rq = {.op = CTL_OP_STATUS};
	int r = call(c, &rq, -1, diag, &ctl_table_status, ret);

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

	return call(c, &rq, -1, diag, &ctl_table_commit, ret);
}

int ctl_checkpoint(struct ctl *c, const char *message, const char *label, struct diag *diag,
		   struct ctl_commit *ret)
{
	struct ctl_req rq = {.op = CTL_OP_CHECKPOINT,
			     .message = (char *)(uintptr_t)message,
			     .label = (char *)(uintptr_t)label};

	return call(c, &rq, -1, diag, &ctl_table_commit, ret);
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

	return call(c, &rq, -1, diag, &ctl_table_ref, ret);
}

int ctl_untag(struct ctl *c, const char *name, struct diag *diag, struct ctl_ref *ret)
{
	struct ctl_req rq = {.op = CTL_OP_UNTAG, .label = (char *)(uintptr_t)name};

	return call(c, &rq, -1, diag, &ctl_table_ref, ret);
}

int ctl_rollback(struct ctl *c, const char *rev, bool force, struct diag *diag,
		 struct ctl_moved *ret)
{
	struct ctl_req rq = {.op = CTL_OP_ROLLBACK, .rev = (char *)(uintptr_t)rev, .force = force};

	return call(c, &rq, -1, diag, &ctl_table_moved, ret);
}

int ctl_reset(struct ctl *c, bool force, struct diag *diag, struct ctl_moved *ret)
{
	struct ctl_req rq = {.op = CTL_OP_RESET, .force = force};

	return call(c, &rq, -1, diag, &ctl_table_moved, ret);
}

int ctl_undo(struct ctl *c, bool force, struct diag *diag, struct ctl_moved *ret)
{
	struct ctl_req rq = {.op = CTL_OP_UNDO, .force = force};

	return call(c, &rq, -1, diag, &ctl_table_moved, ret);
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

	return call(c, &rq, -1, diag, &ctl_table_commit, ret);
}

int ctl_log(struct ctl *c, bool all, bool with_automatic, struct diag *diag,
	    int (*fn)(void *arg, const struct ctl_commit *cm), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_LOG, .all = all, .automatic = with_automatic};
	struct each e = {.on_commit = fn, .arg = arg};
	struct ctl_commit item;

	return stream(c, &rq, diag, &ctl_table_commit, &item, each_commit, &e);
}

int ctl_refs(struct ctl *c, bool all, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_ref *r), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_REFS, .all = all};
	struct each e = {.on_ref = fn, .arg = arg};
	struct ctl_ref item;

	return stream(c, &rq, diag, &ctl_table_ref, &item, each_ref, &e);
}

int ctl_diff(struct ctl *c, const char *a, const char *b, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg)
{
	struct ctl_req rq = {
		.op = CTL_OP_DIFF, .rev = (char *)(uintptr_t)a, .rev2 = (char *)(uintptr_t)b};
	struct each e = {.on_change = fn, .arg = arg};
	struct ctl_change item;

	return stream(c, &rq, diag, &ctl_table_change, &item, each_change, &e);
}

int ctl_overlaid(struct ctl *c, struct diag *diag,
		 int (*fn)(void *arg, const struct ctl_change *ch), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_DIFF, .rev = (char *)(uintptr_t) "base", .all = true};
	struct each e = {.on_change = fn, .arg = arg};
	struct ctl_change item;

	return stream(c, &rq, diag, &ctl_table_change, &item, each_change, &e);
}

int ctl_cat(struct ctl *c, const char *rev, const char *path, struct diag *diag, int *ret_fd,
	    uint32_t *ret_mode)
{
	struct ctl_req rq = {
		.op = CTL_OP_CAT, .rev = (char *)(uintptr_t)rev, .path = (char *)(uintptr_t)path};
	struct ctl_note note;
	int r = call(c, &rq, -1, diag, &ctl_table_note, &note);

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

	return stream(c, &rq, diag, &ctl_table_file, &item, each_file, &e);
}

int ctl_changes(struct ctl *c, uint64_t token, struct diag *diag, uint64_t *ret_token,
		int (*fn)(void *arg, const char *path, char what), void *arg)
{
	struct ctl_req rq = {.op = CTL_OP_CHANGES, .token = token};
	struct each e = {.on_path = fn, .arg = arg};
	struct ctl_note item;
	int r = stream(c, &rq, diag, &ctl_table_note, &item, each_path, &e);

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
	int r = stream(c, &rq, diag, &ctl_table_denial, &item, each_denial, &e);

	if (r >= 0) {
		*ret_token = e.token;
		*ret_total = e.total;
	}
	return r;
}

int ctl_own(struct ctl *c, const char *path, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_OWN, .path = (char *)(uintptr_t)path};

	return call(c, &rq, -1, diag, NULL, NULL);
}

int ctl_flush(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_FLUSH};

	return call(c, &rq, -1, diag, NULL, NULL);
}

int ctl_restart(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_RESTART};
	struct ctl next = {.sock = -1};
	long long end = io_now_ms() + NEXT_MS;
	int r = call(c, &rq, -1, diag, NULL, NULL);

	/* The socket is the keeper's meanwhile: the next one answers as soon as it can. */
	while (r == 0) {
		struct timespec ts = {.tv_nsec = 2000000};
		struct diag d = {0};

		(void)nanosleep(&ts, NULL);
		(void)!ctl_place_wait_gone(c->place, 50);
		next.place = c->place;
		r = connect_to(c->place, &next);
		rq = (struct ctl_req){.op = CTL_OP_OPEN};
		if (r == 0)
			r = call(&next, &rq, -1, &d, NULL, NULL);
		if (r == 0)
			break;
		if (io_now_ms() > end) {
			r = diag_set(diag, -ECONNREFUSED,
				     "the next rattan-fs does not answer; see %s/log", c->place);
			break;
		}
		r = 0;
	}
	if (next.sock >= 0)
		(void)close(next.sock);
	buf_release(&next.in);
	return r;
}

int ctl_shutdown(struct ctl *c, bool force, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_SHUTDOWN, .force = force};
	int r = call(c, &rq, -1, diag, NULL, NULL);

	if (r < 0)
		return r;
	/* It holds the store until it is really gone. */
	if (ctl_place_wait_gone(c->place, 30000) < 0)
		return diag_set(diag, -ETIMEDOUT,
				"the daemon said yes but is still ending; see %s/log", c->place);
	return 0;
}
