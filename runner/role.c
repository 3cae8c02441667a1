#include "runner/role.h"

#include <ctype.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "runner/plan_encode.h"
#include "runner/role_internal.h"
#include "runner/runner_internal.h"

#define WAIT_MS 10000

/* ---- before ---- */

static bool name_ok(const char *s)
{
	size_t n = strlen(s);

	if (!n || n > 64 || s[0] == '.' || s[0] == '-')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			return false;
	return true;
}

static int open_no_links(const char *path, uint64_t flags)
{
	struct open_how how = {.flags = flags | O_CLOEXEC,
			       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	return fd < 0 ? ret_nerrno() : (int)fd;
}

/* K4: a bind needs its source. What is there already must be a directory of ours, and no link to one. */
static int make_dir(const char *path, struct diag *diag)
{
	cleanup_free char *up = strdup(path);
	cleanup_fd int parent = -1, fd = -1;
	char *slash = up ? strrchr(up, '/') : NULL;
	struct stat st;

	if (!slash)
		return up ? -EINVAL : -ENOMEM;
	*slash = 0;
	parent = open_no_links(*up ? up : "/", O_PATH | O_DIRECTORY);
	if (parent < 0)
		return diag_set(diag, -EINVAL, "%s: %s", up, err_text(parent));
	if (mkdirat(parent, slash + 1, 0700) < 0 && errno != EEXIST)
		return diag_set(diag, -EINVAL, "%s: %s", path, err_text(errno));
	fd = openat(parent, slash + 1, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid())
		return diag_set(diag, -EINVAL, "%s is no directory of yours: %s", path,
				fd < 0 ? "something else is there" : "another user's");
	return 0;
}

/* Words for bwrap --args. */
static int add_mount(struct buf *b, const struct role_launch *l, size_t i)
{
	const struct run_mount *m = &l->spec->mounts[i];

	switch (m->kind) {
	case RUN_MOUNT_RO:
	case RUN_MOUNT_RW:
		return buf_printf(b, "%s%c%s/%zu%c%s%c",
				  m->kind == RUN_MOUNT_RO ? "--ro-bind" : "--bind", 0, l->stage, i,
				  0, m->dest, 0);
	case RUN_MOUNT_LINK:
		return buf_printf(b, "--symlink%c%s%c%s%c", 0, m->source, 0, m->dest, 0);
	case RUN_MOUNT_PROC:
		/* And without the names of the user's keys, as for agents. */
		return buf_printf(b,
				  "--proc%c%s%c--ro-bind-try%c/dev/null%c%s/keys%c--ro-bind-try%c"
				  "/dev/null%c%s/key-users%c",
				  0, m->dest, 0, 0, 0, m->dest, 0, 0, 0, m->dest, 0);
	case RUN_MOUNT_DEV:
	default:
		/* Read-only but for shared memory and the pty, which are mounts of their own. */
		return buf_printf(b,
				  "--dev%c%s%c--perms%c1777%c--tmpfs%c%s/shm%c--remount-ro%c%s%c",
				  0, m->dest, 0, 0, 0, 0, m->dest, 0, 0, m->dest, 0);
	}
}

static int make_args(const struct role_launch *l, struct buf *b)
{
	static const char *const head[] = {
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--cap-drop",
		"ALL",
		/* the one descriptor that bwrap holds outside: as long as it
					    * lives, the FIFO has both ends */
		"--json-status-fd", "9"};
	static const char *const tail[] = {"--remount-ro", "/", "--chdir", "/"};
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_SIZE(head); i++)
		r = buf_put(b, head[i], strlen(head[i]) + 1);
	for (size_t i = 0; !r && i < l->spec->n; i++)
		r = add_mount(b, l, i);
	for (size_t i = 0; !r && i < ARRAY_SIZE(tail); i++)
		r = buf_put(b, tail[i], strlen(tail[i]) + 1);
	return r;
}

static int set_memfds(struct role_launch *l, struct diag *diag)
{
	cleanup_buf struct buf plan = {0}, args = {0};
	struct run_spec spec;
	int r;

	run_spec_init(&spec);
	spec.argv = l->spec->argv;
	spec.env = l->spec->env;
	spec.cwd = l->spec->cwd;
	r = plan_encode_role(&spec, diag, &plan);
	if (r == 0)
		r = make_args(l, &args);
	if (r == 0)
		r = l->fd[STAGE3_FD_PLAN] = plan_memfd("plan", &plan);
	if (r >= 0)
		r = l->fd[STAGE3_FD_ARGS] = plan_memfd("args", &args);
	if (r >= 0)
		r = l->fd[STAGE3_FD_SELF] = run_open_stage3(l->spec->stage3, diag);
	return r < 0 ? r : 0;
}

static int set_streams(struct role_launch *l, struct diag *diag)
{
	int sv[2], p[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return ret_nerrno();
	l->status = sv[0];
	l->fd[STAGE3_FD_STATUS] = sv[1];
	if (pipe2(p, O_CLOEXEC) < 0)
		return ret_nerrno();
	l->err = p[0];
	l->fd[STDERR_FILENO] = p[1];
	for (int i = 0; i < 3; i++) {
		int *to = &l->fd[i == 2 ? STAGE3_FD_STDERR : i];

		r = run_check_stream(i, diag);
		if (r < 0)
			return r;
		*to = fcntl(i, F_DUPFD_CLOEXEC, 3);
		if (*to < 0)
			return ret_nerrno();
	}
	return 0;
}

static void launch_release(struct role_launch *l)
{
	for (int i = 0; i < ROLE_FD_COUNT; i++)
		if (l->fd[i] >= 0)
			(void)close(l->fd[i]);
	if (l->err >= 0)
		(void)close(l->err);
	if (l->status >= 0)
		(void)close(l->status);
	if (l->lock >= 0)
		(void)close(l->lock);
}

static int prepare(const struct role_spec *s, struct role_launch *l, struct diag *diag)
{
	struct role_record rec = {-1, -1, -1};
	int n, r = name_ok(s->name) ? 0
				    : diag_set(diag, -EINVAL,
					       "the name of a session is 1 to 64 letters, digits, "
					       "'.', '_' or '-'");

	for (const char *const *d = s->make; r == 0 && d && *d; d++)
		r = make_dir(*d, diag);
	if (r == 0)
		r = io_mkdir_p(s->dir, 0700);
	if (r == 0)
		r = role_record_make(s->dir, s->name, &rec);
	l->lock = steal_fd(&rec.lock_fd);
	l->fd[STAGE3_FD_LIFE] = steal_fd(&rec.read_fd);
	l->fd[STAGE3_FD_LIFE_HELD] = steal_fd(&rec.both_fd);
	if (r == -EBUSY)
		return diag_set(diag, r, "a session '%s' runs already", s->name);
	n = snprintf(l->stage, sizeof(l->stage), "%s/%s.stage", s->dir, s->name);
	if (r == 0 && (n < 0 || (size_t)n >= sizeof(l->stage)))
		r = -ENAMETOOLONG;
	if (r == 0)
		r = io_mkdir_p(l->stage, 0700);
	if (r == 0)
		r = set_memfds(l, diag);
	return r < 0 ? r : set_streams(l, diag);
}

/* ---- until the command runs ---- */

struct starting {
	struct buf text; /* what the child, or bwrap, says */
	struct stage3_msg last;
	bool ready, failed, silent; /* silent: the other end is closed */
};

static void read_text(struct starting *st, int fd)
{
	char block[1024];
	ssize_t n = read(fd, block, sizeof(block));

	if (n > 0 && st->text.len < 8192)
		(void)!buf_put(&st->text, block, (size_t)n);
}

static void read_status(struct starting *st, int fd)
{
	struct stage3_msg m;
	ssize_t n = recv(fd, &m, sizeof(m), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		st->silent = true;
	if (n != (ssize_t)sizeof(m))
		return;
	st->last = m;
	st->ready |= m.kind == STAGE3_MSG_READY;
	st->failed |= m.kind == STAGE3_MSG_FAILED;
}

/* True: it answered in time. */
static bool wait_ready(const struct role_launch *l, long long deadline, struct starting *st)
{
	while (!st->ready && !st->failed && !st->silent) {
		struct pollfd p[2] = {{.fd = l->status, .events = POLLIN},
				      {.fd = l->err, .events = POLLIN}};
		long long left = deadline - io_now_ms();

		if (left <= 0)
			return false;
		if (poll(p, 2, (int)left) < 0 && errno != EINTR)
			return false;
		if (p[1].revents & POLLIN)
			read_text(st, l->err);
		if (p[0].revents)
			read_status(st, l->status);
	}
	return true;
}

/* The last words of whoever has ended. */
static void read_rest(const struct role_launch *l, struct starting *st)
{
	struct pollfd p = {.fd = l->err, .events = POLLIN};

	while (poll(&p, 1, 0) > 0 && p.revents & POLLIN)
		read_text(st, l->err);
	if (st->text.data)
		st->text.data[strcspn((char *)st->text.data, "\n")] = 0;
}

/* K11. */
static int say_bwrap(const struct role_launch *l, const struct starting *st, bool timed_out,
		     int status, struct diag *diag)
{
	const char *text = st->text.data && st->text.data[0] ? (char *)st->text.data : NULL;

	if (access(l->bwrap, F_OK) < 0)
		return diag_set(diag, -ENOTSUP, "%s is missing", l->bwrap);
	if (text)
		return diag_set(diag, -ENOTSUP, "%s failed: %s", l->bwrap, text);
	if (timed_out)
		return diag_set(diag, -ENOTSUP, "%s failed: ETIMEDOUT", l->bwrap);
	if (WIFSIGNALED(status))
		return diag_set(diag, -ENOTSUP, "%s failed: signal %d", l->bwrap, WTERMSIG(status));
	return diag_set(diag, -ENOTSUP, "%s failed: exit %d", l->bwrap, WEXITSTATUS(status));
}

static int not_started(const struct role_launch *l, pid_t pid, struct starting *st, bool timed_out,
		       struct diag *diag)
{
	const char *text;
	int status = 0;

	(void)kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	read_rest(l, st);
	text = st->text.data && st->text.data[0] ? (char *)st->text.data : err_text(st->last.error);
	if (!st->failed)
		return say_bwrap(l, st, timed_out, status, diag);
	switch (st->last.step) {
	case ROLE_STEP_SOURCE:
		return diag_set(diag, -EINVAL, "%s", text);
	case ROLE_STEP_NAMESPACES:
		return diag_set(diag, -ENOTSUP, "%s", text);
	case ROLE_STEP_BWRAP:
		return say_bwrap(l, st, false, status, diag);
	case STAGE3_STEP_CWD:
		return diag_set(diag, -EINVAL, "%s: %s", l->spec->cwd, err_text(st->last.error));
	default:
		return diag_set(diag, -EIO, "the session was not started: step %u: %s",
				st->last.step, text);
	}
}

/* A command that has ended already has none. */
static void note_inner(const struct role_launch *l, pid_t pid)
{
	int r = role_record_inner(l->spec->dir, l->spec->name, pid);

	if (r < 0 && r != -ESRCH)
		log_warn("session %s: its first process is not recorded: %s", l->spec->name,
			 err_text(r));
}

static int launch(struct role_launch *l, struct diag *diag, pid_t *ret_pid)
{
	unsigned wait_ms = l->spec->wait_ms ? l->spec->wait_ms : WAIT_MS;
	struct starting st = {0};
	/* Not fork(): a thread that a sanitizer starts in the child would forbid unshare(2). */
	pid_t pid = _Fork();
	bool in_time;
	int r = 0;

	if (pid < 0)
		return ret_nerrno();
	if (pid == 0)
		role_child(l);
	for (int i = 0; i < ROLE_FD_COUNT; i++)
		if (l->fd[i] >= 0)
			(void)close(steal_fd(&l->fd[i]));
	in_time = wait_ready(l, io_now_ms() + wait_ms, &st);
	if (!st.ready)
		r = not_started(l, pid, &st, !in_time, diag);
	else
		note_inner(l, pid);
	buf_release(&st.text);
	*ret_pid = pid;
	return r;
}

int role_start(const struct role_spec *s, struct diag *diag, pid_t *ret_pid)
{
	struct role_launch l = {.spec = s,
				.bwrap = s->bwrap ? s->bwrap : ROLE_BWRAP,
				.status = -1,
				.err = -1,
				.lock = -1};
	int r;

	for (int i = 0; i < ROLE_FD_COUNT; i++)
		l.fd[i] = -1;
	r = prepare(s, &l, diag);
	if (r == 0)
		r = launch(&l, diag, ret_pid);
	launch_release(&l);
	if (r < 0 && r != -EBUSY && name_ok(s->name))
		role_settle(s->dir, s->name);
	return r < 0 ? diag_set(diag, r, "the session was not started: %s", err_text(r)) : 0;
}

int role_probe(const struct role_spec *like, struct diag *diag)
{
	static const char *const links[] = {"/bin", "/lib", "/lib64", "/sbin"};
	static const char *const argv[] = {"/usr/bin/true", NULL};
	char target[ARRAY_SIZE(links)][256], name[64];
	struct run_mount m[10] = {{RUN_MOUNT_RO, "/usr", "/usr"},
				  {RUN_MOUNT_DEV, NULL, "/dev"},
				  {RUN_MOUNT_PROC, NULL, "/proc"}};
	struct role_spec s = {.name = name,
			      .dir = like->dir,
			      .mounts = m,
			      .n = 3,
			      .argv = argv,
			      .cwd = "/",
			      .bwrap = like->bwrap,
			      .stage3 = like->stage3};
	pid_t pid;
	int status, r;

	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		ssize_t n = readlink(links[i], target[i], sizeof(target[i]) - 1);

		if (n < 0 && errno != EINVAL)
			continue;
		if (n >= 0)
			target[i][n] = 0;
		m[s.n++] = n < 0 ? (struct run_mount){RUN_MOUNT_RO, links[i], links[i]}
				 : (struct run_mount){RUN_MOUNT_LINK, target[i], links[i]};
	}
	(void)snprintf(name, sizeof(name), "probe-%d", (int)getpid());
	r = role_start(&s, diag, &pid);
	if (r < 0)
		return r;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	role_settle(like->dir, name);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return diag_set(diag, -ENOTSUP, "%s failed: /usr/bin/true ended with %d",
			like->bwrap ? like->bwrap : ROLE_BWRAP, WEXITSTATUS(status));
}
