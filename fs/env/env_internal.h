/* fs/env/env_internal.h - shared by the files of fs/env; nobody else includes it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "fs/core/ovl.h"
#include "fs/env/env.h"
#include "fs/through/through.h"
#include "policy/rules.h"
#include "store/store.h"

/* -E2BIG of fs/core/diff.h */
#define ENV_TOO_LONG                                                                                       \
	"the paths of what changed are too long together to be compared; remove the deepest directories, " \
	"or go back with reset"

struct env_lease {
	const void *
		owner; /* NULL: of a connection to a former daemon; ends with the process, or at @until */
	char *what;
	bool brief;      /* holds the policy alone: no move waits for it */
	int pidfd;       /* -1: none */
	long long until; /* 0: not known yet */
	uint64_t id;     /* with the keeper */
	struct env_lease *next;
};

/* Who wants something bound: a connection, or the process of one to a former daemon. Each is known to the keeper. */
struct env_holder {
	const void
		*owner; /* the connection; NULL: a former daemon's, which ends with the process */
	pid_t pid;
	int pidfd;   /* -1: there is a connection */
	uint64_t id; /* with the keeper */
};

struct env_bound {
	char *host, *mount;
	dev_t dev;
	ino_t ino;
	mode_t type;
	bool rw;
	bool gone; /* its source was not there when the mount was made: nothing is mounted */
	struct env_holder *holders;
	size_t nholders;
};

/* A host directory that the environment shows copy-on-write, as it was when it was mounted. */
struct env_shown {
	char *host;
	dev_t dev;
	ino_t ino; /* 0: it was not there */
};

/* One mount with what serves it. */
struct env_mount {
	struct session *se;
	struct ovl *ovl;
	struct through *through; /* what is served; NULL: the ovl. Lives as long as the session */
	unsigned major,
		minor; /* of the mounted file system; a descriptor of it would keep it busy */
	char dir[4096];
	bool up; /* session and mount are there; the ovl may be there without */
};

/* What is allowed, and the writable places of it, newline-separated. @root: of a mount for provisioning, which shows no binds. */
struct env_policy {
	bool root;
	struct policy_rules rules;
	char writable[4096];
};

/* Collects garbage now and then. */
struct env_gc {
	pthread_t thread;
	bool running; /* of env_open and env_close alone */
	atomic_bool stop;
	pthread_mutex_t lock; /* leaf: for the condition */
	pthread_cond_t cond;
};

struct env {
	struct env_gc gc;

	/* fixed after env_open */
	struct store *store;
	int store_lock_fd;
	char *data_dir, *mount_root, *host_dir;
	bool own_ns, allow_other;
	bool through; /* it shows the host itself, and has nothing of its own */
	int userns_fd, mntns_fd;
	int ended_fd; /* epoll: holds the end of the session while that is served */
	struct session_ids ids;
	long long started_ms;

	struct journal *journal; /* fixed after env_open; NULL: none */
	struct store_log *log;   /* the same */
	int journal_fd, tied_fd;
	_Atomic uint64_t disk_max;
	atomic_bool made;          /* by env_open, and nobody has been told */
	uint64_t token_generation; /* of this process: its change log knows nothing of another's */

	pthread_mutex_t lock; /* protects all that follows; also orders the calls to link */
	struct keeper_link link;
	bool resuming; /* what the keeper has is the last daemon's */
	struct store_env rec;
	store_layer head_at, head_commit; /* env_head_locked's: of which head, and what it was */
	struct env_policy policy;         /* of the mount */
	struct env_mount cur;
	uint64_t generation;
	uint64_t mounts; /* of binds: counts whatever may change them; not a former daemon's */
	unsigned nmounts;
	atomic_bool
		resumable; /* read without the lock: another daemon could go on with the mount */
	struct env_bound *binds;
	size_t nbinds;
	struct env_shown *shown; /* the list never changes */
	size_t nshown;
	struct env_lease *leases;
	uint64_t next_id;    /* of what is kept */
	atomic_uint nleases; /* read without the lock */
	bool unsure;         /* a process may be there that no lease tells of */
	/* Provisioning is under way, or was when the last daemon died: the state to go back to unless it is kept. */
	bool provisioning;
	store_layer provision_from;
};

/* ---- env_view.c ---- */
/* 1: nothing is changed or committed on what it began with; 0: something is. */
int env_untouched_locked(struct env *e) MUST_USE;

/* ---- env_state.c ---- */
/* store_head_commit of where the environment is. */
int env_head_locked(struct env *e, store_layer *ret) MUST_USE;

/* fs/env/env_view.c: the place in the change log after @changes of them, for ctl_changes. */
uint64_t env_token_locked(const struct env *e, uint64_t changes);

static inline void env_unlockp(pthread_mutex_t **m)
{
	(void)pthread_mutex_unlock(*m);
}
/* Held to the end of the scope. */
#define ENV_LOCK(e)                                                                             \
	pthread_mutex_t *env_locked __attribute__((cleanup(env_unlockp), unused)) = &(e)->lock; \
	(void)pthread_mutex_lock(&(e)->lock)

/* ---- env_resume.c ---- */

/* The journal: the last daemon's, or a new one. Without one everything works, and ends with the daemon. */
int env_journal_open(struct env *e, struct keeper_link *kept) MUST_USE;
void env_journal_close(struct env *e);
/* Serve the last daemon's mount, or its tree through a fresh one, with what it left. */
int env_resume_locked(struct env *e, struct keeper_link *kept, struct diag *diag) MUST_USE;
/* So that another daemon can. */
void env_keep_mount_locked(struct env *e);
int env_keep_bind_locked(struct env *e, const struct env_bound *b,
			 const struct env_holder *h) MUST_USE;
void env_keep_lease_locked(struct env *e, struct env_lease *l);
/* Has the process ended? */
bool env_process_gone(int pidfd);

/* ---- env_mount.c ---- */

/* -EOPNOTSUPP with a sentence where there is nothing that could be kept, compared or taken back. */
/* -EINVAL with the rules, when @name (may be NULL) is none for a tag. */
int env_check_tag(const char *name, struct diag *diag) MUST_USE;
/* -EEXIST, and what has the name. */
int env_tag_taken(struct env *e, const char *name, store_layer by, struct diag *diag);
int env_check_kept(const struct env *e, struct diag *diag) MUST_USE;

/* @resume: the journal is a dead daemon's. */
int env_open_ovl(struct env *e, const struct policy_rules *policy, struct session *se, bool resume,
		 struct ovl **ret) MUST_USE;
int env_mount_tree(struct env *e, struct env_mount *m, struct diag *diag) MUST_USE;
/* O_PATH, of the mount and of nothing else that is at its place. -ENODEV: it was taken away. */
int env_mount_open(const struct env_mount *m, int *ret_fd) MUST_USE;
/* Which one @m->dir is, as it is served. */
int env_mount_note(struct env_mount *m) MUST_USE;
int env_bind_all(struct env *e, struct diag *diag, size_t *ret_failed) MUST_USE;
int env_mount_dir(struct env *e, char *ret, size_t size) MUST_USE;
int env_watch_end(struct env *e, struct session *se, bool on) MUST_USE;

/* Serve the open layer through a fresh mount with all binds. On failure nothing is served. */
int env_up_locked(struct env *e, struct diag *diag) MUST_USE;
/* End the mount; the ovl stays, with everything that was acknowledged. */
void env_down_locked(struct env *e);
/* End the mount with all on the disk. On failure the same is served again, by another mount. */
int env_leave_locked(struct env *e, struct diag *diag) MUST_USE;
/* Serve the ovl that is there by another mount. */
int env_again_locked(struct env *e, struct diag *diag) MUST_USE;
/* Drop the ovl; the result is its flush's. */
int env_drop_ovl_locked(struct env *e);
/* All that the kernel and we hold, to the disk. */
int env_quiesce_locked(struct env *e) MUST_USE;
/* All to the disk, then another mount of the same. */
int env_fresh_locked(struct env *e, struct diag *diag) MUST_USE;
/* -EIO with a sentence when an earlier failure left nothing mounted and mounting fails again. */
int env_ensure_locked(struct env *e, struct diag *diag) MUST_USE;

/* ---- env_lease.c ---- */
/* What shared mappings hold comes down: before a state is taken. */
int env_push_locked(struct env *e) MUST_USE;
int env_check_idle_locked(struct env *e, const void *owner, struct diag *diag) MUST_USE;
/* -EBUSY with a list when anybody holds a lease: the policy of what they do must not change. */
int env_check_leases_locked(struct env *e, struct diag *diag) MUST_USE;
int env_lease_locked(struct env *e, const void *owner, const struct env_want *want, int pidfd,
		     struct diag *diag) MUST_USE;
void env_unlease_locked(struct env *e, const void *owner);
unsigned env_commands_locked(const struct env *e);
void env_kill_leases_locked(struct env *e, const void *owner);

/* ---- env_provision.c ---- */
/* The state before it is sealed, and noted in the store. */
int env_provision_begin_locked(struct env *e, struct diag *diag) MUST_USE;
/* Nobody holds it any more: back to the state before, if it was not kept. A failure is logged. */
void env_provision_over_locked(struct env *e);
/* The same, for who is about to use the environment; -EBUSY: somebody holds it. */
int env_provision_settle_locked(struct env *e, struct diag *diag) MUST_USE;
/* Whoever holds it is killed, and then the same. */
int env_provision_end_locked(struct env *e, struct diag *diag) MUST_USE;
/* What a former daemon left; nothing is served yet, or with a lease that is there still. */
int env_provision_found_locked(struct env *e, struct diag *diag) MUST_USE;

/* ---- env_state.c, for it ---- */
int env_checkpoint_locked(struct env *e, const char *message, struct diag *diag) MUST_USE;
int env_go_back_locked(struct env *e, store_layer target, struct diag *diag) MUST_USE;

/* ---- env_gc.c ---- */
int env_gc_start(struct env *e) MUST_USE;
void env_gc_stop(struct env *e);

int env_shown_list(struct env *e) MUST_USE;
void env_shown_free(struct env *e);
/* Before a mount: what it will show. */
void env_shown_note_locked(struct env *e);
/* One of the directories is not the one that the mount shows: it was removed, and made anew. */
bool env_shown_replaced_locked(const struct env *e);

/* ---- env_bind.c ---- */
/* -EEXIST when a bind hides one of @overlays (host, mount, ...): what is asked for as copy-on-write
 * would be written through. */
int env_binds_check_locked(const struct env *e, char *const *overlays, struct diag *diag) MUST_USE;
void env_binds_free(struct env *e);
/* One more; takes @h->pidfd over on success. */
int env_bound_hold(struct env_bound *b, const struct env_holder *h) MUST_USE;
void env_bound_release(struct env_bound *b);
/* What is bound just so already; NULL: nothing is. */
struct env_bound *env_bound_find(struct env *e, const struct env_bound *b);
/* See env_prune. */
bool env_binds_prune_locked(struct env *e);

/* ---- env_policy.c ---- */
void env_list_free(char **list);
/* An absolute path without ".", "..", "//" or a slash at the end. */
bool env_path_clean(const char *path);
/* Does it say more than which places are writable? What is bound into the mount escapes it then. */
bool env_policy_whole(const struct env_policy *p);
/* @rules as policy_rules_encode() writes them, else places; both NULL: the agent default. */
int env_policy_parse(char *const *places, const struct ctl_bytes *rules, struct diag *diag,
		     struct env_policy *ret) MUST_USE;
int env_policy_save(const struct policy_rules *rules, int *ret_fd) MUST_USE;
/* Whose owners are whose in a mount under it. */
void env_policy_ids(const struct env_policy *p, struct session_ids *ids);
int env_policy_load(int fd, struct env_policy *ret) MUST_USE;

/* ---- env_place.c ---- */
/* The file that tells; NULL: no memory. */
char *env_places_path(const char *data_dir, const char *name);
/* @overlays are the directories that the environment was used with before, and are remembered now: -EEXIST where one is another
 * and there are changes or commits, with @refuse; without it @note says so. */
int env_places_check_locked(struct env *e, char *const *overlays, bool refuse, struct diag *diag,
			    struct diag *note) MUST_USE;

/* ---- env_overlay.c ---- */
/* host, mount, ...: what was laid over the base when the environment was made. */
int env_overlays_list(struct store *s, store_layer base, char ***ret) MUST_USE;
int env_overlays_check(struct store *s, const struct store_env *rec, char *const *overlays,
		       struct diag *diag) MUST_USE;
/* @base is what it began on, as a name or as content: -EEXIST; of a name alone that means other content by now, @note says so. */
int env_base_check(struct store *s, const struct store_env *rec, const char *base,
		   struct diag *diag, struct diag *note) MUST_USE;
int env_create(struct store *s, const struct env_opts *o, struct diag *diag,
	       struct store_env *ret) MUST_USE;
