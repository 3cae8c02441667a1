/* The mount of an environment: making a fresh one, taking the old one away. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mounts.h"
#include "fs/env/env_internal.h"

int env_mount_dir(struct env *e, char *ret, size_t size)
{
	int n = e->host_dir ? snprintf(ret, size, "%s", e->host_dir)
			    : snprintf(ret, size, "%s/%u", e->mount_root, ++e->nmounts);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int env_open_ovl(struct env *e, const struct policy_rules *policy, struct session *se, bool resume,
		 struct ovl **ret)
{
	struct ovl_opts oo = {.store = e->store,
			      .log = e->log,
			      .layer = e->rec.open,
			      .policy = policy,
			      .disk_max = atomic_load(&e->disk_max)};

	if (se) {
		oo.notify = session_notify(se);
		oo.journal = e->journal;
		oo.flags = e->journal && resume ? OVL_RESUME : 0;
	}
	return ovl_open(&oo, ret);
}

/* Without asking the file system itself, though its session's threads, never this one, would answer. */
static int open_root(const char *dir, int *ret_fd, struct statx *ret)
{
	cleanup_fd int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || statx(fd, "", AT_STATX_DONT_SYNC | AT_EMPTY_PATH, STATX_TYPE, ret) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

int env_mount_note(struct env_mount *m)
{
	cleanup_fd int fd = -1;
	struct statx st;
	int r = open_root(m->dir, &fd, &st);

	if (r < 0)
		return r;
	m->major = st.stx_dev_major;
	m->minor = st.stx_dev_minor;
	return 0;
}

int env_mount_open(const struct env_mount *m, int *ret_fd)
{
	cleanup_fd int fd = -1;
	struct statx st;
	int r = open_root(m->dir, &fd, &st);

	if (r == 0 && (st.stx_dev_major != m->major || st.stx_dev_minor != m->minor))
		r = -ENODEV;
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

/* The core's answer to the kernel starts here: mount, session, and which device it is. */
int env_mount_tree(struct env *e, struct env_mount *m, struct diag *diag)
{
	char name[80];
	struct keeper_mount_opts ko = {.dir = m->dir, .name = name, .allow_other = e->allow_other};
	struct session_opts so = {.ovl = m->ovl,
				  .ids = e->ids,
				  .spin_us = -1,
				  .fuse_fd = -1,
				  .connection = e->generation + 1};
	int r;

	if (m->through) {
		so.tree = through_tree(m->through);
		/* The host says whose a file is, in this process's own terms. */
		so.ids.store_uid = so.ids.show_uid;
		so.ids.store_gid = so.ids.show_gid;
	}
	env_policy_ids(&e->policy, &so.ids);
	(void)snprintf(name, sizeof(name), "rattan:%s", e->rec.name);
	r = keeper_mount(&e->link, &ko, diag, &so.fuse_fd);
	if (r < 0)
		return r;
	r = session_start(m->se, &so);
	if (r == 0)
		r = env_mount_note(m);
	if (r < 0) {
		(void)!keeper_umount(&e->link, m->dir, !e->host_dir);
		return diag_set(diag, r, "cannot serve the mount: %s", err_text(r));
	}
	return 0;
}

/* While the session is served, its end is for those who watch the environment; an end that we bring about
 * ourselves is not. */
int env_watch_end(struct env *e, struct session *se, bool on)
{
	struct epoll_event ev = {.events = EPOLLIN};

	return epoll_ctl(e->ended_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, session_ended_fd(se),
			 &ev) < 0
		       ? ret_nerrno()
		       : 0;
}

bool env_detached(struct env *e, bool *ret_busy)
{
	bool there = true;

	*ret_busy = pthread_mutex_trylock(&e->lock) != 0;
	if (*ret_busy)
		return false;
	/* Whoever bound a part of it elsewhere still uses it. What cannot be read is no end either. */
	if (e->cur.up && mounts_has(e->cur.major, e->cur.minor, &there) < 0)
		*ret_busy = there = true;
	(void)pthread_mutex_unlock(&e->lock);
	return !there;
}

void env_tell_gone(struct env *e)
{
	if (e->tied_fd >= 0)
		(void)shutdown(e->tied_fd, SHUT_RDWR);
}

/* Serve @m's ovl at @m's directory. On failure the ovl is still there. */
static int start(struct env *e, struct env_mount *m, struct diag *diag)
{
	int r = env_mount_tree(e, m, diag);

	if (r < 0)
		return r;
	r = env_watch_end(e, m->se, true);
	if (r < 0) {
		(void)!keeper_umount(&e->link, m->dir, !e->host_dir);
		return diag_set(diag, r, "cannot watch the mount: %s", err_text(r));
	}
	m->up = true;
	e->cur = *m;
	e->generation++;
	env_keep_mount_locked(e);
	return 0;
}

static int open_through(struct env *e, struct env_mount *m, struct diag *diag)
{
	const struct through_opts o = {.policy = &e->policy.rules, .notify = session_notify(m->se)};

	return e->through ? through_open(&o, diag, &m->through) : 0;
}

static void end_session(struct env_mount *m)
{
	session_stop(m->se);
	through_close(m->through);
	m->se = NULL;
	m->through = NULL;
}

int env_check_kept(const struct env *e, struct diag *diag)
{
	if (!e->through)
		return 0;
	return diag_set(diag, -EOPNOTSUPP,
			"environment \"%s\" writes through: what was changed went straight to the "
			"host, and nothing is kept that could be compared, committed or taken back",
			e->rec.name);
}

/* What was synced is in a log that only its writer's version can read: it must not be passed over unasked. */
static int tree_failed(const struct env *e, int r, struct diag *diag)
{
	if (r == -EBADMSG)
		return diag_set(
			diag, r,
			"environment \"%s\" is damaged: rattan fsck says where. What was synced last before "
			"its daemon died is in env-%s.log in the data directory; if the damage is what that "
			"names, remove it, and the environment opens as it was a second before",
			e->rec.name, e->rec.name);
	if (r != -EPROTONOSUPPORT)
		return diag_set(diag, r, "cannot open the tree: %s", err_text(r));
	return diag_set(
		diag, r,
		"another version of rattan wrote what was synced in environment \"%s\" before its "
		"daemon died: start that version once, or remove env-%s.log from the data "
		"directory and go on from what was there a second before",
		e->rec.name, e->rec.name);
}

static int mount_up(struct env *e, struct diag *diag)
{
	struct env_mount m = {0};
	int r = env_mount_dir(e, m.dir, sizeof(m.dir));

	env_shown_note_locked(e);
	if (r == 0)
		r = session_new(&m.se);
	if (r < 0)
		return diag_set(diag, r, "cannot make a session: %s", err_text(r));
	r = open_through(e, &m, diag);
	/* Beside the host's tree it is what is asked for history, and nobody changes it. */
	if (r == 0)
		r = env_open_ovl(e, &e->policy.rules, e->through ? NULL : m.se, false, &m.ovl);
	if (r < 0) {
		end_session(&m);
		return tree_failed(e, r, diag);
	}
	r = start(e, &m, diag);
	if (r < 0) {
		ovl_notify_end(m.ovl);
		end_session(&m);
		(void)!ovl_close(m.ovl);
	}
	return r;
}

/* Another mount of the ovl that is there, with what it could not write yet. */
static int mount_again(struct env *e, struct diag *diag)
{
	struct env_mount m = {.ovl = e->cur.ovl};
	struct ovl_notify n;
	int r = env_mount_dir(e, m.dir, sizeof(m.dir));

	if (r == 0)
		r = session_new(&m.se);
	if (r < 0)
		return diag_set(diag, r, "cannot make a session: %s", err_text(r));
	n = session_notify(m.se);
	r = open_through(e, &m, diag);
	if (r == 0 && !e->through)
		r = ovl_notify_begin(m.ovl, &n);
	if (r == 0)
		r = start(e, &m, diag);
	if (r < 0) {
		ovl_notify_end(m.ovl);
		end_session(&m);
	}
	return r;
}

/* ---- binds of a fresh mount ---- */

/* The directories that @path consists of, as if made by the owner of the tree. */
static int make_path(struct ovl *o, const struct env *e, const char *path, bool dir)
{
	const struct ovl_cred cred = {.uid = e->ids.squash ? e->ids.store_uid : 0,
				      .gid = e->ids.squash ? e->ids.store_gid : 0};
	store_ino ino = STORE_ROOT_INO;
	int r = 0;

	while (*path && r == 0) {
		size_t n = strcspn(path + 1, "/");
		char name[STORE_NAME_MAX + 1];
		struct ovl_entry ent;
		bool last = path[1 + n] == 0;

		if (n > STORE_NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path + 1, n);
		name[n] = 0;
		path += 1 + n;
		r = ovl_lookup(o, ino, name, &ent);
		if (r == 0 && ent.ino == 0 && (dir || !last))
			r = ovl_mkdir(o, ino, name, 0755, &cred, &ent);
		else if (r == 0 && ent.ino == 0)
			r = ovl_mknod(o, ino, name, S_IFREG | 0644, 0, &cred, &ent);
		if (ino != STORE_ROOT_INO)
			ovl_forget(o, ino, 1);
		ino = r == 0 ? ent.ino : STORE_ROOT_INO;
		if (r == 0 && !last && !S_ISDIR(ent.attr.st.st_mode))
			r = -ENOTDIR;
	}
	if (ino != STORE_ROOT_INO)
		ovl_forget(o, ino, 1);
	return r;
}

/* Mount points where the mount's policy allows no change are made below it: nobody serves the tree
 * meanwhile. */
static int make_points(struct env *e, struct diag *diag)
{
	struct ovl *o = NULL;
	int r = env_open_ovl(e, NULL, NULL, false, &o);

	if (r < 0)
		return r;
	for (size_t i = 0; i < e->nbinds && r == 0; i++) {
		r = make_path(o, e, e->binds[i].mount, S_ISDIR(e->binds[i].type));
		if (r < 0)
			diag_set(diag, r, "cannot make the mount point %s: %s", e->binds[i].mount,
				 err_text(r));
	}
	if (r < 0) {
		(void)!ovl_close(o);
		return r;
	}
	return ovl_close(o);
}

int env_bind_all(struct env *e, struct diag *diag, size_t *ret_failed)
{
	if (e->policy.root) /* nor what the user bound is for package scripts */
		return 0;
	for (size_t i = 0; i < e->nbinds; i++) {
		struct env_bound *b = &e->binds[i];
		struct diag d = {0};
		int r = keeper_bind(&e->link, e->cur.dir, b->mount, b->host, b->dev, b->ino, b->rw,
				    &d);

		/* A directory that vanished, or is another one now, takes nothing along. */
		b->gone = r == -ENOENT || r == -ESTALE;
		if (b->gone) {
			log_warn("%s is not bound at %s: %s", b->host, b->mount, d.text);
			continue;
		}
		if (r < 0) {
			diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r));
			*ret_failed = i;
			return r;
		}
	}
	return 0;
}

int env_up_locked(struct env *e, struct diag *diag)
{
	size_t failed = 0;
	int r = mount_up(e, diag);

	if (r < 0)
		return r;
	r = env_bind_all(e, diag, &failed);
	if (r == -EACCES || r == -EROFS || r == -EPERM) {
		env_down_locked(e);
		r = env_drop_ovl_locked(e); /* just opened: nothing to lose */
		if (r == 0)
			r = make_points(e, diag);
		if (r == 0)
			r = mount_up(e, diag);
		if (r == 0)
			r = env_bind_all(e, diag, &failed);
	}
	if (r < 0) {
		diag_set(diag, r, "cannot bind %s: %s", e->nbinds ? e->binds[failed].mount : "",
			 err_text(r));
		env_down_locked(e);
		(void)!env_drop_ovl_locked(e);
	}
	return r;
}

void env_down_locked(struct env *e)
{
	struct env_mount *m = &e->cur;
	int r;

	if (!m->up)
		return;
	(void)!env_watch_end(e, m->se, false);
	if (m->ovl)
		ovl_notify_end(m->ovl);
	r = keeper_umount(&e->link, m->dir, !e->host_dir);
	if (r < 0)
		log_debug("unmount of %s: %s", m->dir, err_text(r));
	end_session(m);
	m->up = false;
}

int env_drop_ovl_locked(struct env *e)
{
	int r = 0;

	if (e->cur.ovl)
		r = ovl_close(e->cur.ovl);
	e->cur.ovl = NULL;
	return r;
}

int env_quiesce_locked(struct env *e)
{
	/* All of it, unlike before a state: whoever still holds something of a mount that is left must find it dead, not cached. */
	int r = e->cur.up ? session_push_dirty(e->cur.se) : 0;

	/* A mount that somebody took away has nothing left to push. */
	if (r == -ENOTCONN || r == -ENODEV)
		r = 0;
	if (r == 0 && e->cur.ovl)
		r = ovl_flush(e->cur.ovl);
	return r;
}

int env_leave_locked(struct env *e, struct diag *diag)
{
	struct diag again = {0};
	int r;

	env_down_locked(e);
	/* Nobody can change anything any more. What was written since it was quiesced must not go
	 * with the ovl: it is served again instead. */
	r = e->cur.ovl ? ovl_flush(e->cur.ovl) : 0;
	if (r == 0)
		return 0;
	diag_set(diag, r, "cannot write what is not on the disk yet: %s", err_text(r));
	if (env_again_locked(e, &again) < 0)
		log_error("mounting again: %s", again.text);
	return r;
}

int env_again_locked(struct env *e, struct diag *diag)
{
	size_t failed = 0;
	int r = mount_again(e, diag);

	if (r == 0)
		r = env_bind_all(e, diag, &failed);
	if (r < 0)
		env_down_locked(e);
	return r;
}

int env_fresh_locked(struct env *e, struct diag *diag)
{
	int r = env_quiesce_locked(e);

	if (r < 0)
		return diag_set(diag, r, "cannot write to the store: %s", err_text(r));
	r = env_leave_locked(e, diag);
	if (r < 0)
		return r;
	(void)!env_drop_ovl_locked(e);
	return env_up_locked(e, diag);
}

int env_ensure_locked(struct env *e, struct diag *diag)
{
	if (e->cur.up)
		return 0;
	/* What an earlier mount left may hold what could not be written. */
	if (e->cur.ovl && ovl_flush(e->cur.ovl) < 0)
		return env_again_locked(e, diag);
	(void)!env_drop_ovl_locked(e);
	return env_up_locked(e, diag);
}
