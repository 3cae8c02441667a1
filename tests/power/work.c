/* See work.h. */
#include "tests/power/work.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
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
	const struct power_place *place;
	unsigned until;   /* the last step of this phase */
	atomic_uint step; /* that has ended */
	uint8_t data[FILE_MAX];
};
struct work {
	const struct power_place *place;
	struct writer w[POWER_WRITERS];
	unsigned commits;
	char last[POWER_ID];
};

static uint32_t rnd(struct writer *w, uint32_t n)
{
	w->rnd ^= w->rnd << 13;
	w->rnd ^= w->rnd >> 7;
	w->rnd ^= w->rnd << 17;
	return (uint32_t)(w->rnd >> 32) % n;
}

void power_must(bool good, const char *what, long r)
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

	power_must(b && (b->p = calloc(1, FILE_MAX)), "memory", 0);
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
	r = w->place->make(w->place->arg, path, type);
	power_must(r == 0, "create", r);
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
	r = w->place->write(w->place->arg, path, off, w->data, n);
	power_must(r == (ssize_t)n, "write", r);
}

static void step_truncate(struct writer *w, const struct ent *e)
{
	uint64_t size = rnd(w, FILE_MAX / 4);
	char path[32];
	int r;

	set_size(e->b, size);
	begin(w);
	path_of_ent(w, e->name, path);
	r = w->place->truncate(w->place->arg, path, size);
	power_must(r == 0, "truncate", r);
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
	r = w->place->rename(w->place->arg, from, to);
	power_must(r == 0, "rename", r);
}

static void step_remove(struct writer *w, struct ent *e)
{
	bool dir = e->type == 'd';
	char path[32];
	int r;

	path_of_ent(w, e->name, path);
	ent_del(w, e);
	begin(w);
	r = w->place->remove(w->place->arg, path, dir);
	power_must(r == 0, "remove", r);
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
	r = w->place->link(w->place->arg, from, to);
	power_must(r == 0, "link", r);
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
	int r;

	(void)snprintf(path, sizeof(path), "t%u", w->t);
	r = w->place->sync(w->place->arg, path);
	power_must(r == 0, "fsync of the directory", r);
	for (size_t i = 0; f && i < w->tree.n; i++) {
		if (w->tree.ents[i].type != 'f')
			continue;
		path_of_ent(w, w->tree.ents[i].name, path);
		r = w->place->sync(w->place->arg, path);
		power_must(r == 0, "fsync", r);
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

/* Its id, for a rollback. */
static void commit(struct work *k, char id[static POWER_ID])
{
	unsigned at[POWER_WRITERS];

	for (unsigned t = 0; t < POWER_WRITERS; t++)
		at[t] = atomic_load(&k->w[t].step);
	if (!k->place->commit(k->place->arg, id)) {
		memcpy(id, k->last, POWER_ID); /* nothing had changed since */
		return;
	}
	memcpy(k->last, id, POWER_ID);
	note("c %s %u %u %u", id, at[0], at[1], at[2]);
	k->commits++;
}

static void phase(struct work *k, unsigned steps)
{
	pthread_t th[POWER_WRITERS];
	char id[POWER_ID];
	bool more = true;

	for (unsigned t = 0; t < POWER_WRITERS; t++) {
		k->w[t].until += steps;
		power_must(pthread_create(&th[t], NULL, writer_main, &k->w[t]) == 0, "thread", 0);
	}
	while (more) {
		const struct timespec pause = {0, 9000000};

		(void)nanosleep(&pause, NULL);
		more = false;
		for (unsigned t = 0; t < POWER_WRITERS; t++)
			more = more || atomic_load(&k->w[t].step) < k->w[t].until;
		if (more)
			commit(k, id);
		if (more && k->commits % 2)
			k->place->collect(k->place->arg);
	}
	for (unsigned t = 0; t < POWER_WRITERS; t++)
		(void)pthread_join(th[t], NULL);
}

/* Everybody's directory goes back to @old: a step of all writers at once. */
static void rollback(struct work *k, const char *id, const struct tree *old)
{
	for (unsigned t = 0; t < POWER_WRITERS; t++) {
		struct writer *w = &k->w[t];

		while (w->tree.n)
			ent_del(w, &w->tree.ents[0]);
		w->tree = tree_copy(&old[t]);
		w->until++;
		begin(w);
	}
	k->place->rollback(k->place->arg, id);
	for (unsigned t = 0; t < POWER_WRITERS; t++) {
		(void)atomic_fetch_add(&k->w[t].step, 1);
		note("e %u %u", t, k->w[t].until);
		note("a %u %u", t, k->w[t].until);
	}
}

void power_work(const struct power_place *place, uint64_t seed, unsigned steps)
{
	struct work *k = calloc(1, sizeof(*k));
	struct tree kept[POWER_WRITERS];
	char name[16], base[POWER_ID];

	power_must(k != NULL, "memory", 0);
	k->place = place;
	for (unsigned t = 0; t < POWER_WRITERS; t++) {
		k->w[t].t = t;
		k->w[t].rnd = seed * 7919 + t + 1;
		k->w[t].place = place;
		(void)snprintf(name, sizeof(name), "t%u", t);
		power_must(place->make(place->arg, name, 'd') == 0, "mkdir", 0);
		note("s %u 0 %llu", t, (unsigned long long)tree_digest(&k->w[t].tree));
		note("e %u 0", t);
	}
	for (unsigned t = 0; t < POWER_WRITERS; t++) {
		(void)snprintf(name, sizeof(name), "t%u", t);
		power_must(place->sync(place->arg, name) == 0, "fsync", 0);
	}
	note("o");
	phase(k, steps);
	commit(k, base);
	for (unsigned t = 0; t < POWER_WRITERS; t++)
		kept[t] = tree_copy(&k->w[t].tree);
	phase(k, steps);
	rollback(k, base, kept);
	phase(k, steps);
	place->end(place->arg);
	for (unsigned t = 0; t < POWER_WRITERS; t++)
		note("a %u %u", t, atomic_load(&k->w[t].step));
}
