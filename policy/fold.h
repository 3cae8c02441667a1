/*
 * policy/fold.h - spellings that some file systems take for one name: without case, and without the code points
 * that are not shown. ASCII, and the two other letters that fold to ASCII ones; pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Is @name a spelling of @plain, which is in lower case? */
bool fold_same(const char *plain, const char *name, size_t len);
/* ASCII letters in lower case, in place. */
void fold_plain(char *s);
