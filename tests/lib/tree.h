/* tests/lib/tree.h - removes what a test made: a directory with all below it, links themselves. */
#pragma once

#include <ftw.h>
#include <stdio.h>

static inline int tree_remove_one(const char *path, const struct stat *st, int type,
				  struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

static inline void tree_remove(const char *path)
{
	(void)nftw(path, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
