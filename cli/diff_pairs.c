/* One diff(1) for many pairs of files. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/diff_pairs.h"

#define BYTES_MAX (32 << 20) /* of the pairs together, which are memory; one pair may have more */

/* ---- what is compared ---- */

void diff_room_init(struct diff_room *m)
{
	struct rlimit lim = {.rlim_cur = 1024};
	rlim_t spare;

	(void)getrlimit(RLIMIT_NOFILE, &lim);
	*m = (struct diff_room){.low = lim.rlim_cur >= 256 ? 100 : 10};
	spare = lim.rlim_cur > 64 ? (lim.rlim_cur - 64) / 3 : 1;
	m->max = spare < DIFF_PAIRS_MAX ? (size_t)spare : DIFF_PAIRS_MAX;
}

static int raise_fd(int *fd, int low)
{
	int high = fcntl(*fd, F_DUPFD_CLOEXEC, low);

	if (high < 0)
		return ret_nerrno();
	(void)close(*fd);
	*fd = high;
	return 0;
}

static uint64_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

int diff_room_add(struct diff_room *m, int *a, int *b)
{
	int r = m->n < m->max ? raise_fd(a, m->low) : -E2BIG;

	if (r == 0)
		r = raise_fd(b, m->low);
	if (r < 0)
		return r;
	m->a[m->n] = *a;
	m->b[m->n++] = *b;
	m->bytes += size_of(*a) + size_of(*b);
	return 0;
}

static int digits(int n)
{
	return n < 100 ? 2 : n < 1000 ? 3 : 4;
}

bool diff_room_full(const struct diff_room *m, uint64_t bytes)
{
	int last = m->n ? m->b[m->n - 1] : m->low;

	/* A hundredth would be sorted before a twentieth: none shall follow the last number of its length. */
	return m->n == m->max || m->bytes + bytes >= BYTES_MAX || digits(last + 2) > digits(last);
}

/* ---- who holds the files ---- */

static void close_others(unsigned first, unsigned last, unsigned but)
{
	if (but < first || but > last) {
		(void)close_range(first, last, 0);
		return;
	}
	if (but > first)
		(void)close_range(first, but - 1, 0);
	if (but < last)
		(void)close_range(but + 1, last, 0);
}

/* In a process of its own: at the descriptors @at the files of @from, and nothing else, until it is killed. @ready is closed last. */
static _Noreturn void hold(const int *at, const int *from, size_t n, pid_t parent, unsigned ready)
{
	unsigned next = 0;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	for (size_t i = 0; i < n; i++)
		if (from[i] != at[i] && dup3(from[i], at[i], O_CLOEXEC) < 0)
			_exit(1);
	for (size_t i = 0; i < n; next = (unsigned)at[i++] + 1)
		if ((unsigned)at[i] > next)
			close_others(next, (unsigned)at[i] - 1, ready);
	close_others(next, ~0u, ready);
	(void)close((int)ready); /* now that no other is left: diff(1) would compare it, too */
	for (;;)
		(void)pause();
}

static int start_holders(struct diff_pairs *x, const struct diff_room *m)
{
	const int *const from[] = {m->a, m->b};
	cleanup_fd int rd = -1, wr = -1;
	pid_t self = getpid();
	int p[2];
	char c;

	if (pipe2(p, O_CLOEXEC) < 0)
		return ret_nerrno();
	rd = p[0];
	wr = p[1];
	(void)fflush(stdout);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return ret_nerrno();
		if (pid == 0)
			hold(m->a, from[i], m->n, self, (unsigned)wr);
		x->holds[i] = pid;
	}
	/* They close theirs when all is where it shall be. */
	(void)close(steal_fd(&wr));
	return io_read_full(rd, &c, 1) == 0 ? 0 : -EIO;
}

/* ---- diff(1) ---- */

static int start_diff(struct diff_pairs *x)
{
	char da[40], db[40], *env[64], locale[] = "LC_ALL=C";
	char *argv[] = {(char[]){"diff"}, (char[]){"-ru"}, da, db, NULL};
	posix_spawn_file_actions_t act;
	cleanup_fd int rd = -1, wr = -1;
	size_t n = 0;
	int p[2], r;

	(void)snprintf(da, sizeof(da), "/proc/%d/fd", (int)x->holds[0]);
	(void)snprintf(db, sizeof(db), "/proc/%d/fd", (int)x->holds[1]);
	/* What it says is read here: the order of its names and its words are to be the same everywhere. */
	env[n++] = locale;
	for (char **e = environ; *e && n + 1 < ARRAY_SIZE(env); e++)
		if (!strncmp(*e, "PATH=", 5) || !strncmp(*e, "TMPDIR=", 7))
			env[n++] = *e;
	env[n] = NULL;
	if (pipe2(p, O_CLOEXEC) < 0)
		return ret_nerrno();
	rd = p[0];
	wr = p[1];
	if (posix_spawn_file_actions_init(&act))
		return -ENOMEM;
	r = posix_spawn_file_actions_adddup2(&act, wr, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawnp(&x->diff, "diff", &act, NULL, argv, env);
	(void)posix_spawn_file_actions_destroy(&act);
	if (r) {
		x->diff = 0;
		return -r;
	}
	x->out = fdopen(rd, "r");
	if (!x->out)
		return ret_nerrno();
	(void)steal_fd(&rd);
	return 0;
}

static void next_line(struct diff_pairs *x)
{
	x->len = getline(&x->line, &x->room, x->out);
}

int diff_pairs_start(struct diff_pairs *x, const struct diff_room *m)
{
	int r;

	*x = (struct diff_pairs){0};
	r = start_holders(x, m);
	if (r == 0)
		r = start_diff(x);
	if (r < 0)
		(void)!diff_pairs_end(x);
	else
		next_line(x);
	return r;
}

static int reap(pid_t pid, int *ret_status)
{
	while (waitpid(pid, ret_status, 0) < 0)
		if (errno != EINTR)
			return ret_nerrno();
	return 0;
}

int diff_pairs_end(struct diff_pairs *x)
{
	/* What is left of its words was of no pair. */
	int r = x->out && x->len > 0 ? -EIO : 0, status;

	if (x->out)
		(void)fclose(x->out);
	if (x->diff) {
		int e = reap(x->diff, &status);

		if (e == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) < 2))
			e = -EIO;
		r = r < 0 ? r : e;
	}
	for (int i = 0; i < 2; i++)
		if (x->holds[i]) {
			(void)kill(x->holds[i], SIGKILL);
			(void)reap(x->holds[i], &status);
		}
	free(x->line);
	*x = (struct diff_pairs){0};
	return r;
}

/* ---- what it says ---- */

static bool begins(const struct diff_pairs *x, const char *with)
{
	return x->len > 0 && !strncmp(x->line, with, strlen(with));
}

/* Which pair the line at the beginning of its part is of: "diff -ru /proc/1/fd/100 /proc/2/fd/100", or "Binary files
 * /proc/1/fd/100 and /proc/2/fd/100 differ". */
static int pair_of(const struct diff_pairs *x)
{
	const char *at = x->len > 0 ? strrchr(x->line, '/') : NULL;

	return at ? (int)strtol(at + 1, NULL, 10) : -1;
}

/* The first number after @p has @lead in it is where it begins: "@@ -1,5 +1,5 @@"; without a comma it is 1. */
static unsigned long lines_of(const char **p)
{
	char *e;

	(void)strtoul(*p, &e, 10);
	if (*e != ',') {
		*p = e;
		return 1;
	}
	return strtoul(e + 1, (char **)(uintptr_t)p, 10);
}

static void next_hunk(struct diff_pairs *x, unsigned long *ret_old, unsigned long *ret_new)
{
	const char *p = x->line + 4; /* "@@ -" */

	*ret_old = lines_of(&p);
	*ret_new = 0;
	if (!strncmp(p, " +", 2)) {
		p += 2;
		*ret_new = lines_of(&p);
	}
}

static int put_line(struct diff_pairs *x, int (*line)(void *arg, const char *text, size_t n),
		    void *arg)
{
	int r = line(arg, x->line, (size_t)x->len - (x->line[x->len - 1] == '\n'));

	next_line(x);
	return r;
}

int diff_pairs_lines(struct diff_pairs *x, int (*line)(void *arg, const char *text, size_t n),
		     void *arg)
{
	int r = 0;

	while (r == 0 && begins(x, "@@ -")) {
		unsigned long old, new;

		next_hunk(x, &old, &new);
		r = put_line(x, line, arg);
		/* Counted, as a line of a file can look like any other. */
		while (r == 0 && x->len > 0 && (old || new || *x->line == '\\')) {
			old -= old && (*x->line == ' ' || *x->line == '-');
			new -= new && (*x->line == ' ' || *x->line == '+');
			r = put_line(x, line, arg);
		}
	}
	return r;
}

int diff_pairs_next(struct diff_pairs *x, int a, enum diff_verdict *ret)
{
	*ret = DIFF_SAME;
	if (pair_of(x) != a)
		return 0;
	if (begins(x, "Binary files ")) {
		*ret = DIFF_BINARY;
		next_line(x);
		return 0;
	}
	if (!begins(x, "diff "))
		return -EIO;
	for (int i = 0; i < 3; i++) /* the names, as it has them */
		next_line(x);
	*ret = DIFF_TEXT;
	return 0;
}
