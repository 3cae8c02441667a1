#include "mcp/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/ctl/ctl_client.h"

/*
 * First a table of temporary files, each a byte that says whether it is one, the environment and the path, with their NULs. Then
 * lines: "+ID TAB ENV TAB COMMAND", "-ID TAB HOW", "=" the orderly end, whose time is the file's.
 */
#define SLOTS    16
#define SLOT_LEN (1 + 65 + PATH_MAX)
#define LINES_AT (SLOTS * SLOT_LEN)
#define FILE_MAX (LINES_AT + (1 << 20))
#define ENDS_MAX (1 << 16) /* of FILE_MAX: for the ends of what was told */
#define KEPT     32
#define KEPT_S   (14 * 24 * 3600)
#define TOLD_S   (24 * 3600) /* of what was lost; asked for it, for longer */

struct record {
	const char *data_dir;
	uint32_t nonce;
	pthread_mutex_t lock;
	/* under lock */
	int fd;      /* -1: not made yet */
	bool failed; /* it cannot be made */
	off_t end;
	uint32_t busy; /* a bit for each slot */
};

int record_new(const char *data_dir, struct record **ret)
{
	struct record *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->data_dir = data_dir;
	/* Ids must not come again in the next process: a stale one would name another command. */
	if (getrandom(&r->nonce, sizeof(r->nonce), 0) != (ssize_t)sizeof(r->nonce))
		r->nonce = (uint32_t)io_now_ms() ^ ((uint32_t)getpid() << 16);
	r->fd = -1;
	r->end = LINES_AT;
	(void)pthread_mutex_init(&r->lock, NULL);
	*ret = r;
	return 0;
}

uint32_t record_nonce(const struct record *r)
{
	return r->nonce;
}

/* ---- the directory ---- */

static int open_dir(const struct record *r, bool make, int *ret_fd)
{
	cleanup_free char *data = NULL, *path = NULL;
	int e = 0;

	if (r->data_dir)
		data = strdup(r->data_dir);
	else
		e = ctl_data_dir(&data);
	if (e < 0 || !data)
		return e < 0 ? e : -ENOMEM;
	if (asprintf(&path, "%s/sessions", data) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (make)
		e = io_mkdir_p(path, 0700);
	if (e < 0)
		return e;
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return *ret_fd < 0 ? ret_nerrno() : 0;
}

static bool is_record(const char *name)
{
	return strlen(name) == 8 && strspn(name, "0123456789abcdef") == 8;
}

/* Of one whose process has ended; *ret_fd is locked, with LOCK_EX so that nobody else tends it meanwhile. -EWOULDBLOCK: it lives. */
static int open_ended(int dir, const char *name, int lock, int *ret_fd, struct stat *ret_st)
{
	cleanup_fd int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || flock(fd, lock | LOCK_NB) < 0 || fstat(fd, ret_st) < 0)
		return ret_nerrno();
	*ret_fd = steal_fd(&fd);
	return 0;
}

struct entry {
	char name[9];
	struct timespec changed;
};

static int newer(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->changed.tv_sec != y->changed.tv_sec)
		return x->changed.tv_sec < y->changed.tv_sec ? 1 : -1;
	return (x->changed.tv_nsec < y->changed.tv_nsec) -
	       (x->changed.tv_nsec > y->changed.tv_nsec);
}

/* Newest first; all when there are at most @max. */
static size_t entries(int dir, struct entry *ret, size_t max)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	struct stat st;
	size_t n = 0;

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
	while (n < max && (e = readdir(d))) {
		if (!is_record(e->d_name) || fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		memcpy(ret[n].name, e->d_name, sizeof(ret[n].name));
		ret[n++].changed = st.st_mtim;
	}
	qsort(ret, n, sizeof(*ret), newer);
	return n;
}

static void prune(int dir)
{
	struct entry all[4 * KEPT];
	size_t n = entries(dir, all, ARRAY_SIZE(all));
	time_t now = time(NULL);

	for (size_t i = 0; i < n; i++) {
		cleanup_fd int fd = -1;
		struct stat st;

		if ((i >= KEPT || now - all[i].changed.tv_sec > KEPT_S) &&
		    open_ended(dir, all[i].name, LOCK_EX, &fd, &st) == 0)
			(void)unlinkat(dir, all[i].name, 0);
	}
}

/* ---- writing ---- */

static bool ready_locked(struct record *r)
{
	cleanup_fd int dir = -1, fd = -1;
	char name[9];
	int e;

	if (r->fd >= 0 || r->failed)
		return r->fd >= 0;
	(void)snprintf(name, sizeof(name), "%08x", r->nonce);
	e = open_dir(r, true, &dir);
	if (e == 0) {
		prune(dir);
		fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		/* Who looks at the new file just now does not look for long. */
		if (fd < 0 || flock(fd, LOCK_EX) < 0)
			e = ret_nerrno();
	}
	r->failed = e < 0;
	if (e < 0)
		log_warn("no record of this session's jobs is kept: %s", err_text(e));
	else
		r->fd = steal_fd(&fd);
	return !r->failed;
}

static void put_at(const struct record *r, const char *p, size_t n, off_t at)
{
	while (n) {
		ssize_t k = pwrite(r->fd, p, n, at);

		if (k <= 0 && errno != EINTR)
			return; /* a full disk: it is not known then */
		if (k > 0) {
			p += k;
			n -= (size_t)k;
			at += k;
		}
	}
}

static bool put_line(struct record *r, const char *line)
{
	const off_t max = FILE_MAX - (*line == '+' ? ENDS_MAX : 0);
	size_t n = strlen(line);
	bool fits;

	(void)pthread_mutex_lock(&r->lock);
	fits = r->end + (off_t)n < max && ready_locked(r);
	if (fits) {
		put_at(r, line, n, r->end);
		r->end += (off_t)n;
	}
	(void)pthread_mutex_unlock(&r->lock);
	return fits;
}

/* What has a meaning in a line is a blank. */
static void one_field(const char *s, size_t max, char *ret)
{
	size_t n = strnlen(s, max);

	while (n && s[n] && ((unsigned char)s[n] & 0xc0) == 0x80)
		n--;
	for (size_t i = 0; i < n; i++)
		ret[i] = (unsigned char)s[i] < ' ' || s[i] == 0x7f ? ' ' : s[i];
	ret[n] = 0;
}

bool record_job(struct record *r, const char *id, const char *env, const char *command)
{
	char text[RECORD_COMMAND_MAX + 1], line[sizeof(text) + JOB_ID_MAX + 72];

	if (!r)
		return false;
	one_field(command, RECORD_COMMAND_MAX, text);
	(void)snprintf(line, sizeof(line), "+%s\t%s\t%s\n", id, env, text);
	return put_line(r, line);
}

void record_job_end(struct record *r, const char *id, const char *how)
{
	char text[RECORD_HOW_MAX], line[sizeof(text) + JOB_ID_MAX + 4];

	if (!r)
		return;
	one_field(how, sizeof(text) - 1, text);
	(void)snprintf(line, sizeof(line), "-%s\t%s\n", id, text);
	(void)put_line(r, line);
}

int record_temp(struct record *r, const char *env, const char *path)
{
	char slot[SLOT_LEN];
	size_t ne = strlen(env) + 1, np = strlen(path) + 1;
	int i = 0;

	if (!r || ne > 65 || np > PATH_MAX)
		return -1;
	memcpy(slot + 1, env, ne);
	memcpy(slot + 1 + ne, path, np);
	slot[0] = 1;
	(void)pthread_mutex_lock(&r->lock);
	while (i < SLOTS && r->busy & 1u << i)
		i++;
	if (i == SLOTS || !ready_locked(r)) {
		i = -1;
	} else {
		r->busy |= 1u << i;
		/* Whole before it counts. */
		put_at(r, slot + 1, ne + np, (off_t)i * SLOT_LEN + 1);
		put_at(r, slot, 1, (off_t)i * SLOT_LEN);
	}
	(void)pthread_mutex_unlock(&r->lock);
	return i;
}

void record_temp_done(struct record *r, int slot)
{
	if (!r || slot < 0)
		return;
	(void)pthread_mutex_lock(&r->lock);
	put_at(r, "", 1, (off_t)slot * SLOT_LEN);
	r->busy &= ~(1u << slot);
	(void)pthread_mutex_unlock(&r->lock);
}

/* Of a session that had nothing to say nothing is kept. */
static void drop(struct record *r)
{
	cleanup_fd int dir = -1;
	char name[9];

	(void)snprintf(name, sizeof(name), "%08x", r->nonce);
	if (open_dir(r, false, &dir) == 0)
		(void)unlinkat(dir, name, 0);
}

void record_free(struct record *r)
{
	if (!r)
		return;
	if (r->fd >= 0) {
		if (r->end == LINES_AT && !r->busy)
			drop(r);
		else
			(void)put_line(r, "=\n");
		(void)close(r->fd);
	}
	(void)pthread_mutex_destroy(&r->lock);
	free(r);
}

/* ---- reading ---- */

/* Calls @fn with each field of each line: the mark, the id, and what follows. Nonzero ends it. */
static void each_line(struct buf *b, int (*fn)(void *arg, char mark, char *id, char *a, char *rest),
		      void *arg)
{
	char *p = b->len > LINES_AT ? (char *)b->data + LINES_AT : NULL, *next;

	for (; p && (next = strchr(p, '\n')); p = next + 1) {
		char *a, *rest;

		*next = 0;
		a = strchr(p, '\t');
		if (a)
			*a++ = 0;
		rest = a ? strchr(a, '\t') : NULL;
		if (rest)
			*rest++ = 0;
		if (fn(arg, *p, p + (*p != 0), a ? a : next, rest ? rest : next))
			return;
	}
}

static int load(int dir, const char *name, struct buf *b)
{
	return io_read_file(dir, name, FILE_MAX + 4096, b);
}

static void copy(char *to, size_t size, const char *from)
{
	(void)snprintf(to, size, "%s", from);
}

struct find {
	const char *id;
	struct record_job *job;
	bool found, over;
};

static int find_line(void *arg, char mark, char *id, char *a, char *rest)
{
	struct find *f = arg;

	f->over |= mark == '=';
	if (strcmp(id, f->id) != 0)
		return 0;
	if (mark == '+') {
		f->found = true;
		copy(f->job->id, sizeof(f->job->id), id);
		copy(f->job->env, sizeof(f->job->env), a);
		copy(f->job->command, sizeof(f->job->command), rest);
	} else if (mark == '-') {
		copy(f->job->how, sizeof(f->job->how), a);
	}
	return 0;
}

bool record_find(struct record *r, const char *id, struct record_job *ret)
{
	cleanup_buf struct buf b = {0};
	cleanup_fd int dir = -1, fd = -1;
	const char *dash = strrchr(id, '-');
	struct find f = {.id = id, .job = ret};
	struct stat st;
	int e;

	*ret = (struct record_job){0};
	if (!r || !dash || !is_record(dash + 1) || open_dir(r, false, &dir) < 0)
		return false;
	e = open_ended(dir, dash + 1, LOCK_SH, &fd, &st);
	ret->lives = e == -EWOULDBLOCK;
	if ((e < 0 && !ret->lives) || load(dir, dash + 1, &b) < 0)
		return false;
	each_line(&b, find_line, &f);
	if (f.over)
		ret->ended = st.st_mtim.tv_sec;
	return f.found;
}

struct lost {
	const char *env;
	struct record_job *v;
	size_t n, max;
	bool over;
};

static int lost_line(void *arg, char mark, char *id, char *a, char *rest)
{
	struct lost *l = arg;

	l->over |= mark == '=';
	for (size_t i = 0; mark == '-' && i < l->n; i++)
		if (!strcmp(l->v[i].id, id)) {
			memmove(&l->v[i], &l->v[i + 1], (--l->n - i) * sizeof(*l->v));
			break;
		}
	if (mark != '+' || strcmp(a, l->env) != 0 || l->n == l->max)
		return 0;
	l->v[l->n] = (struct record_job){0};
	copy(l->v[l->n].id, sizeof(l->v->id), id);
	copy(l->v[l->n].env, sizeof(l->v->env), a);
	copy(l->v[l->n++].command, sizeof(l->v->command), rest);
	return 0;
}

size_t record_lost(struct record *r, const char *env, struct record_job *ret, size_t max)
{
	struct entry all[4 * KEPT];
	struct lost l = {.env = env, .v = ret, .max = max};
	const time_t now = time(NULL);
	cleanup_fd int dir = -1;
	size_t n;

	if (!r || open_dir(r, false, &dir) < 0)
		return 0;
	n = entries(dir, all, ARRAY_SIZE(all));
	for (size_t i = 0; i < n && !l.n; i++) {
		cleanup_buf struct buf b = {0};
		cleanup_fd int fd = -1;
		struct stat st;

		if (now - all[i].changed.tv_sec > TOLD_S ||
		    open_ended(dir, all[i].name, LOCK_SH, &fd, &st) < 0 ||
		    load(dir, all[i].name, &b) < 0)
			continue;
		l.over = false;
		each_line(&b, lost_line, &l);
		for (size_t k = 0; l.over && k < l.n; k++)
			ret[k].ended = st.st_mtim.tv_sec;
	}
	return l.n;
}

static void tend(int fd, const struct buf *b, const char *env,
		 bool (*fn)(void *arg, const char *path), void *arg)
{
	const size_t n = strlen(env) + 1;

	/* The file ends with the last slot that was used; a NUL is behind it. */
	for (size_t at = 0; at < LINES_AT && at + 1 + n < b->len; at += SLOT_LEN) {
		const char *p = (const char *)b->data + at, *path = p + 1 + n;

		if (*p == 1 && !memcmp(p + 1, env, n) && *path == '/' && fn(arg, path))
			(void)!pwrite(fd, "", 1, (off_t)at);
	}
}

void record_temps(struct record *r, const char *env, bool (*fn)(void *arg, const char *path),
		  void *arg)
{
	struct entry all[4 * KEPT];
	cleanup_fd int dir = -1;
	size_t n;

	if (!r || open_dir(r, false, &dir) < 0)
		return;
	n = entries(dir, all, ARRAY_SIZE(all));
	for (size_t i = 0; i < n; i++) {
		cleanup_buf struct buf b = {0};
		cleanup_fd int fd = -1;
		struct stat st;

		if (open_ended(dir, all[i].name, LOCK_EX, &fd, &st) == 0 &&
		    load(dir, all[i].name, &b) == 0)
			tend(fd, &b, env, fn, arg);
	}
}
