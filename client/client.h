/*
 * client/client.h - what the MCP server and the command line share: an environment that is reachable,
 * and commands in it.
 *
 * Joins fs/ctl/ctl_client.h and runner/runner.h; neither knows the other. Reconnects and re-attaches
 * by itself when the daemon was replaced or the mount is a fresh one.
 * Threads: a struct client may be used by several threads; it keeps one connection per call under
 * way and hands them out under its own lock.
 */
#pragma once

#include "base/err.h"
#include "fs/ctl/ctl_client.h"
#include "runner/runner.h"

struct client;

/* @o is copied. Nothing is started yet: a server must start instantly and without side effects. */
int client_new(const struct ctl_env_opts *o, struct client **ret) MUST_USE;
void client_free(struct client *c);
const char *client_env(const struct client *c);
/* For who runs one command after another: a sandbox waits for the next one (runner/spare.h). Before the first command. */
int client_keep_spare(struct client *c) MUST_USE;

/* A connection for a sequence of ctl_* calls; give it back. The first one starts the daemon. */
int client_ctl_get(struct client *c, struct diag *diag, struct ctl **ret) MUST_USE;
/* @broken: the connection failed in the middle and is not used again. */
void client_ctl_put(struct client *c, struct ctl *ctl, bool broken);

/* A directory that is bound into the tree while @c lives, again whenever the daemon was replaced; see
 * ctl_bind. @host_fd (O_PATH, lent) is what is bound; @host is its path. */
int client_add_bind(struct client *c, int host_fd, const char *host, const char *mount, bool rw,
		    struct diag *diag) MUST_USE;
/* -ENOENT: @c has bound nothing there. */
int client_remove_bind(struct client *c, const char *mount, struct diag *diag) MUST_USE;

/* Under what a tool or a command uses the tree. NULL instead: as the client was made. */
struct client_terms {
	struct ctl_bytes policy; /* as policy/rules.h writes it; empty: as the client was made */
	const char *tmp;         /* a directory that is made when it is not there; NULL: none */
	/* Of a command alone: it is root of the tree, for which all is writable, and what it changes is taken back at its end
	 * unless client_run_keep() says otherwise: also when this process is killed. */
	bool provision;
};

/* The mounted root for file tools, under @terms; until client_detach nobody gets the tree under others. -EBUSY: others use it
 * under another policy (waits a second for them). */
struct client_tree {
	struct ctl_attach at;
	struct ctl *ctl;
};
int client_attach(struct client *c, const struct client_terms *terms, const char *what,
		  struct diag *diag, struct client_tree *ret) MUST_USE;
void client_detach(struct client *c, struct client_tree *t);

/* @terms' directory for temporary files: emptied, when nobody else has a descriptor from here. *ret_fd says that the caller has, and
 * is closed by it. */
int client_scratch(struct client *c, const struct client_terms *terms, struct diag *diag,
		   int *ret_fd) MUST_USE;

/* A command in the environment: attach, lease, run_start. @spec's tree fields are filled in here;
 * the rest is the caller's. The lease, and with it the policy, ends with client_run_free. */
struct client_run;
int client_run_start(struct client *c, const struct client_terms *terms, struct run_spec *spec,
		     const char *what, struct diag *diag, struct client_run **ret) MUST_USE;
struct run *client_run_of(struct client_run *cr);
/* For ctl_changes: what changed since it was started. */
uint64_t client_run_token(const struct client_run *cr);
/* For client_denials: what was refused since. */
uint64_t client_run_denied(const struct client_run *cr);
/* What the command, under terms.provision, has changed stays. Before client_run_free. -ENOENT: it has been taken back. */
int client_run_keep(struct client_run *cr, struct diag *diag) MUST_USE;
/* It is taken back now; without this client_run_free does, and whether that went well nobody learns. On failure whoever uses the
 * environment next takes it back first, or is refused. */
int client_run_drop(struct client_run *cr, struct diag *diag) MUST_USE;
void client_run_free(struct client_run *cr);

/* What the policy refused: at most as many as were asked for, the latest first, and how often it did. A zeroed one is
 * empty. */
struct client_denials {
	struct ctl_denial *v;
	size_t n, max;
	uint64_t total;
};
int client_denials(struct client *c, uint64_t token, size_t max,
		   struct client_denials *ret) MUST_USE;
/* Since @cr was started, from the daemon that it ran under: none is started for it. -ENOTCONN. */
int client_run_denials(struct client_run *cr, size_t max, struct client_denials *ret) MUST_USE;
void client_denials_release(struct client_denials *d);

/* Where rattan's other programs are: beside this executable (build tree) or in libexec. Owned by
 * the caller. -ENOENT. */
int client_find_program(const char *name, char **ret) MUST_USE;
