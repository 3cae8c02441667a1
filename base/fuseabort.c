#include "base/fuseabort.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

/* The connection's number is that of its device; its files belong to whoever mounted it. */
static void abort_by_number(const char *dir)
{
	cleanup_fd int fd = -1;
	char path[80];
	struct statx st;

	/* Without asking the file system itself. Where nothing is mounted any more, what lies below may be another FUSE
	 * file system. */
	if (statx(AT_FDCWD, dir, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0 ||
	    st.stx_dev_major != 0 || !(st.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return;
	(void)snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", st.stx_dev_minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "1", 1);
}

void fuse_abort(const char *dir)
{
	/* FUSE aborts before the kernel looks whether the mount is busy (fuse_umount_begin), so that any other
	 * error says nothing. */
	if (umount2(dir, MNT_FORCE | UMOUNT_NOFOLLOW) < 0 && errno == EPERM)
		abort_by_number(dir);
}
