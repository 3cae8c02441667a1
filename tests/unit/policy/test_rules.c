/* Lists of rules: what is refused, msgpack, bounds; and the automaton under hostile patterns and many threads. */
#include <pthread.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "policy/glob.h"
#include "policy/policy.h"
#include "tests/lib/tap.h"

static int add(struct policy_rules *r, enum policy_access a, enum policy_kind k, const char *text,
	       struct diag *d)
{
	memset(d, 0, sizeof(*d));
	return policy_rules_add(r, a, k, text, NULL, d);
}

static void test_refused(void)
{
	cleanup_policy_rules struct policy_rules r = {0};
	char longer[POLICY_TEXT_MAX + 2];
	struct diag d;

	eq_int(add(&r, POLICY_READ, POLICY_PATH, "a/b", &d), -EINVAL, "a relative path: %s",
	       d.text);
	eq_int(add(&r, POLICY_READ, POLICY_PATH, "/a/../b", &d), -EINVAL, "one that goes up: %s",
	       d.text);
	eq_int(add(&r, POLICY_WRITE, POLICY_GLOB, "/a/*", &d), -EINVAL, "a pattern that writes: %s",
	       d.text);
	eq_int(add(&r, POLICY_READ, POLICY_GLOB, "/a/*", &d), -EINVAL, "or reads: %s", d.text);
	eq_int(add(&r, POLICY_NONE, POLICY_PATH, "/a", &d), -EINVAL, "neither: %s", d.text);
	memset(longer, 'a', sizeof(longer) - 1);
	longer[0] = '/';
	longer[sizeof(longer) - 1] = 0;
	eq_int(add(&r, POLICY_READ, POLICY_PATH, longer, &d), -E2BIG, "a path that is too long");
	eq_int(policy_rules_protect(&r, "a/b", &d), -EINVAL, "a name with a slash");
	eq_int(policy_rules_protect(&r, "..", &d), -EINVAL, "no name");
	eq_int(r.n, 0, "nothing was taken");
	longer[3000] = 0;
	while (add(&r, POLICY_READ, POLICY_PATH, longer, &d) == 0)
		;
	ok(r.n * 3000 <= POLICY_BYTES_MAX && d.text[0], "there is an end: %s", d.text);
}

static int pattern(const char *text, struct diag *d)
{
	cleanup_policy_rules struct policy_rules r = {0};
	struct policy *p;
	int k = add(&r, POLICY_DENY, POLICY_GLOB, text, d);

	if (k == 0)
		k = policy_new(&r, d, &p);
	if (k == 0)
		policy_free(p);
	return k;
}

static void test_patterns(void)
{
	char many[4000];
	size_t n = 0;
	struct diag d;

	eq_int(pattern("/a/[z-a]", &d), -EINVAL, "a range backwards: %s", d.text);
	eq_int(pattern("/a/b\\", &d), -EINVAL, "a backslash at the end: %s", d.text);
	eq_int(pattern("/a/{b,c", &d), -EINVAL, "an open brace: %s", d.text);
	eq_int(pattern("/a/b}", &d), -EINVAL, "a closing one alone: %s", d.text);
	eq_int(pattern("/{,}", &d), -EINVAL, "the root: %s", d.text);
	eq_int(pattern("/a/[", &d), 0, "an open bracket is itself");
	for (int i = 0; i < 12; i++)
		n += (size_t)snprintf(many + n, sizeof(many) - n, "/{a,b}");
	eq_int(pattern(many, &d), -E2BIG, "4096 alternatives: %s", d.text);
	memset(many, '?', sizeof(many) - 1);
	memcpy(many, "/{x,y}", 6);
	many[sizeof(many) - 1] = 0;
	eq_int(pattern(many, &d), -E2BIG, "too long when it is written out: %s", d.text);
}

static void fill(struct policy_rules *r)
{
	if (policy_rules_add(r, POLICY_READ, POLICY_PATH, "/", "all", NULL) < 0 ||
	    policy_rules_add(r, POLICY_WRITE, POLICY_PATH, "/w", NULL, NULL) < 0 ||
	    policy_rules_add(r, POLICY_DENY, POLICY_GLOB, "/w/**/*.env", "secrets", NULL) < 0 ||
	    policy_rules_protect(r, ".git", NULL) < 0)
		tap_fatal("fill");
	r->v[1].bare = true;
	r->v[0].solid = true;
	r->deep = r->strict = true;
	r->otherwise = POLICY_READ;
}

static void test_wire(void)
{
	cleanup_policy_rules struct policy_rules r = {0}, back = {0}, bad = {0};
	cleanup_buf struct buf b = {0};
	struct diag d = {0};
	int r2 = 0;

	fill(&r);
	eq_int(policy_rules_encode(&r, &b), 0, "written");
	eq_int(policy_rules_decode(b.data, b.len, &d, &back), 0, "read: %s", d.text);
	ok(policy_rules_same(&r, &back) && back.v[1].bare && back.v[0].solid && !back.v[1].solid &&
		   back.deep && back.strict && !back.hide,
	   "the same");
	eq_str(back.v[2].reason, "secrets", "with reasons");
	back.v[1].bare = false;
	ok(!policy_rules_same(&r, &back), "a difference is seen");
	for (size_t i = 0; i < b.len; i++)
		r2 |= policy_rules_decode(b.data, i, NULL, &bad) == 0;
	ok(!r2, "no shorter bytes are a list");
	for (size_t i = 0; i < b.len * 8; i++) {
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
		if (policy_rules_decode(b.data, b.len, NULL, &bad) == 0)
			policy_rules_release(&bad);
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	ok(true, "flipped bits are read or refused");
}

/* What a daemon of an earlier build left to the next one. */
static void test_old(void)
{
	static const uint8_t old[] = {0x95, 1, 3,    4,    0x90, 0x91, 0x95,
				      3,    0, 0xc3, 0xa2, '/',  'w',  0xc0};
	cleanup_policy_rules struct policy_rules r = {0};
	uint8_t mixed[sizeof(old)];

	eq_int(policy_rules_decode(old, sizeof(old), NULL, &r), 0, "version 1 is read");
	ok(r.n == 1 && r.v[0].bare && !r.v[0].solid && !strcmp(r.v[0].text, "/w") && r.strict,
	   "as what it said");
	memcpy(mixed, old, sizeof(old));
	mixed[1] = 2;
	policy_rules_release(&r);
	r = (struct policy_rules){0};
	eq_int(policy_rules_decode(mixed, sizeof(mixed), NULL, &r), -EBADMSG,
	       "and no mixture of the two");
}

/* Sets of positions that double with each component: the bound holds, and what is beyond is closed. */
static void test_hostile(void)
{
	cleanup_policy_rules struct policy_rules r = {0};
	struct policy *p;
	struct diag d;
	uint64_t x = 1;
	int closed = 0, n = 0;

	if (add(&r, POLICY_WRITE, POLICY_PATH, "/", &d) < 0 ||
	    add(&r, POLICY_DENY, POLICY_GLOB, "/**/a/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/x", &d) < 0 ||
	    policy_new(&r, &d, &p) < 0)
		tap_fatal("%s", d.text);
	for (int i = 0; i < 20000; i++) {
		int s = policy_root(p);

		for (int k = 0; k < 16; k++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			s = policy_child(p, s, x >> 62 & 1 ? "a" : "b", 1);
		}
		n++;
		closed += !(policy_may(p, s) & POLICY_MAY_READ);
	}
	ok(closed > 0 && closed < n, "beyond the bound %d of %d places are closed", closed, n);
	policy_free(p);
}

static void *walker(void *arg)
{
	struct policy *p = arg;
	uint64_t bad = 0;

	for (int i = 0; i < 2000; i++) {
		char name[32];
		int s = policy_child(p, policy_root(p), "w", 1), e;

		(void)snprintf(name, sizeof(name), "d%d", i % 37);
		s = policy_child(p, s, name, strlen(name));
		(void)snprintf(name, sizeof(name), "f%d.env", i % 11);
		e = policy_child(p, s, name, strlen(name));
		bad += !(policy_may(p, s) & POLICY_MAY_WRITE) || policy_may(p, e) & POLICY_MAY_READ;
	}
	return (void *)(uintptr_t)bad;
}

static void test_threads(void)
{
	cleanup_policy_rules struct policy_rules r = {0};
	pthread_t t[6];
	struct policy *p;
	uintptr_t bad = 0;

	fill(&r);
	if (policy_new(&r, NULL, &p) < 0)
		tap_fatal("new");
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		if (pthread_create(&t[i], NULL, walker, p))
			tap_fatal("thread");
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		void *got;

		(void)pthread_join(t[i], &got);
		bad += (uintptr_t)got;
	}
	eq_int(bad, 0, "six threads agree");
	policy_free(p);
}

int main(void)
{
	test_refused();
	test_patterns();
	test_wire();
	test_old();
	test_hostile();
	test_threads();
	return tap_done();
}
