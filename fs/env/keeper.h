/*
 * fs/env/keeper.h - the process that makes an environment's mounts, and how the daemon asks it.
 *
 * The keeper enters the namespaces, forks the daemon and then only waits: for the daemon's requests
 * (mount, unmount, bind, keep) and for its death. It never serves a file and its paths never go through a
 * mount that its own process would have to answer. It keeps a duplicate of each /dev/fuse descriptor and what else the
 * next daemon has to be given, so that the mount outlives its daemon (docs/decisions/0006).
 *
 * A link without a keeper (sock -1) does the same work in the calling process: for mounts in the
 * host's namespace.
 *
 * Threads: calls are serialised by the caller (env.lock).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define KEEPER_MOUNTS 16 /* alive at the same time; old ones go as soon as they are replaced */

struct keeper_mount {
	char dir[4096];
	int fd;
};

/* What a daemon leaves with the keeper for the one after it. */
enum keeper_kind {
	KEEP_ALIVE = 1, /* the keeper's own: the lock of the runtime directory */
	KEEP_TIE,       /* the keeper's own: a socket that ends with it, */
	KEEP_TIED,      /* and the other end, for whoever wants to know */
	KEEP_FUSE,      /* the keeper's own: a mount; text: its directory */
	KEEP_JOURNAL,
	KEEP_LOCK,   /* of the environment in the data directory */
	KEEP_LISTEN, /* the control socket */
	KEEP_MOUNT,  /* struct env_saved, which begins with the mount's directory */
	KEEP_BIND,   /* struct env_saved_bind; one of the processes that asked for it */
	KEEP_LEASE,  /* text: what; the command's process */
	KEEP_POLICY, /* of the mount: a memory file with what policy_rules_encode() writes; a byte: is it for provisioning? */
	KEEP_MEND,   /* struct mend_note */
};
#define KEEPER_DATA_MAX 12288
struct keeper_item {
	struct keeper_item *next;
	uint32_t kind, len;
	uint64_t id; /* of several of one kind */
	int fd;      /* -1: none */
	uint8_t data[];
};

struct keeper_link {
	int sock;    /* -1: no keeper */
	bool helper; /* mounts go through fusermount3 and are visible on the host */
	/* in the keeper's own copy only */
	struct keeper_mount mounts[KEEPER_MOUNTS]; /* fd -1: free */
	struct keeper_item *items;
	bool lost; /* a command that no other daemon would know of: none may go on */
};
void keeper_link_init(struct keeper_link *k, int sock, bool helper);

struct keeper_mount_opts {
	const char *dir, *name;
	bool rdonly, allow_other;
};
/* Makes the directory when it is missing. *ret_fd is for session_start. */
int keeper_mount(struct keeper_link *k, const struct keeper_mount_opts *o, struct diag *diag,
		 int *ret_fd) MUST_USE;
/* Lazy, with all that is bound in it. The directory is removed when @rmdir. */
int keeper_umount(struct keeper_link *k, const char *dir, bool rmdir) MUST_USE;
/* Bind the host directory or file @host, which must be device @dev and inode @ino, at @path below the mounted
 * @dir. A missing mount point is made through the mount; -EACCES or -EROFS when the mount's policy
 * refuses that. No symlink is followed in either path. */
int keeper_bind(struct keeper_link *k, const char *dir, const char *path, const char *host,
		uint64_t dev, uint64_t ino, bool rw, struct diag *diag) MUST_USE;
int keeper_unbind(struct keeper_link *k, const char *dir, const char *path,
		  struct diag *diag) MUST_USE;

/* Instead of what was kept under the same kind and id. @fd is lent; -1: none. Without a keeper nothing is kept.
 * -ENOLINK: something of the mount is not known to the keeper. */
int keeper_keep(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd) MUST_USE;
/* The same without waiting for the keeper, which hears what was said before the daemon's end. When it cannot keep it,
 * the mount ends with the daemon from then on, and the keeper logs so. */
int keeper_tell(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd) MUST_USE;
/* Does not wait either. */
void keeper_drop(struct keeper_link *k, enum keeper_kind kind, uint64_t id);

/* ---- the keeper's own ---- */

/* In this process, without asking anybody. Takes @fd over. */
int keeper_hold(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd) MUST_USE;
struct keeper_item *keeper_find(struct keeper_link *k, enum keeper_kind kind);
/* Close and forget everything but what has been taken (fd -1). */
void keeper_release(struct keeper_link *k);

/* The exit status of a daemon that asks for a successor. */
#define KEEPER_REPLACE 75
/* Of one that could not go on for a lack that may pass, and has done nothing. */
#define KEEPER_RETRY   76

enum keeper_end {
	KEEPER_ENDED, /* it said that it has done everything */
	KEEPER_DIED,  /* and left what another one needs to go on */
	KEEPER_LOST,  /* it died, and so did its mounts */
};
/* The keeper's life: serve @k->sock until the daemon @pid is dead. When the other end of @pulse closes
 * (fs/env/pulse.h) it is dying; if nobody can go on, the mounts are ended by force. *ret_status is its wait status.
 * @old: the daemon before, whose end is still to be waited for; 0. */
enum keeper_end keeper_run(struct keeper_link *k, int pulse, pid_t pid, pid_t old, int *ret_status);
/* Mounts that were being made or taken away when the daemon died. Before another one is started. */
void keeper_end_strays(struct keeper_link *k);
/* All that wait for an answer get an error; then the mounts go. */
void keeper_give_up(struct keeper_link *k);

/* What the next image of this process has to know, in a memfd that exec keeps, as are all descriptors in it.
 * @quick: deaths soon after the start, one after another. */
struct keeper_state {
	bool own_ns;
	unsigned quick;
	unsigned tries; /* that ended with KEEPER_RETRY, or could not be made, one after another */
	int old_pid;
};
int keeper_save(struct keeper_link *k, const struct keeper_state *st, int *ret_fd) MUST_USE;
/* -EPROTONOSUPPORT: written by a build that this one does not understand. Takes @fd over. */
int keeper_load(int fd, struct keeper_link *k, struct keeper_state *st) MUST_USE;
