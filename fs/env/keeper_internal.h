/* fs/env/keeper_internal.h - between the files of the keeper; nobody else includes it. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "fs/env/keeper.h"

enum keeper_op {
	KEEPER_MOUNT = 1,
	KEEPER_UMOUNT,
	KEEPER_BIND,
	KEEPER_UNBIND,
	KEEPER_KEEP,
	KEEPER_DROP
};

/* What one daemon may leave with its keeper: more than any has, and what the next one takes over. */
#define KEEPER_ITEMS_MAX 16384

/* Both ends are one program, so that the message is a struct: no codec, no version. KEEPER_KEEP and KEEPER_DROP end
 * with their data, for they come with every command; the others are sent whole. The sender reads what anybody sends it, and may
 * be out of its mind: nothing here has values that a byte cannot hold, and each is looked at (keeper_run.c). */
struct keeper_msg {
	uint32_t op;                            /* enum keeper_op */
	uint8_t rdonly, allow_other, rw, rmdir; /* nonzero: yes */
	uint8_t quiet;                          /* no answer is wanted */
	uint8_t with_fd; /* a descriptor is on its way, which the receiver may have had no room for */
	uint64_t dev, ino;
	uint32_t kind, len; /* KEEPER_KEEP, KEEPER_DROP; @ino is the id */
	union {
		struct {
			char dir[4096];
			char path[4096];
			char host[4096]; /* KEEPER_MOUNT: the name */
		};
		uint8_t data[KEEPER_DATA_MAX];
	};
};
#define KEEPER_MSG_HEAD offsetof(struct keeper_msg, data)

struct keeper_reply {
	int r;
	struct diag diag;
};

/* Do what @m asks for, in this process; KEEPER_KEEP and KEEPER_DROP do nothing. */
int keeper_do(struct keeper_link *k, const struct keeper_msg *m, struct diag *diag,
	      int *ret_fd) MUST_USE;
/* Is any thread of @pid running or ready to? Not when all are dead or wait in the kernel for what no signal ends. */
bool keeper_runs(pid_t pid);
