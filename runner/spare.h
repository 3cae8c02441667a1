/*
 * runner/spare.h - one sandbox that is built before the command for it is known.
 *
 * Most of what a short command costs is the making of namespaces and mounts. They depend on the tree and on few settings,
 * which are the same from one command to the next: so after a command one sandbox more is built, in which nothing runs but
 * rattan-stage3, waiting for its plan. The next command that wants the same one gets it; any other gets a
 * sandbox of its own, as without. What a command may do, see and use is in the plan, and never in what waits.
 *
 * It has no lease and holds nothing up: it ends when the tree does, with the process that keeps it, when it was not wanted for
 * ten minutes, and when something else was wanted.
 * Threads: any; all of it under a lock of its own, which is taken before none of a run's.
 */
#pragma once

#include "base/err.h"

struct run_spare;

int run_spare_new(struct run_spare **ret) MUST_USE;
/* Ends what waits. No run that was started with it may be left. Accepts NULL. */
void run_spare_free(struct run_spare *s);
/* What waits ends, with what is mounted in it; the next command has its own. */
void run_spare_drop(struct run_spare *s);
/* Is there one? For tests. */
bool run_spare_waits(struct run_spare *s);
