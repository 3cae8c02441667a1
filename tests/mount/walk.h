/*
 * tests/mount/walk.h - random walks of several processes through a mount.
 *
 * Each process does the same steps in a directory of the mount and in a plain directory, which must stay
 * equal; each step draws from numbers of its own (seed, process and index), so that a walk can be made again. Now
 * and then it does something in directories that all of them use, where not the state but the outcome is
 * known: one of many creates a name, a record that is appended is whole (shared.c).
 *
 * A process prints what differs, and the steps that came before.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define DATA_MAX  (300u << 10)
#define HANDLES   6
#define TRACE_MAX 48
#define PATH_LEN  600

enum side {
	OURS,
	PLAIN,
	SIDES
};

/* A file that is open on both sides, with or without a name. */
struct handle {
	int fd[SIDES];
	bool live;
	uint8_t *map[SIDES]; /* NULL: not mapped */
	size_t map_len;
};

struct walk {
	unsigned proc;
	uint64_t seed, step, rnd;
	int dir[SIDES];
	struct handle handles[HANDLES];
	struct pair {
		ino_t plain, ours;
	} * pairs;
	size_t npairs;
	unsigned failed;
	char trace[TRACE_MAX][256];
	size_t ntrace;
	uint8_t data[DATA_MAX], got[SIDES][2 * DATA_MAX];
};

/* ---- walk.c ---- */
uint32_t rnd(struct walk *w, uint32_t n);
void rnd_step(struct walk *w, uint64_t step);
/* What the step does, for the trace. */
void say(struct walk *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void bad(struct walk *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For what no test can go on without. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Both sides did the same: the same success, or the same error. True on success. */
bool agree(struct walk *w, const char *op, const int r[SIDES]);
static inline int sys(long r)
{
	return r < 0 ? -errno : (int)r;
}
/* A path that may be there. */
void pick(struct walk *w, char p[static PATH_LEN]);
/* Something that is there, and of type @type (0: any), when it is soon found. */
void pick_there(struct walk *w, mode_t type, char p[static PATH_LEN]);
const char *pick_word(struct walk *w);
void one_step(struct walk *w);

/* ---- data.c: content, and files that are held open ---- */
void step_create(struct walk *w, const char *p);
void step_file(struct walk *w, const char *p);
void step_handle(struct walk *w);
void step_tmpfile(struct walk *w, const char *p);
void handles_close(struct walk *w);
void look_content(struct walk *w, const int fd[SIDES], const char *what);

/* ---- look.c: comparing ---- */
void look_at(struct walk *w, const char *p);
/* All of it; @times: of modification, too. */
void look_tree(struct walk *w, bool times);
/* Gives everything a time that is a matter of its path, on both sides. */
void settle(struct walk *w);

/* ---- list.c: listings ---- */
struct names {
	char (*v)[256];
	size_t n;
};
/* Lists from where @fd is, with @size bytes a call, at most @most names (0: all). */
void names_read(int fd, size_t size, size_t most, struct names *n);
void names_sort(struct names *n);
size_t names_count(const struct names *n, const char *name);
void names_free(struct names *n);
/* A directory is listed while names come and go in it. */
void step_listing(struct walk *w, const char *p);

/* ---- shared.c ---- */
#define CONTESTS 20000
#define PROCS    16
struct shared {
	atomic_uint won[CONTESTS], tried[CONTESTS], took[CONTESTS], asked[CONTESTS];
	atomic_ullong counter[PROCS];
	atomic_uint records[PROCS];
};
/* Below the directory @fd of the mount; before all and after all processes. */
void shared_begin(int fd);
bool shared_end(int fd, const struct shared *sh, unsigned procs);
/* What a process has of it. */
struct part {
	int fd;
	struct shared *sh;
	unsigned procs, contests, asks, records, links;
	uint64_t counter;
	const volatile uint64_t *seen[PROCS]; /* mapped counters */
};
void shared_open(struct part *s, int fd, struct shared *sh, unsigned procs);
void step_shared(struct walk *w, struct part *s);
