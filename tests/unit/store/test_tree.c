/* store: versioned names, inodes, extents, xattrs and links as each layer sees them. */
#include "tests/unit/store/store_test.h"

static struct store_env make_env(struct store *s, const char *name)
{
	struct store_env e;

	if (store_env_create(s, name, 0, "empty", &e) < 0)
		tap_fatal("store_env_create");
	return e;
}

static struct store_batch *begin(struct store *s, store_layer layer)
{
	struct store_batch *b;
	int r = store_batch_begin(s, layer, &b);

	if (r < 0)
		tap_fatal("store_batch_begin: %d", r);
	return b;
}

static void seal(struct store *s, struct store_env *e, const char *label)
{
	struct store_commit c = commit_of(label);
	int r = store_env_seal(s, e, &c);

	if (r < 0)
		tap_fatal("store_env_seal: %d", r);
	store_commit_release(&c);
}

static void names_by_layer(struct store *s)
{
	struct store_env e = make_env(s, "names"), other;
	store_layer one, two, three;
	struct store_batch *b = begin(s, e.open);

	name_set(b, 1, "a", 100);
	name_set(b, 1, "b", 101);
	eq_int(store_batch_commit(b), 0, "first batch");
	one = e.open;
	seal(s, &e, "n1");
	b = begin(s, e.open);
	name_set(b, 1, "a", 0);
	name_set(b, 1, "c", 102);
	eq_int(store_batch_commit(b), 0, "second batch");
	two = e.open;
	seal(s, &e, "n2");
	b = begin(s, e.open);
	name_set(b, 1, "a", 200);
	eq_int(store_batch_commit(b), 0, "third batch");
	three = e.open;

	eq_int(name_at(s, one, 1, "a"), 100, "layer 1 sees its a");
	eq_int(name_at(s, one, 1, "c"), -1, "and not what came later");
	eq_int(name_at(s, two, 1, "a"), 0, "layer 2 sees the tombstone");
	eq_int(name_at(s, two, 1, "b"), 101, "and what it inherited");
	eq_int(name_at(s, three, 1, "a"), 200, "layer 3 sees the new a");
	eq_int(name_at(s, three, 1, "c"), 102, "and c");

	eq_int(store_env_create(s, "branch", one, "tag", &other), 0, "a branch off layer 1");
	ok(other.open > three, "its layer is newer than the others");
	eq_int(name_at(s, other.open, 1, "a"), 100, "but sees layer 1's a");
	eq_int(name_at(s, other.open, 1, "c"), -1, "and no sibling's names");
	b = begin(s, other.open);
	name_set(b, 1, "a", 300);
	eq_int(store_batch_commit(b), 0, "the branch writes");
	eq_int(name_at(s, three, 1, "a"), 200, "which layer 3 does not see");

	b = begin(s, three);
	eq_int(store_layer_seal(s, three), 0, "sealed behind the batch's back");
	name_set(b, 1, "late", 1);
	eq_int(store_batch_commit(b), -ESTALE, "S1: a sealed layer takes no batch");
	eq_int(name_at(s, three, 1, "late"), -1, "and nothing of it is there");
	eq_int(store_batch_begin(s, one, &b), -ESTALE, "nor does it begin one");
}

/* Many versions out of sight between the reader and the one it sees. */
static void many_versions(struct store *s)
{
	struct store_env e = make_env(s, "many");
	struct store_batch *b = begin(s, e.open);
	store_layer first = e.open;
	struct store_env side[30];
	char label[32];

	name_set(b, 7, "hot", 1000);
	name_set(b, 7, "hot2", 5);
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
	seal(s, &e, "m0");
	for (int i = 0; i < 30; i++) {
		(void)snprintf(label, sizeof(label), "side%d", i);
		if (store_env_create(s, label, first, NULL, &side[i]) < 0)
			tap_fatal("env");
		b = begin(s, side[i].open);
		name_set(b, 7, "hot", 2000 + (store_ino)i);
		if (store_batch_commit(b) < 0)
			tap_fatal("commit");
	}
	eq_int(name_at(s, e.open, 7, "hot"), 1000, "30 versions of branches are not in sight");
	eq_int(name_at(s, side[12].open, 7, "hot"), 2012, "a branch sees its own");
	for (int i = 0; i < 40; i++) {
		b = begin(s, e.open);
		name_set(b, 7, "hot", 3000 + (store_ino)i);
		if (store_batch_commit(b) < 0)
			tap_fatal("commit");
		(void)snprintf(label, sizeof(label), "m%d", i + 1);
		seal(s, &e, label);
	}
	eq_int(name_at(s, first, 7, "hot"), 1000, "nor are 40 newer ones");
	eq_int(name_at(s, e.open, 7, "hot"), 3039, "the newest is");
}

struct list {
	char text[512];
	int stop_after;
};

static int add_name(void *arg, const char *name, size_t len, const struct rec_name *n)
{
	struct list *l = arg;
	size_t at = strlen(l->text);

	(void)snprintf(l->text + at, sizeof(l->text) - at, "%.*s=%llu ", (int)len, name,
		       (unsigned long long)n->ino);
	return l->stop_after && --l->stop_after == 0 ? 42 : 0;
}

static void listings(struct store *s)
{
	struct store_env e = make_env(s, "list");
	struct store_batch *b = begin(s, e.open);
	struct store_view *v;
	struct list l = {0};
	store_layer one = e.open;
	char label[32];

	name_set(b, 9, "b", 2);
	name_set(b, 9, "a", 1);
	name_set(b, 9, "a.b", 3);
	name_set(b, 9, "ab", 4);
	name_set(b, 10, "not here", 9);
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
	seal(s, &e, "l0");
	for (int i = 0; i < 20; i++) {
		b = begin(s, e.open);
		name_set(b, 9, "ab", 50 + (store_ino)i);
		name_set(b, 9, "b", 0);
		if (store_batch_commit(b) < 0)
			tap_fatal("commit");
		(void)snprintf(label, sizeof(label), "l%d", i + 1);
		seal(s, &e, label);
	}
	if (store_view_open(s, one, &v) < 0)
		tap_fatal("view");
	eq_int(store_view_names(v, 9, add_name, &l), 0, "lists");
	eq_str(l.text, "a=1 a.b=3 ab=4 b=2 ", "in byte order, as of layer 1");
	l = (struct list){.stop_after = 2};
	eq_int(store_view_names(v, 9, add_name, &l), 42, "stops when told");
	eq_str(l.text, "a=1 a.b=3 ", "after two");
	store_view_close(v);
	if (store_view_open(s, e.open, &v) < 0)
		tap_fatal("view");
	l = (struct list){0};
	eq_int(store_view_names(v, 9, add_name, &l), 0, "lists the head");
	eq_str(l.text, "a=1 a.b=3 ab=69 b=0 ", "newest versions and tombstones");
	l = (struct list){0};
	eq_int(store_view_names(v, 999, add_name, &l), 0, "an unknown directory");
	eq_str(l.text, "", "is empty");
	ok(store_view_sees(v, one) && !store_view_sees(v, 0) && !store_view_sees(v, e.open + 1),
	   "what the view sees");
	store_view_close(v);
}

static int count_extent(void *arg, const struct store_extent *e)
{
	struct list *l = arg;
	size_t at = strlen(l->text);

	(void)snprintf(l->text + at, sizeof(l->text) - at, "%llu:%u ", (unsigned long long)e->block,
		       e->len);
	return 0;
}

static const char *extents_at(struct store *s, store_layer layer, store_ino ino, uint64_t first,
			      struct list *l)
{
	struct store_view *v;

	*l = (struct list){0};
	if (store_view_open(s, layer, &v) < 0 ||
	    store_view_extents(v, ino, first, count_extent, l) < 0)
		tap_fatal("extents");
	store_view_close(v);
	return l->text;
}

/* A layer is charged for what was new with it, whatever attempts came before. */
static void charges(struct store *s)
{
	struct store_chunk c = {.data = "charged once", .len = 12};
	struct store_env e = make_env(s, "charges");
	struct store_extent x = {.len = 12}, none = {.len = 1, .block = 1, .chunk = {{1}}};
	struct store_layer_info info;
	struct store_batch *b;

	if (store_chunks_put(s, &c, 1) < 0)
		tap_fatal("put");
	x.chunk = c.digest;
	b = begin(s, e.open);
	if (store_batch_extent(b, 500, &x) < 0 || store_batch_extent(b, 500, &none) < 0)
		tap_fatal("extent");
	eq_int(store_batch_commit(b), -EAGAIN, "a chunk is missing");
	for (int i = 0; i < 2; i++) {
		b = begin(s, e.open);
		if (store_batch_extent(b, 500, &x) < 0 || store_batch_extent(b, 501, &x) < 0)
			tap_fatal("extent");
		eq_int(store_batch_commit(b), 0, "without it");
	}
	if (store_layer_get(s, e.open, &info) < 0)
		tap_fatal("layer");
	eq_int((long long)info.bytes, 12, "charged for its bytes, once");
}

static void extents(struct store *s)
{
	struct store_chunk c = {.data = "some bytes", .len = 10};
	struct store_env e = make_env(s, "extents");
	struct store_extent x = {.len = 10};
	struct store_batch *b = begin(s, e.open);
	store_layer one = e.open;
	struct store_view *v;
	struct list l;

	if (store_chunks_put(s, &c, 1) < 0)
		tap_fatal("put");
	x.chunk = c.digest;
	for (x.block = 0; x.block < 4; x.block++)
		if (store_batch_extent(b, 500, &x) < 0)
			tap_fatal("extent");
	eq_int(store_batch_commit(b), 0, "four extents");
	seal(s, &e, "x1");
	b = begin(s, e.open);
	for (x.block = 3; x.block < 6; x.block++)
		if (store_batch_extent(b, 500, &x) < 0)
			tap_fatal("extent");
	eq_int(store_batch_commit(b), 0, "three more over one");
	eq_str(extents_at(s, e.open, 500, 0, &l), "0:10 1:10 2:10 3:10 4:10 5:10 ", "all of them");
	eq_str(extents_at(s, e.open, 500, 4, &l), "4:10 5:10 ", "from the fourth on");
	b = begin(s, e.open);
	eq_int(store_batch_extents_cut(b, 500, 2), 0, "cut at 2");
	eq_int(store_batch_commit(b), 0, "committed");
	eq_str(extents_at(s, e.open, 500, 0, &l), "0:10 1:10 2:0 3:0 ",
	       "holes hide the older ones; the layer's own are gone");
	eq_str(extents_at(s, one, 500, 0, &l), "0:10 1:10 2:10 3:10 ", "layer 1 has them all");
	b = begin(s, e.open);
	x.block = 5;
	if (store_batch_extent(b, 500, &x) < 0)
		tap_fatal("extent");
	eq_int(store_batch_commit(b), 0, "grow again");
	eq_str(extents_at(s, e.open, 500, 0, &l), "0:10 1:10 2:0 3:0 5:10 ", "with a gap");

	if (store_view_open(s, e.open, &v) < 0)
		tap_fatal("view");
	eq_int(store_view_extent(v, 500, 4, &x), -ENOENT, "none at 4");
	ok(store_view_extent(v, 500, 2, &x) == 0 && x.len == 0, "a hole at 2");
	ok(store_view_extent(v, 500, 5, &x) == 0 && x.len == 10 &&
		   !memcmp(&x.chunk, &c.digest, sizeof(x.chunk)),
	   "a chunk at 5");
	store_view_close(v);
}

static void cut_many(struct store *s)
{
	struct store_env e = make_env(s, "cutmany");
	struct store_chunk c = {.data = "x", .len = 1};
	struct store_extent x = {.len = 1};
	struct store_batch *b = begin(s, e.open);
	struct store_view *v;
	struct list l;

	if (store_chunks_put(s, &c, 1) < 0)
		tap_fatal("put");
	x.chunk = c.digest;
	for (x.block = 0; x.block < 2000; x.block++)
		if (store_batch_extent(b, 501, &x) < 0)
			tap_fatal("extent");
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
	seal(s, &e, "cm");
	b = begin(s, e.open);
	if (store_batch_extents_cut(b, 501, 3) < 0 || store_batch_commit(b) < 0)
		tap_fatal("cut");
	if (store_view_open(s, e.open, &v) < 0)
		tap_fatal("view");
	ok(store_view_extent(v, 501, 2, &x) == 0 && x.len == 1, "block 2 stays");
	ok(store_view_extent(v, 501, 3, &x) == 0 && x.len == 0, "block 3 is a hole");
	ok(store_view_extent(v, 501, 1999, &x) == 0 && x.len == 0, "and block 1999");
	store_view_close(v);
	eq_str(extents_at(s, e.open, 501, 1998, &l), "1998:0 1999:0 ", "listed as holes");
}

static void missing_chunk(struct store *s)
{
	struct store_env e = make_env(s, "missing");
	struct store_extent x = {.len = 10};
	struct rec_inode rec = file_rec(10);
	struct store_batch *b = begin(s, e.open);
	struct store_layer_info info;

	memset(&x.chunk, 7, sizeof(x.chunk));
	name_set(b, 1, "f", 600);
	if (store_batch_extent(b, 600, &x) < 0)
		tap_fatal("extent");
	eq_int(store_batch_commit(b), -EAGAIN, "an extent names a chunk that is not there");
	b = begin(s, e.open);
	rec.content = REC_CHUNK;
	rec.chunk = x.chunk;
	rec.chunk_len = 10;
	if (store_batch_inode(b, 600, &rec) < 0)
		tap_fatal("inode");
	eq_int(store_batch_commit(b), -EAGAIN, "an inode does");
	eq_int(name_at(s, e.open, 1, "f"), -1, "nothing was written");
	ok(store_layer_get(s, e.open, &info) == 0 && info.records == 0, "nor journalled");
}

static void inodes(struct store *s)
{
	struct store_env e = make_env(s, "inodes");
	struct store_batch *b = begin(s, e.open);
	struct rec_inode rec = file_rec(3), got = {0};
	char name[] = "hello", xname[] = "user.k", xvalue[] = "v", data[] = "abc";
	struct rec_xattr xa = {.name = xname, .value = xvalue, .len = 1};
	struct store_view *v;

	rec.name = name;
	rec.name_len = 5;
	rec.parent = 1;
	rec.xattrs = &xa;
	rec.nxattrs = 1;
	rec.content = REC_INLINE;
	rec.data = (uint8_t *)data;
	rec.data_len = 3;
	rec.mtime = (struct timespec){-5, 123456789};
	eq_int(store_batch_inode(b, 700, &rec), 0, "an inode record");
	eq_int(store_batch_commit(b), 0, "committed");
	if (store_view_open(s, e.open, &v) < 0)
		tap_fatal("view");
	eq_int(store_view_inode(v, 700, &got), 0, "is read");
	ok(got.mode == rec.mode && got.size == 3 && got.mtime.tv_sec == -5 &&
		   got.mtime.tv_nsec == 123456789 && got.name_len == 5 &&
		   !memcmp(got.name, "hello", 5) && got.nxattrs == 1 &&
		   !strcmp(got.xattrs[0].name, "user.k") && got.data_len == 3 &&
		   !memcmp(got.data, "abc", 3),
	   "as it was written");
	rec_inode_release(&got);
	eq_int(store_view_inode(v, 701, &got), -ENOENT, "another is not there");
	seal(s, &e, "i1");
	b = begin(s, e.open);
	rec.size = 9;
	if (store_batch_inode(b, 700, &rec) < 0 || store_batch_inode(b, 702, &rec) < 0)
		tap_fatal("inode");
	if (store_batch_xattr(b, 702, "user.big", "value", 5) < 0 ||
	    store_batch_link(b, 702, 1, "x", 1, true) < 0)
		tap_fatal("xattr, link");
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
	ok(store_view_inode(v, 700, &got) == 0 && got.size == 3, "the old view keeps its version");
	rec_inode_release(&got);
	store_view_close(v);
	b = begin(s, e.open);
	if (store_batch_inode_gone(b, 702) < 0 || store_batch_inode_gone(b, 700) < 0)
		tap_fatal("gone");
	eq_int(store_batch_commit(b), 0, "both gone");
	if (store_view_open(s, e.open, &v) < 0)
		tap_fatal("view");
	eq_int(store_view_inode(v, 702, &got), -ENOENT, "702 was this layer's alone");
	ok(store_view_inode(v, 700, &got) == 0 && got.size == 3, "700 shows its older version");
	rec_inode_release(&got);
	store_view_close(v);
}

static int add_xattr(void *arg, const char *name, size_t n)
{
	struct list *l = arg;
	size_t at = strlen(l->text);

	(void)snprintf(l->text + at, sizeof(l->text) - at, "%s:%zu ", name, n);
	return 0;
}

static int add_link(void *arg, store_ino parent, const char *name, size_t len)
{
	struct list *l = arg;
	size_t at = strlen(l->text);

	(void)snprintf(l->text + at, sizeof(l->text) - at, "%llu/%.*s ", (unsigned long long)parent,
		       (int)len, name);
	return 0;
}

static void xattrs_and_links(struct store *s)
{
	struct store_env e = make_env(s, "xattrs");
	struct store_batch *b = begin(s, e.open);
	cleanup_buf struct buf out = {0};
	char *big = calloc(1, 65536);
	struct store_view *v;
	struct list l = {0};
	int r = 0;

	if (!big)
		tap_fatal("memory");
	r |= store_batch_xattr(b, 800, "user.b", big, 65536);
	r |= store_batch_xattr(b, 800, "user.a", "", 0);
	r |= store_batch_link(b, 800, 5, "one", 3, true);
	r |= store_batch_link(b, 800, 4, "two", 3, true);
	free(big);
	eq_int(r, 0, "puts");
	eq_int(store_batch_commit(b), 0, "committed");
	seal(s, &e, "xa1");
	b = begin(s, e.open);
	r |= store_batch_xattr(b, 800, "user.a", NULL, 0);
	r |= store_batch_link(b, 800, 5, "one", 3, false);
	eq_int(r | store_batch_commit(b), 0, "one of each removed");
	if (store_view_open(s, e.head, &v) < 0)
		tap_fatal("view");
	ok(store_view_xattr(v, 800, "user.b", &out) == 0 && out.len == 65536, "the big value");
	buf_clear(&out);
	ok(store_view_xattr(v, 800, "user.a", &out) == 0 && out.len == 0, "the empty value");
	if (store_view_xattrs(v, 800, add_xattr, &l) < 0)
		tap_fatal("xattrs");
	eq_str(l.text, "user.a:0 user.b:65536 ", "both are listed");
	l = (struct list){0};
	if (store_view_links(v, 800, add_link, &l) < 0)
		tap_fatal("links");
	eq_str(l.text, "4/two 5/one ", "both links");
	store_view_close(v);
	if (store_view_open(s, e.open, &v) < 0)
		tap_fatal("view");
	eq_int(store_view_xattr(v, 800, "user.a", &out), -ENOENT, "the tombstone hides it");
	l = (struct list){0};
	if (store_view_xattrs(v, 800, add_xattr, &l) < 0)
		tap_fatal("xattrs");
	eq_str(l.text, "user.b:65536 ", "also in the list");
	l = (struct list){0};
	if (store_view_links(v, 800, add_link, &l) < 0)
		tap_fatal("links");
	eq_str(l.text, "4/two ", "and the link");
	store_view_close(v);
}

struct tally {
	int kinds[STORE_KEY_LINK + 1];
	struct list l;
};

static int tally(void *arg, enum store_key_kind kind, store_ino ino, const char *name, size_t len,
		 uint64_t block)
{
	struct tally *t = arg;
	size_t at = strlen(t->l.text);

	t->kinds[kind]++;
	if (kind == STORE_KEY_LINK || kind == STORE_KEY_XATTR)
		(void)snprintf(t->l.text + at, sizeof(t->l.text) - at, "%llu/%.*s/%llu ",
			       (unsigned long long)ino, (int)len, name, (unsigned long long)block);
	return 0;
}

static void journal(struct store *s)
{
	struct store_env e = make_env(s, "journal");
	struct rec_inode rec = file_rec(0);
	struct store_layer_info info;
	struct tally t = {0};
	struct store_batch *b;
	char name[32];

	for (int round = 0; round < 3; round++) {
		b = begin(s, e.open);
		for (int i = 0; i < 300; i++) {
			(void)snprintf(name, sizeof(name), "some-name-%d", i);
			name_set(b, 1, name, round == 2 ? 0 : 900 + (store_ino)i);
			if (store_batch_inode(b, 900 + (store_ino)i, &rec) < 0)
				tap_fatal("inode");
		}
		if (store_batch_xattr(b, 900, "user.x", "1", 1) < 0 ||
		    store_batch_link(b, 900, 77, "l", 1, true) < 0)
			tap_fatal("xattr");
		if (round == 1 && store_batch_inode_gone(b, 901) < 0)
			tap_fatal("gone");
		if (store_batch_commit(b) < 0)
			tap_fatal("commit");
	}
	eq_int(store_layer_journal(s, e.open, tally, &t), 0, "the journal is read");
	eq_int(t.kinds[STORE_KEY_NAME], 300, "each name once");
	eq_int(t.kinds[STORE_KEY_INODE], 300, "each inode once, gone and back again or not");
	eq_str(t.l.text, "900/user.x/0 900/l/77 ", "xattr and link");
	ok(store_layer_get(s, e.open, &info) == 0 && info.records == 602 &&
		   info.state == STORE_LAYER_OPEN,
	   "the layer counts its records");
	eq_int(store_layer_journal(s, 1 << 30, tally, &t), -ENOENT, "no such layer");
}

int main(void)
{
	char dir[64];
	struct store *s;

	make_dir(dir);
	s = open_store(dir);
	names_by_layer(s);
	many_versions(s);
	listings(s);
	extents(s);
	charges(s);
	cut_many(s);
	missing_chunk(s);
	inodes(s);
	xattrs_and_links(s);
	journal(s);
	store_close(s);
	tree_remove(dir);
	return tap_done();
}
