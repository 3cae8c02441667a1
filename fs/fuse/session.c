#include "fs/fuse/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/fuse/session_internal.h"

enum {
	DEFAULT_WORKERS = 4,
	MAX_WORKERS = 8,
	DEFAULT_SPIN_US = 50,
	INIT_WAIT_MS = 10000,
	BACKGROUND = 64, /* requests in flight that nobody waits for: read-ahead, write-back */
};

/* Not here: flush (ops_file.c says why), access (default_permissions), locks and
 * poll (the kernel does them alone when nobody answers). */
static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.create = op_create,
	.release = op_release,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.releasedir = op_releasedir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.ioctl = op_ioctl,
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
};

/* ---- INIT ---- */

static void want(struct fuse_conn_info *conn, unsigned cap, bool on)
{
	if (on && (conn->capable & cap))
		conn->want |= cap;
	else
		conn->want &= ~cap;
}

void op_init(void *session, struct fuse_conn_info *conn)
{
	struct session *se = session;
	bool live = se->tree.ops->live, opens_matter;
	const struct {
		unsigned cap;
		bool on;
	} caps[] = {
		{FUSE_CAP_ASYNC_READ, true},
		/* The kernel does not drop the pages under an asynchronous write that were read
		 * while it was on its way (fuse_aio_complete): they would stay stale. */
		{FUSE_CAP_ASYNC_DIO, false},
		{FUSE_CAP_PARALLEL_DIROPS, true},
		{FUSE_CAP_READDIRPLUS, !live},
		{FUSE_CAP_READDIRPLUS_AUTO, !live},
		{FUSE_CAP_CACHE_SYMLINKS, !live},
		{FUSE_CAP_EXPORT_SUPPORT, true},
		{FUSE_CAP_IOCTL_DIR, true},
		/* Where all changes pass through this kernel, or we tell it, no cache is to be dropped
		 * because a time has moved. */
		{FUSE_CAP_AUTO_INVAL_DATA, live},
		{FUSE_CAP_EXPLICIT_INVAL_DATA, !live},
		/* ACLs are checked by the kernel; the umask comes with the request, because a
		 * default ACL replaces it. */
		{FUSE_CAP_POSIX_ACL, true},
		{FUSE_CAP_DONT_MASK, true},
		/* Beside OPEN answered ENOSYS, O_TRUNC would be lost without a trace. */
		{FUSE_CAP_ATOMIC_O_TRUNC, false},
		/* Version 2 is asked for behind libfuse's back: patch_init(). */
		{FUSE_CAP_HANDLE_KILLPRIV, false},
		/* Slower for bytes that lie in memory (measured: up to 40 %). */
		{FUSE_CAP_SPLICE_READ, false},
		{FUSE_CAP_SPLICE_WRITE, false},
		{FUSE_CAP_SPLICE_MOVE, false},
		{FUSE_CAP_POSIX_LOCKS, false},
		{FUSE_CAP_FLOCK_LOCKS, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(caps); i++)
		want(conn, caps[i].cap, caps[i].on);
	want(conn, FUSE_CAP_WRITEBACK_CACHE, se->writeback);
	opens_matter = se->tree.ops->opens_matter(se->tree.t);
	se->no_open = conn->capable & FUSE_CAP_NO_OPEN_SUPPORT && !opens_matter;
	se->no_opendir = conn->capable & FUSE_CAP_NO_OPENDIR_SUPPORT && !opens_matter;
	conn->max_write = SESSION_MAX_WRITE;
	conn->max_background = BACKGROUND;
	conn->congestion_threshold = BACKGROUND / 4 * 3;
	conn->time_gran = 1;
}

/* What is said, or what was: then it must be the same to the byte. */
static void keep_init(struct session *se, const struct iovec *iov, int count)
{
	uint8_t said[SESSION_INIT_MAX];
	size_t n = 0;

	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > sizeof(said) - n) {
			se->differs = true;
			return;
		}
		memcpy(said + n, iov[i].iov_base, iov[i].iov_len);
		n += iov[i].iov_len;
	}
	if (se->resuming) {
		se->differs = n != se->init.out_len || memcmp(said, se->init.out, n) != 0;
		return;
	}
	memcpy(se->init.out, said, n);
	se->init.out_len = (uint32_t)n;
}

/* libfuse 3.14 does not know KILLPRIV_V2: without it the kernel asks for security.capability at
 * every first write. What it obliges us to is in ops_file.c and ops_node.c. Nor SETXATTR_EXT, without
 * which nobody tells that a new ACL has to drop the set-group-id bit: ops_raw.c. */
static void patch_init(struct session *se, struct iovec *iov, int count)
{
	struct fuse_out_header *head = iov[0].iov_base;
	struct fuse_init_out *out;

	if (se->inited || !se->init_unique || head->unique != se->init_unique || head->error)
		return;
	if (count < 2 || iov[1].iov_len < FUSE_COMPAT_22_INIT_OUT_SIZE)
		return;
	out = iov[1].iov_base;
	out->flags |= (uint32_t)(se->init_flags & (FUSE_HANDLE_KILLPRIV_V2 | FUSE_SETXATTR_EXT));
	se->setxattr_ext = se->init_flags & FUSE_SETXATTR_EXT;
	se->inited = true;
	keep_init(se, iov, count);
}

/* ---- libfuse's ends ---- */

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct session *se = userdata;
	ssize_t n;

	if (!se->inited)
		patch_init(se, iov, count);
	if (se->resuming) {
		n = 0;
		for (int i = 0; i < count; i++)
			n += (ssize_t)iov[i].iov_len;
		return n; /* the kernel has it */
	}
	n = writev(fd, iov, count);
	/* The one error about which libfuse does not complain on stderr. Who has to know that the
	 * connection is gone learns it by reading. */
	if (n < 0 && (errno == ENODEV || errno == ECONNABORTED))
		errno = ENOENT;
	return n;
}

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
	(void)userdata;
	return read(fd, buf, len); /* libfuse insists on one; loop.c reads */
}

static void count_request(struct worker *w)
{
	uint32_t op = w->req->opcode < PROTO_OP_MAX ? w->req->opcode : 0;
	uint64_t n = atomic_load_explicit(&w->count[op], memory_order_relaxed);

	atomic_store_explicit(&w->count[op], n + 1, memory_order_relaxed);
}

void session_serve(struct worker *w)
{
	struct fuse_buf buf = {.mem = w->in, .size = w->req_len};

	if (w->req_len < sizeof(*w->req))
		return; /* no request: the kernel never sends less than a header */
	count_request(w);
	TREE(w->se, request, session_tag(w), w->id - 1);
	if ((w->req->unique & PROTO_RESEND_BIT) && raw_again(w))
		return;
	if (!raw_serve(w))
		fuse_session_process_buf(w->se->fuse, &buf);
}

void session_ended(struct session *se)
{
	uint64_t one = 1;

	fuse_session_exit(se->fuse);
	loop_stop(&se->loop);
	(void)!write(se->ended_fd, &one, sizeof(one));
}

/* ---- start ---- */

int session_new(struct session **ret)
{
	struct session *se = calloc(1, sizeof(*se));
	int r;

	if (!se)
		return -ENOMEM;
	se->loop.fd = -1;
	se->loop.wake_fd = -1;
	r = notifier_init(&se->notifier);
	if (r < 0) {
		free(se);
		return r;
	}
	se->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (se->ended_fd < 0) {
		r = ret_nerrno();
	} else {
		r = -pthread_key_create(&se->worker_key, NULL);
		se->have_key = r == 0;
	}
	if (r == 0)
		r = loop_init(&se->loop);
	if (r < 0) {
		session_stop(se);
		return r;
	}
	*ret = se;
	return 0;
}

struct ovl_notify session_notify(struct session *se)
{
	return (struct ovl_notify){
		.arg = se,
		.inval_inode = session_notify_inode,
		.inval_entry = session_notify_entry,
		.prune = session_notify_prune,
	};
}

static int default_workers(void)
{
	cpu_set_t set;
	int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	return cpus + 2 < DEFAULT_WORKERS ? cpus + 2 : DEFAULT_WORKERS;
}

static int make_workers(struct session *se, int n)
{
	/* The core remembers the last request of that many (ovl_request). */
	if (n > MAX_WORKERS)
		n = MAX_WORKERS;
	se->workers = calloc((size_t)n, sizeof(*se->workers));
	if (!se->workers)
		return -ENOMEM;
	se->nworkers = (unsigned)n;
	for (unsigned i = 0; i < se->nworkers; i++) {
		struct worker *w = &se->workers[i];

		w->se = se;
		w->id = i + 1;
		w->in = aligned_alloc(4096, SESSION_IN_SIZE);
		w->out = aligned_alloc(4096, SESSION_OUT_SIZE);
		if (!w->in || !w->out)
			return -ENOMEM;
	}
	return 0;
}

static int make_fuse(struct session *se)
{
	static const struct fuse_custom_io io = {.writev = io_writev, .read = io_read};
	char prog[] = "rattan-fs";
	char *argv[] = {prog, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	int flags = fcntl(se->loop.fd, F_GETFL);

	/* So that a worker never sleeps where loop_stop() cannot reach it. */
	if (flags < 0 || fcntl(se->loop.fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return ret_nerrno();
	se->fuse = fuse_session_new(&args, &ops, sizeof(ops), se);
	fuse_opt_free_args(&args);
	if (!se->fuse)
		return -ENOMEM;
	return fuse_session_custom_io(se->fuse, &io, se->loop.fd) == 0 ? 0 : -ENOMEM;
}

/* The mount has queued INIT already; nothing else comes before its answer. */
static ssize_t read_init(struct session *se, struct worker *w)
{
	struct pollfd p = {.fd = se->loop.fd, .events = POLLIN};
	ssize_t n;

	if (se->resuming) {
		if (se->init.in_len > sizeof(se->init.in))
			return -EPROTO;
		memcpy(w->in, se->init.in, se->init.in_len);
		return (ssize_t)se->init.in_len;
	}
	if (poll(&p, 1, INIT_WAIT_MS) == 0)
		return -ETIMEDOUT;
	n = read(se->loop.fd, w->in, SESSION_IN_SIZE);
	if (n < 0)
		return ret_nerrno();
	if ((size_t)n <= sizeof(se->init.in)) {
		memcpy(se->init.in, w->in, (size_t)n);
		se->init.in_len = (uint32_t)n;
	}
	return n;
}

static int serve_init(struct session *se)
{
	struct worker *w = &se->workers[0];
	const struct fuse_init_in *in = (const void *)(w->in + sizeof(struct fuse_in_header));
	const size_t least = offsetof(struct fuse_init_in, flags2);
	ssize_t n = read_init(se, w);

	if (n < 0)
		return (int)n;
	w->req = (const void *)w->in;
	w->req_len = (size_t)n;
	if (w->req_len < sizeof(*w->req) + least || w->req->opcode != FUSE_INIT)
		return -EPROTO;
	se->init_unique = w->req->unique;
	se->init_flags = in->flags;
	/* The end of a mapping writes its file (fuse_vma_close); since Linux 6.16 that waits for the answer. */
	se->unmapped_is_clean = in->major == FUSE_KERNEL_VERSION && in->minor >= PROTO_MINOR_6_16;
	if (in->flags & FUSE_INIT_EXT && w->req_len >= sizeof(*w->req) + sizeof(*in))
		se->init.resumable = (uint64_t)in->flags2 << 32 & PROTO_HAS_RESEND &&
				     se->init.in_len == w->req_len;
	session_serve(w);
	if (se->differs)
		se->init.resumable = false;
	if (se->resuming && se->differs)
		return -EPROTO;
	se->resuming = false;
	return se->inited && !fuse_session_exited(se->fuse) ? 0 : -EPROTO;
}

/* What the dead process had read and not answered comes once more, marked as such. */
static int ask_again(struct session *se)
{
	struct fuse_out_header head = {.len = sizeof(head), .error = PROTO_NOTIFY_RESEND};

	return write(se->loop.fd, &head, sizeof(head)) == (ssize_t)sizeof(head) ? 0 : ret_nerrno();
}

bool session_unmapped_is_clean(const struct session *se)
{
	return se->unmapped_is_clean;
}

void session_init_get(const struct session *se, struct session_init *ret)
{
	*ret = se->init;
}

static int start_threads(struct session *se)
{
	struct loop *l = &se->loop;
	int r = notifier_start(se);

	if (l->spin.max_ns) {
		company_start(&l->company);
		if (l->company.usable)
			spin_allow_beside(&l->spin);
	}
	if (r == 0)
		r = loop_start_pacer(&se->loop);
	for (unsigned i = 0; r == 0 && i < se->nworkers; i++) {
		r = -pthread_create(&se->workers[i].thread, NULL, loop_worker, &se->workers[i]);
		if (r == 0) {
			(void)pthread_setname_np(se->workers[i].thread, "fuse-worker");
			se->nrunning++;
		}
	}
	return r;
}

/* Signals belong to the threads of whoever started us. */
static int start_threads_unsignalled(struct session *se)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	r = -pthread_sigmask(SIG_SETMASK, &all, &old);
	if (r < 0)
		return r;
	r = start_threads(se);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

int session_start(struct session *se, const struct session_opts *o)
{
	int r;

	se->loop.fd = o->fuse_fd;
	se->tree = o->tree.ops ? o->tree : tree_of_ovl(o->ovl);
	se->ids = o->ids;
	se->writeback = o->writeback && !o->rdonly && !se->tree.ops->live;
	se->connection = o->connection << 48;
	se->resuming = o->resume != NULL;
	if (o->resume)
		se->init = *o->resume;
	spin_init(&se->loop.spin, (uint64_t)(o->spin_us < 0 ? DEFAULT_SPIN_US : o->spin_us) * 1000);
	if (o->spin_us > 0)
		spin_always(&se->loop.spin, SPIN_READ);
	else if (o->spin_us == SESSION_BESIDE)
		spin_always(&se->loop.spin, SPIN_BESIDE);
	r = make_workers(se, o->workers > 0 ? o->workers : default_workers());
	if (r == 0)
		r = make_fuse(se);
	if (r == 0)
		r = serve_init(se);
	/* Before anything is read here: it would come twice. */
	if (r == 0 && o->resume)
		r = ask_again(se);
	if (r == 0)
		r = start_threads_unsignalled(se);
	return r;
}

void session_patience(struct session *se, bool on)
{
	atomic_store(&se->patient, on);
}

/* ---- end ---- */

void session_stop(struct session *se)
{
	if (!se)
		return;
	/* First, while workers still answer what it may be waiting for. */
	notifier_stop(&se->notifier);
	loop_stop(&se->loop);
	for (unsigned i = 0; i < se->nrunning; i++)
		(void)pthread_join(se->workers[i].thread, NULL);
	if (se->loop.pacer_runs)
		(void)pthread_join(se->loop.pacer_thread, NULL);
	company_stop(&se->loop.company);
	if (se->fuse)
		fuse_session_destroy(se->fuse); /* closes the descriptor */
	else if (se->loop.fd >= 0)
		(void)close(se->loop.fd);
	for (unsigned i = 0; i < se->nworkers; i++) {
		free(se->workers[i].in);
		free(se->workers[i].out);
	}
	free(se->workers);
	loop_release(&se->loop);
	notifier_release(&se->notifier);
	if (se->have_key)
		(void)pthread_key_delete(se->worker_key);
	if (se->ended_fd >= 0)
		(void)close(se->ended_fd);
	free(se);
}

int session_ended_fd(struct session *se)
{
	return se->ended_fd;
}

void session_stats(struct session *se, struct session_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < se->nworkers; i++) {
		for (unsigned op = 0; op < SESSION_OPS; op++) {
			uint64_t n = atomic_load_explicit(&se->workers[i].count[op],
							  memory_order_relaxed);

			ret->by_op[op] += n;
			ret->requests += n;
		}
	}
}
