/* What an earlier import of the same directory has read. */
#include "fs/image/before.h"

#include <endian.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/core/ovl.h"
#include "fs/image/image_internal.h"

#define MAGIC   "rattan files 1\n"
#define MAX     (64u << 20) /* some 800,000 files; a larger tree is read each time */
#define SRC_MAX 4096
/* How much older than the beginning a file has to be: more than the step of any clock that files are stamped with, which is a second on
 * old ext file systems, and than a tick, by which the kernel's is behind. */
#define STEP_NS 1100000000LL

/* Numbers are big-endian. */
struct head {
	char magic[16];
	struct digest id; /* of the base */
	uint64_t dev, bytes;
	uint64_t src_len; /* the path follows, then entries */
};
struct item {
	uint64_t ino, size;
	uint64_t mtime, ctime;
	uint32_t mtime_ns, ctime_ns;
	uint32_t path_len; /* the path follows */
	uint32_t zero;
};

/* ---- the list under way ---- */

/* Local ones that stamp a file at its first change after it was written out, also through a mapping. */
static bool stamps(int fd)
{
	struct statfs f;

	if (fstatfs(fd, &f) < 0)
		return false;
	switch ((uint32_t)f.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

static struct timespec a_step_before(const struct timespec *t)
{
	long long ns = t->tv_sec * 1000000000LL + t->tv_nsec - STEP_NS;

	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

int listed_begin(struct listed *l, int fd, const char *src, const struct stat *st)
{
	struct head h = {
		.magic = MAGIC, .dev = htobe64(st->st_dev), .src_len = htobe64(strlen(src))};
	int r;

	*l = (struct listed){.dev = st->st_dev, .b = {.max = MAX}};
	if (strlen(src) > SRC_MAX || !stamps(fd) || clock_gettime(CLOCK_REALTIME, &l->since) < 0 ||
	    syncfs(fd) < 0)
		return 0;
	l->since = a_step_before(&l->since);
	r = buf_put(&l->b, &h, sizeof(h));
	if (r == 0)
		r = buf_put(&l->b, src, strlen(src));
	l->on = r == 0;
	return r;
}

static bool older(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static struct item item_of(const struct stat *st, size_t path_len)
{
	return (struct item){.ino = htobe64(st->st_ino),
			     .size = htobe64((uint64_t)st->st_size),
			     .mtime = htobe64((uint64_t)st->st_mtim.tv_sec),
			     .ctime = htobe64((uint64_t)st->st_ctim.tv_sec),
			     .mtime_ns = htobe32((uint32_t)st->st_mtim.tv_nsec),
			     .ctime_ns = htobe32((uint32_t)st->st_ctim.tv_nsec),
			     .path_len = htobe32((uint32_t)path_len)};
}

int listed_add(struct listed *l, const char *path, const struct stat *st)
{
	struct item i = item_of(st, strlen(path));
	int r;

	if (!l->on || st->st_dev != l->dev || st->st_size < BEFORE_MIN ||
	    !older(&st->st_ctim, &l->since))
		return 0;
	r = buf_put(&l->b, &i, sizeof(i));
	if (r == 0)
		r = buf_put(&l->b, path, strlen(path));
	if (r == -E2BIG) { /* the next import reads everything */
		listed_release(l);
		return 0;
	}
	return r;
}

void listed_seal(struct listed *l, const struct digest *id, uint64_t bytes)
{
	struct head *h = (struct head *)(void *)l->b.data;

	if (!l->on)
		return;
	h->id = *id;
	h->bytes = htobe64(bytes);
}

void listed_release(struct listed *l)
{
	buf_release(&l->b);
	*l = (struct listed){0};
}

/* ---- an earlier one ---- */

struct before {
	struct buf b;
	size_t at; /* of the next entry */
	dev_t dev;
	uint64_t bytes;
	int pin; /* of the tree's layer */
	struct ovl *tree;
	struct {
		char *path;
		size_t len;
		store_ino ino; /* one reference, but for the root */
	} dir;
};

struct found {
	const char *src;
	dev_t dev;
	struct store *s;
	struct {
		char name[65];
		store_layer layer;
	} * v; /* what is known of bases */
	size_t n;
};

/* Collected first: the callback may not call the store. */
static int see_ref(void *arg, const char *name, store_layer layer)
{
	struct found *f = arg;
	void *v;

	if (strncmp(name, IMAGE_REF, strlen(IMAGE_REF)) != 0 || strlen(name) >= 65)
		return 0;
	v = reallocarray(f->v, f->n + 1, sizeof(*f->v));
	if (!v)
		return -ENOMEM;
	f->v = v;
	(void)snprintf(f->v[f->n].name, sizeof(f->v->name), "%s", name + strlen(IMAGE_REF));
	f->v[f->n++].layer = layer;
	return 0;
}

/* Is it of our directory? */
static bool ours(const struct found *f, const struct buf *b, struct head *ret)
{
	size_t n = strlen(f->src);

	if (b->len < sizeof(*ret) + n)
		return false;
	memcpy(ret, b->data, sizeof(*ret));
	return !memcmp(ret->magic, MAGIC, sizeof(MAGIC)) && be64toh(ret->dev) == f->dev &&
	       be64toh(ret->src_len) == n && !memcmp(b->data + sizeof(*ret), f->src, n);
}

/* The tree that the list is of: the name may mean another meanwhile. 0: no. */
static int open_tree(const struct found *f, const char *name, const struct digest *id,
		     struct before *b)
{
	struct ovl_opts oo = {.store = f->s, .flags = OVL_RDONLY};
	struct store_commit c;
	char ref[80];
	bool same;
	int r;

	(void)snprintf(ref, sizeof(ref), "base/%s", name);
	r = store_ref_get(f->s, ref, &oo.layer);
	if (r == 0)
		r = store_layer_pin(f->s, oo.layer, &b->pin);
	if (r == 0)
		r = store_commit_of_layer(f->s, oo.layer, &c);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	same = !memcmp(&c.id, id, sizeof(*id));
	store_commit_release(&c);
	if (!same)
		return 0;
	r = ovl_open(&oo, &b->tree);
	return r < 0 ? r : 1;
}

static int open_one(const struct found *f, const char *name, store_layer layer, struct before **ret)
{
	struct before *b = calloc(1, sizeof(*b));
	struct head h;
	int r;

	if (!b)
		return -ENOMEM;
	b->pin = -1;
	r = image_file_read(f->s, layer, IMAGE_FILES, sizeof(h) + SRC_MAX, &b->b);
	if (r == 0 && ours(f, &b->b, &h)) {
		buf_clear(&b->b);
		r = image_file_read(f->s, layer, IMAGE_FILES, MAX, &b->b);
		if (r == 0)
			r = open_tree(f, name, &h.id, b);
		b->at = sizeof(h) + strlen(f->src);
		b->dev = f->dev;
		b->bytes = be64toh(h.bytes);
	}
	if (r <= 0) {
		before_close(b);
		/* None, or one that cannot be read: then the files are. */
		return r == -ENOMEM ? r : 0;
	}
	*ret = b;
	return 1;
}

int before_open(struct store *s, const char *src, dev_t dev, struct before **ret)
{
	struct found f = {.src = src, .dev = dev, .s = s};
	int r = store_refs(s, see_ref, &f), k = 0;

	*ret = NULL;
	for (size_t i = 0; i < f.n && k == 0 && r == 0; i++) {
		size_t best = i;

		for (size_t j = i + 1; j < f.n; j++)
			if (f.v[j].layer > f.v[best].layer)
				best = j;
		k = open_one(&f, f.v[best].name, f.v[best].layer, ret);
		f.v[best] = f.v[i];
	}
	free(f.v);
	return r < 0 ? r : k < 0 ? k : 0;
}

/* As the walk goes: what is in a directory stands behind its name, and before what sorts behind that. */
static int compare(const char *a, size_t an, const char *b, size_t bn)
{
	for (size_t i = 0; i < an && i < bn; i++)
		if (a[i] != b[i])
			return a[i] == '/'                                 ? -1
			       : b[i] == '/'                               ? 1
			       : (unsigned char)a[i] < (unsigned char)b[i] ? -1
									   : 1;
	return an < bn ? -1 : an > bn;
}

/* The entry of @path, or NULL; those before it are passed over. */
static const struct item *entry_of(struct before *b, const char *path, struct item *ret)
{
	size_t n = strlen(path);

	while (b->b.len - b->at >= sizeof(*ret)) {
		size_t len;
		int k;

		memcpy(ret, b->b.data + b->at, sizeof(*ret));
		len = be32toh(ret->path_len);
		if (len > b->b.len - b->at - sizeof(*ret))
			return NULL;
		k = compare((const char *)b->b.data + b->at + sizeof(*ret), len, path, n);
		if (k > 0)
			return NULL;
		b->at += sizeof(*ret) + len;
		if (k == 0)
			return ret;
	}
	return NULL;
}

static void forget_dir(struct before *b)
{
	if (b->dir.ino && b->dir.ino != STORE_ROOT_INO)
		ovl_forget(b->tree, b->dir.ino, 1);
	free(b->dir.path);
	b->dir.path = NULL;
	b->dir.ino = 0;
}

/* The directory of the first @n bytes of @path, 0 where there is none; files come by directory. */
static store_ino dir_of(struct before *b, const char *path, size_t n)
{
	struct ovl_entry e;

	if (!n)
		return STORE_ROOT_INO;
	if (b->dir.ino && b->dir.len == n && !memcmp(b->dir.path, path, n))
		return b->dir.ino;
	forget_dir(b);
	if (asprintf(&b->dir.path, "/%.*s", (int)n, path) < 0) {
		b->dir.path = NULL;
		return 0;
	}
	if (ovl_walk(b->tree, b->dir.path, &e) < 0)
		return 0;
	memmove(b->dir.path, b->dir.path + 1, n + 1);
	b->dir.len = n;
	b->dir.ino = e.ino;
	return e.ino;
}

bool before_find(struct before *b, const char *path, const struct stat *st, store_ino *ret_ino)
{
	const char *slash = strrchr(path, '/');
	struct item i, is = item_of(st, strlen(path));
	struct ovl_entry e;
	store_ino dir;

	if (st->st_dev != b->dev || st->st_size < BEFORE_MIN || !entry_of(b, path, &i) ||
	    memcmp(&i, &is, sizeof(i)) != 0)
		return false;
	dir = dir_of(b, path, slash ? (size_t)(slash - path) : 0);
	if (!dir || ovl_lookup(b->tree, dir, slash ? slash + 1 : path, &e) < 0 || !e.ino)
		return false;
	if (S_ISREG(e.attr.st.st_mode) && e.attr.st.st_size == st->st_size) {
		*ret_ino = e.ino;
		return true;
	}
	ovl_forget(b->tree, e.ino, 1);
	return false;
}

struct ovl *before_tree(struct before *b)
{
	return b->tree;
}

uint64_t before_bytes(const struct before *b)
{
	return b->bytes;
}

void before_close(struct before *b)
{
	if (!b)
		return;
	if (b->tree) {
		forget_dir(b);
		(void)ovl_close(b->tree);
	}
	cleanup_fdp(&b->pin);
	buf_release(&b->b);
	free(b);
}
