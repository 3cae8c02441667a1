#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/gc.h"
#include "store/guard.h"

#define LOCK_FILE "gc.lock"
#define NOTE      "at %lld: %llu chunk pages, %llu meta pages, transaction %llu\n"

/* Less than this on the disk, and free pages are given back to it first of all. */
#define TIGHT ((uint64_t)16 << 20)
#define FULL  ((uint64_t)4 << 20)

#define MUCH ((uint64_t)1 << 18) /* pages: 1 GiB */

#define SETTLE_US 4000000
#define QUIET_US  700000

/* ---- what the parts share ---- */

int64_t gc_clock_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int gc_cursor(MDB_txn *t, MDB_dbi db, MDB_cursor **ret)
{
	int r = 0;

	GUARD_BEGIN(g)
	r = store_lm_err(mdb_cursor_open(t, db, ret));
	GUARD_END(g, r);
	return r;
}

/* LMDB's lock is not a fair one: without a pause the same process gets it again and again. */
void gc_pause(void)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

int gc_tell(struct gc *g, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	if (!g->o->go_on || g->o->go_on(g->o->arg, phase, done, total))
		return 0;
	return diag_set(g->diag, -ECANCELED, "the collection was stopped");
}

/* ---- one at a time, and what it notes for the next ---- */

struct note {
	long long time;
	unsigned long long chunk_pages, meta_pages, txn;
};

/* Of chunks what is in use (their environment has one database); of meta, whose databases would each have to be
 * asked in a transaction, the size of the file. */
static int note_now(struct store *s, struct note *n)
{
	MDB_envinfo info;
	MDB_stat st;
	int r = store_lm_err(mdb_env_stat(s->chunks.env, &st));

	if (r == 0)
		r = store_lm_err(mdb_env_info(s->meta.env, &info));
	if (r < 0)
		return r;
	n->time = (long long)time(NULL);
	n->chunk_pages = st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages;
	n->meta_pages = info.me_last_pgno;
	n->txn = info.me_last_txnid;
	return 0;
}

static int lock(struct gc *g)
{
	g->lock_fd =
		openat(g->s->dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (g->lock_fd < 0)
		return diag_set(g->diag, ret_nerrno(), "cannot open '%s/%s': %s", g->s->dir,
				LOCK_FILE, err_text(errno));
	if (flock(g->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return diag_set(g->diag, errno == EWOULDBLOCK ? -EBUSY : ret_nerrno(),
				"another garbage collection of '%s' is at work", g->s->dir);
	return 0;
}

/* For store_gc_wanted alone: a note that cannot be written costs one collection too many. */
static void write_note(const struct gc *g)
{
	struct note n;
	char text[160];
	int len;

	if (note_now(g->s, &n) < 0)
		return;
	len = snprintf(text, sizeof(text), NOTE, n.time, n.chunk_pages, n.meta_pages, n.txn);
	if (ftruncate(g->lock_fd, 0) == 0)
		(void)!pwrite(g->lock_fd, text, (size_t)len, 0);
}

static bool read_note(struct store *s, struct note *n)
{
	cleanup_buf struct buf b = {0};

	return io_read_file(s->dir_fd, LOCK_FILE, 4096, &b) == 0 && b.len &&
	       sscanf((const char *)b.data, NOTE, &n->time, &n->chunk_pages, &n->meta_pages,
		      &n->txn) == 4;
}

static uint64_t disk_free(const struct store *s)
{
	struct statvfs v;

	return fstatvfs(s->dir_fd, &v) < 0 ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

/* The heap's rule: a collection costs what is there, so it is due when that has grown by a part of itself.
 * Once a day in any case, when something was written; on a full disk after some minutes. */
bool store_gc_wanted(struct store *s)
{
	struct note was, now;
	long long age;
	struct statvfs v;

	if (s->rdonly || note_now(s, &now) < 0)
		return false;
	if (!read_note(s, &was))
		was = (struct note){0};
	age = now.time - was.time;
	if (now.txn == was.txn)
		return false;
	/* A program that writes the same file over and over fills a disk with what it was before. */
	if (now.chunk_pages > was.chunk_pages / 4 * 5 + MUCH ||
	    now.meta_pages > was.meta_pages / 4 * 5 + MUCH)
		return true;
	if (age >= 0 && age < 600)
		return false;
	if (fstatvfs(s->dir_fd, &v) == 0 && v.f_bavail < v.f_blocks / 20)
		return true;
	if (age >= 0 && age < 3600)
		return false;
	return age < 0 || age > 86400 || now.chunk_pages > was.chunk_pages / 4 * 5 + 16384 ||
	       now.meta_pages > was.meta_pages / 4 * 5 + 16384;
}

/* ---- all of it ---- */

static int count_dead(struct gc *g)
{
	cleanup_rd struct store_rd rd = {0};
	int r = store_rd_begin(g->s, &rd);

	g->res->states = g->res->layers = g->res->records = 0;
	for (size_t i = 0; r == 0 && i < g->nlayers; i++) {
		struct store_layer_rec rec;

		if (g->layers[i].live)
			continue;
		r = store_layer_read(g->s, rd.r->txn, g->layers[i].n, &rec);
		g->res->layers++;
		g->res->records += r == 0 ? rec.records : 0;
	}
	for (size_t i = 0; i < g->commits.len; i += sizeof(struct gc_commit)) {
		struct gc_commit c;

		memcpy(&c, g->commits.data + i, sizeof(c));
		g->res->states += gc_layer_dead(g, c.layer);
	}
	for (size_t i = 0; i < g->moves.len; i += 1 + (size_t)g->moves.data[i])
		g->res->moves++;
	return r;
}

static void forget_layers(struct gc *g)
{
	free(g->layers);
	g->layers = NULL;
	g->nlayers = 0;
	buf_release(&g->commits);
	buf_release(&g->moves);
	buf_release(&g->envs);
}

static int round_of(struct gc *g)
{
	int r;

	forget_layers(g);
	r = gc_tell(g, STORE_GC_LOOK, 0, 0);
	if (r == 0)
		r = gc_layers_find(g);
	if (r == 0)
		r = g->o->dry_run ? count_dead(g) : gc_layers_erase(g);
	if (r == 0)
		r = gc_merge(g);
	/* Chunks have files of their own: there may be room there. */
	if (err_no_room(r) && g->diag)
		g->diag->text[0] = 0;
	g->enospc |= err_no_room(r);
	if (r < 0 && !err_no_room(r))
		return r;
	g->res->live_chunks = 0;
	r = gc_chunks(g);
	g->enospc |= err_no_room(r);
	return r;
}

/* What was removed while the disk was full may not be on it yet: who could not write for want of room tries
 * again within a second or two. Done when somebody wrote and then nobody for a while. */
static int settle(struct gc *g)
{
	int64_t start = gc_clock_us(), last = start;
	struct note was, now;
	int r = note_now(g->s, &was);
	bool wrote = false;

	while (r == 0 && gc_clock_us() < start + SETTLE_US &&
	       !(wrote && gc_clock_us() > last + QUIET_US)) {
		(void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		r = gc_tell(g, STORE_GC_LOOK, 0, 0);
		if (r == 0)
			r = note_now(g->s, &now);
		if (r == 0 && now.txn != was.txn) {
			wrote = true;
			was = now;
			last = gc_clock_us();
		}
	}
	return r;
}

/* Holes need no room, and removing needs a little. */
static int make_room(struct gc *g, uint64_t left)
{
	int r = gc_shrink(g);

	if (r == -EOPNOTSUPP)
		r = 0;
	return r == 0 && left < FULL ? settle(g) : r;
}

static int run(struct gc *g)
{
	uint64_t left = disk_free(g->s);
	bool tight = left < TIGHT, again;
	int r = tight && !g->o->dry_run ? make_room(g, left) : 0;

	if (r == 0)
		r = round_of(g);
	again = g->enospc && !g->o->dry_run && (r == 0 || err_no_room(r));
	if (again && g->diag)
		g->diag->text[0] = 0;
	if (again && (r = gc_shrink(g)) == 0)
		r = round_of(g);
	if (r == 0 && g->o->pack && !g->o->dry_run && !tight && !again)
		r = gc_pack(g);
	if (r == 0 && !g->o->dry_run && (g->o->shrink || tight || again))
		r = gc_shrink(g);
	if (r == 0)
		r = gc_free_inside(g, &g->res->free_bytes);
	return r;
}

int store_gc(struct store *s, const struct store_gc_opts *o, struct diag *diag,
	     struct store_gc_result *ret)
{
	struct gc g = {.s = s, .o = o, .res = ret, .diag = diag, .lock_fd = -1};
	int r = s->rdonly ? -EROFS : 0;

	*ret = (struct store_gc_result){0};
	g.now = (int64_t)time(NULL);
	if (r == 0)
		r = lock(&g);
	if (r == 0)
		r = run(&g);
	if (r == 0 && !o->dry_run)
		write_note(&g);
	if (!o->dry_run)
		store_written_add(s, -(int64_t)ret->chunk_bytes);
	forget_layers(&g);
	cleanup_fdp(&g.lock_fd);
	return r < 0 ? diag_set(diag, r, "cannot collect garbage: %s", err_text(r)) : 0;
}
