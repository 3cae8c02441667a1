/* A place that cannot be judged for lack of memory is closed then, and judged once there is some. */
#include <stdbool.h>
#include <stdlib.h>

#include "policy/policy.h"
#include "tests/lib/tap.h"

/* The linker sends the calls of the policy here (--wrap). */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
static bool fails;

void *__wrap_calloc(size_t n, size_t size)
{
	return fails ? NULL : __real_calloc(n, size);
}

static struct policy *make(void)
{
	cleanup_policy_rules struct policy_rules r = {0};
	struct policy *p;
	char path[32];

	if (policy_rules_add(&r, POLICY_WRITE, POLICY_PATH, "/w", NULL, NULL) < 0 ||
	    policy_rules_add(&r, POLICY_DENY, POLICY_GLOB, "/w/**/*.env", NULL, NULL) < 0)
		tap_fatal("rules");
	for (int i = 0; i < 300; i++) {
		(void)snprintf(path, sizeof(path), "/w/d%d/deep", i);
		if (policy_rules_add(&r, POLICY_READ, POLICY_PATH, path, NULL, NULL) < 0)
			tap_fatal("rule");
	}
	if (policy_new(&r, NULL, &p) < 0)
		tap_fatal("policy");
	return p;
}

int main(void)
{
	int closed = 0, wrong = 0;

	/* So many states before, that at some of them there is no room for another one without memory. */
	for (int k = 0; k < 300; k++) {
		struct policy *p = make();
		int w = policy_child(p, policy_root(p), "w", 1), s;
		char name[16];

		for (int i = 0; i < k; i++) {
			(void)snprintf(name, sizeof(name), "d%d", i);
			(void)policy_child(p, w, name, strlen(name));
		}
		fails = true;
		s = policy_child(p, w, "plain", 5);
		fails = false;
		closed += !(policy_may(p, s) & POLICY_MAY_WRITE);
		s = policy_child(p, w, "plain", 5);
		wrong += !(policy_may(p, s) & POLICY_MAY_WRITE);
		policy_free(p);
	}
	ok(closed > 0, "without memory %d places were closed", closed);
	eq_int(wrong, 0, "none of them with it");
	return tap_done();
}
