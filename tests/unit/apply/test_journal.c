/* What a run writes down is what is read again, and however it is torn, what is read is what stood before the tear. */
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apply/known.h"
#include "apply/record.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "tests/lib/tap.h"

static char dir[] = "/tmp/rattan-journal.XXXXXX";

static int gone(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static struct ident id_of(uint64_t ino)
{
	return (struct ident){.there = true,
			      .mode = S_IFREG | 0644,
			      .uid = 1,
			      .gid = 2,
			      .dev = 3,
			      .ino = ino,
			      .size = 5,
			      .mtime = {-7, 999999999},
			      .ctime = {8, 0}};
}

static struct attr_x *one_x(const char *name, const char *value)
{
	struct attr_x *x = calloc(1, sizeof(*x));

	if (!x)
		tap_fatal("no memory");
	x->name = strdup(name);
	x->value = strdup(value);
	x->len = strlen(value);
	return x;
}

static void must(int r, const char *what)
{
	if (r < 0)
		tap_fatal("%s: %s", what, err_text(r));
}

static void add(struct trail *t, enum step_op op, const char *place, const char *path)
{
	struct step *s = steps_add(&t->steps, op, place, path);

	if (!s)
		tap_fatal("no memory");
	s->slot = (uint32_t)t->steps.n;
	s->was = id_of(t->steps.n);
	s->old = (struct attrs){.mode = 0100600, .uid = 9, .mtime = {1, 2}};
	s->old.x = one_x("user.k", "value");
	s->old.nx = 1;
}

static void fill(struct trail *t, const char *env)
{
	t->env = strdup(env);
	t->root = strdup("/home/somebody/p");
	t->root_dev = 11;
	t->root_ino = UINT64_MAX;
	add(t, STEP_OUT, "gone", NULL);
	add(t, STEP_IN, NULL, "new");
	add(t, STEP_SWAP, "was", "is");
	add(t, STEP_ATTR, "m\n\xff", "m\n\xff");
	add(t, STEP_DIR, "d", "d");
	t->steps.v[2].forced = true;
	t->steps.v[3].what = ATTRS_ALL;
	t->steps.v[0].moved = true;
}

static bool same_ident(const struct ident *a, const struct ident *b)
{
	return a->there == b->there && (!a->there || (ident_same(a, b) && a->uid == b->uid));
}

static bool same_text(const char *a, const char *b)
{
	return (!a && !b) || (a && b && !strcmp(a, b));
}

static bool same_step(const struct step *a, const struct step *b)
{
	return a->op == b->op && same_text(a->path, b->path) && same_text(a->place, b->place) &&
	       a->slot == b->slot && a->moved == b->moved && a->forced == b->forced &&
	       a->what == b->what && same_ident(&a->was, &b->was) && same_ident(&a->now, &b->now) &&
	       a->old.mode == b->old.mode && a->old.nx == b->old.nx &&
	       !memcmp(a->old.x->value, b->old.x->value, a->old.x->len) &&
	       ident_time_same(&a->old.mtime, &b->old.mtime);
}

static void is_trail(const struct trail *got, const struct trail *want, const char *what)
{
	bool same = same_text(got->env, want->env) && same_text(got->root, want->root) &&
		    got->root_dev == want->root_dev && got->root_ino == want->root_ino &&
		    got->back == want->back && got->state == want->state &&
		    !strcmp(got->stage, want->stage) && got->steps.n == want->steps.n &&
		    got->nafter == want->nafter;

	for (size_t i = 0; same && i < got->steps.n; i++)
		same = same_step(&got->steps.v[i], &want->steps.v[i]);
	for (size_t i = 0; same && i < got->nafter; i++)
		same = same_text(got->after[i].path, want->after[i].path) &&
		       same_ident(&got->after[i].id, &want->after[i].id);
	ok(same, "%s", what);
}

static void is_read(int base, const struct trail *want, const char *what)
{
	cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};

	must(trail_load(base, want->id, &t), "load");
	is_trail(&t, want, what);
}

static void test_life(int base, struct trail *t)
{
	must(trail_new(base, t), "new");
	fill(t, "e");
	must(trail_plan(t), "plan");
	is_read(base, t, "a plan");
	t->steps.v[1].now = id_of(77);
	must(trail_ready(t), "ready");
	is_read(base, t, "what is staged");
	must(trail_after_add(t, "new", &t->steps.v[1].now), "after");
	must(trail_after_add(t, "gone", &(struct ident){0}), "after");
	t->done_at = (struct timespec){99, 1};
	must(trail_done(t), "done");
	is_read(base, t, "what was left");
	must(trail_mark(t, TRAIL_TAKEN_BACK), "mark");
	is_read(base, t, "taken back");
}

/* The states that a prefix can have, in order; what is read of it is never more than was written. */
static void test_torn(int base, const struct trail *t)
{
	cleanup_buf struct buf all = {0};
	enum trail_state last = TRAIL_EMPTY;
	unsigned wrong = 0, whole = 0;
	char name[64];

	(void)snprintf(name, sizeof(name), "%06llu/journal", (unsigned long long)t->id);
	must(io_read_file(base, name, 1 << 20, &all), "read");
	for (size_t n = 0; n <= all.len; n++) {
		cleanup_trail struct trail got = {.dir_fd = -1, .fd = -1};
		cleanup_fd int fd = openat(base, name, O_WRONLY | O_TRUNC | O_CLOEXEC);
		struct stat st;

		if (fd < 0 || io_write_full(fd, all.data, n) < 0)
			tap_fatal("write");
		if (trail_load(base, t->id, &got) < 0 || got.state < last ||
		    (got.state >= TRAIL_PLANNED && got.steps.n != t->steps.n) ||
		    fstat(fd, &st) < 0 || (size_t)st.st_size > n)
			wrong++;
		last = got.state;
		whole += (size_t)st.st_size == n;
		/* What is added behind the tear is read. */
		if (got.state >= TRAIL_READY && trail_mark(&got, TRAIL_UNDONE) == 0) {
			cleanup_trail struct trail again = {.dir_fd = -1, .fd = -1};

			if (trail_load(base, t->id, &again) < 0 || again.state != TRAIL_UNDONE)
				wrong++;
		}
	}
	eq_int(wrong, 0, "a journal cut at each of %zu bytes", all.len);
	ok(last == TRAIL_TAKEN_BACK && whole > 10 && whole < 30,
	   "at the ends of %u records nothing is cut off", whole);
	for (size_t i = 0; i < all.len; i++) {
		cleanup_trail struct trail got = {.dir_fd = -1, .fd = -1};
		cleanup_fd int fd = openat(base, name, O_WRONLY | O_TRUNC | O_CLOEXEC);
		int r;

		all.data[i] ^= 0x40;
		if (fd < 0 || io_write_full(fd, all.data, all.len) < 0)
			tap_fatal("write");
		all.data[i] ^= 0x40;
		r = trail_load(base, t->id, &got);
		if (r == 0 && got.state == TRAIL_TAKEN_BACK)
			wrong++;
	}
	eq_int(wrong, 0, "a changed byte is seen, and nothing behind it believed");
}

/* ---- what runs have left, taken together ---- */

static void run_of(int base, const char *env, enum step_op op, const char *place, const char *path,
		   const char *after, uint64_t ino, bool undone)
{
	cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};
	struct ident id = ino ? id_of(ino) : (struct ident){0};

	must(trail_new(base, &t), "new");
	t.env = strdup(env);
	t.root = strdup("/r");
	add(&t, op, place, path);
	must(trail_plan(&t), "plan");
	must(trail_ready(&t), "ready");
	must(trail_after_add(&t, after, &id), "after");
	t.done_at = (struct timespec){(time_t)t.id, 0};
	must(undone ? trail_undone(&t) : trail_done(&t), "done");
}

static uint64_t known_ino(int base, const char *path)
{
	const struct known_state *s;
	struct known *k;
	uint64_t ino;

	must(known_load(base, "k", "/r", &k), "known");
	s = known_find(k, path);
	ino = !s ? 1000 : s->id.there ? s->id.ino : 0;
	known_free(k);
	return ino;
}

static void test_known(int base)
{
	run_of(base, "k", STEP_IN, NULL, "d/f", "d/f", 1, false);
	run_of(base, "other", STEP_IN, NULL, "d/f", "d/f", 2, false);
	eq_int(known_ino(base, "d/f"), 1, "of this environment alone");
	eq_int(known_ino(base, "d"), 1000, "of what no run has left nothing is known");
	run_of(base, "k", STEP_SWAP, "d/f", "d/f", "d/f", 3, false);
	eq_int(known_ino(base, "d/f"), 3, "the latest counts");
	run_of(base, "k", STEP_ATTR, "d", "d", "d", 4, false);
	eq_int(known_ino(base, "d/f"), 3, "a directory's mode says nothing of what is in it");
	run_of(base, "k", STEP_OUT, "d", NULL, "d", 0, true);
	eq_int(known_ino(base, "d/f"), 3, "nor does what was undone");
	run_of(base, "k", STEP_IN, NULL, "d", "d", 5, false);
	eq_int(known_ino(base, "d/f"), 1000, "another directory brings its own");
	eq_int(known_ino(base, "d"), 5, "and is known");
	run_of(base, "k", STEP_OUT, "d/f", NULL, "d/f", 0, false);
	eq_int(known_ino(base, "d/f"), 0, "what was removed is known to be");
}

int main(void)
{
	cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1};
	cleanup_fd int base = -1;

	if (!mkdtemp(dir))
		tap_fatal("no directory");
	must(trail_base(dir, true, &base), "base");
	test_life(base, &t);
	test_torn(base, &t);
	test_known(base);
	(void)nftw(dir, gone, 16, FTW_DEPTH | FTW_PHYS);
	return tap_done();
}
