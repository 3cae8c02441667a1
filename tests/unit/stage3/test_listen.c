/* stage3/listen.c: two sockets are handed out, and nothing goes on before they are served. */
#include "stage3/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "stage3/stage3_abi.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

static bool lo_up(void)
{
	struct ifreq q = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool yes = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &q) == 0;

	(void)close(fd);
	return yes;
}

static bool take(uint16_t port)
{
	const struct sockaddr_in a = {.sin_family = AF_INET,
				      .sin_port = htons(port),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0 &&
	       listen(fd, 1) == 0;
}

/* listen_offer in a network of its own, with @busy taken there before: our end of its status socket. */
static int offer(uint16_t busy, pid_t *ret_pid)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		tap_fatal("socketpair");
	fflush(stdout);
	*ret_pid = _Fork(); /* fork(): a sanitizer's thread in the child would forbid unshare(2) */
	if (*ret_pid == 0) {
		int r;

		(void)close(sv[0]);
		if (dup2(sv[1], STAGE3_FD_STATUS) < 0 ||
		    unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 || !lo_up() || (busy && !take(busy)))
			_exit(200);
		if (sv[1] != STAGE3_FD_STATUS)
			(void)close(sv[1]);
		r = listen_offer();
		_exit(-r);
	}
	(void)close(sv[1]);
	return sv[0];
}

static int ended(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 255;
	return WEXITSTATUS(status);
}

static uint16_t receive(int s, int *ret_fd, int *ret_value)
{
	struct sockaddr_in a = {0};
	socklen_t n = sizeof(a), len = sizeof(int);
	int fds[IO_MAX_FDS], listening = 0;
	struct stage3_msg m;
	size_t nfds = 0;

	if (io_recv_fds(s, &m, sizeof(m), fds, &nfds) != (ssize_t)sizeof(m) || nfds != 1 ||
	    m.kind != STAGE3_MSG_LISTENING)
		return 0;
	*ret_fd = fds[0];
	*ret_value = m.value;
	(void)getsockopt(fds[0], SOL_SOCKET, SO_ACCEPTCONN, &listening, &len);
	if (!listening || getsockname(fds[0], (struct sockaddr *)&a, &n) < 0 ||
	    a.sin_addr.s_addr != htonl(INADDR_LOOPBACK))
		return 0;
	return ntohs(a.sin_port);
}

static void say(int s, enum stage3_msg_kind kind)
{
	const struct stage3_msg m = {.kind = kind};

	if (send(s, &m, sizeof(m), MSG_NOSIGNAL) < 0)
		printf("# not sent\n");
}

int main(void)
{
	static const uint16_t ports[] = {STAGE3_PORT_HTTP, STAGE3_PORT_SOCKS};
	int fd = -1, value = -1, s, status;
	pid_t pid;

	need_namespaces();
	for (int end = 0; end < 3; end++) {
		s = offer(0, &pid);
		for (int i = 0; i < 2; i++) {
			eq_int(receive(s, &fd, &value), ports[i], "a socket on its port");
			eq_int(value, i, "which says which");
			(void)close(fd);
		}
		(void)usleep(50000);
		eq_int(waitpid(pid, &status, WNOHANG), 0, "it waits");
		if (end == 0)
			say(s, STAGE3_MSG_GO);
		else if (end == 1)
			say(s, STAGE3_MSG_TERM);
		else
			(void)close(s);
		eq_int(ended(pid), end == 0 ? 0 : ECANCELED, "%s",
		       end == 0   ? "and goes on when they are served"
		       : end == 1 ? "another word is its end"
				  : "and so is silence");
		if (end < 2)
			(void)close(s);
	}
	for (int i = 0; i < 2; i++) {
		s = offer(ports[i], &pid);
		eq_int(ended(pid), EADDRINUSE, "107: a port that is taken is its end");
		(void)close(s);
	}
	return tap_done();
}
