/* tests/lib/fds.h - how many descriptors this process has: equal before and after what must leave none behind. */
#pragma once

#include <dirent.h>

/* The one that it is counted with is among them each time. */
static inline int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		(void)closedir(d);
	return n;
}
