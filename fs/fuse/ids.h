/*
 * fs/fuse/ids.h - owner ids between what the mount shows and what the store keeps (session.h).
 *
 * Pure functions; a struct session_ids is only read.
 */
#pragma once

#include <stddef.h>
#include <sys/stat.h>

#include "fs/core/ovl.h"
#include "fs/fuse/session.h"

/* What an inode's owner is shown as. */
uid_t ids_show_uid(const struct session_ids *ids, uid_t stored);
gid_t ids_show_gid(const struct session_ids *ids, gid_t stored);
void ids_show(const struct session_ids *ids, struct stat *st);

/* What the kernel says, as it is stored. */
uid_t ids_store_uid(const struct session_ids *ids, uid_t shown);
gid_t ids_store_gid(const struct session_ids *ids, gid_t shown);
struct ovl_cred ids_cred(const struct session_ids *ids, uid_t uid, gid_t gid, mode_t umask);

/* Is @name an xattr whose value holds ids (system.posix_acl_*)? */
bool ids_is_acl(const char *name);
/* Rewrite the ids of a POSIX ACL in place. Showing drops entries for ids that the mount cannot show
 * (the kernel would refuse the whole value: posix_acl_from_xattr in fs/posix_acl.c), so the value may
 * get shorter: the new length is returned. Nobody in such a mount can have one of these ids. Values that are no ACL are left alone; whoever interprets them refuses them. */
size_t ids_acl_show(const struct session_ids *ids, void *value, size_t len);
void ids_acl_store(const struct session_ids *ids, void *value, size_t len);
