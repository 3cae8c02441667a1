/* What is written is on its way to the disk before anybody syncs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "store/early.h"
#include "tests/lib/tap.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

enum {
	PAGES = 2048,
	TMPFS = 0x01021994
};

/* As the kernel has it (Linux 6.5). */
struct range {
	uint64_t off, len;
};
struct cached {
	uint64_t cache, dirty, writeback, evicted, recently_evicted;
};

/* Pages of @fd that nobody has begun to write; -1 where the kernel does not tell. */
static long long dirty(int fd)
{
	struct range all = {0};
	struct cached c = {0};

	return syscall(SYS_cachestat, fd, &all, &c, 0) < 0 ? -1 : (long long)c.dirty;
}

static void fill(int fd)
{
	char page[4096];

	memset(page, 'x', sizeof(page));
	for (int i = 0; i < PAGES; i++)
		if (pwrite(fd, page, sizeof(page), (off_t)i * 4096) != sizeof(page))
			tap_fatal("write");
}

/* Much sooner than the kernel would by itself, which waits for half a minute. */
static bool begun_soon(int fd)
{
	static const struct timespec nap = {.tv_nsec = 1000000};

	for (int i = 0; i < 4000; i++) {
		if (dirty(fd) == 0)
			return true;
		(void)nanosleep(&nap, NULL);
	}
	return false;
}

static void begins(int fd)
{
	struct early *e = early_new(fd);

	ok(e, "a thread");
	if (!e)
		return;
	fill(fd);
	early_on(e);
	ok(begun_soon(fd), "while something is committed it is on its way");
	early_off(e);
	fill(fd);
	early_on(e);
	ok(begun_soon(fd), "and the next time");
	early_free(e);
	early_free(NULL);
}

/* A pipe has no pages: the thread gives up, and nobody who commits notices. */
static void cannot(void)
{
	int p[2];
	struct early *e;

	if (pipe2(p, O_CLOEXEC) < 0)
		tap_fatal("pipe");
	e = early_new(p[1]);
	for (int i = 0; e && i < 100; i++) {
		early_on(e);
		early_off(e);
	}
	early_free(e);
	ok(e, "what cannot be asked for is not waited for");
	(void)close(p[0]);
	(void)close(p[1]);
}

int main(void)
{
	char path[] = "/var/tmp/rattan-early.XXXXXX";
	int fd = mkstemp(path);
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) < 0)
		tap_fatal("a file");
	(void)unlink(path);
	if (fs.f_type != TMPFS && dirty(fd) == 0)
		begins(fd);
	else
		printf("# the kernel does not tell which pages wait\n");
	cannot();
	(void)close(fd);
	return tap_done();
}
