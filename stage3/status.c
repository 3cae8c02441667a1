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

/* A message with room for one descriptor. */
struct carrier {
	struct iovec iov;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct msghdr msg;
};

static void carrier_init(struct carrier *c, struct stage3_msg *m)
{
	memset(c, 0, sizeof(*c));
	c->iov = (struct iovec){.iov_base = m, .iov_len = sizeof(*m)};
	c->msg = (struct msghdr){.msg_iov = &c->iov,
				 .msg_iovlen = 1,
				 .msg_control = c->ctl.bytes,
				 .msg_controllen = sizeof(c->ctl.bytes)};
}

int status_send_fd(const struct stage3_msg *m, int fd)
{
	struct stage3_msg copy = *m;
	struct carrier c;
	struct cmsghdr *h;

	carrier_init(&c, &copy);
	h = CMSG_FIRSTHDR(&c.msg);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(int));
	return sendmsg(STAGE3_FD_STATUS, &c.msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int status_receive_fd(struct stage3_msg *ret, int *ret_fd)
{
	struct carrier c;
	struct cmsghdr *h;
	ssize_t n;

	*ret_fd = -1;
	carrier_init(&c, ret);
	do
		n = recvmsg(STAGE3_FD_STATUS, &c.msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	h = CMSG_FIRSTHDR(&c.msg);
	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(h), sizeof(int));
	return n == sizeof(*ret) ? 0 : -ECANCELED;
}

void status_failed(enum stage3_step step, int error)
{
	struct stage3_msg m = {
		.kind = STAGE3_MSG_FAILED, .step = step, .error = error < 0 ? -error : error};

	/* When nobody listens, the exit code is all that can be said. */
	(void)status_send(&m);
}
