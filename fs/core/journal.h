/*
 * fs/core/journal.h - memory that outlives the process: what a tree has acknowledged and not flushed yet.
 *
 * One memfd of units of STORE_BLOCK bytes behind a head. A unit is a block of a file's dirty bytes, written to
 * in place, or a part of one of two logs of batches:
 *
 *	JOURNAL_CHANGES  what differs from the last flush; cut when the next one has committed
 *	JOURNAL_KNOWN    what is only in memory and never flushed (what the kernel knows by number);
 *	                 written anew when most of it is out of date
 *
 * A batch becomes visible with one store of the log's end, after its bytes: a process that is killed
 * leaves whole batches only. Nothing here knows what a batch means (fs/core/redo.h does).
 *
 * Threads: all calls may run at once, but those marked "alone". Locks: journal.units and one per log, leaves.
 * Owner: one process at a time writes; its successor opens the same memory after its death.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"

/* Of everything that lies in the memory: this layout, and the records of fs/core/redo.h. */
#define JOURNAL_VERSION 6

struct journal;

enum journal_log {
	JOURNAL_CHANGES,
	JOURNAL_KNOWN,
	JOURNAL_LOGS
};

/* Fresh memory, empty; nothing but pages that are touched costs anything. */
int journal_create(int *ret_fd) MUST_USE;
/* @fd is lent. -EPROTONOSUPPORT: made by a build that speaks another version; -EBADMSG: not a journal. */
int journal_open(int fd, struct journal **ret) MUST_USE;
void journal_close(struct journal *j); /* accepts NULL */

/* ---- what the owner keeps in the head ---- */

/* The layer that the changes are over, and the seed of hashes that are kept. */
void journal_set_base(struct journal *j, uint64_t layer, uint64_t seed);
void journal_base(const struct journal *j, uint64_t *ret_layer, uint64_t *ret_seed);
/* A number for each process that writes to it, one after another. */
uint32_t journal_next_life(struct journal *j);
/* A sum that whoever owns it goes on with (store_written_share); atomic, and never reset. */
uint64_t *journal_written(struct journal *j);
/* There is something that is not in it (no memory): a successor could not go on. Cleared by journal_reset
 * and by a cut that follows a journal_mark after the failure. */
void journal_break(struct journal *j);
bool journal_whole(const struct journal *j);

/* What a request came to, kept until its thread's next one: @tag is the request's own number, never 0. */
#define JOURNAL_SLOTS 64
struct journal_done {
	uint64_t tag, ino;
	int64_t result;
};
void journal_done(struct journal *j, unsigned slot, const struct journal_done *d);
/* Alone. */
void journal_done_get(const struct journal *j, unsigned slot, struct journal_done *ret);

/* ---- units ---- */

/* The bytes of a unit, with anything in them; NULL: no memory. */
uint8_t *journal_unit_get(struct journal *j);
void journal_unit_put(struct journal *j, uint8_t *p);
/* Nobody wants units: the memory of free ones, but for @keep, goes back to the system. True when some did. */
bool journal_idle(struct journal *j, unsigned keep);
bool journal_owns(const struct journal *j, const void *p);
/* A name for the unit behind @p that no later use of the same memory has. */
uint64_t journal_unit_name(const struct journal *j, const uint8_t *p);

/* ---- logs ---- */

/* One batch of @n pieces. -ENOMEM: nothing was written. */
int journal_append(struct journal *j, enum journal_log log, const struct iovec *iov,
		   size_t n) MUST_USE;
/* A place in JOURNAL_CHANGES: the number of bytes that were ever appended to it. */
uint64_t journal_end(const struct journal *j);
/* Every batch of JOURNAL_CHANGES from the place @at on, which no cut has reached; *ret_end: the place behind them. Nobody
 * appends meanwhile. Nonzero from @fn, which may ask for units, stops and is returned. */
int journal_read_from(struct journal *j, uint64_t at, uint64_t *ret_end,
		      int (*fn)(void *arg, const uint8_t *p, size_t n), void *arg) MUST_USE;
/* Bytes [off, off + n) of the unit of a name, as they are now; false: it has been used for something else since. */
bool journal_unit_copy(struct journal *j, uint64_t name, size_t off, void *p, size_t n);
/* Bytes between the start and the end. */
uint64_t journal_size(const struct journal *j, enum journal_log log);

/* Two steps of a flush: what is appended from here on is not part of it; and all before that is in the store.
 * One mark at a time; a cut without a mark, or after a mark that failed, does nothing. */
void journal_mark(struct journal *j);
void journal_cut(struct journal *j);

/* JOURNAL_KNOWN again from nothing: appends between begin and end go to a new log, which replaces the old one
 * at the end, or is dropped (@ok false). Nobody else may append meanwhile. */
void journal_renew(struct journal *j);
void journal_renewed(struct journal *j, bool ok);

/* Alone: empty, with every unit free. */
void journal_reset(struct journal *j);

/* ---- alone: after journal_open of memory that another process has written ---- */

/* Every batch in order; nonzero from @fn stops and is returned. -EBADMSG: damaged. */
int journal_read(struct journal *j, enum journal_log log,
		 int (*fn)(void *arg, const uint8_t *p, size_t n), void *arg) MUST_USE;
/* The unit of a name, which stays in use; once for each name. -ENOENT: it has been used for something else since; -EBADMSG: it is
 * a log's, or adopted already. */
int journal_unit_adopt(struct journal *j, uint64_t name, uint8_t **ret) MUST_USE;
/* Every unit that is in no log and was not adopted or got since the opening is free from now on. */
void journal_sweep(struct journal *j);
