/* Between fork and bwrap's exec: namespaces of the session's own, in which its sources are copied by descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "runner/role_internal.h"
#include "stage3/stage3_abi.h"

/* The step for the program that started us, the sentence for its user. */
static void __attribute__((noreturn, format(printf, 3, 4)))
fail(const struct role_launch *l, enum role_step step, const char *fmt, ...)
{
	struct stage3_msg m = {
		.kind = STAGE3_MSG_FAILED, .step = (uint32_t)step, .error = errno ? errno : EIO};
	char text[600];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n > 0)
		(void)!write(l->fd[STDERR_FILENO], text,
			     (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
	(void)!write(l->fd[STAGE3_FD_STATUS], &m, sizeof(m));
	_exit(STAGE3_EXIT_FAILED);
}

static int write_map(const char *file, unsigned id)
{
	char text[64];
	int fd = open(file, O_WRONLY | O_CLOEXEC), n, r;

	if (fd < 0)
		return -1;
	n = snprintf(text, sizeof(text), "%u %u 1\n", id, id);
	r = io_write_full(fd, text, (size_t)n);
	(void)close(fd);
	errno = -r;
	return r < 0 ? -1 : 0;
}

/* The host's user stays what it is (S2): the same ids inside and out. */
static void own_namespaces(const struct role_launch *l)
{
	unsigned uid = geteuid(), gid = getegid();
	int fd;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		fail(l, ROLE_STEP_NAMESPACES, "user namespaces: %s", err_text(errno));
	fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!write(fd, "deny", 4);
		(void)close(fd);
	}
	if (write_map("/proc/self/uid_map", uid) < 0 || write_map("/proc/self/gid_map", gid) < 0)
		fail(l, ROLE_STEP_NAMESPACES, "user namespaces: %s", err_text(errno));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail(l, ROLE_STEP_NAMESPACES, "mount namespaces: %s", err_text(errno));
}

/* K13: a link on the way was not there when the path was written, or was not meant to be followed. */
static int open_source(const struct role_launch *l, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	if (fd < 0 && errno == ELOOP)
		fail(l, ROLE_STEP_SOURCE,
		     "%s leads through a symbolic link and is not bound; name the real path", path);
	if (fd < 0)
		fail(l, ROLE_STEP_SOURCE, "%s cannot be bound: %s", path, err_text(errno));
	return fd;
}

static bool has_source(const struct run_mount *m)
{
	return m->kind == RUN_MOUNT_RO || m->kind == RUN_MOUNT_RW;
}

/* The descriptor's file or directory appears at @at, whatever its path leads to by now. */
static void stage_one(const struct role_launch *l, int fd, const char *at, const char *source)
{
	struct stat st;
	int tree, r;

	if (fstat(fd, &st) < 0)
		fail(l, ROLE_STEP_SOURCE, "%s cannot be bound: %s", source, err_text(errno));
	r = S_ISDIR(st.st_mode) ? mkdir(at, 0700) : mknod(at, S_IFREG | 0600, 0);
	tree = r < 0 ? -1
		     : (int)syscall(SYS_open_tree, fd, "",
				    OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH |
					    AT_RECURSIVE);
	if (tree < 0 ||
	    syscall(SYS_move_mount, tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		fail(l, ROLE_STEP_SOURCE, "%s cannot be bound: %s", source, err_text(errno));
	(void)close(tree);
	(void)close(fd);
}

/* All are opened before the first is mounted: no mount of ours hides a source. */
static void stage_all(const struct role_launch *l)
{
	const struct role_spec *s = l->spec;
	int *fds = calloc(s->n + 1, sizeof(*fds));
	char at[sizeof(l->stage) + 24];

	if (!fds)
		fail(l, ROLE_STEP_STAGE, "out of memory");
	for (size_t i = 0; i < s->n; i++)
		fds[i] = has_source(&s->mounts[i]) ? open_source(l, s->mounts[i].source) : -1;
	if (mount("rattan-role", l->stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700,size=1m") < 0)
		fail(l, ROLE_STEP_STAGE, "%s: %s", l->stage, err_text(errno));
	for (size_t i = 0; i < s->n; i++) {
		if (fds[i] < 0)
			continue;
		(void)snprintf(at, sizeof(at), "%s/%zu", l->stage, i);
		stage_one(l, fds[i], at, s->mounts[i].source);
	}
	free(fds);
}

/* Sources may lie where targets go: first out of the way, then into place. */
static void arrange(const struct role_launch *l)
{
	int up[ROLE_FD_COUNT];

	for (int i = 0; i < ROLE_FD_COUNT; i++) {
		up[i] = l->fd[i] < 0 ? -1 : fcntl(l->fd[i], F_DUPFD_CLOEXEC, 64);
		if (l->fd[i] >= 0 && up[i] < 0)
			fail(l, ROLE_STEP_BWRAP, "descriptors: %s", err_text(errno));
	}
	for (int i = 0; i < ROLE_FD_COUNT; i++)
		if (up[i] >= 0)
			(void)dup2(up[i], i);
	(void)syscall(SYS_close_range, ROLE_FD_COUNT, ~0u, 0); /* R3 */
}

static void default_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

void role_child(const struct role_launch *l)
{
	char *const argv[] = {(char[]){"bwrap"}, (char[]){"--args"},          (char[]){"7"},
			      (char[]){"--"},    (char[]){"/proc/self/fd/6"}, NULL};
	char *const env[] = {NULL};

	_Static_assert(STAGE3_FD_ARGS == 7 && STAGE3_FD_SELF == 6, "the words above");
	/* A terminal that goes away with its host takes nothing along (K9). */
	(void)setsid();
	if (role_record_write(l->spec->dir, l->spec->name) < 0)
		fail(l, ROLE_STEP_STAGE, "%s: %s", l->spec->dir, err_text(errno));
	errno = -role_leave_keys();
	if (errno)
		fail(l, ROLE_STEP_STAGE, "keys: %s", err_text(errno));
	own_namespaces(l);
	stage_all(l);
	arrange(l);
	default_signals();
	if (chdir("/") == 0)
		(void)execve(l->bwrap, argv, env);
	{
		const struct role_launch moved = {.fd = {[STDERR_FILENO] = STDERR_FILENO,
							 [STAGE3_FD_STATUS] = STAGE3_FD_STATUS}};

		fail(&moved, ROLE_STEP_BWRAP, "%s", err_text(errno));
	}
}
