/*
 * The model: a tree and a plain directory that must stay equal (model/model.h), first alone, then over a host
 * directory that changes. test_core_model [seed [steps [0 plain, 1 host]]]
 *
 * RATTAN_MODEL_SEED and RATTAN_MODEL_STEPS say it instead; with RATTAN_LONG two million steps are made, in walks of
 * WALK_STEPS, from a seed that is another each time. A failure prints its seed and is made short.
 *
 * The first walk of each kind, and two of each sixteen, work on TMPDIR's disk, the others in memory: there a walk
 * spends most of its time waiting for syncs that nothing here looks at.
 */
#include <linux/fs.h>
#include <sys/xattr.h>
#include <time.h>

#include "tests/lib/sanitizer.h"
#include "tests/unit/core/model/model.h"

#define WALK_STEPS 20000
#define DISK_EACH  16

static void pick(struct model *m, uint32_t k, char p[static PATH_MAX])
{
	if (k < 300 && k % 4)
		pick_new(m, p);
	else if (k >= 580 && k < 770 && k % 8)
		pick_there(m, S_IFREG, p);
	else if (k >= 830 && k < 845)
		pick_there(m, S_IFDIR, p);
	else if (k >= 400 && k % 2)
		pick_there(m, 0, p);
	else
		pick_path(m, p);
}

static void step(struct model *m)
{
	uint32_t k = rnd(m, 1000);
	char p[PATH_MAX];

	changes_before(m);
	pick(m, k, p);
	snprintf(m->last, sizeof(m->last), "%s", p);
	if (k < 150)
		op_create(m, p);
	else if (k < 260)
		op_mkdir(m, p);
	else if (k < 300)
		op_symlink(m, p);
	else if (k < 308)
		op_rmtree(m, p);
	else if (k < 400)
		op_remove(m, p);
	else if (k < 520)
		op_rename(m, p);
	else if (k < 580)
		op_link(m, p);
	else if (k < 770)
		op_file(m, p);
	else if (k < 830)
		op_opened(m);
	else if (k < 845)
		op_tmpfile(m, p);
	else if (k < 890)
		op_chmod(m, p);
	else if (k < 920)
		op_utimens(m, p);
	else if (k < 963)
		op_xattr(m, p);
	else if (k < 970)
		op_below(m);
	else if (k < 975 && ovl_flush(m->f.o) < 0)
		bad(m, "flush");
	else if (k >= 975 && k < 980 && ovl_sync(m->f.o) < 0)
		bad(m, "sync");
	else if (k >= 980 && k < 982)
		op_collect(m);
	else if (k >= 982 && k < 984)
		compare_tree(m);
	else if (k >= 984 && k < 987)
		op_crash(m);
	else if (k == 987)
		op_power(m);
	else if (k >= 988 && k < 992)
		op_commit(m);
	else if (k >= 992 && k < 996)
		op_reopen(m);
	else if (k >= 996)
		op_rollback(m, k < 998);
}

/* What the file system of the plain directory can do. */
static void probe(struct model *m)
{
	struct stat st;
	int fd;

	if (mkdirat(m->dirfd, "p", 0700) < 0 || mkdirat(m->dirfd, "q", 0700) < 0 ||
	    fstatat(m->dirfd, ".", &st, 0) < 0)
		tap_fatal("cannot use the scratch directory");
	m->subdirs_counted = st.st_nlink >= 4;
	m->exchange = renameat2(m->dirfd, "p", m->dirfd, "q", RENAME_EXCHANGE) == 0;
	m->xattrs = fsetxattr(m->dirfd, "user.probe", "", 0, 0) == 0;
	(void)fremovexattr(m->dirfd, "user.probe");
	(void)unlinkat(m->dirfd, "p", AT_REMOVEDIR);
	(void)unlinkat(m->dirfd, "q", AT_REMOVEDIR);
	fd = openat(m->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	m->tmpfiles = fd >= 0;
	if (fd >= 0)
		(void)close(fd);
	printf("# subdirectories counted %d, exchange %d, xattrs %d, O_TMPFILE %d\n",
	       m->subdirs_counted, m->exchange, m->xattrs, m->tmpfiles);
}

static void begin(struct model *m, const struct run *r)
{
	char dir[PATH_MAX];

	m->seed = r->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	m->dirfd = -1;
	m->verbose = r->verbose;
	rnd_step(m, 0);
	fx_open(&m->f);
	m->f.opts.dirty_max = 4 << 20;
	m->f.opts.flush_ms = 20 + rnd(m, 200);
	m->journal_fd = -1;
	if (rnd(m, 8))
		journal_make(m);
	log_map(m, true);
	fx_path(&m->f, "work", dir);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	model_open(m, dir);
	probe(m);
	fx_mount(&m->f);
	if (r->host)
		below_make(m);
}

static void end(struct model *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(m->ops) && m->ops[i].name; i++)
		printf("# %s: %u done, %u refused\n", m->ops[i].name, m->ops[i].n[1],
		       m->ops[i].n[0]);
	for (size_t i = m->ntrace > TRACE_MAX ? m->ntrace - TRACE_MAX : 0;
	     m->failed && !m->verbose && i < m->ntrace; i++)
		printf("#   %s\n", m->trace[i % TRACE_MAX]);
	close_all(m);
	(void)close(m->dirfd);
	fx_close(&m->f);
	journal_map(m, -1);
	log_map(m, false);
	free(m->pairs);
	free(m);
}

static int walk(const struct run *r)
{
	struct model *m = calloc(1, sizeof(*m));
	bool failed;

	if (!m)
		tap_fatal("memory");
	begin(m, r);
	for (uint64_t i = 1; i <= r->steps && m->failed == 0; i++) {
		if (r->keep && !r->keep[i])
			continue;
		m->step = i;
		run_at(i);
		rnd_step(m, i);
		step(m);
	}
	if (!m->failed)
		compare_tree(m);
	if (!m->failed)
		op_reopen(m);
	if (!m->failed && r->host)
		below_check(m);
	failed = m->failed;
	end(m);
	return failed;
}

static uint64_t number(const char *env, const char *arg, uint64_t otherwise)
{
	const char *s = getenv(env);

	s = s && *s ? s : arg;
	return s ? strtoull(s, NULL, 0) : otherwise;
}

/* For walk @i; @disk is what TMPDIR was, NULL: not set. True: in memory. */
static bool choose_place(unsigned i, const char *disk)
{
	if (i % DISK_EACH >= 2 && access("/dev/shm", W_OK) == 0)
		return setenv("TMPDIR", "/dev/shm", 1) == 0;
	if (disk)
		(void)setenv("TMPDIR", disk, 1);
	else
		(void)unsetenv("TMPDIR");
	return false;
}

int main(int argc, char **argv)
{
	bool far = getenv("RATTAN_LONG") != NULL, memory;
	const char *tmp = getenv("TMPDIR");
	char disk[PATH_MAX] = "";
	struct run r = {0};
	uint64_t seed, left, failed = 0;

	umask(0);
	/* What getenv returns is not for after setenv. */
	if (tmp)
		snprintf(disk, sizeof(disk), "%s", tmp);
	seed = number("RATTAN_MODEL_SEED", argc > 1 && !far ? argv[1] : NULL,
		      (uint64_t)time(NULL) % 1000000);
	left = number("RATTAN_MODEL_STEPS", argc > 2 ? argv[2] : NULL,
		      far          ? 2000000
		      : UNDER_TSAN ? 2000
				   : 4000);
	for (unsigned i = 0; left > 0 && !failed; i++) {
		r.host = argc > 3 ? strtol(argv[3], NULL, 10) : i % 2;
		r.seed = seed + i;
		r.steps = i == 0 ? (left + 1) / 2 : left;
		if (r.steps > WALK_STEPS)
			r.steps = WALK_STEPS;
		left -= r.steps;
		memory = choose_place(i, tmp ? disk : NULL);
		failed = run_apart(&r, walk, false);
		ok(!failed, "%s walk of %llu steps, seed %llu, %s", r.host ? "host" : "plain",
		   (unsigned long long)r.steps, (unsigned long long)r.seed,
		   memory ? "in memory" : "on disk");
	}
	if (failed)
		shrink(&r, failed, walk);
	return tap_done();
}
