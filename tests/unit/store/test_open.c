/* store: what is opened, what is refused and with which words; one PID namespace. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/io.h"
#include "store/fsck.h"
#include "store/store_internal.h"
#include "tests/unit/store/store_test.h"

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[192];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (!f || fputs(text, f) < 0 || fclose(f))
		tap_fatal("%s: %m", path);
}

static bool there(const char *dir, const char *name)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static void refused(const char *dir, unsigned flags, int want, const char *words, const char *what)
{
	struct store *s = NULL;
	struct diag d = {0};
	int r = store_open(dir, flags, &d, &s);

	ok(r == want && !s && strstr(d.text, words), "%s: %d %s", what, r, d.text);
	store_close(s);
}

static void creation(void)
{
	char dir[64], sub[128];
	struct store *s = NULL;
	struct stat st;

	make_dir(dir);
	(void)snprintf(sub, sizeof(sub), "%s/a/b", dir);
	refused(sub, 0, -ENOENT, "no store", "not there");
	refused(dir, 0, -ENOENT, "no store", "an empty directory");
	ok(!there(dir, "lock"), "which stays empty");
	eq_int(store_open(sub, STORE_CREATE, NULL, &s), 0, "made with its parents");
	ok(stat(sub, &st) == 0 && (st.st_mode & 0777) == 0700, "for its owner alone");
	store_close(s);
	eq_int(store_open(sub, 0, NULL, &s), 0, "opened again");
	store_close(s);
	store_close(NULL);
	refused("", STORE_CREATE, -ENOENT, "no store", "an empty path");
	tree_remove(dir);
}

static void foreign(void)
{
	char dir[64], file[128];

	make_dir(dir);
	put_file(dir, "thesis.txt", "important");
	refused(dir, STORE_CREATE, -ENOTEMPTY, "not a store", "a foreign directory");
	ok(!there(dir, "lock") && !there(dir, "meta"), "is not written to");
	(void)snprintf(file, sizeof(file), "%s/thesis.txt", dir);
	refused(file, STORE_CREATE, -ENOTEMPTY, "not a directory", "a file");
	tree_remove(dir);
	make_dir(dir);
	(void)snprintf(file, sizeof(file), "%s/meta", dir);
	if (mkdir(file, 0700) < 0)
		tap_fatal("mkdir");
	refused(dir, STORE_CREATE, -ENOTEMPTY, "not a store",
		"one with a folder of a name like ours");
	tree_remove(dir);
}

static void unreadable(void)
{
	char dir[64];
	pid_t pid;
	int status = 0;

	make_dir(dir);
	if (chmod(dir, 0) < 0)
		tap_fatal("chmod");
	/* root reads everything: ask as somebody else */
	pid = fork();
	if (pid == 0) {
		struct store *s = NULL;
		struct diag d = {0};
		int r;

		if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
			_exit(9);
		r = store_open(dir, STORE_CREATE, &d, &s);
		_exit(r == -EACCES && strstr(d.text, "cannot open the data directory") ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		tap_fatal("fork");
	eq_int(status, 0, "an unreadable directory is -EACCES, with a sentence");
	(void)chmod(dir, 0700);
	tree_remove(dir);
}

static ino_t format_file(const char *dir)
{
	char path[128];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/format", dir);
	return stat(path, &st) < 0 ? 0 : st.st_ino;
}

static bool format_is(const char *dir, const char *want)
{
	cleanup_buf struct buf b = {0};
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/format", dir);
	return io_read_file(AT_FDCWD, path, 4096, &b) == 0 && b.len == strlen(want) &&
	       !memcmp(b.data, want, b.len);
}

/* One of an earlier format is taken over by who writes to it. */
static void raised(const char *format)
{
	struct store *s = NULL;
	struct diag d = {0};
	char dir[64];
	ino_t was;

	make_dir(dir);
	store_close(open_store(dir));
	put_file(dir, "format", format);
	eq_int(store_open(dir, STORE_RDONLY, &d, &s), 0, "an earlier format is read");
	store_close(s);
	ok(format_is(dir, format), "and stays what it is");
	was = format_file(dir);
	store_close(open_store(dir));
	ok(format_file(dir) == was, "it is the same file: a full disk has no room for another");
	ok(format_is(dir, "rattan store, format 4\n"), "unless it is opened to be written to");
	store_close(open_store(dir));
	tree_remove(dir);
}

static void versions(void)
{
	char dir[64];

	make_dir(dir);
	store_close(open_store(dir));
	put_file(dir, "format", "rattan store, format 5\n");
	refused(dir, STORE_CREATE, -EPROTONOSUPPORT, "format 5", "a later format");
	put_file(dir, "format", "rattan store, format 1\n");
	refused(dir, STORE_CREATE, -EPROTONOSUPPORT, "another data directory", "an earlier one");
	put_file(dir, "format", "rattan store, format 2");
	refused(dir, STORE_CREATE, -EBADMSG, "damaged", "half a line");
	put_file(dir, "format", "#!/bin/sh\n");
	refused(dir, STORE_CREATE, -EBADMSG, "damaged", "something else");
	tree_remove(dir);
}

static void superblock(const char *key, size_t n, const void *value, int want, const char *words,
		       const char *what)
{
	char dir[64], name[] = "superblock";
	cleanup_tx MDB_txn *t = NULL;
	MDB_val k = {strlen(name), name}, v = {n, (void *)(uintptr_t)value};
	struct store *s;

	(void)key;
	make_dir(dir);
	s = open_store(dir);
	if (store_tx_begin(s, &t) < 0 || store_tx_put(s, t, DB_META, &k, &v, 0) < 0 ||
	    store_tx_commit(s, &t) < 0)
		tap_fatal("tx");
	store_close(s);
	refused(dir, STORE_CREATE, want, words, what);
	tree_remove(dir);
}

static void superblocks(void)
{
	static const char other[] = "\x84\xa5"
				    "block\xcd\x10\x00\xa7"
				    "created\x01\xa6"
				    "digest\xa6"
				    "sha256\xa6"
				    "format\x02";

	superblock("", 3, "abc", -EBADMSG, "superblock", "a damaged superblock");
	superblock("", sizeof(other) - 1, other, -EPROTONOSUPPORT, "4096", "another block size");
}

static void damaged(void)
{
	static const char *const files[] = {"meta/data.mdb", "chunks/data.mdb"};
	static uint8_t bytes[STORE_BLOCK];
	char dir[64], path[128];
	struct store *s;
	struct stat st;

	for (int i = 0; i < 2; i++) {
		struct store_chunk c = {.data = bytes, .len = sizeof(bytes)};

		make_dir(dir);
		s = open_store(dir);
		if (store_chunks_put(s, &c, 1) < 0)
			tap_fatal("put");
		store_close(s);
		(void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		if (stat(path, &st) < 0 || truncate(path, st.st_size - 4096) < 0)
			tap_fatal("truncate");
		refused(dir, STORE_CREATE, -EBADMSG, "cut short", files[i]);
		if (truncate(path, 0) < 0)
			tap_fatal("truncate");
		refused(dir, STORE_CREATE, -EBADMSG, "cut short", "empty");
		if (unlink(path) < 0)
			tap_fatal("unlink");
		refused(dir, STORE_CREATE, -EBADMSG, "missing", "missing");
		ok(!there(dir, files[i]), "and not made anew");
		put_file(dir, files[i],
			 "this is no LMDB file, but long enough to look at..........");
		refused(dir, STORE_CREATE, -EBADMSG, "damaged", "garbage");
		tree_remove(dir);
	}
}

/* Records that one transaction puts and takes away: some of their pages are the last ones, and never written. */
static void pass(MDB_env *env, MDB_dbi dbi, uint32_t records)
{
	static uint8_t bytes[400];
	MDB_txn *t;

	if (mdb_txn_begin(env, NULL, 0, &t))
		tap_fatal("a transaction");
	for (uint32_t i = 0; i < 2 * records; i++) {
		uint8_t name[DIGEST_LEN] = {0xff};
		MDB_val k = {sizeof(name), name}, v = {sizeof(bytes), bytes};
		uint32_t n = i % records;

		memcpy(name + 1, &n, sizeof(n));
		if (i < records ? mdb_put(t, dbi, &k, &v, 0) : mdb_del(t, dbi, &k, NULL))
			tap_fatal("record %u", i);
	}
	if (mdb_txn_commit(t))
		tap_fatal("commit");
}

/* Until the file ends before the page that LMDB counts as the last: where its list of free pages needs none behind them. */
static bool end_unwritten(MDB_env *env, MDB_dbi dbi, const char *path)
{
	MDB_envinfo info;
	struct stat st;

	for (uint32_t n = 10; n < 3000; n += 10) {
		pass(env, dbi, n);
		if (mdb_env_info(env, &info) || stat(path, &st) < 0)
			return false;
		if ((uint64_t)st.st_size / 4096 <= info.me_last_pgno)
			return true;
	}
	return false;
}

/* LMDB counts them; the file is whole all the same. */
static void unwritten(void)
{
	static const char *const files[] = {"meta/data.mdb", "chunks/data.mdb"};
	static uint8_t bytes[STORE_BLOCK];

	for (int i = 0; i < 2; i++) {
		struct store_chunk c = {.data = bytes, .len = sizeof(bytes)};
		struct store_fsck_opts o = {0};
		struct store_fsck_sum sum = {0};
		char dir[64], path[128];
		struct diag d = {0};
		struct store *s;
		struct stat st;
		int r;

		make_dir(dir);
		s = open_store(dir);
		bytes[0] = (uint8_t)i;
		if (store_chunks_put(s, &c, 1) < 0)
			tap_fatal("put");
		(void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		ok(end_unwritten(i ? s->chunks.env : s->meta.env, i ? s->chunk_db : s->db[DB_META],
				 path),
		   "%s ends before its last page", files[i]);
		store_close(s);
		r = store_open(dir, 0, &d, &s);
		eq_int(r, 0, "which is no damage: %s", d.text);
		store_close(r < 0 ? NULL : s);
		eq_int(store_fsck(dir, &o, &d, &sum), 0, "nor to a check: %s", d.text);
		eq_int((int)sum.damaged, 0, "nothing is damaged");
		if (stat(path, &st) < 0 || truncate(path, st.st_size / 2) < 0)
			tap_fatal("truncate");
		refused(dir, STORE_CREATE, -EBADMSG, "cut short", "what is in use is missed");
		tree_remove(dir);
	}
}

/* LMDB's, by byte; the free list's database, of a meta page, is at 40. */
enum {
	META_FREE_DEPTH = 46,
	META_FREE_ROOT = 80,
	META_LAST = 136,
	META_TXN = 144,
	PAGE = 4096
};

/* A page of the free list with @n records, each of which has the list of free pages in page @list. */
static void list_leaf(uint8_t *pg, uint64_t pgno, uint16_t n, uint64_t list, uint32_t len)
{
	const uint16_t flags = 2, lower = (uint16_t)(16 + 2 * n), upper = (uint16_t)(PAGE - 24 * n);

	memcpy(pg, &pgno, 8);
	memcpy(pg + 10, &flags, 2);
	memcpy(pg + 12, &lower, 2);
	memcpy(pg + 14, &upper, 2);
	for (uint16_t i = 0; i < n; i++) {
		const uint16_t at = (uint16_t)(upper + 24 * i), big = 1, ksize = 8;
		const uint64_t key = i + 1u;

		memcpy(pg + 16 + 2 * i, &at, 2);
		memcpy(pg + at, &len, 4);
		memcpy(pg + at + 4, &big, 2);
		memcpy(pg + at + 6, &ksize, 2);
		memcpy(pg + at + 8, &key, 8);
		memcpy(pg + at + 16, &list, 8);
	}
}

/* Of a store whose last three pages are missing, says a free list of @n records with one value. */
static void listed_free(uint16_t n, int want)
{
	uint8_t meta[2][PAGE], tail[2 * PAGE] = {0};
	uint64_t txn[2], pages, last, list[4] = {3};
	const uint16_t depth = 1, overflow = 4;
	const uint32_t one = 1;
	char dir[64], path[128];
	struct store *s = NULL;
	struct diag d = {0};
	struct stat st;
	int fd, newer, r;

	make_dir(dir);
	store_close(open_store(dir));
	(void)snprintf(path, sizeof(path), "%s/chunks/data.mdb", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || pread(fd, meta, sizeof(meta), 0) != sizeof(meta))
		tap_fatal("%s: %m", path);
	memcpy(&txn[0], meta[0] + META_TXN, 8);
	memcpy(&txn[1], meta[1] + META_TXN, 8);
	newer = txn[1] > txn[0];
	pages = (uint64_t)st.st_size / PAGE;
	last = pages + 4;
	list_leaf(tail, pages, n, pages + 1, sizeof(list));
	for (int i = 1; i < 4; i++)
		list[i] = last + 1 - (uint64_t)i;
	memcpy(tail + PAGE, &(uint64_t){pages + 1}, 8);
	memcpy(tail + PAGE + 10, &overflow, 2);
	memcpy(tail + PAGE + 12, &one, 4);
	memcpy(tail + PAGE + 16, list, sizeof(list));
	memcpy(meta[newer] + META_FREE_DEPTH, &depth, 2);
	memcpy(meta[newer] + META_FREE_ROOT, &pages, 8);
	memcpy(meta[newer] + META_LAST, &last, 8);
	if (pwrite(fd, tail, sizeof(tail), st.st_size) != sizeof(tail) ||
	    pwrite(fd, meta, sizeof(meta), 0) != sizeof(meta) || close(fd) < 0)
		tap_fatal("%s: %m", path);
	r = store_open(dir, STORE_RDONLY, &d, &s);
	eq_int(r, want, "%u records of one value: %s", (unsigned)n, d.text);
	store_close(s);
	tree_remove(dir);
}

/* A creation that was cut off before the format file goes on where it stopped. */
static void unfinished(void)
{
	char dir[64], path[128];
	struct store *s;
	store_layer l;

	make_dir(dir);
	store_close(open_store(dir));
	(void)snprintf(path, sizeof(path), "%s/format", dir);
	if (unlink(path) < 0)
		tap_fatal("unlink");
	refused(dir, 0, -ENOENT, "no store", "unfinished is not there");
	s = open_store(dir);
	ok(there(dir, "format"), "and is finished when asked to create");
	if (store_ref_set(s, "tag/kept", 1) != -ENOENT || store_layer_new(s, 0, &l) < 0 ||
	    store_ref_set(s, "tag/kept", l) < 0)
		tap_fatal("ref");
	store_close(s);
	if (unlink(path) < 0)
		tap_fatal("unlink");
	s = open_store(dir);
	eq_int(store_ref_get(s, "tag/kept", &l), 0,
	       "what is whole stays when only the format is lost");
	store_close(s);
	if (unlink(path) < 0)
		tap_fatal("unlink");
	put_file(dir, "chunks/data.mdb", "torn");
	s = open_store(dir);
	eq_int(store_ref_get(s, "tag/kept", &l), -ENOENT,
	       "what a power loss left of a creation is made anew");
	store_close(s);
	tree_remove(dir);
}

/* ---- other processes: this binary again, told what to do ---- */

static int child_open(const char *dir)
{
	struct store *s = NULL;
	struct diag d = {0};
	int r = store_open(dir, 0, &d, &s);

	store_close(s);
	if (r == 0)
		return 10;
	return r == -EXDEV && strstr(d.text, "PID namespace") ? 11 : 12;
}

/* @flags: namespaces to unshare first. The child's exit code, or 77 when it may not unshare. */
static int run_child(const char *dir, int flags)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (flags && unshare(flags) < 0)
			_exit(77);
		/* CLONE_NEWPID is for children */
		pid = flags ? fork() : 0;
		if (pid == 0) {
			(void)execl("/proc/self/exe", "test_open", "open", dir, (char *)NULL);
			_exit(1);
		}
		_exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
									   : 2);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		tap_fatal("child");
	return WEXITSTATUS(status);
}

static void namespaces(void)
{
	int flags = CLONE_NEWPID | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
	char dir[64];
	struct store *s;
	int r;

	make_dir(dir);
	s = open_store(dir);
	eq_int(run_child(dir, 0), 10, "a second process of the same namespace may open it");
	r = run_child(dir, flags);
	if (r == 77)
		ok(1, "another PID namespace # SKIP may not unshare");
	else
		eq_int(r, 11, "one of another PID namespace may not");
	store_close(s);
	if (r != 77)
		eq_int(run_child(dir, flags), 10, "once nobody has it open, it may");
	s = open_store(dir);
	ok(s != NULL, "and then we again");
	store_close(s);
	tree_remove(dir);
}

/* Pages of meta that are in memory, of so many; with @drop those that can go have gone. */
static size_t resident(const char *dir, bool drop, size_t *ret_pages)
{
	char path[128];
	unsigned char in[4096];
	struct stat st;
	size_t n, sum = 0;
	void *map;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/meta/data.mdb", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || (drop && (fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))) ||
	    fstat(fd, &st) < 0)
		tap_fatal("%s: %m", path);
	n = (size_t)st.st_size / 4096;
	n = n < sizeof(in) ? n : sizeof(in);
	map = mmap(NULL, n * 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED || mincore(map, n * 4096, in) < 0)
		tap_fatal("mincore: %m");
	for (size_t i = 0; i < n; i++)
		sum += in[i] & 1;
	(void)munmap(map, n * 4096);
	(void)close(fd);
	*ret_pages = n;
	return sum;
}

/* From a cold disk a record comes with those beside it. */
static void ahead(void)
{
	char dir[64], name[32];
	struct store *s;
	struct store_batch *b;
	struct store_env e;
	size_t before, after, pages;

	make_dir(dir);
	s = open_store(dir);
	if (store_env_create(s, "e", 0, NULL, &e) < 0 || store_batch_begin(s, e.open, &b) < 0)
		tap_fatal("setup");
	for (unsigned i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof(name), "a-name-of-some-length-%06u", i);
		name_set(b, 1, name, i + 2);
	}
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
	store_close(s);
	(void)resident(dir, true, &pages);
	s = open_store(dir);
	before = resident(dir, true, &pages);
	eq_int(name_at(s, e.open, 1, "a-name-of-some-length-010000"), 10002, "a name is looked up");
	after = resident(dir, false, &pages);
	if (before > pages / 4)
		printf("# not tried: what is in %s cannot leave the memory\n", dir);
	else
		ok(after >= before + 16,
		   "what is beside it is read with it: %zu, then %zu of %zu pages", before, after,
		   pages);
	store_close(s);
	tree_remove(dir);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "open"))
		return child_open(argv[2]);
	creation();
	foreign();
	unreadable();
	versions();
	raised("rattan store, format 2\n");
	raised("rattan store, format 3\n");
	superblocks();
	damaged();
	unwritten();
	listed_free(1, 0);
	/* Each of them could have megabytes to read, as often as there are records. */
	listed_free(2, -EBADMSG);
	unfinished();
	namespaces();
	ahead();
	return tap_done();
}
