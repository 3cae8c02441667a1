/*
 * apply/plan.h - from a list of changes to a list of steps: what is chosen, what the policy and the host allow, in which order.
 */
#pragma once

#include "apply/apply.h"
#include "apply/known.h"
#include "apply/trail.h"
#include "policy/judge.h"

struct decision {
	struct apply_change *c;
	enum apply_verdict verdict;
	bool asked, wanted, forced, subsumed;
	bool copied; /* R: brought as a removal and something new */
	char reason[240];
	struct ident is;   /* on the host, now */
	const char *place; /* where that is; NULL: in a directory that is new */
	char *place_buf;   /* owned */
	uint32_t slot;
	size_t closed;  /* of the path: see struct apply_line */
	uint64_t below; /* things in the host's directory that goes */
};
struct plan {
	const struct apply_job *j;
	int root;
	const struct known *known;
	struct decision *v;
	size_t n;
	struct decision **news, **olds; /* by the place afterwards, and before */
	size_t nnews, nolds;
	struct steps steps;
	uint32_t slots;
	struct judge judge;
};
int plan_make(struct plan *p, struct diag *diag) MUST_USE;
void plan_release(struct plan *p);
#define cleanup_plan __attribute__((cleanup(plan_release)))

/* ---- plan_find.c ---- */
int plan_index(struct plan *p) MUST_USE;
/* What is to be at @path; what was there and goes. NULL: no change is about it. */
struct decision *plan_new(const struct plan *p, const char *path);
struct decision *plan_old(const struct plan *p, const char *path);
/* Where on the host the place lies that will be @path: a path that the caller frees, or *ret NULL for one in a new directory, with
 * *ret_in its change. */
int plan_place(const struct plan *p, const char *path, char **ret,
	       struct decision **ret_in) MUST_USE;
/* The directory that @path lies in, to be freed; NULL for "" and without memory. */
char *plan_parent(const char *path);

/* ---- plan_gate.c: what the policy says of places, which are below the directory ---- */
enum gate_what {
	GATE_CHANGE, /* what is there changes */
	GATE_MAKE,
	GATE_GO, /* it is removed or moved away */
};
/* 1: it may; 0: no, and @d says so. */
int plan_gate(struct plan *p, struct decision *d, const char *path, enum gate_what what,
	      bool isdir) MUST_USE;
int plan_gate_rename(struct plan *p, struct decision *d) MUST_USE;
/* The policy's state of @path; and of @name below a state. */
int plan_state(struct plan *p, const char *path);

/* ---- plan_judge.c ---- */
/* What of it may be done, by itself: fills verdict, reason, is, place. */
int plan_judge(struct plan *p, struct decision *d) MUST_USE;
void plan_say(struct decision *d, enum apply_verdict v, const char *fmt, ...) PRINTF(3, 4);

/* ---- plan_below.c ---- */
/* What is below the host's directory at @d->place, which goes: was it touched since @at, and may it go? */
int plan_below(struct plan *p, struct decision *d, const struct timespec *at) MUST_USE;

/* ---- plan_steps.c ---- */
int plan_steps(struct plan *p, struct diag *diag) MUST_USE;
