/*
 * runner/way_out.h - a network with rules for one command: rattan-net outside the sandbox, which serves two listening
 * sockets from inside, and what it says was asked of it (docs/decisions/0008-network-with-rules.md).
 *
 * Belongs to the thread of the run, but for what was asked, which is read under the run's lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/rules.h"
#include "runner/runner.h"
#include "runner/spawn.h"

#define WAY_OUT_KEPT 64 /* different requests, of those allowed and of the others each */

enum way_out_state {
	WAY_OUT_NONE,   /* the command has no such network */
	WAY_OUT_WAITS,  /* for the sockets */
	WAY_OUT_ASKED,  /* they were handed over */
	WAY_OUT_SERVED, /* the command may start */
	WAY_OUT_LOST,   /* it could not, or ended */
};

struct way_out {
	enum way_out_state state;
	bool was_served;
	int error; /* WAY_OUT_LOST: positive errno, or 0 */
	/* WAY_OUT_ASKED: when it must be served, io_now_ms(); else 0 */
	long long serve_by;
	struct spawn spawn;
	char *argv[2];
	int control; /* our end */
	int listening[2];
	pid_t pid;
	/* under @lock */
	pthread_mutex_t *lock;
	struct run_asked *asked;
	size_t nasked, kept[2]; /* of allowed ones, and of the others */
	uint64_t total;
};

void way_out_init(struct way_out *w, pthread_mutex_t *lock);
/* Everything but the process. @program: a descriptor of rattan-net, taken. */
int way_out_prepare(struct way_out *w, const struct net_rules *rules, int program) MUST_USE;
/* In the thread of the run. */
int way_out_start(struct way_out *w) MUST_USE;
/* A listening socket came from inside; taken. */
void way_out_socket(struct way_out *w, int which, int fd);
/* Its descriptor is readable. */
void way_out_read(struct way_out *w);
/* It is @now, and who has not begun to serve by serve_by does not any more. */
void way_out_check(struct way_out *w, long long now);
/* Reads what was said to the last, and ends the process. */
void way_out_end(struct way_out *w);
/* After the thread. */
void way_out_release(struct way_out *w);

/* Variables that lead programs to the proxy; they replace all others of their names. NUL-terminated each. */
int way_out_vars(const struct net_rules *rules, struct buf *ret, uint32_t *ret_count) MUST_USE;
/* Is "NAME=..." of @n characters of name one of theirs? */
bool way_out_names(const char *name, size_t n);
