/*
 * runner/runner.h - run one command in a sandbox: bwrap on a mounted tree, stage3 inside, captured
 * output, deadline, and a result. Takes descriptors and paths; knows nothing of the store or the fs.
 *
 * No command runs with less confinement than was asked for (R1): every failure before exec is a
 * result of its own (RUN_NOT_STARTED with the step), never the command's output or exit code.
 * When a run ends - by itself, by deadline, run_kill or this process's death - none of its
 * processes is left (R4): PID namespace, die-with-parent, and a cgroup where there is one.
 *
 * Threads: a struct run may be waited for by one thread while others call run_kill, run_output,
 * run_input. Children never inherit descriptors beyond those on the list (R3).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "net/rules.h"

struct run;
struct run_spare; /* runner/spare.h */

struct run_limits {
	/* 0: the default of run_limits_default(); UINT64_MAX: none */
	uint64_t cpu_s, memory, processes, open_files, file_size, output;
};
void run_limits_default(struct run_limits *l);

enum run_stderr {
	RUN_STDERR_SEPARATE,
	RUN_STDERR_MERGED
};

struct run_spec {
	/* the tree (ctl_attach): lent */
	int userns_fd, mntns_fd; /* -1 both: the tree is mounted in our own namespace */
	const char *root;
	int tie_fd; /* a socket: when its other end closes, the tree is gone and the command
				     is killed; -1: none. Lent. */
	int tree_fd; /* a directory of the tree, asked after a command that failed whether there is still a tree: it may
				     end by the errors of one that ended before we hear of that. -1: none. Lent. */
	/* A sandbox that waits may be taken, and the next one is built when this has ended. Lent, and outlives the run;
	 * NULL: no. @tree_id changes with what is mounted at @root or below: what waits has only what was there before. */
	struct run_spare *spare;
	uint64_t tree_id[2];
	const char *writable; /* newline-separated places for Landlock; as struct ctl_attach */

	/* the command: exactly one of the two */
	const char *shell; /* text for bash -c (sh where there is no bash) */
	const char *const *argv;

	const char *cwd;        /* absolute in the tree; NULL: /workspace */
	const char *const *env; /* "NAME=value" on top of the clean default; NULL: none */
	const char *hostname;   /* NULL: "rattan" */
	unsigned uid, gid;      /* inside; 1000 for agents */
	/* The tree's root instead, on a mount for provisioning (ctl_attach_opts): user 0 with the capabilities over files, whose chown,
	 * mknod and stat are carried out by stage3 (stage3/root.h). Not with no_exec_workspace. */
	bool provision;
	const char *stage3;   /* path of rattan-stage3; NULL: beside this program, else libexec */
	const char *net;      /* path of rattan-net; the same */
	const char *promises; /* space-separated; NULL: the default set */
	struct run_limits limits;
	uint64_t timeout_ms;    /* 0: none */
	bool no_exec_workspace; /* Landlock: no execution from the writable places */
	bool network;           /* the host's, instead of none */
	/* Instead of either: one of its own, from which rattan-net alone leads on, to what these allow. NULL: not so. Lent
	 * until run_start returns. */
	const struct net_rules *net_rules;
	bool linger; /* what the command leaves running goes on; the run ends with the last of it, see run_command */
	bool note; /* with shell: what run_result says beside the exit code, for a little time at the end */
	bool require_landlock; /* no run at all where the kernel lacks a part of Landlock */

	/* standard streams. stdin_fd -1 with stdin_data NULL: /dev/null. Lent. */
	int stdin_fd;
	const void *stdin_data;
	size_t stdin_len;
	bool keep_input; /* stdin stays open for run_input() */
	/* A terminal of its own, 80 by 24: the three streams are it, what it shows is stream 0, run_input() is its keyboard and
	 * the end of input ^D. Without stdin_fd and passthrough. */
	bool tty;
	enum run_stderr stderr_mode;
	bool passthrough; /* the caller's own stdout/stderr (fds 1 and 2) instead of capture */
	/* With passthrough and stdin_fd: a terminal that becomes the controlling one of a session of the command's own, and takes
	 * the place of each standard stream of the caller's that is a terminal (runner/terminal.h makes one). Only its end for
	 * programs; whoever holds the other one copies. -1: none. Lent until run_start returns. */
	int terminal_fd;
	bool terminal_back; /* the command begins in its background: the first that it wants to read stops it */
	size_t head_max, tail_max; /* captured bytes kept in memory per stream; 0: 256 KiB each */
	int spill_fd[2]; /* stdout, stderr: everything is also written here; -1: nowhere. Lent,
				     must stay open until run_free. Writing stops at limits.output. */
};
void run_spec_init(struct run_spec *s);

/* Validates, starts; returns when bwrap was started, not when the command runs.
 * -EINVAL bad spec; -ENOENT no bwrap or stage3 (sentence in @diag). */
int run_start(const struct run_spec *s, struct diag *diag, struct run **ret) MUST_USE;
/* A pidfd of the outermost process, for a lease; owned by the run. */
int run_pidfd(const struct run *r);

enum run_state {
	RUN_RUNNING,
	RUN_EXITED,      /* code */
	RUN_SIGNALED,    /* signal: the command died of it */
	RUN_NOT_STARTED, /* step and error: the sandbox could not be built; exit code 125 */
};
struct run_result {
	enum run_state state;
	int code; /* as a shell's: 126, 127, 128+N; 125 when not started */
	int signal;
	bool timed_out, killed;
	char step
		[32]; /* RUN_NOT_STARTED, and 126 and 127 without a shell: which step of bwrap or stage3 */
	char error
		[256]; /* ... and why, for a person; also for 126, 127, and for a tree that went */
	/* What ran still when the command ended, and ended with it; one of their names. Of one that was not ended itself, and
	 * does not linger. */
	unsigned left;
	char left_name[16];
	/* run_spec.note, and a bash: "1 0 0", the exit codes of the last pipeline where it has several parts and one of them failed; the directory
	 * in which it ended. As far as the command lets us know: bytes of its own making. */
	char pipe[64];
	char ended_in[512];
	double wall_s, user_s, sys_s;
	uint64_t max_rss;      /* bytes */
	uint64_t out_bytes[2]; /* all that was written, stdout and stderr (merged: all in 0) */
	bool out_limited;      /* the output limit was hit; the rest was discarded (M3) */
	char enforced
		[512]; /* comma-separated: "userns,pidns,netns,no_new_privs,seccomp,landlock:7,rlimits,cgroup";
			* an older Landlock says what it lacks: "landlock:2(no truncate ioctl_dev ...)" */
};

/* Wait up to @timeout_ms (UINT64_MAX: for ever). 1: ended, *ret filled; 0: still running. */
int run_wait(struct run *r, uint64_t timeout_ms, struct run_result *ret) MUST_USE;
/* Of a run that lingers: has the command itself ended? Then *ret is what it came to, and the run may go on. */
bool run_command(struct run *r, struct run_result *ret);
/* With terminal_fd: readable when run_stopped() has something to say; owned by the run. -1: there is none. */
int run_stop_fd(const struct run *r);
/* The signal that has stopped the command's job since this was last asked; 0: none has. What is stopped stays so until
 * run_continue(). */
int run_stopped(struct run *r);
/* Lets the command's job go on, @front: in the foreground of its terminal. Returns at once. */
void run_continue(struct run *r, bool front);
/* A signal for the command's process group, as a key of its terminal would send it. Returns at once. */
void run_signal(struct run *r, int sig);
/* SIGTERM to the command's processes, SIGKILL after @grace_ms; returns at once. */
int run_kill(struct run *r, unsigned grace_ms);
/* What is kept of a stream: the head, and after a gap the tail. *ret_skipped: bytes between them. */
int run_output(struct run *r, int stream, struct buf *head, struct buf *tail,
	       uint64_t *ret_skipped) MUST_USE;
/* What a command with rules on its network has asked for up to now: each host, port and verdict once, the first 64 that
 * were allowed and the first 64 that were not; *ret_total is how many requests there were. To be freed; NULL: none. */
struct run_asked {
	char host[NET_HOST_MAX]; /* "" and port 0: the request could not be read so far */
	unsigned port;
	enum net_verdict verdict;
	uint64_t count;
};
int run_asked(struct run *r, struct run_asked **ret, size_t *ret_n, uint64_t *ret_total) MUST_USE;
/* Bytes for the command's stdin: as many as there is room for, and how many those were. It never waits, for the command may
 * never read. n == 0 closes it. -EPIPE when it is closed. */
ssize_t run_input(struct run *r, const void *p, size_t n) MUST_USE;
/* Kills what still runs and frees. Accepts NULL. */
void run_free(struct run *r);
