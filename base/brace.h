/*
 * base/brace.h - the alternatives of a pattern: {a,b{c,d}}. A backslash takes the meaning from the byte after it.
 *
 * Pure functions; what they return points into what they were given.
 */
#pragma once

/* From @p, which is '{', to its '}'; NULL: it has none. */
const char *brace_end(const char *p);

/* Where the alternative that begins at @p ends: at a comma outside of inner braces, or at @end, the '}'. */
const char *brace_alternative_end(const char *p, const char *end);
