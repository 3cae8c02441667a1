/*
 * What a process that goes on over the journal of a dead one has to know of who is in the middle of something
 * (test_core_model crashes at random as well).
 */
#include "fs/core/journal.h"
#include "tests/unit/core/ovl_fixture.h"

#define NAMES 40

struct listed {
	unsigned seen[NAMES], room;
	uint64_t last;
};

static int see(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct listed *l = arg;

	(void)e;
	if (l->room == 0)
		return 1;
	l->room--;
	l->last = cookie;
	if (name[0] == 'n')
		l->seen[strtoul(name + 1, NULL, 10)]++;
	return 0;
}

static void list(struct fx *f, store_ino dir, unsigned room, struct listed *l)
{
	l->room = room;
	if (ovl_readdir(f->o, dir, l->last, false, see, l) < 0)
		tap_fatal("readdir");
}

static void names(struct fx *f, const char *dir, bool make)
{
	char path[32];

	for (unsigned i = 0; i < NAMES; i++) {
		(void)snprintf(path, sizeof(path), "%s/n%u", dir, i);
		if ((make ? fx_make(f, path, FX_FILE, 0600) : fx_remove(f, path, false)) < 0)
			tap_fatal("%s", path);
	}
}

static void crash(struct fx *f, int journal)
{
	ovl_abandon(f->o);
	journal_close(f->opts.journal);
	if (journal_open(journal, &f->opts.journal) < 0)
		tap_fatal("journal_open");
	f->opts.flags = OVL_RESUME;
	fx_mount(f);
}

static bool once(const struct listed *l)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (l->seen[i] != 1)
			return false;
	return true;
}

/* Half of it was listed, then the process died. */
static void test_listing(struct fx *f, int journal)
{
	struct listed l = {0};
	struct ovl_entry d;

	if (fx_make(f, "d", FX_DIR, 0700) < 0 || fx_get(f, "d", &d) < 0)
		tap_fatal("d");
	names(f, "d", true);
	list(f, d.ino, NAMES / 2, &l);
	crash(f, journal);
	list(f, d.ino, 2 * NAMES, &l);
	ok(once(&l), "a listing goes on in another process");

	/* The names went and came again, and stand where they came last. */
	names(f, "d", false);
	names(f, "d", true);
	l = (struct listed){0};
	list(f, d.ino, NAMES / 2, &l);
	crash(f, journal);
	list(f, d.ino, 2 * NAMES, &l);
	ok(once(&l), "also of names that were listed before, went, and came again");
	ovl_forget(f->o, d.ino, 1);
}

/* All of it was taken, and not all of it used. */
static void test_taken(struct fx *f, int journal)
{
	struct listed l = {0};
	struct ovl_entry e;

	if (fx_make(f, "e", FX_DIR, 0700) < 0 || fx_get(f, "e", &e) < 0)
		tap_fatal("e");
	list(f, e.ino, 2 * NAMES, &l);
	for (unsigned i = 0; i < 3; i++) {
		names(f, "e", true);
		if (i < 2)
			names(f, "e", false);
	}
	l = (struct listed){0};
	list(f, e.ino, 2 * NAMES, &l);
	ovl_keep_order(f->o, e.ino);
	crash(f, journal);
	l.last -= NAMES / 2;
	list(f, e.ino, 2 * NAMES, &l);
	for (unsigned i = NAMES / 2; i < NAMES; i++)
		l.seen[i]--;
	ok(once(&l), "what was given once is given again from the same place");
	ovl_forget(f->o, e.ino, 1);
}

/* The kernel gives back what it had of a dead process, and looks the file up anew; the second arrives first. */
static void test_overtaken(struct fx *f, int journal)
{
	struct ovl_entry e, again;
	struct ovl_attr a;

	if (fx_make(f, "overtaken", FX_FILE, 0600) < 0 || fx_get(f, "overtaken", &e) < 0)
		tap_fatal("overtaken");
	crash(f, journal);
	eq_int(fx_get(f, "overtaken", &again), 0, "found again");
	ok(again.ino == e.ino, "the same inode");
	eq_int(fx_remove(f, "overtaken", false), 0, "its name goes");
	ovl_forget(f->o, e.ino, 4);
	eq_int(ovl_getattr(f->o, e.ino, &a), 0, "who looked it up has it, whatever was given back");
	ovl_forget(f->o, e.ino, 1);
	ok(ovl_getattr(f->o, e.ino, &a) < 0, "and gives it back himself");
}

/* A flush saw the end of a file and the process died before it could cut the journal, which still says all that was
 * done to the file, over a store that does not have it any more. */
static void test_ended(struct fx *f)
{
	int journal, before;

	if (journal_create(&journal) < 0 || journal_open(journal, &f->opts.journal) < 0)
		tap_fatal("journal");
	f->opts.flags = 0;
	f->opts.flush_ms = 1u << 30;
	fx_mount(f);
	if (fx_make(f, "x", FX_FILE, 0600) < 0 || fx_write(f, "x", 0, "old", 3) != 3 ||
	    fx_make(f, "stays", FX_FILE, 0600) < 0 || ovl_flush(f->o) < 0)
		tap_fatal("x");
	/* A block, the inode, a part of the block; the end. */
	if (fx_write(f, "x", 0, "a new block", 11) != 11 || fx_write(f, "x", 11, "more", 4) != 4 ||
	    fx_remove(f, "x", false) < 0 || fx_write(f, "stays", 0, "there", 5) != 5)
		tap_fatal("changes");
	before = fx_journal_copy(journal);
	if (before < 0 || ovl_flush(f->o) < 0)
		tap_fatal("flush");
	crash(f, before);
	ok(f->o != NULL, "a journal goes on over a flush that saw the end of what it speaks of");
	ok(fx_get(f, "x", &(struct ovl_entry){0}) == -ENOENT, "which is not there again");
	ok(fx_read(f, "stays", 0, (char[8]){0}, 8) == 5, "the rest is");
	ok(ovl_flush(f->o) == 0, "and flushed");
	fx_umount(f);
	journal_close(f->opts.journal);
	f->opts.journal = NULL;
	(void)close(before);
	(void)close(journal);
}

int main(void)
{
	int journal;
	struct fx f;

	fx_open(&f);
	if (journal_create(&journal) < 0 || journal_open(journal, &f.opts.journal) < 0)
		tap_fatal("journal");
	fx_mount(&f);
	test_listing(&f, journal);
	test_taken(&f, journal);
	test_overtaken(&f, journal);
	fx_umount(&f);
	journal_close(f.opts.journal);
	(void)close(journal);
	test_ended(&f);
	fx_close(&f);
	return tap_done();
}
