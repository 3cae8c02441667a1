/*
 * tests/unit/mcp/fixture_server.c - the server with the tools that the public conformance suite asks for by name, in the
 * place of its own, for tests/mcp/conformance.py. Only the table differs: this one is linked first, so that the archive's
 * mcp/tools.c is not. Beneath is fake_client.c, which none of these tools uses.
 */
#include <poll.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/server.h"

static int run_text(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	(void)call;
	(void)args;
	return buf_puts(&out->text, "This is a simple text response for testing.");
}

static int run_error(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	(void)call;
	(void)args;
	return tool_error(out, "This tool intentionally returns an error for testing");
}

/* Until the server has sent three notifications of its own accord: after one second, and five and ten more. */
static int run_progress(struct tool_call *call, const cJSON *args, struct tool_result *out)
{
	struct pollfd p = {.fd = tool_cancel_fd(call), .events = POLLIN};
	long long until = io_now_ms() + 11500, now;

	(void)args;
	while ((now = io_now_ms()) < until && !tool_cancelled(call)) {
		tool_progress(call, 100 - (double)(until - now) / 115, 100, "counting");
		(void)poll(&p, 1, 200);
	}
	return buf_puts(&out->text, "counted");
}

#define NO_ARGS "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{}}"
#define FIXTURE(id, name_, what, schema, run_)                     \
	static const struct mcp_tool id = {.name = name_,          \
					   .title = name_,         \
					   .description = what,    \
					   .input_schema = schema, \
					   .flags = TOOL_WAITS,    \
					   .run = run_}

FIXTURE(simple_text, "test_simple_text", "Returns a text.", NO_ARGS, run_text);
FIXTURE(error_handling, "test_error_handling", "Returns an error.", NO_ARGS, run_error);
FIXTURE(with_progress, "test_tool_with_progress", "Takes its time.", NO_ARGS, run_progress);
/* Were there something to ask, log or change, these would: the suite looks for what must not come with their answers. */
FIXTURE(streaming, "test_streaming_elicitation", "Asks nothing.", NO_ARGS, run_text);
FIXTURE(logging, "test_logging_tool", "Logs nothing.", NO_ARGS, run_text);
FIXTURE(tool_change, "test_trigger_tool_change", "Changes nothing.", NO_ARGS, run_text);
FIXTURE(json_schema, "json_schema_2020_12_tool", "Has the keywords of the dialect of 2020-12.",
	"{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\",\"additionalProperties\":false,"
	"\"$defs\":{\"address\":{\"$anchor\":\"place\",\"type\":\"object\"}},"
	"\"properties\":{\"at\":{\"$ref\":\"#place\"},\"kind\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},"
	"\"allOf\":[{\"anyOf\":[{\"required\":[\"at\"]},{\"required\":[\"n\"]}]}],"
	"\"if\":{\"required\":[\"kind\"]},\"then\":{\"required\":[\"at\"]},\"else\":{\"required\":[\"n\"]}}",
	run_text);

const struct mcp_tool *const mcp_tools[] = {
	&simple_text, &error_handling, &with_progress, &streaming,
	&logging,     &tool_change,    &json_schema,
};
const size_t mcp_tools_count = ARRAY_SIZE(mcp_tools);

int main(void)
{
	struct mcp_serve_opts o = {.keep = true, .log_level = LOG_WARN};

	return mcp_serve(&o) ? EXIT_FAILURE : EXIT_SUCCESS;
}
