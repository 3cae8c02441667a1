/*
 * fs/core/journal_internal.h - the memory of a journal: what journal.c (its life, head and units) and journal_chain.c (the logs
 * in it) share.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "fs/core/journal.h"
#include "store/record.h"

#define UNIT  ((size_t)STORE_BLOCK)
#define UNITS 16384u /* 2 GiB; only touched pages exist */
#define NONE  UINT32_MAX

/* A log is a chain of units. @end counts all bytes ever written to it; a unit holds those from its base on,
 * up to the next one's base. */
struct chain {
	_Atomic uint32_t first;
	uint32_t last;
	_Atomic uint64_t end;
};

struct head {
	uint64_t magic;
	uint32_t version, units;
	_Atomic uint32_t high; /* units from here on were never used */
	_Atomic uint32_t broken;
	_Atomic uint64_t layer;
	uint64_t seed;
	uint32_t life, pad;
	uint64_t written;
	struct {
		_Atomic uint32_t cur; /* which of the two is the log */
		struct chain chain[2];
	} log[JOURNAL_LOGS];
	struct {
		_Atomic uint64_t tag;
		uint64_t ino;
		int64_t result;
	} done[JOURNAL_SLOTS];
	/* of each unit */
	uint32_t gen[UNITS];
	_Atomic uint32_t next[UNITS];
	_Atomic uint64_t base[UNITS];
};

#define HEAD ((sizeof(struct head) + UNIT - 1) / UNIT * UNIT)
#define SIZE (HEAD + UNIT * UNITS)

struct journal {
	struct head *h;
	uint8_t *data;

	pthread_mutex_t units; /* leaf: all below, and allocation in the head */
	uint32_t *free; /* a stack: what was used last is used next, as its pages are there */
	uint32_t nfree;
	uint32_t nbare; /* at the bottom of the stack: without memory behind them */
	uint8_t *used;  /* between opening and sweep; else NULL */

	pthread_mutex_t lock[JOURNAL_LOGS]; /* leaf: the log; units is taken below it */
	uint32_t mark;                      /* CHANGES: the unit where the flush's end is; NONE */
	bool broken_since;                  /* CHANGES: after the mark */
	bool renewing;                      /* KNOWN: appends go to the other chain */
};

static inline uint8_t *journal_bytes(const struct journal *j, uint32_t unit)
{
	return j->data + UNIT * unit;
}

/* A unit with anything in it, in no log; NONE: no memory. Takes j->units. */
uint32_t journal_unit_take(struct journal *j);
void journal_unit_free(struct journal *j, uint32_t unit);
