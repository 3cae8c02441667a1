/* The MCP server over fake_client.c, for tests/mcp/raw.py, ends.py and calls.py. */
#include "mcp/serve.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct mcp_serve_opts o = {.keep = argc > 1 && !strcmp(argv[1], "--keep"),
				   .log_level = LOG_WARN};

	return mcp_serve(&o) ? EXIT_FAILURE : EXIT_SUCCESS;
}
