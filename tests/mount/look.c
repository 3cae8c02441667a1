/* Comparing what stands at a path, and whole trees. */
#include <sys/xattr.h>

#include "tests/mount/walk.h"

static void look_stat(struct walk *w, const char *p, const struct stat st[SIDES])
{
	const struct stat *a = &st[OURS], *b = &st[PLAIN];

	if (a->st_mode != b->st_mode)
		bad(w, "%s: mode %o, not %o", p, a->st_mode, b->st_mode);
	if (a->st_nlink != b->st_nlink)
		bad(w, "%s: %u links, not %u", p, (unsigned)a->st_nlink, (unsigned)b->st_nlink);
	if (!S_ISDIR(a->st_mode) && a->st_size != b->st_size)
		bad(w, "%s: size %lld, not %lld", p, (long long)a->st_size, (long long)b->st_size);
	if (a->st_uid != b->st_uid || a->st_gid != b->st_gid)
		bad(w, "%s: owner %u:%u, not %u:%u", p, a->st_uid, a->st_gid, b->st_uid, b->st_gid);
}

static void look_xattrs(struct walk *w, const int fd[SIDES], const char *p)
{
	static const char *const names[] = {"user.a", "user.b", "user.longer.name"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char v[SIDES][1000];
		int r[SIDES];

		for (int s = 0; s < SIDES; s++)
			r[s] = sys(fgetxattr(fd[s], names[i], v[s], sizeof(v[s])));
		if (agree(w, names[i], r) && memcmp(v[OURS], v[PLAIN], (size_t)r[OURS]) != 0)
			bad(w, "%s: another value of %s", p, names[i]);
	}
}

/* Names of one inode there are names of one inode here. */
static void look_identity(struct walk *w, const char *p, const struct stat st[SIDES])
{
	ino_t plain = st[PLAIN].st_ino, ours = st[OURS].st_ino;

	for (size_t i = 0; i < w->npairs; i++) {
		if ((w->pairs[i].plain == plain) != (w->pairs[i].ours == ours)) {
			bad(w, "%s: its hard links are others", p);
			return;
		}
		if (w->pairs[i].plain == plain)
			return;
	}
	w->pairs = realloc(w->pairs, (w->npairs + 1) * sizeof(*w->pairs));
	if (!w->pairs)
		die("memory");
	w->pairs[w->npairs++] = (struct pair){plain, ours};
}

static void look_target(struct walk *w, const int at[SIDES], const char *name, const char *p)
{
	char to[SIDES][300] = {{0}};

	for (int s = 0; s < SIDES; s++)
		if (readlinkat(at[s], name, to[s], sizeof(to[s]) - 1) < 0)
			die("readlink %s", p);
	if (strcmp(to[OURS], to[PLAIN]) != 0)
		bad(w, "%s: another target", p);
}

static bool open_file(struct walk *w, const int at[SIDES], const char *name, int flags,
		      int fd[static SIDES])
{
	int r[SIDES];

	for (int s = 0; s < SIDES; s++)
		r[s] = fd[s] = sys(openat(at[s], name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags));
	if (fd[OURS] >= 0 && fd[PLAIN] >= 0)
		return true;
	(void)agree(w, "open", r);
	return false;
}

static void close_both(const int fd[SIDES])
{
	for (int s = 0; s < SIDES; s++)
		(void)close(fd[s]);
}

void look_at(struct walk *w, const char *p)
{
	struct stat st[SIDES];
	int r[SIDES], fd[SIDES];

	for (int s = 0; s < SIDES; s++)
		r[s] = sys(fstatat(w->dir[s], p, &st[s], AT_SYMLINK_NOFOLLOW));
	if (!agree(w, p, r))
		return;
	look_stat(w, p, st);
	if (rnd(w, 5) || !S_ISREG(st[PLAIN].st_mode) || !open_file(w, w->dir, p, 0, fd))
		return;
	look_content(w, fd, p);
	look_xattrs(w, fd, p);
	close_both(fd);
}

/* ---- trees ---- */

static void look_dir(struct walk *w, const int fd[SIDES], const char *path, bool times);

static void look_one(struct walk *w, const int at[SIDES], const char *name, const char *path,
		     bool times)
{
	struct stat st[SIDES];
	char p[PATH_LEN];
	int r[SIDES], fd[SIDES];

	(void)snprintf(p, sizeof(p), "%.*s/%s", PATH_LEN - 260, path, name);
	for (int s = 0; s < SIDES; s++)
		r[s] = sys(fstatat(at[s], name, &st[s], AT_SYMLINK_NOFOLLOW));
	if (!agree(w, p, r))
		return;
	look_stat(w, p, st);
	look_identity(w, p, st);
	if (times && memcmp(&st[OURS].st_mtim, &st[PLAIN].st_mtim, sizeof(st[0].st_mtim)) != 0)
		bad(w, "%s: changed at %lld, not %lld", p, (long long)st[OURS].st_mtim.tv_sec,
		    (long long)st[PLAIN].st_mtim.tv_sec);
	if (S_ISLNK(st[PLAIN].st_mode))
		look_target(w, at, name, p);
	if (!(S_ISDIR(st[PLAIN].st_mode) || S_ISREG(st[PLAIN].st_mode)) ||
	    !open_file(w, at, name, 0, fd))
		return;
	look_xattrs(w, fd, p);
	if (S_ISREG(st[PLAIN].st_mode))
		look_content(w, fd, p);
	else
		look_dir(w, fd, p, times);
	close_both(fd);
}

static void look_dir(struct walk *w, const int fd[SIDES], const char *path, bool times)
{
	struct names n[SIDES] = {{0}};
	bool same;

	for (int s = 0; s < SIDES; s++) {
		names_read(fd[s], s == OURS ? 100 + rnd(w, 3000) : 4096, 0, &n[s]);
		names_sort(&n[s]);
	}
	same = n[OURS].n == n[PLAIN].n;
	for (size_t i = 0; same && i < n[OURS].n; i++)
		same = !strcmp(n[OURS].v[i], n[PLAIN].v[i]);
	if (!same)
		bad(w, "%s: other names", path);
	for (int side = 0; side < SIDES && !same; side++)
		for (size_t i = 0; i < n[side].n; i++)
			bad(w, "  %s '%s'", side == OURS ? "in the mount" : "on the plain side",
			    n[side].v[i]);
	for (size_t i = 0; same && i < n[OURS].n; i++)
		look_one(w, fd, n[OURS].v[i], path, times);
	for (int s = 0; s < SIDES; s++)
		names_free(&n[s]);
}

void look_tree(struct walk *w, bool times)
{
	int fd[SIDES];

	say(w, "look at everything");
	w->npairs = 0;
	if (!open_file(w, w->dir, ".", O_DIRECTORY, fd))
		return;
	look_dir(w, fd, "", times);
	close_both(fd);
}

/* ---- times ---- */

static void settle_dir(int fd, uint64_t seed)
{
	struct names n = {0};

	names_read(fd, 4096, 0, &n);
	names_sort(&n);
	for (size_t i = 0; i < n.n; i++) {
		uint64_t v = seed * 31 + i + 1;
		struct timespec t = {(time_t)(1000000000 + v % 100000000),
				     (long)(v * 7919 % 1000000000)};
		int sub = openat(fd, n.v[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (sub >= 0) {
			settle_dir(sub, v);
			(void)close(sub);
		}
		if (utimensat(fd, n.v[i], (struct timespec[]){t, t}, AT_SYMLINK_NOFOLLOW) < 0)
			die("utimens");
	}
	names_free(&n);
}

void settle(struct walk *w)
{
	for (int s = 0; s < SIDES; s++) {
		int fd = openat(w->dir[s], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			die("open");
		settle_dir(fd, 1);
		(void)close(fd);
	}
}
