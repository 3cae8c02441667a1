/* Which directories of the host an environment has been used with: a directory that is made anew at the path of one that was
 * removed is another, and what the environment holds of the first is none of its business.
 *
 * "env-NAME.dirs" in the data directory has for each "INODE SECONDS.NANOSECONDS PATH" and NUL, of the directory's birth (0.0 where the
 * file system knows none, and then nothing is said): inode numbers are given again, and device numbers change from one start of the machine to the next. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/env/env_internal.h"

#define DIRS_MAX (1 << 20)

struct known {
	uint64_t ino;
	int64_t sec;
	uint32_t nsec;
};

static int look_up(const char *host, struct known *ret)
{
	struct statx st;

	if (statx(AT_FDCWD, host, 0, STATX_INO | STATX_BTIME, &st) < 0)
		return ret_nerrno();
	*ret = (struct known){.ino = st.stx_ino};
	if (st.stx_mask & STATX_BTIME) {
		ret->sec = st.stx_btime.tv_sec;
		ret->nsec = st.stx_btime.tv_nsec;
	}
	return 0;
}

static const char *read_one(const char *s, struct known *ret)
{
	int n = 0;

	*ret = (struct known){0};
	return sscanf(s, "%" SCNu64 " %" SCNd64 ".%" SCNu32 "%n", &ret->ino, &ret->sec, &ret->nsec,
		      &n) == 3 &&
			       s[n] == ' '
		       ? s + n + 1
		       : NULL;
}

static bool is_asked(char *const *overlays, const char *host)
{
	for (size_t i = 0; overlays[i] && overlays[i + 1]; i += 2)
		if (!strcmp(overlays[i], host))
			return true;
	return false;
}

/* What is known of @host; false: nothing. */
static bool remembered(const struct buf *b, const char *host, struct known *ret)
{
	for (size_t at = 0; at < b->len; at += strlen((const char *)b->data + at) + 1) {
		const char *path = read_one((const char *)b->data + at, ret);

		if (path && !strcmp(path, host))
			return true;
	}
	return false;
}

static bool is_other(const struct known *was, const struct known *now)
{
	/* Without a birth the number may be one that the file system makes up anew at each mount. */
	bool born = (was->sec || was->nsec) && (now->sec || now->nsec);

	return born && (was->ino != now->ino || was->sec != now->sec || was->nsec != now->nsec);
}

static int put_one(struct buf *b, const struct known *k, const char *host)
{
	int r = buf_printf(b, "%" PRIu64 " %" PRId64 ".%" PRIu32 " ", k->ino, k->sec, k->nsec);

	return r < 0 ? r : buf_put(b, host, strlen(host) + 1);
}

/* @old without those that are asked for, and these as they are. */
static int put_all(const struct buf *old, char *const *overlays, struct buf *b)
{
	struct known k;
	int r = 0;

	for (size_t at = 0; r == 0 && at < old->len;) {
		const char *s = (const char *)old->data + at, *path = read_one(s, &k);

		if (path && !is_asked(overlays, path))
			r = put_one(b, &k, path);
		at += strlen(s) + 1;
	}
	for (size_t i = 0; r == 0 && overlays[i] && overlays[i + 1]; i += 2)
		if (look_up(overlays[i], &k) == 0)
			r = put_one(b, &k, overlays[i]);
	return r;
}

static int remember(const char *path, const struct buf *b)
{
	cleanup_free char *tmp = NULL;
	cleanup_fd int fd = -1;
	int r;

	if (asprintf(&tmp, "%s.new", path) < 0) {
		tmp = NULL;
		return -ENOMEM;
	}
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return ret_nerrno();
	r = io_write_full(fd, b->data, b->len);
	if (r == 0 && rename(tmp, path) < 0)
		r = ret_nerrno();
	if (r < 0)
		(void)unlink(tmp);
	return r;
}

/* Of the directory at @host another one was known. 0: that makes no difference, or the user says so. */
static int settle(struct env *e, const char *host, bool refuse, struct diag *diag,
		  struct diag *note)
{
	int r = env_untouched_locked(e);

	if (r < 0)
		return diag_set(diag, r, "cannot read the state: %s", err_text(r));
	if (r > 0)
		return 0;
	if (refuse)
		return diag_set(
			diag, -EEXIST,
			"environment \"%s\" was made for another directory at %s, which has been replaced "
			"since, and has changes or commits of that one: rattan env rm %s drops them, -e %s "
			"goes on with them here",
			e->rec.name, host, e->rec.name, e->rec.name);
	(void)diag_set(
		note, 0,
		"environment \"%s\" was made for another directory at %s, and goes on with this "
		"one",
		e->rec.name, host);
	return 0;
}

char *env_places_path(const char *data_dir, const char *name)
{
	char *path;

	return asprintf(&path, "%s/env-%s.dirs", data_dir, name) < 0 ? NULL : path;
}

int env_places_check_locked(struct env *e, char *const *overlays, bool refuse, struct diag *diag,
			    struct diag *note)
{
	cleanup_free char *path = env_places_path(e->data_dir, e->rec.name);
	cleanup_buf struct buf old = {0}, now = {0};
	struct known was, is;
	int r = path ? io_read_file(AT_FDCWD, path, DIRS_MAX, &old) : -ENOMEM;

	/* Without it all is as if nothing had been known, as of an environment of an earlier version. */
	if (r < 0 && r != -ENOENT)
		log_warn("%s: %s", path ? path : e->rec.name, err_text(r));
	/* Before anything is taken for known: all or none. */
	for (size_t i = 0; overlays[i] && overlays[i + 1]; i += 2) {
		if (look_up(overlays[i], &is) < 0 || !remembered(&old, overlays[i], &was) ||
		    !is_other(&was, &is))
			continue;
		r = settle(e, overlays[i], refuse, diag, note);
		if (r < 0)
			return r;
	}
	r = path ? put_all(&old, overlays, &now) : -ENOMEM;
	if (r == 0 && (now.len != old.len || (now.len && memcmp(now.data, old.data, now.len) != 0)))
		r = remember(path, &now);
	if (r < 0)
		log_warn("environment %s: its directories are not remembered: %s", e->rec.name,
			 err_text(r));
	return 0;
}
