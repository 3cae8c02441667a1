/* Whatever is read as a profile is refused with a sentence, or comes to rules that a policy can be made of. */
#include "policy/policy.h"
#include "profile/profile.h"
#include "profile/role.h"
#include "tests/fuzz/fuzz.h"

static const char *const runtime[] = {"/usr", NULL};
static const char *const closed[] = {"/no/such/rattan", NULL};

bool fuzz_one(const uint8_t *data, size_t size)
{
	const struct profile_local l = {.cwd = "/w",
					.session_tmp = "/tmp/session",
					.tmpdir = "/tmp",
					.runtime = runtime,
					.closed = closed};
	cleanup_profile struct profile *p = NULL;
	cleanup_buf struct buf b = {0};
	struct policy *policy = NULL;
	struct policy_why why;
	struct diag d = {0};

	if (profile_from_text((const char *)data, size, "fuzz", &l, &d, &p) < 0) {
		if (!d.text[0])
			__builtin_trap();
		return false;
	}
	if (profile_explain(p, &b) < 0 || !profile_same(p, p))
		__builtin_trap();
	if (p->role)
		return true;
	if (policy_new(&p->rules, &d, &policy) < 0 ||
	    policy_explain(policy, "/no/such/rattan/x", &why) < 0)
		__builtin_trap();
	/* What is closed stays closed. */
	if (p->family == PROFILE_MANAGED && why.access > POLICY_DENY)
		__builtin_trap();
	policy_free(policy);
	return true;
}
