/* Making a store: so that after any end of it there is a store, or nothing that anybody was told of. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "store/entry.h"

int store_create_superblock(struct store *s)
{
	struct store_super sb = {STORE_FORMAT, STORE_BLOCK, time(NULL), STORE_DIGEST_NAME};
	cleanup_tx MDB_txn *t = NULL;
	cleanup_buf struct buf b = {0};
	char name[] = "superblock";
	MDB_val k = {strlen(name), name}, v;
	int r = store_super_encode(&sb, &b);

	if (r == 0)
		r = store_tx_begin(s, &t);
	if (r < 0)
		return r;
	v = (MDB_val){b.len, b.data};
	r = store_tx_put(s, t, DB_META, &k, &v, MDB_NOOVERWRITE);
	if (r == -EEXIST) /* an earlier creation came this far */
		return 0;
	return r < 0 ? r : store_tx_commit(s, &t);
}

static int sync_dir(int dirfd, const char *sub)
{
	cleanup_fd int fd = openat(dirfd, sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? ret_nerrno() : 0;
}

/* The directories on the way here may be as new as the store. Those that are not ours to read are old,
 * and a file system that cannot sync a directory cannot be helped. */
static void sync_above(int dirfd)
{
	cleanup_fd int fd = openat(dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st, up;

	while (fd >= 0 && fsync(fd) == 0 && fstat(fd, &st) == 0) {
		int next = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		(void)close(fd);
		fd = next;
		if (fd >= 0 && fstat(fd, &up) == 0 && up.st_ino == st.st_ino &&
		    up.st_dev == st.st_dev)
			return;
	}
}

static const char words[] = STORE_FORMAT_WORDS "4\n";
_Static_assert(STORE_FORMAT == 4, "words must say STORE_FORMAT");

static int write_format(int dirfd)
{
	cleanup_fd int fd =
		openat(dirfd, "format.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int r = fd < 0 ? ret_nerrno() : io_write_full(fd, words, sizeof(words) - 1);

	if (r == 0 && fsync(fd) < 0)
		r = ret_nerrno();
	if (r == 0 && renameat(dirfd, "format.new", dirfd, "format") < 0)
		r = ret_nerrno();
	if (r == 0 && fsync(dirfd) < 0)
		r = ret_nerrno();
	return r;
}

/* One digit, in its place: on a disk that is full there is no room for another file, and what would make room opens the store. */
static int overwrite_format(int dirfd)
{
	cleanup_fd int fd = openat(dirfd, "format", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	int r = fd < 0 ? ret_nerrno() : io_write_full(fd, words, sizeof(words) - 1);

	return r == 0 && fsync(fd) < 0 ? ret_nerrno() : r;
}

int store_format_raise(int dirfd)
{
	cleanup_buf struct buf b = {0};
	int r = io_read_file(dirfd, "format", 4096, &b);

	if (r < 0)
		return r;
	if (b.len == sizeof(words) - 1 && !memcmp(b.data, words, b.len))
		return 0;
	return b.len == sizeof(words) - 1 ? overwrite_format(dirfd) : write_format(dirfd);
}

/* Everything is made: what names the store comes last, when all that it stands for is on the disk. */
int store_create_end(struct store *s)
{
	int dirfd = s->dir_fd, r;

	/* LMDB writes the first pages of an environment without waiting for them. */
	r = store_lm_err(mdb_env_sync(s->chunks.env, 1));
	if (r == 0)
		r = store_lm_err(mdb_env_sync(s->meta.env, 1));
	if (r == 0)
		r = sync_dir(dirfd, "meta");
	if (r == 0)
		r = sync_dir(dirfd, "chunks");
	if (r == 0)
		r = write_format(dirfd);
	if (r == 0)
		sync_above(dirfd);
	return r;
}

/*
 * What a power loss left of a creation that nobody was told of may be anything. It is taken away when it
 * cannot be gone on with and is too small to hold somebody's files: a store whose format file alone was
 * lost must not be thrown away.
 */
#define UNFINISHED_MAX (256 << 10)

int store_create_clear(struct store *s)
{
	static const char *const files[] = {"meta/data.mdb", "meta/lock.mdb", "chunks/data.mdb",
					    "chunks/lock.mdb", "format.new"};
	struct stat st;

	store_pool_close(&s->meta);
	store_pool_close(&s->chunks);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (fstatat(s->dir_fd, files[i], &st, 0) == 0 && st.st_size > UNFINISHED_MAX)
			return -EBADMSG;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (unlinkat(s->dir_fd, files[i], 0) < 0 && errno != ENOENT)
			return ret_nerrno();
	return 0;
}
