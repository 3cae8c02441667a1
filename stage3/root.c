#include "stage3/root.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stage3/root_abi.h"
#include "stage3/root_calls.h"
#include "stage3/root_path.h"

/* Linux 5.19: a signal does not make a caught call begin again, once it is being served. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

/* Linux 6.6: who is woken runs where its waker did, who is about to sleep. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

/* A kernel may write more than we know of. */
#define ROOM 512

/* ---- the filter ---- */

#define FIELD(f) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, f))
#define CATCH(call)                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)
/* With @value in the lower half of its first argument; the kernel reads an int. */
#define CATCH_FIRST(call, value)                                               \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 4), FIELD(args[0]), \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1),            \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF), FIELD(nr)
/* With a device's type in argument @arg; the lower half, of which the kernel reads sixteen bits. */
#define CATCH_NODE(call, arg)                                                    \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 5), FIELD(args[arg]), \
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, S_IFMT),                     \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, S_IFCHR, 1, 0),              \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, S_IFBLK, 0, 1),              \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF), FIELD(nr)

/* Calls of another architecture are ended by the filters behind this one. */
static const struct sock_filter catcher[] = {
	FIELD(nr),
#ifdef SYS_stat
	CATCH(stat),
	CATCH(lstat),
#endif
	CATCH(newfstatat),
	CATCH(fstat),
	CATCH(statx),
#ifdef SYS_chown
	CATCH(chown),
	CATCH(lchown),
#endif
	CATCH(fchown),
	CATCH(fchownat),
	CATCH(setxattr),
	CATCH(lsetxattr),
	CATCH(fsetxattr),
	CATCH(getxattr),
	CATCH(lgetxattr),
	CATCH(fgetxattr),
	CATCH(setuid),
	CATCH(setgid),
	CATCH(setreuid),
	CATCH(setregid),
	CATCH(setresuid),
	CATCH(setresgid),
	CATCH(setgroups),
	CATCH(setfsuid),
	CATCH(setfsgid),
	CATCH(getuid),
	CATCH(geteuid),
	CATCH(getgid),
	CATCH(getegid),
	CATCH(getresuid),
	CATCH(getresgid),
	CATCH(getgroups),
	CATCH_FIRST(prctl, PR_SET_KEEPCAPS),
#ifdef SYS_mknod
	CATCH_NODE(mknod, 1),
#endif
	CATCH_NODE(mknodat, 2),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

/* ---- from the child to init ---- */

int root_pair(int *ret_child, int *ret_init)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
		return -errno;
	*ret_child = fd[0];
	*ret_init = fd[1];
	return 0;
}

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static int give(int sock, int fd)
{
	char byte = 0;
	struct iovec v = {.iov_base = &byte, .iov_len = 1};
	union control c = {0};
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};

	c.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS,
				  .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(&c.head), &fd, sizeof(fd));
	return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A lower soft limit of the host's would say that the command is somebody. */
static void begin_as_root(void)
{
	struct rlimit lim;

	if (getrlimit(ROOT_WHO_LIMIT, &lim) == 0 && root_who_carried(&lim)) {
		lim.rlim_cur = RLIM_INFINITY;
		(void)setrlimit(ROOT_WHO_LIMIT, &lim);
	}
}

int root_catch(int sock)
{
	struct sock_fprog prog = {.len = sizeof(catcher) / sizeof(catcher[0]),
				  .filter = (struct sock_filter *)(uintptr_t)catcher};
	unsigned long flags =
		SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	long fd;
	int r;

	begin_as_root();
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
	if (fd < 0 && errno == EINVAL)
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			     &prog);
	if (fd < 0)
		return -errno;
	r = give(sock, (int)fd);
	(void)close((int)fd);
	return r;
}

int root_take(int sock)
{
	char byte;
	struct iovec v = {.iov_base = &byte, .iov_len = 1};
	union control c = {0};
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
	ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int fd = -1;

	if (n == 1 && m.msg_controllen >= sizeof(c.head) && c.head.cmsg_type == SCM_RIGHTS &&
	    c.head.cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&c.head), sizeof(fd));
	(void)close(sock);
	if (fd >= 0) /* an older kernel is slower */
		(void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
	return fd;
}

/* ---- what is caught ---- */

void root_serve(int fd, struct root_people *people)
{
	union {
		struct seccomp_notif n;
		char room[ROOM];
	} in = {0};
	union {
		struct seccomp_notif_resp r;
		char room[ROOM];
	} out = {0};
	struct root_caller who;
	struct root_answer a;

	/* Who asked may be gone by now. */
	if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &in.n) < 0)
		return;
	who = (struct root_caller){
		.pid = in.n.pid, .listener = fd, .id = in.n.id, .people = people};
	a = root_call(&in.n.data, &who);
	out.r.id = in.n.id;
	out.r.error = a.mine ? a.error : 0;
	out.r.val = a.mine && !a.error ? a.value : 0;
	out.r.flags = a.mine ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	(void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &out.r);
}
