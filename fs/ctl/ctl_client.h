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

#define CTL_BASE_HOST    "host"
/* The name of what an environment that writes through begins on: nothing. */
#define CTL_BASE_THROUGH "through"

struct ctl_env_opts {
	const char *data_dir; /* NULL: ctl_data_dir() */
	const char *env;      /* NULL: "default" */
	const char *
		base; /* what it is made on, or -EEXIST when it has another; NULL: "host", or what it has */
	bool create;   /* make it when missing; else -ENOENT */
	bool no_start; /* only talk to a daemon that runs; else -ECONNREFUSED */
	const struct ctl_overlay
		*overlays; /* must be there already, or the environment is made with them */
	size_t noverlays;
	/* An overlay that is another directory by now than the environment was used with before: -EEXIST where it has changes or
	 * commits; or only said (ctl_opened_note). Neither: nothing. */
	bool same_dirs, tell_dirs;
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
/* What whoever opened it should be told, one sentence; "": nothing. */
const char *ctl_opened_note(const struct ctl *c);
/* The environment was made for it. */
bool ctl_opened_new(const struct ctl *c);
void ctl_close(struct ctl *c);
/* From now on, every fifth of a second in which an answer is waited for, @fn is called (NULL: no more); when it is nonzero the call is
 * -ECANCELED: what was asked for goes on, and the connection is of no more use. */
void ctl_on_wait(struct ctl *c, int (*fn)(void *arg), void *arg);
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
	uint64_t mounts;         /* changes with what is bound over it, and with the daemon */
	char writable[4096]; /* the policy's places, newline-separated; "" is none, "/" is all */
	uint64_t token;      /* what changes from now on: for ctl_changes */
	uint64_t denied;     /* what is refused from now on: for ctl_denials */
};
struct ctl_attach_opts {
	const char *what; /* ctl_lease in the same call; NULL: no lease */
	bool brief;       /* one that no rollback waits for: it holds the policy alone */
	/* Under this policy, as in ctl_env_opts; NULL: what the connection was opened with. */
	const struct ctl_bytes *policy;
	/* Instead of both: for provisioning. Everything is writable, owners are as stored for who asks by
	 * stage3/root_abi.h, what is made is root's, binds are not there, and nobody else has the tree meanwhile. It comes
	 * with a lease, at whose end all that was changed since is taken back, unless ctl_keep was called: also when the
	 * client, or the daemon, is killed. */
	bool provision;
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
/* What was provisioned stays, and is uncommitted like other changes. -ENOENT: it has been taken back. */
int ctl_keep(struct ctl *c, struct diag *diag) MUST_USE;
/* What was provisioned is taken back, which the end of the lease would do without a word. -ENOENT: it has been. */
int ctl_drop(struct ctl *c, struct diag *diag) MUST_USE;

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
	uint64_t added, modified, deleted,
		renamed; /* uncommitted; all 0 of what is dirty: nobody can count it */
	uint64_t bytes_dirty;
	uint64_t token; /* for ctl_changes */
	unsigned leases;
	char **overlays; /* "HOST=MOUNT", NULL-terminated */
	struct ctl_bind_info *binds;
	size_t nbinds;
	int daemon_pid;
	uint64_t uptime_s, disk_free, store_bytes;
	/* Bytes by which its daemons may make the store larger, and have: ctl_env_opts. */
	uint64_t disk_max, disk_used;
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

/* @label tags the commit (ctl_tag): -EINVAL no name, -EEXIST another state's; then nothing is committed. @expect: head must be
 * this revision, else -ESTALE; NULL: no check. -ENODATA: nothing to commit, and no tag. */
int ctl_commit(struct ctl *c, const char *message, const char *label, const char *expect,
	       struct diag *diag, struct ctl_commit *ret) MUST_USE;
/* An automatic state, in constant time; head stays what it was. -ENODATA: nothing has changed since the last state. */
int ctl_checkpoint(struct ctl *c, const char *message, const char *label, struct diag *diag,
		   struct ctl_commit *ret) MUST_USE;
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

/* The commit or automatic state that @rev names. -ENOENT: a base, which no commit has made, or nothing. @ret is the caller's to release. */
int ctl_log_one(struct ctl *c, const char *rev, struct diag *diag, struct ctl_commit *ret) MUST_USE;
/* Newest first. @all: other environments' too. */
int ctl_log(struct ctl *c, bool all, bool with_automatic, struct diag *diag,
	    int (*fn)(void *arg, const struct ctl_commit *cm), void *arg) MUST_USE;

/* A name for a state, as a revision is written. */
struct ctl_ref {
	char name[256];
	char id[65];   /* the commit or automatic state; "" a base, or damaged */
	char was[65];  /* of ctl_tag: what it named before; "" nothing, or a base */
	char *message; /* the commit's; may be NULL */
	struct timespec time;
	bool automatic;
	bool at_base; /* this environment's base */
	bool damaged; /* what it names cannot be read */
};
void ctl_ref_release(struct ctl_ref *r);
/* A tag of the environment for @rev (NULL: head). -EINVAL no name; -EEXIST it names another state, and not @force. */
int ctl_tag(struct ctl *c, const char *name, const char *rev, bool force, struct diag *diag,
	    struct ctl_ref *ret) MUST_USE;
/* -ENOENT; @ret: what it named. */
int ctl_untag(struct ctl *c, const char *name, struct diag *diag, struct ctl_ref *ret) MUST_USE;
/* The environment's tags ("NAME"), the store's other refs ("base/NAME", "tag/NAME"), and with @all the tags of other
 * environments ("ENV:NAME"). */
int ctl_refs(struct ctl *c, bool all, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_ref *r), void *arg) MUST_USE;

enum ctl_what { /* of a change, as fs/core/diff.h */
	CTL_CONTENT = 1 << 0,
	CTL_MODE = 1 << 1,
	CTL_OWNER = 1 << 2,
	CTL_XATTRS = 1 << 3,
	CTL_TIMES = 1 << 4,
	CTL_ELSEWHERE = 1 << 5, /* ctl_overlaid alone */
};
struct ctl_change {
	char kind; /* A M D R T, as fs/core/diff.h */
	const char *path, *old_path;
	uint32_t mode;
	uint64_t size;
	uint32_t
		what; /* enum ctl_what: how it differs, of M and R; of A, CTL_ELSEWHERE or nothing */
	/* ctl_overlaid alone: the host's file whose name the change took over, as it was then; hid_mode 0: there was none,
	 * or it is not known. @hid_at: when, by the clock that file systems stamp times with. */
	uint32_t hid_mode;
	uint64_t hid_dev, hid_ino, hid_size;
	struct timespec hid_mtime, hid_ctime, hid_at;
};
/* NULL, NULL: head to the working tree; A, NULL: A to the working tree; A, B: two revisions. */
int ctl_diff(struct ctl *c, const char *a, const char *b, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg) MUST_USE;
/* What the working tree has made of the base and of the host directories that are laid over it, as they are now: also times, and those of
 * directories; with what each change took over, and which show what a host directory has at another place (CTL_ELSEWHERE; of M also alone,
 * where nothing differs): a change of that place would change them, until ctl_own(). A path may be renamed to itself: its directory was moved, and
 * it stayed. */
int ctl_overlaid(struct ctl *c, struct diag *diag,
		 int (*fn)(void *arg, const struct ctl_change *ch), void *arg) MUST_USE;
/* What is at @path of the working tree, with all below, becomes its own: host files are copied, and host directories' names recorded, as
 * they are now. Nothing changes by it. -ESTALE: all but what is lost, because the host has changed or removed it since. */
int ctl_own(struct ctl *c, const char *path, struct diag *diag) MUST_USE;
/* The content of @path at @rev (NULL: working tree) as a sealed memfd, and its mode; a symlink's
 * target is its content. -EISDIR, -ENOENT. */
int ctl_cat(struct ctl *c, const char *rev, const char *path, struct diag *diag, int *ret_fd,
	    uint32_t *ret_mode) MUST_USE;
struct ctl_file {
	const char *path;   /* absolute in the tree, lent */
	const char *target; /* of a symbolic link; NULL: of none */
	uint32_t mode;      /* with its type */
	uint64_t size;
	struct timespec mtime;
};
/* What is at @path at @rev (NULL: working tree): a directory's names, in their order, or the file alone; @below: with all below
 * that. @fn gets what it is given of as many as there are, and may stop it. */
int ctl_ls(struct ctl *c, const char *rev, const char *path, bool below, struct diag *diag,
	   int (*fn)(void *arg, const struct ctl_file *f), void *arg) MUST_USE;
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
	/* May be NULL; @total 0: not known. Nonzero: stop. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	int (*idle)(void *arg); /* see struct ctl_import_opts */
	void *arg;
};
/* Check the whole store; beside whatever uses it. 0: all was looked at, @ret says how it went. -ENOENT: no
 * store. */
int ctl_fsck(const struct ctl_fsck_opts *o, struct diag *diag, struct ctl_fsck_sum *ret) MUST_USE;
struct ctl_gc_sum {
	uint64_t layers, records; /* removed, or to be removed */
	uint64_t states, moves;
	uint64_t chunks, chunk_bytes, live_chunks;
	uint64_t packed, packed_from,
		packed_to;               /* chunks compressed, their bytes before and after */
	uint64_t damaged;                /* layers and chunks that stay, being damaged */
	uint64_t free_bytes, given_back; /* in the store's files; to the disk */
};
struct ctl_gc_opts {
	const char *data_dir; /* NULL: ctl_data_dir() */
	bool dry_run, shrink; /* remove nothing; give free room back to the disk */
	bool compress;        /* what stays, where that saves an eighth */
	bool removed;         /* also the commits of environments that were removed */
	/* What undo can reach: so many of an environment's states, so young; 0: as set for rattan-fs, or 100
	 * and 30. The newest one stays. */
	unsigned keep_states, keep_days;
	/* May be NULL; @total 0: not known. Nonzero: stop. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	int (*idle)(void *arg); /* see struct ctl_import_opts */
	void *arg;
};
/* Collect garbage, beside whatever uses the store. -EBUSY: somebody does; -EBADMSG: damage; -ENOENT: no store. */
int ctl_gc(const struct ctl_gc_opts *o, struct diag *diag, struct ctl_gc_sum *ret) MUST_USE;

/* ---- what takes the space (store/usage.h) ---- */

struct ctl_usage_size {
	uint64_t chunks, chunk_bytes, records, record_bytes;
};
struct ctl_usage_row {
	/* "environment", "base", "removed" (commits of removed environments), "other" */
	char kind[16];
	char name[65];                        /* "" of the last two */
	struct ctl_usage_size reaches, alone; /* alone: only it reaches that */
	/* Of alone: what its commits keep, what only undo goes back to. */
	struct ctl_usage_size commits, undo;
	uint64_t states; /* that undo can go back to */
};
struct ctl_usage_sum {
	struct ctl_usage_size total, shared, garbage;
	/* Compressed chunks: as stored, and what they hold. */
	uint64_t packed, packed_bytes, packed_raw;
	uint64_t chunk_file_bytes, meta_file_bytes, other_file_bytes; /* on the disk */
	uint64_t free_bytes;                                          /* in the first two */
	uint64_t damaged; /* records that do not decode: what they name counts as garbage */
};
struct ctl_stats_opts {
	const char *data_dir; /* NULL: ctl_data_dir() */
	int (*row)(void *arg, const struct ctl_usage_row *r);
	/* May be NULL; @total 0: not known. Nonzero: stop. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	int (*idle)(void *arg); /* see struct ctl_import_opts */
	void *arg;
};
/* Beside whatever uses the store; what running environments hold in memory is not counted yet. -ENOENT: no store; -EBADMSG: damage. */
int ctl_stats(const struct ctl_stats_opts *o, struct diag *diag,
	      struct ctl_usage_sum *ret) MUST_USE;

/* ---- root file systems in and out: docs/images.md ---- */

struct ctl_import_sum {
	char id[65];             /* of the content */
	uint64_t entries, bytes; /* of the tree's files */
	uint64_t written;        /* by which the store grew */
	uint64_t layers, reused; /* of these were there */
	uint64_t skipped;        /* sockets, and attributes that are not kept */
	uint64_t
		unread; /* files of a directory that an earlier import of it has read, and that are unchanged */
};
struct ctl_import_opts {
	const char *data_dir; /* NULL: ctl_data_dir(); made when missing */
	const char *kind;     /* "dir", "tar", "oci" */
	const char *src;      /* a path; "-": a tar archive on this process's standard input */
	const char *tag;      /* of an image in an OCI layout; NULL: the only one */
	const char *name;
	unsigned strip;    /* of "tar": components of each path that are dropped */
	bool replace;      /* instead of -EEXIST */
	bool reread;       /* of "dir": also what an earlier import of it has read */
	uint64_t disk_max; /* bytes by which the store may grow; 0: what is free */
	/* May be NULL; bytes, @total 0: not known. Nonzero: stop. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	/* May be NULL; every fifth of a second in which there is nothing new. Nonzero: stop; what was stopped has ended when the call
	 * returns. */
	int (*idle)(void *arg);
	void *arg;
};
/* A base @name for environments. What fails, or is stopped, leaves nothing. -EBADMSG: damaged or hostile. */
int ctl_import(const struct ctl_import_opts *o, struct diag *diag,
	       struct ctl_import_sum *ret) MUST_USE;

struct ctl_export_sum {
	char digest[65]; /* of an OCI image's manifest */
	uint64_t entries, bytes;
	uint64_t skipped; /* what the destination could not take */
	uint64_t layers;  /* of an OCI image */
};
struct ctl_export_opts {
	const char *data_dir, *kind;
	const char *env;  /* NULL: "default" */
	const char *rev;  /* or the name of a base */
	const char *dest; /* a path that is not there yet; "-": standard output, of "tar" */
	const char *tag;  /* of an OCI image; NULL: "latest" */
	const char *pack; /* "gzip", "zstd", "none"; NULL: gzip for "oci", none for "tar" */
	bool squash;      /* of an OCI image: one layer, not one for each commit */
	bool host; /* also what the tree shows of host directories, which is -EINVAL without */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	int (*idle)(void *arg); /* see struct ctl_import_opts */
	void *arg;
};
/* A sealed state; what is uncommitted is not in it. -EEXIST: there is something at the destination. */
int ctl_export(const struct ctl_export_opts *o, struct diag *diag,
	       struct ctl_export_sum *ret) MUST_USE;

struct ctl_had_sum {
	uint64_t layers, bytes;
	char manifest[65]; /* "" or: of several platforms this one is wanted */
};
/* What of the image whose manifest is the file "wanted" in the directory @layout need not be fetched: fs/image/image.h,
 * image_have(). A data directory without a store has nothing. */
int ctl_image_have(const char *data_dir, const char *layout, struct diag *diag,
		   struct ctl_had_sum *ret) MUST_USE;

struct ctl_base_info {
	char name[65], id[65]; /* id "": of "host" */
	char source[8];        /* "dir", "tar", "oci", "host" */
	char manager[8];       /* of packages: "apt", "pacman"; "" neither */
	struct timespec created;
	uint64_t entries, bytes;
};
int ctl_base_list(const char *data_dir, struct diag *diag,
		  int (*fn)(void *arg, const struct ctl_base_info *b), void *arg) MUST_USE;
/* A line of what an image says of how it came to be. */
struct ctl_step {
	char id[65];                 /* of the commit that it was where it comes from, or "" */
	char *message, *by, *author; /* a stranger's; may be NULL */
	struct timespec time;        /* zero: not told */
	bool empty;                  /* it changed nothing */
};
/* Of the image that the base @name is made of, or (NULL) that the environment @env began on and whose base still has its name, newest first.
 * -ENOENT: there is no such base. */
int ctl_base_history(const char *data_dir, const char *name, const char *env, struct diag *diag,
		     int (*fn)(void *arg, const struct ctl_step *s), void *arg) MUST_USE;
/* The name; what environments began on stays. -ENOENT. */
int ctl_base_remove(const char *data_dir, const char *name, struct diag *diag) MUST_USE;

/* A commit (or "ENV:REV") as a read-only file system at @dir, visible on the host, served by a
 * process of its own until ctl_umount. @rw: it can be written to, and what is written goes away with it. */
int ctl_mount(const char *data_dir, const char *env, const char *rev, const char *dir, bool rw,
	      struct diag *diag) MUST_USE;
int ctl_umount(const char *dir, struct diag *diag) MUST_USE;
