/* net/confine.h - rattan-net's own fence. */
#pragma once

#include "base/err.h"

/* Closes what is above @last, and gives up: writing files and executing (Landlock, where the kernel has it), new
 * privileges, being looked at by other processes of the user. */
int confine(int last) MUST_USE;
