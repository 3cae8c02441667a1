/*
 * fs/env/keeper.h - the process that makes an environment's mounts, and how the daemon asks it.
 *
 * The keeper enters the namespaces, forks the daemon and then only waits: for the daemon's requests
 * (mount, unmount, bind) and for its death. It never serves a file and its paths never go through a
 * mount that its own process would have to answer. It keeps a duplicate of each /dev/fuse
 * descriptor, so that a mount outlives a daemon that is replaced; today it then ends with it.
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

struct keeper_link {
	int sock;    /* -1: no keeper */
	bool helper; /* mounts go through fusermount3 and are visible on the host */
	struct keeper_mount
		mounts[KEEPER_MOUNTS]; /* the keeper's own copy only; fd -1 or 0-dir: free */
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

/* The keeper's life: serve @sock until the daemon @pid is dead, and clean up. When the other end of
 * @pulse closes (fs/env/pulse.h) it is dying, and the mounts are ended by force. Returns the daemon's
 * wait status. */
int keeper_run(int sock, int pulse, bool helper, pid_t pid);
