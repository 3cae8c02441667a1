/* Where files are: finding them by name, and whether they are still there. */
#include "fs/through/through_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TOLD_MAX   4000 /* bytes of a path that the kernel tells, with room for what it adds */
#define OPEN_TRIES 100
#define DELETED    " (deleted)" /* proc_pid_fd(5) */

/* Made anew for every command, or of no use to it. */
static const struct {
	const char *name;
	bool dir;
} masked[] = {{"proc", true}, {"sys", true},   {"dev", true},
	      {"run", true},  {"boot", false}, {"lost+found", false}};

bool place_masked(const struct tnode *dir, const char *name, bool *ret_dir)
{
	*ret_dir = false;
	if (!dir->kept_fd)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(masked); i++) {
		if (!strcmp(masked[i].name, name)) {
			*ret_dir = masked[i].dir;
			return true;
		}
	}
	return name[0] == '.';
}

/* File systems that show this process and its kernel: a file of theirs is no file of the host's, and through
 * some of them (the memory of processes) whoever opens it is everything. */
static bool is_kernels(int fd)
{
	static const uint32_t types[] = {
		PROC_SUPER_MAGIC,   OPENPROM_SUPER_MAGIC, USBDEVICE_SUPER_MAGIC, SYSFS_MAGIC,
		CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,  RDTGROUP_SUPER_MAGIC,  DEBUGFS_MAGIC,
		TRACEFS_MAGIC,      SECURITYFS_MAGIC,     SELINUX_MAGIC,         SMACK_MAGIC,
		AAFS_MAGIC,         DEVPTS_SUPER_MAGIC,   BPF_FS_MAGIC,          PSTOREFS_MAGIC,
		EFIVARFS_MAGIC,     BINFMTFS_MAGIC,       BINDERFS_SUPER_MAGIC,  XENFS_SUPER_MAGIC,
		NSFS_MAGIC,         0x65735543, /* fusectl */
		0x62656570,                     /* configfs */
		0x19800202,                     /* mqueue */
		0x50494446,                     /* pidfs */
	};
	struct statfs s;

	if (fstatfs(fd, &s) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((uint32_t)s.f_type == types[i])
			return true;
	return false;
}

static int open_once(int dirfd, const char *name)
{
	struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	/* EAGAIN: a rename ran beside the walk and the kernel could not prove "beneath" */
	for (int tries = 0; tries < OPEN_TRIES; tries++) {
		fd = syscall(SYS_openat2, dirfd, name, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	return (int)fd;
}

int place_open(struct through *t, int dirfd, const struct ident *dir, const char *name,
	       struct ident *ret_id, struct stat *ret_st, int *ret_fd)
{
	cleanup_fd int fd = TNODE_TRY(t, open_once(dirfd, name));
	int r;

	if (fd < 0)
		return errno == EXDEV || errno == ELOOP ? -ENOENT : ret_nerrno();
	r = ident_of(fd, ret_id, ret_st);
	if (r < 0)
		return r;
	if ((ret_id->dev != dir->dev || ret_id->mnt != dir->mnt) && is_kernels(fd))
		return -ENOENT;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* ---- is it still there? ---- */

/* Does its name in its directory still mean it? For paths that are too long for anything else. */
static int name_holds(struct through *t, struct tnode *n)
{
	char name[STORE_NAME_MAX + 1];
	cleanup_use struct use up = {0};
	cleanup_fd int fd = -1;
	struct ident id;
	struct stat st;
	int r = tnode_use_parent(t, n, name, &up);

	if (r == 0)
		r = place_open(t, up.fd, &up.n->id, name, &id, &st, &fd);
	if (r == -ENOENT || r == -ENOTDIR)
		return -ESTALE;
	if (r < 0)
		return r;
	return ident_same(&id, &n->id) ? 0 : -ESTALE;
}

/* One component more: what is in @u becomes its child. */
static int step(struct through *t, struct use *u, const char *name, size_t len)
{
	struct use next = {0};
	struct ident id;
	struct stat st;
	bool dir;
	int fd, r = place_masked(u->n, name, &dir) ? -ESTALE : 0;

	if (r == 0)
		r = place_open(t, u->fd, &u->n->id, name, &id, &st, &fd);
	if (r == 0)
		r = tnode_found(t, u, name, len, fd, &id, &st, &next);
	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? -ESTALE : r;
	use_end(u);
	*u = next;
	return 0;
}

/* The host has moved @n to @path: what holds there. */
static int relocate(struct through *t, struct tnode *n, const char *path, int *ret_pol)
{
	cleanup_use struct use u = {0};
	const char *at = path, *part;
	size_t len;
	int r = tnode_use(t, STORE_ROOT_INO, FRESH_ENOUGH, &u);

	while (r == 0 && policy_component(&at, &part, &len)) {
		char name[STORE_NAME_MAX + 1];

		if (len > STORE_NAME_MAX)
			return -ESTALE;
		memcpy(name, part, len);
		name[len] = 0;
		r = step(t, &u, name, len);
	}
	if (r == 0 && u.n != n)
		r = -ESTALE;
	/* Not what the node says by now: somebody may have found it by a directory that was moved as well. */
	if (r == 0)
		*ret_pol = u.pol;
	return r;
}

/* What the kernel keeps of it was allowed before. */
static void told(struct through *t, const struct tnode *n, int before, int now)
{
	if (policy_may(t->policy, before) & ~policy_may(t->policy, now) && t->notify.inval_inode)
		t->notify.inval_inode(t->notify.arg, n->ino);
}

/* @n is at @path of the tree. Its own name and directory may be as they were, and what lies above elsewhere by now. */
static int judged(struct through *t, struct tnode *n, const char *path)
{
	const char *part;
	int before, now, place = policy_root(t->policy);
	size_t len;

	while (policy_component(&path, &part, &len))
		place = policy_child(t->policy, place, part, len);
	through_lock(t);
	before = n->pol;
	now = judge_found(t->policy, n->several ? before : -1, place, n->several);
	n->pol = now;
	n->checked = io_now_ms();
	through_unlock(t);
	told(t, n, before, now);
	return now;
}

static int moved(struct through *t, struct tnode *n, const char *path, int *ret_pol)
{
	size_t skip = strlen(t->prefix);
	int before, r;

	through_lock(t);
	before = n->pol;
	through_unlock(t);
	/* It is somewhere, and nobody knows what holds there. */
	*ret_pol = policy_leaf(POLICY_DENY);
	r = strncmp(path, t->prefix, skip) || path[skip] != '/'
		    ? -ESTALE
		    : relocate(t, n, path + skip, ret_pol);
	told(t, n, before, *ret_pol);
	return r;
}

/* Nothing has its name: what was allowed stays so. */
static int gone(struct through *t, struct tnode *n, int *ret_pol)
{
	through_lock(t);
	n->checked = io_now_ms();
	n->gone = true;
	*ret_pol = n->pol;
	through_unlock(t);
	return 0;
}

/* Where it is by its name, whatever its descriptor says. */
static int at_its_name(struct through *t, struct tnode *n, int *ret_pol)
{
	cleanup_buf struct buf path = {0};
	cleanup_use struct use up = {0};
	uint64_t dir;
	int r;

	through_lock(t);
	dir = n->parent->ino;
	through_unlock(t);
	r = tnode_use_dir(t, dir, FRESH_NOW, &up);
	if (r == 0)
		r = name_holds(t, n);
	if (r == 0) {
		through_lock(t);
		r = tnode_path(n, &path);
		n->gone = true; /* the descriptor: the next that is found takes its place */
		through_unlock(t);
	}
	if (r == 0)
		r = buf_put(&path, "", 1);
	if (r == 0)
		*ret_pol = judged(t, n, (const char *)path.data);
	return r;
}

/* The descriptor was opened by a name that is no more, and there are others: nobody tells when those move. */
static int by_other_name(struct through *t, struct tnode *n, int *ret_pol)
{
	bool nameless, several;
	int r;

	through_lock(t);
	nameless = !n->len;
	several = n->several;
	through_unlock(t);
	/* It is being given its first one (th_link). */
	if (nameless)
		return 0;
	r = at_its_name(t, n, ret_pol);
	/* Its others are not known. Who reads it goes on, as programs that are replaced while they run, where no other
	 * link could be a closed one. */
	if (r == -ESTALE && several) {
		*ret_pol = policy_meet(t->policy, policy_unseen(t->policy, *ret_pol),
				       policy_leaf(POLICY_READ));
		return 0;
	}
	return r;
}

/* "PATH (deleted)": no name any more, or is that its name? */
static bool is_deleted(const struct tnode *n, const struct stat *st, const char *path, size_t len)
{
	size_t tail = strlen(DELETED);
	struct stat named;

	if (len < tail || strcmp(path + len - tail, DELETED) != 0)
		return false;
	if (st->st_nlink == 0)
		return true;
	return fstatat(AT_FDCWD, path, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	       named.st_dev != n->id.dev || named.st_ino != n->id.ino;
}

/* @want: the path that the host should name; what of it the tree is asked for begins at @skip. */
static int compare(struct through *t, struct tnode *n, int fd, const char *want, size_t skip,
		   int *ret_pol)
{
	struct stat st;
	char path[4096];
	ssize_t len = readlinkat(t->proc_fd, fd_name(fd).s, path, sizeof(path) - 1);

	if (len < 0)
		return errno == ENAMETOOLONG ? -ENAMETOOLONG : ret_nerrno();
	path[len] = 0;
	if (!strcmp(path, want)) {
		through_lock(t);
		n->gone = false;
		through_unlock(t);
		*ret_pol = judged(t, n, want + skip);
		return 0;
	}
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (!is_deleted(n, &st, path, (size_t)len))
		return moved(t, n, path, ret_pol);
	if (st.st_nlink == 0 || S_ISDIR(st.st_mode))
		return gone(t, n, ret_pol);
	return by_other_name(t, n, ret_pol);
}

/* The path that the host should name; -ENAMETOOLONG, with all of it. */
static int wanted(struct through *t, struct tnode *n, struct buf *ret)
{
	int r = buf_puts(ret, t->prefix);

	through_lock(t);
	if (r == 0)
		r = tnode_path(n, ret);
	through_unlock(t);
	if (r == 0)
		r = buf_put(ret, "", 1);
	return r == 0 && ret->len > TOLD_MAX ? -ENAMETOOLONG : r;
}

/* Bytes of its path, as wanted() counts them. */
static size_t path_len(struct through *t, const struct tnode *n)
{
	size_t len = strlen(t->prefix) + 1;

	through_lock(t);
	for (size_t depth = 0; n->parent && depth <= DEPTH_MAX; depth++, n = n->parent)
		len += 1 + n->len;
	through_unlock(t);
	return len;
}

/* Names one above the other, up to a place whose path can be told. Each step costs one name: a command can make any
 * depth of them. */
static int check_deep(struct through *t, struct tnode *n)
{
	size_t left = path_len(t, n);
	uint64_t up = n->ino;
	int r = 0;

	for (size_t depth = 0; r == 0 && depth < DEPTH_MAX; depth++) {
		cleanup_buf struct buf want = {0};
		cleanup_use struct use u = {0};
		struct tnode *m;
		size_t len;

		through_lock(t);
		m = tnode_find(t, up);
		up = m && m->parent ? m->parent->ino : 0;
		len = m ? 1 + m->len : 0;
		through_unlock(t);
		if (!m || !up)
			return -ESTALE;
		/* By what was counted; it may have moved since. */
		r = left > TOLD_MAX ? -ENAMETOOLONG : wanted(t, m, &want);
		left -= len < left ? len : left;
		if (r == 0)
			return tnode_use(t, m->ino, FRESH_NOW, &u);
		if (r == -ENAMETOOLONG)
			r = name_holds(t, m);
	}
	return r;
}

static int compare_deep(struct through *t, struct tnode *n, int *ret_pol)
{
	cleanup_buf struct buf now = {0};
	int r = check_deep(t, n);

	if (r < 0)
		return r;
	r = wanted(t, n, &now);
	if (r < 0 && r != -ENAMETOOLONG)
		return r;
	*ret_pol = judged(t, n, (const char *)now.data + strlen(t->prefix));
	return 0;
}

int place_check(struct through *t, struct tnode *n, int fd, enum fresh fresh, int *ret_pol)
{
	cleanup_buf struct buf want = {0};
	long long then;
	int r;

	through_lock(t);
	then = n->checked;
	*ret_pol = n->pol;
	through_unlock(t);
	if (n == t->root || (fresh == FRESH_ENOUGH && then && io_now_ms() - then < THROUGH_TTL_MS))
		return 0;
	r = wanted(t, n, &want);
	if (r == 0)
		r = compare(t, n, fd, (const char *)want.data, strlen(t->prefix), ret_pol);
	return r == -ENAMETOOLONG ? compare_deep(t, n, ret_pol) : r;
}
