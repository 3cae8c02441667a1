#include "fs/fuse/company.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/thread.h"

/* Longer than what programs do between two messages of one file, so that the thread is not woken for each. */
#define PAUSE_NS      UINT64_C(300000)
/* Messages after which is looked again where callers are: each look costs as much as a message or two. */
#define LOOK_SAME     64
#define SLOW_NS       UINT64_C(50000) /* or so long, in which the two may have been parted */
#define LOOK_OTHER    8
#define GROUPS_MAX    65536 /* bytes of /proc/self/cgroup */
#define QUOTA_MAX     128
#define LEAST         19 /* nice */
#define FIELD_CPU     39 /* of /proc/PID/stat, from 1 */
#define FIELDS_BEFORE 2  /* what stands before the closing parenthesis of the name */

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the thread ---- */

static bool paused(const struct company_thread *t)
{
	uint64_t last = atomic_load_explicit(&t->last_ns, memory_order_relaxed), now = now_ns();

	return now > last && now - last > PAUSE_NS;
}

static void release(struct company_thread *t)
{
	if (atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	(void)sem_destroy(&t->wake);
	free(t);
}

static void *company_main(void *arg)
{
	struct company_thread *t = arg;

	/* Of this thread alone: whatever else there is to do goes first. */
	(void)setpriority(PRIO_PROCESS, 0, LEAST);
	while (!atomic_load(&t->stop)) {
		while (atomic_load_explicit(&t->awake, memory_order_relaxed) && !paused(t))
			;
		atomic_store_explicit(&t->awake, false, memory_order_relaxed);
		(void)sem_wait(&t->wake);
	}
	release(t);
	return NULL;
}

static struct company_thread *start_thread(pthread_t *ret)
{
	struct company_thread *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	atomic_init(&t->refs, 2);
	if (sem_init(&t->wake, 0, 0) < 0) {
		free(t);
		return NULL;
	}
	if (thread_start(ret, company_main, t) < 0) {
		(void)sem_destroy(&t->wake);
		free(t);
		return NULL;
	}
	(void)pthread_setname_np(*ret, "fuse-company");
	(void)pthread_detach(*ret);
	return t;
}

/* ---- what there is ---- */

/* Less than both CPUs' time in this group alone: what is burnt would be missing. */
static bool is_short(const char *top, const char *group)
{
	char path[PATH_MAX];
	cleanup_buf struct buf text = {0};
	unsigned long long quota, period;

	if (snprintf(path, sizeof(path), "%s%s/cpu.max", top, group) >= (int)sizeof(path))
		return true;
	/* The topmost group has none. */
	if (io_read_file(AT_FDCWD, path, QUOTA_MAX, &text) < 0 || !text.len)
		return false;
	/* "max", or a quota */
	return sscanf((const char *)text.data, "%llu %llu", &quota, &period) == 2 &&
	       quota < 2 * period;
}

bool company_affordable(const char *self, const char *top)
{
	cleanup_buf struct buf text = {0};
	char *group, *end;

	if (io_read_file(AT_FDCWD, self, GROUPS_MAX, &text) < 0 || !text.len)
		return true;
	group = (char *)text.data;
	if (strncmp(group, "0::/", 4) != 0)
		group = strstr(group, "\n0::/");
	if (!group)
		return true; /* no second version of groups */
	group = strchr(group, '/');
	group[strcspn(group, "\n")] = '\0';
	/* Each of them may be short. */
	while ((end = strrchr(group, '/'))) {
		if (is_short(top, group))
			return false;
		*end = '\0';
	}
	return !is_short(top, "");
}

void company_start(struct company *c)
{
	cpu_set_t set;
	unsigned n = 0;

	memset(c, 0, sizeof(*c));
	c->at = -1;
	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) != 2 ||
	    !company_affordable("/proc/self/cgroup", "/sys/fs/cgroup"))
		return;
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (CPU_ISSET(i, &set))
			c->cpus[n++] = i;
	c->of = start_thread(&c->thread);
	c->usable = c->of;
}

void company_stop(struct company *c)
{
	struct company_thread *t = c->of;

	c->usable = false;
	c->of = NULL;
	if (!t)
		return;
	atomic_store(&t->stop, true);
	atomic_store(&t->awake, false);
	(void)sem_post(&t->wake);
	release(t);
}

/* ---- the leader's ---- */

/* The CPU that @pid is on or was on last. */
static int cpu_of(pid_t pid)
{
	char path[32], text[1024], *p;
	cleanup_fd int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name may hold anything */
	for (int field = FIELDS_BEFORE; p && field < FIELD_CPU; field++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	return p ? (int)strtol(p, NULL, 10) : -1;
}

static bool set_cpu(pthread_t thread, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return pthread_setaffinity_np(thread, sizeof(set), &set) == 0;
}

/* Where @pid is: -1 not known, 0 where it was looked for last, 1 on the other CPU, which this thread has left then. */
static int look(struct company *c, pid_t pid)
{
	int cpu = c->usable && pid > 0 ? cpu_of(pid) : -1;
	int at = cpu == c->cpus[1];

	if (cpu != c->cpus[0] && cpu != c->cpus[1])
		return -1; /* it has gone, or runs elsewhere */
	c->caller = pid;
	c->since = 0;
	if (at == c->at)
		return 0;
	/* The CPUs that we may use have changed. */
	if (!set_cpu(c->thread, c->cpus[!at]))
		c->usable = false;
	c->at = at;
	return c->usable ? 1 : -1;
}

bool company_begin(struct company *c, pid_t pid, uint64_t now)
{
	if (look(c, pid) < 0)
		return false;
	atomic_store_explicit(&c->of->last_ns, now, memory_order_relaxed);
	atomic_store_explicit(&c->of->awake, true, memory_order_relaxed);
	return sem_post(&c->of->wake) == 0;
}

void company_message(struct company *c, uint64_t now)
{
	uint64_t was = atomic_load_explicit(&c->of->last_ns, memory_order_relaxed);

	if (now > was)
		c->since += now - was > LOOK_SAME * SLOW_NS ? LOOK_SAME
							    : (unsigned)((now - was) / SLOW_NS);
	atomic_store_explicit(&c->of->last_ns, now, memory_order_relaxed);
}

bool company_follow(struct company *c, pid_t pid)
{
	if (++c->since < (pid == c->caller ? LOOK_SAME : LOOK_OTHER))
		return false;
	c->since = 0;
	return look(c, pid) > 0;
}

void company_end(struct company *c)
{
	atomic_store_explicit(&c->of->awake, false, memory_order_relaxed);
}

bool company_pin(const struct company *c, bool on)
{
	cpu_set_t set;

	if (on)
		return set_cpu(pthread_self(), c->cpus[c->at]);
	CPU_ZERO(&set);
	CPU_SET(c->cpus[0], &set);
	CPU_SET(c->cpus[1], &set);
	return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}
