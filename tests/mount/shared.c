/*
 * Directories that all processes use: what each of them may see is known, and what is there in the end.
 *   contest/N   made by one of those who try, in one of five ways     log      records, appended by all
 *   queue/N     renamed by one of those who try, to taken/N.PROCESS    slots/N  exchanged with one another
 *   counterN    a number that its process raises, and all others see   crowd/   listed while names come and go
 *   hub*        names of one file                                      moved/   its directories change names
 */
#include <sys/mman.h>

#include "tests/mount/walk.h"

#define QUEUE  300
#define SLOTS  12
#define CROWD  120u
#define HUBS   8
#define COMERS 20u /* of each process */

static void put(int fd, const char *name, const char *text)
{
	int f = openat(fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	if (f < 0 || write(f, text, strlen(text)) != (ssize_t)strlen(text) || close(f) < 0)
		die("create %s", name);
}

static void get(int fd, const char *name, char *text, size_t size)
{
	int f = openat(fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = f < 0 ? -1 : read(f, text, size - 1);

	if (n < 0)
		die("read %s", name);
	text[n] = 0;
	(void)close(f);
}

/* ---- before ---- */

static void empty_dir(int fd)
{
	struct names n = {0};

	names_read(fd, 4096, 0, &n);
	for (size_t i = 0; i < n.n; i++) {
		int sub = openat(fd, n.v[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (sub >= 0) {
			empty_dir(sub);
			(void)close(sub);
		}
		if (unlinkat(fd, n.v[i], sub >= 0 ? AT_REMOVEDIR : 0) < 0)
			die("remove %s", n.v[i]);
	}
	names_free(&n);
}

void shared_begin(int fd)
{
	static const char *const dirs[] = {"contest", "queue", "taken",  "slots",
					   "crowd",   "moved", "moved/a"};
	char name[32], text[32];
	int f;

	empty_dir(fd);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdirat(fd, dirs[i], 0755) < 0)
			die("mkdir %s", dirs[i]);
	put(fd, "log", "");
	put(fd, "hub", "hub");
	put(fd, "source", "source");
	put(fd, "moved/a/f", "inside");
	for (unsigned i = 0; i < QUEUE; i++) {
		(void)snprintf(name, sizeof(name), "queue/%u", i);
		put(fd, name, "");
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		(void)snprintf(name, sizeof(name), "slots/%u", i);
		(void)snprintf(text, sizeof(text), "%u", i);
		put(fd, name, text);
	}
	for (unsigned i = 0; i < CROWD; i++) {
		/* Between names that go: whoever lists must not lose its place for that. */
		(void)snprintf(name, sizeof(name), "crowd/%u.%u", i % 4, i / 4);
		if (i < 4 * COMERS)
			put(fd, name, "");
		(void)snprintf(name, sizeof(name), "crowd/always%u", i);
		put(fd, name, "");
	}
	for (unsigned i = 0; i < PROCS; i++) {
		(void)snprintf(name, sizeof(name), "counter%u", i);
		put(fd, name, "");
		f = openat(fd, name, O_WRONLY | O_CLOEXEC);
		if (f < 0 || ftruncate(f, 8) < 0)
			die("truncate %s", name);
		(void)close(f);
	}
}

void shared_open(struct part *s, int fd, struct shared *sh, unsigned procs)
{
	char name[32];

	*s = (struct part){.fd = fd, .sh = sh, .procs = procs};
	for (unsigned i = 0; i < procs; i++) {
		void *p;
		int f;

		(void)snprintf(name, sizeof(name), "counter%u", i);
		f = openat(fd, name, O_RDONLY | O_CLOEXEC);
		p = f < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, f, 0);
		if (p == MAP_FAILED)
			die("map %s", name);
		s->seen[i] = p;
		(void)close(f);
	}
}

/* ---- steps ---- */

static int try_to_make(struct part *s, unsigned proc, const char *name, unsigned how)
{
	char mine[32];
	int fd;

	(void)snprintf(mine, sizeof(mine), "mine%u", proc);
	switch (how) {
	case 0:
		fd = openat(s->fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		return close(fd);
	case 1:
		return sys(mkdirat(s->fd, name, 0700));
	case 2:
		return sys(linkat(s->fd, "source", s->fd, name, 0));
	case 3:
		return sys(symlinkat("to", s->fd, name));
	default:
		(void)unlinkat(s->fd, mine, 0);
		put(s->fd, mine, "");
		return sys(renameat2(s->fd, mine, s->fd, name, 1 /* NOREPLACE */));
	}
}

static void contest(struct walk *w, struct part *s)
{
	for (unsigned i = 0; i < 10 && s->contests < CONTESTS; i++) {
		unsigned k = s->contests++;
		char name[32];
		int r;

		(void)snprintf(name, sizeof(name), "contest/%u", k);
		r = try_to_make(s, w->proc, name, k % 5);
		if (r != 0 && r != -EEXIST)
			bad(w, "%s: %s", name, strerror(-r));
		(void)atomic_fetch_add(&s->sh->tried[k], 1);
		if (r == 0)
			(void)atomic_fetch_add(&s->sh->won[k], 1);
	}
}

static void take(struct walk *w, struct part *s)
{
	for (unsigned i = 0; i < 5 && s->asks < QUEUE; i++) {
		unsigned k = s->asks++;
		char from[32], to[32];
		int r;

		(void)snprintf(from, sizeof(from), "queue/%u", k);
		(void)snprintf(to, sizeof(to), "taken/%u.%u", k, w->proc);
		r = sys(renameat(s->fd, from, s->fd, to));
		if (r != 0 && r != -ENOENT)
			bad(w, "%s: %s", from, strerror(-r));
		(void)atomic_fetch_add(&s->sh->asked[k], 1);
		if (r == 0)
			(void)atomic_fetch_add(&s->sh->took[k], 1);
	}
}

/* PROCESS NUMBER LENGTH xxxx, LENGTH bytes with the end of the line. */
static size_t make_record(char *line, unsigned proc, unsigned n)
{
	size_t len = 20 + (n * 977u + proc * 131u) % 2000;
	int k = snprintf(line, 64, "%u %u %zu ", proc, n, len);

	memset(line + k, 'x', len - (size_t)k);
	line[len - 1] = '\n';
	return len;
}

static void append(struct walk *w, struct part *s)
{
	int fd = openat(s->fd, "log", O_WRONLY | O_APPEND | O_CLOEXEC);
	char line[2100];

	if (fd < 0)
		die("open the log");
	for (unsigned i = 0; i < 5; i++) {
		size_t len = make_record(line, w->proc, s->records);
		ssize_t n = write(fd, line, len);

		if (n != (ssize_t)len) {
			bad(w, "append gives %zd of %zu: %s", n, len, n < 0 ? strerror(errno) : "");
			break;
		}
		atomic_store(&s->sh->records[w->proc], ++s->records);
	}
	(void)close(fd);
}

static void exchange(struct walk *w, struct part *s)
{
	unsigned a = rnd(w, SLOTS), b = (a + 1 + rnd(w, SLOTS - 1)) % SLOTS;
	char x[32], y[32];

	(void)snprintf(x, sizeof(x), "slots/%u", a);
	(void)snprintf(y, sizeof(y), "slots/%u", b);
	if (renameat2(s->fd, x, s->fd, y, 2 /* EXCHANGE */) < 0)
		bad(w, "exchange of %s and %s: %s", x, y, strerror(errno));
}

/* F3: what another process has written, and said so, is there by read and in a mapping. */
static void count(struct walk *w, struct part *s)
{
	unsigned other = rnd(w, s->procs);
	unsigned long long least;
	uint64_t v = ++s->counter, got = 0;
	char name[32];
	int fd;

	(void)snprintf(name, sizeof(name), "counter%u", w->proc);
	fd = openat(s->fd, name, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || pwrite(fd, &v, 8, 0) != 8)
		bad(w, "%s: %s", name, strerror(errno));
	(void)close(fd);
	atomic_store(&s->sh->counter[w->proc], v);
	least = atomic_load(&s->sh->counter[other]);
	(void)snprintf(name, sizeof(name), "counter%u", other);
	if (*s->seen[other] < least)
		bad(w, "%s is %llu in a mapping, not at least %llu", name,
		    (unsigned long long)*s->seen[other], least);
	fd = openat(s->fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pread(fd, &got, 8, 0) != 8 || got < least)
		bad(w, "%s is %llu, not at least %llu", name, (unsigned long long)got, least);
	(void)close(fd);
}

static void crowd(struct walk *w, struct part *s)
{
	struct names n = {0};
	char name[48];
	int fd = openat(s->fd, "crowd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned always = 0;

	if (fd < 0)
		die("open crowd");
	(void)snprintf(name, sizeof(name), "%u.%u", w->proc, rnd(w, COMERS));
	if (unlinkat(fd, name, 0) < 0)
		put(fd, name, "");
	names_read(fd, 300 + rnd(w, 500), 0, &n);
	names_sort(&n);
	for (size_t i = 0; i < n.n; i++) {
		always += !strncmp(n.v[i], "always", 6);
		if (i && !strcmp(n.v[i - 1], n.v[i]))
			bad(w, "crowd: '%s' is listed twice", n.v[i]);
	}
	if (always != CROWD)
		bad(w, "crowd: %u names of %u are listed", always, CROWD);
	names_free(&n);
	(void)close(fd);
}

static void hub(struct walk *w, struct part *s)
{
	char name[48];
	int r;

	(void)snprintf(name, sizeof(name), "hub.%u.%u", w->proc, rnd(w, HUBS));
	r = sys(linkat(s->fd, "hub", s->fd, name, 0));
	if (r == -EEXIST)
		r = sys(unlinkat(s->fd, name, 0));
	if (r < 0)
		bad(w, "%s: %s", name, strerror(-r));
}

/* A directory changes its name under those who walk through it. */
static void move(struct walk *w, struct part *s)
{
	static const char *const names[] = {"moved/a", "moved/b"};
	unsigned k = rnd(w, 2);
	char path[32], text[16];
	int r, fd;

	if (rnd(w, 3) == 0) {
		r = sys(renameat2(s->fd, names[k], s->fd, names[!k], 1));
		if (r < 0 && r != -ENOENT && r != -EEXIST)
			bad(w, "rename of a directory: %s", strerror(-r));
	}
	(void)snprintf(path, sizeof(path), "%s/f", names[k]);
	fd = openat(s->fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return;
	if (fd < 0 || read(fd, text, sizeof(text)) != 6 || memcmp(text, "inside", 6) != 0)
		bad(w, "%s is not what it is: %s", path, strerror(errno));
	(void)close(fd);
}

void step_shared(struct walk *w, struct part *s)
{
	static void (*const steps[])(struct walk *, struct part *) = {
		contest, take, append, exchange, count, crowd, hub, move};
	static const char *const names[] = {"contest", "take",  "append", "exchange",
					    "count",   "crowd", "hub",    "move"};
	uint32_t k = rnd(w, ARRAY_SIZE(steps));

	say(w, "%s", names[k]);
	steps[k](w, s);
}

/* ---- after ---- */

static bool wrong(const char *what, unsigned k, unsigned n)
{
	printf("shared: %s %u: %u\n", what, k, n);
	return false;
}

static bool once(int fd, const struct shared *sh)
{
	struct names n = {0};
	bool good = true;
	unsigned left = 0;
	int dir = openat(fd, "taken", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (unsigned k = 0; k < CONTESTS; k++)
		if (sh->tried[k] && sh->won[k] != 1)
			good = wrong("winners of contest", k, sh->won[k]);
	for (unsigned k = 0; k < QUEUE; k++) {
		if (sh->asked[k] && sh->took[k] != 1)
			good = wrong("takers of", k, sh->took[k]);
		left += sh->took[k];
	}
	if (dir < 0)
		die("open taken");
	names_read(dir, 4096, 0, &n);
	(void)close(dir);
	if (n.n != left)
		good = wrong("taken, of", left, (unsigned)n.n);
	names_free(&n);
	return good;
}

/* All records of all processes, whole, each process's in its order. */
static bool log_whole(int fd, const struct shared *sh)
{
	unsigned next[PROCS] = {0}, proc, n;
	char line[2200], want[2200];
	int f = openat(fd, "log", O_RDONLY | O_CLOEXEC);
	FILE *in = f < 0 ? NULL : fdopen(f, "r");

	if (!in)
		die("open the log");
	while (fgets(line, sizeof(line), in)) {
		size_t len;

		if (sscanf(line, "%u %u", &proc, &n) != 2 || proc >= PROCS || n != next[proc])
			return wrong("a record that nobody wrote, or not there, after", proc, n);
		len = make_record(want, proc, next[proc]++);
		if (strlen(line) != len || memcmp(line, want, len) != 0)
			return wrong("a torn record of process", proc, n);
	}
	(void)fclose(in);
	for (unsigned i = 0; i < PROCS; i++)
		if (next[i] != sh->records[i])
			return wrong("records of process", i, next[i]);
	return true;
}

static bool slots_whole(int fd)
{
	unsigned seen[SLOTS] = {0};
	char name[32], text[16];

	for (unsigned i = 0; i < SLOTS; i++) {
		unsigned long k;

		(void)snprintf(name, sizeof(name), "slots/%u", i);
		get(fd, name, text, sizeof(text));
		k = strtoul(text, NULL, 10);
		if (k >= SLOTS || seen[k]++)
			return wrong("exchanged: slot with another's content", i, (unsigned)k);
	}
	return true;
}

static bool hub_whole(int fd, unsigned procs)
{
	unsigned names = 1;
	char name[48];
	struct stat st, hub_st;

	if (fstatat(fd, "hub", &hub_st, 0) < 0)
		die("stat hub");
	for (unsigned i = 0; i < procs * HUBS; i++) {
		(void)snprintf(name, sizeof(name), "hub.%u.%u", i / HUBS, i % HUBS);
		if (fstatat(fd, name, &st, 0) < 0)
			continue;
		names++;
		if (st.st_ino != hub_st.st_ino)
			return wrong("a link to another file", i, 0);
	}
	return hub_st.st_nlink == names ||
	       wrong("links of a file with names", names, (unsigned)hub_st.st_nlink);
}

bool shared_end(int fd, const struct shared *sh, unsigned procs)
{
	bool good = once(fd, sh);

	good = log_whole(fd, sh) && good;
	good = slots_whole(fd) && good;
	return hub_whole(fd, procs) && good;
}
