#include "fs/through/through.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fs/through/through_internal.h"

#define FDS_MAX     65536
#define FDS_LEAST   16
#define FDS_KEPT    256
/* RLIM_INFINITY as well */
#define FDS_ALL_MAX 4000000

/* ---- small things ---- */

int name_ok(const char *name, size_t *ret_len)
{
	*ret_len = strnlen(name, STORE_NAME_MAX + 1);
	if (*ret_len > STORE_NAME_MAX)
		return -ENAMETOOLONG;
	if (!*ret_len)
		return -ENOENT;
	return strchr(name, '/') ? -EINVAL : 0;
}

struct judge_name at_name(const struct use *dir, const char *name, size_t len)
{
	return (struct judge_name){.where = dir->n, .dir = dir->pol, .name = name, .len = len};
}

struct judge_node at_node(const struct use *u)
{
	return (struct judge_node){
		.where = u->n, .state = u->pol, .isdir = u->n->id.type == S_IFDIR};
}

int may_node(const struct use *u, unsigned what, const char *op)
{
	const struct judge_node j = at_node(u);

	return judge_node(&u->t->judge, &j, what, op);
}

struct fd_name fd_name(int fd)
{
	struct fd_name n;

	(void)snprintf(n.s, sizeof(n.s), "%d", fd);
	return n;
}

struct fd_path fd_path(int fd)
{
	struct fd_path p;

	(void)snprintf(p.s, sizeof(p.s), "/proc/self/fd/%d", fd);
	return p;
}

static int path_of(void *arg, void *where, struct buf *out)
{
	struct through *t = arg;
	int r;

	through_lock(t);
	r = tnode_path(where, out);
	through_unlock(t);
	return r;
}

/* ---- open and close ---- */

/* Half for nodes, and of the other half some for the process: a command that opens all it can must not take the
 * daemon's sockets. */
static void set_most(struct through *t, const struct through_opts *o)
{
	struct rlimit rl = {.rlim_cur = 4 * FDS_LEAST};
	size_t all, n;

	(void)getrlimit(RLIMIT_NOFILE, &rl);
	all = rl.rlim_cur > FDS_ALL_MAX ? FDS_ALL_MAX : (size_t)rl.rlim_cur;
	n = all / 2 > FDS_MAX ? FDS_MAX : all / 2 < FDS_LEAST ? FDS_LEAST : all / 2;
	t->fds_max = o->nodes_fds_max ? o->nodes_fds_max : n;
	n = all - all / 2 - (all / 16 > FDS_KEPT ? FDS_KEPT : all / 16);
	t->handles_max = o->handles_max ? o->handles_max : n < FDS_LEAST ? FDS_LEAST : n;
}

static int set_root(struct through *t, const char *root, struct diag *diag)
{
	char *real = realpath(root, NULL);
	int r = real ? 0 : ret_nerrno();

	if (r == 0)
		r = tnode_root(t, real);
	if (r < 0) {
		free(real);
		return diag_set(diag, r, "%s cannot be opened: %s", root, err_text(r));
	}
	if (!strcmp(real, "/"))
		*real = 0;
	t->prefix = real;
	return 0;
}

int through_open(const struct through_opts *o, struct diag *diag, struct through **ret)
{
	struct through *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->notify = o->notify;
	set_most(t, o);
	(void)pthread_mutex_init(&t->lock, NULL);
	(void)pthread_rwlock_init(&t->change, NULL);
	t->proc_fd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = t->proc_fd < 0 ? diag_set(diag, ret_nerrno(),
				      "/proc/self/fd cannot be opened, and nothing can be written "
				      "through without: %s",
				      err_text(errno))
			   : 0;
	if (r == 0)
		r = policy_new(o->policy, diag, &t->policy);
	judge_init(&t->judge, t->policy, path_of, t);
	if (r == 0)
		r = set_root(t, o->root ? o->root : "/", diag);
	if (r < 0) {
		through_close(t);
		return r;
	}
	*ret = t;
	return 0;
}

void through_close(struct through *t)
{
	if (!t)
		return;
	handles_free(t);
	tnode_free_all(t);
	judge_release(&t->judge);
	policy_free(t->policy);
	cleanup_fdp(&t->proc_fd);
	free(t->prefix);
	(void)pthread_rwlock_destroy(&t->change);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}

void through_counts(struct through *t, struct through_counts *ret)
{
	*ret = (struct through_counts){0};
	through_lock(t);
	ret->nodes = t->by_ino.n;
	ret->nodes_fds = t->nfds;
	for (size_t i = 0; i < t->nhandles; i++)
		ret->handles += t->handles[i] != NULL;
	through_unlock(t);
}

/* ---- denials ---- */

uint64_t through_denied(struct through *t)
{
	return denials_seq(&t->judge.denials);
}

int through_denials(struct through *t, uint64_t since, int (*fn)(void *arg, const struct denial *d),
		    void *arg, uint64_t *ret_total)
{
	return denials_each(&t->judge.denials, since, fn, arg, ret_total);
}

/* ---- for the session ---- */

/* What was executed is on the host, and nobody goes on with such a mount. */
static void th_request(void *t, uint64_t tag, unsigned slot)
{
	(void)t, (void)tag, (void)slot;
}

static int th_request_done(void *t, uint64_t tag, store_ino ino, struct ovl_done *ret)
{
	(void)t, (void)tag, (void)ino, (void)ret;
	return 0;
}

static bool th_broken(void *t)
{
	(void)t;
	return false;
}

static bool th_opens_matter(void *t)
{
	(void)t;
	return true;
}

static int th_maybe_mapped(void *arg, int (*fn)(void *arg, store_ino ino), void *fn_arg)
{
	struct through *t = arg;
	int r = 0;

	through_lock(t);
	for (size_t slot = 0; r == 0 && slot < t->by_ino.nslots; slot++) {
		for (struct table_link *l = t->by_ino.slots[slot]; r == 0 && l; l = l->next) {
			struct tnode *n = (struct tnode *)(void *)((char *)l -
								   offsetof(struct tnode, by_ino));

			if (n->nlookup && atomic_load(&n->written))
				r = fn(fn_arg, n->ino);
		}
	}
	through_unlock(t);
	return r;
}

/* Attributes are believed for a moment only. */
static store_ino th_unsettled(void *t, store_ino ino, uint32_t *ret_which)
{
	(void)t, (void)ino;
	*ret_which = 0;
	return 0;
}

static void th_settled(void *t, store_ino ino, uint32_t which)
{
	(void)t, (void)ino, (void)which;
}

static void th_forget(void *t, store_ino ino, uint64_t n)
{
	tnode_forget(t, ino, n);
}

/* Cookies are the host's. */
static void th_keep_order(void *t, store_ino dir)
{
	(void)t, (void)dir;
}

static bool th_names_change(void *t, store_ino dir)
{
	(void)t, (void)dir;
	return true;
}

struct tree through_tree(struct through *t)
{
	static const struct tree_ops ops = {
		.live = true,
		.handles = true,
		.request = th_request,
		.request_done = th_request_done,
		.broken = th_broken,
		.opens_matter = th_opens_matter,
		.maybe_mapped = th_maybe_mapped,
		.unsettled = th_unsettled,
		.settled = th_settled,
		.lookup = th_lookup,
		.forget = th_forget,
		.mknod = th_mknod,
		.mkdir = th_mkdir,
		.symlink = th_symlink,
		.link = th_link,
		.unlink = th_unlink,
		.rmdir = th_rmdir,
		.rename = th_rename,
		.readlink = th_readlink,
		.readdir = th_readdir,
		.keep_order = th_keep_order,
		.names_change = th_names_change,
		.create = th_create,
		.tmpfile = th_tmpfile,
		.open = th_open,
		.opendir = th_opendir,
		.release = th_release,
		.getattr = th_getattr,
		.setattr = th_setattr,
		.statfs = th_statfs,
		.getxattr = th_getxattr,
		.listxattr = th_listxattr,
		.setxattr = th_setxattr,
		.removexattr = th_removexattr,
		.read = th_read,
		.write = th_write,
		.fallocate = th_fallocate,
		.lseek = th_lseek,
		.copy_range = th_copy_range,
		.fsync = th_fsync,
		.fsyncdir = th_fsyncdir,
	};

	return (struct tree){.ops = &ops, .t = t};
}
