/* fs/image/staged_internal.h - shared by staged.c and emptied.c. */
#pragma once

#include "base/err.h"

/* Takes away all that is in @dir, which stays; directories of ours that let nobody through, too. What the first refusal leaves is
 * left. -ESTALE: somebody moves what is in it. */
int emptied(int dir) MUST_USE;
