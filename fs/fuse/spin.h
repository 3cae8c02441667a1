/*
 * fs/fuse/spin.h - whether to spin before blocking for the next request, decided by measurement.
 *
 * A blocked reader on an idle virtual CPU costs a wakeup of 60-140 us a message; spinning avoids it,
 * but costs a busy machine a third of its speed. So both ways are measured against each other: the
 * mean gap between arrivals under each, the other way tried for a short while at times.
 *
 * No clock and no I/O inside: callers give the time. Not locked: one user at a time, the leader
 * (loop.c), whose change orders the accesses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct spin {
	uint64_t max_ns;          /* how long one spin may last; 0: never spin */
	bool always;              /* do not measure, spin */
	bool best, now;           /* the better way, the way in use; true: spin */
	unsigned left;            /* requests until the other way is tried, or the trial ends */
	uint64_t sum_ns[2], n[2]; /* gaps seen under each way */
	uint64_t last_ns;         /* the last arrival; 0: none yet */
	unsigned misses;          /* spins in a row that saw nothing */
	unsigned need;            /* requests that must come close together before the next spin */
};

void spin_init(struct spin *s, uint64_t max_ns, bool always);
/* May the reader spin now? */
bool spin_wanted(const struct spin *s);
/* A spin saw nothing. */
void spin_expired(struct spin *s);
/* A request came at @now_ns; @spun: while spinning. */
void spin_arrived(struct spin *s, uint64_t now_ns, bool spun);
