#include "mcp/rpc.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "tests/lib/tap.h"

static void put(int fd, const void *p, size_t n)
{
	if (io_write_full(fd, p, n))
		tap_fatal("write");
}

/* The next event: a line's length, 0 for none, or an error. */
static int next(struct rpc_reader *r, char **line)
{
	size_t n = 0;
	int k = rpc_reader_next(r, line, &n);

	return k > 0 ? (int)n : k;
}

static void test_lines(void)
{
	struct rpc_reader r;
	char *line;
	int p[2];

	if (pipe2(p, O_CLOEXEC))
		tap_fatal("pipe");
	rpc_reader_init(&r, p[0]);
	put(p[1], "abc\nde", 6);
	eq_int(rpc_reader_fill(&r), 1, "fill");
	ok(next(&r, &line) == 3 && !memcmp(line, "abc", 3), "a whole line");
	eq_int(next(&r, &line), 0, "half a line is none");
	put(p[1], "f\n\nx\n", 5);
	eq_int(rpc_reader_fill(&r), 1, "fill");
	ok(next(&r, &line) == 3 && !memcmp(line, "def", 3), "both halves");
	{
		size_t n = 9;

		ok(rpc_reader_next(&r, &line, &n) == 1 && n == 0, "an empty line");
	}
	ok(next(&r, &line) == 1 && *line == 'x', "the line after it");
	(void)close(p[1]);
	eq_int(rpc_reader_fill(&r), 0, "end of file");
	rpc_reader_release(&r);
	(void)close(p[0]);
}

struct feeder {
	int fd;
	size_t n;
};

static void *feed(void *arg)
{
	struct feeder *f = arg;
	char *p = malloc(f->n + 5);

	if (!p)
		tap_fatal("memory");
	memset(p, 'z', f->n);
	memcpy(p + f->n, "\nok\n", 4);
	put(f->fd, p, f->n + 4);
	free(p);
	(void)close(f->fd);
	return NULL;
}

static void test_long(size_t n, int want_first)
{
	struct rpc_reader r;
	struct feeder f = {.n = n};
	int p[2], events[4] = {0}, k = 0;
	pthread_t t;
	char *line;

	if (pipe2(p, O_CLOEXEC))
		tap_fatal("pipe");
	f.fd = p[1];
	rpc_reader_init(&r, p[0]);
	if (pthread_create(&t, NULL, feed, &f))
		tap_fatal("thread");
	while (rpc_reader_fill(&r) == 1)
		while (k < 4 && (events[k] = next(&r, &line)))
			k++;
	(void)pthread_join(t, NULL);
	ok(k == 2 && events[0] == want_first && events[1] == 2, "a line of %zu bytes, then 'ok'",
	   n);
	if (k != 2)
		printf("# %d events, first %d\n", k, events[0]);
	ok(r.cap <= 2 * (size_t)RPC_LINE_MAX + (1u << 20), "the buffer stays bounded");
	rpc_reader_release(&r);
	(void)close(p[0]);
}

struct reader_thread {
	int fd;
	size_t got;
	unsigned bad;
};

/* Lines of one letter each: any mixture shows. */
static void *check_lines(void *arg)
{
	struct reader_thread *rt = arg;
	char first = 0, block[4096];
	ssize_t n;

	while ((n = read(rt->fd, block, sizeof(block))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (block[i] == '\n') {
				first = 0;
				rt->got++;
			} else if (!first) {
				first = block[i];
			} else if (block[i] != first) {
				rt->bad++;
			}
		}
	}
	return NULL;
}

struct sender {
	struct rpc_writer *w;
	char c;
};

static void *send_lines(void *arg)
{
	struct sender *s = arg;
	char line[20001];

	memset(line, s->c, sizeof(line));
	line[sizeof(line) - 1] = '\n';
	for (int i = 0; i < 100; i++)
		if (rpc_write(s->w, line, sizeof(line)))
			return NULL;
	return NULL;
}

static void test_writers(bool sock)
{
	struct rpc_writer w;
	struct reader_thread rt = {0};
	struct sender s[3];
	pthread_t reader, t[3];
	int p[2];

	if (sock ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) : pipe2(p, O_CLOEXEC))
		tap_fatal("pipe");
	if (rpc_writer_init(&w, p[1]))
		tap_fatal("writer");
	rt.fd = p[0];
	if (pthread_create(&reader, NULL, check_lines, &rt))
		tap_fatal("thread");
	for (int i = 0; i < 3; i++) {
		s[i] = (struct sender){&w, (char)('a' + i)};
		if (pthread_create(&t[i], NULL, send_lines, &s[i]))
			tap_fatal("thread");
	}
	for (int i = 0; i < 200; i++)
		if (rpc_post(&w, "pppp\n", 5))
			tap_fatal("post");
	for (int i = 0; i < 3; i++)
		(void)pthread_join(t[i], NULL);
	while (rpc_pending(&w))
		rpc_flush(&w);
	(void)close(p[1]);
	(void)pthread_join(reader, NULL);
	ok(rt.got == 500 && !rt.bad, "%s: 500 whole lines from four threads",
	   sock ? "socket" : "pipe");
	rpc_writer_release(&w);
	(void)close(p[0]);
}

static void test_slow_client(void)
{
	struct rpc_writer w;
	long long t0 = io_now_ms();
	char line[10000];
	int p[2], r = 0, n = 0;

	if (pipe2(p, O_CLOEXEC) || rpc_writer_init(&w, p[1]))
		tap_fatal("pipe");
	memset(line, 'x', sizeof(line));
	while (!r && n < 2000) {
		r = rpc_post(&w, line, sizeof(line));
		n++;
	}
	ok(r == -ENOBUFS && n > 700, "posting to a client that does not read ends at the limit");
	ok(io_now_ms() - t0 < 5000, "and never waits");
	(void)close(p[0]);
	eq_int(rpc_write(&w, "x\n", 2), -EPIPE, "a client that has gone");
	eq_int(rpc_post(&w, "x\n", 2), -EPIPE, "and stays gone");
	rpc_writer_release(&w);
	(void)close(p[1]);
}

int main(void)
{
	(void)signal(SIGPIPE, SIG_IGN);
	test_lines();
	test_long(100000, 100000);
	test_long(RPC_LINE_MAX, RPC_LINE_MAX);
	test_long(RPC_LINE_MAX + 1, -EMSGSIZE);
	test_long(3 * (size_t)RPC_LINE_MAX, -EMSGSIZE);
	test_writers(false);
	test_writers(true);
	test_slow_client();
	return tap_done();
}
