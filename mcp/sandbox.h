/*
 * mcp/sandbox.h - the profile under which commands and file tools of this session run.
 *
 * With a profile of the server's own it is the same for every call; with "inherit" each call brings its own, and one without is
 * refused. A call sits down under its profile, does its work, and rises when its command has ended or goes on as a job. Calls
 * under one profile sit side by side; one under another waits until all of them have risen, and who comes after it waits
 * behind it. Then jobs that still run are ended: nothing old goes on under a new profile, and nothing new
 * runs under an old one. Nothing is kept of a profile but whether the next one is the same.
 */
#pragma once

#include "mcp/tool.h"
#include "profile/profile.h"

struct jobs;
struct sandbox;
struct mcp_serve_opts;

int sandbox_new(const struct mcp_serve_opts *o, struct sandbox **ret) MUST_USE;
void sandbox_free(struct sandbox *s);

struct seat {
	struct client *client;
	const struct client_terms *terms; /* under which it is used; NULL: the client's own */
	const struct profile *profile;    /* NULL: the server has none; then nothing is held */
	const char *const *vars;          /* NAME=value, NULL-terminated; NULL: none */
	bool changed;                     /* another one than the last call's: what ran was ended */
	double waited_s;                  /* for calls under another one */
};
/* 1: sits, until tool_rise, and what @ret lends lasts as long; 0: answered. */
int tool_sit(struct tool_call *call, const cJSON *args, struct tool_result *out,
	     struct seat *ret) MUST_USE;
void tool_rise(struct tool_call *call, struct seat *seat);
/* For what does not go through the mount: may @path, absolute in the tree, be read under the call's profile? 1; 0: answered. */
int tool_may_read(struct tool_call *call, const cJSON *args, const char *path,
		  struct tool_result *out) MUST_USE;
/* For the end of an answer. */
int seat_note(const struct seat *seat, struct buf *out) MUST_USE;
