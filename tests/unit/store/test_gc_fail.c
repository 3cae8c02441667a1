/*
 * store: a collector that fails in the middle: each call of LMDB and each allocation that it makes in turn, each write and
 * sync of the disk, once or from then on; or that is killed before any call of LMDB, and so between any two of its
 * transactions. Nothing that is named is lost, fsck is clean, and the next collection finishes.
 * test_store_gc_fail [STEP]: every STEP-th call; RATTAN_LONG: all of them.
 */
#include <lmdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "base/cleanup.h"
#include "store/fsck.h"
#include "store/store_internal.h"
#include "tests/power/fail.h"
#include "tests/power/record.h"
#include "tests/unit/store/gc_test.h"

/* ---- a store with garbage of every kind ---- */

struct file {
	store_layer layer;
	store_ino ino;
	uint64_t block, seed;
};

static struct {
	char dir[64];
	struct file live[32];
	uint64_t dead[64];   /* seeds */
	store_layer gone[8]; /* layers */
	const char *commits[8];
	size_t nlive, ndead, ngone, ncommits;
} t;

static const struct store_gc_opts opts = {
	.keep_moves = 1, .shrink = true, .pack = true, .removed = true};

/* A file at the root: a chunk in its record, or an extent. */
static int name_file(struct store *s, const struct file *f)
{
	char name[16];
	struct rec_inode rec = file_rec(f->block * STORE_BLOCK + gc_size(f->seed));
	struct store_extent x = {
		.block = f->block, .len = (uint32_t)gc_size(f->seed), .chunk = gc_digest(f->seed)};
	struct store_batch *b;
	int r = store_batch_begin(s, f->layer, &b);

	if (r < 0)
		return r;
	rec.parent = STORE_ROOT_INO;
	rec.name_len = (size_t)snprintf(name, sizeof(name), "f%u", (unsigned)f->ino);
	rec.name = name;
	rec.content = f->ino % 2 || f->block ? REC_EXTENTS : REC_CHUNK;
	if (rec.content == REC_CHUNK) {
		rec.chunk = x.chunk;
		rec.chunk_len = x.len;
	} else {
		r = store_batch_extent(b, f->ino, &x);
	}
	if (r == 0)
		r = store_batch_inode(b, f->ino, &rec);
	name_set(b, STORE_ROOT_INO, name, f->ino);
	if (r < 0) {
		store_batch_abort(b);
		return r;
	}
	return store_batch_commit(b);
}

static void put(struct store *s, store_layer layer, store_ino ino, uint64_t block, uint64_t seed,
		bool live)
{
	struct file f = {layer, ino, block, seed};
	int r = gc_put(s, seed);

	if (r == 0)
		r = name_file(s, &f);
	if (r < 0)
		tap_fatal("write: %s", err_text(r));
	if (live)
		t.live[t.nlive++] = f;
	else
		t.dead[t.ndead++] = seed;
}

static void env_make(struct store *s, const char *name, store_layer base, struct store_env *ret)
{
	struct rec_inode root = {.mode = S_IFDIR | 0755, .nlink = 2};
	struct store_batch *b;

	if (store_env_create(s, name, base, "none", ret) < 0)
		tap_fatal("env %s", name);
	if (!base && (store_batch_begin(s, ret->open, &b) < 0 ||
		      store_batch_inode(b, STORE_ROOT_INO, &root) < 0 || store_batch_commit(b) < 0))
		tap_fatal("root of %s", name);
}

static void seal(struct store *s, struct store_env *e, const char *label, bool automatic)
{
	gc_seal(s, e, label, automatic);
	if (!automatic)
		t.commits[t.ncommits++] = label;
}

/* Blocks of other sizes each (gc_size), in extents and in records of inodes. */
static void removed_env(struct store *s)
{
	struct store_env e;

	env_make(s, "gone", 0, &e);
	for (uint64_t i = 0; i < 6; i++)
		put(s, e.open, 100 + i, i % 3, 1000 + i, false);
	t.gone[t.ngone++] = e.open;
	gc_seal(s, &e, "gone-1", false);
	put(s, e.open, 101, 5, 1010, false);
	t.gone[t.ngone++] = e.open;
	if (store_env_remove(s, "gone") < 0)
		tap_fatal("remove");
}

static void build(void)
{
	struct store_env e, beside;
	store_layer first;
	store_ino numbers;
	struct store *s;

	t.nlive = t.ndead = t.ngone = t.ncommits = 0;
	make_dir(t.dir);
	s = open_store(t.dir);
	if (store_reserve_inos(s, 1000, &numbers) < 0)
		tap_fatal("reserve");
	env_make(s, "e", 0, &e);
	for (uint64_t i = 0; i < 6; i++)
		put(s, e.open, 200 + i, i % 3, 2000 + i, true);
	seal(s, &e, "first", false);
	first = e.head;
	for (uint64_t i = 0; i < 3; i++) {
		char label[16];

		(void)snprintf(label, sizeof(label), "auto-%u", (unsigned)i);
		put(s, e.open, 200, 0, 3000 + i, i == 2);
		put(s, e.open, 210, 4, 3010 + i, i == 2);
		if (i < 2)
			t.gone[t.ngone++] = e.open;
		gc_seal(s, &e, label, true);
		if (store_env_move(s, &e, first, "rollback") < 0)
			tap_fatal("move");
	}
	removed_env(s);
	/* Written over in a layer that stays; and what no record ever named. */
	for (uint64_t i = 0; i < 4; i++) {
		put(s, e.open, 220 + i, i % 2, 4000 + i, false);
		put(s, e.open, 220 + i, i % 2, 4010 + i, true);
		t.dead[t.ndead++] = 4020 + i;
		if (gc_put(s, 4020 + i) < 0)
			tap_fatal("put");
	}
	/* The same bytes as garbage has. */
	env_make(s, "beside", first, &beside);
	put(s, beside.open, 300, 0, 2001, true);
	store_close(s);
}

/* ---- what must be true at any moment, and at the end ---- */

static unsigned count_lost(struct store *s)
{
	unsigned lost = 0;

	for (size_t i = 0; i < t.nlive; i++) {
		const struct file *f = &t.live[i];

		if (gc_reads(s, f->layer, f->ino, f->block, f->seed))
			continue;
		printf("# lost: inode %llu at layer %llu\n", (unsigned long long)f->ino,
		       (unsigned long long)f->layer);
		lost++;
	}
	for (size_t i = 0; i < t.ncommits; i++) {
		struct store_commit c;
		struct digest id;

		if (digest_of(t.commits[i], strlen(t.commits[i]), &id) < 0)
			tap_fatal("digest");
		if (store_commit_get(s, &id, &c) < 0) {
			printf("# lost: commit %s\n", t.commits[i]);
			lost++;
			continue;
		}
		store_commit_release(&c);
	}
	return lost;
}

static unsigned count_left(struct store *s)
{
	struct store_layer_info li;
	unsigned left = 0;

	for (size_t i = 0; i < t.ndead; i++)
		left += gc_there(s, t.dead[i]);
	for (size_t i = 0; i < t.ngone; i++)
		left += store_layer_get(s, t.gone[i], &li) != -ENOENT;
	if (left)
		printf("# %u chunks and layers are left\n", left);
	return left;
}

static int on_finding(void *arg, const struct store_finding *f)
{
	(void)arg;
	printf("# fsck: %s: %s\n", f->where, f->text);
	return 0;
}

static unsigned fsck_finds(void)
{
	struct store_fsck_opts o = {.finding = on_finding};
	struct store_fsck_sum sum = {0};
	struct diag d = {0};

	if (store_fsck(t.dir, &o, &d, &sum) < 0) {
		printf("# fsck: %s\n", d.text);
		return 1;
	}
	return (unsigned)(sum.damaged + sum.repairable + sum.notes);
}

static int collect(struct store *s)
{
	struct store_gc_result res;
	struct diag d = {0};
	int r = store_gc(s, &opts, &d, &res);

	if (r < 0 && !*d.text)
		tap_fatal("an error without a sentence: %s", err_text(r));
	return r;
}

/* After a failure, whatever it was, with the store closed. */
static unsigned judge(void)
{
	unsigned bad = fsck_finds();
	struct store *s = open_store(t.dir);
	int r;

	bad += count_lost(s);
	r = collect(s);
	if (r < 0) {
		printf("# the next collection: %s\n", err_text(r));
		bad++;
	}
	bad += count_lost(s) + count_left(s);
	store_close(s);
	bad += fsck_finds();
	tree_remove(t.dir);
	return bad;
}

/* ---- failures ---- */

/* One way to fail. */
struct way {
	const char *name;
	enum fail_what what; /* not for the disk's */
	bool disk;
	enum power_fault fault;
	int err, says; /* what is made to fail with, and what the collector may say */
	bool all;      /* from then on */
	bool mends;    /* the collector makes room and tries again */
};

static void arm(const struct way *w, long n)
{
	struct power_slot *f = &power_faults()[w->fault];

	if (!w->disk) {
		fail_arm(w->what, n, w->err, w->all);
		return;
	}
	f->only[0] = 0;
	f->after = (int32_t)n;
	f->err = w->err;
	f->hit = 0;
	f->count = w->all ? -1 : 1;
}

static long disarm(const struct way *w)
{
	struct power_slot *f = &power_faults()[w->fault];

	if (!w->disk)
		return fail_disarm();
	f->count = 0;
	return f->hit;
}

/* The @n-th call fails; 0: there were not so many. */
static long one(const struct way *w, long n, unsigned *failed, unsigned *bad)
{
	struct store *s;
	unsigned was = *bad;
	long hits;
	int r;

	build();
	if (power_record(t.dir, NULL) < 0)
		tap_fatal("record");
	s = open_store(t.dir);
	arm(w, n);
	r = collect(s);
	hits = disarm(w);
	*failed += r < 0;
	if (r < 0 && r != w->says) {
		printf("# %s fails, and it says %s\n", w->disk ? w->name : fail_where(),
		       err_text(r));
		++*bad;
	}
	/* LMDB takes no more from a process whose last page of a transaction failed. */
	if (!w->disk || w->fault != POWER_FAULT_META)
		*bad += count_lost(s);
	store_close(s);
	*bad += judge();
	if (*bad > was)
		printf("# %s, call %ld\n", w->name, n);
	return hits;
}

/* The same in a process of its own: the recorder knows a bounded number of files in its life. */
static long one_apart(const struct way *w, long n, unsigned *failed, unsigned *bad)
{
	int status;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid < 0)
		tap_fatal("fork");
	if (pid == 0) {
		unsigned told = 0, wrong = 0;
		long hits = one(w, n, &told, &wrong);

		(void)fflush(stdout);
		_exit((hits > 0) | (told > 0) << 1 | (wrong > 0) << 2);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status)) {
		printf("# it ended with %#x\n", (unsigned)status);
		++*bad;
		return 0;
	}
	*failed += WEXITSTATUS(status) >> 1 & 1;
	*bad += WEXITSTATUS(status) >> 2 & 1;
	return WEXITSTATUS(status) & 1;
}

/* The process is killed before its @n-th call of LMDB; false: it came to its end. */
static bool killed(long n, unsigned *bad)
{
	unsigned was = *bad;
	int status;
	pid_t pid;

	build();
	(void)fflush(stdout);
	pid = fork();
	if (pid < 0)
		tap_fatal("fork");
	if (pid == 0) {
		struct store *s = open_store(t.dir);

		fail_arm(FAIL_DIE, n, 0, false);
		_exit(collect(s) < 0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) != SIGKILL) {
		printf("# it ended with %#x\n", (unsigned)status);
		++*bad;
	}
	*bad += judge();
	if (*bad > was)
		printf("# killed before call %ld\n", n);
	return WIFSIGNALED(status);
}

static void walk(const struct way *w, long first, long step)
{
	unsigned bad = 0, failed = 0, runs = 0;
	long n = first;

	for (; bad < 5 && (w->disk ? one_apart : one)(w, n, &failed, &bad) > 0; n += step)
		runs++;
	ok(bad == 0 && runs > 0 && (failed > 0 || w->mends), "%s: %u times, of which it told %u",
	   w->name, runs, failed);
	printf("# up to call %ld\n", n);
}

static void walk_killed(long first, long step)
{
	unsigned bad = 0, runs = 0;

	for (long n = first; bad < 5 && killed(n, &bad); n += step)
		runs++;
	ok(bad == 0 && runs > 0, "killed %u times", runs);
}

int main(int argc, char **argv)
{
	static const struct way ways[] = {
		{"LMDB fails", .what = FAIL_LMDB, .err = EIO, .says = -EIO},
		{"LMDB's map is full", .what = FAIL_LMDB, .err = MDB_MAP_FULL, .says = -ENOSPC,
		 .mends = true},
		{"no memory", .what = FAIL_MEMORY, .err = ENOMEM, .says = -ENOMEM},
	};
	/* Of these there are few. */
	static const struct way disk[] = {
		{"a write fails", .disk = true, .fault = POWER_FAULT_WRITE, .err = EIO,
		 .says = -EIO},
		{"all writes fail", .disk = true, .fault = POWER_FAULT_WRITE, .err = EIO,
		 .says = -EIO, .all = true},
		{"a full disk", .disk = true, .fault = POWER_FAULT_WRITE, .err = ENOSPC,
		 .says = -ENOSPC, .mends = true},
		{"a full disk that stays", .disk = true, .fault = POWER_FAULT_WRITE, .err = ENOSPC,
		 .says = -ENOSPC, .all = true},
		{"a sync fails", .disk = true, .fault = POWER_FAULT_SYNC, .err = EIO, .says = -EIO},
		{"all syncs fail", .disk = true, .fault = POWER_FAULT_SYNC, .err = EIO,
		 .says = -EIO, .all = true},
		{"the page that makes a transaction valid fails", .disk = true,
		 .fault = POWER_FAULT_META, .err = EIO, .says = -EIO},
	};
	bool far = getenv("RATTAN_LONG") != NULL;
	long step = argc > 1 ? strtol(argv[1], NULL, 10) : far ? 1 : 82;

	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 1);
	if (power_record("/nowhere", NULL) < 0)
		tap_fatal("record");
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		/* Of allocations there are few, too. */
		walk(&ways[i], (long)i % step, ways[i].what == FAIL_MEMORY ? step / 8 + 1 : step);
	for (size_t i = 0; i < ARRAY_SIZE(disk); i++)
		walk(&disk[i], 0, step > 1 ? 5 : 1);
	walk_killed(step / 2, step);
	return tap_done();
}
