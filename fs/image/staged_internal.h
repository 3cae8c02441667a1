/* fs/image/staged_internal.h - shared by staged.c and emptied.c. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Takes away all that is in @dir, or, of names that end with a NUL each, what is @only; @dir stays. Directories of ours that let
 * nobody through, too. What the first refusal leaves is left. -ESTALE: somebody moves what is in it. */
int emptied(int dir, const struct buf *only) MUST_USE;
