/*
 * fs/core/hostsrc_internal.h - what hostsrc.c and hostfile.c share: a source, and its descriptors of files that
 * are read.
 */
#pragma once

#include <pthread.h>

#include "fs/core/hostpins.h"
#include "fs/core/hostsrc.h"

#define HOSTFILE_SLOTS 256

/* An open host file. All fields but fd, rel, dev and ino under hostsrc.lock. */
struct host_file {
	struct host_file *chain;       /* of the hash slot */
	struct host_file *prev, *next; /* least recently used order */
	unsigned slot;
	unsigned users;
	bool dead;  /* not in the cache any more: the last user frees it */
	bool stale; /* its path names another file: only for who wants this one */
	long long checked_ns;
	uint64_t dev, ino;
	int fd;
	char rel[];
};

struct hostsrc {
	char *root;
	int root_fd;
	unsigned flags, index;
	dev_t dev;

	pthread_mutex_t lock; /* a leaf: the cache below */
	struct host_file *slots[HOSTFILE_SLOTS];
	struct host_file lru; /* ring: next is the most recently used */
	unsigned count;
	unsigned max;            /* fixed; of @count, for each of many sources */
	struct hostsrc_all *all; /* fixed; lent, or @own */
	struct hostsrc_all own;

	struct hostpins pins;
};

/* A new descriptor; without room for one, after those that are kept were closed. */
int hostsrc_open_below(struct hostsrc *h, const char *rel, int flags) MUST_USE;
bool hostsrc_shown(const struct hostsrc *h, const struct stat *st);

int hostfile_init(struct hostsrc *h, unsigned max) MUST_USE;
void hostfile_release(struct hostsrc *h);
/* Close what nobody uses. */
void hostfile_trim(struct hostsrc *h);
