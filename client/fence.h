/*
 * client/fence.h - what a run needs of a tree beside its policy: places for Landlock that are there, and a fresh directory
 * for temporary files. Both go through the mount's root descriptor, as the file tools do.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* @writable (newline-separated) with the nearest directory that exists in place of what does not: Landlock can name no
 * other, and what may be made there is the policy's to say. Where that would be "/" the first one below it is made. Into @ret.
 * -E2BIG. */
int fence_places(int root_fd, const char *writable, char *ret, size_t size) MUST_USE;
/* A directory at @path, 0700, if there is none; *ret_fd keeps it from being emptied by others, as long as it is open. @host: it is
 * the host's own at that path. */
int fence_make(int root_fd, const char *path, bool host, struct diag *diag, int *ret_fd) MUST_USE;
/* The same, and what was in it is removed, unless somebody has it from here already. @host: it must be the user's alone
 * (-EPERM). */
int fence_scratch(int root_fd, const char *path, bool host, struct diag *diag,
		  int *ret_fd) MUST_USE;
