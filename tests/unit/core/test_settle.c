/* Attributes that a caller with a count of links of its own must not take over: ovl_unsettled, ovl_settled. */
#include <linux/fs.h>

#include "tests/unit/core/ovl_fixture.h"

static uint32_t unsettled(struct fx *f, store_ino ino)
{
	struct ovl_attr a;

	if (ovl_getattr(f->o, ino, &a) < 0)
		tap_fatal("getattr");
	return a.unsettled;
}

struct listed {
	store_ino ino, number;
	bool seen;
};

static int one(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct listed *l = arg;

	(void)cookie;
	if (!strcmp(name, "b"))
		*l = (struct listed){e->ino, e->attr.st.st_ino, true};
	return 0;
}

/* Does a listing offer the attributes of "b", and with which number does it show the name? */
static struct listed list(struct fx *f)
{
	struct listed l = {0};

	if (ovl_readdir(f->o, STORE_ROOT_INO, 0, true, one, &l) < 0)
		tap_fatal("readdir");
	if (l.ino)
		ovl_forget(f->o, l.ino, 1);
	return l;
}

static void test_removal(struct fx *f)
{
	struct ovl_entry dir, e;
	uint32_t first = 0, which = 0;

	if (fx_make(f, "d", FX_DIR, 0755) < 0 || fx_make(f, "a", FX_FILE, 0644) < 0 ||
	    fx_get(f, "d", &dir) < 0 || fx_get(f, "a", &e) < 0)
		tap_fatal("make");
	eq_int(fx_link(f, "a", "b"), 0, "a second name");
	eq_int(fx_link(f, "a", "d/c"), 0, "a third");
	eq_int(unsettled(f, e.ino), 0, "links are nothing to wait for");
	eq_int(ovl_unsettled(f->o, e.ino, &which), 0, "nobody has to");
	eq_int(fx_remove(f, "d/c", false), 0, "the third is removed");
	ok(unsettled(f, e.ino), "that is to be counted");
	ok(list(f).seen && !list(f).ino, "a listing does not offer the attributes");
	eq_int(list(f).number, e.ino, "but the number");
	eq_int(ovl_unsettled(f->o, e.ino, &first), dir.ino, "it was in the directory");
	eq_int(ovl_unsettled(f->o, e.ino, &which), 0, "which one caller is told");
	eq_int(fx_rename(f, "d", "e", 0), 0, "a rename in between");
	eq_int(fx_make(f, "x", FX_FILE, 0644), 0, "a file");
	eq_int(fx_rename(f, "x", "a", 0), 0, "replaces the first");
	eq_int(ovl_unsettled(f->o, e.ino, &which), STORE_ROOT_INO, "that is another to wait for");
	ovl_settled(f->o, e.ino, first);
	ok(unsettled(f, e.ino), "by itself");
	ovl_settled(f->o, e.ino, which);
	eq_int(unsettled(f, e.ino), 0, "then all is counted");
	eq_int(list(f).ino, e.ino, "and offered");
	eq_int(fx_remove(f, "b", false), 0, "the last name");
	eq_int(unsettled(f, e.ino), 0, "is not waited for: none is left to lose");
	ovl_forget(f->o, e.ino, 1);
	ovl_forget(f->o, dir.ino, 1);
}

/* Whoever changes names of a directory waits for who did so before him, and a removal is counted by then. */
static void test_next_change(struct fx *f)
{
	struct ovl_entry e;

	if (fx_make(f, "n", FX_DIR, 0755) < 0 || fx_make(f, "m", FX_FILE, 0644) < 0 ||
	    fx_make(f, "n/k", FX_FILE, 0644) < 0 || fx_get(f, "m", &e) < 0)
		tap_fatal("make");
	for (int i = 0; i < 4; i++) {
		eq_int(fx_link(f, "m", "n/t"), 0, "a second name");
		eq_int(fx_remove(f, "n/t", false), 0, "is removed");
		eq_int(fx_link(f, "m", "o"), 0, "a link elsewhere");
		eq_int(fx_make(f, i & 1 ? "n/x" : "n/y", FX_FILE, 0644), 0, "a new file there");
		ok(unsettled(f, e.ino), "say nothing");
		if (i == 0)
			eq_int(fx_link(f, "n/k", "n/l"), 0, "a link there");
		else if (i == 1)
			eq_int(fx_remove(f, "n/l", false), 0, "a removal there");
		else if (i == 2)
			eq_int(fx_rename(f, "n/k", "n/z", 0), 0, "a rename there");
		else
			eq_int(fx_rename(f, "n/z", "z", 0), 0, "a rename out of it");
		eq_int(unsettled(f, e.ino), 0, "says that it was counted");
		eq_int(fx_remove(f, "o", false), 0, "the link goes");
		ok(unsettled(f, e.ino), "which is another to be counted");
		if (i < 2)
			eq_int(fx_remove(f, i ? "n/x" : "n/y", false), 0, "again");
	}
	ovl_forget(f->o, e.ino, 1);
}

static void test_moved(struct fx *f)
{
	store_ino moved[2] = {7, 7};
	struct ovl_entry a, b;

	if (fx_make(f, "p", FX_FILE, 0644) < 0 || fx_make(f, "q", FX_FILE, 0644) < 0 ||
	    fx_get(f, "p", &a) < 0 || fx_get(f, "q", &b) < 0)
		tap_fatal("make");
	eq_int(ovl_rename_told(f->o, 1, "p", 1, "q", RENAME_EXCHANGE, NULL, moved), 0, "exchange");
	ok(moved[0] == a.ino && moved[1] == b.ino, "moves both");
	eq_int(ovl_rename_told(f->o, 1, "p", 1, "q", 0, NULL, moved), 0, "rename");
	ok(moved[0] == b.ino && !moved[1], "moves one");
	ovl_forget(f->o, a.ino, 1);
	ovl_forget(f->o, b.ino, 1);
}

int main(void)
{
	struct fx f;

	fx_open(&f);
	fx_mount(&f);
	test_removal(&f);
	test_next_change(&f);
	test_moved(&f);
	fx_close(&f);
	return tap_done();
}
