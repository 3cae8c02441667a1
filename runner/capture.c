#include "runner/capture.h"

#include <stdlib.h>
#include <string.h>

void capture_init(struct capture *c, size_t head_max, size_t tail_max)
{
	*c = (struct capture){.head_max = head_max, .tail_max = tail_max};
}

void capture_release(struct capture *c)
{
	buf_release(&c->head);
	free(c->tail);
	c->tail = NULL;
}

static void tail_put(struct capture *c, const uint8_t *p, size_t n)
{
	size_t part;

	if (n > c->tail_max) {
		p += n - c->tail_max;
		n = c->tail_max;
	}
	while (n > 0) {
		part = c->tail_max - c->tail_at;
		if (part > n)
			part = n;
		memcpy(c->tail + c->tail_at, p, part);
		c->tail_at = (c->tail_at + part) % c->tail_max;
		c->tail_len += part;
		p += part;
		n -= part;
	}
	if (c->tail_len > c->tail_max)
		c->tail_len = c->tail_max;
}

void capture_put(struct capture *c, const void *p, size_t n)
{
	const uint8_t *at = p;
	size_t part = c->head_max - c->head.len;

	/* A head once left behind is closed: what follows would not join it. */
	if (c->total > c->head.len)
		part = 0;
	c->total += n;
	if (part > n)
		part = n;
	if (part > 0 && buf_put(&c->head, at, part) < 0)
		part = 0;
	at += part;
	n -= part;
	if (n == 0 || c->tail_max == 0 || c->tail_failed)
		return;
	if (!c->tail) {
		c->tail = malloc(c->tail_max);
		if (!c->tail) {
			c->tail_failed = true;
			return;
		}
	}
	tail_put(c, at, n);
}

int capture_copy(const struct capture *c, struct buf *head, struct buf *tail, uint64_t *ret_skipped)
{
	size_t start, first;
	int r;

	r = buf_put(head, c->head.data, c->head.len);
	if (r < 0)
		return r;
	if (c->tail_len > 0) {
		start = (c->tail_at + c->tail_max - c->tail_len) % c->tail_max;
		first = c->tail_max - start < c->tail_len ? c->tail_max - start : c->tail_len;
		r = buf_put(tail, c->tail + start, first);
		if (r == 0)
			r = buf_put(tail, c->tail, c->tail_len - first);
		if (r < 0)
			return r;
	}
	*ret_skipped = c->total - c->head.len - c->tail_len;
	return 0;
}
