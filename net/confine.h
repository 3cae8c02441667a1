/* net/confine.h - rattan-net's own fence. */
#pragma once

#include "base/err.h"

/* Closes what is above @last, and gives up: writing, making and changing files, executing, signals to others (by Landlock,
 * where the kernel has it, and by a filter of calls, on x86-64 and AArch64), new privileges, being looked at by other
 * processes of the user. */
int confine(int last) MUST_USE;
