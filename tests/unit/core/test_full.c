/* A full disk: writers are told, nothing that was there is harmed, and it goes on when there is room
 * again. Needs a small file system of its own, so a user namespace; skipped where that is refused. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "tests/unit/core/ovl_fixture.h"

static bool small_disk(const char *dir)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	FILE *f;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return false;
	f = fopen("/proc/self/setgroups", "we");
	if (f) {
		(void)fputs("deny", f);
		(void)fclose(f);
	}
	f = fopen("/proc/self/uid_map", "we");
	if (!f)
		return false;
	fprintf(f, "0 %u 1", uid);
	if (fclose(f) != 0)
		return false;
	f = fopen("/proc/self/gid_map", "we");
	if (!f)
		return false;
	fprintf(f, "0 %u 1", gid);
	if (fclose(f) != 0)
		return false;
	return mount("none", dir, "tmpfs", 0, "size=24m") == 0;
}

static void noise(char *p, size_t n, uint64_t *rnd)
{
	for (size_t i = 0; i < n; i += 8) {
		*rnd = *rnd * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(p + i, rnd, 8);
	}
}

static unsigned wrong_blocks(struct fx *f, unsigned n)
{
	static char data[65536], got[65536];
	uint64_t rnd = 42;
	unsigned wrong = 0;

	for (unsigned i = 0; i < n; i++) {
		noise(data, sizeof(data), &rnd);
		ssize_t r = fx_read(f, "big", i * sizeof(data), got, sizeof(got));

		wrong += r != (ssize_t)sizeof(got) || memcmp(data, got, sizeof(got)) != 0;
	}
	return wrong;
}

int main(void)
{
	char dir[] = "/tmp/rattan-full-XXXXXX";
	static char data[65536], got[65536];
	uint64_t rnd = 42;
	unsigned n = 0;
	ssize_t r = 0;
	struct fx f;

	if (!mkdtemp(dir))
		tap_fatal("mkdtemp");
	if (!small_disk(dir)) {
		(void)rmdir(dir);
		printf("1..0 # SKIP no user namespace with a tmpfs\n");
		return 0;
	}
	setenv("TMPDIR", dir, 1);
	fx_open(&f);
	f.opts.flush_ms = 20;
	f.opts.dirty_max = 2 << 20;
	fx_mount(&f);
	eq_int(fx_make(&f, "kept", FX_FILE, 0644), 0, "a file");
	eq_int(fx_write(&f, "kept", 0, "kept", 4), 4, "with content");
	eq_int(ovl_flush(f.o), 0, "is on disk");
	eq_int(fx_make(&f, "big", FX_FILE, 0644), 0, "another");
	for (; n < 2000 && r >= 0; n++) {
		noise(data, sizeof(data), &rnd);
		r = fx_write(&f, "big", n * sizeof(data), data, sizeof(data));
	}
	eq_int(r, -ENOSPC, "is written until the disk is full");
	printf("# after %u blocks of 64 KiB\n", n);
	eq_int(fx_read(&f, "kept", 0, got, sizeof(got)), 4, "what was there");
	ok(!memcmp(got, "kept", 4), "is as it was");
	eq_int(fx_make(&f, "more", FX_FILE, 0644), -ENOSPC, "a new file is refused");
	eq_int(ovl_flush(f.o), -ENOSPC, "a flush says why");
	eq_int(wrong_blocks(&f, n - 1), 0, "every byte that was accepted is still read");
	/* Room for it: what is dirty goes out, and writing works again. */
	if (mount("none", dir, "tmpfs", MS_REMOUNT, "size=96m") < 0)
		tap_fatal("remount");
	eq_int(ovl_flush(f.o), 0, "with more room the flush succeeds");
	eq_int(fx_make(&f, "more", FX_FILE, 0644), 0, "and files are made again");
	fx_umount(&f);
	fx_mount(&f);
	eq_int(wrong_blocks(&f, n - 1), 0, "after a reopening, too");
	fx_close(&f);
	(void)umount2(dir, MNT_DETACH);
	return tap_done();
}
