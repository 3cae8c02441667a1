/* A connection to the server of an environment: its opening, one call, a hand-over, its end. */
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

int ctl_call(struct ctl *c, struct ctl_req *rq, int fd, struct diag *diag,
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

int ctl_stream(struct ctl *c, struct ctl_req *rq, struct diag *diag, const struct ctl_table *t,
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

/* Overlays that must be there, and the base. */
static int agree(const struct ctl_env_opts *o, struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_OPEN, .base = (char *)(uintptr_t)o->base};
	struct ctl_opened opened = {0};
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
	rq.same_dirs = o->same_dirs;
	rq.tell_dirs = o->tell_dirs;
	r = ctl_call(c, &rq, -1, diag, &ctl_table_opened, &opened);
	free(overlays);
	if (r < 0)
		return r;
	memcpy(c->note, opened.note, sizeof(c->note));
	c->made = opened.made;
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

const char *ctl_opened_note(const struct ctl *c)
{
	return c->note;
}

bool ctl_opened_new(const struct ctl *c)
{
	return c->made;
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

/* ---- another server, or none ---- */

int ctl_restart(struct ctl *c, struct diag *diag)
{
	struct ctl_req rq = {.op = CTL_OP_RESTART};
	struct ctl next = {.sock = -1};
	long long end = io_now_ms() + NEXT_MS;
	int r = ctl_call(c, &rq, -1, diag, NULL, NULL);

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
			r = ctl_call(&next, &rq, -1, &d, NULL, NULL);
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
	int r = ctl_call(c, &rq, -1, diag, NULL, NULL);

	if (r < 0)
		return r;
	/* It holds the store until it is really gone. */
	if (ctl_place_wait_gone(c->place, 30000) < 0)
		return diag_set(diag, -ETIMEDOUT,
				"the daemon said yes but is still ending; see %s/log", c->place);
	return 0;
}
