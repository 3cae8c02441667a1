/*
 * store/fsck.h - is all of a store as it should be, and if not, which files and commits does it touch?
 *
 * Opens the data directory by itself and reads the files' pages with its own eyes (pages.h): damage cannot
 * crash it. Runs beside daemons: a child process holds an LMDB snapshot of the records while they are looked
 * at, and a new one for every portion of chunks. Memory: some 150 bytes for each layer and commit, a bit for
 * each page, and the caches.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum store_fsck_flags {
	STORE_FSCK_QUICK = 1 << 0,  /* records and structure only: no chunk's bytes */
	STORE_FSCK_REPAIR = 1 << 1, /* rebuild what sound data tells; needs the store for itself */
};

enum store_finding_state {
	STORE_FINDING_DAMAGE,     /* and nothing to rebuild it from */
	STORE_FINDING_REPAIRABLE, /* --repair rebuilds it */
	STORE_FINDING_REPAIRED,
	STORE_FINDING_NOTE, /* unusual, harmless */
};

#define STORE_FINDING_LIST 8

struct store_finding {
	enum store_finding_state state;
	const char *kind;  /* a word for machines: "chunk", "record", "page", ... */
	const char *where; /* the database or file */
	const char *text;  /* a sentence */
	const char *path;  /* that it touches; bytes; or NULL */
	/* Which working trees and commits see it, as many as there is room for, and how many there are. */
	const char *envs[STORE_FINDING_LIST];
	const char *commits[STORE_FINDING_LIST]; /* hex */
	uint64_t nenvs, ncommits;
};

struct store_fsck_sum {
	uint64_t records, chunks, bytes, pages, layers, commits, envs;
	uint64_t damaged, repairable, repaired, notes;
};

struct store_fsck_opts {
	unsigned flags;
	int (*finding)(void *arg, const struct store_finding *f); /* nonzero: end at once with it */
	/* May be NULL. @total 0: not known. Called a few times a second. */
	int (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
	void *arg;
};

/* 0: all was looked at, @ret says how it went. Errors, with a sentence in @diag: -ENOENT no store;
 * -EPROTONOSUPPORT another format; -EXDEV, -EACCES as store_open; -EBUSY in use (repair); -EAGAIN it changed
 * too fast to be looked at; -ENOMEM, -EIO. */
int store_fsck(const char *dir, const struct store_fsck_opts *o, struct diag *diag,
	       struct store_fsck_sum *ret) MUST_USE;
