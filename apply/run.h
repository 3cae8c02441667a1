/*
 * apply/run.h - what bringing and taking back have in common. Included by the files of apply/ alone.
 */
#pragma once

#include <sys/stat.h>

#include "apply/work.h"

/* How many runs of an environment, and how old ones, can be taken back. */
#define RUN_KEEP      20
#define RUN_KEEP_DAYS 30

/* DATA/apply, locked; what a killed run left is in order. */
int run_open(const char *data_dir, bool make, struct diag *diag, int *ret_base) MUST_USE;
/* The host directory. */
int run_pin(const char *host, struct stat *ret_st, struct diag *diag) MUST_USE;
/* The plan is durable, and the stage made. */
int run_begin(struct work *w, const char *env, const char *root, const struct stat *st,
	      struct diag *diag) MUST_USE;
/* @r: of what was staged; < 0: it is given up. Otherwise the steps are taken. */
int run_end(struct work *w, int base, int r, struct diag *diag) MUST_USE;
/* What older runs replaced is let go. */
void run_prune(int base, const char *env);
