/*
 * The journal of a daemon that was out of its mind: bytes anywhere in it are others. Who is to go on over it refuses, or has
 * a tree that can be walked, read, changed and flushed, whatever is in it; nothing is touched that is not the journal's.
 */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/core/journal.h"
#include "tests/lib/sanitizer.h"
#include "tests/unit/core/ovl_fixture.h"

#define RUNS    (UNDER_TSAN ? 60 : 200)
#define DEPTH   12
#define NAMES   30
#define REFUSED 10
#define TAKEN   11
/* One bit lies between an o and a slash. */
#define F       "fooooooooooooooooooooooo"

static char saved[PATH_MAX + 16]; /* the store as the dead process left it */
static int journal;               /* and its journal */
static store_layer layer;

static uint64_t rnd(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* ---- what it was about ---- */

static void set_xattr(struct fx *f, const char *path, const char *name, size_t n)
{
	static char value[20000];
	struct ovl_entry e;

	if (fx_get(f, path, &e) < 0 || ovl_setxattr(f->o, e.ino, name, value, n, 0) < 0)
		tap_fatal("setxattr");
	ovl_forget(f->o, e.ino, 1);
}

static void put(struct fx *f, const char *path, uint64_t off, size_t n)
{
	static char bytes[300000];
	struct stat st;

	memset(bytes, (int)n, n);
	if (fx_stat(f, path, &st) < 0 && fx_make(f, path, FX_FILE, 0640) < 0)
		tap_fatal("%s", path);
	if (fx_write(f, path, off, bytes, n) != (ssize_t)n)
		tap_fatal("write of %s", path);
}

static int none(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	(void)name;
	(void)cookie;
	(void)e;
	return ++*(int *)arg > NAMES / 2;
}

static void work(struct fx *f, bool again)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;
	char path[64];
	int n = 0;

	for (int i = 0; i < NAMES; i++) {
		(void)snprintf(path, sizeof(path), "d%d", i % 5);
		if (!again && i < 5 && fx_make(f, path, FX_DIR, 0755) < 0)
			tap_fatal("%s", path);
		(void)snprintf(path, sizeof(path), "d%d/" F "%d", i % 5, i);
		put(f, path, again ? 100 : 0, 10 + (size_t)i * 977);
		(void)snprintf(path, sizeof(path), "d%d/" F "-%d", i % 5, i);
		if (again)
			put(f, path, 0, 10);
	}
	put(f, "large", again ? 200000 : 0, 300000);
	set_xattr(f, "large", "user.small", 20);
	set_xattr(f, "large", "user.big", 20000);
	if (again &&
	    (fx_rename(f, "d1/" F "1", "d2/moved", 0) < 0 || fx_rename(f, "d3", "d4/d3", 0) < 0 ||
	     fx_link(f, "large", "d0/link") < 0 || fx_remove(f, "d0/" F "0", false) < 0 ||
	     fx_symlink(f, "../d2", "d0/symlink") < 0))
		tap_fatal("names");
	/* Things that only memory knows: what is half listed, and what has no name. */
	if (fx_get(f, "d2", &e) < 0 || ovl_readdir(f->o, e.ino, 0, false, none, &n) < 0)
		tap_fatal("readdir");
	if (fx_get(f, "d2/" F "7", &e) < 0 || fx_remove(f, "d2/" F "7", false) < 0 ||
	    ovl_tmpfile(f->o, STORE_ROOT_INO, 0600, &c, &e) < 0 ||
	    ovl_write(f->o, e.ino, 0, "nameless", 8, false) != 8)
		tap_fatal("files without a name");
	if (!again && (put(f, "d2/" F "7", 0, 10), ovl_flush(f->o) < 0))
		tap_fatal("flush");
}

static void make(void)
{
	char data[PATH_MAX];
	struct fx f;
	int fd;

	fx_open(&f);
	if (journal_create(&fd) < 0 || journal_open(fd, &f.opts.journal) < 0)
		tap_fatal("journal");
	f.opts.flush_ms = 1u << 30;
	fx_mount(&f);
	work(&f, false);
	work(&f, true);
	journal = fx_journal_copy(fd);
	if (journal < 0)
		tap_fatal("the journal is never at rest");
	layer = f.layer;
	ovl_abandon(f.o);
	journal_close(f.opts.journal);
	store_close(f.s);
	(void)close(fd);
	fx_path(&f, "data", data);
	(void)snprintf(saved, sizeof(saved), "%s.saved", f.dir);
	if (rename(data, saved) < 0)
		tap_fatal("rename");
	fx_rm(f.dir);
}

/* ---- damage ---- */

/* Among what was ever written, and there most often where something is. */
static off_t somewhere(int fd, uint64_t *state)
{
	off_t total = 0, at = 0, end, want;

	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		total += end - at;
		at = end;
	}
	want = (off_t)(rnd(state) % (uint64_t)total);
	at = 0;
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		if (want < end - at)
			return at + want;
		want -= end - at;
		at = end;
	}
	return 0;
}

static void flip(int fd, uint64_t *state)
{
	static const uint32_t words[] = {0, 1, 2, 7, 8, 0x7fffffff, 0x80000000, 0xffffffff};
	uint8_t around[8];
	off_t at = 0;
	uint32_t w = words[rnd(state) % 8];
	int i;

	/* Bytes of files are all alike here, and say nothing; nor do those that were never used. */
	do {
		at = somewhere(fd, state) & ~(off_t)7;
		if (pread(fd, around, sizeof(around), at) != (ssize_t)sizeof(around))
			tap_fatal("journal");
		for (i = 1; i < 8 && around[i] == around[0]; i++)
			continue;
	} while (i == 8);
	i = (int)(rnd(state) % 8);
	at += i;
	/* One that was made for another build is none at all: what says so stays. */
	if (at < 16)
		return;
	if (rnd(state) % 3 == 0)
		(void)!pwrite(fd, &w, sizeof(w), at & ~(off_t)3);
	else
		(void)!pwrite(fd, (uint8_t[]){(uint8_t)(around[i] ^ (1u << rnd(state) % 8))}, 1,
			      at);
}

/* ---- going on ---- */

struct seen {
	struct {
		char name[256];
		store_ino ino;
	} v[64];
	unsigned n;
};

static int see(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct seen *s = arg;

	(void)cookie;
	(void)e;
	if (s->n == ARRAY_SIZE(s->v))
		return 1;
	(void)snprintf(s->v[s->n++].name, sizeof(s->v[0].name), "%s", name);
	return 0;
}

static void look(struct ovl *o, store_ino dir, int depth, int *budget)
{
	struct seen *s = calloc(1, sizeof(*s));
	static char bytes[65536];

	if (!s)
		tap_fatal("memory");
	(void)!ovl_readdir(o, dir, 0, false, see, s);
	for (unsigned i = 0; i < s->n && --*budget > 0; i++) {
		struct ovl_entry e;

		if (!strcmp(s->v[i].name, ".") || !strcmp(s->v[i].name, ".."))
			continue;
		if (strchr(s->v[i].name, '/'))
			_exit(20);
		if (ovl_lookup(o, dir, s->v[i].name, &e) < 0 || !e.ino)
			continue;
		if (S_ISDIR(e.attr.st.st_mode) && depth)
			look(o, e.ino, depth - 1, budget);
		else if (S_ISREG(e.attr.st.st_mode))
			(void)!ovl_read(o, e.ino, 0, bytes, sizeof(bytes));
		(void)!ovl_getxattr(o, e.ino, "user.big", bytes, sizeof(bytes));
		ovl_forget(o, e.ino, 1);
	}
	free(s);
}

static int use(struct fx *f)
{
	int budget = 2000;

	look(f->o, STORE_ROOT_INO, DEPTH, &budget);
	(void)!fx_make(f, "new", FX_DIR, 0755);
	(void)!fx_rename(f, "d2", "new/d2", 0);
	(void)!fx_write(f, "large", 1000, "x", 1);
	(void)!fx_remove(f, "d0/link", false);
	(void)!ovl_flush(f->o);
	budget = 2000;
	look(f->o, STORE_ROOT_INO, DEPTH, &budget);
	return ovl_close(f->o);
}

static void __attribute__((noreturn)) go_on(uint64_t seed, const char *data)
{
	uint64_t state = seed * 2654435761u + 1;
	struct fx f = {.layer = layer};
	struct diag d = {0};
	int fd, r;

	/* A loop that does not end is as bad as one that ends badly. */
	alarm(120);
	fd = fx_journal_copy(journal);
	for (uint64_t n = rnd(&state) % 4 + 1; n--;)
		flip(fd, &state);
	if (store_open(data, 0, &d, &f.s) < 0)
		tap_fatal("store_open: %s", d.text);
	r = journal_open(fd, &f.opts.journal);
	f.opts.flags = OVL_RESUME;
	f.opts.flush_ms = 1u << 30;
	f.opts.store = f.s;
	f.opts.layer = f.layer;
	if (r == 0)
		r = ovl_open(&f.opts, &f.o);
	if (r == 0)
		(void)!use(&f);
	journal_close(f.opts.journal);
	store_close(f.s);
	_exit(r < 0 ? REFUSED : TAKEN);
}

int main(int argc, char **argv)
{
	uint64_t from = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	unsigned runs = argc > 1 ? 1 : RUNS, refused = 0, taken = 0, bad = 0;
	char data[PATH_MAX + 32];

	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 1);
	make();
	(void)snprintf(data, sizeof(data), "%s.run", saved);
	for (uint64_t seed = from; seed < from + runs; seed++) {
		int status = 0;
		pid_t pid;

		fx_copy(saved, data);
		(void)fflush(stdout);
		pid = fork();
		if (pid == 0) {
			/* What is found damaged is said, each time. */
			if (argc < 2)
				(void)!freopen("/dev/null", "w", stderr);
			go_on(seed, data);
		}
		(void)waitpid(pid, &status, 0);
		fx_rm(data);
		refused += WIFEXITED(status) && WEXITSTATUS(status) == REFUSED;
		taken += WIFEXITED(status) && WEXITSTATUS(status) == TAKEN;
		if (!WIFEXITED(status) || WEXITSTATUS(status) < REFUSED ||
		    WEXITSTATUS(status) > TAKEN) {
			bad++;
			printf("# seed %llu: status %#x\n", (unsigned long long)seed,
			       (unsigned)status);
		}
	}
	fx_rm(saved);
	eq_int(bad, 0, "whatever was damaged, it is refused or gone on with");
	ok(argc > 1 || (refused > runs / 10 && taken > runs / 10),
	   "%u were refused, %u gone on with", refused, taken);
	return tap_done();
}
