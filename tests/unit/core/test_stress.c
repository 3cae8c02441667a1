/* Many threads on one tree: names and contents change while others look, list, flush and commit.
 * Each thread knows what it has in a directory of its own; a shared directory is fought over. For
 * TSan, and for what deadlocks. */
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/core/ovl_fixture.h"

#define THREADS 4
#define FILES   24

struct shared {
	struct fx *f;
	atomic_uint errors;
	atomic_bool stop;
	unsigned rounds;
};
struct worker {
	struct shared *sh;
	pthread_t t;
	unsigned id;
	uint64_t rnd;
	store_ino own, common;
	uint8_t has[FILES]; /* content byte of our files; 0: not there */
};

static uint32_t rnd(struct worker *w, uint32_t n)
{
	w->rnd ^= w->rnd << 13;
	w->rnd ^= w->rnd >> 7;
	w->rnd ^= w->rnd << 17;
	return (uint32_t)(w->rnd >> 32) % n;
}

static void wrong(struct worker *w, const char *what, long r)
{
	if (atomic_fetch_add(&w->sh->errors, 1) < 10)
		printf("# thread %u: %s (%ld)\n", w->id, what, r);
}

static void own_write(struct worker *w, unsigned i, const char *name)
{
	struct ovl *o = w->sh->f->o;
	struct ovl_cred c = fx_cred();
	uint8_t data[3000];
	struct ovl_entry e;
	ssize_t r;

	if (!w->has[i])
		r = ovl_mknod(o, w->own, name, S_IFREG | 0600, 0, &c, &e);
	else
		r = ovl_lookup(o, w->own, name, &e);
	if (r < 0 || !e.ino) {
		wrong(w, "create or lookup", (long)r);
		return;
	}
	w->has[i] = (uint8_t)(1 + rnd(w, 255));
	memset(data, w->has[i], sizeof(data));
	r = ovl_write(o, e.ino, 0, data, sizeof(data), rnd(w, 2));
	if (r != (ssize_t)sizeof(data))
		wrong(w, "write", (long)r);
	if (rnd(w, 8) == 0 && ovl_fsync(o, e.ino, false) < 0)
		wrong(w, "fsync", 0);
	ovl_forget(o, e.ino, 1);
}

static void own_check(struct worker *w, unsigned i, const char *name)
{
	struct ovl *o = w->sh->f->o;
	uint8_t data[3000];
	struct ovl_entry e;
	ssize_t r = ovl_lookup(o, w->own, name, &e);

	if (r < 0 || (e.ino != 0) != (w->has[i] != 0)) {
		wrong(w, "own file is not as it was left", (long)r);
		return;
	}
	if (!e.ino)
		return;
	r = ovl_read(o, e.ino, 0, data, sizeof(data));
	if (r != (ssize_t)sizeof(data) || data[0] != w->has[i] || data[2999] != w->has[i])
		wrong(w, "own content", (long)r);
	ovl_forget(o, e.ino, 1);
}

static void own_step(struct worker *w)
{
	struct ovl *o = w->sh->f->o;
	unsigned i = rnd(w, FILES), k = rnd(w, FILES);
	char a[16], b[16];
	int r;

	snprintf(a, sizeof(a), "f%u", i);
	snprintf(b, sizeof(b), "f%u", k);
	switch (rnd(w, 6)) {
	case 0:
	case 1:
		own_write(w, i, a);
		break;
	case 2:
		r = ovl_unlink(o, w->own, a);
		if (r != (w->has[i] ? 0 : -ENOENT))
			wrong(w, "unlink", r);
		w->has[i] = 0;
		break;
	case 3:
		r = ovl_rename(o, w->own, a, w->own, b, 0);
		if (r != (w->has[i] ? 0 : -ENOENT))
			wrong(w, "rename", r);
		if (r == 0 && i != k) {
			w->has[k] = w->has[i];
			w->has[i] = 0;
		}
		break;
	default:
		own_check(w, i, a);
	}
}

static int count_names(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	unsigned *n = arg;

	(void)name;
	(void)cookie;
	(void)e;
	return ++*n > 1000;
}

/* Any outcome is right here but a broken one. */
static void common_step(struct worker *w)
{
	static const char *const names[] = {"x", "y", "z", "d", "e"};
	struct ovl *o = w->sh->f->o;
	struct ovl_cred c = fx_cred();
	const char *a = names[rnd(w, 5)], *b = names[rnd(w, 5)];
	struct ovl_entry e = {0}, e2 = {0};
	struct ovl_attr at;
	struct stat st = {.st_mode = 0640, .st_size = rnd(w, 200000)};
	char buf[512];
	unsigned n = 0;
	int r = 0;

	switch (rnd(w, 13)) {
	case 0:
		r = ovl_mknod(o, w->common, a, S_IFREG | 0600, 0, &c, &e);
		break;
	case 1:
		r = ovl_mkdir(o, w->common, a, 0700, &c, &e);
		break;
	case 2:
		r = ovl_unlink(o, w->common, a);
		break;
	case 3:
		r = ovl_rmdir(o, w->common, a);
		break;
	case 4:
		r = ovl_rename(o, w->common, a, w->common, b, rnd(w, 2) ? RENAME_EXCHANGE : 0);
		break;
	case 5:
		if (ovl_lookup(o, w->common, a, &e) == 0 && e.ino)
			r = ovl_link(o, e.ino, w->common, b, &e2);
		break;
	case 6:
		if (ovl_readdir(o, w->common, 0, false, count_names, &n) < 0)
			wrong(w, "readdir", 0);
		break;
	case 7:
		if (ovl_lookup(o, w->common, a, &e) == 0 && e.ino)
			r = ovl_setattr(o, e.ino, &st, OVL_SET_MODE, &at);
		break;
	case 8:
		if (ovl_lookup(o, w->common, a, &e) == 0 && e.ino)
			r = ovl_setattr(o, e.ino, &st, OVL_SET_SIZE, &at);
		break;
	case 9:
		if (ovl_lookup(o, w->common, a, &e) == 0 && e.ino)
			r = (int)ovl_write(o, e.ino, rnd(w, 300000), "hello", 5, true);
		break;
	case 10:
		if (ovl_lookup(o, w->common, a, &e) == 0 && e.ino)
			r = (int)ovl_read(o, e.ino, 0, buf, sizeof(buf));
		break;
	case 11:
		if (ovl_lookup(o, w->common, a, &e) == 0 && e.ino)
			r = ovl_setxattr(o, e.ino, "user.t", buf, rnd(w, 400), 0);
		break;
	default:
		if (ovl_lookup(o, w->common, a, &e) == 0 && e.ino)
			r = (int)ovl_getxattr(o, e.ino, "user.t", buf, sizeof(buf));
	}
	if (r == -EIO || r == -ESTALE || r == -ENOMEM || r == -ENOSPC)
		wrong(w, "common", r);
	if (e.ino)
		ovl_forget(o, e.ino, 1);
	if (e2.ino)
		ovl_forget(o, e2.ino, 1);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < w->sh->rounds; i++) {
		own_step(w);
		common_step(w);
	}
	return NULL;
}

static int skip_change(void *arg, const char *path, char what)
{
	(void)path;
	(void)what;
	++*(unsigned *)arg;
	return 0;
}

static void *disturb(void *arg)
{
	struct shared *sh = arg;
	struct ovl *o = sh->f->o;
	uint64_t token = 0;

	while (!atomic_load(&sh->stop)) {
		struct ovl_counts c;
		unsigned n = 0;
		int r = ovl_commit(o, fx_seal, sh->f);

		if (r == 0)
			r = ovl_flush(o);
		if (r < 0)
			atomic_fetch_add(&sh->errors, 1);
		(void)!ovl_changes(o, token, skip_change, &n);
		ovl_counts(o, &c);
		token = c.changes;
		usleep(2000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct shared sh = {.rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 3000};
	struct worker w[THREADS] = {0};
	pthread_t d;
	struct ovl_cred c = fx_cred();
	struct ovl_entry common;
	struct fx f;

	fx_open(&f);
	f.opts.flush_ms = 5;
	f.opts.dirty_max = 1 << 20;
	fx_mount(&f);
	sh.f = &f;
	if (ovl_mkdir(f.o, STORE_ROOT_INO, "common", 0700, &c, &common) < 0)
		tap_fatal("mkdir");
	for (unsigned i = 0; i < THREADS; i++) {
		struct ovl_entry e;
		char name[16];

		snprintf(name, sizeof(name), "own%u", i);
		if (ovl_mkdir(f.o, STORE_ROOT_INO, name, 0700, &c, &e) < 0)
			tap_fatal("mkdir");
		w[i].sh = &sh;
		w[i].id = i;
		w[i].rnd = 88172645463325252ull + i;
		w[i].own = e.ino;
		w[i].common = common.ino;
	}
	pthread_create(&d, NULL, disturb, &sh);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&w[i].t, NULL, work, &w[i]);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].t, NULL);
	atomic_store(&sh.stop, true);
	pthread_join(d, NULL);
	eq_int(atomic_load(&sh.errors), 0, "every thread found what it left");
	fx_umount(&f);
	fx_mount(&f);
	for (unsigned i = 0; i < THREADS; i++) {
		char name[16];

		for (unsigned k = 0; k < FILES; k++) {
			snprintf(name, sizeof(name), "f%u", k);
			own_check(&w[i], k, name);
		}
	}
	eq_int(atomic_load(&sh.errors), 0, "and so it is after a reopening");
	fx_close(&f);
	return tap_done();
}
