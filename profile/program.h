/*
 * profile/program.h - can a command start under a profile at all? What it needs before its first own step is looked for
 * on the host, so that a refusal names the path and not a step of the sandbox (R41).
 */
#pragma once

#include "base/err.h"
#include "profile/profile.h"

/* @name as execvp finds it in @path_var ("A:B"; NULL: the usual). -EACCES with the path that may not be read: the program,
 * or what it names as its interpreter. 0 also when it is not there: that is the command's own error. */
int profile_check_program(const struct profile *p, const char *name, const char *path_var,
			  struct diag *diag) MUST_USE;
