/* apt_install: packages of a Debian base, from the mirrors that the base itself names. */
#include "mcp/tools.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/provision.h"
#include "mcp/session.h"

#define PACKAGES_MAX 100
#define TAIL         4096

/* ---- what may be reached ---- */

/* @uri: SCHEME://[USER[:PASSWORD]@]HOST[:PORT]/..., of which http and https, also within mirror+http and the like, can be reached. */
static int host_of(const char *uri, struct net_rules *net)
{
	const char *at = strstr(uri, "://"), *end, *user;
	char *host;
	int r;

	if (!at || !((at - uri >= 4 && !strncmp(at - 4, "http", 4)) ||
		     (at - uri >= 5 && !strncmp(at - 5, "https", 5))))
		return 0;
	at += 3;
	end = at + strcspn(at, "/?#");
	user = memrchr(at, '@', (size_t)(end - at));
	at = user ? user + 1 : at;
	host = strndup(at, strcspn(at, ":/?#"));
	/* What is no name of a host allows nothing. */
	r = !host ? -ENOMEM : net_allow(net, host, NULL);
	free(host);
	return r == -ENOMEM ? r : 0;
}

/* The hosts of all words of @text, which is changed. */
static int hosts_in(char *text, struct net_rules *net)
{
	char *word, *at = text;
	int r = 0;

	while (r == 0 && (word = strsep(&at, " \t")))
		r = host_of(word, net);
	return r;
}

/* A ".list": a line "deb [OPTIONS] URI SUITE...", or deb-src; a "#" and what is behind it is a comment. */
static int hosts_of_list(char *text, struct net_rules *net)
{
	char *line, *at = text;
	int r = 0;

	while (r == 0 && (line = strsep(&at, "\n"))) {
		size_t n;

		line[strcspn(line, "#\r")] = 0;
		line += strspn(line, " \t");
		n = strcspn(line, " \t[");
		if ((n == 3 && !strncmp(line, "deb", 3)) ||
		    (n == 7 && !strncmp(line, "deb-src", 7)))
			r = hosts_in(line + n, net);
	}
	return r;
}

/* The value of the field @name when @line begins it. */
static char *field(char *line, const char *name)
{
	size_t n = strlen(name);

	return strncasecmp(line, name, n) == 0 && line[n] == ':' ? line + n + 1 : NULL;
}

static bool says_no(const char *value)
{
	static const char *const no[] = {"no", "false", "without", "off", "disable", "0"};

	value += strspn(value, " \t");
	for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
		size_t n = strlen(no[i]);

		if (strncasecmp(value, no[i], n) == 0 && !value[n + strspn(value + n, " \t\r")])
			return true;
	}
	return false;
}

/* One paragraph of a ".sources", up to an empty line; *at is behind it. */
static int hosts_of_paragraph(char **at, struct net_rules *net)
{
	char *lines[64], *line;
	bool on = true, uris = false;
	size_t n = 0;
	int r = 0;

	while ((line = strsep(at, "\n")) && line[strspn(line, " \t\r")]) {
		char *value;

		if (line[0] == '#')
			continue;
		if (line[0] != ' ' && line[0] != '\t') {
			value = field(line, "Enabled");
			on = on && !(value && says_no(value));
			value = field(line, "URIs");
			uris = value;
			line = value;
		}
		if (uris && n < ARRAY_SIZE(lines)) {
			line[strcspn(line, "\r")] = 0;
			lines[n++] = line;
		}
	}
	for (size_t i = 0; on && r == 0 && i < n; i++)
		r = hosts_in(lines[i], net);
	return r;
}

/* apt reads these two kinds of file, and no others. */
static int hosts_of(const char *path, char *text, struct net_rules *net)
{
	const char *dot = strrchr(path, '.');
	int r = 0;

	if (dot && !strcmp(dot, ".list"))
		return hosts_of_list(text, net);
	while (r == 0 && text && dot && !strcmp(dot, ".sources"))
		r = hosts_of_paragraph(&text, net);
	return r;
}

static int add_file(struct ctl *ctl, const char *path, struct net_rules *net)
{
	cleanup_buf struct buf b = {0};
	int r = provision_base_file(ctl, path, &b);

	return r > 0 ? hosts_of(path, (char *)b.data, net) : r;
}

struct names {
	char *v[64];
	size_t n;
};

static int see_name(void *arg, const struct ctl_file *f)
{
	struct names *l = arg;

	if (l->n == ARRAY_SIZE(l->v))
		return 0;
	l->v[l->n] = strdup(f->path);
	return l->v[l->n++] ? 0 : -ENOMEM;
}

/* As the base has them: what was changed since, by packages or scripts, opens no other host. */
static int mirrors(struct tool_call *call, struct client *c, struct net_rules *net)
{
	const struct mcp_serve_opts *o = session_opts(tool_session(call));
	struct names l = {0};
	struct ctl *ctl;
	int r = client_ctl_get(c, NULL, &ctl);

	if (r < 0)
		return r;
	if (o->net_rules)
		r = net_rules_join(net, o->net_rules);
	if (r == 0)
		r = add_file(ctl, "/etc/apt/sources.list", net);
	if (r == 0)
		r = ctl_ls(ctl, "base", "/etc/apt/sources.list.d", false, NULL, see_name, &l);
	if (r == -ENOENT || r == -ENOTDIR)
		r = 0;
	for (size_t i = 0; i < l.n; i++) {
		if (r == 0)
			r = add_file(ctl, l.v[i], net);
		free(l.v[i]);
	}
	client_ctl_put(c, ctl, r < 0);
	return r;
}

/* ---- the command ---- */

/* NAME, NAME:ARCH, and either with =VERSION: no option, no path, no suite, no removal. */
static bool package_ok(const char *s)
{
	static const char name[] = "abcdefghijklmnopqrstuvwxyz0123456789+.-";
	static const char version[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.:~-";
	size_t n = strspn(s, name);

	/* apt takes a sign at the end for "remove" and "install": g++ alone is a name. */
	if (n < 2 || n > 100 || s[0] == '-' || s[0] == '+' || s[0] == '.' || s[n - 1] == '-')
		return false;
	s += n;
	if (*s == ':') {
		n = strspn(s + 1, "abcdefghijklmnopqrstuvwxyz0123456789");
		if (!n)
			return false;
		s += 1 + n;
	}
	if (*s == '=') {
		n = strspn(s + 1, version);
		if (!n || s[n] == '-' || s[n] == '+')
			return false;
		s += 1 + n;
	}
	return !*s;
}

static int install(struct tool_call *call, struct client *c, const char **packages, bool refresh,
		   double timeout, struct tool_result *out)
{
	/* apt would become somebody else to fetch, which here is only said; and it asks nobody. */
	static const char script[] =
		"o='-q -y -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 -o DPkg::Options::=--force-confdef "
		"-o DPkg::Options::=--force-confold -o Acquire::Retries=2'\n"
		"if [ \"$1\" = yes ]; then apt-get $o -o APT::Update::Error-Mode=any update || exit; fi\n"
		"shift\n"
		"exec apt-get $o install -- \"$@\"\n";
	cleanup_net_rules struct net_rules net = {0};
	struct provision p = {.name = "apt-get", .net = &net, .timeout = timeout, .tail = TAIL};
	cleanup_free const char **argv = NULL;
	size_t n = 0;
	int r = mirrors(call, c, &net);

	if (r < 0)
		return r == -ENOMEM
			       ? r
			       : tool_error(out, "the base's list of mirrors cannot be read: %s",
					    err_text(r));
	while (packages[n])
		n++;
	argv = calloc(n + 6, sizeof(*argv));
	if (!argv)
		return -ENOMEM;
	argv[0] = "/bin/sh";
	argv[1] = "-c";
	argv[2] = script;
	argv[3] = "apt_install";
	argv[4] = refresh ? "yes" : "no";
	memcpy((void *)(argv + 5), packages, n * sizeof(*argv));
	p.argv = argv;
	return provision_run(call, c, &p, out);
}

static int run_apt(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_free const char **packages = NULL;
	struct client *c;
	bool refresh = true;
	double timeout = 300;
	int r;

	if (arg_bool(args, ARG("refresh"), out, &refresh) < 0 ||
	    arg_num(args, ARG("timeout"), 1, 3600, out, &timeout) < 0)
		return 0;
	r = provision_words(args, "packages", PACKAGES_MAX, package_ok,
			    "names of Debian packages, as 'git' or 'git=1:2.39.5-0'", out,
			    &packages);
	if (r <= 0)
		return r;
	c = tool_client(call, args, out);
	if (!c)
		return 0;
	r = install(call, c, packages, refresh, timeout, out);
	return r < 0 ? r : 0;
}

const struct mcp_tool tool_apt_install = {
	.name = "apt_install",
	.title = "Install Debian packages",
	.description =
		"Install packages with apt, as root of the environment, from the base's own mirrors; "
		"commands have no network for it. All or nothing; env_rollback undoes it.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"packages\"],"
		"\"properties\":{"
		"\"packages\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
		"\"description\":\"Names, or NAME=VERSION\"},"
		"\"refresh\":{\"type\":\"boolean\",\"default\":true,"
		"\"description\":\"Update the lists first\"},"
		"\"timeout\":{\"type\":\"number\",\"minimum\":1,\"maximum\":3600,\"default\":300,"
		"\"description\":\"Seconds\"},"
		"\"environment\":{\"type\":\"string\",\"description\":\"Name\"}}}",
	.flags = TOOL_APT | TOOL_DESTRUCTIVE | TOOL_OPEN_WORLD | TOOL_WAITS | TOOL_CHANGES,
	.run = run_apt,
};
