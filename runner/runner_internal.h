/*
 * runner/runner_internal.h - struct run, for the files of this folder.
 *
 * One thread per run starts bwrap, reads its streams and waits for it, and so lives exactly as long:
 * the death of that thread, by the death of the process, is bwrap's death.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <termios.h>
#include <time.h>

#include "runner/capture.h"
#include "runner/cgroup.h"
#include "runner/runner.h"
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
	/* set before the thread starts; constant */
	char *bwrap;
	struct spawn spawn; /* its namespaces stay open while the command runs */
	char *root;
	char *argv[6];
	struct cgroup *cgroup;
	bool passthrough, merged, shell, tty, network;
	bool foreign_ns;
	int tty_fd;
	uint64_t timeout_ms, output_max;
	bool keep_input;
	int spill_fd[2];

	/* the thread's alone until done */
	int out_fd[2], err_fd, status_fd, in_fd, init_fd, tie_fd;
	bool tree_gone;
	long long tree_at; /* when its mount is ended by force; 0: not set */
	pid_t pid;
	unsigned seen; /* enum run_seen */
	struct stage3_msg ready, failed;
	int wait_status;
	struct buf bwrap_text; /* what bwrap itself says */
	struct termios termios;
	bool termios_saved;
	int stream_fd[3], stream_flags[3]; /* the caller's own streams; -1 */
	struct timespec started;
	long long deadline, kill_at, last_at; /* io_now_ms(); 0: not set */
	struct rusage usage;
	struct way_out way_out; /* some of it under lock */

	pthread_t thread;
	bool thread_made;
	int wake_fd; /* eventfd: something below has changed */

	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	bool spawned, done;
	int spawn_error, pidfd;
	bool kill_asked, killed, timed_out;
	unsigned kill_grace;
	struct buf input;
	size_t input_at;
	bool input_closed;
	struct capture capture[2];
	uint64_t out_bytes[2], spilled;
	bool out_limited;
	struct run_result result;
};

/* The descriptor of rattan-stage3 at @path; NULL: beside this program. */
int run_open_stage3(const char *path, struct diag *diag) MUST_USE;
/* runner/loop.c: the thread. */
void *run_thread(void *arg);
/* runner/result.c: what it came to, from what was seen. */
void run_result_fill(struct run *r, struct run_result *ret);
