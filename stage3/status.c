#include "stage3/status.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* write, not send: under the narrowest filter that still execs, write is allowed and send is not. */
int status_send(const struct stage3_msg *m)
{
	ssize_t n;

	do
		n = write(STAGE3_FD_STATUS, m, sizeof(*m));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == sizeof(*m) ? 0 : -EIO;
}

int status_send_fd(const struct stage3_msg *m, int fd)
{
	struct stage3_msg copy = *m;
	struct iovec iov = {.iov_base = &copy, .iov_len = sizeof(copy)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} ctl = {0};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = ctl.bytes,
			     .msg_controllen = sizeof(ctl.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(STAGE3_FD_STATUS, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void status_failed(enum stage3_step step, int error)
{
	struct stage3_msg m = {
		.kind = STAGE3_MSG_FAILED, .step = step, .error = error < 0 ? -error : error};

	/* When nobody listens, the exit code is all that can be said. */
	(void)status_send(&m);
}
