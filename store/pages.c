#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store/pages_internal.h"

#define MAGIC    0xBEEFC0DEu
#define VERSION  1
#define PAGE_MIN 512
#define PAGE_MAX 65536

struct disk_meta {
	struct page_head head;
	uint32_t magic, version;
	uint64_t address, mapsize;
	struct disk_db dbs[2];
	uint64_t last, txn;
};

int pages_read(struct pages *p, void *buf, size_t n, uint64_t at)
{
	uint8_t *b = buf;

	while (n) {
		ssize_t k = pread(p->fd, b, n, (off_t)at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ret_nerrno();
		if (k == 0)
			return -EBADMSG;
		b += k;
		at += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

static bool size_ok(size_t n)
{
	return n >= PAGE_MIN && n <= PAGE_MAX && (n & (n - 1)) == 0;
}

/* The page size stands in the meta pages, the second of which lies one page in: whichever can be read. */
static int find_size(struct pages *p)
{
	struct disk_meta m;
	int r = pages_read(p, &m, sizeof(m), 0);

	if (r == 0 && m.magic == MAGIC && size_ok(m.dbs[0].pad)) {
		p->size = m.dbs[0].pad;
		return 0;
	}
	for (size_t n = PAGE_MIN; r == 0 && n <= PAGE_MAX; n *= 2) {
		if (pages_read(p, &m, sizeof(m), n) == 0 && m.magic == MAGIC && m.dbs[0].pad == n) {
			p->size = n;
			return 0;
		}
	}
	return r < 0 ? r : -EBADMSG;
}

static int make_room(struct pages *p)
{
	if (p->cache)
		return 0;
	p->cache = malloc(CACHE_PAGES * p->size);
	p->cached = calloc(CACHE_PAGES, sizeof(*p->cached));
	return p->cache && p->cached ? 0 : -ENOMEM;
}

int pages_open(int dirfd, const char *path, struct pages **ret)
{
	struct pages *p = calloc(1, sizeof(*p));
	int r = 0;

	if (!p)
		return -ENOMEM;
	p->fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	if (p->fd < 0)
		r = ret_nerrno();
	if (r == 0)
		r = find_size(p);
	if (r < 0) {
		pages_close(p);
		return r;
	}
	*ret = p;
	return 0;
}

void pages_close(struct pages *p)
{
	if (!p)
		return;
	if (p->fd >= 0)
		(void)close(p->fd);
	free(p->cache);
	free(p->cached);
	free(p->value);
	free(p->used);
	free(p);
}

size_t pages_size(const struct pages *p)
{
	return p->size;
}

/* ---- meta pages ---- */

static const char *meta_read(struct pages *p, unsigned i, struct disk_meta *m)
{
	if (pages_read(p, m, sizeof(*m), i * p->size) < 0)
		return "it cannot be read";
	if (m->head.pgno != i || (m->head.flags & P_KIND) != P_META)
		return "it is no meta page";
	if (m->magic != MAGIC || m->version != VERSION || m->dbs[0].pad != p->size)
		return "its magic, version or page size is wrong";
	if (m->txn && m->txn % 2 != i)
		return "its transaction number belongs in the other one";
	if (m->dbs[0].flags != MDB_INTEGERKEY || m->dbs[1].flags || m->address)
		return "it describes another kind of file";
	return NULL;
}

const char *pages_meta_bad(struct pages *p)
{
	/* They change under us when somebody writes: one look may see them at different moments. */
	for (int tries = 0;; tries++) {
		struct disk_meta m[2];
		const char *a = meta_read(p, 0, &m[0]), *b = meta_read(p, 1, &m[1]);
		uint64_t d;

		if (a || b)
			return a ? a : b;
		d = m[0].txn > m[1].txn ? m[0].txn - m[1].txn : m[1].txn - m[0].txn;
		if (d <= 1)
			return NULL;
		if (tries == 100)
			return "their transaction numbers do not follow each other";
	}
}

void pages_take_db(const struct disk_db *d, struct pages_db *ret)
{
	*ret = (struct pages_db){.flags = d->flags,
				 .depth = d->depth,
				 .branch = d->branch,
				 .leaf = d->leaf,
				 .overflow = d->overflow,
				 .entries = d->entries,
				 .root = d->root};
}

/* What may be missing of a whole file; more is damage for certain, and would be bits without end. */
#define UNWRITTEN_MOST (UINT64_C(1) << 20)

/* The file has fewer pages than the meta page says. */
static int look_at_end(struct pages *p, struct pages_snap *ret)
{
	bool rest_free = false;
	int r = 0;

	if (ret->pages > 2 && p->last - p->there <= UNWRITTEN_MOST)
		r = pages_rest_free(p, &rest_free);
	ret->cut = !rest_free;
	if (ret->cut)
		p->last = p->there;
	return r;
}

int pages_begin(struct pages *p, uint64_t txn, struct pages_snap *ret)
{
	struct disk_meta m[2], *use = NULL;
	struct stat st;
	uint64_t bits;
	int r = make_room(p);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < 2; i++) {
		if (meta_read(p, i, &m[i]))
			continue;
		if (txn == PAGES_NEWEST ? !use || m[i].txn > use->txn : m[i].txn == txn)
			use = &m[i];
	}
	if (!use)
		return txn == PAGES_NEWEST ? -EBADMSG : -EAGAIN;
	if (fstat(p->fd, &st) < 0)
		return ret_nerrno();
	ret->txn = use->txn;
	ret->pages = (uint64_t)st.st_size / p->size;
	ret->cut = false;
	p->txn = use->txn;
	p->last = use->last;
	p->there = use->last < ret->pages ? use->last : ret->pages ? ret->pages - 1 : 0;
	pages_take_db(&use->dbs[0], &ret->free);
	pages_take_db(&use->dbs[1], &ret->main);
	p->free = ret->free;
	memset(p->cached, 0, CACHE_PAGES * sizeof(*p->cached));
	free(p->used);
	bits = p->last - p->there <= UNWRITTEN_MOST ? p->last : p->there;
	p->words = bits / 64 + 1;
	p->used = calloc(p->words, sizeof(*p->used));
	if (!p->used)
		return -ENOMEM;
	return p->there < p->last ? look_at_end(p, ret) : 0;
}

/* ---- one page ---- */

static size_t node_len(const struct node_head *n, bool leaf)
{
	size_t d = !leaf ? 0 : n->flags & F_BIG ? 8 : data_len(*n);

	return (NODE + n->ksize + d + 1) & ~(size_t)1;
}

/* Are the nodes inside the page, and do they fill what it says is filled: no two overlap. */
static const char *nodes_bad(const uint8_t *pg, size_t size, bool leaf)
{
	size_t sum = 0, upper = head_of(pg)->upper;

	for (unsigned i = 0; i < count_of(pg); i++) {
		size_t at = offset_of(pg, i);
		struct node_head n;

		if (at < upper || at + NODE > size || at % 2)
			return "a record lies outside of the page";
		memcpy(&n, pg + at, sizeof(n));
		if (at + node_len(&n, leaf) > size)
			return "a record is longer than the page";
		if (n.ksize > KEY_LIMIT || (leaf && n.ksize == 0))
			return "a key has an impossible length";
		if (leaf && (n.flags & ~(F_BIG | F_SUB) || n.flags == (F_BIG | F_SUB)))
			return "a record has flags that are never used";
		sum += node_len(&n, leaf);
	}
	return sum == size - upper ? NULL
				   : "its records do not fill the space that it says is used";
}

static const char *page_bad(const uint8_t *pg, size_t size, uint64_t pgno)
{
	const struct page_head *h = head_of(pg);
	unsigned kind = h->flags & P_KIND;

	if (h->pgno != pgno)
		return "it bears another page's number";
	if (kind != P_BRANCH && kind != P_LEAF)
		return "it is no page of a tree";
	if (h->lower < HEAD || h->lower % 2 || h->upper > size || h->lower > h->upper)
		return "its bounds are impossible";
	if (kind == P_BRANCH && count_of(pg) == 0)
		return "it has no branches";
	return nodes_bad(pg, size, kind == P_LEAF);
}

const uint8_t *pages_load(struct pages *p, uint64_t pgno, const char **ret_bad)
{
	size_t slot = pgno % CACHE_PAGES;
	uint8_t *c = p->cache + slot * p->size;

	*ret_bad = NULL;
	if (pgno < 2 || pgno > p->there) {
		*ret_bad = "its number is past the last page";
		return NULL;
	}
	if (p->cached[slot] == pgno + 1)
		return c;
	p->cached[slot] = 0;
	if (pages_read(p, c, p->size, pgno * p->size) < 0)
		*ret_bad = "it cannot be read";
	else
		*ret_bad = page_bad(c, p->size, pgno);
	if (*ret_bad)
		return NULL;
	p->cached[slot] = pgno + 1;
	return c;
}
