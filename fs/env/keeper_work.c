/* What the keeper does for the daemon: mounts and binds. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/env/keeper_internal.h"
#include "fs/fuse/mount.h"

static int do_mount(struct keeper_link *k, const struct keeper_msg *m, struct diag *diag,
		    int *ret_fd)
{
	const struct mount_opts o = {.dir = m->dir,
				     .name = m->host,
				     .rdonly = m->rdonly,
				     .helper = k->helper,
				     .allow_other = m->allow_other};
	struct keeper_mount *free_slot = NULL;
	int r;

	for (size_t i = 0; i < KEEPER_MOUNTS && !free_slot; i++)
		if (k->mounts[i].fd < 0)
			free_slot = &k->mounts[i];
	if (!free_slot)
		return diag_set(diag, -EMFILE, "too many mounts of one environment at a time");
	if (mkdir(m->dir, 0700) < 0 && errno != EEXIST)
		return diag_set(diag, ret_nerrno(), "cannot make the mount point %s: %s", m->dir,
				err_text(errno));
	r = mount_fuse(&o, diag, ret_fd);
	if (r < 0 || k->sock < 0)
		return r;
	free_slot->fd = fcntl(*ret_fd, F_DUPFD_CLOEXEC, 3);
	if (free_slot->fd >= 0)
		memcpy(free_slot->dir, m->dir, sizeof(free_slot->dir));
	else
		k->lost = true;
	return 0;
}

static int do_umount(struct keeper_link *k, const struct keeper_msg *m)
{
	int r = mount_detach(m->dir, k->helper);

	/* Our duplicate would keep the connection open after the daemon has closed its own. */
	for (size_t i = 0; i < KEEPER_MOUNTS; i++) {
		if (k->mounts[i].fd >= 0 && !strcmp(k->mounts[i].dir, m->dir)) {
			(void)close(k->mounts[i].fd);
			k->mounts[i].fd = -1;
		}
	}
	if (m->rmdir)
		(void)rmdir(m->dir);
	return r;
}

static int open_beneath(int dirfd, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

	return fd < 0 ? ret_nerrno() : (int)fd;
}

/* The object that the client holds open, found again by its path in this namespace: a descriptor of
 * the client's own mount namespace cannot be bound here (mount(2): EINVAL). No component may be a
 * symlink, so that nothing is swapped between the client's look and ours; the pair of device and
 * inode is compared anyway. */
static int open_source(const struct keeper_msg *m, struct diag *diag, mode_t *ret_type)
{
	cleanup_fd int fd = open_beneath(AT_FDCWD, m->host, O_PATH | O_NOFOLLOW,
					 RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (fd == -ELOOP)
		return diag_set(diag, -ESTALE,
				"%s leads through a symbolic link now; name the real path",
				m->host);
	if (fd < 0)
		return diag_set(diag, fd, "cannot open %s: %s", m->host, err_text(fd));
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (st.st_dev != m->dev || st.st_ino != m->ino)
		return diag_set(
			diag, -ESTALE,
			"%s is not the same here as for the caller: it was replaced, or something was "
			"mounted there after the environment was started (end it and try again)",
			m->host);
	*ret_type = st.st_mode & S_IFMT;
	return steal_fd(&fd);
}

#define IN_TREE (RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* The mount point below the tree's root; missing directories are made. The tree belongs to confined
 * commands, so no symlink in it may be followed: it would be resolved in our namespace. */
static int open_target(const struct keeper_msg *m, mode_t type, struct diag *diag)
{
	cleanup_fd int root = open(m->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char part[sizeof(m->path)];
	int fd;

	if (root < 0)
		return diag_set(diag, ret_nerrno(), "cannot open the mount: %s", err_text(errno));
	fd = open_beneath(root, m->path, O_PATH | O_NOFOLLOW, IN_TREE);
	if (fd != -ENOENT)
		return fd;
	memcpy(part, m->path, sizeof(part));
	for (char *p = part + 1;; p++) {
		char c = *p;

		if (c != '/' && c)
			continue;
		*p = 0;
		fd = open_beneath(root, part, O_PATH | O_NOFOLLOW, IN_TREE);
		if (fd == -ENOENT) {
			char *slash = strrchr(part, '/');
			cleanup_fd int parent = -1;

			*slash = 0;
			parent = open_beneath(root, *part ? part : "/", O_PATH | O_DIRECTORY,
					      IN_TREE);
			*slash = '/';
			if (parent < 0)
				return parent;
			if (c == 0 && type != S_IFDIR)
				fd = mknodat(parent, slash + 1, S_IFREG | 0644, 0);
			else
				fd = mkdirat(parent, slash + 1, 0755);
			if (fd < 0 && errno != EEXIST)
				return ret_nerrno();
			fd = open_beneath(root, part, O_PATH | O_NOFOLLOW, IN_TREE);
		}
		if (fd < 0 || c == 0)
			return fd;
		(void)close(fd);
		*p = c;
	}
}

/* A detached copy of the source gets its flags before it appears anywhere, so that a read-only bind
 * is at no moment writable; recursive, because a file system mounted below counts as well. */
static int copy_tree(int src, bool rw)
{
	struct mount_attr ma = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
	cleanup_fd int tree = open_tree(
		src, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);

	if (tree < 0)
		return ret_nerrno();
	if (!rw)
		ma.attr_set |= MOUNT_ATTR_RDONLY;
	if (mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &ma, sizeof(ma)) < 0)
		return ret_nerrno();
	return steal_fd(&tree);
}

static int do_bind(const struct keeper_msg *m, struct diag *diag)
{
	cleanup_fd int src = -1, dst = -1, tree = -1;
	struct stat st;
	mode_t type = 0;

	src = open_source(m, diag, &type);
	if (src < 0)
		return src;
	dst = open_target(m, type, diag);
	if (dst == -ELOOP)
		return diag_set(diag, -EINVAL, "%s leads through a symbolic link of the tree",
				m->path);
	if (dst < 0)
		return dst;
	if (fstat(dst, &st) < 0)
		return ret_nerrno();
	if (S_ISDIR(type) != S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
		return diag_set(diag, -ENOTDIR,
				"%s and %s must both be directories, or both be files", m->host,
				m->path);
	tree = copy_tree(src, m->rw);
	if (tree < 0)
		return diag_set(diag, tree, "cannot bind %s (Linux 5.12 or later is needed): %s",
				m->host, err_text(tree));
	if (move_mount(tree, "", dst, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return diag_set(diag, ret_nerrno(), "cannot bind %s at %s: %s", m->host, m->path,
				err_text(errno));
	return 0;
}

static int do_unbind(const struct keeper_msg *m, struct diag *diag)
{
	cleanup_fd int root = open(m->dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	char at[64];

	if (root < 0)
		return ret_nerrno();
	fd = open_beneath(root, m->path, O_PATH | O_NOFOLLOW, IN_TREE);
	if (fd < 0)
		return fd;
	(void)snprintf(at, sizeof(at), "/proc/self/fd/%d", fd);
	if (umount2(at, MNT_DETACH) < 0)
		return diag_set(diag, ret_nerrno(), "cannot unbind %s: %s", m->path,
				err_text(errno));
	return 0;
}

int keeper_do(struct keeper_link *k, const struct keeper_msg *m, struct diag *diag, int *ret_fd)
{
	switch (m->op) {
	case KEEPER_MOUNT:
		return do_mount(k, m, diag, ret_fd);
	case KEEPER_UMOUNT:
		return do_umount(k, m);
	case KEEPER_KEEP:
	case KEEPER_DROP:
		return 0; /* nobody to keep it */
	case KEEPER_BIND:
	case KEEPER_UNBIND:
		/* In the host's namespace it would show up on the host, and need root. */
		if (k->helper || k->sock < 0)
			return diag_set(
				diag, -EOPNOTSUPP,
				"binds need a mount namespace of the environment's own, which this host refuses");
		return m->op == KEEPER_BIND ? do_bind(m, diag) : do_unbind(m, diag);
	}
	return -EINVAL;
}
