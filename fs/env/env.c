#include "fs/env/env.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/env/env_internal.h"
#include "store/synclog.h"

/* The runtime directory's lock keeps clients that share it apart; two logins of one user may have
 * different ones. What is locked here is the environment itself: an open layer has one writer. */
static int lock_env(const struct env_opts *o, struct diag *diag, int *ret_fd)
{
	cleanup_free char *path = NULL;
	cleanup_buf struct buf who = {0};
	cleanup_fd int fd = -1;
	int r;

	if (asprintf(&path, "%s/env-%s.lock", o->data_dir, o->name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return diag_set(diag, ret_nerrno(), "cannot open %s: %s", path, err_text(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		(void)!io_read_file(AT_FDCWD, path, 8192, &who);
		return diag_set(diag, errno == EWOULDBLOCK ? -EBUSY : ret_nerrno(),
				"another rattan-fs serves environment \"%s\" (%s); only one can",
				o->name, who.len ? (const char *)who.data : "unknown process");
	}
	r = ftruncate(fd, 0) < 0 ? ret_nerrno() : 0;
	if (r == 0 && dprintf(fd, "process %d, at %s", (int)getpid(),
			      o->host_dir ? o->host_dir : o->mount_root) < 0)
		r = -ENOSPC;
	if (r < 0)
		log_debug("%s: %s", path, err_text(r)); /* the lock is what counts */
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* The lock is the open file's, which the keeper and every daemon of the mount share: one that is stuck in its
 * death still has it, and must not stand in the way. */
static int take_lock(struct env *e, const struct env_opts *o, struct diag *diag)
{
	struct keeper_item *x = o->kept ? keeper_find(o->kept, KEEP_LOCK) : NULL;
	int r;

	if (x && x->fd >= 0) {
		e->store_lock_fd = x->fd;
		x->fd = -1;
		return 0;
	}
	r = lock_env(o, diag, &e->store_lock_fd);
	if (r == 0)
		(void)!keeper_keep(&e->link, KEEP_LOCK, 0, NULL, 0, e->store_lock_fd);
	return r;
}

static int open_record(struct env *e, const struct env_opts *o, struct diag *diag)
{
	int r = store_open(o->data_dir, o->create ? STORE_CREATE : 0, diag, &e->store);

	if (r == 0 && !store_env_name_valid(o->name))
		return diag_set(diag, -EINVAL, "\"%.80s\" is no name for an environment", o->name);
	if (r == 0)
		r = take_lock(e, o, diag);
	if (r < 0)
		return diag_set(diag, r, "cannot open the store %s: %s", o->data_dir, err_text(r));
	r = store_env_get(e->store, o->name, &e->rec);
	if (r == -ENOENT && o->create) {
		r = env_create(e->store, o, diag, &e->rec);
		atomic_store(&e->made, r == 0);
		return r;
	}
	if (r == -ENOENT)
		return diag_set(diag, r, "no environment \"%s\" in %s", o->name, o->data_dir);
	if (r < 0)
		return diag_set(diag, r, "cannot read environment \"%s\": %s%s", o->name,
				err_text(r),
				r == -EBADMSG ? " (it is damaged; run rattan fsck)" : "");
	return r < 0 ? r : env_overlays_check(e->store, &e->rec, o->overlays, diag);
}

static int open_ns(struct env *e)
{
	if (!e->own_ns)
		return 0;
	e->userns_fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	if (e->userns_fd < 0)
		return ret_nerrno();
	e->mntns_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	return e->mntns_fd < 0 ? ret_nerrno() : 0;
}

/* One environment shall not take all that is left. What is small is its own limit: the disk's. */
#define DISK_LEAST (UINT64_C(4) << 30)

static int disk_default(struct env *e, uint64_t *ret)
{
	struct store_stats st;
	int r = store_stats(e->store, &st);

	if (r < 0)
		return r;
	*ret = st.room / 4 * 3 > DISK_LEAST ? st.room / 4 * 3 : DISK_LEAST;
	return 0;
}

int env_set_disk_max(struct env *e, uint64_t max, struct diag *diag)
{
	int r = max ? 0 : disk_default(e, &max);

	if (r < 0)
		return diag_set(diag, r, "cannot read the store: %s", err_text(r));
	if (atomic_exchange(&e->disk_max, max) == max)
		return 0;
	ENV_LOCK(e);
	if (e->cur.ovl)
		ovl_set_disk_max(e->cur.ovl, max);
	/* For the next daemon as well. */
	if (e->cur.up)
		env_keep_mount_locked(e);
	return 0;
}

static struct env *env_alloc(const struct env_opts *o)
{
	struct env *e = calloc(1, sizeof(*e));
	struct timespec now;

	if (!e)
		return NULL;
	(void)pthread_mutex_init(&e->lock, NULL);
	e->store_lock_fd = e->userns_fd = e->mntns_fd = e->ended_fd = -1;
	e->journal_fd = -1;
	e->tied_fd = o->tied_fd;
	e->resuming = o->kept; /* before anything can fail */
	e->link = o->link;
	e->own_ns = o->own_ns;
	e->allow_other = o->allow_other;
	e->ids = o->ids;
	e->started_ms = io_now_ms();
	/* A client must never take a new daemon's mount for the one it knew. */
	(void)clock_gettime(CLOCK_REALTIME, &now);
	e->generation = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	e->token_generation = e->generation;
	e->next_id = e->generation; /* not a former daemon's */
	e->mounts = e->generation << 16;
	e->data_dir = strdup(o->data_dir);
	e->mount_root = o->mount_root ? strdup(o->mount_root) : NULL;
	e->host_dir = o->host_dir ? strdup(o->host_dir) : NULL;
	if (!e->data_dir || (o->mount_root && !e->mount_root) || (o->host_dir && !e->host_dir)) {
		(void)!env_close(e);
		return NULL;
	}
	return e;
}

int env_open(const struct env_opts *o, struct diag *diag, struct env **ret)
{
	struct env *e = env_alloc(o);
	int r;

	if (!e)
		return -ENOMEM;
	r = env_policy_parse(o->writable, NULL, diag, &e->policy);
	if (r == 0)
		r = open_record(e, o, diag);
	e->through = r == 0 && !strcmp(e->rec.base_name, CTL_BASE_THROUGH);
	/* Until somebody says what is allowed nothing is. */
	if (e->through)
		policy_rules_release(&e->policy.rules);
	if (e->through)
		e->policy = (struct env_policy){0};
	if (r == 0 && e->through && e->host_dir)
		r = diag_set(
			diag, -EOPNOTSUPP,
			"environment \"%s\" writes through to the host: there is nothing else to "
			"be mounted",
			o->name);
	if (r == 0)
		r = env_set_disk_max(e, o->disk_max, diag);
	if (r == 0)
		r = env_shown_list(e);
	if (r == 0)
		r = open_ns(e);
	if (r == 0) {
		e->ended_fd = epoll_create1(EPOLL_CLOEXEC);
		r = e->ended_fd < 0 ? ret_nerrno() : 0;
	}
	if (r == 0)
		r = env_journal_open(e, o->kept);
	if (r == 0)
		r = store_log_open(e->store, o->name, &e->log);
	if (r == 0)
		r = o->kept ? env_resume_locked(e, o->kept, diag) : env_up_locked(e, diag);
	if (r == 0)
		r = env_provision_found_locked(e, diag);
	if (r == 0)
		e->resuming = false;
	if (r == 0)
		r = env_gc_start(e);
	if (r < 0) {
		(void)!env_close(e);
		return diag_set(diag, r, "cannot serve environment \"%s\": %s", o->name,
				err_text(r));
	}
	*ret = e;
	return 0;
}

int env_close(struct env *e)
{
	int r, k;

	if (!e)
		return 0;
	/* What the keeper has is for the next daemon: the mount, and who uses it. It hears nothing of this end. */
	if (e->resuming)
		e->link.sock = -1;
	env_gc_stop(e);
	/* What shared mappings hold is pushed while there is still a mount to push it through. */
	r = env_quiesce_locked(e);
	env_down_locked(e);
	k = env_drop_ovl_locked(e);
	e->provisioning = false; /* the ref stays: who opens it next goes back */
	/* An end, and no death that another daemon should go on from. */
	keeper_drop(&e->link, KEEP_MOUNT, 0);
	while (e->leases) {
		const void *owner = e->leases->owner;

		env_unlease(e, owner);
	}
	env_binds_free(e);
	env_shown_free(e);
	policy_rules_release(&e->policy.rules);
	env_journal_close(e);
	store_log_close(e->log);
	store_close(e->store);
	cleanup_fdp(&e->store_lock_fd);
	cleanup_fdp(&e->userns_fd);
	cleanup_fdp(&e->mntns_fd);
	cleanup_fdp(&e->ended_fd);
	(void)pthread_mutex_destroy(&e->lock);
	free(e->data_dir);
	free(e->mount_root);
	free(e->host_dir);
	free(e);
	return k < 0 ? k : r;
}

int env_ended_fd(const struct env *e)
{
	return e->ended_fd;
}

int env_broken_fd(const struct env *e)
{
	return store_broken_fd(e->store);
}

/* Whoever does not know that an environment writes through must not come into it, and who wants that not into another. */
static int check_through(const struct env *e, bool through, struct diag *diag)
{
	if (through == e->through)
		return 0;
	return through ? diag_set(
				 diag, -EEXIST,
				 "environment \"%s\" exists and keeps what is written; use another "
				 "--env, or leave --write-through out",
				 e->rec.name)
		       : diag_set(
				 diag, -EEXIST,
				 "environment \"%s\" writes through to the host; it takes a profile "
				 "and --write-through",
				 e->rec.name);
}

int env_check_store(const struct env *e, struct diag *diag)
{
	if (!store_vanished(e->store))
		return 0;
	return diag_set(
		diag, -ESTALE,
		"the store %s was removed while environment \"%s\" was served: what it held is gone; "
		"the same again begins anew",
		e->data_dir, e->rec.name);
}

bool env_made(struct env *e)
{
	return atomic_exchange(&e->made, false);
}

int env_agree(struct env *e, const struct env_asked *a, struct diag *diag, struct diag *note)
{
	int r;

	ENV_LOCK(e);
	/* Who only looks may come in. */
	r = a->through || a->overlays || a->base ? check_through(e, a->through, diag) : 0;
	if (r == 0 && a->base)
		r = env_base_check(e->store, &e->rec, a->base, diag, note);
	if (r == 0)
		r = env_overlays_check(e->store, &e->rec, a->overlays, diag);
	if (r == 0)
		r = env_binds_check_locked(e, a->overlays, diag);
	if (r == 0)
		r = env_ensure_locked(e, diag);
	if (r == 0 && a->overlays && (a->same_dirs || a->tell_dirs))
		r = env_places_check_locked(e, a->overlays, a->same_dirs, diag, note);
	return r;
}

/* ---- the mount for a client ---- */

/* The mount goes on under @want, which is taken over, or as it was. */
static int change_policy(struct env *e, struct env_policy *want, struct diag *diag)
{
	int r = env_check_leases_locked(e, diag);

	if (r == 0) {
		r = env_quiesce_locked(e);
		if (r < 0)
			diag_set(diag, r, "cannot write what is not on the disk yet: %s",
				 err_text(r));
	}
	if (r == 0)
		r = env_leave_locked(e, diag);
	if (r < 0)
		return r;
	policy_rules_release(&e->policy.rules);
	e->policy = *want;
	*want = (struct env_policy){0};
	(void)!env_drop_ovl_locked(e);
	return env_up_locked(e, diag);
}

static int judge_by(struct env *e, struct env_policy *want, struct diag *diag)
{
	/* A mount on the mount is not asked for by its rules. */
	if (e->nbinds && !want->root && env_policy_whole(want))
		return diag_set(
			diag, -EBUSY,
			"environment \"%s\" has %s bound at %s for another session, which no profile "
			"judges; wait until that has ended, or use another environment (-e)",
			e->rec.name, e->binds[0].host, e->binds[0].mount);
	if (want->root == e->policy.root && policy_rules_same(&want->rules, &e->policy.rules))
		return 0;
	return change_policy(e, want, diag);
}

static int dup_to(int fd, int *ret)
{
	*ret = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *ret < 0 ? ret_nerrno() : 0;
}

static int hand_out(struct env *e, struct ctl_attach *ret)
{
	struct ovl_counts n;
	int r = env_mount_open(&e->cur, &ret->root_fd);

	if (r == 0 && e->own_ns)
		r = dup_to(e->userns_fd, &ret->userns_fd);
	if (r == 0 && e->own_ns)
		r = dup_to(e->mntns_fd, &ret->mntns_fd);
	if (r == 0 && e->tied_fd >= 0)
		r = dup_to(e->tied_fd, &ret->tied_fd);
	if (r < 0) {
		int fds[] = {ret->root_fd, ret->userns_fd, ret->mntns_fd, ret->tied_fd};

		for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
			cleanup_fdp(&fds[i]);
		return r;
	}
	memcpy(ret->writable, e->policy.writable, sizeof(ret->writable));
	memcpy(ret->root, e->cur.dir, sizeof(ret->root));
	ret->generation = e->generation;
	ret->mounts = e->mounts;
	ovl_counts(e->cur.ovl, &n);
	ret->token = env_token_locked(e, n.changes);
	ret->denied = env_token_locked(e, e->cur.through ? through_denied(e->cur.through)
							 : ovl_denied(e->cur.ovl));
	return 0;
}

static int attach_locked(struct env *e, const void *owner, const struct env_want *want,
			 struct env_policy *policy, struct diag *diag, struct ctl_attach *ret)
{
	int r = check_through(e, want->through, diag);
	bool begun;

	/* Alone from its beginning to its end: what goes back must be nobody else's work. */
	if (r == 0 && (policy->root || e->provisioning)) {
		r = policy->root ? env_check_kept(e, diag) : 0;
		if (r == 0)
			r = env_check_leases_locked(e, diag);
		if (r == 0)
			r = env_provision_settle_locked(e, diag);
	}
	if (r == 0)
		r = judge_by(e, policy, diag);
	if (r == 0)
		r = env_ensure_locked(e, diag);
	if (r == 0 && env_shown_replaced_locked(e) && env_check_idle_locked(e, owner, NULL) == 0)
		r = env_fresh_locked(e, diag);
	if (r == 0 && want->provision)
		r = env_provision_begin_locked(e, diag);
	begun = r == 0 && want->provision;
	if (r == 0 && want->what)
		r = env_lease_locked(e, owner, want, -1, diag);
	if (r == 0) {
		r = hand_out(e, ret);
		if (r < 0 && want->what)
			env_unlease_locked(e, owner);
	}
	if (r < 0 && begun) /* not what is another's */
		env_provision_over_locked(e);
	return r;
}

int env_attach(struct env *e, const void *owner, const struct env_want *want, struct diag *diag,
	       struct ctl_attach *ret)
{
	struct env_policy policy = {0};
	static const char *const all[] = {"/", NULL};
	int r = want->provision
			? env_policy_parse((char *const *)(uintptr_t)all, NULL, diag, &policy)
			: env_policy_parse(want->writable, want->policy, diag, &policy);

	policy.root = want->provision;
	memset(ret, 0, sizeof(*ret));
	ret->root_fd = ret->userns_fd = ret->mntns_fd = ret->tied_fd = -1;
	if (r < 0)
		return r;
	{
		ENV_LOCK(e);
		r = attach_locked(e, owner, want, &policy, diag, ret);
	}
	policy_rules_release(&policy.rules);
	return r < 0 ? diag_set(diag, r, "cannot hand out the mount: %s", err_text(r)) : 0;
}

int env_flush(struct env *e, struct diag *diag)
{
	int r;

	ENV_LOCK(e);
	r = env_quiesce_locked(e);
	return r < 0 ? diag_set(diag, r, "cannot write to the store: %s", err_text(r)) : 0;
}
