/* policy/glob_internal.h - shared by glob.c (states) and glob_parse.c (patterns to positions). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "policy/glob.h"

enum tok_kind {
	TOK_BYTE,
	TOK_ANY,   /* any byte but a slash */
	TOK_SET,   /* @set */
	TOK_STAR,  /* any number of bytes but slashes */
	TOK_SEP,   /* the end of a component */
	TOK_COMPS, /* between components of "**"; the next position is inside one */
	TOK_COMP,  /* inside one */
	TOK_END,   /* of pattern @rule */
};
struct tok {
	uint8_t kind, byte;
	int rule;
	uint64_t set[4];
};

#define GLOB_CLASSES_MAX 256
#define GLOB_UNSET       (-1)

/* A set of positions. @next by class of byte: GLOB_UNSET, or a state. */
struct gstate {
	uint64_t hash;
	int hit;
	bool live;
	uint64_t *set;
	_Atomic int next[];
};

struct glob_set {
	struct tok *toks;
	size_t ntoks, cap;
	size_t alternatives;
	size_t words;
	unsigned nclasses;
	uint8_t cls[256], rep[GLOB_CLASSES_MAX];
	int root;

	pthread_mutex_t lock; /* leaf: states and slots change */
	_Atomic(struct gstate *) states[GLOB_STATES_MAX];
	int nstates;
	int slots[GLOB_STATES_MAX * 2]; /* by hash; 0: free, as nobody looks for GLOB_DEAD */
};

/* One pattern without braces. */
int glob_parse(struct glob_set *g, const char *pattern, int rule, const char *whole,
	       struct diag *diag) MUST_USE;
