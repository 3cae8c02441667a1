/* Each rule of the policy by hand: a profile, and what places come to. */
#include <time.h>

#include "policy/policy.h"
#include "tests/lib/tap.h"

#define MAX_RULES 8
#define MAX_CASES 12

/* 'r' 'w' 'd' a path, 'g' a denied pattern, 'b' a writable place without protected names. */
struct rule {
	char what;
	const char *text;
};
/* @want: 'w' write, 'r' read, '-' neither and not shown, 'd' denied and shown; 't' neither, but a way through;
 * 'l' the same, and what is below is listed. */
struct place {
	const char *path;
	char want;
};
static const struct profile {
	const char *name;
	struct rule rules[MAX_RULES];
	bool protect, deep, hide;
	struct place places[MAX_CASES];
} profiles[] = {
	{"no rule", {{0}}, .places = {{"/", '-'}, {"/a", '-'}}},
	{"the longest path counts, in any order",
	 {{'d', "/w/vault"}, {'w', "/w/vault/in"}, {'w', "/w"}, {'r', "/"}},
	 .places = {{"/etc", 'r'},
		    {"/w", 'w'},
		    {"/w/f", 'w'},
		    {"/w/vault", 't'},
		    {"/w/vault/x", 'd'},
		    {"/w/vault/in", 'w'},
		    {"/w/vault/in/y/z", 'w'},
		    {"/w/vaults", 'w'}}},
	{"of equally long ones deny counts",
	 {{'r', "/a"}, {'w', "/a"}, {'d', "/a"}, {'w', "/b"}, {'r', "/b"}},
	 .places = {{"/a", '-'}, {"/a/x", '-'}, {"/b/x", 'w'}}},
	{"a denied root grants what is below",
	 {{'d', "/"}, {'r', "/w/docs"}},
	 .places = {{"/w/docs/a", 'r'}, {"/etc/passwd", 'd'}, {"/w", 't'}, {"/", 't'}}},
	{"what no rule names is not there, and the way to what is shows only that",
	 {{'r', "/data/in"}, {'w', "/tmp/s"}},
	 .places = {{"/data/in/a", 'r'},
		    {"/data/other", '-'},
		    {"/data", 'l'},
		    {"/", 'l'},
		    {"/tmp/x", '-'},
		    {"/tmp/s/x", 'w'},
		    {"/etc/passwd", '-'}}},
	{"a part that is read-only",
	 {{'r', "/"}, {'w', "/w"}, {'r', "/w/docs/ref"}},
	 .places = {{"/w/docs", 'w'},
		    {"/w/docs/ref", 'r'},
		    {"/w/docs/ref/f", 'r'},
		    {"/w/docs/x", 'w'}}},
	{"protected names at the top of each writable place",
	 {{'r', "/"}, {'w', "/w"}, {'w', "/w/sub"}, {'b', "/tmp"}, {'w', "/w/.codex/cache"}},
	 .protect = true,
	 .places = {{"/w/.git", 'r'},
		    {"/w/.git/hooks/x", 'r'},
		    {"/w/.GIT", 'r'},
		    {"/w/.Agents", 'r'},
		    {"/w/sub/.git", 'r'},
		    {"/w/other/.git", 'w'},
		    {"/tmp/.git", 'w'},
		    {"/w/.codex/b", 'r'},
		    {"/w/.codex/cache/a", 'w'},
		    {"/w/.gitx", 'w'},
		    {"/w/.g\xe2\x80\x8bit", 'r'},
		    {"/w/.agent\xc5\xbf", 'r'}}},
	{"and at any depth",
	 {{'r', "/"}, {'w', "/w"}, {'b', "/tmp"}, {'w', "/w/x/.git"}},
	 .protect = true,
	 .deep = true,
	 .places = {{"/w/.git", 'r'},
		    {"/w/a/b/.git", 'r'},
		    {"/w/a/b/.git/c", 'r'},
		    {"/w/a/b", 'w'},
		    {"/w/x/.git", 'w'},
		    {"/w/x/.git/.codex", 'r'},
		    {"/tmp/a/.git", 'w'}}},
	{"all of the disk writable: nothing is protected",
	 {{'w', "/"}, {'w', "/w"}},
	 .protect = true,
	 .places = {{"/.git", 'w'}, {"/w/.git", 'w'}}},
	{"but where something is closed",
	 {{'w', "/"}, {'d', "/home/u/.ssh"}},
	 .protect = true,
	 .places = {{"/.git", 'r'}, {"/w/.git", 'w'}, {"/home/u/.ssh/id", 'd'}, {"/opt/x", 'w'}}},
	{"a file as a writable place",
	 {{'r', "/w"}, {'w', "/w/one.txt"}},
	 .protect = true,
	 .places = {{"/w/one.txt", 'w'}, {"/w/two", 'r'}}},
	{"a pattern closes what matches, now and later, and all below",
	 {{'r', "/"}, {'w', "/w"}, {'g', "/w/**/*.env"}, {'g', "/w/secrets*"}},
	 .places = {{"/w/.env", 'd'},
		    {"/w/a.env", 'd'},
		    {"/w/x/y/a.env", 'd'},
		    {"/w/A.ENV", 'w'},
		    {"/w/x.env/y", 'd'},
		    {"/a.env", 'r'},
		    {"/w/secrets/key", 'd'},
		    {"/w/secrets.txt", 'd'},
		    {"/w/x/secrets", 'w'},
		    {"/w/\xff.env", 'd'},
		    {"/w/env", 'w'}}},
	{"a pattern is above what names it, below what is strictly below",
	 {{'w', "/w"},
	  {'w', "/w/a.env"},
	  {'w', "/w/d.env/in"},
	  {'r', "/w/d.env/ro"},
	  {'g', "/w/*.env"},
	  {'r', "/w/d.env/in/ro"}},
	 .places = {{"/w/a.env", 'd'},
		    {"/w/d.env", 't'},
		    {"/w/d.env/x", 'd'},
		    {"/w/d.env/in/x", 'w'},
		    {"/w/d.env/ro/x", 'd'},
		    {"/w/d.env/in/ro", 'r'}}},
	{"stars stay in a component",
	 {{'r', "/"}, {'g', "/w/*/k.pem"}, {'g', "/data/!x*"}},
	 .places = {{"/w/s/k.pem", 'd'},
		    {"/w/s/t/k.pem", 'r'},
		    {"/w/k.pem", 'r'},
		    {"/data/!x1", 'd'},
		    {"/data/y", 'r'}}},
	{"two stars are any number of components",
	 {{'r', "/"}, {'g', "/data/**/*.pem"}, {'g', "/**/*.key"}, {'g', "/s/**"}},
	 .places = {{"/data/k.pem", 'd'},
		    {"/data/a/b/k.pem", 'd'},
		    {"/data/k.txt", 'r'},
		    {"/k.key", 'd'},
		    {"/a/b/k.key", 'd'},
		    {"/s", 'r'},
		    {"/s/x", 'd'},
		    {"/s/x/y", 'd'}}},
	{"sets, alternatives, bytes with a backslash",
	 {{'r', "/"},
	  {'g', "/[ab]1"},
	  {'g', "/[!a-y]2"},
	  {'g', "/c{3,4/x}"},
	  {'g', "/\\*"},
	  {'g', "/[x"},
	  {'g', "/q?r"},
	  {'g', "/e[]]"}},
	 .places = {{"/a1", 'd'},
		    {"/c1", 'r'},
		    {"/z2", 'd'},
		    {"/c2", 'r'},
		    {"/c3", 'd'},
		    {"/c4", 'r'},
		    {"/c4/x", 'd'},
		    {"/*", 'd'},
		    {"/x", 'r'},
		    {"/[x", 'd'},
		    {"/qxr", 'd'},
		    {"/e]", 'd'}}},
	{"what is denied is hidden",
	 {{'r', "/"}, {'d', "/a"}, {'g', "/*.env"}},
	 .hide = true,
	 .places = {{"/a", '-'}, {"/x.env", '-'}, {"/b", 'r'}}},
	{"dots and slashes mean nothing",
	 {{'r', "/"}, {'d', "//a/./b/"}},
	 .places = {{"/a//b/", 'd'}, {"/./a/b/c", 'd'}, {"/a", 'r'}}},
};

static void build(const struct profile *x, struct policy_rules *r)
{
	static const char *const names[] = {".git", ".agents", ".codex"};
	struct diag d = {0};

	r->deep = x->deep;
	r->hide = x->hide;
	for (size_t i = 0; i < MAX_RULES && x->rules[i].text; i++) {
		char w = x->rules[i].what;

		if (policy_rules_add(r,
				     w == 'r'               ? POLICY_READ
				     : w == 'w' || w == 'b' ? POLICY_WRITE
							    : POLICY_DENY,
				     w == 'g' ? POLICY_GLOB : POLICY_PATH, x->rules[i].text, "why",
				     &d) < 0)
			tap_fatal("%s", d.text);
		r->v[r->n - 1].bare = w == 'b';
	}
	for (size_t i = 0; x->protect && i < 3; i++)
		if (policy_rules_protect(r, names[i], &d) < 0)
			tap_fatal("%s", d.text);
}

static int walk(struct policy *p, const char *path, int *ret_dir)
{
	int s = policy_root(p);
	const char *part;
	size_t len;

	*ret_dir = s;
	while (policy_component(&path, &part, &len)) {
		*ret_dir = s;
		s = policy_child(p, s, part, len);
	}
	return s;
}

static char verdict(struct policy *p, const char *path)
{
	int dir, s = walk(p, path, &dir);
	unsigned may = policy_may(p, s);

	if (may & POLICY_MAY_WRITE)
		return 'w';
	if (may & POLICY_MAY_READ)
		return 'r';
	if (may & POLICY_MAY_PASS)
		return may & POLICY_MAY_LIST ? 'l' : 't';
	return policy_hides(p, s) || !policy_shows(p, dir, s) ? '-' : 'd';
}

static void test_profiles(void)
{
	for (size_t i = 0; i < sizeof(profiles) / sizeof(*profiles); i++) {
		const struct profile *x = &profiles[i];
		cleanup_policy_rules struct policy_rules r = {0};
		struct diag d = {0};
		struct policy *p;

		build(x, &r);
		if (policy_new(&r, &d, &p) < 0)
			tap_fatal("%s: %s", x->name, d.text);
		for (size_t k = 0; k < MAX_CASES && x->places[k].path; k++) {
			char got = verdict(p, x->places[k].path), want = x->places[k].want;

			/* Denied where its directory is not read either: not shown. */
			if (want == 'd' && got == '-' && !x->hide) {
				int dir;

				(void)walk(p, x->places[k].path, &dir);
				if (!(policy_may(p, dir) & POLICY_MAY_READ))
					got = 'd';
			}
			ok(got == want, "%s: %s is %c", x->name, x->places[k].path, want);
			if (got != want)
				printf("# got %c\n", got);
		}
		policy_free(p);
	}
}

static struct policy *made(const struct profile *x, bool strict)
{
	cleanup_policy_rules struct policy_rules r = {0};
	struct diag d = {0};
	struct policy *p;

	build(x, &r);
	r.strict = strict;
	if (policy_new(&r, &d, &p) < 0)
		tap_fatal("%s", d.text);
	return p;
}

static int at(struct policy *p, const char *path)
{
	int dir;

	return walk(p, path, &dir);
}

static void test_places(void)
{
	static const struct profile x = {.rules = {{'r', "/"},
						   {'w', "/w"},
						   {'w', "/v"},
						   {'r', "/w/docs/ref"},
						   {'w', "/w/gen/out"},
						   {'g', "/w/**/*.env"},
						   {'g', "/w/s/k*"}},
					 .protect = true};
	struct policy *p = made(&x, false);
	int w = at(p, "/w");

	ok(policy_pinned(p, policy_root(p), "w", 1), "a writable place stays where it is");
	ok(policy_pinned(p, w, "docs", 4), "so does what is on the way to a rule");
	ok(!policy_pinned(p, w, "other", 5), "others do not");
	ok(policy_may(p, at(p, "/w/docs")) & POLICY_MAY_MKDIR,
	   "on the way to a read-only part: a directory");
	ok(!(policy_may(p, at(p, "/w/docs")) & POLICY_MAY_PUT),
	   "and nothing else, which could lead elsewhere");
	ok(policy_may(p, at(p, "/w/gen")) & POLICY_MAY_PUT,
	   "on the way to a writable part: anything");
	ok(policy_same_below(p, at(p, "/w/a"), at(p, "/w/b/c")), "two places with the same below");
	ok(!policy_same_below(p, at(p, "/w/docs"), at(p, "/w/b")),
	   "a rule below one is a difference");
	ok(!policy_same_below(p, at(p, "/w/s"), at(p, "/w/b")), "a pattern below one as well");
	ok(!policy_same_below(p, at(p, "/w/b"), at(p, "/v/b")),
	   "one that holds for one place alone");
	ok(policy_same_below(p, at(p, "/usr/a"), at(p, "/etc/b")), "nothing below either");
	ok(policy_carves(p), "a fence of writable places cannot say all of it");
	eq_int(policy_may(p, policy_meet(p, at(p, "/w/a"), at(p, "/usr/a"))) & POLICY_MAY_WRITE, 0,
	       "a file that is at a read-only place too cannot be written");
	eq_int(policy_may(p, policy_meet(p, at(p, "/w/a"), at(p, "/w/x.env"))) & POLICY_MAY_READ, 0,
	       "nor read at a closed one");
	eq_int(policy_unseen(p, at(p, "/w/a")), at(p, "/w/a"),
	       "links that are not seen do not count");
	policy_free(p);
	p = made(&x, true);
	eq_int(policy_may(p, policy_unseen(p, at(p, "/w/a"))) & POLICY_MAY_READ, 0,
	       "unless strictly: one may be what a pattern closes");
	eq_int(policy_may(p, policy_unseen(p, at(p, "/v/a"))) &
		       (POLICY_MAY_READ | POLICY_MAY_WRITE),
	       POLICY_MAY_READ, "or a protected name");
	ok(policy_may(p, policy_unseen(p, at(p, "/usr/bin/perl"))) & POLICY_MAY_READ,
	   "elsewhere nothing is closed");
	policy_free(p);
}

static void test_top(void)
{
	static const struct profile x = {.rules = {{'r', "/"}, {'w', "/w"}, {'d', "/w/top"}}};
	struct policy *p = made(&x, true);

	ok(!(policy_may(p, policy_unseen(p, at(p, "/w/a/alias"))) & POLICY_MAY_READ),
	   "a link of what is denied may be anywhere below the same grant");
	ok(policy_may(p, policy_unseen(p, at(p, "/usr/bin/perl"))) & POLICY_MAY_READ,
	   "not below another");
	policy_free(p);
}

/* A pattern that reaches everywhere makes every file with links suspicious, but in the system's own places. */
static void test_solid(void)
{
	static const struct profile x = {
		.rules = {{'r', "/"}, {'r', "/usr"}, {'w', "/w"}, {'g', "/**/*.env"}}};
	cleanup_policy_rules struct policy_rules r = {0};
	struct policy *p = made(&x, true);

	ok(!(policy_may(p, policy_unseen(p, at(p, "/usr/bin/perl"))) & POLICY_MAY_READ),
	   "a pattern that reaches all closes what has links");
	policy_free(p);
	build(&x, &r);
	r.strict = r.v[1].solid = true;
	if (policy_new(&r, NULL, &p) < 0)
		tap_fatal("rules");
	ok(policy_may(p, policy_unseen(p, at(p, "/usr/bin/perl"))) & POLICY_MAY_READ,
	   "not where nobody can have made one");
	ok(!(policy_may(p, policy_unseen(p, at(p, "/w/alias"))) & POLICY_MAY_READ) &&
		   !(policy_may(p, policy_unseen(p, at(p, "/home/alias"))) & POLICY_MAY_READ),
	   "but everywhere else");
	eq_int(policy_may(p, at(p, "/usr/x.env")) & POLICY_MAY_READ, 0,
	       "and what matches is closed there as well");
	policy_free(p);
}

/* As large as a list may be, as deep as paths may be: what follows from it is found in one walk. */
static void test_deep(void)
{
	cleanup_policy_rules struct policy_rules r = {.strict = true};
	char path[POLICY_TEXT_MAX + 1];
	struct timespec a, b;
	struct policy *p;
	double s;

	for (int i = 0; i < 120; i++) {
		size_t n = (size_t)snprintf(path, sizeof(path), "/d%d", i);

		while (n + 2 < 4000) {
			path[n++] = '/';
			path[n++] = 'a';
		}
		path[n] = 0;
		if (policy_rules_add(&r, POLICY_READ, POLICY_PATH, path, NULL, NULL) < 0)
			tap_fatal("rule %d", i);
	}
	if (policy_rules_add(&r, POLICY_DENY, POLICY_GLOB, "/**/*.env", NULL, NULL) < 0)
		tap_fatal("pattern");
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	eq_int(policy_new(&r, NULL, &p), 0, "120 paths of 2000 components and a pattern");
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	/* A walk up from each of them took thirty times as long. */
	ok(s < 2, "in %.3f s", s);
	policy_free(p);
}

static int count_place(void *arg, const char *path)
{
	(void)path;
	++*(int *)arg;
	return 0;
}

static void test_simple(void)
{
	static const char *const places[] = {"/workspace", "/home/user", NULL};
	cleanup_policy_rules struct policy_rules r = {0};
	struct policy *p;
	int n = 0;

	if (policy_rules_writable(places, NULL, &r) < 0 || policy_new(&r, NULL, &p) < 0)
		tap_fatal("rules");
	ok(verdict(p, "/etc") == 'r' && verdict(p, "/workspace/.git") == 'w' &&
		   verdict(p, "/home") == 'r',
	   "writable places in a tree that is read");
	ok(!policy_carves(p) && !policy_trivial(p), "a fence can say that");
	eq_int(policy_writable(p, count_place, &n), 0, "the places");
	eq_int(n, 2, "are two");
	ok(policy_may(p, at(p, "/home")) & POLICY_MAY_MKDIR, "the way to one may be made");
	policy_free(p);
	if (policy_new(NULL, NULL, &p) < 0)
		tap_fatal("no rules");
	ok(policy_trivial(p) && verdict(p, "/a/b") == 'w', "without rules everything is allowed");
	policy_free(p);
}

static void explained(struct policy *p, const char *path, enum policy_by by, const char *text)
{
	cleanup_buf struct buf b = {0};
	struct policy_why why;

	eq_int(policy_explain(p, path, &why), 0, "%s is explained", path);
	eq_int(why.by, by, "by the right kind");
	eq_int(policy_why_text(p, &why, &b), 0, "in words");
	eq_str((const char *)b.data, text, "that say so");
}

static void test_explain(void)
{
	static const struct profile x = {
		.rules = {{'r', "/usr"}, {'w', "/w"}, {'d', "/w/vault"}, {'g', "/w/*.env"}},
		.protect = true};
	struct policy *p = made(&x, false);
	struct policy_why why;

	explained(p, "/w/vault/x", POLICY_BY_RULE, "deny /w/vault (why)");
	explained(p, "/w/a.env/x", POLICY_BY_GLOB, "deny /w/*.env (why)");
	explained(p, "/w/.git/config", POLICY_BY_NAME, "the protected name .git");
	explained(p, "/w/f", POLICY_BY_RULE, "write /w (why)");
	explained(p, "/etc/passwd", POLICY_BY_NONE, "no rule names it");
	eq_int(policy_explain(p, "w", &why), -EINVAL, "a relative path is none");
	eq_int(policy_explain(p, "/w/../etc", &why), -EINVAL, "nor one that goes up");
	policy_free(p);
}

int main(void)
{
	test_profiles();
	test_places();
	test_top();
	test_solid();
	test_deep();
	test_simple();
	test_explain();
	return tap_done();
}
