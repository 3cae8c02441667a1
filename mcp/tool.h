/*
 * mcp/tool.h - one tool: its entry in the table, what its handler gets, and how it answers.
 *
 * A tool is one `const struct mcp_tool` in mcp/tool_<what>.c, listed in mcp/tools.c. Nothing else
 * names it: the list, the schema and the dispatch come from the entry.
 * Threads: handlers run on worker threads, several at once; everything they share is in struct
 * mcp_session, whose parts have their own locks. A handler checks tool_cancelled() while it waits.
 * Errors: a handler returns 0 when it has answered (also with tool_error: something the model can
 * mend), or negative errno for a fault of ours, which is answered for it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/client.h"

struct mcp_session; /* mcp/session.h: settings, clients by environment, jobs, limits */
struct tool_call;   /* the request this handler answers */

struct tool_result {
	struct buf text; /* the text content; bounded by the server (1 MiB) */
	bool is_error;
	cJSON *meta;       /* goes to _meta["dev.rattan/result"]; owned, may be NULL */
	cJSON *structured; /* structuredContent, only for tools whose entry allows it; owned */
};

enum mcp_tool_flags {
	TOOL_READ_ONLY = 1 << 0,
	TOOL_DESTRUCTIVE = 1 << 1,
	TOOL_IDEMPOTENT = 1 << 2,
	TOOL_OPEN_WORLD = 1 << 3,
	TOOL_PREFIXED = 1 << 4, /* wire name is prefix + name ("rattan_" by default) */
	TOOL_STRUCTURED = 1 << 5,
	TOOL_WAITS = 1 << 6,    /* may block for long: never takes the last worker threads */
	TOOL_CHANGES = 1 << 8,  /* an automatic state follows: what it did can be taken back */
	TOOL_HISTORY = 1 << 9,  /* looks at the states there are */
	TOOL_NETWORK = 1 << 10, /* reaches the open world where commands have a network */
	TOOL_APT = 1 << 12,     /* only on a base whose packages apt installs */
	TOOL_PACMAN = 1 << 13,  /* the same of pacman */
	TOOL_LONG = 1 << 11,    /* answers with up to 200 KiB of text when it is asked to */
	TOOL_SITS = 1 << 7, /* the same where each call has a profile of its own (mcp/sandbox.h) */
};

struct mcp_tool {
	const char *name; /* without prefix when TOOL_PREFIXED */
	const char *title;
	const char *description;
	const char *input_schema; /* JSON text of an object schema, without $schema */
	unsigned flags;
	int (*run)(struct tool_call *call, const cJSON *args, struct tool_result *out);
};

/* ---- for handlers ---- */

struct mcp_session *tool_session(struct tool_call *call);
/* The environment that @args names ("environment"), or the server's; lent. Answers with an error
 * text and returns NULL when there is no such environment name. */
struct client *tool_client(struct tool_call *call, const cJSON *args, struct tool_result *out);
/* What the client sent beside the arguments, as _meta[@key]; NULL: nothing. */
const cJSON *tool_meta(const struct tool_call *call, const char *key);
bool tool_cancelled(struct tool_call *call);
/* Readable when the call was cancelled or the server is ending; for poll(). */
int tool_cancel_fd(struct tool_call *call);
/* What to say in progress notifications, if the client asked for them. The server itself sends one a
 * second after the call began and every few seconds after that, also when a handler says nothing. */
void tool_progress(struct tool_call *call, double done, double total, const char *message);

/* The whole answer becomes "error: <text>" with isError; text says what to do next. Returns 0. */
int tool_error(struct tool_result *out, const char *fmt, ...) PRINTF(2, 3);

/* Where relative paths of tool arguments start, and what "~" is. */
#define TOOL_WORKSPACE "/workspace"
#define TOOL_HOME      "/home/user"

/* ---- arguments: strict types, accepted aliases, one sentence on errors ---- */

/* The first present of @names (NULL-terminated list of the name and its aliases); JSON null counts as
 * absent. 1 present and *ret set, 0 absent, -EINVAL after tool_error. Strings are lent. */
int arg_str(const cJSON *args, const char *const *names, struct tool_result *out,
	    const char **ret) MUST_USE;
/* Integers also as whole doubles and as decimal strings, since models send both. */
int arg_int(const cJSON *args, const char *const *names, int64_t min, int64_t max,
	    struct tool_result *out, int64_t *ret) MUST_USE;
int arg_bool(const cJSON *args, const char *const *names, struct tool_result *out,
	     bool *ret) MUST_USE;
/* 1 and the object or array member (lent), 0 absent, -EINVAL. */
int arg_object(const cJSON *args, const char *const *names, struct tool_result *out,
	       const cJSON **ret) MUST_USE;
int arg_array(const cJSON *args, const char *const *names, struct tool_result *out,
	      const cJSON **ret) MUST_USE;
/* Seconds, fractions allowed. */
int arg_num(const cJSON *args, const char *const *names, double min, double max,
	    struct tool_result *out, double *ret) MUST_USE;
/* One of the words in @words (NULL-terminated); *ret is its index. */
int arg_enum(const cJSON *args, const char *const *names, const char *const *words,
	     struct tool_result *out, unsigned *ret) MUST_USE;
/* Unknown names, and required ones that are missing, against the properties of @tool's schema (parsed:
 * @schema) and the aliases in args.c. 0, or -EINVAL after tool_error. Done before a handler runs. */
int args_check(const char *tool, const cJSON *schema, const cJSON *args,
	       struct tool_result *out) MUST_USE;
#define ARG(...) ((const char *const[]){__VA_ARGS__, NULL})
