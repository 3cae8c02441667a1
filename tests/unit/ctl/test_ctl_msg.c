/* The control protocol's codec: what goes in comes out, and nothing else is taken. */
#include <stdint.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_msg.h"
#include "tests/lib/tap.h"

static void request_roundtrip(void)
{
	char *writable[] = {(char[]){"/workspace"}, (char[]){"/tmp"}, NULL};
	char *none[] = {NULL};
	struct ctl_req rq = {.id = 7,
			     .op = CTL_OP_OPEN,
			     .rev = (char[]){"head~1"},
			     .message = (char[]){"\xff bytes\n"},
			     .writable = writable,
			     .overlays = none,
			     .token = UINT64_MAX,
			     .force = true};
	cleanup_buf struct buf a = {0}, b = {0};
	struct ctl_req got;
	uint64_t v;

	eq_int(ctl_req_encode(&rq, &a), 0, "a request is encoded");
	eq_int(ctl_req_decode(a.data, a.len, &got, &v), 0, "and decoded");
	eq_int(v, CTL_PROTO, "version");
	eq_int(got.id, 7, "id");
	eq_int(got.op, CTL_OP_OPEN, "operation");
	eq_str(got.rev, "head~1", "string");
	eq_str(got.message, "\xff bytes\n", "bytes that are no UTF-8");
	ok(got.path == NULL, "absent string");
	ok(got.writable && !strcmp(got.writable[1], "/tmp") && !got.writable[2], "list");
	ok(got.overlays && !got.overlays[0], "an empty list is not an absent one");
	ok(got.token == UINT64_MAX && got.force && !got.rw, "numbers and flags");
	eq_int(ctl_req_encode(&got, &b), 0, "encoded again");
	ok(a.len == b.len && !memcmp(a.data, b.data, a.len), "one spelling for one value");
	ctl_req_release(&got);
}

static void every_op(void)
{
	int bad = 0;

	for (int op = CTL_OP_OPEN; op <= CTL_OP_LAST; op++) {
		struct ctl_req rq = {.id = 1, .op = (enum ctl_op)op}, got;
		cleanup_buf struct buf a = {0};
		uint64_t v;

		if (ctl_req_encode(&rq, &a) < 0 || ctl_req_decode(a.data, a.len, &got, &v) < 0 ||
		    got.op != rq.op)
			bad++;
		else
			ctl_req_release(&got);
	}
	eq_int(bad, 0, "every operation has a name of its own");
}

static void items_roundtrip(void)
{
	struct ctl_bind_info binds[] = {{(char[]){"/h"}, (char[]){"/mnt/x"}, true},
					{(char[]){"/i"}, (char[]){"/mnt/y"}, false}};
	char *overlays[] = {(char[]){"/p=/workspace"}, NULL};
	struct ctl_status st = {.env = "default",
				.dirty = true,
				.added = 3,
				.leases = 2,
				.overlays = overlays,
				.binds = binds,
				.nbinds = 2,
				.daemon_pid = 4711},
			  st2;
	struct ctl_commit cm = {.id = "ab", .label = "l", .time = {-5, 999999999}}, cm2;
	struct ctl_rep rp = {.id = 9, .err = -ENOENT, .text = "no such thing", .more = true};
	cleanup_buf struct buf items = {0}, msg = {0};
	struct ctl_rep_doc d;
	uint64_t v;

	eq_int(ctl_item_put(&items, &ctl_table_status, &st), 0, "status");
	eq_int(ctl_item_put(&items, &ctl_table_commit, &cm), 0, "commit");
	eq_int(ctl_rep_encode(&rp, &items, 2, &msg), 0, "answer");
	eq_int(ctl_rep_decode(msg.data, msg.len, &d, &v), 0, "decoded");
	ok(d.rep.id == 9 && d.rep.err == -ENOENT && d.rep.more, "head");
	eq_str(d.rep.text, "no such thing", "sentence");
	eq_int(d.nitems, 2, "items");
	eq_int(ctl_item_get(&d.items[0], &ctl_table_status, &st2), 0, "status");
	ok(st2.dirty && st2.added == 3 && st2.leases == 2 && st2.daemon_pid == 4711, "its numbers");
	ok(st2.nbinds == 2 && !strcmp(st2.binds[1].mount, "/mnt/y") && st2.binds[0].rw,
	   "its binds");
	eq_str(st2.overlays[0], "/p=/workspace", "its overlays");
	eq_int(ctl_item_get(&d.items[1], &ctl_table_commit, &cm2), 0, "commit");
	ok(cm2.time.tv_sec == -5 && cm2.time.tv_nsec == 999999999, "its time");
	eq_int(ctl_item_get(&d.items[1], &ctl_table_moved, &(struct ctl_moved){0}), -EBADMSG,
	       "an item of another kind is refused");
	ctl_item_release(&ctl_table_status, &st2);
	ctl_item_release(&ctl_table_commit, &cm2);
	ctl_rep_release(&d);
}

/* {"v": version, "id": 1, "op": op, "args": {key: value}} */
static int put(struct buf *b, uint64_t version, const char *op, const char *key, const char *value)
{
	int r = mp_put_map(b, 4);

	r |= mp_put_cstr(b, "v") | mp_put_uint(b, version);
	r |= mp_put_cstr(b, "id") | mp_put_uint(b, 1);
	r |= mp_put_cstr(b, "op") | mp_put_cstr(b, op);
	r |= mp_put_cstr(b, "args") | mp_put_map(b, key ? 1 : 0);
	if (key)
		r |= mp_put_cstr(b, key) | mp_put_cstr(b, value);
	return r;
}

static int decode(uint64_t version, const char *op, const char *key, const char *value)
{
	cleanup_buf struct buf b = {0};
	struct ctl_req got;
	uint64_t v;
	int r = put(&b, version, op, key, value);

	if (r == 0)
		r = ctl_req_decode(b.data, b.len, &got, &v);
	if (r == 0)
		ctl_req_release(&got);
	return r;
}

static void refusals(void)
{
	cleanup_buf struct buf b = {0};
	struct ctl_req got;
	uint64_t v;

	eq_int(decode(CTL_PROTO, "diff", "rev", "head"), 0, "the plain case is taken");
	eq_int(decode(CTL_PROTO, "diff", "force", "yes"), -EBADMSG, "wrong type");
	eq_int(decode(CTL_PROTO, "diff", "colour", "red"), -EBADMSG, "unknown key");
	eq_int(decode(CTL_PROTO, "explode", NULL, NULL), -EBADMSG, "unknown operation");
	eq_int(put(&b, CTL_PROTO + 1, "novel", "x", "y"), 0, "another version");
	eq_int(ctl_req_decode(b.data, b.len, &got, &v), -EPROTONOSUPPORT, "is recognised");
	eq_int(v, CTL_PROTO + 1, "and named");
	eq_int(got.id, 1, "with the id to answer to");
	ctl_req_release(&got);
}

/* Every prefix, and every byte changed in every bit: an error or a value, never a crash or a leak. */
static void damage(void)
{
	char *list[] = {(char[]){"/a"}, (char[]){"/b"}, NULL};
	struct ctl_req rq = {.id = 3,
			     .op = CTL_OP_BIND,
			     .host = (char[]){"/home/x"},
			     .mount = (char[]){"/mnt/y"},
			     .writable = list,
			     .token = 70000,
			     .rw = true};
	cleanup_buf struct buf a = {0};
	int taken = 0, wrong = 0;
	struct ctl_req got;
	uint64_t v;

	eq_int(ctl_req_encode(&rq, &a), 0, "a request to damage");
	for (size_t n = 0; n < a.len; n++) {
		if (ctl_req_decode(a.data, n, &got, &v) == 0)
			taken++;
		ctl_req_release(&got);
	}
	eq_int(taken, 0, "no prefix is taken for a whole request");
	for (size_t i = 0; i < a.len * 8; i++) {
		int r;

		a.data[i / 8] ^= (uint8_t)(1 << i % 8);
		r = ctl_req_decode(a.data, a.len, &got, &v);
		wrong += r != 0 && r != -EBADMSG && r != -EPROTONOSUPPORT;
		ctl_req_release(&got);
		a.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	eq_int(wrong, 0, "damage gives a value or one of two errors");
}

int main(void)
{
	request_roundtrip();
	every_op();
	items_roundtrip();
	refusals();
	damage();
	return tap_done();
}
