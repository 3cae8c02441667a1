#include "fs/fuse/ids.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* The xattr form of an ACL, little endian on every machine (linux/posix_acl_xattr.h). */
struct acl_head {
	uint32_t version;
};
struct acl_entry {
	uint16_t tag, perm;
	uint32_t id;
};
enum acl_tag {
	ACL_TAG_USER = 0x02,
	ACL_TAG_GROUP = 0x08
};
#define ACL_VERSION 2

uid_t ids_show_uid(const struct session_ids *ids, uid_t stored)
{
	return ids->squash ? ids->show_uid : stored;
}

gid_t ids_show_gid(const struct session_ids *ids, gid_t stored)
{
	return ids->squash ? ids->show_gid : stored;
}

void ids_show(const struct session_ids *ids, struct stat *st)
{
	st->st_uid = ids_show_uid(ids, st->st_uid);
	st->st_gid = ids_show_gid(ids, st->st_gid);
}

uid_t ids_store_uid(const struct session_ids *ids, uid_t shown)
{
	return ids->squash && shown == ids->show_uid ? ids->store_uid : shown;
}

gid_t ids_store_gid(const struct session_ids *ids, gid_t shown)
{
	return ids->squash && shown == ids->show_gid ? ids->store_gid : shown;
}

struct ovl_cred ids_cred(const struct session_ids *ids, uid_t uid, gid_t gid, mode_t umask)
{
	return (struct ovl_cred){
		.uid = ids_store_uid(ids, uid),
		.gid = ids_store_gid(ids, gid),
		.umask = umask & 0777,
	};
}

bool ids_is_acl(const char *name)
{
	return !strcmp(name, "system.posix_acl_access") ||
	       !strcmp(name, "system.posix_acl_default");
}

static bool acl_valid(const void *value, size_t len)
{
	struct acl_head head;

	if (len < sizeof(head) || (len - sizeof(head)) % sizeof(struct acl_entry))
		return false;
	memcpy(&head, value, sizeof(head));
	return le32toh(head.version) == ACL_VERSION;
}

/* The id of a named entry as the mount shows it; false: it cannot. The lists of host files name the
 * user as the host does. */
static bool entry_show(const struct session_ids *ids, struct acl_entry *e)
{
	uint32_t id = le32toh(e->id);
	uint16_t tag = le16toh(e->tag);

	if (tag == ACL_TAG_USER) {
		e->id = htole32(ids->show_uid);
		return id == ids->store_uid || id == ids->show_uid;
	}
	if (tag == ACL_TAG_GROUP) {
		e->id = htole32(ids->show_gid);
		return id == ids->store_gid || id == ids->show_gid;
	}
	return true;
}

/* Does @e name whom the entry before it in the result names? Entries of a kind are neighbours, and one id
 * alone is shown. */
static bool names_same(const uint8_t *bytes, size_t out, const struct acl_entry *e)
{
	struct acl_entry last;
	uint16_t tag = le16toh(e->tag);

	if (out == sizeof(struct acl_head) || (tag != ACL_TAG_USER && tag != ACL_TAG_GROUP))
		return false;
	memcpy(&last, bytes + out - sizeof(last), sizeof(last));
	return last.tag == e->tag;
}

size_t ids_acl_show(const struct session_ids *ids, void *value, size_t len)
{
	uint8_t *bytes = value;
	struct acl_entry e;
	size_t out = sizeof(struct acl_head);

	if (!ids->squash || !acl_valid(value, len))
		return len;
	for (size_t in = out; in < len; in += sizeof(e)) {
		memcpy(&e, bytes + in, sizeof(e));
		if (!entry_show(ids, &e) || names_same(bytes, out, &e))
			continue;
		memcpy(bytes + out, &e, sizeof(e));
		out += sizeof(e);
	}
	return out;
}

void ids_acl_store(const struct session_ids *ids, void *value, size_t len)
{
	uint8_t *bytes = value;
	struct acl_entry e;

	if (!ids->squash || !acl_valid(value, len))
		return;
	for (size_t at = sizeof(struct acl_head); at < len; at += sizeof(e)) {
		memcpy(&e, bytes + at, sizeof(e));
		if (le16toh(e.tag) == ACL_TAG_USER)
			e.id = htole32(ids_store_uid(ids, le32toh(e.id)));
		else if (le16toh(e.tag) == ACL_TAG_GROUP)
			e.id = htole32(ids_store_gid(ids, le32toh(e.id)));
		memcpy(bytes + at, &e, sizeof(e));
	}
}
