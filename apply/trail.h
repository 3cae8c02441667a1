/*
 * apply/trail.h - what a run does to the host, written down before it does it, and kept so that it can be taken back.
 *
 * A run has a directory DATA/apply/ID: `journal`, a file of records that is only ever added to, and `old/SLOT`, what was replaced or
 * removed. Records are framed with a length and a check sum: what a power cut tears is as if it had not been written. A run is
 *   - nothing, while its plan is not whole: the host was not touched;
 *   - to be cleaned up, when the plan is there and no more: only the stage was made;
 *   - to be undone, when all is staged (READY) and it did not end;
 *   - done; or undone; or taken back by a later run.
 * Threads: none. One process at a time: trail_lock().
 */
#pragma once

#include <time.h>

#include "apply/step.h"
#include "base/buf.h"
#include "base/err.h"

enum trail_state {
	TRAIL_EMPTY, /* no plan */
	TRAIL_PLANNED,
	TRAIL_READY,
	TRAIL_DONE,
	TRAIL_UNDONE,
	TRAIL_TAKEN_BACK,
	TRAIL_CLEAN, /* no state, but a mark: the stage of a run that is done has gone */
};

/* The state of a place when a run had ended. */
struct after {
	char *path;
	struct ident id;
};

struct trail {
	uint64_t id;
	int dir_fd;       /* DATA/apply/ID */
	int fd;           /* the file, for adding; -1: only read */
	char *env, *root; /* owned; @root: the host directory */
	uint64_t root_dev, root_ino;
	uint64_t back; /* it takes that one back; 0: it applies */
	struct timespec time;
	char stage[64]; /* name of the stage */
	enum trail_state state;
	struct steps steps;
	struct timespec done_at;
	struct after *after;
	size_t nafter, after_cap;
	bool clean;
	bool pruned; /* what it replaced is not kept any more */
};
void trail_release(struct trail *t);
#define cleanup_trail __attribute__((cleanup(trail_release)))

/* DATA/apply, made when @make; -ENOENT. The lock lasts as long as the descriptor. */
int trail_base(const char *data_dir, bool make, int *ret_fd) MUST_USE;
int trail_lock(int base_fd) MUST_USE;

/* A new run with the next id; @ret's steps, env, root and so on are the caller's to fill in before trail_plan(). */
int trail_new(int base_fd, struct trail *ret) MUST_USE;
/* Durable on return, as all of these are. */
int trail_plan(struct trail *t) MUST_USE;
int trail_ready(struct trail *t) MUST_USE;
/* With what is left behind: done_at and after. */
int trail_done(struct trail *t) MUST_USE;
int trail_undone(struct trail *t) MUST_USE;
int trail_mark(struct trail *t, enum trail_state state) MUST_USE;
int trail_after_add(struct trail *t, const char *path, const struct ident *id) MUST_USE;
void trail_after_drop(struct trail *t);

/* As the file says. -EBADMSG: it does not. */
int trail_load(int base_fd, uint64_t id, struct trail *ret) MUST_USE;
/* All ids, oldest first; freed by the caller. */
int trail_list(int base_fd, uint64_t **ret, size_t *ret_n) MUST_USE;
/* The run's directory with all it holds. */
int trail_remove(int base_fd, uint64_t id) MUST_USE;
/* What it replaced alone: it stays to say what the host was left like. */
int trail_prune(const struct trail *t) MUST_USE;
/* The directory of what was replaced, made when @make. */
int trail_old(const struct trail *t, bool make) MUST_USE;
