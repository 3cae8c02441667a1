/*
 * store/batch.h - a batch between batch.c, which collects it, and apply.c, which commits it.
 */
#pragma once

#include "store/store_internal.h"

/*
 * A batch is a list of what to do, kept as bytes; nothing touches LMDB before the commit, which then
 * holds the writer lock for no longer than the puts take.
 */
enum op {
	OP_PUT,
	OP_CUT,
	OP_GONE
};

struct op_head {
	uint8_t op;
	uint8_t db;
	uint16_t klen; /* the key without its layer */
	uint32_t vlen;
};

/* A chunk that a record names. */
struct named {
	struct digest d;
	uint32_t len;
};

/* A chunk that is put with the records. */
struct small {
	struct digest d;
	const void *data; /* lent */
	uint32_t len;
	bool added;
};

struct store_batch {
	struct store *s;
	store_layer layer;
	struct store_anc *anc;
	struct buf ops;
	struct buf named;
	struct buf small;
	struct buf scratch;
	bool counts;    /* even if it is empty */
	bool uncounted; /* the layer's number of batches stays */
	bool damaged;   /* chunks that are not there may be named */
};
