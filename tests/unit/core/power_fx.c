/* The place of test_power.c: a tree of the core over a store, in this process. */
#include "tests/unit/core/power_fx.h"

#include <time.h>

#include "store/synclog.h"

#include "tests/unit/core/ovl_fixture.h"

struct place {
	struct fx f;
	struct store_env env;
	unsigned commits;
	struct digest id; /* of the last commit */
};

static int make(void *arg, const char *path, char type)
{
	struct place *p = arg;

	return type == 'l' ? fx_symlink(&p->f, "nowhere", path)
			   : fx_make(&p->f, path, type == 'd' ? FX_DIR : FX_FILE, 0755);
}

static ssize_t put(void *arg, const char *path, uint64_t off, const void *data, size_t n)
{
	struct place *p = arg;

	return fx_write(&p->f, path, off, data, n);
}

static int cut(void *arg, const char *path, uint64_t size)
{
	struct place *p = arg;
	struct stat st = {.st_size = (off_t)size};

	return fx_set(&p->f, path, &st, OVL_SET_SIZE);
}

static int move(void *arg, const char *from, const char *to)
{
	struct place *p = arg;

	return fx_rename(&p->f, from, to, 0);
}

static int take_away(void *arg, const char *path, bool dir)
{
	struct place *p = arg;

	return fx_remove(&p->f, path, dir);
}

static int name_twice(void *arg, const char *from, const char *to)
{
	struct place *p = arg;

	return fx_link(&p->f, from, to);
}

static int sync_path(void *arg, const char *path)
{
	struct place *p = arg;
	struct ovl_entry e;
	int r = fx_get(&p->f, path, &e);

	if (r < 0)
		return r;
	r = ovl_fsync(p->f.o, e.ino, S_ISREG(e.attr.st.st_mode));
	ovl_forget(p->f.o, e.ino, 1);
	return r;
}

static int seal(void *arg, store_layer *ret)
{
	struct place *p = arg;
	struct store_commit c = {.kind = STORE_COMMIT};
	char text[32];
	int r;

	(void)snprintf(text, sizeof(text), "commit %u", p->commits++);
	(void)clock_gettime(CLOCK_REALTIME, &c.time);
	r = digest_of(text, strlen(text), &c.id);
	if (r == 0)
		r = store_env_seal(p->f.s, &p->env, &c);
	if (r == 0)
		*ret = p->f.layer = p->env.open;
	p->id = c.id;
	return r;
}

static bool commit(void *arg, char id[static POWER_ID])
{
	struct place *p = arg;
	int r = ovl_commit(p->f.o, seal, p);

	power_must(r == 0, "commit", r);
	digest_hex(&p->id, id);
	return true;
}

static void collect(void *arg)
{
	struct place *p = arg;
	struct store_gc_opts o = {.shrink = p->commits % 4 == 0, .pack = p->commits % 2 == 0};
	struct store_gc_result res;
	struct diag d = {0};
	int r = store_gc(p->f.s, &o, &d, &res);

	power_must(r == 0, d.text, r);
}

static void rollback(void *arg, const char *id)
{
	struct place *p = arg;
	struct store_commit c = {0};
	struct digest d;
	int r = ovl_commit_as_is(p->f.o, seal, p);

	power_must(r == 0, "keep what a rollback leaves", r);
	fx_umount(&p->f);
	power_must(digest_parse(id, &d) == 0 && store_commit_get(p->f.s, &d, &c) == 0, id, 0);
	r = store_env_move(p->f.s, &p->env, c.layer, "rollback");
	power_must(r == 0, "move", r);
	store_commit_release(&c);
	p->f.layer = p->env.open;
	fx_mount(&p->f);
}

static void end(void *arg)
{
	struct place *p = arg;

	fx_umount(&p->f);
	store_log_close(p->f.opts.log);
	store_close(p->f.s);
}

static void with_log(struct place *p)
{
	int fd;

	power_must(journal_create(&fd) == 0 && journal_open(fd, &p->f.opts.journal) == 0 &&
			   store_log_open(p->f.s, "e", &p->f.opts.log) == 0,
		   "a journal and a log", 0);
}

void power_fx_work(const char *data, uint64_t seed, unsigned steps, bool log)
{
	struct place p = {0};
	const struct power_place place = {make,      put,        cut,       move,
					  take_away, name_twice, sync_path, commit,
					  collect,   rollback,   end,       &p};
	struct diag d = {0};

	if (store_open(data, STORE_CREATE, &d, &p.f.s) < 0)
		tap_fatal("store_open: %s", d.text);
	power_must(store_env_create(p.f.s, "e", 0, NULL, &p.env) == 0, "create", 0);
	p.f.layer = p.env.open;
	p.f.opts.flush_ms = 15;
	if (log)
		with_log(&p);
	fx_mount(&p.f);
	power_work(&place, seed, steps);
}
