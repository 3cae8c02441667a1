/*
 * power_load DIR LOG SEED STEPS COMMIT COLLECT ROLLBACK: the work of work.h in a directory of a mount; its notes go to LOG, where what
 * serves the mount is recorded. COMMIT, COLLECT and ROLLBACK are for the shell: the first prints the id of a
 * commit, or exits with 1 when nothing has changed, the last has one in $1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/power/record.h"
#include "tests/power/work.h"

struct mount {
	const char *path;
	int dir;
	const char *commit, *collect, *rollback;
};

static void mount_open(struct mount *m)
{
	if (m->dir >= 0)
		(void)close(m->dir);
	m->dir = open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	power_must(m->dir >= 0, m->path, errno);
}

static int sys(long r)
{
	return r < 0 ? -errno : (int)r;
}

static int make(void *arg, const char *path, char type)
{
	const struct mount *m = arg;
	int fd;

	if (type == 'd')
		return sys(mkdirat(m->dir, path, 0755));
	if (type == 'l')
		return sys(symlinkat("nowhere", m->dir, path));
	fd = openat(m->dir, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0755);
	return fd < 0 ? -errno : sys(close(fd));
}

/* The kernel may send a write of several pages in parts, each of which is an operation of its own; one that is direct
 * goes as it is. */
static ssize_t put(void *arg, const char *path, uint64_t off, const void *p, size_t n)
{
	const struct mount *m = arg;
	bool one_page = off / 4096 == (off + n - 1) / 4096;
	int fd = openat(m->dir, path, O_WRONLY | O_CLOEXEC | (one_page ? 0 : O_DIRECT));
	ssize_t k = fd < 0 ? -1 : pwrite(fd, p, n, (off_t)off);

	if (k < 0)
		k = -errno;
	if (fd >= 0)
		(void)close(fd);
	return k;
}

static int cut(void *arg, const char *path, uint64_t size)
{
	const struct mount *m = arg;
	int fd = openat(m->dir, path, O_WRONLY | O_CLOEXEC);
	int r = sys(fd < 0 ? -1 : ftruncate(fd, (off_t)size));

	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int move(void *arg, const char *from, const char *to)
{
	const struct mount *m = arg;

	return sys(renameat(m->dir, from, m->dir, to));
}

static int take_away(void *arg, const char *path, bool dir)
{
	const struct mount *m = arg;

	return sys(unlinkat(m->dir, path, dir ? AT_REMOVEDIR : 0));
}

static int name_twice(void *arg, const char *from, const char *to)
{
	const struct mount *m = arg;

	return sys(linkat(m->dir, from, m->dir, to, 0));
}

static int sync_path(void *arg, const char *path)
{
	const struct mount *m = arg;
	int fd = openat(m->dir, path, O_RDONLY | O_CLOEXEC);
	int r = sys(fd < 0 ? -1 : fsync(fd));

	if (fd >= 0)
		(void)close(fd);
	return r;
}

/* Its exit code; the first line that it prints in @line. */
static int shell(const char *text, const char *arg, char *line, size_t size)
{
	int status, out[2];
	FILE *in;
	pid_t pid;

	power_must(pipe2(out, O_CLOEXEC) == 0, "pipe", errno);
	pid = fork();
	power_must(pid >= 0, "fork", errno);
	if (pid == 0) {
		(void)dup2(out[1], 1);
		(void)execl("/bin/sh", "sh", "-c", text, "sh", arg, (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	in = fdopen(out[0], "r");
	power_must(in != NULL, "memory", 0);
	if (!fgets(line, (int)size, in))
		line[0] = 0;
	line[strcspn(line, "\n")] = 0;
	while (fgetc(in) != EOF)
		;
	(void)fclose(in);
	power_must(waitpid(pid, &status, 0) == pid && WIFEXITED(status), text, status);
	return WEXITSTATUS(status);
}

static bool commit(void *arg, char id[static POWER_ID])
{
	const struct mount *m = arg;
	int r = shell(m->commit, "", id, POWER_ID);

	power_must(r == 0 || r == 1, m->commit, r);
	return r == 0;
}

static void collect(void *arg)
{
	const struct mount *m = arg;
	char line[POWER_ID];
	int r = shell(m->collect, "", line, sizeof(line));

	power_must(r == 0, m->collect, r);
}

static void rollback(void *arg, const char *id)
{
	struct mount *m = arg;
	char line[POWER_ID];
	int r = shell(m->rollback, id, line, sizeof(line));

	power_must(r == 0, m->rollback, r);
	mount_open(m); /* it is another one */
}

/* A sync of any directory is one of everything. */
static void end(void *arg)
{
	const struct mount *m = arg;

	power_must(fsync(m->dir) == 0, "fsync", errno);
}

int main(int argc, char **argv)
{
	struct mount m = {.dir = -1};
	const struct power_place place = {make,      put,        cut,       move,
					  take_away, name_twice, sync_path, commit,
					  collect,   rollback,   end,       &m};

	if (argc != 8) {
		(void)fprintf(stderr,
			      "usage: power_load DIR LOG SEED STEPS COMMIT COLLECT ROLLBACK\n");
		return 2;
	}
	m.path = argv[1];
	m.commit = argv[5];
	m.collect = argv[6];
	m.rollback = argv[7];
	mount_open(&m);
	/* Nothing that this process does is recorded, but its notes. */
	power_must(power_record("/nowhere", argv[2]) == 0, argv[2], errno);
	power_work(&place, strtoull(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10));
	return 0;
}
