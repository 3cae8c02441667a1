/*
 * Inodes, names, extents, attributes and links, each record as it is seen from the layer that wrote it. What is true
 * at a layer and untouched above stays true above, so that each state of the history is covered without
 * a walk through each.
 */
#include <sys/stat.h>

#include "store/fsck_internal.h"

#define SCAN_MAX 4096 /* names of a directory that are counted for one version of its record */

/* ---- telling ---- */

static struct fsck_at at_of(const struct store_entry *e)
{
	return (struct fsck_at){e->db, e->key, e->key.ino};
}

static int tell(struct fsck *f, const struct store_entry *e, const char *kind, const char *what)
{
	struct fsck_at at = at_of(e);

	return fsck_tell(f, STORE_FINDING_DAMAGE, kind, store_db_name(e->db), &at,
			 "%s (inode %llu, layer %llu)", what, (unsigned long long)e->key.ino,
			 (unsigned long long)e->key.layer);
}

/* Count it for the journal; false: nothing can be said of how it hangs together with others. */
static bool count(struct fsck *f, const struct store_entry *e, int *ret_r)
{
	struct fsck_layer *l = fsck_layer(f, e->key.layer);
	struct key k;

	*ret_r = 0;
	if (!l) {
		*ret_r = fsck_tell(
			f, STORE_FINDING_DAMAGE, "record", store_db_name(e->db), NULL,
			"a record of inode %llu belongs to layer %llu, which does not exist",
			(unsigned long long)e->key.ino, (unsigned long long)e->key.layer);
		return false;
	}
	store_key_encode(e->db, &e->key, &k);
	fsck_set_add(&l->keys, e->db, k.b, k.len - 8);
	return !e->gone && !l->bad && l->rec.state != STORE_LAYER_DROPPED;
}

/* ---- what others say ---- */

/* 0 and the record, -ENOENT, or 1: it is damaged, which was told of elsewhere. */
static int inode_at(struct fsck *f, store_ino ino, store_layer layer, struct store_entry *ret)
{
	struct store_key k = {.ino = ino};
	int r = fsck_find(f, DB_INODES, &k, layer, ret, NULL);

	return r == -EBADMSG ? 1 : r;
}

static int name_at(struct fsck *f, store_ino parent, const char *name, size_t len,
		   store_layer layer, struct rec_name *ret)
{
	struct store_key k = {.ino = parent, .name = name, .len = len};
	struct store_entry e;
	int r = fsck_find(f, DB_NAMES, &k, layer, &e, NULL);

	if (r == 0)
		*ret = e.name;
	return r == -EBADMSG ? 1 : r;
}

static int has_origin(struct fsck *f, store_ino ino, store_layer layer)
{
	struct store_entry e;
	int r = inode_at(f, ino, layer, &e);

	if (r)
		return r == -ENOENT ? 0 : r;
	r = e.inode.origin.root != NULL;
	store_entry_release(&e);
	return r;
}

static int check_chunk(struct fsck *f, const struct store_entry *e, const struct digest *d,
		       uint32_t len)
{
	int r = fsck_chunk_there(f, d, len);

	if (r == -ENOENT)
		return tell(f, e, "chunk", "a chunk of the file is missing");
	if (r == -EBADMSG)
		return tell(f, e, "chunk", "a chunk of the file has another length");
	return r;
}

/* ---- inodes ---- */

/* The one name of a directory, or of a file with one link. */
static int check_place(struct fsck *f, const struct store_entry *e)
{
	const struct rec_inode *i = &e->inode;
	struct rec_name n;
	int r = name_at(f, i->parent, i->name ? i->name : "", i->name_len, e->key.layer, &n);

	if (r == 0)
		return n.ino == e->key.ino
			       ? 0
			       : tell(f, e, "place", "the name that its record gives is not its");
	if (r != -ENOENT)
		return r < 0 ? r : 0;
	/* Where a host directory is shown, its names need no record. */
	r = has_origin(f, i->parent, e->key.layer);
	return r ? (r < 0 ? r : 0)
		 : tell(f, e, "place", "the name that its record gives is missing");
}

struct scan {
	struct fsck *f;
	const struct store_entry *e;
	enum store_db db;
	struct key last; /* the group that was looked at, without its layer */
	uint64_t n;      /* that count */
	unsigned seen;
};

/* Newest visible versions of what begins with the inode: links that are there, or names of directories. */
static int scan_one(void *arg, const MDB_val *k, const MDB_val *v, unsigned flags)
{
	struct scan *s = arg;
	MDB_val bare = *v;
	struct store_entry e;

	(void)flags;
	if (k->mv_size < 16 || k->mv_size > KEY_MAX || key_get_be64(k->mv_data) != s->e->key.ino ||
	    s->seen > SCAN_MAX)
		return 1;
	s->seen++;
	if (k->mv_size - 8 == s->last.len && !memcmp(k->mv_data, s->last.b, s->last.len))
		return 0;
	if (store_sum_strip(s->db, k, &bare) < 0 || store_entry_decode(s->db, k, &bare, &e) < 0)
		return 2;
	if (e.gone || !fsck_sees(s->f, s->e->key.layer, e.key.layer))
		return 0;
	s->last.len = k->mv_size - 8;
	memcpy(s->last.b, k->mv_data, s->last.len);
	s->n += s->db == DB_LINKS ? e.linked : e.name.ino != 0 && S_ISDIR(e.name.type);
	return 0;
}

/* How many; *@ret_sure false when there are too many, or damaged ones among them. */
static int scan(struct fsck *f, const struct store_entry *e, enum store_db db, uint64_t *ret,
		bool *ret_sure)
{
	struct scan s = {.f = f, .e = e, .db = db};
	struct pages_cb cb = {scan_one, NULL, &s};
	uint8_t b[8];
	MDB_val from = {8, b};
	int r;

	key_be64(b, e->key.ino);
	*ret_sure = false;
	if (!f->have[db])
		return 0;
	r = pages_walk(f->meta, &f->db[db], &from, 0, &cb);
	*ret = s.n;
	*ret_sure = r >= 0 && r != 2 && s.seen <= SCAN_MAX;
	return r < 0 ? r : 0;
}

static int check_links(struct fsck *f, const struct store_entry *e)
{
	const struct rec_inode *i = &e->inode;
	bool dir = S_ISDIR(i->mode), sure;
	struct fsck_nlink wrong = {.ino = e->key.ino, .layer = e->key.layer};
	uint64_t n = 1;
	int r = 0;

	sure = !dir && i->parent;
	if (!sure)
		r = scan(f, e, dir ? DB_NAMES : DB_LINKS, &n, &sure);
	if (r < 0 || !sure || i->nlink == n + (dir ? 2 : 0))
		return r;
	wrong.has = i->nlink;
	wrong.should = (uint32_t)n + (dir ? 2 : 0);
	return buf_put(&f->nlinks, &wrong, sizeof(wrong));
}

/* Where names or links are damaged or lost, the count may be what is right. */
int fsck_nlinks(struct fsck *f)
{
	enum store_finding_state state;
	int r = 0;

	f->names_bad = f->sum.damaged > 0;
	state = f->names_bad ? STORE_FINDING_DAMAGE : STORE_FINDING_REPAIRABLE;

	for (size_t at = 0; at < f->nlinks.len && r == 0; at += sizeof(struct fsck_nlink)) {
		struct fsck_at who = {.db = DB_INODES};
		struct fsck_nlink w;

		memcpy(&w, f->nlinks.data + at, sizeof(w));
		who.key = (struct store_key){.ino = w.ino, .layer = w.layer};
		who.ino = w.ino;
		r = fsck_tell(f, state, "nlink", "inodes", &who,
			      "inode %llu counts %u links and has %u (layer %llu)",
			      (unsigned long long)w.ino, w.has, w.should,
			      (unsigned long long)w.layer);
	}
	return r;
}

static int on_inode(struct fsck *f, const struct store_entry *e)
{
	const struct rec_inode *i = &e->inode;
	int r;

	if (e->key.ino < STORE_HOST_INO && e->key.ino > f->max_ino)
		f->max_ino = e->key.ino;
	if (!count(f, e, &r))
		return r;
	if (i->content == REC_CHUNK)
		r = check_chunk(f, e, &i->chunk, i->chunk_len);
	if (r || i->nlink == 0 || e->key.ino == STORE_ROOT_INO)
		return r;
	if (i->parent)
		r = check_place(f, e);
	/* What is shown from the host keeps the host's count. */
	return r == 0 && !i->origin.root ? check_links(f, e) : r;
}

/* ---- names ---- */

/* Does the inode know that it is here? */
static int check_back(struct fsck *f, const struct store_entry *e, const struct rec_inode *i)
{
	struct store_key k = {
		.ino = e->name.ino, .block = e->key.ino, .name = e->key.name, .len = e->key.len};
	struct store_entry link;
	int r;

	if (i->parent)
		return i->parent == e->key.ino && i->name_len == e->key.len &&
				       !memcmp(i->name, e->key.name, e->key.len)
			       ? 0
			       : tell(f, e, "place",
				      "the inode of this name says that it is elsewhere");
	if (i->origin.root || e->name.ino == STORE_ROOT_INO)
		return 0;
	r = fsck_find(f, DB_LINKS, &k, e->key.layer, &link, NULL);
	if (r == -EBADMSG || (r == 0 && link.linked))
		return 0;
	return r == 0 || r == -ENOENT
		       ? tell(f, e, "place", "the inode of this name does not list it")
		       : r;
}

static int on_name(struct fsck *f, const struct store_entry *e)
{
	struct store_entry i;
	int r;

	if (!count(f, e, &r))
		return r;
	if (e->name.ino) {
		r = inode_at(f, e->name.ino, e->key.layer, &i);
		if (r == -ENOENT)
			return tell(f, e, "missing", "the inode of this name is missing");
		if (r)
			return r < 0 ? r : 0;
		if (i.inode.nlink == 0)
			r = tell(f, e, "missing", "the inode of this name is marked as removed");
		else if ((i.inode.mode & S_IFMT) != e->name.type)
			r = tell(f, e, "type", "the inode of this name is of another type");
		else
			r = check_back(f, e, &i.inode);
		store_entry_release(&i);
	}
	if (r || e->key.ino == STORE_ROOT_INO)
		return r;
	r = inode_at(f, e->key.ino, e->key.layer, &i);
	if (r == -ENOENT)
		return e->name.ino ? tell(f, e, "missing", "the directory of this name is missing")
				   : 0;
	if (r)
		return r < 0 ? r : 0;
	if (!S_ISDIR(i.inode.mode))
		r = tell(f, e, "type", "this name lies in what is no directory");
	store_entry_release(&i);
	return r;
}

/* ---- the rest ---- */

static int check_owner(struct fsck *f, const struct store_entry *e, const char *what, bool regular)
{
	struct store_entry i;
	int r = inode_at(f, e->key.ino, e->key.layer, &i);

	if (r == -ENOENT)
		return tell(f, e, "missing", what);
	if (r)
		return r < 0 ? r : 0;
	if (regular && !S_ISREG(i.inode.mode))
		r = tell(f, e, "type", "it has extents, and is no regular file");
	store_entry_release(&i);
	return r;
}

static int on_extent(struct fsck *f, const struct store_entry *e)
{
	int r;

	if (!count(f, e, &r))
		return r;
	if (e->extent.len)
		r = check_chunk(f, e, &e->extent.chunk, e->extent.len);
	return r ? r : check_owner(f, e, "the inode of this extent is missing", true);
}

static int on_xattr(struct fsck *f, const struct store_entry *e)
{
	int r;

	if (!count(f, e, &r))
		return r;
	return check_owner(f, e, "the inode of this attribute is missing", false);
}

static int on_link(struct fsck *f, const struct store_entry *e)
{
	struct rec_name n;
	int r;

	if (!count(f, e, &r) || !e->linked)
		return r;
	r = name_at(f, e->key.block, e->key.name, e->key.len, e->key.layer, &n);
	if (r == -ENOENT) {
		r = has_origin(f, e->key.block, e->key.layer);
		return r ? (r < 0 ? r : 0) : tell(f, e, "place", "a name that it lists is missing");
	}
	if (r)
		return r < 0 ? r : 0;
	return n.ino == e->key.ino ? 0 : tell(f, e, "place", "a name that it lists is another's");
}

int fsck_tree(struct fsck *f)
{
	int r = fsck_records(f, DB_INODES, on_inode);

	if (r == 0)
		r = fsck_records(f, DB_NAMES, on_name);
	if (r == 0)
		r = fsck_records(f, DB_EXTENTS, on_extent);
	if (r == 0)
		r = fsck_records(f, DB_XATTRS, on_xattr);
	return r == 0 ? fsck_records(f, DB_LINKS, on_link) : r;
}
