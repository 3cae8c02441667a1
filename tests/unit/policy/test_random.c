/* Random rules and random paths: the states against the reference. `test_policy_random SEED PROFILES`. */
#include <stdint.h>

#include "policy/policy.h"
#include "tests/lib/tap.h"
#include "tests/unit/policy/ref.h"

static uint64_t seed;

static unsigned rnd(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed >> 33) % n;
}

static const char *const plain[] = {
	"a",    "b",     "c",       "ab",       "abc", ".git", ".GIT", ".Git", "x.env",      ".env",
	"deny", "b.pem", "secrets", "\xff.env", "a b", "[",    "d{1}", "*",    "back\\slash"};
static const char *const globs[] = {
	"*",     "**",   "?",       "*.env",  "[ab]",        "[!a]*",
	"a*",    "*b*",  "secret*", "{a,b}",  "x.{env,pem}", "**",
	"[",     "a\\*", "*.p?m",   ".[Gg]*", "{a/b,c}",     "{a,{b,c}}d{,1}",
	"[a-c]", "\\[",  "[]]",     "?*?"};

static void path_put(char *to, size_t size, unsigned depth, bool pattern)
{
	size_t n = 0;

	for (unsigned i = 0; i < depth; i++) {
		const char *s = pattern && rnd(2)
					? globs[rnd(sizeof(globs) / sizeof(*globs))]
					: plain[rnd(rnd(2) ? 5 : sizeof(plain) / sizeof(*plain))];

		/* A pattern's plain parts are taken as they are. */
		if (pattern && strpbrk(s, "\\{*[") && !strncmp(s, "back", 4))
			s = "a";
		if (pattern && (!strcmp(s, "d{1}") || !strcmp(s, "*")))
			s = "b";
		n += (size_t)snprintf(to + n, size - n, "/%s", s);
	}
	if (!n)
		(void)snprintf(to, size, "/");
}

static void make_rules(struct policy_rules *r)
{
	unsigned n = 1 + rnd(8);

	r->otherwise = rnd(6) ? POLICY_NONE : (enum policy_access)rnd(4);
	r->deep = !rnd(3);
	r->hide = !rnd(4);
	r->strict = rnd(2);
	for (unsigned i = 0; i < n; i++) {
		bool glob = !rnd(3);
		char text[256];

		path_put(text, sizeof(text), glob ? 1 + rnd(4) : rnd(4), glob);
		if (policy_rules_add(r, glob ? POLICY_DENY : (enum policy_access)(1 + rnd(3)),
				     glob ? POLICY_GLOB : POLICY_PATH, text, NULL, NULL) < 0)
			tap_fatal("rule %s", text);
		r->v[r->n - 1].bare = !rnd(4);
	}
	if (rnd(3) && (policy_rules_protect(r, ".git", NULL) < 0 ||
		       policy_rules_protect(r, "secrets", NULL) < 0))
		tap_fatal("protect");
}

static int walk(struct policy *p, const char *path, int *ret_dir)
{
	int s = policy_root(p);
	const char *part;
	size_t len;

	while (policy_component(&path, &part, &len)) {
		*ret_dir = s;
		s = policy_child(p, s, part, len);
	}
	return s;
}

static void show(const struct policy_rules *r, const char *path)
{
	printf("# %s; otherwise %s%s\n", path, policy_access_name(r->otherwise),
	       r->deep ? ", deep" : "");
	for (size_t i = 0; i < r->n; i++)
		printf("#   %s %s%s%s\n", policy_access_name(r->v[i].access), r->v[i].text,
		       r->v[i].bare ? " bare" : "", r->v[i].kind == POLICY_GLOB ? " glob" : "");
	for (size_t i = 0; r->names && r->names[i]; i++)
		printf("#   protects %s\n", r->names[i]);
}

static int one_path(struct policy *p, const struct policy_rules *r, const char *path)
{
	enum policy_access want = ref_access(r, path);
	int dir, s = walk(p, path, &dir);
	unsigned may = policy_may(p, s);
	struct policy_why why;
	int bad = 0;

	bad |= (want >= POLICY_READ) != !!(may & POLICY_MAY_READ);
	bad |= (want == POLICY_WRITE) != !!(may & POLICY_MAY_WRITE);
	bad |= policy_explain(p, path, &why) < 0 || why.access != want;
	for (size_t i = 0; !bad && i < r->n; i++) {
		size_t len = strlen(path);

		/* What can be read must be reached. */
		if (r->v[i].kind == POLICY_PATH &&
		    (len == 1 || (!strncmp(r->v[i].text, path, len) && r->v[i].text[len] == '/')))
			bad |= ref_access(r, r->v[i].text) >= POLICY_READ &&
			       !(may & POLICY_MAY_PASS);
	}
	if (bad) {
		show(r, path);
		printf("# want %s, may %x, explained as %s\n", policy_access_name(want), may,
		       policy_access_name(why.access));
	}
	return bad;
}

/* Two directories of one state have the same verdict for whatever is below. */
static int same_below(struct policy *p, const struct policy_rules *r, const char *a, const char *b)
{
	int dir, x = walk(p, a, &dir), y = walk(p, b, &dir);

	if (!policy_same_below(p, x, y))
		return 0;
	for (int i = 0; i < 4; i++) {
		char tail[256], pa[600], pb[600];

		path_put(tail, sizeof(tail), 1 + rnd(4), false);
		(void)snprintf(pa, sizeof(pa), "%s%s", a, tail);
		(void)snprintf(pb, sizeof(pb), "%s%s", b, tail);
		x = (int)ref_access(r, pa);
		y = (int)ref_access(r, pb);
		if (x != y && (x >= POLICY_READ || y >= POLICY_READ)) {
			show(r, pa);
			printf("# and %s differ\n", pb);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned profiles = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 4000;
	/* RATTAN_LONG: twenty times as many. */
	const unsigned much = getenv("RATTAN_LONG") ? 20 : 1;
	long paths = 0, equal = 0;
	int bad = 0, bad_same = 0;

	seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	for (unsigned i = 0; i < profiles * much && bad + bad_same < 5; i++) {
		cleanup_policy_rules struct policy_rules r = {0};
		struct policy *p;

		make_rules(&r);
		if (policy_new(&r, NULL, &p) < 0) {
			show(&r, "refused");
			bad++;
			continue;
		}
		for (int k = 0; k < 60; k++) {
			char a[256], b[256];

			path_put(a, sizeof(a), rnd(6), false);
			path_put(b, sizeof(b), rnd(6), false);
			bad += one_path(p, &r, a);
			bad_same += same_below(p, &r, a, b);
			paths++;
			equal++;
		}
		policy_free(p);
	}
	eq_int(bad, 0, "%ld paths in %u profiles: the states and the rules say the same", paths,
	       profiles);
	eq_int(bad_same, 0, "places of one state have the same below (%ld pairs)", equal);
	return tap_done();
}
