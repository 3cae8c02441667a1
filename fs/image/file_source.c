/* The bytes of a file, or of standard input, for an archive's reader. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/image/image_internal.h"

#define PIECE   (256u << 10)
#define WAIT_MS 200

int file_source_open(struct file_source *f, const char *path, struct progress *p, struct diag *diag)
{
	struct stat st;

	*f = (struct file_source){.fd = STDIN_FILENO, .p = p, .owned = strcmp(path, "-") != 0};
	if (f->owned)
		f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (f->fd < 0 || fstat(f->fd, &st) < 0)
		return diag_set(diag, ret_nerrno(), "cannot open %s: %s", path, err_text(errno));
	if (S_ISDIR(st.st_mode))
		return diag_set(diag, -EISDIR,
				"%s is a directory; import dir takes one, import tar an archive",
				path);
	f->seekable = S_ISREG(st.st_mode);
	p->total = f->seekable ? (uint64_t)st.st_size : 0;
	f->buf = malloc(PIECE);
	return f->buf ? 0 : -ENOMEM;
}

void file_source_close(struct file_source *f)
{
	free(f->buf);
	if (f->owned)
		cleanup_fdp(&f->fd);
	*f = (struct file_source){.fd = -1};
}

/* Who writes the other end may take his time, and ours may have gone meanwhile. */
static int wait_bytes(struct file_source *f)
{
	struct pollfd p = {.fd = f->fd, .events = POLLIN};

	for (;;) {
		int r = poll(&p, 1, WAIT_MS);

		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return ret_nerrno();
		f->p->calls = 0;
		if (progress_stop(f->p))
			return -ECANCELED;
	}
}

static ssize_t on_read(void *arg, const void **ret)
{
	struct file_source *f = arg;

	for (;;) {
		int r = f->seekable ? 0 : wait_bytes(f);
		ssize_t n;

		if (progress_stop(f->p))
			r = -ECANCELED;
		if (r < 0)
			return r;
		n = read(f->fd, f->buf, PIECE);
		if (n >= 0) {
			f->p->done += (uint64_t)n;
			*ret = f->buf;
			return n;
		}
		if (errno != EINTR && errno != EAGAIN)
			return ret_nerrno();
	}
}

static int64_t on_skip(void *arg, int64_t n)
{
	struct file_source *f = arg;
	off_t at, end;

	if (!f->seekable)
		return 0;
	at = lseek(f->fd, 0, SEEK_CUR);
	end = (off_t)f->p->total;
	if (at < 0 || at >= end)
		return 0;
	if (n > end - at) /* cut short: the reader is to find that out */
		n = end - at;
	if (lseek(f->fd, n, SEEK_CUR) < 0)
		return 0;
	f->p->done += (uint64_t)n;
	return n;
}

struct byte_source file_source_bytes(struct file_source *f)
{
	return (struct byte_source){on_read, on_skip, f};
}
