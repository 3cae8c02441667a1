/* What the model test cannot see: times, set-id bits, access lists, policy, inodes without links,
 * cookies, the change log, and big directories. */
#include <linux/fs.h>
#include <sys/xattr.h>
#include <time.h>

#include "fs/core/ovl_internal.h"
#include "policy/rules.h"
#include "tests/unit/core/ovl_fixture.h"

static struct ovl_entry must_make(struct fx *f, store_ino dir, const char *name, mode_t mode)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;
	int r = S_ISDIR(mode) ? ovl_mkdir(f->o, dir, name, mode, &c, &e)
			      : ovl_mknod(f->o, dir, name, mode, 0, &c, &e);

	if (r < 0)
		tap_fatal("make %s: %s", name, err_text(r));
	return e;
}

static struct stat must_stat(struct fx *f, store_ino ino)
{
	struct ovl_attr a;
	int r = ovl_getattr(f->o, ino, &a);

	if (r < 0)
		tap_fatal("getattr: %s", err_text(r));
	return a.st;
}

static bool later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static void test_times(struct fx *f)
{
	struct ovl_entry d = must_make(f, STORE_ROOT_INO, "times", S_IFDIR | 0755);
	struct ovl_entry e = must_make(f, d.ino, "a", S_IFREG | 0644);
	struct stat before, after, dir, want = {.st_mtim = {100, 7}, .st_atim = {50, 3}};
	struct ovl_attr a;
	char c;

	before = must_stat(f, d.ino);
	eq_int(ovl_write(f->o, e.ino, 0, "x", 1, false), 1, "a write");
	after = must_stat(f, d.ino);
	ok(!later(&after.st_mtim, &before.st_mtim), "moves no time of the directory");
	before = must_stat(f, e.ino);
	eq_int(ovl_rename(f->o, d.ino, "a", d.ino, "b", 0), 0, "a rename");
	after = must_stat(f, e.ino);
	ok(later(&after.st_ctim, &before.st_ctim), "moves the ctime of what is renamed");
	ok(!later(&after.st_mtim, &before.st_mtim), "and not its mtime");
	dir = must_stat(f, d.ino);
	ok(later(&dir.st_mtim, &before.st_mtim), "and the mtime of its directory");
	eq_int(ovl_setattr(f->o, e.ino, &want, OVL_SET_MTIME | OVL_SET_ATIME, &a), 0, "utimensat");
	ok(a.st.st_mtim.tv_sec == 100 && a.st.st_mtim.tv_nsec == 7, "sets to the nanosecond");
	eq_int(ovl_flush(f->o), 0, "flush");
	eq_int(must_stat(f, e.ino).st_mtim.tv_sec, 100, "and a flush leaves it");
	eq_int(ovl_read(f->o, e.ino, 0, &c, 1), 1, "a read");
	eq_int(must_stat(f, e.ino).st_atim.tv_sec, 50, "writes no atime");
	want.st_mode = 0600;
	eq_int(ovl_setattr(f->o, e.ino, &want, OVL_SET_MODE, &a), 0, "chmod");
	ok(a.st.st_mtim.tv_sec == 100 && later(&a.st.st_ctim, &after.st_ctim),
	   "moves the ctime alone");
	ovl_forget(f->o, e.ino, 1);
	ovl_forget(f->o, d.ino, 1);
}

static void test_ids(struct fx *f)
{
	struct ovl_entry d = must_make(f, STORE_ROOT_INO, "ids", S_IFDIR | 02775), e, s;
	struct ovl_cred c = {.uid = 1234, .gid = 1235, .umask = 022};
	struct stat st = {.st_gid = 4321, .st_uid = 77};
	struct ovl_attr a;

	eq_int(ovl_setattr(f->o, d.ino, &st, OVL_SET_GID, &a), 0, "chgrp of a directory");
	eq_int(a.st.st_mode, S_IFDIR | 02775, "keeps its set-gid bit");
	eq_int(ovl_mkdir(f->o, d.ino, "sub", 0777, &c, &s), 0, "a directory in it");
	eq_int(s.attr.st.st_gid, 4321, "takes the group");
	eq_int(s.attr.st.st_mode, S_IFDIR | 02755, "and the bit, and the umask");
	eq_int(ovl_mknod(f->o, d.ino, "f", S_IFREG | 0666, 0, &c, &e), 0, "a file in it");
	eq_int(e.attr.st.st_gid, 4321, "takes the group");
	eq_int(e.attr.st.st_mode, S_IFREG | 0644, "not the bit");
	st.st_mode = 06755;
	eq_int(ovl_setattr(f->o, e.ino, &st, OVL_SET_MODE, &a), 0, "chmod u+s,g+s");
	eq_int(ovl_setxattr(f->o, e.ino, "security.capability", "caps", 4, 0), 0, "capabilities");
	eq_int(ovl_write(f->o, e.ino, 0, "x", 1, false), 1, "a write with privilege");
	eq_int(must_stat(f, e.ino).st_mode, S_IFREG | 06755, "keeps the bits");
	eq_int(ovl_write(f->o, e.ino, 0, "x", 1, true), 1, "one without");
	eq_int(must_stat(f, e.ino).st_mode, S_IFREG | 0755, "drops them");
	eq_int(ovl_getxattr(f->o, e.ino, "security.capability", NULL, 0), -ENODATA,
	       "and the capabilities");
	eq_int(ovl_setattr(f->o, e.ino, &st, OVL_SET_MODE, &a), 0, "again u+s,g+s");
	eq_int(ovl_setattr(f->o, e.ino, &st, OVL_SET_UID, &a), 0, "chown");
	eq_int(a.st.st_mode, S_IFREG | 0755, "clears both");
	eq_int(a.st.st_uid, 77, "and sets the owner");
	ovl_forget(f->o, e.ino, 1);
	ovl_forget(f->o, s.ino, 1);
	ovl_forget(f->o, d.ino, 1);
}

struct acl_entry {
	uint16_t tag, perm;
	uint32_t id;
};

static size_t acl_bytes(uint8_t *out, const struct acl_entry *e, size_t n)
{
	size_t len = 4;

	memcpy(out, "\x02\0\0\0", 4);
	for (size_t i = 0; i < n; i++, len += 8) {
		out[len] = (uint8_t)e[i].tag;
		out[len + 1] = 0;
		out[len + 2] = (uint8_t)e[i].perm;
		out[len + 3] = 0;
		for (unsigned k = 0; k < 4; k++)
			out[len + 4 + k] = (uint8_t)(e[i].id >> (8 * k));
	}
	return len;
}

static void test_acls(struct fx *f)
{
	static const struct acl_entry full[] = {{1, 7, UINT32_MAX},
						{2, 7, 1000},
						{4, 5, UINT32_MAX},
						{16, 7, UINT32_MAX},
						{32, 0, UINT32_MAX}};
	static const struct acl_entry plain[] = {
		{1, 6, UINT32_MAX}, {4, 4, UINT32_MAX}, {32, 0, UINT32_MAX}};
	static const struct acl_entry nomask[] = {
		{1, 6, UINT32_MAX}, {2, 4, 5}, {4, 4, UINT32_MAX}, {32, 0, UINT32_MAX}};
	static const char *const access = "system.posix_acl_access";
	static const char *const def = "system.posix_acl_default";
	struct ovl_entry d = must_make(f, STORE_ROOT_INO, "acl", S_IFDIR | 0755), e, s;
	struct ovl_cred c = {.umask = 077};
	struct stat st = {.st_mode = 0750};
	uint8_t b[64], got[64];
	struct ovl_attr a;
	size_t n;

	e = must_make(f, d.ino, "f", S_IFREG | 0600);
	n = acl_bytes(b, full, 5);
	eq_int(ovl_setxattr(f->o, e.ino, access, b, n, 0), 0, "an access list");
	eq_int(must_stat(f, e.ino).st_mode, S_IFREG | 0770, "shows its mask as the group's bits");
	eq_int(ovl_setattr(f->o, e.ino, &st, OVL_SET_MODE, &a), 0, "chmod 750");
	eq_int(ovl_getxattr(f->o, e.ino, access, got, sizeof(got)), (long long)n, "leaves a list");
	eq_int(got[4 + 3 * 8 + 2], 5, "in which the mask is r-x");
	eq_int(got[4 + 8 + 2], 7, "and the named user as before");
	n = acl_bytes(b, plain, 3);
	eq_int(ovl_setxattr(f->o, e.ino, access, b, n, 0), 0, "a list of mode bits");
	eq_int(must_stat(f, e.ino).st_mode, S_IFREG | 0640, "is the mode");
	eq_int(ovl_getxattr(f->o, e.ino, access, got, sizeof(got)), -ENODATA, "and no list");
	n = acl_bytes(b, nomask, 4);
	eq_int(ovl_setxattr(f->o, e.ino, access, b, n, 0), -EINVAL, "a list without its mask");
	eq_int(ovl_setxattr(f->o, e.ino, access, b, n - 1, 0), -EINVAL, "a torn list");
	n = acl_bytes(b, full, 5);
	eq_int(ovl_setxattr(f->o, e.ino, def, b, n, 0), -EACCES, "a default list on a file");
	eq_int(ovl_setxattr(f->o, d.ino, def, b, n, 0), 0, "one on a directory");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_mknod(f->o, d.ino, "g", S_IFREG | 0664, 0, &c, &e), 0, "a file made there");
	eq_int(e.attr.st.st_mode, S_IFREG | 0660, "has the list's mode without the umask");
	eq_int(ovl_getxattr(f->o, e.ino, access, got, sizeof(got)), (long long)n,
	       "and an access list");
	eq_int(got[4 + 3 * 8 + 2], 6, "whose mask is what was asked for");
	eq_int(ovl_mkdir(f->o, d.ino, "h", 0777, &c, &s), 0, "a directory made there");
	eq_int(ovl_getxattr(f->o, s.ino, def, got, sizeof(got)), (long long)n,
	       "inherits the default");
	ovl_forget(f->o, e.ino, 1);
	ovl_forget(f->o, s.ino, 1);
	ovl_forget(f->o, d.ino, 1);
}

static void test_xattr_limits(struct fx *f)
{
	struct ovl_entry e = must_make(f, STORE_ROOT_INO, "xattrs", S_IFREG | 0644);
	char *big = calloc(1, 70000), name[300];

	if (!big)
		tap_fatal("memory");
	eq_int(ovl_setxattr(f->o, e.ino, "user.max", big, 65536, 0), 0, "64 KiB");
	eq_int(ovl_setxattr(f->o, e.ino, "user.more", big, 65537, 0), -E2BIG, "one more");
	eq_int(ovl_flush(f->o), 0, "flush");
	eq_int(ovl_getxattr(f->o, e.ino, "user.max", big, 70000), 65536, "read back");
	eq_int(ovl_getxattr(f->o, e.ino, "user.max", big, 10), -ERANGE, "a small buffer");
	eq_int(ovl_getxattr(f->o, e.ino, "user.max", NULL, 0), 65536, "the size");
	eq_int(ovl_setxattr(f->o, e.ino, "other.x", "", 0, 0), -EOPNOTSUPP, "an unknown prefix");
	memset(name, 'n', sizeof(name));
	memcpy(name, "user.", 5);
	name[256] = '\0';
	eq_int(ovl_setxattr(f->o, e.ino, name, "", 0, 0), -ERANGE, "a name of 256 bytes");
	eq_int(ovl_removexattr(f->o, e.ino, "user.max"), 0, "removed");
	eq_int(ovl_listxattr(f->o, e.ino, NULL, 0), 0, "nothing listed");
	eq_int(ovl_flush(f->o), 0, "flush");
	eq_int(ovl_getxattr(f->o, e.ino, "user.max", NULL, 0), -ENODATA, "gone after a flush, too");
	ovl_forget(f->o, e.ino, 1);
	free(big);
}

/* More names than a record holds: the rest lies beside it. */
static void test_xattr_many(struct fx *f)
{
	struct ovl_entry e = must_make(f, STORE_ROOT_INO, "manyx", S_IFREG | 0644);
	char name[32], v[4] = "";
	int r = 0;

	for (int i = 0; r == 0 && i < 4500; i++) {
		snprintf(name, sizeof(name), "user.%04d", i);
		r = ovl_setxattr(f->o, e.ino, name, "v", 1, 0);
	}
	eq_int(r, 0, "4500 names");
	eq_int(ovl_flush(f->o), 0, "can be flushed");
	ovl_forget(f->o, e.ino, 1);
	fx_umount(f);
	fx_mount(f);
	if (fx_get(f, "manyx", &e) < 0)
		tap_fatal("walk");
	eq_int(ovl_listxattr(f->o, e.ino, NULL, 0), 45000, "all are listed");
	eq_int(ovl_getxattr(f->o, e.ino, "user.4499", v, sizeof(v)), 1, "the last one");
	eq_int(ovl_setxattr(f->o, e.ino, "user.4499", "ww", 2, 0), 0, "is changed");
	eq_int(ovl_removexattr(f->o, e.ino, "user.0000"), 0, "the first one removed");
	eq_int(ovl_setxattr(f->o, e.ino, "user.4499", "www", 3, 0), 0, "the last one moves in");
	eq_int(ovl_flush(f->o), 0, "flushed");
	eq_int(ovl_getxattr(f->o, e.ino, "user.4499", v, sizeof(v)), 3, "and read");
	eq_int(ovl_listxattr(f->o, e.ino, NULL, 0), 44990, "one name less");
	ovl_forget(f->o, e.ino, 1);
}

static void test_names(struct fx *f)
{
	char name[258];
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;

	memset(name, 'n', 257);
	name[256] = '\0';
	eq_int(ovl_lookup(f->o, 1, name, &e), -ENAMETOOLONG, "lookup of 256 bytes");
	eq_int(ovl_mkdir(f->o, 1, name, 0755, &c, &e), -ENAMETOOLONG, "mkdir");
	eq_int(ovl_symlink(f->o, 1, name, "x", &c, &e), -ENAMETOOLONG, "symlink");
	eq_int(ovl_unlink(f->o, 1, name), -ENAMETOOLONG, "unlink");
	eq_int(ovl_rmdir(f->o, 1, name), -ENAMETOOLONG, "rmdir");
	eq_int(ovl_rename(f->o, 1, name, 1, "x", 0), -ENAMETOOLONG, "rename from");
	eq_int(ovl_rename(f->o, 1, "x", 1, name, 0), -ENAMETOOLONG, "rename to");
	eq_int(ovl_link(f->o, 1, 1, name, &e), -ENAMETOOLONG, "link");
	eq_int(ovl_lookup(f->o, 999999, "x", &e), -ESTALE, "an unknown inode");
	eq_int(ovl_rename(f->o, 1, "x", 1, "y", 8), -EINVAL, "an unknown flag");
	eq_int(ovl_rename(f->o, 1, "x", 1, "y", RENAME_WHITEOUT), -EINVAL, "WHITEOUT of nobody");
}

static bool is_whiteout(struct fx *f, const char *path)
{
	struct stat st;

	return fx_stat(f, path, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0 &&
	       st.st_nlink == 1 && st.st_uid == geteuid();
}

static void check_whiteouts(struct fx *f, const char *when)
{
	struct stat st;

	ok(is_whiteout(f, "white/a") && is_whiteout(f, "white/two") && is_whiteout(f, "white/sub"),
	   "%s: whiteouts are where something was", when);
	ok(fx_stat(f, "white/b", &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1,
	   "%s: a file in another's place", when);
	ok(fx_stat(f, "white/one", &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 2 &&
		   fx_stat(f, "away/two", &st) == 0 && st.st_nlink == 2,
	   "%s: a link elsewhere", when);
	ok(fx_stat(f, "away/sub/in", &st) == 0 && fx_stat(f, "white", &st) == 0 &&
		   st.st_nlink == 2 && fx_stat(f, "away", &st) == 0 && st.st_nlink == 3,
	   "%s: a directory, which its parents count", when);
}

/* What a kernel's overlay that lies over the mount needs. */
static void test_whiteouts(struct fx *f)
{
	static const char *const files[] = {"white/a", "white/b", "white/one", "white/sub/in"};
	struct ovl_entry d = must_make(f, STORE_ROOT_INO, "white", S_IFDIR | 0755);

	(void)must_make(f, STORE_ROOT_INO, "away", S_IFDIR | 0755);
	(void)must_make(f, d.ino, "sub", S_IFDIR | 0755);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (fx_make(f, files[i], FX_FILE, 0644) < 0)
			tap_fatal("make %s", files[i]);
	if (fx_link(f, "white/one", "white/two") < 0)
		tap_fatal("link");
	eq_int(fx_rename(f, "white/a", "white/b", RENAME_WHITEOUT | RENAME_EXCHANGE), -EINVAL,
	       "no exchange leaves anything");
	eq_int(fx_rename(f, "white/a", "white/b", RENAME_WHITEOUT | RENAME_NOREPLACE), -EEXIST,
	       "nothing is replaced that should not be");
	eq_int(fx_rename(f, "white/none", "white/b", RENAME_WHITEOUT), -ENOENT, "nothing, nowhere");
	eq_int(fx_rename(f, "white/one", "white/two", RENAME_WHITEOUT), 0, "two names of one file");
	ok(!is_whiteout(f, "white/one"), "stay");
	eq_int(fx_rename(f, "white/a", "white/b", RENAME_WHITEOUT), 0, "over another");
	eq_int(fx_rename(f, "white/two", "away/two", RENAME_WHITEOUT | RENAME_NOREPLACE), 0,
	       "a link");
	eq_int(fx_rename(f, "white/sub", "away/sub", RENAME_WHITEOUT), 0, "a directory");
	check_whiteouts(f, "at once");
	fx_umount(f);
	fx_mount(f);
	check_whiteouts(f, "from the store");
	eq_int(fx_rename(f, "white/b", "white/a", 0), 0, "a whiteout is replaced as any file is");
	ok(!is_whiteout(f, "white/a"), "and gone");
}

static void test_orphans(struct fx *f)
{
	struct ovl_entry e = must_make(f, STORE_ROOT_INO, "orphan", S_IFREG | 0644), t, l;
	struct ovl_cred c = fx_cred();
	struct store_view *v;
	struct rec_inode r;
	char buf[8] = "";

	eq_int(ovl_write(f->o, e.ino, 0, "hello", 5, false), 5, "written");
	eq_int(ovl_flush(f->o), 0, "flushed");
	eq_int(ovl_unlink(f->o, STORE_ROOT_INO, "orphan"), 0, "unlinked while open");
	eq_int(ovl_flush(f->o), 0, "flushed");
	eq_int(ovl_read(f->o, e.ino, 0, buf, 8), 5, "can still be read");
	eq_str(buf, "hello", "as it was");
	eq_int(must_stat(f, e.ino).st_nlink, 0, "has no link");
	eq_int(ovl_link(f->o, e.ino, STORE_ROOT_INO, "back", &l), -ENOENT, "and gets none");
	eq_int(ovl_write(f->o, e.ino, 0, "HELLO", 5, false), 5, "can still be written");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_flush(f->o), 0, "forgotten and flushed");
	if (store_view_open(f->s, f->layer, &v) < 0)
		tap_fatal("view");
	eq_int(store_view_inode(v, e.ino, &r), -ENOENT, "its record is gone");
	store_view_close(v);
	eq_int(ovl_tmpfile(f->o, STORE_ROOT_INO, 0600, &c, &t), 0, "a file without a name");
	eq_int(ovl_write(f->o, t.ino, 0, "tmp", 3, false), 3, "is written");
	eq_int(ovl_flush(f->o), 0, "flush");
	eq_int(ovl_link(f->o, t.ino, STORE_ROOT_INO, "named", &l), 0, "and gets a name");
	ok(l.ino == t.ino && l.attr.st.st_nlink == 1, "of its own");
	ovl_forget(f->o, t.ino, 2);
	eq_int(ovl_flush(f->o), 0, "flush");
	memset(buf, 0, sizeof(buf));
	eq_int(fx_read(f, "named", 0, buf, 8), 3, "which holds what was written");
	eq_str(buf, "tmp", "before");
}

static void test_leftovers(struct fx *f)
{
	struct ovl_entry old = must_make(f, STORE_ROOT_INO, "older", S_IFREG | 0644), e, t;
	struct ovl_cred c = fx_cred();
	struct store_view *v;
	struct rec_inode r;

	fx_umount(f);
	if (store_layer_seal(f->s, f->layer) < 0)
		tap_fatal("seal");
	fx_child(f, f->layer);
	fx_mount(f);
	e = must_make(f, STORE_ROOT_INO, "left", S_IFREG | 0644);
	eq_int(ovl_write(f->o, e.ino, 0, "hello", 5, false), 5, "written");
	eq_int(ovl_flush(f->o), 0, "flushed");
	eq_int(ovl_unlink(f->o, STORE_ROOT_INO, "left"), 0, "unlinked while open");
	eq_int(ovl_lookup(f->o, STORE_ROOT_INO, "older", &old), 0, "an older one");
	eq_int(ovl_unlink(f->o, STORE_ROOT_INO, "older"), 0, "unlinked while open");
	eq_int(ovl_tmpfile(f->o, STORE_ROOT_INO, 0600, &c, &t), 0, "a file without a name");
	eq_int(ovl_flush(f->o), 0, "flushed");
	ovl_abandon(f->o);
	fx_mount(f);
	eq_int(ovl_flush(f->o), 0, "killed, opened again, flushed");
	if (store_view_open(f->s, f->layer, &v) < 0)
		tap_fatal("view");
	eq_int(store_view_inode(v, e.ino, &r), -ENOENT, "nothing is left of the one");
	eq_int(store_view_inode(v, t.ino, &r), -ENOENT, "nor of the other");
	eq_int(store_view_inode(v, old.ino, &r), 0, "the older one is recorded");
	eq_int(r.nlink, 0, "as one that has ended");
	rec_inode_release(&r);
	store_view_close(v);
}

/* Bytes of a file without links cannot stay in memory for ever. */
static void test_big_orphan(struct fx *f)
{
	struct ovl_entry e = must_make(f, STORE_ROOT_INO, "huge", S_IFREG | 0644);
	static char data[1 << 20];
	unsigned wrong = 0;

	fx_umount(f);
	f->opts.dirty_max = 4 << 20;
	fx_mount(f);
	if (ovl_lookup(f->o, STORE_ROOT_INO, "huge", &e) < 0 ||
	    ovl_unlink(f->o, STORE_ROOT_INO, "huge") < 0)
		tap_fatal("unlink");
	for (unsigned i = 0; i < 32; i++) {
		memset(data, (int)i + 1, sizeof(data));
		wrong += ovl_write(f->o, e.ino, (uint64_t)i << 20, data, sizeof(data), false) !=
			 (ssize_t)sizeof(data);
	}
	for (unsigned i = 0; i < 32; i++)
		wrong += ovl_read(f->o, e.ino, (uint64_t)i << 20, data, sizeof(data)) !=
				 (ssize_t)sizeof(data) ||
			 data[77] != (char)(i + 1);
	eq_int(wrong, 0, "an unlinked file of eight times what memory may hold");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_flush(f->o), 0, "flush");
}

static uint64_t flushes(struct fx *f)
{
	uint64_t n;

	pthread_mutex_lock(&f->o->fl.lock);
	n = f->o->fl.started;
	pthread_mutex_unlock(&f->o->fl.lock);
	return n;
}

/* They do stay for a while, and then must not make each change of something else start a flush. */
static void test_quiet_orphan(struct fx *f)
{
	struct ovl_entry e = must_make(f, STORE_ROOT_INO, "quiet", S_IFREG | 0644);
	struct timespec pause = {.tv_nsec = 2000000};
	static char data[1 << 20];
	unsigned wrong = 0;
	uint64_t before;

	fx_umount(f);
	f->opts.dirty_max = 4 << 20;
	f->opts.flush_ms = 3600 * 1000;
	fx_mount(f);
	if (ovl_lookup(f->o, STORE_ROOT_INO, "quiet", &e) < 0 ||
	    ovl_unlink(f->o, STORE_ROOT_INO, "quiet") < 0)
		tap_fatal("unlink");
	memset(data, 'o', sizeof(data));
	wrong += ovl_write(f->o, e.ino, 0, data, sizeof(data), false) != (ssize_t)sizeof(data);
	wrong += ovl_flush(f->o) != 0;
	before = flushes(f);
	for (unsigned i = 0; i < 40; i++) {
		wrong += ovl_write(f->o, e.ino, i, "x", 1, false) != 1;
		(void)nanosleep(&pause, NULL);
	}
	eq_int(wrong, 0, "writes to an unlinked file");
	ok(flushes(f) - before < 4, "start no flush each");
	ovl_forget(f->o, e.ino, 1);
	fx_umount(f);
	f->opts.flush_ms = 0;
	fx_mount(f);
}

struct seen {
	uint64_t last;
	unsigned n, room, twice;
	bool names[4000];
};

static int see(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct seen *s = arg;
	unsigned i;

	(void)e;
	if (s->room-- == 0)
		return 1;
	s->last = cookie;
	if (sscanf(name, "n%u", &i) == 1 && i < 4000) {
		s->twice += s->names[i];
		s->names[i] = true;
		s->n++;
	}
	return 0;
}

static void test_cookies(struct fx *f)
{
	struct ovl_entry d = must_make(f, STORE_ROOT_INO, "cookies", S_IFDIR | 0755);
	static struct seen s;
	unsigned missed = 0;
	uint64_t before;
	char name[16];

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		ovl_forget(f->o, must_make(f, d.ino, name, S_IFREG | 0644).ino, 1);
	}
	/* While it is read, every name with i % 3 == 1 goes and new ones come. */
	for (unsigned i = 0, gone = 1;; i++) {
		before = s.last;
		s.room = 7;
		if (ovl_readdir(f->o, d.ino, s.last, false, see, &s) < 0)
			tap_fatal("readdir");
		if (s.last == before)
			break;
		for (unsigned k = 0; k < 5 && gone < 1000; k++, gone += 3) {
			snprintf(name, sizeof(name), "n%u", gone);
			if (ovl_unlink(f->o, d.ino, name) < 0)
				tap_fatal("unlink");
		}
		if (i < 500) {
			snprintf(name, sizeof(name), "n%u", 2000 + i);
			ovl_forget(f->o, must_make(f, d.ino, name, S_IFREG | 0644).ino, 1);
		}
		if (i == 20 && ovl_flush(f->o) < 0)
			tap_fatal("flush");
	}
	for (unsigned i = 0; i < 1000; i++)
		missed += i % 3 != 1 && !s.names[i];
	eq_int(missed, 0, "no name that stayed was missed");
	eq_int(s.twice, 0, "and none came twice");
	ovl_forget(f->o, d.ino, 1);
}

/* Each name is renamed away and back when it has been listed. */
static void test_renamed_meanwhile(struct fx *f)
{
	struct ovl_entry d = must_make(f, STORE_ROOT_INO, "renamed", S_IFDIR | 0755);
	static struct seen s;
	uint64_t before;
	unsigned turns = 0, missed = 0;
	char name[16];

	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		ovl_forget(f->o, must_make(f, d.ino, name, S_IFREG | 0644).ino, 1);
	}
	do {
		before = s.last;
		s.room = 1;
		if (ovl_readdir(f->o, d.ino, s.last, false, see, &s) < 0)
			tap_fatal("readdir");
		if (s.last <= 2 || s.last == before)
			continue;
		snprintf(name, sizeof(name), "n%u", s.n - 1);
		if (ovl_rename(f->o, d.ino, name, d.ino, "away", 0) < 0 ||
		    ovl_rename(f->o, d.ino, "away", d.ino, name, 0) < 0)
			tap_fatal("rename");
	} while (s.last != before && ++turns < 1000);
	for (unsigned i = 0; i < 300; i++)
		missed += !s.names[i];
	eq_int(missed, 0, "names that are renamed while they are listed are not missed");
	eq_int(s.twice, 0, "nor come again and again");
	if (ovl_rename(f->o, d.ino, "n5", d.ino, "n250", 0) < 0)
		tap_fatal("rename");
	memset(&s, 0, sizeof(s));
	s.room = 1000;
	eq_int(ovl_readdir(f->o, d.ino, 0, false, see, &s), 0, "one that replaces another");
	eq_int(s.n, 299, "is listed once");
	eq_int(s.twice, 0, "in its place");
	ovl_forget(f->o, d.ino, 1);
}

static int count(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	(void)name;
	(void)cookie;
	(void)e;
	++*(unsigned *)arg;
	return 0;
}

/* Of this thread, as other work on the machine is not ours to judge. */
static long long cpu_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void test_big(struct fx *f)
{
	struct ovl_entry d = must_make(f, STORE_ROOT_INO, "big", S_IFDIR | 0755), e;
	long long t = cpu_ms();
	unsigned n = 0, wrong = 0;
	char name[32];

	for (unsigned i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "file-%u", i);
		ovl_forget(f->o, must_make(f, d.ino, name, S_IFREG | 0644).ino, 1);
	}
	printf("# 100000 names made in %lld ms\n", cpu_ms() - t);
	t = cpu_ms();
	eq_int(ovl_flush(f->o), 0, "flush");
	printf("# flushed in %lld ms\n", cpu_ms() - t);
	ovl_forget(f->o, d.ino, 1);
	if (ovl_lookup(f->o, STORE_ROOT_INO, "big", &d) < 0)
		tap_fatal("lookup");
	t = cpu_ms();
	eq_int(ovl_readdir(f->o, d.ino, 0, false, count, &n), 0, "listed");
	printf("# listed in %lld ms\n", cpu_ms() - t);
	eq_int(n, 100002, "all names");
	t = cpu_ms();
	for (unsigned i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "file-%u", i);
		wrong += ovl_lookup(f->o, d.ino, name, &e) < 0 || !e.ino;
		ovl_forget(f->o, e.ino, 1);
		wrong += ovl_unlink(f->o, d.ino, name) < 0;
	}
	eq_int(wrong, 0, "each found and removed");
	t = cpu_ms() - t;
	printf("# in %lld ms\n", t);
	ok(t < 20000, "in a time that does not grow with the square");
	eq_int(ovl_rmdir(f->o, STORE_ROOT_INO, "big"), 0, "and the directory after them");
	ovl_forget(f->o, d.ino, 1);
}

static int join_changes(void *arg, const char *path, char what)
{
	char *out = arg;
	size_t n = strlen(out);

	snprintf(out + n, 512 - n, "%c%s ", what, path);
	return 0;
}

static void test_changes(struct fx *f)
{
	struct ovl_counts c;
	char out[512] = "";
	uint64_t start;

	if (fx_make(f, "log", FX_DIR, 0755) < 0 || fx_make(f, "log/a", FX_FILE, 0644) < 0)
		tap_fatal("make");
	ovl_counts(f->o, &c);
	start = c.changes;
	if (fx_write(f, "log/a", 0, "x", 1) < 0 || fx_write(f, "log/a", 1, "x", 1) < 0 ||
	    fx_make(f, "log/b", FX_FILE, 0644) < 0 || fx_rename(f, "log/b", "log/c", 0) < 0)
		tap_fatal("change");
	eq_int(ovl_changes(f->o, start, join_changes, out), 0, "changes");
	eq_str(out, "c/log/a d/log/b c/log/c ", "each path once");
	ovl_counts(f->o, &c);
	out[0] = '\0';
	eq_int(ovl_changes(f->o, c.changes, join_changes, out), 0, "changes after the last");
	eq_str(out, "", "are none");
	ok(c.layer_changed, "the layer has changes");
}

static void test_paths(struct fx *f)
{
	cleanup_buf struct buf b = {0};
	struct ovl_entry e, again;
	struct statvfs v;

	if (fx_make(f, "p", FX_DIR, 0755) < 0 || fx_make(f, "p/q", FX_DIR, 0755) < 0 ||
	    fx_make(f, "p/q/f", FX_FILE, 0644) < 0 || fx_symlink(f, "/p/q", "abs") < 0 ||
	    fx_symlink(f, "loop", "loop") < 0 || fx_symlink(f, "../p/./q/../q", "p/rel") < 0)
		tap_fatal("make");
	eq_int(ovl_walk(f->o, "/abs/f", &e), 0, "a link with an absolute target");
	eq_int(ovl_path(f->o, e.ino, &b), 0, "its path");
	eq_str((const char *)b.data, "/p/q/f", "is where it is");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_walk(f->o, "/p/rel/../../p/rel/f", &e), 0, "links and dots");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_walk(f->o, "/abs", &e), 0, "a last link");
	ok(S_ISLNK(e.attr.st.st_mode), "is not followed");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_walk(f->o, "/loop/x", &e), -ELOOP, "a loop");
	eq_int(ovl_walk(f->o, "/p/q/f/", &e), -ENOTDIR, "a file with a slash");
	eq_int(ovl_walk(f->o, "/../../p", &e), 0, "above the root is the root");
	ovl_forget(f->o, e.ino, 1);
	eq_int(ovl_statfs(f->o, &v), 0, "statfs");
	ok(v.f_blocks >= v.f_bfree && v.f_bavail > 0 && v.f_namemax == 255 && v.f_ffree > 0,
	   "gives numbers an installer can use");
	eq_int(fx_get(f, "p/q/f", &e), 0, "a file");
	eq_int(ovl_lookup(f->o, e.ino, ".", &again), 0, "is found by its number");
	eq_int(again.ino, e.ino, "as itself");
	ovl_forget(f->o, e.ino, 2);
	eq_int(ovl_flush(f->o), 0, "and when it was forgotten");
	eq_int(ovl_lookup(f->o, again.ino, ".", &e), 0, "too");
	eq_int(ovl_lookup(f->o, again.ino, "..", &e), -ENOTDIR, "but has no parent");
	ovl_forget(f->o, again.ino, 1);
}

static void test_policy(struct fx *f)
{
	static const char *const places[] = {"/workspace", "/home/user", NULL};
	struct policy_rules rules;
	struct ovl_cred c = fx_cred();
	struct ovl_entry h, w, file, e;
	struct ovl_attr a;
	struct stat st = {.st_mode = 0777};

	if (fx_make(f, "home", FX_DIR, 0755) < 0 || fx_make(f, "home/user", FX_DIR, 0755) < 0 ||
	    fx_make(f, "home/other", FX_DIR, 0755) < 0 || fx_make(f, "ro", FX_FILE, 0644) < 0 ||
	    fx_make(f, "home/user/in", FX_FILE, 0644) < 0)
		tap_fatal("make");
	fx_umount(f);
	if (policy_rules_writable(places, NULL, &rules) < 0)
		tap_fatal("rules");
	f->opts.policy = &rules;
	fx_mount(f);
	eq_int(fx_make(f, "new", FX_FILE, 0644), -EACCES, "create outside");
	eq_int(fx_make(f, "home/other/x", FX_DIR, 0755), -EACCES, "mkdir beside a place");
	eq_int(fx_make(f, "ro", FX_FILE, 0644), -EEXIST, "what exists says so");
	eq_int(fx_make(f, "workspace", FX_DIR, 0755), 0, "a place that is not there yet");
	eq_int(fx_make(f, "workspace/a", FX_FILE, 0644), 0, "create inside");
	eq_int(fx_make(f, "workspace/d", FX_DIR, 0755), 0, "mkdir inside");
	eq_int(fx_remove(f, "workspace", true), -EACCES, "the place itself stays");
	eq_int(fx_rename(f, "home/user", "workspace/u", 0), -EACCES, "and is not moved");
	eq_int(fx_rename(f, "ro", "workspace/ro", 0), -EACCES, "rename from outside");
	eq_int(fx_rename(f, "workspace/a", "ro", 0), -EACCES, "rename to outside");
	eq_int(fx_rename(f, "workspace/a", "home/other", RENAME_EXCHANGE), -EACCES, "exchange");
	eq_int(fx_rename(f, "workspace/d", "home/user/d", 0), 0, "between two places");
	eq_int(fx_link(f, "ro", "workspace/l"), -EACCES, "a link to what is protected");
	eq_int(fx_link(f, "workspace/a", "l"), -EACCES, "a link outside");
	eq_int(fx_link(f, "workspace/a", "home/user/l"), 0, "a link between places");
	eq_int(fx_write(f, "ro", 0, "x", 1), -EACCES, "a write outside");
	eq_int(fx_write(f, "workspace/a", 0, "x", 1), 1, "a write inside");
	eq_int(fx_set(f, "ro", &st, OVL_SET_MODE), -EACCES, "chmod outside");
	if (fx_get(f, "home", &h) < 0 || fx_get(f, "workspace", &w) < 0 ||
	    fx_get(f, "ro", &file) < 0)
		tap_fatal("walk");
	eq_int(ovl_tmpfile(f->o, h.ino, 0600, &c, &e), -EACCES, "tmpfile outside");
	eq_int(ovl_tmpfile(f->o, w.ino, 0600, &c, &e), 0, "tmpfile inside");
	eq_int(ovl_write(f->o, e.ino, 0, "x", 1, false), 1, "which can be written");
	eq_int(ovl_setxattr(f->o, file.ino, "user.x", "", 0, 0), -EACCES, "xattr outside");
	eq_int(ovl_fallocate(f->o, file.ino, 0, 0, 1), -EACCES, "fallocate outside");
	eq_int(ovl_copy_range(f->o, e.ino, 0, file.ino, 0, 1), -EACCES, "copy to outside");
	eq_int(ovl_setattr(f->o, file.ino, &st, OVL_SET_SIZE, &a), -EACCES, "truncate outside");
	ovl_forget(f->o, e.ino, 1);
	ovl_forget(f->o, h.ino, 1);
	ovl_forget(f->o, w.ino, 1);
	/* Known by number alone, after the table forgot it. */
	fx_umount(f);
	fx_mount(f);
	eq_int(ovl_write(f->o, file.ino, 0, "x", 1, false), -EACCES, "by number: outside");
	if (fx_get(f, "home/user/l", &e) < 0)
		tap_fatal("walk");
	fx_umount(f);
	fx_mount(f);
	eq_int(ovl_write(f->o, e.ino, 0, "x", 1, false), 1, "by number: a file with two places");
	fx_umount(f);
	f->opts.policy = NULL;
	policy_rules_release(&rules);
	f->opts.flags = OVL_RDONLY;
	fx_mount(f);
	eq_int(fx_make(f, "workspace/z", FX_FILE, 0644), -EROFS, "read-only: create");
	eq_int(ovl_write(f->o, e.ino, 0, "x", 1, false), -EROFS, "read-only: write");
	fx_umount(f);
	f->opts.flags = 0;
	fx_mount(f);
}

/* What the store would refuse with every flush from then on. */
static void test_modes(struct fx *f)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;

	eq_int(ovl_mknod(f->o, STORE_ROOT_INO, "bits", S_IFCHR | 0644 | 0x10000, 1, &c, &e),
	       -EINVAL, "a mode of more bits than there are");
	(void)must_make(f, STORE_ROOT_INO, "all", S_IFREG | 07777);
	eq_int(ovl_flush(f->o), 0, "all that was taken can be written");
}

int main(void)
{
	struct fx f;

	umask(0);
	fx_open(&f);
	fx_mount(&f);
	test_times(&f);
	test_ids(&f);
	test_acls(&f);
	test_xattr_limits(&f);
	test_xattr_many(&f);
	test_names(&f);
	test_modes(&f);
	test_whiteouts(&f);
	test_orphans(&f);
	test_leftovers(&f);
	test_big_orphan(&f);
	test_quiet_orphan(&f);
	test_cookies(&f);
	test_renamed_meanwhile(&f);
	test_changes(&f);
	test_paths(&f);
	test_policy(&f);
	test_big(&f);
	fx_close(&f);
	return tap_done();
}
