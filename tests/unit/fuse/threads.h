/*
 * tests/unit/fuse/threads.h - where threads of the calling process may run.
 */
#pragma once

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Run on the first @n CPUs from here on, which are put into @cpus; false: there are fewer. */
static inline bool keep_cpus(int n, int *cpus)
{
	cpu_set_t all, set;
	int got = 0;

	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return false;
	CPU_ZERO(&set);
	for (int i = 0; i < CPU_SETSIZE && got < n; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		CPU_SET(i, &set);
		cpus[got++] = i;
	}
	return got == n && sched_setaffinity(0, sizeof(set), &set) == 0;
}

/* The only CPU that the thread may run on; -1: there are more, or no such thread. */
static inline int only_cpu(int tid)
{
	cpu_set_t set;

	if (sched_getaffinity(tid, sizeof(set), &set) < 0 || CPU_COUNT(&set) != 1)
		return -1;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set))
			return i;
	return -1;
}

static inline bool thread_is_called(const char *tid, const char *name)
{
	char path[64], comm[32] = "";
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", tid);
	f = fopen(path, "re");
	if (!f)
		return false;
	(void)!fgets(comm, sizeof(comm), f);
	(void)fclose(f);
	comm[strcspn(comm, "\n")] = '\0';
	return !strcmp(comm, name);
}

/* Call @fn with each thread of that name until it says true; whether it did. */
static inline bool any_thread(const char *name, bool (*fn)(int tid, void *arg), void *arg)
{
	DIR *d = opendir("/proc/self/task");
	bool found = false;
	struct dirent *e;

	while (d && !found && (e = readdir(d)))
		found = isdigit((unsigned char)e->d_name[0]) && thread_is_called(e->d_name, name) &&
			fn((int)strtol(e->d_name, NULL, 10), arg);
	if (d)
		(void)closedir(d);
	return found;
}
