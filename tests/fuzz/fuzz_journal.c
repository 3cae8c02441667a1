/* Whatever reads as the records of a journal of an apply is written and read again as the same. The bytes are records without their frames, each
 * behind its length in two bytes: a check sum is no obstacle to who wants to read wrong records. */
#include <string.h>

#include "apply/record_internal.h"
#include "base/cleanup.h"
#include "tests/fuzz/fuzz.h"

static int put_framed(struct buf *b, const uint8_t *p, size_t n)
{
	uint64_t sum = record_sum(p, n);
	uint8_t head[HEAD];

	for (int i = 0; i < 4; i++)
		head[i] = (uint8_t)(n >> (24 - 8 * i));
	for (int i = 0; i < 8; i++)
		head[4 + i] = (uint8_t)(sum >> (56 - 8 * i));
	return buf_put(b, head, sizeof(head)) < 0 ? -1 : buf_put(b, p, n);
}

/* 1: all of it was taken. */
static int read_all(const struct buf *b, struct trail *t)
{
	size_t at = 0;
	int r;

	while ((r = record_read(b, &at, t)) > 0)
		;
	return r < 0 ? r : at == b->len;
}

static int write_all(struct buf *b, const struct trail *t)
{
	int r = t->env ? record_head(b, t) : 0;

	for (size_t i = 0; r == 0 && i < t->steps.n; i++)
		r = record_step(b, &t->steps.v[i]);
	for (size_t i = 0; r == 0 && i < t->steps.n; i++)
		r = record_staged(b, i, &t->steps.v[i]);
	for (size_t i = 0; r == 0 && i < t->nafter; i++)
		r = record_after(b, &t->after[i]);
	if (r == 0)
		r = record_done(b, &t->done_at);
	return r == 0 ? record_mark(b, t->state) : r;
}

bool fuzz_one(const uint8_t *data, size_t size)
{
	cleanup_trail struct trail t = {.dir_fd = -1, .fd = -1}, again = {.dir_fd = -1, .fd = -1};
	cleanup_buf struct buf in = {0}, out = {0}, out2 = {0};

	while (size >= 2) {
		size_t n = (size_t)data[0] << 8 | data[1];

		data += 2;
		size -= 2;
		if (n > size)
			n = size;
		if (put_framed(&in, data, n) < 0)
			return false;
		data += n;
		size -= n;
	}
	if (!in.len || read_all(&in, &t) != 1)
		return false;
	if (write_all(&out, &t) < 0 || read_all(&out, &again) != 1 ||
	    write_all(&out2, &again) < 0 || out.len != out2.len ||
	    memcmp(out.data, out2.data, out.len) != 0)
		__builtin_trap();
	return true;
}
