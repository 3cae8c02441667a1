/*
 * runner/plan_encode.h - a run's specification as the plan that stage3 reads.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "runner/runner.h"

struct plan_options {
	bool tty;  /* one of the standard streams is the command's own terminal */
	bool back; /* ... in whose background it begins */
};

/* The bytes (stage3/stage3_abi.h). -EINVAL, -E2BIG with a sentence in @diag. */
int plan_encode(const struct run_spec *s, const struct plan_options *o, struct diag *diag,
		struct buf *ret) MUST_USE;
/* Of @s only the command, its environment and cwd: no rule, no limit and no filter (runner/role.h). */
int plan_encode_role(const struct run_spec *s, struct diag *diag, struct buf *ret) MUST_USE;
/* @b as a sealed memfd named @name; the descriptor is the caller's. */
int plan_memfd(const char *name, const struct buf *b) MUST_USE;
