/*
 * stage3/root_who.h - who a process of a provisioning run believes to be (root.h).
 *
 * To the kernel all are one id. What setuid(2) and its like ask for is noted here, by the rules of credentials(7), and told to
 * who asks: programs that give up root and look whether it is gone, or that refuse to be root, find what they expect. It is
 * no boundary. A process carries the number of what is noted of it in a limit that Linux does not enforce (root_abi.h): fork
 * and exec hand it on without anybody looking, and a process has one, as it has one set of ids to everybody who sets them by libc,
 * which does so for all threads.
 *
 * Effective user id 0 is what counts as privilege. PR_SET_KEEPCAPS leaves the right to change groups, as setpriv(1) needs, which changes
 * the user first; exec does not end it, for the command's own is waited for before anything is served. capset(2) takes none away.
 * Set-id programs give nothing here.
 */
#pragma once

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>

#include "stage3/root_calls.h"

#define ROOT_GROUPS_MAX 256

enum root_id {
	ROOT_REAL,
	ROOT_EFFECTIVE,
	ROOT_SAVED,
	ROOT_FS,
	ROOT_IDS
};

struct root_who {
	uint32_t uid[ROOT_IDS], gid[ROOT_IDS];
	uint32_t keeps; /* capabilities */
	uint32_t ngroups, groups[ROOT_GROUPS_MAX];
};

/* What was noted, by number; all 0 at first, and as long as init lives. */
struct root_people {
	struct root_who **v;
	unsigned n, room;
};

/* False: nothing is noted of it, it is root. */
bool root_who_of(const struct root_caller *c, struct root_who *ret);
/* Is it in the group, as file system calls see it? */
bool root_who_in(const struct root_who *w, uint32_t gid);
/* get*id, set*id, getgroups and setgroups; and prctl(PR_SET_KEEPCAPS), which the kernel does as well. An id that cannot be carried is EINVAL, as one that is not mapped is to the kernel. */
struct root_answer root_who_call(const struct seccomp_data *call, const struct root_caller *caller);
