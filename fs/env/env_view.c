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
	r = store_head_commit(e->store, e->rec.head, &at);
	if (r < 0 || (!n.layer_changed && at == e->rec.head))
		return r;
	/* A full disk must not hide the rest of the status. */
	r = ovl_flush(e->cur.ovl);
	if (r < 0 && !err_no_room(r))
		return r;
	r = diff_layers(e->store, at, e->rec.open, 0, count_one, ret);
	ret->dirty = ret->added + ret->modified + ret->deleted + ret->renamed > 0;
	return r;
}

static int status_head(struct env *e, struct ctl_status *ret)
{
	struct store_commit c = {0};
	store_layer at;
	int r = store_head_commit(e->store, e->rec.head, &at);

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
	const struct ctl_change ch = {.kind = (char)d->kind,
				      .path = d->path,
				      .old_path = d->old_path,
				      .mode = d->mode,
				      .size = d->size};

	return x->fn(x->arg, &ch);
}

/* Which two layers; the working tree is flushed first, because the comparison reads the store. */
static int diff_sides(struct env *e, const char *a, const char *b, struct diag *diag,
		      store_layer *from, store_layer *to)
{
	int r;

	ENV_LOCK(e);
	r = store_head_commit(e->store, e->rec.head, from);
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

int env_diff(struct env *e, const char *a, const char *b, struct diag *diag,
	     int (*fn)(void *arg, const struct ctl_change *ch), void *arg)
{
	struct diff_ctx x = {.fn = fn, .arg = arg};
	store_layer from, to;
	int r = env_check_kept(e, diag);

	if (r == 0)
		r = diff_sides(e, a, b, diag, &from, &to);
	if (r < 0)
		return r;
	r = diff_layers(e->store, from, to, 0, diff_one, &x);
	return r < 0 ? diag_set(diag, r, "cannot compare: %s", err_text(r)) : r;
}

/* ---- contents ---- */

#define CAT_MAX (64u << 20)

static int copy_out(struct ovl *o, const struct ovl_entry *ent, int fd)
{
	uint64_t size = (uint64_t)ent->attr.st.st_size, off = 0;
	cleanup_free char *buf = NULL;

	if (S_ISLNK(ent->attr.st.st_mode)) {
		char target[4096];
		int r = ovl_readlink(o, ent->ino, target);

		return r < 0 ? r : io_write_full(fd, target, strlen(target));
	}
	if (!S_ISREG(ent->attr.st.st_mode))
		return S_ISDIR(ent->attr.st.st_mode) ? -EISDIR : -EINVAL;
	if (size > CAT_MAX)
		return -EFBIG;
	buf = malloc(STORE_BLOCK);
	if (!buf)
		return -ENOMEM;
	while (off < CAT_MAX) {
		ssize_t n = ovl_read(o, ent->ino, off, buf, STORE_BLOCK);
		int r;

		if (n <= 0)
			return (int)n;
		r = io_write_full(fd, buf, (size_t)n);
		if (r < 0)
			return r;
		off += (uint64_t)n;
	}
	return 0;
}

static int cat_from(struct ovl *o, const char *path, int fd, uint32_t *ret_mode)
{
	struct ovl_entry ent;
	int r = ovl_walk(o, path, &ent);

	if (r < 0)
		return r;
	if (ent.ino == 0)
		return -ENOENT;
	r = copy_out(o, &ent, fd);
	*ret_mode = ent.attr.st.st_mode;
	ovl_forget(o, ent.ino, 1);
	return r;
}

static int cat_at(struct env *e, store_layer layer, const struct policy_rules *policy,
		  const char *path, int fd, uint32_t *ret_mode)
{
	struct ovl_opts oo = {
		.store = e->store, .layer = layer, .flags = OVL_RDONLY, .policy = policy};
	struct ovl *o = NULL;
	int r = ovl_open(&oo, &o), k;

	if (r < 0)
		return r;
	r = cat_from(o, path, fd, ret_mode);
	k = ovl_close(o);
	return r < 0 ? r : k;
}

static int cat_any(struct env *e, const char *rev, const char *path, struct diag *diag, int fd,
		   uint32_t *ret_mode)
{
	cleanup_policy_rules struct policy_rules policy = {0};
	store_layer layer;
	int r;

	{
		ENV_LOCK(e);
		if (!rev) {
			r = env_check_kept(e, diag);
			if (r == 0)
				r = env_ensure_locked(e, diag);
			return r < 0 ? r : cat_from(e->cur.ovl, path, fd, ret_mode);
		}
		r = env_resolve(e->store, e->rec.name, rev, diag, &layer);
		/* What is closed now was not open before. */
		if (r == 0)
			r = policy_rules_copy(&e->policy.rules, &policy);
	}
	return r < 0 ? r : cat_at(e, layer, &policy, path, fd, ret_mode);
}

int env_cat(struct env *e, const char *rev, const char *path, struct diag *diag, int *ret_fd,
	    uint32_t *ret_mode)
{
	cleanup_fd int fd = -1;
	int r;

	if (!path || path[0] != '/')
		return diag_set(diag, -EINVAL, "cat needs an absolute path in the tree");
	fd = memfd_create("rattan-cat", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return ret_nerrno();
	r = cat_any(e, rev, path, diag, fd, ret_mode);
	if (r == -EFBIG)
		return diag_set(diag, r, "%s is larger than %u MiB", path, CAT_MAX >> 20);
	if (r < 0)
		return diag_set(diag, r, "%s: %s", path, err_text(r));
	if (lseek(fd, 0, SEEK_SET) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
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
