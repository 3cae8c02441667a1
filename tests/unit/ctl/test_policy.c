/* A whole policy through the control socket: what a mount under it allows, what is told of refusals, and the next
 * daemon, which goes on under the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "policy/rules.h"
#include "tests/lib/tap.h"
#include "tests/unit/ctl/rig.h"

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

static struct ctl *open_under(const char *data, const struct buf *policy)
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
	struct ctl_commit cm;
	struct ctl *c;

	if (ctl_open(&o, NULL, &c) < 0 || ctl_attach(c, NULL, &a) < 0)
		tap_fatal("open");
	(void)try_mkdir(a.root_fd, "workspace");
	if (try_mkdir(a.root_fd, "workspace/ro") < 0 ||
	    try_open(a.root_fd, "workspace/ro/f", O_CREAT | O_WRONLY) < 0 ||
	    try_open(a.root_fd, "workspace/a.env", O_CREAT | O_WRONLY) < 0 ||
	    try_open(a.root_fd, "workspace/f", O_CREAT | O_WRONLY) < 0)
		tap_fatal("fill");
	if (ctl_commit(c, "filled", NULL, NULL, NULL, &cm) < 0)
		tap_fatal("commit");
	ctl_commit_release(&cm);
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

static int try_cat(struct ctl *c, const char *path)
{
	uint32_t mode;
	int fd = -1, r = ctl_cat(c, "head", path, NULL, &fd, &mode);

	cleanup_fdp(&fd);
	return r;
}

/* A state that was looked at stays open for what is asked next: not for what has been closed since. */
static void looks(const char *data)
{
	cleanup_buf struct buf policy = {0};
	struct ctl_attach a;
	struct ctl *c = open_under(data, NULL), *other;

	make_policy(&policy, false);
	other = open_under(data, &policy);
	eq_int(try_cat(c, "/workspace/f"), 0, "a file of a state");
	eq_int(try_cat(c, "/workspace/a.env"), 0, "and another");
	if (ctl_attach(other, NULL, &a) < 0)
		tap_fatal("attach");
	eq_int(try_cat(c, "/workspace/a.env"), -EACCES, "which is closed now");
	eq_int(try_cat(c, "/workspace/f"), 0, "the first is not");
	ctl_attach_release(&a);
	ctl_close(other);
	ctl_close(c);
}

static void mounts(const char *data)
{
	cleanup_buf struct buf policy = {0}, hidden = {0};
	struct ctl_bytes junk = {.data = (uint8_t[]){0x93, 1, 2, 3}, .len = 4};
	const struct ctl_attach_opts none = {.policy = &junk};
	struct ctl_attach a, b;
	struct diag d = {0};
	struct ctl *c;

	make_policy(&policy, false);
	make_policy(&hidden, true);
	c = open_under(data, &policy);
	eq_int(ctl_attach(c, &d, &a), 0, "attach: %s", d.text);
	eq_str(a.writable, "/workspace", "the fence's places");
	judged(a.root_fd, "at first");
	denials(c, a.denied);
	ctl_close(open_under(data, &policy));
	eq_int(ctl_attach(c, NULL, &b), 0, "the same policy again");
	ok(a.generation == b.generation, "is the same mount");
	ctl_attach_release(&b);
	eq_int(ctl_restart(c, &d), 0, "another daemon goes on: %s", d.text);
	judged(a.root_fd, "after it");
	ctl_attach_release(&a);
	ctl_close(c);
	c = open_under(data, &hidden);
	if (ctl_attach(c, NULL, &a) < 0)
		tap_fatal("attach");
	eq_int(try_open(a.root_fd, "workspace/a.env", O_RDONLY), -ENOENT, "a policy that hides");
	ctl_attach_release(&a);
	eq_int(ctl_attach_as(c, &none, &d, &a), -EBADMSG, "one that is none: %s", d.text);
	eq_int(ctl_shutdown(c, true, NULL), 0, "the end");
	ctl_close(c);
}

/* ---- clients with different policies ---- */

/* Under what its connection was opened with; releases what it got. */
static int attach(struct ctl *c, const char *what, bool brief, char ret_text[static 512])
{
	const struct ctl_attach_opts o = {.what = what, .brief = brief};
	struct ctl_attach a;
	struct diag d = {0};
	int r = ctl_attach_as(c, &o, &d, &a);

	(void)snprintf(ret_text, 512, "%s", d.text);
	ctl_attach_release(&a);
	return r;
}

static void two_at_once(const char *data, bool restart)
{
	cleanup_buf struct buf policy = {0}, hidden = {0};
	const struct ctl_attach_opts command = {.what = "make all"};
	cleanup_fd int self = pidfd_open(getpid(), 0);
	struct ctl *one, *same, *other, *plain;
	struct ctl_attach a, b;
	struct ctl_moved mv;
	struct ctl_status st;
	struct diag d = {0};
	char text[512];

	make_policy(&policy, false);
	make_policy(&hidden, true);
	one = open_under(data, &policy);
	same = open_under(data, &policy);
	other = open_under(data, &hidden);
	plain = open_under(data, NULL);
	eq_int(attach(other, NULL, false, text), 0, "one that does nothing: %s", text);
	eq_int(ctl_attach_as(one, &command, &d, &a), 0, "a command comes in between: %s", d.text);
	eq_int(ctl_lease(one, "make all", self, NULL), 0, "and runs");
	judged(a.root_fd, "while nobody else asks");
	if (restart) {
		eq_int(ctl_restart(plain, &d), 0, "another daemon goes on: %s", d.text);
		ctl_close(same);
		ctl_close(other);
		ctl_close(plain);
		same = open_under(data, &policy);
		other = open_under(data, &hidden);
		plain = open_under(data, NULL);
	}
	eq_int(attach(other, NULL, false, text), -EBUSY, "another policy does not come under it");
	ok(strstr(text, "another policy (make all)") && strstr(text, "another environment"),
	   "and is told of it: %s", text);
	eq_int(attach(other, "ls", false, text), -EBUSY, "nor with a lease");
	eq_int(attach(plain, NULL, false, text), -EBUSY, "nor the agent's, of who says nothing");
	judged(a.root_fd, "after others asked");
	eq_int(ctl_attach_as(same, &command, NULL, &b), 0, "the same policy beside it");
	ok(a.generation == b.generation, "is the same mount");
	ctl_attach_release(&b);
	eq_int(ctl_status(same, NULL, &st), 0, "status");
	eq_int(st.leases, 2, "two commands, and none of those that were refused");
	ctl_status_release(&st);
	if (!restart)
		eq_int(ctl_unlease(one), 0, "the first one ends");
	ctl_close(one);
	if (restart) /* the process that was named still lives */
		eq_int(attach(other, NULL, false, text), -EBUSY, "it is the process that counts");
	eq_int(ctl_unlease(same), 0, "the other one ends");
	if (!restart) {
		eq_int(attach(other, "a tool", true, text), 0, "then another policy: %s", text);
		errno = 0;
		ok(openat(a.root_fd, "workspace/f", O_RDONLY | O_CLOEXEC) < 0 && errno != ENOENT,
		   "what was handed out ends with its policy: %s", err_text(errno));
		eq_int(attach(same, NULL, false, text), -EBUSY, "a tool has it");
		eq_int(ctl_reset(plain, false, NULL, &mv), 0, "for which no move waits");
	}
	ctl_attach_release(&a);
	eq_int(ctl_shutdown(plain, true, NULL), 0, "the end");
	ctl_close(same);
	ctl_close(other);
	ctl_close(plain);
}

/* What is bound is a mount on the mount, which a policy does not judge: a client that says only what is writable
 * gets it, one with a whole policy does not. */
static void binds(const char *data, const char *host)
{
	cleanup_fd int fd = open(host, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_buf struct buf policy = {0};
	struct ctl *whole, *plain;
	struct diag d = {0};
	char text[512];

	make_policy(&policy, false);
	plain = open_under(data, NULL);
	whole = open_under(data, &policy);
	eq_int(attach(plain, NULL, false, text), 0, "plain: %s", text);
	eq_int(ctl_bind(plain, fd, host, "/workspace/h", false, &d), 0, "binds: %s", d.text);
	eq_int(attach(whole, NULL, false, text), -EBUSY, "a whole policy does not get that");
	ok(strstr(text, host) && strstr(text, "/workspace/h"), "and is told: %s", text);
	eq_int(ctl_unbind(plain, "/workspace/h", NULL), 0, "unbound");
	eq_int(attach(whole, "ls", false, text), 0, "then it does: %s", text);
	d.text[0] = 0;
	eq_int(ctl_bind(plain, fd, host, "/workspace/h", false, &d), -EBUSY,
	       "and nothing is bound under it: %s", d.text);
	eq_int(ctl_unlease(whole), 0, "it ends");
	eq_int(ctl_bind(plain, fd, host, "/workspace/h", false, NULL), 0, "and is bound");
	eq_int(attach(plain, NULL, false, text), 0, "for plain: %s", text);
	eq_int(ctl_shutdown(plain, true, NULL), 0, "the end");
	ctl_close(whole);
	ctl_close(plain);
}

int main(void)
{
	struct place p;

	place_make(&p);
	fill(p.data);
	looks(p.data);
	mounts(p.data);
	two_at_once(p.data, false);
	two_at_once(p.data, true);
	binds(p.data, p.host);
	place_remove(&p);
	return tap_done();
}
