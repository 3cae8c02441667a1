/* An import from its beginning to its name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/core/diff.h"
#include "fs/core/ovl.h"
#include "fs/image/image_internal.h"

#define ASK_EVERY 32

int image_kind_parse(const char *s, enum image_kind *ret)
{
	static const char *const names[] = {
		[IMAGE_DIR] = "dir", [IMAGE_TAR] = "tar", [IMAGE_OCI] = "oci"};

	for (int i = IMAGE_DIR; i <= IMAGE_OCI; i++)
		if (!strcmp(s, names[i])) {
			*ret = (enum image_kind)i;
			return 0;
		}
	return -EINVAL;
}

bool image_name_reserved(const char *name)
{
	return !strcmp(name, "host") || !strcmp(name, "through");
}

bool progress_stop(void *p)
{
	struct progress *g = p;

	if (!g->stopped && g->calls++ % ASK_EVERY == 0 && g->watch && g->watch->go_on)
		g->stopped = !g->watch->go_on(g->watch->arg, g->done, g->total);
	return g->stopped;
}

/* ---- layers ---- */

store_layer importing_top(const struct importing *x)
{
	return x->n ? x->v[x->n - 1].layer : 0;
}

static int push(struct importing *x, const struct made *m)
{
	struct made *v = reallocarray(x->v, x->n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	x->v = v;
	v[x->n++] = *m;
	return 0;
}

int importing_reuse(struct importing *x, store_layer layer)
{
	struct made m = {.layer = layer, .pin = -1};
	int r = store_layer_pin(x->o->store, layer, &m.pin);

	if (r == 0)
		r = push(x, &m);
	if (r < 0) {
		cleanup_fdp(&m.pin);
		return r;
	}
	x->done->reused++;
	return 0;
}

static int commit_of(struct importing *x, store_layer layer, struct store_commit *ret)
{
	const struct timespec never = {0};
	struct store_commit below = {0};
	store_layer from = importing_top(x);
	struct diff_counts n;
	int r = 0;

	*ret = (struct store_commit){.kind = STORE_BASE, .layer = layer};
	if (x->n && x->v[x->n - 1].ours)
		ret->parent = x->v[x->n - 1].commit.id;
	else if (from) {
		r = store_commit_of_layer(x->o->store, from, &below);
		ret->parent = below.id;
		store_commit_release(&below);
	}
	/* Nothing but content: the same again has the same id. */
	if (r == 0)
		r = diff_commit_id(x->o->store, &ret->parent, from, layer, "", "", &never, &ret->id,
				   &n);
	if (r == -E2BIG)
		return diag_set(
			x->diag, -ENOMEM,
			"the paths of the new tree, all together, are too long for the memory of "
			"this machine");
	if (r < 0)
		return diag_set(x->diag, r, "cannot compute the id of the new tree: %s",
				err_text(r));
	ret->added = n.added;
	ret->modified = n.modified + n.renamed;
	ret->deleted = n.deleted;
	return 0;
}

int importing_add(struct importing *x, store_layer layer, const char *chain)
{
	struct made m = {.layer = layer, .ours = true, .pin = steal_fd(&x->pin)};
	struct store_commit old = {0};
	int r = commit_of(x, layer, &m.commit);

	if (r < 0) {
		cleanup_fdp(&m.pin);
		(void)!store_layers_discard(x->o->store, &layer, 1);
		return r;
	}
	(void)snprintf(m.chain, sizeof(m.chain), "%s", chain ? chain : "");
	/* On top of a layer of ours nothing can be there. */
	if ((!x->n || !x->v[x->n - 1].ours) &&
	    store_commit_get(x->o->store, &m.commit.id, &old) == 0) {
		(void)!store_layers_discard(x->o->store, &layer, 1);
		m.layer = old.layer;
		m.ours = false;
		store_commit_release(&old);
		cleanup_fdp(&m.pin);
		m.pin = -1;
		r = store_layer_pin(x->o->store, m.layer, &m.pin);
	}
	if (r == 0)
		r = push(x, &m);
	if (r < 0)
		cleanup_fdp(&m.pin);
	if (r < 0 && m.ours)
		(void)!store_layers_discard(x->o->store, &layer, 1);
	return r;
}

int importing_sink(struct importing *x, struct sink **ret)
{
	struct sink_opts o = {.store = x->o->store,
			      .parent = importing_top(x),
			      .disk_max = x->o->disk_max ? x->begin + x->o->disk_max : 0,
			      .diag = x->diag,
			      .stop = progress_stop,
			      .ret_pin = &x->pin,
			      .arg = &x->p};

	return sink_open(&o, ret);
}

int importing_finish(struct importing *x, struct sink *k, const char *chain)
{
	struct sink_counts n;
	store_layer layer;
	int r;

	sink_counts(k, &n);
	r = sink_finish(k, &layer);
	if (r < 0)
		return r;
	x->done->entries += n.entries;
	x->done->bytes += n.bytes;
	x->done->skipped += n.skipped;
	return importing_add(x, layer, chain);
}

/* ---- sources of one layer ---- */

static int from_file(struct importing *x, struct sink *k)
{
	struct byte_source src;
	struct file_source f;
	int r = file_source_open(&f, x->o->src, &x->p, x->diag);

	src = file_source_bytes(&f);
	if (r == 0)
		r = from_tar(&src, false, x->o->strip, k, x->diag);
	file_source_close(&f);
	return r;
}

static int one_layer(struct importing *x)
{
	struct sink *k;
	int r = importing_sink(x, &k);

	if (r < 0)
		return r;
	r = x->o->kind == IMAGE_DIR ? from_dir(x, k) : from_file(x, k);
	if (r < 0) {
		sink_abort(k);
		return r;
	}
	r = importing_finish(x, k, NULL);
	if (r == 0)
		listed_seal(&x->info.files, &x->v[x->n - 1].commit.id, x->done->bytes);
	return r;
}

/* ---- the name ---- */

static int give_name(struct importing *x, store_layer info)
{
	cleanup_free struct store_commit *c = calloc(x->n, sizeof(*c));
	cleanup_free struct store_ref *refs = calloc(x->n + 1, sizeof(*refs));
	struct store_base b = {.name = x->o->name,
			       .layer = importing_top(x),
			       .commits = c,
			       .refs = refs,
			       .replace = x->o->replace};
	char ref[80];
	int r;

	if (!c || !refs)
		return -ENOMEM;
	for (size_t i = 0; i < x->n; i++) {
		if (x->v[i].ours)
			c[b.ncommits++] = x->v[i].commit;
		if (x->v[i].chain[0])
			refs[b.nrefs++] = (struct store_ref){x->v[i].chain, x->v[i].layer};
	}
	(void)snprintf(ref, sizeof(ref), IMAGE_REF "%s", x->o->name);
	refs[b.nrefs++] = (struct store_ref){ref, info};
	r = store_base_set(x->o->store, &b);
	if (r == -EAGAIN)
		return diag_set(x->diag, -EBUSY,
				"the same was imported, or removed, at the same time; try again");
	return r;
}

/* What the tree has to install packages with. */
static int see_manager(struct importing *x)
{
	static const struct {
		const char *path, *name;
	} known[] = {{"/usr/bin/apt-get", "apt"}, {"/usr/bin/pacman", "pacman"}};
	struct ovl_opts oo = {.store = x->o->store, .flags = OVL_RDONLY, .layer = importing_top(x)};
	struct ovl_entry e;
	struct ovl *o;
	int r = ovl_open(&oo, &o);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(known) && !x->info.manager[0]; i++) {
		int k = ovl_walk(o, known[i].path, &e);

		if (k == 0) {
			(void)snprintf(x->info.manager, sizeof(x->info.manager), "%s",
				       known[i].name);
			ovl_forget(o, e.ino, 1);
		} else if (k != -ENOENT && k != -ENOTDIR && k != -ELOOP) {
			r = k;
		}
	}
	return r < 0 ? r : ovl_close(o);
}

static int name_it(struct importing *x)
{
	struct store_commit top = {0};
	store_layer info;
	int r;

	x->info.entries = x->done->entries;
	x->info.bytes = x->done->bytes;
	r = see_manager(x);
	if (r == 0)
		r = image_info_write(x->o->store, &x->info, &info);
	if (r < 0)
		return r;
	/* The last time: whoever waited may have gone while the id was computed. */
	x->p.calls = 0;
	r = progress_stop(&x->p) ? -ECANCELED : 0;
	if (r == 0)
		r = give_name(x, info);
	if (r < 0) {
		(void)!store_layers_discard(x->o->store, &info, 1);
		return r;
	}
	x->done->layer = importing_top(x);
	r = store_commit_of_layer(x->o->store, x->done->layer, &top);
	x->done->id = top.id;
	store_commit_release(&top);
	return r;
}

static int taken(const struct image_import *o, struct diag *diag)
{
	return diag_set(diag, -EEXIST,
			"there is a base '%s' already; --replace gives its name to the new one",
			o->name);
}

static int check_name(const struct image_import *o, struct diag *diag)
{
	store_layer there;
	char ref[80];
	int r;

	if (!store_env_name_valid(o->name))
		return diag_set(
			diag, -EINVAL,
			"'%.80s' is no name of a base: 1 to 64 of A-Z a-z 0-9 . _ -, the first no dot or dash",
			o->name);
	if (image_name_reserved(o->name))
		return diag_set(diag, -EINVAL,
				"the base '%s' is made by rattan; choose another name", o->name);
	(void)snprintf(ref, sizeof(ref), "base/%s", o->name);
	r = store_ref_get(o->store, ref, &there);
	if (r == 0 && !o->replace)
		return taken(o, diag);
	return r == -ENOENT ? 0 : r;
}

static void give_up(struct importing *x)
{
	for (size_t i = x->n; i--;)
		if (x->v[i].ours)
			(void)!store_layers_discard(x->o->store, &x->v[i].layer, 1);
}

int image_import(const struct image_import *o, struct diag *diag, struct image_done *ret)
{
	struct importing x = {.o = o,
			      .diag = diag,
			      .p = {.watch = &o->watch},
			      .begin = store_written(o->store),
			      .pin = -1,
			      .done = ret};
	static const char *const sources[] = {
		[IMAGE_DIR] = "dir", [IMAGE_TAR] = "tar", [IMAGE_OCI] = "oci"};
	int r = check_name(o, diag);

	*ret = (struct image_done){0};
	(void)snprintf(x.info.source, sizeof(x.info.source), "%s", sources[o->kind]);
	if (r == 0)
		r = o->kind == IMAGE_OCI ? from_oci(&x) : one_layer(&x);
	if (r == 0)
		r = name_it(&x);
	if (r < 0)
		give_up(&x);
	ret->layers = x.n;
	ret->written = store_written(o->store) - x.begin;
	for (size_t i = 0; i < x.n; i++)
		cleanup_fdp(&x.v[i].pin);
	free(x.v);
	image_info_release(&x.info);
	if (r == -EEXIST)
		return taken(o, diag);
	return r < 0 ? diag_set(diag, r, "cannot import %s: %s", o->src, err_text(r)) : 0;
}
