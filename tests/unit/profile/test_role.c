/* The role session as it ships: every bind with its reason, in the order in which they are mounted. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "profile/profile.h"
#include "profile/role.h"
#include "tests/lib/tap.h"

static char top[PATH_MAX];
static const struct profile_local local = {.cwd = "/"};

static struct profile *load(const char *dir, const char *name)
{
	cleanup_buf struct buf b = {0};
	char path[PATH_MAX];
	struct profile *p = NULL;
	struct diag d = {0};

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (io_read_file(AT_FDCWD, path, PROFILE_TEXT_MAX, &b) < 0)
		tap_fatal("%s", path);
	ok(!profile_from_text((const char *)b.data, b.len, name, &local, &d, &p), "%s is read: %s",
	   name, d.text);
	return p;
}

static char values_text[8][PATH_MAX + 32];
static struct role_value values[8];

/* The usual parameters, below the tree. */
static size_t usual(void)
{
	static const char *const names[][2] = {
		{"run", "/run"},          {"workspace", "/ws"},         {"repo", "/repo"},
		{"node", "/bin/node"},    {"adapter", "/repo/adapter"}, {"harness", NULL},
		{"broker_socket", "/bus"}};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (names[i][1])
			(void)snprintf(values_text[i], sizeof(values_text[i]), "%s%s", top,
				       names[i][1]);
		else
			(void)snprintf(values_text[i], sizeof(values_text[i]), "pi");
		values[i] = (struct role_value){names[i][0], values_text[i]};
	}
	return ARRAY_SIZE(names);
}

static const struct role_mount *find(const struct role_plan *p, const char *dest, const char *below)
{
	char path[PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s%s", below ? below : "", dest);
	for (size_t i = 0; i < p->n; i++)
		if (!strcmp(p->mounts[i].dest, path))
			return &p->mounts[i];
	return NULL;
}

static void as_it_ships(const struct role *role)
{
	struct role_plan p = {0};
	struct diag d = {0};
	const struct role_mount *run, *bundle, *session, *tmp, *m;
	size_t n = usual();

	eq_int(role_plan(role, values, n, &d, &p), 0, "plan: %s", d.text);
	run = find(&p, "/run", top);
	bundle = find(&p, "/run/bundle", top);
	session = find(&p, "/run/session.json", top);
	tmp = find(&p, "/tmp", NULL);
	ok(run && bundle && session && tmp, "the run directory's binds");
	ok(run < bundle && run < session && run->kind == ROLE_RW && bundle->kind == ROLE_RO,
	   "what must not change is mounted after what may");
	ok(tmp->kind == ROLE_RW && tmp == &p.mounts[p.n - 1], "/tmp last");
	m = find(&p, "/bin", NULL);
	ok(m && m->kind == ROLE_LINK && !strcmp(m->source, "usr/bin"), "the host's link is one");
	m = find(&p, "/bin/node", top);
	ok(m && strstr(m->source, "/bin/real-node"),
	   "a real binary at the name that is configured");
	ok(find(&p, "/repo/node_modules", top), "packages, for pi");
	ok(!find(&p, "/launch", top), "no launch socket without the parameter");
	ok(!strcmp(p.cwd, run->dest) && strstr(p.env[0], "/run/home") &&
		   !strcmp(p.env[1], "TMPDIR=/tmp") && p.make[1] && !p.make[2],
	   "cwd, variables, directories");
	for (size_t i = 0; i < p.n; i++)
		if (!p.mounts[i].why || strlen(p.mounts[i].why) < 5)
			ok(false, "%s has no reason", p.mounts[i].dest);
	role_plan_release(&p);
	(void)snprintf(values_text[5], sizeof(values_text[5]), "claude-code");
	(void)snprintf(values_text[7], sizeof(values_text[7]), "%s/bus", top);
	values[7] = (struct role_value){"launch_socket", values_text[7]};
	eq_int(role_plan(role, values, 8, &d, &p), 0, "another harness, one that may launch: %s",
	       d.text);
	ok(!find(&p, "/repo/node_modules", top), "no packages");
	role_plan_release(&p);
}

static int plan_with(const struct role *role, size_t i, const char *value, struct diag *d)
{
	struct role_plan p = {0};
	size_t n = usual();
	int r;

	if (value)
		values[i].value = value;
	else
		values[i].name = "workspace";
	*d = (struct diag){0};
	r = role_plan(role, values, n, d, &p);
	role_plan_release(&p);
	return r;
}

static void parameters(const struct role *role)
{
	struct diag d;

	eq_int(plan_with(role, 0, "rel", &d), -EINVAL, "%s", d.text);
	eq_int(plan_with(role, 0, "/a/../b", &d), -EINVAL, "%s", d.text);
	eq_int(plan_with(role, 0, "/", &d), -EINVAL, "%s", d.text);
	eq_int(plan_with(role, 0, "/a//b", &d), -EINVAL, "%s", d.text);
	eq_int(plan_with(role, 5, "emacs", &d), -EINVAL, "%s", d.text);
	eq_int(plan_with(role, 0, NULL, &d), -EINVAL, "%s", d.text);
	eq_int(plan_with(role, 1, "/no/such/dir", &d), -EINVAL, "%s", d.text);
	values[0].name = "rum";
	eq_int(role_plan(role, values, 1, &d, &(struct role_plan){0}), -EINVAL, "%s", d.text);
}

static int refused(const char *binds, struct diag *d)
{
	char text[1024];
	struct profile *p = NULL;
	int r;

	(void)snprintf(
		text, sizeof(text),
		"{\"family\":\"role\",\"name\":\"x\",\"cwd\":\"/\",\"parameters\":{\"a\":{}},\"binds\":[%s]}",
		binds);
	*d = (struct diag){0};
	r = profile_from_text(text, strlen(text), "x", &local, d, &p);
	profile_free(p);
	return r;
}

static void shapes(void)
{
	struct diag d;

	eq_int(refused("{\"kind\":\"ro\",\"source\":\"/usr\",\"why\":\"w\"}", &d), 0, "a bind");
	eq_int(refused("{\"kind\":\"ro\",\"source\":\"/usr\"}", &d), -EINVAL, "K2: %s", d.text);
	eq_int(refused("{\"kind\":\"rx\",\"source\":\"/usr\",\"why\":\"w\"}", &d), -EINVAL, "%s",
	       d.text);
	eq_int(refused("{\"kind\":\"ro\",\"why\":\"w\"}", &d), -EINVAL, "%s", d.text);
	eq_int(refused("{\"kind\":\"dev\",\"source\":\"/dev\",\"why\":\"w\"}", &d), -EINVAL, "%s",
	       d.text);
	eq_int(refused("{\"kind\":\"ro\",\"source\":\"{b}/x\",\"why\":\"w\"}", &d), -EINVAL, "%s",
	       d.text);
	eq_int(refused("{\"kind\":\"ro\",\"source\":\"{a\",\"why\":\"w\"}", &d), -EINVAL, "%s",
	       d.text);
	eq_int(refused("{\"kind\":\"rw\",\"source\":\"{a}\",\"real\":true,\"why\":\"w\"}", &d),
	       -EINVAL, "%s", d.text);
	eq_int(refused("{\"kind\":\"ro\",\"source\":\"/usr\",\"why\":\"w\",\"if\":{\"b\":\"1\"}}",
		       &d),
	       -EINVAL, "%s", d.text);
}

static void tree(void)
{
	static const char *const dirs[] = {"run/bundle",
					   "run/home",
					   "run/tmp",
					   "ws",
					   "bin",
					   "repo/node_modules",
					   "repo/packages/harness/src",
					   "repo/packages/bus/src",
					   "repo/packages/business/src"};
	static const char *const files[] = {"run/session.json",
					    "bin/real-node",
					    "bus",
					    "repo/adapter",
					    "repo/packages/harness/src/runner.mjs",
					    "repo/packages/harness/src/bundle.mjs",
					    "repo/packages/harness/src/gate.mjs",
					    "repo/packages/harness/src/tools.mjs",
					    "repo/packages/harness/src/claude-gate.mjs",
					    "repo/packages/harness/src/mcp-server.mjs",
					    "repo/packages/harness/src/pi-extension.mjs",
					    "repo/packages/bus/src/client.mjs",
					    "repo/packages/bus/src/broker.mjs",
					    "repo/packages/business/src/vocabulary.mjs"};

	(void)snprintf(top, sizeof(top), "/var/tmp/rattan-role-XXXXXX");
	if (!mkdtemp(top) || chdir(top) < 0)
		tap_fatal("mkdtemp");
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (io_mkdir_p(dirs[i], 0700) < 0)
			tap_fatal("mkdir");
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (mknod(files[i], S_IFREG | 0600, 0) < 0)
			tap_fatal("%s", files[i]);
	if (symlink("real-node", "bin/node") < 0)
		tap_fatal("link");
}

int main(int argc, char **argv)
{
	cleanup_profile struct profile *role = NULL, *agent = NULL, *ws = NULL;
	cleanup_buf struct buf b = {0};

	if (argc < 2)
		tap_fatal("the directory of profiles is needed");
	tree();
	role = load(argv[1], "role-session.json");
	agent = load(argv[1], "agent.json");
	ws = load(argv[1], "workspace.json");
	if (role && role->role) {
		as_it_ships(role->role);
		parameters(role->role);
	}
	shapes();
	ok(!profile_explain(role, &b) && strstr((const char *)b.data, "{run}/bundle  # "),
	   "explained");
	ok(agent && agent->rules.n == 5 && ws && ws->rules.n >= 3, "the others");
	if (chdir("/") < 0 || (!fork() && execlp("rm", "rm", "-rf", "--", top, (char *)NULL)))
		return 1;
	return tap_done();
}
