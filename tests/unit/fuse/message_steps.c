#include "tests/unit/fuse/message_steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"

#define PAGE 4096

static const char *path(const char *dir, char kind, int i)
{
	static char buf[2][64];
	static unsigned turn;
	char *p = buf[turn++ % 2];

	(void)snprintf(p, sizeof(buf[0]), "%s/%c%d", dir, kind, i);
	return p;
}

/* Open with @flags, write @len bytes, close. */
static int put(const char *p, int flags, size_t len)
{
	static const char bytes[PAGE] = {'x'};
	int fd = open(p, flags | O_CLOEXEC, 0644);
	int r = fd < 0 || (len && write(fd, bytes, len) != (ssize_t)len) ? ret_nerrno() : 0;

	if (fd >= 0)
		(void)close(fd);
	return r;
}

static int get(const char *p)
{
	char bytes[2 * PAGE];
	int fd = open(p, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 || read(fd, bytes, sizeof(bytes)) < 0 ? ret_nerrno() : 0;

	if (fd >= 0)
		(void)close(fd);
	return r;
}

#define EACH(expr)                                    \
	do {                                          \
		for (int i = 0; i < MESSAGE_N; i++) { \
			int r_ = (expr);              \
			if (r_ < 0)                   \
				return r_;            \
		}                                     \
		return 0;                             \
	} while (0)
#define SYS(expr) ((expr) < 0 ? ret_nerrno() : 0)

/* The first of its kind of each operation, after which the kernel knows what it need not ask. */
static int s_begin(int arg)
{
	int r;

	(void)arg;
	r = SYS(mkdir("d", 0755));
	if (r == 0)
		r = SYS(mkdir("e", 0755));
	if (r == 0)
		r = put("d/first", O_CREAT | O_EXCL | O_WRONLY, PAGE);
	if (r == 0)
		r = get("d/first");
	return r < 0 ? r : SYS(unlink("d/first"));
}

static int s_create(int len)
{
	EACH(put(path("d", len == PAGE ? 'f' : 'g', i), O_CREAT | O_EXCL | O_WRONLY, (size_t)len));
}

static int s_stat(int kind)
{
	struct stat st;

	EACH(SYS(stat(path("d", (char)kind, i), &st)));
}

static int s_missing(int arg)
{
	struct stat st;

	(void)arg;
	EACH(stat(path("d", 'n', i), &st) < 0 && errno == ENOENT ? 0 : -EEXIST);
}

static int s_read(int kind)
{
	EACH(get(path("d", (char)kind, i)));
}

static int s_list(int arg)
{
	struct dirent *e;
	DIR *d = opendir("d");
	struct stat st;
	int r = 0;

	if (!d)
		return ret_nerrno();
	while ((e = readdir(d)))
		if (arg && e->d_name[0] != '.' &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			r = ret_nerrno();
	(void)closedir(d);
	return r;
}

static int s_replace(int arg)
{
	(void)arg;
	EACH(put(path("d", 'g', i), O_WRONLY | O_TRUNC, 100));
}

static int s_append(int arg)
{
	(void)arg;
	EACH(put(path("d", 'g', i), O_WRONLY | O_APPEND, 100));
}

static int s_chmod(int arg)
{
	(void)arg;
	EACH(SYS(chmod(path("d", 'f', i), 0600)));
}

static int s_times(int arg)
{
	const struct timespec t[2] = {{.tv_sec = 1}, {.tv_sec = 2}};

	(void)arg;
	EACH(SYS(utimensat(AT_FDCWD, path("d", 'f', i), t, 0)));
}

static int s_truncate(int arg)
{
	(void)arg;
	EACH(SYS(truncate(path("d", 'f', i), 50)));
}

static int s_xattr(int arg)
{
	char v[8];

	(void)arg;
	EACH(getxattr(path("d", 'f', i), "user.none", v, sizeof(v)) < 0 && errno == ENODATA
		     ? 0
		     : -EEXIST);
}

static int s_rename(int arg)
{
	(void)arg;
	EACH(SYS(rename(path("d", 'f', i), path("d", 'r', i))));
}

static int s_rename_far(int back)
{
	EACH(SYS(back ? rename(path("e", 'r', i), path("d", 'r', i))
		      : rename(path("d", 'r', i), path("e", 'r', i))));
}

/* As editors save: a new file that takes the old one's place. */
static int save(int i)
{
	int r = put(path("d", 't', i), O_CREAT | O_EXCL | O_WRONLY, 100);

	return r < 0 ? r : SYS(rename(path("d", 't', i), path("d", 'g', i)));
}

static int s_save(int arg)
{
	(void)arg;
	EACH(save(i));
}

static int s_link(int arg)
{
	(void)arg;
	EACH(SYS(link(path("d", 'g', i), path("d", 'l', i))));
}

static int s_symlink(int arg)
{
	(void)arg;
	EACH(SYS(symlink("target", path("d", 's', i))));
}

static int s_readlink(int arg)
{
	char t[64];

	(void)arg;
	EACH(SYS(readlink(path("d", 's', i), t, sizeof(t))));
}

static int s_mkdir(int arg)
{
	(void)arg;
	EACH(SYS(mkdir(path("d", 'd', i), 0755)));
}

static int s_rmdir(int arg)
{
	(void)arg;
	EACH(SYS(rmdir(path("d", 'd', i))));
}

static int s_unlink(int kind)
{
	EACH(SYS(unlink(path("d", (char)kind, i))));
}

static int s_other(int arg)
{
	(void)arg;
	return put("d/other", O_WRONLY | O_CREAT, 0) < 0 ? -errno : SYS(unlink("d/other"));
}

static int s_fsync(int arg)
{
	int fd;

	(void)arg;
	for (int i = 0; i < MESSAGE_N; i++) {
		fd = open(path("d", 'g', i), O_WRONLY | O_CLOEXEC);
		if (fd < 0 || fsync(fd) < 0)
			return ret_nerrno();
		(void)close(fd);
	}
	return 0;
}

static int s_statvfs(int arg)
{
	struct statvfs v;

	(void)arg;
	EACH(SYS(statvfs("d", &v)));
}

static int s_program(int arg)
{
	char bytes[65536];
	int in = open("/bin/true", O_RDONLY | O_CLOEXEC),
	    out = open("d/program", O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	ssize_t n = 0;

	(void)arg;
	while (in >= 0 && out >= 0 && (n = read(in, bytes, sizeof(bytes))) > 0)
		if (write(out, bytes, (size_t)n) != n)
			break;
	(void)close(in);
	return close(out) < 0 || n != 0 ? -EIO : 0;
}

static int run_program(void)
{
	pid_t pid = vfork();
	int status;

	if (pid == 0) {
		(void)execl("d/program", "true", NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0 ? -ENOEXEC : 0;
}

static int s_exec(int arg)
{
	(void)arg;
	EACH(run_program());
}

const struct message_step message_steps[] = {
	{"the first of each", s_begin, 0, MESSAGE_PREP},
	{"create, write 4096, close", s_create, PAGE, MESSAGE_ANY},
	{"stat of what was written", s_stat, 'f', MESSAGE_ANY},
	{"stat, warm", s_stat, 'f', MESSAGE_NONE},
	{"open, read, close of what was written", s_read, 'f', MESSAGE_ANY},
	{"open, read, close, warm", s_read, 'f', MESSAGE_NONE},
	{"create, write 100, close", s_create, 100, MESSAGE_ANY},
	{"open, read, close of these", s_read, 'g', MESSAGE_ANY},
	{"open, read, close of these, warm", s_read, 'g', MESSAGE_NONE},
	{"replace: O_TRUNC, write 100, close", s_replace, 0, MESSAGE_ANY},
	{"append 100, close", s_append, 0, MESSAGE_ANY},
	{"fsync", s_fsync, 0, MESSAGE_ANY},
	{"chmod", s_chmod, 0, MESSAGE_ANY},
	{"utimens", s_times, 0, MESSAGE_ANY},
	{"truncate", s_truncate, 0, MESSAGE_ANY},
	{"stat after these", s_stat, 'f', MESSAGE_ANY},
	{"an attribute that is not there", s_xattr, 0, MESSAGE_ANY},
	{"a name that is not there", s_missing, 0, MESSAGE_ANY},
	{"a name that is not there, again", s_missing, 0, MESSAGE_NONE},
	{"list, the first time", s_list, 0, MESSAGE_ANY},
	{"once more", s_list, 1, MESSAGE_PREP}, /* its own time of access is asked for */
	{"list, warm", s_list, 0, MESSAGE_NONE},
	{"list and stat, warm", s_list, 1, MESSAGE_NONE},
	{"rename in a directory", s_rename, 0, MESSAGE_ANY},
	{"rename to another", s_rename_far, 0, MESSAGE_ANY},
	{"and back", s_rename_far, 1, MESSAGE_ANY},
	{"save: create, write 100, close, rename over", s_save, 0, MESSAGE_ANY},
	{"open, read, close of these, renamed", s_read, 'g', MESSAGE_ANY},
	{"link", s_link, 0, MESSAGE_ANY},
	{"symlink", s_symlink, 0, MESSAGE_ANY},
	{"readlink, the first time", s_readlink, 0, MESSAGE_ANY},
	{"readlink, warm", s_readlink, 0, MESSAGE_NONE},
	{"mkdir", s_mkdir, 0, MESSAGE_ANY},
	{"statvfs", s_statvfs, 0, MESSAGE_ANY},
	{"write a program", s_program, 0, MESSAGE_PREP},
	{"run it once", s_exec, 0, MESSAGE_PREP},
	{"run it, warm", s_exec, 0, MESSAGE_NONE},
	{"list and stat, cold", s_list, 1, MESSAGE_COLD},
	{"stat, cold", s_stat, 'r', MESSAGE_COLD},
	{"open, read, close, cold", s_read, 'r', MESSAGE_COLD},
	{"run a program, cold", s_exec, 0, MESSAGE_COLD},
	{"rmdir", s_rmdir, 0, MESSAGE_ANY},
	{"unlink", s_unlink, 'r', MESSAGE_ANY},
	{"unlink of one of two names", s_unlink, 'l', MESSAGE_ANY},
	{"something else is removed there", s_other, 0, MESSAGE_PREP},
	{"the first stat of what has one name left", s_stat, 'g', MESSAGE_PREP},
	{"and once more", s_stat, 'g', MESSAGE_NONE},
};
const unsigned message_nsteps = ARRAY_SIZE(message_steps);
