#include "fs/core/acl.h"

#include <endian.h>
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

#define ACL_VERSION   2
#define ACL_HEAD      4
#define ACL_ENTRY     8
#define TAG_USER_OBJ  0x01
#define TAG_USER      0x02
#define TAG_GROUP_OBJ 0x04
#define TAG_GROUP     0x08
#define TAG_MASK      0x10
#define TAG_OTHER     0x20

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static void put_perm(uint8_t *entry, unsigned perm)
{
	entry[2] = (uint8_t)(perm & 7);
	entry[3] = 0;
}

static size_t acl_count(size_t len)
{
	return (len - ACL_HEAD) / ACL_ENTRY;
}

static uint8_t *acl_entry(void *acl, size_t i)
{
	return (uint8_t *)acl + ACL_HEAD + i * ACL_ENTRY;
}

int acl_check(const void *acl, size_t len, size_t *ret_n)
{
	const uint8_t *p = acl;
	unsigned seen = 0, last = 0;

	if (len < ACL_HEAD || (len - ACL_HEAD) % ACL_ENTRY)
		return -EINVAL;
	if (p[0] != ACL_VERSION || p[1] || p[2] || p[3])
		return -EINVAL;
	for (size_t i = 0; i < acl_count(len); i++) {
		const uint8_t *e = p + ACL_HEAD + i * ACL_ENTRY;
		unsigned tag = get16(e);
		bool many = tag == TAG_USER || tag == TAG_GROUP;

		/* The kernel wants them in the order of their tags, as acl(5) tools write them. */
		if (get16(e + 2) & ~7u || tag < last || (tag == last && !many))
			return -EINVAL;
		if (!tag || tag & (tag - 1) || tag > TAG_OTHER)
			return -EINVAL;
		seen |= tag;
		last = tag;
	}
	*ret_n = acl_count(len);
	if (*ret_n == 0)
		return 0;
	if ((seen & (TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_OTHER)) !=
	    (TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_OTHER))
		return -EINVAL;
	return seen & (TAG_USER | TAG_GROUP) && !(seen & TAG_MASK) ? -EINVAL : 0;
}

bool acl_to_mode(const void *acl, size_t len, mode_t *mode)
{
	const uint8_t *p = acl;
	mode_t m = *mode & ~(mode_t)0777;
	bool plain = true, mask = false;

	for (size_t i = 0; i < acl_count(len); i++) {
		const uint8_t *e = p + ACL_HEAD + i * ACL_ENTRY;
		unsigned tag = get16(e), perm = get16(e + 2);

		if (tag == TAG_USER_OBJ) {
			m |= perm << 6;
		} else if (tag == TAG_OTHER) {
			m |= perm;
		} else if (tag == TAG_MASK) {
			m = (m & ~(mode_t)070) | perm << 3;
			mask = true;
			plain = false;
		} else if (tag == TAG_GROUP_OBJ && !mask) {
			m |= perm << 3;
		} else {
			plain = false;
		}
	}
	*mode = m;
	return plain;
}

static uint8_t *find_tag(void *acl, size_t len, unsigned tag)
{
	for (size_t i = 0; i < acl_count(len); i++) {
		if (get16(acl_entry(acl, i)) == tag)
			return acl_entry(acl, i);
	}
	return NULL;
}

void acl_chmod(void *acl, size_t len, mode_t mode)
{
	uint8_t *group = find_tag(acl, len, TAG_MASK);
	uint8_t *user = find_tag(acl, len, TAG_USER_OBJ);
	uint8_t *other = find_tag(acl, len, TAG_OTHER);

	if (!group)
		group = find_tag(acl, len, TAG_GROUP_OBJ);
	if (user)
		put_perm(user, mode >> 6);
	if (group)
		put_perm(group, mode >> 3);
	if (other)
		put_perm(other, mode);
}

static void mask_both(uint8_t *entry, mode_t *mode, unsigned shift)
{
	unsigned perm;

	if (!entry)
		return;
	perm = get16(entry + 2) & (*mode >> shift) & 7;
	put_perm(entry, perm);
	*mode = (*mode & ~((mode_t)7 << shift)) | (mode_t)perm << shift;
}

bool acl_for_new(void *acl, size_t len, mode_t *mode)
{
	uint8_t *mask = find_tag(acl, len, TAG_MASK);

	mask_both(find_tag(acl, len, TAG_USER_OBJ), mode, 6);
	mask_both(mask ? mask : find_tag(acl, len, TAG_GROUP_OBJ), mode, 3);
	mask_both(find_tag(acl, len, TAG_OTHER), mode, 0);
	return !mask;
}

int acl_inherit(struct ovl *o, struct node *dir, struct node *n, mode_t mask)
{
	cleanup_free uint8_t *acl = NULL;
	mode_t mode = n->rec.mode;
	ssize_t len = xattr_get(o, dir, ACL_DEFAULT, NULL, 0);
	size_t entries;
	int r = 0;

	if (len == -ENODATA) {
		n->rec.mode = mode & ~(mask & 0777);
		return 0;
	}
	if (len < 0)
		return (int)len;
	acl = malloc((size_t)len + 1);
	if (!acl)
		return -ENOMEM;
	len = xattr_get(o, dir, ACL_DEFAULT, acl, (size_t)len);
	if (len < 0)
		return (int)len;
	if (acl_check(acl, (size_t)len, &entries) < 0 || entries == 0) {
		n->rec.mode = mode & ~(mask & 0777); /* a list that was never valid */
		return 0;
	}
	if (S_ISDIR(mode))
		r = xattr_set(o, n, ACL_DEFAULT, acl, (size_t)len);
	if (r == 0 && !acl_for_new(acl, (size_t)len, &mode))
		r = xattr_set(o, n, ACL_ACCESS, acl, (size_t)len);
	n->rec.mode = mode;
	return r;
}
