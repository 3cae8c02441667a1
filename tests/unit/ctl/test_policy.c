/* A whole policy through the control socket: what a mount under it allows, what is told of refusals, and the next
 * daemon, which goes on under the same. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "policy/rules.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

static void make_policy(struct buf *out, bool hide)
{
	cleanup_policy_rules struct policy_rules r = {.hide = hide};

	if (policy_rules_add(&r, POLICY_READ, POLICY_PATH, "/", NULL, NULL) < 0 ||
	    policy_rules_add(&r, POLICY_WRITE, POLICY_PATH, "/workspace", NULL, NULL) < 0 ||
	    policy_rules_add(&r, POLICY_READ, POLICY_PATH, "/workspace/ro", NULL, NULL) < 0 ||
	    policy_rules_add(&r, POLICY_DENY, POLICY_GLOB, "/workspace/**/*.env", "secrets", NULL) <
		    0 ||
	    policy_rules_protect(&r, ".git", NULL) < 0 || policy_rules_encode(&r, out) < 0)
		tap_fatal("rules");
}

static struct ctl *open_env(const char *data, const struct buf *policy)
{
	struct ctl_env_opts o = {.data_dir = data, .create = true};
	struct diag d = {0};
	struct ctl *c;

	if (policy)
		o.policy = (struct ctl_bytes){.data = policy->data, .len = policy->len};
	if (ctl_open(&o, &d, &c) < 0)
		tap_fatal("ctl_open: %s", d.text);
	return c;
}

/* What opening @path with @flags comes to. */
static int try_open(int root, const char *path, int flags)
{
	cleanup_fd int fd = openat(root, path, flags | O_CLOEXEC, 0644);

	return fd < 0 ? -errno : 0;
}

static int try_mkdir(int root, const char *path)
{
	return mkdirat(root, path, 0755) < 0 ? -errno : 0;
}

/* Files that other rules let be made. */
static void fill(const char *data)
{
	static const char *const all[] = {"/", NULL};
	struct ctl_env_opts o = {.data_dir = data, .create = true, .writable = all};
	struct ctl_attach a;
	struct ctl *c;

	if (ctl_open(&o, NULL, &c) < 0 || ctl_attach(c, NULL, &a) < 0)
		tap_fatal("open");
	(void)try_mkdir(a.root_fd, "workspace");
	if (try_mkdir(a.root_fd, "workspace/ro") < 0 ||
	    try_open(a.root_fd, "workspace/ro/f", O_CREAT | O_WRONLY) < 0 ||
	    try_open(a.root_fd, "workspace/a.env", O_CREAT | O_WRONLY) < 0 ||
	    try_open(a.root_fd, "workspace/f", O_CREAT | O_WRONLY) < 0)
		tap_fatal("fill");
	ctl_attach_release(&a);
	ctl_close(c);
}

static void judged(int root, const char *when)
{
	eq_int(try_open(root, "workspace/f", O_RDWR), 0, "a writable file, %s", when);
	eq_int(try_open(root, "workspace/ro/f", O_RDONLY), 0, "a read-only one is read, %s", when);
	eq_int(try_open(root, "workspace/ro/f", O_RDWR), -EACCES,
	       "an opening for writing fails by itself, %s", when);
	eq_int(try_open(root, "workspace/a.env", O_RDONLY), -EACCES, "a denied one, %s", when);
	eq_int(try_open(root, "workspace/a.env", O_PATH), -EACCES, "not even by path, %s", when);
	eq_int(try_open(root, "workspace/new.env", O_CREAT | O_WRONLY), -EACCES,
	       "one that is not there, %s", when);
	eq_int(try_mkdir(root, "workspace/.git"), -EACCES, "a protected name, %s", when);
	eq_int(try_open(root, "etc/new", O_CREAT | O_WRONLY), -EACCES, "elsewhere, %s", when);
}

struct told {
	int n;
	char text[4096];
};

static int tell(void *arg, const struct ctl_denial *d)
{
	struct told *t = arg;
	size_t n = strlen(t->text);

	t->n++;
	(void)snprintf(t->text + n, sizeof(t->text) - n, "%s %s: %s\n", d->op, d->path, d->why);
	return 0;
}

static void denials(struct ctl *c, uint64_t token)
{
	struct told t = {0};
	struct diag d = {0};
	uint64_t now, total;

	eq_int(ctl_denials(c, token, &d, &now, &total, tell, &t), 0, "denials: %s", d.text);
	ok(strstr(t.text, "open for writing /workspace/ro/f: read /workspace/ro\n") != NULL,
	   "an opening");
	ok(strstr(t.text, "lookup /workspace/a.env: deny /workspace/**/*.env (secrets)\n") != NULL,
	   "a lookup");
	ok(strstr(t.text, "/workspace/.git: the protected name .git\n") != NULL, "a name");
	ok(t.n >= 4 && total >= (uint64_t)t.n, "%d places, %llu times", t.n,
	   (unsigned long long)total);
	memset(&t, 0, sizeof(t));
	eq_int(ctl_denials(c, now, NULL, &now, &total, tell, &t), 0, "since then");
	eq_int(t.n + (int)total, 0, "nothing");
	eq_int(ctl_denials(c, now - ((uint64_t)1 << 44), NULL, &now, &total, tell, &t), -ESTALE,
	       "since another mount");
}

static void mounts(const char *data)
{
	cleanup_buf struct buf policy = {0}, hidden = {0};
	struct ctl_bytes junk = {.data = (uint8_t[]){0x93, 1, 2, 3}, .len = 4};
	struct ctl_env_opts o = {.data_dir = data, .policy = junk};
	struct ctl_attach a, b;
	struct diag d = {0};
	struct ctl *c, *x;

	make_policy(&policy, false);
	make_policy(&hidden, true);
	c = open_env(data, &policy);
	eq_int(ctl_attach(c, &d, &a), 0, "attach: %s", d.text);
	eq_str(a.writable, "/workspace", "the fence's places");
	judged(a.root_fd, "at first");
	denials(c, a.denied);
	ctl_close(open_env(data, &policy));
	eq_int(ctl_attach(c, NULL, &b), 0, "the same policy again");
	ok(a.generation == b.generation, "is the same mount");
	ctl_attach_release(&b);
	eq_int(ctl_restart(c, &d), 0, "another daemon goes on: %s", d.text);
	judged(a.root_fd, "after it");
	ctl_attach_release(&a);
	ctl_close(c);
	c = open_env(data, &hidden);
	if (ctl_attach(c, NULL, &a) < 0)
		tap_fatal("attach");
	eq_int(try_open(a.root_fd, "workspace/a.env", O_RDONLY), -ENOENT, "a policy that hides");
	ctl_attach_release(&a);
	eq_int(ctl_open(&o, &d, &x), -EBADMSG, "one that is none: %s", d.text);
	eq_int(ctl_shutdown(c, true, NULL), 0, "the end");
	ctl_close(c);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

int main(void)
{
	char top[] = "/tmp/rattan-test-XXXXXX", data[64];

	need_namespaces();
	if (!mkdtemp(top))
		tap_fatal("no directory");
	(void)snprintf(data, sizeof(data), "%s/data", top);
	(void)setenv("XDG_RUNTIME_DIR", top, 1);
	fill(data);
	mounts(data);
	(void)nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return tap_done();
}
