/*
 * A command's cgroup, on a tree of files that stands in for the kernel's: which directory is taken, what is written there, and what is left.
 * That the kernel holds what is written is tests/e2e/cgroup.sh's to show, where there is a hierarchy with the controllers.
 */
#include "runner/cgroup.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

#define TOP "/sys/fs/cgroup"

/* ---- the kernel's part ---- */

static const char *const files[] = {"cgroup.procs", "cgroup.subtree_control",
				    "cgroup.kill",  "pids.max",
				    "memory.max",   "memory.swap.max"};
static const char *lacks = ""; /* the file that a new directory does not get */

static void put(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || io_write_full(fd, text, strlen(text)) < 0)
		tap_fatal("%s", path);
	(void)close(fd);
}

/* These stand before libc's, for the code under test as well. */
int statfs(const char *path, struct statfs *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->f_type = strcmp(path, TOP) ? TMPFS_MAGIC : CGROUP2_SUPER_MAGIC;
	return 0;
}

int mkdir(const char *path, mode_t mode)
{
	if (syscall(SYS_mkdirat, AT_FDCWD, path, mode) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (strcmp(files[i], lacks) != 0)
			put(path, files[i], "");
	return 0;
}

int unlinkat(int dir, const char *name, int flags)
{
	cleanup_fd int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(files); i++)
		(void)syscall(SYS_unlinkat, fd, files[i], 0);
	return (int)syscall(SYS_unlinkat, dir, name, flags);
}

int rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- the tree ---- */

static bool write_text(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && io_write_full(fd, text, strlen(text)) == 0;
}

static void enter(void)
{
	unsigned uid = geteuid(), gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		tap_fatal("namespaces");
	(void)snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (!write_text("/proc/self/uid_map", map))
		tap_fatal("uid_map");
	(void)write_text("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	if (!write_text("/proc/self/gid_map", map) ||
	    mount("none", TOP, "tmpfs", 0, "mode=755") < 0)
		tap_fatal("a tree at " TOP);
}

/* We are in @path, as the kernel tells it: in a hierarchy of version 1 as well. */
static void stand_in(const char *path)
{
	char text[256];

	(void)snprintf(text, sizeof(text), "4:memory:/elsewhere\n0::%s\n", path);
	put(TOP, "self", text);
	if (mount(TOP "/self", "/proc/self/cgroup", NULL, MS_BIND, NULL) < 0)
		tap_fatal("/proc/self/cgroup");
}

static int parent_is(const char *want)
{
	cleanup_free char *got = NULL;
	int r = cgroup_parent(&got);

	return r < 0 ? r : strcmp(got, want) ? 1 : 0;
}

/* The only directory of ours below @dir, its name in @ret. */
static unsigned children(const char *dir, char ret[256])
{
	char cmd[PATH_MAX], line[256];
	unsigned n = 0;
	FILE *f;

	(void)snprintf(cmd, sizeof(cmd), "ls -d %s/rattan-run-* 2>/dev/null", dir);
	f = popen(cmd, "r");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		(void)snprintf(ret, 256, "%s", line);
		n++;
	}
	if (f)
		(void)pclose(f);
	return n;
}

static bool holds(const char *dir, const char *name, const char *want)
{
	cleanup_buf struct buf text = {0};
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return io_read_file(AT_FDCWD, path, 4096, &text) == 0 && text.len == strlen(want) &&
	       !memcmp(text.len ? text.data : (const uint8_t *)"", want, text.len);
}

/* ---- tests ---- */

static void test_where(void)
{
	eq_int(parent_is(""), -EOPNOTSUPP, "nowhere with controllers");
	put(TOP "/slice", "cgroup.subtree_control", "cpu memory_recursiveprot pids\n");
	eq_int(parent_is(""), -EOPNOTSUPP, "words that only contain the one that is meant");
	put(TOP "/slice", "cgroup.subtree_control", "cpu memory\n");
	eq_int(parent_is(""), -EOPNOTSUPP, "one of the two");
	put(TOP "/slice", "cgroup.subtree_control", "cpu memory pids\n");
	eq_int(parent_is(TOP "/slice"), 0, "above the one that holds us");
	put(TOP "/slice/user", "cgroup.subtree_control", "memory pids\n");
	eq_int(parent_is(TOP "/slice/user"), 0, "the nearest is taken");
	put(TOP "/slice/user", "cgroup.subtree_control", "");
	if (geteuid()) {
		(void)chmod(TOP "/slice", 0555);
		eq_int(parent_is(""), -EOPNOTSUPP, "not one that others have");
		(void)chmod(TOP "/slice", 0755);
		(void)chmod(TOP "/slice/cgroup.procs", 0444);
		eq_int(parent_is(""), -EOPNOTSUPP, "nor one where nobody may be moved in");
		(void)chmod(TOP "/slice/cgroup.procs", 0644);
	}
}

static void test_limits(void)
{
	struct run_limits l = {.memory = 1000000, .processes = 77};
	struct cgroup *c = NULL;
	char dir[256] = "";

	eq_int(cgroup_new(&l, &c), 0, "a cgroup");
	eq_int(children(TOP "/slice", dir), 1, "is made");
	ok(holds(dir, "pids.max", "77"), "processes");
	ok(holds(dir, "memory.max", "1000000"), "memory");
	ok(holds(dir, "memory.swap.max", "0"), "and no swap");
	ok(c && write(cgroup_procs_fd(c), "0", 1) == 1 && holds(dir, "cgroup.procs", "0"),
	   "its descriptor is where one goes in");
	cgroup_kill(c);
	ok(holds(dir, "cgroup.kill", "1"), "all in it are killed");
	cgroup_free(c);
	eq_int(children(TOP "/slice", dir), 0, "nothing is left");

	l = (struct run_limits){.memory = UINT64_MAX, .processes = UINT64_MAX};
	eq_int(cgroup_new(&l, &c), 0, "without limits");
	(void)children(TOP "/slice", dir);
	ok(holds(dir, "pids.max", ""), "processes are not limited");
	ok(!holds(dir, "memory.max", "") && !holds(dir, "memory.max", "max"),
	   "memory is, to less than there is");
	cgroup_free(c);
}

static void test_lacking(void)
{
	struct run_limits l = {.memory = 1000000, .processes = 77};
	struct cgroup *c = NULL;
	char dir[256];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		bool needed = strcmp(files[i], "cgroup.subtree_control") != 0 &&
			      strcmp(files[i], "cgroup.kill") != 0 &&
			      strcmp(files[i], "memory.swap.max") != 0;

		lacks = files[i];
		eq_int(cgroup_new(&l, &c), needed ? -EOPNOTSUPP : 0, "a kernel without %s",
		       files[i]);
		if (!needed)
			cgroup_free(c);
		eq_int(children(TOP "/slice", dir), 0, "leaves nothing behind");
	}
	lacks = "";
}

static void test_sweep(void)
{
	struct run_limits l = {.memory = 1000000, .processes = 77};
	char dir[256], mine[256];
	struct cgroup *c = NULL;
	pid_t dead = _Fork();

	if (dead == 0)
		_exit(0);
	(void)waitpid(dead, NULL, 0);
	(void)snprintf(mine, sizeof(mine), TOP "/slice/rattan-run-%ld-5", (long)getpid());
	(void)snprintf(dir, sizeof(dir), TOP "/slice/rattan-run-%ld-5", (long)dead);
	if (mkdir(mine, 0755) < 0 || mkdir(dir, 0755) < 0 ||
	    mkdir(TOP "/slice/rattan-run-x", 0755) < 0)
		tap_fatal("mkdir");
	eq_int(cgroup_new(&l, &c), 0, "the next one");
	ok(access(dir, F_OK) < 0, "removes what a dead runner left");
	ok(access(mine, F_OK) == 0, "not what a living one has");
	ok(access(TOP "/slice/rattan-run-x", F_OK) == 0, "nor what is none of ours");
	cgroup_free(c);
}

int main(void)
{
	need_namespaces();
	enter();
	if (mkdir(TOP "/slice", 0755) < 0 || mkdir(TOP "/slice/user", 0755) < 0)
		tap_fatal("mkdir");
	stand_in("/slice/user");
	test_where();
	test_limits();
	test_lacking();
	test_sweep();
	return tap_done();
}
