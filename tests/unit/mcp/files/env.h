/*
 * tests/unit/mcp/files/env.h - an environment for the file tools whose tree is a temporary directory:
 * what the server and the client library would give them.
 */
#pragma once

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mcp/files/files.h"
#include "mcp/files/seen.h"
#include "mcp/jobs.h"
#include "mcp/record.h"
#include "mcp/sandbox.h"
#include "mcp/session.h"
#include "mcp/tool.h"
#include "tests/lib/tap.h"

struct client {
	int root_fd;
	char root[256];
	const char *writable;
	int attached, fail_first; /* hand out a dead root so many times */
	bool cancelled;
	const char *
		rule; /* what the policy refused something by since the attachment; NULL: nothing */
};
struct tool_call {
	struct client *client;
};

struct client *tool_client(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	(void)args;
	(void)out;
	return call->client;
}

int tool_sit(struct tool_call *call, const cJSON *args, struct tool_result *out, struct seat *ret)
{
	*ret = (struct seat){.client = tool_client(call, args, out)};
	return ret->client != NULL;
}

/* There are no jobs here. */
struct mcp_session *tool_session(struct tool_call *call)
{
	(void)call;
	return NULL;
}

struct record *session_record(struct mcp_session *s)
{
	(void)s;
	return NULL;
}

int record_temp(struct record *r, const char *env, const char *path)
{
	(void)r;
	(void)env;
	(void)path;
	return -1;
}

void record_temp_done(struct record *r, int slot)
{
	(void)r;
	(void)slot;
}

struct seen *session_seen(struct mcp_session *s)
{
	static struct seen *seen;

	(void)s;
	if (!seen && seen_new(&seen) < 0)
		tap_fatal("seen");
	return seen;
}

void session_tidy(struct mcp_session *s, struct client *c, int root_fd)
{
	(void)s;
	(void)c;
	(void)root_fd;
}

const char *client_env(const struct client *c)
{
	(void)c;
	return "default";
}

struct jobs *session_jobs(struct mcp_session *s)
{
	(void)s;
	return NULL;
}

struct job *jobs_find(struct jobs *js, const char *id)
{
	(void)js;
	(void)id;
	return NULL;
}

int job_open_output(struct job *j, int stream, int *ret_fd)
{
	(void)j;
	(void)stream;
	(void)ret_fd;
	return -ENOENT;
}

void job_put(struct job *j)
{
	(void)j;
}

void tool_rise(struct tool_call *call, struct seat *seat)
{
	(void)call;
	(void)seat;
}
bool tool_cancelled(struct tool_call *call)
{
	return call->client->cancelled;
}
int tool_error(struct tool_result *out, const char *fmt, ...)
{
	char text[65536];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	buf_clear(&out->text);
	out->is_error = true;
	return buf_printf(&out->text, "error: %s", text) < 0 ? -ENOMEM : 0;
}
int client_attach(struct client *c, const struct client_terms *terms, const char *what,
		  struct diag *diag, struct client_tree *ret)
{
	(void)diag;
	(void)terms;
	(void)what;
	ret->at = (struct ctl_attach){.userns_fd = -1, .mntns_fd = -1, .root_fd = -1};
	c->attached++;
	ret->at.root_fd = fcntl(c->root_fd, F_DUPFD_CLOEXEC, 0);
	(void)snprintf(ret->at.writable, sizeof(ret->at.writable), "%s", c->writable);
	return ret->at.root_fd < 0 ? -EIO : 0;
}
int client_denials(struct client *c, uint64_t token, size_t max, struct client_denials *ret)
{
	static struct ctl_denial one;

	(void)token;
	one.why = (char *)(uintptr_t)c->rule;
	*ret = (struct client_denials){.v = &one, .n = c->rule && max ? 1 : 0, .total = 1};
	return 0;
}
void client_denials_release(struct client_denials *d)
{
	*d = (struct client_denials){0};
}
void client_detach(struct client *c, struct client_tree *t)
{
	(void)c;
	if (t->at.root_fd >= 0)
		(void)close(t->at.root_fd);
	t->at.root_fd = -1;
}

static inline void env_open(struct client *c)
{
	const char *tmp = getenv("TMPDIR");

	*c = (struct client){.writable = "/workspace\n/tmp"};
	(void)snprintf(c->root, sizeof(c->root), "%s/rattan-files-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(c->root))
		tap_fatal("mkdtemp");
	c->root_fd = open(c->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (c->root_fd < 0 || mkdirat(c->root_fd, "workspace", 0755) < 0 ||
	    mkdirat(c->root_fd, "tmp", 0755) < 0)
		tap_fatal("tree");
}

static inline void env_close(struct client *c)
{
	char cmd[600];
	pid_t pid;

	(void)close(c->root_fd);
	(void)snprintf(cmd, sizeof(cmd), "%s", c->root);
	pid = fork();
	if (!pid) {
		(void)execlp("rm", "rm", "-rf", "--", cmd, (char *)NULL);
		_exit(127);
	}
	(void)waitpid(pid, NULL, 0);
}

/* "workspace/a.txt" */
static inline void put_file(struct client *c, const char *path, const void *p, size_t n)
{
	int fd = openat(c->root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, p, n) != (ssize_t)n)
		tap_fatal("put_file %s", path);
	(void)close(fd);
}
#define put_text(c, path, s) put_file(c, path, s, strlen(s))

static inline size_t get_file(struct client *c, const char *path, char *p, size_t max)
{
	int fd = openat(c->root_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, p, max - 1);

	if (fd >= 0)
		(void)close(fd);
	p[n < 0 ? 0 : n] = 0;
	return n < 0 ? 0 : (size_t)n;
}

struct answer {
	char text[1 << 20];
	bool error;
	int r;
	cJSON *meta;
};

/* @json: the arguments, with ' for ". */
static inline struct answer *call_tool(struct client *c, const struct mcp_tool *tool,
				       const char *json)
{
	static struct answer a;
	struct tool_call call = {c};
	struct tool_result out = {0};
	char *s = strdup(json);
	cJSON *args;

	for (char *q = s; q && *q; q++)
		if (*q == '\'')
			*q = '"';
	args = cJSON_Parse(s);
	if (!args)
		tap_fatal("arguments: %s", json);
	cJSON_Delete(a.meta);
	a.r = tool->run(&call, args, &out);
	a.error = out.is_error;
	a.meta = out.meta;
	(void)snprintf(a.text, sizeof(a.text), "%s", out.text.data ? (char *)out.text.data : "");
	buf_release(&out.text);
	cJSON_Delete(out.structured);
	cJSON_Delete(args);
	free(s);
	return &a;
}

static inline bool has(const struct answer *a, const char *what)
{
	bool yes = strstr(a->text, what) != NULL;

	if (!yes) {
		printf("# r %d, wanted in what follows:\n", a->r);
		tap_note(what, 1500);
		printf("# in:\n");
		tap_note(a->text, 1500);
	}
	return yes;
}
