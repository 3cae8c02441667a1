#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static uint32_t digest(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3u;
	return (uint32_t)(h ^ h >> 32);
}

void cli_env_name(const char *dir, bool bound, char ret[static CLI_ENV_MAX])
{
	const char *slash = strrchr(dir, '/'), *name = slash && slash[1] ? slash + 1 : "root";
	char clean[48];
	size_t n = 0;

	for (; *name && n < sizeof(clean) - 1; name++) {
		unsigned char c = (unsigned char)*name;

		if (isalnum(c) || c == '_' || (n && (c == '-' || c == '.')))
			clean[n++] = (char)c;
		else if (n && clean[n - 1] != '-')
			clean[n++] = '-';
	}
	clean[n] = 0;
	(void)snprintf(ret, CLI_ENV_MAX, "%s-%08x%s", n ? clean : "dir", digest(dir),
		       bound ? "-bound" : "");
}

static int connect_to(const char *env, struct diag *diag, struct client **ret, struct ctl **ret_ctl)
{
	const struct ctl_env_opts o = {.env = env};
	struct client *c;
	int r = client_new(&o, &c);

	if (r < 0)
		return r;
	r = client_ctl_get(c, diag, ret_ctl);
	if (r < 0) {
		client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct search {
	const char *cwd;
	char best[CLI_ENV_MAX];
	size_t rank; /* the nearer, the higher; copy-on-write before bound */
};

static int on_env(void *arg, const struct ctl_env_info *e)
{
	struct search *s = arg;
	cleanup_free char *dir = strdup(s->cwd);
	char name[CLI_ENV_MAX];

	for (char *end = dir ? strrchr(dir, '/') : NULL; end && end > dir;
	     *end = 0, end = strrchr(dir, '/')) {
		for (int bound = 0; bound < 2; bound++) {
			size_t rank = 2 * strlen(dir) + !bound;

			cli_env_name(dir, bound, name);
			if (strcmp(name, e->name) != 0 || rank <= s->rank)
				continue;
			s->rank = rank;
			memcpy(s->best, name, sizeof(name));
		}
	}
	return 0;
}

/* Without -e. */
static int connect_from_here(struct diag *diag, struct client **ret, struct ctl **ret_ctl)
{
	cleanup_free char *cwd = realpath(".", NULL);
	struct search s = {.cwd = cwd};
	char name[CLI_ENV_MAX];
	int r = -ENOENT;

	if (cwd) {
		cli_env_name(cwd, false, name);
		r = connect_to(name, diag, ret, ret_ctl);
	}
	if (cwd && r == -ENOENT) {
		struct diag ignored = {0};

		(void)!ctl_env_list(NULL, &ignored, on_env, &s);
	}
	if (r != -ENOENT)
		return r;
	*diag = (struct diag){0};
	return connect_to(s.rank ? s.best : "default", diag, ret, ret_ctl);
}

int cli_connect(const char *env, struct client **ret, struct ctl **ret_ctl)
{
	struct diag diag = {0};
	int r = env ? connect_to(env, &diag, ret, ret_ctl) : connect_from_here(&diag, ret, ret_ctl);

	if (r == -ENOENT && !env)
		return cli_fail(CLI_NOT_FOUND,
				"no environment belongs to this directory and there is no "
				"default one yet; rattan run makes one, -e NAME names one");
	if (r == -ENOENT)
		return cli_fail(CLI_NOT_FOUND,
				"there is no environment '%s'; rattan env list names all", env);
	return r < 0 ? cli_fail_errno(r, &diag, "the environment cannot be reached") : -1;
}

void cli_env_here(char ret[static CLI_ENV_MAX])
{
	cleanup_free char *cwd = realpath(".", NULL), *inside = NULL;
	struct search s = {0};
	struct diag ignored = {0};

	/* What is looked for is above a path: above one in this directory. */
	if (cwd && asprintf(&inside, "%s/.", cwd) < 0)
		inside = NULL;
	s.cwd = inside;
	if (inside)
		(void)!ctl_env_list(NULL, &ignored, on_env, &s);
	(void)snprintf(ret, CLI_ENV_MAX, "%s", s.rank ? s.best : "default");
}

int cli_writable(const struct cli_list *more, const char ***ret)
{
	static const char *const agent[] = {"/workspace", "/tmp", "/var/tmp", "/home/user"};
	size_t n = ARRAY_SIZE(agent);
	const char **v;

	*ret = NULL;
	if (!more->n)
		return 0;
	v = calloc(n + more->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		v[i] = agent[i];
	for (size_t i = 0; i < more->n; i++)
		v[n + i] = more->v[i];
	*ret = v;
	return 0;
}
