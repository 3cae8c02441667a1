/* Where things are: data directory, runtime directory, and what lives or died in it. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fuseabort.h"
#include "base/mounts.h"
#include "fs/ctl/ctl_internal.h"

static int fmt(char **ret, const char *f, ...) PRINTF(2, 3);
static int fmt(char **ret, const char *f, ...)
{
	va_list ap;
	int n;

	va_start(ap, f);
	n = vasprintf(ret, f, ap);
	va_end(ap);
	if (n < 0) {
		*ret = NULL;
		return -ENOMEM;
	}
	return 0;
}

int ctl_data_dir(char **ret)
{
	const char *s = getenv("RATTAN_DATA_DIR");

	if (s && *s)
		return fmt(ret, "%s", s);
	s = getenv("XDG_DATA_HOME");
	if (s && *s == '/')
		return fmt(ret, "%s/rattan", s);
	s = getenv("HOME");
	if (s && *s == '/')
		return fmt(ret, "%s/.local/share/rattan", s);
	return -ENOENT;
}

/* Ours alone: another user must not be able to prepare the directory or read in it. */
static int own_dir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return ret_nerrno();
	if (lstat(path, &st) < 0)
		return ret_nerrno();
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return -EACCES;
	if ((st.st_mode & 077) && chmod(path, 0700) < 0)
		return ret_nerrno();
	return 0;
}

/* Where it is, or would be. */
static int runtime_path(char **ret)
{
	const char *xdg = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	/* After su or sudo the variable may name another user's directory. */
	if (xdg && *xdg == '/' && stat(xdg, &st) == 0 && st.st_uid == geteuid() &&
	    access(xdg, W_OK | X_OK) == 0)
		return fmt(ret, "%s/rattan", xdg);
	return fmt(ret, "/tmp/rattan-%u", (unsigned)geteuid());
}

int ctl_runtime_dir(char **ret)
{
	cleanup_free char *s = NULL;
	int r = runtime_path(&s);

	if (r == 0)
		r = own_dir(s);
	if (r == 0)
		*ret = steal_ptr(&s);
	return r;
}

/* The same, with a sentence; somebody may have been there before us. */
static int runtime_dir(struct diag *diag, char **ret)
{
	cleanup_free char *s = NULL;
	int r = runtime_path(&s);

	if (r == 0)
		r = own_dir(s);
	if (r == -EACCES)
		return diag_set(diag, r,
				"%s is no directory of yours and is not used: remove it, or set "
				"XDG_RUNTIME_DIR",
				s);
	if (r < 0)
		return diag_set(diag, r, "cannot use the runtime directory%s%s: %s", s ? " " : "",
				s ? s : "", err_text(r));
	*ret = steal_ptr(&s);
	return 0;
}

int ctl_data_path(const char *data_dir, bool make, struct diag *diag, char **ret)
{
	cleanup_free char *own = NULL;
	int r;

	if (!data_dir) {
		r = ctl_data_dir(&own);
		if (r < 0)
			return diag_set(
				diag, r,
				"no data directory: set RATTAN_DATA_DIR, XDG_DATA_HOME or HOME");
		data_dir = own;
	}
	if (make) {
		r = io_mkdir_p(data_dir, 0700);
		if (r < 0)
			return diag_set(diag, r, "cannot make the data directory %s: %s", data_dir,
					err_text(r));
	}
	*ret = realpath(data_dir, NULL);
	if (!*ret) {
		r = ret_nerrno();
		return diag_set(diag, r, "no data directory %s: %s", data_dir, err_text(r));
	}
	return 0;
}

static uint64_t fnv64(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3u;
	return h;
}

static bool env_name_ok(const char *s)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n > 0 && n <= 64 && s[n] == 0 && s[0] != '.' && s[0] != '-';
}

int ctl_place(const char *data, const char *env, struct diag *diag, char **ret)
{
	cleanup_free char *run = NULL, *s = NULL;
	int r;

	if (!env_name_ok(env))
		return diag_set(diag, -EINVAL,
				"\"%.80s\" is no name for an environment: use 1 to 64 letters, "
				"digits, '.', '_' or '-', not starting with '.' or '-'",
				env);
	r = runtime_dir(diag, &run);
	if (r < 0)
		return r;
	r = fmt(&s, "%s/%016llx-%s", run, (unsigned long long)fnv64(data), env);
	if (r == 0)
		r = own_dir(s);
	if (r < 0)
		return diag_set(diag, r, "cannot use the runtime directory%s%s: %s", s ? " " : "",
				s ? s : "", err_text(r));
	*ret = steal_ptr(&s);
	return 0;
}

int ctl_place_mount(const char *dir, struct diag *diag, char **ret)
{
	cleanup_free char *run = NULL, *s = NULL;
	int r = runtime_dir(diag, &run);

	if (r < 0)
		return r;
	r = fmt(&s, "%s/mount-%016llx", run, (unsigned long long)fnv64(dir));
	if (r == 0)
		r = own_dir(s);
	if (r < 0)
		return diag_set(diag, r, "cannot use the runtime directory: %s", err_text(r));
	*ret = steal_ptr(&s);
	return 0;
}

static int place_file(const char *place, const char *name, int flags)
{
	cleanup_free char *s = NULL;
	int r = fmt(&s, "%s/%s", place, name);

	if (r < 0)
		return r;
	r = open(s, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return r < 0 ? ret_nerrno() : r;
}

/* The lock file of a place that is there; -ENOENT when the place was removed while we waited. */
static int lock_once(const char *place, int *ret_fd)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int r = own_dir(place);

	if (r < 0)
		return r;
	fd = place_file(place, "lock", O_RDWR | O_CREAT);
	if (fd < 0)
		return fd;
	do
		r = flock(fd, LOCK_EX);
	while (r < 0 && errno == EINTR);
	if (r < 0 || fstat(fd, &st) < 0)
		return ret_nerrno();
	if (st.st_nlink == 0)
		return -ENOENT;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int ctl_place_lock(const char *place, struct diag *diag, int *ret_fd)
{
	int r;

	do
		r = lock_once(place, ret_fd);
	while (r == -ENOENT);
	return r < 0 ? diag_set(diag, r, "cannot lock %s: %s", place, err_text(r)) : 0;
}

void ctl_place_remove(const char *place)
{
	/* The lock last: who waits for it finds it gone and starts over. */
	static const char *const files[] = {"sock", "hostmount", "end", "log", "alive", "lock"};
	cleanup_free char *mnt = NULL;

	if (ctl_place_alive(place))
		return;
	(void)ctl_place_heal(place);
	if (fmt(&mnt, "%s/mnt", place) == 0)
		(void)rmdir(mnt);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		cleanup_free char *file = NULL;

		if (fmt(&file, "%s/%s", place, files[i]) == 0)
			(void)unlink(file);
	}
	(void)rmdir(place);
}

bool ctl_place_alive(const char *place)
{
	cleanup_fd int fd = place_file(place, "alive", O_RDWR);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

int ctl_place_wait_gone(const char *place, unsigned timeout_ms)
{
	long long end = io_now_ms() + timeout_ms;

	while (ctl_place_alive(place)) {
		struct timespec ts = {.tv_nsec = 2000000};

		if (io_now_ms() > end)
			return -ETIMEDOUT;
		(void)nanosleep(&ts, NULL);
	}
	return 0;
}

/* Time for a server to hear that it is to end. */
#define HEAR_MS 5000
/* And to put away what it had: on a slow disk each of its transactions may take a second. */
#define END_MS  30000

int ctl_place_end_mount(const char *place)
{
	/* For reading, too: the server's end may be closed by now, and SIGPIPE would be ours. */
	cleanup_fd int fd = place_file(place, "end", O_RDWR | O_NONBLOCK);
	struct stat st;

	if (fd >= 0)
		(void)!write(fd, "", 1);
	if (ctl_place_wait_gone(place, HEAR_MS) == 0)
		return 0;
	/* One that has heard has taken the name away. */
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink ? -ETIMEDOUT
							     : ctl_place_wait_gone(place, END_MS);
}

static void unmount_helper(const char *dir)
{
	char *argv[] = {(char *)(uintptr_t) "fusermount3",
			(char *)(uintptr_t) "-u",
			(char *)(uintptr_t) "-z",
			(char *)(uintptr_t) "-q",
			(char *)(uintptr_t) "--",
			(char *)(uintptr_t)dir,
			NULL};
	pid_t pid;

	/* Root mounts without the helper, which then does not know the mount. */
	if (geteuid() == 0) {
		(void)umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW);
		return;
	}
	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
}

#define ANSWER_MS 3000

/* Asked by a child, for a mount whose connection somebody still holds never answers. What the child waits for then
 * ends with the mount. */
static bool answers(const char *dir)
{
	cleanup_fd int rd = -1;
	int fds[2], status;
	struct statfs sf;
	struct pollfd p = {.events = POLLIN};
	bool yes;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return true; /* it cannot be known */
	rd = fds[0];
	pid = _Fork();
	if (pid == 0) {
		if (statfs(dir, &sf) == 0 || errno != ENOTCONN)
			(void)!write(fds[1], "y", 1);
		_exit(0);
	}
	(void)close(fds[1]);
	if (pid < 0)
		return true;
	p.fd = rd;
	yes = poll(&p, 1, ANSWER_MS) > 0 && (p.revents & POLLIN);
	(void)kill(pid, SIGKILL);
	if (!yes)
		fuse_abort(dir);
	while (waitpid(pid, &status, yes ? 0 : WNOHANG) < 0 && errno == EINTR)
		;
	return yes;
}

/* A mount of ours at @dir. Looked up in the table of mounts: this one may never answer. */
static bool is_ours(const char *dir)
{
	bool ours;

	return mounts_at(dir, &ours) == 0 && ours;
}

static bool heal_mount(const char *place)
{
	cleanup_buf struct buf dir = {0};
	cleanup_free char *file = NULL;

	if (fmt(&file, "%s/hostmount", place) < 0 || io_read_file(AT_FDCWD, file, 4096, &dir) < 0)
		return false;
	/* Nobody who serves from here lives, but there may be one that was started from another runtime directory. */
	if (dir.len && is_ours((char *)dir.data) && !answers((char *)dir.data))
		unmount_helper((char *)dir.data);
	(void)unlink(file);
	return true;
}

/* Where namespaces are refused, an environment's mounts are on the host as well. */
static bool heal_own_mounts(const char *place)
{
	cleanup_free char *mnt = NULL;
	cleanup_dir DIR *d = NULL;
	const struct dirent *e;
	bool found = false;

	if (fmt(&mnt, "%s/mnt", place) < 0)
		return false;
	d = opendir(mnt);
	while (d && (e = readdir(d))) {
		cleanup_free char *path = NULL;

		if (e->d_name[0] == '.' || fmt(&path, "%s/%s", mnt, e->d_name) < 0)
			continue;
		if (is_ours(path)) {
			fuse_abort(path);
			unmount_helper(path);
			found = true;
		}
		(void)rmdir(path);
	}
	return found;
}

void ctl_heal_mounts(void)
{
	cleanup_free char *run = NULL;
	cleanup_dir DIR *d = NULL;
	const struct dirent *e;

	if (ctl_runtime_dir(&run) < 0)
		return;
	d = opendir(run);
	while (d && (e = readdir(d))) {
		cleanup_free char *path = NULL;

		if (!strncmp(e->d_name, "mount-", 6) && fmt(&path, "%s/%s", run, e->d_name) == 0)
			(void)ctl_place_heal(path);
	}
}

bool ctl_place_heal(const char *place)
{
	cleanup_free char *sock = NULL;
	bool found = false;

	if (ctl_place_alive(place))
		return false;
	found = heal_mount(place);
	if (heal_own_mounts(place))
		found = true;
	if (fmt(&sock, "%s/sock", place) == 0 && unlink(sock) == 0)
		found = true;
	return found;
}
