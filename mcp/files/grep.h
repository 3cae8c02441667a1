/*
 * mcp/files/grep.h - search files of a tree and keep what is to be shown, within bounds.
 */
#pragma once

#include "mcp/files/call.h"
#include "mcp/files/search.h"
#include "mcp/files/walk.h"

enum grep_mode {
	GREP_CONTENT,
	GREP_FILES,
	GREP_COUNT
};

struct grep_opts {
	const char *pattern, *glob;
	unsigned flags; /* SEARCH_* */
	enum grep_mode mode;
	unsigned before, after;
	uint64_t max_matches, per_file, offset; /* per_file 0: see GREP_PER_FILE */
	bool hidden, ignore, by_mtime;
	long long until; /* io_now_ms */
};
enum {
	GREP_PER_FILE = 20 /* when more than one file matches */
};

struct grep_row { /* one line of text, in grep->text */
	uint64_t line;
	uint32_t off, len;
	bool match, gap; /* gap: lines are left out before it */
};
struct grep_file {
	char *path; /* as shown */
	uint64_t matches;
	size_t first_row, rows;
	int64_t mtime;
};
struct grep {
	const struct grep_opts *o;
	struct files_call *fc;
	struct search *search;
	struct grep_file *files;
	size_t nfiles, files_cap;
	struct grep_row *rows;
	size_t nrows, rows_cap;
	struct buf text, block; /* block: the file that is being read */
	uint64_t matches, searched, binary, too_hard, stored;
	struct walk_counts counts;
	bool timed_out;
	unsigned slow, ahead; /* reads in a row that had to wait; files still to be read ahead */
	struct scout *scout;  /* once there are many files; NULL: none */
	bool scouted;         /* it was tried */
	/* the file under way */
	struct grep_file *cur;
	uint64_t last_shown; /* line number */
	bool convert;
};

/* @path absolute in the tree, a file or a directory. */
int grep_search(struct grep *g, const char *path) MUST_USE;
void grep_release(struct grep *g);
