/* store: a month of automatic states, with the collections that a daemon makes, does not fill a disk: what is kept is bounded by how much undo keeps
 * and what was committed, not by how much was done. RATTAN_LONG: 100 states on each of 30 days; else 120 on each of 4. */
#include <time.h>

#include "store/usage.h"
#include "tests/unit/store/gc_test.h"

#define STATE  (STORE_BLOCK + 4 + 60000 + 4) /* bytes that each state writes over */
#define FACTOR 2 /* of the file: pages that are freed and not used again yet */

static struct store *s;
static time_t now;
static store_layer base;

static void write_ok(store_layer layer, store_ino ino, uint64_t seed)
{
	int r = gc_write(s, layer, ino, 0, seed);

	if (r < 0)
		tap_fatal("write: %d", r);
}

static void seal(struct store_env *e, const char *label, enum store_commit_kind kind, time_t at)
{
	struct store_commit c = commit_of(label);

	c.kind = kind;
	c.time.tv_sec = at;
	if (store_env_seal(s, e, &c) < 0)
		tap_fatal("seal %s", label);
}

/* A call that writes two files over, again and again; at the end of the day, a commit. */
static void work(struct store_env *e, unsigned day, unsigned calls, time_t at)
{
	char label[100];

	for (unsigned i = 0; i < calls; i++) {
		uint64_t seed = ((uint64_t)day * calls + i) * 4;

		write_ok(e->open, 100, seed + 3);
		write_ok(e->open, 102, seed + 2);
		(void)snprintf(label, sizeof(label), "%s-%u-%u", e->name, day, i);
		seal(e, label, STORE_AUTO, at);
	}
	write_ok(e->open, 104, (uint64_t)day * 4);
	(void)snprintf(label, sizeof(label), "%s-%u", e->name, day);
	seal(e, label, STORE_COMMIT, at);
}

static struct store_usage usage(void)
{
	struct diag d = {0};
	struct store_usage u;

	if (store_usage(s, &(struct store_usage_opts){0}, &d, &u) < 0)
		tap_fatal("%s", d.text);
	return u;
}

static void month(unsigned days, unsigned calls)
{
	const uint64_t kept = (uint64_t)(STORE_GC_KEEP_MOVES + 1 + days) * (STATE + 4096);
	const uint64_t day = (uint64_t)calls * (STATE + 4096);
	uint64_t live = 0, file = 0, states = 0;
	struct store_env e;

	if (store_env_create(s, "worker", base, "base", &e) < 0)
		tap_fatal("env");
	for (unsigned d = 0; d < days; d++) {
		struct store_usage u;

		work(&e, d, calls, now - (time_t)(days - 1 - d) * 86400);
		/* The trees of states that were merged go with the second. */
		(void)gc_run(s, (struct store_gc_opts){0});
		(void)gc_run(s, (struct store_gc_opts){0});
		u = usage();
		live = live > u.total.chunk_bytes ? live : u.total.chunk_bytes;
		file = file > u.chunk_file_bytes ? file : u.chunk_file_bytes;
		states = states > u.rows[0].states ? states : u.rows[0].states;
		store_usage_release(&u);
	}
	ok(live <= kept, "%u days of %u states, %llu MiB written: at most %llu MiB are kept", days,
	   calls, (unsigned long long)(days * day >> 20), (unsigned long long)(live >> 20));
	ok(file <= FACTOR * (kept + day), "in a file of %llu MiB at most",
	   (unsigned long long)(file >> 20));
	eq_int(states, STORE_GC_KEEP_MOVES, "states that undo can go back to");
}

/* A month later nobody wants to undo what was done: the newest state stays. */
static void holiday(void)
{
	struct store_env e;
	struct store_usage u;
	uint64_t before;

	if (store_env_create(s, "idle", base, "base", &e) < 0)
		tap_fatal("env");
	u = usage();
	before = u.total.chunk_bytes;
	store_usage_release(&u);
	work(&e, 1000, 20, now - (STORE_GC_KEEP_DAYS + 1) * 86400);
	(void)gc_run(s, (struct store_gc_opts){0});
	(void)gc_run(s, (struct store_gc_opts){0});
	u = usage();
	for (size_t i = 0; i < u.nrows; i++)
		if (!strcmp(u.rows[i].name, "idle"))
			eq_int(u.rows[i].states, 1, "of states older than a month one is left");
	ok(u.total.chunk_bytes - before < STATE + 4096, "and of what was written over %llu KiB",
	   (unsigned long long)((u.total.chunk_bytes - before) >> 10));
	store_usage_release(&u);
}

int main(void)
{
	bool all = getenv("RATTAN_LONG") != NULL;
	char dir[64];

	now = time(NULL);
	make_dir(dir);
	s = open_store(dir);
	if (store_layer_new(s, 0, &base) < 0 || store_layer_seal(s, base) < 0 ||
	    store_ref_set(s, "base/base", base) < 0)
		tap_fatal("base");
	month(all ? 30 : 4, all ? 100 : 120);
	holiday();
	store_close(s);
	tree_remove(dir);
	return tap_done();
}
