/* Operations on names: each judges the place, then acts on the directory's descriptor. */
#include "fs/through/through_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MADE_UP_DEV UINT64_MAX

struct at {
	struct through *t;
	struct use dir;
	const char *name;
	size_t len;
	bool locked;
};

static void at_end(struct at *a)
{
	use_end(&a->dir);
	if (a->locked)
		(void)pthread_rwlock_unlock(&a->t->change);
	a->locked = false;
}
#define cleanup_at __attribute__((cleanup(at_end)))

static struct judge_name judged(const struct at *a)
{
	return at_name(&a->dir, a->name, a->len);
}

/* A name that is to be changed. */
static int at_begin(struct through *t, store_ino parent, const char *name, struct at *a)
{
	bool dir;
	int r = name_ok(name, &a->len);

	a->t = t;
	a->name = name;
	if (r == 0)
		r = tnode_use_dir(t, parent, FRESH_NOW, &a->dir);
	if (r == 0 && place_masked(a->dir.n, name, &dir))
		r = -EACCES;
	return r;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* ---- lookup ---- */

static int lookup_dots(struct through *t, store_ino ino, const char *name, struct ovl_entry *ret)
{
	cleanup_use struct use u = {0};
	struct ident id;
	struct stat st;
	int r;

	if (name[1]) {
		struct tnode *n;

		through_lock(t);
		n = tnode_find(t, ino);
		ino = !n ? 0 : n->parent ? n->parent->ino : n->ino;
		through_unlock(t);
	}
	r = tnode_use(t, ino, FRESH_ENOUGH, &u);
	if (r == 0 && u.n->made_up)
		r = -ESTALE;
	if (r == 0)
		r = may_node(&u, POLICY_MAY_PASS, "lookup");
	if (r == 0)
		r = ident_of(u.fd, &id, &st);
	if (r == 0)
		tnode_entry(&u, &st, &id.btime, ret);
	return r;
}

/* An empty directory where something else is mounted for each command. */
static int found_made_up(struct through *t, const struct use *dir, const char *name, size_t len,
			 struct ovl_entry *ret)
{
	const struct stat st = {.st_mode = S_IFDIR | 0555, .st_nlink = 2};
	const struct ident id = {
		.dev = MADE_UP_DEV, .ino = table_hash(1, name, len), .type = S_IFDIR};
	cleanup_use struct use u = {0};
	int r = tnode_found(t, dir, name, len, -1, &id, &st, &u);

	if (r == 0)
		r = may_node(&u, POLICY_MAY_PASS, "lookup");
	if (r == 0)
		tnode_entry(&u, &st, &id.btime, ret);
	return r;
}

/* What is there by now, with one reference. */
static int found(struct through *t, const struct use *dir, const char *name, size_t len,
		 struct ovl_entry *ret)
{
	cleanup_use struct use u = {0};
	struct ident id;
	struct stat st;
	int fd, r = place_open(t, dir->fd, &dir->n->id, name, &id, &st, &fd);

	if (r == 0)
		r = tnode_found(t, dir, name, len, fd, &id, &st, &u);
	/* Another of its places may be closed. */
	if (r == 0)
		r = may_node(&u, POLICY_MAY_PASS, "lookup");
	if (r == 0)
		tnode_entry(&u, &st, &id.btime, ret);
	return r;
}

int th_lookup(void *arg, store_ino parent, const char *name, struct ovl_entry *ret)
{
	struct through *t = arg;
	cleanup_use struct use dir = {0};
	struct judge_name j;
	bool made_up;
	size_t len;
	int r = name_ok(name, &len);

	if (r < 0)
		return r;
	if (is_dots(name))
		return lookup_dots(t, parent, name, ret);
	r = tnode_use_dir(t, parent, FRESH_ENOUGH, &dir);
	if (r < 0)
		return r;
	j = at_name(&dir, name, len);
	r = judge_look(&t->judge, &j, "lookup");
	/* Nothing is cached of what is not there: the host may make it. */
	if (r > 0 || dir.n->made_up)
		return -ENOENT;
	if (r < 0)
		return r;
	if (place_masked(dir.n, name, &made_up))
		return made_up ? found_made_up(t, &dir, name, len, ret) : -ENOENT;
	return found(t, &dir, name, len, ret);
}

/* ---- making ---- */

/* The mask is this thread's own: what the kernel makes then is as if the caller had made it, default ACLs included. */
static int own_umask(mode_t mask)
{
	static _Thread_local bool own;

	if (!own && unshare(CLONE_FS) < 0)
		return ret_nerrno();
	own = true;
	(void)umask(mask & 0777);
	return 0;
}

/* A free name where @what is allowed. */
static int begin_new(struct through *t, store_ino parent, const char *name, unsigned what,
		     const char *op, struct at *a)
{
	struct judge_name j;
	struct stat st;
	int r;

	(void)pthread_rwlock_rdlock(&t->change);
	a->t = t;
	a->locked = true;
	r = at_begin(t, parent, name, a);
	if (r == 0 && is_dots(name))
		r = -EEXIST;
	if (r < 0)
		return r;
	j = judged(a);
	/* First: whether something is at a closed place is nobody's business. */
	r = judge_name(&t->judge, &j, POLICY_MAY_PASS, op);
	if (r == 0 && fstatat(a->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		r = -EEXIST;
	return r == 0 ? judge_name(&t->judge, &j, what, op) : r;
}

static int made(struct at *a, int r, struct ovl_entry *ret)
{
	if (r < 0)
		return ret_nerrno();
	return found(a->t, &a->dir, a->name, a->len, ret);
}

static int make_file(const struct at *a, mode_t mode)
{
	int fd = openat(a->dir.fd, a->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			mode);

	return fd < 0 ? -1 : close(fd);
}

int th_mknod(void *t, store_ino parent, const char *name, mode_t mode, dev_t rdev,
	     const struct ovl_cred *cred, struct ovl_entry *ret)
{
	cleanup_at struct at a = {0};
	mode_t type = mode & S_IFMT;
	int r;

	(void)rdev;
	/* A device of the host's is not for who asks here. */
	if (type == S_IFCHR || type == S_IFBLK)
		return -EPERM;
	if (type && type != S_IFREG && type != S_IFIFO && type != S_IFSOCK)
		return type == S_IFDIR ? -EPERM : -EINVAL;
	r = begin_new(t, parent, name, POLICY_MAY_PUT, "create", &a);
	if (r == 0)
		r = own_umask(cred->umask);
	if (r < 0)
		return r;
	if (!type || type == S_IFREG)
		r = TNODE_TRY(a.t, make_file(&a, mode & 07777));
	else
		r = mknodat(a.dir.fd, name, type | (mode & 07777), 0);
	return made(&a, r, ret);
}

int th_mkdir(void *t, store_ino parent, const char *name, mode_t mode, const struct ovl_cred *cred,
	     struct ovl_entry *ret)
{
	cleanup_at struct at a = {0};
	int r = begin_new(t, parent, name, POLICY_MAY_MKDIR, "mkdir", &a);

	if (r == 0)
		r = own_umask(cred->umask);
	return r < 0 ? r : made(&a, mkdirat(a.dir.fd, name, mode & 07777), ret);
}

int th_symlink(void *t, store_ino parent, const char *name, const char *target,
	       const struct ovl_cred *cred, struct ovl_entry *ret)
{
	cleanup_at struct at a = {0};
	int r = begin_new(t, parent, name, POLICY_MAY_PUT, "create", &a);

	(void)cred;
	return r < 0 ? r : made(&a, symlinkat(target, a.dir.fd, name), ret);
}

int th_link(void *t, store_ino ino, store_ino parent, const char *name, struct ovl_entry *ret)
{
	cleanup_at struct at a = {0};
	cleanup_use struct use u = {0};
	int r = begin_new(t, parent, name, POLICY_MAY_PUT, "link", &a);

	if (r == 0)
		r = tnode_use(t, ino, FRESH_NOW, &u);
	if (r == 0 && u.n->id.type == S_IFDIR)
		r = -EPERM;
	/* A link would open a protected file to changes. */
	if (r == 0)
		r = may_node(&u, POLICY_MAY_WRITE, "link");
	if (r < 0)
		return r;
	if (linkat(a.t->proc_fd, fd_name(u.fd).s, a.dir.fd, name, AT_SYMLINK_FOLLOW) < 0)
		return ret_nerrno();
	/* One that had no name is held by this one from now on. */
	use_end(&u);
	return found(a.t, &a.dir, name, a.len, ret);
}

/* ---- made and opened at once ---- */

/* The handle for @fd, which was just made, and its node. Takes @fd. */
static int enter_made(struct at *a, int fd, bool named, bool writes, struct ovl_entry *ret,
		      struct tree_open *ret_o)
{
	cleanup_use struct use u = {0};
	struct through *t = a->t;
	struct ident id;
	struct stat st;
	int r, path_fd = TNODE_TRY(t, openat(t->proc_fd, fd_name(fd).s, O_PATH | O_CLOEXEC));

	r = path_fd < 0 ? ret_nerrno() : ident_of(path_fd, &id, &st);
	if (r < 0) {
		cleanup_fdp(&path_fd);
		(void)close(fd);
		return r;
	}
	r = named ? tnode_found(t, &a->dir, a->name, a->len, path_fd, &id, &st, &u)
		  : tnode_nameless(t, &a->dir, path_fd, &id, &u);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	r = handle_new(t, u.n, fd, writes, ret_o);
	if (r == 0)
		tnode_entry(&u, &st, &id.btime, ret);
	return r;
}

/* It has come to be there meanwhile, and that is no error. */
static int open_there(struct through *t, store_ino parent, const char *name, int flags,
		      struct ovl_entry *ret, struct tree_open *ret_o)
{
	int r = th_lookup(t, parent, name, ret);

	if (r < 0)
		return r;
	r = S_ISREG(ret->attr.st.st_mode) ? th_open(t, ret->ino, flags, ret_o) : -ESTALE;
	/* The kernel takes it for new, and asks for nothing else. */
	if (r == 0 && flags & O_TRUNC) {
		r = th_setattr(t, ret->ino, ret_o->fh, &(struct stat){0}, OVL_SET_SIZE, &ret->attr);
		if (r < 0)
			th_release(t, ret->ino, ret_o->fh);
	}
	if (r < 0)
		tnode_forget(t, ret->ino, 1);
	return r;
}

int th_create(void *t, store_ino parent, const char *name, mode_t mode, int flags,
	      const struct ovl_cred *cred, struct ovl_entry *ret, struct tree_open *ret_o)
{
	int r, fd, how = file_flags(flags) | O_CREAT | O_EXCL | O_NOFOLLOW;

	{
		cleanup_at struct at a = {0};

		r = begin_new(t, parent, name, POLICY_MAY_PUT, "create", &a);
		if (r == 0)
			r = handle_room(t);
		if (r == 0)
			r = own_umask(cred->umask);
		if (r == 0) {
			fd = TNODE_TRY(a.t, openat(a.dir.fd, name, how, mode & 07777));
			r = fd < 0 ? ret_nerrno()
				   : enter_made(&a, fd, true, (flags & O_ACCMODE) != O_RDONLY, ret,
						ret_o);
		}
	}
	if (r == -EEXIST && !(flags & O_EXCL))
		return open_there(t, parent, name, flags & ~O_CREAT, ret, ret_o);
	return r;
}

int th_tmpfile(void *arg, store_ino parent, mode_t mode, int flags, const struct ovl_cred *cred,
	       struct ovl_entry *ret, struct tree_open *ret_o)
{
	int fd, r, how = file_flags(flags) | O_TMPFILE | (flags & O_EXCL);
	struct through *t = arg;
	cleanup_at struct at a = {.t = t, .name = "", .locked = true};
	struct judge_name j;

	(void)pthread_rwlock_rdlock(&t->change);
	r = tnode_use_dir(t, parent, FRESH_NOW, &a.dir);
	if (r < 0)
		return r;
	j = judged(&a); /* no name yet: it must be allowed everywhere in the directory */
	r = judge_name(&t->judge, &j, POLICY_MAY_PUT, "create");
	if (r == 0)
		r = own_umask(cred->umask);
	if (r < 0)
		return r;
	fd = TNODE_TRY(t, openat(t->proc_fd, fd_name(a.dir.fd).s, how, mode & 07777));
	return fd < 0 ? ret_nerrno() : enter_made(&a, fd, false, true, ret, ret_o);
}

/* ---- removing ---- */

static int remove_name(struct through *t, store_ino parent, const char *name, bool isdir)
{
	const char *op = isdir ? "rmdir" : "unlink";
	cleanup_at struct at a = {.t = t, .locked = true};
	struct judge_name j;
	int r;

	(void)pthread_rwlock_rdlock(&t->change);
	r = at_begin(t, parent, name, &a);
	if (r == 0 && is_dots(name))
		r = isdir ? -ENOTEMPTY : -EISDIR;
	if (r < 0)
		return r;
	j = judged(&a);
	r = judge_look(&t->judge, &j, op);
	if (r > 0)
		return -ENOENT;
	if (r == 0) {
		struct stat st;

		if (fstatat(a.dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return ret_nerrno();
		r = judge_go(&t->judge, &j, op);
	}
	if (r == 0 && unlinkat(a.dir.fd, name, isdir ? AT_REMOVEDIR : 0) < 0)
		r = ret_nerrno();
	return r;
}

int th_unlink(void *t, store_ino parent, const char *name)
{
	return remove_name(t, parent, name, false);
}

int th_rmdir(void *t, store_ino parent, const char *name)
{
	return remove_name(t, parent, name, true);
}

/* ---- renaming ---- */

/* One end: the name, and what it means (fd -1: nothing). */
struct end {
	struct at at;
	struct use u;
	struct stat st;
};

static void end_release(struct end *e)
{
	use_end(&e->u);
	use_end(&e->at.dir);
}
#define cleanup_end __attribute__((cleanup(end_release)))

/* @hidden: what is said of a name that the policy hides. */
static int end_find(struct through *t, store_ino parent, const char *name, int hidden,
		    struct end *e)
{
	struct judge_name j;
	struct ident id;
	int fd, r = at_begin(t, parent, name, &e->at);

	if (r == 0 && is_dots(name))
		r = -EBUSY;
	if (r < 0)
		return r;
	j = judged(&e->at);
	r = judge_look(&t->judge, &j, "rename");
	if (r != 0)
		return r > 0 ? hidden : r;
	r = place_open(t, e->at.dir.fd, &e->at.dir.n->id, name, &id, &e->st, &fd);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : tnode_found(t, &e->at.dir, name, e->at.len, fd, &id, &e->st, &e->u);
}

static bool several(const struct end *e)
{
	return !S_ISDIR(e->st.st_mode) && e->st.st_nlink > 1;
}

static int check_rename(struct through *t, struct end *from, struct end *to, unsigned flags)
{
	bool exchange = flags & RENAME_EXCHANGE;
	struct judge_name a = judged(&from->at), b = judged(&to->at);
	struct judge_node x, y;

	if (!from->u.n || (exchange && !to->u.n))
		return -ENOENT;
	if (to->u.n && flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (from->u.n == to->u.n)
		return 0; /* two names of one file: the host does nothing */
	x = at_node(&from->u);
	if (to->u.n)
		y = at_node(&to->u);
	return judge_rename(&t->judge, &a, &x, &b, to->u.n ? &y : NULL, exchange);
}

static int rename_locked(struct through *t, struct end *from, struct end *to, unsigned flags,
			 store_ino ret_moved[static 2])
{
	int r = check_rename(t, from, to, flags);

	if (r < 0)
		return r;
	if (renameat2(from->at.dir.fd, from->at.name, to->at.dir.fd, to->at.name, flags) < 0)
		return ret_nerrno();
	if (from->u.n == to->u.n)
		return 0;
	tnode_moved(t, &from->u.n->id, &to->at.dir, to->at.name, to->at.len, several(from));
	ret_moved[0] = from->u.n->ino;
	if (flags & RENAME_EXCHANGE) {
		tnode_moved(t, &to->u.n->id, &from->at.dir, from->at.name, from->at.len,
			    several(to));
		ret_moved[1] = to->u.n->ino;
	}
	return 0;
}

int th_rename(void *arg, store_ino parent, const char *name, store_ino newparent,
	      const char *newname, unsigned flags, const struct ovl_cred *cred,
	      store_ino ret_moved[static 2])
{
	cleanup_end struct end from = {0}, to = {0};
	struct through *t = arg;
	int r;

	(void)cred; /* of a whiteout, which is not left on the host */
	ret_moved[0] = ret_moved[1] = 0;
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE) ||
	    flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	(void)pthread_rwlock_wrlock(&t->change);
	r = end_find(t, parent, name, -ENOENT, &from);
	if (r == 0)
		r = end_find(t, newparent, newname, -EACCES, &to);
	if (r == 0)
		r = rename_locked(t, &from, &to, flags, ret_moved);
	(void)pthread_rwlock_unlock(&t->change);
	return r;
}

int th_readlink(void *t, store_ino ino, char ret_target[static 4096])
{
	cleanup_use struct use u = {0};
	int r = tnode_use(t, ino, FRESH_ENOUGH, &u);
	ssize_t n;

	if (r == 0 && u.n->id.type != S_IFLNK)
		r = -EINVAL;
	if (r == 0)
		r = may_node(&u, POLICY_MAY_PASS, "read");
	if (r < 0)
		return r;
	n = readlinkat(u.fd, "", ret_target, 4095);
	if (n < 0)
		return ret_nerrno();
	ret_target[n] = 0;
	return 0;
}
