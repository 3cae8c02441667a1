/*
 * Reading and writing one big file: `bench_io FILE MIB PHASE...`. Each phase prints its name and seconds; what is done
 * many times, the seconds of one.
 *
 *   write   1 MiB at a time from nothing, then fsync        read      1 MiB at a time
 *   rread   4 KiB at random places                          rwrite    the same, written, then fsync
 *   mread   a byte of random pages of a mapping             mwrite    the same, written, then msync
 *   append  4 KiB at the end and fsync, of FILE.log         first     one byte at a place where it is not written yet
 *   stat    p50 and p99 of a small operation (chmod of FILE.other) while another process writes MIB to FILE.new
 *   cold    (prints nothing): the kernel drops what it caches; only root can ask for that
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/bench/bench.h"

#define MIB  ((size_t)1 << 20)
#define PAGE 4096
#define MANY 4000 /* random places */
#define LOGS 100

struct io {
	const char *path;
	size_t size;
	uint8_t *buf; /* MIB */
	uint64_t rnd;
};

static uint64_t next(struct io *io)
{
	io->rnd ^= io->rnd << 13;
	io->rnd ^= io->rnd >> 7;
	io->rnd ^= io->rnd << 17;
	return io->rnd;
}

static off_t some_page(struct io *io)
{
	return (off_t)(next(io) % (io->size / PAGE)) * PAGE;
}

static int open_file(const struct io *io, const char *end, int flags)
{
	char p[4096];
	int fd;

	(void)snprintf(p, sizeof(p), "%s%s", io->path, end);
	fd = open(p, flags | O_CLOEXEC, 0644);
	check(fd, p);
	return fd;
}

/* No two blocks alike. */
static void fill(struct io *io, const char *end)
{
	int fd = open_file(io, end, O_CREAT | O_WRONLY | O_TRUNC);

	for (size_t at = 0; at < io->size; at += MIB) {
		for (size_t i = 0; i < MIB; i += 512)
			memcpy(io->buf + i, &(uint64_t){next(io)}, 8);
		if (write(fd, io->buf, MIB) != (ssize_t)MIB)
			die("write");
	}
	check(fsync(fd), "fsync");
	(void)close(fd);
}

static double do_write(struct io *io)
{
	double t = now();

	fill(io, "");
	return now() - t;
}

static double do_read(struct io *io)
{
	int fd = open_file(io, "", O_RDONLY);
	double t = now();
	ssize_t n;

	while ((n = read(fd, io->buf, MIB)) > 0)
		;
	check(n, "read");
	t = now() - t;
	(void)close(fd);
	return t;
}

static double do_rread(struct io *io)
{
	int fd = open_file(io, "", O_RDONLY);
	double t = now();

	for (int i = 0; i < MANY; i++)
		check(pread(fd, io->buf, PAGE, some_page(io)), "read");
	t = now() - t;
	(void)close(fd);
	return t / MANY;
}

static double do_rwrite(struct io *io)
{
	int fd = open_file(io, "", O_RDWR);
	double t = now();

	for (int i = 0; i < MANY; i++) {
		memcpy(io->buf, &(uint64_t){next(io)}, 8);
		check(pwrite(fd, io->buf, PAGE, some_page(io)), "write");
	}
	check(fsync(fd), "fsync");
	t = now() - t;
	(void)close(fd);
	return t / MANY;
}

static double mapped(struct io *io, bool writing)
{
	int fd = open_file(io, "", O_RDWR);
	uint8_t *m = mmap(NULL, io->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	double t = now();
	unsigned sum = 0;

	if (m == MAP_FAILED)
		die("mmap");
	for (int i = 0; i < MANY; i++) {
		off_t at = some_page(io);

		if (writing)
			m[at]++;
		else
			sum += m[at];
	}
	if (writing)
		check(msync(m, io->size, MS_SYNC), "msync");
	t = now() - t;
	io->buf[0] = (uint8_t)sum; /* what is read is used */
	(void)munmap(m, io->size);
	(void)close(fd);
	return t / MANY;
}

static double do_mread(struct io *io)
{
	return mapped(io, false);
}

static double do_mwrite(struct io *io)
{
	return mapped(io, true);
}

static double do_append(struct io *io)
{
	int fd = open_file(io, ".log", O_CREAT | O_WRONLY | O_APPEND);
	double t = now();

	for (int i = 0; i < LOGS; i++) {
		for (size_t k = 0; k < PAGE; k += 8)
			memcpy(io->buf + k, &(uint64_t){next(io)}, 8);
		check(write(fd, io->buf, PAGE), "append");
		check(fsync(fd), "fsync");
	}
	t = now() - t;
	(void)close(fd);
	return t / LOGS;
}

static double do_first(struct io *io)
{
	int fd = open_file(io, "", O_WRONLY);
	double t = now();

	check(pwrite(fd, "x", 1, (off_t)io->size / 2 + 5), "write");
	t = now() - t;
	(void)close(fd);
	return t;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void stat_beside(struct io *io)
{
	static double took[1 << 20];
	size_t n = 0;
	char p[4096];
	pid_t pid;

	(void)close(open_file(io, ".other", O_CREAT | O_WRONLY));
	(void)snprintf(p, sizeof(p), "%s.other", io->path);
	pid = fork();
	check(pid, "fork");
	if (pid == 0) {
		fill(io, ".new");
		_exit(0);
	}
	/* A change of mode each time: what was cached of it is not asked for. */
	while (waitpid(pid, NULL, WNOHANG) == 0 && n < ARRAY_SIZE(took)) {
		const struct timespec pause = {.tv_nsec = 1000000};
		double t = now();

		check(chmod(p, n & 1 ? 0600 : 0644), "chmod");
		took[n++] = now() - t;
		(void)nanosleep(&pause, NULL);
	}
	qsort(took, n, sizeof(*took), by_value);
	printf("stat-p50 %.6f\nstat-p99 %.6f\n", took[n / 2], took[n * 99 / 100]);
}

static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	sync();
	check(fd, "drop_caches");
	check(write(fd, "3", 1), "drop_caches");
	(void)close(fd);
}

static const struct {
	const char *name;
	double (*fn)(struct io *io);
} phases[] = {
	{"write", do_write}, {"read", do_read},     {"rread", do_rread},   {"rwrite", do_rwrite},
	{"mread", do_mread}, {"mwrite", do_mwrite}, {"append", do_append}, {"first", do_first},
};

static void phase(struct io *io, const char *name)
{
	size_t k = 0;

	if (!strcmp(name, "cold")) {
		drop_caches();
		return;
	}
	if (!strcmp(name, "stat")) {
		stat_beside(io);
		return;
	}
	while (k < ARRAY_SIZE(phases) && strcmp(phases[k].name, name) != 0)
		k++;
	if (k == ARRAY_SIZE(phases)) {
		(void)fprintf(stderr, "bench_io: no phase \"%s\"\n", name);
		exit(2);
	}
	printf("%s %.9f\n", name, phases[k].fn(io));
}

int main(int argc, char **argv)
{
	struct io io = {.path = argc > 2 ? argv[1] : NULL, .buf = malloc(MIB)};

	if (!io.path || !io.buf) {
		(void)fprintf(stderr, "usage: bench_io FILE MIB PHASE...\n");
		return 2;
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0); /* a child must not print what waits here */
	io.size = strtoul(argv[2], NULL, 10) * MIB;
	io.rnd = 88172645463325252u ^ (uint64_t)time(NULL) << 20;
	for (int a = 3; a < argc; a++)
		phase(&io, argv[a]);
	return 0;
}
