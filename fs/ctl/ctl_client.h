/*
 * fs/ctl/ctl_client.h - how everybody but the daemon reaches an environment.
 *
 * Starts rattan-fs for the environment when it is not running, speaks the versioned msgpack protocol
 * over its Unix socket (docs/control-protocol.md), and receives descriptors. Synchronous calls.
 * Threads: a struct ctl belongs to one thread at a time; use one per thread.
 * Errors: negative errno, with the daemon's sentence in @diag. -ECONNREFUSED no daemon could be
 * started; -EPROTONOSUPPORT another protocol version; -EPIPE the daemon went away during the call
 * (the caller may open a new ctl and ask again; nothing acknowledged is lost); -ENOENT unknown
 * revision or environment; -EBUSY commands are running; -EEXIST.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"

struct ctl;

struct ctl_overlay {
	const char *host;  /* absolute, existing directory */
	const char *mount; /* "/workspace" */
};

struct ctl_bytes {
	uint8_t *data;
	size_t len;
};

/* The name of what an environment that writes through begins on: nothing. */
#define CTL_BASE_THROUGH "through"

struct ctl_env_opts {
	const char *data_dir; /* NULL: ctl_data_dir() */
	const char *env;      /* NULL: "default" */
	const char *base;     /* NULL: "host"; only used when the environment is made */
	bool create;          /* make it when missing; else -ENOENT */
	bool no_start;        /* only talk to a daemon that runs; else -ECONNREFUSED */
	const struct ctl_overlay
		*overlays; /* must be there already, or the environment is made with them */
	size_t noverlays;
	/* The policy of this connection's attachments: writable places, NULL-terminated; NULL: the agent's
	 * (/workspace /tmp /var/tmp /home/user), whatever others have. */
	const char *const *writable;
	/* The whole policy instead, as policy/rules.h writes it; empty: none. */
	struct ctl_bytes policy;
	/* It shows the host itself, and what is written goes there: -EEXIST when it was made without, or the other way
	 * round. Then there is no base, and there are no overlays. */
	bool through;
	uint64_t
		disk_max; /* bytes by which its daemons may make the store larger, since the first; 0: as it is */
};

/* $RATTAN_DATA_DIR, $XDG_DATA_HOME/rattan, ~/.local/share/rattan; owned by the caller. */
int ctl_data_dir(char **ret) MUST_USE;
/* The directory of sockets and mount points, 0700: $XDG_RUNTIME_DIR/rattan or /tmp/rattan-UID. */
int ctl_runtime_dir(char **ret) MUST_USE;

int ctl_open(const struct ctl_env_opts *o, struct diag *diag, struct ctl **ret) MUST_USE;
void ctl_close(struct ctl *c);
/* The connection itself, to poll for its end; stays @c's. */
int ctl_fd(const struct ctl *c);
/* Between calls: is the daemon still at the other end? Costs no call, and may be wrong right after. */
bool ctl_alive(const struct ctl *c);
static inline void cleanup_ctlp(struct ctl **c)
{
	ctl_close(*c);
}
#define cleanup_ctl __attribute__((cleanup(cleanup_ctlp)))

/* ---- the mount ---- */

struct ctl_attach {
	int userns_fd, mntns_fd; /* -1 both when the mount is in the host's namespace */
	int tied_fd;             /* its other end closes when the mount is over; -1: ask ctl_fd() */
	int root_fd;             /* O_PATH of the mounted root: openat2 RESOLVE_IN_ROOT from here */
	char root[4096];         /* its path, inside the namespace */
	uint64_t generation;     /* changes with every fresh mount (rollback, other policy) */
	char writable[4096]; /* the policy's places, newline-separated; "" is none, "/" is all */
	uint64_t token;      /* what changes from now on: for ctl_changes */
	uint64_t denied;     /* what is refused from now on: for ctl_denials */
};
struct ctl_attach_opts {
	const char *what; /* ctl_lease in the same call; NULL: no lease */
	bool brief;       /* one that no rollback waits for: it holds the policy alone */
	/* Under this policy, as in ctl_env_opts; NULL: what the connection was opened with. */
	const struct ctl_bytes *policy;
};
/* The mount under the policy that is asked for, and a lease with it: nothing comes in between. A mount has one policy for
 * its life, so that what is handed out never serves another. -EBUSY: others hold leases under another policy, or have
 * bound what a whole policy could not judge; ask again when they have ended. No lease on failure. */
int ctl_attach_as(struct ctl *c, const struct ctl_attach_opts *o, struct diag *diag,
		  struct ctl_attach *ret) MUST_USE;
/* The same with nothing said, and no lease: another client's policy may end the mount at any time. */
int ctl_attach(struct ctl *c, struct diag *diag, struct ctl_attach *ret) MUST_USE;
void ctl_attach_release(struct ctl_attach *a);

/* While a lease is held, a rollback needs force. One lease a connection: a second call replaces the
 * first. @pidfd (may be -1) names the process to kill then;
 * it stays the caller's. Ends with ctl_unlease or the connection. */
int ctl_lease(struct ctl *c, const char *what, int pidfd, struct diag *diag) MUST_USE;
int ctl_unlease(struct ctl *c) MUST_USE;

/* Bind mounts over the tree, in the mount's namespace, seen by commands and file tools alike. The
 * directory is named by an open descriptor (pinned). Lasts until unbind or the connection's end, across
 * rollbacks; several connections may ask for the same. -EEXIST something else is bound there; -EINVAL
 * bad mount point. */
int ctl_bind(struct ctl *c, int host_fd, const char *host, const char *mount, bool rw,
	     struct diag *diag) MUST_USE;
int ctl_unbind(struct ctl *c, const char *mount, struct diag *diag) MUST_USE;

/* ---- state ---- */

struct ctl_bind_info {
	char *host, *mount;
	bool rw;
};
struct ctl_status {
	char env[65], base[65];
	char head[65]; /* commit id in hex, "" at the base */
	char head_label[128];
	bool dirty;
	uint64_t added, modified, deleted, renamed; /* uncommitted */
	uint64_t bytes_dirty;
	uint64_t token; /* for ctl_changes */
	unsigned leases;
	char **overlays; /* "HOST=MOUNT", NULL-terminated */
	struct ctl_bind_info *binds;
	size_t nbinds;
	int daemon_pid;
	uint64_t uptime_s, disk_free, store_bytes;
};
int ctl_status(struct ctl *c, struct diag *diag, struct ctl_status *ret) MUST_USE;
void ctl_status_release(struct ctl_status *s);

struct ctl_commit {
	char id[65], parent[65];
	char env[65], label[128];
	char *message;
	bool automatic;
	bool damaged; /* only the id is known, or not even that */
	struct timespec time;
	uint64_t added, modified, deleted;
};
void ctl_commit_release(struct ctl_commit *c);

/* @expect: head must be this revision, else -ESTALE; NULL: no check. -ENODATA: nothing to commit. */
int ctl_commit(struct ctl *c, const char *message, const char *label, const char *expect,
	       struct diag *diag, struct ctl_commit *ret) MUST_USE;
struct ctl_moved {
	char from[65],
		to[65]; /* commit ids; "" is the base. from: where the state left behind is kept */
	bool saved;     /* uncommitted changes were sealed as @from */
};
int ctl_rollback(struct ctl *c, const char *rev, bool force, struct diag *diag,
		 struct ctl_moved *ret) MUST_USE;
/* Drop uncommitted changes (kept as an automatic state, so that undo can bring them back). */
int ctl_reset(struct ctl *c, bool force, struct diag *diag, struct ctl_moved *ret) MUST_USE;
/* Back to before the last rollback, reset or undo-able move. -ENODATA: nothing to undo. */
int ctl_undo(struct ctl *c, bool force, struct diag *diag, struct ctl_moved *ret) MUST_USE;

/* Newest first. @all: other environments' too. */
int ctl_log(struct ctl *c, bool all, bool with_automatic, struct diag *diag,
	    int (*fn)(void *arg, const struct ctl_commit *cm), void *arg) MUST_USE;

struct ctl_change {
	char kind; /* A M D R T, as fs/core/diff.h */
	const char *path, *old_path;
	uint32_t mode;
	uint64_t size;
};
/* NULL, NULL: head to the working tree; A, NULL: A to the working tree; A, B: two revisions. */
int ctl_diff(struct ctl *c, const char *a, const char *b, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg) MUST_USE;
/* The content of @path at @rev (NULL: working tree) as a sealed memfd, and its mode; a symlink's
 * target is its content. -EISDIR, -ENOENT. */
int ctl_cat(struct ctl *c, const char *rev, const char *path, struct diag *diag, int *ret_fd,
	    uint32_t *ret_mode) MUST_USE;
/* Paths changed since @token (0: since the mount); -ESTALE too long ago. *ret_token: now. */
int ctl_changes(struct ctl *c, uint64_t token, struct diag *diag, uint64_t *ret_token,
		int (*fn)(void *arg, const char *path, char what), void *arg) MUST_USE;
/* Something that the policy refused. */
struct ctl_denial {
	char *path, *op, *why; /* the rule, in words */
	uint64_t count;        /* times since the mount */
	uint64_t token;        /* the protocol's own */
};
/* What was refused since @token (0: since the mount), the latest first, as far as it is remembered; *ret_total: how
 * often. @fn's strings are lent. -ESTALE: the token is of an earlier mount. *ret_token: now. */
int ctl_denials(struct ctl *c, uint64_t token, struct diag *diag, uint64_t *ret_token,
		uint64_t *ret_total, int (*fn)(void *arg, const struct ctl_denial *d),
		void *arg) MUST_USE;
/* All dirty data to the disk. */
int ctl_flush(struct ctl *c, struct diag *diag) MUST_USE;
/* Another rattan-fs, as it is installed now, goes on with the mount: commands that run notice nothing. Returns
 * when it does; connections to the old one have ended. -EOPNOTSUPP: not this mount, or not this kernel. */
int ctl_restart(struct ctl *c, struct diag *diag) MUST_USE;
/* Orderly end: flush, unmount, exit. -EBUSY while commands run, unless @force. */
int ctl_shutdown(struct ctl *c, bool force, struct diag *diag) MUST_USE;

/* ---- without a daemon: list, heal and remove environments of a data directory ---- */

struct ctl_env_info {
	char name[65], base[65], head[65];
	bool running;
	bool stale;   /* was found dead with something left over, which has been cleaned up */
	bool dirty;   /* uncommitted changes in the store */
	bool damaged; /* only the name is known, or not even that */
	struct timespec created;
};
int ctl_env_list(const char *data_dir, struct diag *diag,
		 int (*fn)(void *arg, const struct ctl_env_info *e), void *arg) MUST_USE;
/* An environment @name at state @rev of @env (NULL: head; another one's by its id), sharing all that is there:
 * constant time. @ret: the new one, and the one that it came from, whose uncommitted changes (.dirty) are not in
 * it. -EEXIST: there is one of that name. */
int ctl_env_fork(const char *data_dir, const char *env, const char *rev, const char *name,
		 struct diag *diag, struct ctl_env_info ret[static 2]) MUST_USE;
/* Ends its daemon first (-EBUSY while commands run, unless @force). */
int ctl_env_remove(const char *data_dir, const char *env, bool force, struct diag *diag) MUST_USE;
struct ctl_finding {
	char state; /* D damage, R damage that a repair rebuilds, F rebuilt, N a note */
	char *kind, *where, *text;
	char *path;             /* or NULL */
	char **envs, **commits; /* that see it; some of them when there are many */
	uint64_t nenvs, ncommits;
};
struct ctl_fsck_sum {
	uint64_t records, chunks, bytes, pages, layers, commits, envs;
	uint64_t damaged, repairable, repaired, notes;
};
struct ctl_fsck_opts {
	const char *data_dir; /* NULL: ctl_data_dir() */
	bool quick;           /* no chunk's bytes */
	bool repair;          /* -EBUSY while something uses the store */
	int (*finding)(void *arg, const struct ctl_finding *f);
	/* May be NULL; @total 0: not known. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	void *arg;
};
/* Check the whole store; beside whatever uses it. 0: all was looked at, @ret says how it went. -ENOENT: no
 * store. */
int ctl_fsck(const struct ctl_fsck_opts *o, struct diag *diag, struct ctl_fsck_sum *ret) MUST_USE;
struct ctl_gc_sum {
	uint64_t layers, records; /* removed, or to be removed */
	uint64_t states, moves;
	uint64_t chunks, chunk_bytes, live_chunks;
	uint64_t damaged;                /* layers and chunks that stay, being damaged */
	uint64_t free_bytes, given_back; /* in the store's files; to the disk */
};
struct ctl_gc_opts {
	const char *data_dir; /* NULL: ctl_data_dir() */
	bool dry_run, shrink; /* remove nothing; give free room back to the disk */
	bool removed;         /* also the commits of environments that were removed */
	/* What undo can reach: so many of an environment's states, so young; 0: as set for rattan-fs, or 100
	 * and 30. The newest one stays. */
	unsigned keep_states, keep_days;
	/* May be NULL; @total 0: not known. Nonzero: stop. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	void *arg;
};
/* Collect garbage, beside whatever uses the store. -EBUSY: somebody does; -EBADMSG: damage; -ENOENT: no store. */
int ctl_gc(const struct ctl_gc_opts *o, struct diag *diag, struct ctl_gc_sum *ret) MUST_USE;
/* A commit (or "ENV:REV") as a read-only file system at @dir, visible on the host, served by a
 * process of its own until ctl_umount. */
int ctl_mount(const char *data_dir, const char *env, const char *rev, const char *dir,
	      struct diag *diag) MUST_USE;
int ctl_umount(const char *dir, struct diag *diag) MUST_USE;
