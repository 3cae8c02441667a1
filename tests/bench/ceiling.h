/*
 * tests/bench/ceiling.h - a file system in memory that costs next to nothing: what the kernel allows a FUSE
 * server, to be measured beside ours. A measuring stick, not a file system: one lock, no errors but those that
 * programs wait for, no memory given back but that of removed files.
 *
 * It speaks the kernel's protocol itself, so that it shares neither code nor mistakes with fs/fuse.
 */
#pragma once

#include <stdint.h>

struct ceiling;

/* Serve the mount behind @fuse_fd, which is taken over. One thread looks for requests for 50 us before it sleeps;
 * several sleep at once, which is better for several clients. NULL: no memory, no threads, or no INIT. */
struct ceiling *ceiling_start(int fuse_fd, unsigned threads);
/* Requests by the kernel's opcode since the start; all of them with opcode 0. */
uint64_t ceiling_count(const struct ceiling *c, unsigned opcode);
/* The kernel is to forget a name, and what it knows below. */
void ceiling_forget(struct ceiling *c, uint64_t parent, const char *name);
/* Waits until the mount is gone, and frees nothing: the process ends. */
void ceiling_wait(struct ceiling *c);
