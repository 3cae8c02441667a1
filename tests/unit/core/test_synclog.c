/*
 * An fsync that goes into the log of the environment instead of the store: what it holds is there after a loss of power, and what
 * it cannot hold is flushed (test_core_model and test_core_power do both at random).
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "fs/core/journal.h"
#include "store/synclog.h"
#include "tests/unit/core/ovl_fixture.h"

#define NEVER_MS 3600000
#define META_MAX 1024 /* more than LMDB writes to its first two pages */

static bool no_meta;

/* Instead of the C library's, for LMDB: pwrite is another name in this file. */
__attribute__((visibility("default"))) ssize_t lmdb_pwrite(int fd, const void *p, size_t n,
							   long off) __asm__("pwrite");

ssize_t lmdb_pwrite(int fd, const void *p, size_t n, long off)
{
	if (no_meta && n < META_MAX) {
		errno = EIO;
		return -1;
	}
	return syscall(SYS_pwrite64, fd, p, n, off);
}

/* A flush that is held where it waits for the disk with its chunks: of the thread that sets it. */
static _Thread_local bool slow;
static sem_t reached, go_on;
static atomic_bool was_let_go, fails;

__attribute__((visibility("default"))) int lmdb_fdatasync(int fd) __asm__("fdatasync");

int lmdb_fdatasync(int fd)
{
	struct timespec t;

	if (slow) {
		slow = false;
		(void)sem_post(&reached);
		(void)clock_gettime(CLOCK_REALTIME, &t);
		t.tv_sec += 20; /* who is held up by it would wait for ever */
		(void)sem_timedwait(&go_on, &t);
		atomic_store(&was_let_go, true);
		if (atomic_load(&fails)) {
			errno = EIO;
			return -1;
		}
	}
	return (int)syscall(SYS_fdatasync, fd);
}

static void log_anew(struct fx *f)
{
	store_log_close(f->opts.log);
	if (store_log_open(f->s, "e", &f->opts.log) < 0)
		tap_fatal("store_log_open");
}

static void journal_anew(struct fx *f)
{
	int fd;

	journal_close(f->opts.journal);
	if (journal_create(&fd) < 0 || journal_open(fd, &f->opts.journal) < 0)
		tap_fatal("journal");
	(void)close(fd);
}

/* All that is in memory is gone. */
static void power(struct fx *f)
{
	ovl_abandon(f->o);
	journal_anew(f);
	log_anew(f);
	fx_mount(f);
}

static uint64_t batches(struct fx *f)
{
	struct store_layer_info li;

	if (store_layer_get(f->s, f->layer, &li) < 0)
		tap_fatal("store_layer_get");
	return li.batches;
}

static int sync_file(struct fx *f, const char *path)
{
	struct ovl_entry e;
	int r = fx_get(f, path, &e);

	if (r == 0) {
		r = ovl_fsync(f->o, e.ino, true);
		ovl_forget(f->o, e.ino, 1);
	}
	return r;
}

static void put(struct fx *f, const char *path, uint64_t off, const char *text)
{
	ssize_t n = fx_write(f, path, off, text, strlen(text));

	if (n != (ssize_t)strlen(text))
		tap_fatal("write %s: %zd", path, n);
}

static bool is(struct fx *f, const char *path, uint64_t off, const char *want)
{
	char got[64] = {0};
	ssize_t n = fx_read(f, path, off, got, strlen(want));

	return n == (ssize_t)strlen(want) && !memcmp(got, want, strlen(want));
}

static void test_file(struct fx *f)
{
	uint64_t was;
	struct stat st;

	if (fx_make(f, "a", FX_FILE, 0600) < 0)
		tap_fatal("a");
	put(f, "a", 0, "flushed");
	eq_int(sync_file(f, "a"), 0, "the first one is a flush");
	was = batches(f);
	put(f, "a", 0, "FL");
	put(f, "a", 300000, "far");
	eq_int(sync_file(f, "a"), 0, "the next one");
	put(f, "a", 300001, "in the same block");
	eq_int(sync_file(f, "a"), 0, "and the one after");
	eq_int((long long)batches(f), (long long)was, "are not");
	put(f, "a", 0, "lost");
	power(f);
	ok(is(f, "a", 0, "FLushed"), "what was synced is there, and no more");
	ok(is(f, "a", 300000, "fin the same block"), "all of it");
	eq_int(fx_stat(f, "a", &st), 0, "stat");
	eq_int((long long)st.st_size, 300018, "its size, too");
	power(f);
	ok(is(f, "a", 0, "FLushed"), "also when power fails once more before it is flushed");
	put(f, "a", 0, "xx");
	eq_int(ovl_flush(f->o), 0, "flush");
	power(f);
	ok(is(f, "a", 0, "xxushed"), "a flush voids the log");
}

static void test_names(struct fx *f)
{
	uint64_t was;
	struct stat st;

	if (fx_make(f, "d", FX_DIR, 0700) < 0 || fx_make(f, "d/x", FX_FILE, 0600) < 0 ||
	    fx_make(f, "gone", FX_FILE, 0600) < 0)
		tap_fatal("d");
	eq_int(ovl_flush(f->o), 0, "flush");
	was = batches(f);
	put(f, "d/x", 0, "bytes");
	if (fx_rename(f, "d/x", "y", 0) < 0 || fx_link(f, "y", "d/z") < 0 ||
	    fx_remove(f, "gone", false) < 0 || fx_symlink(f, "y", "d/l") < 0 ||
	    fx_make(f, "brief", FX_FILE, 0600) < 0 || fx_remove(f, "brief", false) < 0)
		tap_fatal("names");
	eq_int(ovl_sync(f->o), 0, "all of it is synced");
	eq_int((long long)batches(f), (long long)was, "without a flush");
	if (fx_remove(f, "y", false) < 0)
		tap_fatal("y");
	power(f);
	ok(is(f, "y", 0, "bytes"), "a name that was removed later is there");
	eq_int(fx_stat(f, "d/z", &st), 0, "a link");
	eq_int((long long)st.st_nlink, 2, "its count");
	eq_int(fx_stat(f, "d/l", &st), 0, "a symlink");
	eq_int(fx_stat(f, "d/x", &st), -ENOENT, "the old name is not");
	eq_int(fx_stat(f, "gone", &st), -ENOENT, "nor what was removed");
	eq_int(fx_stat(f, "brief", &st), -ENOENT, "nor what came and went");
}

/* A flush has written a file without a name, which gets one, and another that loses its last one. What a crash leaves behind without
 * a name is removed at the next start: by what the log says, not by what the store did before. */
static void test_nameless(struct fx *f)
{
	struct ovl_cred c = fx_cred();
	struct ovl_entry t, e;
	struct stat st;

	if (ovl_tmpfile(f->o, STORE_ROOT_INO, S_IFREG | 0600, &c, &t) < 0 ||
	    ovl_write(f->o, t.ino, 0, "nameless", 8, false) != 8 ||
	    fx_make(f, "ends", FX_FILE, 0600) < 0)
		tap_fatal("nameless");
	eq_int(ovl_flush(f->o), 0, "flush");
	if (ovl_link(f->o, t.ino, STORE_ROOT_INO, "named", &e) < 0 ||
	    fx_remove(f, "ends", false) < 0)
		tap_fatal("names");
	eq_int(ovl_sync(f->o), 0, "sync");
	power(f);
	ok(is(f, "named", 0, "nameless"), "a file that got its name in the log");
	eq_int(ovl_flush(f->o), 0, "flush");
	ok(is(f, "named", 0, "nameless"), "is there after the next flush");
	power(f);
	ok(is(f, "named", 0, "nameless"), "and in the store");
	eq_int(fx_stat(f, "ends", &st), -ENOENT, "one that lost it is not");
}

/* Another process goes on from the journal of one that had read the log. */
static void test_both(struct fx *f)
{
	int fd;

	put(f, "a", 0, "frame");
	eq_int(ovl_flush(f->o), 0, "flush");
	put(f, "a", 0, "FRAME");
	eq_int(ovl_sync(f->o), 0, "sync");
	ovl_abandon(f->o);
	journal_close(f->opts.journal);
	if (journal_create(&fd) < 0 || journal_open(fd, &f->opts.journal) < 0)
		tap_fatal("journal");
	log_anew(f);
	fx_mount(f);
	put(f, "a", 5, "+memory");
	ovl_abandon(f->o);
	journal_close(f->opts.journal);
	if (journal_open(fd, &f->opts.journal) < 0)
		tap_fatal("journal");
	(void)close(fd);
	log_anew(f);
	f->opts.flags = OVL_RESUME;
	fx_mount(f);
	f->opts.flags = 0;
	ok(is(f, "a", 0, "FRAME+memory"), "the log's and the journal's");
}

/* Too much for a frame, and a chunk that only memory names. */
static void test_flushed(struct fx *f)
{
	cleanup_free char *big = calloc(1, 3 << 20);
	struct ovl_entry from, to;
	uint64_t was;

	if (!big || fx_make(f, "big", FX_FILE, 0600) < 0 || fx_make(f, "copy", FX_FILE, 0600) < 0)
		tap_fatal("big");
	memset(big, 'b', 3 << 20);
	eq_int(ovl_flush(f->o), 0, "flush");
	was = batches(f);
	if (fx_write(f, "big", 0, big, 3 << 20) != 3 << 20)
		tap_fatal("write");
	eq_int(ovl_sync(f->o), 0, "what is large");
	ok(batches(f) > was, "is flushed");
	was = batches(f);
	if (fx_get(f, "big", &from) < 0 || fx_get(f, "copy", &to) < 0 ||
	    ovl_copy_range(f->o, from.ino, 0, to.ino, 0, 3 << 20) != 3 << 20)
		tap_fatal("copy");
	ovl_forget(f->o, from.ino, 1);
	ovl_forget(f->o, to.ino, 1);
	eq_int(ovl_sync(f->o), 0, "a copy by reference");
	ok(batches(f) > was, "is flushed");
	power(f);
	ok(is(f, "copy", 1 << 20, "bbbb"), "and is there");
}

/* Pages at random places of a large file, more than what a frame had room for once: they are parts of blocks that the store has. */
static void test_parts(struct fx *f)
{
	static uint8_t page[4096];
	const unsigned n = 600;
	cleanup_free uint8_t *all = calloc(1, 6 << 20), *got = malloc(6 << 20);
	struct ovl_counts st;
	uint64_t was, at = 7;

	if (!all || !got || fx_make(f, "parts", FX_FILE, 0600) < 0)
		tap_fatal("parts");
	memset(all, 'p', 6 << 20);
	if (fx_write(f, "parts", 0, all, 6 << 20) != 6 << 20)
		tap_fatal("write");
	eq_int(ovl_flush(f->o), 0, "flush");
	was = batches(f);
	for (unsigned i = 0; i < n; i++) {
		at = at * 6364136223846793005u + 1442695040888963407u;
		memset(page, (int)i, sizeof(page));
		memcpy(all + (at >> 33) % ((6 << 20) - 4096), page, sizeof(page));
		if (fx_write(f, "parts", (at >> 33) % ((6 << 20) - 4096), page, sizeof(page)) !=
		    4096)
			tap_fatal("write");
	}
	ovl_counts(f->o, &st);
	ok(st.bytes_dirty <= 3 * n * sizeof(page), "pages cost pages: %llu",
	   (unsigned long long)st.bytes_dirty);
	eq_int(sync_file(f, "parts"), 0, "sync");
	eq_int((long long)batches(f), (long long)was, "needs no flush");
	put(f, "parts", 0, "one more");
	memcpy(all, "one more", 8);
	eq_int(sync_file(f, "parts"), 0, "nor does the next");
	eq_int((long long)batches(f), (long long)was, "which finds room behind it");
	power(f);
	ok(fx_read(f, "parts", 0, got, 6 << 20) == 6 << 20 && !memcmp(got, all, 6 << 20),
	   "all of them are there");
	eq_int(ovl_flush(f->o), 0, "flush");
	power(f);
	ok(fx_read(f, "parts", 0, got, 6 << 20) == 6 << 20 && !memcmp(got, all, 6 << 20),
	   "and in the store");
}

static void *flush_slowly(void *arg)
{
	const struct fx *f = arg;

	slow = true;
	return (void *)(intptr_t)ovl_flush(f->o);
}

static void put_whole(struct fx *f, const char *path, unsigned seed)
{
	static uint8_t block[STORE_BLOCK];

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)((i + seed) * 2654435761u >> 13);
	if (fx_make(f, path, FX_FILE, 0600) < 0 ||
	    fx_write(f, path, 0, block, sizeof(block)) != (ssize_t)sizeof(block))
		tap_fatal("%s", path);
}

/* An fsync while a flush is under way waits for its own frame alone, and what it said is there whatever becomes of the flush. */
static void test_beside(struct fx *f, bool fail)
{
	const char *chunk = fail ? "never" : "slow";
	pthread_t t;
	struct stat st;
	uint64_t was;
	void *r;

	sem_init(&reached, 0, 0);
	sem_init(&go_on, 0, 0);
	atomic_store(&was_let_go, false);
	atomic_store(&fails, fail);
	if (fx_make(f, "gone2", FX_FILE, 0600) < 0)
		tap_fatal("gone2");
	put(f, "a", 0, "before");
	eq_int(ovl_flush(f->o), 0, "flush");
	was = batches(f);
	put(f, "a", 0, "frame 1");
	put(f, "gone2", 0, "frame 1");
	eq_int(ovl_sync(f->o), 0, "a frame before the next flush");
	put(f, "a", 0, "flush 2");
	if (fx_remove(f, "gone2", false) < 0)
		tap_fatal("gone2");
	put_whole(f, chunk, fail);
	if (pthread_create(&t, NULL, flush_slowly, f) != 0)
		tap_fatal("thread");
	(void)sem_wait(&reached);
	put(f, "a", 6, "3 behind");
	put(f, "a", 300000, "beside");
	eq_int(sync_file(f, "a"), 0, "sync beside a flush");
	put(f, "a", 0, "FLUSH");
	eq_int(sync_file(f, "a"), 0, "and again");
	ok(!atomic_load(&was_let_go), "did not wait for it");
	put(f, "a", 0, "lost");
	(void)sem_post(&go_on);
	(void)pthread_join(t, &r);
	eq_int((int)(intptr_t)r, fail ? -EIO : 0, "the flush");
	eq_int((long long)batches(f), (long long)was, "leaves the number of batches");
	power(f);
	ok(is(f, "a", 0, "FLUSH 3 behind"), "what was synced is over it");
	ok(is(f, "a", 300000, "beside"), "all of it");
	eq_int(fx_stat(f, "gone2", &st), -ENOENT, "what was removed in between is gone");
	eq_int(fx_stat(f, chunk, &st), 0, "what was flushed, or would have been, is there");
	put(f, "a", 0, "next");
	eq_int(ovl_flush(f->o), 0, "the next flush");
	ok(batches(f) > was, "counts");
	power(f);
	ok(is(f, "a", 0, "nextH 3 behind"), "and voids the log");
}

/* The tree goes on in another layer. */
static void test_commit(struct fx *f)
{
	store_layer was = f->layer;

	put(f, "a", 0, "before");
	eq_int(ovl_sync(f->o), 0, "sync");
	eq_int(ovl_commit(f->o, fx_seal, f), 0, "commit");
	ok(f->layer != was, "another layer");
	put(f, "a", 0, "BEHIND");
	eq_int(ovl_sync(f->o), 0, "sync");
	eq_int((long long)batches(f), 0, "needs no flush in the new layer");
	power(f);
	ok(is(f, "a", 0, "BEHIND"), "and is over the commit");
}

/* A log that cannot be read as what it is must not pass for an empty one. */
static void test_version(struct fx *f)
{
	static const char other[8] = {77};
	struct store_layer_info li;
	int r;

	eq_int(ovl_flush(f->o), 0, "flush");
	ovl_abandon(f->o);
	if (store_layer_get(f->s, f->layer, &li) < 0 ||
	    store_log_append(f->opts.log, f->layer, li.batches, other, sizeof(other)) < 0)
		tap_fatal("append");
	log_anew(f);
	r = ovl_open(&f->opts, &f->o);
	eq_int(r, -EPROTONOSUPPORT, "a log of another version is not passed over");
	store_log_remove(f->opts.log);
	fx_mount(f);
}

static int take_frame(void *arg, const uint8_t *p, size_t n)
{
	struct buf *b = arg;

	buf_clear(b);
	return buf_put(b, p, n);
}

/* The last format's records are these. */
static void test_older(struct fx *f)
{
	cleanup_buf struct buf b = {0};
	struct store_layer_info li;
	uint32_t version = 5;

	put(f, "a", 0, "before");
	eq_int(ovl_flush(f->o), 0, "flush");
	put(f, "a", 0, "behind");
	eq_int(ovl_sync(f->o), 0, "sync");
	ovl_abandon(f->o);
	log_anew(f);
	if (store_layer_get(f->s, f->layer, &li) < 0 ||
	    store_log_read(f->opts.log, f->layer, li.batches, take_frame, &b) < 0 ||
	    b.len < sizeof(version))
		tap_fatal("no frame");
	memcpy(b.data, &version, sizeof(version));
	if (store_log_append(f->opts.log, f->layer, li.batches, b.data, b.len) < 0)
		tap_fatal("append");
	journal_anew(f);
	log_anew(f);
	fx_mount(f);
	ok(is(f, "a", 0, "behind"), "what the last format's rattan synced is there");
}

/* Something changed that the journal could not take: no place in it is behind that. */
static void test_unlogged(struct fx *f)
{
	uint64_t was;

	eq_int(ovl_flush(f->o), 0, "flush");
	put(f, "a", 0, "unlogged");
	eq_int(ovl_sync(f->o), 0, "sync");
	was = batches(f);
	journal_break(f->opts.journal);
	eq_int(ovl_sync(f->o), 0, "what the journal does not have");
	ok(batches(f) > was, "is flushed");
}

/* Who comes next may be of a version that could not read it. */
static void test_off(struct fx *f)
{
	uint64_t was;

	eq_int(ovl_flush(f->o), 0, "flush");
	was = batches(f);
	ovl_use_log(f->o, false);
	put(f, "a", 0, "not in the log");
	eq_int(ovl_sync(f->o), 0, "a sync without the log");
	ok(batches(f) > was, "is a flush");
	was = batches(f);
	ovl_use_log(f->o, true);
	put(f, "a", 0, "in it");
	eq_int(ovl_sync(f->o), 0, "and with it");
	eq_int((long long)batches(f), (long long)was, "is none");
}

static void put_host(const char *dir, char fill)
{
	cleanup_free char *s = malloc(1 << 20);
	char path[PATH_MAX + 8];
	FILE *to;

	snprintf(path, sizeof(path), "%s/h", dir);
	to = s ? fopen(path, "we") : NULL;
	if (!to)
		tap_fatal("cannot write %s", path);
	memset(s, fill, 1 << 20);
	if (fwrite(s, 1 << 20, 1, to) != 1 || fclose(to) != 0)
		tap_fatal("cannot write %s", path);
}

/* The log speaks of a file without speaking of its bytes, of which some are the host's. */
static void test_partial(struct fx *f)
{
	char host[PATH_MAX];

	fx_path(f, "host", host);
	if (mkdir(host, 0700) < 0)
		tap_fatal("mkdir");
	put_host(host, 'h');
	fx_umount(f);
	fx_child(f, fx_host_layer(f, host, 0));
	fx_mount(f);
	put(f, "h", 0, "ours");
	eq_int(ovl_flush(f->o), 0, "flush");
	if (fx_rename(f, "h", "i", 0) < 0)
		tap_fatal("rename");
	eq_int(ovl_sync(f->o), 0, "sync");
	power(f);
	eq_int(ovl_commit(f->o, fx_seal, f), 0, "commit");
	put_host(host, 'x');
	ok(is(f, "i", 0, "ourshhh"), "a commit after a log is whole");
	ok(is(f, "i", 500000, "hhhh"), "whatever becomes of the host's file");
}

static int seal_half(void *arg, store_layer *ret)
{
	struct fx *f = arg;
	int r;

	no_meta = true;
	r = store_layer_seal(f->s, f->layer);
	no_meta = false;
	(void)ret;
	return r;
}

/* Nobody knows whether the layer is sealed now: if it is, nobody will read what the log says over it. */
static void test_unknown(struct fx *f)
{
	const struct stat mode = {.st_mode = 0640};
	struct ovl_attr attr;
	struct ovl_entry e;

	if (fx_make(f, "a", FX_FILE, 0600) < 0 || fx_get(f, "a", &e) < 0)
		tap_fatal("a");
	eq_int(ovl_flush(f->o), 0, "flush");
	put(f, "a", 0, "before");
	eq_int(ovl_sync(f->o), 0, "sync");
	ok(ovl_commit(f->o, seal_half, f) < 0, "a commit with an unknown end");
	eq_int(ovl_setattr(f->o, e.ino, &mode, OVL_SET_MODE, &attr), 0, "a change after it");
	ok(ovl_sync(f->o) < 0, "is not told to be durable");
	ovl_abandon(f->o);
	f->o = NULL;
}

/* LMDB has given the chunks up, and not the records: what is there in part waits for who opens the store anew. */
static void test_broken(void)
{
	cleanup_free uint8_t *all = malloc(3 * STORE_BLOCK);
	char data[PATH_MAX];
	struct diag d = {0};
	struct fx f;

	if (!all)
		tap_fatal("memory");
	for (size_t i = 0; i < 3 * STORE_BLOCK; i++)
		all[i] = (uint8_t)(i * 2654435761u >>
				   13); /* no small chunk, which are with the records */
	fx_open(&f);
	f.opts.flush_ms = NEVER_MS;
	log_anew(&f);
	journal_anew(&f);
	fx_mount(&f);
	if (fx_make(&f, "a", FX_FILE, 0600) < 0 ||
	    fx_write(&f, "a", 0, all, 3 * STORE_BLOCK) != 3 * STORE_BLOCK)
		tap_fatal("a");
	eq_int(ovl_flush(f.o), 0, "flush");
	put(&f, "a", 200000, "part");
	eq_int(sync_file(&f, "a"), 0, "sync");
	no_meta = true;
	ok(ovl_flush(f.o) < 0, "a flush that the disk fails");
	no_meta = false;
	ok(store_broken(f.s) && ovl_flush(f.o) < 0, "nor is there another in this process");
	ovl_abandon(f.o);
	f.o = NULL;
	store_log_close(f.opts.log);
	f.opts.log = NULL;
	store_close(f.s);
	fx_path(&f, "data", data);
	if (store_open(data, 0, &d, &f.s) < 0)
		tap_fatal("store_open: %s", d.text);
	journal_anew(&f);
	log_anew(&f);
	fx_mount(&f);
	ok(is(&f, "a", 200000, "part"), "what was synced is there in the next");
	fx_umount(&f);
	store_log_close(f.opts.log);
	journal_close(f.opts.journal);
	fx_close(&f);
}

int main(void)
{
	char path[PATH_MAX];
	struct fx f;

	fx_open(&f);
	f.opts.flush_ms = NEVER_MS;
	log_anew(&f);
	journal_anew(&f);
	fx_mount(&f);
	test_file(&f);
	test_names(&f);
	test_nameless(&f);
	test_both(&f);
	test_flushed(&f);
	test_parts(&f);
	test_beside(&f, false);
	test_beside(&f, true);
	test_commit(&f);
	test_version(&f);
	test_older(&f);
	test_unlogged(&f);
	test_off(&f);
	test_partial(&f);
	fx_umount(&f);
	fx_path(&f, "data/env-e.log", path);
	ok(access(path, F_OK) < 0, "nothing is left of it when all is flushed");
	fx_child(&f, 0);
	fx_mount(&f);
	test_unknown(&f);
	store_log_close(f.opts.log);
	journal_close(f.opts.journal);
	fx_close(&f);
	test_broken();
	return tap_done();
}
