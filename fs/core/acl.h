/*
 * fs/core/acl.h - POSIX access control lists as the kernel hands them over in system.posix_acl_*
 * (acl(5); linux/posix_acl_xattr.h), and how they and the mode go together.
 *
 * The first part is pure. Bytes that acl_check() did not accept are never given to the others.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct ovl;
struct node;

/* -EINVAL malformed; 0 with *ret_n entries (0: the list is to be removed). */
int acl_check(const void *acl, size_t len, size_t *ret_n) MUST_USE;
/* The permission bits that @acl stands for, in *mode; true when it says no more than the mode. */
bool acl_to_mode(const void *acl, size_t len, mode_t *mode);
/* chmod of a file with @acl. */
void acl_chmod(void *acl, size_t len, mode_t mode);
/* @acl, a default list, for a new inode made with *mode; true when it says no more than the mode. */
bool acl_for_new(void *acl, size_t len, mode_t *mode);

/* EX. Lists and mode of the new inode @n in @dir: a default list there takes the umask's place. */
int acl_inherit(struct ovl *o, struct node *dir, struct node *n, mode_t mask) MUST_USE;
