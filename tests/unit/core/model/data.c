/* The content of files, by name and of such as are held open, with a name or without. */
#include <linux/falloc.h>

#include "tests/unit/core/model/model.h"

/* The same regular file on both sides; false when there is none. */
static bool open_both(struct model *m, const char *p, int *ret_fd, store_ino *ret)
{
	struct ovl_entry e;
	struct stat st;
	int a = sys(fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW)), b = fx_get(&m->f, p, &e);

	if (!agree(m, "stat", a, b)) {
		if (b == 0)
			ovl_forget(m->f.o, e.ino, 1);
		return false;
	}
	if ((st.st_mode & S_IFMT) != (e.attr.st.st_mode & S_IFMT))
		bad(m, "other type");
	if (!S_ISREG(st.st_mode) || !S_ISREG(e.attr.st.st_mode)) {
		ovl_forget(m->f.o, e.ino, 1);
		return false;
	}
	*ret_fd = openat(m->dirfd, p, O_RDWR | O_CLOEXEC);
	if (*ret_fd < 0)
		tap_fatal("open of the model: %s", err_text(errno));
	*ret = e.ino;
	return true;
}

static void write_fd(struct model *m, int fd, store_ino ino)
{
	uint64_t off = pick_off(m);
	size_t n = pick_len(m);

	say(m, "write %zu at %llu of %s", n, (unsigned long long)off, m->last);
	fill(m, n);
	if (pwrite(fd, m->data, n, (off_t)off) != (ssize_t)n)
		tap_fatal("write to the model: %s", err_text(errno));
	if (ovl_write(m->f.o, ino, off, m->data, n, false) != (ssize_t)n)
		bad(m, "write");
}

static void alloc_fd(struct model *m, int fd, store_ino ino)
{
	static const int modes[] = {0,
				    FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE};
	int mode = modes[rnd(m, ARRAY_SIZE(modes))];
	uint64_t off = pick_off(m), n = pick_len(m);
	int r = sys(fallocate(fd, mode, (off_t)off, (off_t)n));

	say(m, "fallocate %d %llu+%llu of %s", mode, (unsigned long long)off, (unsigned long long)n,
	    m->last);
	if (r == -EOPNOTSUPP)
		return; /* the model's file system cannot: tmpfs and ZERO_RANGE */
	agree(m, "fallocate", r, ovl_fallocate(m->f.o, ino, mode, off, n));
}

static void read_fd(struct model *m, int fd, store_ino ino)
{
	uint64_t off = pick_off(m);
	size_t n = pick_len(m);
	ssize_t a = pread(fd, m->data, n, (off_t)off), b = ovl_read(m->f.o, ino, off, m->got, n);

	say(m, "read %zu at %llu of %s", n, (unsigned long long)off, m->last);
	if (a != b || (a > 0 && memcmp(m->data, m->got, (size_t)a) != 0))
		bad(m, "read differs");
}

static void truncate_fd(struct model *m, int fd, store_ino ino)
{
	struct stat st = {.st_size = (off_t)pick_off(m)};
	struct ovl_attr a;

	say(m, "truncate to %lld of %s", (long long)st.st_size, m->last);
	if (agree(m, "truncate", sys(ftruncate(fd, st.st_size)),
		  ovl_setattr(m->f.o, ino, &st, OVL_SET_SIZE, &a)) &&
	    a.st.st_size != st.st_size)
		bad(m, "truncate answers another size");
}

static void copy_fd(struct model *m, int fd, store_ino ino)
{
	uint64_t off_in = pick_off(m), off_out = pick_off(m);
	size_t n = pick_len(m);
	char q[PATH_MAX], from[sizeof(m->last)];
	store_ino to;
	ssize_t a, b;
	int out;

	if (rnd(m, 3) == 0) { /* what can be shared, and what nearly can */
		off_in = (uint64_t)rnd(m, 3) * STORE_BLOCK;
		off_out = (uint64_t)rnd(m, 3) * STORE_BLOCK;
		n = (1 + rnd(m, 2)) * STORE_BLOCK + rnd(m, 3) - 1;
	}
	memcpy(from, m->last, sizeof(from));
	pick_there(m, S_IFREG, q);
	if (!open_both(m, q, &out, &to))
		return;
	say(m, "copy %zu from %llu of %s to %llu of %s", n, (unsigned long long)off_in, from,
	    (unsigned long long)off_out, q);
	a = pread(fd, m->data, n, (off_t)off_in);
	if (to == ino && off_in < off_out + n && off_out < off_in + n) {
		a = -EINVAL;
	} else if (a > 0 && pwrite(out, m->data, (size_t)a, (off_t)off_out) != a) {
		tap_fatal("copy in the model");
	}
	b = ovl_copy_range(m->f.o, ino, off_in, to, off_out, n);
	if (a != b)
		bad(m, "copy_range count");
	else
		agree(m, "copy", 0, 0);
	(void)close(out);
	ovl_forget(m->f.o, to, 1);
}

/* [from, to) of the model reads as zeros. */
static bool zeros(struct model *m, int fd, uint64_t from, uint64_t to)
{
	while (from < to) {
		size_t want = to - from < DATA_MAX ? (size_t)(to - from) : DATA_MAX;
		ssize_t n = pread(fd, m->data, want, (off_t)from);

		if (n <= 0)
			return n == 0;
		for (ssize_t i = 0; i < n; i++)
			if (m->data[i])
				return false;
		from += (uint64_t)n;
	}
	return true;
}

/* Which zeros are holes is everybody's own choice; but no byte may lie in a hole, and the ways from data to
 * hole and on must lead to the end. */
static void seek_fd(struct model *m, int fd, store_ino ino)
{
	struct stat st;
	int64_t off = 0, data, hole;

	say(m, "seek through %s", m->last);
	if (fstat(fd, &st) < 0)
		tap_fatal("fstat");
	while (off < st.st_size) {
		data = ovl_lseek(m->f.o, ino, off, SEEK_DATA);
		if (data == -ENXIO) {
			if (!zeros(m, fd, (uint64_t)off, (uint64_t)st.st_size))
				bad(m, "bytes in the hole at the end");
			break;
		}
		if (data < off || data >= st.st_size) {
			bad(m, "SEEK_DATA leads nowhere");
			return;
		}
		if (!zeros(m, fd, (uint64_t)off, (uint64_t)data))
			bad(m, "bytes in a hole");
		hole = ovl_lseek(m->f.o, ino, data, SEEK_HOLE);
		if (hole <= data || hole > st.st_size) {
			printf("# size %lld off %lld data %lld hole %lld\n", (long long)st.st_size,
			       (long long)off, (long long)data, (long long)hole);
			bad(m, "SEEK_HOLE leads nowhere");
			return;
		}
		off = hole;
	}
	if (ovl_lseek(m->f.o, ino, st.st_size, SEEK_DATA) != -ENXIO)
		bad(m, "data behind the end");
	agree(m, "seek", 0, 0);
}

static void on_fd(struct model *m, int fd, store_ino ino)
{
	struct ovl_attr a;
	struct stat st;

	switch (rnd(m, 9)) {
	case 0:
		alloc_fd(m, fd, ino);
		break;
	case 1:
		truncate_fd(m, fd, ino);
		break;
	case 2:
		copy_fd(m, fd, ino);
		break;
	case 3:
		read_fd(m, fd, ino);
		break;
	case 4:
		seek_fd(m, fd, ino);
		break;
	default:
		write_fd(m, fd, ino);
	}
	if (fstat(fd, &st) < 0 || ovl_getattr(m->f.o, ino, &a) < 0 || st.st_size != a.st.st_size)
		bad(m, "size differs");
}

void op_file(struct model *m, const char *p)
{
	store_ino ino;
	int fd;

	touch_before(m, p);
	if (!open_both(m, p, &fd, &ino))
		return;
	on_fd(m, fd, ino);
	if (!strncmp(m->last, "write", 5) || !strncmp(m->last, "truncate", 8)) {
		touch_after(m, "write", true);
		if (!strncmp(m->last, "write", 5))
			changes_after(m, p);
	}
	if (rnd(m, 4) == 0) {
		struct opened *o = &m->open[rnd(m, OPEN_MAX)];

		if (!o->live) {
			*o = (struct opened){.ino = ino, .fd = fd, .live = true};
			return;
		}
	}
	(void)close(fd);
	ovl_forget(m->f.o, ino, 1);
}

void compare_content(struct model *m, int fd, store_ino ino, uint64_t size)
{
	for (uint64_t off = 0; off < size; off += DATA_MAX) {
		ssize_t a = pread(fd, m->data, DATA_MAX, (off_t)off);
		ssize_t b = ovl_read(m->f.o, ino, off, m->got, DATA_MAX);

		if (a != b || (a > 0 && memcmp(m->data, m->got, (size_t)a) != 0)) {
			bad(m, "content differs");
			return;
		}
	}
}

static void close_opened(struct model *m, struct opened *o)
{
	struct ovl_attr a;
	struct stat st;
	int r;

	if (!o->live)
		return;
	r = ovl_getattr(m->f.o, o->ino, &a);
	if (r < 0 || fstat(o->fd, &st) < 0 || st.st_size != a.st.st_size ||
	    st.st_nlink != a.st.st_nlink || st.st_mode != a.st.st_mode)
		bad(m, "open file differs");
	else
		compare_content(m, o->fd, o->ino, (uint64_t)st.st_size);
	(void)close(o->fd);
	ovl_forget(m->f.o, o->ino, 1);
	o->live = false;
}

void close_twins(struct model *m)
{
	for (size_t i = 0; i < OPEN_MAX; i++)
		for (size_t k = 0; k < i; k++)
			if (m->open[k].live && m->open[k].ino == m->open[i].ino)
				close_opened(m, &m->open[i]);
}

void close_all(struct model *m)
{
	for (size_t i = 0; i < OPEN_MAX; i++)
		close_opened(m, &m->open[i]);
}

/* A name for what was made without one; ENOENT for what lost its last. */
static void link_opened(struct model *m, struct opened *o)
{
	char q[PATH_MAX], fd[64];
	struct ovl_entry e;
	const char *name;
	store_ino dir;
	int a, b;

	pick_new(m, q);
	say(m, "link of open file %d -> %s", (int)(o - m->open), q);
	snprintf(fd, sizeof(fd), "/proc/self/fd/%d", o->fd);
	a = sys(linkat(AT_FDCWD, fd, m->dirfd, q, AT_SYMLINK_FOLLOW));
	b = fx_parent(&m->f, q, &dir, &name);
	if (b == 0) {
		b = ovl_link(m->f.o, o->ino, dir, name, &e);
		if (b == 0)
			ovl_forget(m->f.o, e.ino, 1);
		ovl_forget(m->f.o, dir, 1);
	}
	agree(m, "link of an open file", a, b);
	compare_near(m, q);
}

void op_opened(struct model *m)
{
	struct opened *o = &m->open[rnd(m, OPEN_MAX)];
	uint32_t k = rnd(m, 8);

	if (!o->live)
		return;
	say(m, "open file %d", (int)(o - m->open));
	if (k == 0)
		link_opened(m, o);
	else if (k < 3)
		close_opened(m, o);
	else
		on_fd(m, o->fd, o->ino);
}

void op_tmpfile(struct model *m, const char *p)
{
	struct opened *o = &m->open[rnd(m, OPEN_MAX)];
	mode_t mode = 0600 | rnd(m, 0200);
	struct ovl_cred c = fx_cred();
	struct ovl_entry e;
	struct stat st;
	int fd, b;

	if (!m->tmpfiles || o->live || fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(st.st_mode))
		return;
	say(m, "tmpfile in %s %o", p, mode);
	fd = openat(m->dirfd, p, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
	b = fx_get(&m->f, p, &e);
	if (b == 0) {
		store_ino dir = e.ino;

		b = ovl_tmpfile(m->f.o, dir, mode, &c, &e);
		ovl_forget(m->f.o, dir, 1);
	}
	if (agree(m, "tmpfile", sys(fd), b))
		*o = (struct opened){.ino = e.ino, .fd = fd, .live = true};
	else if (fd >= 0)
		(void)close(fd);
}
