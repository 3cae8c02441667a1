/* A tree that is being filled: what replaces what, whiteouts, times, and lists that are not inherited. */
#include <sys/xattr.h>

#include "fixture.h"
#include "fs/image/image_internal.h"
#include "fs/image/sink_internal.h"
#include "store/store_internal.h"

static struct sink *open_sink(struct fx *f, store_layer parent)
{
	struct sink_opts o = {.store = f->s, .parent = parent, .diag = &f->diag};
	struct sink *k;
	int r;

	f->diag = (struct diag){0};
	r = sink_open(&o, &k);
	if (r < 0)
		tap_fatal("sink_open: %s", f->diag.text);
	return k;
}

static void put(struct sink *k, const char *path, mode_t mode, long mtime)
{
	struct sink_entry e = {.path = path, .st = {.st_mode = mode, .st_mtim.tv_sec = mtime}};
	store_ino ino;

	if (sink_put(k, &e, &ino) < 0 || sink_attr(k, ino, &e, 0) < 0)
		tap_fatal("put %s", path);
}

static store_layer finish(struct fx *f, struct sink *k)
{
	store_layer l;

	if (sink_finish(k, &l) < 0)
		tap_fatal("finish: %s", f->diag.text);
	return l;
}

static time_t time_of(struct fx *f, store_layer l, const char *path)
{
	struct ovl_attr a = {0};

	return fx_mode(f, l, path, &a) ? a.st.st_mtim.tv_sec : -1;
}

/* d is of time 5, and e/f came without its directory. */
static store_layer below(struct fx *f)
{
	struct sink *k = open_sink(f, 0);

	put(k, "d", S_IFDIR | 0755, 5);
	put(k, "d/one", S_IFREG | 0644, 6);
	put(k, "d/two", S_IFREG | 0644, 6);
	put(k, "e/f", S_IFREG | 0644, 7);
	put(k, "deep/er/est", S_IFDIR | 0700, 8);
	put(k, "deep/er/est/x", S_IFREG | 0600, 9);
	return finish(f, k);
}

static void times(struct fx *f, store_layer l)
{
	struct sink *k = open_sink(f, l);
	store_layer up;

	eq_int(time_of(f, l, "/d"), 5, "a directory's time");
	eq_int(time_of(f, l, "/e"), 0, "of one that nobody named");
	put(k, "d/three", S_IFREG | 0644, 10);
	up = finish(f, k);
	eq_int(time_of(f, up, "/d"), 5, "a layer that says nothing of it leaves its time");
	ok(fx_mode(f, up, "/d/one", NULL) && fx_mode(f, up, "/d/three", NULL), "old and new names");
}

static void whiteouts(struct fx *f, store_layer l)
{
	struct sink *k = open_sink(f, l);
	store_layer up;

	put(k, "d/new", S_IFREG | 0644, 1);
	eq_int(sink_whiteout(k, "d", true), 0, "an opaque directory");
	put(k, "d/newer", S_IFREG | 0644, 1);
	put(k, "deep/er", S_IFDIR | 0711, 2);
	eq_int(sink_whiteout(k, "deep/er", false), 0, "of what this layer names itself");
	eq_int(sink_whiteout(k, "e", false), 0, "of a directory");
	eq_int(sink_whiteout(k, "no/thing", false), 0, "of nothing");
	eq_int(sink_whiteout(k, "../x", false), -EBADMSG, "of what is above");
	up = finish(f, k);
	ok(!fx_mode(f, up, "/d/one", NULL) && !fx_mode(f, up, "/d/two", NULL),
	   "hides what is below");
	ok(fx_mode(f, up, "/d/new", NULL) && fx_mode(f, up, "/d/newer", NULL),
	   "but not what this layer brings, whatever came first");
	ok(!fx_mode(f, up, "/e", NULL), "a directory with what is in it");
	ok(fx_mode(f, up, "/deep/er", NULL) == (S_IFDIR | 0711) &&
		   !fx_mode(f, up, "/deep/er/est", NULL),
	   "one that is named again is empty");
	ok(fx_mode(f, l, "/d/one", NULL) && fx_mode(f, l, "/e/f", NULL),
	   "the layer below is what it was");
}

static void put_link(struct sink *k, const char *path, const char *to)
{
	struct sink_entry e = {.path = path, .st = {.st_mode = S_IFREG}, .hardlink = to};
	store_ino ino;

	if (sink_put(k, &e, &ino) < 0)
		tap_fatal("link %s", path);
}

/* A link to what a layer below has is this layer's, whenever its directory is said to be opaque. */
static void linked(struct fx *f, store_layer l)
{
	struct sink *k = open_sink(f, l);
	struct ovl_attr a;
	store_layer up;

	put_link(k, "d/link", "e/f");
	put_link(k, "d/two", "d/two");
	put(k, "d/sub/dir", S_IFDIR | 0755, 1);
	put_link(k, "d/sub/dir/link", "e/f");
	put_link(k, "deep/link", "e/f");
	eq_int(sink_whiteout(k, "d", true), 0, "a directory with a link, then opaque");
	eq_int(sink_whiteout(k, "deep/link", false), 0, "a whiteout of what this layer links");
	eq_int(sink_whiteout(k, "e/f", false), 0, "and of what it links to");
	up = finish(f, k);
	ok(fx_mode(f, up, "/d/link", &a) && a.st.st_nlink == 3 && a.st.st_mtim.tv_sec == 7,
	   "the link is there");
	ok(fx_mode(f, up, "/d/sub/dir/link", NULL) && fx_mode(f, up, "/deep/link", NULL),
	   "and the others");
	ok(fx_mode(f, up, "/d/two", NULL) && !fx_mode(f, up, "/d/one", NULL),
	   "one that was there is told again");
	ok(!fx_mode(f, up, "/e/f", NULL), "what it was linked to is hidden");
}

static void collect(struct fx *f)
{
	struct store_gc_result res;

	if (store_gc(f->s, &(struct store_gc_opts){0}, &f->diag, &res) < 0)
		tap_fatal("gc: %s", f->diag.text);
}

/* As if the import had begun two days ago. */
static void age(struct fx *f, store_layer l)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_layer_rec rec;
	int r = store_tx_begin(f->s, &t);

	if (r == 0)
		r = store_layer_read(f->s, t, l, &rec);
	rec.created.tv_sec -= 2 * 86400;
	if (r < 0 || store_layer_write(f->s, t, l, &rec) < 0 || store_tx_commit(f->s, &t) < 0)
		tap_fatal("age");
}

static void slow(struct fx *f)
{
	int pin = -1;
	struct sink_opts o = {.store = f->s, .diag = &f->diag, .ret_pin = &pin};
	struct store_layer_info li;
	struct sink *k;
	store_layer l;

	if (sink_open(&o, &k) < 0)
		tap_fatal("sink_open: %s", f->diag.text);
	put(k, "a", S_IFREG | 0644, 1);
	age(f, k->layer);
	collect(f);
	put(k, "b", S_IFREG | 0644, 1);
	l = finish(f, k);
	collect(f);
	ok(fx_mode(f, l, "/a", NULL) && fx_mode(f, l, "/b", NULL),
	   "a tree that takes days is not collected, while it is filled and until it has a name");
	(void)close(pin);
	collect(f);
	ok(store_layer_get(f->s, l, &li) == -ENOENT || li.state == STORE_LAYER_DROPPED,
	   "when nobody has it any more it is");
}

static void replaced(struct fx *f, store_layer l)
{
	struct sink *k = open_sink(f, l);
	store_layer up;

	put(k, "deep", S_IFREG | 0644, 1);
	put(k, "d/one", S_IFDIR | 0755, 1);
	put(k, "d/one/x", S_IFIFO | 0600, 1);
	up = finish(f, k);
	ok(S_ISREG(fx_mode(f, up, "/deep", NULL)), "a file in the place of a tree");
	ok(S_ISFIFO(fx_mode(f, up, "/d/one/x", NULL)), "a directory in the place of a file");
}

static void lists(struct fx *f)
{
	/* default: user::rwx, user:7:rwx, group::---, mask::rwx, other::--- */
	static const uint8_t acl[] = {
		2, 0, 0,    0,    1,    0,    7,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    7,
		0, 7, 0,    0,    0,    4,    0,    0, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
		7, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff};
	struct sink_entry e = {.path = "d", .st = {.st_mode = S_IFDIR | 02770}};
	struct sink *k = open_sink(f, 0);
	struct ovl_opts oo = {.store = f->s, .flags = OVL_RDONLY};
	struct ovl_entry x;
	struct ovl *o;
	store_ino ino;

	eq_int(sink_put(k, &e, &ino), 0, "a directory");
	eq_int(sink_attr(k, ino, &e, 0), 0, "its attributes");
	eq_int(sink_xattr(k, ino, ACL_DEFAULT_NAME, acl, sizeof(acl)), 0, "its default list");
	eq_int(sink_xattr(k, ino, "nonsense", "x", 1), 0, "an attribute of no kind is left out");
	put(k, "d/f", S_IFREG | 0640, 1);
	put(k, "d/made/on/the/way", S_IFREG | 0640, 1);
	oo.layer = finish(f, k);
	if (ovl_open(&oo, &o) < 0 || ovl_walk(o, "/d/f", &x) < 0)
		tap_fatal("open");
	ok(x.attr.st.st_mode == (S_IFREG | 0640) && ovl_listxattr(o, x.ino, NULL, 0) == 0,
	   "a file has the mode and the lists that its entry gives");
	ovl_forget(o, x.ino, 1);
	if (ovl_walk(o, "/d/made", &x) < 0)
		tap_fatal("walk");
	ok(x.attr.st.st_mode == (S_IFDIR | 0755) && x.attr.st.st_gid == 0 &&
		   ovl_listxattr(o, x.ino, NULL, 0) == 0,
	   "so has a directory that was missing");
	ovl_forget(o, x.ino, 1);
	if (ovl_walk(o, "/d", &x) < 0)
		tap_fatal("walk");
	eq_int(ovl_listxattr(o, x.ino, NULL, 0), sizeof(ACL_DEFAULT_NAME), "one attribute");
	ovl_forget(o, x.ino, 1);
	(void)ovl_close(o);
}

static void deep(struct fx *f)
{
	enum {
		DEPTH = 3000
	};
	struct sink *k = open_sink(f, 0);
	char *path = calloc(2, DEPTH + 1);
	store_layer l;

	for (int i = 0; path && i < DEPTH; i++)
		(void)memcpy(path + 2 * (size_t)i, i + 1 < DEPTH ? "a/" : "a", 2);
	put(k, path, S_IFREG | 0644, 1);
	put(k, "a", S_IFREG | 0644, 1);
	l = finish(f, k);
	ok(S_ISREG(fx_mode(f, l, "/a", NULL)), "a tree of great depth is replaced");
	free(path);
}

int main(void)
{
	struct fx f;
	store_layer l;

	fx_open(&f);
	l = below(&f);
	times(&f, l);
	whiteouts(&f, l);
	linked(&f, l);
	slow(&f);
	replaced(&f, l);
	lists(&f);
	deep(&f);
	fx_close(&f);
	return tap_done();
}
