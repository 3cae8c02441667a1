/* Comparing trees. */
#include "tests/unit/core/model/model.h"

struct entry {
	char name[256];
	store_ino ino;
	uint32_t type;
	bool ref; /* the listing took a reference */
};
struct list {
	struct entry *v;
	size_t n, cap;
	uint64_t cookie;
	size_t room;
	bool plus;
	struct model *m;
};

static int list_add(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct list *l = arg;

	if (l->room == 0)
		return 1;
	if (cookie <= l->cookie)
		bad(l->m, "cookies do not grow");
	l->room--;
	l->cookie = cookie;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 16;
		l->v = realloc(l->v, l->cap * sizeof(*l->v));
		if (!l->v)
			tap_fatal("memory");
	}
	snprintf(l->v[l->n].name, sizeof(l->v[l->n].name), "%s", name);
	/* What is not to be taken over (ovl_unsettled) is named only. */
	l->v[l->n].ino = e->ino ? e->ino : e->attr.st.st_ino;
	l->v[l->n].ref = l->plus && e->ino;
	l->v[l->n++].type = e->attr.st.st_mode & S_IFMT;
	return 0;
}

static int entry_cmp(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static struct list list_ours(struct model *m, store_ino ino)
{
	struct list l = {.plus = rnd(m, 2), .m = m};
	uint64_t before;
	size_t had;

	do {
		before = l.cookie;
		had = l.n;
		l.room = 1 + rnd(m, 5);
		if (ovl_readdir(m->f.o, ino, l.cookie, l.plus, list_add, &l) < 0) {
			bad(m, "readdir");
			break;
		}
		for (size_t i = had; i < l.n; i++)
			ovl_forget(m->f.o, l.v[i].ino, l.v[i].ref ? 1 : 0);
	} while (l.cookie != before);
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), entry_cmp);
	return l;
}

static struct list list_model(int fd)
{
	struct list l = {0};
	DIR *d = fdopendir(dup(fd));
	const struct dirent *e;

	if (!d)
		tap_fatal("fdopendir");
	rewinddir(d);
	while ((e = readdir(d))) {
		struct ovl_entry oe = {.ino = e->d_ino};

		oe.attr.st.st_mode = DTTOIF(e->d_type);
		l.room = 1;
		l.cookie = 0;
		(void)list_add(&l, e->d_name, 1, &oe);
	}
	closedir(d);
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), entry_cmp);
	return l;
}

static bool same_names(struct model *m, const struct list *a, const struct list *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = !strcmp(a->v[i].name, b->v[i].name);
	if (same)
		return true;
	bad(m, "names differ");
	for (size_t i = 0; i < a->n; i++)
		printf("#   model %s\n", a->v[i].name);
	for (size_t i = 0; i < b->n; i++)
		printf("#   ours %s\n", b->v[i].name);
	return false;
}

/* Names of one inode there are names of one inode here. */
static void compare_identity(struct model *m, ino_t model, store_ino ours)
{
	for (size_t i = 0; i < m->npairs; i++) {
		if ((m->pairs[i].model == model) != (m->pairs[i].ours == ours)) {
			bad(m, "hard links differ");
			return;
		}
		if (m->pairs[i].model == model)
			return;
	}
	if (m->npairs == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 64;
		m->pairs = realloc(m->pairs, m->cap * sizeof(*m->pairs));
		if (!m->pairs)
			tap_fatal("memory");
	}
	m->pairs[m->npairs++] = (struct pair){.model = model, .ours = ours};
}

/* Where an inode says it is, it is. Only of a host file the other names may be unknown. */
static void compare_path(struct model *m, store_ino ino)
{
	cleanup_buf struct buf b = {0};
	struct ovl_entry e;
	int r = ovl_path(m->f.o, ino, &b);

	if (r == -ESTALE && m->host[0])
		return;
	if (r == 0)
		r = ovl_walk(m->f.o, (const char *)b.data, &e);
	if (r < 0) {
		bad(m, "an inode has no path");
		return;
	}
	if (e.ino != ino)
		bad(m, "the path of an inode is another's");
	ovl_forget(m->f.o, e.ino, 1);
}

static void compare_stat(struct model *m, const struct stat *model, const struct stat *ours)
{
	bool dir = S_ISDIR(model->st_mode);

	if (model->st_mode != ours->st_mode)
		bad(m, "mode differs");
	if ((!dir || m->subdirs_counted) && model->st_nlink != ours->st_nlink) {
		bad(m, "nlink differs");
		printf("# %lu, ours %lu\n", (unsigned long)model->st_nlink,
		       (unsigned long)ours->st_nlink);
	}
	if (!dir && model->st_size != ours->st_size)
		bad(m, "size differs");
	if (model->st_uid != ours->st_uid || model->st_gid != ours->st_gid)
		bad(m, "owner differs");
}

static void compare_dir(struct model *m, int fd, store_ino ino, unsigned depth);

static void compare_one(struct model *m, int dirfd, store_ino dir, const struct entry *theirs,
			const struct entry *ours, unsigned depth)
{
	const char *name = theirs->name;
	char a[4096] = "", b[4096] = "";
	struct ovl_entry e;
	struct stat st;
	int r = ovl_lookup(m->f.o, dir, name, &e), fd;

	snprintf(m->last, sizeof(m->last), "compare %s", name);
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		tap_fatal("stat in the model");
	if (r < 0 || !e.ino) {
		bad(m, "a listed name is not found");
		return;
	}
	if (ours->ino != e.ino || ours->type != (e.attr.st.st_mode & S_IFMT))
		bad(m, "readdir and lookup differ");
	compare_stat(m, &st, &e.attr.st);
	compare_identity(m, st.st_ino, e.ino);
	compare_path(m, e.ino);
	if (S_ISLNK(st.st_mode)) {
		if (readlinkat(dirfd, name, a, sizeof(a) - 1) < 0 ||
		    ovl_readlink(m->f.o, e.ino, b) < 0 || strcmp(a, b) != 0)
			bad(m, "link target differs");
	}
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
		fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			tap_fatal("open in the model");
		if (m->xattrs)
			compare_xattrs(m, dirfd, name, e.ino);
		if (S_ISREG(st.st_mode) && S_ISREG(e.attr.st.st_mode))
			compare_content(m, fd, e.ino, (uint64_t)st.st_size);
		else if (S_ISDIR(st.st_mode) && S_ISDIR(e.attr.st.st_mode))
			compare_dir(m, fd, e.ino, depth + 1);
		(void)close(fd);
	}
	ovl_forget(m->f.o, e.ino, 1);
}

static void compare_dir(struct model *m, int fd, store_ino ino, unsigned depth)
{
	struct list a = list_model(fd), b = list_ours(m, ino);
	bool same = same_names(m, &a, &b);

	for (size_t i = 0; same && depth < 64 && i < a.n; i++)
		compare_one(m, fd, ino, &a.v[i], &b.v[i], depth);
	free(a.v);
	free(b.v);
}

void compare_tree(struct model *m)
{
	m->npairs = 0;
	compare_dir(m, m->dirfd, STORE_ROOT_INO, 0);
}

static void compare_names(struct model *m, const char *p)
{
	const char *slash = strrchr(p, '/'), *name;
	char dir[PATH_MAX] = ".";
	store_ino ino;
	int fd;

	if (slash)
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - p), p);
	fd = openat(m->dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return; /* compare_near has seen that ours is not there either */
	if (fx_parent(&m->f, p, &ino, &name) == 0) {
		struct list a = list_model(fd), b = list_ours(m, ino);

		(void)same_names(m, &a, &b);
		free(a.v);
		free(b.v);
		ovl_forget(m->f.o, ino, 1);
	} else {
		bad(m, "a directory is not there");
	}
	(void)close(fd);
}

void compare_near(struct model *m, const char *p)
{
	struct stat a, b;
	int x = sys(fstatat(m->dirfd, *p ? p : ".", &a, AT_SYMLINK_NOFOLLOW)),
	    y = fx_stat(&m->f, p, &b);

	if (x != y) {
		printf("# model %s, ours %s\n", x ? err_text(x) : "there",
		       y ? err_text(y) : "there");
		bad(m, "what stands at a path differs");
		return;
	}
	if (x == 0)
		compare_stat(m, &a, &b);
	if (rnd(m, 4) == 0)
		compare_names(m, p);
}
