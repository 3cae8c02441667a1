/*
 * store/making.h - chunks that are made and hashed while those before them are written: by whoever puts them, and by helpers when
 * there are many. Who puts takes them in order, and makes what nobody has begun with.
 *
 * While many are committed a thread makes the disk begin (store/early.h).
 *
 * Threads: a helper calls store_making.make and store_chunk_digest, nothing else.
 */
#pragma once

#include <pthread.h>

#include "store/early.h"
#include "store/store_internal.h"

#define MAKING_HELPERS 3

struct making {
	pthread_mutex_t lock; /* a leaf; all below */
	pthread_cond_t cond;
	struct store *s;
	const struct store_making *m; /* NULL: the bytes are there */
	struct store_chunk *c;
	uint8_t *made; /* of each chunk */
	size_t n;
	size_t next;    /* nobody has begun with this one */
	size_t written; /* chunks before this one are, and given back */
	int r;          /* the first error */
	bool stop;
	unsigned helpers;
	pthread_t helper[MAKING_HELPERS];
	struct early *early; /* once many are committed; NULL: not, or there is no memory for it */
};

/* @hashed: all are made already. */
int making_begin(struct making *k, struct store *s, struct store_chunk *c, size_t n,
		 const struct store_making *m, bool hashed) MUST_USE;
/* Until the chunk @i has its bytes and digest, or a length of 0: there is nothing to put. */
int making_want(struct making *k, size_t i) MUST_USE;
/* Chunks before @i are written. */
void making_written(struct making *k, size_t i);
/* Around the commit of chunks. */
void making_commits(struct making *k);
void making_committed(struct making *k);
/* Gives back what is made. Only after a making_begin that went well. */
void making_end(struct making *k);
