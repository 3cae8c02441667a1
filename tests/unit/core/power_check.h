/*
 * tests/unit/core/power_check.h - does a store after a loss of power hold what the notes in the log (tests/power/work.h)
 * say was acknowledged, as the state of one moment, and does it go on?
 */
#pragma once

#include "tests/power/disk.h"

struct power_crash {
	size_t at; /* events before this one have happened */
	const char *env;
	const char *prefix; /* of the writers' directories in the tree: "" or "dir/" */
	const char *why;    /* what is wrong */
	char text[200];
};

/* False: it is no work that can be checked. */
bool power_check_notes(const struct disk *d);
/* The store in @data. False: c->why. */
bool power_check(const char *data, struct power_crash *c, uint64_t seed);
