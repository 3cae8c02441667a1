/* Access control lists between the two spellings: the kernel's attribute and an archive's entries. */
#include <archive_entry.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "fs/image/image_internal.h"

#define ACL_VERSION 2
#define NO_ID       UINT32_MAX

/* As in linux/posix_acl_xattr.h, little-endian. */
static const struct {
	uint16_t tag;
	int entry;
	bool has_id;
} tags[] = {
	{0x01, ARCHIVE_ENTRY_ACL_USER_OBJ, false},  {0x02, ARCHIVE_ENTRY_ACL_USER, true},
	{0x04, ARCHIVE_ENTRY_ACL_GROUP_OBJ, false}, {0x08, ARCHIVE_ENTRY_ACL_GROUP, true},
	{0x10, ARCHIVE_ENTRY_ACL_MASK, false},      {0x20, ARCHIVE_ENTRY_ACL_OTHER, false},
};
#define NTAGS (sizeof(tags) / sizeof(tags[0]))

struct acl_ent {
	uint16_t tag, perm;
	uint32_t id;
};

static unsigned rank(const struct acl_ent *e)
{
	for (unsigned i = 0; i < NTAGS; i++)
		if (tags[i].tag == le16toh(e->tag))
			return i;
	return NTAGS;
}

/* The kernel wants them in the order of their tags. */
static int by_tag(const void *p, const void *q)
{
	const struct acl_ent *a = p, *b = q;
	unsigned x = rank(a), y = rank(b);
	uint32_t i = le32toh(a->id), k = le32toh(b->id);

	return x != y ? (x > y) - (x < y) : (i > k) - (i < k);
}

static int put_one(struct buf *out, int tag, int perm, int id, unsigned *skipped)
{
	for (size_t i = 0; i < NTAGS; i++) {
		struct acl_ent e;

		if (tags[i].entry != tag)
			continue;
		/* GNU tar writes the name alone where it knows one, and whose it is in this tree nobody can tell: who is
		 * not named has the rights of all. */
		if (tags[i].has_id && id < 0) {
			(*skipped)++;
			return 0;
		}
		e = (struct acl_ent){htole16(tags[i].tag), htole16((uint16_t)(perm & 7)),
				     htole32(tags[i].has_id ? (uint32_t)id : NO_ID)};
		return buf_put(out, &e, sizeof(e));
	}
	return 0; /* of another system's lists */
}

int acl_from_entry(struct archive_entry *e, int type, struct buf *out, unsigned *skipped)
{
	const uint32_t version = htole32(ACL_VERSION);
	int t, perm, tag, id, r;
	const char *name;

	/* Three of the access kind are the mode. */
	if (!(archive_entry_acl_types(e) & type) || archive_entry_acl_reset(e, type) == 0)
		return 0;
	r = buf_put(out, &version, sizeof(version));
	while (r == 0 && archive_entry_acl_next(e, type, &t, &perm, &tag, &id, &name) == 0)
		r = put_one(out, tag, perm, id, skipped);
	if (r == 0)
		qsort(out->data + sizeof(version),
		      (out->len - sizeof(version)) / sizeof(struct acl_ent), sizeof(struct acl_ent),
		      by_tag);
	return r;
}

int acl_to_entry(struct archive_entry *e, int type, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint32_t version;

	if (n < 4 || (n - 4) % sizeof(struct acl_ent))
		return 0;
	memcpy(&version, b, 4);
	if (le32toh(version) != ACL_VERSION)
		return 0;
	for (b += 4, n -= 4; n; b += sizeof(struct acl_ent), n -= sizeof(struct acl_ent)) {
		struct acl_ent a;
		unsigned i;

		memcpy(&a, b, sizeof(a));
		i = rank(&a);
		if (i < NTAGS &&
		    archive_entry_acl_add_entry(e, type, le16toh(a.perm), tags[i].entry,
						tags[i].has_id ? (int)le32toh(a.id) : -1, "") < -20)
			return -ENOMEM;
	}
	return 0;
}
