/*
 * store/guard.h - LMDB trusts its pages: what it does on a damaged one is contained here.
 *
 * A read of LMDB that trips over a damaged page (a wild pointer, a page past the end of the file, an assertion
 * of its own) ends with -EBADMSG for whoever asked, as any other damage does. Reads take no lock and change nothing
 * but their cursor, which is set up anew before it is used again; so they can be left in the middle. Writes cannot:
 * there, and anywhere else, the process ends, with a sentence that names fsck.
 */
#pragma once

#include <lmdb.h>
#include <setjmp.h>

#include "base/err.h"

/* store_contain_damage() of store.h installs the handlers; without it only assertions are contained. For each environment. */
void store_guard_env(MDB_env *env);

struct store_guard {
	struct store_guard *outer;
	sigjmp_buf at;
};
extern _Thread_local struct store_guard *store_guard_now;

/*
 * int r = 0;
 * GUARD_BEGIN(g) {
 *	r = mdb_get(...);
 * } GUARD_END(g, r);		r is -EBADMSG when it tripped
 * No return or break inside; what is changed inside and used after a trip is volatile.
 */
#define GUARD_BEGIN(g)                                     \
	struct store_guard g = {.outer = store_guard_now}; \
	if (sigsetjmp(g.at, 0) == 0) {                     \
		store_guard_now = &g;
#define GUARD_END(g, r)         \
	}                       \
	else                    \
	{                       \
		(r) = -EBADMSG; \
	}                       \
	store_guard_now = g.outer
