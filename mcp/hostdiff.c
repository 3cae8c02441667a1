#include "mcp/hostdiff.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define SIDE_MAX   (16 << 20)
#define TIMEOUT_MS 10000
/* Of diff: enough for two full sides in lines of ten bytes; lines of one byte cost it twelve times their size. */
#define MEMORY_MAX (256ul << 20)
#define SIDE_FD    16 /* from here on: away from the numbers that diff gets */

bool hostdiff_binary(int fd)
{
	uint8_t head[8192];
	ssize_t n = fd < 0 ? 0 : io_pread_full(fd, head, sizeof(head), 0);

	return n > 0 && memchr(head, 0, (size_t)n);
}

static int start_diff(int a_fd, int b_fd, const char *a_name, const char *b_name, int out_fd,
		      pid_t *ret_pid)
{
	char *const argv[] = {
		(char[]){"diff"},          (char[]){"-u"},         (char[]){"--label"},
		(char *)(uintptr_t)a_name, (char[]){"--label"},    (char *)(uintptr_t)b_name,
		(char[]){"/dev/fd/10"},    (char[]){"/dev/fd/11"}, NULL};
	char *const envp[] = {(char[]){"LC_ALL=C.UTF-8"}, NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	(void)sigemptyset(&none);
	r = posix_spawn_file_actions_init(&fa);
	if (r)
		return -r;
	r = posix_spawnattr_init(&attr);
	if (r) {
		(void)posix_spawn_file_actions_destroy(&fa);
		return -r;
	}
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	(void)posix_spawnattr_setsigmask(&attr, &none);
	r = posix_spawn_file_actions_adddup2(&fa, out_fd, 1);
	if (!r)
		r = posix_spawn_file_actions_adddup2(&fa, a_fd, 10);
	if (!r)
		r = posix_spawn_file_actions_adddup2(&fa, b_fd, 11);
	if (!r)
		r = posix_spawn(ret_pid, "/usr/bin/diff", &fa, &attr, argv, envp);
	(void)posix_spawnattr_destroy(&attr);
	(void)posix_spawn_file_actions_destroy(&fa);
	return -r;
}

/* Contents are a command's, and diff runs outside the sandbox. */
static void limit(pid_t pid)
{
	const struct rlimit memory = {.rlim_cur = MEMORY_MAX, .rlim_max = MEMORY_MAX};
	const struct rlimit core = {0};

	(void)prlimit(pid, RLIMIT_AS, &memory, NULL);
	(void)prlimit(pid, RLIMIT_CORE, &core, NULL);
}

/* Until the end of file, @max bytes, or the time is over. */
static int read_diff(int fd, size_t max, struct buf *out, bool *ret_cut)
{
	long long until = io_now_ms() + TIMEOUT_MS;
	size_t got = 0;
	char block[8192];

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		long long left = until - io_now_ms();
		ssize_t n;
		int r;

		if (left <= 0 || poll(&p, 1, (int)left) == 0)
			return -ETIMEDOUT;
		n = read(fd, block, sizeof(block));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? ret_nerrno() : 0;
		if (got + (size_t)n > max) {
			*ret_cut = true;
			n = (ssize_t)(max - got);
		}
		r = buf_put(out, block, (size_t)n);
		if (r || *ret_cut)
			return r;
		got += (size_t)n;
	}
}

static int check_side(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return ret_nerrno();
	return st.st_size > SIDE_MAX ? -EFBIG : 0;
}

int hostdiff_unified(int a_fd, int b_fd, const char *a_name, const char *b_name, size_t max,
		     struct buf *out, bool *ret_cut)
{
	cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cleanup_fd int a = fcntl(a_fd < 0 ? null : a_fd, F_DUPFD_CLOEXEC, SIDE_FD);
	cleanup_fd int b = fcntl(b_fd < 0 ? null : b_fd, F_DUPFD_CLOEXEC, SIDE_FD);
	cleanup_fd int rd = -1;
	cleanup_fd int wr = -1;
	int p[2], status, r;
	pid_t pid;

	*ret_cut = false;
	if (a < 0 || b < 0)
		return ret_nerrno();
	r = check_side(a);
	if (!r)
		r = check_side(b);
	if (r)
		return r;
	if (pipe2(p, O_CLOEXEC))
		return ret_nerrno();
	rd = p[0];
	wr = p[1];
	r = start_diff(a, b, a_name, b_name, wr, &pid);
	if (r)
		return r;
	(void)close(steal_fd(&wr));
	limit(pid);
	r = read_diff(rd, max, out, ret_cut);
	if (r || *ret_cut)
		(void)kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (r)
		return r;
	if (*ret_cut)
		return 1;
	return WIFEXITED(status) && WEXITSTATUS(status) < 2 ? WEXITSTATUS(status) : -E2BIG;
}
