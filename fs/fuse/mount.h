/*
 * fs/fuse/mount.h - /dev/fuse descriptors with a mount behind them. No libfuse in the interface.
 *
 * Two ways: in a user and mount namespace of our own (no set-uid helper; the mount dies with the
 * namespace), or through fusermount3 in the caller's namespace (visible on the host). The mount is
 * nosuid,nodev with default_permissions and without allow_other (fuse(4): with it, entering by
 * descriptor from outside the user namespace fails).
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Move this (single-threaded) process into new user and mount namespaces with its own uid and gid
 * mapped to 0, mounts made private, and a tmpfs of ours at @dir for mount points.
 * -EPERM: the host refuses user namespaces (sentence with remedy in @diag). */
int mount_enter_ns(const char *dir, struct diag *diag) MUST_USE;

struct mount_opts {
	const char *dir;  /* existing empty directory */
	const char *name; /* shown as the device, e.g. "rattan:default" */
	bool rdonly;
	bool helper;      /* use fusermount3 */
	bool allow_other; /* only where real ids are shown, as root */
};
/* An open /dev/fuse (CLOEXEC) whose mount is in place; INIT is not answered yet.
 * -ENOENT no /dev/fuse, -EACCES not allowed to open it, -ENOTEMPTY, ... with a sentence. */
int mount_fuse(const struct mount_opts *o, struct diag *diag, int *ret_fd) MUST_USE;
/* Lazy: nobody waits for open files. */
int mount_detach(const char *dir, bool helper) MUST_USE;
