/*
 * fs/fuse/session_internal.h - what the files of this folder share about a session. session.h is the
 * contract for everybody else.
 *
 * session.c starts and stops; loop.c reads requests and hands them out; ops_*.c decode, make one
 * call of the core and reply once through reply.h; notify.c tells the kernel what changed.
 */
#pragma once

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/fuse/company.h"
#include "fs/fuse/proto.h"
#include "fs/fuse/session.h"
#include "fs/fuse/spin.h"
#include "fs/fuse/tree.h"

/* A call of the tree that @se serves. */
#define TREE(se, op, ...) ((se)->tree.ops->op((se)->tree.t, __VA_ARGS__))

#define SESSION_MAX_WRITE (1u << 20)
/* The kernel's own limit on a request is max_write and a page for the headers (fs/fuse/dev.c). */
#define SESSION_IN_SIZE   (SESSION_MAX_WRITE + 4096)
#define SESSION_OUT_SIZE  (1u << 20)

struct worker {
	struct session *se;
	pthread_t thread;
	unsigned id;                      /* 1.. */
	uint8_t *in, *out;                /* a request, and room for an answer */
	const struct fuse_in_header *req; /* the request being served, in @in */
	size_t req_len;
	bool pinned; /* to the CPU of its callers */
	/* Requests served, by opcode; written by this worker alone. */
	_Atomic uint64_t count[PROTO_OP_MAX];
};

/* Leadership: 0 nobody's, else the worker's id << 1, with LOOP_SERVING while it serves a request
 * and may be relieved. Whoever changes it away from 0 owns @spin until it is changed again. */
#define LOOP_SERVING 1u

struct loop {
	int fd;      /* /dev/fuse, not blocking; the session's */
	int wake_fd; /* eventfd, readable once workers have to go */
	pthread_mutex_t lock;
	pthread_cond_t follower; /* lock: there is no leader, or workers have to go */
	pthread_cond_t pacer;
	_Atomic unsigned leader;
	_Atomic unsigned idle; /* followers asleep; changed under lock */
	_Atomic bool stop;
	_Atomic bool pacer_asleep;
	_Atomic uint64_t served;  /* requests that leaders began with */
	_Atomic uint32_t read_ns; /* running mean of what a READ takes */
	struct spin spin;         /* the leader's */
	struct company company;   /* the leader's */
	uint32_t caller;          /* the leader's: whose request came last, 0: not known */
	bool beside;     /* the leader's: company was begun, and has not been seen to end */
	bool forget_due; /* the leader's: the last request was a removal */
	pthread_t pacer_thread;
	bool pacer_runs;
};

/* Files whose dirty pages the kernel is to write. */
struct push {
	store_ino *v;
	size_t n, cap;
	bool prune; /* given back, and not written */
	int result; /* of that; notifier.lock */
	bool done;  /* notifier.lock */
};

struct notice {
	struct notice *next;
	struct push *push; /* not NULL: nothing else but this */
	store_ino ino;
	store_ino settles; /* not 0: wait for removals in @ino, then this inode is settled */
	uint32_t which;    /* of its removals */
	size_t len;        /* of @name; 0: the inode itself */
	char name[];       /* NUL-terminated */
};

struct notifier {
	pthread_mutex_t lock;
	pthread_cond_t more, pushed;
	struct notice *first, **last; /* lock */
	bool stop;                    /* lock */
	bool runs;                    /* lock: the kernel may be told */
	pthread_t thread;
};

struct session {
	struct fuse_session *fuse;
	struct tree tree;
	struct session_ids ids;
	bool writeback;
	int ended_fd;
	pthread_key_t worker_key; /* the worker of the calling thread */
	bool have_key;
	struct worker *workers;
	unsigned nworkers, nrunning;
	struct loop loop;
	struct notifier notifier;
	_Atomic bool patient; /* session_patience */
	/* Written while INIT is served, before there is a second thread. */
	bool inited, no_open, no_opendir, setxattr_ext;
	bool unmapped_is_clean;
	uint64_t init_unique;
	uint64_t init_flags; /* what the kernel offers */
	bool resuming;       /* INIT is answered already: see what we would say */
	bool differs;        /* it is not what was said */
	struct session_init init;
	uint64_t connection; /* the upper bits of a request's tag */
};

/* The session and the worker that serve @req. */
static inline struct session *op_session(fuse_req_t req)
{
	return fuse_req_userdata(req);
}
static inline struct worker *op_worker(fuse_req_t req)
{
	return pthread_getspecific(op_session(req)->worker_key);
}
/* The number of the request under way, among all of the environment's. */
static inline uint64_t session_tag(const struct worker *w)
{
	return w->se->connection ^ (w->req->unique & ~PROTO_RESEND_BIT);
}
/* The answer's owner and umask for what the caller of @req creates. */
struct ovl_cred op_cred(fuse_req_t req);

/* ---- loop.c ---- */

int loop_init(struct loop *l);
void loop_release(struct loop *l);
void *loop_worker(void *worker);
int loop_start_pacer(struct loop *l);
/* Make every worker and the pacer return; does not wait for the workers. */
void loop_stop(struct loop *l);

/* ---- session.c ---- */

/* Serve the request in @w->in. */
void session_serve(struct worker *w);
/* The connection is gone. */
void session_ended(struct session *se);

/* ---- notify.c ---- */

int notifier_init(struct notifier *n);
int notifier_start(struct session *se);
/* What waits is dropped; what is being told is waited for, so workers must still run. */
void notifier_stop(struct notifier *n);
void notifier_release(struct notifier *n);
void session_notify_inode(void *session, store_ino ino);
/* What the kernel has cached of @ino's content is not so. For threads that serve; without memory nothing is said. */
void session_drop_pages(struct session *se, store_ino ino);
void session_notify_entry(void *session, store_ino parent, const char *name, size_t len);
int session_notify_prune(void *session, const store_ino *inos, size_t n);

/* The attributes of @ino were changed, and the answer that tells the kernel so is about to be given:
 * answers with older ones, given but not yet taken in, are void. Takes no lock in the kernel. */
void session_attr_changed(struct session *se, store_ino ino);
/* How long attributes may be cached, in seconds; makes sure that unsettled ones are not. */
double session_attr_seconds(struct session *se, const struct ovl_attr *a);

/* ---- ops_raw.c ---- */

/* Answer a request that libfuse does not know; false: it is libfuse's. */
bool raw_serve(struct worker *w);
/* Answer a request that was executed by a process that is dead; false: it was not. */
bool raw_again(struct worker *w);

/* ---- ops_root.c ---- */

/* Of a mount with ids.root: whom @pid believes to be owns what it makes (stage3/root_abi.h). */
void root_maker(const struct session_ids *ids, pid_t pid, struct ovl_cred *cred);
/* What stage3 asks of a mount with ids.root; false: it is no such attribute, or no such mount. */
bool root_getxattr(struct session *se, store_ino ino, const char *name, void *value, size_t size,
		   ssize_t *ret);
bool root_setxattr(struct session *se, store_ino ino, const char *name, const void *value,
		   size_t size, int flags, int *ret);
/* The kernel ties a file's capabilities to the root of a user namespace; in the tree they are the tree's root's. The new length
 * of @value, which is changed in place. */
size_t root_capability(const struct session_ids *ids, const char *name, void *value, size_t size);

/* ---- operations, one table in session.c ---- */

void op_init(void *session, struct fuse_conn_info *conn);

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
/* Sets it, ids as stored, and tells the kernel what changed; the answer is the caller's. */
int setxattr_told(struct worker *w, store_ino ino, const char *name, const void *value, size_t size,
		  int flags);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned flags);

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
/* The copy, and the kernel is told what changed. */
ssize_t copy_range(struct session *se, store_ino in, uint64_t fh_in, uint64_t off_in, store_ino out,
		   uint64_t fh_out, uint64_t off_out, uint64_t n);
void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
			fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
			int flags);
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size);

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
