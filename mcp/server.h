/*
 * mcp/server.h - inside the server: what the reader, the dispatcher and the workers share.
 *
 * The reader thread (server.c) parses lines and answers what needs no work; tools run on worker
 * threads (call.c). Replies are made in reply.c. Only these files include this header.
 * Lock order: server.lock, then batch.lock; writer locks are leaves.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mcp/msg.h"
#include "mcp/rpc.h"
#include "mcp/serve.h"
#include "mcp/tool.h"

#define SERVER_MAX_WORKERS 16
#define SERVER_MAX_WAITERS 12 /* workers that calls marked TOOL_WAITS may hold */
#define SERVER_MAX_SITTERS 14 /* the same with those that may have to wait for them (TOOL_SITS) */
#define SERVER_MAX_CALLS   512
#define SERVER_MAX_BATCH   64
#define SERVER_MAX_LISTENS 64

#define PROTO_MODERN "2026-07-28"
#define META_PREFIX  "io.modelcontextprotocol/"
#define META_RESULT  "dev.rattan/result"

/* The legacy revisions, oldest first; higher is newer. */
enum legacy {
	LEGACY_2024_11,
	LEGACY_2025_03,
	LEGACY_2025_06,
	LEGACY_2025_11
};

/* Answers to the members of one batch array (2025-03-26 and older) go out as one array. */
struct batch {
	pthread_mutex_t lock;
	unsigned open;   /* lock: members without an answer, and one for the reader itself */
	struct buf line; /* lock */
};

/* Whom a reply goes to, and in which dialect. */
struct reply_to {
	char *id; /* raw JSON, owned; NULL: an error without id */
	bool modern;
	bool structured; /* the client knows structuredContent */
	bool post;       /* on the reader thread: never wait */
	struct batch *batch;
};

struct server;

struct tool_call {
	struct server *srv;
	struct reply_to to;
	char *token; /* raw progress token or NULL */
	struct msg msg;
	const struct mcp_tool *tool;
	const char *name; /* as the client calls it */
	const cJSON *schema;
	cJSON *args;
	struct client *client; /* of the environment that the handler asked for; NULL: none yet */
	int cancel_fd;
	atomic_bool cancelled; /* by the client: no answer */
	atomic_bool stop;      /* cancelled, or the server ends */
	long long started_ms;
	pthread_mutex_t note_lock;
	char note[160];       /* note_lock: what the handler said last */
	double last_progress; /* reader thread */
	long long next_progress_ms;
	bool running, listening; /* server.lock */
	struct tool_call *next;  /* server.lock: all in flight, oldest first */
};

/* One tool as it is offered: wire name and parsed schema. */
struct tool_entry {
	const struct mcp_tool *tool;
	char *name;
	cJSON *schema;
};

struct server {
	const struct mcp_serve_opts *opts;
	struct mcp_session *session;
	struct rpc_writer out;
	struct tool_entry *tools;
	size_t ntools;
	struct buf tools_json; /* the array of tools/list */
	int wake_fd;           /* eventfd: the writer found the client gone */

	/* reader thread only */
	bool initialized;
	enum legacy legacy;

	pthread_mutex_t lock;
	pthread_cond_t work;     /* a call may be taken, or the server ends */
	pthread_cond_t idle;     /* a call has ended */
	struct tool_call *calls; /* lock */
	unsigned ncalls, nrunning, nwaiters, nsitters, nthreads, nfree; /* lock */
	bool ending;                                                    /* lock */
};

/* ---- tools.c: the table ---- */
extern const struct mcp_tool *const mcp_tools[];
extern const size_t mcp_tools_count;

/* ---- list.c ---- */
int server_load_tools(struct server *s) MUST_USE;
void server_free_tools(struct server *s);
const struct tool_entry *server_find_tool(const struct server *s, const char *name);

/* ---- dispatch.c: reader thread ---- */
/* Whatever came in: answered, queued or ignored. Takes the contents of @m. */
void server_handle(struct server *s, struct msg *m, struct batch *batch);
void server_handle_line(struct server *s, char *line, size_t n);

/* ---- call.c ---- */
/* Queue a call for the workers; takes @m and @to->id. */
void call_queue(struct server *s, const struct tool_entry *t, cJSON *args, struct msg *m,
		struct reply_to *to);
/* A request that is only held open until it is cancelled (subscriptions/listen). */
int call_listen(struct server *s, struct msg *m, struct reply_to *to) MUST_USE;
bool call_in_flight(struct server *s, const char *id);
void call_cancel(struct server *s, const char *id);
/* Due progress notifications go out; milliseconds until the next is due, -1: none. */
int call_tick(struct server *s);
/* Stops every call and waits until @deadline_ms for the workers; true when all have ended. */
bool call_stop_all(struct server *s, long long deadline_ms);

/* ---- reply.c ---- */
enum reply_flags {
	REPLY_LIST = 1 << 0
}; /* the result kinds that carry cache hints */
/* @fields: the members of the result, without braces, "" for none. @meta: members of _meta or NULL. */
void reply_result(struct server *s, struct reply_to *to, unsigned flags, const char *fields,
		  const struct buf *meta);
void reply_error(struct server *s, struct reply_to *to, int code, const char *why,
		 const char *data);
void reply_tool(struct server *s, struct reply_to *to, struct tool_result *res);
/* No reply for this member of a batch. */
void reply_none(struct server *s, struct reply_to *to);
/* A notification; @params: raw JSON object. */
void reply_notify(struct server *s, const char *method, const char *params, bool post);
struct batch *batch_new(void);
/* The reader's own reference: the array goes out when all members are answered. */
void batch_done(struct server *s, struct batch *b);
void reply_to_release(struct reply_to *to);
