/* See fail.h. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/power/fail.h"

struct fail_shared *fail_share(const char *path, bool make)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
	void *p = MAP_FAILED;

	if (fd >= 0 && (!make || ftruncate(fd, sizeof(struct fail_shared)) == 0))
		p = mmap(NULL, sizeof(struct fail_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 0);
	if (fd >= 0)
		(void)close(fd);
	return p == MAP_FAILED ? NULL : p;
}
