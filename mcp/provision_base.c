/* What a base says about where its packages come from. */
#include <sys/types.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "mcp/provision.h"

#define FILE_MAX (1u << 20)

int provision_base_file(struct ctl *ctl, const char *path, struct buf *ret)
{
	cleanup_fd int fd = -1;
	uint32_t mode;
	char chunk[4096];
	ssize_t n = 0;
	int r = ctl_cat(ctl, "base", path, NULL, &fd, &mode);

	if (r == -ENOENT || r == -EISDIR || r == -ENOTDIR)
		return 0;
	ret->max = FILE_MAX;
	for (off_t at = 0; r == 0 && (n = pread(fd, chunk, sizeof(chunk), at)) > 0; at += n)
		r = buf_put(ret, chunk, (size_t)n);
	if (r == 0 && n < 0)
		r = ret_nerrno();
	if (r == 0)
		r = buf_put(ret, "", 1);
	return r < 0 ? r : 1;
}
