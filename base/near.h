/*
 * base/near.h - how unlike two short words are, for hints after a mistyped name.
 *
 * Pure functions. Bytes, not characters: a letter beyond ASCII that differs counts once for each of its bytes.
 */
#pragma once

#include <stdbool.h>

enum {
	NEAR_FAR = 99 /* what a word of more than 63 bytes is from any other */
};

/* The edit distance (Levenshtein); with @fold, ASCII case counts nothing. */
unsigned near_distance(const char *a, const char *b, bool fold);
