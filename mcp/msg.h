/*
 * mcp/msg.h - one JSON-RPC message: checked, classified, parsed.
 *
 * cJSON alone is too trusting for this: it keeps numbers as doubles (ids of 2^53 change), cuts
 * strings at \u0000, fails on lone surrogates, accepts bad UTF-8 and recurses a thousand levels. So a
 * strict scan goes first; it also keeps the raw bytes of what must be echoed unchanged.
 * Errors: -ENOMEM; everything that is wrong with the message is MSG_BAD with a JSON-RPC code.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/err.h"

#define MSG_MAX_DEPTH 64
#define MSG_MAX_ID    1024

enum rpc_code {
	RPC_PARSE = -32700,
	RPC_INVALID = -32600,
	RPC_NO_METHOD = -32601,
	RPC_PARAMS = -32602,
	RPC_INTERNAL = -32603,
	RPC_VERSION = -32022,
};

enum msg_kind {
	MSG_NONE,
	MSG_REQUEST,
	MSG_NOTIFICATION,
	MSG_RESPONSE,
	MSG_BATCH,
	MSG_BAD
};

struct msg {
	enum msg_kind kind;
	char *id;         /* raw JSON; NULL when there is none that can be echoed */
	char *request_id; /* raw params.requestId */
	char *progress;   /* raw params._meta.progressToken, a string or a number */
	cJSON *root;
	const char *method;  /* inside root */
	const cJSON *params; /* inside root; NULL when absent */
	bool has_nul;        /* some string holds \u0000, at which cJSON has cut it */
	int code;            /* MSG_BAD */
	const char *why;     /* MSG_BAD: constant text */
};

/* @line (of @n bytes, without its newline) is changed: lone surrogates become U+FFFD. */
int msg_parse(char *line, size_t n, struct msg *ret) MUST_USE;
void msg_release(struct msg *m);

/* The elements of a MSG_BATCH line, one a call; *pos starts at 0. 1 and a span, or 0 at the end. */
int msg_batch_next(char *line, size_t n, size_t *pos, char **ret_elem, size_t *ret_len) MUST_USE;
