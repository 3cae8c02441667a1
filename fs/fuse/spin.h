/*
 * fs/fuse/spin.h - how to wait for the next request, decided by measurement.
 *
 * A blocked reader on an idle virtual CPU costs two wakeups of 8 to 70 us a message. Spinning avoids one of its two halves,
 * but costs a busy machine a third of its speed; occupying the other CPU (company.h) avoids both, where there are two. So
 * the ways are measured against each other: the mean gap between arrivals under each, another way tried for a
 * short while at times.
 *
 * No clock and no I/O inside: callers give the time. Not locked: one user at a time, the leader
 * (loop.c), whose change orders the accesses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum spin_way {
	SPIN_BLOCK,  /* the reader sleeps */
	SPIN_READ,   /* the reader asks again and again */
	SPIN_BESIDE, /* the reader sleeps, and the other CPU is kept occupied */
	SPIN_WAYS,
};

struct spin {
	uint64_t max_ns;         /* how long one spin of the reader may last; 0: never */
	bool may[SPIN_WAYS];     /* what may be tried */
	bool always;             /* do not measure */
	enum spin_way best, now; /* the best way, the way in use */
	enum spin_way tried;     /* the last one that was tried */
	unsigned left;           /* requests until another way is tried, or the trial ends */
	unsigned skip; /* requests that are not counted: what a change of ways costs once */
	uint64_t sum_ns[SPIN_WAYS], n[SPIN_WAYS]; /* gaps seen under each way */
	uint64_t last_ns;                         /* the last arrival; 0: none yet */
	unsigned misses;                          /* spins in a row that saw nothing */
	unsigned need; /* requests that must come close together before the next spin */
};

/* Spin for @max_ns at most; 0: never. */
void spin_init(struct spin *s, uint64_t max_ns);
/* SPIN_BESIDE can be had. */
void spin_allow_beside(struct spin *s);
/* It cannot any more. */
void spin_refuse_beside(struct spin *s);
/* That way and no other. */
void spin_always(struct spin *s, enum spin_way way);
/* How to wait now. */
enum spin_way spin_wanted(const struct spin *s);
/* A spin saw nothing. */
void spin_expired(struct spin *s);
/* A request came at @now_ns; @spun: while spinning. */
void spin_arrived(struct spin *s, uint64_t now_ns, bool spun);
