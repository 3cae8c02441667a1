/*
 * mcp/jobs_internal.h - inside jobs.c, which runs jobs, and jobs_look.c, which looks at them.
 */
#pragma once

#include <pthread.h>

#include "mcp/jobs.h"

struct job {
	struct jobs *js;
	char id[JOB_ID_MAX];
	char *command, *cwd;
	char *env;
	struct buf shut; /* of net_rules_shut; constant */
	struct client *client;
	bool separate, input;
	bool background; /* of the thread that runs it */
	int spill_fd[2]; /* read by all with pread; closed with the last reference */
	long long started_ms;

	pthread_mutex_t run_lock; /* held while the run is used, so that its end waits */
	struct client_run *cr;    /* run_lock; NULL once it has ended */
	uint64_t token, denied;   /* constant once started */
	struct run_asked *asked;  /* run_lock; of one that has ended */
	size_t nasked;
	uint64_t asked_total;

	/* jobs.lock */
	unsigned refs;
	bool ended, listed, cancelled;
	bool announced, recorded; /* record_start has come by; its line is written */
	long long ended_ms;
	struct run_result result;
	struct job *next; /* newest first */
};

struct jobs {
	pthread_mutex_t lock;
	pthread_cond_t change; /* a job has ended, or a thread has gone */
	uint32_t nonce;
	struct record *rec; /* lent; NULL: none */
	void (*ended)(void *arg, struct client *c, const char *id, const char *command);
	void *arg;
	unsigned counter;          /* lock */
	unsigned running, threads; /* lock */
	bool stopping;             /* lock */
	struct job *all;           /* lock: running and kept ones */
};

/* Of one that lingers: has its command ended, and how? */
bool job_command_of(struct job *j, struct run_result *ret);
