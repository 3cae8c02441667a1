/* Profiles over a real tree with links, and what the policy then says of places. '@' is the tree. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "policy/policy.h"
#include "profile/profile.h"
#include "tests/lib/tap.h"

static char top[PATH_MAX];

/* @s with the tree's path for each '@'. */
static char *at(const char *s)
{
	cleanup_buf struct buf b = {0};
	char *out = NULL;
	int r = 0;

	for (; !r && *s; s++)
		r = *s == '@' ? buf_puts(&b, top) : buf_put(&b, s, 1);
	if (r || buf_steal(&b, &out, NULL))
		tap_fatal("memory");
	return out;
}

static void put_entry(struct buf *b, const char *e)
{
	const char *access = e[0] == 'r' ? "read" : e[0] == 'w' ? "write" : "deny";
	const char *what = e + 2;
	static const char *const kinds[][2] = {
		{"root", "root"}, {"min", "minimal"}, {"tmp", "slash_tmp"}, {"stmp", "tmpdir"}};
	int r = buf_printf(
		b, "%s{\"access\":\"%s\",\"path\":", b->data[b->len - 1] == '[' ? "" : ",", access);

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i][0], what))
			r = buf_printf(b, "{\"type\":\"special\",\"value\":{\"kind\":\"%s\"}}}",
				       kinds[i][1]);
	if (!strncmp(what, "g:", 2))
		r = buf_printf(b, "{\"type\":\"glob_pattern\",\"pattern\":\"%s\"}}", what + 2);
	else if (!strcmp(what, "proj"))
		r = buf_puts(b, "{\"type\":\"special\",\"value\":{\"kind\":\"project_roots\"}}}");
	else if (!strncmp(what, "proj/", 5))
		r = buf_printf(
			b,
			"{\"type\":\"special\",\"value\":{\"kind\":\"project_roots\",\"subpath\":\"%s\"}}}",
			what + 5);
	else if (what[0] == '/')
		r = buf_printf(b, "{\"type\":\"path\",\"path\":\"%s\"}}", what);
	if (r)
		tap_fatal("memory");
}

#define WS "r:root w:proj w:tmp w:stmp r:proj/.git r:proj/.agents r:proj/.codex"

static const struct {
	const char *cwd, *entries, *verdicts; /* "write:PATH deny:PATH ..." */
} table[] = {
	/* 19 */
	{"@/w", "r:root w:proj d:@/w/vault w:@/w/vault/in",
	 "write:@/w/f deny:@/w/vault/x write:@/w/vault/in/y deny:@/w/vault/z deny:@/w/vault read:/etc/passwd"},
	/* 20, 21 */
	{"@/w", "r:root r:@/w/x w:@/w/x d:@/w/x", "deny:@/w/x"},
	{"@/w", "r:root d:@/w/x r:@/w/x w:@/w/x", "deny:@/w/x"},
	{"@/w", "r:root r:@/w/x w:@/w/x", "write:@/w/x"},
	/* 22, 23 */
	{"@/w", "d:root r:@/w/docs", "read:@/w/docs/a none:/etc/passwd"},
	{"@/w", "r:@/data/in w:tmp",
	 "read:@/data/in/a none:@/data/other none:/etc/passwd none:/usr/bin/env"},
	/* 25, 26, 27, 28, 32, 33 */
	{"@/w", WS,
	 "read:@/w/.git read:@/w/.agents/x read:@/w/.codex read:@/w/.GIT write:@/w/sub/.git write:/tmp/.git "
	 "read:/tmp/s/.git write:/tmp/s/x write:/tmp/b"},
	{"@/w", "r:root w:@/x", "read:@/x/.codex write:@/x/y read:@/w/a"},
	{"@/w", WS " w:@/w/.codex/cache", "write:@/w/.codex/cache/a read:@/w/.codex/b"},
	/* 29, 30: .git is a file that names a directory */
	{"@/gitfile", WS,
	 "read:@/gitfile/.repo/wt/HEAD read:@/gitfile/.git write:@/gitfile/a write:@/gitfile/.repo/x"},
	{"@/gitodd", WS, "read:@/gitodd/.git write:@/gitodd/.repo/wt/HEAD"},
	/* 31 */
	{"@/w/sub", WS, "read:@/w/sub/.git read:@/w/.git write:@/w/sub/a"},
	/* 36 */
	{"@/w", "r:root w:root d:@/u/.ssh", "deny:@/u/.ssh/id write:/opt/x read:/.git"},
	/* 38, 42, 44, 45, 46, 48, 146 */
	{"@/w", WS " d:g:**/*.env",
	 "deny:@/w/new.env deny:@/w/a/b/x.env/y deny:@/w/\xff.env write:@/w/A.ENV deny:@/w/.env"},
	{"@/w", WS " d:g:secrets*",
	 "deny:@/w/secrets/key deny:@/w/secrets deny:@/w/secrets.txt write:@/w/a/secrets"},
	{"@/w", "r:root w:tmp d:g:@/data/**/*.pem",
	 "deny:@/data/k.pem deny:@/data/a/b/k.pem read:@/data/k.txt"},
	{"@/w", "r:root d:g:@/w/*/k.pem", "deny:@/w/s/k.pem read:@/w/s/t/k.pem"},
	{"@/w", "r:root d:g:@/data/!x*", "deny:@/data/!x1 read:@/data/y"},
	{"@/w", "r:root d:g:codex-project-roots://**/*.env", "deny:@/w/a.env read:@/x/a.env"},
	{"@/w", "r:root d:g:plain", "deny:@/w/plain/x read:@/w/plainer"},
	{"@/w", WS " d:g:**/*.env w:@/w/a.env", "deny:@/w/a.env"},
	{"@/w", WS " d:g:secrets* w:@/w/secrets/open",
	 "write:@/w/secrets/open/x deny:@/w/secrets/x"},
	/* 52, 54, 55, 56, 57: what is not there */
	{"@/w", "r:root w:proj/gen/out", "write:@/w/gen/out/a read:@/w/gen/b"},
	{"@/w", WS " d:@/w/s.txt", "deny:@/w/s.txt"},
	{"@/w", "r:root w:proj r:@/w/conf", "read:@/w/conf/x write:@/w/other"},
	{"@/w", "r:min r:@/data/late", "read:@/data/late/x none:@/data/x read:/usr/bin/env"},
	{"@/w", "w:@/w/one.txt r:@/w", "write:@/w/one.txt read:@/w/two"},
	/* 60, 61: the project by its alias */
	{"@/link", "r:min w:proj w:tmp", "write:@/real/b read:@/link read:@/real/.git none:@/w/a"},
	/* 62, 63, 64, 65: links */
	{"@/l", WS, "read:@/l/decoy/x read:@/l/.codex write:@/l/other"},
	{"@/l", "r:root w:proj d:@/l/d2/secret d:@/l/to-d/secret",
	 "deny:@/l/d/secret deny:@/l/to-d/secret read:@/l/to-d write:@/l/d/x"},
	{"@/w", "r:root d:@/l/dangling", "deny:@/l/dangling deny:@/l/nowhere"},
	{"@/w", "r:min r:@/l d:@/l/to-d/secret", "deny:@/l/d/secret read:@/l/d/x read:@/l/to-d"},
	/* 75, 76 */
	{"@/w", "r:min r:proj w:stmp d:/etc/ssl/private",
	 "deny:/etc/ssl/private/x read:/etc/ssl/certs write:/tmp/s/a none:/tmp/b none:/tmp/old"},
	/* a root that is denied is no rule on / */
	{"@/w", "r:min d:root", "read:/usr/bin none:/opt"},
	/* rattan's own */
	{"@/w", "r:root w:root", "deny:@/own/data/x write:@/own"},
};

static int make(const char *cwd, const char *entries, struct diag *d, struct profile **ret)
{
	static const char *closed[2];
	cleanup_free char *own = at("@/own/data"), *full = at(entries), *where = at(cwd);
	const struct profile_local l = {
		.session_tmp = "/tmp/s", .tmpdir = "/tmp/old", .closed = closed, .home = "/home/u"};
	cleanup_buf struct buf b = {0};
	char *save = NULL;
	int r;

	closed[0] = own;
	if (buf_printf(
		    &b,
		    "{\"sandboxCwd\":\"%s\",\"permissionProfile\":{\"type\":\"managed\",\"network\":\"restricted\","
		    "\"file_system\":{\"type\":\"restricted\",\"entries\":[",
		    where))
		tap_fatal("memory");
	for (char *e = strtok_r(full, " ", &save); e; e = strtok_r(NULL, " ", &save))
		put_entry(&b, e);
	if (buf_puts(&b, "]}}}"))
		tap_fatal("memory");
	r = profile_from_text((const char *)b.data, b.len, "case", &l, d, ret);
	if (r < 0)
		printf("# %s: %s\n", (const char *)b.data, d->text);
	return r;
}

static void verdicts(struct profile *p, const char *list)
{
	cleanup_free char *full = at(list);
	struct policy *policy = NULL;
	struct diag d = {0};
	char *save = NULL;

	if (policy_new(&p->rules, &d, &policy))
		tap_fatal("%s", d.text);
	for (char *v = strtok_r(full, " ", &save); v; v = strtok_r(NULL, " ", &save)) {
		char *path = strchr(v, ':');
		cleanup_buf struct buf b = {0};
		struct policy_why why = {0};
		int r;

		*path++ = 0;
		r = policy_explain(policy, path, &why);
		if (!r)
			r = policy_why_text(policy, &why, &b);
		ok(!r && !strcmp(policy_access_name(why.access), v), "%s %s", v,
		   strncmp(path, top, strlen(top)) != 0 ? path : path + strlen(top));
		printf("# %s\n", b.len ? (const char *)b.data : "");
	}
	policy_free(policy);
}

static void resolve(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		cleanup_profile struct profile *p = NULL;
		struct diag d = {0};

		if (make(table[i].cwd, table[i].entries, &d, &p) == 0)
			verdicts(p, table[i].verdicts);
		else
			ok(false, "%s", table[i].entries);
	}
}

/* R44 to R47, R8, R9 and what does not stick (R48 to R50). */
static void settings(void)
{
	cleanup_profile struct profile *ws = NULL, *min = NULL, *full = NULL, *again = NULL;
	struct diag d = {0};

	ok(!make("@/w", WS, &d, &ws) && !make("@/w", "r:min r:proj w:stmp", &d, &min) &&
		   !make("@/w", "w:root r:root", &d, &full) && !make("@/w", WS, &d, &again),
	   "profiles");
	ok(ws->full_read && !ws->full_write && full->full_write && !min->full_read, "what is full");
	eq_str(ws->home, "/home/u", "home where all is readable");
	eq_str(min->home, "/tmp/s", "home where it is not");
	eq_str(min->tmp, "/tmp/s", "temporary files");
	ok(!full->rules.names && ws->rules.names, "nothing is protected where all may be written");
	ok(profile_same(ws, again) && !profile_same(ws, min), "the same and not the same");
}

static void modes(void)
{
	const struct profile_local l = {.cwd = "/w", .session_tmp = "/tmp/s"},
				   fence = {.cwd = "/w",
					    .session_tmp = "/tmp/s",
					    .landlock_only = true};
	cleanup_profile struct profile *ro = NULL, *ws = NULL, *full = NULL, *no = NULL,
				       *yes = NULL;
	struct diag d = {0};

	ok(!profile_from_mode(PROFILE_MODE_READ_ONLY, &l, &d, &ro) &&
		   !profile_from_mode(PROFILE_MODE_WORKSPACE_WRITE, &l, &d, &ws) &&
		   !profile_from_mode(PROFILE_MODE_FULL_ACCESS, &l, &d, &full),
	   "modes: %s", d.text);
	ok(!ro->network && !ws->network && full->network && full->full_write, "network");
	verdicts(ro, "read:/w/a write:/tmp/s/a read:/tmp/a");
	verdicts(ws, "write:/w/a read:/w/.git/x write:/tmp/a read:/etc/x");
	verdicts(full, "write:/w/.git/x write:/etc/x");
	ok(profile_from_mode(PROFILE_MODE_WORKSPACE_WRITE, &fence, &d, &no) == -EINVAL,
	   "90: a local choice of Landlock alone holds: %s", d.text);
	d = (struct diag){0};
	ok(!profile_from_mode(PROFILE_MODE_READ_ONLY, &fence, &d, &yes) && yes->landlock_only,
	   "and a profile that fits it runs");
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	if (!f)
		tap_fatal("%s", path);
	fputs(text, f);
	(void)fclose(f);
}

static void tree(void)
{
	static const char *const dirs[] = {
		"w/docs",          "w/sub",   "w/.git",     "x",       "data/in",
		"u/.ssh",          "real",    "l/d/secret", "l/decoy", "gitfile/.repo/wt",
		"gitodd/.repo/wt", "own/data"};

	(void)snprintf(top, sizeof(top), "/var/tmp/rattan-resolve-XXXXXX");
	if (!mkdtemp(top) || chdir(top) < 0)
		tap_fatal("mkdtemp");
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (io_mkdir_p(dirs[i], 0700) < 0)
			tap_fatal("mkdir");
	if (symlink("real", "link") || symlink("decoy", "l/.codex") || symlink("d", "l/to-d") ||
	    symlink("nowhere", "l/dangling"))
		tap_fatal("links");
	write_file("gitfile/.git", "gitdir: .repo/wt\n");
	write_file("gitodd/.git", "see: .repo/wt\n");
}

int main(void)
{
	tree();
	resolve();
	settings();
	modes();
	if (chdir("/") < 0 || (!fork() && execlp("rm", "rm", "-rf", "--", top, (char *)NULL)))
		return 1;
	return tap_done();
}
