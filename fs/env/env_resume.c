/* Leaving an environment to the next daemon, and going on where the last one ended. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/core/journal.h"
#include "fs/env/env_internal.h"
#include "fs/env/mend.h"

/* How long a lease of a dead daemon lasts whose command had not been named yet. */
#define NAMELESS_MS 10000

bool env_process_gone(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* ---- leaving ---- */

int env_journal_open(struct env *e, struct keeper_link *kept)
{
	struct keeper_item *x = kept ? keeper_find(kept, KEEP_JOURNAL) : NULL;
	int r;

	if (x) {
		e->journal_fd = x->fd;
		x->fd = -1;
		r = journal_open(e->journal_fd, &e->journal);
		if (r == 0)
			store_written_share(e->store, journal_written(e->journal));
		return r;
	}
	r = journal_create(&e->journal_fd);
	if (r == 0)
		r = journal_open(e->journal_fd, &e->journal);
	/* Without a keeper nobody would go on; an fsync needs it all the same (store/synclog.h). */
	if (r == 0 && e->link.sock >= 0)
		r = keeper_keep(&e->link, KEEP_JOURNAL, 0, NULL, 0, e->journal_fd);
	if (r == 0)
		store_written_share(e->store, journal_written(e->journal));
	if (r < 0) {
		log_warn("no journal (%s): commands will not outlive the daemon", err_text(r));
		env_journal_close(e);
	}
	return 0;
}

void env_journal_close(struct env *e)
{
	if (e->journal)
		store_written_share(e->store, NULL);
	journal_close(e->journal);
	e->journal = NULL;
	cleanup_fdp(&e->journal_fd);
}

void env_keep_listen(struct env *e, int fd)
{
	ENV_LOCK(e);
	(void)!keeper_keep(&e->link, KEEP_LISTEN, 0, NULL, 0, fd);
}

void env_keep_mount_locked(struct env *e)
{
	cleanup_fd int policy = -1;
	struct env_saved *s;
	int r = 0;

	if (!e->journal || e->link.sock < 0)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		r = -ENOMEM;
	if (r == 0)
		r = env_policy_save(&e->policy.rules, &policy);
	if (r == 0)
		r = keeper_keep(&e->link, KEEP_POLICY, 0, &e->policy.root, sizeof(e->policy.root),
				policy);
	if (r == 0) {
		memcpy(s->dir, e->cur.dir, sizeof(s->dir));
		s->generation = e->generation;
		s->nmounts = e->nmounts;
		s->disk_max = atomic_load(&e->disk_max);
		session_init_get(e->cur.se, &s->init);
		/* Open files of the host end with the process that has them open. */
		r = s->init.resumable && !e->cur.through && !getenv("RATTAN_NO_RESEND")
			    ? keeper_keep(&e->link, KEEP_MOUNT, 0, s, sizeof(*s), -1)
			    : -EOPNOTSUPP;
	}
	/* An older kernel (before 6.9), no memory, or a command that the keeper does not know: the mount ends with
	 * this process. */
	if (r < 0)
		keeper_drop(&e->link, KEEP_MOUNT, 0);
	e->resumable = r == 0;
	session_patience(e->cur.se, r == 0);
	free(s);
}

/* Should the process have ended, its connection does as well, and the bind with it. */
int env_keep_bind_locked(struct env *e, const struct env_bound *b, const struct env_holder *h)
{
	cleanup_fd int pidfd = h->pid > 0 ? pidfd_open(h->pid, 0) : -1;
	struct env_saved_bind *s;
	int r;

	if (!e->journal || e->link.sock < 0)
		return 0;
	if (strlen(b->mount) >= sizeof(s->mount) || strlen(b->host) >= sizeof(s->host))
		return -ENAMETOOLONG;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	memcpy(s->host, b->host, strlen(b->host));
	memcpy(s->mount, b->mount, strlen(b->mount));
	s->dev = b->dev;
	s->ino = b->ino;
	s->type = b->type;
	s->rw = b->rw;
	s->pid = h->pid;
	r = keeper_keep(&e->link, KEEP_BIND, h->id, s, sizeof(*s), pidfd);
	free(s);
	return r;
}

void env_keep_lease_locked(struct env *e, struct env_lease *l)
{
	if (e->journal && e->link.sock >= 0)
		(void)!keeper_tell(&e->link, KEEP_LEASE, l->id, l->what, strlen(l->what), l->pidfd);
}

/* Nobody is waited for: who has the lock may wait for what the next daemon will do. */
bool env_may_hand_over(struct env *e)
{
	return e->resumable && journal_whole(e->journal);
}

bool env_patience_end(struct env *e)
{
	if (pthread_mutex_trylock(&e->lock) != 0)
		return false;
	if (e->cur.up)
		session_patience(e->cur.se, false);
	(void)pthread_mutex_unlock(&e->lock);
	return true;
}

void env_keep_mend(struct env *e, const struct mend_note *n)
{
	if (pthread_mutex_trylock(&e->lock) != 0)
		return; /* it counts as the first one then */
	(void)!keeper_tell(&e->link, KEEP_MEND, 0, n, sizeof(*n), -1);
	(void)pthread_mutex_unlock(&e->lock);
}

static void use_log(struct env *e, bool on)
{
	ENV_LOCK(e);
	if (e->cur.ovl)
		ovl_use_log(e->cur.ovl, on);
}

int env_prepare_replace(struct env *e, const void *owner, struct diag *diag)
{
	int r;

	if (e->link.sock < 0)
		return diag_set(diag, -EOPNOTSUPP,
				"this mount has no keeper that could start another rattan-fs");
	{
		ENV_LOCK(e);
		/* Again: the keeper may have missed something since. */
		env_keep_mount_locked(e);
		r = e->resumable ? 0 : env_check_idle_locked(e, owner, NULL);
	}
	if (r < 0)
		return diag_set(
			diag, -EBUSY,
			"another rattan-fs could not go on with this mount (it takes Linux 6.9; or see the log), and "
			"commands that run would end: wait for them");
	/* The next one may be of another version, which could not read what is synced after the flush. */
	use_log(e, false);
	r = env_flush(e, diag);
	if (r < 0)
		use_log(e, true);
	return r;
}

/* ---- going on ---- */

/* Each item is one who wants it. */
static int resume_bind(struct env *e, struct keeper_item *x)
{
	struct env_saved_bind s;
	struct env_holder h = {.id = x->id, .pidfd = x->fd};
	struct env_bound *l, *at, b = {0};
	int r;

	if (x->len != sizeof(s))
		return -EBADMSG;
	memcpy(&s, x->data, sizeof(s));
	b = (struct env_bound){.host = strndup(s.host, sizeof(s.host) - 1),
			       .mount = strndup(s.mount, sizeof(s.mount) - 1),
			       .dev = s.dev,
			       .ino = s.ino,
			       .type = s.type,
			       .rw = s.rw};
	h.pid = s.pid;
	at = b.host && b.mount ? env_bound_find(e, &b) : NULL;
	r = b.host && b.mount ? env_bound_hold(at ? at : &b, &h) : -ENOMEM;
	if (r == 0)
		x->fd = -1;
	if (r < 0 || at) {
		env_bound_release(&b);
		return r;
	}
	l = realloc(e->binds, (e->nbinds + 1) * sizeof(*l));
	if (!l) {
		env_bound_release(&b);
		return -ENOMEM;
	}
	e->binds = l;
	l[e->nbinds++] = b;
	return 0;
}

static int resume_lease(struct env *e, struct keeper_item *x)
{
	struct env_lease *l = calloc(1, sizeof(*l));

	if (l)
		l->what = strndup((const char *)x->data, x->len);
	if (!l || !l->what) {
		free(l);
		return -ENOMEM;
	}
	l->pidfd = x->fd;
	x->fd = -1;
	l->id = x->id;
	l->until = l->pidfd < 0 ? io_now_ms() + NAMELESS_MS : 0;
	l->next = e->leases;
	e->leases = l;
	e->nleases++;
	return 0;
}

static int resume_users(struct env *e, struct keeper_link *kept)
{
	int r = 0;

	for (struct keeper_item *x = kept->items; r == 0 && x; x = x->next) {
		if (x->kind == KEEP_BIND)
			r = resume_bind(e, x);
		else if (x->kind == KEEP_LEASE)
			r = resume_lease(e, x);
	}
	return r;
}

/* Without it nothing is served: another policy could be a wider one. */
static int resume_policy(struct env *e, struct keeper_link *kept)
{
	struct keeper_item *x = keeper_find(kept, KEEP_POLICY);
	struct env_policy got;
	int r = x && x->fd >= 0 ? env_policy_load(x->fd, &got) : -EBADMSG;

	if (r < 0)
		return r;
	got.root = x->len == sizeof(got.root) && *(const uint8_t *)x->data == 1;
	policy_rules_release(&e->policy.rules);
	e->policy = got;
	return 0;
}

static int take_mount(struct keeper_link *kept, const char *dir)
{
	for (size_t i = 0; i < KEEPER_MOUNTS; i++) {
		int fd = kept->mounts[i].fd;

		if (fd < 0 || strcmp(kept->mounts[i].dir, dir) != 0)
			continue;
		kept->mounts[i].fd = -1;
		return fd;
	}
	return -1;
}

/* The mount is there: only somebody to answer is missing. */
static int serve_again(struct env *e, struct env_mount *m, const struct env_saved *s, int fuse_fd,
		       struct diag *diag)
{
	struct session_opts so = {.ovl = m->ovl,
				  .ids = e->ids,
				  .spin_us = -1,
				  .fuse_fd = fuse_fd,
				  .resume = &s->init,
				  .connection = s->generation};
	int r;

	memcpy(m->dir, s->dir, sizeof(m->dir));
	e->generation = s->generation;
	env_policy_ids(&e->policy, &so.ids);
	r = session_start(m->se, &so);
	if (r == 0)
		r = env_mount_note(m);
	return r < 0 ? diag_set(diag, r, "cannot go on with the mount: %s", err_text(r)) : 0;
}

/* The last daemon died between two mounts: its tree is there, its users are not. */
static int serve_fresh(struct env *e, struct env_mount *m, struct diag *diag)
{
	size_t failed;
	int r = env_mount_dir(e, m->dir, sizeof(m->dir));

	ovl_unheld(m->ovl);
	if (r == 0)
		r = env_mount_tree(e, m, diag);
	if (r < 0)
		return r;
	e->cur = *m;
	e->cur.up = true;
	r = env_bind_all(e, diag, &failed);
	if (r < 0)
		log_warn("a bind is lost: %s", diag->text);
	/* Should what follows fail, the tree is not ours to end. */
	e->cur = (struct env_mount){0};
	return 0;
}

int env_resume_locked(struct env *e, struct keeper_link *kept, struct diag *diag)
{
	struct keeper_item *x = keeper_find(kept, KEEP_MOUNT);
	struct env_saved saved; /* in the item it may lie at any address */
	const struct env_saved *s = &saved;
	struct env_mount m = {0};
	int fuse_fd, r;

	e->unsure = true;
	if (!x || x->len != sizeof(saved) || !e->journal)
		return diag_set(diag, -EBADMSG, "the last rattan-fs left nothing to go on with");
	memcpy(&saved, x->data, sizeof(saved));
	saved.dir[sizeof(saved.dir) - 1] = 0;
	e->nmounts = s->nmounts;
	atomic_store(&e->disk_max, s->disk_max);
	r = resume_policy(e, kept);
	if (r == 0)
		r = resume_users(e, kept);
	if (r < 0)
		return r;
	env_shown_note_locked(e);
	fuse_fd = take_mount(kept, s->dir);
	r = session_new(&m.se);
	if (r == 0)
		r = env_open_ovl(e, &e->policy.rules, m.se, true, &m.ovl);
	if (r < 0)
		return diag_set(diag, r, "cannot open the tree with what was not flushed: %s",
				err_text(r));
	r = fuse_fd >= 0 ? serve_again(e, &m, s, fuse_fd, diag) : serve_fresh(e, &m, diag);
	if (r == 0)
		r = env_watch_end(e, m.se, true);
	if (r < 0) {
		ovl_notify_end(m.ovl);
		session_stop(m.se);
		ovl_abandon(m.ovl);
		return r;
	}
	m.up = true;
	e->cur = m;
	if (fuse_fd < 0)
		e->generation++;
	env_keep_mount_locked(e);
	return 0;
}
