/* Chunks that the store has lost: what names them is EIO, stays so through whatever is done to the file, and keeps nothing else from
 * being flushed. */
#include "store/key.h"
#include "store/store_internal.h"
#include "tests/unit/core/ovl_fixture.h"

#define SMALL 100000u

static uint8_t noise[3 * STORE_BLOCK], got[3 * STORE_BLOCK];

static void put(struct fx *f, const char *path, uint64_t off, const void *p, size_t n)
{
	if (fx_write(f, path, off, p, n) != (ssize_t)n)
		tap_fatal("write %s", path);
}

static void make(struct fx *f, const char *path, const void *p, size_t n)
{
	if (fx_make(f, path, FX_FILE, 0600) < 0)
		tap_fatal("make %s", path);
	put(f, path, 0, p, n);
}

/* As LMDB would after it has lost a page. */
static void lose(struct fx *f, const uint8_t *p, size_t n)
{
	struct digest d;
	MDB_val k = {DIGEST_LEN, d.b};
	MDB_txn *t;

	if (digest_of(p, n, &d) < 0 || mdb_txn_begin(f->s->chunks.env, NULL, 0, &t) ||
	    mdb_del(t, f->s->chunk_db, &k, NULL) || mdb_txn_commit(t))
		tap_fatal("lose");
}

static void anew(struct fx *f)
{
	fx_umount(f);
	fx_mount(f);
}

static bool is(struct fx *f, const char *path, uint64_t off, const void *p, size_t n)
{
	return fx_read(f, path, off, got, n) == (ssize_t)n && !memcmp(got, p, n);
}

static void copy(struct fx *f, const char *from, const char *to)
{
	struct ovl_entry a, b;

	if (fx_make(f, to, FX_FILE, 0600) < 0 || fx_get(f, from, &a) < 0 || fx_get(f, to, &b) < 0)
		tap_fatal("copy");
	/* By reference: nothing is read. */
	ok(ovl_copy_range(f->o, a.ino, 0, b.ino, 0, 2 * STORE_BLOCK) > 0, "%s copied to %s", from,
	   to);
	ovl_forget(f->o, a.ino, 1);
	ovl_forget(f->o, b.ino, 1);
}

int main(void)
{
	struct stat st = {.st_mode = 0640, .st_size = 2 * STORE_BLOCK + 5};
	struct fx f;

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(i * 2654435761u >> 11);
	fx_open(&f);
	fx_mount(&f);
	make(&f, "one", noise, SMALL);
	make(&f, "grown", noise, SMALL);
	make(&f, "big", noise, sizeof(noise));
	make(&f, "twin", noise, sizeof(noise));
	make(&f, "other", "other", 5);
	eq_int(ovl_flush(f.o), 0, "flush");
	lose(&f, noise, SMALL);
	lose(&f, noise + STORE_BLOCK, STORE_BLOCK);
	anew(&f);

	eq_int(fx_set(&f, "one", &st, OVL_SET_MODE), 0, "another mode");
	eq_int(fx_set(&f, "grown", &st, OVL_SET_SIZE), 0, "one that grows");
	put(&f, "grown", STORE_BLOCK, "behind", 6);
	put(&f, "big", STORE_BLOCK + 5000, "over", 4);
	put(&f, "big", 5000, "kept", 4);
	copy(&f, "twin", "copy");
	put(&f, "other", 0, "OTHER", 5);
	eq_int(ovl_flush(f.o), 0, "the flush goes through");
	anew(&f);
	ok(is(&f, "other", 0, "OTHER", 5), "with what is whole");
	ok(is(&f, "grown", STORE_BLOCK, "behind", 6) && is(&f, "big", 5000, "kept", 4) &&
		   is(&f, "big", 2 * STORE_BLOCK, noise + 2 * STORE_BLOCK, STORE_BLOCK),
	   "and the rest of what is damaged");
	ok(is(&f, "copy", 0, noise, 5000), "and of its copy");
	eq_int(fx_stat(&f, "one", &st), 0, "stat");
	eq_int(st.st_mode & 07777, 0640, "the mode");
	eq_int(fx_read(&f, "one", 0, got, 10), -EIO, "what is lost is an error");
	eq_int(fx_read(&f, "grown", 0, got, 10), -EIO, "also where the file grew");
	eq_int(fx_read(&f, "big", STORE_BLOCK, got, 10), -EIO, "or was written to");
	eq_int(fx_read(&f, "copy", STORE_BLOCK, got, 10), -EIO, "or was copied");
	put(&f, "one", 0, noise, SMALL);
	eq_int(ovl_flush(f.o), 0, "written again");
	anew(&f);
	ok(is(&f, "one", 0, noise, SMALL), "it is whole");
	fx_close(&f);
	return tap_done();
}
