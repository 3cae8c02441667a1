/*
 * fs/core/hostpins.h - host files that were looked up, held by O_PATH descriptors.
 *
 * A name that was looked up is believed for a while, and nobody tells when a file is opened: a file that the
 * host replaces or removes meanwhile can be read to its end only through a descriptor from before. While it is
 * held its number cannot be given to another file either. Of many the most recently used are kept.
 *
 * Threads: all calls at once. The lock is a leaf.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "fs/core/table.h"

struct hostpin {
	struct table_link link;
	struct hostpin *prev, *next; /* least recently used order */
	uint64_t dev, ino;
	long long checked_ms;
	int fd;
};
struct hostpins {
	pthread_mutex_t lock;
	struct table table;
	struct hostpin lru; /* ring: next is the most recently used */
	unsigned max;       /* fixed; of @table */
	atomic_uint *all;   /* what this and others keep together; lent */
	unsigned all_max;   /* fixed */
};

/* At most @max, and with others @all_max, which @all counts: who comes when there are as many gives up one of its own. */
int hostpins_init(struct hostpins *p, unsigned max, atomic_uint *all, unsigned all_max) MUST_USE;
void hostpins_release(struct hostpins *p);
/* Takes @fd, and may close it at once: the file is held already, or there is no memory. */
void hostpins_put(struct hostpins *p, uint64_t dev, uint64_t ino, int fd);
/* 1: it is held, and was used now; 0: it may be, without another giving way; -EMFILE: not so. */
int hostpins_use(struct hostpins *p, uint64_t dev, uint64_t ino) MUST_USE;
void hostpins_drop(struct hostpins *p, uint64_t dev, uint64_t ino);
/* Until @keep are left. */
void hostpins_trim(struct hostpins *p, unsigned keep);
/* A new O_PATH descriptor of the file; -ESTALE: it is not held. */
int hostpins_get(struct hostpins *p, uint64_t dev, uint64_t ino) MUST_USE;
/* Those that have no name on the host any more, of all that were not looked at for @age_ms. Are any left? */
bool hostpins_nameless(struct hostpins *p, long long age_ms,
		       void (*fn)(void *arg, uint64_t dev, uint64_t ino), void *arg);
