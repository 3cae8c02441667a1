/* What is refused, and how; the numbers are those of the managed-profile cases (tests/e2e/profiles.json). */
#include <string.h>

#include "base/cleanup.h"
#include "profile/profile.h"
#include "tests/lib/tap.h"

#define FS(entries)                                                                                                       \
	"{\"type\":\"managed\",\"network\":\"restricted\",\"file_system\":{\"type\":\"restricted\",\"entries\":[" entries \
	"]}}"
#define META(entries) "{\"permissionProfile\":" FS(entries) ",\"sandboxCwd\":\"/w\"}"
#define ROOT_READ \
	"{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"root\"}},\"access\":\"read\"}"
#define SPECIAL(value, access) \
	"{\"path\":{\"type\":\"special\",\"value\":{" value "}},\"access\":\"" access "\"}"
#define PATH(path, access) \
	"{\"path\":{\"type\":\"path\",\"path\":\"" path "\"},\"access\":\"" access "\"}"
#define GLOB(pattern, access)                                                                    \
	"{\"path\":{\"type\":\"glob_pattern\",\"pattern\":\"" pattern "\"},\"access\":\"" access \
	"\"}"

static const struct {
	const char *what, *text, *says; /* says NULL: it is accepted */
} table[] = {
	{"the plain case", META(ROOT_READ), NULL},
	{"2: a text", "\"read-only\"", "must be an object"},
	{"2: no cwd", "{\"permissionProfile\":" FS(ROOT_READ) "}", "sandboxCwd"},
	{"2: nothing", "{\"sandboxCwd\":\"/w\"}", "neither permissionProfile nor sandboxPolicy"},
	{"3: a query", "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"file:///w?x=1\"}",
	 "sandboxCwd: a file URI may not have a query"},
	{"3: a fragment",
	 "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"file:///w#x\"}",
	 "sandboxCwd: a file URI may not have a query or a fragment"},
	{"3: another host",
	 "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"file://host/w\"}",
	 "sandboxCwd: a file URI must name this host"},
	{"3: a user",
	 "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"file://u@localhost/w\"}",
	 "sandboxCwd: a file URI must name this host"},
	{"3: relative", "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"w\"}",
	 "sandboxCwd: 'w' is not an absolute path"},
	{"3: a NUL", "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"file:///w%00\"}",
	 "sandboxCwd: the URI has a bad % escape"},
	{"3: cut short", "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"file:///w%2\"}",
	 "sandboxCwd: the URI has a bad % escape"},
	{"the host's own name",
	 "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"file://localhost/w\"}", NULL},
	{"..", "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"/w/../x\"}",
	 "sandboxCwd: \"..\" is not allowed"},
	{"5: a relative entry", META(ROOT_READ "," PATH("rel/dir", "write")),
	 "permissionProfile.file_system.entries[1].path.path: 'rel/dir' is not an absolute path"},
	{"6: a glob that writes", META(ROOT_READ "," GLOB("*.c", "write")),
	 "entries[1].path: a pattern can only deny"},
	{"6: a glob that reads", META(ROOT_READ "," GLOB("*.c", "read")),
	 "entries[1].path: a pattern can only deny"},
	{"7: minimal, written", META(SPECIAL("\"kind\":\"minimal\"", "write")),
	 "entries[0].path: the minimal set can be read, not written"},
	{"8: nothing", META(""), "no entry lets anything be read"},
	{"8: only denies", META(PATH("/x", "deny")), "no entry lets anything be read"},
	{"8: only an unknown special", META(SPECIAL("\"kind\":\"moon\"", "read")),
	 "no entry lets anything be read"},
	{"9: an unknown special beside", META(ROOT_READ "," SPECIAL("\"kind\":\"moon\"", "write")),
	 NULL},
	{"10: an unknown special, denied", META(ROOT_READ "," SPECIAL("\"kind\":\"moon\"", "deny")),
	 "entries[1].path.value: 'moon' is not a place that is known here, so it cannot be denied"},
	{"11: both shapes",
	 "{\"sandboxPolicy\":{\"type\":\"danger-full-access\"},\"permissionProfile\":" FS(
		 ROOT_READ) ",\"sandboxCwd\":\"/w\"}",
	 "both given"},
	{"12: none is deny", META(ROOT_READ "," PATH("/x", "none")), NULL},
	{"13: out of the project",
	 META(SPECIAL("\"kind\":\"project_roots\",\"subpath\":\"../x\"", "write")),
	 "entries[0].path.value.subpath: \"..\" is not allowed"},
	{"13: an absolute subpath",
	 META(SPECIAL("\"kind\":\"project_roots\",\"subpath\":\"/x\"", "write")),
	 "entries[0].path.value.subpath: '/x' is not relative to the project"},
	{"14: a symbolic pattern",
	 META(ROOT_READ "," GLOB("codex-project-roots://**/*.env", "deny")), NULL},
	{"49: a lone bracket", META(ROOT_READ "," GLOB("[", "deny")), NULL},
	{"49: braces", META(ROOT_READ "," GLOB("a{b,c}.env", "deny")), NULL},
	{"49: an open brace", META(ROOT_READ "," GLOB("a{b", "deny")), "a{b"},
	{"an empty pattern", META(ROOT_READ "," GLOB("", "deny")), "is empty"},
	{"an unknown access", META(ROOT_READ "," PATH("/x", "exec")),
	 "entries[1].access: must be \"read\", \"write\", \"deny\" or \"none\""},
	{"a key that nobody knows",
	 META("{\"path\":{\"type\":\"path\",\"path\":\"/x\"},\"access\":\"read\","
	      "\"except\":[\"/x/y\"]}"),
	 "entries[0]: 'except' is not known here"},
	{"a key twice",
	 META("{\"path\":{\"type\":\"path\",\"path\":\"/x\"},\"access\":\"read\","
	      "\"access\":\"write\"}"),
	 "entries[0]: 'access' is given twice"},
	{"a path type that nobody knows",
	 META("{\"path\":{\"type\":\"regex\",\"path\":\"/x\"},\"access\":\"read\"}"),
	 "entries[0].path.type: must be"},
	{"no network",
	 "{\"permissionProfile\":{\"type\":\"managed\",\"file_system\":{\"type\":\"unrestricted\"}},"
	 "\"sandboxCwd\":\"/w\"}",
	 "permissionProfile: 'network' is missing"},
	{"an unknown network",
	 "{\"permissionProfile\":{\"type\":\"external\",\"network\":\"some\"},\"sandboxCwd\":\"/w\"}",
	 "permissionProfile.network: must be \"restricted\" or \"enabled\""},
	{"an unknown type", "{\"permissionProfile\":{\"type\":\"trusted\"},\"sandboxCwd\":\"/w\"}",
	 "permissionProfile.type: must be"},
	{"no file_system",
	 "{\"permissionProfile\":{\"type\":\"managed\",\"network\":\"enabled\"},\"sandboxCwd\":\"/w\"}",
	 "permissionProfile: 'file_system' is missing"},
	{"entries that are no list",
	 "{\"permissionProfile\":{\"type\":\"managed\",\"network\":\"enabled\","
	 "\"file_system\":{\"type\":\"restricted\",\"entries\":{}}},\"sandboxCwd\":\"/w\"}",
	 "entries: must be a list"},
	{"disabled", "{\"permissionProfile\":{\"type\":\"disabled\"},\"sandboxCwd\":\"/w\"}", NULL},
	{"external",
	 "{\"permissionProfile\":{\"type\":\"external\",\"network\":\"restricted\"},\"sandboxCwd\":\"/w\"}",
	 NULL},
	{"an old policy",
	 "{\"sandboxPolicy\":{\"type\":\"workspace-write\",\"writable_roots\":[\"/x\"]},\"sandboxCwd\":\"/w\"}",
	 NULL},
	{"an old policy with a relative root",
	 "{\"sandboxPolicy\":{\"type\":\"workspace-write\",\"writable_roots\":[\"x\"]},\"sandboxCwd\":\"/w\"}",
	 "sandboxPolicy.writable_roots[0]: 'x' is not an absolute path"},
	{"an old policy with an unknown key",
	 "{\"sandboxPolicy\":{\"type\":\"read-only\",\"access\":{}},\"sandboxCwd\":\"/w\"}",
	 "sandboxPolicy: 'access' is not known here"},
	{"18: a helper that is no text",
	 "{\"permissionProfile\":" FS(
		 ROOT_READ) ",\"sandboxCwd\":\"/w\",\"codexLinuxSandboxExe\":7}",
	 "codexLinuxSandboxExe: must be a text"},
	{"18: a helper is ignored",
	 "{\"permissionProfile\":" FS(
		 ROOT_READ) ",\"sandboxCwd\":\"/w\",\"codexLinuxSandboxExe\":\"/no/such\"}",
	 NULL},
	{"other tools' keys",
	 "{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCwd\":\"/w\",\"windows\":{}}", NULL},
	{"83: carve-outs under Landlock alone",
	 "{\"permissionProfile\":" FS(ROOT_READ "," SPECIAL(
		 "\"kind\":\"project_roots\"",
		 "write")) ",\"sandboxCwd\":\"/w\",\"useLegacyLandlock\":true}",
	 "Landlock alone was asked for, and cannot protect"},
	{"85: restricted reads under Landlock alone",
	 "{\"permissionProfile\":" FS(
		 SPECIAL("\"kind\":\"minimal\"",
			 "read")) ",\"sandboxCwd\":\"/w\",\"useLegacyLandlock\":true}",
	 "Landlock alone was asked for, and cannot hold a profile in which not everything may be read"},
	{"86: read-only under Landlock alone",
	 "{\"permissionProfile\":" FS(
		 ROOT_READ) ",\"sandboxCwd\":\"/w\",\"useLegacyLandlock\":true}",
	 NULL},
	{"86: everything under Landlock alone",
	 "{\"permissionProfile\":{\"type\":\"managed\",\"network\":\"restricted\","
	 "\"file_system\":{\"type\":\"unrestricted\"}},\"sandboxCwd\":\"/w\",\"useLegacyLandlock\":true}",
	 NULL},
	{"rattan's own data", META(ROOT_READ "," PATH("/var/rattan/data/x", "read")),
	 "rattan's own data"},
	{"a deny of what is private", META(ROOT_READ "," PATH("/proc/kcore", "deny")),
	 "is the sandbox's own"},
};

static const char *const closed[] = {"/var/rattan", NULL};
static const struct profile_local local = {.session_tmp = "/tmp/s", .closed = closed};

static void refusals(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		cleanup_profile struct profile *p = NULL;
		cJSON *o = cJSON_Parse(table[i].text);
		struct diag d = {0};
		int r = profile_from_meta(o, &local, &d, &p);

		ok(table[i].says ? r == -EINVAL && strstr(d.text, table[i].says) : r == 0, "%s",
		   table[i].what);
		printf("# %d: %s\n", r, d.text);
		cJSON_Delete(o);
	}
}

static void absent(void)
{
	cleanup_profile struct profile *p = NULL;
	struct diag d = {0};

	ok(profile_from_meta(NULL, &local, &d, &p) == -EINVAL && strstr(d.text, PROFILE_META_KEY),
	   "1: no object");
}

static int text(const char *s, struct diag *d)
{
	cleanup_profile struct profile *p = NULL;

	*d = (struct diag){0};
	return profile_from_text(s, strlen(s), "file", &local, d, &p);
}

static void files(void)
{
	struct diag d;

	eq_int(text("{\"codex/sandbox-state-meta\":" META(ROOT_READ) "}", &d), 0, "wrapped");
	eq_int(text(META(ROOT_READ) " \n", &d), 0, "bare");
	eq_int(text("{\"name\":\"x\",\"family\":\"managed\",\"permissionProfile\":" FS(
			    ROOT_READ) "}",
		    &d),
	       0, "a read-only file needs no cwd: %s", d.text);
	eq_int(text(META(ROOT_READ) " x", &d), -EINVAL, "%s", d.text);
	eq_int(text("{", &d), -EINVAL, "%s", d.text);
	eq_int(text("[]", &d), -EINVAL, "%s", d.text);
	eq_int(text("{\"permissionProfile\":" FS(PATH("/a\\u0000b", "read")) "}", &d), -EINVAL,
	       "%s", d.text);
	eq_int(text("{\"permissionProfile\":" FS(PATH("/a\\\\u0000b", "read")) "}", &d), 0,
	       "a backslash of the name's own");
	eq_int(text("{\"permissionProfil\":" FS(ROOT_READ) "}", &d), -EINVAL, "%s", d.text);
	eq_int(text("{\"permissionProfile\":" FS(ROOT_READ) ",\"sandboxCWD\":\"/x\"}", &d), -EINVAL,
	       "%s", d.text);
	eq_int(text("{\"family\":\"agent\",\"permissionProfile\":" FS(ROOT_READ
								      "," GLOB("*.c", "deny")) "}",
		    &d),
	       -EINVAL, "%s", d.text);
	eq_int(text("{\"family\":\"agent\",\"permissionProfile\":" FS(
			    ROOT_READ "," PATH("/workspace", "write")) "}",
		    &d),
	       0, "an agent's");
	eq_int(text("{\"permissionProfile\":" FS(SPECIAL("\"kind\":\"project_roots\"", "read")) "}",
		    &d),
	       -EINVAL, "%s", d.text);
}

int main(void)
{
	refusals();
	absent();
	files();
	return tap_done();
}
