#include "runner/bpf_gen.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/promises.h"

#define FILTER_MAX (4096 * 8)
#define LOW32      0xffffffffu /* the kernel reads an int; the upper half is anything */

static int no_promise(const char *name, size_t n, struct diag *diag)
{
	char all[300] = "";
	size_t len = 0, i;

	for (i = 0; i < promise_names_count && len < sizeof(all); i++)
		len += (size_t)snprintf(all + len, sizeof(all) - len, " %s", promise_names[i].name);
	return diag_set(diag, -EINVAL, "there is no promise \"%.*s\"; there are:%s", (int)n, name,
			all);
}

int promises_parse(const char *text, struct diag *diag, uint32_t *ret)
{
	uint32_t m = PROMISE_STDIO;
	size_t i, n;

	if (!text) {
		*ret = PROMISES_DEFAULT;
		return 0;
	}
	for (text += strspn(text, " "); *text; text += n, text += strspn(text, " ")) {
		n = strcspn(text, " ");
		for (i = 0; i < promise_names_count; i++) {
			if (strlen(promise_names[i].name) == n &&
			    !strncmp(promise_names[i].name, text, n))
				break;
		}
		if (i == promise_names_count)
			return no_promise(text, n, diag);
		m |= promise_names[i].bit;
	}
	if (m & (PROMISE_INET | PROMISE_DNS))
		m |= PROMISE_NETLINK;
	*ret = m;
	return 0;
}

static int call_nr(const char *name, int nr)
{
	int found = seccomp_syscall_resolve_name(name);

	if (found != __NR_SCMP_ERROR)
		return found;
	return nr > 0 ? nr : __NR_SCMP_ERROR;
}

static void release_ctx(scmp_filter_ctx *ctx)
{
	if (*ctx)
		seccomp_release(*ctx);
}

static int ctx_new(uint32_t action, scmp_filter_ctx *ret)
{
	scmp_filter_ctx ctx;
	int r;

	ctx = seccomp_init(action);
	if (!ctx)
		return -ENOMEM;
	/* i386 and x32 entry: other numbers, other argument sizes; nothing of ours means them. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a search tree */
	if (r < 0) {
		seccomp_release(ctx);
		return r;
	}
	*ret = ctx;
	return 0;
}

static int ctx_export(scmp_filter_ctx ctx, struct buf *ret)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int r;

	fd = memfd_create("filter", MFD_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	r = seccomp_export_bpf(ctx, fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (st.st_size <= 0 || st.st_size > FILTER_MAX)
		return -E2BIG;
	r = buf_reserve(ret, (size_t)st.st_size);
	if (r < 0)
		return r;
	if (io_pread_full(fd, ret->data, (size_t)st.st_size, 0) != st.st_size)
		return -EIO;
	ret->len = (size_t)st.st_size;
	return 0;
}

/* ---- the arguments ---- */

/* One refused value (under a mask) of an argument, when one of @unless is not promised. */
struct refused {
	const char *call;
	unsigned arg;
	uint64_t mask, value;
	int error;
	uint32_t unless;
};

#define BITS(call, arg, bits, error, unless)         \
	{                                            \
		call, arg, bits, bits, error, unless \
	}
#define VALUE(call, arg, value, error, unless)         \
	{                                              \
		call, arg, LOW32, value, error, unless \
	}

/* The bits below share a value with others only where that is refused as well. */
static const struct refused refused_arguments[] = {
	/* no namespaces: each is a way to capabilities and to kernel code that few have tested */
	BITS("clone", 0, CLONE_NEWUSER, EPERM, 0),
	BITS("clone", 0, CLONE_NEWNS, EPERM, 0),
	BITS("clone", 0, CLONE_NEWPID, EPERM, 0),
	BITS("clone", 0, CLONE_NEWNET, EPERM, 0),
	BITS("clone", 0, CLONE_NEWIPC, EPERM, 0),
	BITS("clone", 0, CLONE_NEWUTS, EPERM, 0),
	BITS("clone", 0, CLONE_NEWCGROUP, EPERM, 0),
	/* typing into the terminal of the caller */
	VALUE("ioctl", 1, TIOCSTI, EPERM, 0),
	VALUE("ioctl", 1, TIOCLINUX, EPERM, 0),
	VALUE("ioctl", 1, TIOCSETD, EPERM, 0),
	/* keys and consoles of a virtual terminal, which who has it may change for its later users */
	{"ioctl", 1, 0xffffff00u, 0x4b00, EPERM, 0}, /* KD... (linux/kd.h) */
	{"ioctl", 1, 0xffffff00u, 0x5600, EPERM, 0}, /* VT_... (linux/vt.h) */
	VALUE("ioctl", 1, TCSETS, EPERM, PROMISE_TTY),
	VALUE("ioctl", 1, TCSETSW, EPERM, PROMISE_TTY),
	VALUE("ioctl", 1, TCSETSF, EPERM, PROMISE_TTY),
	VALUE("ioctl", 1, TIOCSWINSZ, EPERM, PROMISE_TTY),
	VALUE("ioctl", 1, TIOCSPGRP, EPERM, PROMISE_TTY),
	VALUE("ioctl", 1, TIOCSCTTY, EPERM, PROMISE_TTY),
	VALUE("socket", 0, AF_UNIX, EACCES, PROMISE_UNIX),
	/* Pairs are between a command's own processes; but one end of a pair of datagrams can send to, and be connected to,
	 * a socket of any name. The kernel takes SOCK_RAW for SOCK_DGRAM there. */
	{"socketpair", 1, 0xf, SOCK_DGRAM, EACCES, PROMISE_UNIX},
	{"socketpair", 1, 0xf, SOCK_RAW, EACCES, PROMISE_UNIX},
	VALUE("socket", 0, AF_INET, EACCES, PROMISE_INET | PROMISE_DNS),
	VALUE("socket", 0, AF_INET6, EACCES, PROMISE_INET | PROMISE_DNS),
	/* As a kernel without it: programs that would note something for the audit (su, groupadd, sshd) go on for that alone. */
	VALUE("socket", 0, AF_NETLINK, EAFNOSUPPORT, PROMISE_NETLINK),
	BITS("mmap", 2, PROT_EXEC, EPERM, PROMISE_PROT_EXEC),
	BITS("mprotect", 2, PROT_EXEC, EPERM, PROMISE_PROT_EXEC),
	BITS("pkey_mprotect", 2, PROT_EXEC, EPERM, PROMISE_PROT_EXEC),
	/* creating and writing by open; without these promises openat2 is not in the other filter */
	BITS("open", 1, O_CREAT, EPERM, PROMISE_CPATH | PROMISE_TMPPATH),
	BITS("openat", 2, O_CREAT, EPERM, PROMISE_CPATH | PROMISE_TMPPATH),
	BITS("open", 1, O_TMPFILE, EPERM, PROMISE_CPATH | PROMISE_TMPPATH),
	BITS("openat", 2, O_TMPFILE, EPERM, PROMISE_CPATH | PROMISE_TMPPATH),
	{"open", 1, O_ACCMODE, O_WRONLY, EPERM, PROMISE_WPATH},
	{"open", 1, O_ACCMODE, O_RDWR, EPERM, PROMISE_WPATH},
	{"openat", 2, O_ACCMODE, O_WRONLY, EPERM, PROMISE_WPATH},
	{"openat", 2, O_ACCMODE, O_RDWR, EPERM, PROMISE_WPATH},
	BITS("open", 1, O_TRUNC, EPERM, PROMISE_WPATH),
	BITS("openat", 2, O_TRUNC, EPERM, PROMISE_WPATH),
	/* without "proc" a clone must be a thread, which the kernel makes sure shares memory */
	{"clone", 0, CLONE_THREAD, 0, EPERM, PROMISE_PROC},
};

static int refuse(scmp_filter_ctx ctx, const char *call, int error, const struct scmp_arg_cmp *cmp,
		  unsigned n)
{
	int nr = call_nr(call, 0), r;

	if (nr == __NR_SCMP_ERROR)
		return 0;
	r = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint32_t)error), nr, n, cmp);
	/* A call that this architecture does not have cannot be made. */
	return r == -EDOM ? 0 : r;
}

static int refuse_families(scmp_filter_ctx ctx)
{
	static const int families[] = {0, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15};
	struct scmp_arg_cmp cmp;
	size_t i;
	int r;

	/* Everything above AF_NETLINK (vsock, packet, alg, bluetooth, ...), and what has a bit in
	 * the upper half. */
	cmp = SCMP_A0_64(SCMP_CMP_GT, AF_NETLINK, 0);
	r = refuse(ctx, "socket", EAFNOSUPPORT, &cmp, 1);
	for (i = 0; r == 0 && i < ARRAY_SIZE(families); i++) {
		cmp = SCMP_A0_64(SCMP_CMP_MASKED_EQ, LOW32, (uint64_t)families[i]);
		r = refuse(ctx, "socket", EAFNOSUPPORT, &cmp, 1);
	}
	/* It makes the sockets before it finds out that the family has no pairs. */
	cmp = SCMP_A0_64(SCMP_CMP_NE, AF_UNIX, 0);
	return r < 0 ? r : refuse(ctx, "socketpair", EAFNOSUPPORT, &cmp, 1);
}

/* TCP, UDP and ping. What else speaks IP (SCTP, DCCP, L2TP, SMC ...) is a module that a socket loads. */
static int refuse_transports(scmp_filter_ctx ctx)
{
	static const uint64_t families[] = {AF_INET, AF_INET6};
	static const uint64_t types[] = {SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_PACKET};
	struct scmp_arg_cmp cmp[2];
	size_t f, t;
	int r = 0;

	for (f = 0; r == 0 && f < ARRAY_SIZE(families); f++) {
		cmp[0] = SCMP_A0_64(SCMP_CMP_MASKED_EQ, LOW32, families[f]);
		for (t = 0; r == 0 && t < ARRAY_SIZE(types); t++) {
			cmp[1] = SCMP_A1_64(SCMP_CMP_MASKED_EQ, 0xf, types[t]);
			r = refuse(ctx, "socket", ESOCKTNOSUPPORT, cmp, 2);
		}
		cmp[1] = SCMP_A2_64(SCMP_CMP_MASKED_EQ, LOW32, IPPROTO_DCCP);
		if (r == 0)
			r = refuse(ctx, "socket", EPROTONOSUPPORT, cmp, 2);
		cmp[1] = SCMP_A2_64(SCMP_CMP_GT, IPPROTO_ICMPV6, 0);
		if (r == 0)
			r = refuse(ctx, "socket", EPROTONOSUPPORT, cmp, 2);
	}
	/* Protocols that are laid over TCP are modules as well. */
	cmp[0] = SCMP_A1_64(SCMP_CMP_MASKED_EQ, LOW32, IPPROTO_TCP);
	cmp[1] = SCMP_A2_64(SCMP_CMP_MASKED_EQ, LOW32, TCP_ULP);
	return r < 0 ? r : refuse(ctx, "setsockopt", ENOPROTOOPT, cmp, 2);
}

/* Routes, socket lists and device events can be asked for; the rest of netlink is for those with
 * capabilities, and much kernel code. */
static int refuse_netlink(scmp_filter_ctx ctx)
{
	struct scmp_arg_cmp cmp[2];
	int proto, r = 0;

	cmp[0] = SCMP_A0_64(SCMP_CMP_MASKED_EQ, LOW32, AF_NETLINK);
	for (proto = 1; r == 0 && proto < 32; proto++) {
		if (proto == NETLINK_SOCK_DIAG || proto == NETLINK_KOBJECT_UEVENT)
			continue;
		cmp[1] = SCMP_A2_64(SCMP_CMP_MASKED_EQ, LOW32, (uint64_t)proto);
		r = refuse(ctx, "socket", EPROTONOSUPPORT, cmp, 2);
	}
	return r;
}

static int gen_arguments(uint32_t promises, struct buf *ret)
{
	__attribute__((cleanup(release_ctx))) scmp_filter_ctx ctx = NULL;
	const struct refused *a;
	size_t i;
	int r;

	r = ctx_new(SCMP_ACT_ALLOW, &ctx);
	for (i = 0; r == 0 && i < ARRAY_SIZE(refused_arguments); i++) {
		struct scmp_arg_cmp cmp;

		a = &refused_arguments[i];
		if (promises & a->unless)
			continue;
		cmp = SCMP_CMP64(a->arg, SCMP_CMP_MASKED_EQ, a->mask, a->value);
		r = refuse(ctx, a->call, a->error, &cmp, 1);
	}
	if (r == 0)
		r = refuse_families(ctx);
	if (r == 0)
		r = refuse_transports(ctx);
	if (r == 0)
		r = refuse_netlink(ctx);
	return r < 0 ? r : ctx_export(ctx, ret);
}

/* ---- the calls ---- */

static int add_call(scmp_filter_ctx ctx, const char *name, int number, uint32_t action)
{
	int nr = call_nr(name, number), r;

	if (nr == __NR_SCMP_ERROR || nr < 0) /* a pseudo number: not on this architecture */
		return 0;
	r = seccomp_rule_add_array(ctx, action, nr, 0, NULL);
	/* EACCES: the action is the default's; EEXIST: an earlier row has said so. */
	return r == -EDOM || r == -EACCES || r == -EEXIST ? 0 : r;
}

static bool is_allowed(const char *name, uint32_t promises)
{
	size_t i;

	for (i = 0; i < promise_calls_count; i++) {
		if ((promise_calls[i].promises & promises) && !strcmp(promise_calls[i].name, name))
			return true;
	}
	return false;
}

/* setarch and debuggers turn address randomization off; other personalities are old interfaces. */
static int add_personality(scmp_filter_ctx ctx)
{
	static const uint64_t values[] = {0, 0x0008 /* uname26 */, 0x0040000 /* no randomization */,
					  LOW32 /* asks */};
	size_t i;
	int r = 0;

	for (i = 0; r == 0 && i < ARRAY_SIZE(values); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
				     SCMP_A0_64(SCMP_CMP_MASKED_EQ, LOW32, values[i]));
	return r;
}

static int gen_calls(uint32_t promises, struct buf *ret)
{
	const uint32_t writes = PROMISE_WPATH, makes = PROMISE_CPATH | PROMISE_TMPPATH;
	__attribute__((cleanup(release_ctx))) scmp_filter_ctx ctx = NULL;
	const struct promise_call *c;
	size_t i;
	int r;

	r = ctx_new(SCMP_ACT_ERRNO(ENOSYS), &ctx);
	for (i = 0; r == 0 && i < promise_calls_count; i++) {
		c = &promise_calls[i];
		/* Its flags are in memory, where no filter sees them. */
		if (!strcmp(c->name, "openat2") && (!(promises & writes) || !(promises & makes)))
			continue;
		if (c->promises & promises)
			r = add_call(ctx, c->name, c->nr, SCMP_ACT_ALLOW);
		else
			r = add_call(ctx, c->name, c->nr, SCMP_ACT_ERRNO(EPERM));
	}
	for (i = 0; r == 0 && i < promise_refused_count; i++) {
		if (!is_allowed(promise_refused[i], promises))
			r = add_call(ctx, promise_refused[i], 0, SCMP_ACT_ERRNO(EPERM));
	}
	if (r == 0)
		r = add_personality(ctx);
	return r < 0 ? r : ctx_export(ctx, ret);
}

int bpf_gen(uint32_t promises, struct bpf_filters *ret)
{
	struct bpf_filters f = {0};
	int r;

	r = gen_arguments(promises, &f.arguments);
	if (r == 0)
		r = gen_calls(promises, &f.calls);
	if (r < 0) {
		bpf_filters_release(&f);
		return r;
	}
	*ret = f;
	return 0;
}

void bpf_filters_release(struct bpf_filters *f)
{
	buf_release(&f->arguments);
	buf_release(&f->calls);
}
