#include "base/landlock.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif

#define VERSION_FLAG 1

long landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_FLAG);

	return abi < 0 ? ret_nerrno() : abi;
}
