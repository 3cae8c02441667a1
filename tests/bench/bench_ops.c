/*
 * Operations on many small files by several clients at once: `bench_ops DIR CLIENTS FILES PHASE...`. Each phase is
 * done on every file, shared out among the clients, and prints its name and how many seconds it took.
 *
 *   create stat missing read list chmod rename back unlink
 *   cold  (prints nothing): the kernel drops what it caches; only root can ask for that
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/bench/bench.h"

#define PER_DIR 100
#define BYTES   4096

static const char *path(char buf[64], long i, const char *end)
{
	(void)snprintf(buf, 64, "d%04ld/f%05ld%s", i / PER_DIR, i, end);
	return buf;
}

static void do_create(long i)
{
	static const char bytes[BYTES] = "some text";
	char p[64];
	int fd = open(path(p, i, ""), O_CREAT | O_EXCL | O_WRONLY, 0644);

	check(fd, p);
	check(write(fd, bytes, BYTES), "write");
	check(close(fd), "close");
}

static void do_stat(long i)
{
	struct stat st;
	char p[64];

	check(stat(path(p, i, ""), &st), p);
}

static void do_missing(long i)
{
	struct stat st;
	char p[64];

	if (stat(path(p, i, "x"), &st) == 0)
		die(p);
}

static void do_read(long i)
{
	char p[64], bytes[2 * BYTES];
	int fd = open(path(p, i, ""), O_RDONLY);

	check(fd, p);
	if (read(fd, bytes, sizeof(bytes)) != BYTES)
		die("read");
	(void)close(fd);
}

/* The whole directory, at its first file. */
static void do_list(long i)
{
	char p[64];
	DIR *d;

	if (i % PER_DIR)
		return;
	(void)snprintf(p, sizeof(p), "d%04ld", i / PER_DIR);
	d = opendir(p);
	if (!d)
		die(p);
	while (readdir(d))
		;
	(void)closedir(d);
}

static void do_chmod(long i)
{
	char p[64];

	check(chmod(path(p, i, ""), i & 1 ? 0600 : 0640), p);
}

static void do_rename(long i)
{
	char p[64], q[64];

	check(rename(path(p, i, ""), path(q, i, "r")), p);
}

static void do_back(long i)
{
	char p[64], q[64];

	check(rename(path(p, i, "r"), path(q, i, "")), p);
}

static void do_unlink(long i)
{
	char p[64];

	check(unlink(path(p, i, "")), p);
}

static const struct {
	const char *name;
	void (*fn)(long i);
} phases[] = {
	{"create", do_create}, {"stat", do_stat}, {"missing", do_missing},
	{"read", do_read},     {"list", do_list}, {"chmod", do_chmod},
	{"rename", do_rename}, {"back", do_back}, {"unlink", do_unlink},
};

static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	sync();
	check(fd, "drop_caches");
	check(write(fd, "3", 1), "drop_caches");
	(void)close(fd);
}

/* Clients are there before the clock starts, and wait for the pipe's end. */
static void client(void (*fn)(long i), long from, long to, int go[static 2])
{
	char c;

	(void)close(go[1]);
	(void)!read(go[0], &c, 1);
	for (long i = from; i < to; i++)
		fn(i);
	_exit(0);
}

static double run(void (*fn)(long i), long clients, long files)
{
	int go[2], status;
	double t;

	check(pipe(go), "pipe");
	for (long k = 0; k < clients; k++) {
		pid_t pid = fork();

		check(pid, "fork");
		if (pid == 0)
			client(fn, k * (files / clients), (k + 1) * (files / clients), go);
	}
	t = now();
	(void)close(go[0]);
	(void)close(go[1]);
	while (wait(&status) > 0)
		if (status)
			exit(1);
	return now() - t;
}

static void make_dirs(long files)
{
	char p[64];

	for (long d = 0; d <= files / PER_DIR; d++) {
		(void)snprintf(p, sizeof(p), "d%04ld", d);
		if (mkdir(p, 0755) < 0 && errno != EEXIST)
			die(p);
	}
}

int main(int argc, char **argv)
{
	long clients = argc > 3 ? strtol(argv[2], NULL, 10) : 0;
	long files = argc > 3 ? strtol(argv[3], NULL, 10) : 0;

	if (clients < 1 || files < clients) {
		(void)fprintf(stderr, "usage: bench_ops DIR CLIENTS FILES PHASE...\n");
		return 2;
	}
	check(chdir(argv[1]), argv[1]);
	make_dirs(files);
	for (int a = 4; a < argc; a++) {
		size_t k = 0;

		if (!strcmp(argv[a], "cold")) {
			drop_caches();
			continue;
		}
		while (k < ARRAY_SIZE(phases) && strcmp(phases[k].name, argv[a]) != 0)
			k++;
		if (k == ARRAY_SIZE(phases)) {
			(void)fprintf(stderr, "bench_ops: no phase \"%s\"\n", argv[a]);
			return 2;
		}
		printf("%s %.6f\n", argv[a], run(phases[k].fn, clients, files));
	}
	return 0;
}
