#include "apply/paths.h"
#include "tests/lib/tap.h"

static void is_above(const struct paths *s, const char *path, bool at, const char *want)
{
	const char *got = paths_above(s, path, at);

	ok((!got && !want) || (got && want && !strcmp(got, want)), "above '%s'%s: %s", path,
	   at ? ", or itself" : "", want ? want : "nothing");
}

int main(void)
{
	static const char *const in[] = {"b", "a/b", "a", "a-", "c/d/e", "a/b", "a0"};
	cleanup_paths struct paths s = {0}, all = {0};

	paths_seal(&s);
	ok(!paths_has(&s, ""), "an empty set has nothing");
	is_above(&s, "a/b", true, NULL);
	for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++)
		if (paths_add(&s, in[i]) < 0)
			tap_fatal("no memory");
	paths_seal(&s);
	for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++)
		ok(paths_has(&s, in[i]), "%s is in it", in[i]);
	ok(!paths_has(&s, "a/") && !paths_has(&s, "c/d") && !paths_has(&s, "a/bc") &&
		   !paths_has(&s, ""),
	   "what is like one is not");
	is_above(&s, "a/b/c", false, "a/b");
	is_above(&s, "a/b", false, "a");
	is_above(&s, "a/b", true, "a/b");
	is_above(&s, "a/bc", true, "a");
	is_above(&s, "a", false, NULL);
	is_above(&s, "a-/x", false, "a-");
	is_above(&s, "ab/x", true, NULL);
	is_above(&s, "c/d", true, NULL);
	is_above(&s, "c/d/e/f/g", false, "c/d/e");
	if (paths_add(&all, "") < 0)
		tap_fatal("no memory");
	paths_seal(&all);
	is_above(&all, "x/y", false, "");
	is_above(&all, "x", false, "");
	is_above(&all, "", true, "");
	is_above(&all, "", false, NULL);
	return tap_done();
}
