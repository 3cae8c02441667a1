/* The tree as text. */
#include <sys/xattr.h>

#include "fs/core/table.h"
#include "tests/unit/core/fail/fail.h"

struct dump {
	struct rig *g;
	struct buf out;
	struct {
		char name[64];
		store_ino ino;
	} e[64];
	size_t n;
};

static int dump_collect(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	struct dump *d = arg;

	(void)cookie;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (d->n == 64 || strlen(name) >= 64)
		tap_fatal("the tree is too large for this test");
	memcpy(d->e[d->n++].name, name, strlen(name) + 1);
	(void)e;
	return 0;
}

static int dump_cmp(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* What cannot be read stands in the text, too. */
static bool fine(struct dump *d, int r, const char *what)
{
	if (r < 0)
		must(buf_printf(&d->out, " %s: %s\n", what, err_text(r)), "dump");
	return r >= 0;
}

static void dump_xattrs(struct dump *d, store_ino ino)
{
	char list[4096], value[70000], *names[64];
	ssize_t n = ovl_listxattr(d->g->f.o, ino, list, sizeof(list)), k;
	size_t count = 0;

	if (!fine(d, (int)n, "listxattr"))
		return;
	for (char *p = list; p < list + n && count < 64; p += strlen(p) + 1)
		names[count++] = p;
	for (size_t i = 1; i < count; i++)
		for (size_t j = i; j > 0 && strcmp(names[j - 1], names[j]) > 0; j--) {
			char *x = names[j];

			names[j] = names[j - 1];
			names[j - 1] = x;
		}
	for (size_t i = 0; i < count; i++) {
		k = ovl_getxattr(d->g->f.o, ino, names[i], value, sizeof(value));
		if (!fine(d, (int)k, names[i]))
			continue;
		must(buf_printf(&d->out, " %s=%zd:%llx", names[i], k,
				(unsigned long long)table_hash(1, value, (size_t)k)),
		     "dump");
	}
}

static void dump_node(struct dump *d, const char *path, store_ino ino);

static void dump_dir(struct dump *d, const char *path, store_ino ino)
{
	struct dump *sub = calloc(1, sizeof(*sub));

	if (!sub)
		tap_fatal("memory");
	sub->g = d->g;
	sub->out = d->out;
	(void)fine(sub, ovl_readdir(d->g->f.o, ino, 0, false, dump_collect, sub), path);
	qsort(sub->e, sub->n, sizeof(sub->e[0]), dump_cmp);
	for (size_t i = 0; i < sub->n; i++) {
		struct ovl_entry e = {0};
		char child[300];

		if ((size_t)snprintf(child, sizeof(child), "%s/%s", path, sub->e[i].name) >=
		    sizeof(child))
			tap_fatal("a path that is too long");
		if (!fine(sub, ovl_lookup(d->g->f.o, ino, sub->e[i].name, &e), child))
			continue;
		dump_node(sub, child, e.ino);
		ovl_forget(d->g->f.o, e.ino, 1);
	}
	d->out = sub->out;
	free(sub);
}

static void dump_bytes(struct dump *d, store_ino ino, size_t size)
{
	uint8_t *p = calloc(1, size + 1);
	ssize_t k = ovl_read(d->g->f.o, ino, 0, p, size + 1);

	if (!fine(d, k < 0 ? (int)k : k != (ssize_t)size ? -EIO : 0, "bytes"))
		memset(p, 0, size);
	must(buf_printf(&d->out, " bytes %llx", (unsigned long long)table_hash(2, p, size)),
	     "dump");
	free(p);
}

static void dump_node(struct dump *d, const char *path, store_ino ino)
{
	struct ovl_attr a;
	char target[4096];

	if (!fine(d, ovl_getattr(d->g->f.o, ino, &a), path))
		return;
	must(buf_printf(&d->out, "%s %o %u %u %u %lld", path, a.st.st_mode, a.st.st_uid,
			a.st.st_gid, (unsigned)a.st.st_nlink,
			S_ISDIR(a.st.st_mode) ? 0 : (long long)a.st.st_size),
	     "dump");
	if (S_ISLNK(a.st.st_mode)) {
		if (fine(d, ovl_readlink(d->g->f.o, ino, target), path))
			must(buf_printf(&d->out, " -> %s", target), "dump");
	}
	if (S_ISREG(a.st.st_mode))
		dump_bytes(d, ino, (size_t)a.st.st_size);
	dump_xattrs(d, ino);
	must(buf_puts(&d->out, "\n"), "dump");
	if (S_ISDIR(a.st.st_mode))
		dump_dir(d, path, ino);
}

char *rig_dump(struct rig *g)
{
	struct dump d = {.g = g};
	char *text;
	size_t n;

	dump_node(&d, "", STORE_ROOT_INO);
	must(buf_steal(&d.out, &text, &n), "dump");
	return text;
}
