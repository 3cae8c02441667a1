/* Names, paths, and places in a file: mostly such that something happens. */
#include "tests/unit/core/model/model.h"

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

const char *pick_target(struct model *m)
{
	return words[rnd(m, ARRAY_SIZE(words))];
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A random name of an open directory; its length, 0 when it is empty. In the order of the names: that of a
 * file system may differ from run to run. */
size_t pick_entry(struct model *m, int fd, bool dirs, char *out)
{
	char *names[512];
	DIR *d = fdopendir(fd);
	const struct dirent *e;
	size_t n = 0, len = 0;

	if (!d)
		tap_fatal("fdopendir");
	while (n < ARRAY_SIZE(names) && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    (dirs && e->d_type != DT_DIR))
			continue;
		names[n] = strdup(e->d_name);
		if (!names[n++])
			tap_fatal("memory");
	}
	(void)closedir(d);
	if (n > 0) {
		const char *one;

		qsort(names, n, sizeof(char *), by_name);
		one = names[rnd(m, (uint32_t)n)];
		len = strlen(one);
		memcpy(out, one, len);
	}
	while (n > 0)
		free(names[--n]);
	return len;
}

static int open_at(struct model *m, const char *p)
{
	return openat(m->dirfd, *p ? p : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* What is there, or a free name beside it: most operations would only fail on random paths. */
static void pick_near(struct model *m, char out[static PATH_MAX], bool last_new)
{
	size_t n = 0, k;

	for (unsigned depth = 0; depth < 5; depth++) {
		int fd;

		out[n] = '\0';
		fd = open_at(m, out);
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

void pick_new(struct model *m, char out[static PATH_MAX])
{
	size_t n = 0;

	for (unsigned depth = 0; depth < 5 && rnd(m, 4); depth++) {
		size_t k;
		int fd;

		out[n] = '\0';
		fd = open_at(m, out);
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

void pick_path(struct model *m, char out[static PATH_MAX])
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

void pick_there(struct model *m, mode_t type, char out[static PATH_MAX])
{
	struct stat st;

	for (unsigned i = 0; i < 6; i++) {
		pick_near(m, out, false);
		if (fstatat(m->dirfd, out, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    (!type || (st.st_mode & S_IFMT) == type))
			return;
	}
}

/* At the edges of blocks, pages and small sizes, and anywhere. */
uint64_t pick_off(struct model *m)
{
	switch (rnd(m, 8)) {
	case 0:
		return 0;
	case 1:
		return (uint64_t)rnd(m, 5) * STORE_BLOCK;
	case 2:
		return rnd(m, 3 << 20);
	case 3:
		return STORE_BLOCK - 1 - rnd(m, 3);
	case 4:
		return (uint64_t)(1 + rnd(m, 3)) * STORE_BLOCK + rnd(m, 5) - 2;
	case 5:
		return (uint64_t)rnd(m, 70) * 4096 + rnd(m, 3);
	default:
		return rnd(m, 3000);
	}
}

size_t pick_len(struct model *m)
{
	switch (rnd(m, 9)) {
	case 0:
		return 1 + rnd(m, DATA_MAX - 1);
	case 1:
		return STORE_BLOCK;
	case 2:
		return 1536 + rnd(m, 3);
	case 3:
		return STORE_BLOCK + rnd(m, 5) - 2;
	default:
		return 1 + rnd(m, 4000);
	}
}

void fill(struct model *m, size_t n)
{
	uint32_t kind = rnd(m, 4);

	if (kind == 0) {
		memset(m->data, 0, n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		m->data[i] = (uint8_t)(kind == 1 ? 'x' : rnd(m, 256));
}
