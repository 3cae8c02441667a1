/* Many changes at once, and the id of a commit. */
#include <errno.h>
#include <time.h>

#include "diff_fixture.h"
#include "store/key.h"
#include "store/store_internal.h"

#define MANY 100000

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct seen {
	size_t n;
	bool sorted;
	char last[256];
};

static int see(void *arg, const struct diff_entry *e)
{
	struct seen *s = arg;

	if (s->n++ && strcmp(s->last, e->path) >= 0)
		s->sorted = false;
	(void)snprintf(s->last, sizeof s->last, "%s", e->path);
	return 0;
}

static int stop(void *arg, const struct diff_entry *e)
{
	(void)arg;
	(void)e;
	return 42;
}

/* @MANY files in directories of 500, straight into a layer. */
static void fill(struct fixture *f, store_layer layer, int version)
{
	store_ino first;
	struct store_batch *b;

	if (store_reserve_inos(f->s, MANY + MANY / 500, &first) < 0 ||
	    store_batch_begin(f->s, layer, &b) < 0)
		tap_fatal("batch");
	for (int i = 0; i < MANY; i++) {
		store_ino dir = first + MANY + (store_ino)i / 500, ino = first + (store_ino)i;
		struct rec_inode rec = {.mode = S_IFDIR | 0755, .nlink = 2};
		struct rec_name n = {.ino = dir, .type = S_IFDIR};
		char name[32], text[32];

		if (i % 500 == 0) {
			(void)snprintf(name, sizeof name, "v%d-dir%d", version, i / 500);
			rec.parent = STORE_ROOT_INO;
			rec.name = name;
			rec.name_len = strlen(name);
			if (store_batch_inode(b, dir, &rec) < 0 ||
			    store_batch_name(b, STORE_ROOT_INO, name, rec.name_len, &n) < 0)
				tap_fatal("put");
		}
		(void)snprintf(name, sizeof name, "file%d", i);
		(void)snprintf(text, sizeof text, "text of %d", i);
		rec = (struct rec_inode){.mode = S_IFREG | 0644,
					 .nlink = 1,
					 .parent = dir,
					 .name = name,
					 .name_len = strlen(name),
					 .size = strlen(text),
					 .content = REC_INLINE,
					 .data = (uint8_t *)text,
					 .data_len = strlen(text)};
		n = (struct rec_name){.ino = ino, .type = S_IFREG};
		if (store_batch_inode(b, ino, &rec) < 0 ||
		    store_batch_name(b, dir, name, rec.name_len, &n) < 0)
			tap_fatal("put");
	}
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
}

static void test_many(struct tree *t)
{
	struct seen s = {.sorted = true};
	struct diff_counts counts;
	struct timespec when = {1, 2};
	struct digest id;
	store_layer a, b;
	double start;

	tree_on(t, 0);
	tree_write(t, "/first", "1");
	a = tree_seal(t);
	if (store_layer_new(t->f.s, a, &b) < 0)
		tap_fatal("layer");
	fill(&t->f, b, 1);
	if (store_layer_seal(t->f.s, b) < 0)
		tap_fatal("seal");
	start = now();
	eq_int(diff_layers(t->f.s, a, b, 0, see, &s), 0, "diff");
	printf("# %d changes in %.3f s\n", MANY, now() - start);
	eq_int(s.n, MANY + MANY / 500, "every change is told");
	ok(s.sorted, "in order");
	eq_int(diff_layers(t->f.s, a, b, 0, stop, NULL), 42, "a callback can stop");
	start = now();
	eq_int(diff_commit_id(t->f.s, NULL, a, b, "m", "l", &when, &id, &counts), 0, "an id");
	printf("# its id in %.3f s\n", now() - start);
	eq_int(counts.added, MANY + MANY / 500, "counts");
	/* a small change on top costs what it costs */
	tree_on(t, b);
	tree_write(t, "/first", "2");
	a = tree_seal(t);
	start = now();
	is_diff(t, b, a, 0, "Mc /first\n", "one change after many");
	ok(now() - start < 0.2, "is told at once");
}

/* ---- the id ---- */

static struct digest id_of(struct tree *t, const struct digest *parent, store_layer from,
			   store_layer to, const char *message, const char *label, long sec)
{
	struct timespec when = {.tv_sec = sec, .tv_nsec = 5};
	struct diff_counts n;
	struct digest d = {0};

	if (diff_commit_id(t->f.s, parent, from, to, message, label, &when, &d, &n) < 0)
		tap_fatal("diff_commit_id");
	return d;
}

static void differs(const struct digest *a, struct digest b, const char *what)
{
	ok(memcmp(a, &b, sizeof b) != 0, "another %s is another id", what);
}

static void test_id(struct tree *t)
{
	static char big[3 * STORE_BLOCK];
	struct diff_counts n;
	struct timespec when = {9, 9};
	store_layer a, b, c;
	struct digest id, again, parent = {.b = {1}}, zero = {0};

	tree_on(t, 0);
	memset(big, 'x', sizeof big);
	tree_write(t, "/f", "f");
	tree_write(t, "/g", "g");
	tree_write(t, "/move", "m");
	tree_write_at(t, "/big", 0, big, sizeof big);
	a = tree_seal(t);
	tree_write(t, "/f", "F");
	tree_unlink(t, "/g");
	tree_rename(t, "/move", "/moved");
	tree_write(t, "/new", "n");
	tree_write_at(t, "/big", 2 * STORE_BLOCK, "y", 1);
	b = tree_seal(t);
	id = id_of(t, &parent, a, b, "message", "label", 7);
	again = id_of(t, &parent, a, b, "message", "label", 7);
	ok(!memcmp(&id, &again, sizeof id), "the same record is the same id");
	differs(&id, id_of(t, NULL, a, b, "message", "label", 7), "parent");
	differs(&id, id_of(t, &parent, a, b, "Message", "label", 7), "message");
	differs(&id, id_of(t, &parent, a, b, "message", "", 7), "label");
	differs(&id, id_of(t, &parent, a, b, "message", "label", 8), "time");
	differs(&id, id_of(t, &parent, b, a, "message", "label", 7), "change");
	id = id_of(t, NULL, a, b, NULL, NULL, 7);
	again = id_of(t, &zero, a, b, "", "", 7);
	ok(!memcmp(&id, &again, sizeof id), "no parent is no parent, no message an empty one");
	tree_write_at(t, "/big", 2 * STORE_BLOCK, "z", 1);
	c = tree_seal(t);
	id = id_of(t, NULL, b, c, "", "", 7);
	tree_on(t, b);
	tree_write_at(t, "/big", 2 * STORE_BLOCK, "Z", 1);
	differs(&id, id_of(t, NULL, b, tree_seal(t), "", "", 7), "byte");
	eq_int(diff_commit_id(t->f.s, NULL, a, b, "", "", &when, &id, &n), 0, "counts");
	ok(n.added == 1 && n.deleted == 1 && n.renamed == 1 && n.modified == 2,
	   "added %llu deleted %llu renamed %llu modified %llu", (unsigned long long)n.added,
	   (unsigned long long)n.deleted, (unsigned long long)n.renamed,
	   (unsigned long long)n.modified);
}

/* ---- is it still that of what is recorded? ---- */

static bool is_committed(struct tree *t, const struct store_commit *c)
{
	bool same = false;

	eq_int(diff_commit_check(t->f.s, c, &same), 0, "an id computed again");
	return same;
}

/* Another mode, written as the store itself would write it: no check value can tell. */
static void forge(struct store *s, store_ino ino, store_layer layer)
{
	cleanup_tx MDB_txn *x = NULL;
	cleanup_buf struct buf b = {0};
	struct rec_inode rec = {0};
	uint8_t key[16];
	MDB_val k = {16, key}, v;

	key_be64(key, ino);
	key_be64(key + 8, ~layer);
	if (store_tx_begin(s, &x) < 0 || store_tx_get(s, x, DB_INODES, &k, &v) < 0 ||
	    rec_inode_decode(v.mv_data, v.mv_size, &rec) < 0)
		tap_fatal("no inode %llu", (unsigned long long)ino);
	rec.mode ^= 0100;
	if (rec_inode_encode(&rec, &b) < 0 ||
	    store_tx_put(s, x, DB_INODES, &k, &(MDB_val){b.len, b.data}, 0) < 0 ||
	    store_tx_commit(s, &x) < 0)
		tap_fatal("forge");
	rec_inode_release(&rec);
}

static void test_check(struct tree *t)
{
	struct store_commit c = {
		.parent = {{1}}, .time = {7, 5}, .label = "label", .message = (char[]){"message"}};
	store_layer a;
	store_ino ino;

	tree_on(t, 0);
	tree_write(t, "/f", "f");
	tree_write(t, "/g", "g");
	a = tree_seal(t);
	tree_write(t, "/f", "F");
	tree_rename(t, "/g", "/h");
	ino = tree_ino(t, "/f");
	c.layer = tree_seal(t);
	c.id = id_of(t, &c.parent, a, c.layer, "message", "label", 7);
	ok(is_committed(t, &c), "is the same");
	c.id.b[0] ^= 1;
	ok(!is_committed(t, &c), "another is not");
	c.id.b[0] ^= 1;
	c.label[0] = 'L';
	ok(!is_committed(t, &c), "nor is that of another label");
	c.label[0] = 'l';
	forge(t->f.s, ino, c.layer);
	ok(!is_committed(t, &c), "nor when a record is another than what was committed");
}

int main(void)
{
	struct tree t = {0};

	fixture_open(&t.f);
	test_id(&t);
	test_check(&t);
	test_many(&t);
	if (ovl_close(t.o) < 0)
		tap_fatal("ovl_close");
	fixture_close(&t.f);
	return tap_done();
}
