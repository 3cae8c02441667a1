/* Making an environment: its base, and host directories laid over it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/core/basefit.h"
#include "fs/core/hostbase.h"
#include "fs/env/env_internal.h"

int env_resolve(struct store *s, const char *env, const char *rev, struct diag *diag,
		store_layer *ret_layer)
{
	const char *colon = strchr(rev, ':');
	char other[65];

	if (!colon)
		return store_resolve(s, env, rev, diag, ret_layer);
	if (colon == rev || (size_t)(colon - rev) >= sizeof(other))
		return diag_set(diag, -ENOENT,
				"no environment of the name before the colon in \"%s\"", rev);
	memcpy(other, rev, (size_t)(colon - rev));
	other[colon - rev] = 0;
	return store_resolve(s, other, colon + 1, diag, ret_layer);
}

/* ---- what is there ---- */

struct found {
	struct store_view *view;
	char **list;
	size_t n, max;
};

static int found_add(struct found *f, const char *host, const char *mount)
{
	char **l;

	if (f->n + 3 > f->max) {
		l = realloc(f->list, (f->max + 32) * sizeof(*l));
		if (!l)
			return -ENOMEM;
		f->list = l;
		f->max += 32;
	}
	for (size_t i = 0; i < f->n; i += 2)
		if (!strcmp(f->list[i + 1], mount))
			return 0; /* a newer layer's hides it */
	f->list[f->n] = strdup(host);
	f->list[f->n + 1] = strdup(mount);
	f->list[f->n + 2] = NULL;
	if (f->list[f->n] && f->list[f->n + 1]) {
		f->n += 2;
		return 0;
	}
	free(f->list[f->n]);
	free(f->list[f->n + 1]);
	f->list[f->n] = NULL;
	return -ENOMEM;
}

/* The path of a directory by its back references, written from the end. */
static int dir_path(struct store_view *v, const struct rec_inode *rec, char *buf, size_t size,
		    const char **ret)
{
	cleanup_rec_inode struct rec_inode r = {0};
	char *p = buf + size - 1;
	int e = rec_inode_copy(&r, rec);

	*p = 0;
	for (int depth = 0; e == 0 && r.name && depth < 256; depth++) {
		store_ino parent = r.parent;

		if ((size_t)(p - buf) < r.name_len + 1)
			return -ENAMETOOLONG;
		p -= r.name_len;
		memcpy(p, r.name, r.name_len);
		*--p = '/';
		rec_inode_release(&r);
		memset(&r, 0, sizeof(r));
		if (parent == STORE_ROOT_INO)
			break;
		e = store_view_inode(v, parent, &r);
	}
	if (e < 0)
		return e;
	*ret = *p ? p : "/";
	return 0;
}

struct inos {
	store_ino *v;
	size_t n, max;
};

static int on_key(void *arg, enum store_key_kind kind, store_ino ino, const char *name, size_t len,
		  uint64_t block)
{
	struct inos *l = arg;

	(void)name;
	(void)len;
	(void)block;
	if (kind != STORE_KEY_INODE)
		return 0;
	if (l->n == l->max) {
		size_t max = l->max ? l->max * 2 : 32;
		store_ino *v = realloc(l->v, max * sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->max = max;
	}
	l->v[l->n++] = ino;
	return 0;
}

/* An inode that shows the root of a host directory which is not a system directory of the base. */
static int look_at(struct found *f, store_ino ino)
{
	cleanup_rec_inode struct rec_inode rec = {0};
	char buf[4096];
	const char *path;
	int r = store_view_inode(f->view, ino, &rec);

	if (r == -ENOENT)
		return 0;
	if (r < 0 || !rec.origin.root || !S_ISDIR(rec.mode) ||
	    (rec.origin.flags & REC_ORIGIN_PUBLIC) || (rec.origin.rel && rec.origin.rel[0]))
		return r;
	r = dir_path(f->view, &rec, buf, sizeof(buf), &path);
	return r < 0 ? r : found_add(f, rec.origin.root, path);
}

static int look_at_layer(struct store *s, struct found *f, store_layer layer)
{
	struct inos inos = {0};
	int r = store_layer_journal(s, layer, on_key, &inos);

	for (size_t i = 0; i < inos.n && r == 0; i++)
		r = look_at(f, inos.v[i]);
	free(inos.v);
	return r;
}

/* Overlays are sealed layers of their own between the base and the first commit; commits are passed
 * over, so that a long history below (a base that is another environment's commit) costs one record
 * each. */
int env_overlays_list(struct store *s, store_layer base, char ***ret)
{
	struct found f = {0};
	int r = store_view_open(s, base, &f.view);

	f.list = calloc(1, sizeof(*f.list));
	if (r == 0 && !f.list)
		r = -ENOMEM;
	for (store_layer l = base; r == 0 && l;) {
		struct store_layer_info info;
		struct store_commit c = {0};

		r = store_layer_get(s, l, &info);
		if (r == 0) {
			int k = store_commit_of_layer(s, l, &c);

			store_commit_release(&c);
			r = k == -ENOENT ? look_at_layer(s, &f, l) : k;
		}
		l = r == 0 ? info.parent : 0;
	}
	if (f.view)
		store_view_close(f.view);
	if (r < 0)
		env_list_free(f.list);
	else
		*ret = f.list;
	return r;
}

int env_overlays_check(struct store *s, const struct store_env *rec, char *const *overlays,
		       struct diag *diag)
{
	for (size_t i = 0; overlays && overlays[i] && overlays[i + 1]; i += 2) {
		cleanup_free char *want = realpath(overlays[i], NULL);
		cleanup_buf struct buf root = {0};
		int r = hostbase_overlay_at(s, rec->base, overlays[i + 1], &root);

		if (r < 0 && r != -ENOENT)
			return diag_set(diag, r, "cannot see what %s shows: %s", overlays[i + 1],
					err_text(r));
		if (r == 0 && want && root.len == strlen(want) &&
		    !memcmp(root.data, want, root.len))
			continue;
		if (r == -ENOENT)
			return diag_set(
				diag, -EEXIST,
				"environment \"%s\" exists and shows no host directory at %s (asked for: %s); use another --env",
				rec->name, overlays[i + 1], overlays[i]);
		return diag_set(
			diag, -EEXIST,
			"environment \"%s\" exists and shows %.*s at %s, not %s; use another --env",
			rec->name, (int)root.len, (const char *)root.data, overlays[i + 1],
			overlays[i]);
	}
	return 0;
}

/* ---- whether it is still the same ---- */

int env_shown_list(struct env *e)
{
	char **pairs = NULL;
	size_t n = 0;
	int r = env_overlays_list(e->store, e->rec.base, &pairs);

	if (r < 0)
		return r;
	while (pairs[n])
		n++;
	e->shown = calloc(n / 2 + 1, sizeof(*e->shown));
	for (size_t i = 0; e->shown && i < n / 2; i++) {
		e->shown[i].host = pairs[2 * i];
		pairs[2 * i] = NULL;
		free(pairs[2 * i + 1]);
		e->nshown = i + 1;
	}
	if (!e->shown)
		env_list_free(pairs);
	else
		free(pairs);
	return e->shown ? 0 : -ENOMEM;
}

void env_shown_free(struct env *e)
{
	for (size_t i = 0; i < e->nshown; i++)
		free(e->shown[i].host);
	free(e->shown);
	e->shown = NULL;
	e->nshown = 0;
}

void env_shown_note_locked(struct env *e)
{
	for (size_t i = 0; i < e->nshown; i++) {
		struct stat st = {0};

		(void)!stat(e->shown[i].host, &st);
		e->shown[i].dev = st.st_dev;
		e->shown[i].ino = st.st_ino;
	}
}

bool env_shown_replaced_locked(const struct env *e)
{
	for (size_t i = 0; i < e->nshown; i++) {
		const struct env_shown *s = &e->shown[i];
		struct stat st;

		/* While it is away, what is known of it is better than nothing. */
		if (stat(s->host, &st) == 0 && S_ISDIR(st.st_mode) &&
		    (st.st_dev != s->dev || st.st_ino != s->ino))
			return true;
	}
	return false;
}

/* ---- its base ---- */

/* NAME, or NAME@ID, of an imported base: 1 when there is none. With the id, or its beginning, what the name means now is
 * the content that was meant. @fit: to begin on. */
static int imported(struct store *s, const char *base, bool fit, struct diag *diag,
		    store_layer *ret)
{
	const char *at = strchr(base, '@');
	size_t n = at ? (size_t)(at - base) : strlen(base);
	char ref[80], hex[DIGEST_LEN * 2 + 1] = "";
	struct store_commit c = {0};
	int r;

	if (snprintf(ref, sizeof(ref), "base/%.*s", (int)n, base) >= (int)sizeof(ref))
		return 1;
	r = store_ref_get(s, ref, ret);
	if (r == -ENOENT || r == -EINVAL)
		return at ? diag_set(diag, -ENOENT,
				     "there is no base \"%.*s\"; rattan base list names all",
				     (int)n, base)
			  : 1;
	if (r == 0 && at) {
		r = store_commit_of_layer(s, *ret, &c);
		if (r == 0)
			digest_hex(&c.id, hex);
		store_commit_release(&c);
		if (r == 0 && (strlen(at + 1) < 8 || strncmp(hex, at + 1, strlen(at + 1)) != 0))
			return diag_set(
				diag, -EEXIST,
				"the base \"%.*s\" is %.16s..., not %.80s (at least 8 digits)",
				(int)n, base, hex, at + 1);
	}
	if (r == 0 && fit)
		r = basefit(s, ret);
	return r < 0 ? diag_set(diag, r, "cannot use the base \"%.*s\": %s", (int)n, base,
				err_text(r))
		     : 0;
}

static int base_layer(struct store *s, const char *base, bool fit, struct diag *diag,
		      store_layer *ret)
{
	struct store_layer_info info;
	struct diag why = {0};
	int r;

	/* What is shown then is not kept: any will do. */
	if (!strcmp(base, "host") || !strcmp(base, CTL_BASE_THROUGH))
		return hostbase_get(s, diag, ret);
	r = imported(s, base, fit, diag, ret);
	if (r <= 0)
		return r;
	r = env_resolve(s, NULL, base, &why, ret);
	if (r == -ENOENT)
		return diag_set(diag, r,
				"there is no base \"%s\"; rattan base list names all, and rattan "
				"import and rattan bootstrap make one",
				base);
	if (r == 0)
		r = store_layer_get(s, *ret, &info);
	if (r == 0 && info.state != STORE_LAYER_SEALED)
		r = -EINVAL;
	return r < 0 ? diag_set(diag, r, "no base \"%s\": %s", base,
				*why.text ? why.text : err_text(r))
		     : 0;
}

/* The commit that what began on @layer stands on; nothing that is laid over it has one. -ENOENT: none (the host). *@ret_passed: @want
 * was come by. */
static int content_of(struct store *s, store_layer layer, store_layer want, struct digest *ret,
		      bool *ret_passed)
{
	int r = -ENOENT;

	*ret_passed = false;
	while (layer && r == -ENOENT) {
		struct store_commit c = {0};
		struct store_layer_info info;

		*ret_passed |= layer == want;
		r = store_commit_of_layer(s, layer, &c);
		if (r == 0)
			*ret = c.id;
		store_commit_release(&c);
		if (r != -ENOENT)
			break;
		r = store_layer_get(s, layer, &info);
		if (r < 0)
			break;
		layer = info.parent;
		r = -ENOENT;
	}
	return r;
}

/* Of "NAME@ID" the part before. */
static bool same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "@");

	return n == strcspn(b, "@") && !memcmp(a, b, n);
}

struct began {
	const struct store_env *rec;
	const char *base;             /* asked for */
	char hex[DIGEST_LEN * 2 + 1]; /* of the content that it has; "": the host */
	struct diag *diag;
};

static int other_base(const struct began *b)
{
	bool id = b->hex[0] && !strchr(b->rec->base_name, '@');

	return diag_set(
		b->diag, -EEXIST,
		"environment \"%s\" exists and has the base %s%s%.16s, not %.80s; use another --env, "
		"or remove it: rattan env rm %s",
		b->rec->name, b->rec->base_name, id ? "@" : "", id ? b->hex : "", b->base,
		b->rec->name);
}

/* What the name means today is there: 1 when it began on that. */
static int began_on(struct store *s, const struct began *b, store_layer want)
{
	struct digest theirs;
	char hex[DIGEST_LEN * 2 + 1];
	bool passed, own;
	int r = content_of(s, b->rec->base, want, &theirs, &own);

	if (own)
		return 1;
	if (r == 0 || r == -ENOENT)
		r = content_of(s, want, 0, &theirs, &passed);
	if (r == -ENOENT) /* it is the host */
		return 0;
	if (r < 0)
		return diag_set(b->diag, r, "cannot read the base %s: %s", b->base, err_text(r));
	digest_hex(&theirs, hex);
	return !strcmp(hex, b->hex);
}

static int base_named(struct store *s, const struct began *b, struct diag *note)
{
	const char *at = strchr(b->base, '@'), *name = b->rec->name;
	bool named = same_name(b->base, b->rec->base_name);
	struct diag why = {0};
	store_layer want;
	int r;

	/* It began on what is meant, whatever the name means today. */
	if (named && at && strlen(at + 1) >= 8 && !strncmp(b->hex, at + 1, strlen(at + 1)))
		return 0;
	if (!strcmp(b->base, "host"))
		return named ? 0 : other_base(b);
	r = base_layer(s, b->base, false, &why, &want);
	if (r == -ENOENT && named && !at) {
		(void)diag_set(note, 0,
			       "environment \"%s\" stays on the base %s, which has been removed",
			       name, b->base);
		return 0;
	}
	/* The name means other content than that: nobody gets it. */
	if (r == -EEXIST)
		return other_base(b);
	if (r < 0)
		return diag_set(b->diag, r, "%s", *why.text ? why.text : err_text(r));
	r = began_on(s, b, want);
	if (r)
		return r < 0 ? r : 0;
	if (!named || at)
		return other_base(b);
	(void)diag_set(
		note, 0,
		"environment \"%s\" stays on the older content of the base %s (%.16s); another "
		"--env begins on the newer",
		name, b->base, b->hex);
	return 0;
}

int env_base_check(struct store *s, const struct store_env *rec, const char *base,
		   struct diag *diag, struct diag *note)
{
	struct began b = {.rec = rec, .base = base, .diag = diag};
	struct digest id;
	bool passed;
	int r = content_of(s, rec->base, 0, &id, &passed);

	if (r < 0 && r != -ENOENT)
		return diag_set(diag, r, "cannot read the base of environment \"%s\": %s",
				rec->name, err_text(r));
	if (r == 0)
		digest_hex(&id, b.hex);
	return base_named(s, &b, note);
}

/* ---- making one ---- */

static int add_overlay(struct store *s, const char *host, const char *mount, struct diag *diag,
		       store_layer *layer)
{
	cleanup_free char *real = realpath(host, NULL);
	struct stat st;

	if (!real || stat(real, &st) < 0)
		return diag_set(diag, ret_nerrno(), "cannot lay %s over the tree: %s", host,
				err_text(errno));
	/* Who asked has looked at this path, and not at where a link in it leads now. */
	if (strcmp(real, host) != 0)
		return diag_set(
			diag, -EINVAL,
			"cannot lay %s over the tree: it leads through a symbolic link; name "
			"the real path",
			host);
	if (!S_ISDIR(st.st_mode))
		return diag_set(diag, -ENOTDIR, "cannot lay %s over the tree: not a directory",
				host);
	if (!env_path_clean(mount))
		return diag_set(
			diag, -EINVAL,
			"\"%s\" is no place for %s: use an absolute path without '.', '..' or repeated slashes",
			mount, host);
	return hostbase_overlay(s, *layer, real, mount, diag, layer);
}

int env_create(struct store *s, const struct env_opts *o, struct diag *diag, struct store_env *ret)
{
	const char *base = o->base ? o->base : "host";
	cleanup_free char *path = NULL;
	char shown[65];
	store_layer layer;
	int r = base_layer(s, base, true, diag, &layer);

	for (size_t i = 0; r == 0 && o->overlays && o->overlays[i] && o->overlays[i + 1]; i += 2)
		r = add_overlay(s, o->overlays[i], o->overlays[i + 1], diag, &layer);
	if (r < 0)
		return r;
	memset(shown, 0, sizeof(shown));
	memcpy(shown, base, strnlen(base, sizeof(shown) - 1));
	/* What is left of one of that name that another version removed. */
	path = env_places_path(o->data_dir, o->name);
	if (!path)
		return -ENOMEM;
	(void)unlink(path);
	r = store_env_create(s, o->name, layer, shown, ret);
	return r < 0 ? diag_set(diag, r, "cannot make environment \"%s\": %s", o->name, err_text(r))
		     : 0;
}
