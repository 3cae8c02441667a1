#include "apply/attrs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"

#define VALUE_MAX (64u << 10)
#define LIST_MAX  (64u << 10)

struct fd_name {
	char s[40];
};

/* What takes no O_PATH descriptor takes its name. */
static struct fd_name name_of(int fd)
{
	struct fd_name n;

	(void)snprintf(n.s, sizeof(n.s), "/proc/self/fd/%d", fd);
	return n;
}

static void x_release(struct attr_x *x)
{
	free(x->name);
	free(x->value);
}

void attrs_release(struct attrs *a)
{
	for (size_t i = 0; i < a->nx; i++)
		x_release(&a->x[i]);
	free(a->x);
	*a = (struct attrs){0};
}

static bool ours(const char *name)
{
	return !strncmp(name, "user.", 5) || !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

static int get_x(const char *path, const char *name, struct attrs *a)
{
	cleanup_free void *value = malloc(VALUE_MAX);
	ssize_t n = value ? getxattr(path, name, value, VALUE_MAX) : -1;
	struct attr_x *more, new = {0};

	if (!value)
		return -ENOMEM;
	if (n < 0) /* gone meanwhile, or not for us */
		return errno == ENODATA || errno == EACCES || errno == EPERM ? 0 : ret_nerrno();
	more = realloc(a->x, (a->nx + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	a->x = more;
	new.name = strdup(name);
	new.value = malloc(n ? (size_t)n : 1);
	if (!new.name || !new.value) {
		x_release(&new);
		return -ENOMEM;
	}
	memcpy(new.value, value, (size_t)n);
	new.len = (size_t)n;
	a->x[a->nx++] = new;
	return 0;
}

static int get_all_x(int fd, struct attrs *a)
{
	cleanup_free char *list = malloc(LIST_MAX);
	const struct fd_name name = name_of(fd);
	ssize_t n = list ? listxattr(name.s, list, LIST_MAX) : -1;
	int r = 0;

	if (!list)
		return -ENOMEM;
	if (n < 0)
		return errno == EOPNOTSUPP || errno == EACCES ? 0 : ret_nerrno();
	for (const char *p = list; r == 0 && p < list + n; p += strlen(p) + 1)
		if (ours(p))
			r = get_x(name.s, p, a);
	return r;
}

int attrs_get(int fd, struct attrs *ret)
{
	struct attrs a = {0};
	struct stat st;
	int r = 0;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	a.mode = st.st_mode;
	a.uid = st.st_uid;
	a.gid = st.st_gid;
	a.atime = st.st_atim;
	a.mtime = st.st_mtim;
	/* Links and the like have none of a user's own. */
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		r = get_all_x(fd, &a);
	if (r < 0)
		attrs_release(&a);
	else
		*ret = a;
	return r;
}

static const struct attr_x *find_x(const struct attrs *a, const char *name)
{
	for (size_t i = 0; i < a->nx; i++)
		if (!strcmp(a->x[i].name, name))
			return &a->x[i];
	return NULL;
}

static int set_x(int fd, const struct attrs *a)
{
	const struct fd_name name = name_of(fd);
	cleanup_attrs struct attrs now = {0};
	int r = get_all_x(fd, &now);

	for (size_t i = 0; r == 0 && i < now.nx; i++)
		if (!find_x(a, now.x[i].name) && removexattr(name.s, now.x[i].name) < 0 &&
		    errno != ENODATA)
			r = ret_nerrno();
	for (size_t i = 0; r == 0 && i < a->nx; i++) {
		const struct attr_x *x = &a->x[i], *had = find_x(&now, x->name);

		if (had && had->len == x->len && !memcmp(had->value, x->value, x->len))
			continue;
		if (setxattr(name.s, x->name, x->value, x->len, 0) < 0)
			r = ret_nerrno();
	}
	return r;
}

/* Attributes of a user's own need a file that its owner may write. */
static int set_x_writable(int fd, const struct stat *st, const struct attrs *a)
{
	const struct fd_name name = name_of(fd);
	bool open = (st->st_mode & 0600) == 0600 || st->st_uid != geteuid();
	int r;

	if (!open && chmod(name.s, (st->st_mode & 07777) | 0600) < 0)
		return ret_nerrno();
	r = set_x(fd, a);
	if (!open && chmod(name.s, st->st_mode & 07777) < 0 && r == 0)
		r = ret_nerrno();
	return r;
}

/* Who may not give a file away may give it to his groups, or leaves it. */
static void set_owner(int fd, const struct stat *st, const struct attrs *a)
{
	uid_t uid = st->st_uid == a->uid ? (uid_t)-1 : a->uid;
	gid_t gid = st->st_gid == a->gid ? (gid_t)-1 : a->gid;

	if (uid == (uid_t)-1 && gid == (gid_t)-1)
		return;
	if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH) < 0 && gid != (gid_t)-1)
		(void)!fchownat(fd, "", (uid_t)-1, gid, AT_EMPTY_PATH);
}

int attrs_set(int fd, const struct attrs *a, unsigned what)
{
	const struct timespec times[2] = {a->atime, a->mtime};
	const struct fd_name name = name_of(fd);
	struct stat st;
	bool link;
	int r = 0;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	link = S_ISLNK(st.st_mode);
	if (what & ATTRS_OWNER)
		set_owner(fd, &st, a);
	if (what & ATTRS_XATTRS && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		r = set_x_writable(fd, &st, a);
	/* After the owner, who takes the set-id bits away, and after an access list, which is part of it. */
	if (r == 0 && what & ATTRS_MODE && !link && chmod(name.s, a->mode & 07777) < 0)
		r = ret_nerrno();
	if (r == 0 && what & ATTRS_TIMES && utimensat(fd, "", times, AT_EMPTY_PATH) < 0 &&
	    (link || utimensat(AT_FDCWD, name.s, times, 0) < 0))
		r = ret_nerrno();
	return r;
}
