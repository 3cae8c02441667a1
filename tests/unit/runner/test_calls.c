/*
 * Every call that a sandbox refuses, by its number on x86-64: asked of the filters themselves, and made in a
 * sandbox. Both ways into the kernel with other numbers. Every promise, with it and without.
 * argv[2] is the program "try", argv[3] "raw32".
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <signal.h>

#include "runner/bpf_gen.h"
#include "runner/promises.h"
#include "tests/unit/runner/bpf_sim.h"
#include "tests/unit/runner/rig.h"

#ifndef __x86_64__
int main(void)
{
	printf("1..0 # SKIP the numbers are those of x86-64\n");
	return 0;
}
#else

#define HIGH "0x8000000100000000" /* what the kernel does not look at where it reads an int */

/* "NAME NUMBER ARGUMENT..." with what it gives. Letters are arguments that try makes: B a buffer of zeros, R "/",
 * F a file, N a name that is free, P our pid, U our uid. */
struct row {
	const char *call;
	int error;
};

static const struct row refused[] = {
	{"ptrace 101 0", EPERM},
	{"add_key 248 R R B 1 -3", EPERM},
	{"request_key 249 R R 0 0", EPERM},
	{"keyctl 250 0 -3 0", EPERM},
	{"keyctl-join 250 1 0", EPERM},
	{"unshare-user 272 0x10000000", EPERM},
	{"unshare-mount 272 0x20000", EPERM},
	{"unshare-net 272 0x40000000", EPERM},
	{"unshare-pid 272 0x20000000", EPERM},
	{"unshare-ipc 272 0x8000000", EPERM},
	{"unshare-uts 272 0x4000000", EPERM},
	{"unshare-cgroup 272 0x2000000", EPERM},
	{"unshare-time 272 0x80", EPERM},
	{"unshare-files 272 0x400", EPERM},
	{"setns 308 0 0", EPERM},
	{"clone-user 56 0x10000011 0 0 0 0", EPERM},
	{"clone-mount 56 0x20011 0 0 0 0", EPERM},
	{"clone-net 56 0x40000011 0 0 0 0", EPERM},
	{"clone-pid 56 0x20000011 0 0 0 0", EPERM},
	{"clone-ipc 56 0x8000011 0 0 0 0", EPERM},
	{"clone-uts 56 0x4000011 0 0 0 0", EPERM},
	{"clone-cgroup 56 0x2000011 0 0 0 0", EPERM},
	{"clone-all 56 0x7e020011 0 0 0 0", EPERM},
	{"clone-user-high 56 0x8000000110000011 0 0 0 0", EPERM},
	{"clone-mount-high 56 0x8000000100020011 0 0 0 0", EPERM},
	{"clone3 435 B 88", ENOSYS},
	{"mount 165 R R R 0 0", EPERM},
	{"umount2 166 R 2", EPERM},
	{"pivot_root 155 R R", EPERM},
	{"chroot 161 R", EPERM},
	{"open_tree 428 -100 R 1", EPERM},
	{"move_mount 429 -100 R -100 R 0", EPERM},
	{"fsopen 430 R 0", EPERM},
	{"fsconfig 431 0 0 0 0 0", EPERM},
	{"fsmount 432 0 0 0", EPERM},
	{"fspick 433 -100 R 0", EPERM},
	{"mount_setattr 442 -100 R 0 B 32", EPERM},
	{"statmount 457 B B 64 0", ENOSYS},
	{"listmount 458 B B 8 0", ENOSYS},
	{"open_tree_attr 467 -100 R 1 0 0", ENOSYS},
	{"reboot 169 0xfee1dead 672274793 0 0", EPERM},
	{"kexec_load 246 0 0 0 0", EPERM},
	{"kexec_file_load 320 -1 -1 0 0 0", EPERM},
	{"bpf 321 0 B 64", EPERM},
	{"perf_event_open 298 B 0 -1 -1 0", EPERM},
	{"io_uring_setup 425 4 B", ENOSYS},
	{"io_uring_enter 426 -1 0 0 0 0", ENOSYS},
	{"io_uring_register 427 -1 0 0 0", ENOSYS},
	{"io_setup 206 1 B", ENOSYS},
	{"io_submit 209 0 0 0", ENOSYS},
	{"userfaultfd 323 1", EPERM},
	{"create_module 174 R 4096", EPERM},
	{"init_module 175 B 4096 R", EPERM},
	{"delete_module 176 R 0", EPERM},
	{"finit_module 313 -1 R 0", EPERM},
	{"process_vm_readv 310 P B 1 B 1 0", EPERM},
	{"process_vm_writev 311 P B 1 B 1 0", EPERM},
	{"process_madvise 440 -1 B 1 4 0", EPERM},
	{"process_mrelease 448 -1 0", ENOSYS},
	{"kcmp 312 P P 0 0 0", EPERM},
	{"pidfd_getfd 438 -1 0 0", EPERM},
	{"move_pages 279 0 0 0 0 0 0", EPERM},
	{"migrate_pages 256 0 0 0 0", EPERM},
	{"fanotify_init 300 0 0", EPERM},
	{"fanotify_mark 301 -1 1 1 -100 R", EPERM},
	{"open_by_handle_at 304 -100 B 0", EPERM},
	{"syslog 103 3 B 16", EPERM},
	{"vhangup 153", EPERM},
	{"modify_ldt 154 0 B 16", EPERM},
	{"acct 163 R", EPERM},
	{"swapon 167 R 0", EPERM},
	{"swapoff 168 R", EPERM},
	{"sethostname 170 R 1", EPERM},
	{"setdomainname 171 R 1", EPERM},
	{"iopl 172 3", EPERM},
	{"ioperm 173 0 1 1", EPERM},
	{"quotactl 179 0 0 0 0", EPERM},
	{"quotactl_fd 443 0 0 0 0", EPERM},
	{"lookup_dcookie 212 0 B 16", EPERM},
	{"nfsservctl 180 0 0 0", EPERM},
	{"adjtimex 159 B", EPERM},
	{"settimeofday 164 B 0", EPERM},
	{"clock_settime 227 0 B", EPERM},
	{"clock_adjtime 305 0 B", EPERM},
	{"uselib 134 R", ENOSYS},
	{"sysfs 139 3", ENOSYS},
	{"_sysctl 156 B", ENOSYS},
	{"memfd_secret 447 0", ENOSYS},
	{"lsm_set_self_attr 460 100 B 32 0", ENOSYS},
	{"unknown 470", ENOSYS},
	{"unknown 511", ENOSYS},
	{"unknown 1000", ENOSYS},
	{"unknown 1048576", ENOSYS},
	{"personality-read-implies-exec 135 0x400000", ENOSYS},
	{"TIOCSTI 16 0 0x5412 R", EPERM},
	{"TIOCSTI-high 16 0 0x8000000100005412 R", EPERM},
	{"TIOCLINUX 16 0 0x541c B", EPERM},
	{"TIOCLINUX-high 16 0 0x10000541c B", EPERM},
	{"TIOCSETD 16 0 0x5423 B", EPERM},
	{"KDSKBSENT 16 0 0x4b49 B", EPERM},
	{"KDSKBENT-high 16 0 0x100004b47 B", EPERM},
	{"KDSETMODE 16 0 0x4b3a 1", EPERM},
	{"VT_ACTIVATE 16 0 0x5606 2", EPERM},
	{"socketpair-inet 53 2 1 0 B", EAFNOSUPPORT},
	{"socketpair-tipc 53 30 1 0 B", EAFNOSUPPORT},
	{"socketpair-vsock 53 40 1 0 B", EAFNOSUPPORT},
	{"socketpair-alg-high 53 0x100000026 5 0 B", EAFNOSUPPORT},
	{"socket-vsock-high 41 0x100000028 1 0", EAFNOSUPPORT},
	{"socket-sctp 41 2 1 132", EPROTONOSUPPORT},
	{"socket-sctp-seqpacket 41 2 5 0", ESOCKTNOSUPPORT},
	{"socket-sctp-6 41 10 1 132", EPROTONOSUPPORT},
	{"socket-dccp 41 2 6 0", ESOCKTNOSUPPORT},
	{"socket-dccp-stream 41 10 1 33", EPROTONOSUPPORT},
	{"socket-l2tp 41 2 2 115", EPROTONOSUPPORT},
	{"socket-udplite 41 2 2 136", EPROTONOSUPPORT},
	{"socket-smc 41 2 1 256", EPROTONOSUPPORT},
	{"socket-mptcp 41 2 1 262", EPROTONOSUPPORT},
	{"socket-packet 41 2 10 3", ESOCKTNOSUPPORT},
	{"setsockopt-ulp 54 0 6 31 R 3", ENOPROTOOPT},
};

/* What ordinary programs do, with what the kernel says to it. */
static const struct row allowed[] = {
	{"clone-plain 56 17 0 0 0 0", 0},
	{"fork 57", 0},
	{"getpid 39", 0},
	{"mkdir 83 N 0700", 0},
	{"rmdir 84 N", 0},
	{"mkfifo 133 N 010600 0", 0},
	{"rename 82 N N", 0},
	{"unlink 87 N", 0},
	{"utimensat 280 -100 F 0 0", 0},
	{"chmod 90 F 0644", 0},
	{"chown 92 F -1 -1", 0},
	{"statx 332 -100 F 0 0x7ff B", 0},
	{"flock 73 0 1", 0},
	{"inotify_init1 294 0", 0},
	{"waitid 247 0 0 0 5 0", ECHILD},
	{"pidfd_open 434 P 0", 0},
	{"memfd_create 319 R 0", 0},
	{"timer_create 222 1 0 B", 0},
	{"timerfd_create 283 1 0", 0},
	{"eventfd2 290 0 0", 0},
	{"epoll_create1 291 0", 0},
	{"socket-unix 41 1 1 0", 0},
	{"socket-tcp 41 2 1 0", 0},
	{"socket-tcp-6 41 2 1 6", 0},
	{"socket-udp-6 41 10 2 17", 0},
	{"socket-netlink 41 16 3 0", 0},
	{"socketpair 53 1 1 0 B", 0},
	{"setsockopt-nodelay 54 0 6 1 B 4", ENOTSOCK},
	{"shmget 29 0 4096 01600", 0},
	{"sched_getaffinity 204 0 128 B", 128}, /* its result */
	{"setpriority 141 0 0 5", 0},
	{"landlock-version 444 0 0 1", -1},
	{"FIONREAD 16 0 0x541b B", 0},
	{"TCGETS 16 0 0x5401 B", ENOTTY},
	{"personality-asks 135 0xffffffff", 0},
	{"mprotect-exec 10 0 0 5", 0},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *try_path, *raw32_path;
static struct rig_out o;
static struct bpf_filters filters;

/* ---- the filters themselves ---- */

static uint32_t answer(uint32_t arch, const char *call)
{
	const void *const prog[2] = {filters.arguments.data, filters.calls.data};
	const size_t len[2] = {filters.arguments.len / 8, filters.calls.len / 8};
	struct seccomp_data d = {.arch = arch};
	const char *at = strchr(call, ' ');
	size_t i;

	d.nr = (int)strtoul(at, NULL, 0);
	at = strchr(at + 1, ' ');
	for (i = 0; i < 6 && at; i++, at = strchr(at + 1, ' '))
		d.args[i] = at[1] >= 'A' ? 0x7f0000001000 : strtoull(at + 1, NULL, 0);
	return bpf_sim(prog, len, &d);
}

static uint32_t answer_nr(uint32_t arch, uint32_t nr)
{
	char call[32];

	(void)snprintf(call, sizeof(call), "x %u", nr);
	return answer(arch, call);
}

static void filters_of(const char *promises)
{
	struct diag d = {{0}};
	uint32_t mask;

	bpf_filters_release(&filters);
	filters = (struct bpf_filters){0};
	if (promises_parse(promises, &d, &mask) < 0 || bpf_gen(mask, &filters) < 0)
		tap_fatal("no filter for \"%s\"", promises ? promises : "");
}

static void test_answers(void)
{
	uint32_t nr;
	size_t i;
	int bad = 0, p;

	for (i = 0; i < COUNT(refused); i++)
		eq_int(answer(AUDIT_ARCH_X86_64, refused[i].call),
		       SECCOMP_RET_ERRNO | refused[i].error, "the filter: %s", refused[i].call);
	for (i = 0; i < COUNT(allowed); i++)
		eq_int(answer(AUDIT_ARCH_X86_64, allowed[i].call), SECCOMP_RET_ALLOW,
		       "the filter: %s", allowed[i].call);
	/* Families, and what netlink has. */
	for (i = 0; i < 64; i++) {
		char call[64];
		uint32_t want = SECCOMP_RET_ERRNO | EAFNOSUPPORT;

		(void)snprintf(call, sizeof(call), "socket 41 %zu 2 0", i);
		if (i == 1 || i == 2 || i == 10 || i == 16)
			want = SECCOMP_RET_ALLOW;
		bad += answer(AUDIT_ARCH_X86_64, call) != want;
		(void)snprintf(call, sizeof(call), "socketpair 53 %zu 1 0 B", i);
		want = i == 1 ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EAFNOSUPPORT;
		bad += answer(AUDIT_ARCH_X86_64, call) != want;
	}
	eq_int(bad, 0, "of the families there are four, and pairs of one");
	for (bad = 0, p = 0; p < 32; p++) {
		char call[64];

		(void)snprintf(call, sizeof(call), "socket 41 16 3 %d", p);
		bad += (answer(AUDIT_ARCH_X86_64, call) == SECCOMP_RET_ALLOW) !=
		       (p == 0 || p == 4 || p == 15);
	}
	eq_int(bad, 0, "and of netlink routes, sockets and events");
	for (bad = 0, nr = 470; nr < 70000; nr++)
		bad += answer_nr(AUDIT_ARCH_X86_64, nr) != (SECCOMP_RET_ERRNO | ENOSYS);
	eq_int(bad, 0, "numbers that nobody knows yet are ENOSYS");
}

static void test_other_entries(void)
{
	uint32_t nr;
	int i386 = 0, x32 = 0, arm = 0;

	for (nr = 0; nr < 600; nr++) {
		i386 += answer_nr(AUDIT_ARCH_I386, nr) != SECCOMP_RET_KILL_PROCESS;
		x32 += answer_nr(AUDIT_ARCH_X86_64, 0x40000000u | nr) != SECCOMP_RET_KILL_PROCESS;
		arm += answer_nr(AUDIT_ARCH_AARCH64, nr) != SECCOMP_RET_KILL_PROCESS;
	}
	eq_int(i386, 0, "every number of i386 kills");
	eq_int(x32, 0, "every number of x32 kills");
	eq_int(arm, 0, "every number of an architecture that is not ours kills");
}

/* ---- in a sandbox ---- */

/* Makes the calls of @text, a line each; the answers, a line each, are in o.out. */
static void make(const char *promises, const char *how, const char *text)
{
	const char *const argv[] = {try_path, how, NULL};
	struct run_spec s;

	rig_spec(&s);
	s.argv = argv;
	s.promises = promises;
	s.stdin_data = text;
	s.stdin_len = strlen(text);
	rig_run(&s, &o);
	if (o.res.state != RUN_EXITED || o.res.code != 0)
		printf("# %s %s: code %d %s %s\n", promises ? promises : "", how, o.res.code,
		       o.res.error, o.err);
}

static void made(const struct row *rows, size_t n, const char *what)
{
	static char text[16384];
	size_t i, len = 0;
	char *at;

	for (i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\n", rows[i].call);
	make(NULL, "calls", text);
	at = o.out;
	for (i = 0; i < n; i++) {
		char *end = strchr(at, '\n');

		if (!end)
			tap_fatal("an answer is missing after %zu: %s", i, o.out);
		*end = '\0';
		if (rows[i].error >= 0)
			eq_int(strtol(at, NULL, 10), rows[i].error, "%s: %s", what, rows[i].call);
		at = end + 1;
	}
}

static void raw32(const char *how)
{
	const char *const argv[] = {raw32_path, how, NULL};
	char text[128];
	struct run_spec s;
	bool no_gate;
	int status;

	(void)snprintf(text, sizeof(text), "%s %s 2>/dev/null", raw32_path, how);
	status = system(text); /* NOLINT: a path that meson gave */
	ok(1, "outside the %s entry %s", how,
	   WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "works" : "is not in this kernel");
	/* A kernel that was started with ia32_emulation=off has no gate 0x80: the processor refuses it, there is no
	 * call that a filter could see, and the end is SIGSEGV on either side (arch/x86/kernel/idt.c, idt_setup_traps). */
	no_gate = WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGSEGV;
	rig_spec(&s);
	s.argv = argv;
	rig_run(&s, &o);
	ok(o.res.state == RUN_SIGNALED && o.res.signal == (no_gate ? SIGSEGV : SIGSYS),
	   "inside the %s entry is the end (code %d)", how, o.res.code);
}

/* ---- promises ---- */

static const struct promise_row {
	const char *base, *promise, *call;
	int with, without;
} promise_rows[] = {
	{"stdio", "rpath", "stat 4 R B", 0, EPERM},
	{"stdio", "rpath", "openat 257 -100 F 0", 0, EPERM},
	{"stdio", "rpath", "getdents64 217 -1 B 64", EBADF, EPERM},
	{"stdio rpath", "wpath", "openat 257 -100 F 1", 0, EPERM},
	{"stdio rpath", "wpath", "openat-rdwr 257 -100 F 2", 0, EPERM},
	{"stdio rpath", "wpath", "openat-trunc 257 -100 F 01000", 0, EPERM},
	{"stdio rpath", "wpath", "truncate 76 F 3", 0, EPERM},
	{"stdio rpath wpath", "cpath", "openat-creat 257 -100 F 0101 0600", 0, EPERM},
	{"stdio rpath", "cpath", "mkdir 83 N 0700", 0, EPERM},
	{"stdio rpath", "cpath", "rename 82 N N", 0, EPERM},
	{"stdio rpath", "cpath", "rmdir 84 N", 0, EPERM},
	{"stdio rpath", "cpath", "symlink 88 R N", 0, EPERM},
	{"stdio rpath", "cpath", "link 86 N R", EEXIST, EPERM},
	{"stdio rpath", "cpath", "unlink 87 N", 0, EPERM},
	{"stdio rpath wpath", "tmppath", "openat-creat 257 -100 N 0102 0600", 0, EPERM},
	{"stdio rpath wpath", "tmppath", "unlink 87 N", 0, EPERM},
	{"stdio rpath cpath", "dpath", "mkfifo 133 N 010600 0", 0, EPERM},
	{"stdio rpath", "cpath", "unlink 87 N", 0, EPERM},
	{"stdio", "flock", "flock 73 0 1", 0, EPERM},
	{"stdio rpath", "fattr", "chmod 90 F 0644", 0, EPERM},
	{"stdio rpath", "fattr", "chown 92 F -1 -1", 0, EPERM},
	{"stdio rpath", "fattr", "utimensat 280 -100 F 0 0", 0, EPERM},
	{"stdio rpath", "fattr", "setxattr 188 F R B 1 0", EOPNOTSUPP, EPERM},
	{"stdio", "tty", "TCSETS 16 0 0x5402 B", ENOTTY, EPERM},
	{"stdio", "tty", "TIOCSWINSZ 16 0 0x5414 B", ENOTTY, EPERM},
	{"stdio", "tty", "TIOCSPGRP 16 0 0x5410 B", ENOTTY, EPERM},
	{"stdio", "proc", "fork 57", 0, EPERM},
	{"stdio", "proc", "clone 56 17 0 0 0 0", 0, EPERM},
	{"stdio", "proc", "pidfd_open 434 P 0", 0, EPERM},
	{"stdio", "exec", "execveat 322 -100 R 0 0 0", EACCES, EPERM},
	{"stdio", "prot_exec", "mmap 9 0 4096 5 0x22 -1 0", 0, EPERM},
	{"stdio", "prot_exec", "mprotect 10 0 0 4", 0, EPERM},
	{"stdio", "id", "setuid 105 U", 0, EPERM},
	{"stdio", "unix", "socket 41 1 1 0", 0, EPERM},
	{"stdio inet", "unix", "socket 41 1 1 0", 0, EACCES},
	/* a pair of datagrams can be sent to any name, and connected anew; one of streams cannot */
	{"stdio inet", "unix", "socketpair-dgram 53 1 0x80802 0 B", 0, EACCES},
	{"stdio inet", "unix", "socketpair-raw-high 53 1 0x100000003 0 B", 0, EACCES},
	{"stdio", "unix", "socketpair-stream 53 1 1 0 B", 0, 0},
	{"stdio", "unix", "socketpair-seqpacket 53 1 5 0 B", 0, 0},
	{"stdio", "inet", "socket 41 2 2 0", 0, EPERM},
	{"stdio unix", "inet", "socket 41 10 1 0", 0, EACCES},
	{"stdio", "dns", "socket 41 2 2 0", 0, EPERM},
	{"stdio", "recvfd", "recvmsg 47 0 B 0", ENOTSOCK, EPERM},
	{"stdio", "sendfd", "sendmsg 46 0 B 0", ENOTSOCK, EPERM},
	{"stdio", "ipc", "shmget 29 0 4096 01600", 0, EPERM},
	{"stdio", "ipc", "semget 64 0 1 01600", 0, EPERM},
	{"stdio", "inotify", "inotify_init1 294 0", 0, EPERM},
	{"stdio", "sched", "sched_getscheduler 145 0", 0, EPERM},
	{"stdio proc", "ptrace", "ptrace-traceme 101 0", 0, EPERM},
	{"stdio proc", "ptrace", "process_vm_readv 310 P B 0 B 0 0", 0, EPERM},
};

static void test_promises(void)
{
	char with[96];
	size_t i;

	for (i = 0; i < COUNT(promise_rows); i++) {
		const struct promise_row *p = &promise_rows[i];

		/* Without first: what it makes is not there yet. */
		make(p->base, "calls-here", p->call);
		eq_int(strtol(o.out, NULL, 10), p->without, "without %s: %s", p->promise, p->call);
		(void)snprintf(with, sizeof(with), "%s %s", p->base, p->promise);
		make(with, "calls-here", p->call);
		eq_int(strtol(o.out, NULL, 10), p->with, "with %s: %s", p->promise, p->call);
	}
	for (i = 0; i < promise_names_count; i++) {
		const char *name = promise_names[i].name;
		bool has =
			!strcmp(name, "stdio") || !strcmp(name, "settime"); /* every row's; below */

		for (size_t k = 0; k < COUNT(promise_rows); k++)
			has |= !strcmp(name, promise_rows[k].promise);
		ok(has, "a row of %s", name);
	}
	/* What the kernel refuses to who has no capabilities, whatever the filter says. */
	filters_of("stdio settime");
	eq_int(answer(AUDIT_ARCH_X86_64, "settimeofday 164 B 0"), SECCOMP_RET_ALLOW,
	       "with settime");
	filters_of("stdio");
	eq_int(answer(AUDIT_ARCH_X86_64, "settimeofday 164 B 0"), SECCOMP_RET_ERRNO | EPERM,
	       "without settime");
}

int main(int argc, char **argv)
{
	rig_setup(argc, argv);
	if (argc < 4)
		tap_fatal("usage: %s RATTAN-STAGE3 TRY RAW32", argv[0]);
	try_path = argv[2];
	raw32_path = argv[3];
	(void)close(open("there", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	filters_of(NULL);
	test_answers();
	test_other_entries();
	made(refused, COUNT(refused), "refused");
	made(allowed, COUNT(allowed), "allowed");
	raw32("i386");
	raw32("x32");
	test_promises();
	bpf_filters_release(&filters);
	rig_end();
	return tap_done();
}
#endif
