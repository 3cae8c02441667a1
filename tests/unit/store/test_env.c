/* store: environments, commits, moves, refs and revisions. */
#include "base/cleanup.h"
#include "tests/unit/store/store_test.h"

static void write_one(struct store *s, store_layer layer, const char *name)
{
	struct store_batch *b;

	if (store_batch_begin(s, layer, &b) < 0)
		tap_fatal("begin");
	name_set(b, 1, name, 100);
	if (store_batch_commit(b) < 0)
		tap_fatal("commit");
}

static store_layer seal(struct store *s, struct store_env *e, const char *label)
{
	struct store_commit c = commit_of(label);

	if (store_env_seal(s, e, &c) < 0)
		tap_fatal("seal");
	return c.layer;
}

static void names(void)
{
	char long_name[66];

	memset(long_name, 'a', 65);
	long_name[65] = 0;
	ok(store_env_name_valid("a") && store_env_name_valid("A.b_c-1"), "good names");
	ok(!store_env_name_valid("") && !store_env_name_valid(".a") &&
		   !store_env_name_valid("-a") && !store_env_name_valid("a/b") &&
		   !store_env_name_valid("a b") && !store_env_name_valid(long_name),
	   "bad names");
	ok(store_env_name_valid(long_name + 1), "64 bytes are fine");
}

static void create(struct store *s)
{
	struct store_env e, f;
	store_layer l;

	eq_int(store_env_create(s, "one", 0, "base", &e), 0, "create");
	eq_int(store_env_create(s, "one", 0, "base", &f), -EEXIST, "twice");
	eq_int(store_env_create(s, "../x", 0, "base", &f), -EINVAL, "a bad name");
	eq_int(store_env_create(s, "two", e.open, "x", &f), -EINVAL, "an open base");
	eq_int(store_env_create(s, "two", 999, "x", &f), -ENOENT, "no such base");
	ok(store_env_get(s, "one", &f) == 0 && f.open == e.open && f.head == 0 &&
		   !strcmp(f.base_name, "base") && f.created.tv_sec == e.created.tv_sec,
	   "get");
	eq_int(store_env_get(s, "two", &f), -ENOENT, "get another");
	ok(store_layer_new(s, 0, &l) == 0 && l != e.open, "a layer of no environment");
	eq_int(store_layer_new(s, l, &l), -EINVAL, "its parent must be sealed");
	eq_int(store_layer_seal(s, l), 0, "sealed");
	eq_int(store_layer_seal(s, l), 0, "twice is fine");
	eq_int(store_env_create(s, "three", l, "imported", &f), 0, "and a base");
	eq_int(f.head, l, "of that environment");
}

struct log {
	char text[256];
};

static int add_commit(void *arg, const struct store_commit *c)
{
	struct log *l = arg;

	(void)strncat(l->text, c->label, sizeof(l->text) - strlen(l->text) - 2);
	(void)strncat(l->text, " ", 2);
	return 0;
}

static void forks(struct store *s)
{
	struct store_stats before, after;
	struct store_env e, f, g;
	struct log l = {""};
	store_layer first;
	char name[16];
	int bad = 0;

	if (store_env_create(s, "trunk", 0, "base", &e) < 0)
		tap_fatal("create");
	write_one(s, e.open, "f");
	first = seal(s, &e, "t1");
	write_one(s, e.open, "g");
	(void)seal(s, &e, "t2");
	eq_int(store_env_fork(s, "trunk", "fork", first, &f), 0, "fork");
	ok(f.head == first && f.base == e.base && f.open != e.open && !strcmp(f.name, "fork") &&
		   !strcmp(f.base_name, "base"),
	   "at the state asked for, with the other's base");
	ok(store_env_get(s, "fork", &g) == 0 && g.head == f.head && g.open == f.open, "as stored");
	eq_int(store_env_fork(s, "trunk", "fork", first, &g), -EEXIST, "twice");
	eq_int(store_env_fork(s, "none", "new", first, &g), -ENOENT, "of nothing");
	eq_int(store_env_fork(s, "trunk", "new", 99999, &g), -ENOENT, "of no layer");
	eq_int(store_env_fork(s, "trunk", "new", e.open, &g), -EINVAL, "of an open layer");
	eq_int(store_env_fork(s, "trunk", "-", first, &g), -EINVAL, "a bad name");
	write_one(s, f.open, "h");
	(void)seal(s, &f, "f1");
	eq_int(store_commits(s, "fork", add_commit, &l), 0, "its own commits");
	eq_str(l.text, "f1 ", "are its own");
	eq_int(store_env_remove(s, "trunk"), 0, "the other is removed");
	ok(store_env_get(s, "fork", &g) == 0 && g.head == f.head && g.open == f.open, "it stays");
	if (store_stats(s, &before) < 0)
		tap_fatal("stats");
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof(name), "fork%d", i);
		bad += store_env_fork(s, "fork", name, f.head, &g) < 0;
	}
	eq_int(bad, 0, "a thousand more");
	ok(store_stats(s, &after) == 0 && after.layers == before.layers + 1000 &&
		   after.inodes == before.inodes && after.commits == before.commits,
	   "are a layer each, and nothing else");
}

static void commits(struct store *s)
{
	struct store_commit c = commit_of("c1"), got = {0};
	char message[] = "why\nit was done";
	struct store_env e, stale, other;
	struct log l = {""};
	store_layer first;

	if (store_env_create(s, "commits", 0, NULL, &e) < 0 ||
	    store_env_create(s, "other", 0, NULL, &other) < 0)
		tap_fatal("create");
	write_one(s, e.open, "f");
	stale = e;
	first = e.open;
	c.message = message;
	c.added = 1;
	c.deleted = UINT64_MAX;
	eq_int(store_env_seal(s, &e, &c), 0, "seal");
	ok(c.layer == first && !strcmp(c.env, "commits") && e.head == first && e.open > first,
	   "fills in layer, environment and the new state");
	eq_int(store_commit_get(s, &c.id, &got), 0, "get");
	ok(got.layer == first && got.added == 1 && got.deleted == UINT64_MAX &&
		   got.kind == STORE_COMMIT && got.time.tv_sec == 1000 && got.time.tv_nsec == 5 &&
		   !strcmp(got.message, message) && !strcmp(got.label, "c1") &&
		   !memcmp(&got.id, &c.id, sizeof(got.id)),
	   "what was put");
	store_commit_release(&got);
	ok(store_commit_of_layer(s, first, &got) == 0 && !strcmp(got.label, "c1"), "by layer");
	store_commit_release(&got);
	eq_int(store_commit_of_layer(s, e.open, &got), -ENOENT, "an open layer has none");
	c = commit_of("c1b");
	eq_int(store_env_seal(s, &stale, &c), -ESTALE, "a state of yesterday");
	c = commit_of("c1");
	eq_int(store_env_seal(s, &e, &c), -EEXIST, "the same id");
	(void)seal(s, &other, "o1");
	(void)seal(s, &e, "c2");
	c = commit_of("c2");
	ok(store_commit_get(s, &c.id, &got) == 0, "the second");
	c = commit_of("c1");
	ok(!memcmp(&got.parent, &c.id, sizeof(c.id)), "its parent is the first");
	store_commit_release(&got);
	(void)seal(s, &other, "o2");
	eq_int(store_commits(s, "commits", add_commit, &l), 0, "of one environment");
	eq_str(l.text, "c2 c1 ", "newest first");
	l = (struct log){""};
	eq_int(store_commits(s, NULL, add_commit, &l), 0, "of all");
	eq_str(l.text, "o2 c2 o1 c1 ", "newest first");
	l = (struct log){""};
	eq_int(store_commits(s, "oth", add_commit, &l), 0, "the beginning of a name");
	eq_str(l.text, "", "is another name");
}

static void moves(struct store *s)
{
	struct store_env e;
	store_layer one, two, three, from, open;
	struct store_layer_info info;
	char op[32];

	if (store_env_create(s, "moves", 0, NULL, &e) < 0)
		tap_fatal("create");
	write_one(s, e.open, "one");
	one = seal(s, &e, "mv1");
	write_one(s, e.open, "two");
	two = seal(s, &e, "mv2");
	eq_int(store_env_last_move(s, "moves", op, &from), -ENOENT, "nothing to undo");
	write_one(s, e.open, "three");
	eq_int(store_env_move(s, &e, one, "rollback"), -EBUSY, "unsealed changes are not lost");
	three = seal(s, &e, "mv3");
	open = e.open;
	eq_int(store_env_move(s, &e, one, "rollback"), 0, "rollback");
	ok(e.head == one && e.open > open, "to the first, with a new open layer");
	eq_int(store_layer_get(s, open, &info), -ENOENT, "the empty one is gone");
	eq_int(name_at(s, e.open, 1, "two"), -1, "what came later is out of sight");
	eq_int(name_at(s, e.open, 1, "one"), 100, "what came before is in sight");
	ok(store_env_last_move(s, "moves", op, &from) == 0 && from == three &&
		   !strcmp(op, "rollback"),
	   "where it stood");
	eq_int(store_env_move(s, &e, two, "reset"), 0, "another move");
	ok(store_env_last_move(s, "moves", op, &from) == 0 && from == one && !strcmp(op, "reset"),
	   "is the newest");
	eq_int(store_env_move(s, &e, from, "undo"), 0, "undo it");
	ok(store_env_last_move(s, "moves", op, &from) == 0 && from == three, "the first is next");
	eq_int(store_env_move(s, &e, from, "undo"), 0, "undo that");
	eq_int(store_env_last_move(s, "moves", op, &from), -ENOENT, "nothing is left");
	eq_int(store_env_move(s, &e, one, "undo"), -ENOENT, "so undo fails");
	ok(e.head == three && name_at(s, e.open, 1, "three") == 100, "back at the third");
	eq_int(store_env_move(s, &e, e.open, "reset"), -EINVAL, "to an open layer");
	eq_int(store_env_move(s, &e, 12345, "reset"), -ENOENT, "to no layer");
	e.head = one;
	eq_int(store_env_move(s, &e, two, "reset"), -ESTALE, "from a state that is not");
	ok(store_layer_common(s, two, three, &from) == 0 && from == two, "common: an ancestor");
	if (store_env_get(s, "moves", &e) < 0 || store_env_move(s, &e, one, "reset") < 0)
		tap_fatal("move");
	write_one(s, e.open, "fork");
	ok(store_layer_common(s, e.open, three, &from) == 0 && from == one, "common: the fork");
	if (store_env_get(s, "one", &e) < 0)
		tap_fatal("get");
	ok(store_layer_common(s, e.open, three, &from) == 0 && from == 0, "common: none");
}

static int add_ref(void *arg, const char *name, store_layer layer)
{
	struct log *l = arg;
	size_t at = strlen(l->text);

	(void)snprintf(l->text + at, sizeof(l->text) - at, "%s=%llu ", name,
		       (unsigned long long)layer);
	return 0;
}

static void removal(struct store *s)
{
	struct store_env e, f;
	struct store_layer_info info;
	struct store_batch *b;
	struct log l = {""};
	store_layer sealed;
	char op[32];

	if (store_env_create(s, "gone", 0, NULL, &e) < 0)
		tap_fatal("create");
	sealed = seal(s, &e, "g1");
	if (store_env_move(s, &e, sealed, "reset") < 0 ||
	    store_ref_set(s, "env/gone/mark", sealed) < 0 ||
	    store_ref_set(s, "env/gonemore/mark", sealed) < 0 ||
	    store_ref_set(s, "tag/t", sealed) < 0)
		tap_fatal("setup");
	write_one(s, e.open, "x");
	if (store_batch_begin(s, e.open, &b) < 0)
		tap_fatal("begin");
	name_set(b, 1, "y", 3);
	eq_int(store_env_remove(s, "gone"), 0, "remove");
	eq_int(store_env_remove(s, "gone"), -ENOENT, "twice");
	eq_int(store_batch_commit(b), -ESTALE, "its open layer takes nothing more");
	ok(store_layer_get(s, e.open, &info) == 0 && info.state == STORE_LAYER_DROPPED,
	   "it is garbage");
	eq_int(store_env_get(s, "gone", &f), -ENOENT, "no environment");
	eq_int(store_env_last_move(s, "gone", op, &sealed), -ENOENT, "no moves");
	if (store_refs(s, add_ref, &l) < 0)
		tap_fatal("refs");
	ok(!strstr(l.text, "env/gone/") && strstr(l.text, "env/gonemore/") &&
		   strstr(l.text, "tag/"),
	   "its refs alone are gone");
	eq_int(store_env_create(s, "gone", e.head, "again", &f), 0, "the name is free again");
}

static void refs(struct store *s)
{
	struct store_env e;
	store_layer l;

	if (store_env_get(s, "moves", &e) < 0)
		tap_fatal("get");
	eq_int(store_ref_set(s, "base/host", e.head), 0, "set");
	ok(store_ref_get(s, "base/host", &l) == 0 && l == e.head, "get");
	eq_int(store_ref_get(s, "base/none", &l), -ENOENT, "another");
	eq_int(store_ref_set(s, "base/host", 99999), -ENOENT, "to no layer");
	eq_int(store_ref_set(s, "", e.head), -EINVAL, "without a name");
	eq_int(store_ref_del(s, "base/host"), 0, "delete");
	eq_int(store_ref_del(s, "base/host"), -ENOENT, "twice");
}

static void revision(struct store *s, const char *env, const char *rev, int want,
		     store_layer want_layer)
{
	struct diag d = {0};
	store_layer l = 0;
	int r = store_resolve(s, env, rev, &d, &l);

	ok(r == want && (r < 0 ? d.text[0] != 0 : l == want_layer), "'%s': %d %s", rev, r, d.text);
}

static void revisions(struct store *s)
{
	struct store_env e;
	store_layer one, two, three;
	struct store_commit c = commit_of("rev2");
	char hex[DIGEST_LEN * 2 + 4];

	if (store_env_create(s, "rev", 0, NULL, &e) < 0)
		tap_fatal("create");
	one = seal(s, &e, "rev1");
	two = seal(s, &e, "rev2");
	three = seal(s, &e, "rev3");
	if (store_ref_set(s, "tag/good", two) < 0 || store_ref_set(s, "base/b", one) < 0)
		tap_fatal("ref");
	revision(s, "rev", "head", 0, three);
	revision(s, "rev", "head~", 0, two);
	revision(s, "rev", "head~2", 0, one);
	revision(s, "rev", "~1", 0, two);
	revision(s, "rev", "head~3", -ENOENT, 0);
	revision(s, "rev", "head~99999999999999999999", -EINVAL, 0);
	revision(s, "rev", "head~x", -EINVAL, 0);
	revision(s, "rev", "head~-1", -EINVAL, 0);
	revision(s, "rev", "good", 0, two);
	revision(s, "rev", "good~1", 0, one);
	revision(s, "rev", "tag/good", 0, two);
	revision(s, "rev", "base/b", 0, one);
	revision(s, "rev", "bad", -ENOENT, 0);
	revision(s, NULL, "head", -EINVAL, 0);
	revision(s, "nosuch", "head", -ENOENT, 0);
	revision(s, "rev", "", -EINVAL, 0);
	digest_hex(&c.id, hex);
	revision(s, "rev", hex, 0, two);
	hex[12] = 0;
	revision(s, NULL, hex, 0, two);
	hex[4] = 0;
	revision(s, NULL, hex, 0, two);
	(void)strcat(hex, "~1");
	revision(s, NULL, hex, 0, one);
	hex[3] = 0;
	revision(s, NULL, hex, -ENOENT, 0);
}

/* Two ids with the same first digits. */
static void ambiguous(struct store *s)
{
	struct store_env e;
	struct store_commit c = commit_of("x"), d;

	memset(&c.id, 0xab, sizeof(c.id));
	d = c;
	d.id.b[5] = 0xac;
	if (store_env_get(s, "rev", &e) < 0 || store_env_seal(s, &e, &c) < 0 ||
	    store_env_seal(s, &e, &d) < 0)
		tap_fatal("seal");
	revision(s, NULL, "abab", -EEXIST, 0);
	revision(s, NULL, "ababababab", -EEXIST, 0);
	revision(s, NULL, "abababababab", 0, c.layer);
	revision(s, NULL, "ABABABABABAC", 0, d.layer);
}

static void tag_names(void)
{
	static const char *const bad[] = {"",     ".a",       "-a",      "a/b",  "a b",
					  "a:b",  "a~1",      "head",    "HEAD", "base",
					  "beef", "20261130", "\xc3\xa4"};
	char long_name[STORE_TAG_MAX + 2];

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ok(!store_tag_valid(bad[i]), "'%s' is no tag", bad[i]);
	ok(!store_tag_valid(long_name) && store_tag_valid(long_name + 1), "64 bytes are fine");
	ok(store_tag_valid("v1.2-rc_3") && store_tag_valid("bad") && store_tag_valid("beefs"),
	   "good names");
}

static void tags(struct store *s)
{
	struct store_commit c = commit_of("tags3"), again = commit_of("tags4");
	store_layer one, two, was = 7, l;
	struct store_env e, f;
	struct log log = {""};

	if (store_env_create(s, "tags", 0, NULL, &e) < 0)
		tap_fatal("create");
	one = seal(s, &e, "tags1");
	two = seal(s, &e, "tags2");
	eq_int(store_tag_set(s, "tags", "v1", one, false, &was), 0, "set");
	eq_int((int)was, 0, "it named nothing");
	eq_int(store_tag_set(s, "tags", "v1", one, false, &was), 0, "the same again");
	eq_int(store_tag_set(s, "tags", "v1", two, false, &was), -EEXIST, "another state");
	ok(was == one, "what has the name is told");
	eq_int(store_tag_set(s, "tags", "v1", two, true, &was), 0, "moved");
	ok(was == one && store_tag_get(s, "tags", "v1", &l) == 0 && l == two, "from and to");
	eq_int(store_tag_set(s, "tags", "v0", one, false, &was), 0, "another");
	eq_int(store_tag_set(s, "tags", "open", e.open, false, &was), -EINVAL, "of what is open");
	eq_int(store_tag_set(s, "tags", "none", 99999, false, &was), -ENOENT, "of no layer");
	eq_int(store_tag_set(s, "tags", "a b", one, false, &was), -EINVAL, "a bad name");
	revision(s, "tags", "v1", 0, two);
	revision(s, "tags", "v1~1", 0, one);
	revision(s, "rev", "v1", -ENOENT, 0);
	revision(s, NULL, "v1", -ENOENT, 0);
	if (store_ref_set(s, "tag/v0", two) < 0)
		tap_fatal("ref");
	revision(s, "tags", "v0", 0, one);
	revision(s, "tags", "tag/v0", 0, two);
	revision(s, "rev", "v0", 0, two);
	/* With the commit, or not at all. */
	f = e;
	eq_int(store_env_seal_tagged(s, &e, &c, "v1"), -EEXIST, "a commit under a taken name");
	ok(!memcmp(&e, &f, sizeof(e)) && store_env_get(s, "tags", &f) == 0 && f.head == two,
	   "is none");
	eq_int(store_env_seal_tagged(s, &e, &c, "a b"), -EINVAL, "nor under a bad one");
	eq_int(store_env_seal_tagged(s, &e, &c, "v3"), 0, "a commit with a tag");
	revision(s, "tags", "v3", 0, c.layer);
	/* Of its history alone. */
	eq_int(store_env_fork(s, "tags", "tagfork", two, &f), 0, "fork");
	revision(s, "tagfork", "v0", 0, one);
	revision(s, "tagfork", "v1", 0, two);
	revision(s, "tagfork", "v3", -ENOENT, 0);
	eq_int(store_tag_del(s, "tagfork", "v1"), 0, "delete");
	eq_int(store_tag_del(s, "tagfork", "v1"), -ENOENT, "twice");
	revision(s, "tags", "v1", 0, two);
	if (store_env_seal(s, &f, &again) < 0 ||
	    store_tag_set(s, "tagfork", "own", again.layer, false, &was) < 0)
		tap_fatal("fork's own");
	eq_int(store_env_remove(s, "tagfork"), 0, "remove");
	if (store_refs(s, add_ref, &log) < 0)
		tap_fatal("refs");
	ok(!strstr(log.text, "env/tagfork/") && strstr(log.text, "env/tags/tag/v3"),
	   "tags go with their environment");
}

static int count_env(void *arg, const struct store_env *e)
{
	int *n = arg;

	(void)e;
	return ++*n == 2 ? 7 : 0;
}

static void reopened(const char *dir)
{
	struct store *s = open_store(dir), *ro = NULL;
	struct store_env e;
	struct store_batch *b;
	struct store_chunk c = {.data = "x", .len = 1};
	store_ino i, j;
	int n = 0;

	ok(store_env_get(s, "moves", &e) == 0 && name_at(s, e.open, 1, "one") == 100,
	   "all of it is there after opening again");
	eq_int(store_env_list(s, count_env, &n), 7, "a listing stops when told");
	ok(store_reserve_inos(s, 10, &i) == 0 && store_reserve_inos(s, 5, &j) == 0 &&
		   i >= STORE_FIRST_INO && j == i + 10,
	   "inode numbers in blocks");
	eq_int(store_reserve_inos(s, UINT64_MAX, &j), -ENOSPC, "not more than there are");
	eq_int(store_reserve_inos(s, STORE_HOST_INO, &j), -ENOSPC, "nor the host's");
	ok(store_reserve_inos(s, 1, &j) == 0 && j == i + 15, "and a refused block takes none");
	store_close(s);
	eq_int(store_open(dir, STORE_RDONLY, NULL, &ro), 0, "read-only");
	ok(name_at(ro, e.open, 1, "one") == 100, "reads");
	eq_int(store_batch_begin(ro, e.open, &b), -EROFS, "and refuses a batch");
	eq_int(store_chunks_put(ro, &c, 1), -EROFS, "a chunk");
	eq_int(store_env_create(ro, "ro", 0, NULL, &e), -EROFS, "an environment");
	eq_int(store_reserve_inos(ro, 1, &i), -EROFS, "numbers");
	store_close(ro);
}

int main(void)
{
	char dir[64];
	struct store *s;

	make_dir(dir);
	s = open_store(dir);
	names();
	commits(s);
	create(s);
	moves(s);
	removal(s);
	refs(s);
	revisions(s);
	ambiguous(s);
	tag_names();
	tags(s);
	forks(s);
	store_close(s);
	reopened(dir);
	tree_remove(dir);
	return tap_done();
}
