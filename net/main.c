/*
 * rattan-net: the way out of a sandbox whose network has rules. The runner starts one for each such command, outside
 * the sandbox and with the descriptors of msg.h; it takes no arguments and reads no environment.
 *
 * Who speaks to it is hostile, so it gives up what it does not need: it can write no file, execute nothing, and gain
 * no privilege (confine.h).
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "net/confine.h"
#include "net/msg.h"
#include "net/proxy.h"

#define RULES_MAX (1u << 20)

static int read_rules(struct net_rules *ret)
{
	cleanup_buf struct buf b = {0};
	struct stat st;

	if (fstat(NET_FD_RULES, &st) < 0)
		return ret_nerrno();
	if (st.st_size <= 0 || st.st_size > RULES_MAX)
		return -EBADMSG;
	if (buf_reserve(&b, (size_t)st.st_size) < 0)
		return -ENOMEM;
	if (io_pread_full(NET_FD_RULES, b.data, (size_t)st.st_size, 0) != st.st_size)
		return -EIO;
	return net_rules_decode(b.data, (size_t)st.st_size, ret);
}

static int fail(int r)
{
	const struct net_msg m = {.kind = NET_MSG_FAILED, .error = -r};
	ssize_t n = send(NET_FD_CONTROL, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)n;
	return 1;
}

int main(void)
{
	struct net_rules rules = {0};
	int r;

	/* The resolver's: a name is what was judged, and not that name in another domain. */
	if (clearenv() != 0 || setenv("LOCALDOMAIN", ".", 1) < 0)
		return fail(-ENOMEM);
	r = confine(NET_FD_CONTROL);
	if (r == 0)
		r = read_rules(&rules);
	if (r == 0)
		r = proxy_run(&rules, NET_FD_CONTROL);
	net_rules_release(&rules);
	if (r < 0)
		return fail(r);
	/* Threads may wait for a name server. */
	_exit(0);
}
