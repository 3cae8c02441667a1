/* Limits and seccomp, each in a process of its own, and each refusal beside the same thing without the rule. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stage3/limits.h"
#include "stage3/seccomp.h"
#include "tests/lib/tap.h"
#include "tests/unit/stage3/child.h"

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
	test_limits();
	test_seccomp();
	return tap_done();
}
