/*
 * fs/fuse/mount_helper.h - mounting through fusermount3, the set-uid helper of the fuse3 package, which
 * opens /dev/fuse, mounts, and hands the descriptor over a socket. Only mount.c includes this.
 */
#pragma once

#include "fs/fuse/mount.h"

int mount_helper_mount(const struct mount_opts *o, unsigned max_read, struct diag *diag,
		       int *ret_fd) MUST_USE;
int mount_helper_detach(const char *dir) MUST_USE;
