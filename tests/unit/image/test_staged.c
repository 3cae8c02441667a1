/* An export has its name when its bytes are durable, and has ended when its name is; a disk that fails leaves nothing. */
#include <fcntl.h>
#include <sys/stat.h>

#include "fs/image/staged.h"
#include "tests/unit/image/fixture.h"

/* What was done, a letter each: b the bytes of a file, s all of a file system, d a directory, r a rename. The one at @fail_at fails. */
static char calls[16];
static size_t ncalls, fail_at = SIZE_MAX;

static bool call(char c)
{
	if (ncalls + 1 < sizeof(calls))
		calls[ncalls] = c;
	errno = EIO;
	return ncalls++ != fail_at;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && call(S_ISDIR(st.st_mode) ? 'd' : 'b') ? __real_fsync(fd) : -1;
}

int __real_syncfs(int fd);
int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd)
{
	(void)fd; /* all of the machine's disk: that it is asked for is enough */
	return call('s') ? 0 : -1;
}

int __real_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b)
{
	return call('r') ? __real_renameat(from, a, to, b) : -1;
}

int __real_renameat2(int from, const char *a, int to, const char *b, unsigned flags);
int __wrap_renameat2(int from, const char *a, int to, const char *b, unsigned flags);
int __wrap_renameat2(int from, const char *a, int to, const char *b, unsigned flags)
{
	return call('r') ? __real_renameat2(from, a, to, b, flags) : -1;
}

static char top[PATH_MAX / 2];

/* An export to "dest" whose call number @fail fails. */
static int export(bool dir, size_t fail, struct diag *diag)
{
	char dest[PATH_MAX];
	struct staged s;
	int r;

	memset(calls, 0, sizeof(calls));
	ncalls = 0;
	fail_at = fail;
	(void)snprintf(dest, sizeof(dest), "%s/dest", top);
	r = dir ? staged_dir(&s, dest, diag) : staged_file(&s, dest, diag);
	if (r < 0)
		tap_fatal("begin: %s", diag->text);
	if (!dir)
		ok(write(s.fd, "x", 1) == 1, "written");
	else
		ok(mkdirat(s.fd, "d", 0755) == 0, "made");
	return staged_end(&s, 0, diag);
}

static bool empty(void)
{
	return rmdir(top) == 0 && mkdir(top, 0700) == 0;
}

static void one(bool dir, const char *want)
{
	struct diag diag = {0};
	char dest[PATH_MAX];

	eq_int(export(dir, SIZE_MAX, &diag), 0, "exported");
	eq_str(calls, want, "the bytes, the name, the directory that has it");
	(void)snprintf(dest, sizeof(dest), "%s/dest", top);
	ok(access(dest, F_OK) == 0, "it is there");
	tree_remove(dest);
	for (size_t i = 0; i < strlen(want); i++) {
		diag = (struct diag){0};
		eq_int(export(dir, i, &diag), -EIO, "call %zu fails", i);
		ok(*diag.text, "which is said: %s", diag.text);
		ok(empty(), "and nothing is left");
	}
}

/* What is a directory of its own already has no name to get. */
static void in_place(void)
{
	struct diag diag = {0};
	struct staged s;
	char closed[PATH_MAX], dest[PATH_MAX];

	(void)snprintf(closed, sizeof(closed), "%s/closed", top);
	(void)snprintf(dest, sizeof(dest), "%s/closed/dest", top);
	if (mkdir(closed, 0700) < 0 || mkdir(dest, 0700) < 0 || chmod(closed, 0555) < 0)
		tap_fatal("mkdir");
	memset(calls, 0, sizeof(calls));
	ncalls = 0;
	fail_at = SIZE_MAX;
	eq_int(staged_dir(&s, dest, &diag), 0, "begun");
	if (geteuid()) /* who is root can replace it */
		eq_str(s.tmp, "", "where it is");
	eq_int(staged_end(&s, 0, &diag), 0, "ended");
	eq_str(calls, geteuid() ? "s" : "srd", "durable");
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");

	(void)snprintf(top, sizeof(top), "%s/rattan-staged-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(top))
		tap_fatal("mkdtemp");
	one(false, "brd");
	one(true, "srd");
	in_place();
	tree_remove(top);
	return tap_done();
}
