/*
 * The host directory below. What changes there must show in the tree at once, where the tree shows it
 * untouched, and nowhere else; and nothing there may be changed by the tree (F1).
 *
 * Chosen from the tree's side: a name that is still the host's (its answer is not for ever). The number of
 * such an inode holds that of the host file, by which that is found on the host.
 */
#include <ftw.h>

#include "tests/unit/core/model/model.h"

#define TTL_MS 1

static store_ino host_part(store_ino ino)
{
	return ino & ((UINT64_C(1) << 40) - 1);
}

struct search {
	const char *top;
	ino_t ino;
	size_t found;
	char path[PATH_MAX];
};

static void search_below(struct search *s, const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[PATH_MAX];

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path))
			continue;
		if (e->d_ino == s->ino && s->found++ == 0)
			memcpy(s->path, path, sizeof(path));
		if (e->d_type == DT_DIR)
			search_below(s, path);
	}
	if (d)
		(void)closedir(d);
}

/* The host path of the inode @ino of the tree; false when it has none, or several. */
static bool host_path(struct model *m, store_ino ino, char out[static PATH_MAX])
{
	struct search s = {.top = m->host, .ino = host_part(ino)};

	if (ino == STORE_ROOT_INO) {
		memcpy(out, m->host, sizeof(m->host));
		return true;
	}
	if (ino < STORE_HOST_INO)
		return false;
	search_below(&s, m->host);
	memcpy(out, s.path, sizeof(s.path));
	return s.found == 1;
}

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
	const uint8_t *b = p;
	uint64_t word;

	for (; n >= sizeof(word); n -= sizeof(word), b += sizeof(word)) {
		memcpy(&word, b, sizeof(word));
		h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 32;
	}
	for (; n > 0; n--)
		h = (h ^ *b++) * UINT64_C(0x100000001b3);
	return h;
}

static uint64_t sum_file(struct model *m, const char *path, uint64_t h)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	while (fd >= 0 && (n = read(fd, m->got, DATA_MAX)) > 0)
		h = mix(h, m->got, (size_t)n);
	if (fd >= 0)
		(void)close(fd);
	return h;
}

/* In the order of readdir, which does not matter to a sum. */
static uint64_t sum_below(struct model *m, const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	uint64_t sum = 0;

	while (d && (e = readdir(d))) {
		char path[PATH_MAX];
		struct stat st;
		uint64_t h = 0;

		if (!strcmp(e->d_name, "..") ||
		    snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path) ||
		    lstat(path, &st) < 0)
			continue;
		h = mix(h, path, strlen(path));
		h = mix(h, &st.st_mode, sizeof(st.st_mode));
		h = mix(h, &st.st_nlink, sizeof(st.st_nlink));
		h = mix(h, &st.st_mtim, sizeof(st.st_mtim));
		h = mix(h, &st.st_ctim, sizeof(st.st_ctim));
		h = S_ISREG(st.st_mode) ? sum_file(m, path, h) : h;
		sum += h;
		if (S_ISDIR(st.st_mode) && strcmp(e->d_name, ".") != 0)
			sum += sum_below(m, path);
	}
	if (d)
		(void)closedir(d);
	return sum;
}

void below_check(struct model *m)
{
	if (sum_below(m, m->host) != m->host_sum)
		bad(m, "the host directory was changed");
}

/* ---- changes ---- */

/* On both sides: in the host directory, and where the plain one has it. */
struct both {
	char host[PATH_MAX], plain[PATH_MAX];
};

static void must(int r, const char *what)
{
	if (r < 0)
		tap_fatal("%s: %s", what, err_text(errno));
}

static void put(const char *path, int flags, off_t at, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0640);

	if (fd < 0 || pwrite(fd, p, n, at) != (ssize_t)n || close(fd) < 0)
		tap_fatal("write %s", path);
}

static void new_name(const char *dir, unsigned n, char out[static PATH_MAX])
{
	if (snprintf(out, PATH_MAX, "%s/h%u", dir, n) >= PATH_MAX)
		tap_fatal("path too long");
}

static void below_new(struct model *m, const struct both *dir, bool isdir)
{
	unsigned n = m->host_names++;
	size_t len = pick_len(m);
	char a[PATH_MAX], b[PATH_MAX];

	new_name(dir->host, n, a);
	new_name(dir->plain, n, b);
	say(m, "host: new %s %s", isdir ? "directory" : "file", b + strlen(m->dir));
	if (isdir) {
		must(mkdir(a, 0750), a);
		must(mkdir(b, 0750), b);
		return;
	}
	fill(m, len);
	put(a, O_CREAT | O_EXCL, 0, m->data, len);
	put(b, O_CREAT | O_EXCL, 0, m->data, len);
}

static void below_write(struct model *m, const struct both *f, off_t size)
{
	size_t len = pick_len(m);
	off_t at =
		rnd(m, 3) ? (off_t)rnd(m, (uint32_t)(size < 1 << 20 ? size + 1 : 1 << 20)) : size;
	bool cut = rnd(m, 3) == 0;

	say(m, "host: %s %zu at %lld of %s", cut ? "cut, write" : "write", len, (long long)at,
	    f->plain + strlen(m->dir));
	if (cut) {
		must(truncate(f->host, at / 2), f->host);
		must(truncate(f->plain, at / 2), f->plain);
	}
	fill(m, len);
	put(f->host, 0, at, m->data, len);
	put(f->plain, 0, at, m->data, len);
}

static void below_replace(struct model *m, const struct both *f)
{
	size_t len = pick_len(m);
	char tmp[PATH_MAX];

	say(m, "host: replace %s by %zu", f->plain + strlen(m->dir), len);
	fill(m, len);
	fx_path(&m->f, "replacement", tmp);
	put(tmp, O_CREAT | O_EXCL, 0, m->data, len);
	must(rename(tmp, f->host), tmp);
	put(tmp, O_CREAT | O_EXCL, 0, m->data, len);
	must(rename(tmp, f->plain), tmp);
}

static void below_move(struct model *m, const struct both *f)
{
	struct both dir = *f, to;
	unsigned n = m->host_names++;

	*strrchr(dir.host, '/') = '\0';
	*strrchr(dir.plain, '/') = '\0';
	new_name(dir.host, n, to.host);
	new_name(dir.plain, n, to.plain);
	say(m, "host: rename %s to h%u", f->plain + strlen(m->dir), n);
	must(rename(f->host, to.host), f->host);
	must(rename(f->plain, to.plain), f->plain);
}

static void below_file(struct model *m, const struct both *f, const struct stat *st)
{
	mode_t mode = 0600 | rnd(m, 0200);

	switch (rnd(m, 7)) {
	case 0:
		say(m, "host: unlink %s", f->plain + strlen(m->dir));
		must(unlink(f->host), f->host);
		must(unlink(f->plain), f->plain);
		break;
	case 1:
		say(m, "host: chmod %s %o", f->plain + strlen(m->dir), mode);
		must(chmod(f->host, mode), f->host);
		must(chmod(f->plain, mode), f->plain);
		break;
	case 2:
		below_replace(m, f);
		break;
	case 3:
		below_move(m, f);
		break;
	default:
		below_write(m, f, st->st_size);
	}
}

static bool is_open(const struct model *m, store_ino ino)
{
	for (size_t i = 0; i < OPEN_MAX; i++)
		if (m->open[i].live && m->open[i].ino == ino)
			return true;
	return false;
}

/* @p: something in the tree. Directories take new names while they are there; files only change while
 * they are the host's, have one name, and nobody has them open. */
static void below_one(struct model *m, const char *p)
{
	cleanup_buf struct buf path = {0};
	struct both b;
	struct ovl_entry e;
	struct stat st;
	bool untouched;

	if (fx_get(&m->f, p, &e) < 0)
		return;
	untouched = e.attr.valid_ms != OVL_FOREVER;
	/* Where it really is: @p may lead over links. */
	if (ovl_path(m->f.o, e.ino, &path) < 0 || !host_path(m, e.ino, b.host) ||
	    lstat(b.host, &st) < 0 ||
	    snprintf(b.plain, sizeof(b.plain), "%s%s", m->dir,
		     path.len > 1 ? (const char *)path.data : "") >= (int)sizeof(b.plain)) {
		ovl_forget(m->f.o, e.ino, 1);
		return;
	}
	ovl_forget(m->f.o, e.ino, 1);
	if (S_ISDIR(st.st_mode) && S_ISDIR(e.attr.st.st_mode))
		below_new(m, &b, untouched && rnd(m, 3) == 0);
	else if (S_ISREG(st.st_mode) && untouched && st.st_nlink == 1 && !is_open(m, e.ino))
		below_file(m, &b, &st);
}

void op_below(struct model *m)
{
	unsigned n = 1 + rnd(m, 4);

	if (!m->host[0])
		return;
	below_check(m);
	/* An older state shows what is untouched as it is now, and the copies here do not. */
	while (m->nstates > 0)
		fx_rm(m->states[--m->nstates].dir);
	memset(m->states, 0, sizeof(m->states));
	for (unsigned i = 0; i < n && !m->failed; i++) {
		char p[PATH_MAX] = "";

		if (rnd(m, 6))
			pick_path(m, p);
		below_one(m, p);
		(void)usleep((TTL_MS + 1) * 1000);
		compare_near(m, p);
	}
	m->host_sum = sum_below(m, m->host);
	agree(m, "host changes", 0, 0);
}

/* ---- the start ---- */

static void some_step(struct model *m, const char *p)
{
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

void below_make(struct model *m)
{
	char work[PATH_MAX], host[PATH_MAX];

	rnd_step(m, UINT64_MAX);
	for (unsigned i = 0; i < 400; i++) {
		char p[PATH_MAX];

		pick_path(m, p);
		changes_before(m);
		some_step(m, p);
	}
	close_all(m);
	fx_umount(&m->f);
	fx_path(&m->f, "host", host);
	fx_path(&m->f, "work-host", work);
	fx_copy(m->dir, host);
	fx_copy(m->dir, work);
	model_open(m, work);
	memcpy(m->host, host, sizeof(host));
	fx_child(&m->f, fx_host_layer(&m->f, host, 0));
	m->f.opts.flush_ms = 50;
	m->f.opts.host_ttl_ms = TTL_MS;
	fx_mount(&m->f);
	compare_tree(m);
	m->host_sum = sum_below(m, host);
	m->nstates = 0;
}
