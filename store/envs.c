#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/mp.h"
#include "store/key.h"
#include "store/store_internal.h"

#define ENV_VERSION 1
#define ENV_FIELDS  7
#define MOVE_FIELDS 5

bool store_env_name_valid(const char *name)
{
	size_t n =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n > 0 && n <= 64 && name[n] == 0 && name[0] != '.' && name[0] != '-';
}

/* ---- the record ---- */

int store_env_encode(const struct store_env *e, struct buf *b)
{
	const uint64_t nums[] = {ENV_VERSION, e->base, e->head, e->open};
	int r = mp_put_array(b, ENV_FIELDS);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(nums); i++)
		r = mp_put_uint(b, nums[i]);
	if (r == 0)
		r = mp_put_int(b, e->created.tv_sec);
	if (r == 0)
		r = mp_put_uint(b, (uint64_t)e->created.tv_nsec);
	return r ? r : mp_put_cstr(b, e->base_name);
}

static int decode_fields(const msgpack_object *f, struct store_env *e)
{
	uint64_t version, nsec;
	int64_t sec;
	const char *base;
	size_t n;
	int r = mp_as_uint(&f[0], ENV_VERSION, &version);

	if (r == 0)
		r = mp_as_uint(&f[1], UINT64_MAX, &e->base);
	if (r == 0)
		r = mp_as_uint(&f[2], UINT64_MAX, &e->head);
	if (r == 0)
		r = mp_as_uint(&f[3], UINT64_MAX, &e->open);
	if (r == 0)
		r = mp_as_int(&f[4], &sec);
	if (r == 0)
		r = mp_as_uint(&f[5], 999999999, &nsec);
	if (r == 0)
		r = mp_as_str(&f[6], &base, &n);
	if (r < 0)
		return r;
	if (n >= sizeof(e->base_name))
		return -EBADMSG;
	memcpy(e->base_name, base, n);
	e->created.tv_sec = sec;
	e->created.tv_nsec = (long)nsec;
	return 0;
}

int store_env_decode(const MDB_val *k, const MDB_val *v, struct store_env *ret)
{
	cleanup_buf struct buf b = {0};
	struct store_env e = {0};
	struct mp_doc d = {0};
	int r = k->mv_size < sizeof(e.name) ? mp_parse(v->mv_data, v->mv_size, &d) : -EBADMSG;

	if (r < 0)
		return r;
	memcpy(e.name, k->mv_data, k->mv_size);
	if (d.root.type != MSGPACK_OBJECT_ARRAY || d.root.via.array.size != ENV_FIELDS)
		r = -EBADMSG;
	if (r == 0)
		r = decode_fields(d.root.via.array.ptr, &e);
	mp_release(&d);
	if (r == 0)
		r = store_env_encode(&e, &b);
	if (r == 0 && !store_same_bytes(&b, v))
		r = -EBADMSG;
	if (r == 0)
		*ret = e;
	return r;
}

static MDB_val name_key(const char *name)
{
	return (MDB_val){strlen(name), (void *)(uintptr_t)name};
}

static int env_read(struct store *s, MDB_txn *t, const char *name, struct store_env *ret)
{
	MDB_val k = name_key(name), v;
	int r = store_tx_get(s, t, DB_ENVS, &k, &v);

	return r < 0 ? r : store_env_decode(&k, &v, ret);
}

static int env_write(struct store *s, MDB_txn *t, const struct store_env *e, unsigned flags)
{
	cleanup_buf struct buf b = {0};
	MDB_val k = name_key(e->name), v;
	int r = store_env_encode(e, &b);

	if (r < 0)
		return r;
	v = (MDB_val){b.len, b.data};
	return store_tx_put(s, t, DB_ENVS, &k, &v, flags);
}

/* ---- the log of moves: environment, NUL, sequence ---- */

static size_t move_key(uint8_t k[static 80], const char *env, uint64_t seq)
{
	size_t n = strlen(env) + 1;

	memcpy(k, env, n);
	key_be64(k + n, seq);
	return n + 8;
}

int store_move_encode(const struct store_move *m, struct buf *b)
{
	int r = mp_put_array(b, MOVE_FIELDS);

	if (r == 0)
		r = mp_put_cstr(b, m->op);
	if (r == 0)
		r = mp_put_uint(b, m->from);
	if (r == 0)
		r = mp_put_uint(b, m->to);
	if (r == 0)
		r = mp_put_int(b, m->time.tv_sec);
	return r ? r : mp_put_uint(b, (uint64_t)m->time.tv_nsec);
}

static int move_log(struct store *s, MDB_txn *t, const char *env, struct store_move *m)
{
	cleanup_buf struct buf b = {0};
	uint8_t kb[80];
	MDB_val k, v;
	uint64_t seq;
	int r = store_tx_count(s, t, "next_move", 1, &seq);

	(void)clock_gettime(CLOCK_REALTIME, &m->time);
	if (r == 0)
		r = store_move_encode(m, &b);
	if (r < 0)
		return r;
	k = (MDB_val){move_key(kb, env, seq), kb};
	v = (MDB_val){b.len, b.data};
	return store_tx_put(s, t, DB_MOVES, &k, &v, 0);
}

static int move_fields(const msgpack_object *f, struct store_move *m)
{
	const char *op = NULL;
	uint64_t nsec;
	int64_t sec;
	size_t n = 0;
	int r = mp_as_str(&f[0], &op, &n);

	if (r == 0 && (n == 0 || n >= sizeof(m->op)))
		r = -EBADMSG;
	if (r == 0)
		r = mp_as_uint(&f[1], UINT64_MAX, &m->from);
	if (r == 0)
		r = mp_as_uint(&f[2], UINT64_MAX, &m->to);
	if (r == 0)
		r = mp_as_int(&f[3], &sec);
	if (r == 0)
		r = mp_as_uint(&f[4], 999999999, &nsec);
	if (r < 0)
		return r;
	memcpy(m->op, op, n);
	m->time.tv_sec = sec;
	m->time.tv_nsec = (long)nsec;
	return 0;
}

int store_move_decode(const MDB_val *v, struct store_move *ret)
{
	cleanup_buf struct buf b = {0};
	struct store_move m = {0};
	struct mp_doc d = {0};
	int r = mp_parse(v->mv_data, v->mv_size, &d);

	if (r < 0)
		return r;
	if (d.root.type != MSGPACK_OBJECT_ARRAY || d.root.via.array.size != MOVE_FIELDS)
		r = -EBADMSG;
	if (r == 0)
		r = move_fields(d.root.via.array.ptr, &m);
	mp_release(&d);
	if (r == 0)
		r = store_move_encode(&m, &b);
	if (r == 0 && !store_same_bytes(&b, v))
		r = -EBADMSG;
	if (r == 0)
		*ret = m;
	return r;
}

/* The newest move of @env under @c; *@ret_k is where. */
static int move_last(MDB_cursor *c, const char *env, MDB_val *ret_k, struct store_move *ret)
{
	uint8_t kb[80];
	size_t n = move_key(kb, env, UINT64_MAX);
	MDB_val k = {n, kb}, v;
	int r = store_cur_raw(c, &k, &v, MDB_SET_RANGE);

	r = store_cur_get(c, DB_MOVES, &k, &v, r == 0 ? MDB_PREV : MDB_LAST);
	if (r < 0)
		return r;
	if (k.mv_size != n || memcmp(k.mv_data, kb, n - 8) != 0)
		return -ENOENT;
	*ret_k = k;
	return store_move_decode(&v, ret);
}

/* An undone move is forgotten, so that the newest that is left is the next one to undo. */
static int move_undo(struct store *s, MDB_txn *t, const char *env)
{
	struct store_move m;
	MDB_cursor *c;
	MDB_val k;
	int r = store_lm_err(mdb_cursor_open(t, s->db[DB_MOVES], &c));

	if (r < 0)
		return r;
	r = move_last(c, env, &k, &m);
	if (r == 0)
		r = store_lm_err(mdb_cursor_del(c, 0));
	mdb_cursor_close(c);
	return r;
}

static int moves_drop(struct store *s, MDB_txn *t, const char *env)
{
	int r;

	do
		r = move_undo(s, t, env);
	while (r == 0);
	return r == -ENOENT ? 0 : r;
}

int store_env_last_move(struct store *s, const char *env, char ret_op[static 32],
			store_layer *ret_from)
{
	cleanup_rd struct store_rd rd = {0};
	struct store_move m;
	MDB_cursor *c;
	MDB_val k;
	int r = store_env_name_valid(env) ? store_rd_begin(s, &rd) : -EINVAL;

	if (r == 0)
		r = store_rd_cursor(&rd, DB_MOVES, &c);
	if (r == 0)
		r = move_last(c, env, &k, &m);
	if (r < 0)
		return r;
	memcpy(ret_op, m.op, sizeof(m.op));
	*ret_from = m.from;
	return 0;
}

/* ---- calls ---- */

static int is_sealed(struct store *s, MDB_txn *t, store_layer layer)
{
	struct store_layer_rec rec;
	int r;

	if (layer == 0) /* the empty tree */
		return 0;
	r = store_layer_read(s, t, layer, &rec);
	if (r < 0)
		return r;
	if (rec.state == STORE_LAYER_DROPPED)
		return -ENOENT; /* being collected: to nobody is it there any more */
	return rec.state == STORE_LAYER_SEALED ? 0 : -EINVAL;
}

/* With an open layer over its head. */
static int env_add(struct store *s, MDB_txn *t, struct store_env *e)
{
	int r = is_sealed(s, t, e->head);

	(void)clock_gettime(CLOCK_REALTIME, &e->created);
	if (r == 0)
		r = store_layer_add(s, t, e->head, &e->open);
	return r < 0 ? r : env_write(s, t, e, MDB_NOOVERWRITE);
}

int store_env_create(struct store *s, const char *name, store_layer base, const char *base_name,
		     struct store_env *ret)
{
	struct store_env e = {.base = base, .head = base};
	cleanup_tx MDB_txn *t = NULL;
	int r;

	if (!store_env_name_valid(name))
		return -EINVAL;
	if (base_name && strlen(base_name) >= sizeof(e.base_name))
		return -EINVAL;
	(void)snprintf(e.name, sizeof(e.name), "%s", name);
	(void)snprintf(e.base_name, sizeof(e.base_name), "%s", base_name ? base_name : "");
	r = store_tx_begin(s, &t);
	if (r == 0)
		r = env_add(s, t, &e);
	if (r == 0)
		r = store_tx_commit(s, &t);
	if (r == 0)
		*ret = e;
	return r;
}

int store_env_fork(struct store *s, const char *from, const char *name, store_layer at,
		   struct store_env *ret)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_env e = {0};
	int r;

	if (!store_env_name_valid(from) || !store_env_name_valid(name))
		return -EINVAL;
	r = store_tx_begin(s, &t);
	if (r == 0)
		r = env_read(s, t, from, &e);
	if (r < 0)
		return r;
	(void)snprintf(e.name, sizeof(e.name), "%s", name);
	e.head = at;
	r = env_add(s, t, &e);
	if (r == 0 && at)
		r = store_tags_copy(s, t, from, name, at);
	if (r == 0)
		r = store_tx_commit(s, &t);
	if (r == 0)
		*ret = e;
	return r;
}

int store_env_get(struct store *s, const char *name, struct store_env *ret)
{
	cleanup_rd struct store_rd rd = {0};
	int r = store_env_name_valid(name) ? store_rd_begin(s, &rd) : -EINVAL;

	return r < 0 ? r : env_read(s, rd.r->txn, name, ret);
}

int store_envs_read(struct store *s, MDB_txn *t, int (*fn)(void *arg, const struct store_env *e),
		    void *arg)
{
	MDB_cursor *c;
	MDB_val k, v;
	int r = store_lm_err(mdb_cursor_open(t, s->db[DB_ENVS], &c)), got;

	if (r < 0)
		return r;
	for (got = store_cur_get(c, DB_ENVS, &k, &v, MDB_FIRST); got == 0 && r == 0;
	     got = store_cur_get(c, DB_ENVS, &k, &v, MDB_NEXT)) {
		struct store_env e;

		r = store_env_decode(&k, &v, &e);
		if (r == 0)
			r = fn(arg, &e);
	}
	mdb_cursor_close(c);
	return r ? r : got == -ENOENT ? 0 : got;
}

/* What is left of one that is damaged. */
static void env_damaged(const MDB_val *k, struct store_env *e)
{
	*e = (struct store_env){.damaged = true};
	if (k->mv_size < sizeof(e->name))
		memcpy(e->name, k->mv_data, k->mv_size);
	if (!store_env_name_valid(e->name))
		e->name[0] = 0;
}

int store_env_list(struct store *s, int (*fn)(void *arg, const struct store_env *e), void *arg)
{
	cleanup_rd struct store_rd rd = {0};
	MDB_cursor *c;
	MDB_val k, v;
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_rd_cursor(&rd, DB_ENVS, &c);
	if (r < 0)
		return r;
	for (r = store_cur_raw(c, &k, &v, MDB_FIRST); r == 0;
	     r = store_cur_raw(c, &k, &v, MDB_NEXT)) {
		struct store_env e;

		if (store_sum_strip(DB_ENVS, &k, &v) < 0 || store_env_decode(&k, &v, &e) < 0)
			env_damaged(&k, &e);
		r = fn(arg, &e);
		if (r)
			return r;
	}
	return r == -ENOENT ? 0 : r;
}

int store_env_remove(struct store *s, const char *name)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_env e;
	MDB_val k;
	int r = store_env_name_valid(name) ? store_tx_begin(s, &t) : -EINVAL;

	if (r == 0)
		r = env_read(s, t, name, &e);
	if (r < 0)
		return r;
	r = store_layer_drop(s, t, e.open);
	k = name_key(e.name);
	if (r == 0)
		r = store_tx_del(s, t, DB_ENVS, &k);
	if (r == 0)
		r = moves_drop(s, t, name);
	if (r == 0)
		r = store_env_refs_drop(s, t, name);
	if (r == 0)
		r = store_tx_commit(s, &t);
	if (r == 0)
		store_log_forget(s, name);
	return r;
}

/* The stored state, which must be what the caller believes it to be. */
static int same_env(struct store *s, MDB_txn *t, const struct store_env *mine,
		    struct store_env *ret)
{
	int r = store_env_name_valid(mine->name) ? env_read(s, t, mine->name, ret) : -EINVAL;

	if (r < 0)
		return r;
	return ret->head == mine->head && ret->open == mine->open ? 0 : -ESTALE;
}

/* The commit that a layer on top of @parent follows; zero when none did (a base). */
static int parent_commit(struct store *s, MDB_txn *t, store_layer parent, struct digest *ret)
{
	struct store_layer_rec rec = {0};
	int r;

	if (!parent)
		return 0;
	r = store_head_read(s, t, parent, &parent);
	if (r == 0)
		r = store_layer_read(s, t, parent, &rec);
	if (r == 0)
		*ret = rec.commit;
	return r;
}

static int seal_tx(struct store *s, MDB_txn *t, struct store_env *e, struct store_commit *c)
{
	struct store_layer_rec rec;
	int r = store_layer_read(s, t, e->open, &rec);

	if (r < 0)
		return r;
	if (rec.state != STORE_LAYER_OPEN)
		return -ESTALE;
	c->layer = e->open;
	(void)snprintf(c->env, sizeof(c->env), "%s", e->name);
	r = parent_commit(s, t, rec.parent, &c->parent);
	if (r == 0)
		r = store_commit_add(s, t, c);
	rec.state = STORE_LAYER_SEALED;
	rec.commit = c->id;
	if (r == 0)
		r = store_layer_write(s, t, e->open, &rec);
	e->head = e->open;
	if (r == 0)
		r = store_layer_add(s, t, e->head, &e->open);
	return r < 0 ? r : env_write(s, t, e, 0);
}

int store_env_seal_tagged(struct store *s, struct store_env *env, struct store_commit *c,
			  const char *tag)
{
	cleanup_tx MDB_txn *t = NULL;
	struct store_commit made = *c;
	struct store_env e;
	store_layer was;
	int r = !tag || store_tag_valid(tag) ? store_tx_begin(s, &t) : -EINVAL;

	if (r == 0)
		r = same_env(s, t, env, &e);
	if (r == 0)
		r = seal_tx(s, t, &e, &made);
	if (r == 0 && tag)
		r = store_tag_put(s, t, e.name, tag, made.layer, false, &was);
	if (r == 0)
		r = store_tx_commit(s, &t);
	if (r < 0)
		return r;
	*c = made;
	*env = e;
	return 0;
}

int store_env_seal(struct store *s, struct store_env *env, struct store_commit *c)
{
	return store_env_seal_tagged(s, env, c, NULL);
}

/* Only what is sealed may be left behind: -EBUSY when the open layer holds anything. */
static int leave_open(struct store *s, MDB_txn *t, store_layer layer)
{
	struct store_layer_rec rec;
	int r = store_layer_read(s, t, layer, &rec);

	if (r < 0)
		return r;
	if (rec.state == STORE_LAYER_OPEN && rec.records)
		return -EBUSY;
	return store_layer_drop(s, t, layer);
}

int store_env_move(struct store *s, struct store_env *env, store_layer target, const char *op)
{
	struct store_move m = {.to = target};
	cleanup_tx MDB_txn *t = NULL;
	struct store_env e;
	int r = op[0] && strlen(op) < sizeof(m.op) ? store_tx_begin(s, &t) : -EINVAL;

	if (r == 0)
		r = same_env(s, t, env, &e);
	if (r == 0)
		r = is_sealed(s, t, target);
	if (r == 0)
		r = leave_open(s, t, e.open);
	if (r < 0)
		return r;
	m.from = e.head;
	(void)snprintf(m.op, sizeof(m.op), "%s", op);
	r = strcmp(op, "undo") ? move_log(s, t, e.name, &m) : move_undo(s, t, e.name);
	e.head = target;
	if (r == 0)
		r = store_layer_add(s, t, target, &e.open);
	if (r == 0)
		r = env_write(s, t, &e, 0);
	if (r == 0)
		r = store_tx_commit(s, &t);
	if (r == 0)
		*env = e;
	return r;
}
