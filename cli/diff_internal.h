/* cli/diff_internal.h - shared by the files of `rattan diff`. */
#pragma once

#include <stdio.h>
#include <sys/types.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "cli/diff_pairs.h"
#include "cli/pager.h"

struct change {
	char kind, *path, *old_path;
	uint32_t mode, what; /* what: enum ctl_what */
	uint64_t size;
};

/* diff_content.c: how each of @v differs between the two, beside its name; to a terminal in colours. Negative errno, of *ret_at;
 * -ENOENT: there is no diff(1). Ends early when nobody takes what is printed. */
int diff_put_contents(const struct cli_page *pg, struct ctl *ctl, const char *rev_a,
		      const char *rev_b, const struct change *v, size_t n,
		      const struct change **ret_at) MUST_USE;

/* ---- diff_text.c ---- */

/* A line of a unified diff, what is the file's as it is or, to a terminal, made safe. */
void diff_put_line(const struct cli_page *pg, const char *text, size_t n);
/* "--- " or "+++ ", and a name. */
int diff_put_head(const struct cli_page *pg, const char *mark, const char *label) MUST_USE;
/* A name that could end its line, or say something to a terminal, as git and patch(1) quote it. */
int diff_quote(struct buf *out, const char *label) MUST_USE;
