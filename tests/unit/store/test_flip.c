/*
 * store: one byte of the store changed, anywhere: reading it ends well, and gives what was there, or an error where the
 * damage is; fsck reports it, or everything reads as before. RATTAN_LONG=1: each byte of the files, else a sample.
 */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/fsck.h"
#include "tests/lib/sanitizer.h"
#include "tests/unit/store/flip_read.h"
#include "tests/unit/store/sample.h"

#define SAMPLES 150 /* a file */
#define SECONDS 10  /* of computing, that one look may take */
#define WORKERS 64

/* ---- in a child ---- */

static unsigned looks;

/* Neither endless work nor an endless wait; how busy the machine is must not matter. */
static void limit(void)
{
	struct rlimit l = {SECONDS, SECONDS};

	/* What is allocated begins with rubbish (MALLOC_PERTURB_), which takes three times as long: in some will do. */
	if (looks % 8)
		(void)mallopt(M_PERTURB, 0);

	if (setrlimit(RLIMIT_CPU, &l) < 0)
		tap_fatal("setrlimit: %m");
	(void)alarm(60 * SECONDS);
}

/* What @dir reads as; the status of whoever read it. */
static int reading_of(const char *dir, struct buf *text)
{
	char path[128];
	int status = 0;
	pid_t pid;

	(void)snprintf(path, sizeof(path), "%s.txt", dir);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		FILE *out = fopen(path, "we");

		limit();
		store_contain_damage();
		(void)!freopen("/dev/null", "w", stderr);
		if (!out)
			_exit(9);
		flip_read(dir, out, false);
		_exit(fclose(out) ? 9 : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		tap_fatal("fork");
	buf_clear(text);
	if (io_read_file(AT_FDCWD, path, 1 << 20, text) < 0 || buf_put(text, "", 1) < 0)
		tap_fatal("read");
	(void)unlink(path);
	return status;
}

static int ignore(void *arg, const struct store_finding *f)
{
	(void)arg;
	(void)f;
	return 0;
}

/* 0 clean, 1 damaged, -1 it could not be checked, 2 killed. */
static int fsck_says(const char *dir)
{
	int status = 0;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		struct store_fsck_opts o = {.finding = ignore};
		struct store_fsck_sum sum;
		struct diag d = {0};
		int r;

		limit();
		(void)!freopen("/dev/null", "w", stderr);
		r = store_fsck(dir, &o, &d, &sum);
		_exit(r < 0 ? 3 : sum.damaged + sum.repairable > 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		tap_fatal("fork");
	return !WIFEXITED(status) ? 2 : WEXITSTATUS(status) == 3 ? -1 : WEXITSTATUS(status);
}

/* ---- flips ---- */

struct counts {
	unsigned n, reported, harmless, silent, changed, died, fsck_failed, wrong, shorter;
};

/* LMDB's own numbers (how many records a page has, where a tree begins) have no check value: what they lead away from is
 * not seen, but by fsck. */
#define SHORTER_MOST 3

/* A line of @got that is neither in @want nor an error is something that was never stored; of @kind alone, or of all others. */
static bool invented(const char *want, const char *got, const char *kind, bool others)
{
	for (const char *p = got; *p;) {
		const char *end = strchr(p, '\n');
		size_t n = end ? (size_t)(end - p) + 1 : strlen(p);
		char line[512];

		(void)snprintf(line, sizeof(line), "%.*s", (int)(n < 511 ? n : 511), p);
		if (!strstr(want, line) && !strchr(line, '-') && !strchr(line, '!') &&
		    !strncmp(line, kind, strlen(kind)) != others)
			return true;
		p += n;
	}
	return false;
}

static void one(const char *dir, const char *file, const struct buf *bytes, size_t at, uint8_t with,
		const char *want, struct counts *c)
{
	cleanup_buf struct buf got = {0};
	char path[128];
	uint8_t b = bytes->data[at] ^ with;
	int fd, status, says;
	bool same;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || pwrite(fd, &b, 1, (off_t)at) != 1)
		tap_fatal("%s: %m", path);
	looks++;
	status = reading_of(dir, &got);
	says = fsck_says(dir);
	same = status == 0 && !strcmp(want, (const char *)got.data);
	c->n++;
	c->reported += says == 1 || says == -1;
	c->harmless += says == 0 && same;
	c->changed += !same;
	if (says == 0 && !same) {
		c->silent++;
		printf("# %s byte %zu ^ %u: not reported\n", file, at, with);
	}
	if (says == 2) {
		c->fsck_failed++;
		printf("# %s byte %zu ^ %u: fsck was killed\n", file, at, with);
	}
	if (status) {
		c->died++;
		printf("# %s byte %zu ^ %u: the reader ended with %d\n", file, at, with, status);
	}
	if (strstr((const char *)got.data, "WRONG") ||
	    (status == 0 && invented(want, (const char *)got.data, "listed", true))) {
		c->wrong++;
		printf("# %s byte %zu ^ %u: what was never stored\n%s\n", file, at, with,
		       (char *)got.data);
	}
	if (status == 0 && invented(want, (const char *)got.data, "listed", false)) {
		c->shorter++;
		printf("# %s byte %zu ^ %u: a shorter listing\n", file, at, with);
	}
	if (pwrite(fd, bytes->data + at, 1, (off_t)at) != 1)
		tap_fatal("pwrite");
	(void)close(fd);
}

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

struct flips {
	const char *file, *want;
	struct buf bytes;
	uint64_t seed;
	bool all;
};

/* Where one byte leads a search astray: LMDB's table of a page's records, and the numbers that keys begin with. */
static bool leads(const struct buf *b, size_t at)
{
	static const uint8_t zeros[7] = {0};

	if (at % 4096 >= 16 && at % 4096 < 28)
		return true;
	return at >= 7 && !memcmp(b->data + at - 7, zeros, 7) && b->data[at] >= SAMPLE_DIR &&
	       b->data[at] <= SAMPLE_LATER;
}

/* Each byte of the file, or a sample; of these every @of-th from @from on, in a store of our own. */
static void flip_some(const char *dir, const struct flips *f, unsigned from, unsigned of,
		      struct counts *c)
{
	size_t len = f->bytes.len, n = f->all || len < SAMPLES ? len : SAMPLES;

	for (size_t i = from; i < n; i += of) {
		uint64_t rnd = (f->seed << 32) + i;
		size_t at = n == len ? i : (next(&rnd), next(&rnd) % len);

		/* Most of a small file is zeros that mean nothing. */
		for (int k = 0; k < 20 && !f->bytes.data[at] && n < len; k++)
			at = next(&rnd) % len;
		one(dir, f->file, &f->bytes, at, (uint8_t)(1u << next(&rnd) % 8), f->want, c);
	}
	/* ThreadSanitizer lets a process survive one fault, and here one look after the other meets it. */
	for (size_t i = from; i < len && n < len && !UNDER_TSAN; i += of) {
		uint64_t rnd = (f->seed << 33) + i;

		if (leads(&f->bytes, i))
			one(dir, f->file, &f->bytes, i, (uint8_t)(1u << next(&rnd) % 8), f->want,
			    c);
	}
}

static void copy_store(const char *from, const char *to)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		(void)execlp("cp", "cp", "-a", from, to, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		tap_fatal("cp %s %s", from, to);
}

static pid_t flip_apart(const char *dir, const struct flips *f, unsigned from, unsigned of,
			struct counts *c)
{
	char mine[96];
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid < 0)
		tap_fatal("fork");
	if (pid > 0)
		return pid;
	(void)snprintf(mine, sizeof(mine), "%s.%u", dir, from);
	copy_store(dir, mine);
	flip_some(mine, f, from, of, c);
	tree_remove(mine);
	exit(0);
}

/* By as many processes as there are cores. */
static struct counts flip_all(const char *dir, const struct flips *f)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned of = cores < 1 ? 1 : cores > WORKERS ? WORKERS : (unsigned)cores;
	struct counts *c = mmap(NULL, sizeof(*c) * of, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct counts sum = {0};
	pid_t pid[WORKERS];

	if (c == MAP_FAILED)
		tap_fatal("mmap");
	for (unsigned i = 0; i < of; i++)
		pid[i] = flip_apart(dir, f, i, of, &c[i]);
	for (unsigned i = 0; i < of; i++) {
		int status;

		if (waitpid(pid[i], &status, 0) != pid[i] || status)
			tap_fatal("a process ended with %d", status);
		sum.n += c[i].n;
		sum.reported += c[i].reported;
		sum.harmless += c[i].harmless;
		sum.changed += c[i].changed;
		sum.silent += c[i].silent;
		sum.fsck_failed += c[i].fsck_failed;
		sum.wrong += c[i].wrong;
		sum.shorter += c[i].shorter;
		sum.died += c[i].died;
	}
	(void)munmap(c, sizeof(*c) * of);
	return sum;
}

static void flip_file(const char *dir, const char *file, const char *want, uint64_t seed)
{
	struct flips f = {.file = file, .want = want, .seed = seed};
	struct counts c;
	char path[128];

	f.all = getenv("RATTAN_LONG") != NULL;
	(void)snprintf(path, sizeof(path), "%s/%s", dir, file);
	if (io_read_file(AT_FDCWD, path, 64 << 20, &f.bytes) < 0)
		tap_fatal("%s: %m", path);
	c = flip_all(dir, &f);
	printf("# %s: %u flips of %zu bytes, %u reported, %u harmless, %u changed what is read\n",
	       file, c.n, f.bytes.len, c.reported, c.harmless, c.changed);
	eq_int(c.silent, 0, "%s: each is harmless or reported", file);
	eq_int(c.fsck_failed, 0, "%s: fsck lives", file);
	eq_int(c.wrong, 0, "%s: nothing that was never stored is read", file);
	ok(c.shorter <= SHORTER_MOST,
	   "%s: listings are whole, or say that they are not (%u did not)", file, c.shorter);
	eq_int(c.died, 0, "%s: readers live", file);
	buf_release(&f.bytes);
}

/* "FILE:BYTE:MASK": that change, read in this process, for a debugger. */
static void just_one(const char *dir, const char *spec)
{
	char file[64], path[160];
	unsigned long at;
	unsigned with;
	uint8_t b;
	int fd;

	if (sscanf(spec, "%63[^:]:%lu:%u", file, &at, &with) != 3)
		tap_fatal("RATTAN_FLIP=FILE:BYTE:MASK");
	(void)snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &b, 1, (off_t)at) != 1)
		tap_fatal("%s: %m", path);
	b ^= (uint8_t)with;
	if (pwrite(fd, &b, 1, (off_t)at) != 1)
		tap_fatal("%s: %m", path);
	(void)close(fd);
	store_contain_damage();
	flip_read(dir, stdout, false);
	printf("# fsck says %d\n", fsck_says(dir));
	exit(0);
}

int main(void)
{
	static const char *const files[] = {"meta/data.mdb", "chunks/data.mdb", "format"};
	const char *seed = getenv("RATTAN_SEED");
	uint64_t from = seed ? strtoull(seed, NULL, 10) : 1;
	cleanup_buf struct buf want = {0};
	FILE *null = fopen("/dev/null", "we");
	char dir[64];
	struct store *s;

	if (!null)
		tap_fatal("/dev/null: %m");
	/* What is read is the same, and no disk is waited for. */
	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 1);
	make_dir(dir);
	s = open_store(dir);
	(void)sample_fill(s);
	store_close(s);
	if (getenv("RATTAN_FLIP"))
		just_one(dir, getenv("RATTAN_FLIP"));
	flip_read(dir, null, true);
	(void)fclose(null);
	eq_int(reading_of(dir, &want), 0, "the whole store can be read");
	eq_int(fsck_says(dir), 0, "and is clean");
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		flip_file(dir, files[i], (const char *)want.data, from + i);
	tree_remove(dir);
	return tap_done();
}
