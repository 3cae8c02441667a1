#include "mcp/files/commands.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "mcp/files/packages.h"
#include "mcp/session.h"

enum {
	NAMES_MOST = 50000
};

/* Where a shell looks: the runner's PATH. */
static const char *const places[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
				     "/usr/bin",        "/sbin",          "/bin"};
/* What else the answer depends on. */
static const char *const sources[] = {PACKAGES_DPKG, PACKAGES_PACMAN};

#define NPLACES ARRAY_SIZE(places)
#define NSEEN   (NPLACES + ARRAY_SIZE(sources))

struct command {
	char *name;
	const char *package; /* of @packages, or NULL */
};

/* A directory as it was, for what changes it without passing through the tree. */
struct seen {
	dev_t dev;
	ino_t ino;
	struct timespec mtime;
};

struct commands {
	pthread_mutex_t lock;
	/* under lock: all of one look, or nothing */
	char env[65];
	uint64_t generation, token;
	struct seen seen[NSEEN];
	struct command *v;
	size_t n, cap;
	struct packages packages;
};

int commands_new(struct commands **ret)
{
	struct commands *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	(void)pthread_mutex_init(&c->lock, NULL);
	*ret = c;
	return 0;
}

static void forget(struct commands *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->v[i].name);
	free(c->v);
	packages_release(&c->packages);
	c->v = NULL;
	c->n = c->cap = 0;
	c->env[0] = 0;
}

void commands_free(struct commands *c)
{
	if (!c)
		return;
	forget(c);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

/* ---- is it still so? ---- */

static void look(int root_fd, const char *path, struct seen *ret)
{
	cleanup_fd int fd = -1;
	struct stat st;

	*ret = (struct seen){0};
	if (fsio_lookup(root_fd, path, &fd, &st) < 0)
		return;
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	ret->mtime = st.st_mtim;
}

static void look_at_all(int root_fd, struct seen ret[static NSEEN])
{
	for (size_t i = 0; i < NPLACES; i++)
		look(root_fd, places[i], &ret[i]);
	for (size_t i = NPLACES; i < NSEEN; i++)
		look(root_fd, sources[i - NPLACES], &ret[i]);
}

static bool same_seen(const struct seen *a, const struct seen *b)
{
	for (size_t i = 0; i < NSEEN; i++)
		if (a[i].dev != b[i].dev || a[i].ino != b[i].ino ||
		    a[i].mtime.tv_sec != b[i].mtime.tv_sec ||
		    a[i].mtime.tv_nsec != b[i].mtime.tv_nsec)
			return false;
	return true;
}

/* A file that was there may have become executable, or another: its directory does not tell. */
static int on_change(void *arg, const char *path, char what)
{
	bool *matters = arg;

	(void)what;
	for (size_t i = 0; i < NSEEN; i++) {
		const char *dir = i < NPLACES ? places[i] : sources[i - NPLACES];
		size_t n = strlen(dir);

		*matters |= !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
	}
	/* what a link in one of them leads to */
	*matters |= !strncmp(path, "/etc/alternatives/", 18) || !strncmp(path, "/usr/lib/", 9) ||
		    !strncmp(path, "/opt/", 5);
	return 0;
}

static bool fresh(const struct commands *c, const struct files_call *fc)
{
	struct seen now[NSEEN];
	bool matters = false;

	if (strcmp(c->env, client_env(fc->client)) != 0 || c->generation != fc->at.generation)
		return false;
	look_at_all(fc->at.root_fd, now);
	return same_seen(c->seen, now) &&
	       session_changes(fc->client, c->token, on_change, &matters) == 0 && !matters;
}

/* ---- looking ---- */

static int add(struct commands *c, const char *name)
{
	if (c->n == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 1024;
		struct command *v = realloc(c->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		c->v = v;
		c->cap = cap;
	}
	c->v[c->n] = (struct command){strdup(name), packages_of(&c->packages, name)};
	return c->v[c->n].name ? (c->n++, 0) : -ENOMEM;
}

/* A link is followed by the tree's rules, not from the directory's descriptor by the host's. */
static bool can_run(int root_fd, const char *dir, int dir_fd, const char *name)
{
	char path[PATH_MAX];
	cleanup_fd int fd = -1;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	if (S_ISLNK(st.st_mode)) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
		if (fsio_lookup(root_fd, path, &fd, &st) < 0)
			return false;
	}
	return S_ISREG(st.st_mode) && st.st_mode & 0111;
}

static int read_place(struct commands *c, const struct files_call *fc, const char *dir)
{
	const struct dirent *e;
	cleanup_dir DIR *d = NULL;
	int fd, r = fsio_open_dir(fc->at.root_fd, dir, &fd);

	if (r == -ESTALE || r == -ENOTCONN)
		return r;
	if (r < 0)
		return 0;
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	while (r == 0 && c->n < NAMES_MOST && (e = readdir(d)))
		if (e->d_name[0] != '.' && can_run(fc->at.root_fd, dir, fd, e->d_name))
			r = add(c, e->d_name);
	return tool_cancelled(fc->call) ? -ECANCELED : r;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct command *)a)->name, ((const struct command *)b)->name);
}

/* Which of several a shell takes does not matter here. */
static void sort_once(struct commands *c)
{
	size_t n = 0;

	if (c->n)
		qsort(c->v, c->n, sizeof(*c->v), by_name);
	for (size_t i = 0; i < c->n; i++) {
		if (n && !strcmp(c->v[n - 1].name, c->v[i].name))
			free(c->v[i].name);
		else
			c->v[n++] = c->v[i];
	}
	c->n = n;
}

static int read_all(struct commands *c, const struct files_call *fc)
{
	int r;

	forget(c);
	look_at_all(fc->at.root_fd, c->seen);
	r = packages_read(fc->at.root_fd, &c->packages);
	for (size_t i = 0; r == 0 && i < NPLACES; i++) {
		bool again = false;

		/* /bin is /usr/bin in most trees */
		for (size_t k = 0; k < i; k++)
			again |= c->seen[k].ino && c->seen[k].ino == c->seen[i].ino &&
				 c->seen[k].dev == c->seen[i].dev;
		if (!again)
			r = read_place(c, fc, places[i]);
	}
	if (r < 0) {
		forget(c);
		return r;
	}
	sort_once(c);
	c->generation = fc->at.generation;
	c->token = fc->at.token;
	(void)snprintf(c->env, sizeof(c->env), "%s", client_env(fc->client));
	return 0;
}

int commands_each(struct commands *c, struct files_call *fc,
		  int (*fn)(void *arg, const char *name, const char *package), void *arg)
{
	int r = 0;

	(void)pthread_mutex_lock(&c->lock);
	if (!fresh(c, fc))
		r = read_all(c, fc);
	for (size_t i = 0; r == 0 && i < c->n; i++)
		r = fn(arg, c->v[i].name, c->v[i].package);
	(void)pthread_mutex_unlock(&c->lock);
	return r;
}
