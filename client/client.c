#include "client/client.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "client/client_internal.h"
#include "client/fence.h"
#include "runner/orphan.h"
#include "runner/spare.h"

#define IDLE_MAX 8

#define BUSY_TRIES    25
#define BUSY_PAUSE_US 40000

struct bind {
	char *host, *mount;
	int host_fd; /* pinned: what is bound again later is the same directory */
	bool rw;
};

struct client {
	/* constant after client_new; the strings are ours */
	struct ctl_env_opts opts;
	struct run_spare *spare; /* NULL: none */

	pthread_mutex_t lock;
	/* under lock */
	struct ctl *idle[IDLE_MAX];
	size_t nidle;
	bool connected;
	int scratch_fd; /* the last command's directory for temporary files is kept from being emptied; -1 */

	pthread_mutex_t bind_lock; /* held over the calls that bind; before lock */
	/* under bind_lock */
	struct bind *binds;
	size_t nbinds;
	struct ctl *bind_ctl; /* they last as long as this connection */
};

struct client_run {
	struct client *client;
	struct ctl *ctl; /* its lease is the connection's */
	uint64_t token, denied;
	struct run *run;
};

int client_new(const struct ctl_env_opts *o, struct client **ret)
{
	struct client *c;
	int r;

	io_most_descriptors(); /* leases and binds are descriptors that are passed */
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->scratch_fd = -1;
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_mutex_init(&c->bind_lock, NULL);
	r = client_opts_dup(o, &c->opts);
	if (r < 0) {
		client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* Takes @fd, -1: none any more. */
static void scratch_keep(struct client *c, int fd)
{
	int old;

	(void)pthread_mutex_lock(&c->lock);
	old = c->scratch_fd;
	c->scratch_fd = fd;
	(void)pthread_mutex_unlock(&c->lock);
	if (old >= 0)
		(void)close(old);
}

static void bind_release(struct bind *b)
{
	if (b->host_fd >= 0)
		(void)close(b->host_fd);
	free(b->host);
	free(b->mount);
}

/* Before the connection ends, so that whoever comes next finds nothing bound. */
static void unbind_all(struct client *c)
{
	size_t i;

	for (i = 0; c->bind_ctl && ctl_alive(c->bind_ctl) && i < c->nbinds; i++)
		(void)!ctl_unbind(c->bind_ctl, c->binds[i].mount, NULL);
	ctl_close(c->bind_ctl);
	c->bind_ctl = NULL;
}

void client_free(struct client *c)
{
	size_t i;

	if (!c)
		return;
	run_spare_free(c->spare);
	for (i = 0; i < c->nidle; i++)
		ctl_close(c->idle[i]);
	scratch_keep(c, -1);
	unbind_all(c);
	for (i = 0; i < c->nbinds; i++)
		bind_release(&c->binds[i]);
	free(c->binds);
	client_opts_release(&c->opts);
	(void)pthread_mutex_destroy(&c->bind_lock);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

const char *client_env(const struct client *c)
{
	return c->opts.env;
}

int client_keep_spare(struct client *c)
{
	/* What such processes leave behind when they are killed with all that is theirs. */
	orphan_end_all();
	return c->spare ? 0 : run_spare_new(&c->spare);
}

/* ---- binds ---- */

static int bind_again(struct ctl *ctl, const struct bind *b, struct diag *diag)
{
	struct diag d = {0};
	int r;

	r = ctl_bind(ctl, b->host_fd, b->host, b->mount, b->rw, &d);
	if (r == -ENOENT || r == -ESTALE) {
		/* A directory that vanished takes nothing along but its own bind. */
		log_warn("%s is not bound at %s: %s", b->host, b->mount,
			 d.text[0] ? d.text : err_text(r));
		return 0;
	}
	return r < 0 ? diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r)) : 0;
}

/* Under bind_lock. Without a connection that holds the binds, or when its daemon is gone: all of them
 * through a new one. */
static int bind_all(struct client *c, struct diag *diag)
{
	cleanup_ctl struct ctl *ctl = NULL;
	size_t i;
	int r;

	if (c->bind_ctl && ctl_alive(c->bind_ctl))
		return 0;
	r = ctl_open(&c->opts, diag, &ctl);
	for (i = 0; r == 0 && i < c->nbinds; i++)
		r = bind_again(ctl, &c->binds[i], diag);
	if (r < 0)
		return r;
	ctl_close(c->bind_ctl);
	c->bind_ctl = steal_ptr(&ctl);
	return 0;
}

static int bind_new(int host_fd, const char *host, const char *mount, bool rw, struct bind *ret)
{
	struct bind b = {.host_fd = fcntl(host_fd, F_DUPFD_CLOEXEC, 3), .rw = rw};

	if (b.host_fd < 0)
		return ret_nerrno();
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
	cleanup_ctl struct ctl *ctl = NULL;
	int r;

	r = ctl_open(&c->opts, diag, &ctl);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&c->bind_lock);
	r = c->nbinds ? bind_all(c, diag) : 0;
	(void)pthread_mutex_unlock(&c->bind_lock);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&c->lock);
	c->connected = true;
	(void)pthread_mutex_unlock(&c->lock);
	*ret = steal_ptr(&ctl);
	return 0;
}

/* What others do under another policy is often over in a moment. */
static int attach_patiently(struct ctl *ctl, const struct ctl_attach_opts *o, struct diag *diag,
			    struct ctl_attach *ret)
{
	int r = -EBUSY;

	for (int i = 0; i < BUSY_TRIES && r == -EBUSY; i++) {
		struct diag d = {0};

		if (i)
			(void)usleep(BUSY_PAUSE_US);
		r = ctl_attach_as(ctl, o, &d, ret);
		if (r < 0 && (r != -EBUSY || i == BUSY_TRIES - 1))
			diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r));
	}
	return r;
}

/* A connection, and the mount seen through it, under a lease. The daemon of an idle connection may end at the very moment;
 * then it is started anew. */
static int connect_attached(struct client *c, const struct ctl_attach_opts *o, struct diag *diag,
			    struct ctl **ret_ctl, struct ctl_attach *ret)
{
	struct diag d = {0};
	struct ctl *ctl = idle_take(c);
	int r;

	if (ctl) {
		r = attach_patiently(ctl, o, &d, ret);
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
	r = attach_patiently(ctl, o, diag, ret);
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

/* What was bound to be written through is a writable place, for our commands. */
static int add_places(struct client *c, struct ctl_attach *at)
{
	char *text = at->writable;
	size_t n = strlen(text), i;
	int r = 0;

	(void)pthread_mutex_lock(&c->bind_lock);
	/* Where all is writable none is added: provisioning sees none. */
	for (i = 0; r == 0 && i < c->nbinds && strcmp(text, "/") != 0; i++) {
		size_t room = sizeof(at->writable) - n;
		int k;

		if (!c->binds[i].rw)
			continue;
		k = snprintf(text + n, room, "%s%s", n ? "\n" : "", c->binds[i].mount);
		if (k < 0 || (size_t)k >= room)
			r = -ENAMETOOLONG;
		else
			n += (size_t)k;
	}
	(void)pthread_mutex_unlock(&c->bind_lock);
	return r;
}

/* @brief: as in ctl_attach_opts. */
static int attach(struct client *c, const struct client_terms *terms, const char *what, bool brief,
		  struct diag *diag, struct client_tree *ret)
{
	const struct ctl_attach_opts o = {.what = what,
					  .brief = brief,
					  .provision = terms && terms->provision,
					  .policy = terms && terms->policy.len ? &terms->policy
									       : NULL};
	int r;

	r = connect_attached(c, &o, diag, &ret->ctl, &ret->at);
	if (r < 0)
		return r;
	r = add_places(c, &ret->at);
	if (r < 0) {
		ctl_attach_release(&ret->at);
		ctl_close(ret->ctl);
		return diag_set(diag, r, "the list of writable places is too long");
	}
	return 0;
}

int client_attach(struct client *c, const struct client_terms *terms, const char *what,
		  struct diag *diag, struct client_tree *ret)
{
	return attach(c, terms, what, true, diag, ret);
}

void client_detach(struct client *c, struct client_tree *t)
{
	ctl_attach_release(&t->at);
	client_ctl_put(c, t->ctl, ctl_unlease(t->ctl) < 0);
	t->ctl = NULL;
}

int client_scratch(struct client *c, const struct client_terms *terms, struct diag *diag,
		   int *ret_fd)
{
	struct client_tree t;
	int r = client_attach(c, terms, "a directory for temporary files", diag, &t);

	if (r < 0)
		return r;
	/* Or we would be the ones who have it. */
	scratch_keep(c, -1);
	r = fence_scratch(t.at.root_fd, terms->tmp, c->opts.through, diag, ret_fd);
	client_detach(c, &t);
	return r;
}

/* Before the first connection nothing is started: the bind waits for it. */
static int bind_now(struct client *c, bool connected, const struct bind *b, struct diag *diag)
{
	int r;

	if (!connected)
		return bind_append(c, b);
	r = bind_all(c, diag);
	if (r == 0)
		r = ctl_bind(c->bind_ctl, b->host_fd, b->host, b->mount, b->rw, diag);
	return r < 0 ? r : bind_append(c, b);
}

int client_add_bind(struct client *c, int host_fd, const char *host, const char *mount, bool rw,
		    struct diag *diag)
{
	struct bind b;
	bool connected;
	int r;

	r = bind_new(host_fd, host, mount, rw, &b);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&c->bind_lock);
	(void)pthread_mutex_lock(&c->lock);
	connected = c->connected;
	(void)pthread_mutex_unlock(&c->lock);
	r = bind_now(c, connected, &b, diag);
	(void)pthread_mutex_unlock(&c->bind_lock);
	if (r < 0)
		bind_release(&b);
	return r;
}

int client_remove_bind(struct client *c, const char *mount, struct diag *diag)
{
	size_t i = 0;
	int r = 0;

	(void)pthread_mutex_lock(&c->bind_lock);
	while (i < c->nbinds && strcmp(c->binds[i].mount, mount) != 0)
		i++;
	if (i == c->nbinds)
		r = diag_set(diag, -ENOENT, "nothing is bound at %s", mount);
	/* What the daemon does not know any more, having been replaced, is not bound. */
	else if (c->bind_ctl && ctl_alive(c->bind_ctl))
		r = ctl_unbind(c->bind_ctl, mount, diag);
	if (i < c->nbinds && (r == 0 || r == -ENOENT || r == -EPIPE)) {
		bind_release(&c->binds[i]);
		memmove(&c->binds[i], &c->binds[i + 1], (--c->nbinds - i) * sizeof(*c->binds));
		r = 0;
		/* It would hold the host's directory mounted. */
		if (c->spare)
			run_spare_drop(c->spare);
	}
	(void)pthread_mutex_unlock(&c->bind_lock);
	return r;
}

/* ---- commands ---- */

static int start_in(const struct client *c, const struct ctl_attach *at, struct run_spec *spec,
		    struct diag *diag, struct run **ret)
{
	char places[sizeof(at->writable)];
	int r;

	spec->userns_fd = at->userns_fd;
	spec->mntns_fd = at->mntns_fd;
	spec->root = at->root;
	spec->spare = spec->provision ? NULL : c->spare;
	spec->tree_id[0] = at->generation;
	spec->tree_id[1] = at->mounts;
	/* A daemon may be replaced; the keeper stays as long as the mount. */
	if (at->tied_fd >= 0)
		spec->tie_fd = at->tied_fd;
	spec->tree_fd = at->root_fd;
	/* Where nothing may be executed that may be written, a place more would take execution from what is
	 * beside it. */
	if (spec->no_exec_workspace) {
		spec->writable = at->writable;
		return run_start(spec, diag, ret);
	}
	r = fence_places(at->root_fd, at->writable, places, sizeof(places));
	if (r < 0)
		return diag_set(diag, r, "the list of writable places is too long");
	spec->writable = places;
	return run_start(spec, diag, ret);
}

/* The lease comes with the mount, so that no rollback takes the tree away in between; and again with
 * the process that a forced one may kill. */
static int start_leased(struct client *c, const struct client_terms *terms, struct run_spec *spec,
			const char *what, struct diag *diag, struct client_run *cr)
{
	struct client_tree t;
	int r, fd;

	r = attach(c, terms, what, false, diag, &t);
	if (r < 0)
		return r;
	cr->ctl = t.ctl;
	spec->provision = terms && terms->provision;
	cr->token = t.at.token;
	cr->denied = t.at.denied;
	spec->tie_fd = ctl_fd(cr->ctl);
	/* A rollback may have taken it away; and what we have is of the tree before that. */
	if (terms && terms->tmp) {
		r = fence_make(t.at.root_fd, terms->tmp, c->opts.through, diag, &fd);
		if (r == 0)
			scratch_keep(c, fd);
	}
	if (r == 0)
		r = start_in(c, &t.at, spec, diag, &cr->run);
	ctl_attach_release(&t.at);
	if (r < 0)
		return r;
	r = ctl_lease(cr->ctl, what, run_pidfd(cr->run), diag);
	if (r != -EPIPE)
		return r;
	/* The daemon was replaced this very moment; the mount is the same. */
	ctl_close(cr->ctl);
	cr->ctl = NULL;
	r = connect_new(c, diag, &cr->ctl);
	return r < 0 ? r : ctl_lease(cr->ctl, what, run_pidfd(cr->run), diag);
}

int client_run_start(struct client *c, const struct client_terms *terms, struct run_spec *spec,
		     const char *what, struct diag *diag, struct client_run **ret)
{
	struct client_run *cr;
	int r;

	cr = calloc(1, sizeof(*cr));
	if (!cr)
		return -ENOMEM;
	cr->client = c;
	r = start_leased(c, terms, spec, what, diag, cr);
	spec->userns_fd = spec->mntns_fd = spec->tie_fd = spec->tree_fd = -1;
	spec->root = spec->writable = NULL;
	spec->spare = NULL;
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

uint64_t client_run_denied(const struct client_run *cr)
{
	return cr->denied;
}

static int keep_denial(void *arg, const struct ctl_denial *d)
{
	struct client_denials *k = arg;
	struct ctl_denial *x;

	if (k->n == k->max)
		return 0;
	x = &k->v[k->n];
	x->path = strdup(d->path);
	x->op = strdup(d->op);
	x->why = strdup(d->why);
	x->count = d->count;
	k->n++;
	return x->path && x->op && x->why ? 0 : -ENOMEM;
}

void client_denials_release(struct client_denials *d)
{
	for (size_t i = 0; i < d->n; i++) {
		free(d->v[i].path);
		free(d->v[i].op);
		free(d->v[i].why);
	}
	free(d->v);
	*d = (struct client_denials){0};
}

static int denials_of(struct ctl *ctl, uint64_t token, size_t max, struct client_denials *ret)
{
	struct client_denials got = {.max = max};
	struct diag diag = {0};
	uint64_t now;
	int r;

	got.v = calloc(max, sizeof(*got.v));
	if (!got.v)
		return -ENOMEM;
	r = ctl_denials(ctl, token, &diag, &now, &got.total, keep_denial, &got);
	if (r < 0) {
		client_denials_release(&got);
		return r;
	}
	*ret = got;
	return 0;
}

int client_denials(struct client *c, uint64_t token, size_t max, struct client_denials *ret)
{
	struct diag diag = {0};
	struct ctl *ctl;
	int r = client_ctl_get(c, &diag, &ctl);

	if (r < 0)
		return r;
	r = denials_of(ctl, token, max, ret);
	client_ctl_put(c, ctl, r < 0 && r != -ESTALE);
	return r;
}

int client_run_denials(struct client_run *cr, size_t max, struct client_denials *ret)
{
	return cr->ctl ? denials_of(cr->ctl, cr->denied, max, ret) : -ENOTCONN;
}

/* Another daemon may have gone on with it meanwhile. */
static int verdict(struct client_run *cr, int (*tell)(struct ctl *ctl, struct diag *diag),
		   struct diag *diag)
{
	struct diag d = {0};
	int r = cr->ctl ? tell(cr->ctl, &d) : -EPIPE;

	if (r != -EPIPE)
		return r < 0 ? diag_set(diag, r, "%s", d.text[0] ? d.text : err_text(r)) : r;
	ctl_close(cr->ctl);
	cr->ctl = NULL;
	r = connect_new(cr->client, diag, &cr->ctl);
	return r < 0 ? r : tell(cr->ctl, diag);
}

int client_run_keep(struct client_run *cr, struct diag *diag)
{
	return verdict(cr, ctl_keep, diag);
}

int client_run_drop(struct client_run *cr, struct diag *diag)
{
	int r = verdict(cr, ctl_drop, diag);

	return r == -ENOENT ? 0 : r; /* so it has been */
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
