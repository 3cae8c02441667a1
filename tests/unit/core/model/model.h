/*
 * tests/unit/core/model/model.h - a random walk of operations on a tree and on a plain directory that must
 * stay equal, through flushes, commits, reopenings, crashes, rollbacks, and changes of the host directory below.
 *
 * Each step draws from numbers of its own (seed and index), so that a walk can be repeated with steps left
 * out: that is how a failure is made short (shrink.c). Every function works on both sides and reports what
 * differs with bad(). Single-threaded, but for the core's own threads.
 */
#pragma once

#include <sys/stat.h>

#include "tests/unit/core/ovl_fixture.h"

#define DATA_MAX   (300 * 1024)
#define OPEN_MAX   6
#define STATES_MAX 12
#define TRACE_MAX  64
#define TOUCH_MAX  4
#define TICK_NS    20000000 /* of the plain directory's clock, and some more */

/* A file that is open on both sides, with or without a name. */
struct opened {
	store_ino ino; /* one reference */
	int fd;
	bool live;
};
struct state {
	store_layer layer; /* sealed */
	char dir[PATH_MAX];
};
struct pair {
	ino_t model;
	store_ino ours;
};
/* What stood at a path before a step; times.c. */
struct touch {
	char path[PATH_MAX];
	bool both;                 /* on both sides */
	bool old_mtime, old_ctime; /* so old that a change now has another time */
	struct stat model, ours;
};

struct model {
	struct fx f;
	int journal_fd; /* -1: without, and without crashes */
	uint64_t seed, rnd;
	char dir[PATH_MAX];
	int dirfd;
	char host[PATH_MAX]; /* "" without a host directory below */
	uint64_t host_sum;   /* what must be there (F1) */
	unsigned host_names;
	bool subdirs_counted, xattrs, exchange, tmpfiles;
	unsigned generation;
	struct opened open[OPEN_MAX];
	struct state states[STATES_MAX];
	size_t nstates;
	struct pair *pairs;
	size_t npairs, cap;
	struct touch touch[TOUCH_MAX];
	size_t ntouch;
	uint64_t token; /* of ovl_changes before the step */
	uint64_t step, failed;
	bool verbose;
	struct {
		const char *name;
		unsigned n[2]; /* failed on both sides, succeeded on both */
	} ops[40];
	uint8_t data[DATA_MAX], got[DATA_MAX];
	char last[3 * PATH_MAX]; /* the step under way */
	char trace[TRACE_MAX][256];
	size_t ntrace;
};

/* ---- model.c ---- */
uint32_t rnd(struct model *m, uint32_t n);
void rnd_step(struct model *m, uint64_t step);
void bad(struct model *m, const char *what);
/* What the step does, for the trace. */
void say(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Both sides did the same: the same success, or the same errno. True on success. */
bool agree(struct model *m, const char *op, int model, int ours);
static inline int sys(int r)
{
	return r < 0 ? -errno : 0;
}
void model_open(struct model *m, const char *dir);

/* ---- pick.c: names, paths, places in a file ---- */
size_t pick_entry(struct model *m, int fd, bool dirs, char *out);
void pick_new(struct model *m, char out[static PATH_MAX]);
void pick_path(struct model *m, char out[static PATH_MAX]);
/* Something that is there, and of type @type (S_IFREG ...; 0: any), when it is soon found. */
void pick_there(struct model *m, mode_t type, char out[static PATH_MAX]);
const char *pick_target(struct model *m);
uint64_t pick_off(struct model *m);
size_t pick_len(struct model *m);
void fill(struct model *m, size_t n);

/* ---- names.c ---- */
void op_create(struct model *m, const char *p);
void op_mkdir(struct model *m, const char *p);
void op_symlink(struct model *m, const char *p);
void op_remove(struct model *m, const char *p);
void op_rmtree(struct model *m, const char *p);
void op_rename(struct model *m, const char *p);
void op_link(struct model *m, const char *p);

/* ---- data.c: content, and files that are held open ---- */
void op_file(struct model *m, const char *p);
void op_opened(struct model *m);
void op_tmpfile(struct model *m, const char *p);
void close_all(struct model *m);
/* All but one of each inode. */
void close_twins(struct model *m);
void compare_content(struct model *m, int fd, store_ino ino, uint64_t size);

/* ---- attr.c ---- */
void op_chmod(struct model *m, const char *p);
void op_utimens(struct model *m, const char *p);
void op_xattr(struct model *m, const char *p);
void compare_xattrs(struct model *m, int dirfd, const char *name, store_ino ino);

/* ---- compare.c ---- */
void compare_tree(struct model *m);
/* What stands at @p, and the names around it. */
void compare_near(struct model *m, const char *p);

/* ---- times.c: what a step must have touched, and nothing else ---- */
void touch_before(struct model *m, const char *p);
void touch_after(struct model *m, const char *op, bool success);
void changes_before(struct model *m);
/* @p was changed by a step that succeeded. */
void changes_after(struct model *m, const char *p);

/* ---- history.c ---- */
void op_commit(struct model *m);
/* Remove the store's garbage. */
void op_collect(struct model *m);
void op_reopen(struct model *m);
/* To an older state, or only a look at it. */
void op_rollback(struct model *m, bool look);

/* ---- crash.c ---- */
void op_crash(struct model *m);
void op_power(struct model *m);
/* The log of the environment that there would be: as another process sees it. */
void log_map(struct model *m, bool there);
void journal_make(struct model *m);
/* Another one, or none (-1) instead of the one there is. */
void journal_map(struct model *m, int fd);

/* ---- below.c: the host directory ---- */
/* Base content on the host: what some steps made of an empty tree. */
void below_make(struct model *m);
/* Something changes on the host, and so in the plain directory where the tree shows it untouched. */
void op_below(struct model *m);
/* F1: all that changed there was ours to change. */
void below_check(struct model *m);

/* ---- shrink.c ---- */
struct run {
	uint64_t seed, steps;
	bool host;
	const uint8_t *keep; /* steps to be made; NULL: all */
	bool verbose;
};
/* In a process of its own; 0: it went well, else the step that it came to. */
uint64_t run_apart(const struct run *r, int (*walk)(const struct run *r), bool quiet);
/* Called by @walk before each step. */
void run_at(uint64_t step);
/* The failure at @step with as few steps as can be found in a minute (RATTAN_SHRINK_S), and its trace. */
void shrink(const struct run *r, uint64_t step, int (*walk)(const struct run *r));
