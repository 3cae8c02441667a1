/*
 * apply/work.h - taking the steps of a run, and undoing them: the only code that changes a host directory.
 */
#pragma once

#include "apply/known.h"
#include "apply/trail.h"

struct work {
	struct trail *t;           /* lent */
	int root;                  /* O_PATH, lent: everything is below it */
	int stage;                 /* the stage; -1: not open */
	const struct known *known; /* lent; NULL: none */
	int left;                  /* of work_undo(), when work_do() has failed */
	/* May be NULL. Nonzero: stop, and leave all as it was. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	void *arg;
};
/* @make: a new one. -ENOENT. */
int work_stage(struct work *w, bool make) MUST_USE;
void work_close(struct work *w);
/* All that was written below the descriptor's file system is on the disk. */
int work_sync(int fd) MUST_USE;
/* Takes all steps; the trail is READY. After a failure everything is as it was, but for @w->left, and @diag says what failed: -ESTALE
 * something was changed by somebody else meanwhile. What was replaced is in DATA/apply/ID/old afterwards, durably, and trail.after filled. */
int work_do(struct work *w, struct diag *diag) MUST_USE;
/* By looking, whatever was taken of them; the same again is well. Returns how many could not be undone, because somebody has changed
 * what they left; the first one's name is in @diag. */
int work_undo(struct work *w, struct diag *diag) MUST_USE;
/* Undoes what was done before @r, of which @diag tells; of what could not be undone it tells as well then. Returns @r. */
int work_failed(struct work *w, int r, struct diag *diag);
/* What @place of each step is after an undo, if it is what it was: its time of change is another. Into trail.after. */
int work_note_undone(struct work *w) MUST_USE;
/* The stage goes. */
int work_clean(struct work *w) MUST_USE;
