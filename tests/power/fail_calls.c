/* System calls that fail in a daemon when a test says so; see fail.h. */
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/power/fail.h"

#define CALL(type, name, args, call)       \
	type __real_##name args;           \
	type __wrap_##name args;           \
	type __wrap_##name args            \
	{                                  \
		if (fail_asked(#name))     \
			return -1;         \
		return __real_##name call; \
	}

CALL(pid_t, fork, (void), ())
CALL(int, pipe2, (int fds[2], int flags), (fds, flags))
CALL(int, socketpair, (int domain, int type, int protocol, int sv[2]), (domain, type, protocol, sv))
CALL(int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))
CALL(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
CALL(int, epoll_create1, (int flags), (flags))
