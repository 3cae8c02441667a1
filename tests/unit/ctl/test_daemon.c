/* rattan-fs through the client library: real processes, a real store, real mounts. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_io.h"
#include "fs/ctl/ctl_msg.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/process.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

struct place {
	char top[64], data[80], host[80];
};

static struct ctl *open_env(const struct place *p, const char *const *writable)
{
	struct ctl_env_opts o = {.data_dir = p->data, .create = true, .writable = writable};
	struct diag d = {0};
	struct ctl *c = NULL;
	int r = ctl_open(&o, &d, &c);

	if (r < 0)
		tap_fatal("ctl_open: %d %s\n", r, d.text);
	return c;
}

static int put_file(struct ctl *c, const char *path, const char *text)
{
	struct ctl_attach a;
	int r = ctl_attach(c, NULL, &a), fd;

	if (r < 0)
		return r;
	fd = openat(a.root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	r = fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
	if (fd >= 0)
		(void)close(fd);
	ctl_attach_release(&a);
	return r;
}

static int get_file(struct ctl *c, const char *path, char ret[static 64])
{
	struct ctl_attach a;
	int r = ctl_attach(c, NULL, &a), fd;
	ssize_t n;

	ret[0] = 0;
	if (r < 0)
		return r;
	fd = openat(a.root_fd, path, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	n = fd < 0 ? 0 : io_read_full(fd, ret, 63);
	ret[n > 0 ? n : 0] = 0;
	if (fd >= 0)
		(void)close(fd);
	ctl_attach_release(&a);
	return r;
}

static void first_use(const struct place *p)
{
	long long t = io_now_ms();
	struct ctl *c = open_env(p, NULL);
	struct ctl_attach a, b;
	struct ctl_status st;
	struct diag d = {0};
	struct stat s1, s2;
	char text[64];

	eq_int(ctl_attach(c, &d, &a), 0, "attach: %s", d.text);
	printf("# first open and attach: %lld ms\n", io_now_ms() - t);
	ok(fstat(a.root_fd, &s1) == 0 && S_ISDIR(s1.st_mode), "the root is a directory");
	ok(a.userns_fd >= 0 && a.mntns_fd >= 0, "namespaces come along");
	eq_str(a.writable, "/workspace\n/tmp\n/var/tmp\n/home/user", "the agent's places");
	eq_int(put_file(c, "workspace/a", "hello"), 0, "a file is written");
	eq_int(get_file(c, "workspace/a", text), 0, "and read");
	eq_str(text, "hello", "as it was");
	ok(put_file(c, "usr/a", "no") < 0, "elsewhere it is refused");
	eq_int(ctl_attach(c, NULL, &b), 0, "attached again");
	ok(fstat(b.root_fd, &s2) == 0 && s1.st_dev == s2.st_dev && a.generation == b.generation,
	   "the same mount");
	ctl_attach_release(&a);
	ctl_attach_release(&b);
	eq_int(ctl_status(c, &d, &st), 0, "status: %s", d.text);
	eq_str(st.env, "default", "name");
	eq_str(st.base, "host", "base");
	eq_str(st.head, "", "no commit yet");
	ok(st.dirty && st.added + st.modified > 0, "dirty");
	ok(st.daemon_pid > 1 && kill(st.daemon_pid, 0) == 0, "a process serves it");
	ok(st.overlays && !st.overlays[0] && st.nbinds == 0, "no overlays, no binds");
	ctl_status_release(&st);
	ctl_close(c);
}

static int count_commits(void *arg, const struct ctl_commit *cm)
{
	(void)cm;
	++*(int *)arg;
	return 0;
}

static void history(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	struct ctl_commit one, two, none;
	struct ctl_moved mv;
	struct ctl_attach a, b;
	struct diag d = {0};
	char text[64];
	int n = 0;

	eq_int(put_file(c, "workspace/a", "one"), 0, "write");
	eq_int(ctl_commit(c, "first", "v1", NULL, &d, &one), 0, "commit: %s", d.text);
	ok(strlen(one.id) == 64 && one.parent[0] == 0, "it has an id and no parent");
	eq_str(one.message, "first", "message");
	eq_str(one.label, "v1", "label");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_commit(c, "again", NULL, NULL, &d, &none), -ENODATA, "nothing to commit: %s",
	       d.text);
	eq_int(put_file(c, "workspace/a", "two"), 0, "write");
	eq_int(ctl_commit(c, "x", NULL, "base", NULL, &none), -ESTALE,
	       "head is not what was expected");
	eq_int(ctl_commit(c, "second", NULL, one.id, &d, &two), 0, "commit on the expected head");
	eq_str(two.parent, one.id, "its parent is the first");
	eq_int(put_file(c, "workspace/a", "three"), 0, "write, uncommitted");

	eq_int(ctl_attach(c, NULL, &a), 0, "attach");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_rollback(c, one.id, false, &d, &mv), 0, "rollback: %s", d.text);
	ok(mv.saved && !strcmp(mv.to, one.id) && strlen(mv.from) == 64, "what was left is kept");
	eq_int(ctl_attach(c, NULL, &b), 0, "attach");
	ok(a.generation != b.generation && strcmp(a.root, b.root) != 0, "a fresh mount");
	ok(openat(a.root_fd, "workspace/a", O_RDONLY | O_CLOEXEC) < 0, "the old one is gone");
	ctl_attach_release(&a);
	ctl_attach_release(&b);
	(void)get_file(c, "workspace/a", text);
	eq_str(text, "one", "the first state");
	eq_int(ctl_undo(c, false, &d, &mv), 0, "undo");
	(void)get_file(c, "workspace/a", text);
	eq_str(text, "three", "brings back what was not committed");
	eq_int(put_file(c, "workspace/a", "four"), 0, "write");
	eq_int(ctl_reset(c, false, &d, &mv), 0, "reset");
	(void)get_file(c, "workspace/a", text);
	eq_str(text, "two", "to the last commit: what undo brought back was not committed");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_rollback(c, "feedfeed", false, &d, &mv), -ENOENT, "no such revision: %s",
	       d.text);
	ok(d.text[0] != 0, "with a sentence");
	eq_int(ctl_log(c, false, false, NULL, count_commits, &n), 0, "log");
	eq_int(n, 2, "commits");
	n = 0;
	eq_int(ctl_log(c, true, true, NULL, count_commits, &n), 0, "log of everything");
	eq_int(n, 4, "with the automatic states");
	ctl_commit_release(&one);
	ctl_commit_release(&two);
	ctl_close(c);
}

static int count_changes(void *arg, const struct ctl_change *ch)
{
	*(int *)arg += ch->path[0] == '/';
	return 0;
}

static int count_paths(void *arg, const char *path, char what)
{
	(void)what;
	*(int *)arg += !strcmp(path, "/workspace/seen");
	return 0;
}

static void looking(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	struct diag d = {0};
	struct ctl_status st;
	uint32_t mode = 0;
	uint64_t token;
	char text[64];
	int n = 0, fd = -1;
	ssize_t k;

	eq_int(ctl_status(c, &d, &st), 0, "status");
	eq_int(put_file(c, "workspace/seen", "content"), 0, "write");
	eq_int(ctl_changes(c, st.token, &d, &token, count_paths, &n), 0, "changes: %s", d.text);
	eq_int(n, 1, "the path is among them");
	n = 0;
	eq_int(ctl_changes(c, token, &d, &token, count_paths, &n), 0, "changes since then");
	eq_int(n, 0, "none");
	eq_int(ctl_changes(c, 12345, NULL, &token, count_paths, &n), -ESTALE, "a foreign token");
	ctl_status_release(&st);
	n = 0;
	eq_int(ctl_diff(c, NULL, NULL, &d, count_changes, &n), 0, "diff: %s", d.text);
	ok(n > 0, "there are differences");
	eq_int(ctl_cat(c, NULL, "/workspace/seen", &d, &fd, &mode), 0, "cat: %s", d.text);
	k = io_read_full(fd, text, sizeof(text));
	ok(k == 7 && !memcmp(text, "content", 7) && S_ISREG(mode), "content and mode");
	ok(ftruncate(fd, 0) < 0, "sealed");
	(void)close(fd);
	eq_int(ctl_cat(c, "head", "/workspace/a", NULL, &fd, &mode), 0, "cat at a revision");
	k = io_read_full(fd, text, sizeof(text));
	ok(k == 3 && !memcmp(text, "two", 3), "as it was then");
	(void)close(fd);
	eq_int(ctl_cat(c, NULL, "/workspace", NULL, &fd, &mode), -EISDIR, "a directory");
	eq_int(ctl_cat(c, NULL, "/nope", NULL, &fd, &mode), -ENOENT, "nothing there");
	eq_int(ctl_flush(c, NULL), 0, "flush");
	ctl_close(c);
}

static void leases(const struct place *p)
{
	struct ctl *c = open_env(p, NULL), *other = open_env(p, NULL);
	struct ctl_moved mv;
	struct diag d = {0};
	pid_t pid = fork();
	int pidfd, status;

	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	pidfd = pidfd_open(pid, 0);
	eq_int(ctl_lease(other, "make all", pidfd, &d), 0, "lease");
	eq_int(ctl_rollback(c, "base", false, &d, &mv), -EBUSY, "a rollback waits: %s", d.text);
	ok(strstr(d.text, "make all") != NULL, "and says for what");
	eq_int(ctl_shutdown(c, false, NULL), -EBUSY, "so does the end");
	eq_int(ctl_rollback(c, "base", true, NULL, &mv), 0, "by force it goes");
	ok(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
	   "and the command is dead");
	eq_int(ctl_unlease(other), 0, "unlease");
	eq_int(ctl_undo(c, false, NULL, &mv), 0, "free again");
	eq_int(ctl_lease(other, "x", -1, NULL), 0, "lease without a process");
	ctl_close(other);
	for (int i = 0; i < 100 && ctl_undo(c, false, NULL, &mv) == -EBUSY; i++)
		(void)usleep(10000);
	eq_int(ctl_undo(c, false, NULL, &mv) == -EBUSY, 0, "a closed connection holds nothing");
	(void)close(pidfd);
	ctl_close(c);
}

static void binds(const struct place *p)
{
	static const char *const only[] = {"/workspace", NULL};
	struct ctl *c = open_env(p, NULL), *c2;
	struct ctl_commit cm = {0};
	struct ctl_moved mv;
	struct ctl_status st;
	struct diag d = {0};
	char text[64], path[128];
	int fd, r;

	fd = open(p->host, O_PATH | O_CLOEXEC);
	eq_int(ctl_bind(c, fd, p->host, "/workspace/h", true, &d), 0, "bind: %s", d.text);
	(void)get_file(c, "workspace/h/f", text);
	eq_str(text, "host", "the host file is there");
	eq_int(put_file(c, "workspace/h/g", "new"), 0, "writable");
	(void)snprintf(path, sizeof(path), "%s/g", p->host);
	ok(access(path, F_OK) == 0, "and seen on the host");
	eq_int(ctl_bind(c, fd, p->host, "/workspace/h", false, NULL), -EEXIST, "twice");
	eq_int(ctl_bind(c, fd, p->host, "/workspace/h/sub", false, NULL), -EEXIST, "inside");
	eq_int(ctl_bind(c, fd, p->host, "/usr", false, NULL), -EINVAL, "over the system");
	eq_int(ctl_bind(c, fd, p->host, "/workspace/../usr", false, NULL), -EINVAL, "by a trick");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_bind(c, fd, p->host, "/mnt/ro", false, &d), 0,
	       "where the policy allows no mount point: %s", d.text);
	eq_int(put_file(c, "mnt/ro/h", "x"), -EROFS, "read-only");
	(void)get_file(c, "mnt/ro/f", text);
	eq_str(text, "host", "readable");
	(void)get_file(c, "workspace/h/f", text);
	eq_str(text, "host", "the first bind is there as well");
	eq_int(ctl_bind(c, fd, p->top, "/mnt/other", false, NULL), -ESTALE,
	       "another directory's path");
	{
		struct ctl_attach a;

		r = ctl_attach(c, NULL, &a);
		ok(r == 0 && symlinkat("/", a.root_fd, "workspace/link") == 0,
		   "a symlink in the tree");
		ctl_attach_release(&a);
	}
	r = ctl_bind(c, fd, p->host, "/workspace/link/tmp/x", true, NULL);
	eq_int(r, -EINVAL, "is not followed");
	ok(access("/tmp/x", F_OK) < 0 || errno == 0 || r == -EINVAL, "nothing on the host");
	eq_int(ctl_commit(c, "with binds", NULL, NULL, NULL, &cm), 0, "commit");
	ctl_commit_release(&cm);
	eq_int(ctl_rollback(c, "head~1", false, &d, &mv), 0, "rollback: %s", d.text);
	(void)get_file(c, "workspace/h/f", text);
	eq_str(text, "host", "binds last across a rollback");
	eq_int(put_file(c, "mnt/ro/h", "x"), -EROFS, "and stay read-only");
	eq_int(ctl_status(c, NULL, &st), 0, "status");
	ok(st.nbinds == 2 && !strcmp(st.binds[0].mount, "/workspace/h") && st.binds[0].rw &&
		   !st.binds[1].rw,
	   "tells them");
	ctl_status_release(&st);
	c2 = open_env(p, only);
	ok(put_file(c2, "tmp/x", "no") < 0, "another policy is another mount");
	eq_int(put_file(c2, "workspace/h/g2", "yes"), 0, "with the binds");
	eq_int(ctl_unbind(c, "/workspace/h", &d), 0, "unbind: %s", d.text);
	eq_int(get_file(c, "workspace/h/f", text), -ENOENT, "gone");
	eq_int(ctl_unbind(c, "/workspace/h", NULL), -ENOENT, "once");
	eq_int(ctl_unbind(c, "/mnt/ro", NULL), 0, "the other");
	(void)close(fd);
	ctl_close(c2);
	ctl_close(c);
}

static int slurp(const char *dir, const char *name, char ret[static 64])
{
	cleanup_fd int d = open(dir, O_PATH | O_CLOEXEC);
	cleanup_fd int fd = openat(d, name, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : 0;
	ssize_t n = fd < 0 ? 0 : io_read_full(fd, ret, 63);

	ret[n > 0 ? n : 0] = 0;
	return r;
}

static size_t count_binds(struct ctl *c)
{
	struct ctl_status st;
	size_t n;

	if (ctl_status(c, NULL, &st) < 0)
		return 99;
	n = st.nbinds;
	ctl_status_release(&st);
	return n;
}

static bool binds_become(struct ctl *c, size_t n)
{
	for (int i = 0; i < 200 && count_binds(c) != n; i++)
		(void)usleep(10000);
	return count_binds(c) == n;
}

/* A bind is there as long as somebody who asked for it. */
static void bind_holders(const struct place *p)
{
	const struct ctl_overlay ov = {p->host, "/workspace"};
	struct ctl_env_opts o = {.data_dir = p->data,
				 .env = "held",
				 .create = true,
				 .overlays = &ov,
				 .noverlays = 1};
	struct ctl *c = NULL, *a = NULL, *b = NULL, *d = NULL;
	struct diag diag = {0};
	char text[64];
	int fd = open(p->host, O_PATH | O_CLOEXEC);

	if (ctl_open(&o, &diag, &c) < 0 || ctl_open(&o, &diag, &a) < 0 ||
	    ctl_open(&o, &diag, &b) < 0)
		tap_fatal("ctl_open: %s\n", diag.text);
	eq_int(ctl_bind(a, fd, p->host, "/workspace", true, &diag), 0, "bind: %s", diag.text);
	eq_int(ctl_bind(b, fd, p->host, "/workspace", true, &diag), 0, "the same again");
	eq_int(ctl_bind(b, fd, p->host, "/workspace", true, &diag), 0, "and again");
	eq_int(count_binds(c), 1, "is one bind");
	eq_int(ctl_open(&o, &diag, &d), -EEXIST, "who wants the overlay does not get the bind: %s",
	       diag.text);
	o.noverlays = 0;
	eq_int(ctl_open(&o, NULL, &d), 0, "who wants none is served");
	eq_int(ctl_unbind(c, "/workspace", NULL), -ENOENT, "others cannot take it away");
	eq_int(ctl_unbind(a, "/workspace", NULL), 0, "one gives it up");
	eq_int(count_binds(c), 1, "the other has it");
	ctl_close(b);
	ok(binds_become(c, 0), "until its connection ends");
	o.noverlays = 1;
	ctl_close(d);
	eq_int(ctl_open(&o, &diag, &d), 0, "then the overlay is to be had");
	eq_int(put_file(d, "workspace/f", "mine"), 0, "written");
	(void)!get_file(c, "workspace/f", text);
	eq_str(text, "mine", "seen");
	(void)slurp(p->host, "f", text);
	eq_str(text, "host", "and the host's is as it was");
	ctl_close(a);
	ctl_close(d);

	/* What was refused does not come with the next mount. */
	eq_int(ctl_lease(c, "busy", -1, NULL), 0, "a command runs");
	if (ctl_open(&o, &diag, &a) < 0)
		tap_fatal("ctl_open: %s\n", diag.text);
	eq_int(ctl_bind(a, fd, p->host, "/mnt/new", true, NULL), -EBUSY, "no mount point now");
	eq_int(count_binds(c), 0, "and none for later");

	/* What it is mounted on moves away under it. */
	eq_int(ctl_unlease(c), 0, "idle");
	eq_int(put_file(c, "workspace/sub", "x"), 0, "a file");
	{
		struct ctl_attach at;

		eq_int(ctl_attach(c, NULL, &at), 0, "attach");
		ok(mkdirat(at.root_fd, "workspace/d", 0755) == 0, "a directory");
		ok(mkdirat(at.root_fd, "workspace/d/m", 0755) == 0, "a mount point");
		eq_int(ctl_bind(a, fd, p->host, "/workspace/d/m", true, NULL), 0, "a bind");
		ok(renameat(at.root_fd, "workspace/d", at.root_fd, "workspace/e") == 0, "moved");
		ctl_attach_release(&at);
	}
	eq_int(ctl_unbind(a, "/workspace/d/m", NULL), 0, "is unbound all the same");
	eq_int(get_file(c, "workspace/e/m/f", text), -ENOENT, "and not there under its new name");
	(void)close(fd);
	ctl_close(a);
	eq_int(ctl_shutdown(c, false, NULL), 0, "end");
	ctl_close(c);
	eq_int(ctl_env_remove(p->data, "held", false, NULL), 0, "remove");
}

static void make_host(const char *dir, const char *name, const char *text)
{
	char path[160];
	int fd;

	(void)mkdir(dir, 0755);
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || io_write_full(fd, text, strlen(text)) < 0)
		tap_fatal("no host file");
	(void)close(fd);
}

/* The host directory is removed and made anew, as by a fresh clone. */
static void replaced(const struct place *p, struct ctl *c)
{
	struct ctl *other = NULL;
	struct ctl_env_opts o = {.data_dir = p->data, .env = "ov"};
	char text[64], away[96], path[96];

	(void)snprintf(away, sizeof(away), "%s.away", p->host);
	if (ctl_open(&o, NULL, &other) < 0 || rename(p->host, away) < 0)
		tap_fatal("cannot replace %s", p->host);
	(void)get_file(c, "workspace/f", text);
	eq_str(text, "changed", "what was changed stays while the directory is away");
	make_host(p->host, "again", "second");
	eq_int(ctl_lease(other, "busy", -1, NULL), 0, "a command runs");
	eq_int(get_file(c, "workspace/again", text), -ENOENT, "which keeps its mount");
	eq_int(ctl_unlease(other), 0, "it ends");
	(void)get_file(c, "workspace/again", text);
	eq_str(text, "second", "the new directory is shown");
	(void)get_file(c, "workspace/f", text);
	eq_str(text, "changed", "under what was changed");
	ctl_close(other);
	(void)snprintf(path, sizeof(path), "%s/again", p->host);
	if (unlink(path) < 0 || rmdir(p->host) < 0 || rename(away, p->host) < 0)
		tap_fatal("cannot put %s back", p->host);
}

static void overlays(const struct place *p)
{
	struct ctl_overlay ov = {p->host, "/workspace"}, wrong = {p->top, "/workspace"};
	struct ctl_env_opts o = {
		.data_dir = p->data, .env = "ov", .create = true, .overlays = &ov, .noverlays = 1};
	struct ctl_env_opts fork = {
		.data_dir = p->data, .env = "fork", .create = true, .base = "ov:head"};
	struct ctl *c = NULL, *x = NULL;
	struct ctl_commit cm = {0};
	struct ctl_status st;
	struct diag d = {0};
	char text[64], want[128];

	eq_int(ctl_open(&o, &d, &c), 0, "an environment over a host directory: %s", d.text);
	(void)get_file(c, "workspace/f", text);
	eq_str(text, "host", "shows what is in it");
	eq_int(put_file(c, "workspace/f", "changed"), 0, "write");
	(void)slurp(p->host, "f", text);
	eq_str(text, "host", "and leaves it alone");
	eq_int(ctl_commit(c, "over", NULL, NULL, &d, &cm), 0, "commit: %s", d.text);
	ctl_commit_release(&cm);
	eq_int(ctl_status(c, &d, &st), 0, "status: %s", d.text);
	(void)snprintf(want, sizeof(want), "%s=/workspace", p->host);
	ok(st.overlays[0] && !strcmp(st.overlays[0], want) && !st.overlays[1], "tells the overlay");
	ok(!st.dirty, "clean");
	ctl_status_release(&st);
	replaced(p, c);
	o.overlays = &wrong;
	eq_int(ctl_open(&o, &d, &x), -EEXIST, "another one is refused: %s", d.text);
	eq_int(ctl_open(&fork, &d, &x), 0, "a fork of its head");
	(void)get_file(x, "workspace/f", text);
	eq_str(text, "changed", "shows the same");
	eq_int(ctl_shutdown(x, false, NULL), 0, "end");
	ctl_close(x);
	eq_int(ctl_shutdown(c, false, NULL), 0, "end");
	ctl_close(c);
	eq_int(ctl_env_remove(p->data, "fork", false, NULL), 0, "remove");
}

static int nothing(void *arg, const struct ctl_env_info *e)
{
	(void)arg;
	(void)e;
	return 0;
}

/* The one process of ours that has @dir among its arguments. */
static pid_t server_of(const char *dir)
{
	cleanup_dir DIR *d = opendir("/proc");
	const struct dirent *e;

	while (d && (e = readdir(d))) {
		cleanup_buf struct buf b = {0};
		char path[300];

		(void)snprintf(path, sizeof(path), "%s/cmdline", e->d_name);
		if (strspn(e->d_name, "0123456789") != strlen(e->d_name) ||
		    io_read_file(dirfd(d), path, 65536, &b) < 0 || b.len == 0)
			continue;
		if (strstr((char *)b.data, "rattan-fs") &&
		    memmem(b.data, b.len, dir, strlen(dir) + 1))
			return (pid_t)strtol(e->d_name, NULL, 10);
	}
	return -1;
}

static void host_mounts(const struct place *p)
{
	char dir[96], text[64], new_dir[128];
	struct diag d = {0};
	pid_t pid;

	(void)snprintf(dir, sizeof(dir), "%s/look", p->top);
	(void)mkdir(dir, 0755);
	eq_int(ctl_mount(p->data, "ov", "nope", dir, NULL), -ENOENT, "no such revision");
	eq_int(ctl_mount(p->data, "ov", "head", dir, &d), 0, "a commit on the host: %s", d.text);
	eq_int(slurp(dir, "workspace/f", text), 0, "a file of it");
	eq_str(text, "changed", "as committed");
	(void)snprintf(new_dir, sizeof(new_dir), "%s/workspace/n", dir);
	ok(mkdir(new_dir, 0755) < 0 && errno == EROFS, "read-only");
	eq_int(ctl_mount(p->data, "ov", "base", dir, NULL) < 0, 1, "not twice at one place");
	eq_int(ctl_umount(dir, &d), 0, "unmount: %s", d.text);
	eq_int(slurp(dir, "workspace/f", text), -ENOENT, "gone");
	for (int i = 0; i < 500 && server_of(dir) > 0; i++)
		(void)usleep(10000);
	ok(server_of(dir) < 0, "and so is its server");
	eq_int(ctl_umount(dir, &d), -EINVAL, "once");
	eq_int(ctl_mount(p->data, "ov", "head", dir, NULL), 0, "again");
	pid = server_of(dir);
	ok(pid > 0 && kill(pid, SIGKILL) == 0, "its server is killed");
	for (int i = 0; i < 500 && kill(pid, 0) == 0; i++)
		(void)usleep(10000);
	eq_int(ctl_env_list(p->data, NULL, nothing, NULL), 0, "a list heals");
	eq_int(slurp(dir, "workspace/f", text), -ENOENT, "the dead mount");
	eq_int(ctl_env_remove(p->data, "ov", false, NULL), 0, "remove");
	(void)rmdir(dir);
}

static void sock_of_default(char ret[static 4096])
{
	cleanup_free char *run = NULL;
	cleanup_dir DIR *d = ctl_runtime_dir(&run) == 0 ? opendir(run) : NULL;
	const struct dirent *e;

	ret[0] = 0;
	while (d && (e = readdir(d)))
		if (strstr(e->d_name, "-default"))
			(void)snprintf(ret, 4096, "%s/%s/sock", run, e->d_name);
}

/* A connection that sends @n bytes and waits; true when the daemon hung up. */
static bool hung_up(const void *bytes, size_t n, bool wait)
{
	cleanup_fd int fd = -1;
	char path[4096], in[4096];
	struct pollfd pf = {.events = POLLIN};
	bool hung = false;

	sock_of_default(path);
	if (ctl_sock_connect(path, &fd) == 0 && send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n) {
		pf.fd = fd;
		while (!hung && poll(&pf, 1, wait ? 2000 : 50) > 0)
			hung = recv(fd, in, sizeof(in), 0) <= 0;
	}
	return hung;
}

static bool hostile(const struct place *p, const void *bytes, size_t n, bool wait)
{
	struct ctl *c = open_env(p, NULL);
	bool hung = hung_up(bytes, n, wait);

	ctl_close(c);
	return hung;
}

static void hostile_clients(const struct place *p)
{
	static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff}, none[] = {0, 0, 0, 0},
			     junk[] = {0, 0, 0, 3, 0xc1, 0xc1, 0xc1}, half[] = {0, 0, 0, 9, 1};
	struct ctl *c = open_env(p, NULL);
	struct ctl_status st;

	ok(hostile(p, huge, sizeof(huge), true), "a length beyond the limit: hung up");
	ok(hostile(p, none, sizeof(none), true), "no length: hung up");
	ok(hostile(p, junk, sizeof(junk), true), "no msgpack: hung up");
	ok(!hostile(p, half, sizeof(half), false), "half a message: waits");
	eq_int(ctl_status(c, NULL, &st), 0, "and others are served");
	ctl_status_release(&st);
	ctl_close(c);
}

static void *opener(void *arg)
{
	struct ctl *c = open_env(arg, NULL);
	struct ctl_status st;
	intptr_t pid = 0;

	if (ctl_status(c, NULL, &st) == 0) {
		pid = st.daemon_pid;
		ctl_status_release(&st);
	}
	ctl_close(c);
	return (void *)pid;
}

static void together(struct place *p)
{
	pthread_t t[8];
	void *pid[8];
	int same = 0;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		if (pthread_create(&t[i], NULL, opener, p))
			tap_fatal("no thread");
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		(void)pthread_join(t[i], &pid[i]);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		same += pid[i] && pid[i] == pid[0];
	eq_int(same, 8, "eight clients at once share one daemon");
}

struct seen {
	int n;
	bool running, stale, dirty;
};

static int see_env(void *arg, const struct ctl_env_info *e)
{
	struct seen *s = arg;

	s->n++;
	s->running |= e->running;
	s->stale |= e->stale;
	s->dirty |= e->dirty;
	return 0;
}

/* A move under one who holds no lease, but a file, a mapping and half a listing of the mount: all of it ends with
 * an error, at once, and what it wrote is in the state that was kept. */
static void left_behind(const struct place *p)
{
	struct ctl *c = open_env(p, NULL), *other = open_env(p, NULL);
	struct ctl_attach a;
	struct ctl_moved mv;
	struct diag d = {0};
	char name[64], byte = 0, *m;
	DIR *dir;
	int fd, n = 0;

	eq_int(ctl_attach(c, &d, &a), 0, "attach: %s", d.text);
	if (mkdirat(a.root_fd, "workspace/half", 0755) < 0)
		tap_fatal("mkdir");
	for (int i = 0; i < 3000; i++) {
		(void)snprintf(name, sizeof(name), "workspace/half/some-longer-name-%d", i);
		fd = openat(a.root_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || close(fd) < 0)
			tap_fatal("create");
	}
	fd = openat(a.root_fd, "workspace/open", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, 8192) < 0 || pwrite(fd, "w", 1, 4096) != 1)
		tap_fatal("write");
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		tap_fatal("mmap");
	m[0] = 'm';
	dir = fdopendir(openat(a.root_fd, "workspace/half", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!dir || !readdir(dir) || !readdir(dir))
		tap_fatal("readdir");
	eq_int(ctl_rollback(other, "base", false, &d, &mv), 0, "a move under it: %s", d.text);
	alarm(60); /* nothing of this waits */
	errno = 0;
	while (readdir(dir))
		n++;
	ok(n < 3000 && errno, "the listing ends early, with an error (%d, %s)", n, err_text(errno));
	ok(pwrite(fd, "x", 1, 0) < 0, "a write fails: %s", err_text(errno));
	ok(pread(fd, &byte, 1, 0) < 0 || byte == 'm', "a read fails, or is of what was there");
	ok(openat(a.root_fd, "workspace/new", O_CREAT | O_RDWR | O_CLOEXEC, 0644) < 0,
	   "nothing is made there: %s", err_text(errno));
	eq_int(munmap(m, 4096), 0, "the mapping goes");
	(void)closedir(dir);
	(void)close(fd);
	ctl_attach_release(&a);
	alarm(0);
	eq_int(get_file(c, "workspace/open", name), -ENOENT, "the new mount has the base");
	eq_int(ctl_undo(other, false, &d, &mv), 0, "undo: %s", d.text);
	eq_int(get_file(c, "workspace/open", name), 0, "what was written is there again");
	ok(name[0] == 'm', "what was mapped, too");
	eq_int(ctl_reset(other, false, &d, &mv), 0, "reset: %s", d.text);
	ctl_close(other);
	ctl_close(c);
}

/* A message of another version is answered by whoever serves the connection, without the environment. */
static bool answered(void)
{
	static const char msg[] = "\0\0\0\x13\x84\xa1v\x63\xa2id\x01\xa2op\xa1x\xa4"
				  "args\x80";
	cleanup_fd int fd = -1;
	char path[4096], in[4096];
	struct pollfd pf = {.events = POLLIN};

	sock_of_default(path);
	if (ctl_sock_connect(path, &fd) < 0 ||
	    send(fd, msg, sizeof(msg) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(msg) - 1)
		return false;
	pf.fd = fd;
	return poll(&pf, 1, 2000) > 0 && recv(fd, in, sizeof(in), 0) > 4;
}

static void *mover(void *arg)
{
	struct ctl_moved mv;

	return (void *)(intptr_t)ctl_rollback(arg, "base", true, NULL, &mv);
}

/* A move that takes long (its keeper is stopped) holds up neither new connections nor the end. */
static void long_move(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	struct ctl_status st;
	pthread_t t;
	pid_t keeper, daemon;
	char sock[4096];
	void *r = NULL;
	int answers = 0, gone;

	eq_int(put_file(c, "workspace/moved", "x"), 0, "write");
	eq_int(ctl_status(c, NULL, &st), 0, "status");
	daemon = st.daemon_pid;
	ctl_status_release(&st);
	keeper = parent_of(daemon);
	sock_of_default(sock);
	if (kill(keeper, SIGSTOP) < 0 || pthread_create(&t, NULL, mover, c))
		tap_fatal("cannot begin");
	(void)usleep(300000); /* it waits for the keeper now */
	for (int i = 0; i < 3; i++)
		answers += answered();
	eq_int(answers, 3, "connections are served while a move goes on");
	eq_int(kill(daemon, SIGTERM), 0, "SIGTERM");
	for (int i = 0; i < 200 && access(sock, F_OK) == 0; i++)
		(void)usleep(10000);
	gone = access(sock, F_OK);
	(void)kill(keeper, SIGCONT);
	ok(gone < 0, "is seen while a move goes on");
	(void)pthread_join(t, &r);
	ctl_close(c);
	for (int i = 0; i < 1000 && kill(daemon, 0) == 0; i++)
		(void)usleep(10000);
	ok(kill(daemon, 0) < 0, "and ends the daemon when the move is done");
}

static void life(struct place *p)
{
	struct ctl_env_opts absent = {.data_dir = p->data, .env = "absent"},
			    passive = {.data_dir = p->data, .no_start = true};
	struct ctl *c = open_env(p, NULL), *x = NULL;
	struct ctl_status st;
	struct seen s = {0};
	struct diag d = {0};
	char text[64];
	int pid;

	eq_int(put_file(c, "workspace/kept", "kept"), 0, "write");
	eq_int(ctl_flush(c, NULL), 0, "flush");
	eq_int(ctl_status(c, NULL, &st), 0, "status");
	pid = st.daemon_pid;
	ctl_status_release(&st);
	eq_int(ctl_env_list(p->data, &d, see_env, &s), 0, "list: %s", d.text);
	ok(s.n == 1 && s.running && !s.stale && s.dirty, "one, running, dirty");
	eq_int(kill(pid, SIGKILL), 0, "the daemon is killed");
	eq_int(ctl_status(c, &d, &st), -EPIPE, "the call fails");
	ctl_close(c);
	c = open_env(p, NULL);
	(void)get_file(c, "workspace/kept", text);
	eq_str(text, "kept", "the next one shows what was flushed");
	eq_int(put_file(c, "workspace/kept2", "kept2"), 0, "write, not flushed");
	eq_int(ctl_shutdown(c, false, &d), 0, "shutdown: %s", d.text);
	ctl_close(c);
	together(p);
	c = open_env(p, NULL);
	(void)get_file(c, "workspace/kept2", text);
	eq_str(text, "kept2", "an orderly end flushes");
	eq_int(ctl_status(c, NULL, &st), 0, "status");
	pid = st.daemon_pid;
	ctl_status_release(&st);
	ctl_close(c);
	eq_int(kill(pid, SIGTERM), 0, "SIGTERM");
	for (int i = 0; i < 500 && kill(pid, 0) == 0; i++)
		(void)usleep(10000);
	ok(kill(pid, 0) < 0, "ends it");
	memset(&d, 0, sizeof(d));
	eq_int(ctl_open(&passive, &d, &x), -ECONNREFUSED, "none is started unasked: %s", d.text);
	eq_int(ctl_open(&absent, &d, &x), -ENOENT, "an unknown environment");
	memset(&s, 0, sizeof(s));
	eq_int(ctl_env_list(p->data, NULL, see_env, &s), 0, "list");
	ok(s.n == 1 && !s.running && !s.stale, "nothing was left over");
	eq_int(ctl_env_remove(p->data, "default", false, &d), 0, "remove: %s", d.text);
	memset(&s, 0, sizeof(s));
	eq_int(ctl_env_list(p->data, NULL, see_env, &s), 0, "list");
	eq_int(s.n, 0, "none");
}

int main(void)
{
	struct place p = {.top = "/tmp/rattan-test-XXXXXX"};

	cleanup_fd int fd = -1;
	char file[96];

	need_namespaces();
	if (!mkdtemp(p.top))
		tap_fatal("no directory");
	(void)snprintf(p.data, sizeof(p.data), "%s/data", p.top);
	(void)snprintf(p.host, sizeof(p.host), "%s/host", p.top);
	(void)mkdir(p.host, 0755);
	(void)snprintf(file, sizeof(file), "%s/f", p.host);
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || io_write_full(fd, "host", 4) < 0)
		tap_fatal("no host file");
	(void)close(steal_fd(&fd));
	(void)setenv("XDG_RUNTIME_DIR", p.top, 1);
	first_use(&p);
	history(&p);
	looking(&p);
	leases(&p);
	binds(&p);
	bind_holders(&p);
	overlays(&p);
	host_mounts(&p);
	hostile_clients(&p);
	left_behind(&p);
	long_move(&p);
	life(&p);
	tree_remove(p.top);
	return tap_done();
}
