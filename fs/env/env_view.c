/* Looking: status, differences, contents, what changed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/core/diff.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/env_internal.h"

/* A token names a mount and a place in its change log; after a fresh mount it is too old. */
#define TOKEN_BITS 44
#define TOKEN_MASK ((UINT64_C(1) << TOKEN_BITS) - 1)

uint64_t env_token_locked(const struct env *e, uint64_t changes)
{
	return ((e->token_generation + e->generation) << TOKEN_BITS) | ((changes + 1) & TOKEN_MASK);
}

/* ---- status ---- */

static int count_one(void *arg, const struct diff_entry *d)
{
	struct ctl_status *st = arg;

	switch (d->kind) {
	case DIFF_ADDED:
		st->added++;
		break;
	case DIFF_DELETED:
		st->deleted++;
		break;
	case DIFF_RENAMED:
		st->renamed++;
		break;
	case DIFF_MODIFIED:
	case DIFF_TYPE:
		st->modified++;
		break;
	}
	return 0;
}

static int status_changes(struct env *e, struct ctl_status *ret)
{
	struct ovl_counts n;
	store_layer at;
	int r;

	ovl_counts(e->cur.ovl, &n);
	ret->bytes_dirty = n.bytes_dirty;
	ret->token = env_token_locked(e, n.changes);
	r = env_head_locked(e, &at);
	if (r < 0 || (!n.layer_changed && at == e->rec.head))
		return r;
	/* A full disk must not hide the rest of the status. */
	r = ovl_flush(e->cur.ovl);
	if (r < 0 && !err_no_room(r))
		return r;
	r = diff_layers(e->store, at, e->rec.open, DIFF_PEOPLE, count_one, ret);
	if (r == -E2BIG) { /* nor must a tree whose changes nobody can count */
		ret->dirty = true;
		return 0;
	}
	ret->dirty = ret->added + ret->modified + ret->deleted + ret->renamed > 0;
	return r;
}

int env_untouched_locked(struct env *e)
{
	struct ctl_status st = {0};
	store_layer at;
	int r = env_head_locked(e, &at);

	if (r == 0 && at == e->rec.base)
		r = status_changes(e, &st);
	else if (r == 0)
		return 0;
	return r < 0 ? r : !st.dirty;
}

static int status_head(struct env *e, struct ctl_status *ret)
{
	struct store_commit c = {0};
	store_layer at;
	int r = env_head_locked(e, &at);

	if (r == 0)
		r = store_commit_of_layer(e->store, at, &c);
	if (r == 0) {
		digest_hex(&c.id, ret->head);
		memcpy(ret->head_label, c.label, sizeof(ret->head_label));
	}
	store_commit_release(&c);
	return r == -ENOENT ? 0 : r;
}

static int status_overlays(struct env *e, struct ctl_status *ret)
{
	char **pairs = NULL;
	size_t n = 0;
	int r = env_overlays_list(e->store, e->rec.base, &pairs);

	if (r < 0)
		return r;
	while (pairs[n])
		n++;
	ret->overlays = calloc(n / 2 + 1, sizeof(*ret->overlays));
	if (!ret->overlays)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < n / 2; i++) {
		if (asprintf(&ret->overlays[i], "%s=%s", pairs[2 * i], pairs[2 * i + 1]) < 0) {
			ret->overlays[i] = NULL;
			r = -ENOMEM;
		}
	}
	env_list_free(pairs);
	return r;
}

static int status_binds(struct env *e, struct ctl_status *ret)
{
	ret->binds = calloc(e->nbinds ? e->nbinds : 1, sizeof(*ret->binds));
	if (!ret->binds)
		return -ENOMEM;
	for (size_t i = 0; i < e->nbinds; i++) {
		ret->nbinds = i + 1;
		ret->binds[i].host = strdup(e->binds[i].host);
		ret->binds[i].mount = strdup(e->binds[i].mount);
		ret->binds[i].rw = e->binds[i].rw;
		if (!ret->binds[i].host || !ret->binds[i].mount)
			return -ENOMEM;
	}
	return 0;
}

int env_status(struct env *e, struct diag *diag, struct ctl_status *ret)
{
	struct store_stats ss = {0};
	int r;

	memset(ret, 0, sizeof(*ret));
	ENV_LOCK(e);
	r = env_ensure_locked(e, diag);
	if (r == 0)
		r = status_changes(e, ret);
	if (r == 0)
		r = status_head(e, ret);
	if (r == 0)
		r = status_overlays(e, ret);
	if (r == 0)
		r = status_binds(e, ret);
	if (r == 0)
		r = store_stats(e->store, &ss);
	if (r < 0) {
		ctl_item_release(&ctl_table_status, ret);
		return diag_set(diag, r, "cannot read the state: %s", err_text(r));
	}
	memcpy(ret->env, e->rec.name, sizeof(ret->env));
	memcpy(ret->base, e->rec.base_name, sizeof(ret->base));
	ret->leases = env_commands_locked(e);
	ret->daemon_pid = (int)getpid();
	ret->uptime_s = (uint64_t)(io_now_ms() - e->started_ms) / 1000;
	ret->disk_free = ss.disk_free;
	ret->disk_max = atomic_load(&e->disk_max);
	ret->disk_used = store_written(e->store);
	ret->store_bytes = ss.chunk_file_bytes + ss.meta_file_bytes;
	return 0;
}

/* ---- differences ---- */

struct diff_ctx {
	int (*fn)(void *arg, const struct ctl_change *ch);
	void *arg;
};

static int diff_one(void *arg, const struct diff_entry *d)
{
	const struct diff_ctx *x = arg;
	const struct hidden *h = d->hidden;
	struct ctl_change ch = {.kind = (char)d->kind,
				.path = d->path,
				.old_path = d->old_path,
				.mode = d->mode,
				.size = d->size,
				.what = d->what};

	if (h) {
		ch.hid_mode = h->mode;
		ch.hid_dev = h->dev;
		ch.hid_ino = h->ino;
		ch.hid_size = h->size;
		ch.hid_mtime = h->mtime;
		ch.hid_ctime = h->ctime;
		ch.hid_at = h->at;
	}
	return x->fn(x->arg, &ch);
}

/* Which two layers; the working tree is flushed first, because the comparison reads the store. */
static int diff_sides(struct env *e, const char *a, const char *b, struct diag *diag,
		      store_layer *from, store_layer *to)
{
	int r;

	ENV_LOCK(e);
	r = env_head_locked(e, from);
	*to = e->rec.open;
	if (r == 0 && a)
		r = env_resolve(e->store, e->rec.name, a, diag, from);
	if (r == 0 && b)
		return env_resolve(e->store, e->rec.name, b, diag, to);
	if (r == 0) {
		r = env_quiesce_locked(e);
		if (r < 0)
			diag_set(diag, r, "cannot write what is not on the disk yet: %s",
				 err_text(r));
	}
	return r;
}

int env_diff(struct env *e, const char *a, const char *b, bool all, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg)
{
	struct diff_ctx x = {.fn = fn, .arg = arg};
	store_layer from, to;
	int r = env_check_kept(e, diag);

	if (r == 0)
		r = diff_sides(e, a, b, diag, &from, &to);
	if (r < 0)
		return r;
	r = diff_layers(e->store, from, to, DIFF_PEOPLE | (all ? DIFF_ALL | DIFF_HIDDEN : 0),
			diff_one, &x);
	if (r == -E2BIG)
		return diag_set(diag, r, ENV_TOO_LONG);
	return r < 0 ? diag_set(diag, r, "cannot compare: %s", err_text(r)) : r;
}

/* ---- changes ---- */

int env_changes(struct env *e, uint64_t token, struct diag *diag, uint64_t *ret_token,
		int (*fn)(void *arg, const char *path, char what), void *arg)
{
	struct ovl_counts n;
	uint64_t since = 0;
	int r;

	ENV_LOCK(e);
	r = env_ensure_locked(e, diag);
	if (r < 0)
		return r;
	ovl_counts(e->cur.ovl, &n);
	if (token) {
		since = (token & TOKEN_MASK) - 1;
		if (token >> TOKEN_BITS != env_token_locked(e, 0) >> TOKEN_BITS ||
		    since > n.changes)
			return diag_set(
				diag, -ESTALE,
				"the token is of an earlier mount; look at everything again");
	}
	r = ovl_changes(e->cur.ovl, since, fn, arg);
	if (r == -ESTALE)
		return diag_set(diag, r, "too much has changed since; look at everything again");
	*ret_token = env_token_locked(e, n.changes);
	return r;
}

/* ---- denials ---- */

int env_denials(struct env *e, uint64_t token, struct diag *diag, uint64_t *ret_token,
		uint64_t *ret_total, int (*fn)(void *arg, const struct denial *d), void *arg)
{
	uint64_t since = 0, total;
	int r;

	ENV_LOCK(e);
	r = env_ensure_locked(e, diag);
	if (r < 0)
		return r;
	if (token) {
		since = (token & TOKEN_MASK) - 1;
		if (token >> TOKEN_BITS != env_token_locked(e, 0) >> TOKEN_BITS)
			return diag_set(diag, -ESTALE, "the token is of an earlier mount");
	}
	r = e->cur.through ? through_denials(e->cur.through, since, fn, arg, &total)
			   : ovl_denials(e->cur.ovl, since, fn, arg, &total);
	*ret_token = env_token_locked(e, total);
	*ret_total = total > since ? total - since : 0;
	return r;
}
