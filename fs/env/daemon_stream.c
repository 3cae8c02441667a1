/* Answers of several messages, for what an administrator waits for. */
#include <string.h>

#include "base/io.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"

static int send_msg(struct daemon_stream *t, const struct ctl_rep *rp, bool item)
{
	static const uint8_t room[4];
	uint32_t n;
	int r;

	buf_clear(&t->msg);
	r = buf_put(&t->msg, room, 4);
	if (r == 0)
		r = ctl_rep_encode(rp, item ? &t->items : NULL, item, &t->msg);
	if (r < 0)
		return r;
	n = (uint32_t)t->msg.len - 4;
	for (int i = 0; i < 4; i++)
		t->msg.data[i] = (uint8_t)(n >> (24 - 8 * i));
	return io_write_full(t->fd, t->msg.data, t->msg.len);
}

int daemon_stream_item(struct daemon_stream *t, uint64_t id, bool more,
		       const struct ctl_table *table, const void *item)
{
	struct ctl_rep rp = {.id = id, .more = more};
	int r;

	buf_clear(&t->items);
	r = ctl_item_put(&t->items, table, item);
	return r < 0 ? r : send_msg(t, &rp, true);
}

void daemon_stream_error(struct daemon_stream *t, uint64_t id, int r, const struct diag *diag)
{
	struct ctl_rep rp = {.id = id, .err = r};
	const char *text = diag->text[0] ? diag->text : err_text(r);

	memcpy(rp.text, text, strnlen(text, sizeof(rp.text) - 1));
	(void)!send_msg(t, &rp, false);
}

void daemon_stream_release(struct daemon_stream *t)
{
	buf_release(&t->items);
	buf_release(&t->msg);
}
