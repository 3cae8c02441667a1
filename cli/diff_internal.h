/* cli/diff_internal.h - shared by the files of `rattan diff`. */
#pragma once

#include "cli/cli.h"
#include "cli/pager.h"

struct change {
	char kind, *path, *old_path;
	uint32_t mode, what; /* what: enum ctl_what */
	uint64_t size;
};

/* diff_content.c: how @c differs between the two, beside its name; to a terminal in colours. Negative errno; -ENOENT: there is no diff(1). */
int diff_put_content(const struct cli_page *pg, struct ctl *ctl, const char *rev_a,
		     const char *rev_b, const struct change *c) MUST_USE;
