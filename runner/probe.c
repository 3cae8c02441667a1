#include "runner/probe.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/landlock.h"
#include "runner/bwrap_argv.h"
#include "runner/cgroup.h"
#include "runner/runner.h"

static void PRINTF(3, 4) say(char *text, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, size, fmt, ap);
	va_end(ap);
}

#define detail(item, ...) say((item)->detail, sizeof((item)->detail), __VA_ARGS__)
#define remedy(item, ...) say((item)->remedy, sizeof((item)->remedy), __VA_ARGS__)

/* A number from a file of one line; @otherwise where there is no such file. */
static long read_number(const char *path, long otherwise)
{
	cleanup_buf struct buf b = {0};

	if (io_read_file(AT_FDCWD, path, 64, &b) < 0 || b.len == 0)
		return otherwise;
	return strtol((char *)b.data, NULL, 10);
}

static int write_text(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return ret_nerrno();
	return io_write_full(fd, text, strlen(text));
}

/* What @fn returns (0 or negative errno), in a process of its own: namespaces do not stick to us. */
static int in_child(int (*fn)(void))
{
	int status, r;
	pid_t pid;

	pid = fork();
	if (pid < 0)
		return ret_nerrno();
	if (pid == 0) {
		r = fn();
		_exit(r < 0 && r > -255 ? -r : r < 0 ? 255 : 0);
	}
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return ret_nerrno();
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

static int enter_namespaces(void)
{
	char map[32];
	unsigned uid = geteuid(), gid = getegid();
	int r;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return ret_nerrno();
	(void)write_text("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof(map), "0 %u 1", uid);
	r = write_text("/proc/self/uid_map", map);
	(void)snprintf(map, sizeof(map), "0 %u 1", gid);
	return r < 0 ? r : write_text("/proc/self/gid_map", map);
}

/* AppArmor lets a namespace be made and then takes its rights away: so one is used. */
static int use_namespaces(void)
{
	int r = enter_namespaces();

	if (r == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		r = ret_nerrno();
	if (r == 0 && mount("probe", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, NULL) < 0)
		r = ret_nerrno();
	return r;
}

static int mount_fuse(void)
{
	char options[96];
	int fd, r = use_namespaces();

	if (r < 0)
		return r;
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	(void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	/* Never answered, and gone with this process. */
	return mount("probe", "/tmp", "fuse", MS_NOSUID | MS_NODEV, options) < 0 ? ret_nerrno() : 0;
}

/* ---- the items ---- */

static void check_kernel(struct probe_item *it)
{
	struct utsname u;
	int major = 0, minor = 0;

	if (uname(&u) < 0)
		return;
	detail(it, "%s %s", u.sysname, u.release);
	(void)sscanf(u.release, "%d.%d", &major, &minor);
	it->found = major > 5 || (major == 5 && minor >= 11);
	remedy(it, "Linux 5.11 or newer is needed; this machine runs %s.", u.release);
}

/* Whoever serves a provisioning run's calls reads what they name in their caller's memory. */
static void check_ptrace(struct probe_item *it)
{
	long scope = read_number("/proc/sys/kernel/yama/ptrace_scope", 0);

	it->found = scope < 2;
	detail(it, "kernel.yama.ptrace_scope is %ld", scope);
	remedy(it,
	       "Package scripts cannot give files away or make devices (rattan run --provision): "
	       "sudo sysctl -w kernel.yama.ptrace_scope=1%s",
	       scope > 2 ? ", after a restart with that setting, as 3 is final" : "");
}

static void check_userns(struct probe_item *it)
{
	int r = in_child(use_namespaces);

	it->found = r == 0;
	detail(it, "%s", r == 0 ? "made and used one" : err_text(r));
	if (read_number("/proc/sys/user/max_user_namespaces", 1) == 0)
		remedy(it, "User namespaces are turned off: "
			   "sudo sysctl -w user.max_user_namespaces=15000");
	else if (read_number("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0)
		remedy(it, "User namespaces are for root only: "
			   "sudo sysctl -w kernel.unprivileged_userns_clone=1");
	else if (read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) == 1)
		remedy(it, "AppArmor refuses user namespaces to programs without a profile (Ubuntu "
			   "23.10 and newer). Give rattan, rattan-fs and bwrap a profile with the "
			   "rule \"userns,\" in /etc/apparmor.d, or turn the restriction off: sudo "
			   "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
	else
		remedy(it, "The kernel refuses user namespaces here. In a container, start it with "
			   "--security-opt seccomp=unconfined --security-opt apparmor=unconfined "
			   "--security-opt systempaths=unconfined, or run rattan on the host. In a "
			   "chroot it always does: enter the tree with systemd-nspawn, or as a "
			   "container.");
}

static void check_fuse(struct probe_item *it)
{
	int r = in_child(mount_fuse);
	struct stat st;

	it->found = r == 0;
	detail(it, "%s", r == 0 ? "mounted in a user namespace" : err_text(r));
	if (stat("/dev/fuse", &st) < 0)
		remedy(it, "There is no /dev/fuse. On a host: sudo modprobe fuse. In a container: "
			   "start it with --device /dev/fuse.");
	else if (access("/dev/fuse", R_OK | W_OK) < 0)
		remedy(it,
		       "/dev/fuse is not open to this user (mode %o): sudo chmod 666 /dev/fuse, "
		       "which is what distributions do.",
		       (unsigned)st.st_mode & 07777);
	else
		remedy(it,
		       "The kernel refuses a FUSE mount in a user namespace; see the line on user "
		       "namespaces first.");
}

static bool in_path(const char *name)
{
	const char *at = getenv("PATH");
	char path[4096];
	size_t n;

	for (; at && *at; at += n + (at[n] == ':')) {
		n = strcspn(at, ":");
		(void)snprintf(path, sizeof(path), "%.*s/%s", (int)n, at, name);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* The first line that a program says on descriptor @fd; "" when it does not run. */
static void first_line(const char *path, char *const argv[], int fd, char *ret, size_t size)
{
	cleanup_fd int out = -1, end = -1;
	ssize_t n;
	pid_t pid;
	int p[2];

	*ret = '\0';
	if (pipe2(p, O_CLOEXEC) < 0)
		return;
	out = p[0];
	end = p[1];
	pid = fork();
	if (pid == 0) {
		if (dup2(end, fd) >= 0)
			(void)execvp(path, argv);
		_exit(127);
	}
	if (pid < 0)
		return;
	(void)close(steal_fd(&end));
	n = read(out, ret, size - 1);
	ret[n > 0 ? n : 0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Some are built to read it when they unmount for a user. */
static bool lacks_mtab(void)
{
	char *const argv[] = {(char[]){"fusermount3"}, (char[]){"-u"}, (char[]){"--"},
			      (char[]){"/nothing-of-rattan"}, NULL};
	char said[256];

	if (geteuid() == 0 || access("/etc/mtab", F_OK) == 0)
		return false;
	first_line(argv[0], argv, STDERR_FILENO, said, sizeof(said));
	return strstr(said, "/etc/mtab") != NULL;
}

static void check_fusermount(struct probe_item *it)
{
	it->found = in_path("fusermount3");
	detail(it, "%s", it->found ? "for rattan mount" : "not in PATH");
	remedy(it, "Only rattan mount needs it, to show a commit on the host: install the package "
		   "fuse3.");
	if (it->found && lacks_mtab()) {
		it->found = false;
		detail(it, "there is no /etc/mtab, which it reads");
		remedy(it, "rattan umount needs it: as root, ln -s /proc/self/mounts /etc/mtab");
	}
}

static int run_text(const char *text, const char *writable, const char *promises, struct diag *diag,
		    struct run_result *ret)
{
	struct run_spec s;
	struct run *run = NULL;
	int r;

	run_spec_init(&s);
	s.root = "/";
	s.shell = text;
	s.writable = writable;
	s.promises = promises;
	s.cwd = "/";
	s.timeout_ms = 10000;
	r = run_start(&s, diag, &run);
	if (r < 0)
		return r;
	r = run_wait(run, UINT64_MAX, ret);
	run_free(run);
	return r == 1 ? 0 : diag_set(diag, -EIO, "the command's end was not seen");
}

/* --size, of what we ask for the newest, is from 0.7. */
static bool too_old(const char *version)
{
	int major = 0, minor = 0;

	return sscanf(version, "bubblewrap %d.%d", &major, &minor) == 2 && major == 0 && minor < 7;
}

static void check_bwrap(struct probe_item *it)
{
	char version[64] = "";
	cleanup_free char *path = NULL;
	struct run_result res = {0};
	struct diag diag = {0};
	int r;

	r = bwrap_find(NULL, &diag, &path);
	if (r == 0)
		r = run_text(":", "/tmp", NULL, &diag, &res);
	it->found = r == 0 && res.state == RUN_EXITED && res.code == 0;
	if (path)
		first_line(path, (char *const[]){(char[]){"bwrap"}, (char[]){"--version"}, NULL},
			   STDOUT_FILENO, version, sizeof(version));
	if (it->found) {
		detail(it, "%s ran a command (%s)", path, version);
		return;
	}
	detail(it, "%s", r < 0 ? diag.text : res.error);
	if (too_old(version))
		remedy(it, "%s is %s, and 0.7 or newer is needed.", path, version);
	else if (!path)
		remedy(it, "Install the package bubblewrap.");
	else if (r < 0)
		remedy(it, "%s", diag.text);
	else if (!strcmp(res.step, "bwrap"))
		remedy(it,
		       "bwrap cannot build a sandbox here; see the line on user namespaces. In a "
		       "container, /proc must not be masked (--security-opt "
		       "systempaths=unconfined).");
	else
		remedy(it, "The sandbox could not be built at the step \"%s\": %s", res.step,
		       res.error);
}

static void check_landlock(struct probe_item *it)
{
	long abi = landlock_abi();

	it->found = abi > 0;
	if (it->found)
		detail(it, "ABI %ld%s", abi,
		       abi >= 6 ? "" : ": an older one, whose lacks the result of each run names");
	else
		detail(it, "%s", err_text((int)-abi));
	remedy(it, "The second fence around the writable places is missing; the first, in the file "
		   "system, holds. Linux 5.13 with landlock in the kernel's lsm= list has it.");
}

static void check_seccomp(struct probe_item *it)
{
	uint32_t action = SECCOMP_RET_ERRNO;

	it->found = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
	detail(it, "%s", it->found ? "filters" : err_text(errno));
	remedy(it, "The kernel was built without CONFIG_SECCOMP_FILTER.");
}

static void check_cgroup(struct probe_item *it)
{
	cleanup_free char *parent = NULL;
	int r = cgroup_parent(&parent);

	it->found = r == 0;
	detail(it, "%s", r == 0 ? parent : "no writable cgroup v2 with pids and memory");
	remedy(it, "Memory is then limited per process only. A systemd user session has one; start "
		   "rattan with: systemd-run --user --scope -p Delegate=yes rattan ...");
}

/* ---- the self-test ---- */

struct selftest {
	const char *what;
	bool works;    /* with this plan, what is tried must succeed; else it must fail */
	bool writable; /* the directory is one of the plan's writable places */
	const char *promises;
	bool needs_landlock;
};

/* Always in pairs: a refusal proves something only where the same thing works without the rule. */
static const struct selftest selftests[] = {
	{"a write that is allowed", true, true, NULL, false},
	{"a write outside of the writable places", false, false, NULL, true},
	{"a system call that was not promised", false, true,
	 "stdio rpath flock tty proc exec prot_exec id", false},
};

/* Nothing but the shell's own words. Exit 0: the file was written; 9: what must always hold does not
 * (no_new_privs, a filter, no network but loopback). */
#define SELFTEST                                                                               \
	"n=; f=; while read -r k v; do case $k in NoNewPrivs:) n=$v;; Seccomp:) f=$v;; esac; " \
	"done < /proc/self/status; [ \"$n$f\" = 12 ] || exit 9; "                              \
	"while read -r k v; do case $k in Inter-*|face*|lo:*) ;; *) exit 9;; esac; "           \
	"done < /proc/net/dev; "                                                               \
	"echo x > '%s/file' && exit 0; exit 1"

static bool selftest_one(const struct selftest *t, const char *dir, const char *text,
			 struct probe_item *it)
{
	struct run_result res = {0};
	struct diag diag = {0};
	int r;

	r = run_text(text, t->writable ? dir : "/nonexistent", t->promises, &diag, &res);
	if (r < 0 || res.state != RUN_EXITED || res.code == 9) {
		detail(it, "%s: %s", t->what,
		       r < 0                     ? diag.text
		       : res.state == RUN_EXITED ? "the sandbox is not confined"
						 : res.error);
		return false;
	}
	if ((res.code == 0) != t->works) {
		detail(it, "%s %s", t->what, t->works ? "failed" : "succeeded");
		return false;
	}
	return true;
}

static void check_selftest(struct probe_item *it)
{
	bool landlock = landlock_abi() > 0;
	char dir[] = "/tmp/rattan-probe-XXXXXX", path[64], text[1024];
	size_t i, n = 0;

	remedy(it,
	       "Something that must be denied is not, or the sandbox cannot be built: do not run "
	       "agents here before the lines above are found.");
	if (!mkdtemp(dir)) {
		detail(it, "/tmp: %s", err_text(errno));
		return;
	}
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	(void)snprintf(text, sizeof(text), SELFTEST, dir);
	it->found = true;
	for (i = 0; it->found && i < ARRAY_SIZE(selftests); i++) {
		if (selftests[i].needs_landlock && !landlock)
			continue;
		it->found = selftest_one(&selftests[i], dir, text, it);
		(void)unlink(path);
		n++;
	}
	(void)rmdir(dir);
	if (it->found)
		detail(it, "%zu plans: what must be denied is denied, and works without the rule",
		       n);
}

static const struct {
	const char *name;
	enum probe_need need;
	void (*check)(struct probe_item *it);
} checks[] = {
	{"kernel", PROBE_REQUIRED, check_kernel},
	{"user namespaces", PROBE_REQUIRED, check_userns},
	{"FUSE", PROBE_REQUIRED, check_fuse},
	{"fusermount3", PROBE_OPTIONAL, check_fusermount},
	{"seccomp", PROBE_REQUIRED, check_seccomp},
	{"Landlock", PROBE_OPTIONAL, check_landlock},
	{"cgroup", PROBE_OPTIONAL, check_cgroup},
	{"ptrace", PROBE_OPTIONAL, check_ptrace},
	{"bwrap", PROBE_REQUIRED, check_bwrap},
	{"self-test", PROBE_REQUIRED, check_selftest},
};

int probe_run(struct probe_item *items, size_t max, bool *ret_ok)
{
	bool ok = true;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(checks); i++) {
		struct probe_item it = {.name = checks[i].name, .need = checks[i].need};

		checks[i].check(&it);
		if (it.found)
			it.remedy[0] = '\0';
		else if (it.need == PROBE_REQUIRED)
			ok = false;
		if (i < max)
			items[i] = it;
	}
	*ret_ok = ok;
	return (int)(i < max ? i : max);
}
