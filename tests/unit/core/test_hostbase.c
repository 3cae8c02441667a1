/* The base "host" and host directories laid over it, as records. */
#include <errno.h>
#include <sys/wait.h>

#include "data_fixture.h"
#include "fs/core/hostbase.h"

/* The record at an absolute path; names that the store does not hold are -ENOENT. */
static int look(struct store *s, store_layer layer, const char *path, store_ino *ret_ino,
		struct rec_inode *ret)
{
	store_ino ino = STORE_ROOT_INO;
	struct store_view *v;
	int r = store_view_open(s, layer, &v);

	while (r == 0 && *(path += strspn(path, "/"))) {
		size_t len = strcspn(path, "/");
		struct rec_name n;

		r = store_view_name(v, ino, path, len, &n);
		if (r == 0 && !n.ino)
			r = -ENOENT;
		ino = n.ino;
		path += len;
	}
	if (r == 0)
		r = store_view_inode(v, ino, ret);
	*ret_ino = ino;
	store_view_close(v);
	return r;
}

static void is_dir(struct store *s, store_layer layer, const char *path, uint32_t mode,
		   uint32_t uid, const char *root)
{
	cleanup_rec_inode struct rec_inode r = {0};
	store_ino ino;

	if (look(s, layer, path, &ino, &r) < 0) {
		ok(0, "%s is there", path);
		return;
	}
	ok(r.mode == (S_IFDIR | mode) && r.uid == uid && r.gid == uid, "%s: %o of %u", path, r.mode,
	   r.uid);
	ok(r.nlink >= 2, "%s: link count", path);
	if (root)
		ok(r.origin.root && !strcmp(r.origin.root, root) && !strcmp(r.origin.rel, ""),
		   "%s shows the host's", path);
	else
		ok(!r.origin.root, "%s is its own", path);
}

static void has_text(struct store *s, store_layer layer, const char *path, const char *want)
{
	cleanup_rec_inode struct rec_inode r = {0};
	store_ino ino;
	int e = look(s, layer, path, &ino, &r);
	char text[REC_INLINE_MAX + 1] = "";

	if (e == 0 && r.content == REC_INLINE)
		memcpy(text, r.data, r.data_len);
	ok(e == 0 && S_ISREG(r.mode) && r.size == r.data_len && strstr(text, want), "%s holds %s",
	   path, want);
}

static void links_to(struct store *s, store_layer layer, const char *path, const char *target)
{
	cleanup_rec_inode struct rec_inode r = {0};
	store_ino ino;

	ok(look(s, layer, path, &ino, &r) == 0 && S_ISLNK(r.mode) && !strcmp(r.target, target) &&
		   r.size == strlen(target),
	   "%s -> %s", path, target);
}

static void test_base(struct fixture *f, store_layer *ret)
{
	cleanup_rec_inode struct rec_inode r = {0};
	struct store_layer_info info;
	struct diag d = {0};
	store_layer layer, again, ref;
	struct stat st;
	store_ino ino;

	eq_int(hostbase_get(f->s, &d, &layer), 0, "the base is made %s", d.text);
	eq_int(store_layer_get(f->s, layer, &info), 0, "its layer");
	eq_int(info.state, STORE_LAYER_SEALED, "is sealed");
	eq_int(info.parent, 0, "on nothing");
	eq_int(hostbase_get(f->s, &d, &again), 0, "asked again");
	ok(again == layer, "it is the same");
	ok(store_ref_get(f->s, HOSTBASE_REF, &ref) == 0 && ref == layer, "and has its name");
	is_dir(f->s, layer, "/", 0755, 0, NULL);
	is_dir(f->s, layer, "/usr", 0755, 0, "/usr");
	is_dir(f->s, layer, "/etc", 0755, 0, "/etc");
	is_dir(f->s, layer, "/home/user", 0755, 1000, NULL);
	is_dir(f->s, layer, "/workspace", 0755, 1000, NULL);
	is_dir(f->s, layer, "/tmp", 01777, 0, NULL);
	is_dir(f->s, layer, "/var/tmp", 01777, 0, NULL);
	is_dir(f->s, layer, "/var/lib", 0755, 0, NULL);
	is_dir(f->s, layer, "/proc", 0555, 0, NULL);
	is_dir(f->s, layer, "/root", 0700, 0, NULL);
	has_text(f->s, layer, "/etc/passwd", "user:x:1000:1000:user:/home/user:");
	has_text(f->s, layer, "/etc/group", "user:x:1000:");
	has_text(f->s, layer, "/etc/hosts", "localhost");
	has_text(f->s, layer, "/etc/nsswitch.conf", "passwd: files");
	links_to(f->s, layer, "/etc/mtab", "/proc/self/mounts");
	links_to(f->s, layer, "/var/run", "/run");
	eq_int(look(f->s, layer, "/etc/resolv.conf", &ino, &r), 0, "an empty resolv.conf");
	eq_int(r.size, 0, "of no bytes");
	rec_inode_release(&r);
	eq_int(look(f->s, layer, "/usr", &ino, &r), 0, "/usr");
	eq_int(r.origin.flags, REC_ORIGIN_PUBLIC | REC_ORIGIN_STABLE,
	       "only what everyone may read");
	rec_inode_release(&r);
	if (lstat("/bin", &st) == 0) {
		eq_int(look(f->s, layer, "/bin", &ino, &r), 0, "/bin");
		eq_int(r.mode & S_IFMT, st.st_mode & S_IFMT, "of the host's kind");
	}
	*ret = layer;
}

/* A base of another shape, as an older build made it. */
static void test_refresh(struct fixture *f, store_layer base)
{
	struct diag d = {0};
	store_layer other, got;

	if (store_layer_new(f->s, 0, &other) < 0 || store_layer_seal(f->s, other) < 0 ||
	    store_ref_set(f->s, HOSTBASE_REF, other) < 0 ||
	    store_ref_set(f->s, "base/host-shape/00000000000000000000000000000000", other) < 0)
		tap_fatal("refs");
	eq_int(hostbase_get(f->s, &d, &got), 0, "with another base in place");
	ok(got == base, "the one of this shape comes back");
	ok(store_ref_get(f->s, HOSTBASE_REF, &got) == 0 && got == base, "under its name");
	eq_int(store_ref_get(f->s, "base/host-shape/00000000000000000000000000000000", &got),
	       -ENOENT, "nothing keeps the other one");
}

static void test_processes(struct fixture *f)
{
	char path[PATH_MAX];
	pid_t pid[3];
	int bad = 0;

	fixture_path(f, "store2", path);
	for (int i = 0; i < 3; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			struct diag d = {0};
			struct store *s;
			store_layer l;
			int r = store_open(path, STORE_CREATE, &d, &s);

			if (r == 0)
				r = hostbase_get(s, &d, &l);
			if (r == 0)
				store_close(s);
			_exit(r < 0);
		}
	}
	for (int i = 0; i < 3; i++) {
		int st;

		if (pid[i] < 0 || waitpid(pid[i], &st, 0) < 0 || st != 0)
			bad++;
	}
	eq_int(bad, 0, "several processes at once all get one");
}

static void test_overlay(struct fixture *f, store_layer base)
{
	cleanup_rec_inode struct rec_inode r = {0};
	cleanup_buf struct buf b = {0};
	struct store_layer_info info;
	struct diag d = {0};
	store_layer l, l2;
	char root[PATH_MAX];
	store_ino ino, before;

	fixture_path(f, "project", root);
	if (mkdir(root, 0750) < 0)
		tap_fatal("mkdir");
	eq_int(look(f->s, base, "/workspace", &before, &r), 0, "the base's /workspace");
	rec_inode_release(&r);
	eq_int(hostbase_overlay(f->s, base, root, "/workspace", &d, &l), 0, "an overlay %s",
	       d.text);
	ok(store_layer_get(f->s, l, &info) == 0 && info.parent == base &&
		   info.state == STORE_LAYER_SEALED,
	   "is a sealed layer on the base");
	eq_int(look(f->s, l, "/workspace", &ino, &r), 0, "the place");
	ok(r.origin.root && !strcmp(r.origin.root, root) && r.origin.flags == 0 && ino != before,
	   "shows the directory, all of it");
	ok((r.mode & 07777) == 0750 && r.uid == geteuid(), "with its own mode and owner");
	rec_inode_release(&r);
	eq_int(hostbase_overlay_at(f->s, l, "/workspace", &b), 0, "what is shown there");
	eq_str((char *)b.data, root, "is known");
	eq_int(hostbase_overlay_at(f->s, base, "/workspace", &b), -ENOENT, "and was not before");
	eq_int(hostbase_overlay_at(f->s, base, "/usr/bin", &b), 0,
	       "inside of a host directory too");
	eq_str((char *)b.data, "/usr/bin", "it is the host's");

	eq_int(hostbase_overlay(f->s, l, root, "/srv/a/b", &d, &l2), 0,
	       "directories on the way are made");
	is_dir(f->s, l2, "/srv/a", 0755, 0, NULL);
	eq_int(hostbase_overlay_at(f->s, l2, "/srv/a/b", &b), 0, "and the place shows it");
	rec_inode_release(&r);
	eq_int(look(f->s, l2, "/srv", &ino, &r), 0, "the parent");
	eq_int(r.nlink, 3, "has one directory more");
	eq_int(hostbase_overlay(f->s, l, root, "/usr/share/proj", &d, &l2), 0,
	       "below a host directory");
	eq_int(hostbase_overlay_at(f->s, l2, "/usr/share/proj", &b), 0, "it shows");
	eq_str((char *)b.data, root, "the project");
	eq_int(hostbase_overlay_at(f->s, l2, "/usr/share", &b), 0, "and its parent");
	eq_str((char *)b.data, "/usr/share", "still the host's");
}

static void test_refusals(struct fixture *f, store_layer base)
{
	struct diag d = {0};
	char p[PATH_MAX];
	store_layer l;

	eq_int(hostbase_overlay(f->s, base, f->dir, "workspace", &d, &l), -EINVAL, "%s", d.text);
	d.text[0] = 0;
	eq_int(hostbase_overlay(f->s, base, f->dir, "/", &d, &l), -EINVAL, "%s", d.text);
	d.text[0] = 0;
	eq_int(hostbase_overlay(f->s, base, f->dir, "/a/../b", &d, &l), -EINVAL, "%s", d.text);
	d.text[0] = 0;
	eq_int(hostbase_overlay(f->s, base, "rel", "/workspace", &d, &l), -EINVAL, "%s", d.text);
	d.text[0] = 0;
	fixture_path(f, "none", p);
	eq_int(hostbase_overlay(f->s, base, p, "/workspace", &d, &l), -ENOENT, "%s", d.text);
	d.text[0] = 0;
	fixture_file(f, "file", "x", 1);
	fixture_path(f, "file", p);
	eq_int(hostbase_overlay(f->s, base, p, "/workspace", &d, &l), -ENOTDIR, "%s", d.text);
	d.text[0] = 0;
	eq_int(hostbase_overlay(f->s, base, f->dir, "/etc/hosts/x", &d, &l), -ENOTDIR, "%s",
	       d.text);
}

int main(void)
{
	struct fixture f;
	store_layer base;

	(void)umask(022);
	/* before this process opens a store of its own: LMDB does not survive a fork */
	fixture_open(&f);
	store_view_close(f.v);
	store_close(f.s);
	test_processes(&f);
	{
		char path[PATH_MAX];
		struct diag d = {0};

		fixture_path(&f, "store", path);
		if (store_open(path, 0, &d, &f.s) < 0 || store_view_open(f.s, f.layer, &f.v) < 0)
			tap_fatal("reopen: %s", d.text);
	}
	test_base(&f, &base);
	test_refresh(&f, base);
	test_overlay(&f, base);
	test_refusals(&f, base);
	fixture_close(&f);
	return tap_done();
}
