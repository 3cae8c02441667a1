/*
 * See walk.h. mount_walk SEED PROCESSES STEPS MOUNT PLAIN: both are directories that processes have parts of; what is
 * there must be equal, with the times of the last walk.
 */
#include "tests/mount/walk.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>

/* ---- numbers, words ---- */

uint32_t rnd(struct walk *w, uint32_t n)
{
	w->rnd ^= w->rnd << 13;
	w->rnd ^= w->rnd >> 7;
	w->rnd ^= w->rnd << 17;
	return (uint32_t)(w->rnd >> 32) % n;
}

void rnd_step(struct walk *w, uint64_t step)
{
	uint64_t v = w->seed * UINT64_C(0xd1342543de82ef95) +
		     w->proc * UINT64_C(0xda942042e4dd58b5) + step * UINT64_C(0x9e3779b97f4a7c15);

	v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
	w->rnd = (v ^ v >> 31) | 1;
}

const char *pick_word(struct walk *w)
{
	static const char *const words[] = {"a", "b", "c", "d", "e", "\xff\xfe", "with space"};
	static char length[256];

	if (rnd(w, 50))
		return words[rnd(w, ARRAY_SIZE(words))];
	memset(length, 'L', 255);
	return length;
}

void pick(struct walk *w, char p[static PATH_LEN])
{
	unsigned depth = 1 + rnd(w, 3);
	size_t n = 0;

	for (unsigned i = 0; i < depth && n < PATH_LEN - 260; i++)
		n += (size_t)snprintf(p + n, PATH_LEN - n, "%s%s", i ? "/" : "", pick_word(w));
}

void pick_there(struct walk *w, mode_t type, char p[static PATH_LEN])
{
	struct stat st;

	for (unsigned i = 0; i < 12; i++) {
		pick(w, p);
		if (fstatat(w->dir[PLAIN], p, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    (!type || (st.st_mode & S_IFMT) == type))
			return;
	}
}

/* ---- what is told ---- */

static void format(char *text, size_t size, const char *fmt, va_list ap)
{
	vsnprintf(text, size, fmt, ap);
	for (char *c = text; *c; c++)
		if (*c & 0x80)
			*c = '?';
}

void say(struct walk *w, const char *fmt, ...)
{
	char *line = w->trace[w->ntrace++ % TRACE_MAX], text[PATH_LEN * 3];
	va_list ap;

	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(line, sizeof(w->trace[0]), "%llu %.220s", (unsigned long long)w->step, text);
}

void bad(struct walk *w, const char *fmt, ...)
{
	char text[PATH_LEN * 2];
	va_list ap;

	va_start(ap, fmt);
	format(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (w->failed++ < 40)
		printf("process %u step %llu: %s\n", w->proc, (unsigned long long)w->step, text);
	(void)fflush(stdout);
}

void die(const char *fmt, ...)
{
	int e = errno;
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(": %s\n", strerror(e));
	(void)fflush(stdout);
	_exit(2);
}

bool agree(struct walk *w, const char *op, const int r[SIDES])
{
	if (r[OURS] == r[PLAIN])
		return r[OURS] >= 0;
	bad(w, "%s: %d (%s) in the mount, %d (%s) on the plain side", op, r[OURS],
	    r[OURS] < 0 ? strerror(-r[OURS]) : "done", r[PLAIN],
	    r[PLAIN] < 0 ? strerror(-r[PLAIN]) : "done");
	return false;
}

/* ---- steps on names and attributes ---- */

static void step_make(struct walk *w, const char *p)
{
	static const char *const names[] = {"mkdir", "symlink", "mkfifo"};
	unsigned kind = rnd(w, 5) % 3;
	const char *target = pick_word(w);
	mode_t mode = 0700 | rnd(w, 0100);
	int r[SIDES];

	say(w, "%s %s", names[kind], p);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(kind == 0   ? mkdirat(w->dir[s], p, mode)
			   : kind == 1 ? symlinkat(target, w->dir[s], p)
				       : mknodat(w->dir[s], p, S_IFIFO | mode, 0));
	(void)agree(w, names[kind], r);
	look_at(w, p);
}

static void step_remove(struct walk *w, const char *p)
{
	struct stat st;
	bool dir = fstatat(w->dir[PLAIN], p, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
	int flags = (rnd(w, 8) ? dir : !dir) ? AT_REMOVEDIR : 0, r[SIDES];

	say(w, "%s %s", flags ? "rmdir" : "unlink", p);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(unlinkat(w->dir[s], p, flags));
	(void)agree(w, flags ? "rmdir" : "unlink", r);
	look_at(w, p);
}

static void step_rename(struct walk *w, const char *p)
{
	static const unsigned how[] = {0, 0, 0, 1 /* NOREPLACE */, 2 /* EXCHANGE */};
	unsigned flags = how[rnd(w, ARRAY_SIZE(how))];
	char q[PATH_LEN];
	int r[SIDES];

	if (rnd(w, 2))
		pick_there(w, 0, q);
	else
		pick(w, q);
	say(w, "rename %s %s %u", p, q, flags);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(renameat2(w->dir[s], p, w->dir[s], q, flags));
	(void)agree(w, "rename", r);
	look_at(w, p);
	look_at(w, q);
}

static void step_link(struct walk *w, const char *p)
{
	int flags = rnd(w, 4) ? 0 : AT_SYMLINK_FOLLOW, r[SIDES];
	char q[PATH_LEN];

	pick(w, q);
	say(w, "link %s %s %d", p, q, flags);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(linkat(w->dir[s], p, w->dir[s], q, flags));
	(void)agree(w, "link", r);
	look_at(w, p);
	look_at(w, q);
}

static void step_chmod(struct walk *w, const char *p)
{
	struct stat st;
	mode_t mode = 0600 | rnd(w, 07777);
	int r[SIDES];

	if (fstatat(w->dir[PLAIN], p, &st, 0) == 0 && S_ISDIR(st.st_mode))
		mode |= 0700;
	say(w, "chmod %s %o", p, mode);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(fchmodat(w->dir[s], p, mode, 0));
	(void)agree(w, "chmod", r);
	look_at(w, p);
}

static void step_times(struct walk *w, const char *p)
{
	struct timespec t[2] = {{(time_t)rnd(w, 1u << 31), (long)rnd(w, 1000000000)},
				{(time_t)rnd(w, 1u << 31), (long)rnd(w, 1000000000)}};
	struct stat st[SIDES];
	int r[SIDES];

	say(w, "utimens %s", p);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(utimensat(w->dir[s], p, t, AT_SYMLINK_NOFOLLOW));
	if (!agree(w, "utimens", r))
		return;
	for (int s = 0; s < SIDES; s++)
		if (fstatat(w->dir[s], p, &st[s], AT_SYMLINK_NOFOLLOW) < 0 ||
		    memcmp(&st[s].st_mtim, &t[1], sizeof(t[1])) != 0)
			bad(w, "the times of %s are not those that were set, side %d", p, s);
}

static void step_xattr(struct walk *w, const char *p)
{
	static const char *const names[] = {"user.a", "user.b", "user.longer.name"};
	const char *name = names[rnd(w, ARRAY_SIZE(names))];
	int kind = (int)rnd(w, 4), flags = (int)rnd(w, 3), r[SIDES];
	size_t n = rnd(w, 3) ? rnd(w, 40) : rnd(w, 900);

	for (size_t i = 0; i < n; i++)
		w->data[i] = (uint8_t)rnd(w, 256);
	say(w, "xattr %s %s %d", p, name, kind);
	for (int s = 0; s < SIDES; s++) {
		int fd = openat(w->dir[s], p, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

		r[s] = sys(fd);
		if (fd < 0)
			continue;
		r[s] = sys(kind ? fsetxattr(fd, name, w->data, n, flags) : fremovexattr(fd, name));
		(void)close(fd);
	}
	(void)agree(w, "xattr", r);
	look_at(w, p);
}

static void pick_for(struct walk *w, uint32_t k, char p[static PATH_LEN])
{
	if (k < 260)
		pick(w, p);
	else if (k >= 560 && k < 800)
		pick_there(w, S_IFREG, p);
	else if (k >= 990)
		pick_there(w, S_IFDIR, p);
	else
		pick_there(w, 0, p);
}

void one_step(struct walk *w)
{
	uint32_t k = rnd(w, 1000);
	char p[PATH_LEN];

	pick_for(w, k, p);
	if (k < 140)
		step_create(w, p);
	else if (k < 240)
		step_make(w, p);
	else if (k < 260)
		step_tmpfile(w, p);
	else if (k < 370)
		step_remove(w, p);
	else if (k < 480)
		step_rename(w, p);
	else if (k < 540)
		step_link(w, p);
	else if (k < 800)
		step_file(w, p);
	else if (k < 890)
		step_handle(w);
	else if (k < 920)
		step_chmod(w, p);
	else if (k < 940)
		step_times(w, p);
	else if (k < 980)
		step_xattr(w, p);
	else if (k < 990)
		look_tree(w, false);
	else
		step_listing(w, p);
}

/* ---- processes ---- */

static int open_dir(int at, const char *name, bool make)
{
	int fd;

	if (make && mkdirat(at, name, 0755) < 0 && errno != EEXIST)
		die("mkdir %s", name);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		die("open %s", name);
	return fd;
}

static int process(struct walk *w, struct part *shared, uint64_t steps, const int top[SIDES])
{
	char name[16];

	(void)snprintf(name, sizeof(name), "p%u", w->proc);
	for (int s = 0; s < SIDES; s++)
		w->dir[s] = open_dir(top[s], name, true);
	look_tree(w, true);
	for (w->step = 1; w->step <= steps && !w->failed; w->step++) {
		rnd_step(w, w->step);
		if (rnd(w, 12) == 0)
			step_shared(w, shared);
		else
			one_step(w);
	}
	if (!w->failed)
		look_tree(w, false);
	handles_close(w);
	for (size_t i = w->ntrace > TRACE_MAX ? w->ntrace - TRACE_MAX : 0;
	     w->failed && i < w->ntrace; i++)
		printf("  process %u: %s\n", w->proc, w->trace[i % TRACE_MAX]);
	if (!w->failed)
		settle(w);
	(void)fflush(stdout);
	return w->failed != 0;
}

static void *zeros(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

int main(int argc, char **argv)
{
	unsigned procs = argc == 6 ? (unsigned)strtoul(argv[2], NULL, 10) : 0, failed = 0;
	struct shared *sh = zeros(sizeof(*sh));
	int top[SIDES], fd;

	if (!procs || procs > PROCS) {
		printf("usage: mount_walk SEED PROCESSES STEPS MOUNT PLAIN\n");
		return 2;
	}
	umask(0);
	top[OURS] = open_dir(AT_FDCWD, argv[4], false);
	top[PLAIN] = open_dir(AT_FDCWD, argv[5], false);
	fd = open_dir(top[OURS], "shared", true);
	shared_begin(fd);
	printf("begun\n");
	(void)fflush(stdout);
	for (unsigned i = 0; i < procs; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			struct walk *w = zeros(sizeof(*w));
			struct part part;

			w->proc = i;
			w->seed = strtoull(argv[1], NULL, 10);
			shared_open(&part, fd, sh, procs);
			_exit(process(w, &part, strtoull(argv[3], NULL, 10), top));
		}
	}
	for (unsigned i = 0; i < procs; i++) {
		int status;

		if (wait(&status) < 0)
			die("wait");
		failed += status != 0;
		if (WIFSIGNALED(status))
			printf("a process was ended by signal %d\n", WTERMSIG(status));
	}
	if (!failed && !shared_end(fd, sh, procs))
		failed++;
	printf("%s: seed %s, %u processes, %s steps each\n", failed ? "failed" : "equal", argv[1],
	       procs, argv[3]);
	return failed != 0;
}
