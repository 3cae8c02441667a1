#include "mcp/session.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "mcp/checkpoint.h"
#include "mcp/files/commands.h"
#include "mcp/files/fsio.h"
#include "mcp/files/seen.h"
#include "mcp/jobs.h"
#include "mcp/record.h"
#include "mcp/sandbox.h"

#define RESET_TRIES    10
#define SHARE_TRIES    50
#define RESET_PAUSE_US 40000

struct env_slot {
	char name[65];
	int share_fd;          /* reach; -1, or locked together with other sessions */
	pthread_mutex_t turn;  /* session_turn */
	pthread_mutex_t reach; /* one thread starts the daemon, the others wait for it */
	struct client *client; /* reach */
	bool reached;          /* reach */
	atomic_bool tidied;
};

struct mcp_session {
	const struct mcp_serve_opts *opts;
	struct jobs *jobs;
	struct sandbox *sandbox;
	struct commands *commands;
	struct record *record;
	struct seen *seen;
	pthread_mutex_t lock;
	struct env_slot envs[SESSION_MAX_ENVS]; /* lock; a used slot never changes its name */
	size_t nenvs;                           /* lock */
};

static void job_ended(void *arg, struct client *c, const char *id, const char *command)
{
	checkpoint_job(arg, c, id, command);
}

int session_new(const struct mcp_serve_opts *o, struct mcp_session **ret)
{
	struct mcp_session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->opts = o;
	r = record_new(o->data_dir, &s->record);
	if (!r)
		r = seen_new(&s->seen);
	if (!r)
		r = jobs_new(s->record, job_ended, s, &s->jobs);
	if (!r)
		r = sandbox_new(o, &s->sandbox);
	if (!r)
		r = commands_new(&s->commands);
	if (r) {
		sandbox_free(s->sandbox);
		jobs_free(s->jobs);
		seen_free(s->seen);
		record_free(s->record);
		free(s);
		return r;
	}
	(void)pthread_mutex_init(&s->lock, NULL);
	*ret = s;
	return 0;
}

void session_free(struct mcp_session *s)
{
	if (!s)
		return;
	jobs_free(s->jobs);
	record_free(s->record);
	seen_free(s->seen);
	sandbox_free(s->sandbox);
	commands_free(s->commands);
	for (size_t i = 0; i < s->nenvs; i++) {
		client_free(s->envs[i].client);
		cleanup_fdp(&s->envs[i].share_fd);
		(void)pthread_mutex_destroy(&s->envs[i].reach);
		(void)pthread_mutex_destroy(&s->envs[i].turn);
	}
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

const struct mcp_serve_opts *session_opts(const struct mcp_session *s)
{
	return s->opts;
}

struct jobs *session_jobs(struct mcp_session *s)
{
	return s->jobs;
}

struct sandbox *session_sandbox(struct mcp_session *s)
{
	return s->sandbox;
}

struct commands *session_commands(struct mcp_session *s)
{
	return s->commands;
}

struct record *session_record(struct mcp_session *s)
{
	return s->record;
}

struct seen *session_seen(struct mcp_session *s)
{
	return s->seen;
}

double session_max_wait(const struct mcp_session *s)
{
	return s->opts->max_wait_s ? s->opts->max_wait_s : 55;
}

static bool name_ok(const char *name)
{
	size_t n = strlen(name);

	if (!n || n > 64 || name[0] == '.' || name[0] == '-')
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '.' || c == '_' || c == '-'))
			return false;
	}
	return true;
}

static int find_slot(struct mcp_session *s, const char *name, struct diag *diag,
		     struct env_slot **ret)
{
	struct env_slot *slot = NULL;
	int r = 0;

	(void)pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->nenvs && !slot; i++)
		if (!strcmp(s->envs[i].name, name))
			slot = &s->envs[i];
	if (!slot && s->nenvs == SESSION_MAX_ENVS)
		r = diag_set(diag, -ENOSPC, "this session already uses %d environments",
			     SESSION_MAX_ENVS);
	if (!slot && !r) {
		slot = &s->envs[s->nenvs++];
		slot->share_fd = -1;
		(void)snprintf(slot->name, sizeof(slot->name), "%s", name);
		(void)pthread_mutex_init(&slot->reach, NULL);
		(void)pthread_mutex_init(&slot->turn, NULL);
	}
	(void)pthread_mutex_unlock(&s->lock);
	*ret = slot;
	return r;
}

static const char *own_env(const struct mcp_session *s)
{
	return s->opts->env ? s->opts->env : "default";
}

/* Settings of the command line are for the server's own environment; others are taken as they are. */
static int make_client(struct mcp_session *s, const char *name, struct diag *diag,
		       struct client **ret)
{
	static const char *const nothing[] = {NULL};
	const struct mcp_serve_opts *o = s->opts;
	bool own = !strcmp(name, own_env(s));
	struct ctl_env_opts eo = {.data_dir = o->data_dir, .env = name, .create = own};
	struct client *c;
	int r;

	if (own) {
		eo.base = o->base;
		eo.through = o->through;
		eo.overlays = o->overlays;
		eo.noverlays = o->noverlays;
		eo.same_dirs = o->same_dirs;
		eo.tell_dirs = o->tell_dirs;
		eo.writable = o->writable;
		/* Until a call says under what, nothing is writable. */
		if (o->sandbox != MCP_SANDBOX_NONE)
			eo.writable = nothing;
		eo.disk_max = o->disk_max;
	}
	r = client_new(&eo, &c);
	if (r)
		return r;
	/* Without one, each command waits for a sandbox of its own. */
	(void)!client_keep_spare(c);
	for (size_t i = 0; own && i < o->nbinds; i++) {
		r = client_add_bind(c, o->binds[i].fd, o->binds[i].host, o->binds[i].mount,
				    o->binds[i].rw, diag);
		if (r) {
			client_free(c);
			return r;
		}
	}
	*ret = c;
	return 0;
}

/* A lock that every session has on the environment it was started for: the last one to end discards. */
static int share_open(struct mcp_session *s, const char *env, int *ret_fd)
{
	cleanup_free char *data = NULL, *path = NULL;
	cleanup_fd int fd = -1;
	int r = 0;

	if (s->opts->data_dir)
		data = strdup(s->opts->data_dir);
	else
		r = ctl_data_dir(&data);
	if (r < 0 || !data)
		return r < 0 ? r : -ENOMEM;
	if (asprintf(&path, "%s/session-%s.lock", data, env) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return ret_nerrno();
	/* Held exclusively for the moment of a discard only. */
	for (int i = 0; flock(fd, LOCK_SH | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == SHARE_TRIES)
			return ret_nerrno();
		(void)usleep(RESET_PAUSE_US);
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

struct tidy {
	struct client *client;
	struct client_tree tree; /* of an attachment made here */
	bool attached, failed;
	int root_fd; /* -1: attach first */
};

static bool drop_temp(void *arg, const char *path)
{
	struct tidy *t = arg;
	struct diag diag = {0};

	if (t->root_fd < 0 && !t->failed) {
		t->attached = client_attach(t->client, NULL, "a file tool", &diag, &t->tree) == 0;
		t->failed = !t->attached;
		t->root_fd = t->attached ? t->tree.at.root_fd : -1;
	}
	return t->root_fd >= 0 && fsio_drop_temp(t->root_fd, path) == 0;
}

static void tidy(struct mcp_session *s, struct env_slot *slot, struct client *c, int root_fd)
{
	struct tidy t = {.client = c, .root_fd = root_fd};

	if (atomic_exchange(&slot->tidied, true))
		return;
	record_temps(s->record, slot->name, drop_temp, &t);
	if (t.attached)
		client_detach(t.client, &t.tree);
}

void session_tidy(struct mcp_session *s, struct client *c, int root_fd)
{
	struct env_slot *slot = NULL;

	(void)pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->nenvs && !slot; i++)
		if (!strcmp(s->envs[i].name, client_env(c)))
			slot = &s->envs[i];
	(void)pthread_mutex_unlock(&s->lock);
	if (slot)
		tidy(s, slot, c, root_fd);
}

static int reach_locked(struct mcp_session *s, struct env_slot *slot, struct diag *diag)
{
	struct ctl *ctl;
	int r;

	if (slot->reached)
		return 0;
	if (!slot->client) {
		r = make_client(s, slot->name, diag, &slot->client);
		if (r)
			return r;
	}
	r = client_ctl_get(slot->client, diag, &ctl);
	if (r)
		return r;
	if (*ctl_opened_note(ctl))
		log_warn("%s", ctl_opened_note(ctl));
	client_ctl_put(slot->client, ctl, false);
	if (!strcmp(slot->name, own_env(s))) {
		r = share_open(s, slot->name, &slot->share_fd);
		if (r < 0)
			log_warn("environment %s: other sessions cannot be seen: %s", slot->name,
				 err_text(r));
	}
	slot->reached = true;
	/* Under a profile nothing can be changed before a call says under which. */
	if (s->opts->sandbox == MCP_SANDBOX_NONE)
		tidy(s, slot, slot->client, -1);
	return 0;
}

int session_client(struct mcp_session *s, const char *name, struct diag *diag, struct client **ret)
{
	struct env_slot *slot;
	int r;

	if (s->opts->refusal)
		return diag_set(diag, -EINVAL, "%s", s->opts->refusal);
	if (!name)
		name = own_env(s);
	if (!name_ok(name))
		return diag_set(diag, -EINVAL,
				"environment names are 1 to 64 letters, digits, '.', '_' or '-'");
	r = find_slot(s, name, diag, &slot);
	if (r)
		return r;
	(void)pthread_mutex_lock(&slot->reach);
	r = reach_locked(s, slot, diag);
	if (!r)
		*ret = slot->client;
	(void)pthread_mutex_unlock(&slot->reach);
	return r;
}

pthread_mutex_t *session_turn(struct mcp_session *s, const struct client *c)
{
	pthread_mutex_t *turn = NULL;

	(void)pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->nenvs && !turn; i++)
		if (!strcmp(s->envs[i].name, client_env(c)))
			turn = &s->envs[i].turn;
	(void)pthread_mutex_unlock(&s->lock);
	return turn;
}

static void discard(struct client *c)
{
	struct diag diag = {0};
	struct ctl_moved moved;
	struct ctl *ctl;
	int r;

	r = client_ctl_get(c, &diag, &ctl);
	if (!r) {
		r = ctl_reset(ctl, false, &diag, &moved);
		/* A command that was just killed may not have given up its lease yet. */
		for (int i = 0; r == -EBUSY && i < RESET_TRIES; i++) {
			(void)usleep(RESET_PAUSE_US);
			diag = (struct diag){0};
			r = ctl_reset(ctl, false, &diag, &moved);
		}
		client_ctl_put(c, ctl, r == -EPIPE);
	}
	/* -EBUSY: another session runs commands in it; what it does is not ours to drop. */
	if (r && r != -ENODATA)
		log_warn("environment %s: uncommitted changes were not discarded: %s",
			 client_env(c), diag.text[0] ? diag.text : err_text(r));
}

/* Only the environment that the session was started for: another one that a call named is somebody
 * else's. And only when no other session is in it. */
static bool is_last(const struct env_slot *slot)
{
	return slot->share_fd < 0 || flock(slot->share_fd, LOCK_EX | LOCK_NB) == 0;
}

void session_discard(struct mcp_session *s)
{
	size_t n;

	if (s->opts->keep)
		return;
	(void)pthread_mutex_lock(&s->lock);
	n = s->nenvs;
	(void)pthread_mutex_unlock(&s->lock);
	for (size_t i = 0; i < n; i++) {
		struct env_slot *slot = &s->envs[i];
		bool reached;

		(void)pthread_mutex_lock(&slot->reach);
		reached = slot->reached;
		(void)pthread_mutex_unlock(&slot->reach);
		if (reached && !strcmp(slot->name, own_env(s)) && is_last(slot))
			discard(slot->client);
	}
}

int session_changes(struct client *c, uint64_t token,
		    int (*fn)(void *arg, const char *path, char what), void *arg)
{
	struct diag diag = {0};
	uint64_t now = 0;
	struct ctl *ctl;
	int r;

	r = client_ctl_get(c, &diag, &ctl);
	if (r)
		return r;
	r = ctl_changes(ctl, token, &diag, &now, fn, arg);
	client_ctl_put(c, ctl, r && r != -ESTALE);
	return r;
}
