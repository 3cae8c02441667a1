/* Who is rough with a daemon: messages that are none, descriptors that run out, a move under what is in use, one that
 * takes long. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_io.h"
#include "fs/ctl/ctl_msg.h"
#include "tests/lib/process.h"
#include "tests/lib/tap.h"
#include "tests/unit/ctl/rig.h"

/* A connection that sends @n bytes and waits; true when the daemon hung up. */
static bool hung_up(const void *bytes, size_t n, bool wait)
{
	cleanup_fd int fd = -1;
	char path[4096], in[4096];
	struct pollfd pf = {.events = POLLIN};
	bool hung = false;

	sock_of_default(path);
	if (ctl_sock_connect(path, &fd) == 0 && send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n) {
		pf.fd = fd;
		while (!hung && poll(&pf, 1, wait ? 2000 : 50) > 0)
			hung = recv(fd, in, sizeof(in), 0) <= 0;
	}
	return hung;
}

static bool hostile(const struct place *p, const void *bytes, size_t n, bool wait)
{
	struct ctl *c = open_env(p, NULL);
	bool hung = hung_up(bytes, n, wait);

	ctl_close(c);
	return hung;
}

static void hostile_clients(const struct place *p)
{
	static const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff}, none[] = {0, 0, 0, 0},
			     junk[] = {0, 0, 0, 3, 0xc1, 0xc1, 0xc1}, half[] = {0, 0, 0, 9, 1};
	struct ctl *c = open_env(p, NULL);
	struct ctl_status st;

	ok(hostile(p, huge, sizeof(huge), true), "a length beyond the limit: hung up");
	ok(hostile(p, none, sizeof(none), true), "no length: hung up");
	ok(hostile(p, junk, sizeof(junk), true), "no msgpack: hung up");
	ok(!hostile(p, half, sizeof(half), false), "half a message: waits");
	eq_int(ctl_status(c, NULL, &st), 0, "and others are served");
	ctl_status_release(&st);
	ctl_close(c);
}

static int fds_of(pid_t pid)
{
	cleanup_dir DIR *d = NULL;
	char path[64];
	int n = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && readdir(d))
		n++;
	return n;
}

/* Until nobody but @c is served any more: what others brought is gone with them. */
static bool settles(pid_t pid, int fds)
{
	for (int i = 0; i < 500 && fds_of(pid) > fds; i++)
		(void)usleep(10000);
	return fds_of(pid) <= fds;
}

/* Descriptors that nobody asked for: with the head of a message in four pieces, with its body, with one that is refused, and
 * with one whose sender goes. */
static void descriptors_unasked(const struct place *p)
{
	static const uint8_t half[] = {0, 0, 0, 9, 1}, junk[] = {0, 0, 0, 3, 0xc1, 0xc1, 0xc1};
	struct ctl *c = open_env(p, NULL);
	pid_t daemon = daemon_of(c);
	int before = fds_of(daemon), some[IO_MAX_FDS], n = 0;
	char path[4096];

	sock_of_default(path);
	for (size_t i = 0; i < IO_MAX_FDS; i++)
		some[i] = 0;
	/* So many are on their way at most, of a user who may have 1,024 open: what is too much the kernel refuses him for the
	 * next message, whosever it is. */
	for (int i = 0; i < 12; i++) {
		cleanup_fd int fd = -1;

		if (ctl_sock_connect(path, &fd) < 0)
			tap_fatal("connect");
		for (size_t k = 0; k < sizeof(half); k++)
			n += io_send_fds(fd, half + k, 1, some, IO_MAX_FDS) == 0;
		(void)!io_send_fds(fd, junk, sizeof(junk), some, IO_MAX_FDS);
	}
	ok(n > 30, "descriptors with every byte of half a message");
	ok(settles(daemon, before), "are closed: %d, were %d", fds_of(daemon), before);
	eq_int(ctl_lease(c, "x", 0, NULL), 0,
	       "what is no process is taken for one that does not end");
	eq_int(ctl_unlease(c), 0, "until its lease does");
	ok(settles(daemon, before), "and is closed as well");
	ctl_close(c);
}

/* Everybody who may connect does, and says nothing. */
static void too_many(const struct place *p)
{
	struct ctl *c = open_env(p, NULL), *late = NULL;
	const struct ctl_env_opts o = {.data_dir = p->data};
	int before = fds_of(daemon_of(c)), some[80], n = 0, r;
	struct diag d = {0};
	char path[4096];

	sock_of_default(path);
	while (n < 80 && ctl_sock_connect(path, &some[n]) == 0)
		n++;
	eq_int(n, 80, "more connect than are served");
	r = ctl_open(&o, &d, &late);
	ok(r < 0 && d.text[0], "who comes late is told: %s", d.text);
	ok(daemon_of(c) > 0, "who was there is served");
	while (n)
		(void)close(some[--n]);
	ok(settles(daemon_of(c), before), "all of them are let go");
	r = ctl_open(&o, &d, &late);
	eq_int(r, 0, "and the next one is served: %s", d.text);
	if (r == 0)
		ctl_close(late);
	ctl_close(c);
}

/* Asks for more than the socket holds, again and again, and reads nothing: others are served, and the end does not wait. */
static void never_reads(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	cleanup_buf struct buf msg = {.max = CTL_FRAME_MAX};
	struct ctl_req rq = {.op = CTL_OP_STATUS};
	struct diag d = {0};
	cleanup_fd int fd = -1;
	char path[4096];
	long long start;

	sock_of_default(path);
	if (ctl_req_encode(&rq, &msg) < 0 || ctl_sock_connect(path, &fd) < 0 ||
	    fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		tap_fatal("connect");
	/* Until its own requests do not fit any more, since the daemon waits in an answer. */
	while (ctl_frame_send(fd, &msg, NULL, 0) == 0)
		continue;
	ok(daemon_of(c) > 0, "one never reads, and others are served");
	start = io_now_ms();
	eq_int(ctl_shutdown(c, true, &d), 0, "nor does the end wait for it: %s", d.text);
	ok(io_now_ms() - start < 30000, "in %lld ms", io_now_ms() - start);
	ctl_close(c);
}

/* A message of another version is answered by whoever serves the connection, without the environment. */
static bool answered(int fd)
{
	static const char msg[] = "\0\0\0\x13\x84\xa1v\x63\xa2id\x01\xa2op\xa1x\xa4"
				  "args\x80";
	struct pollfd pf = {.fd = fd, .events = POLLIN};
	char in[4096];

	return send(fd, msg, sizeof(msg) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(msg) - 1 &&
	       poll(&pf, 1, 2000) > 0 && recv(fd, in, sizeof(in), 0) > 4;
}

static bool newcomer_answered(void)
{
	cleanup_fd int fd = -1;
	char path[4096];

	sock_of_default(path);
	return ctl_sock_connect(path, &fd) == 0 && answered(fd);
}

/* Processor time of another process, in ms: proc_pid_stat(5), the fields 14 and 15. */
static long cpu_ms(pid_t pid)
{
	cleanup_buf struct buf b = {0};
	unsigned long user = 0, sys = 0;
	const char *at;
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (io_read_file(AT_FDCWD, path, 4096, &b) < 0 || !(at = strrchr((char *)b.data, ')')) ||
	    sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %lu %lu", &user, &sys) !=
		    2)
		tap_fatal("no %s", path);
	return (long)(user + sys) * 1000 / sysconf(_SC_CLK_TCK);
}

static struct rlimit descriptors(pid_t pid, const struct rlimit *to)
{
	struct rlimit was;

	if (prlimit(pid, RLIMIT_NOFILE, to, &was) < 0)
		tap_fatal("prlimit: %m");
	return was;
}

static rlim_t lowest_free(pid_t pid)
{
	char path[64];
	rlim_t n = 0;

	do
		(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)n++);
	while (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	return n - 1;
}

/* A connection for which there is no descriptor waits, and the daemon with it: it does not spin. */
static void no_descriptors(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	pid_t daemon = daemon_of(c);
	struct rlimit was = descriptors(daemon, NULL), none = was;
	cleanup_fd int fd = -1;
	int some[32], n = 0;
	char path[4096];
	long before;

	sock_of_default(path);
	/* poll(2) wants a limit above the number that it waits for. */
	while (n < 32 && lowest_free(daemon) < 32)
		if (ctl_sock_connect(path, &some[n]) < 0 || !answered(some[n++]))
			tap_fatal("cannot connect");
	none.rlim_cur = lowest_free(daemon);
	(void)descriptors(daemon, &none);
	before = cpu_ms(daemon);
	eq_int(ctl_sock_connect(path, &fd), 0, "one connects for whom there is no descriptor");
	(void)usleep(1000000);
	ok(cpu_ms(daemon) - before < 100, "nothing spins: %ld ms of a second",
	   cpu_ms(daemon) - before);
	eq_int(daemon_of(c), daemon, "who was there is served");
	(void)descriptors(daemon, &was);
	ok(answered(fd), "and who waited, when there are some again");
	while (n)
		(void)close(some[--n]);
	ctl_close(c);
}

/* A move under one who holds no lease, but a file, a mapping and half a listing of the mount: all of it ends with
 * an error, at once, and what it wrote is in the state that was kept. */
static void left_behind(const struct place *p)
{
	struct ctl *c = open_env(p, NULL), *other = open_env(p, NULL);
	struct ctl_attach a;
	struct ctl_moved mv;
	struct diag d = {0};
	char name[64], byte = 0, *m;
	DIR *dir;
	int fd, n = 0;

	eq_int(ctl_attach(c, &d, &a), 0, "attach: %s", d.text);
	if (mkdirat(a.root_fd, "workspace/half", 0755) < 0)
		tap_fatal("mkdir");
	for (int i = 0; i < 3000; i++) {
		(void)snprintf(name, sizeof(name), "workspace/half/some-longer-name-%d", i);
		fd = openat(a.root_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || close(fd) < 0)
			tap_fatal("create");
	}
	fd = openat(a.root_fd, "workspace/open", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, 8192) < 0 || pwrite(fd, "w", 1, 4096) != 1)
		tap_fatal("write");
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		tap_fatal("mmap");
	m[0] = 'm';
	dir = fdopendir(openat(a.root_fd, "workspace/half", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!dir || !readdir(dir) || !readdir(dir))
		tap_fatal("readdir");
	eq_int(ctl_rollback(other, "base", false, &d, &mv), 0, "a move under it: %s", d.text);
	alarm(60); /* nothing of this waits */
	errno = 0;
	while (readdir(dir))
		n++;
	ok(n < 3000 && errno, "the listing ends early, with an error (%d, %s)", n, err_text(errno));
	ok(pwrite(fd, "x", 1, 0) < 0, "a write fails: %s", err_text(errno));
	ok(pread(fd, &byte, 1, 0) < 0 || byte == 'm', "a read fails, or is of what was there");
	ok(openat(a.root_fd, "workspace/new", O_CREAT | O_RDWR | O_CLOEXEC, 0644) < 0,
	   "nothing is made there: %s", err_text(errno));
	eq_int(munmap(m, 4096), 0, "the mapping goes");
	(void)closedir(dir);
	(void)close(fd);
	ctl_attach_release(&a);
	alarm(0);
	eq_int(get_file(c, "workspace/open", name), -ENOENT, "the new mount has the base");
	eq_int(ctl_undo(other, false, &d, &mv), 0, "undo: %s", d.text);
	eq_int(get_file(c, "workspace/open", name), 0, "what was written is there again");
	ok(name[0] == 'm', "what was mapped, too");
	eq_int(ctl_reset(other, false, &d, &mv), 0, "reset: %s", d.text);
	ctl_close(other);
	ctl_close(c);
}

static void *mover(void *arg)
{
	struct ctl_moved mv;

	return (void *)(intptr_t)ctl_rollback(arg, "base", true, NULL, &mv);
}

/* A move that takes long (its keeper is stopped) holds up neither new connections nor the end. */
static void long_move(const struct place *p)
{
	struct ctl *c = open_env(p, NULL);
	pthread_t t;
	pid_t keeper, daemon;
	char sock[4096];
	void *r = NULL;
	int answers = 0, gone;

	eq_int(put_file(c, "workspace/moved", "x"), 0, "write");
	daemon = daemon_of(c);
	keeper = parent_of(daemon);
	sock_of_default(sock);
	if (kill(keeper, SIGSTOP) < 0 || pthread_create(&t, NULL, mover, c))
		tap_fatal("cannot begin");
	(void)usleep(300000); /* it waits for the keeper now */
	for (int i = 0; i < 3; i++)
		answers += newcomer_answered();
	eq_int(answers, 3, "connections are served while a move goes on");
	eq_int(kill(daemon, SIGTERM), 0, "SIGTERM");
	for (int i = 0; i < 200 && access(sock, F_OK) == 0; i++)
		(void)usleep(10000);
	gone = access(sock, F_OK);
	(void)kill(keeper, SIGCONT);
	ok(gone < 0, "is seen while a move goes on");
	(void)pthread_join(t, &r);
	ctl_close(c);
	for (int i = 0; i < 1000 && kill(daemon, 0) == 0; i++)
		(void)usleep(10000);
	ok(kill(daemon, 0) < 0, "and ends the daemon when the move is done");
}

int main(void)
{
	struct place p;

	place_make(&p);
	hostile_clients(&p);
	descriptors_unasked(&p);
	too_many(&p);
	never_reads(&p);
	no_descriptors(&p);
	left_behind(&p);
	long_move(&p);
	place_remove(&p);
	return tap_done();
}
