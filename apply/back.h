/*
 * apply/back.h - the steps that take a run back.
 */
#pragma once

#include "apply/apply.h"
#include "apply/trail.h"

/* Of what @of left and nobody has touched since; the rest is told as a conflict, unless @force. */
int back_plan(const struct trail *of, int root, int base, bool force, const struct apply_calls *c,
	      struct steps *ret, struct apply_sum *sum) MUST_USE;
