/*
 * mcp/provision.h - a package manager as root of an environment, for the tools that install: whole or not at all
 * (docs/provisioning.md).
 *
 * The caller builds the command from words that it has checked; nothing of a client's goes into a shell's hands.
 */
#pragma once

#include "mcp/tool.h"
#include "net/rules.h"

struct provision {
	const char *name;        /* of the manager, in sentences */
	const char *const *argv; /* NULL-terminated */
	const char *const *vars; /* NAME=value; NULL: none */
	struct net_rules *net;   /* which hosts it may reach; NULL: no network */
	double timeout;          /* seconds; then it is ended, and all taken back */
	size_t tail;             /* bytes of its output to tell */
};

/* Runs it and answers: "done in Ns" and the end of its output; or an error with the reason, and nothing is changed. 1: it went
 * well, and more may be put to the answer; 0: answered; negative errno. */
int provision_run(struct tool_call *call, struct client *c, const struct provision *p,
		  struct tool_result *out) MUST_USE;

/* Words of @args[@key], 1 to @max of them, each as @ok says. 1 and *ret (lent; the array is the caller's); 0: answered. */
int provision_words(const cJSON *args, const char *key, size_t max, bool (*ok)(const char *word),
		    const char *what, struct tool_result *out, const char ***ret) MUST_USE;

/* The file at @path as the environment's base has it, with a NUL behind it: what was changed since, by packages or scripts, opens no
 * other host. 1; 0: it is not there; negative errno, -EFBIG above 1 MiB among them. */
int provision_base_file(struct ctl *ctl, const char *path, struct buf *ret) MUST_USE;
