/*
 * stage3/root_abi.h - what stage3 asks of the file system on behalf of a provisioning run's root (docs/provisioning.md).
 *
 * The command's user namespace has one id, so that the kernel can neither show nor take another owner, and makes no devices.
 * stage3's init carries such calls out by extended attributes of these names, which only a mount that was made for
 * provisioning has. Both ends come from one build and run on one machine: native byte order.
 */
#pragma once

#include <stdint.h>

/* Of any inode: its owner as it is stored. Setting it is chown(2) of the inode. */
#define ROOT_XATTR_OWNER "system.rattan.owner"
/* Of a directory, to be set only: mknod(2) in it, of a device. */
#define ROOT_XATTR_NODE  "system.rattan.node"

#define ROOT_KEEP UINT32_MAX /* as chown(2)'s -1 */

struct root_owner {
	uint32_t uid, gid;
};

struct root_node {
	uint32_t mode; /* with its type, the umask applied */
	uint32_t dev;  /* as the kernel writes it in system calls */
	char name[];   /* NUL-terminated, to the end of the value */
};
