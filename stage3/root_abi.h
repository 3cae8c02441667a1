/*
 * stage3/root_abi.h - what stage3 asks of the file system on behalf of a provisioning run's root (docs/provisioning.md).
 *
 * The command's user namespace has one id, so that the kernel can neither show nor take another owner, and makes no devices.
 * stage3's init carries such calls out by extended attributes of these names, which only a mount that was made for
 * provisioning has. Both ends come from one build and run on one machine: native byte order.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

/* Of any inode: its owner as it is stored. Setting it is chown(2) of the inode. */
#define ROOT_XATTR_OWNER "system.rattan.owner"
/* Of a directory, to be set only: mknod(2) in it, of a device. */
#define ROOT_XATTR_NODE  "system.rattan.node"

/* Of any inode, with "access" or "default" behind it: system.posix_acl_*, with ids as they are stored. */
#define ROOT_XATTR_ACL "system.rattan.acl."

#define ROOT_KEEP UINT32_MAX /* as chown(2)'s -1 */

struct root_owner {
	uint32_t uid, gid;
};

struct root_node {
	uint32_t mode; /* with its type, the umask applied */
	uint32_t dev;  /* as the kernel writes it in system calls */
	char name[];   /* NUL-terminated, to the end of the value */
};

/*
 * Who a process believes to be, in the soft value of a limit that Linux has not enforced since 2.4.25 (getrlimit(2)): fork hands it
 * on, exec leaves it, and both ends may read it of any process of the same user (prlimit(2)). Its upper bits are the ids that own
 * what the process makes, the lower ones are stage3's. RLIM_INFINITY: root; so is all where the hard limit is another, which is the host's
 * word, or of a process that means to be root again.
 */
#define ROOT_WHO_LIMIT RLIMIT_LOCKS
#define ROOT_ID_BITS   26
#define ROOT_ID_MAX    ((UINT32_C(1) << ROOT_ID_BITS) - 2)
#define ROOT_WHO_BITS  12
#define ROOT_WHO_MAX   ((UINT32_C(1) << ROOT_WHO_BITS) - 1)

static inline uint64_t root_who_pack(uint32_t uid, uint32_t gid, uint32_t number)
{
	return (uint64_t)uid << (ROOT_ID_BITS + ROOT_WHO_BITS) | (uint64_t)gid << ROOT_WHO_BITS |
	       number;
}

/* Does it say who the process is? */
static inline bool root_who_carried(const struct rlimit *l)
{
	return l->rlim_cur != RLIM_INFINITY && l->rlim_max == RLIM_INFINITY;
}

static inline uint32_t root_who_number(uint64_t limit)
{
	return (uint32_t)limit & ROOT_WHO_MAX;
}

static inline struct root_owner root_who_owner(uint64_t limit)
{
	const uint32_t mask = (UINT32_C(1) << ROOT_ID_BITS) - 1;

	return (struct root_owner){.uid = (uint32_t)(limit >> (ROOT_ID_BITS + ROOT_WHO_BITS)) &
					  mask,
				   .gid = (uint32_t)(limit >> ROOT_WHO_BITS) & mask};
}
