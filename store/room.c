/* How much is there, and how much more could be. */
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store/store_internal.h"

#define NO_ROOM (1u << 20)

/* ---- when there is none ---- */

/* A file without a name, for a moment: what the system says to that is the reason. Who knows no such files is asked
 * for what is free, which knows nothing of the quotas of users. */
static int try_to_write(struct store *s)
{
	cleanup_fd int fd = openat(s->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct statvfs v;

	if (fd >= 0 && fallocate(fd, 0, 0, NO_ROOM) == 0)
		return 0;
	if (errno == ENOSPC || errno == EDQUOT)
		return ret_nerrno();
	return fstatvfs(s->dir_fd, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize < NO_ROOM ? -ENOSPC
											   : 0;
}

/* LMDB reports a short write as EIO ("which error code?" its source asks). */
int store_room_err(struct store *s)
{
	static const char *const files[] = {"meta/data.mdb", "chunks/data.mdb"};
	struct rlimit rl;
	struct stat st;

	if (getrlimit(RLIMIT_FSIZE, &rl) == 0 && rl.rlim_cur != RLIM_INFINITY)
		for (size_t i = 0; i < ARRAY_SIZE(files); i++)
			if (fstatat(s->dir_fd, files[i], &st, 0) == 0 &&
			    (uint64_t)st.st_size + NO_ROOM > rl.rlim_cur)
				return -ENOSPC;
	return try_to_write(s);
}

/* ---- files that are written to through a map ---- */

/* Where each write goes to a new place (btrfs), one to an old page needs room as well; that can be switched off while
 * a file is empty. */
static void write_in_place(int fd)
{
	unsigned flags = 0;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || flags & FS_NOCOW_FL)
		return;
	flags |= FS_NOCOW_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

int store_map_room(int fd, size_t n)
{
	write_in_place(fd);
	return -posix_fallocate(fd, 0, (off_t)n);
}

void store_map_room_lmdb(struct store *s, const char *file, size_t n)
{
	cleanup_fd int fd =
		openat(s->dir_fd, file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return;
	write_in_place(fd);
	(void)!fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)n);
}

/* ---- figures ---- */

/* What a quota leaves of @room. That of a project is in what the file system says is free. */
static void quota_room(struct store *s, int type, unsigned id, uint64_t *room)
{
	struct if_dqblk q = {0};
	uint64_t limit;

	if (syscall(SYS_quotactl_fd, s->dir_fd, QCMD((unsigned)Q_GETQUOTA, type), id, &q) < 0)
		return; /* an older kernel, or no quotas here */
	limit = q.dqb_bhardlimit;
	/* Beyond the soft limit for too long: it is as hard. */
	if (q.dqb_bsoftlimit && q.dqb_btime && (time_t)q.dqb_btime < time(NULL))
		limit = q.dqb_bsoftlimit;
	limit *= QIF_DQBLKSIZE;
	if (!limit)
		return;
	limit = limit > q.dqb_curspace ? limit - q.dqb_curspace : 0;
	if (*room > limit)
		*room = limit;
}

static int file_size(MDB_env *env, uint64_t *ret)
{
	struct stat st;
	int fd, r = store_lm_err(mdb_env_get_fd(env, &fd));

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	*ret = (uint64_t)st.st_blocks * 512;
	return 0;
}

static uint64_t pages(const MDB_stat *m)
{
	return (m->ms_branch_pages + m->ms_leaf_pages + m->ms_overflow_pages) * m->ms_psize;
}

/* How far the chunks' file may grow: as far as its map, and as files of this process may. */
static int growth(struct store *s, uint64_t *ret)
{
	MDB_envinfo info;
	struct rlimit rl;
	uint64_t size;
	MDB_stat st;
	int r = store_lm_err(mdb_env_info(s->chunks.env, &info));

	if (r == 0)
		r = store_lm_err(mdb_env_stat(s->chunks.env, &st));
	if (r < 0)
		return r;
	size = (info.me_last_pgno + 1) * st.ms_psize;
	*ret = info.me_mapsize > size ? info.me_mapsize - size : 0;
	if (getrlimit(RLIMIT_FSIZE, &rl) == 0 && rl.rlim_cur != RLIM_INFINITY &&
	    (rl.rlim_cur < size || rl.rlim_cur - size < *ret))
		*ret = rl.rlim_cur > size ? rl.rlim_cur - size : 0;
	return 0;
}

/* ---- what is new by us ---- */

/* store_written_share() may change which one it is while nobody else is here. */
static uint64_t *counter(const struct store *s)
{
	return s->written_at ? s->written_at : (uint64_t *)(uintptr_t)&s->written;
}

uint64_t store_written(const struct store *s)
{
	return __atomic_load_n(counter(s), __ATOMIC_RELAXED);
}

void store_written_add(struct store *s, int64_t n)
{
	uint64_t was = store_written(s), now;

	do
		now = n >= 0 ? was + (uint64_t)n : was > (uint64_t)-n ? was - (uint64_t)-n : 0;
	while (!__atomic_compare_exchange_n(counter(s), &was, now, true, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
}

void store_written_share(struct store *s, uint64_t *at)
{
	uint64_t n = store_written(s);

	if (!at)
		__atomic_store_n(&s->written, n, __ATOMIC_RELAXED);
	s->written_at = at;
	if (at)
		store_written_add(s, (int64_t)n);
}

int store_stats(struct store *s, struct store_stats *ret)
{
	cleanup_rd struct store_rd rd = {0};
	MDB_stat commits, layers, small, big, inodes;
	struct store_stats st = {0};
	struct statvfs vfs;
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_lm_err(mdb_stat(rd.r->txn, s->db[DB_COMMITS], &commits));
	if (r == 0)
		r = store_lm_err(mdb_stat(rd.r->txn, s->db[DB_LAYERS], &layers));
	if (r == 0)
		r = store_lm_err(mdb_stat(rd.r->txn, s->db[DB_SMALL], &small));
	if (r == 0)
		r = store_lm_err(mdb_stat(rd.r->txn, s->db[DB_INODES], &inodes));
	if (r == 0)
		r = growth(s, &st.room);
	if (r == 0)
		r = store_lm_err(mdb_env_stat(s->chunks.env, &big));
	if (r == 0)
		r = file_size(s->chunks.env, &st.chunk_file_bytes);
	if (r == 0)
		r = file_size(s->meta.env, &st.meta_file_bytes);
	if (r < 0)
		return r;
	if (fstatvfs(s->dir_fd, &vfs) < 0)
		return ret_nerrno();
	st.commits = commits.ms_entries;
	st.layers = layers.ms_entries;
	st.chunks = small.ms_entries + big.ms_entries;
	st.chunk_bytes = pages(&small) + pages(&big);
	st.inodes = inodes.ms_entries;
	st.disk_size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	st.disk_free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	if (st.room > st.disk_free)
		st.room = st.disk_free;
	quota_room(s, USRQUOTA, geteuid(), &st.room);
	quota_room(s, GRPQUOTA, getegid(), &st.room);
	*ret = st;
	return 0;
}
