/* What else a daemon mounts: directories that are bound, host directories that are overlaid, commits on the host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tests/lib/tap.h"
#include "tests/unit/ctl/rig.h"

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

	eq_int(put_file(c, "workspace/a", "one"), 0, "write");
	eq_int(ctl_commit(c, "without binds", NULL, NULL, NULL, &cm), 0, "commit");
	ctl_commit_release(&cm);
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
	put_host(p->host, "again", "second");
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

/* It may be in its last steps. */
static void no_server(const char *dir, const char *what)
{
	for (int i = 0; i < 500 && server_of(dir) > 0; i++)
		(void)usleep(10000);
	ok(server_of(dir) < 0, "%s", what);
}

/* A process with a copy of all mounts, as each keeper has; it ends when it is killed. */
static pid_t copy_mounts(void)
{
	int up[2];
	char c;
	/* fork(): a sanitizer's thread in the child would forbid unshare(2) */
	pid_t pid = pipe(up) == 0 ? _Fork() : -1;

	if (pid == 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    write(up[1], "", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	(void)close(up[1]);
	ok(read(up[0], &c, 1) == 1, "a namespace with copies");
	(void)close(up[0]);
	return pid;
}

/* The kernel does not tell the server of a mount that it is gone as long as there is a copy of it. */
static void copied_mounts(const struct place *p, const char *dir)
{
	char *by_hand[] = {(char[]){"fusermount3"}, (char[]){"-u"}, (char *)(uintptr_t)dir, NULL};
	struct diag d = {0};
	pid_t copy, hand;
	int status = -1;

	eq_int(ctl_mount(p->data, "ov", "head", dir, false, &d), 0, "a mount: %s", d.text);
	copy = copy_mounts();
	eq_int(ctl_umount(dir, &d), 0, "is unmounted while there is a copy: %s", d.text);
	no_server(dir, "and its server is gone");
	eq_int(ctl_mount(p->data, "ov", "head", dir, true, &d), 0, "another: %s", d.text);
	(void)kill(copy, SIGKILL);
	(void)waitpid(copy, NULL, 0);
	copy = copy_mounts();
	ok(posix_spawnp(&hand, by_hand[0], NULL, NULL, by_hand, environ) == 0 &&
		   waitpid(hand, &status, 0) == hand && status == 0,
	   "unmounted by hand, with a copy");
	eq_int(ctl_mount(p->data, "ov", "head", dir, false, &d), 0,
	       "its place can be used again: %s", d.text);
	eq_int(ctl_umount(dir, &d), 0, "unmount: %s", d.text);
	no_server(dir, "none is left");
	(void)kill(copy, SIGKILL);
	(void)waitpid(copy, NULL, 0);
}

static void host_mounts(const struct place *p)
{
	char dir[96], text[64], new_dir[128];
	struct diag d = {0};
	pid_t pid;

	(void)snprintf(dir, sizeof(dir), "%s/look", p->top);
	(void)mkdir(dir, 0755);
	eq_int(ctl_mount(p->data, "ov", "nope", dir, false, NULL), -ENOENT, "no such revision");
	eq_int(ctl_mount(p->data, "ov", "head", dir, false, &d), 0, "a commit on the host: %s",
	       d.text);
	eq_int(slurp(dir, "workspace/f", text), 0, "a file of it");
	eq_str(text, "changed", "as committed");
	(void)snprintf(new_dir, sizeof(new_dir), "%s/workspace/n", dir);
	ok(mkdir(new_dir, 0755) < 0 && errno == EROFS, "read-only");
	eq_int(ctl_mount(p->data, "ov", "base", dir, false, NULL) < 0, 1, "not twice at one place");
	eq_int(ctl_umount(dir, &d), 0, "unmount: %s", d.text);
	eq_int(slurp(dir, "workspace/f", text), -ENOENT, "gone");
	no_server(dir, "and so is its server");
	eq_int(ctl_umount(dir, &d), -ENOENT, "once");
	eq_int(ctl_mount(p->data, "ov", "head", dir, false, NULL), 0, "again");
	pid = server_of(dir);
	ok(pid > 0 && kill(pid, SIGKILL) == 0, "its server is killed");
	for (int i = 0; i < 500 && kill(pid, 0) == 0; i++)
		(void)usleep(10000);
	eq_int(ctl_env_list(p->data, NULL, nothing, NULL), 0, "a list heals");
	eq_int(slurp(dir, "workspace/f", text), -ENOENT, "the dead mount");
	copied_mounts(p, dir);
	eq_int(ctl_env_remove(p->data, "ov", false, NULL), 0, "remove");
	(void)rmdir(dir);
}

int main(void)
{
	struct place p;

	place_make(&p);
	binds(&p);
	bind_holders(&p);
	overlays(&p);
	host_mounts(&p);
	place_remove(&p);
	return tap_done();
}
