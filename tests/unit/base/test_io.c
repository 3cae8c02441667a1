/* Messages to somebody who has gone. */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "tests/lib/tap.h"

#define LARGE (8u << 20)

/* Goes in the middle of a message that it has begun to read: the sender is told, and lives, though it does not ignore SIGPIPE. */
static void test_goes(bool reads)
{
	static char large[LARGE];
	int sv[2], status = 0;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		tap_fatal("socketpair");
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGPIPE, SIG_DFL);
		(void)close(sv[1]);
		_exit(io_send_fds(sv[0], large, sizeof(large), (int[]){0}, 1) == -EPIPE ? 0 : 1);
	}
	(void)close(sv[0]);
	if (reads)
		(void)!io_read_full(sv[1], large, LARGE / 4);
	(void)close(sv[1]);
	(void)waitpid(pid, &status, 0);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "-EPIPE where the reader went %s: %#x",
	   reads ? "in the middle" : "before", (unsigned)status);
}

int main(void)
{
	test_goes(false);
	test_goes(true);
	return tap_done();
}
