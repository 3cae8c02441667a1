/* rattan-fs mount and rattan-fs admin: what needs the store but no environment that is served. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mounts.h"
#include "fs/core/ovl.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"
#include "fs/fuse/mount.h"
#include "store/store.h"
#include "store/synclog.h"

/* ---- one commit on the host ---- */

struct shown {
	struct store *store;
	struct session *se;
	struct ovl *ovl;
	int pin_fd; /* the collector leaves the state alone as long as it is shown (S5) */
	store_layer
		own; /* what is written goes here, and away with the mount; 0: it is read-only */
	int own_fd;  /* the same for it */
	int told_fd; /* readable when somebody has unmounted it; -1: nobody knows of us */
	bool up;
	unsigned major, minor; /* the mount's device; both 0: not known */
};

static int find_layer(struct store *s, const struct daemon_opts *o, struct diag *diag,
		      store_layer *ret)
{
	struct store_layer_info info;
	int r = env_resolve(s, o->env, o->rev ? o->rev : "head", diag, ret);

	if (r == 0)
		r = store_layer_get(s, *ret, &info);
	if (r == 0 && info.state == STORE_LAYER_DROPPED)
		r = diag_set(diag, -ENOENT, "\"%s\" is gone: it was collected meanwhile", o->rev);
	if (r == 0 && info.state != STORE_LAYER_SEALED)
		r = diag_set(diag, -EINVAL, "\"%s\" is not a sealed state", o->rev);
	return r;
}

/* An open layer over the state, which nobody else knows of. */
static int own_layer(struct shown *m, store_layer over, struct diag *diag)
{
	int r = store_layer_new(m->store, over, &m->own);

	if (r == 0)
		r = store_layer_pin_open(m->store, m->own, &m->own_fd);
	return r < 0 ? diag_set(diag, r, "cannot make room for what is written: %s", err_text(r))
		     : 0;
}

/* Whoever moves a directory above it moves the mount, too. */
static void note_device(struct shown *m, const char *dir)
{
	struct statx st;

	if (statx(AT_FDCWD, dir, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &st) < 0)
		return;
	m->major = st.stx_dev_major;
	m->minor = st.stx_dev_minor;
}

static int show(struct shown *m, const struct daemon_opts *o, struct diag *diag)
{
	struct ovl_opts oo = {.flags = o->rw ? 0 : OVL_RDONLY};
	struct session_opts so = {.ids = daemon_host_ids(o), .rdonly = !o->rw, .spin_us = -1};
	struct mount_opts mo = {.dir = o->dir,
				.name = "rattan",
				.rdonly = !o->rw,
				.helper = geteuid() != 0,
				.allow_other = o->stored_ids && geteuid() == 0};
	int r = store_open(o->data_dir, 0, diag, &m->store);

	if (r == 0)
		r = find_layer(m->store, o, diag, &oo.layer);
	if (r == 0 && (r = store_layer_pin(m->store, oo.layer, &m->pin_fd)) < 0)
		diag_set(diag, r, "cannot keep \"%s\" from being collected: %s", o->rev,
			 err_text(r));
	if (r == 0 && o->rw && (r = own_layer(m, oo.layer, diag)) == 0)
		oo.layer = m->own;
	if (r == 0)
		r = session_new(&m->se);
	if (r < 0)
		return r;
	oo.store = m->store;
	oo.notify = session_notify(m->se);
	r = ovl_open(&oo, &m->ovl);
	if (r == 0)
		r = mount_fuse(&mo, diag, &so.fuse_fd);
	if (r < 0)
		return r;
	m->up = true;
	so.ovl = m->ovl;
	r = session_start(m->se, &so);
	if (r == 0)
		note_device(m, o->dir);
	return r;
}

static void forget_told(const struct shown *m)
{
	char byte;

	while (read(m->told_fd, &byte, 1) > 0)
		;
}

/* R/<id>/end, a pipe with a name: who has unmounted writes to it, and it goes when we believe it. */
static int hear_end(struct shown *m, const char *run_dir, struct diag *diag)
{
	char path[4096];
	int r = daemon_run_file(run_dir, "end", path, sizeof(path));

	if (r < 0)
		return r;
	if (mkfifo(path, 0600) == 0 || errno == EEXIST)
		/* For writing as well: without a writer it would be readable all the time. */
		m->told_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (m->told_fd < 0)
		return diag_set(diag, ret_nerrno(), "cannot make %s: %s", path, err_text(errno));
	/* What a server before us was told and did not live to hear. */
	forget_told(m);
	return 0;
}

/* What somebody else has mounted there meanwhile is not ours to take away. */
static bool still_there(const struct shown *m, const char *dir)
{
	bool ours;

	return (m->major || m->minor ? mounts_has(m->major, m->minor, &ours)
				     : mounts_at(dir, &ours)) < 0 ||
	       ours;
}

static void unshow(struct shown *m, const char *dir, bool ended)
{
	if (m->up && !ended && still_there(m, dir))
		(void)!mount_detach(dir, geteuid() != 0);
	if (m->ovl)
		ovl_notify_end(m->ovl);
	if (m->se)
		session_stop(m->se);
	/* What was written and is not in the store yet need not get there. */
	if (m->ovl && m->own)
		ovl_abandon(m->ovl);
	else if (m->ovl)
		(void)!ovl_close(m->ovl);
	/* Should it fail, a collection takes the layer a day later. */
	if (m->own)
		(void)!store_layers_discard(m->store, &m->own, 1);
	cleanup_fdp(&m->own_fd);
	cleanup_fdp(&m->pin_fd);
	cleanup_fdp(&m->told_fd);
	store_close(m->store);
}

/* Who says so may be in another mount namespace, where it never was. */
static bool believed(struct shown *m, const struct daemon_opts *o)
{
	char path[4096];

	forget_told(m);
	if (still_there(m, o->dir))
		return false;
	if (daemon_run_file(o->run_dir, "end", path, sizeof(path)) == 0)
		(void)unlink(path);
	return true;
}

/* Until it is unmounted, or told to end. True: the kernel says that it is nowhere any more. */
static bool wait_end(struct shown *m, const struct daemon_opts *o, int signal_fd)
{
	struct pollfd p[] = {{.fd = signal_fd, .events = POLLIN},
			     {.fd = session_ended_fd(m->se), .events = POLLIN},
			     {.fd = m->told_fd, .events = POLLIN}};

	for (;;) {
		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno == EINTR)
			continue;
		if (p[0].revents || p[1].revents)
			return p[1].revents != 0;
		if (believed(m, o))
			return false;
	}
}

int daemon_mount(const struct daemon_opts *o)
{
	cleanup_fd int alive = -1, signal_fd = -1;
	struct diag diag = {0};
	struct shown m = {.pin_fd = -1, .own_fd = -1, .told_fd = -1};
	int ready_fd = o->ready_fd, r;
	bool parent, ended = false;

	r = daemon_detach(o, &parent);
	if (parent)
		return 0;
	if (r == 0)
		r = daemon_prepare(&signal_fd);
	if (r == 0 && o->run_dir)
		r = daemon_alive(o->run_dir, &diag, &alive);
	if (r == 0 && o->run_dir)
		r = hear_end(&m, o->run_dir, &diag);
	if (r == 0)
		r = show(&m, o, &diag);
	if (r == 0)
		r = daemon_note_mount(o->run_dir, o->dir);
	(void)!daemon_tell(&ready_fd, r, &diag, NULL, 0);
	if (r == 0)
		ended = wait_end(&m, o, signal_fd);
	unshow(&m, o->dir, ended);
	/* Only what is ours: without the lock the note is another one's. */
	if (alive >= 0)
		(void)!daemon_note_mount(o->run_dir, NULL);
	return r;
}

/* ---- list and remove ---- */

struct names {
	struct store_env *v;
	size_t n;
};

/* Collected first: the callback may not call the store. */
static int list_one(void *arg, const struct store_env *e)
{
	struct names *l = arg;
	struct store_env *v = realloc(l->v, (l->n + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	l->v = v;
	v[l->n++] = *e;
	return 0;
}

/* One that cannot be read must not hide the others. */
static int damaged(int r, struct ctl_env_info *i, struct buf *items)
{
	if (r != -EBADMSG && r != -ENOENT)
		return r;
	i->damaged = true;
	return ctl_item_put(items, &ctl_table_env, i);
}

static int any_frame(void *arg, const uint8_t *p, size_t n)
{
	(void)arg;
	(void)p;
	return n > 0;
}

/* Is there something that was synced and is not in the layer yet? */
static bool synced_more(struct store *s, const struct store_env *e, uint64_t batches)
{
	struct store_log *l;
	int r = store_log_open(s, e->name, &l);

	if (r < 0)
		return false;
	r = store_log_read(l, e->open, batches, any_frame, NULL);
	store_log_close(l);
	return r > 0;
}

static int describe(struct store *s, const struct store_env *e, struct buf *items)
{
	struct ctl_env_info i = {.created = e->created};
	struct store_layer_info li;
	struct store_commit c = {0};
	store_layer at;
	int r;

	memcpy(i.name, e->name, sizeof(i.name));
	r = e->damaged ? -EBADMSG : store_layer_get(s, e->open, &li);
	if (r < 0)
		return damaged(r, &i, items);
	memcpy(i.base, e->base_name, sizeof(i.base));
	i.dirty = li.records > 0 || synced_more(s, e, li.batches);
	r = store_head_commit(s, e->head, &at);
	i.dirty |= r == 0 && at != e->head;
	if (r == 0)
		r = store_commit_of_layer(s, at, &c);
	if (r == 0)
		digest_hex(&c.id, i.head);
	store_commit_release(&c);
	return r < 0 && r != -ENOENT ? damaged(r, &i, items)
				     : ctl_item_put(items, &ctl_table_env, &i);
}

int daemon_admin_list(const struct daemon_opts *o)
{
	cleanup_store struct store *s = NULL;
	cleanup_buf struct buf items = {0};
	struct names l = {0};
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r = store_open(o->data_dir, 0, &diag, &s);

	/* A data directory without a store has no environments. */
	if (r == -ENOENT)
		return daemon_tell(&ready_fd, 0, NULL, NULL, 0);
	if (r == 0)
		r = store_env_list(s, list_one, &l);
	for (size_t i = 0; i < l.n && r == 0; i++)
		r = describe(s, &l.v[i], &items);
	free(l.v);
	return daemon_tell(&ready_fd, r, &diag, &items, r == 0 ? (uint32_t)l.n : 0);
}

/* What opening the store had to say stays. */
static void no_env(int r, const struct daemon_opts *o, struct diag *diag)
{
	if (diag->text[0])
		return;
	if (r == -ENOENT)
		diag_set(diag, r, "no environment \"%s\" in %s", o->env, o->data_dir);
	else
		diag_set(diag, r, "cannot read environment \"%s\" in %s: %s", o->env, o->data_dir,
			 err_text(r));
}

static int fork_env(struct store *s, const struct daemon_opts *o, struct diag *diag,
		    struct store_env *ret)
{
	store_layer at;
	int r;

	if (!store_env_name_valid(o->name))
		return diag_set(
			diag, -EINVAL,
			"'%s' is no name of an environment: 1 to 64 of A-Z a-z 0-9 . _ -, the first "
			"no dot or dash",
			o->name);
	r = find_layer(s, o, diag, &at);
	if (r == 0)
		r = store_env_fork(s, o->env, o->name, at, ret);
	if (r == -EEXIST && !*diag->text)
		diag_set(diag, r, "there is an environment '%s' already; choose another name",
			 o->name);
	if (r == -ENOENT && !*diag->text)
		diag_set(diag, r, "'%s' of %s is gone: it was removed or collected meanwhile",
			 o->rev, o->env);
	return r;
}

/* Answers with the new environment and the one that it came from. */
int daemon_admin_fork(const struct daemon_opts *o)
{
	cleanup_store struct store *s = NULL;
	cleanup_buf struct buf items = {0};
	struct store_env from, made;
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r = store_open(o->data_dir, 0, &diag, &s);

	if (r == 0 && (r = store_env_get(s, o->env, &from)) < 0)
		no_env(r, o, &diag);
	if (r == 0)
		r = fork_env(s, o, &diag, &made);
	if (r == 0)
		r = describe(s, &made, &items);
	if (r == 0)
		r = describe(s, &from, &items);
	return daemon_tell(&ready_fd, r, &diag, &items, r == 0 ? 2 : 0);
}

int daemon_admin_remove(const struct daemon_opts *o)
{
	cleanup_store struct store *s = NULL;
	cleanup_fd int lock = -1;
	struct diag diag = {0};
	struct store_env rec;
	char path[4096];
	int ready_fd = o->ready_fd, r = store_open(o->data_dir, 0, &diag, &s);

	if (r == 0)
		r = store_env_get(s, o->env, &rec);
	if (r < 0) {
		no_env(r, o, &diag);
		return daemon_tell(&ready_fd, r, &diag, NULL, 0);
	}
	/* A daemon of another runtime directory holds it (env.c). */
	if (snprintf(path, sizeof(path), "%s/env-%s.lock", o->data_dir, o->env) >=
	    (int)sizeof(path)) {
		r = diag_set(&diag, -ENAMETOOLONG, "the name of %s is too long", o->data_dir);
		return daemon_tell(&ready_fd, r, &diag, NULL, 0);
	}
	lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		r = diag_set(&diag, ret_nerrno(), "cannot open %s: %s", path, err_text(errno));
	else if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		r = diag_set(&diag, -EBUSY, "environment \"%s\" is being served", o->env);
	if (r == 0)
		r = store_env_remove(s, o->env);
	if (r == 0)
		(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/env-%s.dirs", o->data_dir, o->env);
	if (r == 0)
		(void)unlink(path);
	return daemon_tell(&ready_fd, r, &diag, NULL, 0);
}
