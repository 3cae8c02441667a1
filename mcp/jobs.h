/*
 * mcp/jobs.h - commands that outlive the call that started them, and their output.
 *
 * Every command of the server is a job from its start; most end before anybody learns their id. Output
 * goes to an unnamed file outside the tree (M3: never into the server's memory), at most
 * JOB_OUTPUT_MAX bytes (of both streams together), and is paged from there. Jobs die with the server (R4).
 * Threads: all calls may come from any thread, except job_run, which belongs to the thread that
 * started the job until it calls job_background. A job is counted: job_start and jobs_find give a
 * reference, job_put gives it back.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "client/client.h"

#define JOBS_MAX_RUNNING 32
#define JOBS_MAX_KEPT    64
#define JOB_OUTPUT_MAX   (64u << 20)
#define JOB_ID_MAX       32
/* Where the file tools show a job's output: ID.log, and ID.err where stderr is apart. Nothing is there for commands. */
#define JOB_OUTPUT_DIR   "/run/rattan/out/"

struct jobs;
struct job;
struct record; /* mcp/record.h */

/* @rec: where the jobs that a client knows of are written down; lent, may be NULL. @ended: called by a thread of ours for each background job, before anybody learns that it has ended; may be NULL. */
int jobs_new(struct record *rec,
	     void (*ended)(void *arg, struct client *c, const char *id, const char *command),
	     void *arg, struct jobs **ret) MUST_USE;
/* After jobs_wait_all said true, or when no job was ever started. Accepts NULL. */
void jobs_free(struct jobs *js);
/* No job can be started any more, and those that run are killed. Returns at once. */
void jobs_kill_all(struct jobs *js);
/* Those that run are killed; true when they have ended by @deadline_ms. */
bool jobs_end_running(struct jobs *js, long long deadline_ms);
/* True when no job runs and no thread of ours is left; waits until @deadline_ms for it. */
bool jobs_wait_all(struct jobs *js, long long deadline_ms) MUST_USE;

/* Start @spec (its stream and output fields are filled in here) in @c. @command is for people. -EAGAIN
 * too many are running; -ESHUTDOWN the server ends; else as client_run_start. */
int job_start(struct jobs *js, struct client *c, const struct client_terms *terms,
	      struct run_spec *spec, const char *command, struct diag *diag,
	      struct job **ret) MUST_USE;
/* Wait up to @ms for the command. 1: it has ended, 0: it has not. */
int job_run(struct job *j, unsigned ms) MUST_USE;
/* Has the command ended that leaves others running (run_spec.linger)? */
bool job_command_ended(struct job *j);
/* From now on the job goes on by itself; @listed: it shows in the list. On failure it is killed. */
int job_background(struct job *j, bool listed) MUST_USE;
/* Keep an ended job for paging its output. */
void job_keep(struct job *j);
void job_put(struct job *j);
static inline void cleanup_jobp(struct job **j)
{
	if (*j)
		job_put(*j);
}
#define cleanup_job __attribute__((cleanup(cleanup_jobp)))

/* NULL: no such job. */
struct job *jobs_find(struct jobs *js, const char *id);
/* Is @id spelled as one of another process's jobs? */
bool jobs_of_other(const struct jobs *js, const char *id);
/* Newest first, listed ones only; up to @max references, each to be put. */
size_t jobs_list(struct jobs *js, struct job **ret, size_t max);

struct job_info {
	char id[JOB_ID_MAX];
	const char *command;   /* lent, as long as the reference */
	const char *env, *cwd; /* where it was started */
	bool ended, cancelled;
	bool command_ended; /* only what it left running goes on; @result is the command's */
	bool separate;      /* stderr is a stream of its own */
	bool input;         /* stdin is open for job_input */
	double age_s;       /* since the start, or from start to end */
	double ended_s;     /* since the end */
	uint64_t size[2];
	struct run_result result; /* when ended, or command_ended */
};
void job_get_info(struct job *j, struct job_info *ret);

/* Wait up to @ms for the end of a background job; true: ended. */
bool job_wait(struct job *j, unsigned ms);
/* SIGTERM, SIGKILL after @grace_ms; @cancelled is what the list will say. -ESRCH: has ended. */
int job_kill(struct job *j, unsigned grace_ms, bool cancelled) MUST_USE;
/* Bytes of output from @off on; 0 at the end of what there is. */
ssize_t job_read(struct job *j, int stream, uint64_t off, void *p, size_t n) MUST_USE;
/* The output itself, for reading with offsets: a descriptor of the caller's. -ENOENT: there is no such stream. */
int job_open_output(struct job *j, int stream, int *ret_fd) MUST_USE;
/* For session_changes: what changed since it was started. */
uint64_t job_token(const struct job *j);
uint64_t job_denied(const struct job *j); /* for client_denials */
/* What its network keeps closed although it is allowed, as net_rules_shut has it. */
const char *job_shut(const struct job *j);
/* As run_asked, also when it has ended. */
int job_asked(struct job *j, struct run_asked **ret, size_t *ret_n, uint64_t *ret_total) MUST_USE;
uint64_t job_size(struct job *j, int stream);
/* How many bytes there was room for; it never waits for the command, which may not read. n == 0 closes it. -EPIPE: the command has closed its input, or never had one. */
ssize_t job_input(struct job *j, const void *p, size_t n) MUST_USE;
