/* What a step has to touch, and nothing else: the times of what it names and of the directories around it, and
 * the log of changes. */
#include <time.h>

#include "tests/unit/core/model/model.h"

/* So long ago that a change now has another time. */
static bool old(const struct timespec *t)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (now.tv_sec - t->tv_sec) * 1000000000LL + now.tv_nsec - t->tv_nsec > TICK_NS;
}

static void touch_path(struct model *m, const char *p)
{
	struct touch *t = &m->touch[m->ntouch];

	if (m->ntouch == TOUCH_MAX)
		return;
	for (size_t i = 0; i < m->ntouch; i++)
		if (!strcmp(m->touch[i].path, p))
			return;
	snprintf(t->path, sizeof(t->path), "%s", p);
	t->both = fstatat(m->dirfd, *p ? p : ".", &t->model, AT_SYMLINK_NOFOLLOW) == 0 &&
		  fx_stat(&m->f, p, &t->ours) == 0;
	t->old_mtime = t->both && old(&t->model.st_mtim);
	t->old_ctime = t->both && old(&t->model.st_ctim);
	m->ntouch++;
}

void touch_before(struct model *m, const char *p)
{
	const char *slash = strrchr(p, '/');
	char dir[PATH_MAX] = "";

	touch_path(m, p);
	if (slash)
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - p), p);
	touch_path(m, dir);
}

static bool moved(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec || a->tv_nsec != b->tv_nsec;
}

static void touch_compare(struct model *m, const struct touch *t, const char *op, bool success)
{
	struct stat a = {0}, b = {0};
	char text[512];
	bool mt, ct;

	if (fstatat(m->dirfd, *t->path ? t->path : ".", &a, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fx_stat(&m->f, t->path, &b) < 0 || a.st_ino != t->model.st_ino ||
	    b.st_ino != t->ours.st_ino)
		return;
	mt = moved(&t->model.st_mtim, &a.st_mtim);
	ct = moved(&t->model.st_ctim, &a.st_ctim);
	if (!success && (mt || ct))
		return; /* somebody else's doing */
	if ((mt || t->old_mtime) && mt != moved(&t->ours.st_mtim, &b.st_mtim)) {
		snprintf(text, sizeof(text), "mtime of '%.200s' %s after %s", t->path,
			 mt ? "is the old one" : "has moved", op);
		bad(m, text);
	}
	if ((ct || t->old_ctime) && ct != moved(&t->ours.st_ctim, &b.st_ctim)) {
		snprintf(text, sizeof(text), "ctime of '%.200s' %s after %s", t->path,
			 ct ? "is the old one" : "has moved", op);
		bad(m, text);
	}
}

void touch_after(struct model *m, const char *op, bool success)
{
	for (size_t i = 0; i < m->ntouch; i++)
		if (m->touch[i].both)
			touch_compare(m, &m->touch[i], op, success);
	m->ntouch = 0;
}

void changes_before(struct model *m)
{
	struct ovl_counts n;

	ovl_counts(m->f.o, &n);
	m->token = n.changes;
	m->ntouch = 0;
}

struct wanted {
	const char *path;
	char what, got;
	bool print;
};

static int see_change(void *arg, const char *path, char what)
{
	struct wanted *w = arg;

	if (w->print)
		printf("#   %c %s\n", what, path);
	if (!strcmp(path, w->path))
		w->got = what;
	return 0;
}

/* A host file with several names, of which those that were ours are removed: it is known by none. */
static bool nowhere(struct model *m, store_ino ino)
{
	cleanup_buf struct buf b = {0};

	return m->host[0] && ovl_path(m->f.o, ino, &b) == -ESTALE;
}

void changes_after(struct model *m, const char *p)
{
	cleanup_buf struct buf b = {0};
	struct wanted w = {0};
	const char *name;
	struct stat st;
	store_ino dir;
	int r;

	w.what = fx_stat(&m->f, p, &st) == 0 ? 'c' : 'd';
	if (w.what == 'c' && !S_ISDIR(st.st_mode) && (st.st_nlink > 1 || nowhere(m, st.st_ino)))
		return; /* one of its names is told */
	if (fx_parent(&m->f, p, &dir, &name) < 0)
		return; /* the change was that of a directory on the way */
	r = ovl_path(m->f.o, dir, &b);
	ovl_forget(m->f.o, dir, 1);
	if (r == 0 && b.len > 1)
		r = buf_puts(&b, "/");
	if (r == 0)
		r = buf_puts(&b, name);
	if (r < 0) {
		bad(m, "a directory has no path");
		return;
	}
	w.path = (const char *)b.data;
	r = ovl_changes(m->f.o, m->token, see_change, &w);
	if (r == 0 && w.got == w.what)
		return;
	bad(m, "the change is not in the log");
	printf("# %d, want %c %s, have\n", r, w.what, w.path);
	w.print = true;
	(void)!ovl_changes(m->f.o, m->token, see_change, &w);
}
