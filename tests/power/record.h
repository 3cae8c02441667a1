/*
 * tests/power/record.h - what a process does to the files below one directory, in order, in a log; and
 * faults that are made up for it.
 *
 * record.c stands before libc's calls: linked into a test, or as a library for LD_PRELOAD, which then
 * takes POWER_ROOT, POWER_LOG and POWER_FAULTS from the environment. Only what the store needs is
 * there: no rename across directories, no truncation by name, no writing through a map (LMDB's lock
 * files are written so, and say nothing after a restart).
 *
 * The log is read by disk.c, which makes of it what a power loss could leave behind. Any process may
 * append a POWER_NOTE: records are written with one call each to a file opened for appending, so their
 * order is the order of events. A record of a write or of a change in a directory stands before the
 * event, that of an end of a sync after it: what the log calls durable at some point is durable then.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum power_type {
	POWER_OPEN = 1, /* name: it is open for writing; comes into being if it was not there */
	POWER_WRITE,    /* data at @off of @ino */
	POWER_WRITTEN,  /* the same range is durable (O_DSYNC): @off, @arg bytes */
	POWER_SIZE,     /* @off: new size of @ino */
	POWER_SYNC,     /* of @ino begins; @arg is its number */
	POWER_SYNCED,   /* it has ended well */
	POWER_MKDIR,    /* name */
	POWER_RENAME,   /* name, NUL, new name */
	POWER_UNLINK,   /* name, of a file or a directory */
	POWER_DIRSYNC,  /* name: sync of a directory begins */
	POWER_DIRSYNCED,
	POWER_NOTE,  /* text */
	POWER_PUNCH, /* @off of @ino, @arg bytes: zeros, without a change of the size */
};

#define POWER_MAGIC 0x52575031u

struct power_rec {
	uint32_t magic, type;
	uint64_t ino, off, arg;
	uint32_t len; /* bytes that follow */
	uint32_t pad;
};

/* Faults, in a file that both sides map. Each slot on its own: the first @after matching calls go
 * well, the next @count fail with @err; @count < 0: all of them. Those that fail are counted. Writes to a
 * descriptor that syncs each have a slot of their own: LMDB's page that makes a transaction valid. */
enum power_fault {
	POWER_FAULT_WRITE,
	POWER_FAULT_SYNC,
	POWER_FAULT_READ,
	POWER_FAULT_META,
	POWER_FAULTS
};
struct power_slot {
	int32_t after, count, err, hit;
	char only[48]; /* the path ends with this; empty: all */
};

/* For a test that links record.c. @root has no symlinks in its path and no slash at its end. */
int power_record(const char *root, const char *log);
/* NULL without POWER_FAULTS; a test that links record.c gets slots of its own. */
struct power_slot *power_faults(void);
void power_note(const char *text);
