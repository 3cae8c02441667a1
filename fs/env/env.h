/*
 * fs/env/env.h - one environment while it is served: its record in the store, the file system over its open
 * layer, the mount, what is bound into it, and who uses it.
 *
 * Threads: every call but env_open and env_close may come from any thread that is not a FUSE worker;
 * env.lock orders them. Callbacks run without it.
 * Errors: negative errno with a sentence in @diag, as ctl_client.h lists them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "fs/ctl/ctl_client.h"
#include "fs/env/keeper.h"
#include "fs/fuse/session.h"

struct env;
struct store;

/* What a daemon keeps with the keeper for the next one (fs/env/keeper.h). Both are one build, or the keeper's
 * state has another version. */
struct env_saved {
	char dir[4096];
	uint64_t generation;
	uint64_t disk_max;
	uint32_t nmounts, pad;
	struct session_init init;
};
struct env_saved_bind {
	char host[4096], mount[4000];
	uint64_t dev, ino;
	uint32_t type, rw;
	int32_t pid;
};

struct env_opts {
	const char *data_dir, *name;
	const char *base; /* NULL: "host" */
	bool create;
	char *const *overlays;  /* host, mount, ...; NULL: none asked for */
	char *const *writable;  /* NULL: the agent default */
	const char *mount_root; /* fresh mounts appear in directories of their own below */
	const char *host_dir;   /* or all of them here, visible on the host */
	struct keeper_link link;
	/* NULL, or what the last daemon kept; descriptors that are taken become -1. */
	struct keeper_link *kept;
	int tied_fd; /* its other end closes when the mounts are over for good; -1 */
	bool own_ns; /* the mounts live in this process's namespaces */
	bool allow_other;
	struct session_ids ids;
	uint64_t disk_max; /* bytes by which the store may become larger; 0: by what is free */
};
/* Opens the store, makes the environment when asked to, mounts it. -EBUSY another process serves it. */
int env_open(const struct env_opts *o, struct diag *diag, struct env **ret) MUST_USE;
/* Unmounts and flushes; the result is the flush's. */
int env_close(struct env *e);

/* Another limit of how much larger the store may become, since the first daemon; 0: by what is free now. */
int env_set_disk_max(struct env *e, uint64_t max, struct diag *diag) MUST_USE;

/* Readable when the mount is gone without our doing. The descriptor is the environment's and stays the same
 * through all moves, which end mounts, too: those ends are not seen here. Waits for nobody. */
int env_ended_fd(const struct env *e);
/* Something changed in the table of mounts: is ours still where it was? *ret_busy: it is being changed by ourselves; ask
 * again. */
bool env_detached(struct env *e, bool *ret_busy);
/* It is gone: those who hold ctl_attach.tied_fd are told, before all is brought to an end. */
void env_tell_gone(struct env *e);

/* store_broken_fd */
int env_broken_fd(const struct env *e);
/* Could another daemon go on now, with all that was acknowledged? Waits for nobody, nor do the next three. */
bool env_may_hand_over(struct env *e);
/* It will not be soon: who waits for that gets the error now. False: the mount is being changed; ask again. */
bool env_patience_end(struct env *e) MUST_USE;
struct mend_note;
void env_keep_mend(struct env *e, const struct mend_note *n);

/* It was made when it was opened; true once. */
bool env_made(struct env *e) MUST_USE;
/* -ESTALE: the store was removed; nothing that is done here will be found again. */
int env_check_store(const struct env *e, struct diag *diag) MUST_USE;
struct env_asked {
	char *const *overlays; /* host, mount, ...; NULL: whoever only looks */
	const char *base;      /* the same */
	bool through;
	bool same_dirs, tell_dirs; /* see ctl_env_opts */
};
/* -EEXIST: the overlays are not what the environment shows, or are other directories by now, the base is not what it began on, or
 * it writes through and that was not asked for, or the other way round. -ENOENT: there is no such base. @note: what is as asked for
 * and yet not what may be expected, one sentence. */
int env_agree(struct env *e, const struct env_asked *a, struct diag *diag,
	      struct diag *note) MUST_USE;
struct env_want {
	const char *what; /* a lease comes with it, as from env_lease; NULL: none */
	bool brief;       /* it holds the policy, and nothing else */
	bool through; /* what is written goes to the host: -EEXIST where it does not, and the other way round */
	/* @policy as policy_rules_encode() writes it, or else @writable; both empty: the agent default. */
	char *const *writable;
	const struct ctl_bytes *policy;
	bool provision; /* instead of both: as root, for whom all is writable, alone; until env_provision_keep or the lease's end */
};
/* The mount under the policy that is wanted, of which all of its life is: a fresh one where the mount has another. -EBUSY,
 * and nothing is changed: anybody holds a lease under another policy, or has bound something that a whole policy
 * could not judge. The descriptors in @ret are the caller's. A fresh mount also when a host directory that is shown was
 * made anew, and nobody but @owner holds a lease. */
int env_attach(struct env *e, const void *owner, const struct env_want *want, struct diag *diag,
	       struct ctl_attach *ret) MUST_USE;

/* Keep the control socket for the next daemon. */
void env_keep_listen(struct env *e, int fd);
/* Ends what processes held that a former daemon served and that have ended; true when others are left. */
bool env_prune(struct env *e);
/* All to the disk, so that another daemon may go on. -EBUSY: it could not, and others than @owner run commands. */
int env_prepare_replace(struct env *e, const void *owner, struct diag *diag) MUST_USE;

/* @owner: whose lease it is, one connection. @pidfd is taken over on success. */
int env_lease(struct env *e, const void *owner, const char *what, int pidfd,
	      struct diag *diag) MUST_USE;
void env_unlease(struct env *e, const void *owner);
/* -EBUSY with a list of what runs, when others hold leases. */
int env_check_idle(struct env *e, const void *owner, struct diag *diag) MUST_USE;
unsigned env_leases(struct env *e); /* waits for nobody */

/* Bound as long as one @owner, a connection of process @pid, wants it. */
int env_bind(struct env *e, const void *owner, pid_t pid, int host_fd, const char *host,
	     const char *mount, bool rw, struct diag *diag) MUST_USE;
int env_unbind(struct env *e, const void *owner, const char *mount, struct diag *diag) MUST_USE;
void env_unbind_all(struct env *e, const void *owner);

int env_status(struct env *e, struct diag *diag, struct ctl_status *ret) MUST_USE;
int env_commit(struct env *e, const char *message, const char *label, const char *expect,
	       struct diag *diag, struct ctl_commit *ret) MUST_USE;
/* An automatic state of what is there, whose cost is that of writing down what is not on the disk yet. -ENODATA: nothing
 * has changed since the last state. */
int env_checkpoint(struct env *e, const char *message, const char *label, struct diag *diag,
		   struct ctl_commit *ret) MUST_USE;
/* What @owner provisions stays, and is on the disk; else its lease's end goes back to the state before. So may a connection do
 * that has taken the place of one to a former daemon. -ENOENT: it provisions nothing (any more); otherwise, on failure, nothing
 * is decided. */
int env_provision_keep(struct env *e, const void *owner, struct diag *diag) MUST_USE;
/* It is taken back now, and whether that went well is told. -ENOENT as above. */
int env_provision_drop(struct env *e, const void *owner, struct diag *diag) MUST_USE;
enum env_move {
	ENV_ROLLBACK,
	ENV_RESET,
	ENV_UNDO
};
/* @rev only for ENV_ROLLBACK. */
int env_move(struct env *e, const void *owner, enum env_move what, const char *rev, bool force,
	     struct diag *diag, struct ctl_moved *ret) MUST_USE;
int env_flush(struct env *e, struct diag *diag) MUST_USE;

/* The state @rev alone. -ENOENT: a base, or nothing. @ret is overwritten, and the caller's to release. */
int env_log_one(struct env *e, const char *rev, struct diag *diag, struct ctl_commit *ret) MUST_USE;
int env_log(struct env *e, bool all, bool automatic,
	    int (*fn)(void *arg, const struct ctl_commit *cm), void *arg) MUST_USE;
/* Names: ctl_tag and its like of ctl_client.h. @ret is overwritten, and the caller's to release. */
int env_tag(struct env *e, const char *name, const char *rev, bool force, struct diag *diag,
	    struct ctl_ref *ret) MUST_USE;
int env_untag(struct env *e, const char *name, struct diag *diag, struct ctl_ref *ret) MUST_USE;
/* @fn is called with env.lock held here: it only collects. */
int env_refs(struct env *e, bool all, int (*fn)(void *arg, const struct ctl_ref *ref),
	     void *arg) MUST_USE;
/* @all: also times, and what was taken over from host directories. */
int env_diff(struct env *e, const char *a, const char *b, bool all, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg) MUST_USE;
/* States that stay open for the next call: both that a diff is of. Zeroed at first; env_looks_end() before the environment's end, and soon.
 * One thread at a time. */
struct env_looks {
	struct env_look *v[2];
	unsigned next; /* to be replaced */
};
int env_cat(struct env *e, struct env_looks *keep, const char *rev, const char *path,
	    struct diag *diag, int *ret_fd, uint32_t *ret_mode) MUST_USE;
void env_looks_end(struct env_looks *l);
int env_own(struct env *e, const char *path, struct diag *diag) MUST_USE;
int env_ls(struct env *e, const char *rev, const char *path, bool below, struct diag *diag,
	   int (*fn)(void *arg, const struct ctl_file *f), void *arg) MUST_USE;
/* @fn is called with env.lock held here: it only collects. */
int env_changes(struct env *e, uint64_t token, struct diag *diag, uint64_t *ret_token,
		int (*fn)(void *arg, const char *path, char what), void *arg) MUST_USE;

struct denial;
/* What the policy refused since @token, 0: since the mount began. *ret_total: how often. @fn only collects. -ESTALE:
 * the token is of an earlier mount. */
int env_denials(struct env *e, uint64_t token, struct diag *diag, uint64_t *ret_token,
		uint64_t *ret_total, int (*fn)(void *arg, const struct denial *d),
		void *arg) MUST_USE;

/* "REV" of environment @env, or "ENV:REV". */
int env_resolve(struct store *s, const char *env, const char *rev, struct diag *diag,
		uint64_t *ret_layer) MUST_USE;

/* A number in the environment of this process; @unset without one from 0 to @max. */
long env_setting(const char *name, long unset, long max);
struct store_gc_opts;
/* How much a collection leaves for undo: what is asked for, or RATTAN_KEEP_STATES and RATTAN_KEEP_DAYS. */
void env_gc_keep(struct store_gc_opts *o);
