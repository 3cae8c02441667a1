/*
 * apply/apply.h - changes of an environment brought back to a host directory, and taken back again.
 *
 * What a change is based on (the host's file that the sandbox saw) is compared with what is there now; a place that has drifted is a
 * conflict, and left alone. A run is written down before it begins (apply/trail.h) and undoes itself, when it fails at once,
 * and when it is killed in the next run's beginning. The host directory is pinned by a descriptor and walked without following
 * anything (apply/below.h); the policy is asked for every place (policy/judge.h). Knows no store and no protocol: changes are a list,
 * and content is read through a descriptor of the tree.
 *
 * Threads: none of its own; one run at a time on a data directory, others wait.
 * Limits: paths of PATH_MAX bytes; a file system that can rename without replacing and exchange names (renameat2(2)).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "apply/ident.h"
#include "base/err.h"
#include "policy/policy.h"

enum apply_what { /* of a change: what differs */
	APPLY_CONTENT = 1 << 0,
	APPLY_MODE = 1 << 1,
	APPLY_OWNER = 1 << 2,
	APPLY_XATTRS = 1 << 3,
	APPLY_TIMES = 1 << 4,
};
/* One change; paths are relative to the directory, "" is itself. */
struct apply_change {
	char kind;        /* A added, M modified, D deleted, R renamed, T of another type */
	char *path, *old; /* owned by the caller; @old: of R */
	/* How it differs, of M and R. @mode: with its type, of the newer side. */
	uint32_t what, mode;
	struct ident hidden; /* the host's file that it was based on, there or not */
	struct timespec hidden_at;
	bool chosen;
	int bytes_fd; /* M alone: a file with the bytes to bring instead of the tree's; -1: the tree's */
};

enum apply_verdict {
	APPLY_DO,
	APPLY_NOTHING,  /* it is so already, or another change brings it along */
	APPLY_CONFLICT, /* left alone: not what it was based on */
	APPLY_REFUSED,  /* left alone: the policy, or not possible */
};
struct apply_line {
	enum apply_verdict verdict;
	char kind;
	uint32_t what;
	const char *path, *old; /* NULL: none */
	const char *reason;     /* "" of APPLY_DO */
	/* Of APPLY_REFUSED: the beginning of @path that is the place which the policy closes, with all below; 0: it is another reason. */
	size_t closed;
};
struct apply_sum {
	uint64_t done, conflicts, refused;
	uint64_t id;   /* the run's; 0: nothing was done */
	uint64_t runs; /* of apply_back(): that are taken back by now, also when it fails */
	/* Of the run that failed: what could not be undone, which @diag tells of; the next run tries it again. */
	uint64_t left;
};

struct apply_calls {
	/* Each change that was chosen, in order of paths, before anything is done. May be NULL, as the next. */
	void (*line)(void *arg, const struct apply_line *l);
	/* Nonzero: stop, and leave all as it was: -ECANCELED. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	/* What the tree has at @path, absolute there, with all below, is its own from here on, wherever on the host it came from. */
	int (*own)(void *arg, const char *path, struct diag *diag);
	/* All that the tree shows of its changes lies in the store from here on, and not in host files. */
	int (*settle)(void *arg, struct diag *diag);
	/* Of apply_back(): each of the runs' directories, and whether its run is one of @sum->runs; those it did not come to as well. */
	void (*root)(void *arg, const char *root, bool back);
	void *arg;
};
struct apply_job {
	const char *data_dir, *env;
	const char *host;  /* the directory: absolute, without links */
	const char *mount; /* where the tree has it, absolute: what the policy is asked about */
	int tree;          /* a descriptor of it there; O_PATH will do */
	struct apply_change *v; /* all of them, also those that are not chosen; sorted by path */
	size_t n;
	/* Paths of the tree, absolute, at which it shows what the host has, or had, at other places; also outside of @mount. */
	const char *const *elsewhere;
	size_t nelsewhere;
	struct policy *policy;
	struct timespec
		when; /* of the run: several of one time are taken back together; zero: now */
	/* Of apply_recover(), before the list was made: a run on the directory since then is -EAGAIN, for what it left, or took back, the
	 * list does not know. NULL: not looked at. */
	const uint64_t *since;
	bool dry_run;
	bool force; /* conflicts as well */
	/* @v is of apply_look(), and what is chosen of it is all that is done: nothing that it would need comes along. */
	bool exact;
};
/*
 * What apply_run() would do with @j, for who asks about each before: the list as it is done, directories that were made anew as what
 * differs in them, and of each what would come of it. What is to be done is then chosen in @v, and done by a run with that list, which is @exact.
 */
struct apply_seen {
	bool wanted; /* it was chosen, or what was chosen needs it */
	enum apply_verdict verdict;
	bool isdir;     /* what goes is a directory, */
	uint64_t below; /* with as many things in it as go along */
	char reason[240];
	size_t closed; /* as of struct apply_line */
};
struct apply_looked {
	struct apply_change *v; /* sorted by path; paths are owned, or those of the job's list */
	struct apply_seen *seen;
	size_t n;
	char **owned;
	size_t nowned;
};
int apply_look(const struct apply_job *j, struct diag *diag, struct apply_looked *ret) MUST_USE;
void apply_looked_release(struct apply_looked *l);

/* What a run that was killed left is put in order first. @sum counts also when nothing is done. After a failure
 * the directory is as it was, but for @sum->left; @diag says what failed, and not that nothing was done. */
int apply_run(const struct apply_job *j, const struct apply_calls *c, struct diag *diag,
	      struct apply_sum *sum) MUST_USE;

/* Take the latest run of @env back that was not taken back, with those that were made together with it. -ENODATA: there is none.
 * A failure leaves those of them that were taken back so, and the rest to the next time; @diag as above. */
int apply_back(const char *data_dir, const char *env, bool force, const struct apply_calls *c,
	       struct diag *diag, struct apply_sum *sum) MUST_USE;

struct apply_info {
	uint64_t id;
	const char *env, *root;
	struct timespec time;
	uint64_t back; /* it took that one back; 0: it applied */
	size_t places; /* that it changed */
	enum {
		APPLY_RUN_DONE,
		APPLY_RUN_BACK,    /* taken back */
		APPLY_RUN_UNDONE,  /* it failed or was killed, and was undone */
		APPLY_RUN_PENDING, /* it was killed, and waits to be undone */
		APPLY_RUN_KEPT,    /* done, and too old to be taken back */
	} state;
};
/* Oldest first, those of @env (NULL: all). Nothing is changed. */
int apply_list(const char *data_dir, const char *env,
	       int (*fn)(void *arg, const struct apply_info *i), void *arg) MUST_USE;
/* Undo what a killed run, or one that could not be undone, left: how many there were. @diag: of the first one that still cannot be.
 * To be called before a list of changes is made: what stands on the host half-way is no change, and would be missing in it.
 * *ret_last (may be NULL): the latest run by then. */
int apply_recover(const char *data_dir, struct diag *diag, uint64_t *ret_last) MUST_USE;
