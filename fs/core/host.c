/* Host files that stand behind the tree: their sources, numbers, and becoming records. */
#include <stdlib.h>

#include "base/io.h"
#include "fs/core/ovl_internal.h"

int host_join(const char *dir, const char *name, size_t len, char **ret)
{
	size_t d = strlen(dir);
	char *s;

	if (d + len + 2 > REC_ORIGIN_MAX)
		return -ENAMETOOLONG;
	s = malloc(d + len + 2);
	if (!s)
		return -ENOMEM;
	memcpy(s, dir, d);
	if (d > 0)
		s[d++] = '/';
	memcpy(s + d, name, len);
	s[d + len] = '\0';
	*ret = s;
	return 0;
}

uint32_t host_ttl(const struct ovl *o, unsigned origin_flags)
{
	return origin_flags & REC_ORIGIN_STABLE ? STABLE_TTL_MS : o->host_ttl_ms;
}

/* ---- sources ---- */

static int source_open(struct ovl *o, const char *root, unsigned flags, struct host_source **ret)
{
	/* From the path, so that inode numbers are the same in the next run. */
	unsigned i = (unsigned)(table_hash(flags, root, strlen(root)) % ARRAY_SIZE(o->srcs));
	struct host_source *s;
	int r;

	for (size_t tries = 0; o->srcs[i]; i = (i + 1) % ARRAY_SIZE(o->srcs)) {
		s = o->srcs[i];
		if (s->flags == flags && !strcmp(s->root, root)) {
			*ret = s;
			return 0;
		}
		if (++tries == ARRAY_SIZE(o->srcs))
			return -EMFILE;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->flags = flags;
	s->index = i;
	s->root = strdup(root);
	r = s->root ? hostsrc_open(root, flags, i, &o->host_all, &s->h) : -ENOMEM;
	if (r < 0) {
		free(s->root);
		free(s);
		return r;
	}
	o->srcs[i] = s;
	*ret = s;
	return 0;
}

int host_source_of(struct ovl *o, struct node *n, struct host_source **ret)
{
	int r = 0;

	if (!n->src && n->rec.origin.root) {
		r = source_open(o, n->rec.origin.root, n->rec.origin.flags, &n->src);
		/* A source that vanished fails by itself: the rest of the tree stays usable. */
		if (r == -ENOENT || r == -ENOTDIR)
			r = 0;
	}
	*ret = n->src;
	return r;
}

void host_release(struct ovl *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(o->srcs); i++) {
		if (!o->srcs[i])
			continue;
		hostsrc_close(o->srcs[i]->h);
		free(o->srcs[i]->root);
		free(o->srcs[i]);
	}
	for (size_t i = 0; i < o->host_numbers.nslots; i++) {
		for (struct table_link *l = o->host_numbers.slots[i], *next; l; l = next) {
			next = l->next;
			free(l);
		}
	}
	table_release(&o->host_numbers);
}

/* ELOOP: a component became a symlink; for the tree it is gone. */
static int gone_is_enoent(int r)
{
	return r == -ENOTDIR || r == -ELOOP || r == -EXDEV ? -ENOENT : r;
}

static int stat_rel(struct host_source *src, const char *rel, struct stat *ret)
{
	return gone_is_enoent(hostsrc_stat(src->h, rel, ret));
}

int host_stat_child(struct ovl *o, struct node *dir, const char *name, size_t len, struct stat *ret)
{
	cleanup_free char *rel = NULL;
	struct host_source *src;
	int r = host_source_of(o, dir, &src);

	if (r < 0)
		return r;
	if (!src)
		return -ENOENT;
	r = host_join(dir->rec.origin.rel, name, len, &rel);
	if (r < 0)
		return r;
	notify_holding(o);
	return gone_is_enoent(hostsrc_look(src->h, rel, ret));
}

int host_stat_next(struct ovl *o, struct node *dir, int *fd, const char *name, size_t len,
		   struct stat *ret)
{
	struct host_source *src;
	int r = host_source_of(o, dir, &src);

	if (r < 0)
		return r;
	if (!src)
		return -ENOENT;
	if (strlen(dir->rec.origin.rel) + len + 2 > REC_ORIGIN_MAX)
		return -ENAMETOOLONG;
	if (*fd < 0)
		r = gone_is_enoent(hostsrc_dir(src->h, dir->rec.origin.rel, fd));
	if (r < 0)
		return r;
	notify_holding(o);
	return gone_is_enoent(hostsrc_look_in(src->h, *fd, name, ret));
}

/* ---- numbers ---- */

static bool same_identity(const struct node *n, const struct stat *st)
{
	const struct rec_origin *og = &n->rec.origin;

	if (!og->root || og->dev != st->st_dev || og->ino != st->st_ino ||
	    (n->rec.mode & S_IFMT) != (st->st_mode & S_IFMT))
		return false;
	/* A recorded inode is the same host file only while that file is as it was: its number may
	 * have been given to another since. */
	return n->host_only ||
	       (og->size == (uint64_t)st->st_size && og->mtime.tv_sec == st->st_mtim.tv_sec &&
		og->mtime.tv_nsec == st->st_mtim.tv_nsec);
}

static struct host_number *number_entry(struct ovl *o, uint64_t dev, uint64_t ino, uint64_t salt)
{
	uint64_t key[] = {dev, ino, salt};
	struct table_link *l = table_find(&o->host_numbers, table_hash(o->seed, key, sizeof(key)));

	for (; l; l = table_next(l)) {
		struct host_number *k = (struct host_number *)l;

		if (k->dev == dev && k->ino == ino && k->salt == salt)
			return k;
	}
	return NULL;
}

/* Takes what @k says. */
static int number_add(struct ovl *o, const struct host_number *k, struct host_number **ret)
{
	uint64_t key[] = {k->dev, k->ino, k->salt};
	struct host_number *new = malloc(sizeof(*new));

	if (!new)
		return -ENOMEM;
	*new = *k;
	if (table_add(&o->host_numbers, &new->link, table_hash(o->seed, key, sizeof(key))) < 0) {
		free(new);
		return -ENOMEM;
	}
	*ret = new;
	return 0;
}

static int own_number(struct ovl *o, const struct stat *st, const char *rel,
		      struct host_number **ret)
{
	struct host_number k = {
		.dev = st->st_dev,
		.ino = st->st_ino,
		/* A directory that is mounted twice below the source is two inodes here. */
		.salt = S_ISDIR(st->st_mode) ? table_hash(o->seed, rel, strlen(rel)) : 0,
	};
	int r = 0;

	*ret = number_entry(o, k.dev, k.ino, k.salt);
	if (*ret)
		return 0;
	r = node_number(o, &k.number);
	if (r == 0)
		r = number_add(o, &k, ret);
	if (r == 0)
		redo_number(o, *ret);
	return r;
}

int host_number_set(struct ovl *o, uint64_t dev, uint64_t ino, uint64_t salt, store_ino number)
{
	const struct host_number new = {.dev = dev, .ino = ino, .salt = salt, .number = number};
	struct host_number *k = number_entry(o, dev, ino, salt);

	if (!k)
		return number_add(o, &new, &k);
	k->number = number;
	return 0;
}

store_ino host_number_known(struct ovl *o, uint64_t dev, uint64_t ino)
{
	const struct host_number *k = number_entry(o, dev, ino, 0);

	return k ? k->number : 0;
}

/* Is the place by which @n is known still the same host file? */
static bool place_holds(struct node *n)
{
	struct stat st;

	return n->src && n->rec.origin.rel && stat_rel(n->src, n->rec.origin.rel, &st) == 0 &&
	       st.st_dev == n->rec.origin.dev && st.st_ino == n->rec.origin.ino;
}

/* May @n, found under the number of the host file @st, be shown at @dir/@rel as well? */
static bool may_share(struct node *n, struct node *dir, const char *name, size_t len,
		      const struct stat *st)
{
	/* One that was removed here and is still open stays removed. */
	if (!same_identity(n, st) || (n->rec.nlink == 0 && !n->host_only))
		return false;
	if (!S_ISDIR(st->st_mode))
		return true;
	if (n->rec.parent == dir->ino && n->rec.name_len == len && n->rec.name &&
	    !memcmp(n->rec.name, name, len))
		return true;
	/* Moved on the host, or shown twice by a mount there. */
	return n->host_only && !place_holds(n);
}

static int any_name(void *arg, const char *name, size_t len, const struct rec_name *rn)
{
	(void)arg;
	(void)name;
	(void)len;
	(void)rn;
	return 1;
}

/* Does the store hold nothing under @ino? What an inode that ended left in sight (its record with no
 * links, extents, names that it hid) would be taken for the new one's. */
static int number_unused(struct ovl *o, store_ino ino, const struct stat *st)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	int r = store_view_inode(o->view, ino, &rec);

	if (r == -ENOENT && S_ISDIR(st->st_mode)) {
		r = store_view_names(o->view, ino, any_name, NULL);
		r = r == 0 ? -ENOENT : r;
	}
	if (r == -ENOENT)
		return 1;
	return r == -EBADMSG ? -EIO : r < 0 ? r : 0;
}

/* 1: @ino is free or names this very file; 0: it is, or was, another inode's. */
static int number_fits(struct ovl *o, store_ino ino, struct node *dir, const char *name, size_t len,
		       const struct stat *st)
{
	struct node *n = node_find(o, ino);
	int r = n ? 0 : number_unused(o, ino, st);

	if (r != 0)
		return r;
	r = node_get(o, ino, &n);
	if (r == -ESTALE)
		return 0;
	if (r < 0)
		return r;
	if (may_share(n, dir, name, len, st))
		return 1;
	node_reap(o, n);
	return 0;
}

int host_number_of(struct ovl *o, struct node *dir, const char *name, size_t len,
		   const struct stat *st, store_ino *ret)
{
	store_ino ino = hostsrc_ino(dir->src->h, st);
	cleanup_free char *rel = NULL;
	struct host_number *k = NULL;
	int r = ino ? number_fits(o, ino, dir, name, len, st) : 0;

	if (r != 0) {
		*ret = ino;
		return r < 0 ? r : 0;
	}
	r = host_join(dir->rec.origin.rel, name, len, &rel);
	if (r == 0)
		r = own_number(o, st, rel, &k);
	if (r == 0)
		r = number_fits(o, k->number, dir, name, len, st);
	if (r == 0) { /* the host gave the inode to another file since */
		r = node_number(o, &k->number);
		if (r == 0)
			redo_number(o, k);
	}
	if (r < 0)
		return r;
	*ret = k->number;
	return 0;
}

/* ---- host inodes ---- */

static void rec_from_stat(struct rec_inode *r, const struct stat *st)
{
	r->mode = st->st_mode;
	r->uid = st->st_uid;
	r->gid = st->st_gid;
	r->nlink = (uint32_t)st->st_nlink;
	r->rdev = st->st_rdev;
	r->size = (uint64_t)st->st_size;
	r->blocks = (uint64_t)st->st_blocks;
	r->atime = st->st_atim;
	r->mtime = st->st_mtim;
	r->ctime = r->btime = st->st_ctim;
	r->origin.dev = st->st_dev;
	r->origin.ino = st->st_ino;
	r->origin.size = (uint64_t)st->st_size;
	r->origin.mtime = st->st_mtim;
	r->origin.valid = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
}

/* The host file changed, or is seen for the first time with @n->checked 0. */
static void host_update(struct ovl *o, struct node *n, const struct stat *st)
{
	const struct rec_origin *og = &n->rec.origin;
	bool content = n->racy || og->size != (uint64_t)st->st_size ||
		       og->mtime.tv_sec != st->st_mtim.tv_sec ||
		       og->mtime.tv_nsec != st->st_mtim.tv_nsec;
	struct content_ref *old = NULL;

	atomic_store(&n->checked, io_now_ms());
	n->racy = hostsrc_racy(st);
	if (!content && n->rec.ctime.tv_sec == st->st_ctim.tv_sec &&
	    n->rec.ctime.tv_nsec == st->st_ctim.tv_nsec)
		return;
	if (content) {
		old = n->content; /* opened anew with the new identity when it is next read */
		n->content = NULL;
	}
	rec_from_stat(&n->rec, st);
	content_unref(old);
	notify_inode(o, n->ino);
}

static int set_host_place(struct ovl *o, struct node *n, struct node *dir, const char *name,
			  size_t len, char *rel)
{
	int r = node_set_place(n, dir->ino, name, len);

	if (r < 0)
		return r;
	free(n->rec.origin.rel);
	n->rec.origin.rel = rel;
	redo_host(o, n);
	if (n->host_parent != dir) {
		struct node *old = n->host_parent;

		node_pin(dir);
		n->host_parent = dir;
		if (old) {
			atomic_fetch_sub(&old->pins, 1);
			node_reap(o, old);
		}
	}
	return 0;
}

static int host_new(struct ovl *o, store_ino ino, struct node *dir, const char *name, size_t len,
		    const struct stat *st, struct node **ret)
{
	cleanup_free char *rel = NULL, *root = strdup(dir->src->root);
	struct node *n;
	int r = root ? host_join(dir->rec.origin.rel, name, len, &rel) : -ENOMEM;

	if (r < 0)
		return r;
	r = node_new(o, ino, &n);
	if (r < 0)
		return r;
	n->host_only = true;
	n->src = dir->src;
	rec_from_stat(&n->rec, st);
	n->rec.origin.root = steal_ptr(&root);
	n->rec.origin.flags = dir->rec.origin.flags;
	n->racy = hostsrc_racy(st);
	atomic_store(&n->checked, io_now_ms());
	r = set_host_place(o, n, dir, name, len, rel);
	if (r < 0) {
		node_reap(o, n);
		return r;
	}
	rel = NULL;
	n->held = o->resumed && known_take(o, ino);
	*ret = n;
	return 0;
}

int host_node(struct ovl *o, struct node *dir, const char *name, size_t len, const struct stat *st,
	      struct node **ret)
{
	store_ino ino;
	struct node *n;
	int r = host_number_of(o, dir, name, len, st, &ino);

	if (r < 0)
		return r;
	n = node_find(o, ino);
	if (!n)
		return host_new(o, ino, dir, name, len, st, ret);
	if (n->host_only) {
		cleanup_free char *rel = NULL;

		r = host_join(dir->rec.origin.rel, name, len, &rel);
		if (r < 0)
			return r;
		if (strcmp(rel, n->rec.origin.rel) != 0 &&
		    (st->st_nlink == 1 || S_ISDIR(st->st_mode) || !place_holds(n))) {
			r = set_host_place(o, n, dir, name, len, rel);
			if (r < 0)
				return r;
			rel = NULL;
		}
		host_update(o, n, st);
	}
	*ret = n;
	return 0;
}

bool host_stale(struct ovl *o, const struct node *n)
{
	return n->host_only &&
	       io_now_ms() - atomic_load(&n->checked) >= host_ttl(o, n->rec.origin.flags);
}

int host_recheck(struct ovl *o, struct node *n)
{
	const struct rec_origin *og = &n->rec.origin;
	struct stat st;
	int r;

	if (!n->src || !host_stale(o, n))
		return 0;
	r = stat_rel(n->src, og->rel, &st);
	if (r == -ENOENT || (r == 0 && (st.st_dev != og->dev || st.st_ino != og->ino))) {
		const struct hostsrc_id id = {.dev = og->dev, .ino = og->ino};

		/* Who has it open sees it on. */
		r = S_ISREG(n->rec.mode) ? hostsrc_stat_held(n->src->h, og->rel, &id, &st)
					 : -ESTALE;
		if (r < 0 && r != -ENOMEM && r != -EMFILE && r != -ENFILE) {
			host_lost(o, n);
			r = -ESTALE;
		}
	}
	if (r == 0)
		host_update(o, n, &st);
	return r;
}

/* ---- becoming a record ---- */

static int load_target(struct node *n)
{
	char target[4096];
	int r;

	if (!S_ISLNK(n->rec.mode) || n->rec.target)
		return 0;
	r = hostsrc_readlink(n->src->h, n->rec.origin.rel, target);
	if (r < 0)
		return r;
	n->rec.target = strdup(target);
	return n->rec.target ? 0 : -ENOMEM;
}

/* As it was when the tree last looked. */
static void stat_from_rec(const struct rec_inode *r, struct stat *ret)
{
	*ret = (struct stat){.st_mode = r->mode,
			     .st_dev = r->origin.dev,
			     .st_ino = r->origin.ino,
			     .st_size = (off_t)r->size,
			     .st_mtim = r->mtime,
			     .st_ctim = r->ctime};
}

static int materialise_one(struct ovl *o, struct node *n)
{
	struct found before = {.covers = true, .host = true};
	cleanup_name struct name *e = NULL;
	cleanup_place struct place_plan plan = {0};
	struct node *dir = n->host_parent;
	int r = n->src ? load_target(n) : -EIO;

	/* Another file has the name: that one must not come to be hidden by what this one was. */
	if (r == 0 && S_ISREG(n->rec.mode) && !place_holds(n)) {
		host_lost(o, n);
		r = -ESTALE;
	}
	if (r == 0)
		r = xattr_load_host(o, n);
	if (r == 0)
		r = name_prepare(o, dir, n->rec.name, n->rec.name_len, &e);
	if (r == 0 && n->rec.nlink > 1 && !S_ISDIR(n->rec.mode))
		r = place_spread(n, &plan);
	if (r < 0)
		return r;
	n->host_only = false;
	if (n->content)
		content_follow(n->content->c);
	n->born = o->layer;
	stat_from_rec(&n->rec, &before.st);
	name_set(o, &e, &before, n->ino, n->rec.mode & S_IFMT);
	place_do(o, n, &plan);
	node_dirty(o, n);
	n->host_parent = NULL;
	atomic_fetch_sub(&dir->pins, 1);
	node_dirty(o, dir);
	return 0;
}

int host_materialise(struct ovl *o, struct node *n)
{
	int r;

	/* From the top down, so that a failure leaves nothing recorded that cannot be found. */
	while (n->host_only) {
		struct node *top = n;

		while (top->host_parent && top->host_parent->host_only)
			top = top->host_parent;
		r = materialise_one(o, top);
		if (r < 0)
			return r;
	}
	return 0;
}
