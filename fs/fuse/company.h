/*
 * fs/fuse/company.h - a thread that keeps the other CPU occupied while messages come in quick succession.
 *
 * Why: a caller sleeps until it is answered. Woken while another CPU is idle, it is sent there by the scheduler, and so is
 * the reader when the next message comes: each message then wakes two sleeping CPUs, which on a virtual machine is most of
 * what it costs. With no CPU idle both stay where they are and take turns on one CPU, a few microseconds a message. So the
 * reader goes to the CPU of its caller, and this thread runs on the other one, at the lowest priority (nice 19), until
 * nothing has come for a moment. It may be kept from running for as long as there is other work, so nobody ever waits for it. Only where there are two CPUs: to occupy more would need a thread for each.
 *
 * Not locked: one user at a time, the leader (loop.c), but for what is atomic.
 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct company_thread {
	_Atomic unsigned refs;
	_Atomic bool stop;
	_Atomic bool awake;       /* set by the leader, cleared by either */
	_Atomic uint64_t last_ns; /* the last message, CLOCK_MONOTONIC */
	sem_t wake;
};

struct company {
	bool usable;               /* two CPUs, and a thread */
	struct company_thread *of; /* NULL: none */
	pthread_t thread;          /* detached; there as long as @of is */
	int cpus[2];
	pid_t caller;   /* who was looked for last */
	unsigned since; /* messages since then, slow ones counted for several */
	int at;         /* index of the CPU of reader and caller; -1 before the first */
};

/* Look what there is; the thread sleeps. Without two CPUs, or a thread, it is not usable, which is no error. */
void company_start(struct company *c);
/* May this process use both CPUs for as long as it likes? @self: its control groups, as /proc/self/cgroup; @top: where they are. */
bool company_affordable(const char *self, const char *top);
/* The thread ends when it can. */
void company_stop(struct company *c);
/* The caller is @pid (0: nobody that is known here): occupy the CPU that it does not run on. False: it cannot be, now or ever
 * (then it is no more usable). */
bool company_begin(struct company *c, pid_t pid, uint64_t now_ns);
/* A message of @pid has come while it is occupied: true if callers are on the other CPU now, and the thread is not. */
bool company_follow(struct company *c, pid_t pid);
/* Of one that is or was usable: does the thread run? A stream that pauses ends it. */
static inline bool company_awake(const struct company *c)
{
	return atomic_load_explicit(&c->of->awake, memory_order_relaxed);
}
/* A message has come while it does. */
void company_message(struct company *c, uint64_t now_ns);
/* No more of it. */
void company_end(struct company *c);
/* Put the calling thread onto the CPU of its callers, or (@on false) let it run on both again. */
bool company_pin(const struct company *c, bool on);
