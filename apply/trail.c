#include "apply/trail.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "apply/below.h"
#include "apply/record.h"
#include "base/cleanup.h"
#include "base/io.h"

#define TRAIL_MAX ((size_t)1 << 30)

void trail_release(struct trail *t)
{
	if (t->dir_fd >= 0)
		(void)close(t->dir_fd);
	if (t->fd >= 0)
		(void)close(t->fd);
	free(t->env);
	free(t->root);
	steps_release(&t->steps);
	trail_after_drop(t);
	free(t->after);
	*t = (struct trail){.dir_fd = -1, .fd = -1};
}

int trail_base(const char *data_dir, bool make, int *ret_fd)
{
	cleanup_free char *path = NULL;
	int fd;

	if (asprintf(&path, "%s/apply", data_dir) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return ret_nerrno();
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	*ret_fd = fd;
	return 0;
}

int trail_lock(int base_fd)
{
	int r;

	while ((r = flock(base_fd, LOCK_EX)) < 0 && errno == EINTR)
		;
	return r < 0 ? ret_nerrno() : 0;
}

static void name_of(uint64_t id, char ret[static 24])
{
	(void)snprintf(ret, 24, "%06llu", (unsigned long long)id);
}

static int by_id(const void *pa, const void *pb)
{
	const uint64_t *a = pa, *b = pb;

	return *a < *b ? -1 : *a > *b;
}

int trail_list(int base_fd, uint64_t **ret, size_t *ret_n)
{
	cleanup_fd int fd = openat(base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	cleanup_free uint64_t *v = NULL;
	size_t n = 0, cap = 0;

	if (!d)
		return ret_nerrno();
	(void)steal_fd(&fd);
	for (struct dirent *e; (e = readdir(d));) {
		char *end;
		uint64_t id = strtoull(e->d_name, &end, 10);

		if (!id || *end)
			continue;
		if (n == cap) {
			uint64_t *more = realloc(v, (cap = cap ? cap * 2 : 32) * sizeof(*v));

			if (!more)
				return -ENOMEM;
			v = more;
		}
		v[n++] = id;
	}
	if (n)
		qsort(v, n, sizeof(*v), by_id);
	*ret = steal_ptr(&v);
	*ret_n = n;
	return 0;
}

/* ---- writing ---- */

int trail_new(int base_fd, struct trail *ret)
{
	cleanup_free uint64_t *ids = NULL;
	char name[24];
	size_t n;
	int r = trail_list(base_fd, &ids, &n);

	*ret = (struct trail){.dir_fd = -1, .fd = -1};
	if (r < 0)
		return r;
	ret->id = n ? ids[n - 1] + 1 : 1;
	(void)clock_gettime(CLOCK_REALTIME, &ret->time);
	(void)snprintf(ret->stage, sizeof(ret->stage), ".rattan-apply-%llx-%llx-%x",
		       (unsigned long long)ret->id,
		       (unsigned long long)ret->time.tv_sec * 1000000 +
			       (unsigned long long)ret->time.tv_nsec / 1000,
		       (unsigned)getpid());
	name_of(ret->id, name);
	if (mkdirat(base_fd, name, 0700) < 0)
		return ret_nerrno();
	ret->dir_fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (ret->dir_fd >= 0)
		ret->fd = openat(ret->dir_fd, "journal",
				 O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	return ret->fd < 0 ? ret_nerrno() : 0;
}

static int write_out(struct trail *t, const struct buf *b)
{
	int r = io_write_full(t->fd, b->data, b->len);

	return r < 0 ? r : fsync(t->fd) < 0 ? ret_nerrno() : 0;
}

int trail_plan(struct trail *t)
{
	cleanup_buf struct buf b = {0};
	cleanup_fd int base = openat(t->dir_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = base < 0 ? ret_nerrno() : record_head(&b, t);

	for (size_t i = 0; r == 0 && i < t->steps.n; i++)
		r = record_step(&b, &t->steps.v[i]);
	if (r == 0)
		r = record_mark(&b, TRAIL_PLANNED);
	if (r == 0)
		r = write_out(t, &b);
	/* The names of file and directory. */
	if (r == 0 && (fsync(t->dir_fd) < 0 || fsync(base) < 0))
		r = ret_nerrno();
	if (r == 0)
		t->state = TRAIL_PLANNED;
	return r;
}

int trail_ready(struct trail *t)
{
	cleanup_buf struct buf b = {0};
	int r = 0;

	for (size_t i = 0; r == 0 && i < t->steps.n; i++)
		r = record_staged(&b, i, &t->steps.v[i]);
	if (r == 0)
		r = record_mark(&b, TRAIL_READY);
	if (r == 0)
		r = write_out(t, &b);
	if (r == 0)
		t->state = TRAIL_READY;
	return r;
}

static int open_again(struct trail *t)
{
	if (t->fd >= 0)
		return 0;
	t->fd = openat(t->dir_fd, "journal", O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
	return t->fd < 0 ? ret_nerrno() : 0;
}

static int end_with(struct trail *t, enum trail_state state)
{
	cleanup_buf struct buf b = {0};
	int r = open_again(t);

	for (size_t i = 0; r == 0 && i < t->nafter; i++)
		r = record_after(&b, &t->after[i]);
	if (r == 0)
		r = record_done(&b, &t->done_at);
	if (r == 0 && state != TRAIL_DONE)
		r = record_mark(&b, state);
	if (r == 0)
		r = write_out(t, &b);
	if (r == 0)
		t->state = state;
	return r;
}

int trail_done(struct trail *t)
{
	return end_with(t, TRAIL_DONE);
}

int trail_undone(struct trail *t)
{
	return end_with(t, TRAIL_UNDONE);
}

int trail_mark(struct trail *t, enum trail_state state)
{
	cleanup_buf struct buf b = {0};
	int r = record_mark(&b, state);

	if (r == 0)
		r = open_again(t);
	/* Nobody waits for a mark that only saves a look. */
	if (r == 0)
		r = state == TRAIL_CLEAN ? io_write_full(t->fd, b.data, b.len) : write_out(t, &b);
	if (r == 0 && state != TRAIL_CLEAN)
		t->state = state;
	return r;
}

int trail_after_add(struct trail *t, const char *path, const struct ident *id)
{
	if (t->nafter == t->after_cap) {
		size_t cap = t->after_cap ? t->after_cap * 2 : 64;
		struct after *more = realloc(t->after, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->after = more;
		t->after_cap = cap;
	}
	t->after[t->nafter] = (struct after){.path = strdup(path), .id = *id};
	return t->after[t->nafter].path ? (t->nafter++, 0) : -ENOMEM;
}

void trail_after_drop(struct trail *t)
{
	while (t->nafter > 0)
		free(t->after[--t->nafter].path);
}

/* ---- reading ---- */

/* The torn end of a killed run is cut off, so that what is added next can be read. */
static int read_records(struct trail *t)
{
	cleanup_buf struct buf b = {0};
	size_t at = 0;
	int r = io_read_file(t->dir_fd, "journal", TRAIL_MAX, &b);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	while ((r = record_read(&b, &at, t)) > 0)
		;
	if (r == 0 && at < b.len) {
		cleanup_fd int fd = openat(t->dir_fd, "journal", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0 || ftruncate(fd, (off_t)at) < 0)
			r = ret_nerrno();
	}
	return r;
}

int trail_load(int base_fd, uint64_t id, struct trail *ret)
{
	char name[24];
	int r;

	*ret = (struct trail){.id = id, .dir_fd = -1, .fd = -1};
	name_of(id, name);
	ret->dir_fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (ret->dir_fd < 0)
		return ret_nerrno();
	r = read_records(ret);
	ret->pruned = faccessat(ret->dir_fd, "old", F_OK, 0) < 0;
	return r;
}

int trail_remove(int base_fd, uint64_t id)
{
	char name[24];

	name_of(id, name);
	return below_remove(base_fd, name);
}

int trail_prune(const struct trail *t)
{
	return below_remove(t->dir_fd, "old");
}

int trail_old(const struct trail *t, bool make)
{
	int fd;

	if (make && mkdirat(t->dir_fd, "old", 0700) < 0 && errno != EEXIST)
		return ret_nerrno();
	fd = openat(t->dir_fd, "old", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? ret_nerrno() : fd;
}
