/* What the list of an import takes in: files of which a change would show the next time. */
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "fs/image/before.h"
#include "tests/lib/tap.h"

int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd)
{
	(void)fd;
	return 0;
}

/* The name that libc gives it for large files. */
int __wrap_fstatfs64(int fd, struct statfs *ret);
int __wrap_fstatfs64(int fd, struct statfs *ret)
{
	(void)fd;
	*ret = (struct statfs){.f_type = EXT4_SUPER_MAGIC};
	return 0;
}

#define MS 1000000LL

/* A file of device @dev whose attributes were last changed @ms before now. */
static struct stat file(dev_t dev, off_t size, long long ms)
{
	struct timespec now;
	long long ns;

	if (clock_gettime(CLOCK_REALTIME, &now) < 0)
		tap_fatal("clock");
	ns = now.tv_sec * 1000000000LL + now.tv_nsec - ms * MS;
	return (struct stat){
		.st_dev = dev,
		.st_ino = 7,
		.st_size = size,
		.st_ctim = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000},
	};
}

static bool is_listed(struct listed *l, const struct stat *st)
{
	size_t had = l->b.len;

	if (listed_add(l, "d/f", st) < 0)
		tap_fatal("listed_add");
	return l->b.len > had;
}

int main(void)
{
	struct stat dir = {.st_dev = 5}, st;
	struct listed l;

	if (listed_begin(&l, -1, "/src", &dir) < 0 || !l.on)
		tap_fatal("listed_begin");
	st = file(5, BEFORE_MIN, 60000);
	ok(is_listed(&l, &st), "a file that was changed a minute ago");
	st = file(5, BEFORE_MIN - 1, 60000);
	ok(!is_listed(&l, &st), "not a small one");
	st = file(6, BEFORE_MIN, 60000);
	ok(!is_listed(&l, &st), "nor one that is mounted there, of another file system");
	/* Stamped by whole seconds it may be changed again, a tick late, and keep its time. */
	st = file(5, BEFORE_MIN, 1020);
	ok(!is_listed(&l, &st), "nor one of a second ago");
	st = file(5, BEFORE_MIN, -1000);
	ok(!is_listed(&l, &st), "nor one of a second to come");
	listed_release(&l);
	return tap_done();
}
