/* Whatever is read as a list of rules is written as the same list, and comes to a policy or is refused with a sentence;
 * states and the explanation of a place agree, for the list's own paths and names. */
#include <string.h>

#include "policy/policy.h"
#include "tests/fuzz/fuzz.h"

static void agree(struct policy *p, const char *path)
{
	int s = policy_root(p);
	const char *at = path, *part;
	struct policy_why why;
	unsigned may;
	size_t len;

	if (policy_explain(p, path, &why) < 0)
		return; /* a pattern that climbs */
	while (policy_component(&at, &part, &len))
		s = policy_child(p, s, part, len);
	may = policy_may(p, s);
	if ((why.access >= POLICY_READ) != !!(may & POLICY_MAY_READ) ||
	    (why.access == POLICY_WRITE) != !!(may & POLICY_MAY_WRITE))
		__builtin_trap();
}

static void judge(const struct policy_rules *r)
{
	struct diag d = {0};
	struct policy *p;
	int k = policy_new(r, &d, &p);

	if (k < 0) {
		if (k != -ENOMEM && !d.text[0])
			__builtin_trap();
		return;
	}
	for (size_t i = 0; i < r->n; i++) {
		cleanup_buf struct buf b = {0};

		agree(p, r->v[i].text);
		if (buf_printf(&b, "%s/%s/x", r->v[i].text, r->names ? r->names[0] : "a") == 0)
			agree(p, (const char *)b.data);
	}
	policy_free(p);
}

bool fuzz_one(const uint8_t *data, size_t size)
{
	cleanup_policy_rules struct policy_rules r = {0}, again = {0};
	cleanup_buf struct buf b = {0};
	struct diag d = {0};

	if (policy_rules_decode(data, size, &d, &r) < 0) {
		if (!d.text[0])
			__builtin_trap();
		return false;
	}
	if (policy_rules_encode(&r, &b) < 0 ||
	    policy_rules_decode(b.data, b.len, NULL, &again) < 0 || !policy_rules_same(&r, &again))
		__builtin_trap();
	judge(&r);
	return true;
}
