#include "stage3/landlock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

/* The kernel's structures and constants, spelled out: headers older than the kernel lack some. */
struct ruleset_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net; /* ABI 4 */
	uint64_t scoped;             /* ABI 6 */
};
struct path_beneath_attr {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

#define CREATE_RULESET_VERSION 1u
#define RULE_PATH_BENEATH      1
#define NET_SHIFT              16 /* from enum stage3_right to the kernel's values */
#define SCOPE_SHIFT            18

/* Which ABI brought which right. */
static const struct {
	int abi;
	uint32_t rights;
} rights_by_abi[] = {
	{1, STAGE3_EXECUTE | STAGE3_WRITE_FILE | STAGE3_READ_FILE | STAGE3_READ_DIR |
		    STAGE3_REMOVE_DIR | STAGE3_REMOVE_FILE | STAGE3_MAKE_CHAR | STAGE3_MAKE_DIR |
		    STAGE3_MAKE_REG | STAGE3_MAKE_SOCK | STAGE3_MAKE_FIFO | STAGE3_MAKE_BLOCK |
		    STAGE3_MAKE_SYM},
	{2, STAGE3_REFER},
	{3, STAGE3_TRUNCATE},
	{4, STAGE3_BIND_TCP | STAGE3_CONNECT_TCP},
	{5, STAGE3_IOCTL_DEV},
	{6, STAGE3_SCOPE_UNIX | STAGE3_SCOPE_SIGNAL},
};

#define FILE_RIGHTS \
	(STAGE3_EXECUTE | STAGE3_WRITE_FILE | STAGE3_READ_FILE | STAGE3_TRUNCATE | STAGE3_IOCTL_DEV)

struct fence {
	int fd;
	uint32_t handled;
	/* real paths of the holes, for rules that go around them */
	char holes[16][STAGE3_PATH_MAX];
	size_t nholes;
};

uint32_t landlock_handled(int abi)
{
	uint32_t m = 0;
	size_t i;

	for (i = 0; i < sizeof(rights_by_abi) / sizeof(rights_by_abi[0]); i++) {
		if (rights_by_abi[i].abi <= abi)
			m |= rights_by_abi[i].rights;
	}
	return m;
}

/* Grants on the inode behind @fd. Directory rights on a file would be refused as EINVAL. */
static int grant(const struct fence *f, int fd, uint32_t rights)
{
	struct path_beneath_attr a = {.parent_fd = fd};
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	rights &= f->handled;
	if (!S_ISDIR(st.st_mode))
		rights &= FILE_RIGHTS;
	if (rights == 0)
		return 0;
	a.allowed_access = rights;
	if (syscall(SYS_landlock_add_rule, f->fd, RULE_PATH_BENEATH, &a, 0) < 0)
		return -errno;
	return 0;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1) /* "/" */
		return true;
	return !strncmp(path, dir, n) && (path[n] == '/' || path[n] == '\0');
}

enum where {
	APART,
	HOLE,
	ABOVE_HOLE
};

static enum where where_is(const struct fence *f, const char *path)
{
	enum where w = APART;
	size_t i;

	for (i = 0; i < f->nholes; i++) {
		if (is_below(path, f->holes[i]))
			return HOLE;
		if (is_below(f->holes[i], path))
			w = ABOVE_HOLE;
	}
	return w;
}

static int around(const struct fence *f, int dirfd, const char *dir, uint32_t rights, int depth);

static int around_entry(const struct fence *f, int dirfd, const char *dir, const char *name,
			uint32_t rights, int depth)
{
	char path[STAGE3_PATH_MAX];
	struct stat st;
	int fd, r = 0, n;

	n = snprintf(path, sizeof(path), "%s/%s", strcmp(dir, "/") ? dir : "", name);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) /* gone, or denied: then no right is needed either */
		return 0;
	/* A link's target has a place of its own. */
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISLNK(st.st_mode)) {
		switch (where_is(f, path)) {
		case APART:
			r = grant(f, fd, rights);
			break;
		case ABOVE_HOLE:
			r = around(f, fd, path, rights, depth + 1);
			break;
		case HOLE:
			break;
		}
	}
	(void)close(fd);
	return r;
}

/* Every entry of @dir that is no hole. Only directories above holes are read, and those are not
 * writable, so that nothing can appear in them afterwards. */
static int around(const struct fence *f, int dirfd, const char *dir, uint32_t rights, int depth)
{
	_Alignas(struct dirent64) char buf[4096];
	int fd, r = 0;
	ssize_t n, at;

	if (depth > 16)
		return -ELOOP;
	fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (r == 0 && (n = getdents64(fd, buf, sizeof(buf))) != 0) {
		if (n < 0)
			r = -errno;
		for (at = 0; r == 0 && at < n;) {
			const struct dirent64 *e =
				(const struct dirent64 *)(const void *)(buf + at);

			at += e->d_reclen;
			if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
				r = around_entry(f, fd, dir, e->d_name, rights, depth);
		}
	}
	(void)close(fd);
	return r;
}

/* Where a path really is, links resolved: rules hold for the place, not for its name. */
static int real_path(int fd, char ret[static STAGE3_PATH_MAX])
{
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, STAGE3_PATH_MAX - 1);
	if (n < 0)
		return -errno;
	ret[n] = '\0';
	return ret[0] == '/' ? 0 : -ENOENT;
}

static int hole_add(struct fence *f, int fd)
{
	if (f->nholes >= sizeof(f->holes) / sizeof(f->holes[0]))
		return -E2BIG;
	return real_path(fd, f->holes[f->nholes++]);
}

static int rule_add(struct fence *f, const struct stage3_rule *rule, const char *path)
{
	char real[STAGE3_PATH_MAX];
	int fd, r;

	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0) {
		if ((rule->flags & STAGE3_RULE_MAY_MISS) && (errno == ENOENT || errno == ENOTDIR))
			return 0;
		return -errno;
	}
	if (rule->flags & STAGE3_RULE_AROUND) {
		r = real_path(fd, real);
		if (r == 0)
			r = around(f, fd, real, rule->rights, 0);
	} else {
		r = grant(f, fd, rule->rights);
		if (r == 0 && (rule->flags & STAGE3_RULE_HOLE))
			r = hole_add(f, fd);
	}
	(void)close(fd);
	return r;
}

/* The standard streams may be files or a terminal from outside of the tree. What was passed in may
 * be opened again by name (/dev/stderr), with the access that it came with and no other. */
static int grant_stream(const struct fence *f, int fd)
{
	uint32_t rights;
	struct stat st;
	int fl;

	if (fstat(fd, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)))
		return 0;
	fl = fcntl(fd, F_GETFL);
	if (fl < 0)
		return -errno;
	switch (fl & O_ACCMODE) {
	case O_RDONLY:
		rights = STAGE3_READ_FILE;
		break;
	case O_WRONLY:
		rights = STAGE3_WRITE_FILE | STAGE3_TRUNCATE;
		break;
	default:
		rights = STAGE3_READ_FILE | STAGE3_WRITE_FILE | STAGE3_TRUNCATE;
		break;
	}
	return grant(f, fd, rights | (isatty(fd) ? STAGE3_IOCTL_DEV : 0));
}

static int rules_add(struct fence *f, const struct plan *plan)
{
	size_t i;
	int pass, fd, r;

	/* First the plain rules, which make the holes; then those that go around them. */
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < plan->nrules; i++) {
			if (!!(plan->rules[i].flags & STAGE3_RULE_AROUND) != pass)
				continue;
			r = rule_add(f, &plan->rules[i], plan->rule_paths[i]);
			if (r < 0)
				return r;
		}
	}
	for (fd = 0; fd <= 2; fd++) {
		r = grant_stream(f, fd);
		if (r < 0)
			return r;
	}
	return 0;
}

int landlock_apply(const struct plan *plan, struct landlock *ret)
{
	struct ruleset_attr attr = {0};
	struct fence f;
	long abi;
	int r;

	abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
	*ret = (struct landlock){.abi = abi > 0 ? (int)abi : 0};
	ret->handled = plan->handled & landlock_handled(ret->abi);
	if (plan->required & ~ret->handled)
		return -EOPNOTSUPP;
	if (!ret->handled)
		return 0;
	f.handled = ret->handled & STAGE3_RIGHTS_FS;
	f.nholes = 0; /* not all of it, which is 64 KiB of pages to fault in */
	attr.handled_access_fs = f.handled;
	attr.handled_access_net = (ret->handled & STAGE3_RIGHTS_NET) >> NET_SHIFT;
	attr.scoped = (ret->handled & STAGE3_RIGHTS_SCOPES) >> SCOPE_SHIFT;
	/* Older kernels take a longer structure whose rest is zero. */
	f.fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (f.fd < 0)
		return -errno;
	r = rules_add(&f, plan);
	if (r == 0 && syscall(SYS_landlock_restrict_self, f.fd, 0) < 0)
		r = -errno;
	(void)close(f.fd);
	return r;
}
