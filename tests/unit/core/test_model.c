/* One random walk of operations on a tree and on a plain directory, which must stay equal: through
 * flushes, commits, reopenings and rollbacks. test_core_model [seed [steps [host]]] */
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#include "tests/unit/core/ovl_fixture.h"

#define DATA_MAX   (300 * 1024)
#define OPEN_MAX   6
#define STATES_MAX 12

struct opened {
	store_ino ino; /* one reference */
	int fd;
	bool live;
};
struct state {
	store_layer layer; /* sealed */
	char dir[PATH_MAX];
};
struct pair {
	ino_t model;
	store_ino ours;
};

struct model {
	struct fx f;
	uint64_t rnd;
	char dir[PATH_MAX];
	int dirfd;
	bool subdirs_counted, xattrs, exchange, host;
	unsigned generation;
	struct opened open[OPEN_MAX];
	struct state states[STATES_MAX];
	size_t nstates;
	struct pair *pairs;
	size_t npairs, cap;
	uint64_t steps, failed;
	struct {
		const char *name;
		unsigned n[2]; /* failed on both sides, succeeded on both */
	} ops[24];
	uint8_t data[DATA_MAX], got[DATA_MAX];
	char last[3 * PATH_MAX];
};

static uint32_t rnd(struct model *m, uint32_t n)
{
	m->rnd ^= m->rnd << 13;
	m->rnd ^= m->rnd >> 7;
	m->rnd ^= m->rnd << 17;
	return (uint32_t)(m->rnd >> 32) % n;
}

static void bad(struct model *m, const char *what)
{
	if (m->failed++ < 20)
		printf("# step %llu: %s (%s)\n", (unsigned long long)m->steps, what, m->last);
	fflush(stdout);
}

/* ---- names ---- */

static const char *const words[] = {"a", "b", "c", "d", "e", "\xff\xfe", "with space"};

static size_t pick_word(struct model *m, char *out)
{
	const char *w = words[rnd(m, ARRAY_SIZE(words))];
	size_t n = strlen(w);

	if (rnd(m, 40) == 0) {
		memset(out, 'L', 255);
		return 255;
	}
	if (rnd(m, 3) == 0)
		return (size_t)snprintf(out, 8, "n%u", rnd(m, 20));
	memcpy(out, w, n);
	return n;
}

/* A random name of an open directory; its length, 0 when it is empty. */
static size_t pick_entry(struct model *m, int fd, bool dirs, char *out)
{
	DIR *d = fdopendir(fd);
	const struct dirent *e;
	uint32_t n = 0;
	size_t len = 0;

	if (!d)
		tap_fatal("fdopendir");
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (dirs && e->d_type != DT_DIR)
			continue;
		if (rnd(m, ++n) == 0) {
			len = strlen(e->d_name);
			memcpy(out, e->d_name, len);
		}
	}
	(void)closedir(d);
	return len;
}

/* What is there, or a free name beside it: most operations would only fail on random paths. */
static void pick_near(struct model *m, char out[static PATH_MAX], bool last_new)
{
	size_t n = 0, k;

	for (unsigned depth = 0; depth < 5; depth++) {
		int fd;

		out[n] = '\0';
		fd = openat(m->dirfd, n ? out : ".",
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			break;
		if (n)
			out[n++] = '/';
		k = rnd(m, 3) || !last_new ? pick_entry(m, fd, false, out + n)
					   : ((void)close(fd), 0);
		if (!k) {
			n += pick_word(m, out + n);
			break;
		}
		n += k;
		if (rnd(m, 3) == 0)
			break;
	}
	out[n] = '\0';
}

static void pick_new(struct model *m, char out[static PATH_MAX])
{
	size_t n = 0;

	for (unsigned depth = 0; depth < 5 && rnd(m, 4); depth++) {
		size_t k;
		int fd;

		out[n] = '\0';
		fd = openat(m->dirfd, n ? out : ".",
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			break;
		k = pick_entry(m, fd, true, out + n + (n > 0));
		if (!k)
			break;
		if (n)
			out[n] = '/';
		n += k + (n > 0);
	}
	if (n)
		out[n++] = '/';
	n += pick_word(m, out + n);
	out[n] = '\0';
}

static void pick_path(struct model *m, char out[static PATH_MAX])
{
	unsigned depth = 1 + rnd(m, 4), kind = rnd(m, 8);
	size_t n = 0;

	if (kind < 6) {
		pick_near(m, out, kind < 3);
		return;
	}
	for (unsigned i = 0; i < depth; i++) {
		if (i)
			out[n++] = '/';
		n += pick_word(m, out + n);
	}
	out[n] = '\0';
}

static void count_op(struct model *m, const char *op, bool success)
{
	for (size_t i = 0; i < ARRAY_SIZE(m->ops); i++) {
		if (!m->ops[i].name)
			m->ops[i].name = op;
		if (!strcmp(m->ops[i].name, op)) {
			m->ops[i].n[success]++;
			return;
		}
	}
}

/* Both sides did the same: the same success, or the same errno. */
static bool agree(struct model *m, const char *op, int model, int ours)
{
	char text[128];

	if (model == ours) {
		count_op(m, op, model == 0);
		return model == 0;
	}
	snprintf(text, sizeof(text), "%s: model %s, ours %s", op, model ? err_text(model) : "ok",
		 ours ? err_text(ours) : "ok");
	bad(m, text);
	return false;
}

static int sys(int r)
{
	return r < 0 ? -errno : 0;
}

/* ---- operations ---- */

static void fill(struct model *m, size_t n)
{
	uint32_t kind = rnd(m, 4);

	if (kind == 0) {
		memset(m->data, 0, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		m->data[i] = (uint8_t)(kind == 1 ? 'x' : rnd(m, 256));
}

static void op_create(struct model *m, const char *p)
{
	mode_t mode = 0600 | rnd(m, 0200);
	int fd, r;

	if (rnd(m, 8) == 0) {
		agree(m, "mkfifo", sys(mkfifoat(m->dirfd, p, mode)),
		      fx_make(&m->f, p, FX_FIFO, mode));
		return;
	}
	fd = openat(m->dirfd, p, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
	r = sys(fd);
	if (fd >= 0)
		(void)close(fd);
	agree(m, "create", r, fx_make(&m->f, p, FX_FILE, mode));
}

static void op_mkdir(struct model *m, const char *p)
{
	mode_t mode = 0700 | rnd(m, 0100);

	agree(m, "mkdir", sys(mkdirat(m->dirfd, p, mode)), fx_make(&m->f, p, FX_DIR, mode));
}

static void op_symlink(struct model *m, const char *p)
{
	const char *t = words[rnd(m, ARRAY_SIZE(words))];

	agree(m, "symlink", sys(symlinkat(t, m->dirfd, p)), fx_symlink(&m->f, t, p));
}

static void op_remove(struct model *m, const char *p)
{
	struct stat st;
	bool dir = rnd(m, 2);

	if (rnd(m, 8) && fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW) == 0)
		dir = S_ISDIR(st.st_mode);
	agree(m, dir ? "rmdir" : "unlink", sys(unlinkat(m->dirfd, p, dir ? AT_REMOVEDIR : 0)),
	      fx_remove(&m->f, p, dir));
}

/* rm -r on both sides, name by name. */
static void op_rmtree(struct model *m, const char *p)
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
	snprintf(m->last, sizeof(m->last), "%s", p);
	agree(m, "rm -r", sys(unlinkat(m->dirfd, p, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0)),
	      fx_remove(&m->f, p, S_ISDIR(st.st_mode)));
}

static void op_rename(struct model *m, const char *p)
{
	static const unsigned flags[] = {0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
	unsigned f = flags[rnd(m, m->exchange ? 4 : 3)];
	char q[PATH_MAX];

	rnd(m, 2) ? pick_path(m, q) : pick_new(m, q);
	snprintf(m->last, sizeof(m->last), "%s -> %s %u", p, q, f);
	agree(m, "rename", sys(renameat2(m->dirfd, p, m->dirfd, q, f)), fx_rename(&m->f, p, q, f));
}

static void op_link(struct model *m, const char *p)
{
	char q[PATH_MAX];

	rnd(m, 4) ? pick_new(m, q) : pick_path(m, q);
	snprintf(m->last, sizeof(m->last), "%s -> %s", p, q);
	agree(m, "link", sys(linkat(m->dirfd, p, m->dirfd, q, 0)), fx_link(&m->f, p, q));
}

/* The same regular file on both sides; false when there is none. */
static bool open_both(struct model *m, const char *p, int *ret_fd, store_ino *ret)
{
	struct ovl_entry e;
	struct stat st;
	int a = sys(fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW)), b = fx_get(&m->f, p, &e);

	if (!agree(m, "stat", a, b)) {
		if (b == 0)
			ovl_forget(m->f.o, e.ino, 1);
		return false;
	}
	if ((st.st_mode & S_IFMT) != (e.attr.st.st_mode & S_IFMT))
		bad(m, "other type");
	if (!S_ISREG(st.st_mode) || !S_ISREG(e.attr.st.st_mode)) {
		ovl_forget(m->f.o, e.ino, 1);
		return false;
	}
	*ret_fd = openat(m->dirfd, p, O_RDWR | O_CLOEXEC);
	if (*ret_fd < 0)
		tap_fatal("open of the model: %s", err_text(errno));
	*ret = e.ino;
	return true;
}

static uint64_t pick_off(struct model *m)
{
	switch (rnd(m, 6)) {
	case 0:
		return 0;
	case 1:
		return (uint64_t)rnd(m, 5) * STORE_BLOCK;
	case 2:
		return rnd(m, 3 << 20);
	case 3:
		return STORE_BLOCK - 1 - rnd(m, 3);
	default:
		return rnd(m, 3000);
	}
}

static size_t pick_len(struct model *m)
{
	switch (rnd(m, 8)) {
	case 0:
		return 1 + rnd(m, DATA_MAX - 1);
	case 1:
		return STORE_BLOCK;
	case 2:
		return 1536 + rnd(m, 3);
	default:
		return 1 + rnd(m, 4000);
	}
}

static void write_fd(struct model *m, int fd, store_ino ino)
{
	uint64_t off = pick_off(m);
	size_t n = pick_len(m);

	fill(m, n);
	if (pwrite(fd, m->data, n, (off_t)off) != (ssize_t)n)
		tap_fatal("write to the model: %s", err_text(errno));
	if (ovl_write(m->f.o, ino, off, m->data, n, false) != (ssize_t)n)
		bad(m, "write");
}

static void alloc_fd(struct model *m, int fd, store_ino ino)
{
	static const int modes[] = {0,
				    FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE};
	int mode = modes[rnd(m, ARRAY_SIZE(modes))];
	uint64_t off = pick_off(m), n = pick_len(m);
	int r = sys(fallocate(fd, mode, (off_t)off, (off_t)n));

	if (r == -EOPNOTSUPP)
		return; /* the model's file system cannot: tmpfs and ZERO_RANGE */
	agree(m, "fallocate", r, ovl_fallocate(m->f.o, ino, mode, off, n));
}

static void read_fd(struct model *m, int fd, store_ino ino)
{
	uint64_t off = pick_off(m);
	size_t n = pick_len(m);
	ssize_t a = pread(fd, m->data, n, (off_t)off), b = ovl_read(m->f.o, ino, off, m->got, n);

	if (a != b || (a > 0 && memcmp(m->data, m->got, (size_t)a) != 0))
		bad(m, "read differs");
}

static void truncate_fd(struct model *m, int fd, store_ino ino)
{
	struct stat st = {.st_size = (off_t)pick_off(m)};
	struct ovl_attr a;

	agree(m, "truncate", sys(ftruncate(fd, st.st_size)),
	      ovl_setattr(m->f.o, ino, &st, OVL_SET_SIZE, &a));
}

static void copy_fd(struct model *m, int fd, store_ino ino)
{
	uint64_t off_in = pick_off(m), off_out = pick_off(m);
	size_t n = pick_len(m);
	char q[PATH_MAX];
	store_ino to;
	ssize_t a, b;
	int out;

	pick_path(m, q);
	if (!open_both(m, q, &out, &to))
		return;
	a = pread(fd, m->data, n, (off_t)off_in);
	if (to == ino && off_in < off_out + n && off_out < off_in + n) {
		a = -EINVAL;
	} else if (a > 0 && pwrite(out, m->data, (size_t)a, (off_t)off_out) != a) {
		tap_fatal("copy in the model");
	}
	b = ovl_copy_range(m->f.o, ino, off_in, to, off_out, n);
	if (a != b)
		bad(m, "copy_range count");
	(void)close(out);
	ovl_forget(m->f.o, to, 1);
}

static void on_fd(struct model *m, int fd, store_ino ino)
{
	switch (rnd(m, 8)) {
	case 0:
		alloc_fd(m, fd, ino);
		break;
	case 1:
		truncate_fd(m, fd, ino);
		break;
	case 2:
		copy_fd(m, fd, ino);
		break;
	case 3:
		read_fd(m, fd, ino);
		break;
	default:
		write_fd(m, fd, ino);
	}
}

static void op_file(struct model *m, const char *p)
{
	store_ino ino;
	int fd;

	if (!open_both(m, p, &fd, &ino))
		return;
	on_fd(m, fd, ino);
	if (rnd(m, 4) == 0) {
		struct opened *o = &m->open[rnd(m, OPEN_MAX)];

		if (!o->live) {
			*o = (struct opened){.ino = ino, .fd = fd, .live = true};
			return;
		}
	}
	(void)close(fd);
	ovl_forget(m->f.o, ino, 1);
}

static void compare_content(struct model *m, int fd, store_ino ino, uint64_t size)
{
	for (uint64_t off = 0; off < size; off += DATA_MAX) {
		ssize_t a = pread(fd, m->data, DATA_MAX, (off_t)off);
		ssize_t b = ovl_read(m->f.o, ino, off, m->got, DATA_MAX);

		if (a != b || (a > 0 && memcmp(m->data, m->got, (size_t)a) != 0)) {
			bad(m, "content differs");
			return;
		}
	}
}

static void close_opened(struct model *m, struct opened *o)
{
	struct ovl_attr a;
	struct stat st;
	int r;

	if (!o->live)
		return;
	r = ovl_getattr(m->f.o, o->ino, &a);
	if (r < 0 || fstat(o->fd, &st) < 0 || st.st_size != a.st.st_size ||
	    st.st_nlink != a.st.st_nlink)
		bad(m, "open file differs");
	else
		compare_content(m, o->fd, o->ino, (uint64_t)st.st_size);
	(void)close(o->fd);
	ovl_forget(m->f.o, o->ino, 1);
	o->live = false;
}

static void op_opened(struct model *m)
{
	struct opened *o = &m->open[rnd(m, OPEN_MAX)];

	if (!o->live)
		return;
	if (rnd(m, 4) == 0)
		close_opened(m, o);
	else
		on_fd(m, o->fd, o->ino);
}

static void op_chmod(struct model *m, const char *p)
{
	struct stat st;
	mode_t mode = 0700 | rnd(m, 0100) | (rnd(m, 4) ? 0 : S_ISVTX);

	/* chmod follows links, setattr does not */
	if (fstatat(m->dirfd, p, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		return;
	st.st_mode = mode;
	agree(m, "chmod", sys(fchmodat(m->dirfd, p, mode, 0)), fx_set(&m->f, p, &st, OVL_SET_MODE));
}

/* Following a link is a read of it there; the way to a name may lead over the link itself. */
static void op_utimens(struct model *m, const char *p)
{
	struct timespec t[2] = {{.tv_sec = (time_t)rnd(m, 1u << 31) - (1 << 30), .tv_nsec = 5},
				{.tv_sec = (time_t)rnd(m, 1u << 31), .tv_nsec = rnd(m, 999999999)}};
	struct stat st = {.st_atim = t[0], .st_mtim = t[1]}, a, b;

	if (agree(m, "utimens", sys(utimensat(m->dirfd, p, t, AT_SYMLINK_NOFOLLOW)),
		  fx_set(&m->f, p, &st, OVL_SET_ATIME | OVL_SET_MTIME)) &&
	    fstatat(m->dirfd, p, &a, AT_SYMLINK_NOFOLLOW) == 0 && fx_stat(&m->f, p, &b) == 0 &&
	    (a.st_mtim.tv_sec != b.st_mtim.tv_sec || a.st_mtim.tv_nsec != b.st_mtim.tv_nsec ||
	     (!S_ISLNK(a.st_mode) && a.st_atim.tv_sec != b.st_atim.tv_sec)))
		bad(m, "times differ");
}

static void op_xattr(struct model *m, const char *p)
{
	static const char *const names[] = {"user.a", "user.b", "user.big"};
	const char *name = names[rnd(m, ARRAY_SIZE(names))];
	static const int flags[] = {0, 0, XATTR_CREATE, XATTR_REPLACE};
	int fl = flags[rnd(m, 4)], a, b;
	size_t n = strcmp(name, "user.big") ? rnd(m, 300) : 200 + rnd(m, 800);
	char full[2 * PATH_MAX];
	struct ovl_entry e;

	if (!m->xattrs || fx_get(&m->f, p, &e) < 0)
		return;
	snprintf(full, sizeof(full), "%s/%s", m->dir, p);
	fill(m, n);
	if (rnd(m, 3) == 0) {
		a = sys(lremovexattr(full, name));
		b = ovl_removexattr(m->f.o, e.ino, name);
	} else {
		a = sys(lsetxattr(full, name, m->data, n, fl));
		b = ovl_setxattr(m->f.o, e.ino, name, m->data, n, fl);
	}
	/* which of the two wins for a symlink is nobody's promise */
	if (!(S_ISLNK(e.attr.st.st_mode) && a < 0 && b < 0) && a != -ENOSPC)
		agree(m, "xattr", a, b);
	else if (a == -ENOSPC && b == 0)
		bad(m, "the model has no room for xattrs: use another file system");
	ovl_forget(m->f.o, e.ino, 1);
}

/* ---- comparing trees ---- */

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

static void compare_xattrs(struct model *m, int dirfd, const char *name, store_ino ino)
{
	char path[64], list[4096], ours[4096];
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n, k, len = 0;

	if (fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = listxattr(path, list, sizeof(list));
	k = ovl_listxattr(m->f.o, ino, ours, sizeof(ours));
	for (const char *p = list; n > 0 && p < list + n; p += strlen(p) + 1) {
		ssize_t a, b;

		if (strncmp(p, "user.", 5) != 0)
			continue;
		len += (ssize_t)strlen(p) + 1;
		a = fgetxattr(fd, p, m->data, DATA_MAX);
		b = ovl_getxattr(m->f.o, ino, p, m->got, DATA_MAX);
		if (a != b || (a > 0 && memcmp(m->data, m->got, (size_t)a) != 0))
			bad(m, "xattr differs");
	}
	if (k != len)
		bad(m, "xattr lists differ");
	(void)close(fd);
}

static void compare_dir(struct model *m, int fd, store_ino ino, unsigned depth);

/* Where an inode says it is, it is. Only of a host file the other names may be unknown. */
static void compare_path(struct model *m, store_ino ino)
{
	cleanup_buf struct buf b = {0};
	struct ovl_entry e;
	int r = ovl_path(m->f.o, ino, &b);

	if (r == -ESTALE && m->host)
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
	if (st.st_mode != e.attr.st.st_mode)
		bad(m, "mode differs");
	if (S_ISDIR(st.st_mode) ? m->subdirs_counted && st.st_nlink != e.attr.st.st_nlink
				: st.st_nlink != e.attr.st.st_nlink) {
		bad(m, "nlink differs");
		printf("# %lu, ours %lu\n", (unsigned long)st.st_nlink,
		       (unsigned long)e.attr.st.st_nlink);
	}
	if (!S_ISDIR(st.st_mode) && st.st_size != e.attr.st.st_size)
		bad(m, "size differs");
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
	bool same = a.n == b.n;

	for (size_t i = 0; same && i < a.n; i++)
		same = !strcmp(a.v[i].name, b.v[i].name);
	if (!same) {
		bad(m, "names differ");
		for (size_t i = 0; i < a.n; i++)
			printf("#   model %s\n", a.v[i].name);
		for (size_t i = 0; i < b.n; i++)
			printf("#   ours %s\n", b.v[i].name);
	}
	for (size_t i = 0; same && depth < 64 && i < a.n; i++)
		compare_one(m, fd, ino, &a.v[i], &b.v[i], depth);
	free(a.v);
	free(b.v);
}

static void compare_tree(struct model *m)
{
	m->npairs = 0;
	compare_dir(m, m->dirfd, STORE_ROOT_INO, 0);
}

/* ---- history ---- */

static void model_open(struct model *m, const char *dir)
{
	if (m->dirfd >= 0)
		(void)close(m->dirfd);
	if (dir != m->dir)
		snprintf(m->dir, sizeof(m->dir), "%s", dir);
	m->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m->dirfd < 0)
		tap_fatal("open %s", dir);
}

static void close_all(struct model *m)
{
	for (size_t i = 0; i < OPEN_MAX; i++)
		close_opened(m, &m->open[i]);
}

static void remember(struct model *m, store_layer layer)
{
	struct state *s =
		&m->states[m->nstates < STATES_MAX ? m->nstates++ : 1 + rnd(m, STATES_MAX - 1)];
	char name[32];

	if (s->layer)
		fx_rm(s->dir);
	snprintf(name, sizeof(name), "state%u", m->generation++);
	fx_path(&m->f, name, s->dir);
	fx_copy(m->dir, s->dir);
	s->layer = layer;
}

static void op_commit(struct model *m)
{
	store_layer sealed = m->f.layer;
	int r = ovl_commit(m->f.o, fx_seal, &m->f);

	if (r < 0) {
		bad(m, err_text(r));
		return;
	}
	remember(m, sealed);
}

static void op_reopen(struct model *m)
{
	close_all(m);
	fx_umount(&m->f);
	fx_mount(&m->f);
	compare_tree(m);
}

/* To an older state, or only a look at it. */
static void op_rollback(struct model *m, bool look)
{
	struct state *s;
	char dir[PATH_MAX], name[32], old[PATH_MAX];
	store_layer layer = m->f.layer;

	if (m->nstates == 0)
		return;
	s = &m->states[rnd(m, (uint32_t)m->nstates)];
	snprintf(old, sizeof(old), "%s", m->dir);
	close_all(m);
	fx_umount(&m->f);
	if (look) {
		m->f.layer = s->layer;
		m->f.opts.flags = OVL_RDONLY;
		model_open(m, s->dir);
		fx_mount(&m->f);
		compare_tree(m);
		fx_umount(&m->f);
		m->f.layer = layer;
		m->f.opts.flags = 0;
		model_open(m, old);
	} else {
		snprintf(name, sizeof(name), "work%u", m->generation++);
		fx_path(&m->f, name, dir);
		fx_copy(s->dir, dir);
		model_open(m, dir);
		fx_rm(old);
		fx_child(&m->f, s->layer);
	}
	fx_mount(&m->f);
	compare_tree(m);
}

static void step(struct model *m)
{
	char p[PATH_MAX];
	uint32_t k = rnd(m, 1000);

	m->steps++;
	if (k < 300 && k % 4)
		pick_new(m, p);
	else
		pick_path(m, p);
	snprintf(m->last, sizeof(m->last), "%s", p);
	if (k < 150)
		op_create(m, p);
	else if (k < 260)
		op_mkdir(m, p);
	else if (k < 300)
		op_symlink(m, p);
	else if (k < 308)
		op_rmtree(m, p);
	else if (k < 400)
		op_remove(m, p);
	else if (k < 520)
		op_rename(m, p);
	else if (k < 580)
		op_link(m, p);
	else if (k < 780)
		op_file(m, p);
	else if (k < 840)
		op_opened(m);
	else if (k < 890)
		op_chmod(m, p);
	else if (k < 920)
		op_utimens(m, p);
	else if (k < 970)
		op_xattr(m, p);
	else if (k < 982 && ovl_flush(m->f.o) < 0)
		bad(m, "flush");
	else if (k >= 982 && k < 987)
		compare_tree(m);
	else if (k >= 987 && k < 992)
		op_commit(m);
	else if (k >= 992 && k < 996)
		op_reopen(m);
	else if (k >= 996)
		op_rollback(m, k < 998);
}

static void probe(struct model *m)
{
	struct stat st;

	if (mkdirat(m->dirfd, "p", 0700) < 0 || mkdirat(m->dirfd, "q", 0700) < 0 ||
	    fstatat(m->dirfd, ".", &st, 0) < 0)
		tap_fatal("cannot use the scratch directory");
	m->subdirs_counted = st.st_nlink >= 4;
	m->exchange = renameat2(m->dirfd, "p", m->dirfd, "q", RENAME_EXCHANGE) == 0;
	m->xattrs = fsetxattr(m->dirfd, "user.probe", "", 0, 0) == 0;
	(void)fremovexattr(m->dirfd, "user.probe");
	(void)unlinkat(m->dirfd, "p", AT_REMOVEDIR);
	(void)unlinkat(m->dirfd, "q", AT_REMOVEDIR);
	printf("# subdirectories counted %d, exchange %d, xattrs %d\n", m->subdirs_counted,
	       m->exchange, m->xattrs);
}

/* Base content on the host: what some steps made of an empty tree. */
static void make_host(struct model *m)
{
	char host[PATH_MAX], work[PATH_MAX];

	for (unsigned i = 0; i < 400; i++) {
		char p[PATH_MAX];

		pick_path(m, p);
		switch (rnd(m, 8)) {
		case 0:
		case 1:
		case 2:
			op_mkdir(m, p);
			break;
		case 3:
		case 4:
			op_create(m, p);
			break;
		case 5:
			op_link(m, p);
			break;
		case 6:
			op_file(m, p);
			break;
		default:
			rnd(m, 2) ? op_xattr(m, p) : op_symlink(m, p);
		}
	}
	close_all(m);
	fx_umount(&m->f);
	fx_path(&m->f, "host", host);
	fx_path(&m->f, "work-host", work);
	fx_copy(m->dir, host);
	fx_copy(m->dir, work);
	model_open(m, work);
	fx_child(&m->f, fx_host_layer(&m->f, host, 0));
	m->f.opts.flush_ms = 50;
	fx_mount(&m->f);
	compare_tree(m);
	m->nstates = 0;
}

static void walk(struct model *m, uint64_t seed, uint64_t steps, bool host)
{
	char dir[PATH_MAX];

	m->rnd = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	m->dirfd = -1;
	m->host = host;
	fx_open(&m->f);
	m->f.opts.dirty_max = 4 << 20;
	m->f.opts.flush_ms = 20 + rnd(m, 200);
	fx_path(&m->f, "work", dir);
	if (mkdir(dir, 0755) < 0)
		tap_fatal("mkdir");
	model_open(m, dir);
	probe(m);
	fx_mount(&m->f);
	if (host)
		make_host(m);
	for (uint64_t i = 0; i < steps && m->failed == 0; i++)
		step(m);
	compare_tree(m);
	op_reopen(m);
	if (host && m->failed == 0) {
		/* F1: nothing was written there */
		char a[PATH_MAX];
		store_layer l;

		fx_umount(&m->f);
		fx_path(&m->f, "host", a);
		l = fx_host_layer(&m->f, a, 0);
		m->f.layer = l;
		m->f.opts.flags = OVL_RDONLY;
		model_open(m, a);
		fx_mount(&m->f);
		compare_tree(m);
	}
	for (size_t i = 0; i < ARRAY_SIZE(m->ops) && m->ops[i].name; i++)
		printf("# %s: %u done, %u refused\n", m->ops[i].name, m->ops[i].n[1],
		       m->ops[i].n[0]);
	ok(m->failed == 0, "%s walk of %llu steps, seed %llu", host ? "host" : "plain",
	   (unsigned long long)m->steps, (unsigned long long)seed);
	close_all(m);
	(void)close(m->dirfd);
	m->f.opts.flags = 0;
	fx_close(&m->f);
	free(m->pairs);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL) % 1000000;
	uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 0) : 4000;

	umask(0);
	printf("# seed %llu\n", (unsigned long long)seed);
	for (int host = 0; host < 2; host++) {
		struct model *m = calloc(1, sizeof(*m));

		if (!m)
			tap_fatal("memory");
		if (argc <= 3 || atoi(argv[3]) == host)
			walk(m, seed + (unsigned)host, steps, host);
		free(m);
	}
	return tap_done();
}
