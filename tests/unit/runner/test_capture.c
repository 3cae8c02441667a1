/* Head, tail, and the gap, against the whole text, for all sizes of pieces. */
#include "runner/capture.h"

#include <stdlib.h>

#include "tests/lib/tap.h"

static int one(size_t head_max, size_t tail_max, size_t total, size_t piece)
{
	struct buf head = {0}, tail = {0};
	struct capture c;
	uint64_t skipped = 0;
	uint8_t *all = malloc(total + 1);
	size_t i, n, want_head, want_tail;
	int good;

	if (!all)
		return 0;
	for (i = 0; i < total; i++)
		all[i] = (uint8_t)(i * 7 + i / 251);
	capture_init(&c, head_max, tail_max);
	for (i = 0; i < total; i += n) {
		n = total - i < piece ? total - i : piece;
		capture_put(&c, all + i, n);
	}
	want_head = total < head_max ? total : head_max;
	want_tail = total - want_head < tail_max ? total - want_head : tail_max;
	good = capture_copy(&c, &head, &tail, &skipped) == 0 && head.len == want_head &&
	       tail.len == want_tail && skipped == total - want_head - want_tail;
	if (good && want_head)
		good = !memcmp(head.data, all, want_head);
	if (good && want_tail)
		good = !memcmp(tail.data, all + total - want_tail, want_tail);
	capture_release(&c);
	buf_release(&head);
	buf_release(&tail);
	free(all);
	return good;
}

int main(void)
{
	static const size_t sizes[] = {0, 1, 7, 64, 100};
	size_t h, t, total, piece;
	int bad = 0, n = 0;

	for (h = 0; h < 5; h++)
		for (t = 0; t < 5; t++)
			for (total = 0; total < 400; total += 13)
				for (piece = 1; piece < 300; piece = piece * 3 + 1, n++)
					bad += !one(sizes[h], sizes[t], total, piece);
	eq_int(bad, 0, "%d streams are kept as they should", n);
	return tap_done();
}
