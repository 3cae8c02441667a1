#include "mcp/rpc.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_MIN 65536u

void rpc_reader_init(struct rpc_reader *r, int fd)
{
	*r = (struct rpc_reader){.fd = fd};
}

void rpc_reader_release(struct rpc_reader *r)
{
	free(r->data);
	*r = (struct rpc_reader){.fd = -1};
}

static int make_room(struct rpc_reader *r)
{
	size_t want = r->len - r->at + READ_MIN, cap;
	char *p;

	if (r->at) {
		memmove(r->data, r->data + r->at, r->len - r->at);
		r->len -= r->at;
		r->at = 0;
	}
	/* A giant line must not keep its memory for the rest of the session. */
	if (r->cap > (1u << 20) && want < r->cap / 16) {
		p = realloc(r->data, READ_MIN * 2);
		if (p) {
			r->data = p;
			r->cap = READ_MIN * 2;
		}
	}
	if (want <= r->cap)
		return 0;
	cap = r->cap ? r->cap * 2 : READ_MIN * 2;
	while (cap < want)
		cap *= 2;
	p = realloc(r->data, cap);
	if (!p)
		return -ENOMEM;
	r->data = p;
	r->cap = cap;
	return 0;
}

int rpc_reader_fill(struct rpc_reader *r)
{
	ssize_t n;
	int err = make_room(r);

	if (err)
		return err;
	do {
		n = read(r->fd, r->data + r->len, r->cap - r->len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 1 : ret_nerrno();
	r->len += (size_t)n;
	return n > 0;
}

int rpc_reader_next(struct rpc_reader *r, char **ret_line, size_t *ret_len)
{
	size_t have = r->len - r->at;
	char *from = r->data + r->at, *nl = NULL;

	if (have > r->seen)
		nl = memchr(from + r->seen, '\n', have - r->seen);
	if (r->skipping) {
		r->seen = 0;
		r->at = nl ? (size_t)(nl + 1 - r->data) : r->len;
		if (!nl)
			return 0;
		r->skipping = false;
		return rpc_reader_next(r, ret_line, ret_len);
	}
	if ((nl ? (size_t)(nl - from) : have) > RPC_LINE_MAX) {
		r->skipping = !nl;
		r->seen = 0;
		r->at = nl ? (size_t)(nl + 1 - r->data) : r->len;
		return -EMSGSIZE;
	}
	if (!nl) {
		r->seen = have;
		return 0;
	}
	r->seen = 0;
	r->at = (size_t)(nl + 1 - r->data);
	*ret_line = from;
	*ret_len = (size_t)(nl - from);
	return 1;
}

int rpc_writer_init(struct rpc_writer *w, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return ret_nerrno();
	*w = (struct rpc_writer){.fd = fd, .is_socket = S_ISSOCK(st.st_mode)};
	w->pending.max = RPC_PENDING_MAX;
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_mutex_init(&w->plock, NULL);
	return 0;
}

void rpc_writer_release(struct rpc_writer *w)
{
	(void)pthread_mutex_destroy(&w->lock);
	(void)pthread_mutex_destroy(&w->plock);
	buf_release(&w->pending);
}

/*
 * As much as goes out without waiting: bytes written, 0 when the client must read first. A pipe that
 * polls writable takes PIPE_BUF (4096) bytes at once, and nobody else writes to it meanwhile.
 */
static ssize_t write_some(struct rpc_writer *w, const char *p, size_t n, int wait_ms)
{
	struct pollfd pfd = {.fd = w->fd, .events = POLLOUT};
	ssize_t k;

	if (w->dead)
		return -EPIPE;
	if (w->is_socket) {
		k = send(w->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (k >= 0)
			return k;
		if (errno != EAGAIN && errno != EINTR)
			goto dead;
	}
	if (poll(&pfd, 1, wait_ms) <= 0)
		return 0;
	if (w->is_socket)
		return 0;
	k = write(w->fd, p, n < 4096 ? n : 4096);
	if (k >= 0)
		return k;
	if (errno == EAGAIN || errno == EINTR)
		return 0;
dead:
	w->dead = true;
	return -EPIPE;
}

static int write_all_locked(struct rpc_writer *w, const char *p, size_t n)
{
	while (n) {
		ssize_t k = write_some(w, p, n, 200);

		if (k < 0)
			return (int)k;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

/* Take what was posted; the caller holds w->lock, so order is kept. */
static struct buf take_pending(struct rpc_writer *w)
{
	struct buf b;

	(void)pthread_mutex_lock(&w->plock);
	b = w->pending;
	w->pending = (struct buf){.max = RPC_PENDING_MAX};
	(void)pthread_mutex_unlock(&w->plock);
	return b;
}

int rpc_write(struct rpc_writer *w, const void *line, size_t n)
{
	struct buf first;
	int r;

	(void)pthread_mutex_lock(&w->lock);
	first = take_pending(w);
	r = write_all_locked(w, (const char *)first.data, first.len);
	if (!r)
		r = write_all_locked(w, line, n);
	(void)pthread_mutex_unlock(&w->lock);
	buf_release(&first);
	return r;
}

int rpc_post(struct rpc_writer *w, const void *line, size_t n)
{
	int r;

	if (w->dead)
		return -EPIPE;
	(void)pthread_mutex_lock(&w->plock);
	r = buf_put(&w->pending, line, n);
	(void)pthread_mutex_unlock(&w->plock);
	if (r)
		return r == -E2BIG ? -ENOBUFS : r;
	rpc_flush(w);
	return 0;
}

bool rpc_pending(struct rpc_writer *w)
{
	bool some;

	(void)pthread_mutex_lock(&w->plock);
	some = w->pending.len > 0;
	(void)pthread_mutex_unlock(&w->plock);
	return some && !w->dead;
}

void rpc_flush(struct rpc_writer *w)
{
	size_t at = 0;

	if (pthread_mutex_trylock(&w->lock))
		return;
	(void)pthread_mutex_lock(&w->plock);
	while (at < w->pending.len) {
		ssize_t k =
			write_some(w, (const char *)w->pending.data + at, w->pending.len - at, 0);

		if (k <= 0)
			break;
		at += (size_t)k;
	}
	/* Once, not for each 4 KiB of what may be megabytes. */
	if (at) {
		memmove(w->pending.data, w->pending.data + at, w->pending.len - at);
		w->pending.len -= at;
	}
	(void)pthread_mutex_unlock(&w->plock);
	(void)pthread_mutex_unlock(&w->lock);
}

void rpc_stop(struct rpc_writer *w)
{
	w->dead = true;
}
