/* What a keeper holds after its daemon's end, what it does about what it cannot hold, and about a daemon that is out of its mind. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/env/keeper_internal.h"
#include "tests/lib/fds.h"
#include "tests/lib/tap.h"

#define LEASES 300
#define BABBLE 200 /* daemons */

/* A daemon's short life; it tells what went wrong by its exit status, or is killed. */
typedef void daemon_fn(struct keeper_link *k);

struct life {
	struct keeper_link link;
	enum keeper_end end;
	int status;
};

static void live(struct life *l, daemon_fn *fn)
{
	int sv[2], pulse[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0 ||
	    pipe2(pulse, O_CLOEXEC) < 0)
		tap_fatal("no sockets");
	keeper_link_init(&l->link, sv[0], false);
	pid = fork();
	if (pid == 0) {
		struct keeper_link d;

		(void)close(sv[0]);
		(void)close(pulse[0]);
		keeper_link_init(&d, sv[1], false);
		fn(&d);
		_exit(0);
	}
	(void)close(sv[1]);
	(void)close(pulse[1]);
	l->end = keeper_run(&l->link, pulse[0], pid, 0, &l->status);
	/* It may have seen that nothing of the process runs any more before that was its end. */
	(void)waitpid(pid, &l->status, 0);
	(void)close(sv[0]);
	(void)close(pulse[0]);
}

static unsigned count(const struct keeper_link *k, enum keeper_kind kind, unsigned *ret_fds)
{
	unsigned n = 0;

	*ret_fds = 0;
	for (const struct keeper_item *x = k->items; x; x = x->next) {
		if (x->kind != (uint32_t)kind)
			continue;
		n++;
		*ret_fds += x->fd >= 0;
	}
	return n;
}

static void must(int r, int code)
{
	if (r < 0)
		_exit(code);
}

static void keep_mount(struct keeper_link *k)
{
	must(keeper_keep(k, KEEP_JOURNAL, 0, NULL, 0, 0), 2);
	must(keeper_keep(k, KEEP_MOUNT, 0, "/nowhere", 9, -1), 3);
}

static void tell_and_die(struct keeper_link *k)
{
	keep_mount(k);
	for (uint64_t i = 1; i <= LEASES; i++) {
		must(keeper_tell(k, KEEP_LEASE, i, "first", 5, -1), 4);
		must(keeper_tell(k, KEEP_LEASE, i, "a command", 9, 0), 5);
		if (i % 2)
			keeper_drop(k, KEEP_LEASE, i);
	}
	(void)raise(SIGKILL);
}

static void heard(void)
{
	struct life l;
	unsigned fds;

	live(&l, tell_and_die);
	ok(WIFSIGNALED(l.status), "the daemon was killed");
	eq_int(l.end, KEEPER_DIED, "another one can go on");
	eq_int(count(&l.link, KEEP_LEASE, &fds), LEASES / 2,
	       "what it said before its end was heard");
	eq_int(fds, LEASES / 2, "with the processes");
	keeper_release(&l.link);
}

/* No descriptor is left for what comes with a message, and somebody waits to be told. */
static void lose_asked(struct keeper_link *k)
{
	must(keeper_keep(k, KEEP_MOUNT, 0, "/nowhere", 9, -1), 3);
	if (keeper_keep(k, KEEP_BIND, 2, "x", 1, 0) != -EMFILE)
		_exit(5);
	must(keeper_keep(k, KEEP_MOUNT, 0, "/nowhere", 9, -1), 6);
	(void)raise(SIGKILL);
}

/* The journal's descriptor is there; then the keeper has as many as it may. */
static void keep_then(struct keeper_link *k, daemon_fn *fn)
{
	struct rlimit limit;

	/* The limit is the keeper's. The lowest four are in use, and as many it has to wait for. */
	must(keeper_keep(k, KEEP_JOURNAL, 0, NULL, 0, 0), 2);
	if (prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit) < 0)
		_exit(8);
	limit.rlim_cur = 4;
	if (prlimit(getppid(), RLIMIT_NOFILE, &limit, NULL) < 0)
		_exit(9);
	fn(k);
}

static void lose_told(struct keeper_link *k)
{
	must(keeper_keep(k, KEEP_MOUNT, 0, "/nowhere", 9, -1), 3);
	must(keeper_tell(k, KEEP_LEASE, 1, "a command", 9, 0), 4);
	if (keeper_keep(k, KEEP_MOUNT, 0, "/nowhere", 9, -1) != -ENOLINK)
		_exit(6);
	(void)raise(SIGKILL);
}

static void told(struct keeper_link *k)
{
	keep_then(k, lose_told);
}

static void asked(struct keeper_link *k)
{
	keep_then(k, lose_asked);
}

static void lost(void)
{
	struct rlimit was;
	struct life l;

	(void)getrlimit(RLIMIT_NOFILE, &was);
	live(&l, told);
	(void)setrlimit(RLIMIT_NOFILE, &was);
	ok(WIFSIGNALED(l.status), "the daemon was told so (%#x)", (unsigned)l.status);
	eq_int(l.end, KEEPER_LOST, "with a command that is not known nobody goes on");
	keeper_release(&l.link);
	live(&l, asked);
	(void)setrlimit(RLIMIT_NOFILE, &was);
	ok(WIFSIGNALED(l.status), "who waits for an answer gets one (%#x)", (unsigned)l.status);
	eq_int(l.end, KEEPER_DIED, "and another one can go on");
	keeper_release(&l.link);
}

/* ---- out of its mind ---- */

static uint64_t seed;

static uint32_t rnd(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33);
}

/* Any bytes, which begin as a message does; paths lead nowhere. */
static size_t make_message(struct keeper_msg *m)
{
	static const uint32_t ops[] = {
		0,           KEEPER_MOUNT, KEEPER_UMOUNT,   KEEPER_BIND,  KEEPER_UNBIND,
		KEEPER_KEEP, KEEPER_KEEP,  KEEPER_KEEP,     KEEPER_DROP,  7,
		UINT32_MAX,  KEEPER_KEEP,  KEEPER_KEEP + 8, KEEPER_UNBIND};
	static const char nowhere[] = "/nonexistent/rattan/";
	uint8_t *p = (uint8_t *)m;

	for (size_t i = 0; i < sizeof(*m); i++)
		p[i] = (uint8_t)rnd();
	m->op = ops[rnd() % ARRAY_SIZE(ops)];
	m->kind = rnd() % 16;
	m->len = rnd() % 4 ? rnd() % KEEPER_DATA_MAX : rnd();
	m->quiet = rnd() % 2;
	if (m->op != KEEPER_KEEP) {
		memcpy(m->dir, nowhere, sizeof(nowhere) - 1);
		memcpy(m->path, nowhere, sizeof(nowhere) - 1);
		memcpy(m->host, nowhere, sizeof(nowhere) - 1);
	}
	switch (rnd() % 8) {
	case 0:
		return rnd() % sizeof(*m);
	case 1:
		return sizeof(*m);
	case 2:
		return KEEPER_MSG_HEAD - 1;
	default:
		break;
	}
	if (m->op != KEEPER_KEEP && m->op != KEEPER_DROP)
		return sizeof(*m);
	m->len %= KEEPER_DATA_MAX;
	return KEEPER_MSG_HEAD + m->len;
}

static void babble(struct keeper_link *k)
{
	static struct keeper_msg m;
	char answer[sizeof(struct keeper_reply)];

	for (int i = 0; i < 30; i++) {
		int fds[IO_MAX_FDS] = {0};
		size_t n = make_message(&m);

		if (io_send_fds(k->sock, &m, n ? n : 1, fds, rnd() % (IO_MAX_FDS + 1)) < 0)
			break;
		while (recv(k->sock, answer, sizeof(answer), MSG_DONTWAIT) > 0)
			continue;
	}
	if (rnd() % 2)
		(void)raise(SIGKILL);
}

static void babbled(void)
{
	int before = count_fds(), ended = 0;

	for (uint64_t i = 1; i <= BABBLE; i++) {
		struct life l;

		seed = i;
		live(&l, babble);
		ended += l.end >= KEEPER_ENDED && l.end <= KEEPER_LOST;
		keeper_release(&l.link);
	}
	eq_int(ended, BABBLE, "whatever its daemon says, a keeper goes on to its end");
	eq_int(count_fds(), before, "and keeps none of the descriptors");
}

/* More than the next one could be told of. */
static void flood(struct keeper_link *k)
{
	keep_mount(k);
	for (uint64_t i = 1; i <= KEEPER_ITEMS_MAX + 100; i++)
		must(keeper_tell(k, KEEP_LEASE, i, "a command", 9, -1), 4);
	(void)raise(SIGKILL);
}

static void flooded(void)
{
	struct keeper_state st = {0};
	struct keeper_link again;
	struct life l;
	unsigned fds;
	int fd = -1;

	live(&l, flood);
	ok(count(&l.link, KEEP_LEASE, &fds) < KEEPER_ITEMS_MAX, "there is an end to what is kept");
	eq_int(l.end, KEEPER_LOST, "beyond which nobody goes on");
	eq_int(keeper_save(&l.link, &st, &fd), 0, "all that is kept is handed over");
	eq_int(keeper_load(fd, &again, &st), 0, "and taken");
	for (struct keeper_item *x = again.items; x; x = x->next)
		x->fd = -1; /* the same process has them twice */
	keeper_release(&again);
	keeper_release(&l.link);
}

int main(void)
{
	/* Its messages are for its log. */
	(void)!freopen("/dev/null", "w", stderr);
	heard();
	lost();
	babbled();
	flooded();
	return tap_done();
}
