/*
 * fs/fuse/reply.h - the one answer of a request, from the core's result.
 *
 * Each takes the result @r (0 or a count, or negative errno) and what goes with success, so that an
 * operation ends in exactly one reply_* call without a branch. A reply that the kernel does not take
 * (the connection ended) is dropped.
 */
#pragma once

#include "fs/fuse/session_internal.h"

/* An errno that the kernel accepts in an answer and that means nothing special to it. */
int reply_errno(int r);
/* Before an answer with the error @r: see session_patience. */
void reply_hold(struct session *se, int r);
/* How long an answer may be cached, in seconds. */
double reply_seconds(uint32_t valid_ms);
/* @e as libfuse wants it, owners as shown. */
struct fuse_entry_param reply_entry_param(struct session *se, const struct ovl_entry *e);

void reply_status(fuse_req_t req, int r);
/* When the kernel does not take an entry, its reference goes back to the core. */
void reply_entry(fuse_req_t req, int r, const struct ovl_entry *e);
void reply_attr(fuse_req_t req, int r, const struct ovl_attr *a);
void reply_target(fuse_req_t req, int r, const char *target);
void reply_statfs(fuse_req_t req, int r, const struct statvfs *st);
void reply_bytes(fuse_req_t req, ssize_t r, const void *bytes);
void reply_written(fuse_req_t req, ssize_t r);
void reply_offset(fuse_req_t req, int64_t r);
/* The answer to get- and listxattr: the size when @asked is 0, else the bytes. */
void reply_xattr(fuse_req_t req, ssize_t r, size_t asked, const void *bytes);
/* "I do not serve this": the kernel does it by itself from now on. */
void reply_nosys(fuse_req_t req);
