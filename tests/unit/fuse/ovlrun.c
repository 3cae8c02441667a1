/*
 * tests/unit/fuse/ovlrun.c - run a command in a mount over a real store, in a namespace.
 *
 *   ovlrun [-civw] [-p WORKERS] [-s SPIN_US] STORE COMMAND...
 *
 * STORE is made when it is not there; its environment "t" is used. The command's cwd is the mount, also
 * in $MNT; its status is ours. -c: commit at the end. -i: ids as stored, through fusermount3 (root).
 * -v: requests by opcode on stderr at the end. -w: write-back cache. The owner of everything is shown as
 * root, and the status is 77 where this host refuses the mount.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "fs/core/ovl.h"
#include "fs/fuse/mount.h"
#include "fs/fuse/session.h"
#include "store/store.h"
#include "tests/unit/fuse/real_env.h"

struct run {
	bool commit, ids, verbose, writeback;
	int workers, spin_us;
	const char *store;
	char **command;
	char dir[64], mnt[80];
	struct store *st;
	struct store_env env;
};

static int fail(const char *what, int r)
{
	(void)fprintf(stderr, "ovlrun: %s: %s\n", what, err_text(r));
	return 125;
}

static int usage(void)
{
	(void)fprintf(stderr, "usage: ovlrun [-civw] [-p WORKERS] [-s SPIN_US] STORE COMMAND...\n");
	return 125;
}

static int parse(int argc, char **argv, struct run *r)
{
	int c;

	r->spin_us = -1;
	while ((c = getopt(argc, argv, "+civwp:s:")) != -1) {
		switch (c) {
		case 'c':
			r->commit = true;
			break;
		case 'i':
			r->ids = true;
			break;
		case 'v':
			r->verbose = true;
			break;
		case 'w':
			r->writeback = true;
			break;
		case 'p':
			r->workers = (int)strtol(optarg, NULL, 10);
			break;
		case 's':
			r->spin_us = (int)strtol(optarg, NULL, 10);
			break;
		default:
			return -EINVAL;
		}
	}
	if (argc - optind < 2)
		return -EINVAL;
	r->store = argv[optind];
	r->command = argv + optind + 1;
	return 0;
}

static int mount_it(struct run *r, int *ret_fd)
{
	struct mount_opts mo = {.dir = r->mnt, .name = "rattan:t", .helper = r->ids};
	struct diag diag = {0};
	int res = 0;

	(void)snprintf(r->dir, sizeof(r->dir), "/tmp/rattan-run-XXXXXX");
	if (!mkdtemp(r->dir))
		return ret_nerrno();
	(void)snprintf(r->mnt, sizeof(r->mnt), "%s/mnt", r->dir);
	if (!r->ids)
		res = mount_enter_ns(r->dir, &diag);
	if (res == 0 && mkdir(r->mnt, 0755) < 0)
		res = ret_nerrno();
	mo.allow_other = r->ids && geteuid() == 0;
	if (res == 0)
		res = mount_fuse(&mo, &diag, ret_fd);
	if (res < 0)
		(void)fprintf(stderr, "ovlrun: %s\n", diag.text);
	return res;
}

static int seal(void *arg, store_layer *ret_open)
{
	struct run *r = arg;
	struct store_commit c = {.kind = STORE_COMMIT};
	int res;

	(void)clock_gettime(CLOCK_REALTIME, &c.time);
	for (size_t i = 0; i < sizeof(c.id); i++)
		((uint8_t *)&c.id)[i] = (uint8_t)(c.time.tv_nsec >> (i % 4 * 8)) ^ (uint8_t)i;
	res = store_env_seal(r->st, &r->env, &c);
	*ret_open = r->env.open;
	store_commit_release(&c);
	return res;
}

static void print_stats(struct session *se)
{
	struct session_stats s;

	session_stats(se, &s);
	(void)fprintf(stderr, "requests %llu:", (unsigned long long)s.requests);
	for (int i = 0; i < SESSION_OPS; i++)
		if (s.by_op[i])
			(void)fprintf(stderr, " %d=%llu", i, (unsigned long long)s.by_op[i]);
	(void)fprintf(stderr, "\n");
}

static int run_command(struct run *r)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (chdir(r->mnt) == 0 && setenv("MNT", r->mnt, 1) == 0)
			(void)execvp(r->command[0], r->command);
		(void)fprintf(stderr, "ovlrun: %s: %m\n", r->command[0]);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return fail("fork", ret_nerrno());
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int serve(struct run *r, int fd)
{
	struct session_opts so = {
		.fuse_fd = fd,
		.ids = {.squash = !r->ids},
		.writeback = r->writeback,
		.workers = r->workers,
		.spin_us = r->spin_us,
	};
	struct ovl_opts oo = {.store = r->st, .layer = r->env.open};
	struct session *se;
	int res = session_new(&se), status;

	if (res < 0)
		return fail("session_new", res);
	oo.notify = session_notify(se);
	res = ovl_open(&oo, &so.ovl);
	if (res < 0)
		return fail("ovl_open", res);
	res = session_start(se, &so);
	if (res < 0)
		return fail("session_start", res);
	status = run_command(r);
	if (r->verbose)
		print_stats(se);
	if (r->commit) {
		res = session_push_dirty(se);
		if (res == 0)
			res = ovl_commit(so.ovl, seal, r);
		if (res < 0)
			status = fail("commit", res);
	}
	(void)!mount_detach(r->mnt, r->ids);
	session_stop(se);
	(void)rmdir(r->mnt);
	if (!r->ids)
		(void)umount2(r->dir, MNT_DETACH);
	(void)rmdir(r->dir);
	res = ovl_close(so.ovl);
	return res < 0 ? fail("ovl_close", res) : status;
}

int main(int argc, char **argv)
{
	struct run r = {0};
	int fd, res, status;

	if (parse(argc, argv, &r) < 0)
		return usage();
	(void)signal(SIGINT, SIG_IGN);
	res = mount_it(&r, &fd);
	if (res < 0) {
		(void)fail("mount", res);
		return 77;
	}
	res = real_env_open(r.store, &r.st, &r.env);
	if (res < 0)
		return fail("store", res);
	status = serve(&r, fd);
	store_close(r.st);
	return status;
}
