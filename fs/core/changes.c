/* What changed since a token: a bounded log in which a place stands once, at its last change. */
#include <assert.h>
#include <stdlib.h>

#include "fs/core/ovl_internal.h"

#define LOG_MAX 65536
#define PATHS_MAX   \
	((size_t)16 \
	 << 20) /* bytes of all paths that are told at once; they are made with all else held off */
#define POOL_BLOCK (256u << 10)

static const size_t pool_sizes[] = {96, 128, 192, 352};
static_assert(sizeof(struct change) + STORE_NAME_MAX + 1 <= 352,
	      "the largest holds the longest name");
static_assert(ARRAY_SIZE(pool_sizes) == ARRAY_SIZE(((struct change_log *)0)->pools), "one each");

static unsigned pool_of(size_t len)
{
	unsigned i = 0;

	while (pool_sizes[i] < sizeof(struct change) + len + 1)
		i++;
	return i;
}

static int pool_grow(struct change_pool *p)
{
	void *b = malloc(POOL_BLOCK);

	if (!b)
		return -ENOMEM;
	memcpy(b, &p->blocks, sizeof(void *));
	p->blocks = b;
	p->at = (uint8_t *)b + 64;
	p->left = POOL_BLOCK - 64;
	return 0;
}

/* Zeroed; NULL: no memory. */
static struct change *change_new(struct change_log *g, size_t len)
{
	unsigned i = pool_of(len);
	struct change_pool *p = &g->pools[i];
	void *c = p->free, *next;

	if (c) {
		memcpy(&next, c, sizeof(next));
		p->free = next;
	} else {
		if (p->left < pool_sizes[i] && pool_grow(p) < 0)
			return NULL;
		c = p->at;
		p->at += pool_sizes[i];
		p->left -= pool_sizes[i];
	}
	return memset(c, 0, pool_sizes[i]);
}

static void change_free(struct change_log *g, struct change *c)
{
	struct change_pool *p = &g->pools[pool_of(c->len)];

	memcpy(c, &p->free, sizeof(void *));
	p->free = c;
}

int changes_init(struct ovl *o)
{
	pthread_mutex_init(&o->log.lock, NULL);
	return 0;
}

void changes_release(struct ovl *o)
{
	for (size_t i = 0; i < ARRAY_SIZE(o->log.pools); i++) {
		for (void *b = o->log.pools[i].blocks, *next; b; b = next) {
			memcpy(&next, b, sizeof(void *));
			free(b);
		}
	}
	table_release(&o->log.hash);
	pthread_mutex_destroy(&o->log.lock);
}

static void log_unlink(struct change_log *g, struct change *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		g->first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		g->last = c->prev;
}

static void log_append(struct change_log *g, struct change *c)
{
	c->next = NULL;
	c->prev = g->last;
	if (c->prev)
		c->prev->next = c;
	else
		g->first = c;
	g->last = c;
}

static struct change *log_find(struct change_log *g, uint64_t hash, store_ino parent, store_ino ino,
			       const char *name, size_t len)
{
	struct table_link *l = table_find(&g->hash, hash);

	for (; l; l = table_next(l)) {
		struct change *c = (struct change *)l;

		if (c->parent == parent && c->ino == ino && c->len == len &&
		    !memcmp(c->name, name, len))
			return c;
	}
	return NULL;
}

static void log_put(struct ovl *o, store_ino parent, store_ino ino, const char *name, size_t len)
{
	struct change_log *g = &o->log;
	uint64_t hash = table_hash(o->seed ^ table_hash_u64(parent ^ (ino << 1)), name, len);
	struct change *c;

	pthread_mutex_lock(&g->lock);
	c = log_find(g, hash, parent, ino, name, len);
	if (c) {
		log_unlink(g, c);
	} else {
		c = change_new(g, len);
		if (c) {
			c->parent = parent;
			c->ino = ino;
			c->len = len;
			memcpy(c->name, name, len);
			if (table_add(&g->hash, &c->link, hash) < 0) {
				change_free(g, c);
				c = NULL;
			}
		}
		if (c)
			g->n++;
	}
	/* Counted under the lock, so that a reader of the log has all changes up to its token. */
	uint64_t seq = atomic_fetch_add(&o->changes, 1) + 1;

	if (c) {
		c->seq = seq;
		log_append(g, c);
	} else {
		g->floor = seq; /* it cannot be remembered */
	}
	if (g->n > LOG_MAX) {
		struct change *old = g->first;

		g->floor = old->seq;
		log_unlink(g, old);
		table_del(&g->hash, &old->link);
		change_free(g, old);
		g->n--;
	}
	pthread_mutex_unlock(&g->lock);
}

void change_name(struct ovl *o, store_ino parent, const char *name, size_t len)
{
	log_put(o, parent, 0, name, len);
}

void change_inode(struct ovl *o, store_ino ino)
{
	log_put(o, 0, ino, "", 0);
}

struct changed_path {
	char *path;
	char what;
};
struct changed {
	struct changed_path *v;
	size_t n;
};

static int changed_cmp(const void *a, const void *b)
{
	const struct changed_path *x = a, *y = b;
	int c = strcmp(x->path, y->path);

	return c ? c : (x->what > y->what) - (x->what < y->what);
}

static void changed_release(struct changed *ch)
{
	for (size_t i = 0; i < ch->n; i++)
		free(ch->v[i].path);
	free(ch->v);
}

/* EX. What stands at the logged place now; -ESTALE: its directory is gone too. */
static int changed_resolve(struct ovl *o, const struct change *c, struct changed_path *ret)
{
	cleanup_buf struct buf b = {0};
	struct node *dir;
	struct found f;
	size_t len;
	int r;

	ret->what = 'c';
	if (!c->parent) {
		r = path_of(o, c->ino, &b);
		return r < 0 ? r : buf_steal(&b, &ret->path, &len);
	}
	r = node_get_dir(o, c->parent, true, &dir);
	if (r == 0)
		r = name_lookup(o, dir, c->name, c->len, true, &f);
	if (r == 0)
		r = path_of(o, c->parent, &b);
	if (r < 0)
		return r;
	if (!f.ino && !f.host)
		ret->what = 'd';
	if (b.len > 1)
		r = buf_put(&b, "/", 1);
	if (r == 0)
		r = buf_put(&b, c->name, c->len);
	return r < 0 ? r : buf_steal(&b, &ret->path, &len);
}

/* Changing operations log while they hold o->lock, or under ATTR: EX keeps them out. */
static int changed_collect(struct ovl *o, uint64_t since, struct changed *ch)
{
	size_t n = 0, bytes = 0;

	for (struct change *c = o->log.last; c && c->seq > since; c = c->prev)
		n++;
	ch->v = calloc(n ? n : 1, sizeof(*ch->v));
	if (!ch->v)
		return -ENOMEM;
	for (struct change *c = o->log.last; c && c->seq > since; c = c->prev) {
		int r = changed_resolve(o, c, &ch->v[ch->n]);

		if (r == -ENOMEM)
			return r;
		if (r < 0)
			continue;
		bytes += strlen(ch->v[ch->n++].path);
		if (bytes > PATHS_MAX)
			return -ESTALE;
	}
	return 0;
}

int ovl_changes(struct ovl *o, uint64_t since, int (*fn)(void *arg, const char *path, char what),
		void *arg)
{
	struct changed ch = {0};
	int r;

	lock_excl(o);
	r = since < o->log.floor ? -ESTALE : changed_collect(o, since, &ch);
	unlock(o);
	if (r == 0)
		qsort(ch.v, ch.n, sizeof(*ch.v), changed_cmp);
	for (size_t i = 0; r == 0 && i < ch.n; i++) {
		if (i == 0 || strcmp(ch.v[i - 1].path, ch.v[i].path) != 0)
			r = fn(arg, ch.v[i].path, ch.v[i].what);
	}
	changed_release(&ch);
	return r;
}
