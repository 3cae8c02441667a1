/* The files of the host that are known: by number, by what they are, and with the descriptors that are held for them. */
#include "fs/through/through_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- what a file is ---- */

bool ident_same(const struct ident *a, const struct ident *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->mnt == b->mnt && a->type == b->type &&
	       a->btime.tv_sec == b->btime.tv_sec && a->btime.tv_nsec == b->btime.tv_nsec;
}

static uint64_t ident_hash(const struct ident *id)
{
	const uint64_t key[] = {id->dev, id->ino, id->mnt};

	return table_hash(0, key, sizeof(key));
}

static struct timespec time_of(const struct statx_timestamp *t)
{
	return (struct timespec){.tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec};
}

int ident_of(int fd, struct ident *ret, struct stat *ret_st)
{
	struct statx x;

	if (statx(fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		  STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID, &x) < 0)
		return ret_nerrno();
	*ret = (struct ident){
		.dev = makedev(x.stx_dev_major, x.stx_dev_minor),
		.ino = x.stx_ino,
		.mnt = x.stx_mask & STATX_MNT_ID ? x.stx_mnt_id : 0,
		.type = x.stx_mode & S_IFMT,
	};
	if (x.stx_mask & STATX_BTIME)
		ret->btime = time_of(&x.stx_btime);
	*ret_st = (struct stat){
		.st_dev = ret->dev,
		.st_ino = x.stx_ino,
		.st_mode = x.stx_mode,
		.st_nlink = x.stx_nlink,
		.st_uid = x.stx_uid,
		.st_gid = x.stx_gid,
		.st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor),
		.st_size = (off_t)x.stx_size,
		.st_blocks = (blkcnt_t)x.stx_blocks,
		.st_blksize = (blksize_t)x.stx_blksize,
		.st_atim = time_of(&x.stx_atime),
		.st_mtim = time_of(&x.stx_mtime),
		.st_ctim = time_of(&x.stx_ctime),
	};
	return 0;
}

/* ---- tables (t->lock) ---- */

struct tnode *tnode_find(struct through *t, uint64_t ino)
{
	struct table_link *l = table_find(&t->by_ino, table_hash_u64(ino));

	for (; l; l = table_next(l)) {
		struct tnode *n =
			(struct tnode *)(void *)((char *)l - offsetof(struct tnode, by_ino));

		if (n->ino == ino)
			return n;
	}
	return NULL;
}

static struct tnode *find_ident(struct through *t, const struct ident *id)
{
	struct table_link *l = table_find(&t->by_id, ident_hash(id));

	for (; l; l = table_next(l)) {
		struct tnode *n =
			(struct tnode *)(void *)((char *)l - offsetof(struct tnode, by_id));

		if (n->id.dev == id->dev && n->id.ino == id->ino && n->id.mnt == id->mnt)
			return n;
	}
	return NULL;
}

static void lru_del(struct through *t, struct tnode *n)
{
	if (!n->in_lru)
		return;
	*(n->lru_prev ? &n->lru_prev->lru_next : &t->lru_first) = n->lru_next;
	*(n->lru_next ? &n->lru_next->lru_prev : &t->lru_last) = n->lru_prev;
	n->in_lru = false;
}

static void lru_last(struct through *t, struct tnode *n)
{
	lru_del(t, n);
	if (n->kept_fd || n->fd < 0)
		return;
	n->lru_prev = t->lru_last;
	n->lru_next = NULL;
	*(t->lru_last ? &t->lru_last->lru_next : &t->lru_first) = n;
	t->lru_last = n;
	n->in_lru = true;
}

/* Give back what is held over @most, of those that nobody uses; with @gone also those that are not found again. */
static void shrink_some(struct through *t, size_t most, bool gone)
{
	struct tnode *n, *next;

	for (n = t->lru_first; n && t->nfds > most; n = next) {
		next = n->lru_next;
		if (n->users || n->handles || (n->gone && !gone))
			continue;
		lru_del(t, n);
		(void)close(n->fd);
		n->fd = -1;
		t->nfds--;
	}
}

static void shrink(struct through *t, size_t most)
{
	shrink_some(t, most, false);
	/* Something holds them without having them open, and could hold any number. */
	shrink_some(t, most, true);
}

static void forget_ident(struct through *t, struct tnode *n)
{
	if (n->named)
		table_del(&t->by_id, &n->by_id);
	n->named = false;
}

void tnode_drop(struct through *t, struct tnode *n)
{
	while (n && !n->nlookup && !n->refs && n != t->root) {
		struct tnode *up = n->parent;

		forget_ident(t, n);
		table_del(&t->by_ino, &n->by_ino);
		lru_del(t, n);
		if (n->fd >= 0) {
			(void)close(n->fd);
			t->nfds--;
		}
		free(n->name);
		free(n);
		if (up)
			up->refs--;
		n = up;
	}
}

/* Take @fd for @n. What is held by a name that is gone does not show where it is now. */
static void give_fd(struct through *t, struct tnode *n, int fd)
{
	if (n->fd >= 0 && n->gone && n->users < 2 && !n->kept_fd) {
		(void)close(n->fd);
		n->fd = fd;
		return;
	}
	if (n->fd >= 0) {
		(void)close(fd);
		return;
	}
	n->fd = fd;
	t->nfds++;
	lru_last(t, n);
	if (t->nfds > t->fds_max)
		shrink(t, t->fds_max);
}

void tnode_relieve(struct through *t)
{
	through_lock(t);
	shrink(t, t->nfds / 2);
	through_unlock(t);
}

/* ---- places (t->lock) ---- */

int tnode_path(struct tnode *n, struct buf *out)
{
	size_t len = 0, depth = 0;
	cleanup_free char *path = NULL;
	char *p;

	for (struct tnode *m = n; m->parent; m = m->parent) {
		if (++depth > DEPTH_MAX)
			return -ELOOP;
		len += 1 + m->len;
	}
	if (!len)
		return buf_puts(out, "/");
	path = malloc(len);
	if (!path)
		return -ENOMEM;
	p = path + len;
	for (struct tnode *m = n; m->parent; m = m->parent) {
		p -= m->len;
		memcpy(p, m->name, m->len);
		*--p = '/';
	}
	return buf_put(out, path, len);
}

/* Is @n above @dir, or is it that? */
static bool is_above(const struct tnode *n, const struct tnode *dir)
{
	for (size_t depth = 0; dir; dir = dir->parent)
		if (dir == n || ++depth > DEPTH_MAX)
			return true;
	return false;
}

/* Takes *@name. */
static int set_place(struct through *t, struct tnode *n, struct tnode *dir, char **name, size_t len)
{
	struct tnode *old = n->parent;

	if (old == dir && n->len == len && !memcmp(n->name, *name, len))
		return 0;
	/* What is known of @dir is older than this: it lies elsewhere by now. */
	if (n->id.type == S_IFDIR && is_above(n, dir)) {
		dir->checked = 0;
		return -ESTALE;
	}
	free(n->name);
	n->name = steal_ptr(name);
	n->len = len;
	n->parent = dir;
	dir->refs++;
	if (old) {
		old->refs--;
		tnode_drop(t, old);
	}
	return 0;
}

/* ---- use ---- */

static void pin(struct tnode *n)
{
	n->refs++;
	n->users++;
}

static void unpin(struct through *t, struct tnode *n)
{
	n->users--;
	n->refs--;
	tnode_drop(t, n);
}

void use_end(struct use *u)
{
	if (!u->n)
		return;
	through_lock(u->t);
	unpin(u->t, u->n);
	through_unlock(u->t);
	u->n = NULL;
}

struct chain {
	struct tnode **v;
	size_t n, cap;
};

/* t->lock: @n and those above it without descriptors, up to one that has one; all pinned. */
static int chain_take(struct chain *c, struct tnode *n)
{
	for (;; n = n->parent) {
		if (c->n == c->cap) {
			size_t cap = c->cap ? c->cap * 2 : 16;
			struct tnode **v = reallocarray(c->v, cap, sizeof(*v));

			if (!v)
				return -ENOMEM;
			c->v = v;
			c->cap = cap;
		}
		pin(n);
		c->v[c->n++] = n;
		if (n->fd >= 0)
			return 0;
		if (!n->parent || n->gone || c->n > DEPTH_MAX)
			return -ESTALE;
	}
}

/* @n anew, by its name in @dir. */
static int reopen(struct through *t, const struct tnode *dir, struct tnode *n)
{
	char name[STORE_NAME_MAX + 1];
	struct ident id;
	struct stat st;
	int fd, dirfd, r;

	through_lock(t);
	memcpy(name, n->name, n->len);
	name[n->len] = 0;
	dirfd = dir->fd;
	through_unlock(t);
	r = place_open(t, dirfd, &dir->id, name, &id, &st, &fd);
	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? -ESTALE : r;
	if (!ident_same(&id, &n->id)) {
		(void)close(fd);
		return -ESTALE;
	}
	through_lock(t);
	give_fd(t, n, fd);
	through_unlock(t);
	return 0;
}

/* Opens @n, which is pinned, unless it is open. */
static int open_node(struct through *t, struct tnode *n)
{
	struct chain c = {0};
	int r;

	through_lock(t);
	if (n->fd >= 0 || n->made_up) {
		lru_last(t, n);
		through_unlock(t);
		return 0;
	}
	r = chain_take(&c, n);
	through_unlock(t);
	for (size_t i = c.n; r == 0 && i-- > 1;)
		r = reopen(t, c.v[i], c.v[i - 1]);
	through_lock(t);
	while (c.n)
		unpin(t, c.v[--c.n]);
	through_unlock(t);
	free(c.v);
	return r;
}

/* @n, which somebody has pinned, in use. */
static int use_open(struct through *t, struct tnode *n, struct use *ret)
{
	int r = open_node(t, n);

	if (r < 0)
		return r;
	through_lock(t);
	*ret = (struct use){.t = t, .n = n, .fd = n->fd, .pol = n->pol};
	through_unlock(t);
	return 0;
}

int tnode_use(struct through *t, uint64_t ino, enum fresh fresh, struct use *ret)
{
	struct tnode *n;
	int r;

	*ret = (struct use){.t = t, .fd = -1};
	through_lock(t);
	n = tnode_find(t, ino);
	if (n)
		pin(n);
	through_unlock(t);
	if (!n)
		return -ESTALE;
	r = use_open(t, n, ret);
	if (r == 0)
		r = n->made_up ? (fresh == FRESH_NOW ? -EACCES : 0)
			       : place_check(t, n, ret->fd, fresh, &ret->pol);
	if (r < 0) {
		ret->t = t;
		ret->n = n;
		use_end(ret);
	}
	return r;
}

int tnode_use_dir(struct through *t, uint64_t ino, enum fresh fresh, struct use *ret)
{
	int r = tnode_use(t, ino, fresh, ret);

	if (r == 0 && ret->n->id.type != S_IFDIR) {
		use_end(ret);
		r = -ENOTDIR;
	}
	return r;
}

int tnode_use_parent(struct through *t, struct tnode *n, char ret_name[static STORE_NAME_MAX + 1],
		     struct use *ret)
{
	struct tnode *up;
	int r;

	*ret = (struct use){.t = t, .fd = -1};
	through_lock(t);
	up = n->parent;
	if (up) {
		pin(up);
		memcpy(ret_name, n->name, n->len);
		ret_name[n->len] = 0;
	}
	through_unlock(t);
	if (!up)
		return -ESTALE;
	r = use_open(t, up, ret);
	if (r < 0) {
		ret->n = up;
		use_end(ret);
	}
	return r;
}

/* ---- new ones ---- */

static struct tnode *node_new(const struct ident *id)
{
	struct tnode *n = calloc(1, sizeof(*n));

	if (n) {
		n->id = *id;
		n->fd = -1;
		n->pol = -1;
	}
	return n;
}

/* t->lock. Takes @n on success. */
static int enter(struct through *t, struct tnode *n, bool by_id)
{
	n->ino = t->next_ino;
	if (table_add(&t->by_ino, &n->by_ino, table_hash_u64(n->ino)) < 0)
		return -ENOMEM;
	t->next_ino++;
	if (by_id && table_add(&t->by_id, &n->by_id, ident_hash(&n->id)) < 0) {
		table_del(&t->by_ino, &n->by_ino);
		return -ENOMEM;
	}
	n->named = by_id;
	return 0;
}

/* t->lock. The known node of @id, or *@fresh, which is taken then. */
static int take_ident(struct through *t, const struct ident *id, struct tnode **fresh,
		      struct tnode **ret)
{
	struct tnode *n = find_ident(t, id);
	int r;

	if (n && !ident_same(&n->id, id)) {
		/* The host gave its number to another file. */
		forget_ident(t, n);
		n->gone = true;
		n = NULL;
	}
	if (!n) {
		n = *fresh;
		r = enter(t, n, true);
		if (r < 0)
			return r;
		*fresh = NULL;
	}
	*ret = n;
	return 0;
}

int tnode_found(struct through *t, const struct use *dir, const char *name, size_t len, int fd,
		const struct ident *id, const struct stat *st, struct use *ret)
{
	struct tnode *fresh = node_new(id), *n;
	char *copy = strndup(name, len);
	bool several = !S_ISDIR(st->st_mode) && st->st_nlink > 1;
	int r = fresh && copy ? 0 : -ENOMEM;

	*ret = (struct use){.t = t, .fd = -1};
	if (fresh)
		fresh->made_up = fd < 0;
	through_lock(t);
	if (r == 0)
		r = take_ident(t, id, &fresh, &n);
	if (r == 0) {
		pin(n);
		r = set_place(t, n, dir->n, &copy, len);
		if (r < 0)
			unpin(t, n);
	}
	if (r == 0) {
		n->pol = judge_found(t->policy, several ? n->pol : -1,
				     policy_child(t->policy, dir->n->pol, name, len), several);
		n->several = several;
		/* No later than the directory: where that is now was not asked. */
		n->checked = dir->n->parent ? dir->n->checked : io_now_ms();
		if (fd >= 0)
			give_fd(t, n, fd);
		n->gone = false;
		fd = -1;
		*ret = (struct use){.t = t, .n = n, .fd = n->fd, .pol = n->pol};
	}
	through_unlock(t);
	if (fd >= 0)
		(void)close(fd);
	free(fresh);
	free(copy);
	return r;
}

int tnode_nameless(struct through *t, const struct use *dir, int fd, const struct ident *id,
		   struct use *ret)
{
	struct tnode *n = node_new(id), *old;
	char *copy = strdup("");
	int r = n && copy ? 0 : -ENOMEM;

	*ret = (struct use){.t = t, .fd = -1};
	through_lock(t);
	/* It was just made: who is known by its number has ended. */
	if (r == 0 && (old = find_ident(t, id))) {
		forget_ident(t, old);
		old->gone = true;
	}
	if (r == 0)
		r = enter(t, n, true);
	if (r == 0) {
		pin(n);
		n->name = steal_ptr(&copy);
		n->parent = dir->n;
		dir->n->refs++;
		n->pol = policy_child(t->policy, dir->n->pol, "", 0);
		n->gone = true;
		n->checked = io_now_ms();
		give_fd(t, n, fd);
		fd = -1;
		*ret = (struct use){.t = t, .n = n, .fd = n->fd, .pol = n->pol};
		n = NULL;
	}
	through_unlock(t);
	if (fd >= 0)
		(void)close(fd);
	free(n);
	free(copy);
	return r;
}

void tnode_moved(struct through *t, const struct ident *id, const struct use *dir, const char *name,
		 size_t len, bool several)
{
	char *copy = strndup(name, len);
	struct tnode *n;

	through_lock(t);
	n = find_ident(t, id);
	if (n && ident_same(&n->id, id)) {
		n->pol = judge_found(t->policy, several ? n->pol : -1,
				     policy_child(t->policy, dir->n->pol, name, len), several);
		n->several = several;
		/* Without memory, or below itself by what was known, its place is looked for when it is next used. */
		if (!copy || set_place(t, n, dir->n, &copy, len) < 0)
			n->checked = 0;
	}
	through_unlock(t);
	free(copy);
}

void tnode_entry(const struct use *u, const struct stat *st, const struct timespec *btime,
		 struct ovl_entry *ret)
{
	*ret = (struct ovl_entry){.ino = u->n->ino, .valid_ms = THROUGH_TTL_MS};
	attr_show(u->t, u->pol, st, btime, &ret->attr);
	through_lock(u->t);
	u->n->nlookup++;
	through_unlock(u->t);
}

void tnode_forget(struct through *t, uint64_t ino, uint64_t k)
{
	struct tnode *n;

	through_lock(t);
	n = tnode_find(t, ino);
	if (n) {
		n->nlookup = n->nlookup > k ? n->nlookup - k : 0;
		tnode_drop(t, n);
	}
	through_unlock(t);
}

/* ---- first and last ---- */

int tnode_root(struct through *t, const char *root)
{
	cleanup_fd int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct ident id;
	struct stat st;
	struct tnode *n;
	int r = fd < 0 ? ret_nerrno() : ident_of(fd, &id, &st);

	if (r < 0)
		return r;
	n = node_new(&id);
	if (!n)
		return -ENOMEM;
	t->next_ino = STORE_ROOT_INO;
	r = enter(t, n, true);
	if (r < 0) {
		free(n);
		return r;
	}
	n->kept_fd = true;
	n->pol = policy_root(t->policy);
	n->fd = steal_fd(&fd);
	n->nlookup = 1;
	t->nfds++;
	t->root = n;
	return 0;
}

void tnode_free_all(struct through *t)
{
	for (size_t slot = 0; slot < t->by_ino.nslots; slot++) {
		for (struct table_link *l = t->by_ino.slots[slot], *next; l; l = next) {
			struct tnode *n = (struct tnode *)(void *)((char *)l -
								   offsetof(struct tnode, by_ino));

			next = l->next;
			if (n->fd >= 0)
				(void)close(n->fd);
			free(n->name);
			free(n);
		}
	}
	table_release(&t->by_ino);
	table_release(&t->by_id);
}
