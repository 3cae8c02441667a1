/* Listings: the host's own, of the names that the policy shows. */
#include "fs/through/through_internal.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

typedef int (*readdir_fn)(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e);

struct listing {
	struct through *t;
	const struct use *dir;
	readdir_fn fn;
	void *arg;
};

/* 1: no room. @next: the cookie behind it. */
static int give(struct listing *l, const char *name, uint64_t ino, uint32_t type, uint64_t next)
{
	const struct ident *id = &l->dir->n->id;
	struct ovl_entry e = {.attr.st.st_mode = type};

	e.ino = e.attr.st.st_ino = attr_ino(l->t, id->dev, ino);
	return l->fn(l->arg, name, next, &e) ? 1 : 0;
}

static bool shown(const struct listing *l, const char *name)
{
	struct policy *p = l->t->policy;
	bool dir;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return true;
	if (place_masked(l->dir->n, name, &dir) && !dir)
		return false;
	return policy_trivial(p) ||
	       policy_shows(p, l->dir->pol, policy_child(p, l->dir->pol, name, strlen(name)));
}

/* What is read goes from one place of the directory to the next: nobody else has this descriptor meanwhile. */
static int list(struct listing *l, int fd, uint64_t cookie)
{
	_Alignas(struct dirent64) char buf[32768];
	ssize_t n;

	if (lseek(fd, (off_t)cookie, SEEK_SET) < 0)
		return ret_nerrno();
	while ((n = getdents64(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d =
				(const struct dirent64 *)(const void *)(buf + at);

			at += d->d_reclen;
			if (shown(l, d->d_name) &&
			    give(l, d->d_name, d->d_ino, (uint32_t)DTTOIF(d->d_type),
				 (uint64_t)d->d_off))
				return 0;
		}
	}
	return n < 0 ? ret_nerrno() : 0;
}

static int list_nothing(struct listing *l, uint64_t cookie)
{
	if (cookie < 1 && give(l, ".", 1, S_IFDIR, 1))
		return 0;
	if (cookie < 2)
		(void)give(l, "..", 1, S_IFDIR, 2);
	return 0;
}

int th_readdir(void *arg, store_ino dir, uint64_t fh, uint64_t cookie, bool plus, readdir_fn fn,
	       void *fn_arg)
{
	struct through *t = arg;
	cleanup_use struct use u = {0};
	struct handle *h = handle_of(t, dir, fh);
	struct listing l = {.t = t, .dir = &u, .fn = fn, .arg = fn_arg};
	int r;

	(void)plus; /* live: the session does not ask for it */
	if (!h)
		return -EBADF;
	r = tnode_use_dir(t, dir, FRESH_ENOUGH, &u);
	if (r == 0)
		r = may_node(&u, POLICY_MAY_LIST, "list");
	if (r < 0)
		return r;
	if (h->fd < 0)
		return list_nothing(&l, cookie);
	(void)pthread_mutex_lock(&h->lock);
	r = list(&l, h->fd, cookie);
	(void)pthread_mutex_unlock(&h->lock);
	return r;
}
