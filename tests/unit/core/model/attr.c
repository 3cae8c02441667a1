/* Modes, times and extended attributes. */
#include <sys/xattr.h>

#include "tests/unit/core/model/model.h"

void op_chmod(struct model *m, const char *p)
{
	struct stat st;
	mode_t mode = 0700 | rnd(m, 0100) | (rnd(m, 4) ? 0 : S_ISVTX);
	bool done;

	/* chmod follows links, setattr does not */
	if (fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		return;
	say(m, "chmod %s %o", p, mode);
	touch_before(m, p);
	st.st_mode = mode;
	done = agree(m, "chmod", sys(fchmodat(m->dirfd, p, mode, 0)),
		     fx_set(&m->f, p, &st, OVL_SET_MODE));
	touch_after(m, "chmod", done);
	if (done)
		changes_after(m, p);
	compare_near(m, p);
}

/* Following a link is a read of it there; the way to a name may lead over the link itself. */
void op_utimens(struct model *m, const char *p)
{
	struct timespec t[2] = {{.tv_sec = (time_t)rnd(m, 1u << 31) - (1 << 30), .tv_nsec = 5},
				{.tv_sec = (time_t)rnd(m, 1u << 31), .tv_nsec = rnd(m, 999999999)}};
	struct stat st = {.st_atim = t[0], .st_mtim = t[1]}, a, b;

	say(m, "utimens %s", p);
	if (agree(m, "utimens", sys(utimensat(m->dirfd, p, t, AT_SYMLINK_NOFOLLOW)),
		  fx_set(&m->f, p, &st, OVL_SET_ATIME | OVL_SET_MTIME)) &&
	    fstatat(m->dirfd, p, &a, AT_SYMLINK_NOFOLLOW) == 0 && fx_stat(&m->f, p, &b) == 0 &&
	    (a.st_mtim.tv_sec != b.st_mtim.tv_sec || a.st_mtim.tv_nsec != b.st_mtim.tv_nsec ||
	     (!S_ISLNK(a.st_mode) && a.st_atim.tv_sec != b.st_atim.tv_sec)))
		bad(m, "times differ");
}

void op_xattr(struct model *m, const char *p)
{
	static const char *const names[] = {"user.a", "user.b", "user.big"};
	const char *name = names[rnd(m, ARRAY_SIZE(names))];
	static const int flags[] = {0, 0, XATTR_CREATE, XATTR_REPLACE};
	int fl = flags[rnd(m, 4)], a, b;
	size_t n = strcmp(name, "user.big") ? rnd(m, 300) : 200 + rnd(m, 800);
	char full[2 * PATH_MAX];
	struct ovl_entry e;

	if (!m->xattrs || fx_get(&m->f, p, &e) < 0)
		return;
	say(m, "xattr %s %s %zu %d", p, name, n, fl);
	snprintf(full, sizeof(full), "%s/%s", m->dir, p);
	fill(m, n);
	if (rnd(m, 3) == 0) {
		a = sys(lremovexattr(full, name));
		b = ovl_removexattr(m->f.o, e.ino, name);
	} else {
		a = sys(lsetxattr(full, name, m->data, n, fl));
		b = ovl_setxattr(m->f.o, e.ino, name, m->data, n, fl);
	}
	/* which of the two wins for a symlink is nobody's promise */
	if (!(S_ISLNK(e.attr.st.st_mode) && a < 0 && b < 0) && a != -ENOSPC)
		agree(m, "xattr", a, b);
	else if (a == -ENOSPC && b == 0)
		bad(m, "the model has no room for xattrs: use another file system");
	ovl_forget(m->f.o, e.ino, 1);
}

void compare_xattrs(struct model *m, int dirfd, const char *name, store_ino ino)
{
	char path[64], list[4096], ours[4096];
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n, k, len = 0;

	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = listxattr(path, list, sizeof(list));
	k = ovl_listxattr(m->f.o, ino, ours, sizeof(ours));
	for (const char *p = list; n > 0 && p < list + n; p += strlen(p) + 1) {
		ssize_t a, b;

		if (strncmp(p, "user.", 5) != 0)
			continue;
		len += (ssize_t)strlen(p) + 1;
		a = fgetxattr(fd, p, m->data, DATA_MAX);
		b = ovl_getxattr(m->f.o, ino, p, m->got, DATA_MAX);
		if (a != b || (a > 0 && memcmp(m->data, m->got, (size_t)a) != 0))
			bad(m, "xattr differs");
	}
	if (k != len)
		bad(m, "xattr lists differ");
	(void)close(fd);
}
