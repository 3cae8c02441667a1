/* Options, names of environments, and which host directories may be opened. */
#include "cli/cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/tap.h"

static const struct cli_command cmd = {"test", "", "a test", "", NULL};

struct got {
	bool flag;
	const char *text;
	struct cli_list list;
	char **rest;
	int n;
};

/* @line: words split at blanks. */
static int parse(const char *line, bool early, struct got *g)
{
	static char copy[256];
	static char *argv[20];
	const struct cli_opt opts[] = {
		{"flag", 'f', CLI_FLAG, &g->flag, NULL, ""},
		{"text", 't', CLI_TEXT, &g->text, "T", ""},
		{"overlay", 0, CLI_LIST, &g->list, "L", ""},
		{"overlay-cwd", 0, CLI_FLAG, &g->flag, NULL, ""},
		{0},
	};
	int argc = 1;
	char *save = NULL;

	*g = (struct got){0};
	argv[0] = strcpy(copy, "test");
	(void)snprintf(copy + 8, sizeof(copy) - 8, "%s", line);
	for (char *s = strtok_r(copy + 8, " ", &save); s && argc < 19;
	     s = strtok_r(NULL, " ", &save))
		argv[argc++] = s;
	argv[argc] = NULL;
	return cli_parse(&cmd, opts, argc, argv, early, &g->rest, &g->n);
}

static void options(void)
{
	struct got g;

	eq_int(parse("a --flag b -t x c", false, &g), -1, "mixed");
	ok(g.flag && !strcmp(g.text, "x") && g.n == 3 && !strcmp(g.rest[2], "c"), "are sorted out");
	eq_int(parse("-f cmd -f --text", true, &g), -1, "stop early");
	ok(g.n == 3 && !strcmp(g.rest[1], "-f") && !strcmp(g.rest[2], "--text"),
	   "the command's options are its own");
	eq_int(parse("--text=x=y -- -f", false, &g), -1, "=");
	ok(!strcmp(g.text, "x=y") && g.n == 1 && !g.flag, "and --");
	eq_int(parse("--overlay a --overlay=b", false, &g), -1, "lists");
	ok(g.list.n == 2 && !strcmp(g.list.v[1], "b") && !g.list.v[2], "grow");
	cli_list_release(&g.list);
	eq_int(parse("-tx", false, &g), -1, "glued");
	eq_str(g.text, "x", "value");
	eq_int(parse("--overlaycwd", false, &g), CLI_USAGE, "unknown");
	eq_int(parse("--over x", false, &g), CLI_USAGE, "no abbreviations");
	eq_int(parse("--text", false, &g), CLI_USAGE, "no value");
	eq_int(parse("--flag=1", false, &g), CLI_USAGE, "a value too many");
	eq_int(parse("-x", false, &g), CLI_USAGE, "unknown letter");
}

static void nearest(void)
{
	static const char *const names[] = {"commit", "run", "rollback", NULL};

	eq_str(cli_nearest("comit", names), "commit", "a slip");
	eq_str(cli_nearest("rn", names), "run", "a short one");
	ok(!cli_nearest("frobnicate", names) && !cli_nearest("frob", names), "nothing near");
}

static void names(void)
{
	char a[CLI_ENV_MAX], b[CLI_ENV_MAX];

	cli_env_name("/home/u/project", false, a);
	cli_env_name("/home/v/project", false, b);
	ok(!strncmp(a, "project-", 8) && strlen(a) == 16, "name and digest");
	ok(strcmp(a, b) != 0, "another path, another name");
	cli_env_name("/home/u/project", true, b);
	ok(strcmp(a, b) != 0, "written through is another environment");
	cli_env_name("/x/.my dir/été!", true, a);
	ok(strspn(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
			   strlen(a) &&
		   a[0] != '.' && a[0] != '-',
	   "only safe characters: %s", a);
	cli_env_name("/", false, a);
	ok(!strncmp(a, "root-", 5), "the root");
}

static char top[PATH_MAX];

static bool refused(enum cli_dir_kind kind, const char *spec, const char *why)
{
	cleanup_dirs struct cli_dirs d = {0};
	struct diag diag = {0};
	int r = cli_dirs_add(&d, kind, spec, &diag);

	if (r != -EINVAL || !strstr(diag.text, why))
		printf("# %s: r %d, '%s'\n", spec, r, diag.text);
	return r == -EINVAL && strstr(diag.text, why);
}

static const char *spec(const char *below, const char *mount)
{
	static char s[PATH_MAX + 64];

	(void)snprintf(s, sizeof(s), "%s%s=%s", top, below, mount);
	return s;
}

static int both(const char *bind, const char *overlay)
{
	struct cli_dir b = {.dir = {-1, (char[]){"/h"}}, .mount = (char *)(uintptr_t)bind},
		       o = {.dir = {-1, (char[]){"/p"}}, .mount = (char *)(uintptr_t)overlay};
	const struct cli_dirs binds = {&b, 1, NULL}, overlays = {&o, 1, NULL};
	struct diag diag = {0};

	return cli_dirs_check(&binds, &overlays, &diag);
}

static void together(void)
{
	eq_int(both("/workspace", "/workspace"), -EINVAL, "one place, two ways");
	eq_int(both("/data", "/data/x"), -EINVAL, "a bind that hides an overlay");
	eq_int(both("/workspace/out", "/workspace"), 0, "a bind within an overlay");
	eq_int(both("/data", "/workspace"), 0, "side by side");
	eq_int(both("/data", "/datax"), 0, "a longer name");
}

static void directories(void)
{
	cleanup_dirs struct cli_dirs d = {0};
	struct diag diag = {0};

	ok(refused(CLI_BIND, "/=/workspace", "/ is not opened"), "/");
	ok(refused(CLI_OVERLAY, "/etc=/workspace", "system directory"), "/etc");
	ok(refused(CLI_BIND, "/usr/share=/workspace", "system directory"), "below /usr");
	ok(refused(CLI_BIND, "/tmp=/workspace", "system directory"), "/tmp itself");
	ok(refused(CLI_BIND, spec("/home", "/workspace"), "home directory"), "home");
	ok(refused(CLI_OVERLAY, spec("/home", "/workspace"), "home directory"), "home, overlaid");
	ok(refused(CLI_BIND, spec("", "/workspace"), "home directory"), "above home");
	ok(refused(CLI_OVERLAY, spec("/home/p", "/home"), "below /home"), "over all homes");
	ok(refused(CLI_BIND, spec("/home/.ssh", "/workspace"), "hidden"), "a hidden tree");
	ok(refused(CLI_BIND, spec("/home/.ssh/deep", "/workspace"), "hidden"), "below one");
	ok(refused(CLI_BIND, spec("/other", "/workspace"), "outside your home"), "not below home");
	ok(refused(CLI_OVERLAY, spec("/other", "/workspace"), "outside your home"),
	   "nor copy-on-write");
	ok(refused(CLI_OVERLAY, spec("/home/.ssh", "/workspace"), "hidden"),
	   "a hidden tree, copy-on-write");
	ok(refused(CLI_BIND, spec("/home/p/.env.d/x", "/workspace"), "hidden"),
	   "hidden at any depth");
	ok(refused(CLI_BIND, spec("/home/p/out", "/workspace"), "outside your home"),
	   "a link out of home");
	ok(refused(CLI_BIND, spec("/data/rattan", "/workspace"), "rattan's own data"),
	   "the data directory");
	ok(refused(CLI_BIND, spec("/data", "/workspace"), "rattan's own data"),
	   "an ancestor of it");
	ok(refused(CLI_BIND, spec("/data/rattan/x", "/workspace"), "rattan's own data"),
	   "a part of it");
	ok(refused(CLI_BIND, spec("/link", "/workspace"), "home directory"), "a link to home");
	ok(refused(CLI_BIND, spec("/missing", "/workspace"), "make it first"), "missing");
	ok(refused(CLI_BIND, spec("/file", "/workspace"), "not a directory"), "a file");
	ok(refused(CLI_BIND, spec("/home/p", "/usr"), "must be at or below"), "over /usr");
	ok(refused(CLI_BIND, spec("/home/p", "/workspace/../usr"), "must not contain .."),
	   "around it");
	ok(refused(CLI_BIND, spec("/home/p", "/workspacex"), "must be at or below"),
	   "a longer name");
	ok(refused(CLI_BIND, "x", "is not HOST=MOUNT"), "no mount point");
	ok(refused(CLI_BIND_RO, spec("/home/p", "/workspace:rw"), "read-only"), "contradiction");
	ok(!cli_dirs_add(&d, CLI_BIND, spec("/home/p", "/workspace/p:ro"), &diag) && !d.v[0].rw &&
		   !strcmp(d.v[0].mount, "/workspace/p"),
	   "a project, read-only");
	ok(!cli_dirs_add(&d, CLI_BIND, spec("/home/a=b", "/mnt"), &diag) && d.v[1].rw &&
		   !strcmp(strrchr(d.v[1].dir.path, '/'), "/a=b"),
	   "= in a name");
	ok(!chdir(top) && !chdir("home/p") && !cli_dirs_add_cwd(&d, CLI_OVERLAY, &diag),
	   "the cwd in the home");
	ok(!chdir("../.ssh") && cli_dirs_add_cwd(&d, CLI_OVERLAY, &diag) == -EINVAL &&
		   strstr(diag.text, "hidden"),
	   "not a hidden one: %s", diag.text);
	diag.text[0] = 0;
	ok(!chdir("../../other") && cli_dirs_add_cwd(&d, CLI_BIND, &diag) == -EINVAL &&
		   strstr(diag.text, "outside your home"),
	   "nor one outside: %s", diag.text);
	ok(!chdir("../home") && cli_dirs_add_cwd(&d, CLI_OVERLAY, &diag) == -EINVAL,
	   "home as cwd is not");
}

/* What the settings list. */
static void listed(void)
{
	cleanup_dirs struct cli_dirs d = {0};
	char root[PATH_MAX + 16], home[PATH_MAX + 16];
	const char *roots[] = {root, "/usr", home, NULL};
	struct diag diag = {0};

	(void)snprintf(root, sizeof(root), "%s/other", top);
	(void)snprintf(home, sizeof(home), "%s", top);
	d.roots = roots;
	eq_int(cli_dirs_add(&d, CLI_BIND, spec("/other/deep", "/mnt/a"), &diag), 0,
	       "below a listed root: %s", diag.text);
	eq_int(cli_dirs_add(&d, CLI_BIND, spec("/other", "/mnt/b"), &diag), 0, "the root itself");
	eq_int(cli_dirs_add(&d, CLI_BIND, spec("/other/.hid/x", "/mnt/c"), &diag), -EINVAL,
	       "not what is hidden there");
	eq_int(cli_dirs_add(&d, CLI_BIND, "/usr/share=/mnt/d", &diag), -EINVAL,
	       "a system directory stays one");
	eq_int(cli_dirs_add(&d, CLI_BIND, spec("/home", "/mnt/e"), &diag), -EINVAL,
	       "and home stays closed as a whole");
}

static struct cli_config config;

static int load(const char *text, mode_t mode, struct diag *diag)
{
	char path[PATH_MAX + 64];
	FILE *f;
	int r;

	(void)snprintf(path, sizeof(path), "%s/conf/rattan/config.json", top);
	f = fopen(path, "we");
	if (!f)
		tap_fatal("%s", path);
	fputs(text, f);
	(void)fclose(f);
	(void)chmod(path, mode);
	cli_config_release(&config);
	*diag = (struct diag){0};
	r = cli_config_load(diag, &config);
	printf("# %s\n", diag->text);
	return r;
}

static void settings(void)
{
	struct diag d;

	eq_int(load("{\"bind_roots\":[\"/srv/x/\"],\"runtime\":[\"/opt/r\"],"
		    "\"landlock_only\":true}",
		    0600, &d),
	       0, "all keys");
	ok(config.bind_roots && !strcmp(config.bind_roots[0], "/srv/x") && !config.bind_roots[1],
	   "a path is cleaned");
	ok(config.runtime && config.landlock_only, "the others");
	eq_int(load("{\"bind_root\":[]}", 0600, &d), -EINVAL, "an unknown key");
	ok(strstr(d.text, "bind_root") && strstr(d.text, "config.json"), "is named with its file");
	eq_int(load("{\"bind_roots\":[\"rel\"]}", 0600, &d), -EINVAL, "a relative path");
	ok(strstr(d.text, "bind_roots[0]") != NULL, "is named");
	eq_int(load("{\"bind_roots\":[\"/\"]}", 0600, &d), -EINVAL, "/ is too much");
	eq_int(load("{\"bind_roots\":\"/srv\"}", 0600, &d), -EINVAL, "no list");
	eq_int(load("{", 0600, &d), -EINVAL, "not JSON");
	eq_int(load("{}", 0622, &d), -EINVAL, "others could write it");
	eq_int(load("{}", 0644, &d), 0, "others can read it");
	cli_config_release(&config);
}

static void tree(void)
{
	static const char *const dirs[] = {
		"home",     "home/.ssh",   "home/.ssh/deep", "home/p",
		"home/a=b", "data",        "home/p/.env.d",  "home/p/.env.d/x",
		"other",    "other/deep",  "other/.hid",     "other/.hid/x",
		"conf",     "conf/rattan", "data/rattan",    "data/rattan/x",
		"run"};
	char path[PATH_MAX + 16];

	(void)snprintf(top, sizeof(top), "/var/tmp/rattan-cli-XXXXXX");
	if (!mkdtemp(top) || chdir(top) < 0)
		tap_fatal("mkdtemp");
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdir(dirs[i], 0700) < 0)
			tap_fatal("mkdir");
	if (symlink("home", "link") < 0 || symlink("../../other", "home/p/out") < 0 ||
	    mknod("file", S_IFREG | 0600, 0) < 0)
		tap_fatal("tree");
	(void)snprintf(path, sizeof(path), "%s/home", top);
	(void)setenv("HOME", path, 1);
	(void)unsetenv("RATTAN_DATA_DIR");
	(void)snprintf(path, sizeof(path), "%s/conf", top);
	(void)setenv("XDG_CONFIG_HOME", path, 1);
	(void)snprintf(path, sizeof(path), "%s/data", top);
	(void)setenv("XDG_DATA_HOME", path, 1);
	(void)snprintf(path, sizeof(path), "%s/run", top);
	(void)setenv("XDG_RUNTIME_DIR", path, 1);
}

int main(void)
{
	options();
	nearest();
	names();
	tree();
	directories();
	listed();
	settings();
	together();
	if (chdir("/") < 0 || (!fork() && execlp("rm", "rm", "-rf", "--", top, (char *)NULL)))
		return 1;
	return tap_done();
}
