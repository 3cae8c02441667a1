/*
 * tests/power/fail.h - calls that fail when a test wants them to: the n-th allocation, the n-th call of
 * LMDB. For a binary linked with -Wl,--wrap for each of them (fail_link_args in meson.build), so that
 * only our own code is meant, never a library's inside.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

enum fail_what {
	FAIL_MEMORY, /* malloc and what is made of it: NULL, ENOMEM */
	FAIL_LMDB,   /* @err, an errno or one of LMDB's own */
	FAIL_DIE,    /* before a call of LMDB: the process is killed */
};

/* From now on, in this thread: the first @after calls go well, the next one fails. @all: and all after
 * it. */
void fail_arm(enum fail_what what, long after, int err, bool all);
/* No more; how many have failed. */
long fail_disarm(void);
/* The name of the call that failed first. */
const char *fail_where(void);

/* The same for all threads of a program that was started with RATTAN_FAIL=PATH, as another process says: memory that both
 * map. Write @armed last. */
struct fail_shared {
	atomic_int armed;
	int pid;       /* of which process; 0: of each */
	char what[24]; /* "memory", or the call's name (fail_calls.c) */
	int err;
	atomic_long after, times; /* so many go well, then so many fail */
	atomic_long hits;
	char where[24]; /* the call that failed first */
};
struct fail_shared *fail_share(const char *path, bool make);
bool fail_asked(const char *name);
