/*
 * runner/orphan.h - the processes that bwrap leaves behind when it is killed in its first moments (R4).
 *
 * bwrap makes its child in the new namespaces, and lets it wait at an eventfd until the ids are mapped. When it is killed in
 * between, the child waits for ever: nobody writes any more, and what ties it to its parent (--die-with-parent) comes
 * later. Nothing runs in it; it is a process and its descriptors.
 */
#pragma once

#include <sys/types.h>

/* The one of the run whose status socket has this inode at the inner end. */
void orphan_end(ino_t status);
/* All of this user's, of whatever process that was killed with its bwraps. */
void orphan_end_all(void);
