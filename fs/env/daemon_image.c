/* rattan-fs admin import, export, bases, history, base-remove: root file systems in and out of the store. */
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_client.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"
#include "fs/image/image.h"
#include "store/store.h"

#define TELL_MS 200

struct telling {
	struct daemon_stream t;
	long long last;
};

static bool starter_there(int fd)
{
	struct pollfd p = {.fd = fd};

	return poll(&p, 1, 0) <= 0 || !(p.revents & (POLLERR | POLLHUP));
}

/* Also how a starter that has gone away is noticed. */
static bool go_on(void *arg, uint64_t done, uint64_t total)
{
	struct ctl_progress p = {
		.stage = (char *)(uintptr_t) "bytes", .done = done, .total = total};
	struct telling *x = arg;
	long long now = io_now_ms();

	if (now < x->last + TELL_MS)
		return starter_there(x->t.fd);
	x->last = now;
	return daemon_stream_item(&x->t, CTL_IMAGE_PROGRESS, true, &ctl_table_progress, &p) == 0;
}

/* Whoever waits may have gone a moment ago, and goes by how we end: it is done all the same. */
static int tell_end(struct telling *x, const struct ctl_table *table, const void *sum)
{
	int r = daemon_stream_item(&x->t, CTL_IMAGE_END, false, table, sum);

	return r == -EPIPE ? 0 : r;
}

static void prepare(void)
{
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit of the size of files is a full disk */
	/* Names are bytes; libarchive converts them between the locale's and UTF-8. */
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		(void)setlocale(LC_CTYPE, "");
}

/* ---- import ---- */

static int import_into(const struct daemon_opts *o, struct store *s, struct telling *x,
		       struct diag *diag, struct ctl_import_sum *ret)
{
	struct image_import io = {.store = s,
				  .src = o->src,
				  .tag = o->tag,
				  .name = o->name,
				  .strip = o->strip,
				  .replace = o->replace,
				  .reread = o->reread,
				  .disk_max = o->disk_max,
				  .watch = {go_on, x}};
	struct image_done d;
	int r = image_kind_parse(o->kind, &io.kind);

	if (r == 0)
		r = image_import(&io, diag, &d);
	if (r < 0)
		return r;
	*ret = (struct ctl_import_sum){.entries = d.entries,
				       .bytes = d.bytes,
				       .written = d.written,
				       .layers = d.layers,
				       .reused = d.reused,
				       .skipped = d.skipped,
				       .unread = d.unread};
	digest_hex(&d.id, ret->id);
	return 0;
}

int daemon_admin_import(const struct daemon_opts *o)
{
	struct telling x = {.t = {.fd = o->ready_fd}, .last = io_now_ms()};
	cleanup_store struct store *s = NULL;
	struct ctl_import_sum sum = {0};
	struct diag diag = {0};
	int r;

	(void)umask(077);
	prepare();
	r = store_open(o->data_dir, STORE_CREATE, &diag, &s);
	if (r == 0)
		r = import_into(o, s, &x, &diag, &sum);
	if (r < 0)
		daemon_stream_error(&x.t, CTL_IMAGE_END, r, &diag);
	else
		r = tell_end(&x, &ctl_table_import, &sum);
	daemon_stream_release(&x.t);
	return r;
}

/* ---- export ---- */

/* The name of a base, or a revision of the environment; whose settings an image takes over is told too. */
static int find(struct store *s, const struct daemon_opts *o, struct diag *diag,
		struct store_env *env, store_layer *ret, const char **ret_base)
{
	struct store_layer_info li;
	char ref[80];
	int r = -ENOENT;

	*ret_base = o->rev;
	if (store_env_name_valid(o->rev)) {
		(void)snprintf(ref, sizeof(ref), "base/%s", o->rev);
		r = store_ref_get(s, ref, ret);
	}
	if (r == -ENOENT) {
		struct diag why = {0};

		r = env_resolve(s, o->env, o->rev, &why, ret);
		if (r < 0)
			return diag_set(diag, r, "%s%s", why.text,
					r == -ENOENT ? ", and no base that rattan base list names"
						     : "");
		*ret_base = NULL;
		if (r == 0 && o->env && store_env_get(s, o->env, env) == 0) {
			env->base_name[strcspn(env->base_name, "@")] = 0;
			*ret_base = env->base_name;
		}
	}
	if (r == 0)
		r = store_layer_get(s, *ret, &li);
	if (r == 0 && li.state != STORE_LAYER_SEALED)
		r = diag_set(diag, -ENOENT, "\"%s\" is no sealed state", o->rev);
	return r;
}

static int export_from(const struct daemon_opts *o, struct store *s, struct telling *x,
		       struct diag *diag, struct ctl_export_sum *ret)
{
	struct image_export eo = {.store = s,
				  .dest = o->dest,
				  .tag = o->tag,
				  .squash = o->squash,
				  .host = o->with_host,
				  .pack_given = o->pack != NULL,
				  .watch = {go_on, x}};
	struct store_env env;
	struct image_out d;
	int r = image_kind_parse(o->kind, &eo.kind);

	if (r == 0 && o->pack)
		r = image_pack_parse(o->pack, &eo.pack);
	if (r == 0)
		r = find(s, o, diag, &env, &eo.layer, &eo.base);
	if (r == 0)
		r = image_export(&eo, diag, &d);
	if (r < 0)
		return r;
	*ret = (struct ctl_export_sum){
		.entries = d.entries, .bytes = d.bytes, .skipped = d.skipped, .layers = d.layers};
	if (eo.kind == IMAGE_OCI)
		digest_hex(&d.digest, ret->digest);
	return 0;
}

/* What is written is the caller's, so his umask stays. */
int daemon_admin_export(const struct daemon_opts *o)
{
	struct telling x = {.t = {.fd = o->ready_fd}, .last = io_now_ms()};
	cleanup_store struct store *s = NULL;
	struct ctl_export_sum sum = {0};
	struct diag diag = {0};
	int r;

	prepare();
	r = store_open(o->data_dir, 0, &diag, &s);
	if (r == 0)
		r = export_from(o, s, &x, &diag, &sum);
	if (r < 0)
		daemon_stream_error(&x.t, CTL_IMAGE_END, r, &diag);
	else
		r = tell_end(&x, &ctl_table_export, &sum);
	daemon_stream_release(&x.t);
	return r;
}

int daemon_admin_have(const struct daemon_opts *o)
{
	cleanup_store struct store *s = NULL;
	cleanup_buf struct buf item = {0};
	struct ctl_had_sum sum = {0};
	struct image_had had;
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r = store_open(o->data_dir, 0, &diag, &s);

	if (r == -ENOENT) /* a data directory without a store has nothing */
		r = 0;
	if (r == 0)
		r = image_have(s, o->src, &diag, &had);
	if (r == 0) {
		sum.layers = had.layers;
		sum.bytes = had.bytes;
		if (had.choose)
			digest_hex(&had.manifest, sum.manifest);
		r = ctl_item_put(&item, &ctl_table_had, &sum);
	}
	return daemon_tell(&ready_fd, r, &diag, &item, r == 0);
}

/* ---- bases ---- */

struct listing {
	struct buf items;
	uint32_t n;
};

static int put_base(void *arg, const struct image_base *b)
{
	struct ctl_base_info i = {.created = b->created, .entries = b->entries, .bytes = b->bytes};
	struct listing *l = arg;

	memcpy(i.name, b->name, sizeof(i.name));
	memcpy(i.source, b->source, sizeof(i.source));
	memcpy(i.manager, b->manager, sizeof(i.manager));
	if (b->has_id)
		digest_hex(&b->id, i.id);
	l->n++;
	return ctl_item_put(&l->items, &ctl_table_base, &i);
}

int daemon_admin_bases(const struct daemon_opts *o)
{
	cleanup_store struct store *s = NULL;
	struct listing l = {0};
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r = store_open(o->data_dir, 0, &diag, &s);

	/* A data directory without a store has none. */
	if (r == -ENOENT)
		return daemon_tell(&ready_fd, 0, NULL, NULL, 0);
	if (r == 0)
		r = image_bases(s, put_base, &l);
	r = daemon_tell(&ready_fd, r, &diag, &l.items, r == 0 ? l.n : 0);
	buf_release(&l.items);
	return r;
}

/* The texts are lent. */
static int put_step(void *arg, const struct image_step *s)
{
	struct ctl_step i = {.message = (char *)(uintptr_t)s->message,
			     .by = (char *)(uintptr_t)s->by,
			     .author = (char *)(uintptr_t)s->author,
			     .time = s->time,
			     .empty = s->empty};
	struct listing *l = arg;

	if (s->has_id)
		digest_hex(&s->id, i.id);
	l->n++;
	return ctl_item_put(&l->items, &ctl_table_step, &i);
}

/* Is @base the tree @named, or that with the directories which a sandbox needs, in a layer that is no commit? */
static int is_tree(struct store *s, store_layer base, store_layer named)
{
	struct store_layer_info li;
	struct store_commit c;
	int r;

	if (base == named)
		return 1;
	r = store_commit_of_layer(s, base, &c);
	if (r == 0)
		store_commit_release(&c);
	if (r != -ENOENT)
		return r;
	r = store_layer_get(s, base, &li);
	return r < 0 ? r : li.parent == named;
}

/* The name of the base that @env began on; "": it is no tree's, or another's, by now. */
static int base_of(struct store *s, const char *env, char *ret, size_t size)
{
	struct store_env e;
	store_layer named;
	char ref[80];
	int r = store_env_get(s, env, &e);

	ret[0] = 0;
	if (r < 0)
		return r;
	(void)snprintf(ref, sizeof(ref), "base/%.*s", (int)strcspn(e.base_name, "@"), e.base_name);
	r = store_ref_get(s, ref, &named);
	if (r == 0)
		r = is_tree(s, e.base, named);
	if (r > 0)
		(void)snprintf(ret, size, "%s", ref + strlen("base/"));
	return r < 0 && r != -ENOENT ? r : 0;
}

static int history(const struct daemon_opts *o, struct store *s, struct listing *l,
		   struct diag *diag)
{
	char name[80], ref[80];
	store_layer layer;
	int r = 0;

	if (!o->name && !o->env)
		return -EINVAL;
	if (o->name)
		(void)snprintf(name, sizeof(name), "%.79s", o->name);
	else
		r = base_of(s, o->env, name, sizeof(name));
	if (r < 0 || !name[0])
		return r;
	if (snprintf(ref, sizeof(ref), "base/%s", name) >= (int)sizeof(ref))
		r = -ENOENT;
	if (r == 0)
		r = store_ref_get(s, ref, &layer);
	if (r == -ENOENT)
		return diag_set(diag, r, "there is no base '%.80s'; rattan base list names all",
				name);
	return r < 0 ? r : image_history(s, name, put_step, l);
}

int daemon_admin_history(const struct daemon_opts *o)
{
	cleanup_store struct store *s = NULL;
	struct listing l = {0};
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r = store_open(o->data_dir, 0, &diag, &s);

	if (r == 0)
		r = history(o, s, &l, &diag);
	r = daemon_tell(&ready_fd, r, &diag, &l.items, r == 0 ? l.n : 0);
	buf_release(&l.items);
	return r;
}

int daemon_admin_base_remove(const struct daemon_opts *o)
{
	cleanup_store struct store *s = NULL;
	struct diag diag = {0};
	int ready_fd = o->ready_fd, r = store_open(o->data_dir, 0, &diag, &s);

	if (r == 0 && image_name_reserved(o->name))
		r = diag_set(&diag, -EBUSY,
			     "the base '%s' is rattan's own, and made again when it is needed",
			     o->name);
	if (r == 0)
		r = store_base_remove(s, o->name);
	if (r == -ENOENT && !*diag.text)
		diag_set(&diag, r, "there is no base '%s'; rattan base list names all", o->name);
	return daemon_tell(&ready_fd, r, &diag, NULL, 0);
}
