/*
 * fs/core/remove.h - what unlink, rmdir and rename share. EX and o->freeze held in all.
 */
#pragma once

#include "fs/core/ovl_internal.h"

/* -ENOTEMPTY. */
int dir_is_empty(struct ovl *o, struct node *n) MUST_USE;
/* @n has lost the place in @parent that @p, made by place_del, is about; a directory loses its only
 * one. */
void drop_link(struct ovl *o, struct node *n, store_ino parent, struct place_plan *p,
	       const struct timespec *now);
