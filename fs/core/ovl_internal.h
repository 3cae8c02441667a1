/*
 * fs/core/ovl_internal.h - what the files behind fs/core/ovl.h share. Included by them alone.
 *
 * Locks (docs/architecture.md), outermost first: fl.lock (only to decide who flushes; dropped before
 * the work), o->freeze, o->lock, node->lock, leaf locks. "EX" below: o->lock held exclusively. "ATTR":
 * to read or write, either o->lock exclusively, or o->lock shared and node->lock.
 * A function named *_locked or taking a struct node needs o->lock as its comment says.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "fs/core/content.h"
#include "fs/core/hidden.h"
#include "fs/core/hostsrc.h"
#include "fs/core/ino_set.h"
#include "fs/core/journal.h"
#include "fs/core/ovl.h"
#include "fs/core/redo.h"
#include "fs/core/table.h"
#include "policy/judge.h"
#include "policy/policy.h"

#define XATTR_VALUE_MAX (64u << 10)
#define ACL_ACCESS      "system.posix_acl_access"
#define ACL_DEFAULT     "system.posix_acl_default"
#define CAPABILITY      "security.capability"
#define HOST_TTL_MS     1000
#define STABLE_TTL_MS   60000
#define HOST_HELD_MS    5000 /* between two looks at a host file that is held */
#define POL_UNKNOWN     (-1)

/* ---- structures ---- */

/* A content with users: it can be replaced (the host file changed) while somebody reads it. */
struct content_ref {
	atomic_uint refs;
	struct content *c;
};

/* A big xattr value that is not yet in the store. ATTR. */
struct bigx {
	struct bigx *next;
	char *name;
	void *value; /* NULL: removed */
	size_t len;
	uint64_t gen;
	bool logged; /* in the journal */
};

/* A change to the places of a file with several links that is not yet in the store. EX. */
struct place {
	struct place *next;
	store_ino parent;
	bool present;
	uint64_t gen;
	size_t len;
	char name[];
};

/*
 * A name that differs from the store: in o->names, and in its directory's list. EX. Goes when a flush
 * that saw its last change has committed. An entry with @covers 0 hides nothing below, so removing
 * the name removes the entry; a snapshot sets @covers, because from then on the store may hold it.
 */
struct name {
	struct table_link link;
	struct node *dir;
	struct name *prev, *next; /* the directory's */
	store_ino ino;            /* 0: a tombstone */
	uint32_t type;
	uint64_t gen;
	bool covers;
	bool linked; /* in the tables; false: prepared for a change that is about to happen */
	struct hidden *
		hidden; /* the host file that it took over, until a flush has it; NULL: none, or no memory for it. Never
				* changes once linked. Owned */
	size_t len;
	char name[];
};

struct listing_entry {
	struct table_link link;
	uint64_t cookie;
	size_t slot;
	store_ino ino; /* 0: a host name that was not numbered yet */
	uint32_t type;
	bool host; /* from the host directory, not recorded */
	bool seen; /* mark of a refresh */
	size_t len;
	char name[];
};
/* All names of a directory. EX to change, o->lock shared to read. */
struct listing {
	struct table hash;
	struct listing_entry **slots; /* by cookie; NULL: removed */
	size_t n, cap;
	uint64_t next; /* cookie of the next insertion */
	bool logged;   /* its cookies are in the journal: somebody is in the middle of it */
	struct timespec host_mtime;
	bool racy;       /* the host directory may change once more and keep its time */
	int64_t checked; /* ms: when the host directory was last compared */
	/* host_ahead.c: reads of its host files that waited for the disk; slots before this one were asked for. */
	atomic_uint waited;
	atomic_size_t ahead;
};

struct host_source {
	struct hostsrc *h;
	char *root;
	unsigned flags;
	unsigned index;
};

struct node {
	struct table_link link; /* o->nodes: EX */
	store_ino ino;
	atomic_uint_least64_t nlookup; /* references of the caller */
	atomic_uint pins;              /* our own; freed only under EX with both zero */
	pthread_mutex_t lock;
	/* ATTR. The content fields are as the last flush wrote them; size and blocks come from the
	 * content once it is open. rec.parent/name is set for host nodes of several links too. */
	struct rec_inode rec;
	struct content_ref *content; /* ATTR; NULL: not opened yet */
	struct bigx *bigx;           /* ATTR */
	struct place *places;        /* EX */
	int pol;                     /* EX to set; policy state or POL_UNKNOWN */
	bool in_store;               /* EX: some record exists, in this layer or below */
	bool host_only;              /* EX: an untouched host file: nothing recorded */
	bool racy;                   /* EX: it may change on the host once more and keep its time */
	bool tmpfile;                /* EX: nlink 0 but may be linked */
	bool gone;           /* EX: inode_gone is queued or not needed; never write it again */
	bool new_dir;        /* EX: neither store nor host hold names below */
	atomic_bool used;    /* asked for since memory.c last looked */
	atomic_bool written; /* content was changed through us: a shared mapping may exist */
	store_layer born;    /* EX: the layer whose records are the first; 0 unknown (older) */
	uint64_t gen;        /* ATTR: of the last change */
	bool dirty;          /* ATTR + dirty_lock: on the dirty list */
	struct node *dirty_prev, *dirty_next; /* dirty_lock */
	struct name *names;                   /* EX */
	struct listing *listing;              /* EX */
	struct host_source *src;              /* EX to set; of rec.origin.root, once opened */
	struct node *host_parent; /* EX: host_only: pinned, so that it can be materialised */
	bool held; /* EX: beside nlookup there are references that a dead process has counted */
	atomic_int_least64_t given;   /* ms: when the last reference was given out, while held */
	bool known;                   /* ATTR: JOURNAL_KNOWN says something of it */
	bool redo_pending;            /* EX: in o->redo_nodes */
	struct node *redo_next;       /* EX */
	uint64_t redo_epoch;          /* ATTR: when the journal last got all of it */
	atomic_int_least64_t checked; /* ms: when the host was last asked */
	/* EX to set: the caller may not have counted the last removal of a name yet (ovl_unsettled). */
	store_ino dropped_in; /* 0: it has */
	uint32_t dropped_at;  /* @turns of that directory then */
	uint32_t
		turns; /* EX: of a directory: names moved, linked and removed, which nobody but the kernel asks for */
	uint32_t drops; /* never 0 after the first */
	bool settling;  /* somebody was told */
};

/* Numbers given by the core to host inodes that hostsrc_ino() cannot number: never forgotten (F2). */
struct host_number {
	struct table_link link;
	uint64_t dev, ino, salt;
	store_ino number;
};

/* What a dead process's kernel knows by number (known.c). */
struct known_entry {
	uint64_t cookie;
	size_t len;
	char name[];
};
struct known {
	struct table_link link;
	store_ino ino;
	store_ino parent; /* of a host inode; @name NULL: it is none */
	char *name;
	size_t len;
	struct known_entry **entries; /* of a directory whose listing was under way */
	size_t nentries, cap;
	bool busy;
};

struct change {
	struct table_link link;
	struct change *prev, *next; /* by seq */
	uint64_t seq;
	store_ino parent; /* 0: content or attributes of @ino */
	store_ino ino;
	size_t len;
	char name[];
};
/* Memory for changes with names up to some length. They live long and between others that do not: on the heap
 * they would keep its pages from going back to the system. */
struct change_pool {
	void *free;   /* used ones; the first word is the next */
	void *blocks; /* the first word is the next */
	uint8_t *at;  /* in the first block */
	size_t left;
};
struct change_log {
	pthread_mutex_t lock; /* leaf */
	struct change_pool pools[4];
	struct table hash;
	struct change *first, *last;
	size_t n;
	uint64_t floor; /* tokens below cannot be answered */
};

struct notice {
	struct notice *next;
	store_ino ino; /* with a name: of the directory */
	size_t len;
	char name[];
};
struct notifier {
	pthread_mutex_t lock; /* leaf */
	pthread_cond_t cond;
	pthread_t thread;
	bool running, stop;
	struct notice *first, **last;
	bool housekeeping;
	atomic_bool holding;
};

/* Group commit: whoever finds no flush running runs the next one for all that wait. */
struct flush_group {
	pthread_mutex_t lock;
	pthread_cond_t cond; /* CLOCK_MONOTONIC */
	uint64_t started, done;
	bool running;     /* a flush, or the writing of a frame */
	bool open;        /* the flush that runs lets frames in, until it commits its records */
	bool framing;     /* one is being written beside it */
	unsigned waiting; /* for a flush: frames stand back */
	int result;       /* of flush @done */
	bool stop, thread_running;
	pthread_t thread;
	atomic_bool kicked;
	atomic_size_t inodes_left; /* dirty after the last flush */
	atomic_size_t
		kick_at;  /* bytes dirty from which the next flush does not wait for its time */
	atomic_int error; /* the last flush failed with this; changes that grow are refused */
	atomic_int_least64_t failed; /* ms: when the last one that did failed */
};

/* synclog.c. Of whoever has flush_group.running, or .framing. */
struct sync_log {
	struct store_log *log; /* lent; NULL: none */
	bool usable;           /* since the last flush that ended well */
	bool any;              /* there are frames that the next flush has to void */
	bool since;            /* one was written since the snapshot of the flush that runs */
	atomic_bool off;       /* ovl_use_log */
	uint64_t batches;      /* of the layer, in the store */
	uint64_t at;           /* place in the journal: all before is durable */
	struct buf buf;
};

struct ovl {
	struct store *store;
	store_layer layer;       /* EX + freeze exclusive to change */
	struct store_view *view; /* the same; any use holds o->lock */
	unsigned flags;
	struct ovl_notify notify;
	unsigned flush_ms;
	uint32_t host_ttl_ms;
	size_t dirty_max, inodes_max;
	struct policy *policy;
	struct judge judge; /* of @policy */
	struct content_env *cenv;
	uint64_t seed;

	pthread_rwlock_t freeze;
	pthread_rwlock_t lock;
	struct table nodes;
	struct table names;
	size_t nnames;
	size_t sweep_at;   /* memory.c. EX: slot of @nodes */
	size_t freed;      /* EX: nodes, since memory went back to the system */
	size_t freed_seen; /* EX: in the last round */
	bool prune_failed; /* EX to set */
	struct table host_numbers;
	store_ino ino_next, ino_end;
	store_ino born_mark;            /* own numbers from here on are new in the open layer */
	struct host_source *srcs[1024]; /* by index */
	struct hostsrc_all host_all;
	/* Inodes that ended, whose records in this layer are to be dropped: by the next flush, and by the one
	 * under way. Until that is through the store still shows them; nobody else may. EX. */
	struct ino_set dead, dying;
	struct ino_set
		partial;   /* flushed in this layer with part of their bytes still on the host */
	store_layer child; /* freeze: @layer is sealed, and this over it is not gone on to yet */
	atomic_bool reopened_dirty;           /* the layer held records when it was opened */
	atomic_uint_least64_t changes_sealed; /* of @changes, those in older layers */

	pthread_mutex_t dirty_lock; /* leaf */
	struct node *dirty_first;
	atomic_size_t ndirty; /* read without the lock */
	atomic_uint_least64_t gen;
	atomic_uint_least64_t changes;
	atomic_uint_least64_t disk_max; /* 0: no limit */

	struct change_log log;
	struct notifier notifier;
	struct flush_group fl;
	struct sync_log slog;

	/* The journal. NULL: none. The records of a hold of o->lock are collected and appended at its end. */
	struct journal *journal;
	bool excl;      /* o->lock is held exclusively: written under EX */
	bool replaying; /* at open, before there is a second thread: nothing is logged */
	bool resumed; /* EX to change, shared to read: the sets and table below may hold something */
	uint32_t life; /* constant after open */
	atomic_bool log_failed;
	struct buf changed_nodes, changed, known_log; /* EX */
	struct node *redo_nodes;                      /* EX */
	uint64_t redo_epoch; /* freeze exclusive to change: flushes that were begun */
	uint64_t known_size; /* EX: of JOURNAL_KNOWN when it was written anew */
	struct table known;  /* EX */
	/* EX to change, o->lock shared to read: of which inodes a dead process's kernel holds references, and
	 * which of them it may have mapped. */
	struct ino_set old_known, old_written;
	struct journal_done done[JOURNAL_SLOTS]; /* constant after open */
};

/* ---- redo_log.c, redo_read.c: the journal; nothing happens without one ---- */

/* EX: what changed in this hold. */
void redo_name(struct ovl *o, store_ino dir, const char *name, size_t len, store_ino ino,
	       uint32_t type);
void redo_hidden(struct ovl *o, store_ino dir, const char *name, size_t len,
		 const struct hidden *h);
void redo_place(struct ovl *o, store_ino ino, store_ino parent, const char *name, size_t len,
		bool present);
void redo_gone(struct ovl *o, store_ino ino, bool dead);
void redo_node(struct ovl *o, struct node *n);
/* EX: @n is about to go. */
void redo_drop(struct ovl *o, struct node *n);
/* EX: at the end of the hold. */
void redo_commit(struct ovl *o);
/* o->lock shared and node.lock. */
void redo_touched(struct ovl *o, struct node *n, bool only_times);
/* The next batch of this thread is the last one of its request, which came to @result. */
void redo_arm(struct ovl *o, int64_t result, store_ino ino);
/* EX: what is known and never flushed. */
void redo_host(struct ovl *o, struct node *n);
void redo_orphan(struct ovl *o, struct node *n);
/* EX, or shared and node.lock: the first reference. */
void redo_known(struct ovl *o, struct node *n);
void redo_number(struct ovl *o, const struct host_number *k);
void redo_forgot(struct ovl *o, store_ino ino);
void redo_listed(struct ovl *o, store_ino dir, const struct listing_entry *e);
void redo_listing(struct ovl *o, struct node *dir);
void redo_known_put(struct ovl *o, uint32_t type, store_ino ino, const void *body, size_t len,
		    const void *more, size_t n);
void redo_renew(struct ovl *o);
/* node.lock */
void redo_written(struct ovl *o, struct node *n);
struct redo_node redo_node_info(struct ovl *o, struct node *n);
/* At open. */
int redo_all(struct ovl *o) MUST_USE;
/* The same of batches of CHANGES that come from elsewhere; EX from begin to end, whose result it is or @r. */
struct redo;
int redo_begin(struct ovl *o, struct redo **ret) MUST_USE;
int redo_batch(struct redo *x, const uint8_t *p, size_t n) MUST_USE;
int redo_end(struct redo *x, int r) MUST_USE;

/* ---- synclog.c: flush_group.running or .framing, or at open and close ---- */

/* All that the journal has up to @want is durable. 1: only a flush can do that. */
int synclog_write(struct ovl *o, uint64_t want) MUST_USE;
/* A flush has ended well that held all up to @at. */
void synclog_flushed(struct ovl *o, uint64_t at);
/* It has not. */
void synclog_failed(struct ovl *o);
/* The tree goes on in a layer without batches. */
void synclog_layer(struct ovl *o);
/* Everything is in the store. */
void synclog_done(struct ovl *o);
/* At open: what a process that died left, over the layer's @batches batches. */
int synclog_replay(struct ovl *o, uint64_t batches) MUST_USE;

/* ---- known.c (EX) ---- */

int known_host(struct ovl *o, store_ino ino, store_ino parent, const char *name,
	       size_t len) MUST_USE;
int known_listed(struct ovl *o, store_ino dir, uint64_t cookie, const char *name,
		 size_t len) MUST_USE;
void known_forget(struct ovl *o, store_ino ino);
void known_release(struct ovl *o);
void known_renew(struct ovl *o, const struct known *k);
int known_order(struct ovl *o, store_ino dir,
		int (*fn)(void *arg, const char *name, size_t len, uint64_t cookie),
		void *arg) MUST_USE;
bool known_ordered(struct ovl *o, store_ino dir);
bool known_take(struct ovl *o, store_ino ino);
/* The host inode behind a number that the kernel knows; -ESTALE. */
int known_load(struct ovl *o, store_ino ino, struct node **ret) MUST_USE;

/* ---- ovl.c ---- */

/* Enter a changing operation: -EROFS, -ENOSPC or -EDQUOT after a failed flush when @grows. Takes o->freeze
 * shared; change_end gives it back. */
int change_begin(struct ovl *o, bool grows) MUST_USE;
void change_end(struct ovl *o);
void lock_shared(struct ovl *o);
void lock_excl(struct ovl *o);
void unlock(struct ovl *o);
struct timespec now_real(void);
int name_check(const char *name, size_t *ret_len) MUST_USE;

/* ---- node.c: the inode table ---- */

/* o->lock shared. NULL when it is not in memory. */
struct node *node_find(struct ovl *o, store_ino ino);
/* EX. From memory or the store; -ESTALE when there is none. */
int node_get(struct ovl *o, store_ino ino, struct node **ret) MUST_USE;
/* EX. Like node_get, but -ENOTDIR, or -ENOENT for a removed directory when @live. */
int node_get_dir(struct ovl *o, store_ino ino, bool live, struct node **ret) MUST_USE;
/* EX. A node without a record; @ino is free. Its rec is zero. */
int node_new(struct ovl *o, store_ino ino, struct node **ret) MUST_USE;
/* EX. Free @n unless somebody needs it; handles the end of an inode without links. */
void node_reap(struct ovl *o, struct node *n);
/* EX. Give a pin back; accepts NULL. */
void node_put(struct ovl *o, struct node *n);
void node_free_all(struct ovl *o);
/* No lock. Give a pin back. */
void node_unpin(struct ovl *o, struct node *n);
void node_pin(struct node *n);
/* EX or ATTR, and o->freeze shared. */
void node_dirty(struct ovl *o, struct node *n);
/* ATTR and freeze: it is not to be flushed any more. */
void node_clean(struct ovl *o, struct node *n);
/* EX: its records in this layer are to be dropped. */
int node_dead(struct ovl *o, store_ino ino) MUST_USE;
/* EX. */
int node_number(struct ovl *o, store_ino *ret) MUST_USE;
/* ATTR. */
void node_attr(struct ovl *o, struct node *n, struct ovl_attr *ret);
uint64_t node_size(const struct node *n);
/* EX: takes a reference for the caller and fills @ret. */
void node_entry(struct ovl *o, struct node *n, uint32_t name_valid, struct ovl_entry *ret);
/* ATTR. Set the back reference. */
int node_set_place(struct node *n, store_ino parent, const char *name, size_t len) MUST_USE;
/* ATTR. The open content with one more reference. */
int node_content(struct ovl *o, struct node *n, struct content_ref **ret) MUST_USE;
void content_unref(struct content_ref *c);
/* ATTR. Close the content of @n when that is @c, has no users but the @refs known ones, and loses nothing:
 * opening it again is cheap. */
void node_drop_content(struct node *n, struct content_ref *c, unsigned refs);
void bigx_free(struct bigx *b);

/* ---- verdict.c: what the policy says. EX unless said ---- */

/* EX, or shared when it is known: the state of the inode, and of a place in the directory @dir. */
int node_policy(struct ovl *o, struct node *n);
int name_policy(struct ovl *o, struct node *dir, const char *name, size_t len);
/* @n has turned out to be @name of @dir. */
void node_found(struct ovl *o, struct node *dir, const char *name, size_t len, struct node *n);
/* The places of @n, a file with several, are others now. */
void node_moved(struct ovl *o, struct node *n);
/* 0, or -EACCES, which is remembered as a denial of @op; NULL: it is not. @what: enum policy_what, all of them. */
int node_may(struct ovl *o, struct node *n, unsigned what, const char *op) MUST_USE;
int name_may(struct ovl *o, struct node *dir, const char *name, size_t len, unsigned what,
	     const char *op) MUST_USE;
/* May it be looked at? 1: no, and it is to look as if there were no such name. */
int name_may_look(struct ovl *o, struct node *dir, const char *name, size_t len,
		  const char *op) MUST_USE;
/* May the name be taken away, by removal or by a move? */
int name_may_go(struct ovl *o, struct node *dir, const char *name, size_t len,
		const char *op) MUST_USE;
/* May @n, at @from, be renamed to @to, where @old is; NULL: nothing? -EXDEV: other rules would hold below. */
struct place_at {
	struct node *dir;
	const char *name;
	size_t len;
};
int may_rename(struct ovl *o, const struct place_at *from, struct node *n,
	       const struct place_at *to, struct node *old, bool exchange) MUST_USE;
/* For struct judge. EX. */
int place_path(void *ovl, void *where, struct buf *out);

/* ---- links.c: the places of files with several links (EX, freeze) ---- */

/* A change of places that is about to happen: made first, because that can fail; then done with the
 * names, or cancelled. */
struct place_plan {
	struct place *log; /* the last one is done first */
	bool set;          /* the back reference becomes: */
	store_ino parent;
	char *name;
	size_t len;
};
/* rec.nlink is still the old count in all. */
int place_add(struct node *n, store_ino parent, const char *name, size_t len,
	      struct place_plan *p) MUST_USE;
int place_del(struct ovl *o, struct node *n, store_ino parent, const char *name, size_t len,
	      struct place_plan *p) MUST_USE;
int place_move(struct node *n, store_ino from, const char *name, size_t len, store_ino to,
	       const char *newname, size_t newlen, struct place_plan *p) MUST_USE;
/* From a back reference to the links database. */
int place_spread(struct node *n, struct place_plan *p) MUST_USE;
void place_do(struct ovl *o, struct node *n, struct place_plan *p);
void place_cancel(struct place_plan *p);
/* At open, from the journal: one change alone. */
int place_log(struct ovl *o, struct node *n, store_ino parent, const char *name, size_t len,
	      bool present) MUST_USE;
#define cleanup_place __attribute__((cleanup(place_cancel)))
/* Every place in sight; nonzero from @fn stops. */
int place_each(struct ovl *o, struct node *n,
	       int (*fn)(void *arg, store_ino parent, const char *name, size_t len), void *arg);

/* ---- name.c: names that differ from the store, and finding a name (EX unless said) ---- */

struct found {
	store_ino ino; /* 0: no such name, or a host name that has no node yet */
	uint32_t type;
	bool host;   /* @st describes a host file */
	bool covers; /* something below must be hidden when the name goes */
	struct stat st;
};
/* Shared is enough when it returns without asking the host: -EAGAIN when EX is needed and !@excl. */
int name_lookup(struct ovl *o, struct node *dir, const char *name, size_t len, bool excl,
		struct found *ret) MUST_USE;
/* name_lookup and the inode. *ret_n NULL: no such name. */
int name_node(struct ovl *o, struct node *dir, const char *name, size_t len, struct found *f,
	      struct node **ret_n) MUST_USE;
/* An entry to be given to name_set or name_cancel: what can fail happens here. */
int name_prepare(struct ovl *o, struct node *dir, const char *name, size_t len,
		 struct name **ret) MUST_USE;
void name_cancel(struct name *e);
void name_cancelp(struct name **e);
#define cleanup_name __attribute__((cleanup(name_cancelp)))
/* @ino 0: remove the name. Takes *@e. Freeze held. */
void name_set(struct ovl *o, struct name **e, const struct found *before, store_ino ino,
	      uint32_t type);
/* At open, from the journal: the name is as a dead process left it. */
int name_put(struct ovl *o, struct node *dir, const char *name, size_t len, store_ino ino,
	     uint32_t type) MUST_USE;
/* The same: what it took over. */
int name_put_hidden(struct ovl *o, struct node *dir, const char *name, size_t len,
		    const struct hidden *h) MUST_USE;
void name_drop(struct ovl *o, struct name *e);
/* The snapshot @gen is in the store. */
void name_committed(struct ovl *o, struct name *e, uint64_t gen);
void name_free_all(struct ovl *o);
/* Times and count of a directory whose names changed; logs the change. */
void dir_touched(struct ovl *o, struct node *dir, const struct timespec *now, int subdirs);

/* ---- listing.c (EX) ---- */

int listing_new(struct listing **ret) MUST_USE;
void listing_free(struct listing *l);
struct listing_entry *listing_find(const struct ovl *o, const struct listing *l, const char *name,
				   size_t len);
/* Build it, or bring it up to date with the host when @fresh. */
int listing_load(struct ovl *o, struct node *dir, bool fresh) MUST_USE;
/* Keep @dir's listing right; on -ENOMEM it is dropped, to be built again. */
void listing_set(struct ovl *o, struct node *dir, const char *name, size_t len, store_ino ino,
		 uint32_t type);
/* Before a rename within @dir: the new name takes the old one's place, so that whoever lists the directory
 * meanwhile finds the file once. A name that is there already keeps its own. */
void listing_rename(struct ovl *o, struct node *dir, const char *name, size_t len, const char *to,
		    size_t tolen);
/* The first slot whose cookie is not below @cookie. */
size_t listing_seek(const struct listing *l, uint64_t cookie);
bool listing_empty(const struct listing *l);

/* ---- host.c: host files behind the tree (EX) ---- */

/* The source behind @n; *ret NULL: none. */
int host_source_of(struct ovl *o, struct node *n, struct host_source **ret) MUST_USE;
int host_stat_child(struct ovl *o, struct node *dir, const char *name, size_t len,
		    struct stat *ret) MUST_USE;
/* The same of many: *@fd, -1 at first and the caller's to close, is the directory's. */
/* A read of the host file had to wait for the disk. Takes the lock, shared; reads no disk. */
void host_ahead(struct ovl *o, store_ino ino);
int host_stat_next(struct ovl *o, struct node *dir, int *fd, const char *name, size_t len,
		   struct stat *ret) MUST_USE;
/* The inode that shows the host file @name of @dir. */
int host_node(struct ovl *o, struct node *dir, const char *name, size_t len, const struct stat *st,
	      struct node **ret) MUST_USE;
/* Only its number; what a listing shows. */
int host_number_of(struct ovl *o, struct node *dir, const char *name, size_t len,
		   const struct stat *st, store_ino *ret) MUST_USE;
/* At open, from the journal: the number that a host inode has been given. */
int host_number_set(struct ovl *o, uint64_t dev, uint64_t ino, uint64_t salt,
		    store_ino number) MUST_USE;
/* That of a file, when it was given one; else 0. */
store_ino host_number_known(struct ovl *o, uint64_t dev, uint64_t ino);
/* Record an untouched host inode, and the way to it, because it is about to change. Freeze held. */
int host_materialise(struct ovl *o, struct node *n) MUST_USE;
/* Does the host have to be asked again? Any lock. */
bool host_stale(struct ovl *o, const struct node *n);
/* Ask it; -ESTALE when the file is gone and not held either. */
int host_recheck(struct ovl *o, struct node *n) MUST_USE;
uint32_t host_ttl(const struct ovl *o, unsigned origin_flags);
void host_release(struct ovl *o);
int host_join(const char *dir, const char *name, size_t len, char **ret) MUST_USE;

/* ---- host_held.c ---- */
/* EX. Another file has the name of @n, which cannot be had any more: whoever looks for the name is to find that. */
void host_lost(struct ovl *o, struct node *n);
/* EX: @n is about to go. */
void host_forget(struct node *n);
/* No lock; the notifier's thread. False: no host file is held. */
bool host_let_go(struct ovl *o);

/* ---- notify.c ---- */
/* Its lock serves from here to notify_release, whether the thread runs or not. */
void notify_init(struct ovl *o);
void notify_release(struct ovl *o);
int notify_start(struct ovl *o) MUST_USE;
void notify_inode(struct ovl *o, store_ino ino);
void notify_entry(struct ovl *o, store_ino parent, const char *name, size_t len);
/* Host files are held: host_let_go() from time to time. Any lock. */
void notify_holding(struct ovl *o);
/* memory_housekeeping() soon, but not without pause. Any lock. */
void notify_housekeeping(struct ovl *o);

/* ---- memory.c ---- */
/* EX: a node more, a node less. */
void memory_grew(struct ovl *o);
void memory_shrank(struct ovl *o);
/* No lock; the notifier's thread. */
void memory_housekeeping(struct ovl *o);
static inline void node_used(struct node *n)
{
	if (!atomic_load_explicit(&n->used, memory_order_relaxed))
		atomic_store_explicit(&n->used, true, memory_order_relaxed);
}

/* ---- changes.c ---- */
int changes_init(struct ovl *o) MUST_USE;
void changes_release(struct ovl *o);
void change_name(struct ovl *o, store_ino parent, const char *name, size_t len);
void change_inode(struct ovl *o, store_ino ino);

/* ---- lookup.c ---- */
/* EX. The inode and one more reference in @ret, by name. @judged: the place may be passed, and another
 * refusal is nobody's. */
int lookup_locked(struct ovl *o, struct node *dir, const char *name, size_t len, bool judged,
		  struct ovl_entry *ret) MUST_USE;
/* The same, judged, of a name that neither memory nor the store knows, whose host file is @st. */
int lookup_host(struct ovl *o, struct node *dir, const char *name, size_t len,
		const struct stat *st, struct ovl_entry *ret) MUST_USE;
/* The same of a host name that leads to @ino, which is in memory, and was asked for just before. */
int lookup_believed(struct ovl *o, struct node *dir, store_ino ino, struct ovl_entry *ret) MUST_USE;
/* EX. */
int path_of(struct ovl *o, store_ino ino, struct buf *out) MUST_USE;

/* ---- xattr.c (ATTR) ---- */
/* A small copy in the record; NULL: none there. */
const struct rec_xattr *xattr_find(const struct rec_inode *r, const char *name);
int xattr_put(struct rec_inode *r, const char *name, const void *value, size_t len) MUST_USE;
bool xattr_drop(struct rec_inode *r, const char *name);
/* EX. All attributes of a host file into its record. */
int xattr_load_host(struct ovl *o, struct node *n) MUST_USE;
/* Drop set-id bits and security.capability after a write; true when something changed. */
bool kill_privileges(struct ovl *o, struct node *n);
/* In whichever of record, memory or store it is. Length or -ENODATA. */
ssize_t xattr_get(struct ovl *o, struct node *n, const char *name, void *value,
		  size_t size) MUST_USE;
int xattr_set(struct ovl *o, struct node *n, const char *name, const void *value,
	      size_t len) MUST_USE;
/* The big value that a flush is to write; @value NULL: it is removed. */
int bigx_log(struct ovl *o, struct node *n, const char *name, const void *value,
	     size_t len) MUST_USE;
int xattr_remove(struct ovl *o, struct node *n, const char *name) MUST_USE;

/* ---- create.c ---- */
struct new_inode {
	mode_t mode;
	dev_t rdev;
	const char *target;
};
/* EX. An inode as @cred makes it in @dir, without a place, not dirty yet. */
int node_make(struct ovl *o, struct node *dir, const struct new_inode *what,
	      const struct ovl_cred *cred, const struct timespec *now, struct node **ret) MUST_USE;
/* Of node_make, when nothing became of it. */
void node_unmake(struct ovl *o, struct node *n);

/* ---- flush.c ---- */

/* Of the one who flushes; @frozen: who holds o->freeze exclusively. */
int flush_now(struct ovl *o, bool frozen) MUST_USE;
/* Bytes of files without a name that may stay in memory. */
static inline size_t orphans_max(const struct ovl *o)
{
	return o->dirty_max / 2;
}

/* ---- flush_group.c ---- */
int flush_join(struct ovl *o) MUST_USE;
/* All that is acknowledged is on the disk: by a flush, or in the log. */
int sync_join(struct ovl *o) MUST_USE;
/* Wait for the flush under way, or run one: afterwards less is dirty, not necessarily what the caller
 * changed. */
int flush_relief(struct ovl *o) MUST_USE;
/* Become the one who flushes, for flush_now. */
void flush_acquire(struct ovl *o);
void flush_release(struct ovl *o, int result);
int flush_start(struct ovl *o) MUST_USE;
void flush_stop(struct ovl *o);
void flush_kick(struct ovl *o);
/* ovl.c: is so much dirty that the next flush does not wait for its time? */
bool flush_presses(struct ovl *o);
bool flush_wanted(struct ovl *o);

/* ---- commit.c ---- */
/* o->freeze exclusive, by the one who flushes: go on in the layer that a commit opened, if that has not
 * been done. */
int commit_go_on(struct ovl *o) MUST_USE;
/* At open: which files of the layer still need their host file, and which inodes have no name and, with
 * their last process gone, nobody who could use them. */
int leftovers_load(struct ovl *o) MUST_USE;
bool rec_is_partial(const struct rec_inode *r);
