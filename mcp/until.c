#define PCRE2_CODE_UNIT_WIDTH 8
#include "mcp/until.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define LINE_MAX_BYTES 65536u
#define MATCH_LIMIT    1000000u
#define PER_LOOK       (4u << 20) /* bytes a look may read, so that a wait stays attentive */

struct until {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *ctx;
	uint64_t at[2]; /* start of the first line not looked at, of each stream */
	uint8_t *block;
	char line[512];
};

void until_free(struct until *u)
{
	if (!u)
		return;
	pcre2_code_free(u->code);
	pcre2_match_data_free(u->data);
	pcre2_match_context_free(u->ctx);
	free(u->block);
	free(u);
}

int until_new(const char *pattern, struct diag *diag, struct until **ret)
{
	struct until *u = calloc(1, sizeof(*u));
	PCRE2_UCHAR msg[128];
	PCRE2_SIZE off = 0;
	int err = 0;

	if (!u)
		return -ENOMEM;
	u->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
				PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &err, &off, NULL);
	if (!u->code) {
		(void)pcre2_get_error_message(err, msg, sizeof(msg));
		(void)diag_set(diag, -EINVAL, "not a regular expression: %s at offset %zu",
			       (const char *)msg, (size_t)off);
		until_free(u);
		return -EINVAL;
	}
	u->data = pcre2_match_data_create_from_pattern(u->code, NULL);
	u->ctx = pcre2_match_context_create(NULL);
	u->block = malloc(LINE_MAX_BYTES);
	if (!u->data || !u->ctx || !u->block) {
		until_free(u);
		return -ENOMEM;
	}
	(void)pcre2_set_match_limit(u->ctx, MATCH_LIMIT);
	(void)pcre2_set_depth_limit(u->ctx, 10000);
	*ret = u;
	return 0;
}

static int match_line(struct until *u, const uint8_t *p, size_t n)
{
	size_t keep = n < sizeof(u->line) - 1 ? n : sizeof(u->line) - 1;
	int r = pcre2_match(u->code, p, n, 0, 0, u->data, u->ctx);

	if (r == PCRE2_ERROR_NOMATCH)
		return 0;
	if (r < 0)
		return -EFBIG;
	memcpy(u->line, p, keep);
	u->line[keep] = 0;
	return 1;
}

int until_match(struct until *u, const void *line, size_t n)
{
	return match_line(u, line, n);
}

/* The lines of one block; *ret_used: bytes that need not be looked at again. */
static int look_block(struct until *u, const uint8_t *p, size_t n, size_t *ret_used)
{
	size_t at = 0;

	while (at < n) {
		const uint8_t *nl = memchr(p + at, '\n', n - at);
		size_t len = nl ? (size_t)(nl - p) - at : n - at;
		int r = match_line(u, p + at, len);

		if (r)
			return r;
		if (!nl)
			break; /* more of it may come, unless it fills the whole block */
		at += len + 1;
	}
	*ret_used = at ? at : n == LINE_MAX_BYTES ? n : 0;
	return 0;
}

int until_look(struct until *u, struct job *j)
{
	for (int s = 0; s < 2; s++) {
		size_t done = 0;

		while (done < PER_LOOK) {
			ssize_t n = job_read(j, s, u->at[s], u->block, LINE_MAX_BYTES);
			size_t used;
			int r;

			if (n <= 0)
				break;
			r = look_block(u, u->block, (size_t)n, &used);
			if (r)
				return r;
			u->at[s] += used;
			done += used;
			if (!used || (size_t)n < LINE_MAX_BYTES)
				break;
		}
	}
	return 0;
}

const char *until_line(const struct until *u)
{
	return u->line;
}
