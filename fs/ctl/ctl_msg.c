#include "fs/ctl/ctl_msg.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/ctl/ctl_client.h"

/* How one struct member travels. Absent on the wire means NULL, 0, false or "". */
enum ftype {
	F_CHARS, /* char[n], NUL-terminated */
	F_STR,   /* char *, owned */
	F_LIST,  /* char **, NULL-terminated, owned; NULL and empty are different */
	F_U64,
	F_U32,
	F_INT,
	F_BOOL,
	F_CHAR,
	F_TIME,
	F_BINDS, /* struct ctl_status: binds and nbinds */
	F_BYTES, /* struct ctl_bytes, owned */
};

struct field {
	const char *key;
	enum ftype type;
	size_t off, size;
};

struct ctl_table {
	const struct field *fields;
	size_t n;
	size_t size; /* of the struct */
};

#define FIELD(s, m, t)                                                   \
	{                                                                \
#m, t, offsetof(struct s, m), sizeof(((struct s *)0)->m) \
	}
#define TABLE(f, s)                                \
	{                                          \
		f, ARRAY_SIZE(f), sizeof(struct s) \
	}

static const struct field req_fields[] = {
	FIELD(ctl_req, rev, F_STR),        FIELD(ctl_req, rev2, F_STR),
	FIELD(ctl_req, path, F_STR),       FIELD(ctl_req, message, F_STR),
	FIELD(ctl_req, label, F_STR),      FIELD(ctl_req, expect, F_STR),
	FIELD(ctl_req, host, F_STR),       FIELD(ctl_req, mount, F_STR),
	FIELD(ctl_req, what, F_STR),       FIELD(ctl_req, writable, F_LIST),
	FIELD(ctl_req, overlays, F_LIST),  FIELD(ctl_req, token, F_U64),
	FIELD(ctl_req, force, F_BOOL),     FIELD(ctl_req, all, F_BOOL),
	FIELD(ctl_req, automatic, F_BOOL), FIELD(ctl_req, rw, F_BOOL),
	FIELD(ctl_req, policy, F_BYTES),   FIELD(ctl_req, disk, F_U64),
	FIELD(ctl_req, through, F_BOOL),   FIELD(ctl_req, brief, F_BOOL),
	FIELD(ctl_req, provision, F_BOOL), FIELD(ctl_req, base, F_STR),
	FIELD(ctl_req, same_dirs, F_BOOL), FIELD(ctl_req, tell_dirs, F_BOOL),
};
static const struct ctl_table req_table = TABLE(req_fields, ctl_req);

static const struct field opened_fields[] = {FIELD(ctl_opened, note, F_CHARS),
					     FIELD(ctl_opened, made, F_BOOL)};
const struct ctl_table ctl_table_opened = TABLE(opened_fields, ctl_opened);

static const struct field commit_fields[] = {
	FIELD(ctl_commit, id, F_CHARS),     FIELD(ctl_commit, parent, F_CHARS),
	FIELD(ctl_commit, env, F_CHARS),    FIELD(ctl_commit, label, F_CHARS),
	FIELD(ctl_commit, message, F_STR),  FIELD(ctl_commit, automatic, F_BOOL),
	FIELD(ctl_commit, time, F_TIME),    FIELD(ctl_commit, added, F_U64),
	FIELD(ctl_commit, modified, F_U64), FIELD(ctl_commit, deleted, F_U64),
	FIELD(ctl_commit, damaged, F_BOOL),
};
const struct ctl_table ctl_table_commit = TABLE(commit_fields, ctl_commit);

static const struct field ref_fields[] = {
	FIELD(ctl_ref, name, F_CHARS),   FIELD(ctl_ref, id, F_CHARS),
	FIELD(ctl_ref, was, F_CHARS),    FIELD(ctl_ref, message, F_STR),
	FIELD(ctl_ref, time, F_TIME),    FIELD(ctl_ref, automatic, F_BOOL),
	FIELD(ctl_ref, at_base, F_BOOL), FIELD(ctl_ref, damaged, F_BOOL),
};
const struct ctl_table ctl_table_ref = TABLE(ref_fields, ctl_ref);

static const struct field change_fields[] = {
	FIELD(ctl_change, kind, F_CHAR),      FIELD(ctl_change, path, F_STR),
	FIELD(ctl_change, old_path, F_STR),   FIELD(ctl_change, mode, F_U32),
	FIELD(ctl_change, size, F_U64),       FIELD(ctl_change, what, F_U32),
	FIELD(ctl_change, hid_mode, F_U32),   FIELD(ctl_change, hid_dev, F_U64),
	FIELD(ctl_change, hid_ino, F_U64),    FIELD(ctl_change, hid_size, F_U64),
	FIELD(ctl_change, hid_mtime, F_TIME), FIELD(ctl_change, hid_ctime, F_TIME),
	FIELD(ctl_change, hid_at, F_TIME),
};
const struct ctl_table ctl_table_change = TABLE(change_fields, ctl_change);

static const struct field file_fields[] = {
	FIELD(ctl_file, path, F_STR), FIELD(ctl_file, target, F_STR), FIELD(ctl_file, mode, F_U32),
	FIELD(ctl_file, size, F_U64), FIELD(ctl_file, mtime, F_TIME),
};
const struct ctl_table ctl_table_file = TABLE(file_fields, ctl_file);

static const struct field status_fields[] = {
	FIELD(ctl_status, env, F_CHARS),      FIELD(ctl_status, base, F_CHARS),
	FIELD(ctl_status, head, F_CHARS),     FIELD(ctl_status, head_label, F_CHARS),
	FIELD(ctl_status, dirty, F_BOOL),     FIELD(ctl_status, added, F_U64),
	FIELD(ctl_status, modified, F_U64),   FIELD(ctl_status, deleted, F_U64),
	FIELD(ctl_status, renamed, F_U64),    FIELD(ctl_status, bytes_dirty, F_U64),
	FIELD(ctl_status, token, F_U64),      FIELD(ctl_status, leases, F_U32),
	FIELD(ctl_status, overlays, F_LIST),  FIELD(ctl_status, binds, F_BINDS),
	FIELD(ctl_status, disk_max, F_U64),   FIELD(ctl_status, disk_used, F_U64),
	FIELD(ctl_status, daemon_pid, F_INT), FIELD(ctl_status, uptime_s, F_U64),
	FIELD(ctl_status, disk_free, F_U64),  FIELD(ctl_status, store_bytes, F_U64),
};
const struct ctl_table ctl_table_status = TABLE(status_fields, ctl_status);

static const struct field moved_fields[] = {
	FIELD(ctl_moved, from, F_CHARS),
	FIELD(ctl_moved, to, F_CHARS),
	FIELD(ctl_moved, saved, F_BOOL),
};
const struct ctl_table ctl_table_moved = TABLE(moved_fields, ctl_moved);

static const struct field attach_fields[] = {
	FIELD(ctl_attach, root, F_CHARS),     FIELD(ctl_attach, generation, F_U64),
	FIELD(ctl_attach, writable, F_CHARS), FIELD(ctl_attach, token, F_U64),
	FIELD(ctl_attach, denied, F_U64),     FIELD(ctl_attach, mounts, F_U64),
};
const struct ctl_table ctl_table_attach = TABLE(attach_fields, ctl_attach);

static const struct field env_fields[] = {
	FIELD(ctl_env_info, name, F_CHARS),   FIELD(ctl_env_info, base, F_CHARS),
	FIELD(ctl_env_info, head, F_CHARS),   FIELD(ctl_env_info, dirty, F_BOOL),
	FIELD(ctl_env_info, created, F_TIME), FIELD(ctl_env_info, damaged, F_BOOL),
};
const struct ctl_table ctl_table_env = TABLE(env_fields, ctl_env_info);

static const struct field finding_fields[] = {
	FIELD(ctl_finding, state, F_CHAR),   FIELD(ctl_finding, kind, F_STR),
	FIELD(ctl_finding, where, F_STR),    FIELD(ctl_finding, text, F_STR),
	FIELD(ctl_finding, path, F_STR),     FIELD(ctl_finding, envs, F_LIST),
	FIELD(ctl_finding, commits, F_LIST), FIELD(ctl_finding, nenvs, F_U64),
	FIELD(ctl_finding, ncommits, F_U64),
};
const struct ctl_table ctl_table_finding = TABLE(finding_fields, ctl_finding);

static const struct field fsck_sum_fields[] = {
	FIELD(ctl_fsck_sum, records, F_U64),    FIELD(ctl_fsck_sum, chunks, F_U64),
	FIELD(ctl_fsck_sum, bytes, F_U64),      FIELD(ctl_fsck_sum, pages, F_U64),
	FIELD(ctl_fsck_sum, layers, F_U64),     FIELD(ctl_fsck_sum, commits, F_U64),
	FIELD(ctl_fsck_sum, envs, F_U64),       FIELD(ctl_fsck_sum, damaged, F_U64),
	FIELD(ctl_fsck_sum, repairable, F_U64), FIELD(ctl_fsck_sum, repaired, F_U64),
	FIELD(ctl_fsck_sum, notes, F_U64),
};
const struct ctl_table ctl_table_fsck_sum = TABLE(fsck_sum_fields, ctl_fsck_sum);

static const struct field gc_sum_fields[] = {
	FIELD(ctl_gc_sum, layers, F_U64),      FIELD(ctl_gc_sum, records, F_U64),
	FIELD(ctl_gc_sum, states, F_U64),      FIELD(ctl_gc_sum, moves, F_U64),
	FIELD(ctl_gc_sum, chunks, F_U64),      FIELD(ctl_gc_sum, chunk_bytes, F_U64),
	FIELD(ctl_gc_sum, live_chunks, F_U64), FIELD(ctl_gc_sum, damaged, F_U64),
	FIELD(ctl_gc_sum, packed, F_U64),      FIELD(ctl_gc_sum, packed_from, F_U64),
	FIELD(ctl_gc_sum, packed_to, F_U64),   FIELD(ctl_gc_sum, free_bytes, F_U64),
	FIELD(ctl_gc_sum, given_back, F_U64),
};
const struct ctl_table ctl_table_gc_sum = TABLE(gc_sum_fields, ctl_gc_sum);

#define USAGE_SIZE(s, m)                                                                       \
	FIELD(s, m.chunks, F_U64), FIELD(s, m.chunk_bytes, F_U64), FIELD(s, m.records, F_U64), \
		FIELD(s, m.record_bytes, F_U64)

static const struct field usage_row_fields[] = {
	FIELD(ctl_usage_row, kind, F_CHARS), FIELD(ctl_usage_row, name, F_CHARS),
	USAGE_SIZE(ctl_usage_row, reaches),  USAGE_SIZE(ctl_usage_row, alone),
	USAGE_SIZE(ctl_usage_row, commits),  USAGE_SIZE(ctl_usage_row, undo),
	FIELD(ctl_usage_row, states, F_U64),
};
const struct ctl_table ctl_table_usage_row = TABLE(usage_row_fields, ctl_usage_row);

static const struct field usage_sum_fields[] = {
	USAGE_SIZE(ctl_usage_sum, total),
	USAGE_SIZE(ctl_usage_sum, shared),
	USAGE_SIZE(ctl_usage_sum, garbage),
	FIELD(ctl_usage_sum, packed, F_U64),
	FIELD(ctl_usage_sum, packed_bytes, F_U64),
	FIELD(ctl_usage_sum, packed_raw, F_U64),
	FIELD(ctl_usage_sum, chunk_file_bytes, F_U64),
	FIELD(ctl_usage_sum, meta_file_bytes, F_U64),
	FIELD(ctl_usage_sum, other_file_bytes, F_U64),
	FIELD(ctl_usage_sum, free_bytes, F_U64),
	FIELD(ctl_usage_sum, damaged, F_U64),
};
const struct ctl_table ctl_table_usage_sum = TABLE(usage_sum_fields, ctl_usage_sum);

static const struct field import_fields[] = {
	FIELD(ctl_import_sum, id, F_CHARS),    FIELD(ctl_import_sum, entries, F_U64),
	FIELD(ctl_import_sum, bytes, F_U64),   FIELD(ctl_import_sum, written, F_U64),
	FIELD(ctl_import_sum, layers, F_U64),  FIELD(ctl_import_sum, reused, F_U64),
	FIELD(ctl_import_sum, skipped, F_U64), FIELD(ctl_import_sum, unread, F_U64),
};
const struct ctl_table ctl_table_import = TABLE(import_fields, ctl_import_sum);

static const struct field step_fields[] = {
	FIELD(ctl_step, id, F_CHARS),  FIELD(ctl_step, message, F_STR),
	FIELD(ctl_step, by, F_STR),    FIELD(ctl_step, author, F_STR),
	FIELD(ctl_step, time, F_TIME), FIELD(ctl_step, empty, F_BOOL),
};
const struct ctl_table ctl_table_step = TABLE(step_fields, ctl_step);

static const struct field export_fields[] = {
	FIELD(ctl_export_sum, digest, F_CHARS), FIELD(ctl_export_sum, entries, F_U64),
	FIELD(ctl_export_sum, bytes, F_U64),    FIELD(ctl_export_sum, skipped, F_U64),
	FIELD(ctl_export_sum, layers, F_U64),
};
const struct ctl_table ctl_table_export = TABLE(export_fields, ctl_export_sum);

static const struct field had_fields[] = {
	FIELD(ctl_had_sum, layers, F_U64),
	FIELD(ctl_had_sum, bytes, F_U64),
	FIELD(ctl_had_sum, manifest, F_CHARS),
};
const struct ctl_table ctl_table_had = TABLE(had_fields, ctl_had_sum);

static const struct field base_fields[] = {
	FIELD(ctl_base_info, name, F_CHARS),    FIELD(ctl_base_info, id, F_CHARS),
	FIELD(ctl_base_info, source, F_CHARS),  FIELD(ctl_base_info, created, F_TIME),
	FIELD(ctl_base_info, entries, F_U64),   FIELD(ctl_base_info, bytes, F_U64),
	FIELD(ctl_base_info, manager, F_CHARS),
};
const struct ctl_table ctl_table_base = TABLE(base_fields, ctl_base_info);

static const struct field progress_fields[] = {
	FIELD(ctl_progress, stage, F_STR),
	FIELD(ctl_progress, done, F_U64),
	FIELD(ctl_progress, total, F_U64),
};
const struct ctl_table ctl_table_progress = TABLE(progress_fields, ctl_progress);

static const struct field note_fields[] = {
	FIELD(ctl_note, path, F_STR),
	FIELD(ctl_note, what, F_CHAR),
	FIELD(ctl_note, token, F_U64),
	FIELD(ctl_note, mode, F_U32),
};
const struct ctl_table ctl_table_note = TABLE(note_fields, ctl_note);

static const struct field denial_fields[] = {
	FIELD(ctl_denial, path, F_STR),  FIELD(ctl_denial, op, F_STR),
	FIELD(ctl_denial, why, F_STR),   FIELD(ctl_denial, count, F_U64),
	FIELD(ctl_denial, token, F_U64),
};
const struct ctl_table ctl_table_denial = TABLE(denial_fields, ctl_denial);

/* ---- writing ---- */

static bool field_absent(const struct field *f, const uint8_t *p)
{
	static const uint8_t zero[sizeof(struct timespec)];

	if (f->type == F_CHARS)
		return p[0] == 0;
	return !memcmp(p, zero, f->size);
}

static int put_list(struct buf *out, char *const *list)
{
	uint32_t n = 0;
	int r;

	while (list[n])
		n++;
	r = mp_put_array(out, n);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = mp_put_cstr(out, list[i]);
	return r;
}

static int put_time(struct buf *out, const struct timespec *ts)
{
	int r = mp_put_array(out, 2);

	if (r == 0)
		r = mp_put_int(out, ts->tv_sec);
	if (r == 0)
		r = mp_put_uint(out, (uint64_t)ts->tv_nsec);
	return r;
}

static int put_binds(struct buf *out, const struct ctl_status *st)
{
	int r = mp_put_array(out, (uint32_t)st->nbinds * 3);

	for (size_t i = 0; i < st->nbinds && r == 0; i++) {
		r = mp_put_cstr(out, st->binds[i].host);
		if (r == 0)
			r = mp_put_cstr(out, st->binds[i].mount);
		if (r == 0)
			r = mp_put_bool(out, st->binds[i].rw);
	}
	return r;
}

static int put_bytes(struct buf *out, const struct ctl_bytes *b)
{
	return mp_put_bin(out, b->data, b->len);
}

static int put_field(struct buf *out, const struct field *f, const void *item)
{
	const void *p = (const uint8_t *)item + f->off;

	switch (f->type) {
	case F_CHARS:
		return mp_put_cstr(out, p);
	case F_STR:
		return mp_put_cstr(out, *(char *const *)p);
	case F_LIST:
		return put_list(out, *(char *const *const *)p);
	case F_U64:
		return mp_put_uint(out, *(const uint64_t *)p);
	case F_U32:
		return mp_put_uint(out, *(const uint32_t *)p);
	case F_INT:
		return mp_put_int(out, *(const int *)p);
	case F_BOOL:
		return mp_put_bool(out, *(const bool *)p);
	case F_CHAR:
		return mp_put_uint(out, *(const unsigned char *)p);
	case F_TIME:
		return put_time(out, p);
	case F_BINDS:
		return put_binds(out, item);
	case F_BYTES:
		return put_bytes(out, p);
	}
	return -EINVAL;
}

int ctl_item_put(struct buf *out, const struct ctl_table *t, const void *item)
{
	uint32_t n = 0;
	int r;

	for (size_t i = 0; i < t->n; i++)
		n += !field_absent(&t->fields[i], (const uint8_t *)item + t->fields[i].off);
	r = mp_put_map(out, n);
	for (size_t i = 0; i < t->n && r == 0; i++) {
		const struct field *f = &t->fields[i];

		if (field_absent(f, (const uint8_t *)item + f->off))
			continue;
		r = mp_put_cstr(out, f->key);
		if (r == 0)
			r = put_field(out, f, item);
	}
	return r;
}

/* ---- reading ---- */

static void list_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

static int get_list(const msgpack_object *o, char ***ret)
{
	char **list;
	uint32_t n;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size > CTL_LIST_MAX)
		return -EBADMSG;
	n = o->via.array.size;
	list = calloc((size_t)n + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		int r = mp_dup_str(&o->via.array.ptr[i], &list[i]);

		if (r < 0) {
			list_free(list);
			return r;
		}
	}
	*ret = list;
	return 0;
}

static int get_time(const msgpack_object *o, struct timespec *ret)
{
	uint64_t ns;
	int64_t s;
	int r;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size != 2)
		return -EBADMSG;
	r = mp_as_int(&o->via.array.ptr[0], &s);
	if (r == 0)
		r = mp_as_uint(&o->via.array.ptr[1], 999999999, &ns);
	if (r == 0)
		*ret = (struct timespec){.tv_sec = s, .tv_nsec = (long)ns};
	return r;
}

static int get_chars(const msgpack_object *o, char *ret, size_t size)
{
	const char *s;
	size_t n;
	int r = mp_as_str(o, &s, &n);

	if (r < 0)
		return r;
	if (n >= size || memchr(s, 0, n))
		return -EBADMSG;
	memcpy(ret, s, n);
	ret[n] = 0;
	return 0;
}

static void binds_free(struct ctl_status *st)
{
	for (size_t i = 0; i < st->nbinds; i++) {
		free(st->binds[i].host);
		free(st->binds[i].mount);
	}
	free(st->binds);
	st->binds = NULL;
	st->nbinds = 0;
}

static int get_binds(const msgpack_object *o, struct ctl_status *st)
{
	const msgpack_object *e;
	uint32_t n;
	int r = 0;

	if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size % 3 ||
	    o->via.array.size > 3 * CTL_LIST_MAX)
		return -EBADMSG;
	e = o->via.array.ptr;
	n = o->via.array.size / 3;
	binds_free(st); /* a repeated key must not leak the first one's */
	st->binds = calloc(n ? n : 1, sizeof(*st->binds));
	if (!st->binds)
		return -ENOMEM;
	st->nbinds = n;
	for (uint32_t i = 0; i < n && r == 0; i++, e += 3) {
		r = mp_dup_str(&e[0], &st->binds[i].host);
		if (r == 0)
			r = mp_dup_str(&e[1], &st->binds[i].mount);
		if (r == 0)
			r = mp_as_bool(&e[2], &st->binds[i].rw);
	}
	return r;
}

static int get_str(const msgpack_object *o, char **p)
{
	free(*p);
	*p = NULL;
	return mp_dup_str(o, p);
}

static int get_bytes(const msgpack_object *o, struct ctl_bytes *ret)
{
	const void *p;
	size_t n;
	int r = mp_as_bin(o, &p, &n);

	if (r < 0 || n == 0)
		return -EBADMSG;
	free(ret->data);
	ret->len = 0;
	ret->data = malloc(n);
	if (!ret->data)
		return -ENOMEM;
	memcpy(ret->data, p, n);
	ret->len = n;
	return 0;
}

static int get_field(const msgpack_object *o, const struct field *f, void *item)
{
	void *p = (uint8_t *)item + f->off;
	uint64_t u;
	int64_t i;
	int r;

	switch (f->type) {
	case F_CHARS:
		return get_chars(o, p, f->size);
	case F_STR:
		return get_str(o, p);
	case F_LIST:
		list_free(*(char ***)p);
		*(char ***)p = NULL;
		return get_list(o, p);
	case F_U64:
		return mp_as_uint(o, UINT64_MAX, p);
	case F_U32:
		r = mp_as_uint(o, UINT32_MAX, &u);
		if (r == 0)
			*(uint32_t *)p = (uint32_t)u;
		return r;
	case F_INT:
		r = mp_as_int(o, &i);
		if (r == 0 && (i < INT32_MIN || i > INT32_MAX))
			r = -EBADMSG;
		if (r == 0)
			*(int *)p = (int)i;
		return r;
	case F_BOOL:
		return mp_as_bool(o, p);
	case F_CHAR:
		r = mp_as_uint(o, 127, &u);
		if (r == 0)
			*(char *)p = (char)u;
		return r;
	case F_TIME:
		return get_time(o, p);
	case F_BINDS:
		return get_binds(o, item);
	case F_BYTES:
		return get_bytes(o, p);
	}
	return -EBADMSG;
}

static const struct field *field_find(const struct ctl_table *t, const msgpack_object *key)
{
	const char *s;
	size_t n;

	if (mp_as_str(key, &s, &n) < 0)
		return NULL;
	for (size_t i = 0; i < t->n; i++)
		if (strlen(t->fields[i].key) == n && !memcmp(t->fields[i].key, s, n))
			return &t->fields[i];
	return NULL;
}

/* Fills what the map names into a struct that is already zeroed or partly filled. */
static int get_map(const msgpack_object *o, const struct ctl_table *t, void *item)
{
	if (!o || o->type != MSGPACK_OBJECT_MAP)
		return -EBADMSG;
	for (uint32_t i = 0; i < o->via.map.size; i++) {
		const struct field *f = field_find(t, &o->via.map.ptr[i].key);
		int r;

		if (!f)
			return -EBADMSG;
		r = get_field(&o->via.map.ptr[i].val, f, item);
		if (r < 0)
			return r;
	}
	return 0;
}

static void bytes_free(struct ctl_bytes *b)
{
	free(b->data);
	b->len = 0;
}

void ctl_item_release(const struct ctl_table *t, void *item)
{
	for (size_t i = 0; i < t->n; i++) {
		void *p = (uint8_t *)item + t->fields[i].off;

		if (t->fields[i].type == F_STR)
			free(*(char **)p);
		else if (t->fields[i].type == F_LIST)
			list_free(*(char ***)p);
		else if (t->fields[i].type == F_BINDS)
			binds_free(item);
		else if (t->fields[i].type == F_BYTES)
			bytes_free(p);
		else
			continue;
		if (t->fields[i].type != F_BINDS)
			*(void **)p = NULL;
	}
}

int ctl_item_get(const msgpack_object *o, const struct ctl_table *t, void *ret)
{
	int r;

	memset(ret, 0, t->size);
	r = get_map(o, t, ret);
	if (r < 0) {
		ctl_item_release(t, ret);
		memset(ret, 0, t->size);
	}
	return r;
}

/* ---- requests ---- */

static const char *const op_names[CTL_OP_LAST + 1] = {
	[CTL_OP_OPEN] = "open",
	[CTL_OP_ATTACH] = "attach",
	[CTL_OP_LEASE] = "lease",
	[CTL_OP_UNLEASE] = "unlease",
	[CTL_OP_BIND] = "bind",
	[CTL_OP_UNBIND] = "unbind",
	[CTL_OP_STATUS] = "status",
	[CTL_OP_COMMIT] = "commit",
	[CTL_OP_ROLLBACK] = "rollback",
	[CTL_OP_RESET] = "reset",
	[CTL_OP_UNDO] = "undo",
	[CTL_OP_LOG] = "log",
	[CTL_OP_DIFF] = "diff",
	[CTL_OP_CAT] = "cat",
	[CTL_OP_CHANGES] = "changes",
	[CTL_OP_FLUSH] = "flush",
	[CTL_OP_SHUTDOWN] = "shutdown",
	[CTL_OP_RESTART] = "restart",
	[CTL_OP_DENIALS] = "denials",
	[CTL_OP_CHECKPOINT] = "checkpoint",
	[CTL_OP_LS] = "ls",
	[CTL_OP_OWN] = "own",
	[CTL_OP_KEEP] = "keep",
	[CTL_OP_DROP] = "drop",
	[CTL_OP_TAG] = "tag",
	[CTL_OP_UNTAG] = "untag",
	[CTL_OP_REFS] = "refs",
};

const char *ctl_op_name(enum ctl_op op)
{
	return op >= CTL_OP_OPEN && op <= CTL_OP_LAST ? op_names[op] : "?";
}

static int op_parse(const msgpack_object *o, enum ctl_op *ret)
{
	const char *s;
	size_t n;
	int r = mp_as_str(o, &s, &n);

	if (r < 0)
		return -EBADMSG;
	for (int i = CTL_OP_OPEN; i <= CTL_OP_LAST; i++) {
		if (strlen(op_names[i]) == n && !memcmp(op_names[i], s, n)) {
			*ret = (enum ctl_op)i;
			return 0;
		}
	}
	return -EBADMSG;
}

static int put_head(struct buf *out, uint32_t n, uint64_t id)
{
	int r = mp_put_map(out, n);

	if (r == 0)
		r = mp_put_cstr(out, "v");
	if (r == 0)
		r = mp_put_uint(out, CTL_PROTO);
	if (r == 0)
		r = mp_put_cstr(out, "id");
	if (r == 0)
		r = mp_put_uint(out, id);
	return r;
}

/* Version and id; *ret_version is set whenever there is one. */
static int get_head(const msgpack_object *o, uint64_t *ret_version, uint64_t *ret_id)
{
	*ret_version = 0;
	if (o->type != MSGPACK_OBJECT_MAP)
		return -EBADMSG;
	if (mp_as_uint(mp_get(o, "v"), UINT32_MAX, ret_version) < 0)
		return -EBADMSG;
	if (mp_as_uint(mp_get(o, "id"), UINT64_MAX, ret_id) < 0)
		*ret_id = 0;
	return *ret_version == CTL_PROTO ? 0 : -EPROTONOSUPPORT;
}

int ctl_req_encode(const struct ctl_req *rq, struct buf *out)
{
	int r = put_head(out, 4, rq->id);

	if (r == 0)
		r = mp_put_cstr(out, "op");
	if (r == 0)
		r = mp_put_cstr(out, ctl_op_name(rq->op));
	if (r == 0)
		r = mp_put_cstr(out, "args");
	if (r == 0)
		r = ctl_item_put(out, &req_table, rq);
	return r;
}

int ctl_req_decode(const void *p, size_t n, struct ctl_req *ret, uint64_t *ret_version)
{
	struct mp_doc doc = {0};
	uint64_t id = 0;
	enum ctl_op op = 0;
	int r;

	memset(ret, 0, sizeof(*ret));
	*ret_version = 0;
	r = mp_parse(p, n, &doc);
	if (r < 0)
		return r;
	r = get_head(&doc.root, ret_version, &id);
	if (r == 0 && doc.root.via.map.size != 4)
		r = -EBADMSG;
	if (r == 0)
		r = op_parse(mp_get(&doc.root, "op"), &op);
	if (r == 0)
		r = ctl_item_get(mp_get(&doc.root, "args"), &req_table, ret);
	ret->id = id;
	ret->op = op;
	mp_release(&doc);
	return r;
}

void ctl_req_release(struct ctl_req *rq)
{
	ctl_item_release(&req_table, rq);
}

/* ---- answers ---- */

int ctl_rep_encode(const struct ctl_rep *rp, const struct buf *items, uint32_t n, struct buf *out)
{
	int r = put_head(out, 6, rp->id);

	r = r ? r : mp_put_cstr(out, "err");
	r = r ? r : mp_put_uint(out, (uint64_t)-rp->err);
	r = r ? r : mp_put_cstr(out, "text");
	r = r ? r : mp_put_cstr(out, rp->text);
	r = r ? r : mp_put_cstr(out, "more");
	r = r ? r : mp_put_bool(out, rp->more);
	r = r ? r : mp_put_cstr(out, "items");
	r = r ? r : mp_put_array(out, n);
	return r || !n ? r : buf_put(out, items->data, items->len);
}

static int rep_fill(const msgpack_object *o, struct ctl_rep_doc *ret)
{
	const msgpack_object *items = mp_get(o, "items"), *text = mp_get(o, "text");
	uint64_t err;
	int r = mp_as_uint(mp_get(o, "err"), 4095, &err);

	if (r == 0)
		r = mp_as_bool(mp_get(o, "more"), &ret->rep.more);
	if (r == 0)
		r = text ? get_chars(text, ret->rep.text, sizeof(ret->rep.text)) : -EBADMSG;
	if (r < 0 || !items || items->type != MSGPACK_OBJECT_ARRAY || o->via.map.size != 6)
		return -EBADMSG;
	ret->rep.err = -(int)err;
	ret->items = items->via.array.ptr;
	ret->nitems = items->via.array.size;
	return 0;
}

int ctl_rep_decode(const void *p, size_t n, struct ctl_rep_doc *ret, uint64_t *ret_version)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	*ret_version = 0;
	r = mp_parse(p, n, &ret->doc);
	if (r < 0)
		return r;
	r = get_head(&ret->doc.root, ret_version, &ret->rep.id);
	if (r == 0)
		r = rep_fill(&ret->doc.root, ret);
	if (r < 0)
		ctl_rep_release(ret);
	return r;
}

void ctl_rep_release(struct ctl_rep_doc *d)
{
	mp_release(&d->doc);
	d->items = NULL;
	d->nitems = 0;
}
