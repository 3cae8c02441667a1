/* The streams of a run: pipes to and from the command, the caller's own, the status socket. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "runner/runner_internal.h"

int run_dup(int fd)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return r < 0 ? ret_nerrno() : r;
}

/* A pipe whose end in @ours does not block. */
static int make_pipe(int *ours, int *theirs, bool we_read)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return ret_nerrno();
	*ours = p[we_read ? 0 : 1];
	*theirs = p[we_read ? 1 : 0];
	return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? ret_nerrno() : 0;
}

int run_check_stream(int fd, struct diag *diag)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (S_ISDIR(st.st_mode))
		return diag_set(diag, -EINVAL,
				"a directory cannot be a standard stream (descriptor %d): it would "
				"show the command the host",
				fd);
	return 0;
}

/* A descriptor of the caller's for the command. */
static int pass_fd(int fd, struct diag *diag)
{
	int r = run_check_stream(fd, diag);

	return r < 0 ? r : run_dup(fd);
}

static int set_stdin(struct run *r, const struct run_spec *s, struct diag *diag)
{
	int *fd = &r->spawn.fd[STDIN_FILENO], e;

	if (s->stdin_fd >= 0) {
		*fd = pass_fd(s->stdin_fd, diag);
		return *fd < 0 ? *fd : 0;
	}
	if (!s->stdin_data && !s->keep_input) {
		*fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return *fd < 0 ? ret_nerrno() : 0;
	}
	e = make_pipe(&r->in_fd, fd, false);
	if (e == 0 && s->stdin_len > 0)
		e = buf_put(&r->input, s->stdin_data, s->stdin_len);
	r->input_closed = !s->keep_input;
	return e;
}

static int set_stdout(struct run *r, const struct run_spec *s, struct diag *diag)
{
	int *out = &r->spawn.fd[STDOUT_FILENO], *err = &r->spawn.fd[STAGE3_FD_STDERR], e;

	if (s->passthrough) {
		*out = pass_fd(STDOUT_FILENO, diag);
		*err = *out < 0 ? *out : pass_fd(r->merged ? STDOUT_FILENO : STDERR_FILENO, diag);
		return *err < 0 ? *err : 0;
	}
	e = make_pipe(&r->out_fd[0], out, true);
	if (e < 0)
		return e;
	if (!r->merged)
		return make_pipe(&r->out_fd[1], err, true);
	*err = run_dup(*out);
	return *err < 0 ? *err : 0;
}

static int open_terminal(int *ret_master, int *ret_slave)
{
	const struct winsize size = {.ws_row = 24, .ws_col = 80};
	cleanup_fd int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	cleanup_fd int slave = -1;

	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
		return ret_nerrno();
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || ioctl(slave, TIOCSWINSZ, &size) < 0 ||
	    fcntl(master, F_SETFL, O_NONBLOCK) < 0)
		return ret_nerrno();
	*ret_master = steal_fd(&master);
	*ret_slave = steal_fd(&slave);
	return 0;
}

static int set_terminal(struct run *r, const struct run_spec *s)
{
	int *fd = r->spawn.fd;
	int e = open_terminal(&r->out_fd[0], &fd[STDIN_FILENO]);

	if (e < 0)
		return e;
	r->in_fd = run_dup(r->out_fd[0]);
	fd[STDOUT_FILENO] = run_dup(fd[STDIN_FILENO]);
	fd[STAGE3_FD_STDERR] = run_dup(fd[STDIN_FILENO]);
	if (r->in_fd < 0 || fd[STDOUT_FILENO] < 0 || fd[STAGE3_FD_STDERR] < 0)
		return -EMFILE;
	r->spawn.tty_at = STDIN_FILENO;
	r->keyboard = true;
	return s->stdin_len ? buf_put(&r->input, s->stdin_data, s->stdin_len) : 0;
}

static int set_status(struct run *r)
{
	struct stat st;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return ret_nerrno();
	r->status_fd = sv[0];
	r->spawn.fd[STAGE3_FD_STATUS] = sv[1];
	if (fstat(sv[1], &st) < 0)
		return ret_nerrno();
	r->status_ino = st.st_ino;
	return make_pipe(&r->err_fd, &r->spawn.fd[STDERR_FILENO], true);
}

/* The caller's streams, but where they are a terminal. */
static int set_beside_terminal(struct run *r, const struct run_spec *s, struct diag *diag)
{
	static const int at[3] = {STDIN_FILENO, STDOUT_FILENO, STAGE3_FD_STDERR};
	const int from[3] = {s->stdin_fd, STDOUT_FILENO, STDERR_FILENO};

	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		const bool theirs = isatty(from[i]);
		int fd = theirs ? run_dup(s->terminal_fd) : pass_fd(from[i], diag);

		if (fd < 0)
			return fd;
		r->spawn.fd[at[i]] = fd;
		if (theirs && r->spawn.tty_at < 0)
			r->spawn.tty_at = at[i];
	}
	if (r->spawn.tty_at < 0)
		return diag_set(diag, -EINVAL,
				"a terminal for a command none of whose streams is one");
	r->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return r->stop_fd < 0 ? ret_nerrno() : 0;
}

int run_streams_make(struct run *r, const struct run_spec *s, struct diag *diag)
{
	int e;

	if (s->tty) {
		e = set_terminal(r, s);
	} else if (s->terminal_fd >= 0) {
		e = set_beside_terminal(r, s, diag);
	} else {
		e = set_stdin(r, s, diag);
		if (e == 0)
			e = set_stdout(r, s, diag);
	}
	return e < 0 ? e : set_status(r);
}

/* What is lent with a descriptor are its flags, too: a command that makes its input non-blocking would
 * leave the caller's shell with one that is. */
void run_streams_lent(struct run *r, const struct run_spec *s)
{
	const int fd[3] = {s->stdin_fd, s->passthrough ? STDOUT_FILENO : -1,
			   s->passthrough ? STDERR_FILENO : -1};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fd); i++) {
		r->stream_fd[i] = fd[i];
		r->stream_flags[i] = fd[i] < 0 ? -1 : fcntl(fd[i], F_GETFL);
	}
}
