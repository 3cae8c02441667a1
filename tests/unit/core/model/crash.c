/* The process dies, and another one goes on over the same journal. */
#include "fs/core/journal.h"
#include "store/synclog.h"
#include "tests/unit/core/model/model.h"

void journal_map(struct model *m, int fd)
{
	journal_close(m->f.opts.journal);
	m->f.opts.journal = NULL;
	if (m->journal_fd >= 0 && m->journal_fd != fd)
		(void)close(m->journal_fd);
	m->journal_fd = fd;
	if (fd >= 0 && journal_open(fd, &m->f.opts.journal) < 0)
		tap_fatal("journal_open");
}

void journal_make(struct model *m)
{
	int fd;

	if (journal_create(&fd) < 0)
		tap_fatal("journal_create");
	journal_map(m, fd);
}

void log_map(struct model *m, bool there)
{
	store_log_close(m->f.opts.log);
	m->f.opts.log = NULL;
	if (there && store_log_open(m->f.s, "model", &m->f.opts.log) < 0)
		tap_fatal("store_log_open");
}

/* Something that the last flush has is changed some times, and removed. */
static void end_one(struct model *m)
{
	char p[PATH_MAX];

	pick_there(m, S_IFREG, p);
	for (unsigned i = 0; i < 4; i++) {
		changes_before(m);
		/* Or what the one before it said would be taken for what this one does. */
		snprintf(m->last, sizeof(m->last), "%s", p);
		if (i < 3)
			op_file(m, p);
		else
			op_remove(m, p);
	}
}

/* With the journal as it is, or as it was before a flush that nobody heard of. Open files stay open. */
void op_crash(struct model *m)
{
	int fd = m->journal_fd, copy = -1;

	if (fd < 0)
		return;
	if (rnd(m, 2))
		end_one(m);
	/* Whoever comes next does not know our counts: references go back all at once, as the kernel's do. */
	close_twins(m);
	if (rnd(m, 3) == 0)
		copy = fx_journal_copy(fd);
	if (copy >= 0) {
		say(m, "crash after a flush");
		fd = copy;
		if (ovl_flush(m->f.o) < 0)
			bad(m, "flush");
	} else {
		say(m, "crash");
	}
	ovl_abandon(m->f.o);
	journal_map(m, fd);
	m->f.opts.flags = OVL_RESUME;
	fx_mount(&m->f);
	m->f.opts.flags = 0;
	agree(m, "crash", 0, 0);
	if (rnd(m, 4) == 0)
		compare_tree(m);
}

/* All that was in memory is gone after a sync: the journal as well, and files without a name. */
void op_power(struct model *m)
{
	char p[PATH_MAX];
	uint32_t n = rnd(m, 5);

	if (m->journal_fd < 0)
		return;
	/* A log can be written from a flush on: mostly there was one since the tree was opened. */
	if (rnd(m, 2) && ovl_flush(m->f.o) < 0)
		bad(m, "flush");
	for (uint32_t i = 0; i < n; i++) {
		if (rnd(m, 2)) {
			end_one(m);
		} else {
			changes_before(m);
			pick_path(m, p);
			op_rename(m, p);
		}
		if (ovl_sync(m->f.o) < 0)
			bad(m, "sync");
	}
	close_all(m);
	say(m, "loss of power after a sync");
	if (ovl_sync(m->f.o) < 0)
		bad(m, "sync");
	ovl_abandon(m->f.o);
	journal_make(m);
	log_map(m, true);
	fx_mount(&m->f);
	agree(m, "loss of power", 0, 0);
	compare_tree(m);
}
