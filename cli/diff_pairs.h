/*
 * cli/diff_pairs.h - one diff(1) for many pairs of files.
 *
 * It compares two directories, /proc/PID/fd of two processes that hold the files and do nothing else: nothing is on a disk that
 * could be left behind.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	DIFF_PAIRS_MAX = 256
};

/* What one diff(1) is to compare: descriptors, which stay the caller's. */
struct diff_room {
	int a[DIFF_PAIRS_MAX], b[DIFF_PAIRS_MAX];
	size_t n, max; /* pairs; as many as there are descriptors for */
	uint64_t bytes;
	int low; /* above the descriptors of everything else, so that they rise */
};
void diff_room_init(struct diff_room *m);
/* The pair gets other descriptors, which rise from pair to pair. All are to be closed before the room is filled anew, with @n and @bytes 0. */
int diff_room_add(struct diff_room *m, int *a, int *b) MUST_USE;
/* No more after what was added last; @bytes more are held that are not compared. */
bool diff_room_full(const struct diff_room *m, uint64_t bytes);

struct diff_pairs {
	FILE *out;            /* what diff(1) says */
	pid_t diff, holds[2]; /* 0: not started */
	char *line;           /* what was read last; the caller's next pair begins with it */
	size_t room;
	ssize_t len;
};
/* After an error it is ended, too. -ENOENT: there is no diff(1). */
int diff_pairs_start(struct diff_pairs *x, const struct diff_room *m) MUST_USE;

enum diff_verdict {
	DIFF_SAME,
	DIFF_TEXT, /* diff_pairs_lines() is next */
	DIFF_BINARY
};
/* Whether the pair of @a differs; pairs in their order. */
int diff_pairs_next(struct diff_pairs *x, int a, enum diff_verdict *ret) MUST_USE;
/* Its hunks, a line at a time, without the line's end. */
int diff_pairs_lines(struct diff_pairs *x, int (*line)(void *arg, const char *text, size_t n),
		     void *arg) MUST_USE;
/* Negative errno when diff(1) did not do it all. */
int diff_pairs_end(struct diff_pairs *x) MUST_USE;
