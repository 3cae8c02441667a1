/*
 * fs/image/before.h - what an earlier import of the same directory has read, so that it need not be read again.
 *
 * Beside a base of a directory a list is kept: of each of its files where it was, and which (device, number, size, times of change). A file
 * that is still that one has the bytes that the base has.
 *
 * That holds because a file whose bytes change gets a new ctime, which nobody can set: but for a change within the clock's step, and for
 * one through a mapping whose page was dirty already. So before the first byte is read the file system is told to write out what is dirty
 * (the next store to a mapped page is a change then), and what was changed after that, or a little before it, is not listed. Only
 * for file systems that are known to keep ctime in that way, with this machine's clock. A write(2) stamps its file when it begins: one
 * that began before that and still goes on when its file is read is not seen. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "fs/image/sink.h"
#include "store/store.h"

/* ---- the list under way ---- */

struct listed {
	bool on;
	dev_t dev; /* what is of another one is left out: its ctime is not known to be kept */
	struct timespec since; /* and what was changed from here on */
	struct buf b;          /* "": nothing to keep */
};
/* @fd: the directory @src, of the state @st. Where no list can be made it is off, and all calls do nothing. */
int listed_begin(struct listed *l, int fd, const char *src, const struct stat *st) MUST_USE;
/* In the order of the walk; the file was read, and is what @st says. */
int listed_add(struct listed *l, const char *path, const struct stat *st) MUST_USE;
/* At the end: the base that it is of. */
void listed_seal(struct listed *l, const struct digest *id, uint64_t bytes);
void listed_release(struct listed *l);

/* ---- an earlier one ---- */

/* Smaller files are read: that costs less than to look them up. */
#define BEFORE_MIN 4096

struct before;
/* Of any base that was made of @src, the newest. *ret NULL: there is none. */
int before_open(struct store *s, const char *src, dev_t dev, struct before **ret) MUST_USE;
/* As listed_add. True: it is the file that was read then, and *ret_ino the one of the base, with one reference. */
bool before_find(struct before *b, const char *path, const struct stat *st, store_ino *ret_ino);
/* What is in the base: its tree, and how many bytes its files had. */
struct ovl *before_tree(struct before *b);
uint64_t before_bytes(const struct before *b);
void before_close(struct before *b);
