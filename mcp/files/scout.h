/*
 * mcp/files/scout.h - files that are looked into before their turn, by threads: is there anything to be found?
 *
 * Most files of a search hold nothing, and that is all there is to say of them. Who walks sends the files that come next, and asks for
 * each in its turn; what nobody has begun with by then he does himself.
 *
 * Belongs to one thread, which sends and asks.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct scout;

enum scout_said {
	SCOUT_UNKNOWN, /* not sent, not begun with, or not to be told: look yourself */
	SCOUT_NOTHING, /* a text without a match */
	SCOUT_BINARY,
	SCOUT_MAYBE, /* a match, a large file, an encoding to be converted, a pattern that is too hard */
};

/* @pattern and @flags as in search_new(), @until as in search_run(). -EAGAIN: no CPU for it. */
int scout_new(const char *pattern, unsigned flags, long long until, struct scout **ret) MUST_USE;
void scout_free(struct scout *s); /* accepts NULL */
/* The regular file @name of the directory @dir_fd, as @fd, which is taken over. */
void scout_send(struct scout *s, int dir_fd, const char *name, int fd);
/* May wait for the reading of one file. *ret_fd: the file, the caller's from now on, where nobody has begun with it; else -1. */
enum scout_said scout_ask(struct scout *s, int dir_fd, const char *name, int *ret_fd);
/* Nobody asks for files of @dir_fd any more, and the number may come to mean another directory. */
void scout_leave(struct scout *s, int dir_fd);
