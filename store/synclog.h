/*
 * store/synclog.h - the log of an environment: what an fsync acknowledged after the last batch of its open layer, in a
 * file beside the databases (docs/decisions/0012-fsync-log.md).
 *
 * A frame is durable after one wait for the disk. It stands on a count of the layer's batches
 * (store_layer_info.batches): the next batch holds what the frames over the last one say, and its commit, which changes the
 * count, voids all of them at once. What is in a frame is the caller's business.
 *
 * Threads: one at a time. Processes: the one that holds the environment's lock; no two objects at once but for one that a
 * dead process had.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/record.h"

struct store;
struct store_log;

/* No frame is longer. */
#define STORE_LOG_FRAME_MAX ((size_t)64 << 20)

/* Of the environment @env; @s is lent and outlives it. Nothing is made before the first frame. */
int store_log_open(struct store *s, const char *env, struct store_log **ret) MUST_USE;
/* The file stays. Accepts NULL. */
void store_log_close(struct store_log *l);
/* Nothing in it is of use any more: what it said is in the layer, or the layer is not the environment's any more. */
void store_log_remove(struct store_log *l);

/* The whole frames that stand on @batches batches of @layer, in order; the first one that is torn or damaged was never
 * acknowledged, and ends them. Nonzero from @fn stops and is returned. Before the first frame is written. Those of format 3 are
 * read as well. */
int store_log_read(struct store_log *l, store_layer layer, uint64_t batches,
		   int (*fn)(void *arg, const uint8_t *p, size_t n), void *arg) MUST_USE;

/*
 * A frame, in as many pieces as its bytes come in; durable when store_log_end returns 0. @batches of @layer are durably committed,
 * and all frames over fewer are void. -EFBIG: too long, or no room before the next batch. -ENOSPC: the disk is nearly full.
 * After any error, and after store_log_drop of a frame that was begun, none is taken before the next batch, which the caller makes.
 */
int store_log_begin(struct store_log *l, store_layer layer, uint64_t batches) MUST_USE;
int store_log_put(struct store_log *l, const void *p, size_t n) MUST_USE;
int store_log_end(struct store_log *l) MUST_USE;
void store_log_drop(struct store_log *l);
/* All three. */
int store_log_append(struct store_log *l, store_layer layer, uint64_t batches, const void *p,
		     size_t n) MUST_USE;
