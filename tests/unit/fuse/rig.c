#include "tests/unit/fuse/rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/fuse/mount.h"
#include "tests/lib/tap.h"

struct call {
	int (*fn)(int arg); /* the same address in every process: they are forks */
	int arg;
};

static void client(const char *mnt, int sock)
{
	struct call c;
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(sock, &c, sizeof(c)) == (ssize_t)sizeof(c)) {
		r = chdir(mnt) < 0 ? -errno : c.fn(c.arg);
		(void)!chdir("/");
		if (write(sock, &r, sizeof(r)) != (ssize_t)sizeof(r))
			break;
	}
	_exit(0);
}

static void skip(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	exit(0);
}

static void fork_clients(struct rig *r)
{
	int sv[2];

	for (int i = 0; i < RIG_CLIENTS; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
			tap_fatal("socketpair: %m");
		r->pid[i] = fork();
		if (r->pid[i] < 0)
			tap_fatal("fork: %m");
		if (r->pid[i] == 0) {
			for (int k = 0; k < i; k++)
				(void)close(r->sock[k]);
			(void)close(sv[0]);
			(void)close(r->fuse_fd); /* ours alone may keep the connection alive */
			client(r->mnt, sv[1]);
		}
		(void)close(sv[1]);
		r->sock[i] = sv[0];
	}
}

void rig_open(struct rig *r, bool helper)
{
	struct mount_opts mo = {.dir = r->mnt, .name = "rattan:te,st", .helper = helper};
	struct diag diag = {0};

	memset(r, 0, sizeof(*r));
	r->helper = helper;
	(void)snprintf(r->dir, sizeof(r->dir), "/tmp/rattan-test-XXXXXX");
	if (!mkdtemp(r->dir))
		tap_fatal("mkdtemp: %m");
	(void)snprintf(r->mnt, sizeof(r->mnt), "%s/mnt", r->dir);
	if (!helper && mount_enter_ns(r->dir, &diag) < 0) {
		(void)rmdir(r->dir);
		skip(diag.text);
	}
	if (mkdir(r->mnt, 0755) < 0)
		tap_fatal("mkdir: %m");
	if (mount_fuse(&mo, &diag, &r->fuse_fd) < 0) {
		(void)rmdir(r->mnt);
		(void)umount2(r->dir, MNT_DETACH);
		(void)rmdir(r->dir);
		skip(diag.text);
	}
	fork_clients(r);
}

void rig_close(struct rig *r)
{
	(void)!mount_detach(r->mnt, r->helper);
	for (int i = 0; i < RIG_CLIENTS; i++) {
		(void)close(r->sock[i]);
		(void)waitpid(r->pid[i], NULL, 0);
	}
	(void)rmdir(r->mnt);
	if (!r->helper)
		(void)umount2(r->dir, MNT_DETACH);
	(void)rmdir(r->dir);
}

void rig_call(struct rig *r, int i, int (*fn)(int arg), int arg)
{
	struct call c = {.fn = fn, .arg = arg};

	if (write(r->sock[i], &c, sizeof(c)) != (ssize_t)sizeof(c))
		tap_fatal("client %d is gone", i);
}

int rig_wait(struct rig *r, int i, int ms)
{
	struct pollfd p = {.fd = r->sock[i], .events = POLLIN};
	int res;

	if (poll(&p, 1, ms) <= 0)
		return -ETIMEDOUT;
	if (read(r->sock[i], &res, sizeof(res)) != (ssize_t)sizeof(res))
		tap_fatal("client %d is gone", i);
	return res;
}

int rig_do(struct rig *r, int (*fn)(int arg), int arg)
{
	rig_call(r, 0, fn, arg);
	return rig_wait(r, 0, 10000);
}
