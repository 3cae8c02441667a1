/* Trees deeper than any stack, and paths longer than anybody's memory: what a confined command can make in seconds. */
#include <errno.h>
#include <pthread.h>

#include "diff_fixture.h"
#include "fs/core/diff_internal.h"
#include "policy/rules.h"

#define DEPTH 60000

static int count(void *arg, const struct diff_entry *e)
{
	size_t *longest = arg;

	*longest = strlen(e->path) > *longest ? strlen(e->path) : *longest;
	return 0;
}

static int count_path(void *arg, const char *path, char what)
{
	(void)path, (void)what;
	++*(size_t *)arg;
	return 0;
}

/* A chain of directories "d" straight into a layer; the number of the last. */
static store_ino chain(struct fixture *f, store_layer layer)
{
	store_ino first, up = STORE_ROOT_INO;
	struct store_batch *b;

	if (store_reserve_inos(f->s, DEPTH, &first) < 0 || store_batch_begin(f->s, layer, &b) < 0)
		tap_fatal("batch");
	for (store_ino ino = first; ino < first + DEPTH; up = ino++) {
		struct rec_inode rec = {.mode = S_IFDIR | 0755,
					.nlink = 2,
					.uid = getuid(),
					.gid = getgid(),
					.parent = up,
					.name = (char[]){"d"},
					.name_len = 1};
		struct rec_name n = {.ino = ino, .type = S_IFDIR};

		if (store_batch_inode(b, ino, &rec) < 0 || store_batch_name(b, up, "d", 1, &n) < 0)
			tap_fatal("put");
	}
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
	return up;
}

/* A file in the deepest directory, with a second name at the top. */
static void make_file(struct tree *t)
{
	struct ovl_cred cred = tree_cred();
	struct ovl_entry e = {.ino = STORE_ROOT_INO}, l;
	store_ino up = STORE_ROOT_INO;

	for (unsigned i = 0; i < DEPTH; i++, up = e.ino)
		if (ovl_lookup(t->o, up, "d", &e) < 0)
			tap_fatal("lookup");
	if (ovl_mknod(t->o, up, "file", S_IFREG | 0644, 0, &cred, &e) < 0 ||
	    ovl_write(t->o, e.ino, 0, "text", 4, false) != 4 ||
	    ovl_link(t->o, e.ino, STORE_ROOT_INO, "short", &l) < 0)
		tap_fatal("a file");
}

static void test_diff(struct tree *t, store_layer from, store_layer to)
{
	struct diff d = {.paths_max = 1 << 20};
	size_t longest = 0;

	eq_int(diff_layers(t->f.s, from, to, 0, count, &longest), 0, "a change at the bottom");
	eq_int(longest, 2 * DEPTH + 5, "is told with all of its path");
	eq_int(diff_run(&d, t->f.s, 0, to, 0), -E2BIG, "paths without end have one in memory");
	ok(d.arena.used <= 1 << 20, "which is not passed");
	diff_release(&d);
}

/* 200 names in the deepest directory are 24 MB of paths. */
static void test_changes(struct tree *t)
{
	struct ovl_cred cred = tree_cred();
	struct ovl_entry e = {0};
	struct ovl_counts at;
	store_ino up = STORE_ROOT_INO, dir;
	size_t n = 0;

	for (unsigned i = 0; i < DEPTH; i++, up = e.ino)
		if (ovl_lookup(t->o, up, "d", &e) < 0)
			tap_fatal("lookup");
	dir = up;
	ovl_counts(t->o, &at);
	for (unsigned i = 0; i < 200; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "n%u", i);
		if (ovl_mknod(t->o, dir, name, S_IFREG | 0644, 0, &cred, &e) < 0)
			tap_fatal("mknod");
		if (i == 20) {
			eq_int(ovl_changes(t->o, at.changes, count_path, &n), 0, "some changes");
			ok(n == 21, "are told (%zu)", n);
		}
	}
	eq_int(ovl_changes(t->o, at.changes, count_path, &n), -ESTALE, "more than fits are not");
}

struct policed {
	struct tree *t;
	store_layer parent;
};

static void *test_policy(void *arg)
{
	const struct policed *at = arg;
	struct tree *t = at->t;
	struct policy_rules rules = {0};
	struct ovl_opts opts = {.store = t->f.s, .policy = &rules};
	struct diag d = {0};
	struct ovl_entry e;
	char b[8];

	if (policy_rules_add(&rules, POLICY_READ, POLICY_PATH, "/", NULL, &d) < 0 ||
	    policy_rules_add(&rules, POLICY_WRITE, POLICY_PATH, "/short", NULL, &d) < 0 ||
	    store_layer_new(t->f.s, at->parent, &opts.layer) < 0 || ovl_open(&opts, &t->o) < 0)
		tap_fatal("open: %s", d.text);
	eq_int(ovl_lookup(t->o, STORE_ROOT_INO, "short", &e), 0, "by its short name");
	eq_int(ovl_read(t->o, e.ino, 0, b, 4), 4, "it may be read");
	eq_int(ovl_write(t->o, e.ino, 0, "x", 1, false), -EACCES,
	       "and not written, for its other place at the bottom is read-only");
	policy_rules_release(&rules);
	return NULL;
}

/* On a stack of a megabyte. */
static void on_a_thread(void *(*fn)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, 1 << 20) ||
	    pthread_create(&thread, &attr, fn, arg) || pthread_join(thread, NULL))
		tap_fatal("thread");
	(void)pthread_attr_destroy(&attr);
}

int main(void)
{
	struct tree t = {0};
	store_layer a, b;

	fixture_open(&t.f);
	tree_on(&t, 0);
	tree_write(&t, "/first", "1");
	a = tree_seal(&t);
	if (store_layer_new(t.f.s, a, &b) < 0)
		tap_fatal("layer");
	(void)chain(&t.f, b);
	if (store_layer_seal(t.f.s, b) < 0)
		tap_fatal("seal");
	tree_on(&t, b);
	make_file(&t);
	a = tree_seal(&t);
	test_diff(&t, b, a);
	tree_on(&t, a);
	test_changes(&t);
	if (ovl_close(t.o) < 0)
		tap_fatal("ovl_close");
	t.o = NULL;
	on_a_thread(test_policy, &(struct policed){&t, a});
	if (ovl_close(t.o) < 0)
		tap_fatal("ovl_close");
	fixture_close(&t.f);
	return tap_done();
}
