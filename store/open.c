#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/mp.h"
#include "store/entry.h"
#include "store/guard.h"
#include "store/pages.h"
#include "store/proof.h"

#define LOCK_WORDS "rattan store lock, pid namespace "

static const char *const db_names[DB_COUNT] = {
	[DB_INODES] = "inodes",   [DB_NAMES] = "names",
	[DB_EXTENTS] = "extents", [DB_XATTRS] = "xattrs",
	[DB_LINKS] = "links",     [DB_LAYERS] = "layers",
	[DB_JOURNAL] = "journal", [DB_COMMITS] = "commits",
	[DB_REFS] = "refs",       [DB_COMMIT_INDEX] = "commit_index",
	[DB_ENVS] = "envs",       [DB_MOVES] = "moves",
	[DB_META] = "meta",       [DB_SMALL] = "small",
};

const char *store_db_name(enum store_db db)
{
	return (int)db == DB_CHUNKS ? "chunks" : db_names[db];
}

/* What stands in a data directory before anything in it is opened. */
enum dir_kind {
	DIR_EMPTY,
	DIR_UNFINISHED,
	DIR_STORE,
	DIR_FOREIGN
};

/* ---- looking before touching ---- */

static int dir_kind(int dirfd, enum dir_kind *ret)
{
	static const char *const ours[] = {"lock", "meta", "chunks", "format.new"};
	cleanup_dir DIR *d = NULL;
	bool lock = false, any = false, other = false;
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return ret_nerrno();
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		bool mine = false;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (!strcmp(e->d_name, "format")) {
			*ret = DIR_STORE;
			return 0;
		}
		/* who wants to make a store and says first that he is at it (docs/store-format.md) */
		if (!strncmp(e->d_name, "bootstrap.", 10))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
			mine = mine || !strcmp(e->d_name, ours[i]);
		any = true;
		lock = lock || !strcmp(e->d_name, "lock");
		other = other || !mine;
	}
	/* The lock file is the first thing that a creation makes, the format file the last. */
	*ret = !any ? DIR_EMPTY : lock && !other ? DIR_UNFINISHED : DIR_FOREIGN;
	return 0;
}

int store_format_check(int dirfd, const char *dir, struct diag *diag)
{
	cleanup_buf struct buf b = {0};
	unsigned long n;
	char *end;
	int r = io_read_file(dirfd, "format", 4096, &b);

	if (r < 0 && r != -EFBIG)
		return diag_set(diag, r, "cannot read '%s/format': %s", dir, err_text(r));
	if (r == 0 && b.len > strlen(STORE_FORMAT_WORDS) &&
	    !memcmp(b.data, STORE_FORMAT_WORDS, strlen(STORE_FORMAT_WORDS))) {
		n = strtoul((char *)b.data + strlen(STORE_FORMAT_WORDS), &end, 10);
		if (n && *end == '\n' && (n < STORE_FORMAT_READ || n > STORE_FORMAT))
			return diag_set(diag, -EPROTONOSUPPORT,
					"the store in '%s' has format %lu; this version of rattan "
					"reads formats %d to %d only: use another data directory, "
					"or the version that made it",
					dir, n, STORE_FORMAT_READ, STORE_FORMAT);
		if (n && *end == '\n')
			return 0;
	}
	return diag_set(diag, -EBADMSG, "'%s/format' is damaged: it does not name a store format",
			dir);
}

/* ---- one PID namespace ---- */

static int retry_flock(int fd, int op)
{
	int r;

	do
		r = flock(fd, op);
	while (r < 0 && errno == EINTR);
	return r < 0 ? ret_nerrno() : 0;
}

int store_in_use(const char *dir, struct diag *diag)
{
	return diag_set(
		diag, -EBUSY,
		"the store in '%s' is in use; it can be repaired when nothing uses it (rattan env "
		"list says what runs)",
		dir);
}

/*
 * LMDB tells dead readers and writers by pid, which means nothing to a process of another PID
 * namespace. All openers hold the lock file shared; the first one writes down its namespace. Called
 * with the directory flocked, so that nobody else is between the steps.
 */
static int lock_namespace(struct store *s, unsigned flags, struct diag *diag)
{
	char mine[80], theirs[80] = "";
	struct stat st;
	ssize_t n;
	int r;

	if (stat("/proc/self/ns/pid", &st) < 0) {
		r = ret_nerrno();
		return diag_set(diag, r, "cannot read /proc/self/ns/pid: %s; the store needs /proc",
				err_text(r));
	}
	(void)snprintf(mine, sizeof(mine), LOCK_WORDS "%llu\n", (unsigned long long)st.st_ino);
	s->lock_fd = openat(s->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock_fd < 0)
		goto fail;
	if (retry_flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0) {
		if (ftruncate(s->lock_fd, 0) < 0 ||
		    pwrite(s->lock_fd, mine, strlen(mine), 0) != (ssize_t)strlen(mine))
			goto fail;
		if (flags & STORE_ALONE)
			return 0;
	} else if (flags & STORE_ALONE) {
		return store_in_use(s->dir, diag);
	}
	r = retry_flock(s->lock_fd, LOCK_SH | LOCK_NB);
	if (r < 0)
		return diag_set(diag, r, "cannot lock '%s/lock': %s", s->dir, err_text(r));
	n = pread(s->lock_fd, theirs, sizeof(theirs) - 1, 0);
	if (n < 0)
		goto fail;
	if (strcmp(mine, theirs) != 0)
		return diag_set(diag, -EXDEV,
				"the store in '%s' is in use from another PID namespace (a "
				"container?); use another data directory there, or stop those "
				"processes",
				s->dir);
	return 0;
fail:
	r = ret_nerrno();
	return diag_set(diag, r, "cannot use '%s/lock': %s", s->dir, err_text(r));
}

/* ---- LMDB ---- */

/* Looks the database up in a tree of pages, which may be damaged. */
static int dbi_open(MDB_txn *t, const char *name, unsigned flags, MDB_dbi *ret)
{
	int rc = 0;

	GUARD_BEGIN(g)
	rc = mdb_dbi_open(t, name, flags, ret);
	GUARD_END(g, rc);
	return rc == -EBADMSG ? MDB_CORRUPTED : rc;
}

static int open_dbs(struct store *s, unsigned flags)
{
	MDB_txn *t;
	int rc = mdb_txn_begin(s->meta.env, NULL, flags ? 0 : MDB_RDONLY, &t);

	if (rc)
		return store_lm_err(rc);
	for (int i = 0; rc == 0 && i < DB_COUNT; i++)
		rc = dbi_open(t, db_names[i], flags, &s->db[i]);
	/* The handles of a read transaction live on only when it commits. */
	if (rc == 0)
		return store_lm_err(mdb_txn_commit(t));
	mdb_txn_abort(t);
	rc = store_lm_err(rc);
	return rc == -ENOENT ? -EBADMSG : rc;
}

static int open_chunk_db(struct store *s)
{
	MDB_txn *t;
	int rc = mdb_txn_begin(s->chunks.env, NULL, MDB_RDONLY, &t);

	if (rc)
		return store_lm_err(rc);
	rc = mdb_dbi_open(t, NULL, 0, &s->chunk_db);
	if (rc == 0)
		return store_lm_err(mdb_txn_commit(t));
	mdb_txn_abort(t);
	return store_lm_err(rc);
}

int store_super_encode(const struct store_super *sb, struct buf *b)
{
	int r = mp_put_map(b, 4);

	if (r == 0)
		r = mp_put_cstr(b, "block") ?: mp_put_uint(b, sb->block);
	if (r == 0)
		r = mp_put_cstr(b, "created") ?: mp_put_int(b, sb->created);
	if (r == 0)
		r = mp_put_cstr(b, "digest") ?: mp_put_cstr(b, sb->digest);
	if (r == 0)
		r = mp_put_cstr(b, "format") ?: mp_put_uint(b, sb->format);
	return r;
}

int store_super_decode(const MDB_val *v, struct store_super *ret)
{
	cleanup_buf struct buf b = {0};
	struct store_super sb = {0};
	struct mp_doc d = {0};
	const char *digest = NULL;
	size_t n = 0;
	int r = mp_parse(v->mv_data, v->mv_size, &d);

	if (r == 0)
		r = mp_as_uint(mp_get(&d.root, "format"), UINT32_MAX, &sb.format);
	if (r == 0)
		r = mp_as_uint(mp_get(&d.root, "block"), UINT32_MAX, &sb.block);
	if (r == 0)
		r = mp_as_int(mp_get(&d.root, "created"), &sb.created);
	if (r == 0)
		r = mp_as_str(mp_get(&d.root, "digest"), &digest, &n);
	if (r == 0 && n < sizeof(sb.digest))
		memcpy(sb.digest, digest, n);
	mp_release(&d);
	if (r == 0)
		r = store_super_encode(&sb, &b);
	if (r == 0 && !store_same_bytes(&b, v))
		r = -EBADMSG;
	if (r == 0)
		*ret = sb;
	return r == -ENOENT ? -EBADMSG : r;
}

static int check_superblock(struct store *s, struct diag *diag)
{
	cleanup_rd struct store_rd rd = {0};
	char name[] = "superblock";
	MDB_val k = {strlen(name), name}, v;
	struct store_super sb = {0};
	int r = store_rd_begin(s, &rd);

	if (r == 0)
		r = store_rd_get(&rd, DB_META, &k, &v);
	if (r == 0)
		r = store_super_decode(&v, &sb);
	if (r == -ENOENT || r == -EBADMSG)
		return diag_set(diag, -EBADMSG,
				"the superblock of the store in '%s' is damaged; run rattan fsck",
				s->dir);
	if (r < 0)
		return diag_set(diag, r, "cannot read the store in '%s': %s", s->dir, err_text(r));
	if (sb.format < STORE_FORMAT_READ || sb.format > STORE_FORMAT || sb.block != STORE_BLOCK ||
	    strcmp(sb.digest, STORE_DIGEST_NAME) != 0)
		return diag_set(diag, -EPROTONOSUPPORT,
				"the store in '%s' was made with format %llu, blocks of %llu bytes "
				"and digest %s, which this version of rattan does not read",
				s->dir, (unsigned long long)sb.format, (unsigned long long)sb.block,
				sb.digest);
	return 0;
}

/* Does the file end before pages that are in use? What is not written yet by a transaction that was not wanted after all is free
 * (pages.h). Writers may be at work, whose pages are not what they were when they are looked at: two looks at one snapshot decide. */
static int end_missing(struct store *s, const char *path, bool *ret)
{
	cleanup_pages struct pages *p = NULL;
	struct pages_snap a, b;
	int r = pages_open(s->dir_fd, path, &p);

	for (int tries = 0; r == 0 && tries < 100; tries++) {
		r = pages_begin(p, PAGES_NEWEST, &a);
		*ret = a.cut;
		if (r < 0 || !a.cut)
			break;
		r = pages_begin(p, PAGES_NEWEST, &b);
		*ret = b.cut;
		if (r < 0 || !b.cut || b.txn == a.txn)
			break;
	}
	return r;
}

/* LMDB reads through a map: a file cut short is a SIGBUS at some later read, unless it is noticed here. */
static int check_file(struct store *s, const char *path, MDB_env *env)
{
	MDB_envinfo info;
	MDB_stat ms;
	struct stat st;
	bool missing = true;
	int rc = mdb_env_info(env, &info), r;

	if (rc == 0)
		rc = mdb_env_stat(env, &ms);
	if (rc)
		return store_lm_err(rc);
	if (fstatat(s->dir_fd, path, &st, 0) < 0)
		return ret_nerrno();
	if ((uint64_t)st.st_size / ms.ms_psize > info.me_last_pgno)
		return 0;
	r = end_missing(s, path, &missing);
	return r == 0 && missing ? -EBADMSG : r;
}

/* LMDB believes what the first two pages say, a page size of nothing included. */
static int meta_pages_ok(struct store *s, const char *file)
{
	cleanup_pages struct pages *p = NULL;
	int r = pages_open(s->dir_fd, file, &p);

	return r == 0 && pages_meta_bad(p) ? -EBADMSG : r;
}

/* Of records, those beside the one that is wanted are wanted next: a directory's names, the inodes of what was made
 * together. Of chunks they are not, and those are not read through the map. */
static unsigned pool_flags(const struct store *s, const struct store_pool *p)
{
	return (s->rdonly ? MDB_RDONLY : 0) | (p == &s->chunks ? MDB_NORDAHEAD : 0);
}

static int open_env(struct store *s, struct store_pool *p, const char *sub, size_t map, bool fresh,
		    struct diag *diag)
{
	cleanup_free char *path = NULL;
	char file[32], lock[32];
	struct stat st;
	int r = 0;

	(void)snprintf(file, sizeof(file), "%s/data.mdb", sub);
	if (asprintf(&path, "%s/%s", s->dir, sub) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (fresh && mkdirat(s->dir_fd, sub, 0700) < 0 && errno != EEXIST)
		r = ret_nerrno();
	/* LMDB would make a missing or empty file anew, and the loss would look like an empty store. */
	if (r == 0 && !fresh && (fstatat(s->dir_fd, file, &st, 0) < 0 || st.st_size == 0))
		r = errno == EACCES ? -EACCES : -EBADMSG;
	if (r == 0 && !fresh)
		r = meta_pages_ok(s, file);
	(void)snprintf(lock, sizeof(lock), "%s/lock.mdb", sub);
	if (r == 0)
		store_map_room_lmdb(s, lock, STORE_LOCK_MAX);
	if (r == 0)
		r = store_pool_open(p, path, map, pool_flags(s, p));
	if (r == 0 && !fresh)
		r = check_file(s, file, p->env);
	if (r == -EBADMSG || r == -EPROTONOSUPPORT)
		return diag_set(
			diag, -EBADMSG,
			"'%s/data.mdb' is missing, cut short or damaged: rattan fsck tells more; "
			"restore it from a backup, or remove '%s' to start anew",
			path, s->dir);
	if (r < 0)
		return diag_set(diag, r, "cannot open '%s': %s%s", path, err_text(r),
				r == -ENOMEM ? " (is the address space limited, ulimit -v?)" : "");
	return 0;
}

/* ---- open and close ---- */

static int open_dir(struct store *s, unsigned flags, struct diag *diag)
{
	int r = 0;

	if (flags & STORE_CREATE)
		r = io_mkdir_p(s->dir, 0700);
	if (r == 0) {
		s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s->dir_fd < 0)
			r = ret_nerrno();
	}
	if (r == -ENOENT)
		return diag_set(diag, r, "there is no store in '%s'", s->dir);
	if (r == -ENOTDIR || r == -EEXIST)
		return diag_set(diag, -ENOTEMPTY, "'%s' is not a directory", s->dir);
	if (r < 0)
		return diag_set(diag, r, "cannot open the data directory '%s': %s", s->dir,
				err_text(r));
	return 0;
}

/* Decide whether there is a store, or room for one. *@ret_fresh: it is to be made. */
static int look(struct store *s, unsigned flags, bool *ret_fresh, struct diag *diag)
{
	enum dir_kind kind;
	int r = dir_kind(s->dir_fd, &kind);

	if (r < 0)
		return diag_set(diag, r, "cannot list the data directory '%s': %s", s->dir,
				err_text(r));
	if (kind == DIR_FOREIGN)
		return diag_set(
			diag, -ENOTEMPTY,
			"'%s' holds something that is not a store; choose an empty or a new "
			"directory",
			s->dir);
	*ret_fresh = kind != DIR_STORE;
	if (kind == DIR_STORE && flags & (STORE_BARE | STORE_ALONE))
		return 0;
	if (kind == DIR_STORE)
		return store_format_check(s->dir_fd, s->dir, diag);
	if (!(flags & STORE_CREATE) || (flags & STORE_RDONLY))
		return diag_set(diag, -ENOENT, "there is no store in '%s'", s->dir);
	return 0;
}

static int open_envs(struct store *s, const struct store_limits *lim, unsigned flags, bool fresh,
		     struct diag *diag)
{
	int r = open_env(s, &s->chunks, "chunks", lim->chunk_map, fresh, diag);

	if (r == 0)
		r = open_env(s, &s->meta, "meta", lim->meta_map, fresh, diag);
	if (r == 0 && flags & STORE_BARE)
		return 0;
	if (r == 0)
		r = open_dbs(s, fresh ? MDB_CREATE : 0);
	if (r == 0)
		r = open_chunk_db(s);
	if (r == 0 && fresh)
		r = store_create_superblock(s);
	if (r == 0 && !(flags & STORE_ALONE))
		r = check_superblock(s, diag);
	if (r == 0 && fresh)
		r = store_create_end(s);
	else if (r == 0 && !(flags & (STORE_RDONLY | STORE_ALONE)))
		r = store_format_raise(s->dir_fd);
	if (r < 0)
		return diag_set(
			diag, r,
			r == -EBADMSG ? "the store in '%s' is damaged (%s); rattan fsck tells more"
				      : "cannot open the store in '%s': %s",
			s->dir, err_text(r));
	return 0;
}

static int open_or_make(struct store *s, const struct store_limits *lim, unsigned flags, bool fresh,
			struct diag *diag)
{
	struct diag first = {0};
	int r = open_envs(s, lim, flags, fresh, fresh ? &first : diag);

	if (r == -EBADMSG && fresh && store_create_clear(s) == 0)
		return open_envs(s, lim, flags, fresh, diag);
	return r < 0 && fresh ? diag_set(diag, r, "%s", first.text) : r;
}

int store_open_limits(const char *dir, unsigned flags, const struct store_limits *lim,
		      struct diag *diag, struct store **ret)
{
	struct store *s = calloc(1, sizeof(*s));
	bool fresh = false;
	int r;

	if (!s)
		return -ENOMEM;
	digest_prepare();
	s->dir_fd = s->lock_fd = s->hold_fd = s->broken_fd = -1;
	s->rdonly = flags & STORE_RDONLY;
	s->dir = strdup(dir);
	r = s->dir ? proofs_new(&s->proofs) : -ENOMEM;
	if (r == 0)
		r = -pthread_mutex_init(&s->lock, NULL);
	if (r < 0) {
		proofs_free(s->proofs);
		free(s->dir);
		free(s);
		return r;
	}
	s->broken_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = s->broken_fd < 0 ? ret_nerrno() : open_dir(s, flags, diag);
	/* lmdb.h, Caveats: opening can fail while another process is opening or closing. */
	if (r == 0)
		r = retry_flock(s->dir_fd, LOCK_EX);
	if (r == 0)
		r = look(s, flags, &fresh, diag);
	if (r == 0)
		r = lock_namespace(s, flags, diag);
	if (r == 0)
		r = open_or_make(s, lim, flags, fresh, diag);
	if (s->dir_fd >= 0)
		(void)retry_flock(s->dir_fd, LOCK_UN);
	if (r < 0) {
		store_close(s);
		return diag_set(diag, r, "cannot open the store in '%s': %s", dir, err_text(r));
	}
	*ret = s;
	return 0;
}

int store_open(const char *dir, unsigned flags, struct diag *diag, struct store **ret)
{
	static const struct store_limits full = {STORE_MAP_SIZE, STORE_MAP_SIZE};

	return store_open_limits(dir, flags, &full, diag, ret);
}

void store_close(struct store *s)
{
	if (!s)
		return;
	if (s->dir_fd >= 0)
		(void)retry_flock(s->dir_fd, LOCK_EX);
	store_pool_close(&s->meta);
	store_pool_close(&s->chunks);
	store_anc_flush(s);
	store_fresh_free(s);
	store_seen_close(s);
	store_holds_close(s);
	if (s->lock_fd >= 0)
		(void)close(s->lock_fd);
	if (s->broken_fd >= 0)
		(void)close(s->broken_fd);
	if (s->dir_fd >= 0)
		(void)close(s->dir_fd);
	(void)pthread_mutex_destroy(&s->lock);
	proofs_free(s->proofs);
	free(s->dir);
	free(s);
}

/* ---- counters ---- */

int store_tx_count(struct store *s, MDB_txn *t, const char *name, uint64_t n, uint64_t *ret_first)
{
	MDB_val k = {strlen(name), (void *)(uintptr_t)name}, v;
	uint64_t first = 1;
	uint8_t b[8];
	int r = store_tx_get(s, t, DB_META, &k, &v);

	if (r == 0)
		r = store_num_decode(&v, &first);
	if (r < 0 && r != -ENOENT)
		return r;
	if (n > UINT64_MAX - first)
		return -ENOSPC;
	key_be64(b, first + n);
	v = (MDB_val){8, b};
	r = store_tx_put(s, t, DB_META, &k, &v, 0);
	if (r == 0)
		*ret_first = first;
	return r;
}

int store_reserve_inos(struct store *s, uint64_t n, store_ino *ret_first)
{
	cleanup_tx MDB_txn *t = NULL;
	uint64_t first;
	int r = store_tx_begin(s, &t);

	/* The counter starts at 1, what is handed out at STORE_FIRST_INO. */
	if (r == 0)
		r = store_tx_count(s, t, "next_ino", n, &first);
	if (r < 0)
		return r;
	first += STORE_FIRST_INO - 1;
	if (n > STORE_HOST_INO || first + n > STORE_HOST_INO)
		return -ENOSPC;
	r = store_tx_commit(s, &t);
	if (r == 0)
		*ret_first = first;
	return r;
}
