/* Bytes new to the store have a limit: EDQUOT to the writer, only for what is really new, and room again when it
 * is raised or when what was removed has been collected. */
#include "tests/unit/core/ovl_fixture.h"

#define MAX ((uint64_t)4 << 20)

static char data[65536];

static void noise(uint64_t seed)
{
	for (size_t i = 0; i < sizeof(data); i += 8) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(data + i, &seed, 8);
	}
}

/* Blocks until it is refused, at most @max; what refused it, 0 when nothing did. */
static int fill(struct fx *f, const char *name, uint64_t seed, unsigned max, unsigned *ret_n)
{
	ssize_t r = 0;
	unsigned n;
	int k = fx_make(f, name, FX_FILE, 0644);

	if (k < 0)
		return k;
	for (n = 0; n < max; n++) {
		noise(seed + n);
		r = fx_write(f, name, n * sizeof(data), data, sizeof(data));
		if (r < 0)
			break;
	}
	*ret_n = n;
	return r < 0 ? (int)r : 0;
}

static void test_bytes(struct fx *f)
{
	struct statvfs st;
	unsigned n = 0, again = 0;

	eq_int(fill(f, "kept", 1, 16, &n), 0, "a megabyte is within the limit");
	eq_int(ovl_flush(f->o), 0, "and on the disk");
	eq_int(ovl_statfs(f->o, &st), 0, "statfs");
	ok(st.f_bavail * st.f_frsize < MAX, "shows the limit, not the disk");
	/* What is there already is not new. */
	for (int i = 0; i < 12; i++) {
		eq_int(fill(f, "same", 1, 16, &again), 0, "the same content again");
		eq_int(ovl_flush(f->o), 0, "is flushed");
		eq_int(fx_remove(f, "same", false), 0, "and removed");
	}
	eq_int(fill(f, "big", 1000, 1000, &n), -EDQUOT, "noise is written until the limit");
	ok(n >= 30 && n <= 48, "of four megabytes three are left for it: %u blocks", n);
	eq_int(fill(f, "other", 5000, 1, &again), -EDQUOT, "then nothing new is made");
	eq_int(fx_read(f, "kept", 0, data, 8), 8, "what was there is read");
	eq_int(fx_remove(f, "big", false), 0, "files are removed");
	eq_int(ovl_flush(f->o), 0, "and what is dirty is flushed");
}

static void test_room_again(struct fx *f)
{
	struct store_gc_opts o = {0};
	struct store_gc_result res;
	struct diag d = {{0}};
	unsigned n = 0;

	eq_int(fill(f, "big", 9000, 1, &n), -EDQUOT, "removing alone gives nothing back yet");
	eq_int(store_gc(f->s, &o, &d, &res), 0, "a collection: %s", d.text);
	ok(res.chunk_bytes > 2 << 20, "removes it from the store");
	eq_int(fill(f, "big", 9000, 16, &n), 0, "and there is room");
	eq_int(fill(f, "big2", 11000, 1000, &n), -EDQUOT, "until the limit");
	ovl_set_disk_max(f->o, 2 * MAX);
	eq_int(fill(f, "big3", 21000, 16, &n), 0, "a higher limit holds at once");
	ovl_set_disk_max(f->o, 0);
	eq_int(fill(f, "big4", 31000, 200, &n), 0, "and none is none");
}

/* Names and inodes take room as well. */
static void test_files(struct fx *f)
{
	char name[32];
	int r = 0, i;

	ovl_set_disk_max(f->o, 1);
	eq_int(fx_make(f, "x", FX_FILE, 0644), -EDQUOT, "no file in no room");
	fx_umount(f);
	f->opts.disk_max = store_written(f->s) + (1 << 20);
	fx_mount(f);
	for (i = 0; i < 100000 && r >= 0; i++) {
		(void)snprintf(name, sizeof(name), "e%d", i);
		r = fx_make(f, name, FX_FILE, 0644);
	}
	eq_int(r, -EDQUOT, "empty files until the limit");
	ok(i > 500 && i < 30000, "which was after %d", i);
}

/* What a record replaces makes room for it, however often. */
static void test_replaced(struct fx *f)
{
	const struct stat mode[] = {{.st_mode = 0600}, {.st_mode = 0644}};
	uint64_t before;
	int r = 0;

	ovl_set_disk_max(f->o, 0);
	eq_int(fx_make(f, "again", FX_FILE, 0644), 0, "a file");
	eq_int(ovl_flush(f->o), 0, "on the disk");
	before = store_written(f->s);
	for (int i = 0; i < 100 && r == 0; i++) {
		r = fx_set(f, "again", &mode[i % 2], OVL_SET_MODE);
		if (r == 0)
			r = ovl_flush(f->o);
	}
	eq_int(r, 0, "written a hundred times");
	ok(store_written(f->s) - before < 200, "takes no more room: %llu bytes",
	   (unsigned long long)(store_written(f->s) - before));
}

/* The sum goes on where another process counts, and comes back. */
static void test_shared(struct fx *f)
{
	uint64_t had = store_written(f->s), at = 1000;
	unsigned n;

	store_written_share(f->s, &at);
	eq_int((long long)at, (long long)had + 1000, "what was counted goes along");
	eq_int(fill(f, "shared", 77000, 4, &n), 0, "some is written");
	eq_int(ovl_flush(f->o), 0, "on the disk");
	ok(at > had + 1000 + 4 * sizeof(data) && store_written(f->s) == at, "and counted there");
	store_written_share(f->s, NULL);
	ok(store_written(f->s) == at, "and here again");
}

int main(void)
{
	struct fx f;

	fx_open(&f);
	f.opts.disk_max = MAX;
	f.opts.flush_ms = 50;
	fx_mount(&f);
	test_bytes(&f);
	test_room_again(&f);
	test_files(&f);
	test_replaced(&f);
	test_shared(&f);
	fx_close(&f);
	return tap_done();
}
