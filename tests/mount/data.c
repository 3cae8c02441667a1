/* Content: writing in every way there is, on both sides. */
#include <sys/mman.h>

#include "tests/mount/walk.h"

#define PAGE 4096u

/* At the edges of blocks, pages and small sizes, and anywhere. */
static off_t pick_off(struct walk *w)
{
	switch (rnd(w, 6)) {
	case 0:
		return 0;
	case 1:
		return (off_t)(131072u * (1 + rnd(w, 2)) + rnd(w, 5)) - 2;
	case 2:
		return (off_t)rnd(w, DATA_MAX);
	case 3:
		return (off_t)(PAGE * rnd(w, 70) + rnd(w, 3));
	default:
		return (off_t)rnd(w, 3000);
	}
}

static size_t pick_len(struct walk *w)
{
	switch (rnd(w, 8)) {
	case 0:
		return 1 + rnd(w, DATA_MAX - 1);
	case 1:
		return 131070u + rnd(w, 4);
	case 2:
		return PAGE;
	default:
		return 1 + rnd(w, 4000);
	}
}

static void fill(struct walk *w, size_t n)
{
	uint32_t kind = rnd(w, 4);
	uint64_t v = w->rnd;

	for (size_t i = 0; i < n; i++) {
		v = v * 6364136223846793005u + 1442695040888963407u;
		w->data[i] = (uint8_t)(kind == 0 ? 0 : kind == 1 ? 'x' : v >> 33);
	}
}

/* ---- reading, each way ---- */

static ssize_t read_direct(int dirfd_of, uint8_t *buf, size_t size)
{
	char link[40];
	uint8_t *p = mmap(NULL, 2 * DATA_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	ssize_t n;
	int fd;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd_of);
	fd = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (p == MAP_FAILED)
		die("mmap");
	n = fd < 0 ? -1 : pread(fd, p, (size + PAGE - 1) / PAGE * PAGE, 0);
	if (n > 0)
		memcpy(buf, p, (size_t)n < size ? (size_t)n : size);
	(void)munmap(p, 2 * DATA_MAX);
	if (fd >= 0)
		(void)close(fd);
	return n;
}

static ssize_t read_mapped(int fd, uint8_t *buf, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (p == MAP_FAILED)
		return -1;
	memcpy(buf, p, size);
	(void)munmap(p, size);
	return (ssize_t)size;
}

static ssize_t read_some(struct walk *w, int fd, uint8_t *buf, size_t size)
{
	uint32_t how = rnd(w, 6);

	if (size && how == 0)
		return read_direct(fd, buf, size);
	if (size && how == 1)
		return read_mapped(fd, buf, size);
	if (how == 2) { /* what is read then comes from the daemon */
		(void)fdatasync(fd);
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	return pread(fd, buf, 2 * DATA_MAX, 0);
}

void look_content(struct walk *w, const int fd[SIDES], const char *what)
{
	struct stat st;
	ssize_t n[SIDES];
	size_t at = 0;

	n[PLAIN] = pread(fd[PLAIN], w->got[PLAIN], sizeof(w->got[PLAIN]), 0);
	if (n[PLAIN] < 0 || fstat(fd[OURS], &st) < 0)
		return; /* not open for reading, on either side */
	if (st.st_size != n[PLAIN]) {
		bad(w, "%s: %lld bytes in the mount, %zd on the plain side", what,
		    (long long)st.st_size, n[PLAIN]);
		return;
	}
	n[OURS] = read_some(w, fd[OURS], w->got[OURS], (size_t)n[PLAIN]);
	if (n[OURS] != n[PLAIN]) {
		bad(w, "%s: reading gives %zd, not %zd: %s", what, n[OURS], n[PLAIN],
		    n[OURS] < 0 ? strerror(errno) : "");
		return;
	}
	while (at < (size_t)n[PLAIN] && w->got[OURS][at] == w->got[PLAIN][at])
		at++;
	if (at < (size_t)n[PLAIN])
		bad(w, "%s: byte %zu of %zd is %02x, not %02x", what, at, n[PLAIN],
		    w->got[OURS][at], w->got[PLAIN][at]);
}

/* ---- what is done with open files ---- */

static struct handle *any_handle(struct walk *w)
{
	struct handle *h = &w->handles[rnd(w, HANDLES)];

	return h->live ? h : NULL;
}

static void do_truncate(struct walk *w, struct handle *h)
{
	off_t size = pick_off(w);
	int r[SIDES];

	say(w, "  truncate %lld", (long long)size);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(ftruncate(h->fd[s], size));
	(void)agree(w, "truncate", r);
}

static void do_write(struct walk *w, struct handle *h)
{
	size_t n = pick_len(w);
	off_t off = pick_off(w);
	struct stat st;
	int r[SIDES];

	if (fstat(h->fd[PLAIN], &st) == 0 && st.st_size > (off_t)DATA_MAX) {
		do_truncate(w, h); /* by appending it would grow without end */
		return;
	}
	fill(w, n);
	say(w, "  write %zu at %lld", n, (long long)off);
	for (int s = 0; s < SIDES; s++) /* at the end, when it is open for appending */
		r[s] = sys(pwrite(h->fd[s], w->data, n, off));
	(void)agree(w, "write", r);
}

static void do_allocate(struct walk *w, struct handle *h)
{
	static const int modes[] = {0,
				    FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE,
				    FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
	int mode = modes[rnd(w, ARRAY_SIZE(modes))], r[SIDES];
	off_t off = pick_off(w), len = (off_t)pick_len(w);

	say(w, "  fallocate %x %lld %lld", (unsigned)mode, (long long)off, (long long)len);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(fallocate(h->fd[s], mode, off, len));
	(void)agree(w, "fallocate", r);
}

static void do_copy(struct walk *w, struct handle *h)
{
	struct handle *from = any_handle(w);
	off_t src = pick_off(w), dst = pick_off(w);
	size_t len = pick_len(w);
	int r[SIDES];

	if (!from)
		return;
	say(w, "  copy_file_range %zu from %td at %lld to %td at %lld", len, from - w->handles,
	    (long long)src, h - w->handles, (long long)dst);
	for (int s = 0; s < SIDES; s++) {
		off_t a = src, b = dst;
		size_t done = 0;

		do {
			ssize_t k = copy_file_range(from->fd[s], &a, h->fd[s], &b, len - done, 0);

			r[s] = done && k <= 0 ? 0 : sys(k);
			done += k > 0 ? (size_t)k : 0;
		} while (r[s] > 0 && done < len);
		r[s] = done ? (int)done : r[s];
	}
	(void)agree(w, "copy_file_range", r);
}

static void unmap(struct handle *h)
{
	for (int s = 0; s < SIDES; s++) {
		if (h->map[s])
			(void)munmap(h->map[s], h->map_len);
		h->map[s] = NULL;
	}
}

/* Stores through a mapping that stays, or goes. */
static void do_map(struct walk *w, struct handle *h)
{
	struct stat st;
	size_t off, n;

	if (fstat(h->fd[PLAIN], &st) < 0 || st.st_size == 0)
		return;
	if (!h->map[OURS]) {
		h->map_len = (size_t)st.st_size;
		for (int s = 0; s < SIDES; s++) {
			h->map[s] = mmap(NULL, h->map_len, PROT_READ | PROT_WRITE, MAP_SHARED,
					 h->fd[s], 0);
			if (h->map[s] == MAP_FAILED)
				h->map[s] = NULL;
		}
		if (!h->map[OURS] != !h->map[PLAIN])
			bad(w, "one side cannot be mapped");
		if (!h->map[OURS] || !h->map[PLAIN]) {
			unmap(h);
			return;
		}
	}
	off = rnd(w, (uint32_t)h->map_len);
	n = 1 + rnd(w, 9000);
	if (off >= (size_t)st.st_size) /* behind the end there is SIGBUS */
		return;
	if (n > (size_t)st.st_size - off)
		n = (size_t)st.st_size - off;
	if (n > h->map_len - off)
		n = h->map_len - off;
	fill(w, n);
	say(w, "  map %zu, %zu at %zu", h->map_len, n, off);
	for (int s = 0; s < SIDES; s++)
		memcpy(h->map[s] + off, w->data, n);
	if (rnd(w, 3) == 0 && msync(h->map[OURS], h->map_len, MS_SYNC) < 0)
		bad(w, "msync: %s", strerror(errno));
	if (rnd(w, 2))
		unmap(h);
}

static void do_sync(struct walk *w, struct handle *h)
{
	bool data = rnd(w, 2);
	int r[SIDES];

	say(w, "  fsync");
	for (int s = 0; s < SIDES; s++) /* EINVAL of a fifo */
		r[s] = sys(data ? fdatasync(h->fd[s]) : fsync(h->fd[s]));
	(void)agree(w, "fsync", r);
}

static void do_something(struct walk *w, struct handle *h)
{
	uint32_t k = rnd(w, 100);
	struct stat st[SIDES];

	if (k < 40)
		do_write(w, h);
	else if (k < 52)
		do_truncate(w, h);
	else if (k < 64)
		do_allocate(w, h);
	else if (k < 74)
		do_copy(w, h);
	else if (k < 92)
		do_map(w, h);
	else if (k < 95)
		do_sync(w, h);
	for (int s = 0; s < SIDES; s++)
		if (fstat(h->fd[s], &st[s]) < 0)
			die("fstat");
	if (st[OURS].st_mode != st[PLAIN].st_mode || st[OURS].st_nlink != st[PLAIN].st_nlink)
		bad(w, "an open file has mode %o and %u links, not %o and %u", st[OURS].st_mode,
		    (unsigned)st[OURS].st_nlink, st[PLAIN].st_mode, (unsigned)st[PLAIN].st_nlink);
	if (rnd(w, 4) == 0)
		look_content(w, h->fd, "an open file");
}

static void handle_close(struct handle *h)
{
	unmap(h);
	for (int s = 0; s < SIDES; s++)
		(void)close(h->fd[s]);
	h->live = false;
}

/* Opened by a step that succeeded on both sides: something is done with it, and it stays open or not. */
static void opened(struct walk *w, const int fd[SIDES])
{
	struct handle *h = &w->handles[rnd(w, HANDLES)];

	if (h->live)
		handle_close(h);
	*h = (struct handle){.fd = {fd[OURS], fd[PLAIN]}, .live = true};
	do_something(w, h);
	if (rnd(w, 3))
		handle_close(h);
}

static bool open_both(struct walk *w, const char *op, const char *p, int flags, mode_t mode)
{
	int r[SIDES];

	say(w, "%s %s flags %x", op, p, (unsigned)flags);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(openat(w->dir[s], p, flags | O_NONBLOCK | O_CLOEXEC, mode));
	if (r[OURS] >= 0 && r[PLAIN] >= 0) {
		opened(w, r);
		return true;
	}
	(void)agree(w, op, r);
	for (int s = 0; s < SIDES; s++)
		if (r[s] >= 0)
			(void)close(r[s]);
	return false;
}

/* ---- steps ---- */

void step_create(struct walk *w, const char *p)
{
	static const int flags[] = {O_EXCL, O_EXCL, 0, O_TRUNC, O_APPEND};
	mode_t mode = 0600 | rnd(w, 0200);

	(void)open_both(w, "create", p, O_CREAT | O_RDWR | flags[rnd(w, ARRAY_SIZE(flags))], mode);
	look_at(w, p);
}

void step_file(struct walk *w, const char *p)
{
	static const int flags[] = {O_RDWR, O_RDWR, O_RDWR | O_APPEND, O_RDONLY, O_RDWR | O_TRUNC};

	(void)open_both(w, "open", p, flags[rnd(w, ARRAY_SIZE(flags))], 0);
	look_at(w, p);
}

void step_handle(struct walk *w)
{
	struct handle *h = any_handle(w);

	if (!h)
		return;
	say(w, "handle %td", h - w->handles);
	do_something(w, h);
}

/* A file without a name, that gets one or not. */
void step_tmpfile(struct walk *w, const char *p)
{
	int fd[SIDES], r[SIDES];

	say(w, "tmpfile %s", p);
	for (int s = 0; s < SIDES; s++) {
		fd[s] = openat(w->dir[s], ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0640);
		if (fd[s] < 0)
			die("O_TMPFILE, side %d", s);
	}
	for (int s = 0; s < SIDES; s++) {
		char link[40];

		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd[s]);
		r[s] = sys(linkat(AT_FDCWD, link, w->dir[s], p, AT_SYMLINK_FOLLOW));
	}
	(void)agree(w, "link of a file without a name", r);
	opened(w, fd);
	look_at(w, p);
}

void handles_close(struct walk *w)
{
	for (size_t i = 0; i < HANDLES; i++)
		if (w->handles[i].live)
			handle_close(&w->handles[i]);
}
