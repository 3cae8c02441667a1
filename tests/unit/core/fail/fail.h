/*
 * tests/unit/core/fail/fail.h - what test_fail.c does, over and over: a tree, operations on it, and the
 * tree as text.
 */
#pragma once

#include "fs/core/journal.h"
#include "tests/power/fail.h"
#include "tests/unit/core/ovl_fixture.h"

struct rig {
	struct fx f;
	struct store_env env;
	store_layer base; /* sealed */
	unsigned n;       /* environments made */
	bool committed;   /* the operation reported a commit */
	int journal_fd;   /* -1: without a journal */
};

extern char fail_noise[400 * 1024];

static inline void must(int r, const char *what)
{
	if (r < 0)
		tap_fatal("%s: %s", what, err_text(r));
}

/* ---- rig.c ---- */

/* A host directory at /, with what is sealed over it. */
void rig_open(struct rig *g);
/* A fresh environment, with what is there before each operation. s: sealed; f: flushed in the open layer; n: new,
 * not flushed. */
void rig_prepare(struct rig *g);
void rig_drop(struct rig *g);
/* From now on with a journal of its own. */
void rig_journal(struct rig *g);
/* The process is gone, and another one goes on with the journal; or tries again to. */
int rig_crash(struct rig *g) MUST_USE;
int rig_set_xattr(struct rig *g, const char *path, const char *name, size_t len) MUST_USE;

/* ---- dump.c ---- */

/* Names, attributes without times, bytes, xattrs; the caller's. What cannot be read stands in it, too. */
char *rig_dump(struct rig *g);

/* ---- ops.c ---- */

struct fail_op {
	const char *name;
	int (*run)(struct rig *g);
	bool in_parts; /* several calls: it may stop between them */
	bool resumes;  /* with a journal it goes on from that */
};
extern const struct fail_op fail_ops[];
extern const size_t fail_nops;
