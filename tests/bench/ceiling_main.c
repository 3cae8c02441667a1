/* The ceiling at a directory: `bench_ceiling DIR [THREADS]`, as root of some namespace; umount ends it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/bench/ceiling.h"

int main(int argc, char **argv)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct ceiling *c;
	char opts[128];

	if (argc < 2 || fd < 0) {
		(void)fprintf(stderr,
			      "usage: bench_ceiling DIR [THREADS], with access to /dev/fuse\n");
		return 2;
	}
	(void)snprintf(opts, sizeof(opts),
		       "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions", fd,
		       getuid(), getgid());
	if (mount("ceiling", argv[1], "fuse", MS_NOSUID | MS_NODEV, opts) < 0) {
		(void)fprintf(stderr, "bench_ceiling: mount: %m\n");
		return 1;
	}
	c = ceiling_start(fd, argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1);
	if (!c)
		return 1;
	ceiling_wait(c);
	return 0;
}
