/*
 * Every allocation of the core and the store failing in turn, and every call of LMDB: for each
 * operation, and each call that it makes, one run in which that call fails. Nothing crashes or leaks;
 * the error is the right one and the tree is as if nothing had been asked, or the operation succeeds
 * and is complete; with memory again it succeeds, and a flush and a reopening show the same.
 * test_core_fail [PART-OF-AN-OPERATION'S-NAME [STEP]]: every STEP-th call, 1 is all of them
 */
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#include "fs/core/diff.h"
#include "fs/core/table.h"
#include "tests/power/fail.h"
#include "tests/unit/core/ovl_fixture.h"

struct rig {
	struct fx f;
	struct store_env env;
	store_layer base; /* sealed */
	unsigned n;       /* environments made */
	bool committed;   /* the operation reported a commit */
};

static char noise[400 * 1024];

static void must(int r, const char *what)
{
	if (r < 0)
		tap_fatal("%s: %s", what, err_text(r));
}

/* ---- the tree as text: names, attributes without times, bytes, xattrs ---- */

struct dump {
	struct rig *g;
	struct buf out;
	struct {
		char name[64];
		store_ino ino;
	} e[64];
	size_t n;
};

static int dump_collect(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct dump *d = arg;

	(void)cookie;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (d->n == 64 || strlen(name) >= 64)
		tap_fatal("the tree is too large for this test");
	memcpy(d->e[d->n++].name, name, strlen(name) + 1);
	(void)e;
	return 0;
}

static int dump_cmp(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* What cannot be read stands in the text, too. */
static bool fine(struct dump *d, int r, const char *what)
{
	if (r < 0)
		must(buf_printf(&d->out, " %s: %s\n", what, err_text(r)), "dump");
	return r >= 0;
}

static void dump_xattrs(struct dump *d, store_ino ino)
{
	char list[4096], value[70000], *names[64];
	ssize_t n = ovl_listxattr(d->g->f.o, ino, list, sizeof(list)), k;
	size_t count = 0;

	if (!fine(d, (int)n, "listxattr"))
		return;
	for (char *p = list; p < list + n && count < 64; p += strlen(p) + 1)
		names[count++] = p;
	for (size_t i = 1; i < count; i++)
		for (size_t j = i; j > 0 && strcmp(names[j - 1], names[j]) > 0; j--) {
			char *x = names[j];

			names[j] = names[j - 1];
			names[j - 1] = x;
		}
	for (size_t i = 0; i < count; i++) {
		k = ovl_getxattr(d->g->f.o, ino, names[i], value, sizeof(value));
		if (!fine(d, (int)k, names[i]))
			continue;
		must(buf_printf(&d->out, " %s=%zd:%llx", names[i], k,
				(unsigned long long)table_hash(1, value, (size_t)k)),
		     "dump");
	}
}

static void dump_node(struct dump *d, const char *path, store_ino ino);

static void dump_dir(struct dump *d, const char *path, store_ino ino)
{
	struct dump *sub = calloc(1, sizeof(*sub));

	if (!sub)
		tap_fatal("memory");
	sub->g = d->g;
	sub->out = d->out;
	(void)fine(sub, ovl_readdir(d->g->f.o, ino, 0, false, dump_collect, sub), path);
	qsort(sub->e, sub->n, sizeof(sub->e[0]), dump_cmp);
	for (size_t i = 0; i < sub->n; i++) {
		struct ovl_entry e = {0};
		char child[300];

		(void)snprintf(child, sizeof(child), "%s/%s", path, sub->e[i].name);
		if (!fine(sub, ovl_lookup(d->g->f.o, ino, sub->e[i].name, &e), child))
			continue;
		dump_node(sub, child, e.ino);
		ovl_forget(d->g->f.o, e.ino, 1);
	}
	d->out = sub->out;
	free(sub);
}

static void dump_bytes(struct dump *d, store_ino ino, size_t size)
{
	uint8_t *p = calloc(1, size + 1);
	ssize_t k = ovl_read(d->g->f.o, ino, 0, p, size + 1);

	if (!fine(d, k < 0 ? (int)k : k != (ssize_t)size ? -EIO : 0, "bytes"))
		memset(p, 0, size);
	must(buf_printf(&d->out, " bytes %llx", (unsigned long long)table_hash(2, p, size)),
	     "dump");
	free(p);
}

static void dump_node(struct dump *d, const char *path, store_ino ino)
{
	struct ovl_attr a;
	char target[4096];

	if (!fine(d, ovl_getattr(d->g->f.o, ino, &a), path))
		return;
	must(buf_printf(&d->out, "%s %o %u %u %u %lld", path, a.st.st_mode, a.st.st_uid,
			a.st.st_gid, (unsigned)a.st.st_nlink,
			S_ISDIR(a.st.st_mode) ? 0 : (long long)a.st.st_size),
	     "dump");
	if (S_ISLNK(a.st.st_mode)) {
		if (fine(d, ovl_readlink(d->g->f.o, ino, target), path))
			must(buf_printf(&d->out, " -> %s", target), "dump");
	}
	if (S_ISREG(a.st.st_mode))
		dump_bytes(d, ino, (size_t)a.st.st_size);
	dump_xattrs(d, ino);
	must(buf_puts(&d->out, "\n"), "dump");
	if (S_ISDIR(a.st.st_mode))
		dump_dir(d, path, ino);
}

static char *dump(struct rig *g)
{
	struct dump d = {.g = g};
	char *text;
	size_t n;

	dump_node(&d, "", STORE_ROOT_INO);
	must(buf_steal(&d.out, &text, &n), "dump");
	return text;
}

/* ---- what is there before each operation ---- */

static int set_xattr(struct rig *g, const char *path, const char *name, size_t len)
{
	struct ovl_entry e;
	int r = fx_get(&g->f, path, &e);

	if (r < 0)
		return r;
	r = ovl_setxattr(g->f.o, e.ino, name, noise, len, 0);
	ovl_forget(g->f.o, e.ino, 1);
	return r;
}

static void make_file(struct rig *g, const char *path, size_t n)
{
	must(fx_make(&g->f, path, FX_FILE, 0644), path);
	if (n)
		must((int)fx_write(&g->f, path, 0, noise, n), path);
}

static void make_common(struct rig *g, const char *dir)
{
	static const struct {
		const char *name;
		size_t n;
	} files[] = {{"empty", 0}, {"small", 100}, {"block", 9000}, {"big", 300000}, {"two", 50}};
	char path[64], to[64];

	must(fx_make(&g->f, dir, FX_DIR, 0755), dir);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, files[i].name);
		make_file(g, path, files[i].n);
	}
	(void)snprintf(to, sizeof(to), "%s/two2", dir);
	must(fx_link(&g->f, path, to), "link");
	(void)snprintf(to, sizeof(to), "%s/link", dir);
	must(fx_symlink(&g->f, "small", to), "symlink");
	(void)snprintf(to, sizeof(to), "%s/sub", dir);
	must(fx_make(&g->f, to, FX_DIR, 0755), "sub");
	(void)snprintf(to, sizeof(to), "%s/sub/file", dir);
	make_file(g, to, 10);
	(void)snprintf(to, sizeof(to), "%s/none", dir);
	must(fx_make(&g->f, to, FX_DIR, 0755), "none");
	(void)snprintf(to, sizeof(to), "%s/small", dir);
	must(set_xattr(g, to, "user.small", 20), "xattr");
	must(set_xattr(g, to, "user.big", 5000), "xattr");
}

/* s: sealed; f: flushed in the open layer; n: new, not flushed. */
static void prepare(struct rig *g)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "e%u", g->n++);
	must(store_env_create(g->f.s, name, g->base, NULL, &g->env), "environment");
	g->f.layer = g->env.open;
	g->f.opts.flush_ms = 1u << 30;
	fx_mount(&g->f);
	make_common(g, "f");
	must((int)fx_write(&g->f, "s/big", 5, "changed", 7), "write");
	must(ovl_flush(g->f.o), "flush");
	make_common(g, "n");
	g->committed = false;
}

static void host_file(const char *dir, const char *name, size_t n)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		tap_fatal("path");
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, noise, n) != (ssize_t)n)
		tap_fatal("host file");
	(void)close(fd);
}

/* A host directory at /, with what is sealed over it. */
static void rig_open(struct rig *g)
{
	char host[PATH_MAX], sub[PATH_MAX];
	store_layer l;

	memset(g, 0, sizeof(*g));
	fx_open(&g->f);
	fx_path(&g->f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	fx_path(&g->f, "host/hd", sub);
	if (mkdir(sub, 0755) < 0)
		tap_fatal("mkdir");
	host_file(host, "hfile", 700);
	host_file(host, "hbig", 200000);
	host_file(sub, "inner", 30);
	if (symlink("hfile", strcat(strcpy(sub, host), "/hlink")) < 0)
		tap_fatal("symlink");
	l = fx_host_layer(&g->f, host, 0);
	fx_child(&g->f, l);
	fx_mount(&g->f);
	make_common(g, "s");
	must(ovl_flush(g->f.o), "flush");
	fx_umount(&g->f);
	must(store_layer_seal(g->f.s, g->f.layer), "seal");
	g->base = g->f.layer;
}

/* ---- operations ---- */

#define PATHS(name, call)              \
	static int name(struct rig *g) \
	{                              \
		return call;           \
	}

static int write_at(struct rig *g, const char *path, uint64_t off, size_t n)
{
	ssize_t k = fx_write(&g->f, path, off, noise + 1000, n);

	/* a short count is told and gone on from */
	while (k > 0 && (size_t)k < n) {
		off += (uint64_t)k;
		n -= (size_t)k;
		k = fx_write(&g->f, path, off, noise + 1000, n);
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

static int list_one(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct dump *d = arg;

	(void)cookie;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (e->ino)
		d->e[d->n++].ino = e->ino;
	return 0;
}

static int do_list(struct rig *g, store_ino ino)
{
	struct dump d = {.g = g};
	int r = ovl_readdir(g->f.o, ino, 0, true, list_one, &d);

	for (size_t i = 0; i < d.n; i++)
		ovl_forget(g->f.o, d.e[i].ino, 1);
	if (r == 0)
		r = ovl_readdir(g->f.o, ino, 0, false, list_one, &d);
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
PATHS(op_exchange, fx_rename(&g->f, "s/two", "f/sub", RENAME_EXCHANGE))
PATHS(op_exchange_links, fx_rename(&g->f, "s/two", "f/two2", RENAME_EXCHANGE))
PATHS(op_write_small, write_at(g, "s/small", 50, 300))
PATHS(op_write_new, write_at(g, "n/empty", 10, 60000))
PATHS(op_write_one, write_at(g, "s/big", 140000, 5000))
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
PATHS(op_xattr, set_xattr(g, "f/block", "user.x", 10))
PATHS(op_xattr_big, set_xattr(g, "s/block", "user.x", 3000))
PATHS(op_xattr_shrink, set_xattr(g, "s/small", "user.big", 30))
PATHS(op_xattr_host, set_xattr(g, "hfile", "user.x", 30))
PATHS(op_xattr_remove, on(g, "s/small", do_removexattr))
PATHS(op_acl, on(g, "f/small", do_acl))
PATHS(op_list, on(g, "s", do_list))
PATHS(op_list_host, on(g, "", do_list))

static const struct {
	const char *name;
	int (*run)(struct rig *g);
} ops[] = {
	{"mknod", op_mknod},
	{"mkdir", op_mkdir},
	{"mkdir in a host directory", op_mkdir_host},
	{"symlink", op_symlink},
	{"link", op_link},
	{"a third link", op_link_many},
	{"link of a host file", op_link_host},
	{"tmpfile and its link", op_tmpfile},
	{"unlink", op_unlink},
	{"unlink one of two", op_unlink_link},
	{"unlink one of two in the store", op_unlink_stored_link},
	{"unlink of a new file", op_unlink_new},
	{"unlink of a host file", op_unlink_host},
	{"rmdir", op_rmdir},
	{"rename", op_rename},
	{"rename over a link", op_rename_over},
	{"rename over a link in the store", op_rename_over_link},
	{"rename of a link", op_rename_link},
	{"rename of a directory", op_rename_dir},
	{"rename of a host directory", op_rename_host},
	{"exchange", op_exchange},
	{"exchange of links", op_exchange_links},
	{"write", op_write_small},
	{"write to a new file", op_write_new},
	{"write into a block", op_write_one},
	{"write to a host file", op_write_host},
	{"truncate", op_truncate},
	{"truncate of a new file", op_truncate_new},
	{"truncate of a host file", op_truncate_host},
	{"chmod and chown", op_chmod},
	{"chmod of a host file", op_chmod_host},
	{"punch", op_punch},
	{"zero", op_zero},
	{"fallocate", op_alloc},
	{"copy", op_copy},
	{"fsync", op_fsync},
	{"flush", op_flush},
	{"setxattr", op_xattr},
	{"setxattr, big", op_xattr_big},
	{"setxattr, small for big", op_xattr_shrink},
	{"setxattr of a host file", op_xattr_host},
	{"removexattr", op_xattr_remove},
	{"an access list", op_acl},
	{"read", op_read},
	{"readdir", op_list},
	{"readdir of a host directory", op_list_host},
	{"changes", op_changes},
	{"statfs", op_statfs},
	{"commit", op_commit},
	{"rollback", move_env},
	{"open a tree", op_reopen},
	{"open a store", op_store},
};

/* ---- one operation, one failing call ---- */

/* Operations of several calls may stop between them. */
static bool in_parts(int (*run)(struct rig *g))
{
	return run == op_copy || run == op_tmpfile || run == op_write_new || run == op_punch ||
	       run == move_env;
}

static bool same(const char *got, const char *want, const char *what, const char *where)
{
	if (!strcmp(got, want))
		return true;
	printf("# %s, after %s failed:\n", what, where);
	for (const char *a = got, *b = want; *a || *b;) {
		size_t n = strcspn(a, "\n"), k = strcspn(b, "\n");

		if (n != k || memcmp(a, b, n) != 0) {
			printf("#   is     %.*s\n#   wanted %.*s\n", (int)n, a, (int)k, b);
			break;
		}
		a += n + (a[n] != 0);
		b += k + (b[k] != 0);
	}
	return false;
}

static int count_one(void *arg, const struct store_commit *c)
{
	(void)c;
	++*(unsigned *)arg;
	return 0;
}

/* What the store says must be what was reported. */
static bool commit_told(struct rig *g, const char *where)
{
	unsigned n = 0;

	must(store_commits(g->f.s, g->env.name, count_one, &n), "commits");
	if ((n > 0) == g->committed)
		return true;
	printf("# after %s failed: %u commits are there, %s was reported\n", where, n,
	       g->committed ? "one" : "none");
	return false;
}

static bool right_error(enum fail_what what, int err, int r)
{
	if (what == FAIL_MEMORY)
		return r == -ENOMEM;
	return r == -err;
}

static bool after_failure(struct rig *g, size_t i, const char *before, const char *after,
			  const char *where)
{
	cleanup_free char *t1 = NULL, *t2 = NULL, *t3 = NULL;
	bool good = true;
	int r;

	if (!in_parts(ops[i].run)) {
		t1 = dump(g);
		good = same(t1, before, "an error that changed something", where);
	}
	r = ops[i].run(g);
	if (r < 0 && !(r == -EEXIST && in_parts(ops[i].run))) {
		printf("# after %s failed: the second try: %s\n", where, err_text(r));
		return false;
	}
	t2 = dump(g);
	good = same(t2, after, "the second try", where) && good;
	r = ovl_flush(g->f.o);
	if (r < 0) {
		printf("# after %s failed: flush: %s\n", where, err_text(r));
		return false;
	}
	fx_umount(&g->f);
	fx_mount(&g->f);
	t3 = dump(g);
	return same(t3, after, "opened again", where) && good;
}

/* False at the end of the walk: nothing failed any more. */
static bool one(struct rig *g, size_t i, enum fail_what what, long n, int err, const char *before,
		const char *after, unsigned *bad)
{
	bool good = true;
	long hits;
	int r;

	prepare(g);
	fail_arm(what, n, err, false);
	r = ops[i].run(g);
	hits = fail_disarm();
	if (g->f.o == NULL) /* it could not be opened */
		fx_mount(&g->f);
	if (r < 0 && !right_error(what, err, r)) {
		printf("# %s failed (call %ld): %s\n", fail_where(), n, err_text(r));
		good = false;
	}
	good = commit_told(g, fail_where()) && good;
	if (r < 0) {
		good = after_failure(g, i, before, after, fail_where()) && good;
	} else {
		cleanup_free char *text = dump(g);

		good = same(text, after, "a success that is not complete", fail_where()) && good;
	}
	if (g->f.o)
		(void)!ovl_close(g->f.o);
	g->f.o = NULL;
	*bad += !good;
	return hits > 0;
}

static void walk(struct rig *g, size_t i, enum fail_what what, int err, long first, long step)
{
	cleanup_free char *before = NULL, *after = NULL;
	unsigned bad = 0;
	long n = first;

	prepare(g);
	before = dump(g);
	must(ops[i].run(g), ops[i].name);
	after = dump(g);
	fx_umount(&g->f);
	for (; bad < 5 && one(g, i, what, n, err, before, after, &bad); n += step)
		;
	ok(bad == 0, "%s: %s", what == FAIL_MEMORY ? "no memory" : "LMDB fails", ops[i].name);
	printf("# up to call %ld\n", n);
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 && *argv[1] ? argv[1] : NULL;
	long step = argc > 2 ? strtol(argv[2], NULL, 10) : 8;
	uint64_t rnd = 42;
	struct rig g;

	for (size_t i = 0; i < sizeof(noise); i++) {
		rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
		noise[i] = (char)(rnd >> 56);
	}
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	rig_open(&g);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (only && !strstr(ops[i].name, only))
			continue;
		walk(&g, i, FAIL_MEMORY, ENOMEM, (long)i % step, step);
		walk(&g, i, FAIL_LMDB, EIO, (long)(i + 3) % step, step);
	}
	fx_close(&g.f);
	return tap_done();
}
