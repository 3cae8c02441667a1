/*
 * mcp/files/commands.h - what can be run in a tree, remembered until something changes it.
 *
 * Threads: any; one looks while the others wait.
 */
#pragma once

#include "mcp/files/call.h"

struct commands;

int commands_new(struct commands **ret) MUST_USE;
void commands_free(struct commands *c);

/* In the order of names, each once: as a shell finds them. @fn may stop with nonzero, which is returned; what it gets is lent. */
int commands_each(struct commands *c, struct files_call *fc,
		  int (*fn)(void *arg, const char *name, const char *package), void *arg) MUST_USE;
