/*
 * tests/power/work.h - work that is interrupted by losses of power: writers that know, step by step, what their
 * directory should hold.
 *
 * Where they work is a place: a tree of the core in the same process, or a mount. Every state of a writer's directory has
 * a digest of its own; notes in the log (record.h) tell when a step began and ended, when all steps up to one
 * were acknowledged as durable, and when a commit was reported, with its id and the steps that must be in it:
 *   s WRITER STEP DIGEST | e WRITER STEP | a WRITER STEP | c ID STEP STEP STEP | o
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define POWER_WRITERS   3
#define POWER_STEPS_MAX 512
#define POWER_ID        80

/* Paths are relative; all return 0 (write: bytes) or negative errno. The calls with void do not come back from a failure. */
struct power_place {
	int (*make)(void *arg, const char *path, char type); /* f, d, l: a symlink to "nowhere" */
	ssize_t (*write)(void *arg, const char *path, uint64_t off, const void *p, size_t n);
	int (*truncate)(void *arg, const char *path, uint64_t size);
	int (*rename)(void *arg, const char *from, const char *to);
	int (*remove)(void *arg, const char *path, bool dir);
	int (*link)(void *arg, const char *from, const char *to);
	int (*sync)(void *arg, const char *path);
	/* False: nothing had changed. Its id in hex. */
	bool (*commit)(void *arg, char id[static POWER_ID]);
	void (*collect)(void *arg);
	void (*rollback)(void *arg, const char *id);
	void (*end)(void *arg); /* in good order */
	void *arg;
};

/* Work on it; the log is open (power_record). */
void power_work(const struct power_place *place, uint64_t seed, unsigned steps);
/* Ends the process when it is not. */
void power_must(bool good, const char *what, long r);

/* What a directory holds, as a digest that is the same for the tree and for what should be in it. */
struct seen_ent {
	char name[16];
	char type; /* f, l (symlink), d */
	unsigned links;
	uint64_t size, hash; /* of the bytes */
};
uint64_t power_digest(struct seen_ent *e, size_t n);
uint64_t power_hash(const void *p, size_t n);
