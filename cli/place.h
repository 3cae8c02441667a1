/*
 * cli/place.h - which place of an environment a PATH of the command line is.
 *
 * ./x, ../x and the absolute path of what lies in a directory of the host that is shown are that file, where the
 * environment has it. Another relative one is below the current directory, if that is shown, or else, or when
 * nothing is meant there, below /workspace; so is ./x where the current directory is not shown. Any other
 * absolute one is a path in the environment. Which of two is meant is the caller's to see, the first one first.
 */
#pragma once

#include "cli/cli.h"

struct cli_place {
	char *at[2]; /* owned; absolute, without . and ..; the second may be NULL */
};
void cli_place_release(struct cli_place *p);
#define cleanup_place __attribute__((cleanup(cli_place_release)))

/* @overlays: "HOST=MOUNT", NULL-terminated, or NULL. -EXDEV: it begins with .. where nothing is shown. */
int cli_place_in(const char *const *overlays, const char *word, struct cli_place *ret) MUST_USE;
/* The same of the environment at @ctl. An exit code, after an error of command @name, or -1. */
int cli_place(struct ctl *ctl, const char *word, const char *name, struct cli_place *ret) MUST_USE;
/* Of a place without a change: an exit code when at neither @a nor @b (NULL: the working tree) anything is there. */
int cli_place_unchanged(struct ctl *ctl, const struct cli_place *p, const char *a, const char *b,
			const char *word, const char *name) MUST_USE;
