/* store: the collector removes what nothing reaches, and nothing else (S5). */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "store/store_internal.h"
#include "tests/unit/store/gc_test.h"

static struct store *s;

static struct store_env env(const char *name, store_layer base)
{
	struct store_env e;

	if (store_env_create(s, name, base, "none", &e) < 0)
		tap_fatal("env %s", name);
	return e;
}

static void write_ok(store_layer layer, store_ino ino, uint64_t block, uint64_t seed)
{
	int r = gc_write(s, layer, ino, block, seed);

	if (r < 0)
		tap_fatal("write: %d", r);
}

static bool same(struct store_gc_result a, struct store_gc_result b)
{
	return a.layers == b.layers && a.records == b.records && a.states == b.states &&
	       a.moves == b.moves && a.chunks == b.chunks && a.chunk_bytes == b.chunk_bytes;
}

/* A dry run first: it changes nothing, and says what then happens. */
static struct store_gc_result collect(struct store_gc_opts o)
{
	struct store_gc_opts dry = o;
	struct store_gc_result would, is;

	dry.dry_run = true;
	would = gc_run(s, dry);
	is = gc_run(s, o);
	ok(same(would, is), "a dry run says it: layers %llu, chunks %llu",
	   (unsigned long long)is.layers, (unsigned long long)is.chunks);
	return is;
}

static void removed_environment(void)
{
	struct store_env a = env("a", 0), b = env("b", 0);
	struct store_layer_info li;
	struct store_gc_result res;

	write_ok(a.open, 100, 0, 1);
	write_ok(a.open, 101, 0, 2);
	write_ok(a.open, 101, 7, 3);
	write_ok(b.open, 200, 0, 1); /* the same bytes */
	res = collect((struct store_gc_opts){0});
	eq_int(res.chunks + res.layers, 0, "nothing is garbage");
	eq_int(store_env_remove(s, "a"), 0, "remove an environment");
	res = collect((struct store_gc_opts){0});
	eq_int(res.layers, 1, "its open layer goes");
	eq_int(store_layer_get(s, a.open, &li), -ENOENT, "with its record");
	ok(res.records == 4 && res.chunks == 2, "and what only it named: %llu records",
	   (unsigned long long)res.records);
	ok(!gc_there(s, 2) && !gc_there(s, 3), "the chunks are gone");
	ok(gc_reads(s, b.open, 200, 0, 1), "the other's file is whole");
	write_ok(b.open, 201, 1, 2);
	ok(gc_reads(s, b.open, 201, 1, 2), "what was removed can come again");
}

static void overwritten(void)
{
	struct store_env e = env("over", 0);

	write_ok(e.open, 302, 0, 31);
	write_ok(e.open, 303, 5, 32);
	gc_seal(s, &e, "over-1", false);
	write_ok(e.open, 302, 0, 33);
	write_ok(e.open, 303, 5, 34);
	write_ok(e.open, 302, 0, 35);
	write_ok(e.open, 303, 5, 36);
	eq_int(collect((struct store_gc_opts){0}).chunks, 2, "what the open layer wrote over goes");
	ok(gc_reads(s, e.open, 302, 0, 35) && gc_reads(s, e.open, 303, 5, 36), "what it has stays");
	ok(gc_reads(s, e.head, 302, 0, 31) && gc_reads(s, e.head, 303, 5, 32),
	   "and what the commit below has");
}

static int count_one(void *arg, const struct store_commit *c)
{
	(void)c;
	++*(int *)arg;
	return 0;
}

static int commits(const char *name)
{
	int n = 0;

	return store_commits(s, name, count_one, &n) < 0 ? -1 : n;
}

/* @n times: change something, and roll back to the first commit, which leaves an automatic state. */
static void wander(struct store_env *e, store_layer first, int n, uint64_t seed)
{
	for (int i = 0; i < n; i++) {
		char label[100];

		write_ok(e->open, 400, 0, seed + (uint64_t)i);
		(void)snprintf(label, sizeof(label), "%s-auto-%llu", e->name,
			       (unsigned long long)seed + (unsigned)i);
		gc_seal(s, e, label, true);
		if (store_env_move(s, e, first, "rollback") < 0)
			tap_fatal("move");
	}
}

static void automatic_states(void)
{
	struct store_env e = env("auto", 0);
	struct store_gc_result res;
	store_layer first, from = 0;
	char op[32];

	write_ok(e.open, 400, 0, 40);
	gc_seal(s, &e, "auto-first", false);
	first = e.head;
	wander(&e, first, 6, 50);
	eq_int(collect((struct store_gc_opts){0}).layers, 0, "young and few: all are kept");
	res = collect((struct store_gc_opts){.keep_moves = 2});
	ok(res.states == 4 && res.moves == 4 && res.layers == 4 && res.chunks == 4,
	   "all but two go: %llu states, %llu moves, %llu layers, %llu chunks",
	   (unsigned long long)res.states, (unsigned long long)res.moves,
	   (unsigned long long)res.layers, (unsigned long long)res.chunks);
	eq_int(commits("auto"), 3, "the log of the environment");
	for (int i = 5; i >= 4; i--) {
		if (store_env_last_move(s, "auto", op, &from) < 0 ||
		    store_env_move(s, &e, from, "undo") < 0)
			tap_fatal("undo");
		ok(gc_reads(s, e.open, 400, 0, 50 + (uint64_t)i), "undo %d", i);
	}
	eq_int(store_env_last_move(s, "auto", op, &from), -ENOENT, "and no further");
	ok(gc_reads(s, first, 400, 0, 40), "the commit is for ever");
}

static void dead_in_the_middle(void)
{
	struct store_env e = env("mid", 0), child;
	store_layer first, mid;

	write_ok(e.open, 600, 0, 60);
	gc_seal(s, &e, "mid-first", false);
	first = e.head;
	write_ok(e.open, 601, 3, 61);
	gc_seal(s, &e, "mid-auto", true);
	mid = e.head;
	child = env("mid-child", mid);
	write_ok(child.open, 602, 0, 62);
	wander(&e, first, 4, 70);
	(void)collect((struct store_gc_opts){.keep_moves = 1});
	ok(gc_reads(s, child.open, 601, 3, 61) && gc_reads(s, child.open, 600, 0, 60),
	   "a state that something stands on stays");
	if (store_env_remove(s, "mid-child") < 0)
		tap_fatal("remove");
	(void)collect((struct store_gc_opts){.keep_moves = 1});
	eq_int(store_view_open(s, mid, &(struct store_view *){NULL}), -ENOENT, "and goes with it");
	ok(!gc_there(s, 61) && gc_there(s, 60), "with its chunks");
}

/* A chain of states, each on the last one: what is not kept goes into what stands on it, and nothing looks different. */
static void merged_states(void)
{
	struct store_env e = env("merge", 0), child = {0};
	store_layer at[6], first, head;
	struct store_layer_info li;
	struct store_gc_result res;
	char label[32];

	write_ok(e.open, 700, 0, 993);
	gc_seal(s, &e, "merge-first", false);
	first = e.head;
	for (unsigned i = 0; i < 6; i++) {
		write_ok(e.open, 701, 0, 900 + i); /* over and over */
		write_ok(e.open, 710 + i, 2, 950 + i);
		(void)snprintf(label, sizeof(label), "merge-%u", i);
		gc_seal(s, &e, label, true);
		at[i] = e.head;
		if (i == 1)
			child = env("merge-child", e.head);
	}
	write_ok(e.open, 701, 0, 990);
	write_ok(child.open, 720, 0, 991);
	res = collect((struct store_gc_opts){.keep_moves = 2});
	eq_int(res.merged, 3, "those that nothing names, and that are not kept");
	eq_int(res.states, 3, "are states no more");
	eq_int(commits("merge"), 4, "the commit, what an environment stands on, and two");
	for (unsigned i = 0; i < 6; i++) {
		bool there = i == 1 || i >= 4;

		ok((store_layer_get(s, at[i], &li) == 0 && li.state == STORE_LAYER_SEALED) == there,
		   "state %u %s", i, there ? "stays" : "goes");
		for (unsigned k = 0; there && k <= i; k++)
			ok(gc_reads(s, at[i], 710 + k, 2, 950 + k), "with what %u had", k);
		ok(!there || gc_reads(s, at[i], 701, 0, 900 + i), "as it was then");
	}
	ok(gc_reads(s, e.open, 701, 0, 990) && gc_reads(s, e.open, 715, 2, 955), "the open layer");
	ok(gc_reads(s, child.open, 710, 2, 950) && gc_reads(s, child.open, 701, 0, 901),
	   "the other environment");
	eq_int(store_layer_get(s, at[4], &li) ? 0 : li.parent, at[1], "the parent is what is left");
	ok(store_head_commit(s, at[5], &head) == 0 && head == first, "the head is the commit");
	res = collect((struct store_gc_opts){.keep_moves = 2});
	ok(res.layers == 3 && res.merged == 0, "then their trees go");
	ok(!gc_there(s, 900) && !gc_there(s, 902) && !gc_there(s, 903),
	   "with what was written over");
	ok(gc_there(s, 901) && gc_there(s, 904) && gc_reads(s, at[5], 713, 2, 953) &&
		   gc_reads(s, child.open, 710, 2, 950),
	   "and nothing else");
	write_ok(e.open, 730, 0, 992);
	gc_seal(s, &e, "merge-last", true);
	ok(gc_reads(s, e.open, 712, 2, 952) && gc_reads(s, e.open, 730, 0, 992), "and it goes on");
}

/* What a mount shows or a tag names is in the middle of such a chain. */
static void merged_around(void)
{
	const struct store_gc_opts few = {.keep_moves = 1};
	struct store_env e = env("around", 0);
	store_layer at[5];
	char label[32];
	int fd;

	(void)collect(few); /* what others have left */
	(void)collect(few);
	for (unsigned i = 0; i < 5; i++) {
		write_ok(e.open, 741, 0, 970 + i);
		(void)snprintf(label, sizeof(label), "around-%u", i);
		gc_seal(s, &e, label, i > 0);
		at[i] = e.head;
	}
	write_ok(e.open, 741, 0, 980);
	if (store_layer_pin(s, at[1], &fd) < 0 || store_ref_set(s, "tag/around", at[3]) < 0)
		tap_fatal("names");
	eq_int(collect(few).merged, 1, "between them one is merged");
	ok(gc_reads(s, at[1], 741, 0, 971), "what a mount shows is as it was");
	ok(gc_reads(s, at[3], 741, 0, 973), "what a tag names, too");
	(void)collect(few);
	eq_int(store_view_open(s, at[2], &(struct store_view *){NULL}), -ENOENT, "the other goes");
	ok(!gc_there(s, 972), "with what was written over");
	(void)close(fd);
	if (store_ref_del(s, "tag/around") < 0)
		tap_fatal("untag");
	eq_int(collect(few).merged, 2, "and they, when nothing names them");
	ok(gc_reads(s, e.open, 741, 0, 980) && gc_reads(s, at[4], 741, 0, 974), "the rest stays");
}

static void pins_and_refs(void)
{
	struct store_env e = env("pin", 0);
	store_layer first, pinned, tagged;
	struct store_gc_opts few = {.keep_moves = 1};
	int fd;

	write_ok(e.open, 800, 0, 80);
	gc_seal(s, &e, "pin-first", false);
	first = e.head;
	wander(&e, first, 1, 81);
	if (store_env_last_move(s, "pin", (char[32]){0}, &pinned) < 0)
		tap_fatal("last");
	wander(&e, first, 1, 85);
	if (store_env_last_move(s, "pin", (char[32]){0}, &tagged) < 0)
		tap_fatal("last");
	wander(&e, first, 2, 89);
	eq_int(store_layer_pin(s, e.open, &fd), -EINVAL, "an open layer is not pinned");
	eq_int(store_layer_pin(s, pinned, &fd), 0, "pin");
	eq_int(store_ref_set(s, "tag/t", tagged), 0, "tag");
	(void)collect(few);
	ok(gc_reads(s, pinned, 400, 0, 81), "what a mount shows stays");
	ok(gc_reads(s, tagged, 400, 0, 85), "what a tag names stays");
	(void)close(fd);
	if (store_ref_del(s, "tag/t") < 0)
		tap_fatal("untag");
	eq_int(collect(few).layers, 2, "and goes afterwards");
	eq_int(store_layer_pin(s, pinned, &fd), -ENOENT, "then there is nothing to pin");
	eq_int(store_ref_set(s, "tag/t", tagged), -ENOENT, "nor to tag");
}

/* What a writable mount has: two days old, and nothing names it. */
static void own_open_layer(void)
{
	struct store_layer_rec rec;
	MDB_txn *t;
	store_layer own;
	int fd;

	if (store_layer_new(s, 0, &own) < 0)
		tap_fatal("layer");
	write_ok(own, 801, 1, 197);
	if (store_tx_begin(s, &t) < 0 || store_layer_read(s, t, own, &rec) < 0)
		tap_fatal("read");
	rec.created.tv_sec -= 2 * 86400;
	if (store_layer_write(s, t, own, &rec) < 0 || store_tx_commit(s, &t) < 0)
		tap_fatal("age");
	eq_int(store_layer_pin_open(s, own, &fd), 0, "pin an open layer");
	eq_int(collect((struct store_gc_opts){0}).layers, 0, "as long as it is pinned it stays");
	write_ok(own, 803, 1, 198);
	ok(gc_reads(s, own, 801, 1, 197), "and can be written to");
	(void)close(fd);
	eq_int(collect((struct store_gc_opts){0}).layers, 1, "when its owner has died it goes");
	ok(!gc_there(s, 197) && !gc_there(s, 198), "with what was written");
}

static void commits_of_removed(void)
{
	struct store_env e = env("gone", 0);
	struct digest id;
	struct store_commit c;

	write_ok(e.open, 900, 0, 190);
	gc_seal(s, &e, "gone-1", false);
	write_ok(e.open, 900, 0, 191);
	if (digest_of("gone-1", 6, &id) < 0 || store_env_remove(s, "gone") < 0)
		tap_fatal("remove");
	(void)collect((struct store_gc_opts){0});
	ok(store_commit_get(s, &id, &c) == 0 && gc_reads(s, c.layer, 900, 0, 190) &&
		   !gc_there(s, 191),
	   "a removed environment's commits stay");
	store_commit_release(&c);
	eq_int(collect((struct store_gc_opts){.removed = true}).states, 1, "unless told otherwise");
	ok(store_commit_get(s, &id, &c) == -ENOENT && !gc_there(s, 190), "then they are gone");
	eq_int(commits("gone"), 0, "and out of the log");
}

static void in_the_making(void)
{
	struct store_chunk c = {.data = gc_bytes};
	store_layer made;

	if (store_layer_new(s, 0, &made) < 0)
		tap_fatal("layer");
	write_ok(made, 950, 0, 95);
	eq_int(collect((struct store_gc_opts){0}).layers, 0,
	       "a young layer that nothing names stays");
	eq_int(store_layer_seal(s, made), 0, "seal");
	(void)collect((struct store_gc_opts){0});
	ok(gc_reads(s, made, 950, 0, 95), "sealed, too");
	if (gc_put(s, 96) < 0)
		tap_fatal("put");
	eq_int(collect((struct store_gc_opts){0}).chunks, 1, "a chunk that no record names goes");
	eq_int(gc_name(s, made, 951, 1, 96), -ESTALE, "(the layer is sealed)");
	c.len = gc_fill(97);
	eq_int(store_chunks_put_held(s, &c, 1), 0, "unless it is held");
	eq_int(gc_run(s, (struct store_gc_opts){0}).chunks, 0, "held: it stays");
	ok(gc_there(s, 97), "and is there");
	store_chunk_unhold(s, &c.digest);
	eq_int(gc_run(s, (struct store_gc_opts){0}).chunks, 1, "let go: it goes");
}

/* Who dies holding something may have a successor that finds it in a journal. */
static void dead_holder(const char *dir)
{
	struct store_chunk c = {.data = gc_bytes, .len = gc_fill(98)};
	const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	char name[400] = "";
	struct dirent *e;
	DIR *d;

	/* locked as long as it lives: what a dead one leaves is the same without */
	if (store_chunks_put_held(s, &c, 1) < 0 || munmap(s->holds, (32 << 10) * 4) < 0)
		tap_fatal("hold");
	s->holds = NULL;
	(void)close(s->hold_fd);
	s->hold_fd = -1;
	eq_int(gc_run(s, (struct store_gc_opts){0}).chunks, 0,
	       "what a dead process held stays for a while");
	d = opendir(dir);
	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, "hold-", 5))
			(void)snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
	if (d)
		(void)closedir(d);
	if (utimensat(AT_FDCWD, name, old, 0) < 0)
		tap_fatal("%s", name);
	eq_int(gc_run(s, (struct store_gc_opts){0}).chunks, 1, "and not for ever");
	ok(access(name, F_OK) < 0, "nor does its file");
}

/* ---- a writer between the steps of the collector ---- */

struct between {
	enum store_gc_phase at;
	store_layer open;
	uint64_t seed;
	int put, name;
	bool done;
};

static bool meddle(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	struct between *b = arg;

	(void)done;
	(void)total;
	if (phase == b->at && !b->done) {
		b->done = true;
		b->put = gc_put(s, b->seed);
		b->name = gc_name(s, b->open, 1001, b->seed, b->seed);
	}
	return true;
}

/* The chunk is garbage when the collector begins; then somebody writes the same bytes. */
static void found_again(void)
{
	static const enum store_gc_phase phases[] = {STORE_GC_LOOK, STORE_GC_MARK, STORE_GC_SWEEP};
	struct store_env e = env("again", 0);

	for (size_t i = 0; i < 3; i++)
		for (uint64_t seed = 1000; seed < 1004; seed++) {
			struct between b = {.at = phases[i], .open = e.open, .seed = seed + 10 * i};

			if (gc_put(s, b.seed) < 0)
				tap_fatal("put");
			(void)gc_run(s, (struct store_gc_opts){.go_on = meddle, .arg = &b});
			ok(b.done && b.put == 0 && b.name == 0 &&
				   gc_reads(s, e.open, 1001, b.seed, b.seed),
			   "garbage that is named again in phase %d stays", (int)phases[i]);
		}
}

static bool stop_at(void *arg, enum store_gc_phase phase, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	return phase != *(enum store_gc_phase *)arg;
}

static void stopped(void)
{
	enum store_gc_phase at = STORE_GC_SWEEP;
	struct store_gc_opts o = {.go_on = stop_at, .arg = &at};
	struct store_gc_result res;
	struct diag d = {0};

	eq_int(store_gc(s, &o, &d, &res), -ECANCELED, "a collection can be stopped");
	ok(*d.text, "and says so: %s", d.text);
}

/* ---- many, in little memory ---- */

static void many(void)
{
	struct store_env e = env("many", 0);
	int bad = 0;

	for (uint64_t i = 0; i < 40; i++)
		write_ok(e.open, 2000 + i, i % 3,
			 4 * i + 20000 + (i % 2)); /* 3000 and 9000 bytes */
	for (uint64_t i = 0; i < 40; i += 2)
		write_ok(e.open, 2000 + i, i % 3, 4 * i + 40000);
	eq_int(gc_run(s, (struct store_gc_opts){.memory = 4096}).chunks, 20,
	       "a table in several passes");
	for (uint64_t i = 0; i < 40; i++)
		bad += !gc_reads(s, e.open, 2000 + i, i % 3, i % 2 ? 4 * i + 20001 : 4 * i + 40000);
	eq_int(bad, 0, "the others are whole");
}

/* What a damaged record names cannot be told, so that nothing may be taken for garbage. */
static void damaged(enum store_db db)
{
	uint8_t key[24] = {0}, value[40] = {1};
	MDB_val k = {db == DB_INODES ? 16 : 24, key}, v = {sizeof(value), value};
	struct store_gc_opts o = {0};
	struct store_gc_result res;
	struct diag d = {0};
	MDB_txn *t;

	memset(key, 0xee, sizeof(key));
	if (gc_put(s, 5) < 0 || store_tx_begin(s, &t) < 0 || mdb_put(t, s->db[db], &k, &v, 0) ||
	    store_tx_commit(s, &t) < 0)
		tap_fatal("damage");
	eq_int(store_gc(s, &o, &d, &res), -EBADMSG, "a damaged record: %s", d.text);
	ok(gc_there(s, 5), "no chunk was removed");
	if (store_tx_begin(s, &t) < 0 || mdb_del(t, s->db[db], &k, NULL) ||
	    store_tx_commit(s, &t) < 0)
		tap_fatal("heal");
	eq_int(gc_run(s, o).chunks, 1, "when it is gone they are");
}

/* LMDB would free as many pages as the header of the first one says, whosever they are. */
static void damaged_page(void)
{
	struct digest d = gc_digest(7); /* of many pages */
	uint32_t pages, wrong = 3;
	MDB_val k = {DIGEST_LEN, d.b}, v;
	uint64_t page;
	off_t at;
	MDB_txn *t;
	int fd;

	if (gc_put(s, 7) < 0 || mdb_txn_begin(s->chunks.env, NULL, MDB_RDONLY, &t) ||
	    mdb_get(t, s->chunk_db, &k, &v) || mdb_env_get_fd(s->chunks.env, &fd))
		tap_fatal("chunk");
	memcpy(&page, (const uint8_t *)v.mv_data - 16, sizeof(page));
	at = (off_t)(page * 4096 + 12);
	mdb_txn_abort(t);
	if (pread(fd, &pages, sizeof(pages), at) != sizeof(pages) ||
	    pwrite(fd, &wrong, sizeof(wrong), at) != sizeof(wrong))
		tap_fatal("page");
	eq_int(pages, 33, "(the header of a block)");
	eq_int(gc_run(s, (struct store_gc_opts){0}).damaged, 1, "a damaged page is left alone");
	if (pwrite(fd, &pages, sizeof(pages), at) != sizeof(pages))
		tap_fatal("page");
	eq_int(gc_run(s, (struct store_gc_opts){0}).chunks, 1, "a sound one is not");
}

/* ---- room ---- */

#define CHURN 24 /* blocks of 128 KiB */

static void churn_round(store_layer open, uint64_t round)
{
	struct store_chunk c[CHURN];
	struct store_batch *b;
	int r;

	for (uint64_t i = 0; i < CHURN; i++) {
		c[i] = (struct store_chunk){.data = malloc(STORE_BLOCK), .len = STORE_BLOCK};
		if (!c[i].data)
			tap_fatal("memory");
		(void)gc_fill(4 * (round * CHURN + i) + 100003);
		memcpy((void *)(uintptr_t)c[i].data, gc_bytes, STORE_BLOCK);
	}
	r = store_chunks_put(s, c, CHURN);
	if (r == 0)
		r = store_batch_begin(s, open, &b);
	for (uint64_t i = 0; r == 0 && i < CHURN; i++) {
		struct store_extent x = {.block = i, .len = STORE_BLOCK, .chunk = c[i].digest};

		r = store_batch_extent(b, 5001, &x);
	}
	if (r == 0)
		r = store_batch_commit(b);
	if (r < 0)
		tap_fatal("churn: %d", r);
	for (int i = 0; i < CHURN; i++)
		free((void *)(uintptr_t)c[i].data);
}

static uint64_t file_bytes(void)
{
	struct store_stats st;

	if (store_stats(s, &st) < 0)
		tap_fatal("stats");
	return st.chunk_file_bytes + st.meta_file_bytes;
}

static void room(void)
{
	const uint64_t size = (uint64_t)CHURN * STORE_BLOCK;
	struct store_env e = env("churn", 0);
	uint64_t before = file_bytes(), most = 0, after;
	struct store_gc_result res;

	for (uint64_t i = 0; i < 12; i++) {
		churn_round(e.open, i);
		(void)gc_run(s, (struct store_gc_opts){0});
		after = file_bytes();
		most = after > most ? after : most;
	}
	ok(most < before + 4 * size, "the room of what went is used again: %llu KiB at most",
	   (unsigned long long)(most - before) / 1024);
	for (uint64_t i = 0; i < CHURN; i++)
		most = gc_reads(s, e.open, 5001, i, 4 * (11 * CHURN + i) + 100003) ? most : 0;
	ok(most, "what was written last is whole");
	if (store_env_remove(s, "churn") < 0)
		tap_fatal("remove");
	res = gc_run(s, (struct store_gc_opts){0});
	eq_int(res.chunks, CHURN, "all of it goes");
	ok(file_bytes() >= after, "the files stay as large as they were");
	ok(res.free_bytes > size, "with %llu KiB for what comes",
	   (unsigned long long)res.free_bytes / 1024);
	res = gc_run(s, (struct store_gc_opts){.shrink = true});
	ok(res.given_back > size && file_bytes() < before + size,
	   "unless the disk shall have it: %llu KiB", (unsigned long long)res.given_back / 1024);
	e = env("churn", 0);
	churn_round(e.open, 50);
	ok(gc_reads(s, e.open, 5001, 7, 4 * (50 * CHURN + 7) + 100003), "and there is room again");
}

int main(void)
{
	char dir[64];

	make_dir(dir);
	s = open_store(dir);
	removed_environment();
	overwritten();
	automatic_states();
	dead_in_the_middle();
	pins_and_refs();
	own_open_layer();
	commits_of_removed();
	in_the_making();
	found_again();
	stopped();
	many();
	damaged(DB_INODES);
	damaged(DB_EXTENTS);
	damaged_page();
	room();
	dead_holder(dir);
	merged_states();
	merged_around();
	store_close(s);
	tree_remove(dir);
	return tap_done();
}
