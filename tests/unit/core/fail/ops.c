/* The operations. */
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/core/diff.h"
#include "tests/unit/core/fail/fail.h"

#define PATHS(name, call)              \
	static int name(struct rig *g) \
	{                              \
		return call;           \
	}

static int write_at(struct rig *g, const char *path, uint64_t off, size_t n)
{
	ssize_t k = fx_write(&g->f, path, off, fail_noise + 1000, n);

	/* a short count is told and gone on from */
	while (k > 0 && (size_t)k < n) {
		off += (uint64_t)k;
		n -= (size_t)k;
		k = fx_write(&g->f, path, off, fail_noise + 1000, n);
	}
	return k < 0 ? (int)k : 0;
}

static int setattr(struct rig *g, const char *path, unsigned set)
{
	struct stat st = {.st_mode = 0600, .st_uid = 5, .st_size = 1234};

	return fx_set(&g->f, path, &st, set);
}

static int on(struct rig *g, const char *path, int (*fn)(struct rig *g, store_ino ino))
{
	struct ovl_entry e;
	int r = fx_get(&g->f, path, &e);

	if (r < 0)
		return r;
	r = fn(g, e.ino);
	ovl_forget(g->f.o, e.ino, 1);
	return r;
}

static int do_punch(struct rig *g, store_ino ino)
{
	return ovl_fallocate(g->f.o, ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1000, 150000);
}

static int do_zero(struct rig *g, store_ino ino)
{
	return ovl_fallocate(g->f.o, ino, FALLOC_FL_ZERO_RANGE, 100, 200);
}

static int do_alloc(struct rig *g, store_ino ino)
{
	return ovl_fallocate(g->f.o, ino, 0, 0, 400000);
}

static int do_fsync(struct rig *g, store_ino ino)
{
	return ovl_fsync(g->f.o, ino, false);
}

static int do_removexattr(struct rig *g, store_ino ino)
{
	return ovl_removexattr(g->f.o, ino, "user.big");
}

static int do_acl(struct rig *g, store_ino ino)
{
	static const uint8_t acl[] = {2,   0,   0,   0,   1,   0,   6,  0,   255, 255, 255,
				      255, 2,   0,   4,   0,   7,   0,  0,   0,   4,   0,
				      4,   0,   255, 255, 255, 255, 16, 0,   4,   0,   255,
				      255, 255, 255, 32,  0,   4,   0,  255, 255, 255, 255};

	return ovl_setxattr(g->f.o, ino, "system.posix_acl_access", acl, sizeof(acl), 0);
}

static int do_copy(struct rig *g, store_ino ino)
{
	struct ovl_entry e;
	ssize_t k = fx_get(&g->f, "s/big", &e);
	uint64_t off = 0;

	if (k < 0)
		return (int)k;
	do {
		k = ovl_copy_range(g->f.o, e.ino, off, ino, off, 300000 - off);
		off += k > 0 ? (uint64_t)k : 0;
	} while (k > 0 && off < 300000);
	ovl_forget(g->f.o, e.ino, 1);
	return k < 0 ? (int)k : 0;
}

static int do_tmpfile(struct rig *g, store_ino dir)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry e, l;
	int r = ovl_tmpfile(g->f.o, dir, 0600, &c, &e);

	if (r < 0)
		return r;
	r = ovl_link(g->f.o, e.ino, dir, "fromtmp", &l);
	if (r == 0)
		ovl_forget(g->f.o, l.ino, 1);
	ovl_forget(g->f.o, e.ino, 1);
	return r;
}

static int seal(void *arg, store_layer *ret)
{
	struct rig *g = arg;
	struct store_commit c = {.kind = STORE_COMMIT};
	struct digest none = {0};
	struct diff_counts n;
	int r;

	(void)clock_gettime(CLOCK_REALTIME, &c.time);
	r = diff_commit_id(g->f.s, &none, g->base, g->env.open, "m", "", &c.time, &c.id, &n);
	if (r == 0)
		r = store_env_seal(g->f.s, &g->env, &c);
	if (r == 0)
		*ret = g->f.layer = g->env.open;
	return r;
}

static int op_commit(struct rig *g)
{
	int r = ovl_commit(g->f.o, seal, g);

	g->committed = r == 0;
	return r;
}

static int op_reopen(struct rig *g)
{
	int r = ovl_flush(g->f.o);

	if (r < 0)
		return r;
	(void)!ovl_close(g->f.o);
	g->f.o = NULL;
	g->f.opts.store = g->f.s;
	g->f.opts.layer = g->f.layer;
	return ovl_open(&g->f.opts, &g->f.o);
}

static int op_store(struct rig *g)
{
	char data[PATH_MAX];
	struct diag d = {0};
	int r = ovl_flush(g->f.o);

	if (r < 0)
		return r;
	(void)!ovl_close(g->f.o); /* nothing is left to be lost */
	g->f.o = NULL;
	store_close(g->f.s);
	fx_path(&g->f, "data", data);
	r = store_open(data, 0, &d, &g->f.s);
	(void)fail_disarm();
	if (r < 0) {
		d = (struct diag){0};
		if (store_open(data, 0, &d, &g->f.s) < 0)
			tap_fatal("the store: %s", d.text);
	}
	fx_mount(&g->f);
	return r;
}

static int change_seen(void *arg, const char *path, char what)
{
	(void)path;
	(void)what;
	++*(unsigned *)arg;
	return 0;
}

static int op_changes(struct rig *g)
{
	unsigned n = 0;

	return ovl_changes(g->f.o, 0, change_seen, &n);
}

static int op_statfs(struct rig *g)
{
	struct statvfs v;

	return ovl_statfs(g->f.o, &v);
}

static int op_read(struct rig *g)
{
	static const char *const paths[] = {"s/big", "f/big", "n/big", "hbig", "s/block"};
	static char got[300000];

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		ssize_t k = fx_read(&g->f, paths[i], 100, got, sizeof(got));

		if (k < 0)
			return (int)k;
	}
	return 0;
}

struct found {
	store_ino ino[64];
	size_t n;
};

static int list_one(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct found *f = arg;

	(void)cookie;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (e->ino && f->n < ARRAY_SIZE(f->ino))
		f->ino[f->n++] = e->ino;
	return 0;
}

static int do_list(struct rig *g, store_ino ino)
{
	struct found f = {0};
	int r = ovl_readdir(g->f.o, ino, 0, true, list_one, &f);

	for (size_t i = 0; i < f.n; i++)
		ovl_forget(g->f.o, f.ino[i], 1);
	if (r == 0)
		r = ovl_readdir(g->f.o, ino, 0, false, list_one, &f);
	return r;
}

static int move_env(struct rig *g)
{
	int r;

	if (!g->committed) {
		r = ovl_commit_as_is(g->f.o, seal, g);
		if (r < 0)
			return r;
		g->committed = true;
	}
	r = store_env_move(g->f.s, &g->env, g->env.head, "rollback");
	if (r < 0)
		return r;
	(void)!ovl_close(g->f.o);
	g->f.layer = g->env.open;
	fail_disarm();
	fx_mount(&g->f);
	return 0;
}

PATHS(op_mknod, fx_make(&g->f, "f/newfile", FX_FILE, 0640))
PATHS(op_mkdir, fx_make(&g->f, "s/newdir", FX_DIR, 0750))
PATHS(op_mkdir_host, fx_make(&g->f, "hd/newdir", FX_DIR, 0750))
PATHS(op_symlink, fx_symlink(&g->f, "to", "n/newlink"))
PATHS(op_link, fx_link(&g->f, "s/block", "n/linked"))
PATHS(op_link_many, fx_link(&g->f, "f/two", "f/sub/linked"))
PATHS(op_link_host, fx_link(&g->f, "hfile", "n/linked"))
PATHS(op_tmpfile, on(g, "f", do_tmpfile))
PATHS(op_unlink, fx_remove(&g->f, "s/small", false))
PATHS(op_unlink_link, fx_remove(&g->f, "f/two", false))
PATHS(op_unlink_stored_link, fx_remove(&g->f, "s/two2", false))
PATHS(op_unlink_new, fx_remove(&g->f, "n/big", false))
PATHS(op_unlink_host, fx_remove(&g->f, "hd/inner", false))
PATHS(op_rmdir, fx_remove(&g->f, "s/none", true))
PATHS(op_rename, fx_rename(&g->f, "s/block", "f/moved", 0))
PATHS(op_rename_over, fx_rename(&g->f, "s/block", "f/two", 0))
PATHS(op_rename_over_link, fx_rename(&g->f, "n/small", "s/two", 0))
PATHS(op_rename_link, fx_rename(&g->f, "f/two2", "s/moved", 0))
PATHS(op_rename_dir, fx_rename(&g->f, "s/sub", "n/none", 0))
PATHS(op_rename_host, fx_rename(&g->f, "hd", "n/hd", 0))
PATHS(op_whiteout, fx_rename(&g->f, "s/block", "f/two", RENAME_WHITEOUT))
PATHS(op_whiteout_host, fx_rename(&g->f, "hd", "n/hd", RENAME_WHITEOUT))
PATHS(op_exchange, fx_rename(&g->f, "s/two", "f/sub", RENAME_EXCHANGE))
PATHS(op_exchange_links, fx_rename(&g->f, "s/two", "f/two2", RENAME_EXCHANGE))
PATHS(op_write_small, write_at(g, "s/small", 50, 300))
PATHS(op_write_new, write_at(g, "n/empty", 10, 60000))
PATHS(op_write_one, write_at(g, "s/big", 140000, 5000))
PATHS(op_write_around, write_at(g, "f/big", STORE_BLOCK + 10, 100000))
PATHS(op_write_host, write_at(g, "hbig", 140000, 5000))
PATHS(op_truncate, setattr(g, "s/big", OVL_SET_SIZE))
PATHS(op_truncate_new, setattr(g, "n/big", OVL_SET_SIZE))
PATHS(op_truncate_host, setattr(g, "hbig", OVL_SET_SIZE))
PATHS(op_chmod, setattr(g, "f/small", OVL_SET_MODE | OVL_SET_UID))
PATHS(op_chmod_host, setattr(g, "hfile", OVL_SET_MODE))
PATHS(op_punch, on(g, "n/big", do_punch))
PATHS(op_zero, on(g, "s/block", do_zero))
PATHS(op_alloc, on(g, "f/big", do_alloc))
PATHS(op_copy, on(g, "n/empty", do_copy))
PATHS(op_fsync, on(g, "n/small", do_fsync))
PATHS(op_flush, ovl_flush(g->f.o))
PATHS(op_xattr, rig_set_xattr(g, "f/block", "user.x", 10))
PATHS(op_xattr_big, rig_set_xattr(g, "s/block", "user.x", 3000))
PATHS(op_xattr_shrink, rig_set_xattr(g, "s/small", "user.big", 30))
PATHS(op_xattr_host, rig_set_xattr(g, "hfile", "user.x", 30))
PATHS(op_xattr_remove, on(g, "s/small", do_removexattr))
PATHS(op_acl, on(g, "f/small", do_acl))
PATHS(op_list, on(g, "s", do_list))
PATHS(op_list_host, on(g, "", do_list))

/* Without a journal it is an end of the process that loses what was not flushed: not what is looked at here. */
static int op_resume(struct rig *g)
{
	return g->journal_fd < 0 ? ovl_flush(g->f.o) : rig_crash(g);
}

const struct fail_op fail_ops[] = {
	{.name = "mknod", .run = op_mknod},
	{.name = "mkdir", .run = op_mkdir},
	{.name = "mkdir in a host directory", .run = op_mkdir_host},
	{.name = "symlink", .run = op_symlink},
	{.name = "link", .run = op_link},
	{.name = "a third link", .run = op_link_many},
	{.name = "link of a host file", .run = op_link_host},
	{.name = "tmpfile and its link", .run = op_tmpfile, .in_parts = true},
	{.name = "unlink", .run = op_unlink},
	{.name = "unlink one of two", .run = op_unlink_link},
	{.name = "unlink one of two in the store", .run = op_unlink_stored_link},
	{.name = "unlink of a new file", .run = op_unlink_new},
	{.name = "unlink of a host file", .run = op_unlink_host},
	{.name = "rmdir", .run = op_rmdir},
	{.name = "rename", .run = op_rename},
	{.name = "rename over a link", .run = op_rename_over},
	{.name = "rename over a link in the store", .run = op_rename_over_link},
	{.name = "rename of a link", .run = op_rename_link},
	{.name = "rename of a directory", .run = op_rename_dir},
	{.name = "rename of a host directory", .run = op_rename_host},
	{.name = "rename that leaves a whiteout", .run = op_whiteout},
	{.name = "the same of a host directory", .run = op_whiteout_host},
	{.name = "exchange", .run = op_exchange},
	{.name = "exchange of links", .run = op_exchange_links},
	{.name = "write", .run = op_write_small},
	{.name = "write to a new file", .run = op_write_new, .in_parts = true},
	{.name = "write into a block", .run = op_write_one},
	{.name = "write around a part of a block", .run = op_write_around},
	{.name = "write to a host file", .run = op_write_host},
	{.name = "truncate", .run = op_truncate},
	{.name = "truncate of a new file", .run = op_truncate_new},
	{.name = "truncate of a host file", .run = op_truncate_host},
	{.name = "chmod and chown", .run = op_chmod},
	{.name = "chmod of a host file", .run = op_chmod_host},
	{.name = "punch", .run = op_punch, .in_parts = true},
	{.name = "zero", .run = op_zero},
	{.name = "fallocate", .run = op_alloc},
	{.name = "copy", .run = op_copy, .in_parts = true},
	{.name = "fsync", .run = op_fsync},
	{.name = "flush", .run = op_flush},
	{.name = "setxattr", .run = op_xattr},
	{.name = "setxattr, big", .run = op_xattr_big},
	{.name = "setxattr, small for big", .run = op_xattr_shrink},
	{.name = "setxattr of a host file", .run = op_xattr_host},
	{.name = "removexattr", .run = op_xattr_remove},
	{.name = "an access list", .run = op_acl},
	{.name = "read", .run = op_read},
	{.name = "readdir", .run = op_list},
	{.name = "readdir of a host directory", .run = op_list_host},
	{.name = "changes", .run = op_changes},
	{.name = "statfs", .run = op_statfs},
	{.name = "commit", .run = op_commit},
	{.name = "rollback", .run = move_env, .in_parts = true},
	{.name = "open a tree", .run = op_reopen},
	{.name = "open a store", .run = op_store},
	{.name = "go on after a crash", .run = op_resume, .resumes = true},
};
const size_t fail_nops = ARRAY_SIZE(fail_ops);
