/*
 * mcp/shelltext.h - the result of a command as text for a model.
 *
 * The first line's grammar is documented in docs/mcp.md and is stable; what follows is output, then
 * notes in square brackets.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "client/client.h"
#include "mcp/jobs.h"
#include "mcp/tool.h"

#define CHANGES_SHOWN 20
#define CHANGES_KEPT  200

#define DENIALS_KEPT  20
#define DENIALS_SHOWN 5

/* Paths that a command has changed, and what it was refused. */
struct changes {
	struct buf paths; /* "path" or "-path", each with its NUL, at most CHANGES_KEPT */
	unsigned kept, total;
	bool known; /* false: could not be told */
	struct client_denials denied;
	struct run_asked *asked; /* of a network with rules */
	size_t nasked;
	uint64_t asked_total;
	const char *shut; /* job_shut, lent; NULL: none */
};
void changes_release(struct changes *c);
int changes_add(void *arg, const char *path, char what);

/* Output for reading: escape sequences are gone, carriage returns have overwritten their line, bytes
 * that are not UTF-8 are \\xNN. */
int sh_clean(struct buf *out, const uint8_t *p, size_t n) MUST_USE;

/* What stands in @out from byte @from on: of four equal lines and more one, and how often it came. */
int sh_fold(struct buf *out, size_t from) MUST_USE;

/* "exit 0 in 0.02s  out 3 lines 40 B  changed 2 files". */
int sh_status(struct buf *out, const struct job_info *in, const struct changes *ch,
	      uint64_t lines) MUST_USE;
/* "running as job j3-...", "exited 0", ... for lists. */
int sh_state(struct buf *out, const struct job_info *in) MUST_USE;
int sh_size(struct buf *out, uint64_t bytes) MUST_USE;
/* Of a job that wrote more than is kept, or than there was room for. */
int sh_limited(struct buf *out, const struct job_info *in) MUST_USE;
/* The directory in which the command ended, when that is not where it began; lent from @in. NULL. */
const char *sh_ended_in(const struct job_info *in);

/* One stream, at most @max bytes of it: head, a note of what is left out, tail. *ret_left: bytes left
 * out. */
int sh_output(struct buf *out, struct job *j, int stream, size_t max, const char *id,
	      uint64_t *ret_left) MUST_USE;
/* Bytes [@from, @to) of a stream, cleaned. */
int sh_range(struct buf *out, struct job *j, int stream, uint64_t from, uint64_t to) MUST_USE;
/* Newlines in a stream, plus one for an unfinished line; reads at most 16 MiB. */
uint64_t sh_lines(struct job *j, int stream);
