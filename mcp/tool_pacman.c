/* pacman_install and pacman_run: Arch's package manager; what may be asked of it is client/pacman.h's. */
#include "mcp/tools.h"

#include <string.h>

#include "base/cleanup.h"
#include "client/pacman.h"
#include "mcp/provision.h"
#include "mcp/session.h"

#define ENV_ARG "\"environment\":{\"type\":\"string\",\"description\":\"Name\"}"
#define TAIL    4096

static void cleanup_jsonp(cJSON **o)
{
	cJSON_Delete(*o);
}
#define cleanup_json __attribute__((cleanup(cleanup_jsonp)))

/* In quotes, each behind a blank. */
static int put_words(struct buf *b, const char *const *words, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = buf_puts(b, " '");
		for (const char *p = words[i]; r == 0 && *p; p++)
			r = *p == '\'' ? buf_puts(b, "'\\''") : buf_put(b, p, 1);
		if (r == 0)
			r = buf_puts(b, "'");
	}
	return r;
}

/* The strings of an array, lent; 1, or 0 after an answer. */
static int words_of(const cJSON *a, struct tool_result *out, const char **v, size_t max,
		    size_t *ret)
{
	const cJSON *w;

	*ret = 0;
	cJSON_ArrayForEach(w, a)
	{
		if (!cJSON_IsString(w))
			return tool_error(out, "each has to be a string");
		if (*ret == max)
			return tool_error(out, "at most %zu of them at a time", max);
		v[(*ret)++] = w->valuestring;
	}
	return 1;
}

/* As shell_run does it, so that limits, profiles, cancellation and the answer are the same. */
static int run_in_shell(struct tool_call *call, const cJSON *args, const char *command,
			double timeout, struct tool_result *out)
{
	const cJSON *env = cJSON_GetObjectItemCaseSensitive(args, "environment");
	cleanup_json cJSON *shell = cJSON_CreateObject();

	if (!shell || !cJSON_AddStringToObject(shell, "command", command) ||
	    !cJSON_AddStringToObject(shell, "cwd", "/") ||
	    !cJSON_AddNumberToObject(shell, "timeout", timeout) ||
	    (cJSON_IsString(env) &&
	     !cJSON_AddStringToObject(shell, "environment", env->valuestring)))
		return -ENOMEM;
	return tool_shell_run.run(call, shell, out);
}

static int run_query(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	const char *v[PACMAN_ARGS_MAX];
	cleanup_buf struct buf b = {0};
	struct diag diag = {0};
	const cJSON *list = NULL;
	double timeout = 60;
	size_t n;
	int r = arg_array(args, ARG("args"), out, &list);

	if (r <= 0)
		return r < 0 ? 0 : tool_error(out, "args is needed, as in [\"-Q\", \"bash\"]");
	if (arg_num(args, ARG("timeout"), 0.1, 3600, out, &timeout) < 0 ||
	    words_of(list, out, v, PACMAN_ARGS_MAX, &n) <= 0)
		return 0;
	if (pacman_check_query(v, n, &diag) < 0)
		return tool_error(out, "%s", diag.text);
	r = buf_puts(&b, "LC_ALL=C.UTF-8 exec " PACMAN_PATH);
	if (r == 0)
		r = put_words(&b, v, n);
	return r < 0 ? r : run_in_shell(call, args, (const char *)b.data, timeout, out);
}

const struct mcp_tool tool_pacman_run = {
	.name = "pacman_run",
	.title = "Ask pacman",
	.description = "Query packages in an Arch environment: -Q, -Si, -Ss, -F, ... No network.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"args\"],"
		"\"properties\":{\"args\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
		"\"timeout\":{\"type\":\"number\",\"default\":60}," ENV_ARG "}}",
	.flags = TOOL_PACMAN | TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_WAITS,
	.run = run_query,
};

/* ---- installing ---- */

#define LIST "/etc/pacman.d/mirrorlist"

/* $1: what goes behind -S; $2: a server for this time alone. A database that is fetched anew without an upgrade would be the half of
 * one, so there is no -Sy. */
static const char script[] =
	"set -eu; umask 022; export LC_ALL=C.UTF-8; how=$1 server=$2; shift 2\n"
	"if [ -n \"$server\" ]; then cp -p " LIST
	" /tmp/.mirrorlist; printf 'Server = %s\\n' \"$server\" > " LIST "; fi\n"
	"if command -v pacman-key > /dev/null && [ ! -e /etc/pacman.d/gnupg/trustdb.gpg ]; then pacman-key --init; pacman-key --populate; fi\n" PACMAN_PATH
	" -S$how --noconfirm --needed -- \"$@\"\n"
	"if [ -n \"$server\" ]; then cp -p /tmp/.mirrorlist " LIST "; rm /tmp/.mirrorlist; fi\n";

struct reach {
	struct net_rules net;
	struct diag *diag;
};

static int reach_one(void *arg, const struct pacman_mirror *m)
{
	struct reach *x = arg;

	x->net.local |= m->local;
	return net_allow(&x->net, m->host, x->diag);
}

/* Those of the base's own list that are allowed. */
static int reach_listed(struct client *c, const char *const *own, struct reach *x)
{
	cleanup_buf struct buf list = {0};
	struct ctl *ctl;
	int r = client_ctl_get(c, NULL, &ctl);

	if (r < 0)
		return r;
	r = provision_base_file(ctl, LIST, &list);
	client_ctl_put(c, ctl, r < 0);
	if (r > 0)
		r = pacman_mirrors((const char *)list.data, list.len - 1, own, reach_one, x);
	if (r == 0 && !x->net.allow.n)
		r = diag_set(x->diag, -ENOENT,
			     "no server in " LIST " of the base is one of Arch's mirrors that are "
			     "known: give one as mirror, as in https://geo.mirror.pkgbuild.com");
	return r;
}

static int install(struct tool_call *call, struct client *c, const char **packages, bool refresh,
		   const char *mirror, double timeout, struct tool_result *out)
{
	const char *const *own = session_opts(tool_session(call))->pacman_mirrors;
	struct pacman_mirror m = {0};
	struct diag diag = {0};
	struct reach x = {.diag = &diag};
	struct provision p = {.name = "pacman", .net = &x.net, .timeout = timeout, .tail = TAIL};
	const char *argv[6 + PACMAN_PACKAGES_MAX + 1] = {"/bin/sh", "-c", script, "pacman_install",
							 refresh ? "yu" : ""};
	int r = mirror ? pacman_check_mirror(mirror, own, &m, &diag) : reach_listed(c, own, &x);

	if (r == 0 && mirror)
		r = reach_one(&x, &m);
	argv[5] = m.server;
	for (size_t i = 0; packages[i]; i++)
		argv[6 + i] = packages[i];
	p.argv = argv;
	if (r == 0)
		r = provision_run(call, c, &p, out);
	else if (r != -ENOMEM)
		r = tool_error(out, "%s", *diag.text ? diag.text : err_text(r));
	net_rules_release(&x.net);
	return r;
}

static bool package_ok(const char *word)
{
	struct diag diag = {0};

	return pacman_check_package(word, &diag) == 0;
}

static int run_install(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	cleanup_free const char **packages = NULL;
	const char *mirror = NULL;
	double timeout = 300;
	bool refresh = true;
	struct client *c;
	int r;

	if (arg_bool(args, ARG("refresh"), out, &refresh) < 0 ||
	    arg_str(args, ARG("mirror"), out, &mirror) < 0 ||
	    arg_num(args, ARG("timeout"), 1, 7200, out, &timeout) < 0)
		return 0;
	r = provision_words(args, "packages", PACMAN_PACKAGES_MAX, package_ok,
			    "names of Arch packages, as 'git' or 'extra/git'", out, &packages);
	if (r <= 0)
		return r;
	c = tool_client(call, args, out);
	if (!c)
		return 0;
	r = install(call, c, packages, refresh, mirror, timeout, out);
	return r < 0 ? r : 0;
}

const struct mcp_tool tool_pacman_install = {
	.name = "pacman_install",
	.title = "Install Arch packages",
	.description =
		"Install packages with pacman, as root of the environment, from the base's mirrors; "
		"commands have no network for it. All or nothing; env_rollback undoes it.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"packages\"],"
		"\"properties\":{\"packages\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
		"\"refresh\":{\"type\":\"boolean\",\"default\":true,"
		"\"description\":\"Upgrade all (-Syu)\"},"
		"\"mirror\":{\"type\":\"string\",\"description\":\"https://, for this call\"},"
		"\"timeout\":{\"type\":\"number\",\"minimum\":1,\"maximum\":7200,\"default\":300,"
		"\"description\":\"Seconds\"}," ENV_ARG "}}",
	.flags = TOOL_PACMAN | TOOL_DESTRUCTIVE | TOOL_OPEN_WORLD | TOOL_WAITS | TOOL_CHANGES,
	.run = run_install,
};
