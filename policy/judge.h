/*
 * policy/judge.h - what an operation needs of the places that it touches, for every tree that has a policy: each says
 * which states its nodes have, and is told whether it may go on. A refusal is remembered with its path and rule.
 *
 * Threads: as policy.h. Whatever @path needs is the caller's to hold.
 */
#pragma once

#include "policy/denials.h"
#include "policy/policy.h"

struct judge {
	struct policy *policy; /* lent */
	struct denials denials;
	/* Appends the path of @where, a node of the tree. */
	int (*path)(void *arg, void *where, struct buf *out);
	void *arg;
};
void judge_init(struct judge *j, struct policy *policy,
		int (*path)(void *arg, void *where, struct buf *out), void *arg);
void judge_release(struct judge *j);

/* @name of the directory @where, which has state @dir. */
struct judge_name {
	void *where;
	int dir;
	const char *name;
	size_t len;
};
/* The node @where. */
struct judge_node {
	void *where;
	int state;
	bool isdir;
};

/* The state of a node whose state is @known, or -1, when it has turned out to be at a place with state @place. With
 * @several links it may be used only as all of its places may. */
int judge_found(const struct policy *p, int known, int place, bool several);

/* All: 0, or -EACCES, which is remembered as a denial of @op; NULL: it is not. @what: enum policy_what, all of them. */
int judge_node(struct judge *j, const struct judge_node *n, unsigned what, const char *op) MUST_USE;
int judge_name(struct judge *j, const struct judge_name *n, unsigned what, const char *op) MUST_USE;
/* May it be looked at? 1: no, and it is to look as if there were no such name. */
int judge_look(struct judge *j, const struct judge_name *n, const char *op) MUST_USE;
/* May it be removed or moved away? */
int judge_go(struct judge *j, const struct judge_name *n, const char *op) MUST_USE;
/* May @what, which is @from, come to be at @to, where @old is (NULL: nothing)? An exchange is both ways. -EXDEV: below
 * a directory other rules would hold. */
int judge_rename(struct judge *j, const struct judge_name *from, const struct judge_node *what,
		 const struct judge_name *to, const struct judge_node *old, bool exchange) MUST_USE;
/* What an opening asks for. */
int judge_open(struct judge *j, const struct judge_node *n, bool change) MUST_USE;
