/*
 * fs/env/mend.h - a store that LMDB has given up (store_broken_fd): only opening it anew helps, which in one process is not
 * to be had beside readers. Another daemon does that, and goes on with the mount and what is in the journal.
 *
 * The first time at once, and then after longer and longer: a disk that always fails is not asked without pause.
 * Threads: of the daemon's main one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct env;
struct keeper_link;

/* What each daemon leaves for the next one: how often in a row, and when last (io_now_ms). */
struct mend_note {
	int64_t when_ms;
	uint32_t times, pad;
};

struct mend {
	struct mend_note before;
	long long started_ms;
	bool broken;  /* nothing more is to be heard of it */
	bool hurry;   /* who waits for another daemon is still to be told that none comes soon */
	long long at; /* when another daemon is to go on; 0: it is not */
};

/* @kept: what the last daemon left; may be NULL. */
void mend_init(struct mend *m, struct keeper_link *kept);
/* To be watched; -1: no more. */
int mend_fd(const struct mend *m, const struct env *e);
/* That is readable. */
void mend_broken(struct mend *m, struct env *e);
/* At most @most ms to sleep. */
int mend_wait(const struct mend *m, int most);
/* This process is to be replaced now. */
bool mend_due(struct mend *m, struct env *e);
