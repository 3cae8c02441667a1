/*
 * runner/capture.h - what is kept of one output stream: its head, its tail, and a count (M3).
 *
 * Threads: none of its own; the owner locks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct capture {
	struct buf head;
	size_t head_max;
	uint8_t *tail; /* ring of tail_max bytes, made when the head is full */
	size_t tail_max, tail_at, tail_len;
	uint64_t total;
	bool tail_failed; /* no memory for the ring: the head alone is kept */
};

void capture_init(struct capture *c, size_t head_max, size_t tail_max);
void capture_release(struct capture *c);
void capture_put(struct capture *c, const void *p, size_t n);
/* *ret_skipped: bytes between head and tail that are gone. */
int capture_copy(const struct capture *c, struct buf *head, struct buf *tail,
		 uint64_t *ret_skipped) MUST_USE;
