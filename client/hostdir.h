/*
 * client/hostdir.h - which directories of the host may be opened to an environment, and where they may appear.
 *
 * Allowed is what exists, is the user's own and lies below the user's home outside every hidden directory, or
 * below a root that the user has listed in the settings; everything else is refused with the reason. The
 * directory is opened without following links and stays open: what was looked at is what is bound (R2).
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct hostdir {
	int fd;     /* O_PATH */
	char *path; /* owned; absolute, without links */
};
void hostdir_release(struct hostdir *d);
#define cleanup_hostdir __attribute__((cleanup(hostdir_release)))

/* @roots: NULL-terminated, or NULL. -EINVAL with the reason when it may not be opened. */
int hostdir_open(const char *path, const char *const *roots, struct diag *diag,
		 struct hostdir *ret) MUST_USE;
/* The user's settings file, in which roots are listed; whether it is there or not. -ENOENT: there is no place for one. */
int hostdir_settings(char **ret) MUST_USE;
/* Where it may appear: not over what a command's behaviour rests on. */
int hostdir_check_mount(const char *mount, struct diag *diag) MUST_USE;
/* Is @path @dir or below it? */
bool hostdir_below(const char *path, const char *dir);
