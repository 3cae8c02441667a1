/*
 * mcp/checkpoint.h - the automatic state at the end of each call that can have changed the tree, so that each can be taken back alone.
 *
 * It is made after the answer has gone out, for nobody waits for a disk. The next call that changes anything in the same
 * environment, or looks at its history, waits for it: between two calls there is always one.
 */
#pragma once

#include "client/client.h"

struct mcp_session;
struct tool_call;

/* Until no state of @c's environment is being made. */
void checkpoint_wait(struct mcp_session *s, struct client *c);
struct checkpoint {
	char label[112], message[128];
};
/* Before the answer: whoever comes next waits until checkpoint_take, by the same thread. False: there is nothing to take. */
bool checkpoint_claim(struct tool_call *call, struct checkpoint *ret);
void checkpoint_take(struct tool_call *call, const struct checkpoint *cp);
/* What a job leaves behind when it ends. */
void checkpoint_job(struct mcp_session *s, struct client *c, const char *id, const char *command);
