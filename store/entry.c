#include "store/entry.h"

static int decode_meta(const MDB_val *v, struct store_entry *e)
{
	return store_entry_is_super(e) ? store_super_decode(v, &e->super)
				       : store_num_decode(v, &e->counter);
}

static int decode_journal(const MDB_val *v, struct store_entry *e)
{
	e->journal = *v;
	return v->mv_size ? 0 : -EBADMSG;
}

static int decode_digest(const MDB_val *v, struct digest *ret)
{
	if (v->mv_size != DIGEST_LEN)
		return -EBADMSG;
	memcpy(ret->b, v->mv_data, DIGEST_LEN);
	return 0;
}

static int decode_value(const MDB_val *k, const MDB_val *v, struct store_entry *e)
{
	switch ((int)e->db) {
	case DB_INODES:
		return rec_inode_decode(v->mv_data, v->mv_size, &e->inode);
	case DB_NAMES:
		return store_name_decode(v, &e->name);
	case DB_EXTENTS:
		e->extent.block = e->key.block;
		return store_extent_decode(v, &e->extent);
	case DB_XATTRS:
		return store_there_decode(v, &e->xattr.there, &e->xattr.p, &e->xattr.n);
	case DB_LINKS:
		return store_there_decode(v, &e->linked, NULL, NULL);
	case DB_LAYERS:
		return store_layer_decode(v, &e->layer);
	case DB_JOURNAL:
		return decode_journal(v, e);
	case DB_COMMITS:
		return store_commit_decode(v, &e->key.id, &e->commit);
	case DB_COMMIT_INDEX:
		return decode_digest(v, &e->indexed);
	case DB_REFS:
		return store_num_decode(v, &e->ref);
	case DB_ENVS:
		return store_env_decode(k, v, &e->env);
	case DB_MOVES:
		return store_move_decode(v, &e->move);
	case DB_META:
		return decode_meta(v, e);
	default:
		e->chunk.stored = v->mv_data;
		e->chunk.n = v->mv_size;
		return 0;
	}
}

int store_entry_decode(enum store_db db, const MDB_val *k, const MDB_val *v,
		       struct store_entry *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->db = db;
	r = store_key_decode(db, k->mv_data, k->mv_size, &ret->key);
	if (r < 0)
		return r;
	ret->gone = store_db_versioned(db) && v->mv_size == 0;
	return ret->gone ? 0 : decode_value(k, v, ret);
}

void store_entry_release(struct store_entry *e)
{
	if (e->db == DB_INODES && !e->gone)
		rec_inode_release(&e->inode);
	if (e->db == DB_COMMITS)
		store_commit_release(&e->commit);
}

static int put_num(struct buf *v, uint64_t n)
{
	uint8_t b[8];

	key_be64(b, n);
	return buf_put(v, b, sizeof(b));
}

static int put_there(struct buf *v, bool there, const void *p, size_t n)
{
	int r = buf_put(v, there ? "\1" : "\0", 1);

	return r == 0 && n ? buf_put(v, p, n) : r;
}

static int encode_value(const struct store_entry *e, struct buf *v)
{
	uint8_t b[STORE_LAYER_MAX];

	switch ((int)e->db) {
	case DB_INODES:
		return rec_inode_encode(&e->inode, v);
	case DB_NAMES:
		store_name_encode(&e->name, b);
		return buf_put(v, b, STORE_NAME_LEN);
	case DB_EXTENTS:
		return buf_put(v, b, store_extent_encode(&e->extent, b));
	case DB_XATTRS:
		return put_there(v, e->xattr.there, e->xattr.p, e->xattr.n);
	case DB_LINKS:
		return put_there(v, e->linked, NULL, 0);
	case DB_LAYERS:
		return buf_put(v, b, store_layer_encode(&e->layer, b));
	case DB_JOURNAL:
		return buf_put(v, e->journal.mv_data, e->journal.mv_size);
	case DB_COMMITS:
		return store_commit_encode(&e->commit, v);
	case DB_COMMIT_INDEX:
		return buf_put(v, e->indexed.b, DIGEST_LEN);
	case DB_REFS:
		return put_num(v, e->ref);
	case DB_ENVS:
		return store_env_encode(&e->env, v);
	case DB_MOVES:
		return store_move_encode(&e->move, v);
	case DB_META:
		return store_entry_is_super(e) ? store_super_encode(&e->super, v)
					       : put_num(v, e->counter);
	default:
		return buf_put(v, e->chunk.stored, e->chunk.n);
	}
}

int store_entry_encode(const struct store_entry *e, struct key *k, struct buf *v)
{
	store_key_encode(e->db, &e->key, k);
	return e->gone ? 0 : encode_value(e, v);
}
