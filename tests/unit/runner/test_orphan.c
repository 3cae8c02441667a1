/* What is taken for a remnant of a bwrap that was killed, and whom looking for them asks nothing: R4, and no process of anybody else. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/orphan.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"

/* How often what begins with it was opened; with @fail it cannot be. */
static struct {
	char path[64];
	bool fail;
	unsigned opened;
} watched;

/* Before libc's: every file that is looked at goes through here. */
int openat64(int dir, const char *path, int flags, ...)
{
	int mode = 0;

	if (flags & O_CREAT) {
		va_list ap;

		va_start(ap, flags);
		mode = va_arg(ap, int);
		va_end(ap);
	}
	if (watched.path[0] && !strcmp(path, watched.path)) {
		watched.opened++;
		if (watched.fail) {
			errno = EMFILE;
			return -1;
		}
	}
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

static void watch(pid_t pid, const char *file, bool fail)
{
	watched.fail = fail;
	watched.opened = 0;
	(void)snprintf(watched.path, sizeof(watched.path), "%d/%s", (int)pid, file);
}

/* ---- in bwrap's place ---- */

/* Like bwrap in its first moments: a child in namespaces of its own, which waits. It is told by its number, through the pipe. */
static int like_bwrap(void)
{
	pid_t pid;
	char byte;

	/* Not fork(): see tests/lib/namespaces.h. */
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
		return 1;
	pid = _Fork();
	if (pid == 0) {
		for (;;)
			(void)pause();
	}
	(void)!write(1, &pid, sizeof(pid));
	while (read(0, &byte, 1) < 0 && errno == EINTR)
		continue;
	return 0;
}

struct fake {
	pid_t outer, inner;
};

static void start(const char *self, struct fake *f)
{
	static char dir[] = "/tmp/rattan-orphan-XXXXXX";
	char path[64];
	int out[2], in[2];

	if (!strchr(dir, 'X') || !mkdtemp(dir))
		tap_fatal("mkdtemp");
	(void)snprintf(path, sizeof(path), "%s/bwrap", dir);
	if (symlink(self, path) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(in, O_CLOEXEC) < 0)
		tap_fatal("%s", path);
	f->outer = fork();
	if (f->outer == 0) {
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)execl(path, "bwrap", "--args", "7", "--", "/proc/self/fd/6", (char *)NULL);
		_exit(1);
	}
	(void)close(out[1]);
	(void)close(in[0]);
	if (read(out[0], &f->inner, sizeof(f->inner)) != (ssize_t)sizeof(f->inner) || f->inner <= 0)
		tap_fatal("no bwrap");
	(void)unlink(path);
	(void)rmdir(dir);
	(void)close(out[0]);
	/* in[1] stays: it ends with us. */
}

/* And is no zombie, which its parent may leave for long. */
static bool lives(pid_t pid)
{
	char path[64], line[512] = "";
	const char *at;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (f && !fgets(line, sizeof(line), f))
		line[0] = 0;
	if (f)
		(void)fclose(f);
	at = strrchr(line, ')');
	return at && at[1] == ' ' && at[2] != 'Z' && at[2] != 'X';
}

/* ---- checks ---- */

/* A process that calls itself bwrap, as one in a sandbox may: what it was started with is not read, which can hang. */
static void test_names_itself(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0)
		tap_fatal("pipe");
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_NAME, "bwrap", 0, 0, 0);
		(void)!write(ready[1], "y", 1);
		for (;;)
			(void)pause();
	}
	if (read(ready[0], &byte, 1) != 1)
		tap_fatal("no process");
	watch(pid, "status", false);
	orphan_end_all();
	ok(watched.opened > 0, "a process that calls itself bwrap is seen");
	watch(pid, "cmdline", false);
	orphan_end_all();
	eq_int(watched.opened, 0, "and asked nothing that it could let wait");
	ok(lives(pid), "and left alone");
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)close(ready[0]);
	(void)close(ready[1]);
}

static void test_parent(const char *self)
{
	bool ended = false;
	struct fake f;

	start(self, &f);
	watched.path[0] = 0;
	orphan_end_all();
	(void)usleep(100000);
	ok(lives(f.inner), "the child of a bwrap that lives is no remnant");
	watch(f.outer, "comm", true);
	orphan_end_all();
	(void)usleep(100000);
	ok(watched.opened > 0 && lives(f.inner), "nor where its parent cannot be looked at");
	watched.path[0] = 0;
	(void)kill(f.outer, SIGKILL);
	(void)waitpid(f.outer, NULL, 0);
	for (int i = 0; i < 500 && !ended; i++) {
		orphan_end_all();
		(void)usleep(10000);
		/* It is ours by now. */
		ended = waitpid(f.inner, NULL, WNOHANG) == f.inner;
	}
	ok(ended, "whose bwrap was killed is one");
}

int main(int argc, char **argv)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc > 1 && !strcmp(argv[0], "bwrap"))
		return like_bwrap();
	need_namespaces();
	if (n < 0)
		tap_fatal("/proc/self/exe");
	self[n] = 0;
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	test_names_itself();
	test_parent(self);
	return tap_done();
}
