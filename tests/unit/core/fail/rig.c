/* What is there before each operation, with a journal or without. */
#include <sys/stat.h>

#include "tests/unit/core/fail/fail.h"

char fail_noise[400 * 1024];

int rig_set_xattr(struct rig *g, const char *path, const char *name, size_t len)
{
	struct ovl_entry e;
	int r = fx_get(&g->f, path, &e);

	if (r < 0)
		return r;
	r = ovl_setxattr(g->f.o, e.ino, name, fail_noise, len, 0);
	ovl_forget(g->f.o, e.ino, 1);
	return r;
}

static void make_file(struct rig *g, const char *path, size_t n)
{
	must(fx_make(&g->f, path, FX_FILE, 0644), path);
	if (n)
		must((int)fx_write(&g->f, path, 0, fail_noise, n), path);
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
	must(rig_set_xattr(g, to, "user.small", 20), "xattr");
	must(rig_set_xattr(g, to, "user.big", 5000), "xattr");
}

/* Blocks that are there in part, and little left of the memory that parts are given pieces of. */
static void make_parts(struct rig *g, const char *path)
{
	for (uint64_t at = 0; at < 10; at++)
		must((int)fx_write(&g->f, path, 8192 * at, "part", 4), "write");
	must((int)fx_write(&g->f, path, STORE_BLOCK + 50000, "part", 4), "write");
}

void rig_prepare(struct rig *g)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "e%u", g->n++);
	must(store_env_create(g->f.s, name, g->base, NULL, &g->env), "environment");
	g->f.layer = g->env.open;
	g->f.opts.flush_ms = 1u << 30;
	g->f.opts.flags = 0;
	fx_mount(&g->f);
	make_common(g, "f");
	must((int)fx_write(&g->f, "s/big", 5, "changed", 7), "write");
	must(ovl_flush(g->f.o), "flush");
	make_common(g, "n");
	make_parts(g, "f/big");
	g->committed = false;
}

static void host_file(const char *dir, const char *name, size_t n)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		tap_fatal("path");
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, fail_noise, n) != (ssize_t)n)
		tap_fatal("host file");
	(void)close(fd);
}

void rig_open(struct rig *g)
{
	char host[PATH_MAX], sub[PATH_MAX];
	uint64_t rnd = 42;
	store_layer l;

	memset(g, 0, sizeof(*g));
	g->journal_fd = -1;
	for (size_t i = 0; i < sizeof(fail_noise); i++) {
		rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
		fail_noise[i] = (char)(rnd >> 56);
	}
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

void rig_drop(struct rig *g)
{
	if (g->f.o)
		(void)!ovl_close(g->f.o);
	g->f.o = NULL;
}

void rig_journal(struct rig *g)
{
	must(journal_create(&g->journal_fd), "journal");
	must(journal_open(g->journal_fd, &g->f.opts.journal), "journal");
}

int rig_crash(struct rig *g)
{
	int r = 0;

	if (g->f.o)
		ovl_abandon(g->f.o);
	g->f.o = NULL;
	journal_close(g->f.opts.journal);
	g->f.opts.journal = NULL;
	r = journal_open(g->journal_fd, &g->f.opts.journal);
	if (r < 0)
		return r;
	g->f.opts.store = g->f.s;
	g->f.opts.layer = g->f.layer;
	g->f.opts.flags = OVL_RESUME;
	r = ovl_open(&g->f.opts, &g->f.o);
	g->f.opts.flags = 0;
	return r;
}
