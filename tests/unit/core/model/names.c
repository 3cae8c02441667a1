/* Operations on names. */
#include <linux/fs.h>

#include "tests/unit/core/model/model.h"

static void named(struct model *m, const char *op, const char *p, int model, int ours)
{
	bool done = agree(m, op, model, ours);

	touch_after(m, op, done);
	if (done)
		changes_after(m, p);
	compare_near(m, p);
}

void op_create(struct model *m, const char *p)
{
	mode_t mode = 0600 | rnd(m, 0200);
	int fd, r;

	touch_before(m, p);
	if (rnd(m, 8) == 0) {
		say(m, "mkfifo %s", p);
		named(m, "mkfifo", p, sys(mkfifoat(m->dirfd, p, mode)),
		      fx_make(&m->f, p, FX_FIFO, mode));
		return;
	}
	say(m, "create %s %o", p, mode);
	fd = openat(m->dirfd, p, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
	r = sys(fd);
	if (fd >= 0)
		(void)close(fd);
	named(m, "create", p, r, fx_make(&m->f, p, FX_FILE, mode));
}

void op_mkdir(struct model *m, const char *p)
{
	mode_t mode = 0700 | rnd(m, 0100);

	say(m, "mkdir %s %o", p, mode);
	touch_before(m, p);
	named(m, "mkdir", p, sys(mkdirat(m->dirfd, p, mode)), fx_make(&m->f, p, FX_DIR, mode));
}

void op_symlink(struct model *m, const char *p)
{
	const char *t = pick_target(m);

	say(m, "symlink %s -> %s", p, t);
	touch_before(m, p);
	named(m, "symlink", p, sys(symlinkat(t, m->dirfd, p)), fx_symlink(&m->f, t, p));
}

void op_remove(struct model *m, const char *p)
{
	struct stat st;
	bool dir = rnd(m, 2);

	if (rnd(m, 8) && fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW) == 0)
		dir = S_ISDIR(st.st_mode);
	say(m, "%s %s", dir ? "rmdir" : "unlink", p);
	touch_before(m, p);
	named(m, dir ? "rmdir" : "unlink", p, sys(unlinkat(m->dirfd, p, dir ? AT_REMOVEDIR : 0)),
	      fx_remove(&m->f, p, dir));
}

/* rm -r on both sides, name by name. */
void op_rmtree(struct model *m, const char *p)
{
	char q[PATH_MAX];
	struct stat st;

	if (fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	while (S_ISDIR(st.st_mode)) {
		int fd = openat(m->dirfd, p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		size_t n = strlen(p), k;

		if (fd < 0 || n + 257 > sizeof(q))
			tap_fatal("open in the model");
		memcpy(q, p, n);
		q[n++] = '/';
		k = pick_entry(m, fd, false, q + n);
		if (!k)
			break;
		q[n + k] = '\0';
		op_rmtree(m, q);
		if (m->failed)
			return;
	}
	say(m, "rm -r %s", p);
	agree(m, "rm -r", sys(unlinkat(m->dirfd, p, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0)),
	      fx_remove(&m->f, p, S_ISDIR(st.st_mode)));
}

/* Names that both ends of a rename were found under; one inode under both is left as it is. */
static bool same_file(struct model *m, const char *p, const char *q)
{
	struct stat a, b;

	return fstatat(m->dirfd, p, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(m->dirfd, q, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino;
}

void op_rename(struct model *m, const char *p)
{
	static const unsigned flags[] = {0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
	unsigned f = flags[rnd(m, m->exchange ? 4 : 3)];
	char q[PATH_MAX];
	bool same, done;

	rnd(m, 2) ? pick_path(m, q) : pick_new(m, q);
	say(m, "rename %s -> %s %u", p, q, f);
	touch_before(m, p);
	touch_before(m, q);
	same = same_file(m, p, q);
	done = agree(m, f & RENAME_EXCHANGE ? "exchange" : "rename",
		     sys(renameat2(m->dirfd, p, m->dirfd, q, f)), fx_rename(&m->f, p, q, f));
	touch_after(m, "rename", done);
	if (done && !same) {
		changes_after(m, p);
		changes_after(m, q);
	}
	compare_near(m, p);
	compare_near(m, q);
}

void op_link(struct model *m, const char *p)
{
	char q[PATH_MAX];
	bool done;

	rnd(m, 4) ? pick_new(m, q) : pick_path(m, q);
	say(m, "link %s -> %s", p, q);
	touch_before(m, p);
	touch_before(m, q);
	done = agree(m, "link", sys(linkat(m->dirfd, p, m->dirfd, q, 0)), fx_link(&m->f, p, q));
	touch_after(m, "link", done);
	if (done)
		changes_after(m, q);
	compare_near(m, p);
	compare_near(m, q);
}
