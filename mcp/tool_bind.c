/* bind_host_dir and unbind_host_dir: the rules are client/hostdir.h's. */
#include "mcp/tools.h"

#include <string.h>

#include "client/hostdir.h"
#include "mcp/files/text.h"
#include "mcp/session.h"

#define ENV_ARG "\"environment\":{\"type\":\"string\",\"description\":\"Name\"}"

static int say(struct tool_result *out, const char *verb, const char *what, const char *rest)
{
	int r = buf_puts(&out->text, verb);

	if (!r)
		r = text_put_name(&out->text, what, strlen(what));
	return r ? r : buf_puts(&out->text, rest);
}

static int refuse(struct tool_result *out, int r, const struct diag *d)
{
	if (r == -ENOMEM)
		return r;
	return tool_error(out, "%s", d->text[0] ? d->text : err_text(r));
}

static int run_bind(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	static const char *const modes[] = {"ro", "rw", NULL};
	cleanup_hostdir struct hostdir dir = {.fd = -1};
	const char *host = NULL, *mount = NULL;
	struct diag d = {0};
	struct client *c;
	unsigned mode = 0;
	int r = arg_str(args, ARG("host_path"), out, &host);

	if (r > 0)
		r = arg_str(args, ARG("mount_point"), out, &mount);
	if (r > 0)
		r = arg_enum(args, ARG("mode"), modes, out, &mode) < 0 ? -EINVAL : 1;
	if (r <= 0)
		return r < 0 ? 0 : tool_error(out, "host_path and mount_point are needed");
	if (session_opts(tool_session(call))->sandbox != MCP_SANDBOX_NONE)
		return tool_error(out,
				  "this server runs commands under a profile, which alone says "
				  "what is opened");
	if (host[0] != '/')
		return tool_error(out, "host_path must be absolute: where the server was started "
				       "is not where your commands run");
	r = hostdir_open(host, session_opts(tool_session(call))->bind_roots, &d, &dir);
	if (!r)
		r = hostdir_check_mount(mount, &d);
	if (r)
		return refuse(out, r, &d);
	c = tool_client(call, args, out);
	if (!c)
		return 0;
	r = client_add_bind(c, dir.fd, dir.path, mount, mode == 1, &d);
	if (r)
		return refuse(out, r, &d);
	r = say(out, "bound ", dir.path, " at ");
	return r ? r
		 : say(out, "", mount,
		       mode == 1 ? ", read-write: changes go to the host\n" : ", read-only\n");
}

const struct mcp_tool tool_bind_host_dir = {
	.name = "bind_host_dir",
	.title = "Open a host directory",
	.description =
		"Show a directory of the host to later commands and file tools of this session. It must be "
		"the user's, below their home and not hidden, or below a root they have listed. mode rw: "
		"changes go to the host at once.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,"
		"\"required\":[\"host_path\",\"mount_point\"],\"properties\":{"
		"\"host_path\":{\"type\":\"string\",\"description\":\"Absolute path on the host\"},"
		"\"mount_point\":{\"type\":\"string\",\"description\":\"Where it appears: at or below "
		"/workspace, /mnt, /srv, /data, or below /home\"},"
		"\"mode\":{\"type\":\"string\",\"enum\":[\"ro\",\"rw\"],\"default\":\"ro\","
		"\"description\":\"Read only, or written through\"}," ENV_ARG "}}",
	.flags = TOOL_DESTRUCTIVE | TOOL_OPEN_WORLD,
	.run = run_bind,
};

static int run_unbind(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	const char *mount = NULL;
	struct diag d = {0};
	struct client *c;
	int r = arg_str(args, ARG("mount_point"), out, &mount);

	if (r <= 0)
		return r < 0 ? 0 : tool_error(out, "mount_point is needed");
	c = tool_client(call, args, out);
	if (!c)
		return 0;
	r = client_remove_bind(c, mount, &d);
	if (r)
		return refuse(out, r, &d);
	return say(out, "unbound ", mount, "\n");
}

const struct mcp_tool tool_unbind_host_dir = {
	.name = "unbind_host_dir",
	.title = "Close a host directory",
	.description = "Take back what bind_host_dir has opened; env_status lists what is bound.",
	.input_schema =
		"{\"type\":\"object\",\"additionalProperties\":false,"
		"\"required\":[\"mount_point\"],\"properties\":{"
		"\"mount_point\":{\"type\":\"string\",\"description\":\"Where it appears\"}," ENV_ARG
		"}}",
	.flags = TOOL_IDEMPOTENT,
	.run = run_unbind,
};
