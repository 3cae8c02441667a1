#include "fs/ctl/ctl_io.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_msg.h"

int ctl_frame_send(int sock, const struct buf *msg, const int *fds, size_t nfds)
{
	cleanup_buf struct buf whole = {0};
	uint32_t be = htonl((uint32_t)msg->len);
	int r;

	if (msg->len == 0 || msg->len > CTL_FRAME_MAX)
		return -EMSGSIZE;
	/* One buffer, so that a small message is one system call and one wakeup. */
	r = buf_put(&whole, &be, sizeof(be));
	if (r == 0)
		r = buf_put(&whole, msg->data, msg->len);
	if (r == 0)
		r = io_send_fds(sock, whole.data, whole.len, fds, nfds);
	return r == -ECONNRESET ? -EPIPE : r;
}

void ctl_close_fds(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]);
		fds[i] = -1;
	}
}

static int recv_head(int sock, uint32_t *ret_len, int fds[static IO_MAX_FDS], size_t *nfds)
{
	uint8_t head[4];
	size_t have = 0;

	while (have < sizeof(head)) {
		int more[IO_MAX_FDS];
		size_t nmore = 0;
		ssize_t k = io_recv_fds(sock, head + have, sizeof(head) - have, more, &nmore);

		if (k < 0)
			return (int)k;
		for (size_t i = 0; i < nmore; i++) {
			if (*nfds < IO_MAX_FDS)
				fds[(*nfds)++] = more[i];
			else
				(void)close(more[i]);
		}
		if (k == 0)
			return have ? -EBADMSG : 0;
		have += (size_t)k;
	}
	memcpy(ret_len, head, sizeof(*ret_len));
	*ret_len = ntohl(*ret_len);
	return 1;
}

int ctl_frame_recv(int sock, struct buf *msg, int fds[static IO_MAX_FDS], size_t *ret_nfds)
{
	size_t nfds = 0;
	uint32_t len = 0;
	int r = recv_head(sock, &len, fds, &nfds);

	buf_clear(msg);
	if (r > 0 && (len == 0 || len > CTL_FRAME_MAX))
		r = -EMSGSIZE;
	if (r > 0) {
		int e = buf_reserve(msg, len + 1);

		r = e < 0 ? e : r;
	}
	if (r > 0) {
		ssize_t k = io_read_full(sock, msg->data, len);

		if (k < 0)
			r = (int)k;
		else if ((size_t)k < len)
			r = -EBADMSG;
		else
			msg->len = len;
	}
	if (r <= 0) {
		ctl_close_fds(fds, nfds);
		return r == -ECONNRESET ? -EPIPE : r;
	}
	*ret_nfds = nfds;
	return 1;
}

/* sun_path holds 107 bytes; a longer path is reached through its directory's descriptor. */
static int sock_addr(const char *path, struct sockaddr_un *sa, int *ret_dir)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = NULL;
	int n;

	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	*ret_dir = -1;
	if (strlen(path) < sizeof(sa->sun_path)) {
		memcpy(sa->sun_path, path, strlen(path));
		return 0;
	}
	if (!slash)
		return -ENAMETOOLONG;
	dir = strndup(path, (size_t)(slash - path));
	if (!dir)
		return -ENOMEM;
	*ret_dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0)
		return ret_nerrno();
	n = snprintf(sa->sun_path, sizeof(sa->sun_path), "/proc/self/fd/%d%s", *ret_dir, slash);
	return n < 0 || (size_t)n >= sizeof(sa->sun_path) ? -ENAMETOOLONG : 0;
}

int ctl_sock_connect(const char *path, int *ret_fd)
{
	cleanup_fd int fd = -1, dir = -1;
	struct sockaddr_un sa;
	int r = sock_addr(path, &sa, &dir);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

int ctl_sock_listen(const char *path, int *ret_fd)
{
	cleanup_fd int fd = -1, dir = -1;
	struct sockaddr_un sa;
	int r = sock_addr(path, &sa, &dir);

	if (r < 0)
		return r;
	if (unlink(path) < 0 && errno != ENOENT)
		return ret_nerrno();
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return ret_nerrno();
	/* The directory is 0700; the mode of the socket itself is a second fence. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(fd, 64) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

int ctl_sock_check_peer(int sock)
{
	struct ucred uc;
	socklen_t n = sizeof(uc);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &uc, &n) < 0)
		return ret_nerrno();
	return uc.uid == geteuid() ? 0 : -EPERM;
}
