/* Whatever decodes as a request or an answer of the control protocol encodes and decodes again. */
#include <string.h>

#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_msg.h"
#include "tests/fuzz/fuzz.h"

static bool request(const uint8_t *data, size_t size)
{
	cleanup_buf struct buf b = {0}, c = {0};
	struct ctl_req rq, again;
	uint64_t v;
	bool taken = ctl_req_decode(data, size, &rq, &v) == 0;

	if (taken) {
		if (ctl_req_encode(&rq, &b) < 0 || ctl_req_decode(b.data, b.len, &again, &v) < 0 ||
		    ctl_req_encode(&again, &c) < 0 || b.len != c.len ||
		    memcmp(b.data, c.data, b.len) != 0)
			__builtin_trap();
		ctl_req_release(&again);
	}
	ctl_req_release(&rq);
	return taken;
}

static void item(const msgpack_object *o, const struct ctl_table *t, void *space)
{
	cleanup_buf struct buf b = {0};

	if (ctl_item_get(o, t, space) < 0)
		return;
	if (ctl_item_put(&b, t, space) < 0)
		__builtin_trap();
	ctl_item_release(t, space);
}

static bool answer(const uint8_t *data, size_t size)
{
	union {
		struct ctl_commit commit;
		struct ctl_change change;
		struct ctl_status status;
		struct ctl_moved moved;
		struct ctl_attach attach;
		struct ctl_env_info env;
		struct ctl_note note;
		struct ctl_denial denial;
		struct ctl_finding finding;
		struct ctl_fsck_sum fsck;
		struct ctl_gc_sum gc;
		struct ctl_usage_row row;
		struct ctl_usage_sum usage;
		struct ctl_progress progress;
		struct ctl_step step;
	} space;
	struct ctl_rep_doc d;
	uint64_t v;

	if (ctl_rep_decode(data, size, &d, &v) < 0)
		return false;
	for (uint32_t i = 0; i < d.nitems && i < 64; i++) {
		item(&d.items[i], &ctl_table_commit, &space);
		item(&d.items[i], &ctl_table_change, &space);
		item(&d.items[i], &ctl_table_status, &space);
		item(&d.items[i], &ctl_table_moved, &space);
		item(&d.items[i], &ctl_table_attach, &space);
		item(&d.items[i], &ctl_table_env, &space);
		item(&d.items[i], &ctl_table_note, &space);
		item(&d.items[i], &ctl_table_denial, &space);
		item(&d.items[i], &ctl_table_finding, &space);
		item(&d.items[i], &ctl_table_fsck_sum, &space);
		item(&d.items[i], &ctl_table_gc_sum, &space);
		item(&d.items[i], &ctl_table_usage_row, &space);
		item(&d.items[i], &ctl_table_usage_sum, &space);
		item(&d.items[i], &ctl_table_progress, &space);
		item(&d.items[i], &ctl_table_step, &space);
	}
	ctl_rep_release(&d);
	return true;
}

bool fuzz_one(const uint8_t *data, size_t size)
{
	bool asks = request(data, size), answers = answer(data, size);

	return asks || answers;
}
