/*
 * How many messages each operation costs: none where that is promised, and never more than a file system costs that
 * does nothing but answer (tests/bench/ceiling.h). The table is printed beside the checks.
 */
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/fuse/proto.h"
#include "tests/bench/ceiling.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"
#include "tests/unit/fuse/message_steps.h"
#include "tests/unit/fuse/real_env.h"
#include "tests/unit/fuse/rig.h"

#define STEPS_MAX 64

static const char *const op_names[SESSION_OPS] = {
	[FUSE_LOOKUP] = "LOOKUP",     [FUSE_GETATTR] = "GETATTR",
	[FUSE_SETATTR] = "SETATTR",   [FUSE_READLINK] = "READLINK",
	[FUSE_SYMLINK] = "SYMLINK",   [FUSE_MKNOD] = "MKNOD",
	[FUSE_MKDIR] = "MKDIR",       [FUSE_UNLINK] = "UNLINK",
	[FUSE_RMDIR] = "RMDIR",       [FUSE_RENAME] = "RENAME",
	[FUSE_LINK] = "LINK",         [FUSE_OPEN] = "OPEN",
	[FUSE_READ] = "READ",         [FUSE_WRITE] = "WRITE",
	[FUSE_STATFS] = "STATFS",     [FUSE_RELEASE] = "RELEASE",
	[FUSE_FSYNC] = "FSYNC",       [FUSE_SETXATTR] = "SETXATTR",
	[FUSE_GETXATTR] = "GETXATTR", [FUSE_LISTXATTR] = "LISTXATTR",
	[FUSE_FLUSH] = "FLUSH",       [FUSE_OPENDIR] = "OPENDIR",
	[FUSE_READDIR] = "READDIR",   [FUSE_RELEASEDIR] = "RELEASEDIR",
	[FUSE_ACCESS] = "ACCESS",     [FUSE_CREATE] = "CREATE",
	[FUSE_RENAME2] = "RENAME2",   [FUSE_READDIRPLUS] = "READDIRPLUS",
	[PROTO_STATX] = "STATX",
};

/* One file system's, shared with the process that serves it. */
struct counted {
	bool done;
	int failed[STEPS_MAX]; /* what a step returned */
	uint64_t by_op[STEPS_MAX][SESSION_OPS];
};

/* What is counted, whoever serves it. */
struct served {
	void (*count)(void *arg, uint64_t ret[static SESSION_OPS]);
	void (*forget)(void *arg);
	void *arg;
};

static void ours_count(void *arg, uint64_t ret[static SESSION_OPS])
{
	struct session_stats s;

	session_stats(arg, &s);
	memcpy(ret, s.by_op, sizeof(s.by_op));
}

static void ours_forget(void *arg)
{
	struct ovl_notify n = session_notify(arg);

	n.inval_entry(n.arg, FUSE_ROOT_ID, "d", 1);
}

static void ceiling_counts(void *arg, uint64_t ret[static SESSION_OPS])
{
	for (unsigned i = 1; i < SESSION_OPS; i++)
		ret[i] = ceiling_count(arg, i);
}

static void ceiling_forgets(void *arg)
{
	ceiling_forget(arg, FUSE_ROOT_ID, "d");
}

/* The kernel's own housekeeping, which comes when it likes. */
static bool is_work(unsigned op)
{
	return op != FUSE_FORGET && op != FUSE_BATCH_FORGET && op != FUSE_INTERRUPT;
}

/* Until nothing has come for a while: forgets and what a notice brings are not waited for by anybody. */
static void settle(const struct served *s, uint64_t ret[static SESSION_OPS])
{
	uint64_t was[SESSION_OPS];

	s->count(s->arg, ret);
	do {
		memcpy(was, ret, sizeof(was));
		(void)usleep(5000);
		s->count(s->arg, ret);
	} while (memcmp(was, ret, sizeof(was)) != 0);
}

static void do_steps(struct rig *r, const struct served *s, struct counted *c)
{
	uint64_t before[SESSION_OPS] = {0}, after[SESSION_OPS] = {0};

	for (unsigned i = 0; i < message_nsteps; i++) {
		const struct message_step *st = &message_steps[i];

		if (st->kind == MESSAGE_COLD)
			s->forget(s->arg);
		settle(s, before);
		c->failed[i] = rig_do(r, st->fn, st->arg);
		settle(s, after);
		for (unsigned op = 0; op < SESSION_OPS; op++)
			c->by_op[i][op] = is_work(op) ? after[op] - before[op] : 0;
	}
	c->done = true;
}

static void serve_ceiling(struct rig *r, struct counted *c)
{
	struct served s = {ceiling_counts, ceiling_forgets, ceiling_start(r->fuse_fd, 1)};

	if (!s.arg)
		tap_fatal("the ceiling does not start");
	do_steps(r, &s, c);
	rig_close(r);
	ceiling_wait(s.arg);
}

static void serve_ours(struct rig *r, struct counted *c)
{
	struct session_opts so = {.fuse_fd = r->fuse_fd, .ids = {.squash = true}, .spin_us = -1};
	struct served s = {ours_count, ours_forget, NULL};
	struct store_env env;
	struct ovl_opts oo = {0};
	struct session *se;
	char dir[] = "/tmp/rattan-messages-XXXXXX";

	if (!mkdtemp(dir) || real_env_open(dir, &oo.store, &env) < 0 || session_new(&se) < 0)
		tap_fatal("no store");
	oo.layer = env.open;
	oo.notify = session_notify(se);
	if (ovl_open(&oo, &so.ovl) < 0 || session_start(se, &so) < 0)
		tap_fatal("no session");
	s.arg = se;
	do_steps(r, &s, c);
	ovl_notify_end(so.ovl);
	rig_close(r);
	session_stop(se);
	(void)!ovl_close(so.ovl);
	store_close(oo.store);
	tree_remove(dir);
}

static struct counted *shared(int fd)
{
	struct counted *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (c == MAP_FAILED)
		tap_fatal("mmap: %m");
	return c;
}

/* This program again, for a mount's namespace cannot be left, and none is made in a process that has threads, as a sanitizer's
 * after a fork. NULL: this host refuses it, which is said. */
static const struct counted *in_child(const char *who)
{
	char number[16];
	int fd = memfd_create("counted", 0), status;
	char *argv[] = {(char *)(uintptr_t) "test_fuse_messages", (char *)(uintptr_t)who, number,
			NULL};
	struct counted *c;
	pid_t pid;

	if (fd < 0 || ftruncate(fd, sizeof(*c)) < 0)
		tap_fatal("memfd: %m");
	c = shared(fd);
	(void)snprintf(number, sizeof(number), "%d", fd);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status != 0)
		tap_fatal("who serves %s ended with %d", who, status);
	return c->done ? c : NULL;
}

static int child(const char *who, int fd)
{
	struct counted *c = shared(fd);
	struct rig r;

	rig_open(&r, false);
	if (!strcmp(who, "ours"))
		serve_ours(&r, c);
	else
		serve_ceiling(&r, c);
	(void)fflush(stdout);
	_exit(0); /* the ceiling frees nothing */
}

static uint64_t sum(const uint64_t by_op[static SESSION_OPS])
{
	uint64_t n = 0;

	for (unsigned op = 0; op < SESSION_OPS; op++)
		n += by_op[op];
	return n;
}

/* The fewest of each step, and every error. */
static void merge(struct counted *best, const struct counted *c)
{
	for (unsigned i = 0; i < message_nsteps; i++) {
		if (!best->done || sum(c->by_op[i]) < sum(best->by_op[i]))
			memcpy(best->by_op[i], c->by_op[i], sizeof(c->by_op[i]));
		if (!best->failed[i])
			best->failed[i] = c->failed[i];
	}
	best->done = true;
}

static bool within(unsigned i, const struct counted *ours, const struct counted *theirs)
{
	if (message_steps[i].kind == MESSAGE_NONE && sum(ours->by_op[i]))
		return false;
	return message_steps[i].kind == MESSAGE_PREP ||
	       sum(ours->by_op[i]) <= sum(theirs->by_op[i]);
}

/* False: not here. Up to three times: whoever drops the caches of the whole machine meanwhile makes messages that
 * an operation does not cost, and never fewer. */
static bool count_both(struct counted *ours, struct counted *theirs)
{
	bool all = false;

	for (int n = 0; n < 3 && !all; n++) {
		const struct counted *a = in_child("ours"), *b = a ? in_child("the ceiling") : a;

		if (!b)
			return false;
		merge(ours, a);
		merge(theirs, b);
		all = true;
		for (unsigned i = 0; i < message_nsteps; i++)
			all = all && within(i, ours, theirs);
	}
	return true;
}

static void print_ops(const char *who, const uint64_t by_op[static SESSION_OPS])
{
	printf("#   %-8s %7.2f ", who, (double)sum(by_op) / MESSAGE_N);
	for (unsigned op = 0; op < SESSION_OPS; op++)
		if (by_op[op])
			printf(" %s %.2f", op_names[op] ? op_names[op] : "?",
			       (double)by_op[op] / MESSAGE_N);
	printf("\n");
}

static void check(unsigned i, const struct counted *ours, const struct counted *theirs)
{
	const struct message_step *st = &message_steps[i];

	eq_int(ours->failed[i], 0, "%s", st->what);
	eq_int(theirs->failed[i], 0, "%s: the ceiling", st->what);
	if (st->kind == MESSAGE_PREP)
		return;
	print_ops("ours", ours->by_op[i]);
	print_ops("ceiling", theirs->by_op[i]);
	if (st->kind == MESSAGE_NONE)
		eq_int(sum(ours->by_op[i]), 0, "%s: no message", st->what);
	ok(sum(ours->by_op[i]) <= sum(theirs->by_op[i]), "%s: no more than the ceiling", st->what);
}

int main(int argc, char **argv)
{
	static struct counted ours, theirs;

	if (message_nsteps > STEPS_MAX)
		tap_fatal("too many steps");
	if (argc > 2)
		return child(argv[1], (int)strtol(argv[2], NULL, 10));
	if (!count_both(&ours, &theirs))
		return 0;
	for (unsigned i = 0; i < message_nsteps; i++)
		check(i, &ours, &theirs);
	return tap_done();
}
