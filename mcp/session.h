/*
 * mcp/session.h - what the tools of one server share: settings, environments by name, jobs.
 *
 * Threads: everything may be called from any worker. Nothing is started before a tool asks for an
 * environment.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/client.h"
#include "mcp/serve.h"

#define SESSION_MAX_ENVS 16

struct commands;
struct record;
struct seen;
struct jobs;
struct sandbox;
struct mcp_session;

/* @o is lent for the session's life. */
int session_new(const struct mcp_serve_opts *o, struct mcp_session **ret) MUST_USE;
/* Commands must be dead (jobs_stop). Accepts NULL. */
void session_free(struct mcp_session *s);

const struct mcp_serve_opts *session_opts(const struct mcp_session *s);
struct jobs *session_jobs(struct mcp_session *s);
struct sandbox *session_sandbox(struct mcp_session *s);
struct commands *session_commands(struct mcp_session *s);
struct record *session_record(struct mcp_session *s);
struct seen *session_seen(struct mcp_session *s);
/* What a server that was killed has left of its temporary files in @c's tree, whose root is @root_fd, is removed: once. */
void session_tidy(struct mcp_session *s, struct client *c, int root_fd);
/* Longest time a call may block, in seconds. */
double session_max_wait(const struct mcp_session *s);

/* The environment @name (NULL: the server's), reached: its daemon runs. -EINVAL bad name, -ENOENT no
 * such environment, -ENOSPC too many in this session, else why it cannot be reached. */
int session_client(struct mcp_session *s, const char *name, struct diag *diag,
		   struct client **ret) MUST_USE;
/* Held while an automatic state of @c's environment is made, and by nobody else; NULL: not one of ours. */
pthread_mutex_t *session_turn(struct mcp_session *s, const struct client *c);
/* Unless the settings say keep: discard what is uncommitted in all environments that were reached. */
void session_discard(struct mcp_session *s);

/* Calls @fn for each path changed since @token (job_token), by that command or beside it. -ESTALE: too much has changed to say, or the tree is
 * another one (rollback). */
int session_changes(struct client *c, uint64_t token,
		    int (*fn)(void *arg, const char *path, char what), void *arg) MUST_USE;
