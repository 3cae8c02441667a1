/*
 * runner/runner_internal.h - struct run, for the files of this folder.
 *
 * One thread per run starts bwrap, reads its streams and waits for it, and so lives exactly as long:
 * the death of that thread, by the death of the process, is bwrap's death.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "runner/capture.h"
#include "runner/cgroup.h"
#include "runner/runner.h"
#include "runner/spare.h"
#include "runner/spawn.h"
#include "runner/way_out.h"
#include "stage3/stage3_abi.h"

#define RUN_INPUT_MAX (1u << 20)

enum run_seen {
	RUN_SEEN_HELLO = 1 << 0,
	RUN_SEEN_READY = 1 << 1,
	RUN_SEEN_FAILED = 1 << 2,
	RUN_SEEN_EXITED = 1 << 3,
};

struct run {
	/* Set before the thread starts, or, what is the command's, before the plan is handed to it; constant. */
	char *bwrap;
	struct spawn spawn; /* its namespaces stay open while the command runs */
	char *root;
	char *argv[6];
	struct cgroup *cgroup;
	bool passthrough, merged, shell, network;
	bool keyboard; /* what shows its output is a terminal that we made, and what run_input() writes to */
	ino_t status_ino; /* of the inner end of the status socket */
	uint64_t timeout_ms, output_max;
	struct run_spare *spare; /* told of the end; NULL: none */
	int spill_fd[2];

	/* the thread's alone until done */
	int out_fd[2], err_fd, status_fd, in_fd, init_fd, tie_fd, tree_fd;
	bool tree_gone;
	long long tree_at; /* when its mount is ended by force; 0: not set */
	pid_t pid;         /* bwrap's; ours until it is reaped */
	bool reaped;
	unsigned seen; /* enum run_seen */
	struct stage3_msg ready, failed;
	int wait_status;
	struct stage3_note note;
	struct buf bwrap_text;             /* what bwrap itself says */
	int stream_fd[3], stream_flags[3]; /* the caller's own streams; -1 */
	struct timespec started;
	long long deadline, kill_at, last_at; /* io_now_ms(); 0: not set */
	struct rusage usage;
	struct way_out way_out; /* some of it under lock */

	pthread_t thread;
	bool thread_made;
	int wake_fd; /* eventfd: something below has changed */
	int stop_fd; /* eventfd: stopped below has; -1: nobody asks */

	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	bool spawned, greeted, done; /* greeted: init has said hello, and has its plan */
	int plan_fd, tie_next;       /* handed to the thread of one that waited; -1 */
	int spawn_error, pidfd;
	bool kill_asked, killed, timed_out;
	int stopped; /* by this signal; 0: told already */
	bool continue_asked, continue_front;
	uint64_t signals; /* bits of those to be sent to its group */
	unsigned kill_grace;
	struct buf input;
	size_t input_at;
	bool input_closed;
	struct capture capture[2];
	uint64_t out_bytes[2], spilled;
	bool out_limited;
	struct run_result result;
	bool linger, command_ended;
	struct run_result command; /* when it has */
};

/* The descriptor of rattan-stage3 at @path; NULL: beside this program. */
int run_open_stage3(const char *path, struct diag *diag) MUST_USE;
/* runner/streams.c. A close-on-exec copy, above the standard streams. */
int run_dup(int fd) MUST_USE;
/* May it be a command's standard stream? Not a directory (-EINVAL): from it fchdir and fstatat lead all over the host, which
 * neither the mount namespace nor Landlock keeps from them. */
int run_check_stream(int fd, struct diag *diag) MUST_USE;
/* The ends of the command, in r->spawn, and ours. */
int run_streams_make(struct run *r, const struct run_spec *s, struct diag *diag) MUST_USE;
/* What of the caller's own is lent to the command, and how it was before. */
void run_streams_lent(struct run *r, const struct run_spec *s);
/* Of @s only what its sandbox is built from: it waits for its plan. */
int run_start_waiting(const struct run_spec *s, struct run **ret) MUST_USE;
/* Something under lock has changed. */
/* In @ms, on the clock of a run's @cond. */
struct timespec run_after(uint64_t ms);
void run_wake(struct run *r);

/* runner/spare.c. Could one that waits serve @s at all? */
bool run_spare_fits(const struct run_spec *s);
/* The one that waits, when it is as @s wants it; NULL: none. The caller's; @s is what the next one will be like. */
struct run *run_spare_take(const struct run_spec *s);
/* A command of this has ended: time to build the next one. */
void run_spare_ended(struct run_spare *p);

/* runner/loop.c: the thread. */
void *run_thread(void *arg);
/* runner/result.c: what it came to, from what was seen. */
void run_result_fill(struct run *r, struct run_result *ret);
