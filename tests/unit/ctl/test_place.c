/* What a dead or stuck server left on the host, and a mount that is taken away by plain umount(2); in namespaces of the
 * test's own. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/mounts.h"
#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_internal.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

static char top[64] = "/tmp/rattan-test-XXXXXX";

static char *below(const char *name)
{
	char *s;

	if (asprintf(&s, "%s/%s", top, name) < 0)
		tap_fatal("no memory");
	return s;
}

static void put(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || io_write_full(fd, text, strlen(text)) < 0)
		tap_fatal("cannot write %s", path);
}

static void enter(void)
{
	char map[64];
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		tap_fatal("no namespaces");
	put("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof(map), "0 %u 1\n", uid);
	put("/proc/self/uid_map", map);
	(void)snprintf(map, sizeof(map), "0 %u 1\n", gid);
	put("/proc/self/gid_map", map);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		tap_fatal("no private mounts");
}

static int mount_at(const char *dir)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char opts[80];

	(void)snprintf(opts, sizeof(opts), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if ((mkdir(dir, 0700) < 0 && errno != EEXIST) || fd < 0 ||
	    mount("rattan:x", dir, "fuse", MS_NOSUID | MS_NODEV, opts) < 0)
		tap_fatal("no mount");
	return fd;
}

static bool ours(const char *dir)
{
	bool yes = false;

	return mounts_at(dir, &yes) == 0 && yes;
}

/* Its server is dead, and somebody holds the connection: who asks it waits for ever. */
static void nobody_answers(void)
{
	cleanup_free char *dir = below("m"), *place = NULL, *note = NULL;
	cleanup_fd int fd = mount_at(dir);
	struct diag d = {0};
	long long t = io_now_ms();

	if (ctl_place_mount(dir, &d, &place) < 0 || asprintf(&note, "%s/hostmount", place) < 0)
		tap_fatal("no place");
	put(note, dir);
	ok(ours(dir), "a mount of ours that nobody answers");
	ok(ctl_place_heal(place), "is found");
	ok(!ours(dir), "and taken away");
	ok(io_now_ms() - t < 10000, "within seconds");
}

static void taken_by_hand(void)
{
	cleanup_free char *dir = below("m");
	cleanup_fd int fd = mount_at(dir);
	struct diag d = {0};

	eq_int(ctl_umount(dir, &d), 0, "one that nobody answers is unmounted when asked: %s",
	       d.text);
	ok(!ours(dir), "it is gone");
	eq_int(ctl_umount(dir, &d), -ENOENT, "and nothing of ours is there");
}

/* Its server holds the place and is stuck. */
static void mounted_already(void)
{
	cleanup_free char *dir = below("m"), *place = NULL, *file = NULL;
	cleanup_fd int fd = mount_at(dir), alive = -1;
	struct diag d = {0};

	if (ctl_place_mount(dir, &d, &place) < 0 || asprintf(&file, "%s/alive", place) < 0)
		tap_fatal("no place");
	alive = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (alive < 0 || flock(alive, LOCK_EX) < 0)
		tap_fatal("no lock");
	eq_int(ctl_mount(top, "e", "head", dir, false, &d), -EBUSY, "over a stuck mount: %s",
	       d.text);
	ok(ours(dir), "which stays");
	(void)umount2(dir, MNT_DETACH);
}

/* ---- one that lives ---- */

static void *serve(void *arg)
{
	int fd = *(int *)arg;
	static uint8_t in[1 << 18];
	ssize_t n;

	while ((n = read(fd, in, sizeof(in))) > 0) {
		const struct fuse_in_header *h = (const void *)in;
		struct {
			struct fuse_out_header h;
			struct fuse_init_out init;
		} out = {.h = {.unique = h->unique, .len = sizeof(out.h), .error = -ENOSYS},
			 .init = {.major = FUSE_KERNEL_VERSION,
				  .minor = FUSE_KERNEL_MINOR_VERSION,
				  .max_write = 1 << 16}};

		if (h->opcode == FUSE_INIT)
			out.h = (struct fuse_out_header){.unique = h->unique, .len = sizeof(out)};
		(void)!write(fd, &out, out.h.len);
	}
	return NULL;
}

static void another_serves(void)
{
	cleanup_free char *dir = below("m"), *place = NULL, *note = NULL;
	cleanup_fd int fd = mount_at(dir);
	struct diag d = {0};
	pthread_t t;

	if (ctl_place_mount(dir, &d, &place) < 0 || asprintf(&note, "%s/hostmount", place) < 0 ||
	    pthread_create(&t, NULL, serve, &fd))
		tap_fatal("no place");
	put(note, dir);
	(void)!ctl_place_heal(place);
	ok(ours(dir), "what another one serves at the place of a dead one stays");
	(void)umount2(dir, MNT_DETACH);
	(void)pthread_join(t, NULL);
}

/* ---- rattan-fs serve --dir ---- */

static pid_t start(const char *dir)
{
	cleanup_free char *data = below("data");
	char number[16], byte;
	int fds[2];
	const char *argv[] = {getenv("RATTAN_FS"),
			      "serve",
			      "--foreground",
			      "--data-dir",
			      data,
			      "--env",
			      "e",
			      "--create",
			      "--dir",
			      dir,
			      "--ready-fd",
			      number,
			      NULL};
	pid_t pid;

	if (pipe(fds) < 0)
		tap_fatal("no pipe");
	(void)fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	(void)snprintf(number, sizeof(number), "%d", fds[1]);
	if (!argv[0] ||
	    posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0)
		tap_fatal("cannot start RATTAN_FS");
	(void)close(fds[1]);
	while (read(fds[0], &byte, 1) > 0)
		;
	(void)close(fds[0]);
	return pid;
}

static int end_of(pid_t pid, int ms)
{
	int status;

	for (; ms > 0; ms -= 10) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
		(void)usleep(10000);
	}
	return -1;
}

static void plain_umount(void)
{
	cleanup_free char *dir = below("serve");
	pid_t pid;

	if (mkdir(dir, 0700) < 0)
		tap_fatal("mkdir");
	pid = start(dir);
	ok(ours(dir), "serve --dir mounts");
	ok(umount2(dir, 0) == 0, "and does not keep it busy itself: %s", err_text(errno));
	(void)umount2(dir, MNT_DETACH);
	eq_int(end_of(pid, 10000), 0, "it ends with the mount");
}

/* The place has another name now; the mount is there. */
static void moved_place(void)
{
	cleanup_free char *up = below("up"), *dir = below("up/d"), *to = below("to"),
			  *moved = below("to/d"), *else_ = below("m");
	struct stat st;
	pid_t pid;

	if (mkdir(up, 0700) < 0 || mkdir(dir, 0700) < 0)
		tap_fatal("mkdir");
	pid = start(dir);
	if (rename(up, to) < 0 || mount("t", else_, "tmpfs", 0, NULL) < 0)
		tap_fatal("cannot move");
	eq_int(end_of(pid, 500), -1, "it goes on where it was moved to");
	(void)umount2(else_, MNT_DETACH);
	eq_int(stat(moved, &st), 0, "answers there");
	ok(umount2(moved, 0) == 0, "is unmounted there: %s", err_text(errno));
	(void)umount2(moved, MNT_DETACH);
	eq_int(end_of(pid, 10000), 0, "and ends");
}

/* Of "end": its server's, which ends just when it is told. */
static int end_reader = -1;

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	/* Set by a process of one thread; others only look. */
	if (end_reader >= 0) {
		(void)close(end_reader);
		end_reader = -1;
	}
	return __real_write(fd, p, n);
}

static void nobody_hears(void)
{
	cleanup_free char *place = below("ending"), *end = below("ending/end");
	int status = -1;
	pid_t pid;

	if (mkdir(place, 0700) < 0 || mkfifo(end, 0600) < 0)
		tap_fatal("no pipe");
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGPIPE, SIG_DFL);
		end_reader = open(end, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		_exit(end_reader >= 0 && ctl_place_end_mount(place) == 0 ? 0 : 1);
	}
	ok(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0,
	   "a server that ends meanwhile need not be told (%d)", status);
}

int main(void)
{
	need_namespaces();
	if (!mkdtemp(top))
		tap_fatal("no directory");
	(void)setenv("XDG_RUNTIME_DIR", top, 1);
	enter();
	(void)alarm(100); /* nothing of this may wait for ever */
	nobody_answers();
	taken_by_hand();
	mounted_already();
	another_serves();
	plain_umount();
	moved_place();
	nobody_hears();
	if (fork() == 0) {
		(void)execlp("rm", "rm", "-rf", top, NULL);
		_exit(1);
	}
	(void)wait(NULL);
	return tap_done();
}
