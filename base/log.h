/*
 * base/log.h - messages for the person who runs a program, on stderr; never protocol.
 *
 * Threads: any thread may log; a line is one write(2), so lines of several threads do not mix.
 * Library code (base, store, fs/core, runner) logs only at LOG_DEBUG: who decides what to do about
 * an error logs it, once.
 */
#pragma once

#include "base/err.h"

enum log_level {
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG
};

/* Set once at start, before threads. @prog is kept, not copied. Default: "rattan", LOG_WARN. */
void log_setup(const char *prog, enum log_level level);

/* From here on lines go to the end of @path, each with the time, and not to standard error. Before threads.
 * -ENXIO: a pipe that nobody reads. Of one that is full lines are lost, as on a full disk. */
int log_to_file(const char *path) MUST_USE;

/* 0 and the level for "error", "warn", "info", "debug"; -EINVAL otherwise. */
int log_level_parse(const char *name, enum log_level *ret_level);

void log_msg(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_msg(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_msg(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_DEBUG, __VA_ARGS__)
