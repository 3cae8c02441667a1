/*
 * apply/expand.h - a directory that was removed and made anew, as changes of what is in it.
 */
#pragma once

#include "apply/apply.h"
#include "apply/known.h"

/* Where a directory of the host is gone and a new one has its place, the list says no more than that. In a list of the caller's own
 * each such pair becomes what differs between the two by name: nothing, when they are equal by now. What of the host's was not
 * touched since the old one was removed, or since a run of ours left the directory there, counts as seen, unless more is @known of it. @root: of the host; both are O_PATH. *ret is sorted, and freed by
 * expand_release(). */
struct expanded {
	struct apply_change *v; /* paths are owned, or those of the caller's list */
	size_t n, cap;
	char **owned;
	size_t nowned, owned_cap;
};
int expand(const struct apply_job *j, int root, const struct known *known,
	   struct expanded *ret) MUST_USE;
void expand_release(struct expanded *x);
#define cleanup_expanded __attribute__((cleanup(expand_release)))
