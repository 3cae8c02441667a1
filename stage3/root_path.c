#include "stage3/root_path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX     40
#define PROC_ROOT_INO 1

/* Where relative paths begin. */
static void base_of(uint32_t pid, int dir, char ret[static PROC_ROOM])
{
	if (dir == AT_FDCWD)
		(void)snprintf(ret, PROC_ROOM, "/proc/%u/cwd", pid);
	else
		(void)snprintf(ret, PROC_ROOM, "/proc/%u/fd/%d", pid, dir);
}

/* Has the caller changed its root? Then *ret is where that is for us. */
static bool other_root(uint32_t pid, char ret[static ROOT_PATH])
{
	char link[PROC_ROOM];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/%u/root", pid);
	n = readlink(link, ret, ROOT_PATH - 1);
	if (n <= 0)
		return false;
	ret[n] = 0;
	return strcmp(ret, "/") != 0;
}

/* In another root nothing leads out of it, and no link of /proc is followed. */
static int open_below(uint32_t pid, const char *root, int dir, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_PATH | O_CLOEXEC),
			       .resolve = RESOLVE_IN_ROOT};
	char link[PROC_ROOM], full[2 * ROOT_PATH];
	size_t len = strlen(root);
	int at, fd;

	if (path[0] == '/') {
		(void)snprintf(full, sizeof(full), "%s", path);
	} else {
		ssize_t n;

		base_of(pid, dir, link);
		n = readlink(link, full, ROOT_PATH - 1);
		if (n < 0)
			return -1;
		full[n] = 0;
		if (strncmp(full, root, len) != 0 || (full[len] && full[len] != '/'))
			return -1;
		memmove(full, full + len, (size_t)n + 1 - len);
		len = strlen(full);
		(void)snprintf(full + len, sizeof(full) - len, "/%s", path);
	}
	(void)snprintf(link, sizeof(link), "/proc/%u/root", pid);
	at = open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return -1;
	fd = (int)syscall(SYS_openat2, at, full, &how, sizeof(how));
	(void)close(at);
	return fd;
}

/* ---- where /proc is on the way ---- */

static bool on_proc(int fd)
{
	struct statx st, proc;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0 ||
	       statx(AT_FDCWD, "/proc", AT_STATX_DONT_SYNC, 0, &proc) < 0 ||
	       (st.stx_dev_major == proc.stx_dev_major && st.stx_dev_minor == proc.stx_dev_minor);
}

/* Where the link @name in @dir leads: to the text in @ret (true), or, by a link of /proc, to what no text tells. */
static bool link_text(const struct root_caller *c, int dir, int link, const char *name,
		      char ret[static ROOT_PATH])
{
	struct stat st;
	ssize_t n;

	if (on_proc(link)) {
		if (fstat(dir, &st) < 0 || st.st_ino != PROC_ROOT_INO)
			return false;
		/* What names the caller itself would be us. */
		if (!strcmp(name, "self") || !strcmp(name, "thread-self")) {
			(void)snprintf(ret, ROOT_PATH, "%u", c->pid);
			return true;
		}
	}
	n = readlinkat(link, "", ret, ROOT_PATH - 1);
	ret[n > 0 ? n : 0] = 0;
	return true;
}

struct walk {
	int at;                   /* where it is; owned */
	char rest[2 * ROOT_PATH]; /* and goes from there */
	unsigned links;
};

static bool walk_to(struct walk *w, int fd)
{
	if (fd < 0)
		return false;
	(void)close(w->at);
	w->at = fd;
	return true;
}

/* Through the link @link (owned), which was just passed: its text comes before what is left. */
static bool walk_link(const struct root_caller *c, struct walk *w, int link, const char *name)
{
	char text[ROOT_PATH];
	size_t len, left = strlen(w->rest);
	bool told = link_text(c, w->at, link, name, text);

	(void)close(link);
	if (++w->links > LINKS_MAX)
		return false;
	if (!told)
		return walk_to(w, openat(w->at, name, O_PATH | O_CLOEXEC));
	len = strlen(text);
	if (!len || len + 1 + left >= sizeof(w->rest))
		return false;
	memmove(w->rest + len + 1, w->rest, left + 1);
	memcpy(w->rest, text, len);
	w->rest[len] = '/';
	/* A slash at the end would ask for a directory. */
	if (!left)
		w->rest[len] = 0;
	return w->rest[0] != '/' || walk_to(w, open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

/* One name further; false: not to be had. */
static bool walk_step(const struct root_caller *c, struct walk *w, int flags)
{
	size_t skip = strspn(w->rest, "/"), n = strcspn(w->rest + skip, "/");
	char name[256];
	struct stat st;
	int fd;

	if (n >= sizeof(name))
		return false;
	memcpy(name, w->rest + skip, n);
	name[n] = 0;
	memmove(w->rest, w->rest + skip + n, strlen(w->rest + skip + n) + 1);
	if (!n) /* slashes at the end */
		return fstat(w->at, &st) == 0 && S_ISDIR(st.st_mode);
	fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && S_ISLNK(st.st_mode) && (w->rest[0] || !(flags & O_NOFOLLOW)))
		return walk_link(c, w, fd, name);
	return walk_to(w, fd);
}

/* Takes @at. */
static int walk(const struct root_caller *c, int at, const char *path, int flags)
{
	struct walk w = {.at = at};
	struct stat st;
	bool ok = true;

	(void)snprintf(w.rest, sizeof(w.rest), "%s", path);
	while (ok && w.rest[0])
		ok = walk_step(c, &w, flags);
	if (ok && flags & O_DIRECTORY)
		ok = fstat(w.at, &st) == 0 && S_ISDIR(st.st_mode);
	if (ok)
		return w.at;
	(void)close(w.at);
	return -1;
}

/* Within one mount the kernel finds the way; in another one, /proc, there may be links to the caller. */
static int open_from(const struct root_caller *c, int dir, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_PATH | O_CLOEXEC),
			       .resolve = RESOLVE_NO_XDEV};
	char base[PROC_ROOM] = "/";
	int at, fd;

	if (path[0] != '/')
		base_of(c->pid, dir, base);
	at = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return -1;
	if (path[0] == '/' || !on_proc(at)) {
		fd = (int)syscall(SYS_openat2, at, path, &how, sizeof(how));
		if (fd >= 0 || errno != EXDEV) {
			(void)close(at);
			return fd;
		}
	}
	return walk(c, at, path, flags);
}

int root_open(const struct root_caller *c, int dir, const char path[static ROOT_PATH], int flags)
{
	char base[PROC_ROOM], root[ROOT_PATH];
	int fd;

	base_of(c->pid, dir, base);
	if (!path[0])
		fd = open(base, O_PATH | O_CLOEXEC);
	else if (other_root(c->pid, root))
		fd = open_below(c->pid, root, dir, path, flags);
	else
		fd = open_from(c, dir, path, flags);
	/* All that was asked of its number in /proc was the caller's, if it is still there. */
	if (fd >= 0 && ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &c->id) < 0) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

bool root_path_only(const struct root_caller *c, int fd)
{
	char path[PROC_ROOM], line[128];
	unsigned flags = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%u/fdinfo/%d", c->pid, fd);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "flags: %o", &flags) == 1)
			break;
	(void)fclose(f);
	return flags & O_PATH;
}
