/* What differs between two layers, after changes made through the core. */
#include <errno.h>
#include <sys/xattr.h>
#include <time.h>

#include "diff_fixture.h"

static void test_plain(struct tree *t)
{
	store_layer a, b, c;

	tree_on(t, 0);
	tree_mkdir(t, "/d");
	tree_write(t, "/d/one", "1");
	tree_write(t, "/two", "2");
	tree_write(t, "/d/three", "3");
	tree_symlink(t, "/link", "two");
	a = tree_seal(t);
	is_diff(t, 0, a, 0, "A /d\nA /d/one\nA /d/three\nA /link\nA /two\n", "from nothing");
	is_diff(t, a, a, DIFF_ALL, "", "a layer and itself");
	tree_write(t, "/two", "two");
	tree_chmod(t, "/d/one", 0600);
	tree_unlink(t, "/d/three");
	tree_write(t, "/d/four", "4");
	tree_unlink(t, "/link");
	tree_symlink(t, "/link", "d");
	b = tree_seal(t);
	is_diff(t, a, b, 0, "A /d/four\nMm /d/one\nD /d/three\nMc /link\nMc /two\n", "one layer");
	is_diff(t, b, a, 0, "D /d/four\nMm /d/one\nA /d/three\nMc /link\nMc /two\n", "and back");
	tree_write(t, "/two", "2");
	tree_chmod(t, "/d/one", 0644);
	tree_unlink(t, "/d/four");
	tree_write(t, "/d/three", "3");
	tree_unlink(t, "/link");
	tree_symlink(t, "/link", "two");
	c = tree_seal(t);
	is_diff(t, a, c, 0, "", "all of it undone");
	is_diff(t, a, c, DIFF_ALL, "Mt /\nMt /d\nMt /d/three\nMt /link\nMt /two\n",
		"but for the times");
}

static void test_names(struct tree *t)
{
	store_layer a, b;

	tree_on(t, 0);
	tree_mkdir(t, "/d");
	tree_mkdir(t, "/d/sub");
	tree_write(t, "/d/sub/f", "f");
	tree_write(t, "/d/g", "g");
	tree_write(t, "/x", "x");
	tree_write(t, "/y", "y");
	tree_write(t, "/z", "z");
	a = tree_seal(t);
	tree_rename(t, "/d", "/e");
	tree_write(t, "/e/sub/f", "changed");
	tree_rename(t, "/x", "/e/x2");
	tree_write(t, "/y.new", "y");
	tree_rename(t, "/y.new", "/y"); /* saved without a change, as editors do */
	tree_write(t, "/z.new", "zz");
	tree_rename(t, "/z.new", "/z");
	b = tree_seal(t);
	is_diff(t, a, b, 0, "R /d > /e\nMc /d/sub/f > /e/sub/f\nR /x > /e/x2\nMc /z\n",
		"moves and saves");
	is_diff(t, b, a, 0, "R /e > /d\nMc /e/sub/f > /d/sub/f\nR /e/x2 > /x\nMc /z\n", "back");
}

static void test_types_and_trees(struct tree *t)
{
	store_layer a, b, c;

	tree_on(t, 0);
	tree_mkdir(t, "/d");
	tree_mkdir(t, "/d/sub");
	tree_write(t, "/d/sub/f", "f");
	tree_write(t, "/d/g", "g");
	tree_write(t, "/file", "x");
	a = tree_seal(t);
	tree_unlink(t, "/d/sub/f");
	tree_rmdir(t, "/d/sub");
	tree_unlink(t, "/d/g");
	tree_rmdir(t, "/d");
	tree_write(t, "/d", "now a file");
	tree_unlink(t, "/file");
	tree_mkdir(t, "/file");
	tree_write(t, "/file/in", "it");
	b = tree_seal(t);
	is_diff(t, a, b, 0, "Tc /d\nD /d/g\nD /d/sub\nD /d/sub/f\nTc /file\nA /file/in\n",
		"types, a tree removed");
	is_diff(t, b, a, 0, "Tc /d\nA /d/g\nA /d/sub\nA /d/sub/f\nTc /file\nD /file/in\n",
		"and back");
	/* the same tree made anew is the same */
	tree_unlink(t, "/d");
	tree_mkdir(t, "/d");
	tree_mkdir(t, "/d/sub");
	tree_write(t, "/d/sub/f", "f");
	tree_write(t, "/d/g", "G");
	tree_unlink(t, "/file/in");
	tree_rmdir(t, "/file");
	tree_write(t, "/file", "x");
	c = tree_seal(t);
	is_diff(t, a, c, 0, "Mc /d/g\n", "made anew with other numbers");
}

static void test_links(struct tree *t)
{
	store_layer a, b, c;

	tree_on(t, 0);
	tree_write(t, "/a", "text");
	a = tree_seal(t);
	tree_link(t, "/a", "/b");
	b = tree_seal(t);
	is_diff(t, a, b, 0, "A /b\n", "a second link");
	tree_write(t, "/b", "other");
	c = tree_seal(t);
	is_diff(t, b, c, 0, "Mc /a\nMc /b\n", "a change shows at each link");
	tree_unlink(t, "/a");
	is_diff(t, c, tree_seal(t), 0, "D /a\n", "one link less");
}

static void test_branches(struct tree *t)
{
	store_layer base, a, b;

	tree_on(t, 0);
	tree_write(t, "/f", "base");
	tree_write(t, "/same", "base");
	base = tree_seal(t);
	tree_write(t, "/f", "left");
	tree_write(t, "/left", "l");
	tree_write(t, "/same", "both");
	a = tree_seal(t);
	tree_on(t, base);
	tree_write(t, "/f", "right");
	tree_write(t, "/right", "r");
	tree_write(t, "/same", "both");
	b = tree_seal(t);
	is_diff(t, a, b, 0, "Mc /f\nD /left\nA /right\n", "two branches");
}

static void test_xattrs_and_blocks(struct tree *t)
{
	static char big[5 * STORE_BLOCK], value[2000];
	store_layer a, b, c, d;

	memset(big, 'b', sizeof big);
	memset(value, 'v', sizeof value);
	tree_on(t, 0);
	tree_write_at(t, "/big", 0, big, sizeof big);
	tree_write(t, "/f", "f");
	a = tree_seal(t);
	tree_write_at(t, "/big", 3 * STORE_BLOCK + 5, "X", 1);
	TREE_DO(ovl_setxattr(t->o, tree_ino(t, "/f"), "user.big", value, sizeof value, 0), "/f");
	b = tree_seal(t);
	is_diff(t, a, b, 0, "Mc /big\nMx /f\n", "one byte of a big file, a big xattr");
	tree_write_at(t, "/big", 3 * STORE_BLOCK + 5, "b", 1);
	value[7] = 'w';
	TREE_DO(ovl_setxattr(t->o, tree_ino(t, "/f"), "user.big", value, sizeof value, 0), "/f");
	c = tree_seal(t);
	is_diff(t, a, c, 0, "Mx /f\n", "the byte is as it was");
	is_diff(t, b, c, 0, "Mc /big\nMx /f\n", "another value");
	TREE_DO(ovl_removexattr(t->o, tree_ino(t, "/f"), "user.big"), "/f");
	d = tree_seal(t);
	is_diff(t, a, d, 0, "", "and none again");
}

/* ---- over a host directory ---- */

static void host_dir(struct tree *t, const char *rel)
{
	char p[PATH_MAX];

	fixture_path(&t->f, rel, p);
	if (mkdir(p, 0755) < 0)
		tap_fatal("mkdir %s", p);
}

static store_layer host_tree(struct tree *t)
{
	struct diag d = {0};
	store_layer base, l;
	char p[PATH_MAX];

	host_dir(t, "proj");
	host_dir(t, "proj/src");
	host_dir(t, "proj/src/deep");
	host_dir(t, "proj/old");
	host_dir(t, "proj/old/sub");
	fixture_file(&t->f, "proj/README", "readme", 6);
	fixture_file(&t->f, "proj/src/main.c", "main", 4);
	fixture_file(&t->f, "proj/src/deep/a", "a", 1);
	fixture_file(&t->f, "proj/src/deep/b", "b", 1);
	fixture_file(&t->f, "proj/old/sub/x", "x", 1);
	fixture_file(&t->f, "proj/old/y", "y", 1);
	fixture_path(&t->f, "proj", p);
	tree_on(t, 0);
	tree_mkdir(t, "/srv");
	base = tree_seal(t);
	if (hostbase_overlay(t->f.s, base, p, "/workspace", &d, &l) < 0)
		tap_fatal("%s", d.text);
	tree_on(t, l);
	return l;
}

/* The id of a commit beside a host directory can be computed again where that does not matter. */
static void test_host_id(struct tree *t, store_layer at)
{
	struct store_commit c = {.layer = at, .time = {7, 5}};
	struct diff_counts n;
	bool same = false;

	eq_int(diff_commit_check(t->f.s, &c, &same), -ENODATA, "what the host had is not recorded");
	tree_write(t, "/srv/own", "own");
	c.layer = tree_seal(t);
	if (diff_commit_id(t->f.s, NULL, at, c.layer, "", "", &c.time, &c.id, &n) < 0)
		tap_fatal("id");
	ok(diff_commit_check(t->f.s, &c, &same) == 0 && same, "elsewhere the id is told");
}

static store_layer test_host(struct tree *t)
{
	store_layer l = host_tree(t), a, b, c;

	is_diff(t, l, tree_seal(t), 0, "", "nothing done");
	tree_write(t, "/workspace/src/deep/a", "A");
	tree_chmod(t, "/workspace/README", 0600);
	tree_write(t, "/workspace/src/new", "n");
	a = tree_seal(t);
	is_diff(t, l, a, 0,
		"Mmh /workspace/README\nMch /workspace/src/deep/a\nA /workspace/src/new\n",
		"host files changed");
	is_diff(t, a, l, 0,
		"Mm /workspace/README\nMc /workspace/src/deep/a\nD /workspace/src/new\n",
		"and back");
	tree_write(t, "/workspace/src/deep/a", "a");
	tree_chmod(t, "/workspace/README", 0644);
	tree_unlink(t, "/workspace/src/new");
	b = tree_seal(t);
	is_diff(t, l, b, 0, "", "as the host has them again");
	tree_rename(t, "/workspace/src/deep", "/srv/deep2");
	tree_write(t, "/srv/deep2/b", "B");
	tree_rename(t, "/workspace/README", "/workspace/LIESMICH");
	tree_unlink(t, "/workspace/old/sub/x");
	c = tree_seal(t);
	is_diff(t, b, c, 0,
		"R /workspace/src/deep > /srv/deep2\nMch /workspace/src/deep/b > /srv/deep2/b\n"
		"R /workspace/README > /workspace/LIESMICH\nDh /workspace/old/sub/x\n",
		"moved from recorded places");
	is_diff(t, l, c, 0,
		"Rh /workspace/src/deep > /srv/deep2\nMch /workspace/src/deep/b > /srv/deep2/b\n"
		"Rh /workspace/README > /workspace/LIESMICH\nDh /workspace/old/sub/x\n",
		"moved from host places");
	is_diff(t, c, l, 0,
		"R /workspace/LIESMICH > /workspace/README\nA /workspace/old/sub/x\n"
		"R /srv/deep2 > /workspace/src/deep\nMc /srv/deep2/b > /workspace/src/deep/b\n",
		"and back");
	test_host_id(t, c);
	return l;
}

static void test_host_trees(struct tree *t, store_layer l)
{
	store_layer a;

	tree_on(t, l);
	tree_unlink(t, "/workspace/old/sub/x");
	tree_rmdir(t, "/workspace/old/sub");
	tree_unlink(t, "/workspace/old/y");
	tree_rmdir(t, "/workspace/old");
	tree_write(t, "/workspace/src/main.new", "main");
	tree_rename(t, "/workspace/src/main.new", "/workspace/src/main.c");
	a = tree_seal(t);
	is_diff(t, l, a, 0, "Dh /workspace/old\n", "a host directory is one entry");
	is_diff(t, a, l, 0, "A /workspace/old\n", "and back");
}

/* ---- a directory of the layer's own where the host has one ---- */

static void test_made_anew(struct tree *t, store_layer l)
{
	store_layer a, b;

	tree_on(t, l);
	tree_mkdir(t, "/workspace/made");
	tree_write(t, "/workspace/made/y", "y");
	tree_mkdir(t, "/workspace/made/in");
	tree_write(t, "/workspace/made/in/z", "z");
	a = tree_seal(t);
	is_diff(t, l, a, DIFF_PEOPLE,
		"A /workspace/made\nA /workspace/made/in\nA /workspace/made/in/z\n"
		"A /workspace/made/y\n",
		"new");
	host_dir(t, "proj/made");
	host_dir(t, "proj/made/in");
	fixture_file(&t->f, "proj/made/y", "y", 1);
	fixture_file(&t->f, "proj/made/in/z", "z", 1);
	is_diff(t, l, a, DIFF_PEOPLE, "", "the host has the same by now");
	is_diff(t, a, l, DIFF_PEOPLE, "", "and back");
	fixture_file(&t->f, "proj/made/y", "Y", 1);
	fixture_file(&t->f, "proj/made/theirs", "t", 1);
	host_dir(t, "proj/made/in/sub");
	fixture_file(&t->f, "proj/made/in/sub/deep", "d", 1);
	is_diff(t, l, a, DIFF_PEOPLE,
		"Dh /workspace/made/in/sub\nDh /workspace/made/theirs\nMch /workspace/made/y\n",
		"what only the host has is hidden");
	is_diff(t, a, l, DIFF_PEOPLE,
		"A /workspace/made/in/sub\nA /workspace/made/theirs\nMc /workspace/made/y\n",
		"and back");
	is_diff(t, l, a, DIFF_PEOPLE | DIFF_HIDDEN,
		"Dh /workspace/made\nA /workspace/made\nA /workspace/made/in\n"
		"A /workspace/made/in/z\nA /workspace/made/y\n",
		"who brings it to the host compares by himself");
	/* Moved out of it, and made anew, with another type below. */
	tree_unlink(t, "/workspace/src/deep/a");
	tree_unlink(t, "/workspace/src/deep/b");
	tree_rmdir(t, "/workspace/src/deep");
	tree_rename(t, "/workspace/src/main.c", "/workspace/made/main.c");
	tree_rmdir(t, "/workspace/src");
	tree_mkdir(t, "/workspace/src");
	tree_write(t, "/workspace/src/deep", "a file");
	b = tree_seal(t);
	is_diff(t, a, b, DIFF_PEOPLE,
		"Rh /workspace/src/main.c > /workspace/made/main.c\nDh /workspace/src/deep\n"
		"A /workspace/src/deep\n",
		"a directory that was emptied and made anew");
}

/* ---- for who brings changes to the host ---- */

static bool there(struct tree *t, const char *path)
{
	struct ovl_entry e = {0};
	bool yes = ovl_walk(t->o, path, &e) == 0 && e.ino;

	if (yes)
		ovl_forget(t->o, e.ino, 1);
	return yes;
}

static void test_elsewhere(struct tree *t, store_layer l)
{
	store_layer a;

	fixture_file(&t->f, "proj/same", "y", 1);
	tree_on(t, l);
	tree_link(t, "/workspace/old/y", "/workspace/same2");
	tree_rename(t, "/workspace/same2", "/workspace/same");
	tree_rename(t, "/workspace/old/y", "/workspace/README");
	tree_unlink(t, "/workspace/old/sub/x");
	tree_rmdir(t, "/workspace/old/sub");
	tree_rmdir(t, "/workspace/old");
	tree_chmod(t, "/workspace/src/main.c", 0600);
	a = tree_seal(t);
	is_diff(t, l, a, 0, "Mch /workspace/README\nDh /workspace/old\nMmh /workspace/src/main.c\n",
		"moved over others, out of what is gone");
	is_diff(t, l, a, DIFF_HIDDEN,
		"Mceh /workspace/README\nDh /workspace/old\nMeh /workspace/same\nMmh "
		"/workspace/src/main.c\n",
		"what is shown from elsewhere is named, also where it is equal");
}

static void own(struct tree *t, const char *path)
{
	TREE_DO(ovl_own(t->o, tree_ino(t, path)), path);
}

static void test_left_behind(struct tree *t, store_layer l)
{
	store_layer a;

	tree_on(t, l);
	tree_rename(t, "/workspace/src", "/workspace/lib");
	tree_mkdir(t, "/workspace/src");
	tree_rename(t, "/workspace/lib/main.c", "/workspace/src/main.c");
	a = tree_seal(t);
	is_diff(t, l, a, 0, "Rh /workspace/src > /workspace/lib\nA /workspace/src\n",
		"a file that is where it was");
	is_diff(t, l, a, DIFF_HIDDEN,
		"Rh /workspace/src > /workspace/lib\nA /workspace/src\nRh /workspace/src/main.c > "
		"/workspace/src/main.c\n",
		"its directory would have taken it along");
	own(t, "/workspace/lib");
	TREE_DO(ovl_own_names(t->o, tree_ino(t, "/workspace/lib")), "lib");
	fixture_file(&t->f, "proj/src/seen", "s", 1);
	ok(there(t, "/workspace/lib/seen"), "a directory with names of the host shows those");
	own(t, "/workspace/lib/seen");
	own(t, "/workspace/lib/deep");
	own(t, "/workspace/lib/deep/a");
	own(t, "/workspace/lib/deep/b");
	TREE_DO(ovl_own_names(t->o, tree_ino(t, "/workspace/lib/deep")), "deep");
	TREE_DO(ovl_own_names(t->o, tree_ino(t, "/workspace/lib")), "lib");
	fixture_file(&t->f, "proj/src/late", "l", 1);
	fixture_file(&t->f, "proj/src/deep/a", "changed", 7);
	ok(!there(t, "/workspace/lib/late"), "one that is the tree's own does not");
	a = tree_seal(t);
	is_diff(t, l, a, DIFF_HIDDEN,
		"A /workspace/lib\nA /workspace/lib/deep\nA /workspace/lib/deep/a\nA "
		"/workspace/lib/deep/b\nA /workspace/lib/seen\nDh /workspace/src\nA "
		"/workspace/src\nAe /workspace/src/main.c\n",
		"and is no rename");
}

/* ---- whose it is ---- */

/* Another file in the place of one, as an editor saves, by who has the id @who. */
static void put_instead(struct tree *t, const char *path, const char *text, uint32_t who)
{
	struct ovl_cred cred = {.uid = who, .gid = who};
	struct ovl_entry e;

	TREE_DO(ovl_mknod(t->o, tree_ino(t, "/workspace"), "new", S_IFREG | 0644, 0, &cred, &e),
		path);
	ovl_forget(t->o, e.ino, 1);
	tree_write(t, "/workspace/new", text);
	tree_rename(t, "/workspace/new", path);
}

static void test_owners(struct tree *t, store_layer l)
{
	store_layer a, b;

	tree_on(t, l);
	put_instead(t, "/workspace/README", "other", HOSTBASE_AGENT);
	put_instead(t, "/workspace/old/y", "y", HOSTBASE_AGENT);
	put_instead(t, "/workspace/old/sub/x", "x", HOSTBASE_AGENT + 7);
	tree_chmod(t, "/workspace/src/deep/a", 0600);
	tree_chmod(t, "/workspace/src/deep/b", 0600);
	a = tree_seal(t);
	is_diff(t, l, a, DIFF_PEOPLE,
		"Mch /workspace/README\nMoh /workspace/old/sub/x\n"
		"Mmh /workspace/src/deep/a\nMmh /workspace/src/deep/b\n",
		"what the agent makes is the user's");
	is_diff(t, a, l, DIFF_PEOPLE,
		"Mc /workspace/README\nMo /workspace/old/sub/x\n"
		"Mm /workspace/src/deep/a\nMm /workspace/src/deep/b\n",
		"and back");
	put_instead(t, "/workspace/src/deep/a", "A", HOSTBASE_AGENT);
	put_instead(t, "/workspace/src/deep/b", "b", HOSTBASE_AGENT + 7);
	b = tree_seal(t);
	is_diff(t, a, b, DIFF_PEOPLE, "Mcm /workspace/src/deep/a\nMmo /workspace/src/deep/b\n",
		"also in the place of what was changed before");
	if (getuid() != HOSTBASE_AGENT && getgid() != HOSTBASE_AGENT)
		is_diff(t, l, a, 0,
			"Mcoh /workspace/README\nMoh /workspace/old/sub/x\nMoh /workspace/old/y\n"
			"Mmh /workspace/src/deep/a\nMmh /workspace/src/deep/b\n",
			"ids as they are stored");
}

int main(void)
{
	struct tree t = {0};
	store_layer host;

	(void)umask(022);
	fixture_open(&t.f);
	test_plain(&t);
	test_names(&t);
	test_types_and_trees(&t);
	test_links(&t);
	test_branches(&t);
	test_xattrs_and_blocks(&t);
	host = test_host(&t);
	test_host_trees(&t, host);
	test_made_anew(&t, host);
	test_elsewhere(&t, host);
	test_left_behind(&t, host);
	test_owners(&t, host);
	if (ovl_close(t.o) < 0)
		tap_fatal("ovl_close");
	fixture_close(&t.f);
	return tap_done();
}
