/* The process dies, and another one goes on over the same journal. */
#include "fs/core/journal.h"
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

static void copy_all(int from, int to)
{
	off_t at = 0, end;

	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		end = lseek(from, at, SEEK_HOLE);
		while (at < end) {
			char buf[4096];
			ssize_t n = pread(from, buf, sizeof(buf), at);

			if (n <= 0 || pwrite(to, buf, (size_t)n, at) != n)
				tap_fatal("copy of the journal");
			at += n;
		}
	}
}

/* As it is at one moment: no flush may cut it or append to it meanwhile, which its head would show. -1: there
 * is no such moment. */
static int journal_copy(int from)
{
	for (int i = 0; i < 20; i++) {
		char before[4096], after[4096];
		int to;

		if (journal_create(&to) < 0)
			tap_fatal("journal_create");
		if (pread(from, before, sizeof(before), 0) != (ssize_t)sizeof(before))
			tap_fatal("journal head");
		copy_all(from, to);
		if (pread(from, after, sizeof(after), 0) != (ssize_t)sizeof(after))
			tap_fatal("journal head");
		if (memcmp(before, after, sizeof(before)) == 0)
			return to;
		(void)close(to);
	}
	return -1;
}

/* With the journal as it is, or as it was before a flush that nobody heard of. Open files stay open. */
void op_crash(struct model *m)
{
	int fd = m->journal_fd, copy = -1;

	if (fd < 0)
		return;
	/* Whoever comes next does not know our counts: references go back all at once, as the kernel's do. */
	close_twins(m);
	if (rnd(m, 3) == 0)
		copy = journal_copy(fd);
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
