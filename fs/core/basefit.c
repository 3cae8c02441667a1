#include "fs/core/basefit.h"

#include <string.h>

#include "fs/core/hostbase.h"
#include "fs/core/ovl.h"

static const struct place {
	const char *parent, *name; /* the parent stands before */
	mode_t mode;
	uid_t owner;
	const char *text; /* of a file; NULL: a directory */
} places[] = {
	{"/", "proc", 0555, 0, NULL},
	{"/", "dev", 0755, 0, NULL},
	{"/", "sys", 0555, 0, NULL},
	{"/", "run", 0755, 0, NULL},
	{"/", "tmp", 01777, 0, NULL},
	{"/", "var", 0755, 0, NULL},
	{"/var", "tmp", 01777, 0, NULL},
	{"/", "home", 0755, 0, NULL},
	{"/home", "user", 0755, HOSTBASE_AGENT, NULL},
	{"/", "workspace", 0755, HOSTBASE_AGENT, NULL},
	/* Images and bootstrapped trees have none: without it no program finds "localhost". */
	{"/etc", "hosts", 0644, 0, HOSTBASE_HOSTS},
};

/* Whatever stands there stays, a link or a file too. 1: it is missing, and there is a place for it, *ret with one
 * reference. */
static int missing(struct ovl *o, const struct place *p, store_ino *ret)
{
	struct ovl_entry dir, e;
	int r = ovl_walk(o, p->parent, &dir);

	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
	r = S_ISDIR(dir.attr.st.st_mode) ? ovl_lookup(o, dir.ino, p->name, &e) : -ENOTDIR;
	if (r == 0 && !e.ino) {
		*ret = dir.ino;
		return 1;
	}
	if (r == 0)
		ovl_forget(o, e.ino, 1);
	ovl_forget(o, dir.ino, 1);
	return r == -ENOTDIR ? 0 : r;
}

static int make(struct ovl *o, const struct place *p)
{
	const struct ovl_cred who = {p->owner, p->owner, 0};
	const struct stat st = {.st_mode = p->mode, .st_uid = p->owner, .st_gid = p->owner};
	struct ovl_entry e;
	store_ino dir;
	ssize_t n;
	int r = missing(o, p, &dir);

	if (r <= 0)
		return r;
	r = p->text ? ovl_mknod(o, dir, p->name, S_IFREG | p->mode, 0, &who, &e)
		    : ovl_mkdir(o, dir, p->name, S_IFDIR | p->mode, &who, &e);
	ovl_forget(o, dir, 1);
	if (r < 0)
		return r;
	n = p->text ? ovl_write(o, e.ino, 0, p->text, strlen(p->text), false) : 0;
	/* whatever its directory's group and lists would have made of it */
	r = n < 0 ? (int)n
		  : ovl_setattr(o, e.ino, &st, OVL_SET_MODE | OVL_SET_UID | OVL_SET_GID, &e.attr);
	ovl_forget(o, e.ino, 1);
	return r;
}

/* Is anything missing? */
static int wanting(struct store *s, store_layer layer)
{
	struct ovl_opts oo = {.store = s, .layer = layer, .flags = OVL_RDONLY};
	struct ovl *o;
	int r = ovl_open(&oo, &o);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < sizeof(places) / sizeof(places[0]); i++) {
		store_ino dir;

		r = missing(o, &places[i], &dir);
		if (r > 0)
			ovl_forget(o, dir, 1);
	}
	(void)ovl_close(o);
	return r;
}

int basefit(struct store *s, store_layer *layer)
{
	struct ovl_opts oo = {.store = s};
	struct ovl *o;
	int r = wanting(s, *layer), e;

	if (r <= 0)
		return r;
	r = store_layer_new(s, *layer, &oo.layer);
	if (r < 0)
		return r;
	r = ovl_open(&oo, &o);
	if (r == 0) {
		for (size_t i = 0; r == 0 && i < sizeof(places) / sizeof(places[0]); i++)
			r = make(o, &places[i]);
		e = ovl_close(o);
		r = r < 0 ? r : e;
	}
	if (r == 0)
		r = store_layer_seal(s, oo.layer);
	if (r < 0) {
		(void)!store_layers_discard(s, &oo.layer, 1);
		return r;
	}
	*layer = oo.layer;
	return 0;
}
