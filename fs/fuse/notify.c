/*
 * Telling the kernel about changes it did not make, and making it write what it holds: always from a
 * thread that serves nothing, because the kernel takes locks of the parent directory and of pages,
 * which requests being served may hold.
 *
 * Always from one thread, too, that has no descriptor but /dev/fuse. No signal ends such a wait: when this process
 * and its keeper are killed meanwhile, the thread stays, and the call itself keeps the connection open. What else it
 * had open would stay with it, as the locks and the control socket by which others see whether we live.
 */
#include "fs/fuse/session_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/fuse/reply.h"

int notifier_init(struct notifier *n)
{
	int r = pthread_mutex_init(&n->lock, NULL);

	if (r)
		return -r;
	r = pthread_cond_init(&n->more, NULL);
	if (r) {
		(void)pthread_mutex_destroy(&n->lock);
		return -r;
	}
	r = pthread_cond_init(&n->pushed, NULL);
	if (r) {
		(void)pthread_cond_destroy(&n->more);
		(void)pthread_mutex_destroy(&n->lock);
		return -r;
	}
	n->first = NULL;
	n->last = &n->first;
	return 0;
}

/* Returns once no system call is inside a removal in @dir that we have answered: the kernel locks a
 * directory to look for a name to invalidate, and that of a removal is held until the link count has
 * been lowered. No file has this name, which is longer than a name can be. */
static void wait_for_removals(struct session *se, store_ino dir)
{
	char name[STORE_NAME_MAX + 2];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	(void)fuse_lowlevel_notify_inval_entry(se->fuse, dir, name, sizeof(name) - 1);
}

/* Linux 6.18; libfuse does not know it. An inode that is in use stays; of the others the kernel drops what it
 * caches and sends FORGET. Older kernels say EINVAL. */
static int prune(struct session *se, const store_ino *inos, size_t n)
{
	struct proto_prune_out out = {.count = (uint32_t)n};
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof(head) + sizeof(out) + n * sizeof(*inos)),
		.error = PROTO_NOTIFY_PRUNE,
	};
	struct iovec iov[] = {
		{.iov_base = &head, .iov_len = sizeof(head)},
		{.iov_base = &out, .iov_len = sizeof(out)},
		{.iov_base = (void *)(uintptr_t)inos, .iov_len = n * sizeof(*inos)},
	};

	return writev(se->loop.fd, iov, ARRAY_SIZE(iov)) < 0 ? ret_nerrno() : 0;
}

/* Invalidation writes dirty pages and waits for it; syncfs would not wait. */
static void push(struct session *se, struct push *p)
{
	struct notifier *n = &se->notifier;

	int r = p->prune ? prune(se, p->v, p->n) : 0;

	for (size_t i = 0; !p->prune && i < p->n; i++)
		(void)fuse_lowlevel_notify_inval_inode(se->fuse, p->v[i], 0, 0);
	(void)pthread_mutex_lock(&n->lock);
	p->result = r;
	p->done = true;
	(void)pthread_cond_broadcast(&n->pushed);
	(void)pthread_mutex_unlock(&n->lock);
}

/* Errors mean that the kernel does not know the inode or name, or is gone: nothing is stale, and nothing to be
 * written. */
static void tell(struct session *se, const struct notice *x)
{
	if (x->push) {
		push(se, x->push);
	} else if (x->settles) {
		wait_for_removals(se, x->ino);
		TREE(se, settled, x->settles, x->which);
	} else if (x->len) {
		(void)fuse_lowlevel_notify_inval_entry(se->fuse, x->ino, x->name, x->len);
	} else {
		(void)fuse_lowlevel_notify_inval_inode(se->fuse, x->ino, 0, 0);
	}
}

static struct notice *take_locked(struct notifier *n)
{
	struct notice *x = n->first;

	n->first = x->next;
	if (!n->first)
		n->last = &n->first;
	return x;
}

static void *notifier_main(void *arg)
{
	struct session *se = arg;
	struct notifier *n = &se->notifier;
	struct notice *x;

	/* Without a table of its own everything works, while the process lives. */
	(void)!io_only(se->loop.fd);
	(void)pthread_mutex_lock(&n->lock);
	while (!n->stop) {
		if (!n->first) {
			(void)pthread_cond_wait(&n->more, &n->lock);
			continue;
		}
		x = take_locked(n);
		(void)pthread_mutex_unlock(&n->lock);
		tell(se, x);
		free(x);
		(void)pthread_mutex_lock(&n->lock);
	}
	/* Nobody waits for what is dropped. */
	for (x = n->first; x; x = x->next)
		if (x->push)
			x->push->done = true;
	(void)pthread_cond_broadcast(&n->pushed);
	(void)pthread_mutex_unlock(&n->lock);
	return NULL;
}

int notifier_start(struct session *se)
{
	struct notifier *n = &se->notifier;
	int r = pthread_create(&n->thread, NULL, notifier_main, se);

	if (r)
		return -r;
	(void)pthread_setname_np(n->thread, "fuse-notify");
	(void)pthread_mutex_lock(&n->lock);
	n->runs = true;
	(void)pthread_mutex_unlock(&n->lock);
	return 0;
}

void notifier_stop(struct notifier *n)
{
	bool runs;

	(void)pthread_mutex_lock(&n->lock);
	runs = n->runs;
	n->runs = false;
	n->stop = true;
	(void)pthread_cond_signal(&n->more);
	(void)pthread_mutex_unlock(&n->lock);
	if (runs)
		(void)pthread_join(n->thread, NULL);
}

void notifier_release(struct notifier *n)
{
	while (n->first)
		free(take_locked(n));
	(void)pthread_cond_destroy(&n->pushed);
	(void)pthread_cond_destroy(&n->more);
	(void)pthread_mutex_destroy(&n->lock);
}

/* Takes @x. False: there is no mount yet, or no more, and so nothing cached that could be stale. */
static bool enqueue(struct notifier *n, struct notice *x)
{
	bool runs;

	(void)pthread_mutex_lock(&n->lock);
	runs = n->runs;
	if (runs && x) {
		*n->last = x;
		n->last = &x->next;
		(void)pthread_cond_signal(&n->more);
	}
	(void)pthread_mutex_unlock(&n->lock);
	if (!runs)
		free(x);
	return runs;
}

static void notify(struct session *se, store_ino ino, const char *name, size_t len)
{
	struct notice *x = calloc(1, sizeof(*x) + len + 1);

	if (x) {
		x->ino = ino;
		x->len = len;
		if (len)
			memcpy(x->name, name, len);
	}
	/* Without memory for the queue the caller waits instead: a notice is never lost, and the
	 * core promised to call from a thread that serves nothing. */
	if (enqueue(&se->notifier, x) && !x) {
		if (len)
			(void)fuse_lowlevel_notify_inval_entry(se->fuse, ino, name, len);
		else
			(void)fuse_lowlevel_notify_inval_inode(se->fuse, ino, 0, 0);
	}
}

void session_notify_inode(void *session, store_ino ino)
{
	notify(session, ino, NULL, 0);
}

static bool waits_locked(const struct notifier *n, store_ino ino)
{
	for (const struct notice *x = n->first; x; x = x->next)
		if (x->ino == ino && !x->push && !x->settles && !x->len)
			return true;
	return false;
}

void session_drop_pages(struct session *se, store_ino ino)
{
	struct notice *x;
	bool waits;

	/* Once for all pages that are written meanwhile: a command can make any number of them. */
	(void)pthread_mutex_lock(&se->notifier.lock);
	waits = waits_locked(&se->notifier, ino);
	(void)pthread_mutex_unlock(&se->notifier.lock);
	x = waits ? NULL : calloc(1, sizeof(*x));
	if (!x)
		return;
	x->ino = ino;
	(void)enqueue(&se->notifier, x);
}

void session_notify_entry(void *session, store_ino parent, const char *name, size_t len)
{
	if (len)
		notify(session, parent, name, len);
}

/* ---- answers that overtake each other ---- */

/*
 * The kernel takes in an answer in the thread of its caller, so two answers may be taken in the other
 * way round than they were given. It has a counter against that: attributes asked for before the
 * inode's version last changed are not taken over. A removal, a rename or a new extended attribute
 * does not change the version (fuse_dir_changed, fuse_update_ctime): attributes from before it could
 * stay in the cache for ever. An invalidation of no pages does, and nothing else.
 */
void session_attr_changed(struct session *se, store_ino ino)
{
	if (ino)
		(void)fuse_lowlevel_notify_inval_inode(se->fuse, ino, -1, 0);
}

/*
 * A removal of one name of several lowers the kernel's own count (fuse_entry_unlinked): when new
 * attributes were taken over just before, twice. Then a file that is there has no links: it cannot be
 * linked, and its watchers are told that it is gone. While that can be, the version changes before
 * each answer, so that it reaches its caller and not the inode.
 */
double session_attr_seconds(struct session *se, const struct ovl_attr *a)
{
	struct notice *x;
	store_ino dir;
	uint32_t which;

	if (!a->unsettled)
		return reply_seconds(a->valid_ms);
	session_attr_changed(se, a->st.st_ino);
	x = calloc(1, sizeof(*x));
	dir = x ? TREE(se, unsettled, a->st.st_ino, &which) : 0;
	if (!dir) {
		free(x);
		return 0;
	}
	x->ino = dir;
	x->settles = a->st.st_ino;
	x->which = which;
	(void)enqueue(&se->notifier, x);
	return 0;
}

/* ---- shared mappings ---- */

static int collect(void *arg, store_ino ino)
{
	struct push *l = arg;
	size_t cap = l->cap ? l->cap * 2 : 64;
	store_ino *v;

	if (l->n == l->cap) {
		v = reallocarray(l->v, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n++] = ino;
	return 0;
}

static void wait_pushed(struct notifier *n, const struct push *p)
{
	(void)pthread_mutex_lock(&n->lock);
	while (!p->done)
		(void)pthread_cond_wait(&n->pushed, &n->lock);
	(void)pthread_mutex_unlock(&n->lock);
}

/* By the notifier as everything else, and waited for. */
int session_notify_prune(void *session, const store_ino *inos, size_t n)
{
	struct session *se = session;
	struct push p = {.v = (store_ino *)(uintptr_t)inos, .n = n, .prune = true};
	struct notice *x = calloc(1, sizeof(*x));

	if (!x)
		return 0; /* another time */
	x->push = &p;
	if (enqueue(&se->notifier, x))
		wait_pushed(&se->notifier, &p);
	return p.result;
}

int session_push_dirty(struct session *se)
{
	struct notifier *n = &se->notifier;
	struct push l = {0};
	struct notice *x = NULL;
	int r = TREE(se, maybe_mapped, collect, &l);

	if (r == 0 && l.n) {
		x = calloc(1, sizeof(*x));
		r = x ? 0 : -ENOMEM;
	}
	if (x && r == 0) {
		x->push = &l;
		if (enqueue(n, x))
			wait_pushed(n, &l);
	}
	free(l.v);
	return r;
}
