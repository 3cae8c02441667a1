/* tests/bench/ceiling_internal.h - what the files of the ceiling share. */
#pragma once

#include <linux/fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/ceiling.h"

#define CEILING_OPS     64
#define CEILING_THREADS 8
#define CEILING_DATA    ((size_t)1 << 20) /* of one read, write or listing */

struct inode;
struct entry;

struct ceiling {
	int fd;
	unsigned threads;
	pthread_t thread[CEILING_THREADS];
	_Atomic uint64_t count[CEILING_OPS];
	pthread_mutex_t lock;  /* the tree */
	struct inode **inodes; /* by number; never used again */
	uint64_t ninodes, cap;
	struct entry **hash;
};

struct request {
	struct ceiling *c;
	const struct fuse_in_header *in;
	const void *arg; /* behind it */
	uint8_t *out;    /* room for CEILING_DATA */
};

void ceiling_reply(struct request *q, int error, const void *body, size_t len);

/* ---- ceiling_tree.c ---- */

int ceiling_tree_init(struct ceiling *c);
/* With the lock. */
void ceiling_answer(struct request *q);
