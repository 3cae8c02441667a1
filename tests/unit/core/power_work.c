/* See power_work.h. */
#include "tests/unit/core/power_work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "fs/core/table.h"
#include "tests/power/record.h"

#define ENTS     16
#define FILE_MAX (300u * 1024)

struct bytes {
	unsigned links;
	uint64_t size, hash;
	uint8_t *p;
};
struct ent {
	char name[16];
	char type;
	struct bytes *b; /* f */
};
struct tree {
	struct ent ents[ENTS];
	size_t n;
};
struct writer {
	unsigned t, fresh;
	uint64_t rnd;
	struct tree tree;
	struct fx *f;
	unsigned until;   /* the last step of this phase */
	atomic_uint step; /* that has ended */
	uint8_t data[FILE_MAX];
};
struct work {
	struct fx f;
	struct store_env env;
	struct writer w[WRITERS];
	unsigned commits;
	atomic_uint running;
};

static uint32_t rnd(struct writer *w, uint32_t n)
{
	w->rnd ^= w->rnd << 13;
	w->rnd ^= w->rnd >> 7;
	w->rnd ^= w->rnd << 17;
	return (uint32_t)(w->rnd >> 32) % n;
}

static void must(bool good, const char *what, long r)
{
	if (good)
		return;
	fprintf(stderr, "# the work failed: %s (%ld)\n", what, r);
	_exit(3);
}

__attribute__((format(printf, 1, 2))) static void note(const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	power_note(text);
}

/* ---- digests ---- */

uint64_t power_hash(const void *p, size_t n)
{
	return n ? table_hash(7, p, n) : 0;
}

static int by_name(const void *a, const void *b)
{
	const struct seen_ent *x = a, *y = b;

	return strcmp(x->name, y->name);
}

uint64_t power_digest(struct seen_ent *e, size_t n)
{
	uint64_t h = n;

	qsort(e, n, sizeof(*e), by_name);
	for (size_t i = 0; i < n; i++) {
		h = table_hash(h, e[i].name, strlen(e[i].name));
		h = table_hash_u64(h ^ (uint64_t)e[i].type ^ (uint64_t)e[i].links << 8);
		h = table_hash_u64(h ^ e[i].size);
		h = table_hash_u64(h ^ e[i].hash);
	}
	return h;
}

static uint64_t tree_digest(const struct tree *t)
{
	struct seen_ent e[ENTS] = {0};

	for (size_t i = 0; i < t->n; i++) {
		memcpy(e[i].name, t->ents[i].name, sizeof(e[i].name));
		e[i].type = t->ents[i].type;
		e[i].links = 1;
		if (!t->ents[i].b)
			continue;
		e[i].links = t->ents[i].b->links;
		e[i].size = t->ents[i].b->size;
		e[i].hash = t->ents[i].b->hash;
	}
	return power_digest(e, t->n);
}

/* ---- the model ---- */

static struct ent *ent_add(struct writer *w, const char *name, char type, struct bytes *b)
{
	struct ent *e = &w->tree.ents[w->tree.n++];

	*e = (struct ent){.type = type, .b = b};
	(void)snprintf(e->name, sizeof(e->name), "%s", name);
	if (b)
		b->links++;
	return e;
}

static void bytes_drop(struct bytes *b)
{
	if (b && --b->links == 0) {
		free(b->p);
		free(b);
	}
}

static void ent_del(struct writer *w, struct ent *e)
{
	bytes_drop(e->b);
	*e = w->tree.ents[--w->tree.n];
}

static struct bytes *bytes_new(void)
{
	struct bytes *b = calloc(1, sizeof(*b));

	must(b && (b->p = calloc(1, FILE_MAX)), "memory", 0);
	return b;
}

/* The same tree with bytes of its own. */
static struct tree tree_copy(const struct tree *t)
{
	struct tree c = *t;

	for (size_t i = 0; i < t->n; i++) {
		const struct bytes *b = t->ents[i].b;

		if (!b)
			continue;
		for (size_t k = 0; k < i; k++)
			if (t->ents[k].b == b)
				c.ents[i].b = c.ents[k].b;
		if (c.ents[i].b != b) {
			continue;
		}
		c.ents[i].b = bytes_new();
		*c.ents[i].b = (struct bytes){b->links, b->size, b->hash, c.ents[i].b->p};
		memcpy(c.ents[i].b->p, b->p, FILE_MAX);
	}
	return c;
}

static void set_size(struct bytes *b, uint64_t size)
{
	if (size < b->size)
		memset(b->p + size, 0, b->size - size);
	b->size = size;
	b->hash = power_hash(b->p, b->size);
}

/* ---- steps: first in the model, then in the tree ---- */

static void path_of_ent(const struct writer *w, const char *name, char out[static 32])
{
	(void)snprintf(out, 32, "t%u/%s", w->t, name);
}

static void fresh_name(struct writer *w, char out[static 16])
{
	(void)snprintf(out, 16, "n%u", w->fresh++);
}

static struct ent *pick(struct writer *w, char type)
{
	size_t start = w->tree.n ? rnd(w, (uint32_t)w->tree.n) : 0;

	for (size_t i = 0; i < w->tree.n; i++) {
		struct ent *e = &w->tree.ents[(start + i) % w->tree.n];

		if (!type || e->type == type)
			return e;
	}
	return NULL;
}

static void begin(struct writer *w)
{
	note("s %u %u %llu", w->t, atomic_load(&w->step) + 1,
	     (unsigned long long)tree_digest(&w->tree));
}

static void step_make(struct writer *w, char type)
{
	char name[16], path[32];
	int r;

	fresh_name(w, name);
	path_of_ent(w, name, path);
	(void)ent_add(w, name, type, type == 'f' ? bytes_new() : NULL);
	begin(w);
	r = type == 'l' ? fx_symlink(w->f, "nowhere", path)
			: fx_make(w->f, path, type == 'd' ? FX_DIR : FX_FILE, 0755);
	must(r == 0, "create", r);
}

static void step_write(struct writer *w, const struct ent *e)
{
	static const uint32_t most[] = {100, 3000, 3000, 40000, 200000};
	size_t n = 1 + rnd(w, most[rnd(w, ARRAY_SIZE(most))]);
	size_t off = rnd(w, (uint32_t)(e->b->size < FILE_MAX - n ? e->b->size + 1 : FILE_MAX - n));
	char path[32];
	ssize_t r;

	for (size_t i = 0; i < n; i++)
		w->data[i] = (uint8_t)rnd(w, 256);
	memcpy(e->b->p + off, w->data, n);
	if (off + n > e->b->size)
		e->b->size = off + n;
	set_size(e->b, e->b->size);
	begin(w);
	path_of_ent(w, e->name, path);
	r = fx_write(w->f, path, off, w->data, n);
	must(r == (ssize_t)n, "write", r);
}

static void step_truncate(struct writer *w, const struct ent *e)
{
	struct stat st = {.st_size = (off_t)rnd(w, FILE_MAX / 4)};
	char path[32];
	int r;

	set_size(e->b, (uint64_t)st.st_size);
	begin(w);
	path_of_ent(w, e->name, path);
	r = fx_set(w->f, path, &st, OVL_SET_SIZE);
	must(r == 0, "truncate", r);
}

/* To a new name, or over another file. */
static void step_rename(struct writer *w, struct ent *e)
{
	struct ent *over = rnd(w, 3) ? NULL : pick(w, e->type);
	char from[32], to[32], name[16];
	int r;

	if (over == e || (over && (e->type == 'd' || over->b == e->b)))
		over = NULL;
	path_of_ent(w, e->name, from);
	if (over)
		memcpy(name, over->name, sizeof(name));
	else
		fresh_name(w, name);
	path_of_ent(w, name, to);
	memcpy(e->name, name, sizeof(name));
	if (over)
		ent_del(w, over); /* may move @e */
	begin(w);
	r = fx_rename(w->f, from, to, 0);
	must(r == 0, "rename", r);
}

static void step_remove(struct writer *w, struct ent *e)
{
	bool dir = e->type == 'd';
	char path[32];
	int r;

	path_of_ent(w, e->name, path);
	ent_del(w, e);
	begin(w);
	r = fx_remove(w->f, path, dir);
	must(r == 0, "remove", r);
}

static void step_link(struct writer *w, const struct ent *e)
{
	char name[16], from[32], to[32];
	int r;

	path_of_ent(w, e->name, from);
	fresh_name(w, name);
	path_of_ent(w, name, to);
	(void)ent_add(w, name, 'f', e->b);
	begin(w);
	r = fx_link(w->f, from, to);
	must(r == 0, "link", r);
}

static void one_step(struct writer *w)
{
	struct ent *f = pick(w, 'f');
	uint32_t k = rnd(w, 16);

	if (!f || w->tree.n < 4)
		step_make(w, 'f');
	else if (w->tree.n >= ENTS - 1)
		step_remove(w, pick(w, 0));
	else if (k < 7)
		step_write(w, f);
	else if (k < 9)
		step_make(w, k == 7 ? 'f' : rnd(w, 2) ? 'd' : 'l');
	else if (k < 12)
		step_rename(w, pick(w, 0));
	else if (k < 13)
		step_truncate(w, f);
	else if (k < 14)
		step_link(w, f);
	else
		step_remove(w, pick(w, 0));
	(void)atomic_fetch_add(&w->step, 1);
	note("e %u %u", w->t, atomic_load(&w->step));
}

/* What was done is on the disk when the directory is: its entry is as new as the last step, or a flush
 * has taken all of it. A file's own fsync says the same of a write. */
static void sync_it(struct writer *w)
{
	const struct ent *f = pick(w, 'f');
	char path[32];
	struct ovl_entry e;
	int r;

	(void)snprintf(path, sizeof(path), "t%u", w->t);
	if (fx_get(w->f, path, &e) == 0) {
		r = ovl_fsync(w->f->o, e.ino, false);
		must(r == 0, "fsync of the directory", r);
		ovl_forget(w->f->o, e.ino, 1);
	}
	for (size_t i = 0; f && i < w->tree.n; i++) {
		if (w->tree.ents[i].type != 'f')
			continue;
		path_of_ent(w, w->tree.ents[i].name, path);
		if (fx_get(w->f, path, &e) < 0)
			must(false, "a file is gone", 0);
		r = ovl_fsync(w->f->o, e.ino, true);
		must(r == 0, "fsync", r);
		ovl_forget(w->f->o, e.ino, 1);
	}
	note("a %u %u", w->t, atomic_load(&w->step));
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	while (atomic_load(&w->step) < w->until) {
		const struct timespec pause = {0, (long)rnd(w, 1000000)};

		one_step(w);
		if (rnd(w, 6) == 0)
			sync_it(w);
		(void)nanosleep(&pause, NULL);
	}
	return NULL;
}

/* ---- commits, a rollback ---- */

struct digest power_commit_id(unsigned i)
{
	struct digest d;
	char text[32];

	(void)snprintf(text, sizeof(text), "commit %u", i);
	if (digest_of(text, strlen(text), &d) < 0)
		tap_fatal("digest");
	return d;
}

static int seal(void *arg, store_layer *ret)
{
	struct work *k = arg;
	struct store_commit c = {.id = power_commit_id(k->commits), .kind = STORE_COMMIT};
	int r;

	(void)clock_gettime(CLOCK_REALTIME, &c.time);
	r = store_env_seal(k->f.s, &k->env, &c);
	if (r == 0)
		*ret = k->f.layer = k->env.open;
	return r;
}

static void commit(struct work *k)
{
	unsigned at[WRITERS];
	int r;

	for (unsigned t = 0; t < WRITERS; t++)
		at[t] = atomic_load(&k->w[t].step);
	r = ovl_commit(k->f.o, seal, k);
	must(r == 0, "commit", r);
	note("c %u %u %u %u", k->commits, at[0], at[1], at[2]);
	k->commits++;
}

/* Without holes, which the recorder does not know. */
static void collect(struct work *k)
{
	struct store_gc_opts o = {0};
	struct store_gc_result res;
	struct diag d = {0};
	int r = store_gc(k->f.s, &o, &d, &res);

	must(r == 0, d.text, r);
}

static void phase(struct work *k, unsigned steps)
{
	pthread_t th[WRITERS];
	bool more = true;

	for (unsigned t = 0; t < WRITERS; t++) {
		k->w[t].until += steps;
		must(pthread_create(&th[t], NULL, writer_main, &k->w[t]) == 0, "thread", 0);
	}
	while (more) {
		const struct timespec pause = {0, 9000000};

		(void)nanosleep(&pause, NULL);
		more = false;
		for (unsigned t = 0; t < WRITERS; t++)
			more = more || atomic_load(&k->w[t].step) < k->w[t].until;
		if (more)
			commit(k);
		if (more && k->commits % 2)
			collect(k);
	}
	for (unsigned t = 0; t < WRITERS; t++)
		(void)pthread_join(th[t], NULL);
}

/* Everybody's directory goes back to @old: a step of all writers at once. */
static void rollback(struct work *k, store_layer to, const struct tree *old)
{
	int r;

	r = ovl_commit_as_is(k->f.o, seal, k);
	must(r == 0, "keep what a rollback leaves", r);
	k->commits++;
	fx_umount(&k->f);
	for (unsigned t = 0; t < WRITERS; t++) {
		struct writer *w = &k->w[t];

		while (w->tree.n)
			ent_del(w, &w->tree.ents[0]);
		w->tree = tree_copy(&old[t]);
		w->until++;
		begin(w);
	}
	r = store_env_move(k->f.s, &k->env, to, "rollback");
	must(r == 0, "move", r);
	for (unsigned t = 0; t < WRITERS; t++) {
		(void)atomic_fetch_add(&k->w[t].step, 1);
		note("e %u %u", t, k->w[t].until);
		note("a %u %u", t, k->w[t].until);
	}
	k->f.layer = k->env.open;
	fx_mount(&k->f);
}

void power_work(const char *data, uint64_t seed, unsigned steps)
{
	struct work *k = calloc(1, sizeof(*k));
	struct tree kept[WRITERS];
	struct diag d = {0};
	store_layer base;
	char name[16];

	must(k != NULL, "memory", 0);
	if (store_open(data, STORE_CREATE, &d, &k->f.s) < 0)
		tap_fatal("store_open: %s", d.text);
	must(store_env_create(k->f.s, "e", 0, NULL, &k->env) == 0, "create", 0);
	k->f.layer = k->env.open;
	k->f.opts.flush_ms = 15;
	fx_mount(&k->f);
	for (unsigned t = 0; t < WRITERS; t++) {
		k->w[t].t = t;
		k->w[t].rnd = seed * 7919 + t + 1;
		k->w[t].f = &k->f;
		(void)snprintf(name, sizeof(name), "t%u", t);
		must(fx_make(&k->f, name, FX_DIR, 0755) == 0, "mkdir", 0);
		note("s %u 0 %llu", t, (unsigned long long)tree_digest(&k->w[t].tree));
		note("e %u 0", t);
	}
	must(ovl_flush(k->f.o) == 0, "flush", 0);
	note("o");
	phase(k, steps);
	commit(k);
	base = k->env.head;
	for (unsigned t = 0; t < WRITERS; t++)
		kept[t] = tree_copy(&k->w[t].tree);
	phase(k, steps);
	rollback(k, base, kept);
	phase(k, steps);
	fx_umount(&k->f);
	for (unsigned t = 0; t < WRITERS; t++)
		note("a %u %u", t, atomic_load(&k->w[t].step));
	store_close(k->f.s);
}
