/*
 * apply/step.h - what is to be done to a host directory, as a list of steps that can each be undone by looking.
 *
 * Everything goes through one directory of our own at the top of the host directory, the *stage*, so that each step is one rename within
 * the file system: what is new is made in the stage, what is replaced or removed waits there until all is done. A step's object
 * is known by its device and inode number, so that who finds a run that was killed can tell which steps were taken.
 *
 * Two names of a place: as it was before the run (@place), and after it (@path); they differ below a directory that is renamed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "apply/attrs.h"
#include "apply/ident.h"

enum step_op {
	STEP_OUT = 1, /* @place goes to the stage */
	STEP_IN,      /* from the stage to @path, where nothing is */
	STEP_SWAP,    /* both at once, at @path */
	STEP_ATTR,    /* attributes of @path */
	STEP_DIR, /* a directory whose names the others change: it gets its mode and times back, or others */
};

struct step {
	enum step_op op;
	char *path, *place; /* owned; NULL where there is none: of what is new, or does not stay */
	uint32_t slot;      /* its name in the stage */
	bool moved;         /* OUT and IN of one slot: a rename */
	bool forced;        /* what was there was not what the change is based on */
	uint32_t what;      /* ATTR: enum attrs_what */
	struct ident was;   /* what is at @place */
	struct ident now;   /* what comes: known when it is staged */
	struct attrs old, new; /* ATTR: both; DIR: modes and times; IN, SWAP: @new of a directory */
};

struct steps {
	struct step *v;
	size_t n, cap;
};
void step_release(struct step *s);
void steps_release(struct steps *l);
#define cleanup_steps __attribute__((cleanup(steps_release)))
/* A new last one, zero but for these; paths are copied. NULL: no memory. */
struct step *steps_add(struct steps *l, enum step_op op, const char *place, const char *path);
/* In the order in which they are taken: OUT from below upwards, IN and SWAP from above downwards, ATTR from below upwards, then DIR. */
void steps_sort(struct steps *l);
