/* rattan-fs: options in, one of the daemon's programs out. */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "fs/env/daemon.h"
#include "store/store.h"

enum {
	OPT_DATA = 256,
	OPT_RUN,
	OPT_ENV,
	OPT_BASE,
	OPT_OVERLAY,
	OPT_WRITABLE,
	OPT_DISK_MAX,
	OPT_CREATE,
	OPT_READY,
	OPT_TAKEOVER,
	OPT_REV,
	OPT_NAME,
	OPT_DIR,
	OPT_IDS,
	OPT_FOREGROUND,
	OPT_QUICK,
	OPT_REPAIR,
	OPT_DRY_RUN,
	OPT_RW,
	OPT_SHRINK,
	OPT_COMPRESS,
	OPT_REMOVED,
	OPT_KEEP_STATES,
	OPT_KEEP_DAYS,
	OPT_KIND,
	OPT_SRC,
	OPT_DEST,
	OPT_TAG,
	OPT_PACK,
	OPT_REPLACE,
	OPT_REREAD,
	OPT_SQUASH,
	OPT_STRIP,
	OPT_WITH_HOST,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option options[] = {
	{"data-dir", required_argument, NULL, OPT_DATA},
	{"run-dir", required_argument, NULL, OPT_RUN},
	{"env", required_argument, NULL, OPT_ENV},
	{"base", required_argument, NULL, OPT_BASE},
	{"overlay", required_argument, NULL, OPT_OVERLAY},
	{"writable", required_argument, NULL, OPT_WRITABLE},
	{"disk-max", required_argument, NULL, OPT_DISK_MAX},
	{"create", no_argument, NULL, OPT_CREATE},
	{"ready-fd", required_argument, NULL, OPT_READY},
	{"takeover", required_argument, NULL, OPT_TAKEOVER},
	{"rev", required_argument, NULL, OPT_REV},
	{"name", required_argument, NULL, OPT_NAME},
	{"dir", required_argument, NULL, OPT_DIR},
	{"ids", required_argument, NULL, OPT_IDS},
	{"foreground", no_argument, NULL, OPT_FOREGROUND},
	{"quick", no_argument, NULL, OPT_QUICK},
	{"repair", no_argument, NULL, OPT_REPAIR},
	{"dry-run", no_argument, NULL, OPT_DRY_RUN},
	{"rw", no_argument, NULL, OPT_RW},
	{"shrink", no_argument, NULL, OPT_SHRINK},
	{"compress", no_argument, NULL, OPT_COMPRESS},
	{"removed", no_argument, NULL, OPT_REMOVED},
	{"keep-states", required_argument, NULL, OPT_KEEP_STATES},
	{"keep-days", required_argument, NULL, OPT_KEEP_DAYS},
	{"kind", required_argument, NULL, OPT_KIND},
	{"src", required_argument, NULL, OPT_SRC},
	{"dest", required_argument, NULL, OPT_DEST},
	{"tag", required_argument, NULL, OPT_TAG},
	{"pack", required_argument, NULL, OPT_PACK},
	{"replace", no_argument, NULL, OPT_REPLACE},
	{"reread", no_argument, NULL, OPT_REREAD},
	{"strip", required_argument, NULL, OPT_STRIP},
	{"squash", no_argument, NULL, OPT_SQUASH},
	{"with-host", no_argument, NULL, OPT_WITH_HOST},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static const char usage[] =
	"usage: rattan-fs COMMAND [OPTIONS]\n"
	"The file system behind rattan; started by it when needed.\n"
	"\n"
	"  env    --data-dir D --run-dir R --env NAME [--base B] [--overlay HOST=MOUNT]...\n"
	"         [--writable PATH]... [--disk-max BYTES] [--create] [--foreground]\n"
	"         serve an environment in a namespace of its own, with a control socket in R\n"
	"  serve  --data-dir D --env NAME --dir DIR [--create] [--base B] [--overlay HOST=MOUNT]...\n"
	"         [--writable PATH]... [--ids stored|squash] [--run-dir R] [--foreground]\n"
	"         mount an environment's working tree on the host\n"
	"  mount  --data-dir D --env NAME --rev REV --dir DIR [--rw] [--ids stored|squash] [--foreground]\n"
	"         mount a commit on the host, read-only; or what is written goes away with the mount\n"
	"  admin list   --data-dir D --ready-fd N\n"
	"  admin fork   --data-dir D --env FROM --rev REV --name NEW --ready-fd N\n"
	"  admin remove --data-dir D --env NAME --ready-fd N\n"
	"  admin fsck   --data-dir D [--quick] [--repair] --ready-fd N\n"
	"  admin gc     --data-dir D [--dry-run] [--compress] [--shrink] [--removed] [--keep-states N]\n"
	"         [--keep-days N] --ready-fd N\n"
	"  admin import --data-dir D --kind dir|tar|oci --src PATH --name BASE [--tag T] [--strip N] [--replace] [--reread]\n"
	"         [--disk-max BYTES] --ready-fd N\n"
	"  admin export --data-dir D --kind dir|tar|oci --env NAME --rev REV --dest PATH [--tag T]\n"
	"         [--pack gzip|zstd|none] [--squash] [--with-host] --ready-fd N\n"
	"  admin have   --data-dir D --src LAYOUT --ready-fd N\n"
	"  admin bases  --data-dir D --ready-fd N\n"
	"  admin history --data-dir D --name BASE|--env NAME --ready-fd N\n"
	"  admin base-remove --data-dir D --name BASE --ready-fd N\n"
	"\n"
	"--ready-fd N: tell there, in one message of the control protocol, how it went.\n"
	"--writable none: nothing is writable; --writable /: everything (serve's default).\n"
	"--disk-max: that may become new to the store; default: three quarters of what is free.\n"
	"--ids: owners as stored (root's default) or all shown as the caller's (everybody else's).\n"
	"RATTAN_IDLE_S: seconds after which an unused environment ends (600; 0: never).\n"
	"RATTAN_GC_S: seconds between looks for garbage while little happens (60; 0: never).\n"
	"RATTAN_KEEP_STATES, RATTAN_KEEP_DAYS: what a collection leaves for undo: so many of an environment's\n"
	"         states that are so young (100, 30), and the newest one.\n"
	"RATTAN_NO_RESEND: set: a mount ends with its daemon, as on Linux before 6.9 (to try it out).\n"
	"RATTAN_LOG: error, warn (default), info or debug.\n";

/* Both may hold '=': MOUNT begins with a slash, and the last "=/" parts them, as for the client. */
static int add_overlay(struct daemon_opts *o, char *arg)
{
	char *eq = NULL;
	size_t n = 0;

	for (char *q = arg; (q = strstr(q, "=/")); q++)
		eq = q;
	while (o->overlays[n])
		n++;
	if (!eq || eq == arg || n + 2 > DAEMON_LIST_MAX)
		return -EINVAL;
	*eq = 0;
	o->overlays[n] = arg;
	o->overlays[n + 1] = eq + 1;
	return 0;
}

static int add_writable(struct daemon_opts *o, char *arg)
{
	size_t n = 0;

	o->has_writable = true;
	if (!strcmp(arg, "none"))
		return 0;
	while (o->writable[n])
		n++;
	if (n >= DAEMON_LIST_MAX)
		return -EINVAL;
	o->writable[n] = arg;
	return 0;
}

static int parse_bytes(const char *s, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(s, &end, 10);
	return errno || *end || end == s || *s == '-' ? -EINVAL : 0;
}

static int parse_fd(const char *s, int *ret)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(s, &end, 10);
	if (errno || *end || end == s || v < 1 || v > 1 << 20 || fcntl((int)v, F_GETFD) < 0)
		return -EINVAL;
	/* It is for our starter, not for what we start (fusermount3). */
	(void)fcntl((int)v, F_SETFD, FD_CLOEXEC);
	*ret = (int)v;
	return 0;
}

static int parse_ids(const char *s, bool *ret_stored)
{
	*ret_stored = !strcmp(s, "stored");
	return *ret_stored || !strcmp(s, "squash") ? 0 : -EINVAL;
}

static int parse_count(const char *s, unsigned *ret)
{
	char *end;
	unsigned long v = strtoul(s, &end, 10);

	if (end == s || *end || *s == '-' || v == 0 || v > 1000000)
		return -EINVAL;
	*ret = (unsigned)v;
	return 0;
}

static int parse_one(struct daemon_opts *o, int c)
{
	switch (c) {
	case OPT_DATA:
		o->data_dir = optarg;
		return 0;
	case OPT_RUN:
		o->run_dir = optarg;
		return 0;
	case OPT_ENV:
		o->env = optarg;
		return 0;
	case OPT_BASE:
		o->base = optarg;
		return 0;
	case OPT_OVERLAY:
		return add_overlay(o, optarg);
	case OPT_WRITABLE:
		return add_writable(o, optarg);
	case OPT_DISK_MAX:
		return parse_bytes(optarg, &o->disk_max);
	case OPT_CREATE:
		o->create = true;
		return 0;
	case OPT_READY:
		return parse_fd(optarg, &o->ready_fd);
	case OPT_TAKEOVER:
		return parse_fd(optarg, &o->takeover_fd);
	case OPT_REV:
		o->rev = optarg;
		return 0;
	case OPT_NAME:
		o->name = optarg;
		return 0;
	case OPT_DIR:
		o->dir = optarg;
		return 0;
	case OPT_IDS:
		return parse_ids(optarg, &o->stored_ids);
	case OPT_FOREGROUND:
		o->foreground = true;
		return 0;
	case OPT_QUICK:
		o->quick = true;
		return 0;
	case OPT_REPAIR:
		o->repair = true;
		return 0;
	case OPT_DRY_RUN:
		o->dry_run = true;
		return 0;
	case OPT_RW:
		o->rw = true;
		return 0;
	case OPT_SHRINK:
		o->shrink = true;
		return 0;
	case OPT_COMPRESS:
		o->compress = true;
		return 0;
	case OPT_REMOVED:
		o->removed = true;
		return 0;
	case OPT_KEEP_STATES:
		return parse_count(optarg, &o->keep_states);
	case OPT_KEEP_DAYS:
		return parse_count(optarg, &o->keep_days);
	case OPT_KIND:
		o->kind = optarg;
		return 0;
	case OPT_SRC:
		o->src = optarg;
		return 0;
	case OPT_DEST:
		o->dest = optarg;
		return 0;
	case OPT_TAG:
		o->tag = optarg;
		return 0;
	case OPT_PACK:
		o->pack = optarg;
		return 0;
	case OPT_REPLACE:
		o->replace = true;
		return 0;
	case OPT_REREAD:
		o->reread = true;
		return 0;
	case OPT_STRIP:
		return parse_count(optarg, &o->strip);
	case OPT_SQUASH:
		o->squash = true;
		return 0;
	case OPT_WITH_HOST:
		o->with_host = true;
		return 0;
	default:
		return -EINVAL;
	}
}

enum {
	NEEDS_RUN = 1 << 0,
	NEEDS_ENV = 1 << 1,
	NEEDS_DIR = 1 << 2,
	NEEDS_REV = 1 << 3,
	NEEDS_NAME = 1 << 4,
	NEEDS_KIND = 1 << 5,
	NEEDS_SRC = 1 << 6,
	NEEDS_DEST = 1 << 7,
};

static const struct {
	const char *name, *sub;
	int (*run)(const struct daemon_opts *o);
	unsigned needs;
} commands[] = {
	{"env", NULL, daemon_env, NEEDS_RUN | NEEDS_ENV},
	{"serve", NULL, daemon_serve, NEEDS_ENV | NEEDS_DIR},
	{"mount", NULL, daemon_mount, NEEDS_ENV | NEEDS_DIR | NEEDS_REV},
	{"admin", "list", daemon_admin_list, 0},
	{"admin", "fork", daemon_admin_fork, NEEDS_ENV | NEEDS_REV | NEEDS_NAME},
	{"admin", "remove", daemon_admin_remove, NEEDS_ENV},
	{"admin", "fsck", daemon_admin_fsck, 0},
	{"admin", "gc", daemon_admin_gc, 0},
	{"admin", "stats", daemon_admin_stats, 0},
	{"admin", "import", daemon_admin_import, NEEDS_KIND | NEEDS_SRC | NEEDS_NAME},
	{"admin", "export", daemon_admin_export, NEEDS_KIND | NEEDS_REV | NEEDS_DEST},
	{"admin", "have", daemon_admin_have, NEEDS_SRC},
	{"admin", "bases", daemon_admin_bases, 0},
	{"admin", "history", daemon_admin_history, 0},
	{"admin", "base-remove", daemon_admin_base_remove, NEEDS_NAME},
};

static int run_command(const struct daemon_opts *o, int nargs, char **args)
{
	unsigned given = (o->run_dir ? NEEDS_RUN : 0) | (o->env ? NEEDS_ENV : 0) |
			 (o->dir ? NEEDS_DIR : 0) | (o->rev ? NEEDS_REV : 0) |
			 (o->name ? NEEDS_NAME : 0) | (o->kind ? NEEDS_KIND : 0) |
			 (o->src ? NEEDS_SRC : 0) | (o->dest ? NEEDS_DEST : 0);

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		int want = commands[i].sub ? 2 : 1;

		if (nargs != want || strcmp(args[0], commands[i].name) != 0 ||
		    (want == 2 && strcmp(args[1], commands[i].sub) != 0))
			continue;
		if (!o->data_dir || (commands[i].needs & ~given))
			return -EINVAL;
		return commands[i].run(o) < 0 ? 1 : 0;
	}
	return -EINVAL;
}

int main(int argc, char **argv)
{
	/* Root may show owners as they are; a user's mount shows everything as his. */
	struct daemon_opts o = {.ready_fd = -1, .takeover_fd = -1, .stored_ids = geteuid() == 0};
	const char *level = getenv("RATTAN_LOG");
	enum log_level l = LOG_WARN;
	int c, r;

	if (io_std_open() < 0)
		return 1;
	/* One heap: with one a thread, each grows by a system call every page or two, in the middle of
	 * serving requests. */
	(void)mallopt(M_ARENA_MAX, 1);
	/* The memory of one of LMDB's transactions serves the next; content_env_idle gives it back. */
	(void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
	(void)mallopt(M_TRIM_THRESHOLD, 16 << 20);
	if (level)
		(void)!log_level_parse(level, &l);
	log_setup("rattan-fs", l);
	store_contain_damage();
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == OPT_HELP || c == OPT_VERSION) {
			(void)fputs(c == OPT_HELP ? usage : "rattan-fs " RATTAN_VERSION "\n",
				    stdout);
			return 0;
		}
		r = parse_one(&o, c);
		if (r < 0) {
			(void)fputs(usage, stderr);
			return 2;
		}
	}
	r = run_command(&o, argc - optind, argv + optind);
	if (r < 0)
		(void)fputs(usage, stderr);
	return r < 0 ? 2 : r;
}
