#include "mcp/shellargs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/session.h"

#define MAX_ENV     128
#define MAX_TIMEOUT 86400.0

/* What makes programs behave where no person sits; the rest of the environment is the runner's. */
static const char *const agent_env[] = {
	"PAGER=cat",  "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "DEBIAN_FRONTEND=noninteractive",
	"NO_COLOR=1", "RATTAN=1",
};

int shell_path(const char *path, char **ret)
{
	cleanup_buf struct buf b = {0};
	size_t len;
	int r;

	if (path[0] == '/')
		r = buf_puts(&b, path);
	else if (path[0] == '~' && (!path[1] || path[1] == '/'))
		r = buf_printf(&b, "%s%s", TOOL_HOME, path + 1);
	else
		r = buf_printf(&b, "%s/%s", TOOL_WORKSPACE, path);
	return r ? r : buf_steal(&b, ret, &len);
}

static bool env_name_ok(const char *s)
{
	if (!*s || (*s >= '0' && *s <= '9'))
		return false;
	for (; *s; s++)
		if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
		      (*s >= '0' && *s <= '9') || *s == '_'))
			return false;
	return true;
}

static int add_env(struct shell_req *r, const char *text)
{
	r->env[r->nenv] = strdup(text);
	if (!r->env[r->nenv])
		return -ENOMEM;
	r->nenv++;
	return 0;
}

static int add_pair(struct shell_req *req, const cJSON *v, struct tool_result *out)
{
	cleanup_buf struct buf b = {0};
	int r;

	if (!env_name_ok(v->string)) {
		(void)tool_error(out, "'%.60s' in env is not a variable name", v->string);
		return -EINVAL;
	}
	if (cJSON_IsString(v))
		r = buf_printf(&b, "%s=%s", v->string, v->valuestring);
	else if (cJSON_IsNumber(v))
		r = buf_printf(&b, "%s=%.15g", v->string, v->valuedouble);
	else if (cJSON_IsBool(v))
		r = buf_printf(&b, "%s=%s", v->string, cJSON_IsTrue(v) ? "true" : "false");
	else
		return tool_error(out, "the value of '%.60s' in env must be a string", v->string)
			       ? -ENOMEM
			       : -EINVAL;
	return r ? r : add_env(req, (const char *)b.data);
}

static int parse_env(const cJSON *args, struct tool_result *out, struct shell_req *req)
{
	const cJSON *env = NULL;
	int r = arg_object(args, ARG("env"), out, &env);

	if (r < 0)
		return r;
	if (env && cJSON_GetArraySize(env) > MAX_ENV) {
		(void)tool_error(out, "env may hold at most %d variables", MAX_ENV);
		return -EINVAL;
	}
	req->env = calloc(ARRAY_SIZE(agent_env) + MAX_ENV + 1, sizeof(*req->env));
	if (!req->env)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(agent_env); i++) {
		r = add_env(req, agent_env[i]);
		if (r)
			return r;
	}
	for (const cJSON *v = env ? env->child : NULL; v; v = v->next) {
		r = add_pair(req, v, out);
		if (r)
			return r;
	}
	return 0;
}

/* Seconds, or milliseconds under the alias that says so. */
static int parse_seconds(const cJSON *args, const char *name, const char *ms_alias, double max,
			 struct tool_result *out, double *ret)
{
	int r = arg_num(args, ARG(name), 0, max, out, ret);

	if (r)
		return r;
	r = arg_num(args, ARG(ms_alias), 0, max * 1000, out, ret);
	if (r > 0)
		*ret /= 1000;
	return r;
}

static int parse_clocks(struct tool_call *call, const cJSON *args, enum shell_kind kind,
			struct tool_result *out, struct shell_req *req)
{
	double max = session_max_wait(tool_session(call));
	bool background = false;
	int r;

	req->wait = kind == SHELL_JOB ? 0 : (max < 45 ? max : 45);
	if (kind == SHELL_RUN) {
		r = parse_seconds(args, "wait", "yield_time_ms", MAX_TIMEOUT, out, &req->wait);
		if (r >= 0)
			r = arg_bool(args, ARG("run_in_background"), out, &background);
		if (r < 0)
			return r;
		if (background)
			req->wait = 0;
		if (req->wait > max)
			req->wait = max;
	}
	/* A background command has no natural limit; one that somebody waits for does. */
	req->timeout = req->wait > 0 ? 300 : 0;
	/* Models that are used to milliseconds send them: nobody means a day and more in seconds. */
	r = parse_seconds(args, "timeout", "timeout_ms", MAX_TIMEOUT * 1000, out, &req->timeout);
	if (r < 0)
		return r;
	req->timeout_ms = req->timeout > MAX_TIMEOUT;
	if (req->timeout_ms)
		req->timeout /= 1000;
	return 0;
}

static int parse_texts(const cJSON *args, struct tool_result *out, struct shell_req *req)
{
	static const char *const modes[] = {"merged", "separate", NULL};
	const char *cwd = NULL;
	unsigned mode = 0;
	int64_t max = 24576;
	int r;

	r = arg_str(args, ARG("command", "cmd"), out, &req->command);
	if (r == 0)
		return tool_error(out, "'command' is missing") ? -ENOMEM : -EINVAL;
	if (r > 0)
		r = arg_str(args, ARG("cwd", "workdir", "directory"), out, &cwd);
	if (r >= 0)
		r = arg_str(args, ARG("stdin"), out, &req->input);
	if (r >= 0)
		r = arg_str(args, ARG("promises"), out, &req->promises);
	if (r >= 0)
		r = arg_enum(args, ARG("stderr"), modes, out, &mode);
	if (r >= 0)
		r = arg_int(args, ARG("max_output"), 1024, 204800, out, &max);
	if (r >= 0)
		r = arg_bool(args, ARG("structured"), out, &req->structured);
	if (r >= 0)
		r = arg_bool(args, ARG("interactive"), out, &req->interactive);
	if (r >= 0)
		r = arg_bool(args, ARG("tty"), out, &req->tty);
	if (r >= 0)
		r = arg_bool(args, ARG("leave_running"), out, &req->leave_running);
	if (r < 0)
		return r;
	if (!req->command[strspn(req->command, " \t\r\n")]) {
		(void)tool_error(out, "'command' is empty");
		return -EINVAL;
	}
	req->max_output = (size_t)max;
	req->separate = (mode == 1 || req->structured) && !req->tty;
	req->cwd_arg = cwd && *cwd ? cwd : NULL;
	return shell_path(req->cwd_arg ? req->cwd_arg : TOOL_WORKSPACE, &req->cwd);
}

int shell_req_parse(struct tool_call *call, const cJSON *args, enum shell_kind kind,
		    struct tool_result *out, struct shell_req *ret)
{
	int r;

	*ret = (struct shell_req){0};
	r = parse_texts(args, out, ret);
	if (!r)
		r = parse_clocks(call, args, kind, out, ret);
	if (!r)
		r = parse_env(args, out, ret);
	return r;
}

void shell_req_release(struct shell_req *r)
{
	free(r->cwd);
	for (size_t i = 0; i < r->nenv; i++)
		free(r->env[i]);
	free(r->env);
	*r = (struct shell_req){0};
}

static bool ends_word(char c)
{
	return !c || strchr(" \t\n;&|(){}`\"'", c);
}

static bool has_word(const char *text, const char *word)
{
	const char *at = text;

	for (; (at = strstr(at, word)); at++)
		if ((at == text || ends_word(at[-1])) && ends_word(at[strlen(word)]))
			return true;
	return false;
}

/* A pipe, which "||" is not, or a change of directory: somewhere, be it in quotes. */
static bool may_have_note(const char *command)
{
	for (const char *p = command; (p = strchr(p, '|')); p += 1 + (p[1] == '|'))
		if (p[1] != '|')
			return true;
	return has_word(command, "cd") || has_word(command, "pushd");
}

void shell_req_spec(const struct shell_req *req, const struct mcp_serve_opts *o,
		    struct run_spec *spec)
{
	run_spec_init(spec);
	spec->shell = req->command;
	spec->cwd = req->cwd;
	spec->env = (const char *const *)req->env;
	spec->promises = req->promises;
	spec->timeout_ms = (uint64_t)(req->timeout * 1000);
	if (req->timeout > 0 && !spec->timeout_ms)
		spec->timeout_ms = 1;
	spec->no_exec_workspace = o->no_exec_workspace;
	spec->limits = o->limits;
	spec->net_rules = o->net_rules;
	spec->stderr_mode = req->separate ? RUN_STDERR_SEPARATE : RUN_STDERR_MERGED;
	spec->keep_input = req->interactive || req->tty;
	spec->tty = req->tty;
	spec->linger = req->leave_running;
	/* What it costs is for those alone for whom there may be something to tell. */
	spec->note = !req->promises && may_have_note(req->command);
	if (req->input) {
		spec->stdin_data = req->input;
		spec->stdin_len = strlen(req->input);
	}
}
