#include "stage3/root_calls.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "stage3/root_abi.h"
#include "stage3/root_path.h"
#include "stage3/root_who.h"

#define NODE_TRIES 100

static const struct root_answer to_kernel = {.mine = false};

static struct root_answer done(int error)
{
	return (struct root_answer){.mine = true, .error = error};
}

/* ---- the caller ---- */

/* A string of its memory; false: let the kernel say what is wrong with it. */
static bool read_text(uint32_t pid, uint64_t at, char ret[static ROOT_PATH])
{
	size_t have = 0;

	while (have < ROOT_PATH) {
		/* Not over the end of a page, behind which there may be nothing. */
		size_t n = 4096 - (size_t)((at + have) & 4095);
		struct iovec to = {.iov_base = ret + have};
		struct iovec from = {.iov_base = (void *)(uintptr_t)(at + have)};
		ssize_t got;

		to.iov_len = from.iov_len = n < ROOT_PATH - have ? n : ROOT_PATH - have;
		got = process_vm_readv((pid_t)pid, &to, 1, &from, 1, 0);
		if (got <= 0)
			return false;
		if (memchr(ret + have, 0, (size_t)got))
			return true;
		have += (size_t)got;
	}
	return false;
}

static bool read_bytes(uint32_t pid, uint64_t at, void *ret, size_t n)
{
	struct iovec to = {.iov_base = ret, .iov_len = n};
	struct iovec from = {.iov_base = (void *)(uintptr_t)at, .iov_len = n};

	return process_vm_readv((pid_t)pid, &to, 1, &from, 1, 0) == (ssize_t)n;
}

static bool write_back(uint32_t pid, uint64_t at, void *p, size_t n)
{
	struct iovec from = {.iov_base = p, .iov_len = n};
	struct iovec to = {.iov_base = (void *)(uintptr_t)at, .iov_len = n};

	return process_vm_writev((pid_t)pid, &from, 1, &to, 1, 0) == (ssize_t)n;
}

static mode_t umask_of(uint32_t pid)
{
	char path[PROC_ROOM], line[256];
	unsigned mask = 022;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", pid);
	f = fopen(path, "re");
	if (!f)
		return mask;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Umask: %o", &mask) == 1)
			break;
	(void)fclose(f);
	return mask & 0777;
}

/* ---- the file that a call means ---- */

/* What a call names: a descriptor, or a path and flags. */
struct target {
	int dir;
	bool has_path;
	uint64_t path; /* in the caller's memory */
	int at_flags;
};

/* The kernel refuses what it does not know. */
#define AT_KNOWN (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT)
#define AT_SYNC  (AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC)

static int open_target(const struct root_caller *c, const struct target *t)
{
	char path[ROOT_PATH] = "";

	if (t->at_flags & ~(AT_KNOWN | AT_SYNC))
		return -1;
	if (t->has_path && !read_text(c->pid, t->path, path))
		return -1;
	if (!path[0] && t->has_path && !(t->at_flags & AT_EMPTY_PATH))
		return -1;
	return root_open(c, t->dir, path, t->at_flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0);
}

/* A descriptor of O_PATH has no attributes of its own; its link in /proc leads to what it is, a symbolic link included. */
static void link_of(int fd, char ret[static PROC_ROOM])
{
	(void)snprintf(ret, PROC_ROOM, "/proc/self/fd/%d", fd);
}

/* ---- stat ---- */

/* Is it of somebody whom the kernel cannot show? */
static bool others(int fd, struct root_owner *ret)
{
	char link[PROC_ROOM];

	link_of(fd, link);
	return getxattr(link, ROOT_XATTR_OWNER, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret) &&
	       (ret->uid || ret->gid);
}

static struct root_answer do_stat(const struct root_caller *c, const struct target *t, uint64_t to)
{
	struct root_owner o;
	struct stat st;
	int fd = open_target(c, t);
	bool ok = fd >= 0 && others(fd, &o) &&
		  syscall(
#ifdef SYS_newfstatat
			  SYS_newfstatat,
#else
			  SYS_fstatat64,
#endif
			  fd, "", &st, AT_EMPTY_PATH) == 0;

	if (fd >= 0)
		(void)close(fd);
	if (!ok)
		return to_kernel;
	st.st_uid = o.uid;
	st.st_gid = o.gid;
	return write_back(c->pid, to, &st, sizeof(st)) ? done(0) : to_kernel;
}

static struct root_answer do_statx(const struct root_caller *c, const struct target *t,
				   unsigned mask, uint64_t to)
{
	struct root_owner o;
	struct statx st;
	int fd = open_target(c, t);
	bool ok = fd >= 0 && others(fd, &o) &&
		  statx(fd, "", AT_EMPTY_PATH | (t->at_flags & AT_SYNC), mask, &st) == 0;

	if (fd >= 0)
		(void)close(fd);
	if (!ok)
		return to_kernel;
	st.stx_uid = o.uid;
	st.stx_gid = o.gid;
	return write_back(c->pid, to, &st, sizeof(st)) ? done(0) : to_kernel;
}

/* ---- chown ---- */

/* Whose it is; false: it cannot be told, as of what is of another file system. */
static bool owner_of(const char *link, struct root_owner *ret)
{
	return getxattr(link, ROOT_XATTR_OWNER, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret);
}

/* Who is not root gives nothing away, and to its own groups only what is its own. */
static bool may_give(const struct root_who *w, const char *link, const struct root_owner *to)
{
	struct root_owner is;

	if (w->uid[ROOT_FS] == 0 || !owner_of(link, &is))
		return true;
	return is.uid == w->uid[ROOT_FS] && (to->uid == ROOT_KEEP || to->uid == is.uid) &&
	       (to->gid == ROOT_KEEP || to->gid == is.gid || root_who_in(w, to->gid));
}

static struct root_answer do_chown(const struct root_caller *c, const struct target *t,
				   uint64_t uid, uint64_t gid)
{
	const struct root_owner o = {.uid = (uint32_t)uid, .gid = (uint32_t)gid};
	char link[PROC_ROOM];
	struct root_who w;
	int fd = open_target(c, t), error = 0;

	if (fd < 0)
		return to_kernel;
	link_of(fd, link);
	if (root_who_of(c, &w) && !may_give(&w, link, &o))
		error = EPERM;
	else if (setxattr(link, ROOT_XATTR_OWNER, &o, sizeof(o), 0) < 0)
		error = errno;
	(void)close(fd);
	/* /proc, /dev/shm: of another file system. */
	return error == EOPNOTSUPP ? to_kernel : done(-error);
}

/* ---- access lists ---- */

/* linux/posix_acl_xattr.h, little endian on every machine */
struct acl_entry {
	uint16_t tag, perm;
	uint32_t id;
};
#define ACL_HEAD     sizeof(uint32_t)
#define ACL_SIZE_MAX 65536 /* XATTR_SIZE_MAX */
enum {
	ACL_TAG_USER = 0x02,
	ACL_TAG_GROUP = 0x08
};

/* Does it name an id that the kernel does not know here? */
static bool names_others(const uint8_t *list, size_t n)
{
	struct acl_entry e;

	if (n < ACL_HEAD || (n - ACL_HEAD) % sizeof(e))
		return false; /* the kernel says what is wrong with it */
	for (size_t at = ACL_HEAD; at < n; at += sizeof(e)) {
		memcpy(&e, list + at, sizeof(e));
		e.tag = le16toh(e.tag);
		if ((e.tag == ACL_TAG_USER || e.tag == ACL_TAG_GROUP) && e.id)
			return true;
	}
	return false;
}

/* The attribute that stands for the list that the caller names; NULL: it names none. */
static const char *list_of(uint32_t pid, uint64_t at)
{
	char name[ROOT_PATH];

	if (!read_text(pid, at, name))
		return NULL;
	if (!strcmp(name, "system.posix_acl_access"))
		return ROOT_XATTR_ACL "access";
	return !strcmp(name, "system.posix_acl_default") ? ROOT_XATTR_ACL "default" : NULL;
}

static struct root_answer set_list(const struct root_caller *c, const struct target *t,
				   const char *name, const uint8_t *list, size_t n, int flags)
{
	struct root_owner is;
	char link[PROC_ROOM];
	struct root_who w;
	int fd = open_target(c, t), error = 0;

	if (fd < 0)
		return to_kernel;
	link_of(fd, link);
	if (root_who_of(c, &w) && w.uid[ROOT_FS] && owner_of(link, &is) && is.uid != w.uid[ROOT_FS])
		error = EPERM;
	else if (setxattr(link, name, list, n, flags) < 0)
		error = errno;
	(void)close(fd);
	return error == EOPNOTSUPP ? to_kernel : done(-error);
}

static struct root_answer do_setxattr(const struct root_caller *c, const struct target *t,
				      const uint64_t *a)
{
	const char *name = a[3] >= ACL_HEAD && a[3] <= ACL_SIZE_MAX ? list_of(c->pid, a[1]) : NULL;
	uint8_t *list = name ? malloc(a[3]) : NULL;
	struct root_answer r = to_kernel;

	if (list && read_bytes(c->pid, a[2], list, a[3]) && names_others(list, a[3]))
		r = set_list(c, t, name, list, a[3], (int)a[4]);
	free(list);
	return r;
}

static struct root_answer give_list(const struct root_caller *c, uint8_t *list, size_t n,
				    uint64_t to, uint64_t room)
{
	struct root_answer r = done(0);

	if (room && room < n)
		return done(-ERANGE);
	if (room && !write_back(c->pid, to, list, n))
		return to_kernel;
	r.value = (int64_t)n;
	return r;
}

static struct root_answer do_getxattr(const struct root_caller *c, const struct target *t,
				      const uint64_t *a)
{
	const char *name = list_of(c->pid, a[1]);
	uint8_t *list = name ? malloc(ACL_SIZE_MAX) : NULL;
	int fd = list ? open_target(c, t) : -1;
	struct root_answer r = to_kernel;
	char link[PROC_ROOM];
	ssize_t n;

	if (fd >= 0) {
		link_of(fd, link);
		n = getxattr(link, name, list, ACL_SIZE_MAX);
		if (n > 0 && names_others(list, (size_t)n))
			r = give_list(c, list, (size_t)n, a[2], a[3]);
		(void)close(fd);
	}
	free(list);
	return r;
}

/* ---- mknod ---- */

/* Under a name that nobody has looked for, and then renamed: the kernel believes that there is nothing at the right one, and
 * cannot be told by what it does not know to be a new name. */
static int make_node(int dir, const char *name, mode_t mode, uint32_t dev, uint64_t salt)
{
	union {
		struct root_node n;
		char room[sizeof(struct root_node) + 64];
	} v = {.n = {.mode = mode, .dev = dev}};
	char *temp = v.room + offsetof(struct root_node, name), link[PROC_ROOM];
	int r = -EEXIST;

	link_of(dir, link);
	for (int i = 0; r == -EEXIST && i < NODE_TRIES; i++) {
		int n = snprintf(temp, 64, ".rattan-node-%llx",
				 (unsigned long long)salt + (unsigned)i);

		r = setxattr(link, ROOT_XATTR_NODE, v.room,
			     offsetof(struct root_node, name) + (size_t)n + 1, 0) < 0
			    ? -errno
			    : 0;
	}
	if (r < 0)
		return r;
	if (syscall(SYS_renameat2, dir, temp, dir, name, 1 /* RENAME_NOREPLACE */) == 0)
		return 0;
	r = -errno;
	(void)unlinkat(dir, temp, 0);
	return r;
}

static struct root_answer do_mknod(const struct root_caller *c, int at, uint64_t path,
				   uint64_t mode, uint64_t dev)
{
	char text[ROOT_PATH], name[256], *slash;
	struct root_who w;
	int dir, r;

	if (root_who_of(c, &w) && w.uid[ROOT_EFFECTIVE])
		return done(-EPERM);
	if (!read_text(c->pid, path, text))
		return to_kernel;
	slash = strrchr(text, '/');
	if (snprintf(name, sizeof(name), "%s", slash ? slash + 1 : text) >= (int)sizeof(name) ||
	    !name[0])
		return to_kernel;
	if (slash)
		slash[slash == text] = 0; /* "/x" is in "/" */
	else
		memcpy(text, ".", 2);
	dir = root_open(c, at, text, O_DIRECTORY);
	if (dir < 0)
		return to_kernel;
	/* The kernel reads sixteen bits of it. */
	r = make_node(dir, name, (mode_t)(mode & (S_IFMT | 07777)) & ~umask_of(c->pid),
		      (uint32_t)dev, path ^ c->pid);
	(void)close(dir);
	return r == -EOPNOTSUPP ? to_kernel : done(r);
}

/* ---- all of them ---- */

static struct target named(uint64_t path, int flags)
{
	return (struct target){.dir = AT_FDCWD, .has_path = true, .path = path, .at_flags = flags};
}

static struct target named_at(uint64_t dir, uint64_t path, uint64_t flags)
{
	return (struct target){
		.dir = (int)dir, .has_path = true, .path = path, .at_flags = (int)flags};
}

static struct target opened(uint64_t fd)
{
	return (struct target){.dir = (int)fd};
}

/* False: the kernel says EBADF. */
static bool xattr_target(const struct root_caller *c, int nr, uint64_t which, struct target *ret)
{
	if (nr == SYS_fsetxattr || nr == SYS_fgetxattr) {
		*ret = opened(which);
		return !root_path_only(c, (int)which);
	}
	*ret = named(which, nr == SYS_lsetxattr || nr == SYS_lgetxattr ? AT_SYMLINK_NOFOLLOW : 0);
	return true;
}

struct root_answer root_call(const struct seccomp_data *c, const struct root_caller *caller)
{
	const uint64_t *a = (const uint64_t *)c->args;
	struct target t;

	switch (c->nr) {
#ifdef SYS_stat
	case SYS_stat:
		t = named(a[0], 0);
		return do_stat(caller, &t, a[1]);
	case SYS_lstat:
		t = named(a[0], AT_SYMLINK_NOFOLLOW);
		return do_stat(caller, &t, a[1]);
#endif
	case SYS_fstat:
		t = opened(a[0]);
		return do_stat(caller, &t, a[1]);
#ifdef SYS_newfstatat
	case SYS_newfstatat:
		t = named_at(a[0], a[1], a[3]);
		return do_stat(caller, &t, a[2]);
#endif
	case SYS_statx:
		t = named_at(a[0], a[1], a[2]);
		return do_statx(caller, &t, (unsigned)a[3], a[4]);
#ifdef SYS_chown
	case SYS_chown:
		t = named(a[0], 0);
		return do_chown(caller, &t, a[1], a[2]);
	case SYS_lchown:
		t = named(a[0], AT_SYMLINK_NOFOLLOW);
		return do_chown(caller, &t, a[1], a[2]);
#endif
	case SYS_fchown:
		if (root_path_only(caller, (int)a[0]))
			return to_kernel; /* which says EBADF */
		t = opened(a[0]);
		return do_chown(caller, &t, a[1], a[2]);
	case SYS_fchownat:
		if (a[4] & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) & UINT32_MAX)
			return to_kernel;
		t = named_at(a[0], a[1], a[4]);
		return do_chown(caller, &t, a[2], a[3]);
	case SYS_setxattr:
	case SYS_lsetxattr:
	case SYS_fsetxattr:
		return xattr_target(caller, c->nr, a[0], &t) ? do_setxattr(caller, &t, a)
							     : to_kernel;
	case SYS_getxattr:
	case SYS_lgetxattr:
	case SYS_fgetxattr:
		return xattr_target(caller, c->nr, a[0], &t) ? do_getxattr(caller, &t, a)
							     : to_kernel;
#ifdef SYS_mknod
	case SYS_mknod:
		return do_mknod(caller, AT_FDCWD, a[0], a[1], a[2]);
#endif
	case SYS_mknodat:
		return do_mknod(caller, (int)a[0], a[1], a[2], a[3]);
	default:
		return root_who_call(c, caller);
	}
}
