/*
 * forge DATA-DIR NAME: another mode for each version of the inode that is called NAME, written as the store itself would
 * write it, so that no check value can tell (tests/e2e/fsck.sh).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "store/key.h"
#include "store/store_internal.h"

static int forge(struct store *s, MDB_txn *t, MDB_val *k, const MDB_val *v, const char *name)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	cleanup_buf struct buf b = {0};
	int r = v->mv_size ? rec_inode_decode(v->mv_data, v->mv_size, &rec) : -ENOENT;

	if (r < 0 || !rec.name || strcmp(rec.name, name) != 0)
		return r == -ENOENT ? 0 : r;
	rec.mode ^= 0100;
	r = rec_inode_encode(&rec, &b);
	if (r == 0)
		r = store_tx_put(s, t, DB_INODES, k, &(MDB_val){b.len, b.data}, 0);
	return r < 0 ? r : 1;
}

static int forge_all(struct store *s, const char *name)
{
	cleanup_tx MDB_txn *t = NULL;
	uint8_t key[16];
	MDB_val k, v;
	int r = store_tx_begin(s, &t), n = 0;

	/* Numbers of inodes are given out from 1. */
	for (uint64_t ino = 1; r >= 0 && ino < 10000; ino++)
		for (uint64_t layer = 1; r >= 0 && layer < 64; layer++) {
			k = (MDB_val){16, key};
			key_be64(key, ino);
			key_be64(key + 8, ~layer);
			r = store_tx_get(s, t, DB_INODES, &k, &v);
			if (r == 0)
				r = forge(s, t, &k, &v, name);
			n += r > 0;
			r = r == -ENOENT ? 0 : r;
		}
	return r < 0 ? r : n ? store_tx_commit(s, &t) : -ENOENT;
}

int main(int argc, char **argv)
{
	struct store *s = NULL;
	struct diag d = {0};
	int r = argc == 3 ? store_open(argv[1], 0, &d, &s) : -EINVAL;

	if (r == 0)
		r = forge_all(s, argv[2]);
	store_close(s);
	if (r < 0)
		(void)fprintf(stderr, "forge: %s %s\n", err_text(r), d.text);
	return r < 0;
}
