/* See fail.h. */
#include "tests/power/fail.h"

#include <dirent.h>
#include <errno.h>
#include <lmdb.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WRAP(type, name, args)   \
	type __real_##name args; \
	type __wrap_##name args; \
	type __wrap_##name args

static _Thread_local struct {
	bool armed, all;
	enum fail_what what;
	long after, hits;
	int err;
	const char *where;
} st;

void fail_arm(enum fail_what what, long after, int err, bool all)
{
	st.what = what;
	st.after = after;
	st.err = err;
	st.all = all;
	st.hits = 0;
	st.where = "";
	st.armed = true;
}

long fail_disarm(void)
{
	st.armed = false;
	return st.hits;
}

const char *fail_where(void)
{
	return st.where;
}

/* ---- for a whole process, by another one ---- */

static struct fail_shared *shared;

static __attribute__((constructor)) void find_shared(void)
{
	const char *path = getenv("RATTAN_FAIL");

	if (path)
		shared = fail_share(path, false);
}

static bool asked(const char *what, const char *name)
{
	struct fail_shared *f = shared;

	if (!f || !atomic_load(&f->armed) || (f->pid && f->pid != getpid()) ||
	    strcmp(f->what, what) != 0)
		return false;
	if (atomic_fetch_sub(&f->after, 1) > 0 || atomic_fetch_sub(&f->times, 1) <= 0)
		return false;
	if (atomic_fetch_add(&f->hits, 1) == 0)
		(void)snprintf(f->where, sizeof(f->where), "%s", name);
	errno = f->err;
	return true;
}

bool fail_asked(const char *name)
{
	return asked(name, name);
}

static bool now(enum fail_what what, const char *name)
{
	bool die = st.what == FAIL_DIE && what == FAIL_LMDB;

	if (what == FAIL_MEMORY && asked("memory", name))
		return true;
	if (!st.armed || (st.what != what && !die))
		return false;
	if (st.after > 0) {
		st.after--;
		return false;
	}
	if (die)
		(void)raise(SIGKILL);
	if (st.hits > 0 && !st.all)
		return false;
	if (st.hits++ == 0)
		st.where = name;
	errno = what == FAIL_MEMORY ? ENOMEM : st.err;
	return true;
}

/* ---- memory ---- */

#define MEMORY(type, name, args, call)       \
	WRAP(type, name, args)               \
	{                                    \
		if (now(FAIL_MEMORY, #name)) \
			return NULL;         \
		return __real_##name call;   \
	}

MEMORY(void *, malloc, (size_t n), (n))
MEMORY(void *, calloc, (size_t n, size_t size), (n, size))
MEMORY(void *, realloc, (void *p, size_t n), (p, n))
MEMORY(char *, strdup, (const char *s), (s))
MEMORY(char *, strndup, (const char *s, size_t n), (s, n))
MEMORY(void *, tsearch, (const void *k, void **root, __compar_fn_t f), (k, root, f))
MEMORY(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size))
MEMORY(void *, aligned_alloc, (size_t align, size_t n), (align, n))
MEMORY(char *, realpath, (const char *path, char *to), (path, to))
MEMORY(DIR *, opendir, (const char *path), (path))
MEMORY(DIR *, fdopendir, (int fd), (fd))
MEMORY(void *, ZSTD_createDCtx, (void), ())

/* Those that say it with another value. */
#define MEMORY_INT(type, name, args, call, failed) \
	WRAP(type, name, args)                     \
	{                                          \
		if (now(FAIL_MEMORY, #name))       \
			return failed;             \
		return __real_##name call;         \
	}

MEMORY_INT(void *, mmap64, (void *at, size_t n, int prot, int flags, int fd, off_t off),
	   (at, n, prot, flags, fd, off), MAP_FAILED)
MEMORY_INT(int, madvise, (void *p, size_t n, int advice), (p, n, advice), -1)
MEMORY_INT(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1)
MEMORY_INT(int, eventfd, (unsigned n, int flags), (n, flags), -1)
MEMORY_INT(int, vasprintf, (char **ret, const char *fmt, va_list ap), (ret, fmt, ap), -1)
MEMORY_INT(int, pthread_create,
	   (pthread_t * ret, const pthread_attr_t *attr, void *(*fn)(void *), void *arg),
	   (ret, attr, fn, arg), EAGAIN)

int __wrap_asprintf(char **ret, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) int __wrap_asprintf(char **ret, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (now(FAIL_MEMORY, "asprintf"))
		return -1;
	va_start(ap, fmt);
	n = __real_vasprintf(ret, fmt, ap);
	va_end(ap);
	return n;
}

/* ---- LMDB ---- */

#define LMDB(name, args, call)             \
	WRAP(int, name, args)              \
	{                                  \
		if (now(FAIL_LMDB, #name)) \
			return st.err;     \
		return __real_##name call; \
	}

LMDB(mdb_env_create, (MDB_env * *ret), (ret))
LMDB(mdb_env_open, (MDB_env * e, const char *p, unsigned f, mdb_mode_t m), (e, p, f, m))
LMDB(mdb_env_set_mapsize, (MDB_env * e, size_t n), (e, n))
LMDB(mdb_env_info, (MDB_env * e, MDB_envinfo *i), (e, i))
LMDB(mdb_env_stat, (MDB_env * e, MDB_stat *s), (e, s))
LMDB(mdb_env_sync, (MDB_env * e, int force), (e, force))
LMDB(mdb_env_get_fd, (MDB_env * e, mdb_filehandle_t *fd), (e, fd))
LMDB(mdb_reader_check, (MDB_env * e, int *dead), (e, dead))
LMDB(mdb_txn_begin, (MDB_env * e, MDB_txn *p, unsigned f, MDB_txn **ret), (e, p, f, ret))
LMDB(mdb_txn_renew, (MDB_txn * t), (t))
LMDB(mdb_dbi_open, (MDB_txn * t, const char *n, unsigned f, MDB_dbi *ret), (t, n, f, ret))
LMDB(mdb_stat, (MDB_txn * t, MDB_dbi d, MDB_stat *s), (t, d, s))
LMDB(mdb_get, (MDB_txn * t, MDB_dbi d, MDB_val *k, MDB_val *v), (t, d, k, v))
LMDB(mdb_put, (MDB_txn * t, MDB_dbi d, MDB_val *k, MDB_val *v, unsigned f), (t, d, k, v, f))
LMDB(mdb_del, (MDB_txn * t, MDB_dbi d, MDB_val *k, MDB_val *v), (t, d, k, v))
LMDB(mdb_cursor_open, (MDB_txn * t, MDB_dbi d, MDB_cursor **ret), (t, d, ret))
LMDB(mdb_cursor_renew, (MDB_txn * t, MDB_cursor *c), (t, c))
LMDB(mdb_cursor_get, (MDB_cursor * c, MDB_val *k, MDB_val *v, MDB_cursor_op op), (c, k, v, op))
LMDB(mdb_cursor_put, (MDB_cursor * c, MDB_val *k, MDB_val *v, unsigned f), (c, k, v, f))
LMDB(mdb_cursor_del, (MDB_cursor * c, unsigned f), (c, f))

/* A commit that fails has ended its transaction all the same. */
WRAP(int, mdb_txn_commit, (MDB_txn * t))
{
	if (now(FAIL_LMDB, "mdb_txn_commit")) {
		mdb_txn_abort(t);
		return st.err;
	}
	return __real_mdb_txn_commit(t);
}
