#include "fs/fuse/mount_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"

#define HELPER "fusermount3"
/* The helper's numbers of what it inherits. */
enum {
	HELPER_SOCK = 3,
	MESSAGE_MAX = 300
};

/* Nothing of ours: the helper runs as root and needs no more than where to answer. */
static int make_env(struct buf *text, char *env[static 3])
{
	int r = buf_printf(text, "_FUSE_COMMFD=%d", HELPER_SOCK);

	if (r < 0)
		return r;
	env[0] = (char *)text->data;
	env[1] = (char *)(uintptr_t) "LC_ALL=C";
	env[2] = NULL;
	return 0;
}

/* Run the helper with @sock (-1: none) as its socket and @err as its stderr. */
static int spawn(char *const argv[], int sock, int err, pid_t *ret_pid)
{
	posix_spawn_file_actions_t fa;
	cleanup_buf struct buf text = {0};
	char *env[3];
	int r = make_env(&text, env);

	if (r < 0)
		return r;
	r = posix_spawn_file_actions_init(&fa);
	if (r)
		return -r;
	r = posix_spawn_file_actions_adddup2(&fa, err, STDERR_FILENO);
	if (r == 0 && sock >= 0)
		r = posix_spawn_file_actions_adddup2(&fa, sock, HELPER_SOCK);
	if (r == 0)
		r = posix_spawnp(ret_pid, HELPER, &fa, NULL, argv, env);
	(void)posix_spawn_file_actions_destroy(&fa);
	return -r;
}

/* 0: it ended well. -ECHILD when nobody can know (SIGCHLD ignored). */
static int reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return ret_nerrno();
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

/* A pair that the helper's numbers cannot collide with. */
static int above_stdio(int fd[static 2])
{
	for (int i = 0; i < 2; i++) {
		int moved = fcntl(fd[i], F_DUPFD_CLOEXEC, HELPER_SOCK + 1);

		if (moved < 0)
			return ret_nerrno();
		(void)close(fd[i]);
		fd[i] = moved;
	}
	return 0;
}

static void cleanup_pairp(int (*p)[2])
{
	cleanup_fdp(&(*p)[0]);
	cleanup_fdp(&(*p)[1]);
}
#define cleanup_pair __attribute__((cleanup(cleanup_pairp)))

/* The descriptor that the helper sends, or -EPERM when it ends without. */
static int receive_fd(int sock, int *ret_fd)
{
	int fds[IO_MAX_FDS];
	size_t nfds = 0;
	char byte;
	ssize_t n = io_recv_fds(sock, &byte, 1, fds, &nfds);

	if (n < 0)
		return (int)n;
	for (size_t i = 1; i < nfds; i++)
		(void)close(fds[i]);
	if (nfds == 0)
		return -EPERM;
	*ret_fd = fds[0];
	return 0;
}

/* What the helper said, as the end of a sentence. */
static void read_message(int fd, char ret[static MESSAGE_MAX])
{
	ssize_t n = io_read_full(fd, ret, MESSAGE_MAX - 1);

	ret[n > 0 ? n : 0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	if (!ret[0])
		(void)snprintf(ret, MESSAGE_MAX, "it gave no reason");
}

/* Commas and backslashes would end the option or quote the next character. */
static int put_escaped(struct buf *b, const char *s)
{
	int r = 0;

	for (; *s && r == 0; s++) {
		if (*s == ',' || *s == '\\')
			r = buf_put(b, "\\", 1);
		if (r == 0)
			r = buf_put(b, s, 1);
	}
	return r;
}

static int make_options(const struct mount_opts *o, unsigned max_read, struct buf *b)
{
	int r = buf_printf(b, "nosuid,nodev,default_permissions,max_read=%u%s%s,fsname=", max_read,
			   o->rdonly ? ",ro" : "", o->allow_other ? ",allow_other" : "");

	return r < 0 ? r : put_escaped(b, o->name);
}

int mount_helper_mount(const struct mount_opts *o, unsigned max_read, struct diag *diag,
		       int *ret_fd)
{
	cleanup_pair int sock[2] = {-1, -1};
	cleanup_pair int err[2] = {-1, -1};
	cleanup_buf struct buf opts = {0};
	char message[MESSAGE_MAX];
	int r = make_options(o, max_read, &opts), fd = -1;
	char *argv[] = {(char *)(uintptr_t)HELPER, (char *)(uintptr_t) "-o",  (char *)opts.data,
			(char *)(uintptr_t) "--",  (char *)(uintptr_t)o->dir, NULL};
	pid_t pid;

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0 ||
	    pipe2(err, O_CLOEXEC) < 0)
		return ret_nerrno();
	r = above_stdio(sock);
	if (r == 0)
		r = above_stdio(err);
	if (r < 0)
		return r;
	r = spawn(argv, sock[1], err[1], &pid);
	if (r == -ENOENT)
		return diag_set(diag, r, "there is no %s: install the package fuse3", HELPER);
	if (r < 0)
		return diag_set(diag, r, "cannot run %s: %s", HELPER, err_text(r));
	/* Ours of its ends must be closed, or we would not see the end of file when it dies. */
	(void)close(steal_fd(&sock[1]));
	(void)close(steal_fd(&err[1]));
	r = receive_fd(sock[0], &fd);
	read_message(err[0], message);
	(void)reap(pid); /* a descriptor says more than a status */
	if (r < 0)
		return diag_set(diag, r, "%s could not mount on %s: %s", HELPER, o->dir, message);
	*ret_fd = fd;
	return 0;
}

int mount_helper_detach(const char *dir)
{
	char *argv[] = {(char *)(uintptr_t)HELPER,
			(char *)(uintptr_t) "-u",
			(char *)(uintptr_t) "-z",
			(char *)(uintptr_t) "-q",
			(char *)(uintptr_t) "--",
			(char *)(uintptr_t)dir,
			NULL};
	cleanup_fd int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pid_t pid;
	int r;

	if (null_fd < 0)
		return ret_nerrno();
	r = spawn(argv, -1, null_fd, &pid);
	return r < 0 ? r : reap(pid);
}
