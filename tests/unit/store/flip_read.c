/* See flip_read.h. */
#include "tests/unit/store/flip_read.h"

#include "base/cleanup.h"
#include "store/walk.h"
#include "tests/unit/store/sample.h"

struct reading {
	struct store *s;
	struct store_view *v;
	FILE *out;
	bool learn;
	struct {
		struct digest digest;
		ssize_t n;
	} read[8];
	size_t nread;
	store_ino dirs[8];
	size_t ndirs;
	unsigned listed, bad;
};

static int one_extent(void *arg, const struct store_extent *e)
{
	struct reading *r = arg;

	fprintf(r->out, " %llu+%u", (unsigned long long)e->block, e->len);
	return 0;
}

/* What the sound store gave for each digest. */
static struct chunk {
	struct digest digest;
	ssize_t len;
	uint8_t bytes[STORE_BLOCK];
} chunks[2 + SAMPLE_BIG_BLOCKS];
static size_t nchunks;

static const struct chunk *chunk_find(const struct digest *d)
{
	for (size_t i = 0; i < nchunks; i++)
		if (!memcmp(&chunks[i].digest, d, sizeof(*d)))
			return &chunks[i];
	return NULL;
}

static void learn_chunk(const struct digest *d, const void *bytes, ssize_t n)
{
	struct chunk *c = &chunks[nchunks];
	struct digest is;

	if (chunk_find(d))
		return;
	if (nchunks == ARRAY_SIZE(chunks) || digest_of(bytes, (size_t)n, &is) < 0 ||
	    memcmp(&is, d, sizeof(is)) != 0)
		tap_fatal("a chunk of the sound store is not what its digest says");
	*c = (struct chunk){.digest = *d, .len = n};
	memcpy(c->bytes, bytes, (size_t)n);
	nchunks++;
}

#define WRONG_BYTES (-9999)

/* Its length, or an error. */
static ssize_t get_chunk(struct reading *r, const struct digest *d)
{
	static uint8_t buf[STORE_BLOCK];
	ssize_t n = store_chunk_get(r->s, d, buf, sizeof(buf));
	const struct chunk *c;

	if (n < 0)
		return n == -ENOENT ? -EBADMSG : n;
	if (r->learn)
		learn_chunk(d, buf, n);
	/* S4, looked at from outside. */
	c = chunk_find(d);
	return c && c->len == n && !memcmp(c->bytes, buf, (size_t)n) ? n : WRONG_BYTES;
}

/* Each chunk is read once, though several layers show it. */
static void put_chunk(struct reading *r, const struct digest *d)
{
	size_t i = 0;

	while (i < r->nread && memcmp(&r->read[i].digest, d, sizeof(*d)) != 0)
		i++;
	if (i == ARRAY_SIZE(r->read))
		i = r->nread = 0;
	if (i == r->nread) {
		r->read[i].digest = *d;
		r->read[i].n = get_chunk(r, d);
		r->nread++;
	}
	if (r->read[i].n == WRONG_BYTES)
		fprintf(r->out, " WRONG BYTES");
	fprintf(r->out, r->read[i].n < 0 ? " !%zd" : " ok%zd", r->read[i].n);
}

static void put_inode(struct reading *r, store_ino ino)
{
	cleanup_rec_inode struct rec_inode i = {0};
	cleanup_buf struct buf x = {0};
	int e = store_view_inode(r->v, ino, &i);

	if (e < 0) {
		fprintf(r->out, " inode !%d\n", e);
		return;
	}
	fprintf(r->out, " %o %u %llu %lld", i.mode, i.nlink, (unsigned long long)i.size,
		(long long)i.mtime.tv_sec);
	if (i.content == REC_INLINE)
		fprintf(r->out, " inline%u", i.data[0]);
	if (i.content == REC_CHUNK)
		put_chunk(r, &i.chunk);
	if (i.content == REC_EXTENTS) {
		e = store_view_extents(r->v, ino, 0, one_extent, r);
		fprintf(r->out, " (%d)", e);
		for (uint64_t b = 0; b < SAMPLE_BIG_BLOCKS; b++) {
			struct store_extent ex;

			e = store_view_extent(r->v, ino, b, &ex);
			if (e == 0 && ex.len)
				put_chunk(r, &ex.chunk);
			else
				fprintf(r->out, " %d", e);
		}
	}
	if (i.big_xattrs)
		fprintf(r->out, " x%d", store_view_xattr(r->v, ino, "user.big", &x));
	fprintf(r->out, "\n");
}

static int one_name(void *arg, const char *name, size_t len, const struct rec_name *n)
{
	struct reading *r = arg;

	r->listed++;
	r->bad += n->ino == STORE_DAMAGED_INO;
	if (n->ino == STORE_DAMAGED_INO)
		fprintf(r->out, "!");
	fprintf(r->out, "%llu", (unsigned long long)n->ino);
	fprintf(r->out, " %.*s\n", (int)len, name);
	if (S_ISDIR(n->type) && r->ndirs < 8)
		r->dirs[r->ndirs++] = n->ino;
	return 0;
}

/* Known names are looked up, too: a listing that ends early must not pass for all. */
static void put_names(struct reading *r)
{
	static const struct {
		store_ino dir;
		const char *name;
	} names[] = {{1, "dir"},      {1, "inline"}, {1, "linked too"}, {1, "later"},
		     {1, "none"},     {64, "small"}, {64, "linked"},    {64, "big"},
		     {64, "symlink"}, {64, "none"},  {64, "zzz"}};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct rec_name n = {0};
		int e = store_view_name(r->v, names[i].dir, names[i].name, strlen(names[i].name),
					&n);

		fprintf(r->out, "%s %d %llu\n", names[i].name, e, (unsigned long long)n.ino);
	}
}

/* How many there were is told where none of it is damaged. */
static void put_listing(struct reading *r, store_ino dir)
{
	int e;

	r->listed = r->bad = 0;
	e = store_view_names(r->v, dir, one_name, r);
	fprintf(r->out, "names %d\n", e);
	if (e == 0 && !r->bad)
		fprintf(r->out, "listed of %llu: %u\n", (unsigned long long)dir, r->listed);
}

static void read_layer(struct reading *r, store_layer layer)
{
	int e = store_view_open(r->s, layer, &r->v);

	fprintf(r->out, "layer %llu %d\n", (unsigned long long)layer, e);
	if (e < 0)
		return;
	for (store_ino ino = 1; ino <= SAMPLE_LATER; ino = ino == 1 ? SAMPLE_DIR : ino + 1) {
		fprintf(r->out, "%llu:", (unsigned long long)ino);
		put_inode(r, ino);
	}
	put_listing(r, 1);
	put_listing(r, SAMPLE_DIR);
	put_names(r);
	store_view_close(r->v);
}

static int one_commit(void *arg, const struct store_commit *c)
{
	struct reading *r = arg;

	if (c->damaged)
		fprintf(r->out, "commit!\n");
	else
		fprintf(r->out, "commit %s %llu\n", c->label, (unsigned long long)c->layer);
	return 0;
}

void flip_read(const char *dir, FILE *out, bool learn)
{
	struct reading r = {.out = out, .learn = learn};
	struct store_env env = {0};
	struct diag d = {0};
	int e = store_open(dir, 0, &d, &r.s);

	fprintf(out, "open %d\n", e);
	if (e < 0)
		return;
	for (store_layer l = 1; l <= 3; l++)
		read_layer(&r, l);
	e = store_env_get(r.s, "env", &env);
	fprintf(out, "env %d %llu %llu\n", e, (unsigned long long)env.head,
		(unsigned long long)env.open);
	fprintf(out, "commits %d\n", store_commits(r.s, NULL, one_commit, &r));
	store_close(r.s);
}
