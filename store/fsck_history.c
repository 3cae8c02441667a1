/* Layers, commits, environments, moves, references, counters: what hangs on what. */
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "store/fsck_internal.h"

/* ---- the table of layers ---- */

struct fsck_layer *fsck_layer(struct fsck *f, store_layer layer)
{
	size_t lo = 0, hi = f->nlayers;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->layers[mid].layer < layer)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < f->nlayers && f->layers[lo].layer == layer ? &f->layers[lo] : NULL;
}

bool fsck_sees(struct fsck *f, store_layer l, store_layer a)
{
	const struct fsck_layer *x = fsck_layer(f, l), *y = l == a ? x : fsck_layer(f, a);

	return x && y && y->in <= x->in && x->in < y->out;
}

static int add(struct fsck *f, const struct fsck_layer *l)
{
	if (f->nlayers == f->cap_layers) {
		size_t cap = f->cap_layers ? f->cap_layers * 2 : 256;
		struct fsck_layer *more = realloc(f->layers, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		f->layers = more;
		f->cap_layers = cap;
	}
	/* A walk hands them on in order; damage may not. */
	if (f->nlayers && f->layers[f->nlayers - 1].layer >= l->layer)
		return 0;
	f->layers[f->nlayers++] = *l;
	return 0;
}

static int on_layer(struct fsck *f, const struct store_entry *e)
{
	struct fsck_layer l = {.layer = e->key.layer, .rec = e->layer};

	return add(f, &l);
}

int fsck_layer_bad(struct fsck *f, store_layer layer)
{
	struct fsck_layer l = {.layer = layer, .bad = true, .unknown = true};

	return layer ? add(f, &l) : 0;
}

/* A parent's number is smaller, so its place in the table is known before its children's. Numbers are given in
 * the order of a walk through the tree: each has its children's within its own. */
static int number_layers(struct fsck *f)
{
	size_t n = f->nlayers;
	uint64_t *size = calloc(n + 1, sizeof(*size)), *next = calloc(n + 1, sizeof(*next)),
		 top = 1;

	if (!size || !next) {
		free(size);
		free(next);
		return -ENOMEM;
	}
	for (size_t i = n; i-- > 0;) {
		struct fsck_layer *p = fsck_layer(f, f->layers[i].rec.parent);

		size[i]++;
		if (p && p < &f->layers[i])
			size[p - f->layers] += size[i];
	}
	for (size_t i = 0; i < n; i++) {
		struct fsck_layer *l = &f->layers[i], *p = fsck_layer(f, l->rec.parent);
		uint64_t *from = p && p < l ? &next[p - f->layers] : &top;

		l->in = *from;
		l->out = l->in + size[i];
		*from = l->out;
		next[i] = l->in + 1;
	}
	free(size);
	free(next);
	return 0;
}

static int check_layers(struct fsck *f)
{
	int r = number_layers(f);

	for (size_t i = 0; i < f->nlayers && r == 0; i++) {
		struct fsck_layer *l = &f->layers[i], *p = fsck_layer(f, l->rec.parent);
		unsigned long long n = l->layer;
		const char *what = NULL;

		f->sum.layers++;
		/* The collector condemns children before parents, and takes them away piece by piece. */
		if (l->bad || !l->rec.parent || l->rec.state == STORE_LAYER_DROPPED)
			continue;
		if (l->rec.parent >= l->layer)
			what = "its parent is not older than it is";
		else if (!p)
			what = "its parent is missing";
		else if (!p->bad && p->rec.state != STORE_LAYER_SEALED)
			what = "its parent is not sealed";
		l->bad = what != NULL || (p && p->bad);
		if (what)
			r = fsck_tell(f, STORE_FINDING_DAMAGE, "layer", "layers", NULL,
				      "layer %llu is damaged: %s", n, what);
	}
	return r;
}

/* ---- commits ---- */

static int view_add(struct fsck *f, const struct fsck_view *v)
{
	if (f->nviews == f->cap_views) {
		size_t cap = f->cap_views ? f->cap_views * 2 : 64;
		struct fsck_view *more = realloc(f->views, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		f->views = more;
		f->cap_views = cap;
	}
	f->views[f->nviews++] = *v;
	return 0;
}

static int commit_bad(struct fsck *f, const struct digest *id, const char *what)
{
	struct store_finding out = {
		.state = STORE_FINDING_DAMAGE, .kind = "commit", .where = "commits"};
	char hex[DIGEST_LEN * 2 + 1], text[160];

	digest_hex(id, hex);
	(void)snprintf(text, sizeof(text), "commit %.12s: %s", hex, what);
	out.text = text;
	out.commits[0] = hex;
	out.ncommits = 1;
	return fsck_emit(f, &out);
}

/* The commit that one on top of @layer follows: automatic states are passed over, as when it was made. -EBADMSG: a
 * damaged record is in the way, and nothing can be said. */
static int parent_commit(struct fsck *f, store_layer layer, struct digest *ret)
{
	memset(ret, 0, sizeof(*ret));
	while (layer) {
		const struct fsck_layer *l = fsck_layer(f, layer);
		struct store_key k = {0};
		struct store_entry e;
		bool automatic;
		int r;

		if (!l || l->bad)
			return -EBADMSG;
		*ret = l->rec.commit;
		if (store_digest_is_zero(&l->rec.commit) || !l->rec.parent)
			return 0;
		k.id = l->rec.commit;
		r = fsck_get(f, DB_COMMITS, &k, &e);
		if (r < 0)
			return r == -ENOENT ? -EBADMSG : r;
		automatic = e.commit.kind == STORE_AUTO;
		store_entry_release(&e);
		if (!automatic)
			return 0;
		layer = l->rec.parent;
	}
	return 0;
}

static int on_commit(struct fsck *f, const struct store_entry *e)
{
	const struct fsck_layer *l = fsck_layer(f, e->commit.layer);
	struct fsck_view v = {.layer = e->commit.layer, .commit = e->key.id};
	const struct digest *id = &e->key.id;
	struct digest parent;
	int r = view_add(f, &v);

	f->sum.commits++;
	fsck_set_add(&f->commit_set, DB_COMMITS, id->b, DIGEST_LEN);
	if (r < 0)
		return r;
	if (!l)
		return commit_bad(f, id, "its layer is missing");
	if (l->bad)
		return commit_bad(f, id, "its layer, or one below it, is damaged");
	if (l->rec.state != STORE_LAYER_SEALED)
		return commit_bad(f, id, "its layer is not sealed");
	if (memcmp(&l->rec.commit, id, sizeof(*id)) != 0)
		return commit_bad(f, id, "its layer names another commit");
	if (!store_env_name_valid(e->commit.env))
		return commit_bad(f, id, "it names no environment");
	r = parent_commit(f, l->rec.parent, &parent);
	if (r == -EBADMSG)
		return 0;
	if (r == 0 && memcmp(&parent, &e->commit.parent, sizeof(parent)) != 0)
		return commit_bad(f, id, "its parent is not the commit below it");
	return r;
}

static int check_sealed(struct fsck *f)
{
	int r = 0;

	for (size_t i = 0; i < f->nlayers && r == 0; i++) {
		const struct fsck_layer *l = &f->layers[i];
		struct store_key k = {.id = l->rec.commit};
		struct store_entry e;

		if (l->bad || store_digest_is_zero(&l->rec.commit) ||
		    l->rec.state == STORE_LAYER_DROPPED)
			continue;
		r = fsck_get(f, DB_COMMITS, &k, &e);
		if (r == 0)
			store_entry_release(&e);
		else if (r == -ENOENT)
			r = fsck_tell(f, STORE_FINDING_DAMAGE, "commit", "commits", NULL,
				      "the commit that sealed layer %llu is missing",
				      (unsigned long long)l->layer);
		else if (r == -EBADMSG)
			r = 0; /* told of when the records were read */
	}
	return r;
}

static int on_index(struct fsck *f, const struct store_entry *e)
{
	struct store_key k = {.id = e->indexed};
	uint8_t pair[DIGEST_LEN + 8];
	struct store_entry c;
	int r = fsck_get(f, DB_COMMITS, &k, &c);
	bool bad = r == -ENOENT;

	if (r == 0) {
		bad = e->key.len && (e->key.len != strlen(c.commit.env) ||
				     memcmp(e->key.name, c.commit.env, e->key.len) != 0);
		store_entry_release(&c);
	}
	if (e->key.number > f->max_seq)
		f->max_seq = e->key.number;
	if (r < 0 && r != -ENOENT)
		return r == -EBADMSG ? 0 : r;
	f->index_bad |= bad;
	if (bad)
		return fsck_tell(
			f, STORE_FINDING_REPAIRABLE, "commit-index", "commit_index", NULL,
			"entry %llu of the index of commits names a commit that is not there",
			(unsigned long long)e->key.number);
	memcpy(pair, e->indexed.b, DIGEST_LEN);
	key_be64(pair + DIGEST_LEN, e->key.number);
	fsck_set_add(e->key.len ? &f->index_env : &f->index_all, DB_COMMITS, e->indexed.b,
		     DIGEST_LEN);
	fsck_set_add(e->key.len ? &f->pair_env : &f->pair_all, DB_COMMITS, pair, sizeof(pair));
	return 0;
}

static bool same(const struct fsck_set *a, const struct fsck_set *b)
{
	return a->n == b->n && a->sum == b->sum;
}

static int check_index(struct fsck *f)
{
	if (f->structure_bad || !f->have[DB_COMMITS] || !f->have[DB_COMMIT_INDEX] ||
	    f->commits_bad ||
	    (same(&f->index_all, &f->commit_set) && same(&f->index_env, &f->commit_set) &&
	     same(&f->pair_all, &f->pair_env)))
		return 0;
	f->index_bad = true;
	return fsck_tell(
		f, STORE_FINDING_REPAIRABLE, "commit-index", "commit_index", NULL,
		"the index of commits does not list each commit once for its environment and "
		"once for all");
}

/* ---- environments, moves, references, counters ---- */

static int env_bad(struct fsck *f, const char *env, const char *what)
{
	struct store_finding out = {.state = STORE_FINDING_DAMAGE, .kind = "env", .where = "envs"};
	char text[160];

	(void)snprintf(text, sizeof(text), "environment \"%s\": %s", env, what);
	out.text = text;
	out.envs[0] = env;
	out.nenvs = 1;
	return fsck_emit(f, &out);
}

static bool usable(struct fsck *f, store_layer layer, uint32_t state)
{
	const struct fsck_layer *l = fsck_layer(f, layer);

	return layer == 0 ? state == STORE_LAYER_SEALED : l && (l->bad || l->rec.state == state);
}

static int on_env(struct fsck *f, const struct store_entry *e)
{
	const struct store_env *v = &e->env;
	const struct fsck_layer *open = fsck_layer(f, v->open);
	struct fsck_view view = {.layer = v->open};

	f->sum.envs++;
	memcpy(view.env, v->name, sizeof(view.env));
	if (view_add(f, &view) < 0)
		return -ENOMEM;
	if (!store_env_name_valid(v->name))
		return env_bad(f, v->name, "its name is not valid");
	if (!usable(f, v->open, STORE_LAYER_OPEN))
		return env_bad(f, v->name, "its open layer is missing, or not open");
	if (open->bad)
		return env_bad(f, v->name, "its open layer, or one below it, is damaged");
	if (open->rec.parent != v->head)
		return env_bad(f, v->name, "its open layer does not stand on its head");
	if (!usable(f, v->head, STORE_LAYER_SEALED) || !usable(f, v->base, STORE_LAYER_SEALED))
		return env_bad(f, v->name, "its head or base is missing, or not sealed");
	return 0;
}

static int on_move(struct fsck *f, const struct store_entry *e)
{
	struct store_key k = {.name = e->key.name, .len = e->key.len};
	struct store_entry env;
	int r = fsck_get(f, DB_ENVS, &k, &env);

	if (e->key.number > f->max_move)
		f->max_move = e->key.number;
	if (r == 0)
		store_entry_release(&env);
	if (r == -ENOENT)
		return fsck_tell(f, STORE_FINDING_DAMAGE, "move", "moves", NULL,
				 "move %llu belongs to an environment that does not exist",
				 (unsigned long long)e->key.number);
	if (!usable(f, e->move.from, STORE_LAYER_SEALED) ||
	    !usable(f, e->move.to, STORE_LAYER_SEALED))
		return fsck_tell(
			f, STORE_FINDING_DAMAGE, "move", "moves", NULL,
			"move %llu of environment \"%.*s\" names a layer that is missing, or not "
			"sealed: undo cannot go back to it",
			(unsigned long long)e->key.number, (int)e->key.len, e->key.name);
	return r == -EBADMSG ? 0 : r;
}

static int on_ref(struct fsck *f, const struct store_entry *e)
{
	if (e->ref == 0 || fsck_layer(f, e->ref))
		return 0;
	return fsck_tell(f, STORE_FINDING_DAMAGE, "ref", "refs", NULL,
			 "the reference \"%.*s\" names layer %llu, which does not exist",
			 (int)e->key.len, e->key.name, (unsigned long long)e->ref);
}

static const char *const counter_names[FSCK_COUNTERS] = {
	[FSCK_NEXT_INO] = "next_ino",
	[FSCK_NEXT_LAYER] = "next_layer",
	[FSCK_NEXT_COMMIT] = "next_commit",
	[FSCK_NEXT_MOVE] = "next_move",
};

static int on_meta(struct fsck *f, const struct store_entry *e)
{
	if (store_entry_is_super(e)) {
		f->have_super = e->super.format >= STORE_FORMAT_READ &&
				e->super.format <= STORE_FORMAT && e->super.block == STORE_BLOCK &&
				!strcmp(e->super.digest, "sha256");
		return 0;
	}
	for (int i = 0; i < FSCK_COUNTERS; i++) {
		if (e->key.len != strlen(counter_names[i]) ||
		    memcmp(e->key.name, counter_names[i], e->key.len) != 0)
			continue;
		f->counters[i] = e->counter;
		return 0;
	}
	return fsck_tell(f, STORE_FINDING_NOTE, "meta", "meta", NULL,
			 "the record \"%.*s\" in meta is of no use", (int)e->key.len, e->key.name);
}

/* A counter is the number that is given out next. */
int fsck_counters(struct fsck *f)
{
	const uint64_t least[FSCK_COUNTERS] = {
		[FSCK_NEXT_INO] =
			f->max_ino >= STORE_FIRST_INO ? f->max_ino - STORE_FIRST_INO + 2 : 0,
		[FSCK_NEXT_LAYER] = f->nlayers ? f->layers[f->nlayers - 1].layer + 1 : 0,
		[FSCK_NEXT_COMMIT] = f->sum.commits ? f->max_seq + 1 : 0,
		[FSCK_NEXT_MOVE] = f->max_move ? f->max_move + 1 : 0,
	};
	int r = 0;

	if (!f->have[DB_META])
		return 0;
	if (!f->have_super)
		r = fsck_tell(f, STORE_FINDING_REPAIRABLE, "superblock", "meta", NULL,
			      "the superblock is missing or damaged");
	for (int i = 0; i < FSCK_COUNTERS && r == 0; i++) {
		f->least[i] = least[i];
		if (f->counters[i] >= least[i])
			continue;
		r = fsck_tell(f, STORE_FINDING_REPAIRABLE, "counter", "meta", NULL,
			      "%s is %llu: numbers below %llu are in use", counter_names[i],
			      (unsigned long long)f->counters[i], (unsigned long long)least[i]);
	}
	return r;
}

int fsck_history(struct fsck *f)
{
	int r = fsck_records(f, DB_LAYERS, on_layer);

	if (r == 0)
		r = check_layers(f);
	if (r == 0)
		r = fsck_records(f, DB_COMMITS, on_commit);
	if (r == 0)
		r = check_sealed(f);
	if (r == 0)
		r = fsck_records(f, DB_COMMIT_INDEX, on_index);
	if (r == 0)
		r = check_index(f);
	if (r == 0)
		r = fsck_records(f, DB_ENVS, on_env);
	if (r == 0)
		r = fsck_records(f, DB_MOVES, on_move);
	if (r == 0)
		r = fsck_records(f, DB_REFS, on_ref);
	return r == 0 ? fsck_records(f, DB_META, on_meta) : r;
}

/* ---- journals ---- */

void fsck_set_add(struct fsck_set *s, enum store_db db, const void *k, size_t n)
{
	s->n++;
	s->sum += XXH3_64bits_withSeed(k, n, (XXH64_hash_t)db + 1);
}

static int count_entry(void *arg, enum store_db db, const uint8_t *k, size_t n)
{
	fsck_set_add(arg, db, k, n);
	return 0;
}

static int on_journal(struct fsck *f, const struct store_entry *e)
{
	struct fsck_layer *l = fsck_layer(f, e->key.layer);
	int r;

	f->stray_journal |= !l;
	if (!l)
		return fsck_tell(f, STORE_FINDING_REPAIRABLE, "journal", "journal", NULL,
				 "there is a journal of layer %llu, which does not exist",
				 (unsigned long long)e->key.layer);
	r = store_journal_each(&e->journal, count_entry, &l->journal);
	if (r < 0 || e->key.number != l->journal_records)
		l->journal_bad = true;
	l->journal_records++;
	return r == -EBADMSG ? 0 : r;
}

struct lost {
	struct fsck *f;
	store_layer layer;
	uint64_t n;
};

static int find_entry(void *arg, enum store_db db, const uint8_t *p, size_t n)
{
	struct lost *x = arg;
	struct store_entry e;
	struct store_key k;
	struct key full = {.len = n};
	struct fsck_at at = {.db = db};
	int r;

	memcpy(full.b, p, n);
	key_layer(&full, x->layer);
	if (store_key_decode(db, full.b, full.len, &k) < 0)
		return 0;
	r = fsck_get(x->f, db, &k, &e);
	if (r == 0)
		store_entry_release(&e);
	if (r != -ENOENT)
		return r == -EBADMSG ? 0 : r;
	x->n++;
	at.key = k;
	at.ino = k.ino;
	return fsck_tell(x->f, STORE_FINDING_DAMAGE, "lost", store_db_name(db), &at,
			 "a record of inode %llu in %s, written by layer %llu, is lost",
			 (unsigned long long)k.ino, store_db_name(db),
			 (unsigned long long)x->layer);
}

/* Which of the journal's keys have no record? */
static int find_lost(struct fsck *f, const struct fsck_layer *l, uint64_t *ret)
{
	struct lost x = {.f = f, .layer = l->layer};
	cleanup_buf struct buf copy = {0};
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < l->rec.journal; i++) {
		struct store_key k = {.layer = l->layer, .number = i};
		struct store_entry e;
		MDB_val v;

		r = fsck_get(f, DB_JOURNAL, &k, &e);
		if (r == -ENOENT || r == -EBADMSG) {
			r = 0;
			continue;
		}
		/* The bytes are lent until the next look-up. */
		buf_clear(&copy);
		if (r == 0)
			r = buf_put(&copy, e.journal.mv_data, e.journal.mv_size);
		v = (MDB_val){copy.len, copy.data};
		if (r == 0)
			r = store_journal_each(&v, find_entry, &x);
		if (r == -EBADMSG)
			r = 0;
	}
	*ret = x.n;
	return r;
}

static int check_journal(struct fsck *f, struct fsck_layer *l)
{
	unsigned long long n = l->layer;
	uint64_t lost = 0;
	int r = 0;

	if (l->rec.state == STORE_LAYER_DROPPED || l->unknown)
		return 0;
	if (l->journal_bad || l->journal_records != l->rec.journal ||
	    !same(&l->journal, &l->keys)) {
		r = find_lost(f, l, &lost);
		/* The journal is what knows that they are lost. */
		if (r || lost)
			return r;
		l->rebuild = true;
		return fsck_tell(
			f, STORE_FINDING_REPAIRABLE, "journal", "journal", NULL,
			"the journal of layer %llu does not name the %llu keys that the layer "
			"wrote",
			n, (unsigned long long)l->keys.n);
	}
	if (l->rec.records == l->journal.n)
		return 0;
	l->rebuild = true;
	return fsck_tell(f, STORE_FINDING_REPAIRABLE, "count", "layers", NULL,
			 "layer %llu says that it wrote %llu records, and wrote %llu", n,
			 (unsigned long long)l->rec.records, (unsigned long long)l->journal.n);
}

int fsck_journal(struct fsck *f)
{
	int r = fsck_records(f, DB_JOURNAL, on_journal);

	for (size_t i = 0; i < f->nlayers && r == 0; i++)
		r = check_journal(f, &f->layers[i]);
	return r;
}
