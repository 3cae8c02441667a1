/*
 * fs/core/file.h - a regular file held for an operation on its content.
 */
#pragma once

#include "fs/core/ovl_internal.h"

/* The node is pinned and the content referenced: both stay without o->lock. */
struct held {
	struct node *n;
	struct content_ref *c;
};

/* No lock held. @change: policy is checked and a host file recorded; needs change_begin().
 * -EISDIR, -EINVAL for what is no regular file. */
int file_hold(struct ovl *o, store_ino ino, bool change, struct held *ret) MUST_USE;
/* @changed: its content was, so set times, and drop privileges with @killpriv (as ovl_write_told). */
void file_drop(struct ovl *o, struct held *h, bool changed, bool *killpriv);
/* Inside change_begin(). Times are the caller's. */
int file_truncate(struct ovl *o, store_ino ino, off_t size) MUST_USE;
