/* policy/policy_internal.h - shared by compile.c (rules to a trie), policy.c (states) and explain.c. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "policy/glob.h"
#include "policy/policy.h"

#define CHUNK      256
#define NO_NODE    (-1)
#define STATE_FULL POLICY_DENY /* beyond POLICY_STATES_MAX */

/* A place that a rule names, or on the way to one. */
struct pnode {
	int parent;
	size_t len;
	char *name;
	uint32_t hash;
	uint32_t nchildren;
	enum policy_access access; /* POLICY_NONE: only on the way */
	enum policy_access
		unseen; /* of a grant: the least that a place below it, up to the next grant, has */
	int rule;       /* that made @access; -1: policy_rules.otherwise */
	bool bare, solid;
	bool way; /* a pattern's plain part ends here or above */
	/* strictly below */
	bool grants, writes; /* some rule reads or writes; writes */
	bool narrows;        /* some rule reads or denies */
};

/*
 * What is to be known of a place for all that is below it. Equal places are one state, and what makes no difference
 * below is left out, so that policy_same_below() can compare numbers. States below 4 are those of policy_leaf().
 */
struct pstate {
	int node; /* NO_NODE: no rule names anything below, nor does a protected name count */
	int glob; /* GLOB_DEAD: no pattern can match below */
	uint8_t access, unseen;
	bool closed; /* a pattern matched: only a write rule opens */
	bool bare;   /* with policy_rules.deep: no name below is protected */
	/* follow from those */
	bool still; /* everything below has this state */
	uint8_t may;
	/* The last child that no rule and no protected name was about: the automaton's state << 32, its own. */
	_Atomic uint64_t memo;
};

struct policy {
	struct policy_rules rules;
	bool trivial, carves;
	struct pnode *nodes;
	size_t nnodes;
	int *slots; /* nodes by parent and name */
	size_t nslots;
	struct glob_set *globs; /* NULL: none */
	int root;

	pthread_mutex_t lock; /* leaf: states are made */
	_Atomic(struct pstate *) chunks[POLICY_STATES_MAX / CHUNK];
	int nstates;
	int *by_hash; /* locked */
	size_t nhash;
};

int policy_compile(struct policy *p, struct diag *diag) MUST_USE;
int policy_node_child(const struct policy *p, int node, const char *name, size_t len);
/* -1, or the protected name of the rules that @name, of a place in @s, is a spelling of. */
int policy_protected(const struct policy *p, const struct pstate *s, const char *name, size_t len);
const struct pstate *policy_state(const struct policy *p, int id);
