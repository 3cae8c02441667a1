/* Imports: names, ids, what fails leaves nothing, and what the collector takes away. */
#include "fixture.h"

struct counting {
	unsigned bases, refs;
};

static int count_base(void *arg, const struct image_base *b)
{
	struct counting *c = arg;

	(void)b;
	c->bases++;
	return 0;
}

static int count_ref(void *arg, const char *name, store_layer layer)
{
	struct counting *c = arg;

	(void)name;
	(void)layer;
	c->refs++;
	return 0;
}

static struct counting counts(struct fx *f)
{
	struct counting c = {0};

	if (image_bases(f->s, count_base, &c) < 0 || store_refs(f->s, count_ref, &c) < 0)
		tap_fatal("list");
	return c;
}

static void small_tar(struct fx *f, const char *file, const char *text)
{
	struct tarball t;

	tar_begin(&t, fx_path(f, file));
	tar_add(&t, "d", S_IFDIR | 0750, NULL, NULL);
	tar_add(&t, "d/f", S_IFREG | 04711, text, NULL);
	tar_add(&t, "l", S_IFLNK | 0777, NULL, "d/f");
	tar_add(&t, "again", S_IFREG | 0644, NULL, "d/f");
	tar_end(&t);
}

static void names(struct fx *f)
{
	struct image_done a, b, c;
	struct ovl_attr at;

	small_tar(f, "a.tar", "text");
	small_tar(f, "b.tar", "test");
	eq_int(fx_import(f, "a.tar", "a", &a), 0, "an import: %s", f->diag.text);
	eq_int(a.entries, 4, "entries");
	ok(fx_mode(f, a.layer, "/d/f", &at) == (S_IFREG | 04711), "mode");
	ok(at.st.st_nlink == 2 && at.st.st_size == 4 && at.st.st_mtim.tv_sec == 1000 &&
		   at.st.st_mtim.tv_nsec == 5,
	   "links, size, time");
	ok(fx_mode(f, a.layer, "/d", &at) == (S_IFDIR | 0750) && at.st.st_mtim.tv_sec == 1000,
	   "a directory's time is what it was before names came into it");
	ok(fx_mode(f, a.layer, "/", &at) == (S_IFDIR | 0755) && at.st.st_mtim.tv_sec == 0,
	   "a root that nobody gave");
	eq_int(fx_import(f, "b.tar", "a", &b), -EEXIST, "a name that is taken");
	eq_int(fx_import(f, "b.tar", "b", &b), 0, "another");
	ok(memcmp(&a.id, &b.id, sizeof(a.id)) != 0, "other content, another id");
	eq_int(fx_import(f, "a.tar", "c", &c), 0, "the same again");
	ok(!memcmp(&a.id, &c.id, sizeof(a.id)) && a.layer == c.layer, "is the same");
	eq_int(counts(f).bases, 3, "names");
}

static void failures(struct fx *f)
{
	static const struct {
		const char *path, *link;
		mode_t mode;
	} bad[] = {
		{"../x", NULL, S_IFREG},   {"d/../../x", NULL, S_IFREG},
		{"link/x", NULL, S_IFREG}, {"h", "/etc/passwd", S_IFREG},
		{"h", "../x", S_IFREG},    {"h", "d", S_IFREG},
		{"f/x", NULL, S_IFREG},    {"h", "link/x", S_IFREG},
	};
	struct counting before = counts(f);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct image_done done;
		struct tarball t;

		tar_begin(&t, fx_path(f, "bad.tar"));
		tar_add(&t, "d", S_IFDIR | 0755, NULL, NULL);
		tar_add(&t, "f", S_IFREG | 0644, "f", NULL);
		tar_add(&t, "link", S_IFLNK | 0777, NULL, "/tmp");
		tar_add(&t, bad[i].path, bad[i].mode | 0644, bad[i].link ? NULL : "x", bad[i].link);
		tar_end(&t);
		eq_int(fx_import(f, "bad.tar", "bad", &done), -EBADMSG, "%s %s: %s", bad[i].path,
		       bad[i].link ? bad[i].link : "", f->diag.text);
	}
	ok(counts(f).refs == before.refs, "none left a name");
}

/* Each byte of a small archive is changed: it is refused, or imported, and the store stays whole. */
static void flips(struct fx *f)
{
	struct image_done done;
	unsigned refused = 0, taken = 0;
	FILE *in = fopen(fx_path(f, "a.tar"), "re");
	unsigned char bytes[20480];
	size_t n = in ? fread(bytes, 1, sizeof(bytes), in) : 0;

	if (in)
		(void)fclose(in);
	if (!n)
		tap_fatal("a.tar");
	for (size_t at = 0; at < n && at < 4096; at += 31) {
		FILE *out = fopen(fx_path(f, "flip.tar"), "we");
		int r;

		bytes[at] ^= 0x21;
		if (!out || fwrite(bytes, 1, n, out) != n || fclose(out))
			tap_fatal("flip.tar");
		bytes[at] ^= 0x21;
		r = fx_import(f, "flip.tar", "flip", &done);
		taken += r == 0;
		refused += r < 0;
		if (r == 0 && store_base_remove(f->s, "flip") < 0)
			tap_fatal("remove");
	}
	ok(refused > 0, "%u refused, %u taken", refused, taken);
}

static void collected(struct fx *f)
{
	struct store_gc_opts o = {0};
	struct store_gc_result g;
	struct store_stats st;
	int r;

	eq_int(store_base_remove(f->s, "none"), -ENOENT, "a base that is not there");
	eq_int(store_base_remove(f->s, "a"), 0, "one name of two");
	eq_int(store_base_remove(f->s, "b"), 0, "the only name");
	eq_int(store_base_remove(f->s, "c"), 0, "the other of two");
	eq_int(counts(f).refs, 0, "no name is left");
	r = store_gc(f->s, &o, &f->diag, &g);
	if (r == 0)
		r = store_gc(f->s, &o, &f->diag, &g);
	eq_int(r, 0, "gc: %s", f->diag.text);
	eq_int(store_stats(f->s, &st), 0, "stats");
	eq_int(st.commits, 0, "the commits of bases went with them");
}

int main(void)
{
	struct fx f;

	fx_open(&f);
	names(&f);
	failures(&f);
	flips(&f);
	collected(&f);
	fx_close(&f);
	return tap_done();
}
