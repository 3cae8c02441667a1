/* What all modes of rattan-fs have in common. */
#include "fs/env/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/core/hostbase.h"
#include "fs/ctl/ctl_msg.h"
#include "fs/env/daemon_internal.h"

int daemon_tell(int *ready_fd, int r, const struct diag *d, const struct buf *items, uint32_t n)
{
	struct ctl_rep rp = {.id = 0, .err = r};
	cleanup_buf struct buf msg = {0};
	const char *text = d && d->text[0] ? d->text : err_text(r);

	if (r < 0) {
		memcpy(rp.text, text, strnlen(text, sizeof(rp.text) - 1));
		log_error("%s", rp.text);
	}
	if (*ready_fd >= 0) {
		/* A starter that is gone needs no answer. */
		if (ctl_rep_encode(&rp, items, n, &msg) == 0)
			(void)!io_write_full(*ready_fd, msg.data, msg.len);
		(void)close(steal_fd(ready_fd));
	}
	return r;
}

int daemon_prepare(int *ret_signal_fd)
{
	sigset_t set;
	int fd;

	(void)umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	/* A limit of the size of files (ulimit -f) is a full disk, not an end. */
	(void)signal(SIGXFSZ, SIG_IGN);
	io_most_descriptors();
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return ret_nerrno();
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return ret_nerrno();
	*ret_signal_fd = fd;
	return 0;
}

int daemon_detach(const struct daemon_opts *o, bool *ret_parent)
{
	pid_t pid;

	*ret_parent = false;
	if (o->foreground)
		return 0;
	pid = fork();
	if (pid < 0)
		return ret_nerrno();
	*ret_parent = pid > 0;
	return 0;
}

int daemon_run_file(const char *run_dir, const char *name, char *ret, size_t size)
{
	int n = snprintf(ret, size, "%s/%s", run_dir, name);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

int daemon_alive(const char *run_dir, struct diag *diag, int *ret_fd)
{
	cleanup_fd int fd = -1;
	long long end = io_now_ms() + 30000;
	char path[4096];
	int r = daemon_run_file(run_dir, "alive", path, sizeof(path));

	if (r < 0)
		return r;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return diag_set(diag, ret_nerrno(), "cannot open %s: %s", path, err_text(errno));
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		const struct timespec ts = {.tv_nsec = 2000000};

		if (errno != EWOULDBLOCK && errno != EINTR)
			return ret_nerrno();
		if (io_now_ms() > end)
			return diag_set(
				diag, -EBUSY,
				"another rattan-fs runs at %s and does not end; only one can serve an environment",
				run_dir);
		(void)nanosleep(&ts, NULL);
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

int daemon_note_mount(const char *run_dir, const char *dir)
{
	cleanup_free char *real = NULL;
	cleanup_fd int fd = -1;
	char path[4096];
	int r = run_dir ? daemon_run_file(run_dir, "hostmount", path, sizeof(path)) : 0;

	if (!run_dir || r < 0)
		return r;
	if (!dir)
		return unlink(path) < 0 && errno != ENOENT ? ret_nerrno() : 0;
	real = realpath(dir, NULL);
	if (!real)
		return ret_nerrno();
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? ret_nerrno() : io_write_full(fd, real, strlen(real));
}

struct session_ids daemon_host_ids(const struct daemon_opts *o)
{
	if (o->stored_ids)
		return (struct session_ids){.squash = false};
	return (struct session_ids){.squash = true,
				    .show_uid = geteuid(),
				    .show_gid = getegid(),
				    .store_uid = HOSTBASE_AGENT,
				    .store_gid = HOSTBASE_AGENT};
}

/* What the last daemon left is still with the keeper, and for a lack of memory or a disk that fails it must not be
 * given up at the first try. */
bool daemon_may_pass(int r)
{
	return r == -ENOMEM || r == -EAGAIN || r == -EIO || r == -ENFILE || r == -EMFILE ||
	       r == -EBUSY || r == -ENOSPC || r == -EDQUOT;
}

/* No core file with file contents in it; a limit of one byte is also no program to which it would be given (core(5)).
 * Nor a look into this process by others of our user id: from within a namespace of ours nobody can, and who owns it
 * may have to enter it (fs/env/heal.h). */
void daemon_no_core(bool own_ns)
{
	(void)setrlimit(RLIMIT_CORE, &(struct rlimit){.rlim_cur = 1, .rlim_max = 1});
	if (!own_ns)
		(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
