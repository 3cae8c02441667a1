/*
 * store/usage_internal.h - between usage.c, which finds whose layers are, and usage_scan.c, which counts what they hold.
 *
 * Owners are numbered: USAGE_PARTS of them for each row. A set of owners is kept once and has a number, 0 being the empty one.
 */
#pragma once

#include "store/gc.h"
#include "store/usage.h"

enum usage_part {
	USAGE_TREE,   /* a base, or an environment's layers and tags */
	USAGE_COMMIT, /* what env rm leaves */
	USAGE_UNDO,
	USAGE_PARTS,
};

struct usage {
	struct gc g; /* first: gc_layers_find's */
	const struct store_usage_opts *o;
	struct store_usage *res;

	struct buf rows;  /* struct store_usage_row */
	struct buf roots; /* struct usage_root */
	size_t last_row;

	size_t words;    /* of a set */
	struct buf sets; /* uint64_t[words] each */
	uint32_t *index; /* open addressing; number + 1 */
	size_t nindex;
	struct buf sizes;   /* struct store_usage_size, by set */
	uint32_t *of_layer; /* by place in g.layers */
	uint32_t other;     /* the set of what came after we looked */
};

/* The number of the union of two sets. */
int usage_union(struct usage *u, uint32_t a, uint32_t b, uint32_t *ret) MUST_USE;
struct store_usage_size *usage_size(struct usage *u, uint32_t set);
/* All records and chunks, into the sizes of sets. */
int usage_scan(struct usage *u) MUST_USE;
