#include "fs/fuse/mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/fuse/mount_helper.h"

/* What one READ may ask for; the session's buffers are as large. */
#define MAX_READ (1u << 20)

/* ---- a namespace of our own ---- */

static int write_file(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return ret_nerrno();
	return io_write_full(fd, text, strlen(text));
}

static int map_one_id(const char *path, unsigned id)
{
	char line[64];

	(void)snprintf(line, sizeof(line), "0 %u 1\n", id);
	return write_file(path, line);
}

static int refused(int r, struct diag *diag)
{
	if (r == -ENOSPC || r == -EUSERS)
		return diag_set(diag, -EPERM,
				"no more user namespaces can be made here: raise the sysctl "
				"user.max_user_namespaces");
	return diag_set(
		diag, -EPERM,
		"this host refuses unprivileged user namespaces (%s): allow them with the "
		"sysctl kernel.unprivileged_userns_clone=1 or "
		"kernel.apparmor_restrict_unprivileged_userns=0, or by an AppArmor profile for "
		"rattan-fs; in a container, by its seccomp profile",
		err_text(r));
}

/* What the kernel counts for a user in this namespace and all above it, and a command could take to the last. */
static const char *const counted[] = {
	"/proc/sys/user/max_inotify_instances",
	"/proc/sys/user/max_inotify_watches",
};

static long counted_max(const char *path)
{
	cleanup_buf struct buf b = {0};

	if (io_read_file(AT_FDCWD, path, 64, &b) < 0 || b.len == 0)
		return 0;
	return strtol((const char *)b.data, NULL, 10);
}

/* Half of it stays for the host's programs. Where the kernel has no such limit, or the file may not be written (/proc is
 * read-only in some containers), a command has all of it, as without a namespace. */
static void leave_half(const char *path, long max)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%ld", max / 2);
	if (max > 1)
		(void)!write_file(path, text);
}

int mount_enter_ns(const char *dir, struct diag *diag)
{
	/* Asked before: afterwards they are the overflow ids until the maps are written, and limits of the namespace's own. */
	uid_t uid = geteuid();
	gid_t gid = getegid();
	long max[ARRAY_SIZE(counted)];
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(counted); i++)
		max[i] = counted_max(counted[i]);

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return refused(ret_nerrno(), diag);
	/* Without this the kernel does not let an ordinary user map a group (user_namespaces(7)). */
	r = write_file("/proc/self/setgroups", "deny");
	if (r == 0 || r == -ENOENT)
		r = map_one_id("/proc/self/uid_map", uid);
	if (r == 0)
		r = map_one_id("/proc/self/gid_map", gid);
	if (r < 0)
		return refused(r, diag);
	for (size_t i = 0; i < ARRAY_SIZE(counted); i++)
		leave_half(counted[i], max[i]);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return refused(ret_nerrno(), diag);
	if (mount("rattan", dir, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,size=1m") < 0) {
		r = ret_nerrno();
		if (r == -EPERM || r == -EACCES)
			return refused(r, diag);
		return diag_set(diag, r, "cannot mount a tmpfs on %s: %s", dir, err_text(r));
	}
	return 0;
}

/* ---- the mount ---- */

static int check_dir(const char *dir, struct diag *diag)
{
	cleanup_dir DIR *d = opendir(dir);
	struct dirent *e;
	int r;

	if (!d) {
		r = ret_nerrno();
		return diag_set(diag, r, "cannot use %s as mount point: %s", dir, err_text(r));
	}
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			return diag_set(diag, -ENOTEMPTY,
					"%s is not empty: a mount would hide what is in it", dir);
	return 0;
}

static int open_dev(struct diag *diag, int *ret_fd)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), r;

	if (fd >= 0) {
		*ret_fd = fd;
		return 0;
	}
	r = ret_nerrno();
	if (r == -EACCES || r == -EPERM)
		return diag_set(diag, -EACCES,
				"not allowed to open /dev/fuse: its mode should be 0666, or this "
				"user belong to its group");
	if (r == -ENOENT || r == -ENODEV || r == -ENXIO)
		return diag_set(diag, -ENOENT,
				"there is no /dev/fuse: load the kernel module fuse, or give the "
				"container the device");
	return diag_set(diag, r, "cannot open /dev/fuse: %s", err_text(r));
}

static int mount_direct(const struct mount_opts *o, struct diag *diag, int *ret_fd)
{
	unsigned long flags = MS_NOSUID | MS_NODEV | (o->rdonly ? MS_RDONLY : 0);
	cleanup_fd int fd = -1;
	char opts[160];
	int r = open_dev(diag, &fd);

	if (r < 0)
		return r;
	(void)snprintf(
		opts, sizeof(opts),
		"fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions,max_read=%u%s", fd,
		geteuid(), getegid(), MAX_READ, o->allow_other ? ",allow_other" : "");
	if (mount(o->name, o->dir, "fuse", flags, opts) < 0) {
		r = ret_nerrno();
		return diag_set(diag, r, "cannot mount on %s: %s", o->dir, err_text(r));
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

int mount_fuse(const struct mount_opts *o, struct diag *diag, int *ret_fd)
{
	int r = check_dir(o->dir, diag);

	if (r < 0)
		return r;
	return o->helper ? mount_helper_mount(o, MAX_READ, diag, ret_fd)
			 : mount_direct(o, diag, ret_fd);
}

int mount_detach(const char *dir, bool helper)
{
	if (helper)
		return mount_helper_detach(dir);
	return umount2(dir, MNT_DETACH) < 0 ? ret_nerrno() : 0;
}
