#include "net/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self  446
#endif

/* linux/landlock.h, of which older headers lack parts. All but reading, which a resolver does in many places. */
#define CREATE_RULESET_VERSION 1u
#define READ_FILE              (1u << 2)
#define READ_DIR               (1u << 3)

static uint64_t handled(long abi)
{
	uint64_t all = (1u << 13) - 1; /* ABI 1 */

	if (abi >= 2)
		all |= 1u << 13; /* REFER */
	if (abi >= 3)
		all |= 1u << 14; /* TRUNCATE */
	if (abi >= 5)
		all |= 1u << 15; /* IOCTL_DEV */
	return all & ~(uint64_t)(READ_FILE | READ_DIR);
}

/* Who asks for more than reading has it from the filter, too: a kernel without Landlock is no reason not to start. */
static int landlock(void)
{
	struct {
		uint64_t fs, net, scoped;
	} attr = {0};
	cleanup_fd int fd = -1;
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);

	if (abi <= 0)
		return 0;
	attr.fs = handled(abi);
	attr.scoped = abi >= 6 ? 2 : 0; /* signals to others */
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (fd < 0)
		return ret_nerrno();
	return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? ret_nerrno() : 0;
}

/* ---- calls ---- */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH
#define X32_BIT 0x40000000u

/* Of O_ACCMODE both bits: what is opened is read, or nothing. */
#define OPEN_WRITES ((unsigned)(O_ACCMODE | O_CREAT | O_TRUNC | O_TMPFILE) & ~(unsigned)O_DIRECTORY)

/* Programs, files, other processes, and parts of the kernel that a resolver has no business with. */
static const int refused[] = {
	SYS_execve,
	SYS_execveat,
	SYS_ptrace,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_kill,
	SYS_tkill,
	SYS_rt_sigqueueinfo,
	SYS_unlinkat,
	SYS_renameat2,
	SYS_mkdirat,
	SYS_mknodat,
	SYS_linkat,
	SYS_symlinkat,
	SYS_truncate,
	SYS_fchmod,
	SYS_fchmodat,
	SYS_fchown,
	SYS_fchownat,
	SYS_utimensat,
	SYS_setxattr,
	SYS_lsetxattr,
	SYS_fsetxattr,
	SYS_removexattr,
	SYS_lremovexattr,
	SYS_fremovexattr,
	SYS_mount,
	SYS_umount2,
	SYS_pivot_root,
	SYS_chroot,
	SYS_unshare,
	SYS_setns,
	SYS_bpf,
	SYS_perf_event_open,
	SYS_userfaultfd,
	SYS_keyctl,
	SYS_add_key,
	SYS_request_key,
	424, /* pidfd_send_signal */
	425, /* io_uring_setup */
	426, /* io_uring_enter */
	427, /* io_uring_register */
	438, /* pidfd_getfd */
	452, /* fchmodat2 */
	463, /* setxattrat */
	466, /* removexattrat */
#ifdef SYS_renameat
	SYS_renameat,
#endif
#ifdef __x86_64__
	SYS_creat,
	SYS_unlink,
	SYS_rename,
	SYS_mkdir,
	SYS_rmdir,
	SYS_mknod,
	SYS_link,
	SYS_symlink,
	SYS_chmod,
	SYS_chown,
	SYS_lchown,
	SYS_utime,
	SYS_utimes,
	SYS_futimesat,
#endif
};

struct program {
	struct sock_filter f[2 * ARRAY_SIZE(refused) + 32];
	unsigned short n;
};

static void add(struct program *p, struct sock_filter f)
{
	p->f[p->n++] = f;
}

static void load(struct program *p, size_t offset)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void answer(struct program *p, uint32_t action)
{
	add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* Where it does not hold, @n instructions are passed over. */
static void unless_skip(struct program *p, int how, uint32_t value, uint8_t n)
{
	add(p, (struct sock_filter)BPF_JUMP((unsigned short)(BPF_JMP | how | BPF_K), value, 0, n));
}

static void opens(struct program *p, int nr, unsigned arg)
{
	unless_skip(p, BPF_JEQ, (uint32_t)nr, 4);
	load(p, offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t)); /* the lower half */
	unless_skip(p, BPF_JSET, OPEN_WRITES, 1);
	answer(p, SECCOMP_RET_ERRNO | EACCES);
	answer(p, SECCOMP_RET_ALLOW);
}

static int filter(void)
{
	struct program p = {.n = 0};
	struct sock_fprog prog;

	load(&p, offsetof(struct seccomp_data, arch));
	add(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	answer(&p, SECCOMP_RET_KILL_PROCESS);
	load(&p, offsetof(struct seccomp_data, nr));
	unless_skip(&p, BPF_JGE, X32_BIT, 1);
	answer(&p, SECCOMP_RET_KILL_PROCESS);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		unless_skip(&p, BPF_JEQ, (uint32_t)refused[i], 1);
		answer(&p, SECCOMP_RET_ERRNO | EACCES);
	}
	/* Its flags are in memory. */
	unless_skip(&p, BPF_JEQ, 437, 1);
	answer(&p, SECCOMP_RET_ERRNO | ENOSYS);
	opens(&p, SYS_openat, 2);
#ifdef SYS_open
	opens(&p, SYS_open, 1);
#endif
	answer(&p, SECCOMP_RET_ALLOW);
	prog = (struct sock_fprog){.len = p.n, .filter = p.f};
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0 ? ret_nerrno() : 0;
}
#else
static int filter(void)
{
	return 0;
}
#endif

int confine(int last)
{
	const struct rlimit none = {0, 0};
	int r;

	(void)prctl(PR_SET_NAME, "rattan-net", 0, 0, 0);
	/* Before Linux 5.9 the runner's child has done so, but for its own program's. */
	if (syscall(SYS_close_range, (unsigned)last + 1, ~0u, 0) < 0 && errno != ENOSYS)
		return ret_nerrno();
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return ret_nerrno();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return ret_nerrno();
	if (setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_FSIZE, &none) < 0)
		return ret_nerrno();
	r = landlock();
	return r < 0 ? r : filter();
}
