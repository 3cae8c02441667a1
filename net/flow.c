#include "net/flow.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int flow_start(struct flow *f, uint64_t most, bool tell)
{
	*f = (struct flow){.left = most, .eof = most == 0, .tell = tell};
	f->data = malloc(FLOW_SIZE);
	return f->data ? 0 : -ENOMEM;
}

void flow_release(struct flow *f)
{
	free(f->data);
	*f = (struct flow){0};
}

int flow_put(struct flow *f, const void *p, size_t n)
{
	if (n > FLOW_SIZE - f->end)
		return -E2BIG;
	memcpy(f->data + f->end, p, n);
	f->end += n;
	return 0;
}

bool flow_wants(const struct flow *f)
{
	return f->data && !f->eof && f->end < FLOW_SIZE;
}

bool flow_has(const struct flow *f)
{
	return f->at < f->end;
}

bool flow_over(const struct flow *f)
{
	return f->eof && !flow_has(f);
}

int flow_read(struct flow *f, int from)
{
	size_t room = FLOW_SIZE - f->end;
	ssize_t n;

	if (room > f->left)
		room = (size_t)f->left;
	n = recv(from, f->data + f->end, room, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -EPIPE;
	f->end += (size_t)n;
	f->left -= (uint64_t)n;
	f->eof = n == 0 || f->left == 0;
	return 0;
}

int flow_write(struct flow *f, int to)
{
	ssize_t n;

	if (flow_has(f)) {
		n = send(to, f->data + f->at, f->end - f->at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -EPIPE;
		f->at += (size_t)n;
		if (f->at == f->end)
			f->at = f->end = 0;
	}
	if (flow_over(f) && f->tell && !f->shut) {
		f->shut = true;
		(void)shutdown(to, SHUT_WR);
	}
	return 0;
}
