/* Landlock, limits and seccomp, each in a process of its own, and each refusal beside the same thing
 * without the rule. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage3/landlock.h"
#include "stage3/limits.h"
#include "stage3/seccomp.h"
#include "tests/lib/tap.h"

static char top[] = "/tmp/rattan-test-XXXXXX";

/* What @fn returns, in a child: 0..254, or 255 when it died. */
static int child(int (*fn)(const struct plan *), const struct plan *plan)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(fn(plan));
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 255;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int confine(const struct plan *plan)
{
	int abi = 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return landlock_apply(plan, &abi);
}

static int try_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		return errno;
	(void)close(fd);
	return 0;
}

static int write_in(const struct plan *plan)
{
	if (plan && confine(plan) < 0)
		return 200;
	return try_open("in/file", O_WRONLY | O_CREAT);
}

static int write_out(const struct plan *plan)
{
	if (plan && confine(plan) < 0)
		return 200;
	return try_open("out/file", O_WRONLY | O_CREAT);
}

static int remove_out(const struct plan *plan)
{
	if (plan && confine(plan) < 0)
		return 200;
	return unlink("out/victim") < 0 ? errno : 0;
}

static int truncate_out(const struct plan *plan)
{
	if (plan && confine(plan) < 0)
		return 200;
	return truncate("out/kept", 0) < 0 ? errno : 0;
}

static int rename_in(const struct plan *plan)
{
	if (plan && confine(plan) < 0)
		return 200;
	if (mkdir("in/a", 0755) < 0 || mkdir("in/b", 0755) < 0)
		return errno;
	if (try_open("in/a/f", O_WRONLY | O_CREAT))
		return 201;
	return rename("in/a/f", "in/b/f") < 0 ? errno : 0;
}

static int exec_in(const struct plan *plan)
{
	char *argv[] = {NULL, NULL}, *envp[] = {NULL}, path[] = "in/true";

	if (plan && confine(plan) < 0)
		return 200;
	argv[0] = path;
	(void)execve(path, argv, envp);
	return errno;
}

static int exec_out(const struct plan *plan)
{
	char *argv[] = {NULL, NULL}, *envp[] = {NULL}, path[] = "out/true";

	if (plan && confine(plan) < 0)
		return 200;
	argv[0] = path;
	(void)execve(path, argv, envp);
	return errno;
}

static int signal_parent(const struct plan *plan)
{
	if (plan && confine(plan) < 0)
		return 200;
	return kill(getppid(), 0) < 0 ? errno : 0;
}

static void touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, "x", 1) != 1)
		tap_fatal("cannot write %s", path);
	(void)close(fd);
}

static void install_true(const char *to)
{
	static uint8_t bytes[1 << 20];
	int in = open("/bin/true", O_RDONLY | O_CLOEXEC), out;
	ssize_t n = in < 0 ? -1 : read(in, bytes, sizeof(bytes));

	out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	if (n <= 0 || out < 0 || write(out, bytes, (size_t)n) != n)
		tap_fatal("cannot copy /bin/true");
	(void)close(in);
	(void)close(out);
}

#define READS (STAGE3_READ_FILE | STAGE3_READ_DIR)
#define EVERY STAGE3_RIGHTS_ALL

static void test_landlock(void)
{
	static const struct stage3_rule rules[] = {
		{READS | STAGE3_EXECUTE, 0}, {EVERY, 0}, {EVERY, STAGE3_RULE_MAY_MISS}};
	char root[] = "/", in[64], miss[] = "/nonexistent-place";
	char *paths[] = {root, in, miss};
	struct plan plan = {
		.flags = STAGE3_PLAN_LANDLOCK, .rules = rules, .rule_paths = paths, .nrules = 3};

	(void)snprintf(in, sizeof(in), "%s/in", top);
	eq_int(child(write_out, NULL), 0, "a file is made outside without rules");
	(void)unlink("out/file");
	eq_int(child(write_out, &plan), EACCES, "and refused with them");
	eq_int(child(write_in, &plan), 0, "a file is made in the writable place");
	touch("out/victim");
	eq_int(child(remove_out, &plan), EACCES, "removal outside is refused");
	eq_int(child(remove_out, NULL), 0, "and works without rules");
	touch("out/kept");
	eq_int(child(truncate_out, &plan), EACCES, "truncation outside is refused");
	eq_int(child(truncate_out, NULL), 0, "and works without rules");
	eq_int(child(rename_in, &plan), 0, "a rename between directories of a writable place");
	eq_int(child(exec_in, &plan), 0, "a program runs from the writable place");
	eq_int(child(signal_parent, NULL), 0, "a signal to a process outside, without rules");
	eq_int(child(signal_parent, &plan), EPERM, "and refused with them (scope)");
	plan.nrules = 2;
	paths[1] = miss;
	eq_int(child(write_in, &plan), 200, "a place that must exist and does not ends it");
}

static void test_landlock__around(void)
{
	static const struct stage3_rule rules[] = {{READS, 0},
						   {STAGE3_EXECUTE, STAGE3_RULE_AROUND},
						   {EVERY & ~STAGE3_EXECUTE, STAGE3_RULE_HOLE}};
	char root[] = "/", in[64];
	char *paths[] = {root, root, in};
	struct plan plan = {
		.flags = STAGE3_PLAN_LANDLOCK, .rules = rules, .rule_paths = paths, .nrules = 3};

	(void)snprintf(in, sizeof(in), "%s/in", top);
	eq_int(child(exec_out, &plan), 0, "a program runs from beside the hole");
	eq_int(child(exec_in, &plan), EACCES, "and not from the hole");
	eq_int(child(write_in, &plan), 0, "which is writable");
	/* By its other name. */
	(void)snprintf(in, sizeof(in), "%s/link", top);
	eq_int(child(exec_in, &plan), EACCES, "a hole named through a link is the same place");
}

static int limited(const struct plan *plan)
{
	struct rlimit rl;

	if (plan && limits_apply(plan) < 0)
		return 200;
	if (getrlimit(RLIMIT_FSIZE, &rl) < 0)
		return 201;
	return rl.rlim_cur == 4096 && rl.rlim_max == 4096;
}

static int score(const struct plan *plan)
{
	char text[16] = {0};
	int fd;

	if (limits_oom(plan) < 0)
		return 200;
	fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		return 201;
	(void)close(fd);
	return (int)strtol(text, NULL, 10) == 777 ? 0 : 1;
}

static void test_limits(void)
{
	static const struct stage3_limit l[] = {{.resource = RLIMIT_FSIZE, .value = 4096},
						{.resource = RLIMIT_NOFILE, .value = UINT64_MAX}};
	struct plan plan = {.limits = l, .nlimits = 2, .oom_score_adj = 777};

	eq_int(child(limited, NULL), 0, "no limit by itself");
	eq_int(child(limited, &plan), 1, "a limit holds, soft and hard; one above ours is ours");
	eq_int(child(score, &plan), 0, "the memory killer's score");
}

static int filtered(const struct plan *plan)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_apply(plan) < 0)
		return 200;
	return syscall(SYS_getppid) < 0 ? errno : 0;
}

static void test_seccomp(void)
{
	static struct sock_filter deny[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static struct sock_filter broken[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 9999)};
	struct plan none = {0};
	struct plan one = {.nfilters = 1, .filter = {deny}, .filter_len = {4}};
	struct plan two = {.nfilters = 2, .filter = {deny, broken}, .filter_len = {4, 1}};

	eq_int(child(filtered, &none), 0, "a call without a filter");
	eq_int(child(filtered, &one), EXDEV, "and with one");
	eq_int(child(filtered, &two), 200, "a filter that the kernel refuses ends it");
}

int main(void)
{
	int abi = (int)syscall(444, NULL, 0, 1);

	if (!mkdtemp(top) || chdir(top) < 0 || mkdir("in", 0755) < 0 || mkdir("out", 0755) < 0 ||
	    symlink("in", "link") < 0)
		tap_fatal("cannot make %s", top);
	install_true("in/true");
	install_true("out/true");
	eq_int(landlock_handled(1), 0x1fff, "rights of ABI 1");
	eq_int(landlock_handled(2), 0x3fff, "rights of ABI 2");
	eq_int(landlock_handled(4), 0x7fff, "rights of ABI 4");
	eq_int(landlock_handled(99), STAGE3_RIGHTS_ALL, "rights of a later ABI");
	if (abi >= 6) {
		test_landlock();
		test_landlock__around();
	} else {
		ok(1, "Landlock of ABI 6 is not here # SKIP");
	}
	test_limits();
	test_seccomp();
	if (chdir("/") == 0) {
		char cmd[128];

		(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
		(void)!system(cmd);
	}
	return tap_done();
}
