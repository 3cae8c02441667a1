/*
 * Every allocation of the core and the store failing in turn, and every call of LMDB: for each
 * operation, and each call that it makes, one run in which that call fails. Nothing crashes or leaks;
 * the error is the right one and the tree is as if nothing had been asked, or the operation succeeds
 * and is complete; with memory again it succeeds, and a flush and a reopening show the same. With a
 * journal, a crash after it does, too: or the journal says that something is missing, until the next flush.
 * test_core_fail [PART-OF-AN-OPERATION'S-NAME [STEP]]: every STEP-th call, 1 is all of them; else every 32nd, with RATTAN_LONG every fourth
 */
#include "tests/lib/sanitizer.h"
#include "tests/unit/core/fail/fail.h"

/* ---- one operation, one failing call ---- */

static bool same(const char *got, const char *want, const char *what, const char *where)
{
	if (!strcmp(got, want))
		return true;
	printf("# %s, after %s failed:\n", what, where);
	for (const char *a = got, *b = want; *a || *b;) {
		size_t n = strcspn(a, "\n"), k = strcspn(b, "\n");

		if (n != k || memcmp(a, b, n) != 0) {
			printf("#   is     %.*s\n#   wanted %.*s\n", (int)n, a, (int)k, b);
			break;
		}
		a += n + (a[n] != 0);
		b += k + (b[k] != 0);
	}
	return false;
}

static int count_one(void *arg, const struct store_commit *c)
{
	(void)c;
	++*(unsigned *)arg;
	return 0;
}

/* What the store says must be what was reported. */
static bool commit_told(struct rig *g, const char *where)
{
	unsigned n = 0;

	must(store_commits(g->f.s, g->env.name, count_one, &n), "commits");
	if ((n > 0) == g->committed)
		return true;
	printf("# after %s failed: %u commits are there, %s was reported\n", where, n,
	       g->committed ? "one" : "none");
	return false;
}

static bool right_error(enum fail_what what, int err, int r)
{
	/* No memory for a thread is EAGAIN (pthread_create(3)). */
	if (what == FAIL_MEMORY)
		return r == -ENOMEM || (r == -EAGAIN && !strcmp(fail_where(), "pthread_create"));
	return r == -err;
}

/* The tree and what a crash at this moment leaves of it. */
static bool after_crash(struct rig *g, const char *where)
{
	cleanup_free char *before = rig_dump(g), *after = NULL;
	bool whole = journal_whole(g->f.opts.journal);
	int r;

	if (!whole) {
		r = ovl_flush(g->f.o);
		if (r < 0 || !journal_whole(g->f.opts.journal)) {
			printf("# after %s failed: a flush does not mend the journal: %s\n", where,
			       err_text(r));
			return false;
		}
	}
	r = rig_crash(g);
	if (r < 0) {
		printf("# after %s failed: going on after a crash: %s\n", where, err_text(r));
		return false;
	}
	after = rig_dump(g);
	return same(after, before, "after a crash", where);
}

static bool after_failure(struct rig *g, size_t i, const char *before, const char *after,
			  const char *where)
{
	cleanup_free char *t1 = NULL, *t2 = NULL, *t3 = NULL;
	bool good = true;
	int r;

	if (!fail_ops[i].in_parts) {
		t1 = rig_dump(g);
		good = same(t1, before, "an error that changed something", where);
	}
	if (g->journal_fd >= 0 && !after_crash(g, where))
		return false;
	r = fail_ops[i].run(g);
	if (r < 0 && !(r == -EEXIST && fail_ops[i].in_parts)) {
		printf("# after %s failed: the second try: %s\n", where, err_text(r));
		return false;
	}
	t2 = rig_dump(g);
	good = same(t2, after, "the second try", where) && good;
	r = ovl_flush(g->f.o);
	if (r < 0) {
		printf("# after %s failed: flush: %s\n", where, err_text(r));
		return false;
	}
	fx_umount(&g->f);
	fx_mount(&g->f);
	t3 = rig_dump(g);
	return same(t3, after, "opened again", where) && good;
}

static bool after_success(struct rig *g, const char *after, const char *where)
{
	cleanup_free char *text = rig_dump(g);

	return same(text, after, "a success that is not complete", where) &&
	       (g->journal_fd < 0 || after_crash(g, where));
}

/* False at the end of the walk: nothing failed any more. */
static bool one(struct rig *g, size_t i, enum fail_what what, long n, int err, const char *before,
		const char *after, unsigned *bad)
{
	bool good = true;
	long hits;
	int r;

	rig_prepare(g);
	fail_arm(what, n, err, false);
	r = fail_ops[i].run(g);
	hits = fail_disarm();
	/* It could not be opened. */
	if (!g->f.o && g->journal_fd >= 0 && fail_ops[i].resumes)
		must(rig_crash(g), "going on");
	else if (!g->f.o)
		fx_mount(&g->f);
	if (r < 0 && !right_error(what, err, r)) {
		printf("# %s failed (call %ld): %s\n", fail_where(), n, err_text(r));
		good = false;
	}
	good = commit_told(g, fail_where()) && good;
	good = (r < 0 ? after_failure(g, i, before, after, fail_where())
		      : after_success(g, after, fail_where())) &&
	       good;
	rig_drop(g);
	*bad += !good;
	return hits > 0;
}

static void walk(struct rig *g, size_t i, enum fail_what what, int err, long first, long step)
{
	cleanup_free char *before = NULL, *after = NULL;
	unsigned bad = 0;
	long n = first;

	rig_prepare(g);
	before = rig_dump(g);
	must(fail_ops[i].run(g), fail_ops[i].name);
	after = rig_dump(g);
	fx_umount(&g->f);
	for (; bad < 5 && one(g, i, what, n, err, before, after, &bad); n += step)
		;
	ok(bad == 0, "%s%s: %s", what == FAIL_MEMORY ? "no memory" : "LMDB fails",
	   g->journal_fd >= 0 ? ", with a journal" : "", fail_ops[i].name);
	printf("# up to call %ld\n", n);
}

static void walk_all(struct rig *g, const char *only, long step)
{
	for (size_t i = 0; i < fail_nops; i++) {
		if (only && !strstr(fail_ops[i].name, only))
			continue;
		walk(g, i, FAIL_MEMORY, ENOMEM, (long)i % step, step);
		walk(g, i, FAIL_LMDB, EIO, (long)(i + 3) % step, step);
	}
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 && *argv[1] ? argv[1] : NULL;
	/* TSan looks at the flusher and the housekeeper beside it, for which any calls will do, and takes ten times as long. */
	long step = argc > 2                ? strtol(argv[2], NULL, 10)
		    : UNDER_TSAN            ? 256
		    : getenv("RATTAN_LONG") ? 4
					    : 32;
	struct rig g;

	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	rig_open(&g);
	walk_all(&g, only, step);
	rig_journal(&g);
	walk_all(&g, only, step);
	journal_close(g.f.opts.journal);
	(void)close(g.journal_fd);
	fx_close(&g.f);
	return tap_done();
}
