/*
 * Runs a fuzz target over a corpus without libFuzzer, as an ordinary test: every file, and every file
 * with a few bytes changed, cut or moved, the same ones each time. A target that finds something
 * wrong aborts. A file must be understood (or refused, when it is called "should-fail-..."): variants of one that no reader
 * takes any more try nothing.
 */
#include <dirent.h>
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/tap.h"

#define VARIANTS 2000

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static size_t mutate(uint8_t *p, size_t n, uint64_t *seed)
{
	for (uint64_t k = next(seed) % 4 + 1; k-- && n;) {
		size_t at = next(seed) % n;

		switch (next(seed) % 4) {
		case 0:
			p[at] ^= (uint8_t)(1u << next(seed) % 8);
			break;
		case 1:
			p[at] = (uint8_t)next(seed);
			break;
		case 2:
			n = at;
			break;
		default:
			memmove(p + at, p + at / 2, n - at);
			break;
		}
	}
	return n;
}

/* Exactly as long as the input, so that a sanitizer sees the first byte past it. */
static bool run(const uint8_t *p, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);
	bool taken;

	if (!copy)
		tap_fatal("no memory");
	memcpy(copy, p, n);
	taken = fuzz_one(copy, n);
	free(copy);
	return taken;
}

static void replay(int fd, const char *name)
{
	cleanup_buf struct buf in = {0}, b = {0};
	uint64_t seed = 1;

	if (io_read_file(fd, name, 16 << 20, &in) < 0)
		tap_fatal("cannot read %s", name);
	ok(run(in.data, in.len) != !strncmp(name, "should-fail-", 12), "%s is %s", name,
	   strncmp(name, "should-fail-", 12) ? "understood" : "refused");
	for (int i = 0; i < VARIANTS && in.len; i++) {
		buf_clear(&b);
		if (buf_put(&b, in.data, in.len) < 0)
			tap_fatal("no memory");
		(void)run(b.data, mutate(b.data, b.len, &seed));
	}
	ok(1, "%s and %d variants", name, VARIANTS);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		cleanup_dir DIR *d = opendir(argv[i]);

		if (!d)
			tap_fatal("cannot open %s", argv[i]);
		for (struct dirent *e = readdir(d); e; e = readdir(d))
			if (e->d_name[0] != '.')
				replay(dirfd(d), e->d_name);
	}
	ok(tap_count > 0, "a corpus was given");
	return tap_done();
}
