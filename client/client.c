#include "client/client.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"

#define IDLE_MAX 8

struct bind {
	char *host, *mount;
	int host_fd; /* pinned: what is bound again later is the same directory */
	bool rw;
};

struct client {
	/* constant after client_new; the strings are ours */
	struct ctl_env_opts opts;

	pthread_mutex_t lock;
	/* under lock */
	struct ctl *idle[IDLE_MAX];
	size_t nidle;
	bool connected;

	pthread_mutex_t bind_lock; /* held over the calls that bind; before lock */
	/* under bind_lock */
	struct bind *binds;
	size_t nbinds;
	int bound_pid; /* the daemon that has our binds */
};

struct client_run {
	struct client *client;
	struct ctl *ctl; /* its lease is the connection's */
	uint64_t token;
	struct run *run;
};

/* ---- options ---- */

static int dup_text(const char *s, const char **ret)
{
	*ret = NULL;
	if (!s)
		return 0;
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

static int dup_overlays(const struct ctl_env_opts *o, struct ctl_env_opts *ret)
{
	struct ctl_overlay *v;
	size_t i;
	int r = 0;

	if (o->noverlays == 0)
		return 0;
	v = calloc(o->noverlays, sizeof(*v));
	if (!v)
		return -ENOMEM;
	ret->overlays = v;
	ret->noverlays = o->noverlays;
	for (i = 0; r == 0 && i < o->noverlays; i++) {
		r = dup_text(o->overlays[i].host, &v[i].host);
		if (r == 0)
			r = dup_text(o->overlays[i].mount, &v[i].mount);
	}
	return r;
}

static int dup_writable(const struct ctl_env_opts *o, struct ctl_env_opts *ret)
{
	const char **v;
	size_t n = 0, i;
	int r = 0;

	if (!o->writable)
		return 0;
	while (o->writable[n])
		n++;
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	ret->writable = v;
	for (i = 0; r == 0 && i < n; i++)
		r = dup_text(o->writable[i], &v[i]);
	return r;
}

static void drop_text(const char *s)
{
	free((void *)(uintptr_t)s);
}

static void opts_release(struct ctl_env_opts *o)
{
	size_t i;

	drop_text(o->data_dir);
	drop_text(o->env);
	drop_text(o->base);
	for (i = 0; i < o->noverlays; i++) {
		drop_text(o->overlays[i].host);
		drop_text(o->overlays[i].mount);
	}
	free((void *)(uintptr_t)o->overlays);
	for (i = 0; o->writable && o->writable[i]; i++)
		drop_text(o->writable[i]);
	free((void *)(uintptr_t)o->writable);
}

static int opts_dup(const struct ctl_env_opts *o, struct ctl_env_opts *ret)
{
	int r;

	*ret = (struct ctl_env_opts){.create = o->create, .no_start = o->no_start};
	r = dup_text(o->data_dir, &ret->data_dir);
	if (r == 0)
		r = dup_text(o->env ? o->env : "default", &ret->env);
	if (r == 0)
		r = dup_text(o->base, &ret->base);
	if (r == 0)
		r = dup_overlays(o, ret);
	if (r == 0)
		r = dup_writable(o, ret);
	return r;
}

int client_new(const struct ctl_env_opts *o, struct client **ret)
{
	struct client *c;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_mutex_init(&c->bind_lock, NULL);
	r = opts_dup(o, &c->opts);
	if (r < 0) {
		client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

static void bind_release(struct bind *b)
{
	if (b->host_fd >= 0)
		(void)close(b->host_fd);
	free(b->host);
	free(b->mount);
}

void client_free(struct client *c)
{
	size_t i;

	if (!c)
		return;
	for (i = 0; i < c->nidle; i++)
		ctl_close(c->idle[i]);
	for (i = 0; i < c->nbinds; i++)
		bind_release(&c->binds[i]);
	free(c->binds);
	opts_release(&c->opts);
	(void)pthread_mutex_destroy(&c->bind_lock);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

const char *client_env(const struct client *c)
{
	return c->opts.env;
}

/* ---- binds ---- */

/* Is what is bound at the place of @b just what @b asks for? Somebody else may have asked for it as
 * well, or we before a reconnect. */
static bool bound_already(struct ctl *ctl, const struct bind *b)
{
	struct ctl_status st;
	bool same = false;
	size_t i;

	if (ctl_status(ctl, NULL, &st) < 0)
		return false;
	for (i = 0; i < st.nbinds; i++) {
		if (!strcmp(st.binds[i].mount, b->mount) && !strcmp(st.binds[i].host, b->host) &&
		    st.binds[i].rw == b->rw)
			same = true;
	}
	ctl_status_release(&st);
	return same;
}

static int bind_one(struct ctl *ctl, const struct bind *b, struct diag *diag)
{
	struct diag d = {0};
	int r;

	r = ctl_bind(ctl, b->host_fd, b->host, b->mount, b->rw, &d);
	if (r == -EEXIST && bound_already(ctl, b))
		return 0;
	if (r == -ENOENT || r == -ESTALE) {
		/* A directory that vanished takes nothing along but its own bind. */
		log_warn("%s is not bound at %s: %s", b->host, b->mount,
			 d.text[0] ? d.text : err_text(r));
		return 0;
	}
	return r < 0 ? diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r)) : 0;
}

/* A new connection: to a new daemon? Then the binds are made again. */
static int bind_all(struct client *c, struct ctl *ctl, struct diag *diag)
{
	struct ctl_status st;
	size_t i;
	int r, pid;

	r = ctl_status(ctl, diag, &st);
	if (r < 0)
		return r;
	pid = st.daemon_pid;
	ctl_status_release(&st);
	if (pid == c->bound_pid)
		return 0;
	for (i = 0; r == 0 && i < c->nbinds; i++)
		r = bind_one(ctl, &c->binds[i], diag);
	if (r == 0)
		c->bound_pid = pid;
	return r;
}

static int bind_new(const char *host, const char *mount, bool rw, struct diag *diag,
		    struct bind *ret)
{
	struct bind b = {.host_fd = -1, .rw = rw};

	b.host_fd = open(host, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (b.host_fd < 0)
		return diag_set(diag, ret_nerrno(), "%s: %s", host, err_text(errno));
	b.host = strdup(host);
	b.mount = strdup(mount);
	if (!b.host || !b.mount) {
		bind_release(&b);
		return -ENOMEM;
	}
	*ret = b;
	return 0;
}

static int bind_append(struct client *c, const struct bind *b)
{
	struct bind *v;

	v = reallocarray(c->binds, c->nbinds + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	c->binds = v;
	c->binds[c->nbinds++] = *b;
	return 0;
}

/* ---- connections ---- */

/* NULL: none whose daemon still lives. */
static struct ctl *idle_take(struct client *c)
{
	struct ctl *ctl;

	do {
		ctl = NULL;
		(void)pthread_mutex_lock(&c->lock);
		if (c->nidle > 0)
			ctl = c->idle[--c->nidle];
		(void)pthread_mutex_unlock(&c->lock);
		if (!ctl || ctl_alive(ctl))
			return ctl;
		ctl_close(ctl);
	} while (true);
}

static int connect_new(struct client *c, struct diag *diag, struct ctl **ret)
{
	struct ctl_env_opts o = c->opts;
	cleanup_ctl struct ctl *ctl = NULL;
	int r;

	r = ctl_open(&o, diag, &ctl);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&c->bind_lock);
	r = c->nbinds ? bind_all(c, ctl, diag) : 0;
	(void)pthread_mutex_unlock(&c->bind_lock);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&c->lock);
	c->connected = true;
	(void)pthread_mutex_unlock(&c->lock);
	*ret = steal_ptr(&ctl);
	return 0;
}

/* A connection, and the mount seen through it, under a lease when there is a @what to lease it for. The
 * daemon of an idle connection may end at the very moment; then it is started anew. */
static int connect_attached(struct client *c, const char *what, struct diag *diag,
			    struct ctl **ret_ctl, struct ctl_attach *ret)
{
	struct diag d = {0};
	struct ctl *ctl = idle_take(c);
	int r;

	if (ctl) {
		r = ctl_attach_leased(ctl, what, &d, ret);
		if (r == 0) {
			*ret_ctl = ctl;
			return 0;
		}
		ctl_close(ctl);
		if (r != -EPIPE)
			return diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r));
	}
	r = connect_new(c, diag, &ctl);
	if (r < 0)
		return r;
	r = ctl_attach_leased(ctl, what, diag, ret);
	if (r < 0) {
		ctl_close(ctl);
		return r;
	}
	*ret_ctl = ctl;
	return 0;
}

int client_ctl_get(struct client *c, struct diag *diag, struct ctl **ret)
{
	*ret = idle_take(c);
	return *ret ? 0 : connect_new(c, diag, ret);
}

void client_ctl_put(struct client *c, struct ctl *ctl, bool broken)
{
	if (!ctl)
		return;
	if (!broken) {
		(void)pthread_mutex_lock(&c->lock);
		if (c->nidle < IDLE_MAX) {
			c->idle[c->nidle++] = ctl;
			ctl = NULL;
		}
		(void)pthread_mutex_unlock(&c->lock);
	}
	ctl_close(ctl);
}

int client_attach(struct client *c, struct diag *diag, struct ctl_attach *ret)
{
	struct ctl *ctl;
	int r;

	r = connect_attached(c, NULL, diag, &ctl, ret);
	if (r == 0)
		client_ctl_put(c, ctl, false);
	return r;
}

int client_add_bind(struct client *c, const char *host, const char *mount, bool rw,
		    struct diag *diag)
{
	struct ctl *ctl = NULL;
	struct bind b;
	bool connected;
	int r;

	r = bind_new(host, mount, rw, diag, &b);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&c->lock);
	connected = c->connected;
	(void)pthread_mutex_unlock(&c->lock);
	/* Before the first connection nothing is started: the bind waits for it. */
	if (connected) {
		r = client_ctl_get(c, diag, &ctl);
		if (r == 0)
			r = bind_one(ctl, &b, diag);
		client_ctl_put(c, ctl, r == -EPIPE);
	}
	if (r == 0) {
		(void)pthread_mutex_lock(&c->bind_lock);
		r = bind_append(c, &b);
		(void)pthread_mutex_unlock(&c->bind_lock);
	}
	if (r < 0)
		bind_release(&b);
	return r;
}

/* ---- commands ---- */

static int start_in(const struct ctl_attach *at, struct run_spec *spec, struct diag *diag,
		    struct run **ret)
{
	spec->userns_fd = at->userns_fd;
	spec->mntns_fd = at->mntns_fd;
	spec->root = at->root;
	spec->writable = at->writable;
	return run_start(spec, diag, ret);
}

/* The lease comes with the mount, so that no rollback takes the tree away in between; and again with
 * the process that a forced one may kill. */
static int start_leased(struct client *c, struct run_spec *spec, const char *what,
			struct diag *diag, struct client_run *cr)
{
	struct ctl_attach at;
	int r;

	r = connect_attached(c, what, diag, &cr->ctl, &at);
	if (r < 0)
		return r;
	cr->token = at.token;
	spec->tie_fd = ctl_fd(cr->ctl);
	r = start_in(&at, spec, diag, &cr->run);
	ctl_attach_release(&at);
	if (r < 0)
		return r;
	return ctl_lease(cr->ctl, what, run_pidfd(cr->run), diag);
}

int client_run_start(struct client *c, struct run_spec *spec, const char *what, struct diag *diag,
		     struct client_run **ret)
{
	struct client_run *cr;
	int r;

	cr = calloc(1, sizeof(*cr));
	if (!cr)
		return -ENOMEM;
	cr->client = c;
	r = start_leased(c, spec, what, diag, cr);
	spec->userns_fd = spec->mntns_fd = spec->tie_fd = -1;
	spec->root = spec->writable = NULL;
	if (r < 0) {
		client_run_free(cr);
		return diag_set(diag, r, "%s", err_text(r));
	}
	*ret = cr;
	return 0;
}

struct run *client_run_of(struct client_run *cr)
{
	return cr->run;
}

uint64_t client_run_token(const struct client_run *cr)
{
	return cr->token;
}

void client_run_free(struct client_run *cr)
{
	if (!cr)
		return;
	run_free(cr->run);
	if (cr->ctl)
		client_ctl_put(cr->client, cr->ctl, ctl_unlease(cr->ctl) < 0);
	free(cr);
}

int client_find_program(const char *name, char **ret)
{
	static const char *const places[] = {"", "../fs/", "../stage3/", "../libexec/rattan/",
					     "../lib/rattan/"};
	char self[PATH_MAX], *path, *slash;
	ssize_t n;
	size_t i;

	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return ret_nerrno();
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		slash[1] = '\0';
	for (i = 0; i < ARRAY_SIZE(places); i++) {
		if (asprintf(&path, "%s%s%s", self, places[i], name) < 0)
			return -ENOMEM;
		if (access(path, X_OK) == 0) {
			*ret = path;
			return 0;
		}
		free(path);
	}
	return -ENOENT;
}
