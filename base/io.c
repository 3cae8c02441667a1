#include "base/io.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

ssize_t io_read_full(int fd, void *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t k = read(fd, (char *)p + done, n - done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ret_nerrno();
		if (k == 0)
			break;
		done += (size_t)k;
	}
	return (ssize_t)done;
}

ssize_t io_pread_full(int fd, void *p, size_t n, off_t off)
{
	size_t done = 0;

	while (done < n) {
		ssize_t k = pread(fd, (char *)p + done, n - done, off + (off_t)done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ret_nerrno();
		if (k == 0)
			break;
		done += (size_t)k;
	}
	return (ssize_t)done;
}

int io_write_full(int fd, const void *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t k = write(fd, (const char *)p + done, n - done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ret_nerrno();
		done += (size_t)k;
	}
	return 0;
}

int io_read_file(int dirfd, const char *path, size_t max, struct buf *out)
{
	cleanup_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t start = out->len;

	if (fd < 0)
		return ret_nerrno();
	for (;;) {
		ssize_t k;
		int r = buf_reserve(out, 4096);

		if (r < 0)
			return r;
		k = io_read_full(fd, out->data + out->len, out->cap - out->len - 1);
		if (k < 0)
			return (int)k;
		out->len += (size_t)k;
		out->data[out->len] = 0;
		if (out->len - start > max)
			return -EFBIG;
		if (k == 0)
			return 0;
	}
}

void io_most_descriptors(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
	}
}

/* The rest of a message: who has gone meanwhile is an error here as well, and no signal. */
static int send_rest(int sock, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t k = send(sock, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ret_nerrno();
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

int io_send_fds(int sock, const void *p, size_t n, const int *fds, size_t nfds)
{
	union {
		char space[CMSG_SPACE(IO_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t k;

	if (nfds > IO_MAX_FDS || n == 0)
		return -EINVAL;
	if (nfds) {
		struct cmsghdr *c;

		memset(&ctl, 0, sizeof(ctl));
		msg.msg_control = ctl.space;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	do
		k = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return ret_nerrno();
	/* The descriptors went with the first byte; the rest of a stream message follows plainly. */
	if ((size_t)k < n)
		return send_rest(sock, (const char *)p + k, n - (size_t)k);
	return 0;
}

ssize_t io_recv_fds(int sock, void *p, size_t n, int fds[static IO_MAX_FDS], size_t *ret_nfds)
{
	union {
		char space[CMSG_SPACE(IO_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {.iov_base = p, .iov_len = n};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = ctl.space,
			     .msg_controllen = sizeof(ctl.space)};
	size_t got = 0;
	ssize_t k;

	do
		k = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return ret_nerrno();
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t m;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		m = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < m; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (got < IO_MAX_FDS)
				fds[got++] = fd;
			else
				(void)close(fd);
		}
	}
	*ret_nfds = got;
	return k;
}

int io_mkdir_p(const char *path, mode_t mode)
{
	cleanup_free char *s = strdup(path);

	if (!s)
		return -ENOMEM;
	if (!*s)
		return -ENOENT;
	for (char *p = s + 1;; p++) {
		char c = *p;

		if (c != '/' && c != 0)
			continue;
		*p = 0;
		if (mkdir(s, mode) < 0 && errno != EEXIST) {
			struct stat st;
			int r = ret_nerrno();

			/* A read-only or unwritable ancestor that exists is no error. */
			if (stat(s, &st) < 0 || !S_ISDIR(st.st_mode))
				return r;
		}
		*p = c;
		if (c == 0)
			return 0;
	}
}

int io_std_open(void)
{
	/* The lowest number is given out: all below @fd are open. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		if (open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd)
			return ret_nerrno();
	}
	return 0;
}

int io_only(int fd)
{
	if (unshare(CLONE_FILES) < 0)
		return ret_nerrno();
	if (fd > 0 && close_range(0, (unsigned)fd - 1, 0) < 0)
		return ret_nerrno();
	return close_range((unsigned)fd + 1, ~0u, 0) < 0 ? ret_nerrno() : 0;
}

long long io_now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (long long)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
