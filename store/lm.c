#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "store/guard.h"
#include "store/key.h"
#include "store/store_internal.h"

/* Idle readers kept: more threads than this reading at one moment make and drop their own. */
#define IDLE_MAX   32
#define LM_KEY_MAX 511

int store_lm_err(int rc)
{
	switch (rc) {
	case 0:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_KEYEXIST:
		return -EEXIST;
	case MDB_MAP_FULL:
	case EFBIG:
		return -ENOSPC;
	case MDB_PAGE_NOTFOUND:
	case MDB_CORRUPTED:
	case MDB_INVALID:
	case MDB_PAGE_FULL:
	case MDB_CURSOR_FULL:
	case MDB_INCOMPATIBLE:
		return -EBADMSG;
	case MDB_VERSION_MISMATCH:
		return -EPROTONOSUPPORT;
	case MDB_READERS_FULL:
		return -EBUSY;
	case MDB_TXN_FULL:
		return -E2BIG;
	case MDB_BAD_VALSIZE:
		return -EINVAL;
	default:
		return rc > 0 ? -rc : -EIO;
	}
}

static int env_open(MDB_env *env, const char *path, size_t map, unsigned flags)
{
	int rc = mdb_env_set_mapsize(env, map);

	if (rc == 0)
		rc = mdb_env_set_maxdbs(env, DB_COUNT + 2);
	if (rc == 0)
		rc = mdb_env_set_maxreaders(env, STORE_READERS);
	if (rc == 0)
		rc = mdb_env_open(env, path, flags, 0600);
	return store_lm_err(rc);
}

static int env_make(const char *path, size_t map, unsigned more, MDB_env **ret)
{
	/* NOTLS: readers belong to the pool, not to threads. No WRITEMAP: a full disk would be SIGBUS. */
	unsigned flags = MDB_NOTLS | more;
	MDB_env *env;
	int dead, r = store_lm_err(mdb_env_create(&env));

	if (r < 0)
		return r;
	store_guard_env(env);
	r = env_open(env, path, map, flags);
	if (r == 0)
		r = store_lm_err(mdb_reader_check(env, &dead));
	if (r < 0) {
		mdb_env_close(env);
		return r;
	}
	*ret = env;
	return 0;
}

int store_pool_open(struct store_pool *p, const char *path, size_t map, unsigned flags)
{
	MDB_env *env;
	int r = env_make(path, map, flags, &env);

	/* Address space may be limited (ulimit -v, sanitizers). A smaller map serves as long as the
	 * file stays below it; LMDB notices when it does not. */
	while (r == -ENOMEM && map >> 30) {
		map /= 16;
		r = env_make(path, map, flags, &env);
	}
	if (r < 0)
		return r;
	r = -pthread_mutex_init(&p->lock, NULL);
	if (r < 0) {
		mdb_env_close(env);
		return r;
	}
	p->env = env;
	return 0;
}

static void reader_free(struct store_reader *rd)
{
	for (int i = 0; i < DB_COUNT; i++)
		if (rd->cur[i])
			mdb_cursor_close(rd->cur[i]);
	if (rd->txn)
		mdb_txn_abort(rd->txn);
	ZSTD_freeDCtx(rd->dctx);
	free(rd);
}

void store_pool_close(struct store_pool *p)
{
	if (!p->env)
		return;
	while (p->idle) {
		struct store_reader *rd = p->idle;

		p->idle = rd->next;
		reader_free(rd);
	}
	mdb_env_close(p->env);
	p->env = NULL;
	(void)pthread_mutex_destroy(&p->lock);
}

static int reader_new(struct store_pool *p, struct store_reader **ret)
{
	struct store_reader *rd = calloc(1, sizeof(*rd));
	int dead, rc;

	if (!rd)
		return -ENOMEM;
	rc = mdb_txn_begin(p->env, NULL, MDB_RDONLY, &rd->txn);
	if (rc == MDB_READERS_FULL && mdb_reader_check(p->env, &dead) == 0 && dead > 0)
		rc = mdb_txn_begin(p->env, NULL, MDB_RDONLY, &rd->txn);
	if (rc) {
		rd->txn = NULL;
		reader_free(rd);
		return store_lm_err(rc);
	}
	*ret = rd;
	return 0;
}

int store_reader_get(struct store_pool *p, struct store_reader **ret)
{
	struct store_reader *rd;
	int rc;

	(void)pthread_mutex_lock(&p->lock);
	rd = p->idle;
	if (rd) {
		p->idle = rd->next;
		p->n_idle--;
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (!rd)
		return reader_new(p, ret);
	rc = mdb_txn_renew(rd->txn);
	if (rc) {
		reader_free(rd);
		return store_lm_err(rc);
	}
	for (int i = 0; i < DB_COUNT; i++)
		rd->cur_fresh[i] = false;
	*ret = rd;
	return 0;
}

void store_reader_put(struct store_pool *p, struct store_reader *rd)
{
	bool keep;

	mdb_txn_reset(rd->txn);
	(void)pthread_mutex_lock(&p->lock);
	keep = p->n_idle < IDLE_MAX;
	if (keep) {
		rd->next = p->idle;
		p->idle = rd;
		p->n_idle++;
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (!keep)
		reader_free(rd);
}

/* ---- readers of meta ---- */

int store_rd_begin(struct store *s, struct store_rd *rd)
{
	int r = store_reader_get(&s->meta, &rd->r);

	if (r == 0)
		rd->s = s;
	return r;
}

void store_rd_end(struct store_rd *rd)
{
	if (rd->s)
		store_reader_put(&rd->s->meta, rd->r);
	rd->s = NULL;
}

int store_rd_cursor(struct store_rd *rd, enum store_db db, MDB_cursor **ret)
{
	struct store_reader *r = rd->r;
	int rc = 0;

	/* Looks at the page that says where the database is. */
	GUARD_BEGIN(g)
	if (!r->cur[db])
		rc = store_lm_err(mdb_cursor_open(r->txn, rd->s->db[db], &r->cur[db]));
	else if (!r->cur_fresh[db])
		rc = store_lm_err(mdb_cursor_renew(r->txn, r->cur[db]));
	GUARD_END(g, rc);
	if (rc < 0)
		return rc;
	r->cur_fresh[db] = true;
	*ret = r->cur[db];
	return 0;
}

int store_rd_get(struct store_rd *rd, enum store_db db, MDB_val *k, MDB_val *v)
{
	return store_tx_get(rd->s, rd->r->txn, db, k, v);
}

/* LMDB hands on what a page says: within a guard, see that the key at least can be read. */
static int key_ok(const MDB_val *k)
{
	const volatile uint8_t *p = k->mv_data;

	if (k->mv_size == 0 || k->mv_size > LM_KEY_MAX)
		return -EBADMSG;
	(void)p[0];
	(void)p[k->mv_size - 1];
	return 0;
}

int store_cur_raw(MDB_cursor *c, MDB_val *k, MDB_val *v, MDB_cursor_op op)
{
	int r = 0;

	GUARD_BEGIN(g)
	r = store_lm_err(mdb_cursor_get(c, k, v, op));
	if (r == 0)
		r = key_ok(k);
	GUARD_END(g, r);
	return r;
}

int store_cur_get(MDB_cursor *c, enum store_db db, MDB_val *k, MDB_val *v, MDB_cursor_op op)
{
	int r = store_cur_raw(c, k, v, op);

	return r < 0 ? r : store_sum_strip(db, k, v);
}

/* ---- writing to meta ---- */

int store_tx_begin(struct store *s, MDB_txn **ret)
{
	bool look;
	int dead, r;

	if (s->rdonly)
		return -EROFS;
	(void)pthread_mutex_lock(&s->meta.lock);
	look = ++s->meta.calls % 256 == 0;
	(void)pthread_mutex_unlock(&s->meta.lock);
	/* A reader that died with its process would keep every freed page from being used again. */
	if (look)
		(void)mdb_reader_check(s->meta.env, &dead);
	if (look)
		(void)mdb_reader_check(s->chunks.env, &dead);
	r = store_lm_err(mdb_txn_begin(s->meta.env, NULL, 0, ret));
	if (r == 0)
		s->meta_new = 0; /* whoever began one before has ended it */
	return r;
}

/* Somebody removed the data directory: what is written now is gone when the last process is. */
static bool vanished(MDB_env *env)
{
	struct stat st;
	int fd;

	return mdb_env_get_fd(env, &fd) == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0;
}

bool store_vanished(const struct store *s)
{
	return vanished(s->meta.env) || vanished(s->chunks.env);
}

/* Has LMDB given the environment up? It does so when it cannot tell which of its two first pages the disk has. */
static bool env_broken(MDB_env *env)
{
	MDB_txn *t;
	int rc = mdb_txn_begin(env, NULL, MDB_RDONLY, &t);

	if (rc == 0)
		mdb_txn_abort(t);
	return rc == MDB_PANIC;
}

bool store_broken(const struct store *s)
{
	return env_broken(s->meta.env) || env_broken(s->chunks.env);
}

int store_broken_fd(const struct store *s)
{
	return s->broken_fd;
}

int store_tx_commit(struct store *s, MDB_txn **t)
{
	MDB_txn *txn = *t;
	MDB_env *env = mdb_txn_env(txn);
	int64_t new = env == s->meta.env ? s->meta_new : 0; /* from the commit on it is another's */
	int r;

	*t = NULL;
	if (vanished(env)) {
		mdb_txn_abort(txn);
		return -EIO;
	}
	r = store_lm_err(mdb_txn_commit(txn));
	if (r == 0)
		store_written_add(s, new);
	if (r < 0 && env_broken(env))
		(void)!write(s->broken_fd, &(uint64_t){1}, sizeof(uint64_t));
	return r == -EIO ? store_room_err(s) ?: r : r;
}

int store_lm_get(MDB_txn *t, MDB_dbi db, MDB_val *k, MDB_val *v)
{
	int r = 0;

	GUARD_BEGIN(g)
	r = store_lm_err(mdb_get(t, db, k, v));
	GUARD_END(g, r);
	return r;
}

void store_tx_abortp(MDB_txn **t)
{
	if (*t)
		mdb_txn_abort(*t);
	*t = NULL;
}

int store_tx_get(struct store *s, MDB_txn *t, enum store_db db, MDB_val *k, MDB_val *v)
{
	int r = store_lm_get(t, s->db[db], k, v);

	return r < 0 ? r : store_sum_strip(db, k, v);
}

int store_tx_put(struct store *s, MDB_txn *t, enum store_db db, MDB_val *k, const MDB_val *v,
		 unsigned flags)
{
	const void *p = v->mv_data;
	size_t n = v->mv_size;
	MDB_val room = {n + STORE_SUM_LEN, NULL};
	int r;

	if (!store_sum_has(db)) {
		MDB_val as_is = *v;

		return store_lm_err(mdb_put(t, s->db[db], k, &as_is, flags));
	}
	/* What it replaces takes no room any more. */
	r = store_lm_err(mdb_put(t, s->db[db], k, &room, flags | MDB_RESERVE | MDB_NOOVERWRITE));
	if (r == 0) {
		s->meta_new += (int64_t)(k->mv_size + room.mv_size);
	} else if (r == -EEXIST && !(flags & MDB_NOOVERWRITE)) {
		size_t had = room.mv_size;

		room = (MDB_val){n + STORE_SUM_LEN, NULL};
		r = store_lm_err(mdb_put(t, s->db[db], k, &room, flags | MDB_RESERVE));
		if (r == 0)
			s->meta_new += (int64_t)room.mv_size - (int64_t)had;
	}
	if (r < 0)
		return r;
	if (n)
		memcpy(room.mv_data, p, n);
	key_be32((uint8_t *)room.mv_data + n, store_sum(db, k, p, n));
	return 0;
}

int store_tx_del(struct store *s, MDB_txn *t, enum store_db db, MDB_val *k)
{
	MDB_val had;
	bool known = store_lm_get(t, s->db[db], k, &had) == 0;
	size_t size = known ? k->mv_size + had.mv_size : 0;
	int r = store_lm_err(mdb_del(t, s->db[db], k, NULL));

	if (r == 0)
		s->meta_new -= (int64_t)size;
	return r;
}
