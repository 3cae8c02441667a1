#include "net/confine.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self  446
#endif

/* linux/landlock.h, of which older headers lack parts. All but reading, which a resolver does in many places. */
#define CREATE_RULESET_VERSION 1u
#define READ_FILE              (1u << 2)
#define READ_DIR               (1u << 3)

static uint64_t handled(long abi)
{
	uint64_t all = (1u << 13) - 1; /* ABI 1 */

	if (abi >= 2)
		all |= 1u << 13; /* REFER */
	if (abi >= 3)
		all |= 1u << 14; /* TRUNCATE */
	if (abi >= 5)
		all |= 1u << 15; /* IOCTL_DEV */
	return all & ~(uint64_t)(READ_FILE | READ_DIR);
}

/* A second fence: a kernel without it does not keep the first from standing. */
static int landlock(void)
{
	struct {
		uint64_t fs, net, scoped;
	} attr = {0};
	cleanup_fd int fd = -1;
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);

	if (abi <= 0)
		return 0;
	attr.fs = handled(abi);
	attr.scoped = abi >= 6 ? 2 : 0; /* signals to others */
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (fd < 0)
		return ret_nerrno();
	return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? ret_nerrno() : 0;
}

int confine(int last)
{
	const struct rlimit none = {0, 0};

	(void)prctl(PR_SET_NAME, "rattan-net", 0, 0, 0);
	/* Before Linux 5.9 the runner's child has done so, but for its own program's. */
	if (syscall(SYS_close_range, (unsigned)last + 1, ~0u, 0) < 0 && errno != ENOSYS)
		return ret_nerrno();
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return ret_nerrno();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return ret_nerrno();
	if (setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_FSIZE, &none) < 0)
		return ret_nerrno();
	return landlock();
}
