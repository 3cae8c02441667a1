/* Opening and closing a tree; what every operation enters and leaves through. */
#include "fs/core/ovl.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/io.h"
#include "fs/core/ovl_internal.h"

#define FLUSH_MS_DEFAULT  1000
#define INODE_COST        1024u /* about what an inode with a short name takes */
#define FULL_MS           200   /* so long a full disk is not asked again */
#define DIRTY_MAX_DEFAULT (64u << 20)
#define INODES_DEFAULT    262144
/* What a flush may have to put together of blocks that are there in part, in dirty_max. */
#define OWED_TIMES        4
#define DIRTY_INODES      65536

void lock_shared(struct ovl *o)
{
	pthread_rwlock_rdlock(&o->lock);
}

void lock_excl(struct ovl *o)
{
	pthread_rwlock_wrlock(&o->lock);
	o->excl = true;
}

void unlock(struct ovl *o)
{
	if (o->excl) {
		redo_commit(o);
		o->excl = false;
	}
	pthread_rwlock_unlock(&o->lock);
}

struct timespec now_real(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return t;
}

int name_check(const char *name, size_t *ret_len)
{
	size_t len = strnlen(name, STORE_NAME_MAX + 1);

	if (len > STORE_NAME_MAX)
		return -ENAMETOOLONG;
	if (len == 0)
		return -ENOENT;
	if (memchr(name, '/', len))
		return -EINVAL;
	*ret_len = len;
	return 0;
}

/* Dirty since the last flush: what that left (files without a name) the next one leaves as well. */
static size_t inodes_waiting(struct ovl *o)
{
	size_t n = atomic_load(&o->ndirty), left = atomic_load(&o->fl.inodes_left);

	return n > left ? n - left : 0;
}

/* Bytes of records that only a flush takes away. */
static uint64_t logged(const struct ovl *o)
{
	return o->journal ? journal_size(o->journal, JOURNAL_CHANGES) : 0;
}

/* Is more waiting for the disk than memory should hold: bytes, or inodes with their names? */
static bool too_dirty(struct ovl *o)
{
	return content_env_dirty(o->cenv) > o->dirty_max || inodes_waiting(o) > DIRTY_INODES ||
	       logged(o) > o->dirty_max;
}

/* What waits may prove to be there already, or be removed again: only what was written counts in the end. */
static int disk_check(struct ovl *o)
{
	uint64_t max = atomic_load(&o->disk_max), waiting;
	int r;

	if (!max)
		return 0;
	waiting = content_env_whole(o->cenv) + content_env_owed(o->cenv) +
		  inodes_waiting(o) * INODE_COST;
	if (store_written(o->store) < max && store_written(o->store) + waiting >= max) {
		r = flush_join(o);
		if (r < 0)
			return r;
	}
	if (store_written(o->store) < max)
		return 0;
	/* A command can only say "quota exceeded": whose is told with what it was refused. */
	if (o->policy)
		denials_note(&o->judge.denials, o->policy,
			     &(struct denial_of){
				     .path = "/",
				     .op = "write",
				     .need = POLICY_DENY,
				     .other = "the environment's disk limit is reached, rattan "
					      "status shows it; --limit disk=N sets another"});
	return -EDQUOT;
}

int change_begin(struct ovl *o, bool grows)
{
	int r, last;

	if (o->flags & OVL_RDONLY)
		return -EROFS;
	/* A writer that is ahead of the disk waits for a flush, and then tries again, as others
	 * write meanwhile; a bounded number of times, so that nobody starves. */
	for (int i = 0; grows && i < 8 && too_dirty(o); i++) {
		r = flush_relief(o);
		if (r < 0)
			return r;
	}
	r = grows ? disk_check(o) : 0;
	if (r < 0)
		return r;
	/* There may be room again. */
	last = atomic_load(&o->fl.error);
	if (grows && err_no_room(last) && io_now_ms() - atomic_load(&o->fl.failed) >= FULL_MS)
		last = flush_join(o);
	if (grows && err_no_room(last))
		return last;
	pthread_rwlock_rdlock(&o->freeze);
	/* A commit could not go on in its new layer; nothing may be written to the sealed one (S1). */
	while (o->child) {
		pthread_rwlock_unlock(&o->freeze);
		r = flush_join(o);
		if (r < 0)
			return r;
		pthread_rwlock_rdlock(&o->freeze);
	}
	return 0;
}

bool flush_presses(struct ovl *o)
{
	return content_env_whole(o->cenv) > atomic_load(&o->fl.kick_at) ||
	       content_env_dirty(o->cenv) > o->dirty_max / 2 ||
	       content_env_owed(o->cenv) > OWED_TIMES * o->dirty_max ||
	       inodes_waiting(o) > DIRTY_INODES / 2 || logged(o) > o->dirty_max / 2;
}

void change_end(struct ovl *o)
{
	pthread_rwlock_unlock(&o->freeze);
	/* Early: the disk works while the writer goes on, and few buffers serve many blocks. */
	if (flush_presses(o))
		flush_kick(o);
}

static int locks_init(struct ovl *o)
{
	pthread_rwlockattr_t a;

	/* The default prefers readers: a flush would never get its snapshot while somebody writes. */
	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&o->freeze, &a);
	pthread_rwlock_init(&o->lock, &a);
	pthread_rwlockattr_destroy(&a);
	pthread_mutex_init(&o->dirty_lock, NULL);
	notify_init(o);
	judge_init(&o->judge, NULL, place_path, o);
	return 0;
}

/* The root of an empty tree has no record yet. */
static int root_load(struct ovl *o)
{
	struct node *n;
	int r = node_get(o, STORE_ROOT_INO, &n);

	if (r == -ESTALE) {
		r = node_new(o, STORE_ROOT_INO, &n);
		if (r < 0)
			return r;
		n->rec.mode = S_IFDIR | 0755;
		n->rec.nlink = 2;
		n->rec.uid = geteuid();
		n->rec.gid = getegid();
		n->rec.atime = n->rec.mtime = n->rec.ctime = n->rec.btime = now_real();
		n->born = o->layer;
		n->new_dir = true;
		if (!(o->flags & OVL_RDONLY))
			node_dirty(o, n);
	}
	if (r < 0)
		return r;
	n->pol = policy_root(o->policy);
	node_pin(n); /* for ever */
	return 0;
}

static void ovl_free(struct ovl *o)
{
	o->replaying = true; /* what goes now is not forgotten by anybody */
	name_free_all(o);
	node_free_all(o);
	if (o->cenv)
		content_env_free(o->cenv);
	if (o->view)
		store_view_close(o->view);
	host_release(o);
	changes_release(o);
	ino_set_release(&o->partial);
	ino_set_release(&o->dead);
	ino_set_release(&o->dying);
	known_release(o);
	buf_release(&o->changed);
	buf_release(&o->changed_nodes);
	buf_release(&o->known_log);
	buf_release(&o->slog.buf);
	policy_free(o->policy);
	judge_release(&o->judge);
	notify_release(o);
	pthread_mutex_destroy(&o->dirty_lock);
	pthread_rwlock_destroy(&o->lock);
	pthread_rwlock_destroy(&o->freeze);
	free(o);
}

/* Nobody holds a reference any more: inodes without links end now. */
static void forget_all(struct ovl *o)
{
	lock_excl(o);
	for (size_t i = 0; i < o->nodes.nslots; i++) {
		for (struct table_link *l = o->nodes.slots[i], *next; l; l = next) {
			struct node *n = (struct node *)l;

			next = l->next;
			n->held = false;
			if (n->rec.nlink > 0)
				continue;
			atomic_store(&n->nlookup, 0);
			/* The directory of a host file goes with it, and may be the next one. */
			if (next)
				node_pin((struct node *)next);
			node_reap(o, n);
			if (next)
				atomic_fetch_sub(&((struct node *)next)->pins, 1);
		}
	}
	unlock(o);
}

/* Whoever had a file without a name open is dead. */
static int replay(struct ovl *o, uint64_t batches)
{
	int r = synclog_replay(o, batches);

	if (r == 0 && o->slog.any)
		forget_all(o);
	return r;
}

static int ovl_load(struct ovl *o)
{
	struct store_layer_info li;
	int r;

	r = store_layer_get(o->store, o->layer, &li);
	if (r < 0)
		return r;
	if (!(o->flags & OVL_RDONLY) && li.state != STORE_LAYER_OPEN)
		return -EROFS;
	o->reopened_dirty = li.state == STORE_LAYER_OPEN && li.records > 0;
	r = store_view_open(o->store, o->layer, &o->view);
	if (r == 0)
		r = content_env_new(o->store, o->view, o->journal, &o->cenv);
	if (r == 0)
		r = root_load(o);
	/* A journal knows more than the log, which the next flush voids all the same. */
	o->slog.any = o->resumed;
	if (r == 0 && !o->resumed && !(o->flags & OVL_RDONLY))
		r = replay(o, li.batches);
	if (r == 0 && o->reopened_dirty && !(o->flags & OVL_RDONLY))
		r = leftovers_load(o);
	if (r == 0 && o->resumed)
		r = redo_all(o);
	if (r == 0 && o->journal)
		journal_set_base(o->journal, o->layer, o->seed);
	return r;
}

static int journal_attach(struct ovl *o, struct journal *j)
{
	if (!j || o->flags & OVL_RDONLY)
		return 0;
	o->journal = j;
	o->resumed = o->flags & OVL_RESUME;
	if (!o->resumed)
		journal_reset(j);
	else if (!journal_whole(j))
		return -EBADMSG;
	o->life = journal_next_life(j);
	return 0;
}

int ovl_open(const struct ovl_opts *opts, struct ovl **ret)
{
	struct ovl *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->store = opts->store;
	o->slog.log = opts->log;
	hostsrc_all_init(&o->host_all);
	o->layer = opts->layer;
	o->flags = opts->flags;
	o->notify = opts->notify;
	o->flush_ms = opts->flush_ms ? opts->flush_ms : FLUSH_MS_DEFAULT;
	o->host_ttl_ms = opts->host_ttl_ms ? opts->host_ttl_ms : HOST_TTL_MS;
	o->inodes_max = opts->inodes_max ? opts->inodes_max : INODES_DEFAULT;
	o->dirty_max = opts->dirty_max ? opts->dirty_max : DIRTY_MAX_DEFAULT;
	atomic_store(&o->disk_max, opts->disk_max);
	o->born_mark = UINT64_MAX;
	if (getrandom(&o->seed, sizeof(o->seed), 0) != (ssize_t)sizeof(o->seed))
		o->seed = (uint64_t)now_real().tv_nsec;
	o->redo_epoch = 1;
	o->replaying = true;
	r = journal_attach(o, opts->journal);
	if (r < 0) {
		free(o);
		return r;
	}
	r = locks_init(o);
	if (r == 0)
		r = changes_init(o);
	if (r == 0)
		r = policy_new(opts->policy, NULL, &o->policy);
	o->judge.policy = o->policy;
	if (r == 0)
		r = ovl_load(o);
	if (r < 0) {
		ovl_free(o);
		return r;
	}
	o->replaying = false;
	r = notify_start(o);
	if (r == 0)
		r = flush_start(o);
	if (r < 0) {
		flush_stop(o);
		ovl_notify_end(o);
		ovl_free(o);
		return r;
	}
	*ret = o;
	return 0;
}

int ovl_close(struct ovl *o)
{
	int r = 0;

	if (!o)
		return 0;
	flush_stop(o);
	ovl_notify_end(o);
	if (!(o->flags & OVL_RDONLY)) {
		forget_all(o);
		r = flush_join(o);
		if (r == 0)
			synclog_done(o);
	}
	ovl_free(o);
	return r;
}

void ovl_abandon(struct ovl *o)
{
	flush_stop(o);
	ovl_notify_end(o);
	ovl_free(o);
}

void ovl_unheld(struct ovl *o)
{
	lock_excl(o);
	for (size_t i = 0; i < o->nodes.nslots; i++) {
		for (struct table_link *l = o->nodes.slots[i], *next; l; l = next) {
			struct node *n = (struct node *)l;

			next = l->next;
			if (!n->held)
				continue;
			n->held = false;
			node_reap(o, n);
		}
	}
	known_release(o);
	o->resumed = false;
	unlock(o);
}

int ovl_request_done(struct ovl *o, uint64_t tag, store_ino ino, struct ovl_done *ret)
{
	const struct journal_done *d = NULL;
	struct node *n;
	int r = 0;

	*ret = (struct ovl_done){0};
	for (size_t i = 0; tag && i < JOURNAL_SLOTS; i++)
		if (o->done[i].tag == tag)
			d = &o->done[i];
	if (!d)
		return 0;
	ret->result = d->result;
	lock_excl(o);
	if (d->ino) {
		r = node_get(o, d->ino, &n);
		if (r == 0)
			node_entry(o, n, OVL_FOREVER, &ret->e);
	}
	if (r == 0 && node_get(o, ino, &n) == 0) {
		ret->has_attr = true;
		node_attr(o, n, &ret->attr);
	}
	unlock(o);
	return r < 0 ? r : 1;
}

bool ovl_broken(struct ovl *o)
{
	return store_broken(o->store);
}

int ovl_flush(struct ovl *o)
{
	return o->flags & OVL_RDONLY ? 0 : flush_join(o);
}

void ovl_use_log(struct ovl *o, bool on)
{
	atomic_store(&o->slog.off, !on);
}

int ovl_sync(struct ovl *o)
{
	return o->flags & OVL_RDONLY ? 0 : sync_join(o);
}

void ovl_set_disk_max(struct ovl *o, uint64_t max)
{
	atomic_store(&o->disk_max, max);
}

/* What may still be written, by the disk and by our limit. */
static uint64_t room_left(const struct ovl *o, uint64_t room)
{
	uint64_t max = atomic_load(&o->disk_max), used = store_written(o->store), left;

	if (!max)
		return room;
	left = max > used ? max - used : 0;
	return left < room ? left : room;
}

int ovl_statfs(struct ovl *o, struct statvfs *ret)
{
	struct store_stats st = {0};
	size_t dirty = content_env_dirty(o->cenv);
	uint64_t room;
	int r = store_stats(o->store, &st);

	if (r < 0)
		return r;
	/* What is not flushed yet will need its place. */
	room = room_left(o, st.room);
	room = room > dirty ? room - dirty : 0;
	*ret = (struct statvfs){
		.f_bsize = 4096,
		.f_frsize = 4096,
		.f_blocks = st.disk_size / 4096,
		.f_bfree = room / 4096,
		.f_bavail = room / 4096,
		.f_files = st.inodes + room / INODE_COST,
		.f_ffree = room / INODE_COST,
		.f_favail = room / INODE_COST,
		.f_namemax = STORE_NAME_MAX,
	};
	return 0;
}

void ovl_counts(struct ovl *o, struct ovl_counts *ret)
{
	*ret = (struct ovl_counts){
		.bytes_dirty = content_env_dirty(o->cenv),
		.changes = atomic_load(&o->changes),
		.layer_changed = atomic_load(&o->reopened_dirty) ||
				 atomic_load(&o->changes) > atomic_load(&o->changes_sealed),
	};
	ret->inodes_dirty = atomic_load(&o->ndirty);
	lock_shared(o);
	ret->inodes = o->nodes.n;
	unlock(o);
}
