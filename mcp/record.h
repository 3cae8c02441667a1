/*
 * mcp/record.h - what a server writes down for those that come after it: the jobs that it ran, and the temporary file that a
 * tool is in the middle of.
 *
 * A file in DATA/sessions, named by the nonce of the process's job ids and locked as long as the process lives; it is made when
 * there is something to write. What is written survives the process, however it ends, not the machine.
 * Threads: any. Errors are nobody's affair: without a record the next server knows less, and says so.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "mcp/jobs.h"

#define RECORD_COMMAND_MAX 160
#define RECORD_HOW_MAX     64

struct record;

/* @data_dir: NULL: the default one; kept, not copied. */
int record_new(const char *data_dir, struct record **ret) MUST_USE;
/* What tells this process's job ids from every other's. */
uint32_t record_nonce(const struct record *r);
/* The process ends in order, with all its jobs. Accepts NULL. */
void record_free(struct record *r);

/* A job that a client knows of: false when it is not told, for want of room or of a place. And how one that is told ended ("exit
 * 0"), after it. */
bool record_job(struct record *r, const char *id, const char *env, const char *command);
void record_job_end(struct record *r, const char *id, const char *how);

/* A file of that path, absolute in the tree of @env, is about to be made, and gone again until record_temp_done with what is
 * returned; -1: not recorded. */
int record_temp(struct record *r, const char *env, const char *path);
void record_temp_done(struct record *r, int slot);

/* ---- of other servers ---- */

struct record_job {
	char id[JOB_ID_MAX], env[65], command[RECORD_COMMAND_MAX + 1];
	char how[RECORD_HOW_MAX]; /* "": it ran when its server ended */
	bool lives;               /* its server does */
	time_t ended;             /* the server; 0: not in order, so nobody knows when */
};
/* False: none is known. */
bool record_find(struct record *r, const char *id, struct record_job *ret);
/* The jobs in @env that were lost with the server that ended last of those that lost any, less than a day ago; at most @max. How many. */
size_t record_lost(struct record *r, const char *env, struct record_job *ret, size_t max);
/* The temporary files in @env of servers that live no more: @fn says whether it is gone. */
void record_temps(struct record *r, const char *env, bool (*fn)(void *arg, const char *path),
		  void *arg);
