/*
 * mcp/files/lister.h - directories that are listed before their turn, by a thread.
 *
 * A listing of many names is asked of the file system and waited for; meanwhile the files of the directory before it can be searched.
 * Who walks says which directories come next, and takes each in its turn; what the thread has not begun with by then he lists himself.
 *
 * Belongs to one thread, which asks and takes.
 */
#pragma once

#include "base/err.h"
#include "mcp/files/names.h"

struct lister;

/* -EAGAIN: no CPU for it. */
int lister_new(const struct names_opts *o, struct lister **ret) MUST_USE;
void lister_free(struct lister *l); /* accepts NULL */
/* The directory @name of @dir_fd comes soon. @name stays until it is taken, or @dir_fd left. Does nothing where too many are asked for. */
void lister_ask(struct lister *l, int dir_fd, const char *name);
/* Its names, the caller's. May wait for one listing. False: not asked for, not begun with, or not opened. */
bool lister_take(struct lister *l, int dir_fd, const char *name, struct names *ret);
/* Nobody takes directories of @dir_fd any more, and its descriptor and names are about to go. May wait for one listing. */
void lister_leave(struct lister *l, int dir_fd);
