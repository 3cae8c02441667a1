/* The thread that occupies the other CPU: where it runs, and that it ends. */
#include "fs/fuse/company.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/tap.h"
#include "tests/lib/tree.h"
#include "tests/unit/fuse/threads.h"

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool take(int tid, void *ret)
{
	*(int *)ret = tid;
	return true;
}

/* 0: there is none. */
static int thread_named(const char *name)
{
	int tid;

	return any_thread(name, take, &tid) ? tid : 0;
}

#define LATER (now_ns() + 3600 * UINT64_C(1000000000))

/* The CPU that a process ran on last, by /proc. */
static int where(pid_t pid)
{
	char path[32], text[1024] = "", *p;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	(void)!fgets(text, sizeof(text), f);
	(void)fclose(f);
	p = strrchr(text, ')');
	for (int i = 2; p && i < 39; i++)
		p = strchr(p + 1, ' ');
	return p ? (int)strtol(p, NULL, 10) : -1;
}

static void move(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)sched_setaffinity(pid, sizeof(set), &set);
	for (int i = 0; i < 10000 && where(pid) != cpu; i++)
		(void)usleep(1000);
}

/* A child that does next to nothing, on @cpu. */
static pid_t sleeper(int cpu)
{
	pid_t pid = fork();

	if (pid) {
		move(pid, cpu);
		return pid;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		(void)usleep(1000);
}

static void end(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

static bool ends(const struct company *c)
{
	for (int i = 0; i < 10000 && company_awake(c); i++)
		(void)usleep(1000);
	return !company_awake(c);
}

static void test_beside(struct company *c, const int cpus[2])
{
	int tid = thread_named("fuse-company");
	pid_t child;

	ok(tid > 0, "a thread is there");
	ok(!company_awake(c), "and sleeps");
	ok(!company_begin(c, 0, now_ns()) && c->usable, "nobody knows where the caller is");
	for (int i = 0; i < 2; i++) {
		child = sleeper(cpus[i]);
		ok(company_begin(c, child, LATER), "beside a caller on CPU %d", cpus[i]);
		eq_int(only_cpu(tid), cpus[!i], "it runs on the other one");
		ok(company_awake(c), "while messages come");
		ok(company_pin(c, true), "who reads");
		eq_int(only_cpu(0), cpus[i], "goes to the caller");
		ok(company_pin(c, false) && only_cpu(0) < 0, "and may leave again");
		company_message(c, now_ns());
		ok(ends(c), "it sleeps when nothing comes any more");
		eq_int(getpriority(PRIO_PROCESS, (id_t)tid), 19,
		       "and is there for what nobody else wants");
		end(child);
		ok(!company_begin(c, child, now_ns()) && c->usable && !company_awake(c),
		   "a caller that has gone is nowhere");
	}
}

/* Messages until the company has seen that it has to go elsewhere. */
static int until_followed(struct company *c, pid_t pid)
{
	int n = 1;

	while (!company_follow(c, pid) && n < 1000)
		n++;
	return n;
}

static void test_follow(struct company *c, const int cpus[2])
{
	pid_t child = sleeper(cpus[1]), other = sleeper(cpus[0]);
	int tid = thread_named("fuse-company"), n;
	uint64_t last;

	ok(company_begin(c, child, LATER), "beside one of two callers");
	for (int k = 0; k < 2; k++) {
		move(child, cpus[k]);
		n = until_followed(c, child);
		ok(n > 10 && n < 100,
		   "one that moves is followed, and not looked for each time (%d)", n);
		eq_int(only_cpu(tid), cpus[!k], "and left alone");
	}
	move(child, cpus[0]);
	last = atomic_load(&c->of->last_ns);
	company_message(c, last + 10000);
	ok(!company_follow(c, child), "nor after one that was soon");
	company_message(c, last + 10000000);
	ok(company_follow(c, child), "but at once after one that was slow");
	move(child, cpus[1]);
	eq_int(until_followed(c, child) < 100, true, "back");
	n = until_followed(c, other);
	ok(n > 1 && n < 10, "who comes in its place sooner (%d)", n);
	eq_int(only_cpu(tid), cpus[1], "and left alone, too");
	end(other);
	eq_int(until_followed(c, other), 1000, "nobody is followed into nowhere");
	company_end(c);
	ok(ends(c), "ended before its time");
	ok(company_begin(c, child, LATER), "begun again");
	company_stop(c);
	for (int i = 0; i < 10000 && thread_named("fuse-company"); i++)
		(void)usleep(1000);
	eq_int(thread_named("fuse-company"), 0, "a thread that runs ends as well");
	end(child);
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		tap_fatal("%s: %m", path);
}

static void test_affordable(void)
{
	static const struct {
		const char *self, *above, *own;
		bool may;
	} t[] = {
		{"0::/a/b\n", "max 100000\n", "max 100000\n", true},
		{"0::/a/b\n", "max 100000\n", "200000 100000\n", true},
		{"0::/a/b\n", "max 100000\n", "199999 100000\n", false},
		{"0::/a/b\n", "100000 100000\n", "max 100000\n", false},
		{"3:cpu:/c\n0::/a/b\n", "max 100000\n", "50000 100000\n", false},
		{"0::/\n", "100000 100000\n", "100000 100000\n", true},
		{"0::/a\n", "max 100000\n", "100000 100000\n", true},
		{"3:cpu:/a/b\n", "100000 100000\n", "100000 100000\n", true},
	};
	char dir[] = "/tmp/rattan-company-XXXXXX", path[128], self[128];

	if (!mkdtemp(dir))
		tap_fatal("mkdtemp: %m");
	(void)snprintf(self, sizeof(self), "%s/self", dir);
	ok(company_affordable(self, dir), "without groups both CPUs may be used");
	(void)snprintf(path, sizeof(path), "%s/a", dir);
	(void)mkdir(path, 0700);
	(void)snprintf(path, sizeof(path), "%s/a/b", dir);
	(void)mkdir(path, 0700);
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		put(dir, "self", t[i].self);
		put(dir, "a/cpu.max", t[i].above);
		put(dir, "a/b/cpu.max", t[i].own);
		ok(company_affordable(self, dir) == t[i].may, "quota %zu", i);
	}
	put(dir, "self", "0::/\n");
	put(dir, "cpu.max", "100000 100000\n");
	ok(!company_affordable(self, dir), "the topmost that is seen, in a namespace");
	tree_remove(dir);
}

int main(void)
{
	static struct company c;
	int cpus[2];

	test_affordable();
	if (keep_cpus(2, cpus)) {
		company_start(&c);
		ok(c.usable, "two CPUs are enough");
		test_beside(&c, cpus);
		test_follow(&c, cpus);
	}
	(void)keep_cpus(1, cpus);
	company_start(&c);
	ok(!c.usable, "one is none to spare");
	company_stop(&c);
	return tap_done();
}
