#include "stage3/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stage3/stage3_abi.h"
#include "stage3/status.h"

#define QUEUE 128

static int offer(int which, uint16_t port)
{
	const struct stage3_msg m = {.kind = STAGE3_MSG_LISTENING, .value = which};
	const struct sockaddr_in at = {.sin_family = AF_INET,
				       .sin_port = htons(port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, QUEUE) < 0)
		r = -errno;
	if (r == 0)
		r = status_send_fd(&m, fd);
	(void)close(fd);
	return r;
}

/* The runner that gives up closes its end; what else it may say now is to end. */
static int wait_served(void)
{
	struct stage3_msg m;
	ssize_t n;

	do
		n = recv(STAGE3_FD_STATUS, &m, sizeof(m), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(m) && m.kind == STAGE3_MSG_GO ? 0 : -ECANCELED;
}

int listen_offer(void)
{
	int r = offer(0, STAGE3_PORT_HTTP);

	if (r == 0)
		r = offer(1, STAGE3_PORT_SOCKS);
	return r < 0 ? r : wait_served();
}
