/* The policy is asked in every operation: a table of what is tried and what comes of it, over a host directory. */
#include <linux/fs.h>
#include <sys/xattr.h>

#include "base/landlock.h"
#include "policy/denials.h"
#include "policy/rules.h"
#include "tests/unit/core/ovl_fixture.h"
#include "tests/unit/policy/ref.h"

enum what {
	LOOK,
	READ,
	WRITE,
	TRUNC,
	MODE,
	TIMES,
	ALLOC,
	XSET,
	XGET,
	XLIST,
	XDEL,
	OPEN_R,
	OPEN_W,
	LIST,
	MKNOD,
	FIFO,
	MKDIR,
	SYMLINK,
	TMPFILE,
	UNLINK,
	RMDIR,
	RENAME,
	EXCHANGE,
	LINK,
	COPY,
};

struct attempt {
	enum what what;
	const char *a, *b;
	int want;
	const char *say;
};

static int with_tmpfile(struct fx *f, const char *dir, const char *to)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry d, e, l;
	const char *name;
	store_ino parent;
	int r = fx_get(f, dir, &d);

	if (r < 0)
		return r;
	r = ovl_tmpfile(f->o, d.ino, 0600, &c, &e);
	ovl_forget(f->o, d.ino, 1);
	if (r < 0)
		return r;
	r = to ? fx_parent(f, to, &parent, &name) : 0;
	if (r == 0 && to) {
		r = ovl_link(f->o, e.ino, parent, name, &l);
		ovl_forget(f->o, parent, 1);
		if (r == 0)
			ovl_forget(f->o, l.ino, 1);
	}
	ovl_forget(f->o, e.ino, 1);
	return r;
}

static int count_name(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	(void)name;
	(void)cookie;
	(void)e;
	++*(int *)arg;
	return 0;
}

static int on_inode(struct fx *f, const struct attempt *t, store_ino ino)
{
	struct stat st = {.st_mode = 0700};
	struct ovl_entry to;
	struct ovl_attr a;
	char buf[256];
	int r, n = 0;

	switch ((int)t->what) {
	case READ:
		return (int)ovl_read(f->o, ino, 0, buf, 1);
	case WRITE:
		return (int)ovl_write(f->o, ino, 0, "x", 1, false);
	case TRUNC:
		return ovl_setattr(f->o, ino, &st, OVL_SET_SIZE, &a);
	case MODE:
		return ovl_setattr(f->o, ino, &st, OVL_SET_MODE, &a);
	case TIMES:
		return ovl_setattr(f->o, ino, &st, OVL_SET_MTIME_NOW, &a);
	case ALLOC:
		return ovl_fallocate(f->o, ino, 0, 0, 1);
	case XSET:
		return ovl_setxattr(f->o, ino, "user.x", "v", 1, 0);
	case XGET:
		r = (int)ovl_getxattr(f->o, ino, "user.none", buf, sizeof(buf));
		return r == -ENODATA ? 0 : r;
	case XLIST:
		return (int)ovl_listxattr(f->o, ino, NULL, 0);
	case XDEL:
		r = ovl_removexattr(f->o, ino, "user.none");
		return r == -ENODATA ? 0 : r;
	case OPEN_R:
	case OPEN_W:
		return ovl_may_open(f->o, ino, t->what == OPEN_W);
	case LIST:
		r = ovl_readdir(f->o, ino, 0, false, count_name, &n);
		return r < 0 ? r : n;
	case COPY:
		r = fx_get(f, t->b, &to);
		if (r == 0) {
			r = (int)ovl_copy_range(f->o, ino, 0, to.ino, 0, 1);
			ovl_forget(f->o, to.ino, 1);
		}
		return r;
	default:
		return 0;
	}
}

static int try(struct fx *f, const struct attempt *t)
{
	struct ovl_entry e;
	int r;

	switch ((int)t->what) {
	case MKNOD:
	case FIFO:
	case MKDIR:
		return fx_make(f, t->a,
			       t->what == MKDIR  ? FX_DIR
			       : t->what == FIFO ? FX_FIFO
						 : FX_FILE,
			       0755);
	case SYMLINK:
		return fx_symlink(f, t->b, t->a);
	case TMPFILE:
		return with_tmpfile(f, t->a, t->b);
	case UNLINK:
	case RMDIR:
		return fx_remove(f, t->a, t->what == RMDIR);
	case RENAME:
	case EXCHANGE:
		return fx_rename(f, t->a, t->b, t->what == EXCHANGE ? RENAME_EXCHANGE : 0);
	case LINK:
		return fx_link(f, t->a, t->b);
	default:
		r = fx_get(f, t->a, &e);
		if (r == 0) {
			r = on_inode(f, t, e.ino);
			ovl_forget(f->o, e.ino, 1);
		}
		return r;
	}
}

static void run(struct fx *f, const struct attempt *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		eq_int(try(f, &t[i]), t[i].want, "%s%s%s%s%s", t[i].say, t[i].a ? ": " : "",
		       t[i].a ? t[i].a : "", t[i].b ? ", " : "", t[i].b ? t[i].b : "");
}

/* ---- the host tree and the rules ---- */

static void put(const char *host, const char *name)
{
	char path[2 * PATH_MAX];
	FILE *out;

	(void)snprintf(path, sizeof(path), "%s/%s", host, name);
	for (char *p = path + strlen(host) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			tap_fatal("mkdir %s", path);
		*p = '/';
	}
	if (path[strlen(path) - 1] == '/')
		return;
	out = fopen(path, "we");
	if (!out || fputs("text", out) < 0 || fclose(out) != 0)
		tap_fatal("cannot write %s", path);
}

static void move(const char *host, const char *from, const char *to)
{
	char a[2 * PATH_MAX], b[2 * PATH_MAX];

	(void)snprintf(a, sizeof(a), "%s/%s", host, from);
	(void)snprintf(b, sizeof(b), "%s/%s", host, to);
	if (rename(a, b) < 0)
		tap_fatal("rename %s", a);
}

static void hard(const char *host, const char *from, const char *to)
{
	char a[2 * PATH_MAX], b[2 * PATH_MAX];

	(void)snprintf(a, sizeof(a), "%s/%s", host, from);
	(void)snprintf(b, sizeof(b), "%s/%s", host, to);
	if (link(a, b) < 0)
		tap_fatal("link %s", a);
}

static void make_host(const char *host)
{
	static const char *const names[] = {
		"etc/passwd",    "w/f",        "w/docs/x",  "w/docs/ref/f", "w/vault/key",
		"w/vault/in/y",  "w/a.env",    "w/sub/b",   "w/sub2/",      "w/secrets/key",
		"w/.git/config", "w/d/x.env",  "w/d/plain", "w/late/",      "w/top",
		"data/in/a",     "data/other", "w/one",     "w/t/b.env",    "w/keys/a.pem"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(host, names[i]);
	hard(host, "w/top", "w/sub/alias");
	hard(host, "etc/passwd", "etc/other");
}

static void rule(struct policy_rules *r, enum policy_access a, enum policy_kind k, const char *text)
{
	struct diag d = {0};

	if (policy_rules_add(r, a, k, text, "why", &d) < 0)
		tap_fatal("%s", d.text);
}

static void make_rules(struct policy_rules *r, bool hide, bool strict)
{
	*r = (struct policy_rules){.hide = hide, .strict = strict};
	rule(r, POLICY_READ, POLICY_PATH, "/");
	rule(r, POLICY_WRITE, POLICY_PATH, "/w");
	rule(r, POLICY_READ, POLICY_PATH, "/w/docs/ref");
	rule(r, POLICY_DENY, POLICY_PATH, "/w/vault");
	rule(r, POLICY_WRITE, POLICY_PATH, "/w/vault/in");
	rule(r, POLICY_DENY, POLICY_PATH, "/w/top");
	rule(r, POLICY_READ, POLICY_PATH, "/w/conf/x");
	rule(r, POLICY_DENY, POLICY_GLOB, "/w/**/*.env");
	rule(r, POLICY_DENY, POLICY_GLOB, "/w/secrets*");
	rule(r, POLICY_DENY, POLICY_GLOB, "/w/keys/*.pem");
	if (policy_rules_protect(r, ".git", NULL) < 0 ||
	    policy_rules_protect(r, ".codex", NULL) < 0)
		tap_fatal("protect");
}

static void start(struct fx *f, const char *host, struct policy_rules *rules)
{
	fx_child(f, fx_host_layer(f, host, 0));
	f->opts.policy = rules;
	fx_mount(f);
}

static const struct attempt table[] = {
	{LOOK, "etc/passwd", NULL, 0, "read elsewhere"},
	{READ, "etc/passwd", NULL, 1, "with content"},
	{WRITE, "etc/passwd", NULL, -EACCES, "but no change"},
	{OPEN_R, "etc/passwd", NULL, 0, "open to read"},
	{OPEN_W, "etc/passwd", NULL, -EACCES, "but not to write"},
	{MKDIR, "etc", NULL, -EEXIST, "what is there and read is said to be"},
	{WRITE, "w/f", NULL, 1, "a writable place"},
	{OPEN_W, "w/f", NULL, 0, "opens"},

	{READ, "w/docs/ref/f", NULL, 1, "a read-only part is read"},
	{WRITE, "w/docs/ref/f", NULL, -EACCES, "not written"},
	{TRUNC, "w/docs/ref/f", NULL, -EACCES, "not cut"},
	{MODE, "w/docs/ref/f", NULL, -EACCES, "chmod"},
	{TIMES, "w/docs/ref", NULL, -EACCES, "utimes"},
	{ALLOC, "w/docs/ref/f", NULL, -EACCES, "fallocate"},
	{XSET, "w/docs/ref/f", NULL, -EACCES, "xattr"},
	{XDEL, "w/docs/ref/f", NULL, -EACCES, "xattr removed"},
	{XGET, "w/docs/ref/f", NULL, 0, "xattr read"},
	{COPY, "w/f", "w/docs/ref/f", -EACCES, "copied over"},
	{MKNOD, "w/docs/ref/new", NULL, -EACCES, "a file in it"},
	{TMPFILE, "w/docs/ref", NULL, -EACCES, "without a name in it"},
	{UNLINK, "w/docs/ref/f", NULL, -EACCES, "unlink"},
	{RENAME, "w/docs/ref/f", "w/g", -EACCES, "moved out"},
	{RENAME, "w/f", "w/docs/ref/f", -EACCES, "moved over"},
	{RENAME, "w/docs", "w/d2", -EACCES, "the way to it is not moved"},
	{EXCHANGE, "w/docs", "w/sub", -EACCES, "nor exchanged"},
	{LINK, "w/docs/ref/f", "w/link", -EACCES, "no link makes it writable"},
	{LINK, "w/f", "w/docs/ref/l", -EACCES, "nor comes into it"},

	{LOOK, "w/vault", NULL, 0, "a denied directory on the way to an open one"},
	{LIST, "w/vault", NULL, -EACCES, "has no names"},
	{OPEN_R, "w/vault", NULL, -EACCES, "not even for opendir"},
	{READ, "w/vault/key", NULL, -EACCES, "its file"},
	{LOOK, "w/vault/none", NULL, -EACCES, "also one that is not there"},
	{MKNOD, "w/vault/z", NULL, -EACCES, "cannot be made"},
	{XLIST, "w/vault", NULL, -EACCES, "xattrs"},
	{MODE, "w/vault", NULL, -EACCES, "chmod"},
	{RMDIR, "w/vault", NULL, -EACCES, "rmdir"},
	{RENAME, "w/vault", "w/v2", -EACCES, "rename"},
	{READ, "w/vault/in/y", NULL, 1, "what is open below"},
	{WRITE, "w/vault/in/y", NULL, 1, "is written"},
	{MKDIR, "w/vault/in/d", NULL, 0, "and filled"},
	{RMDIR, "w/vault/in", NULL, -EACCES, "but stays"},

	{READ, "w/a.env", NULL, -EACCES, "a pattern"},
	{UNLINK, "w/a.env", NULL, -EACCES, "unlink"},
	{MKNOD, "w/new.env", NULL, -EACCES, "create"},
	{FIFO, "w/new.env", NULL, -EACCES, "mkfifo"},
	{MKDIR, "w/x.env", NULL, -EACCES, "mkdir"},
	{SYMLINK, "w/v.env", "f", -EACCES, "symlink"},
	{RENAME, "w/sub/b", "w/t.env", -EACCES, "rename to"},
	{RENAME, "w/a.env", "w/t", -EACCES, "rename from"},
	{EXCHANGE, "w/f", "w/a.env", -EACCES, "exchange"},
	{LINK, "w/f", "w/u.env", -EACCES, "link to"},
	{LINK, "w/a.env", "w/u", -EACCES, "link from"},
	{TMPFILE, "w", "w/n.env", -EACCES, "a nameless file gets the name"},
	{TMPFILE, "w", "w/named", 0, "another name it gets"},
	{MKNOD, "w/A.ENV", NULL, 0, "another spelling is another name"},
	{READ, "w/secrets/key", NULL, -EACCES, "below a match"},
	{LIST, "w/secrets", NULL, -EACCES, "a match listed"},
	{RENAME, "w/d", "w/e", 0, "a directory that holds one moves"},
	{READ, "w/e/x.env", NULL, -EACCES, "and what it holds is denied still"},
	{READ, "w/e/plain", NULL, 1, "or read"},
	{RMDIR, "w/t", NULL, -ENOTEMPTY, "one that holds one is not empty"},

	{READ, "w/.git/config", NULL, 1, "a protected name is read"},
	{WRITE, "w/.git/config", NULL, -EACCES, "not written"},
	{MKNOD, "w/.git/hook", NULL, -EACCES, "nor filled"},
	{RENAME, "w/.git", "w/x", -EACCES, "nor moved"},
	{MKDIR, "w/.codex", NULL, -EACCES, "nor made: mkdir"},
	{MKNOD, "w/.codex", NULL, -EACCES, "create"},
	{FIFO, "w/.codex", NULL, -EACCES, "mkfifo"},
	{SYMLINK, "w/.codex", "sub", -EACCES, "symlink"},
	{RENAME, "w/sub2", "w/.codex", -EACCES, "rename"},
	{EXCHANGE, "w/sub2", "w/.git", -EACCES, "exchange"},
	{LINK, "w/f", "w/.codex", -EACCES, "link"},
	{TMPFILE, "w", "w/.codex", -EACCES, "link of a nameless file"},
	{MKDIR, "w/.CODEX", NULL, -EACCES, "in another case"},
	{MKDIR, "w/sub/.git", NULL, 0, "elsewhere it is a name like others"},

	{SYMLINK, "w/conf", "sub", -EACCES, "no link on the way to what is read-only"},
	{MKNOD, "w/conf", NULL, -EACCES, "nor a file"},
	{MKDIR, "w/conf", NULL, 0, "a directory it may be"},
	{MKDIR, "w/conf/x", NULL, -EACCES, "but what is read-only is not made"},
	{RMDIR, "w/conf", NULL, -EACCES, "and then it stays"},
	{RENAME, "w/sub2", "w/conf", -EACCES, "and is not moved over"},
	{RENAME, "w", "w2", -EACCES, "the writable place itself stays"},
	{RENAME, "w/keys", "w/k2", -EXDEV, "no directory goes where other rules hold below"},
	{EXCHANGE, "w/sub2", "w/keys", -EXDEV, "nor comes from there"},
	{RENAME, "w/sub2", "w/vault/in/s", 0, "where the same ones hold it does"},
	{RENAME, "w/one", "w/vault/in/one", 0, "a file does"},
};

static void test_table(void)
{
	struct policy_rules rules;
	char host[PATH_MAX];
	struct fx f;

	fx_open(&f);
	fx_path(&f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	make_host(host);
	make_rules(&rules, false, false);
	start(&f, host, &rules);
	ok(ovl_opens_matter(f.o), "such rules want openings to be asked for");
	run(&f, table, ARRAY_SIZE(table));
	/* What the host does. */
	put(host, "w/late.env");
	eq_int(fx_read(&f, "w/late.env", 0, host + PATH_MAX - 1, 0), -EACCES,
	       "a file that comes on the host");
	move(host, "w/vault", "w/vault-old");
	put(host, "w/vault/key");
	eq_int(fx_stat(&f, "w/vault/key", &(struct stat){0}), -EACCES,
	       "a directory that is made anew there");
	/* And after the tree was opened again. */
	fx_umount(&f);
	fx_mount(&f);
	eq_int(fx_stat(&f, "w/e/x.env", &(struct stat){0}), -EACCES,
	       "a moved one in the next life");
	eq_int(fx_write(&f, "w/docs/ref/f", 0, "x", 1), -EACCES, "a read-only one too");
	fx_close(&f);
	policy_rules_release(&rules);
}

/* ---- what is shown ---- */

struct seen {
	char text[1024];
	bool has_number; /* of some name that ends with .env */
};

static int see(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct seen *s = arg;
	size_t n = strlen(s->text);

	(void)cookie;
	if (name[0] == '.' && (!name[1] || name[1] == '.'))
		return 0;
	(void)snprintf(s->text + n, sizeof(s->text) - n, "%s ", name);
	if (strstr(name, ".env") && e->ino && e->ino != 0xffffffffu)
		s->has_number = true;
	return 0;
}

static struct seen list(struct fx *f, const char *path, bool plus)
{
	struct seen s = {0};
	struct ovl_entry e;

	if (fx_get(f, path, &e) < 0)
		tap_fatal("walk %s", path);
	if (ovl_readdir(f->o, e.ino, 0, plus, see, &s) < 0)
		tap_fatal("list %s", path);
	ovl_forget(f->o, e.ino, 1);
	return s;
}

static void test_shown(void)
{
	struct policy_rules rules;
	char host[PATH_MAX];
	struct seen s;
	struct stat st;
	struct fx f;

	fx_open(&f);
	fx_path(&f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	make_host(host);
	make_rules(&rules, false, false);
	start(&f, host, &rules);
	for (int plus = 0; plus < 2; plus++) {
		s = list(&f, "w", plus);
		ok(strstr(s.text, "a.env ") && strstr(s.text, "secrets ") &&
			   strstr(s.text, "vault "),
		   "what is denied is listed%s", plus ? ", with attributes of others" : "");
		ok(!s.has_number, "by its name alone");
	}
	eq_int(fx_stat(&f, "w/vault", &st), 0, "one that is only a way");
	ok(st.st_size == 0 && st.st_mtim.tv_sec == 0 && S_ISDIR(st.st_mode),
	   "shows nothing of itself");
	fx_umount(&f);
	rules.hide = true;
	fx_mount(&f);
	s = list(&f, "w", true);
	ok(!strstr(s.text, ".env") && !strstr(s.text, "secrets") && strstr(s.text, "vault "),
	   "hidden it is not: %s", s.text);
	eq_int(fx_stat(&f, "w/a.env", &st), -ENOENT, "nor found");
	eq_int(fx_remove(&f, "w/a.env", false), -ENOENT, "nor removed");
	eq_int(fx_make(&f, "w/a.env", FX_FILE, 0644), -EACCES, "but its name is not free");
	eq_int(fx_rename(&f, "w/f", "w/a.env", 0), -EACCES, "for nobody");
	policy_rules_release(&rules);
	/* Only what is named is there at all. */
	rules = (struct policy_rules){0};
	rule(&rules, POLICY_READ, POLICY_PATH, "/data/in");
	rule(&rules, POLICY_WRITE, POLICY_PATH, "/new/tmp");
	fx_umount(&f);
	fx_mount(&f);
	s = list(&f, "data", false);
	eq_str(s.text, "in ", "the way to it shows it alone");
	s = list(&f, "", true);
	eq_str(s.text, "data ", "from the root on");
	eq_int(fx_stat(&f, "etc/passwd", &st), -ENOENT, "other things are not there");
	eq_int(fx_make(&f, "stray", FX_FILE, 0644), -EACCES, "and cannot be made");
	eq_int(fx_make(&f, "data/z", FX_DIR, 0755), -EACCES, "nowhere");
	eq_int(fx_make(&f, "new", FX_FILE, 0644), -EACCES, "the way to a writable place");
	eq_int(fx_make(&f, "new", FX_DIR, 0755), 0, "is made of directories");
	eq_int(fx_make(&f, "new/tmp", FX_DIR, 0755), 0, "and so is it");
	eq_int(fx_make(&f, "new/tmp/x", FX_FILE, 0644), 0, "to be filled");
	fx_close(&f);
	policy_rules_release(&rules);
}

/* ---- files with several links ---- */

static void test_links(void)
{
	struct policy_rules rules;
	char host[PATH_MAX];
	struct ovl_entry e;
	struct fx f;

	fx_open(&f);
	fx_path(&f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	make_host(host);
	make_rules(&rules, false, true);
	start(&f, host, &rules);
	eq_int(fx_stat(&f, "w/sub/alias", &(struct stat){0}), -EACCES,
	       "a link whose other one may be what is denied");
	eq_int(fx_read(&f, "etc/other", 0, host, 1), 1, "not where nothing is denied");
	fx_umount(&f);
	rules.strict = false;
	fx_mount(&f);
	eq_int(fx_stat(&f, "w/sub/alias", &(struct stat){0}), 0, "not strictly it is read");
	/* Links that the tree itself has are all known. */
	eq_int(fx_link(&f, "w/f", "w/sub/l"), 0, "two writable places");
	eq_int(fx_write(&f, "w/sub/l", 0, "x", 1), 1, "are written");
	fx_umount(&f);
	policy_rules_release(&rules);
	make_rules(&rules, false, true);
	rule(&rules, POLICY_READ, POLICY_PATH, "/w/sub/l");
	fx_mount(&f);
	eq_int(fx_write(&f, "w/f", 0, "x", 1), -EACCES,
	       "one of them read-only: neither is written");
	eq_int(fx_rename(&f, "w/f", "w/g", 0), -EACCES, "nor moved");
	if (fx_get(&f, "w/f", &e) < 0)
		tap_fatal("walk");
	fx_umount(&f);
	fx_mount(&f);
	eq_int(ovl_write(f.o, e.ino, 0, "x", 1, false), -EACCES, "nor by its number alone");
	fx_umount(&f);
	policy_rules_release(&rules);
	make_rules(&rules, false, true);
	rule(&rules, POLICY_DENY, POLICY_PATH, "/w/sub/l");
	fx_mount(&f);
	eq_int(fx_stat(&f, "w/f", &(struct stat){0}), -EACCES, "one of them denied: both are");
	eq_int(ovl_lookup(f.o, e.ino, ".", &e), -EACCES, "by number as well");
	fx_close(&f);
	policy_rules_release(&rules);
}

/* ---- denials ---- */

struct told {
	int n;
	char last[1024];
};

static int tell(void *arg, const struct denial *d)
{
	struct told *t = arg;

	if (!t->n++)
		(void)snprintf(t->last, sizeof(t->last), "%s %s: %s, %llu", d->op, d->path, d->why,
			       (unsigned long long)d->count);
	return 0;
}

static void eq_denial(struct fx *f, uint64_t since, int n, const char *text)
{
	struct told t = {0};
	uint64_t total;

	eq_int(ovl_denials(f->o, since, tell, &t, &total), 0, "denials");
	eq_int(t.n, n, "as many as there were");
	eq_str(t.last, text, "the last one");
}

static void test_denials(void)
{
	struct policy_rules rules;
	char host[PATH_MAX], name[64];
	uint64_t since;
	struct fx f;

	fx_open(&f);
	fx_path(&f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	make_host(host);
	make_rules(&rules, false, false);
	start(&f, host, &rules);
	(void)list(&f, "w", true);
	eq_denial(&f, 0, 0, "");
	(void)!fx_write(&f, "etc/passwd", 0, "x", 1);
	eq_denial(&f, 0, 1, "write /etc/passwd: read / (why), 1");
	since = ovl_denied(f.o);
	(void)!fx_stat(&f, "w/a.env", &(struct stat){0});
	(void)!fx_stat(&f, "w/a.env", &(struct stat){0});
	eq_denial(&f, since, 1, "lookup /w/a.env: deny /w/**/*.env (why), 2");
	since = ovl_denied(f.o);
	(void)!fx_make(&f, "w/.codex", FX_DIR, 0755);
	eq_denial(&f, since, 1, "mkdir /w/.codex: the protected name .codex, 1");
	(void)!fx_remove(&f, "w/vault/in", true);
	eq_denial(
		&f, since, 2,
		"rmdir /w/vault/in: a rule names it or something below it, so it stays where it is, 1");
	(void)!fx_symlink(&f, "sub", "w/conf");
	eq_denial(
		&f, since, 3,
		"create /w/conf: a rule names something below it, so only a directory can be made here, 1");
	since = ovl_denied(f.o);
	for (int i = 0; i < 400; i++) {
		(void)snprintf(name, sizeof(name), "w/f%d.env", i);
		(void)!fx_make(&f, name, FX_FILE, 0644);
	}
	eq_int(ovl_denied(f.o) - since, 400, "each is counted");
	eq_denial(&f, since, 256, "create /w/f399.env: deny /w/**/*.env (why), 1");
	fx_close(&f);
	policy_rules_release(&rules);
}

/* ---- random rules ---- */

static const char *const parts[] = {"a", "b", "x.env", ".git", "c"};

static unsigned rnd(uint64_t *seed, unsigned n)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(*seed >> 33) % n;
}

/* Of up to three components; every one of those is in the tree, as a directory with a file "f". */
static void random_place(uint64_t *seed, char ret[64])
{
	unsigned depth = rnd(seed, 4);

	strcpy(ret, depth ? "" : "/");
	for (unsigned i = 0; i < depth; i++)
		(void)snprintf(ret + strlen(ret), 64 - strlen(ret), "/%s",
			       parts[rnd(seed, ARRAY_SIZE(parts))]);
}

static void random_rules(uint64_t *seed, struct policy_rules *r)
{
	static const char *const globs[] = {"/**/*.env", "/a/*", "/**/b/**", "/{a,b}/c", "/*/?"};
	char text[64];

	*r = (struct policy_rules){.deep = rnd(seed, 2), .hide = rnd(seed, 2)};
	for (unsigned n = 1 + rnd(seed, 6); n; n--) {
		random_place(seed, text);
		rule(r, (enum policy_access)(1 + rnd(seed, 3)), POLICY_PATH, text);
	}
	if (rnd(seed, 2))
		rule(r, POLICY_DENY, POLICY_GLOB, globs[rnd(seed, ARRAY_SIZE(globs))]);
	if (rnd(seed, 2) && policy_rules_protect(r, ".git", NULL) < 0)
		tap_fatal("protect");
}

static int nothing_but(int r, bool allowed)
{
	return allowed ? r < 0 : r != -EACCES && r != -ENOENT;
}

static int random_file(struct fx *f, const struct policy_rules *r, const char *dir)
{
	enum policy_access a;
	struct ovl_entry e;
	char path[80];
	int bad, k;

	(void)snprintf(path, sizeof(path), "%s/f", strcmp(dir, "/") != 0 ? dir : "");
	a = ref_access(r, path);
	k = fx_get(f, path + 1, &e);
	bad = nothing_but(k, a >= POLICY_READ);
	if (k == 0) {
		bad |= nothing_but(ovl_may_open(f->o, e.ino, false), a >= POLICY_READ);
		bad |= nothing_but((int)ovl_write(f->o, e.ino, 0, "x", 1, false),
				   a == POLICY_WRITE);
		ovl_forget(f->o, e.ino, 1);
	}
	(void)snprintf(path, sizeof(path), "%s/new", strcmp(dir, "/") != 0 ? dir : "");
	k = fx_make(f, path + 1, FX_FILE, 0644);
	bad |= nothing_but(k, ref_access(r, path) == POLICY_WRITE);
	if (k == 0)
		bad |= fx_remove(f, path + 1, false) != 0;
	if (bad)
		printf("# %s is %s\n", path, policy_access_name(a));
	return bad;
}

static void make_below(struct fx *f, const char *dir, unsigned depth)
{
	char path[80];

	(void)snprintf(path, sizeof(path), "%sf", dir);
	if (fx_make(f, path, FX_FILE, 0644) < 0)
		tap_fatal("make %s", path);
	for (size_t i = 0; depth && i < ARRAY_SIZE(parts); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", dir, parts[i]);
		if (fx_make(f, path, FX_DIR, 0755) < 0)
			tap_fatal("make %s", path);
		strcat(path, "/");
		make_below(f, path, depth - 1);
	}
}

static void test_random(void)
{
	uint64_t seed = 20261130;
	int bad = 0, n = 0;
	struct fx f;

	fx_open(&f);
	fx_mount(&f);
	make_below(&f, "", 3);
	fx_umount(&f);
	for (int i = 0; i < 300 && !bad; i++) {
		struct policy_rules rules;
		char dir[64];

		random_rules(&seed, &rules);
		f.opts.policy = &rules;
		fx_mount(&f);
		for (int k = 0; k < 30; k++, n++) {
			random_place(&seed, dir);
			bad += random_file(&f, &rules, dir);
		}
		fx_umount(&f);
		policy_rules_release(&rules);
	}
	eq_int(bad, 0, "%d files under random rules are read, written and made as the rules say",
	       n);
	f.opts.policy = NULL;
	fx_close(&f);
}

/* Without openings the kernel is asked alone: where Landlock's rule on the writable place is about just that. */
static void test_openings(void)
{
	const bool bare = landlock_abi() < 0; /* then all matter */
	const struct {
		const char *place;
		bool matter;
		const char *what;
	} rows[] = {
		{"/w", bare, "a place that is there"},
		{"/w/sub/b", bare, "a file"},
		{"/", false, "all of it"},
		{"/w/none", true, "a place that is missing"},
		{"/w/lnk", true, "a symbolic link"},
		{"/w/lnk/deep", true, "behind one"},
	};
	char host[PATH_MAX], link[PATH_MAX + 16];
	struct fx f;

	fx_open(&f);
	fx_path(&f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	make_host(host);
	put(host, "w/sub/deep/x");
	(void)snprintf(link, sizeof(link), "%s/w/lnk", host);
	if (symlink("sub", link) < 0)
		tap_fatal("symlink");
	fx_child(&f, fx_host_layer(&f, host, 0));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct policy_rules rules = {0};

		rule(&rules, POLICY_READ, POLICY_PATH, "/");
		rule(&rules, POLICY_WRITE, POLICY_PATH, rows[i].place);
		f.opts.policy = &rules;
		fx_mount(&f);
		eq_int(ovl_opens_matter(f.o), rows[i].matter, "openings with %s", rows[i].what);
		fx_umount(&f);
		policy_rules_release(&rules);
	}
	f.opts.policy = NULL;
	fx_close(&f);
}

int main(void)
{
	umask(0);
	test_table();
	test_openings();
	test_shown();
	test_links();
	test_denials();
	test_random();
	return tap_done();
}
