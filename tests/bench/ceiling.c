/* Serving; what is served is in ceiling_tree.c. */
#include "tests/bench/ceiling_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 50000

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void ceiling_reply(struct request *q, int error, const void *body, size_t len)
{
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof(head) + len),
		.error = -error,
		.unique = q->in->unique,
	};
	struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)body, len}};

	/* Refused: who asked was killed meanwhile, or the mount is gone. */
	(void)!writev(q->c->fd, iov, 2);
}

/* What ours asks for, too, but for ACLs. */
static void serve_init(struct request *q)
{
	const struct fuse_init_in *in = q->arg;
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = in->max_readahead,
		.max_background = 64,
		.congestion_threshold = 48,
		.max_write = CEILING_DATA,
		.time_gran = 1,
		.max_pages = CEILING_DATA / 4096,
	};

	out.flags = in->flags &
		    (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_DO_READDIRPLUS |
		     FUSE_READDIRPLUS_AUTO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
		     FUSE_CACHE_SYMLINKS | FUSE_NO_OPEN_SUPPORT | FUSE_NO_OPENDIR_SUPPORT |
		     FUSE_EXPLICIT_INVAL_DATA | FUSE_HANDLE_KILLPRIV_V2 | FUSE_EXPORT_SUPPORT);
	ceiling_reply(q, 0, &out, sizeof(out));
}

static void serve(struct request *q)
{
	unsigned op = q->in->opcode;

	atomic_fetch_add_explicit(&q->c->count[op < CEILING_OPS ? op : 0], 1, memory_order_relaxed);
	if (op == FUSE_INIT) {
		serve_init(q);
		return;
	}
	(void)pthread_mutex_lock(&q->c->lock);
	ceiling_answer(q);
	(void)pthread_mutex_unlock(&q->c->lock);
}

static void spin(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t end = now_ns() + SPIN_NS;

	while (poll(&p, 1, 0) == 0 && now_ns() < end)
		;
}

static void *worker(void *arg)
{
	struct ceiling *c = arg;
	uint8_t *in = malloc(CEILING_DATA + 4096);
	struct request q = {.c = c, .in = (void *)in, .arg = in + sizeof(*q.in)};

	q.out = malloc(CEILING_DATA);
	while (in && q.out) {
		ssize_t n;

		if (c->threads == 1)
			spin(c->fd);
		n = read(c->fd, in, CEILING_DATA + 4096);
		if (n >= (ssize_t)sizeof(*q.in))
			serve(&q);
		else if (n < 0 && errno != EINTR && errno != ENOENT && errno != EAGAIN)
			break;
	}
	free(q.out);
	free(in);
	return NULL;
}

struct ceiling *ceiling_start(int fuse_fd, unsigned threads)
{
	struct ceiling *c = calloc(1, sizeof(*c));

	if (!c || ceiling_tree_init(c) < 0)
		return NULL;
	c->fd = fuse_fd;
	c->threads = threads < CEILING_THREADS ? threads : CEILING_THREADS;
	(void)pthread_mutex_init(&c->lock, NULL);
	for (unsigned i = 0; i < c->threads; i++)
		if (pthread_create(&c->thread[i], NULL, worker, c))
			return NULL;
	return c;
}

uint64_t ceiling_count(const struct ceiling *c, unsigned opcode)
{
	uint64_t n = 0;

	if (opcode)
		return opcode < CEILING_OPS ? atomic_load(&c->count[opcode]) : 0;
	for (unsigned i = 0; i < CEILING_OPS; i++)
		n += atomic_load(&c->count[i]);
	return n;
}

void ceiling_forget(struct ceiling *c, uint64_t parent, const char *name)
{
	struct fuse_notify_inval_entry_out out = {.parent = parent,
						  .namelen = (uint32_t)strlen(name)};
	struct fuse_out_header head = {.error = FUSE_NOTIFY_INVAL_ENTRY};
	struct iovec iov[3] = {{&head, sizeof(head)},
			       {&out, sizeof(out)},
			       {(void *)(uintptr_t)name, out.namelen + 1}};

	head.len = (uint32_t)(sizeof(head) + sizeof(out) + out.namelen + 1);
	(void)!writev(c->fd, iov, 3);
}

void ceiling_wait(struct ceiling *c)
{
	for (unsigned i = 0; i < c->threads; i++)
		(void)pthread_join(c->thread[i], NULL);
}
