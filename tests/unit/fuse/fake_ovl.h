/*
 * tests/unit/fuse/fake_ovl.h - a core whose answers the test sets: what the adapter passes down and
 * does with a result that the real core gives rarely or never, and handlers that block at will.
 *
 * One directory (the root) with the files "a".."h", inodes 100.., of FAKE_SIZE bytes each. Fields
 * marked "set" are the test's, the others are what came down.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "fs/core/ovl.h"

#define FAKE_SIZE   (1u << 20)
#define FAKE_FIRST  100
#define FAKE_NEW    (FAKE_FIRST + 8) /* what creations make, directories excepted */
#define FAKE_DIR    99
#define FAKE_SETUID (FAKE_FIRST + 7) /* "h" */

struct ovl {
	_Atomic int result; /* set: what every changing call returns when negative */
	_Atomic bool
		opens; /* set, before the mount: the policy wants to see them; changes are refused */
	_Atomic bool hold;           /* set: reads of "a", and every fsync, wait while true */
	_Atomic bool hold_write;     /* set: the next write waits too */
	_Atomic store_ino hold_attr; /* set: the next getattr of it waits too, with what it read */
	_Atomic int held;            /* calls that wait now */
	_Atomic int read_delay_us;   /* set */
	_Atomic int refs;            /* references that the kernel holds, root excluded */
	_Atomic unsigned set;        /* the last setattr's flags */
	_Atomic unsigned uid;        /* the last setattr's or creation's owner */
	_Atomic unsigned umask;
	_Atomic int killpriv;   /* writes with the flag */
	_Atomic bool no_setuid; /* "h" has lost the bit by one */
	/* Of what was set last; first -1: another than user.x. */
	_Atomic int xattr_size, xattr_flags, xattr_first;
	_Atomic int writes, copies, tmpfiles, fsyncs, flushes;
	_Atomic uint64_t size;      /* set: of every file; 0: FAKE_SIZE */
	_Atomic uint32_t valid_ms;  /* set: of what is answered; 0: OVL_FOREVER */
	_Atomic int more_links;     /* set: of every file, than one */
	_Atomic int ctime;          /* set: of every file */
	_Atomic bool many;          /* set: the root lists 5000 names */
	_Atomic uint32_t unsettled; /* set: of every file, until it is settled */
	_Atomic bool told;          /* somebody settles it; set to have that once more */
};
