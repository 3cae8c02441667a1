/*
 * tests/unit/core/power_work.h - the work of test_power.c: writers that know, step by step, what their
 * directory should hold.
 *
 * Every state of a writer's directory has a digest of its own; the notes in the log (tests/power/record.h)
 * tell when a step began and ended, when all steps up to one were acknowledged as durable, and when a
 * commit was reported:
 *   s WRITER STEP DIGEST | e WRITER STEP | a WRITER STEP | c COMMIT STEP STEP STEP | o
 */
#pragma once

#include "tests/unit/core/ovl_fixture.h"

#define WRITERS   3
#define STEPS_MAX 512

/* Create a store in @data and work on it, all in this process; the log is open. */
void power_work(const char *data, uint64_t seed, unsigned steps);

/* What a directory holds, as a digest that is the same for the tree and for what should be in it. */
struct seen_ent {
	char name[16];
	char type; /* f, l (symlink), d */
	unsigned links;
	uint64_t size, hash; /* of the bytes */
};
uint64_t power_digest(struct seen_ent *e, size_t n);
uint64_t power_hash(const void *p, size_t n);
/* The commit that is reported as number @i. */
struct digest power_commit_id(unsigned i);
