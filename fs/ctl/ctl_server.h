/*
 * fs/ctl/ctl_server.h - answers the control socket of one environment.
 *
 * One thread a connection, at most CTL_SERVER_MAX of them: a client that is slow, silent or hostile
 * holds up its own thread and nothing else, since nothing is sent with a lock held. Only our own user
 * id is answered.
 *
 * Threads: the calls below belong to the thread that made the server.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define CTL_SERVER_MAX 64

struct ctl_server;
struct env;

/* @env is lent; @listen_fd is owned from here on, also on failure. */
int ctl_server_new(struct env *env, int listen_fd, struct ctl_server **ret) MUST_USE;
/* Readable when somebody connects. */
int ctl_server_fd(const struct ctl_server *s);
void ctl_server_accept(struct ctl_server *s);
/* Readable when a connection ended or a client asked for the end. */
int ctl_server_event_fd(const struct ctl_server *s);
/* Takes note of what happened; true when the end was asked for. */
bool ctl_server_event(struct ctl_server *s);
/* ... so that another daemon goes on. */
bool ctl_server_replace(const struct ctl_server *s);
unsigned ctl_server_connections(const struct ctl_server *s);
/* Hangs up on everybody, waits for what is under way, closes the socket. Accepts NULL. */
void ctl_server_free(struct ctl_server *s);
