/* stage3/root_path.c and root_calls.c: the file that a caught call means is the one that its caller means, wherever that is and however it
 * is named; what cannot be had is the kernel's to refuse. (What the attributes of the mount make of it: tests/e2e/provision.py.) */
#include "stage3/root_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage3/root_abi.h"
#include "stage3/root_path.h"
#include "stage3/root_who.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#define CALLER_FD 77 /* of the caller: a directory */
#define CALLER_OP 78 /* and a file by O_PATH */
#define OURS_ONLY 79 /* and one that it does not have */

static char top[ROOT_PATH];

/* ---- a caller that waits in a caught call ---- */

struct caller {
	pid_t pid;
	struct root_caller c;
};

/* What it has to say about its memory, shared. */
static char *told;

static int catch_sync(void)
{
	static struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = {.len = sizeof(f) / sizeof(*f), .filter = f};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
		       ? -1
		       : (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				      SECCOMP_FILTER_FLAG_NEW_LISTENER, &p);
}

/* The caller's side: in @cwd, and where @root is one, with that as its root. */
static void be_caller(const char *cwd, const char *root, int say)
{
	int fd = open("dir", O_RDONLY | O_DIRECTORY), op = open("file", O_PATH), listener;

	(void)close(OURS_ONLY);
	if (fd < 0 || op < 0 || dup2(fd, CALLER_FD) < 0 || dup2(op, CALLER_OP) < 0)
		_exit(1);
	if (root && (unshare(CLONE_NEWUSER) < 0 || chroot(root) < 0))
		_exit(2);
	if (chdir(cwd) < 0)
		_exit(3);
	listener = catch_sync();
	if (listener < 0 || write(say, &listener, sizeof(listener)) != sizeof(listener))
		_exit(4);
	(void)syscall(SYS_getpriority, 0, 0);
	_exit(0);
}

static void begin(struct caller *x, const char *cwd, const char *root)
{
	struct seccomp_notif n;
	int p[2], theirs, pidfd;

	if (pipe(p) < 0)
		tap_fatal("pipe");
	fflush(stdout);
	x->pid = _Fork();
	if (x->pid == 0)
		be_caller(cwd, root, p[1]);
	(void)close(p[1]);
	if (read(p[0], &theirs, sizeof(theirs)) != sizeof(theirs))
		tap_fatal("no caller");
	(void)close(p[0]);
	pidfd = (int)syscall(SYS_pidfd_open, x->pid, 0);
	x->c = (struct root_caller){.pid = (uint32_t)x->pid,
				    .listener = (int)syscall(SYS_pidfd_getfd, pidfd, theirs, 0)};
	(void)close(pidfd);
	memset(&n, 0, sizeof(n));
	if (x->c.listener < 0 || ioctl(x->c.listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
		tap_fatal("its call was not caught");
	x->c.id = n.id;
}

static void end(struct caller *x)
{
	(void)kill(x->pid, SIGKILL);
	(void)waitpid(x->pid, NULL, 0);
	(void)close(x->c.listener);
}

/* ---- which file ---- */

/* Does the caller's name mean our file @want? NULL: nothing. */
static void means(const struct caller *x, int dir, const char *name, int flags, const char *want)
{
	char path[ROOT_PATH];
	struct stat a = {0}, b = {0};
	int fd;

	(void)snprintf(path, sizeof(path), "%s", name);
	fd = root_open(&x->c, dir, path, flags);
	if (!want) {
		ok(fd < 0, "'%s' is nothing", name);
	} else {
		ok(fd >= 0 && fstat(fd, &a) == 0 && lstat(want, &b) == 0 && a.st_ino == b.st_ino &&
			   a.st_dev == b.st_dev,
		   "'%s' is %s", name, want);
		ok(fd < 0 || (fcntl(fd, F_GETFL) & O_PATH), "it is not opened");
	}
	if (fd >= 0)
		(void)close(fd);
}

static void test_names(void)
{
	char abs[ROOT_PATH + 32], self[64];
	struct caller x;

	begin(&x, "dir", NULL);
	means(&x, AT_FDCWD, "below", 0, "dir/below");
	means(&x, AT_FDCWD, "../file", 0, "file");
	means(&x, AT_FDCWD, "nothing", 0, NULL);
	means(&x, AT_FDCWD, "below/x", 0, NULL);
	means(&x, AT_FDCWD, "", 0, "dir");
	means(&x, CALLER_FD, "", 0, "dir");
	means(&x, CALLER_FD, "below", 0, "dir/below");
	means(&x, CALLER_OP, "", 0, "file");
	means(&x, 999, "", 0, NULL);
	means(&x, 999, "below", 0, NULL);
	(void)snprintf(abs, sizeof(abs), "%s/file", top);
	means(&x, 999, abs, 0, "file");
	means(&x, AT_FDCWD, "../link", 0, "file");
	means(&x, AT_FDCWD, "../link", O_NOFOLLOW, "link");
	means(&x, AT_FDCWD, "../dangling", 0, NULL);
	means(&x, AT_FDCWD, "../dangling", O_NOFOLLOW, "dangling");
	means(&x, AT_FDCWD, "../loop", 0, NULL);
	means(&x, AT_FDCWD, "../file", O_DIRECTORY, NULL);
	/* What /proc says of "self" is said of the caller. */
	means(&x, AT_FDCWD, "/proc/self/cwd", 0, "dir");
	means(&x, AT_FDCWD, "/proc/self/cwd/below", 0, "dir/below");
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d/below", CALLER_FD);
	means(&x, AT_FDCWD, self, 0, "dir/below");
	(void)snprintf(self, sizeof(self), "/proc/thread-self/fd/%d", CALLER_OP);
	means(&x, AT_FDCWD, self, 0, "file");
	means(&x, AT_FDCWD, "../to-self/cwd/below", 0, "dir/below");
	means(&x, AT_FDCWD, "../to-self/cwd/below/", 0, NULL);
	means(&x, AT_FDCWD, "/proc/self/cwd/", 0, "dir");
	means(&x, AT_FDCWD, "../to-fd", 0,
	      NULL); /* no such descriptor of the caller's, whatever there is of ours */
	ok(root_path_only(&x.c, CALLER_OP) && !root_path_only(&x.c, CALLER_FD) &&
		   !root_path_only(&x.c, 999),
	   "which of its descriptors is one of O_PATH");
	end(&x);
}

static void test_other_root(void)
{
	struct caller x;

	begin(&x, "/below", "jail");
	means(&x, AT_FDCWD, "/file", 0, "jail/file");
	means(&x, AT_FDCWD, "../../../file", 0, "jail/file");
	means(&x, AT_FDCWD, "in", 0, "jail/below/in");
	means(&x, AT_FDCWD, "/out", 0, "jail/file");
	means(&x, AT_FDCWD, "/out", O_NOFOLLOW, "jail/out");
	means(&x, CALLER_FD, "below", 0, NULL); /* outside of its root */
	end(&x);
}

static void test_gone(void)
{
	struct caller x;

	begin(&x, "dir", NULL);
	(void)kill(x.pid, SIGKILL);
	(void)waitpid(x.pid, NULL, 0);
	means(&x, AT_FDCWD, "below", 0, NULL);
	means(&x, AT_FDCWD, "/", 0, NULL);
	(void)close(x.c.listener);
}

static void forget(struct root_people *p)
{
	for (unsigned i = 0; i < p->n; i++)
		free(p->v[i]);
	free(p->v);
}

/* ---- calls ---- */

struct call {
	const char *what;
	int nr;
	uint64_t a[6];
	bool mine;
};

/* On a file system without our attributes; @told is memory of the caller's, too. */
static void test_calls(void)
{
	const uint64_t p = (uint64_t)(uintptr_t)told, cwd = (uint64_t)(int64_t)AT_FDCWD;
	const struct call v[] = {
		{"who is nobody else", SYS_getuid, {0}, false},
		{"nor has other groups", SYS_getgroups, {0, 0}, false},
		{"another id", SYS_setuid, {0}, true},
		{"other groups", SYS_setgroups, {0, 0}, true},
		{"of a file without another owner the kernel tells",
		 SYS_newfstatat,
		 {cwd, p, p + 8192, 0},
		 false},
		{"and with statx", SYS_statx, {cwd, p, 0, STATX_ALL, p + 8192}, false},
		{"a descriptor", SYS_fstat, {CALLER_FD, p + 8192}, false},
		{"a file system that cannot: the kernel refuses",
		 SYS_fchownat,
		 {cwd, p, 33, 44, 0},
		 false},
		{"a flag that nobody knows", SYS_fchownat, {cwd, p, 33, 44, 0x80000}, false},
		{"a descriptor of O_PATH", SYS_fchown, {CALLER_OP, 33, 44}, false},
		{"no such descriptor", SYS_fchown, {999, 33, 44}, false},
		{"no memory", SYS_fchownat, {cwd, 8, 33, 44, 0}, false},
		{"a path without an end", SYS_fchownat, {cwd, p + 16384, 33, 44, 0}, false},
		{"nothing there", SYS_fchownat, {cwd, p + 4096, 33, 44, 0}, false},
		{"no name", SYS_fchownat, {cwd, p + 12000, 33, 44, 0}, false},
		{"a device there", SYS_mknodat, {cwd, p + 4096, S_IFCHR | 0600, 0x103}, false},
		{"a list that names others, on a file system that cannot",
		 SYS_setxattr,
		 {p, p + 13000, p + 13100, 44, 0},
		 false},
		{"a list of nothing", SYS_setxattr, {p, p + 13000, p + 13100, 0, 0}, false},
		{"a list from nowhere", SYS_setxattr, {p, p + 13000, 8, 44, 0}, false},
		{"a list larger than any",
		 SYS_setxattr,
		 {p, p + 13000, p + 13100, 65537, 0},
		 false},
		{"half of a list", SYS_setxattr, {p, p + 13000, p + 13100, 43, 0}, false},
		{"there is none", SYS_getxattr, {p, p + 13000, p + 8192, 100}, false},
		{"another attribute", SYS_getxattr, {p, p + 4096, p + 8192, 100}, false},
		{"of a descriptor of O_PATH",
		 SYS_fgetxattr,
		 {CALLER_OP, p + 13000, p + 8192, 100},
		 false},
		{"a device without a name",
		 SYS_mknodat,
		 {cwd, p + 12100, S_IFCHR | 0600, 0x103},
		 false},
	};
	struct root_people people = {0};
	struct caller x;

	begin(&x, "dir", NULL);
	x.c.people = &people;
	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++) {
		struct seccomp_data d = {.nr = v[i].nr};
		struct root_answer a;

		memcpy(d.args, v[i].a, sizeof(v[i].a));
		a = root_call(&d, &x.c);
		ok(a.mine == v[i].mine && !a.error, "%s", v[i].what);
	}
	ok(access("dir/not-there", F_OK) < 0, "nothing was made");
	end(&x);
	forget(&people);
}

/* ---- who a process believes to be ---- */

#define NONE  UINT64_C(0xffffffff) /* -1 */
#define TOLD  ((uint64_t)(uintptr_t)told)
#define LARGE ((uint64_t)ROOT_ID_MAX + 1)

/* One after the other, by one process; @want: an error, or what it returns. */
struct who_step {
	const char *what;
	int nr;
	uint64_t a[3];
	int64_t want;
	uint32_t uid[3], gid[3]; /* afterwards */
};

static int64_t call_of(const struct caller *x, int nr, uint64_t a, uint64_t b, uint64_t c)
{
	const struct seccomp_data d = {.nr = nr, .args = {a, b, c}};
	struct root_answer r = root_call(&d, &x->c);

	if (!r.mine)
		return INT64_MIN;
	return r.error ? r.error : r.value;
}

/* By all calls that tell. */
static bool is_who(const struct caller *x, const uint32_t uid[3], const uint32_t gid[3])
{
	uint32_t *three = (uint32_t *)(void *)(told + 8192);
	const uint64_t at = TOLD + 8192;

	if (call_of(x, SYS_getuid, 0, 0, 0) != uid[0] ||
	    call_of(x, SYS_geteuid, 0, 0, 0) != uid[1] ||
	    call_of(x, SYS_getgid, 0, 0, 0) != gid[0] ||
	    call_of(x, SYS_getegid, 0, 0, 0) != gid[1] ||
	    call_of(x, SYS_getresuid, at, at + 4, at + 8) != 0 ||
	    memcmp(three, uid, 3 * sizeof(*uid)) != 0)
		return false;
	return call_of(x, SYS_getresgid, at, at + 4, at + 8) == 0 &&
	       !memcmp(three, gid, 3 * sizeof(*gid));
}

/* The manual pages of the calls say so. */
static const struct who_step steps[] = {
	{"a group first", SYS_setresgid, {5, 6, 7}, 0, {0}, {5, 6, 7}},
	{"some stay", SYS_setresgid, {NONE, 8, NONE}, 0, {0}, {5, 8, 7}},
	{"of two, the effective one is saved", SYS_setregid, {9, 10}, 0, {0}, {9, 10, 10}},
	{"all at once", SYS_setgid, {11}, 0, {0}, {11, 11, 11}},
	{"too large", SYS_setgid, {LARGE}, -EINVAL, {0}, {11, 11, 11}},
	{"-1 is none", SYS_setuid, {NONE}, -EINVAL, {0}, {11, 11, 11}},
	{"effective for a while", SYS_setreuid, {NONE, 33}, 0, {0, 33, 33}, {11, 11, 11}},
	{"that was the saved one, too",
	 SYS_setresuid,
	 {NONE, NONE, 0},
	 0,
	 {0, 33, 0},
	 {11, 11, 11}},
	{"who is not root has no other group", SYS_setgid, {12}, -EPERM, {0, 33, 0}, {11, 11, 11}},
	{"but its own", SYS_setresgid, {11, NONE, 11}, 0, {0, 33, 0}, {11, 11, 11}},
	{"nor sets groups", SYS_setgroups, {0, 0}, -EPERM, {0, 33, 0}, {11, 11, 11}},
	{"nor becomes a third", SYS_setresuid, {NONE, 44, NONE}, -EPERM, {0, 33, 0}, {11, 11, 11}},
	{"nor by another call", SYS_setuid, {44}, -EPERM, {0, 33, 0}, {11, 11, 11}},
	{"nor by a third one", SYS_setreuid, {44, NONE}, -EPERM, {0, 33, 0}, {11, 11, 11}},
	{"back by what was saved", SYS_setuid, {0}, 0, {0, 0, 0}, {11, 11, 11}},
	{"for files alone", SYS_setfsuid, {33}, 0, {0, 0, 0}, {11, 11, 11}},
	{"it tells what was", SYS_setfsuid, {NONE}, 33, {0, 0, 0}, {11, 11, 11}},
	{"and back", SYS_setfsuid, {0}, 33, {0, 0, 0}, {11, 11, 11}},
	{"the group of files", SYS_setfsgid, {12}, 11, {0, 0, 0}, {11, 11, 11}},
	{"groups stay to be changed",
	 SYS_prctl,
	 {PR_SET_KEEPCAPS, 1},
	 INT64_MIN,
	 {0},
	 {11, 11, 11}},
	{"for good", SYS_setuid, {33}, 0, {33, 33, 33}, {11, 11, 11}},
	{"kept: another group", SYS_setresgid, {13, 13, 13}, 0, {33, 33, 33}, {13, 13, 13}},
	{"but no other user", SYS_setuid, {0}, -EPERM, {33, 33, 33}, {13, 13, 13}},
	{"no more", SYS_prctl, {PR_SET_KEEPCAPS, 0}, INT64_MIN, {33, 33, 33}, {13, 13, 13}},
	{"now it is over", SYS_setgid, {14}, -EPERM, {33, 33, 33}, {13, 13, 13}},
	{"the same again, as each thread says it",
	 SYS_setresuid,
	 {33, 33, 33},
	 0,
	 {33, 33, 33},
	 {13, 13, 13}},
};

static uint64_t carried_by(pid_t pid)
{
	struct rlimit lim;

	return prlimit(pid, ROOT_WHO_LIMIT, NULL, &lim) < 0 ? 0 : lim.rlim_cur;
}

static void test_groups_of(const struct caller *x)
{
	static const uint32_t want[] = {7, 300, 70000};

	memcpy(told + 8192, want, sizeof(want));
	ok(call_of(x, SYS_setgroups, 3, TOLD + 8192, 0) == 0, "three groups");
	memset(told + 8192, 0, sizeof(want));
	ok(call_of(x, SYS_getgroups, 0, 0, 0) == 3, "so many it has");
	ok(call_of(x, SYS_getgroups, 2, TOLD + 8192, 0) == -EINVAL, "there is no room for them");
	ok(call_of(x, SYS_getgroups, NONE, TOLD + 8192, 0) == -EINVAL, "nor in less than none");
	ok(call_of(x, SYS_getgroups, 9, TOLD + 8192, 0) == 3 &&
		   !memcmp(told + 8192, want, sizeof(want)),
	   "and they are those");
	ok(call_of(x, SYS_setgroups, 65537, TOLD, 0) == -EINVAL, "more than there can be");
	ok(call_of(x, SYS_setgroups, ROOT_GROUPS_MAX + 1, TOLD, 0) == -ENOMEM,
	   "more than are kept");
	ok(call_of(x, SYS_setgroups, 2, 8, 0) == -EFAULT, "from where there is nothing");
	errno = EPERM; /* of something else */
	ok(call_of(x, SYS_setgroups, 2, TOLD + 5 * 4096 - 4, 0) == -EFAULT, "from where half is");
	ok(call_of(x, SYS_getgroups, 0, 0, 0) == 3, "nothing has changed");
}

static void test_who(void)
{
	struct root_people people = {0};
	struct root_owner o;
	struct caller x;
	unsigned had;

	begin(&x, "dir", NULL);
	x.c.people = &people;
	ok(carried_by(x.pid) == RLIM_INFINITY, "nothing is carried at first");
	test_groups_of(&x);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		const struct who_step *s = &steps[i];
		int64_t got = call_of(&x, s->nr, s->a[0], s->a[1], s->a[2]);

		ok(got == s->want && is_who(&x, s->uid, s->gid), "%s (%lld)", s->what,
		   (long long)got);
	}
	o = root_who_owner(carried_by(x.pid));
	ok(o.uid == 33 && o.gid == 13, "the file system sees who makes a file");
	had = people.n;
	for (int i = 0; i < 100; i++)
		(void)call_of(&x, SYS_setfsuid, 33, 0, 0);
	ok(people.n == had, "who is known is not noted again");
	end(&x);
	forget(&people);
}

/* A host that sets the limit has root alone, as before. */
static void test_who_limited(void)
{
	struct root_people people = {0};
	struct rlimit lim = {0}; /* the number of whom is noted first */
	struct caller x;

	begin(&x, "dir", NULL);
	x.c.people = &people;
	ok(prlimit(x.pid, ROOT_WHO_LIMIT, &lim, NULL) == 0, "a limit");
	ok(call_of(&x, SYS_setuid, 33, 0, 0) == 0 && call_of(&x, SYS_getuid, 0, 0, 0) == INT64_MIN,
	   "nothing is carried, and nothing fails");
	end(&x);
	forget(&people);
}

/* No more than the number can tell. */
static void test_who_many(void)
{
	struct root_people people = {0};
	struct caller x;
	int64_t r = 0;
	uint64_t id = 0;

	begin(&x, "dir", NULL);
	x.c.people = &people;
	while (r >= 0 && id < 2 * ROOT_WHO_MAX)
		r = call_of(&x, SYS_setresuid, 0, ++id, NONE) < 0
			    ? -EAGAIN
			    : call_of(&x, SYS_setuid, 0, 0, 0);
	ok(r == -EAGAIN && people.n == ROOT_WHO_MAX, "so many and no more (%u)", people.n);
	ok(call_of(&x, SYS_setfsuid, 0, 0, 0) == 0, "who was there can be again");
	end(&x);
	forget(&people);
}

static void put(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd < 0)
		tap_fatal("cannot make %s", path);
	(void)close(fd);
}

static void link_to(const char *to, const char *path)
{
	if (symlink(to, path) < 0)
		tap_fatal("cannot make %s", path);
}

static void make_files(void)
{
	/* u::rw-, u:33:r--, g::r--, m::r--, o::r-- */
	static const uint8_t list[44] = {
		2, 0,  0,   0,   1,   0,   6,  0, 0xff, 0xff, 0xff, 0xff, 2,    0,  4,
		0, 33, 0,   0,   0,   4,   0,  4, 0,    255,  0xff, 0xff, 0xff, 16, 0,
		4, 0,  255, 255, 255, 255, 32, 0, 4,    0,    255,  255,  255,  255};
	char fd[64];

	if (mkdir("dir", 0700) < 0 || mkdir("jail", 0700) < 0 || mkdir("jail/below", 0700) < 0)
		tap_fatal("mkdir");
	put("file");
	put("dir/below");
	put("jail/file");
	put("jail/below/in");
	link_to("/file", "jail/out");
	link_to("file", "link");
	link_to("nowhere", "dangling");
	link_to("loop", "loop");
	link_to("/proc/self", "to-self");
	(void)snprintf(fd, sizeof(fd), "/proc/self/fd/%d", OURS_ONLY);
	link_to(fd, "to-fd");
	if (dup2(open("file", O_RDONLY), OURS_ONLY) < 0)
		tap_fatal("dup2");
	told = mmap(NULL, 6 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED || mprotect(told + 5 * 4096, 4096, PROT_NONE) < 0)
		tap_fatal("mmap");
	(void)snprintf(told, 4096, "below");
	(void)snprintf(told + 4096, 4096, "not-there");
	(void)snprintf(told + 13000, 100, "system.posix_acl_access");
	memcpy(told + 13100, list, sizeof(list));
	memset(told + 4 * 4096, 'x', 4096);
}

int main(void)
{
	char where[] = "/tmp/rattan-root-XXXXXX";

	need_namespaces();
	if (!mkdtemp(where) || chdir(where) < 0 || !realpath(".", top))
		tap_fatal("no directory of its own");
	make_files();
	test_names();
	test_other_root();
	test_gone();
	test_calls();
	test_who();
	test_who_limited();
	test_who_many();
	tree_remove(top);
	return tap_done();
}
