/*
 * mcp/files/pattern.h - wildcard patterns over paths, and lists of them as ignore files hold them.
 *
 * Pure. "*" and "?" stay within a component, "**" as a whole component spans any number of them,
 * "[a-z]" and "[!a]", "\" takes the next byte literally, "{a,b}" are alternatives. A pattern that
 * would take unreasonably long matches nothing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

bool pattern_match(const char *pattern, const char *path);
/* The same; a pattern without "/" is matched with the last component at any depth. */
bool pattern_match_anywhere(const char *pattern, const char *path);
/* "*.c !*_test.c src/x": some positive one matches (or there is none), and no negative one. */
bool pattern_filter(const char *patterns, const char *path);

struct ignore_rules {
	struct ignore_rule *v;
	size_t n;
};
/* Append the rules of a .gitignore text. */
int ignore_parse(struct ignore_rules *rules, const char *text, size_t len) MUST_USE;
void ignore_release(struct ignore_rules *rules);
/* The last rule that matches @path (relative to the file's directory): 1 ignored, -1 taken back by
 * a "!" rule, 0 none. */
int ignore_verdict(const struct ignore_rules *rules, const char *path, bool is_dir);
