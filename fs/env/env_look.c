/* Looking into a state, whichever: a file's content, a directory's names. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/env_internal.h"

#define CAT_MAX (64u << 20)

/* ---- a tree of that state ---- */

typedef int (*look_fn)(struct ovl *o, void *arg);

static int open_state(const struct ovl_opts *oo, struct ovl **ret)
{
	log_debug("layer %llu is opened to be looked at", (unsigned long long)oo->layer);
	return ovl_open(oo, ret);
}

static int look_at(struct env *e, store_layer layer, const struct policy_rules *policy, look_fn fn,
		   void *arg)
{
	struct ovl_opts oo = {
		.store = e->store, .layer = layer, .flags = OVL_RDONLY, .policy = policy};
	struct ovl *o = NULL;
	int r = open_state(&oo, &o), k;

	if (r < 0)
		return r;
	r = fn(o, arg);
	k = ovl_close(o);
	return r < 0 ? r : k;
}

/* A sealed state that stays open from one question to the next: of many files of a state, each opening would look up the
 * directories above anew. */
struct env_look {
	struct ovl *o;
	store_layer layer;
	struct policy_rules policy;
	store_ino last; /* with one reference, which holds the directories above it; 0: none */
};

static void look_end(struct env_look *l)
{
	if (!l)
		return;
	if (l->last)
		ovl_forget(l->o, l->last, 1);
	(void)!ovl_close(l->o);
	policy_rules_release(&l->policy);
	free(l);
}

/* Takes @policy. *ret NULL: it changes yet, and cannot be kept. */
static int look_begin(struct env *e, store_layer layer, struct policy_rules *policy,
		      struct env_look **ret)
{
	struct ovl_opts oo = {
		.store = e->store, .layer = layer, .flags = OVL_RDONLY, .policy = policy};
	struct env_look *l;
	struct store_layer_info li;
	int r = store_layer_get(e->store, layer, &li);

	if (r < 0 || li.state != STORE_LAYER_SEALED)
		return r;
	l = calloc(1, sizeof(*l));
	r = l ? open_state(&oo, &l->o) : -ENOMEM;
	if (r < 0) {
		free(l);
		return r;
	}
	l->layer = layer;
	l->policy = *policy;
	*policy = (struct policy_rules){0};
	*ret = l;
	return 0;
}

void env_looks_end(struct env_looks *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(l->v); i++)
		look_end(l->v[i]);
	*l = (struct env_looks){0};
}

/* What is closed now is not open in what was kept. */
static struct env_look *find_kept(const struct env *e, const struct env_looks *keep,
				  store_layer layer)
{
	for (size_t i = 0; i < ARRAY_SIZE(keep->v); i++)
		if (keep->v[i] && keep->v[i]->layer == layer &&
		    policy_rules_same(&keep->v[i]->policy, &e->policy.rules))
			return keep->v[i];
	return NULL;
}

/* That it is found each time says that it was not collected. *ret NULL: it is to be looked at without. */
static int look_kept(struct env *e, const char *rev, struct env_looks *keep, struct diag *diag,
		     struct env_look **ret)
{
	struct env_look **to;
	cleanup_policy_rules struct policy_rules policy = {0};
	store_layer layer;
	int r;

	{
		ENV_LOCK(e);
		r = env_resolve(e->store, e->rec.name, rev, diag, &layer);
		if (r < 0)
			return r;
		*ret = find_kept(e, keep, layer);
		if (*ret)
			return 0;
		r = policy_rules_copy(&e->policy.rules, &policy);
	}
	to = &keep->v[keep->next];
	keep->next = (keep->next + 1) % ARRAY_SIZE(keep->v);
	look_end(*to);
	*to = NULL;
	if (r == 0)
		r = look_begin(e, layer, &policy, to);
	*ret = *to;
	return r;
}

static int look(struct env *e, const char *rev, struct diag *diag, look_fn fn, void *arg)
{
	cleanup_policy_rules struct policy_rules policy = {0};
	store_layer layer;
	int r;

	{
		ENV_LOCK(e);
		if (!rev) {
			r = env_check_kept(e, diag);
			if (r == 0)
				r = env_ensure_locked(e, diag);
			return r < 0 ? r : fn(e->cur.ovl, arg);
		}
		r = env_resolve(e->store, e->rec.name, rev, diag, &layer);
		/* What is closed now was not open before. */
		if (r == 0)
			r = policy_rules_copy(&e->policy.rules, &policy);
	}
	return r < 0 ? r : look_at(e, layer, &policy, fn, arg);
}

/* ---- contents ---- */

static int copy_out(struct ovl *o, const struct ovl_entry *ent, int fd)
{
	uint64_t size = (uint64_t)ent->attr.st.st_size, off = 0;
	cleanup_free char *buf = NULL;

	if (S_ISLNK(ent->attr.st.st_mode)) {
		char target[4096];
		int r = ovl_readlink(o, ent->ino, target);

		return r < 0 ? r : io_write_full(fd, target, strlen(target));
	}
	if (!S_ISREG(ent->attr.st.st_mode))
		return S_ISDIR(ent->attr.st.st_mode) ? -EISDIR : -EINVAL;
	if (size > CAT_MAX)
		return -EFBIG;
	buf = malloc(STORE_BLOCK);
	if (!buf)
		return -ENOMEM;
	while (off < CAT_MAX) {
		ssize_t n = ovl_read(o, ent->ino, off, buf, STORE_BLOCK);
		int r;

		if (n <= 0)
			return (int)n;
		r = io_write_full(fd, buf, (size_t)n);
		if (r < 0)
			return r;
		off += (uint64_t)n;
	}
	return 0;
}

struct cat {
	const char *path;
	int fd;
	uint32_t mode;
	store_ino *last; /* what the reference goes to instead of being given back; NULL: it is */
};

static int cat_from(struct ovl *o, void *arg)
{
	struct cat *c = arg;
	struct ovl_entry ent;
	int r = ovl_walk(o, c->path, &ent);

	if (r < 0)
		return r;
	if (ent.ino == 0)
		return -ENOENT;
	r = copy_out(o, &ent, c->fd);
	c->mode = ent.attr.st.st_mode;
	if (c->last) {
		store_ino was = *c->last;

		*c->last = ent.ino;
		ent.ino = was;
	}
	if (ent.ino)
		ovl_forget(o, ent.ino, 1);
	return r;
}

static int cat(struct env *e, struct env_looks *keep, const char *rev, struct diag *diag,
	       struct cat *c)
{
	struct env_look *l = NULL;
	int r = rev ? look_kept(e, rev, keep, diag, &l) : 0;

	if (r < 0)
		return r;
	if (!l)
		return look(e, rev, diag, cat_from, c);
	c->last = &l->last;
	return cat_from(l->o, c);
}

int env_cat(struct env *e, struct env_looks *keep, const char *rev, const char *path,
	    struct diag *diag, int *ret_fd, uint32_t *ret_mode)
{
	struct cat c = {.path = path};
	cleanup_fd int fd = -1;
	int r;

	if (!path || path[0] != '/')
		return diag_set(diag, -EINVAL, "cat needs an absolute path in the tree");
	fd = memfd_create("rattan-cat", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return ret_nerrno();
	c.fd = fd;
	r = cat(e, keep, rev, diag, &c);
	*ret_mode = c.mode;
	if (r == -EFBIG)
		return diag_set(diag, r, "%s is larger than %u MiB", path, CAT_MAX >> 20);
	if (r < 0)
		return diag_set(diag, r, "%s: %s", path, err_text(r));
	if (lseek(fd, 0, SEEK_SET) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* ---- names ---- */

struct name {
	char *name;
};
struct names {
	struct name *v;
	size_t n, cap;
};

static void names_release(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].name);
	free(l->v);
}

static int see_name(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct names *l = arg;
	struct name *v;

	(void)cookie;
	(void)e;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;

		v = realloc(l->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	v = &l->v[l->n];
	*v = (struct name){.name = strdup(name)};
	if (!v->name)
		return -ENOMEM;
	l->n++;
	return 0;
}

static int by_name(const void *pa, const void *pb)
{
	const struct name *a = pa, *b = pb;

	return strcmp(a->name, b->name);
}

struct owning {
	struct diag *diag;
	bool lost; /* something is not what the tree took over, and has no bytes any more */
};
struct ls {
	const char *path;
	bool below;
	struct owning *own; /* all that is met, instead of being told of; NULL: not */
	int (*fn)(void *arg, const struct ctl_file *f);
	void *arg;
};

/* What is lost stays so; the rest is not to be. */
static int own_one(struct ovl *o, const struct ls *l, const char *path, store_ino ino)
{
	int r = ovl_own(o, ino);

	if (r == -EIO || r == -ESTALE || r == -ENOENT) {
		l->own->lost = true;
		return 0;
	}
	return r < 0 ? diag_set(l->own->diag, r,
				"what %s shows of the host cannot be copied to the store: %s", path,
				err_text(r))
		     : 0;
}

static int tell(struct ovl *o, const struct ls *l, const char *path, const struct ovl_entry *e)
{
	struct ctl_file f = {.path = path,
			     .mode = e->attr.st.st_mode,
			     .size = (uint64_t)e->attr.st.st_size,
			     .mtime = e->attr.st.st_mtim};
	char target[4096];

	if (l->own)
		return own_one(o, l, path, e->ino);
	if (S_ISLNK(f.mode) && ovl_readlink(o, e->ino, target) == 0)
		f.target = target;
	return l->fn(l->arg, &f);
}

/* Directories to be listed yet, a stack: a tree may be deeper than ours. */
struct todo {
	char *path;
	store_ino ino; /* with one reference */
};
struct todos {
	struct todo *v;
	size_t n, cap;
};

/* Takes the path and the reference, on failure as well. */
static int push(struct ovl *o, struct todos *t, char *path, store_ino ino)
{
	if (path && t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 32;
		struct todo *v = realloc(t->v, cap * sizeof(*v));

		if (v) {
			t->v = v;
			t->cap = cap;
		}
	}
	if (!path || t->n == t->cap) {
		free(path);
		ovl_forget(o, ino, 1);
		return -ENOMEM;
	}
	t->v[t->n++] = (struct todo){path, ino};
	return 0;
}

static int list_name(struct ovl *o, const struct ls *l, const struct todo *dir, const char *name,
		     struct todos *t)
{
	struct ovl_entry e;
	char *path;
	int r = ovl_lookup(o, dir->ino, name, &e);

	/* Closed to the policy, or gone meanwhile. */
	if (r == -EACCES || r == -ENOENT || (r == 0 && !e.ino))
		return 0;
	if (r < 0)
		return r;
	if (asprintf(&path, "%s/%s", strcmp(dir->path, "/") != 0 ? dir->path : "", name) < 0) {
		ovl_forget(o, e.ino, 1);
		return -ENOMEM;
	}
	r = tell(o, l, path, &e);
	if (r == 0 && l->below && S_ISDIR(e.attr.st.st_mode))
		return push(o, t, path, e.ino);
	free(path);
	ovl_forget(o, e.ino, 1);
	return r;
}

static int list_dir(struct ovl *o, const struct ls *l, const struct todo *dir, struct todos *t)
{
	__attribute__((cleanup(names_release))) struct names n = {0};
	int r = ovl_readdir(o, dir->ino, 0, false, see_name, &n);

	if (r >= 0 && n.n)
		qsort(n.v, n.n, sizeof(*n.v), by_name);
	for (size_t i = 0; r >= 0 && i < n.n; i++)
		r = list_name(o, l, dir, n.v[i].name, t);
	return r < 0 ? r : 0;
}

static int ls_from(struct ovl *o, void *arg)
{
	const struct ls *l = arg;
	struct todos t = {0};
	struct ovl_entry e;
	int r = ovl_walk(o, l->path, &e), k;

	if (r < 0)
		return r;
	if (e.ino == 0)
		return -ENOENT;
	if (S_ISDIR(e.attr.st.st_mode)) {
		r = l->own ? tell(o, l, l->path, &e) : 0;
		k = push(o, &t, strdup(l->path), e.ino);
		r = r < 0 ? r : k;
	} else {
		r = tell(o, l, l->path, &e);
		ovl_forget(o, e.ino, 1);
	}
	while (t.n) {
		struct todo dir = t.v[--t.n];

		if (r == 0)
			r = list_dir(o, l, &dir, &t);
		if (r == 0 && l->own)
			r = ovl_own_names(o, dir.ino);
		free(dir.path);
		ovl_forget(o, dir.ino, 1);
	}
	free(t.v);
	return r;
}

int env_ls(struct env *e, const char *rev, const char *path, bool below, struct diag *diag,
	   int (*fn)(void *arg, const struct ctl_file *f), void *arg)
{
	struct ls l = {.path = path, .below = below, .fn = fn, .arg = arg};
	int r;

	if (!path || path[0] != '/')
		return diag_set(diag, -EINVAL, "ls needs an absolute path in the tree");
	r = look(e, rev, diag, ls_from, &l);
	return r < 0 ? diag_set(diag, r, "%s: %s", path, err_text(r)) : r;
}

int env_own(struct env *e, const char *path, struct diag *diag)
{
	struct owning own = {.diag = diag};
	struct ls l = {.path = path, .below = true, .own = &own};
	int r;

	if (!path || path[0] != '/')
		return diag_set(diag, -EINVAL, "own needs an absolute path in the tree");
	r = look(e, NULL, diag, ls_from, &l);
	if (r == 0 && own.lost)
		return diag_set(diag, -ESTALE,
				"%s, or something below it, shows a file of the host that was "
				"changed or removed since",
				path);
	return r < 0 ? diag_set(diag, r, "%s: %s", path, err_text(r)) : r;
}
