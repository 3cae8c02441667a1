/*
 * A disk that fails: writes and syncs of the store's files that return EIO, ENOSPC or EDQUOT, reads that
 * return EIO. The writer is told, once for each time that it asks; what was accepted is kept in memory,
 * read, and written when the disk can again, without a restart.
 */
#include "tests/power/record.h"
#include "tests/unit/core/ovl_fixture.h"

static char data[200000], got[200000];

static void fail_from(enum power_fault what, const char *only, int count, int err)
{
	struct power_slot *f = &power_faults()[what];

	(void)snprintf(f->only, sizeof(f->only), "%s", only);
	f->after = 0;
	f->err = err;
	f->hit = 0;
	__atomic_store_n(&f->count, count, __ATOMIC_RELEASE);
}

static void heal(void)
{
	for (int i = 0; i < POWER_FAULTS; i++)
		__atomic_store_n(&power_faults()[i].count, 0, __ATOMIC_RELEASE);
}

static int sync_file(struct fx *f, const char *path)
{
	struct ovl_entry e;
	int r = fx_get(f, path, &e);

	if (r < 0)
		return r;
	r = ovl_fsync(f->o, e.ino, false);
	ovl_forget(f->o, e.ino, 1);
	return r;
}

static bool reads(struct fx *f, const char *path)
{
	return fx_read(f, path, 0, got, sizeof(got)) == (ssize_t)sizeof(got) &&
	       !memcmp(got, data, sizeof(got));
}

static void fill(unsigned seed)
{
	uint64_t rnd = seed;

	for (size_t i = 0; i < sizeof(data); i++) {
		rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
		data[i] = (char)(rnd >> 56);
	}
}

/* One kind of failure on one of the store's files: @want is what an fsync says. */
static void one(struct fx *f, enum power_fault what, const char *only, int err, int want)
{
	static unsigned n;
	char name[16];
	int r;

	(void)snprintf(name, sizeof(name), "f%u", ++n);
	fill(n);
	eq_int(fx_make(f, name, FX_FILE, 0644), 0, "%s of %s: %s: a file",
	       what == POWER_FAULT_SYNC ? "sync" : "write", only, err_text(err));
	fail_from(what, only, -1, err);
	eq_int(fx_write(f, name, 0, data, sizeof(data)), (long long)sizeof(data), "is written");
	eq_int(sync_file(f, name), want, "fsync says why it failed");
	ok(power_faults()[what].hit > 0, "for that reason");
	eq_int(sync_file(f, name), want, "and says so again: it is not on the disk");
	ok(reads(f, name), "what was accepted is read");
	heal();
	r = sync_file(f, name);
	eq_int(r, 0, "when the disk can, it is written");
	fx_umount(f);
	fx_mount(f);
	ok(reads(f, name), "and is there after a reopening");
}

/* Any one call of a flush fails, once. */
static void sweep(struct fx *f, enum power_fault what, const char *only, int err)
{
	static unsigned seed = 100;
	unsigned failed = 0, lost = 0, stuck = 0;
	int r = 0;

	for (int after = 0; after < 12; after++) {
		struct power_slot *s = &power_faults()[what];

		fill(seed++);
		if (fx_make(f, "sweep", FX_FILE, 0644) < 0 ||
		    fx_write(f, "sweep", 0, data, sizeof(data)) != (ssize_t)sizeof(data))
			tap_fatal("sweep");
		fail_from(what, only, 1, err);
		s->after = after;
		r = sync_file(f, "sweep");
		failed += r < 0;
		heal();
		stuck += sync_file(f, "sweep") < 0;
		fx_umount(f);
		fx_mount(f);
		lost += !reads(f, "sweep");
		if (fx_remove(f, "sweep", false) < 0)
			tap_fatal("remove");
	}
	ok(failed > 0, "%s, one %s: %u fsyncs failed", only,
	   what == POWER_FAULT_SYNC ? "sync" : "write", failed);
	eq_int(stuck, 0, "each time the next one writes it");
	eq_int(lost, 0, "nothing is lost");
}

static void test_reads(struct fx *f)
{
	fill(1000);
	eq_int(fx_make(f, "r", FX_FILE, 0644), 0, "a file");
	eq_int(fx_write(f, "r", 0, data, sizeof(data)), (long long)sizeof(data), "is written");
	fx_umount(f);
	fx_mount(f);
	fail_from(POWER_FAULT_READ, "", -1, EIO);
	eq_int(fx_read(f, "r", 0, got, sizeof(got)), -EIO, "the disk cannot read it");
	eq_int(fx_make(f, "beside", FX_FILE, 0644), 0, "the rest goes on");
	heal();
	ok(reads(f, "r"), "and so does this, when it can be read");
}

/* What fits a page goes to the disk with its record: an fsync of a small file waits for one sync and one page that makes
 * it valid, and for nothing else. */
static void test_once(struct fx *f)
{
	fill(3000);
	eq_int(fx_make(f, "small", FX_FILE, 0644), 0, "a small file");
	eq_int(sync_file(f, "small"), 0, "its name is on the disk");
	for (size_t len = 2000; len <= 4000; len += 500) {
		eq_int(fx_write(f, "small", 0, data, len), (long long)len, "%zu bytes", len);
		fail_from(POWER_FAULT_SYNC, "", -1, EIO);
		power_faults()[POWER_FAULT_SYNC].after = 1;
		fail_from(POWER_FAULT_META, "", -1, EIO);
		power_faults()[POWER_FAULT_META].after = 1;
		eq_int(sync_file(f, "small"), 0, "are on the disk after one sync");
		heal();
		data[0]++;
	}
	data[0]--;
	fx_umount(f);
	fx_mount(f);
	ok(fx_read(f, "small", 0, got, sizeof(got)) == 4000 && !memcmp(got, data, 4000),
	   "and are there after a reopening");
}

/* A failure in the background, of which nobody was told, is not forgotten: the next fsync means what it
 * says. */
static void test_background(struct fx *f)
{
	struct ovl_counts c;

	fx_umount(f);
	f->opts.flush_ms = 5;
	fx_mount(f);
	fill(2000);
	eq_int(fx_make(f, "b", FX_FILE, 0644), 0, "a file");
	fail_from(POWER_FAULT_SYNC, "", 1, EIO);
	eq_int(fx_write(f, "b", 0, data, sizeof(data)), (long long)sizeof(data), "is written");
	for (int i = 0;
	     i < 2000 && !__atomic_load_n(&power_faults()[POWER_FAULT_SYNC].hit, __ATOMIC_RELAXED);
	     i++)
		(void)usleep(1000);
	ok(__atomic_load_n(&power_faults()[POWER_FAULT_SYNC].hit, __ATOMIC_RELAXED) == 1,
	   "a flush in the background fails");
	eq_int(sync_file(f, "b"), 0, "an fsync writes it");
	ovl_counts(f->o, &c);
	eq_int((long long)c.bytes_dirty, 0, "all of it");
	fx_umount(f);
	fx_mount(f);
	ok(reads(f, "b"), "it is there");
}

int main(void)
{
	struct fx f;

	if (power_record("/", NULL) < 0)
		tap_fatal("record");
	fx_open(&f);
	if (power_record(f.dir, NULL) < 0)
		tap_fatal("record");
	store_close(f.s);
	{
		char path[PATH_MAX];
		struct diag d = {0};

		fx_path(&f, "data", path);
		if (store_open(path, 0, &d, &f.s) < 0)
			tap_fatal("%s", d.text);
	}
	f.opts.flush_ms = 1u << 30;
	fx_mount(&f);
	one(&f, POWER_FAULT_WRITE, "chunks/data.mdb", EIO, -EIO);
	one(&f, POWER_FAULT_WRITE, "chunks/data.mdb", ENOSPC, -ENOSPC);
	one(&f, POWER_FAULT_WRITE, "chunks/data.mdb", EDQUOT, -EDQUOT);
	one(&f, POWER_FAULT_WRITE, "chunks/data.mdb", EFBIG, -ENOSPC);
	one(&f, POWER_FAULT_WRITE, "meta/data.mdb", EIO, -EIO);
	one(&f, POWER_FAULT_WRITE, "meta/data.mdb", ENOSPC, -ENOSPC);
	one(&f, POWER_FAULT_SYNC, "chunks/data.mdb", EIO, -EIO);
	one(&f, POWER_FAULT_SYNC, "meta/data.mdb", EIO, -EIO);
	sweep(&f, POWER_FAULT_WRITE, "chunks/data.mdb", EIO);
	sweep(&f, POWER_FAULT_SYNC, "chunks/data.mdb", EIO);
	sweep(&f, POWER_FAULT_SYNC, "meta/data.mdb", EIO);
	sweep(&f, POWER_FAULT_WRITE, "meta/data.mdb", EIO);
	test_once(&f);
	test_reads(&f);
	test_background(&f);
	fx_close(&f);
	return tap_done();
}
