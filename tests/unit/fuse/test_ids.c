/* Owner ids between the mount and the store. */
#include "fs/fuse/ids.h"

#include <endian.h>
#include <stdint.h>

#include "tests/lib/tap.h"

static const struct session_ids squash = {
	.squash = true,
	.show_uid = 0,
	.store_uid = 1000,
	.show_gid = 0,
	.store_gid = 100,
};
static const struct session_ids plain = {.squash = false, .show_uid = 0, .store_uid = 1000};

static void test_owners(void)
{
	struct stat st = {.st_uid = 33, .st_gid = 44};
	struct ovl_cred c;

	ids_show(&squash, &st);
	eq_int(st.st_uid, 0, "a stranger's file is shown as the mapped user's");
	eq_int(st.st_gid, 0, "and group's");
	st = (struct stat){.st_uid = 33, .st_gid = 44};
	ids_show(&plain, &st);
	eq_int(st.st_uid, 33, "without squash as stored");
	c = ids_cred(&squash, 0, 0, 01022);
	eq_int(c.uid, 1000, "the shown user creates as the stored one");
	eq_int(c.gid, 100, "and group");
	eq_int(c.umask, 022, "the umask has permission bits only");
	eq_int(ids_cred(&squash, 7, 8, 0).uid, 7, "another id stays");
	eq_int(ids_cred(&plain, 0, 0, 0).uid, 0, "without squash ids stay");
	eq_int(ids_store_uid(&squash, 0), 1000, "chown to the shown id means the stored one");
}

struct acl {
	uint32_t version;
	struct {
		uint16_t tag, perm;
		uint32_t id;
	} e[6];
} __attribute__((packed));

static struct acl sample(void)
{
	return (struct acl){htole32(2),
			    {{htole16(1), htole16(7), htole32(UINT32_MAX)},
			     {htole16(2), htole16(6), htole32(1000)},
			     {htole16(2), htole16(6), htole32(5)},
			     {htole16(4), htole16(4), htole32(UINT32_MAX)},
			     {htole16(8), htole16(4), htole32(100)},
			     {htole16(16), htole16(6), htole32(UINT32_MAX)}}};
}

static void test_acls(void)
{
	struct acl a = sample();
	size_t n = ids_acl_show(&squash, &a, sizeof(a));

	eq_int(n, sizeof(a) - sizeof(a.e[0]), "an entry that cannot be shown is left out");
	eq_int(le32toh(a.e[1].id), 0, "the stored user is shown as the mapped one");
	eq_int(le16toh(a.e[2].tag), 4, "what follows moves up");
	eq_int(le32toh(a.e[3].id), 0, "the stored group too");
	ids_acl_store(&squash, &a, n);
	eq_int(le32toh(a.e[1].id), 1000, "and back");
	eq_int(le32toh(a.e[3].id), 100, "and back for groups");
	eq_int(le32toh(a.e[0].id), UINT32_MAX, "entries without an id are left alone");

	a = sample();
	a.e[1].id = htole32(0);
	a.e[4].id = htole32(0);
	eq_int(ids_acl_show(&squash, &a, sizeof(a)), sizeof(a) - sizeof(a.e[0]),
	       "a list of the host names the user by the host's number");
	eq_int(le32toh(a.e[1].id) | le32toh(a.e[3].id), 0,
	       "which is the mapped one, and the group");
	a = sample();
	a.e[2].id = htole32(0);
	n = ids_acl_show(&squash, &a, sizeof(a));
	eq_int(n, sizeof(a) - sizeof(a.e[0]), "whoever has both numbers is named once");
	eq_int(le16toh(a.e[2].tag), 4, "and nobody else is left out");

	a = sample();
	eq_int(ids_acl_show(&plain, &a, sizeof(a)), sizeof(a),
	       "without squash nothing is left out");
	a.version = htole32(3);
	eq_int(ids_acl_show(&squash, &a, sizeof(a)), sizeof(a), "another version is left alone");
	eq_int(ids_acl_show(&squash, &a, 3), 3, "no room for a version");
	a = sample();
	eq_int(ids_acl_show(&squash, &a, sizeof(a) - 1), sizeof(a) - 1, "half an entry at the end");
	ok(ids_is_acl("system.posix_acl_default") && !ids_is_acl("user.x"), "ACL names");
}

int main(void)
{
	test_owners();
	test_acls();
	return tap_done();
}
