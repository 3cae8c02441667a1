/* stage3/root_path.h - the file that a caught call means (root_calls.h), as its caller sees it and we would not. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define ROOT_PATH 4096
#define PROC_ROOM 64

/* Who made a call that was caught. */
struct root_people;

struct root_caller {
	uint32_t pid;
	int listener; /* by which it was caught */
	uint64_t id;
	struct root_people *people; /* root_who.h; of init's */
};

/* A descriptor of O_PATH; -1: not to be had, or the caller is gone: the kernel says why. @dir: AT_FDCWD or the caller's descriptor, where
 * relative paths begin; @path "": @dir itself. @flags: O_NOFOLLOW, O_DIRECTORY. */
int root_open(const struct root_caller *c, int dir, const char path[static ROOT_PATH], int flags);
/* Is its descriptor @fd one of O_PATH? */
bool root_path_only(const struct root_caller *c, int fd);
