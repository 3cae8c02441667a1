/*
 * mcp/tool_jobs.h - what the tools for jobs share.
 */
#pragma once

#include "mcp/jobs.h"
#include "mcp/tools.h"

#define JOB_ID  "\"job_id\":{\"type\":\"string\",\"description\":\"Its id\"}"
#define JOB_ENV "\"environment\":{\"type\":\"string\",\"description\":\"Name\"}"
#define JOB_SCHEMA(more)                                                                 \
	"{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"job_id\"]," \
	"\"properties\":{" JOB_ID more "," JOB_ENV "}}"

#define WAIT_SCHEMA(more)                                                                   \
	"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" JOB_ID       \
	",\"job_ids\":{\"type\":\"array\",\"maxItems\":32,\"items\":{\"type\":\"string\"}," \
	"\"description\":\"Instead: several\"}" more "," JOB_ENV "}}"

/* The job of that id, or of the one that @args name, with a reference to be put. NULL: answered. */
struct job *jobtool_find_id(struct tool_call *call, const cJSON *args, const char *id,
			    struct tool_result *out);
struct job *jobtool_find(struct tool_call *call, const cJSON *args, struct tool_result *out);
/* The facts for programs. */
void jobtool_facts(struct tool_result *out, const struct job_info *in);
/* "j3-7f3a01bc: exit 0 in 2.10s  out 36.2 KiB  (12s ago)  make -j2" */
int jobtool_put_line(struct buf *b, const struct job_info *in) MUST_USE;
