/*
 * fs/fuse/proto.h - the kernel's protocol (linux/fuse.h), and what newer kernels speak than the
 * headers we may be built with know. Numbers and layouts are the kernel's ABI.
 */
#pragma once

#include <assert.h>
#include <linux/fuse.h>
#include <stdint.h>

#if FUSE_KERNEL_MINOR_VERSION < 37
#error "linux/fuse.h is older than Linux 6.1 (protocol 7.37)"
#endif

/* Opcodes beyond protocol 7.37, which libfuse 3.14 answers ENOSYS. */
enum proto_op {
	PROTO_TMPFILE = 51,            /* Linux 6.2: struct fuse_create_in, name */
	PROTO_STATX = 52,              /* Linux 6.6 */
	PROTO_COPY_FILE_RANGE_64 = 53, /* Linux 6.18: struct fuse_copy_file_range_in */
	PROTO_OP_MAX = 64,
};

#define PROTO_MINOR_6_16 44

/* Linux 6.9: in the INIT's flags, the kernel can be told to send again what was read and not answered; such a
 * request has this bit in its number. */
#define PROTO_HAS_RESEND    (UINT64_C(1) << 39)
#define PROTO_RESEND_BIT    (UINT64_C(1) << 63)
#define PROTO_NOTIFY_RESEND 7

/* Bit 0 of a request's number marks the interrupt of the request with the other bits. */
#define PROTO_INT_REQ_BIT UINT64_C(1)

struct proto_statx_in {
	uint32_t getattr_flags, reserved;
	uint64_t fh;
	uint32_t sx_flags, sx_mask;
};

struct proto_sx_time {
	int64_t tv_sec;
	uint32_t tv_nsec;
	int32_t reserved;
};

struct proto_statx {
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare0;
	uint64_t ino, size, blocks, attributes_mask;
	struct proto_sx_time atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t spare2[14];
};

struct proto_statx_out {
	uint64_t attr_valid;
	uint32_t attr_valid_nsec, flags;
	uint64_t spare[2];
	struct proto_statx stat;
};

#define PROTO_NOTIFY_PRUNE 9 /* Linux 6.18: struct proto_prune_out and @count inode numbers */
struct proto_prune_out {
	uint32_t count, padding;
	uint64_t spare;
};

/* The body of SETXATTR with FUSE_SETXATTR_EXT; name and value follow. */
struct proto_setxattr_in {
	uint32_t size, flags, setxattr_flags, padding;
};

struct proto_copy_out {
	uint64_t bytes_copied;
};

static_assert(sizeof(struct proto_statx_in) == 24, "kernel ABI");
static_assert(sizeof(struct proto_statx) == 256, "kernel ABI");
static_assert(sizeof(struct proto_statx_out) == 288, "kernel ABI");
