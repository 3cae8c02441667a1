/*
 * client/fence.h - what a run needs of a tree beside its policy: places for Landlock that are there, and a fresh directory
 * for temporary files. Both go through the mount's root descriptor, as the file tools do.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* @writable (newline-separated) with the nearest directory that exists in place of what does not: Landlock can name no
 * other, and what may be made there is the policy's to say. Into @ret. -E2BIG. */
int fence_places(int root_fd, const char *writable, char *ret, size_t size) MUST_USE;
/* An empty directory at @path, 0700: what was in it is removed. */
int fence_scratch(int root_fd, const char *path, struct diag *diag) MUST_USE;
/* @path of the host is the user's own directory and nobody else can change it: -EPERM. */
int fence_own(const char *path, struct diag *diag) MUST_USE;
