/*
 * fs/through/through.h - the host's own tree, served live under a policy: what is written goes to the host.
 *
 * Every node is a file of the host, found by its name in a directory without following links, and used through
 * descriptors alone. Its verdict is that of its place (policy/judge.h). Nothing is stored.
 *
 * Files come and go on the host at any time:
 * * A name is believed for THROUGH_TTL_MS, attributes as well; an opening looks whether its name still means the file.
 * * What was moved by the host is judged at its new place, before each opening and each change, and within
 *   THROUGH_TTL_MS for everything else, also through descriptors that were opened before. What was removed keeps its verdict.
 * * An operation that was judged before such a move is as if it had been made before it.
 *
 * Threads: all calls may be made at once, but for open and close.
 */
#pragma once

#include "base/err.h"
#include "fs/core/ovl.h"
#include "fs/fuse/tree.h"

#define THROUGH_TTL_MS 1000

struct through;
struct policy_rules;

struct through_opts {
	const struct policy_rules *policy; /* copied */
	struct ovl_notify notify;
	const char *root; /* NULL: "/" */
	/* Descriptors held for nodes, and openings at a time (ENFILE); 0: by the limit of open files, of which some are
	 * left for whoever holds this tree. */
	size_t nodes_fds_max, handles_max;
};
/* With a sentence. */
int through_open(const struct through_opts *o, struct diag *diag, struct through **ret) MUST_USE;
void through_close(struct through *t);
struct tree through_tree(struct through *t);

uint64_t through_denied(struct through *t);
/* As ovl_denials(). */
int through_denials(struct through *t, uint64_t since, int (*fn)(void *arg, const struct denial *d),
		    void *arg, uint64_t *ret_total) MUST_USE;

struct through_counts {
	size_t nodes, nodes_fds, handles;
};
void through_counts(struct through *t, struct through_counts *ret);
