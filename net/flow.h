/* net/flow.h - bytes in one way, from one socket to another, through a buffer of fixed size. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define FLOW_SIZE (32u << 10)

struct flow {
	uint8_t *data; /* FLOW_SIZE bytes, or NULL before flow_start */
	size_t at, end;
	uint64_t left; /* bytes that may still be read */
	bool eof;      /* nothing more will be read */
	bool shut;     /* and the other side was told */
	bool tell;     /* it is to be told */
};

int flow_start(struct flow *f, uint64_t most, bool tell) MUST_USE;
void flow_release(struct flow *f);
/* Put before what is read, at its start. -E2BIG. */
int flow_put(struct flow *f, const void *p, size_t n) MUST_USE;
bool flow_wants(const struct flow *f); /* to read */
bool flow_has(const struct flow *f);   /* something to write */
bool flow_over(const struct flow *f);  /* all is written that will ever be read */
/* One read or write without waiting: 0, or -EPIPE when that socket is of no use any more. */
int flow_read(struct flow *f, int from) MUST_USE;
int flow_write(struct flow *f, int to) MUST_USE;
