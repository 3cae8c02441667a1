/* The tree in memory, and the answers. */
#include "tests/bench/ceiling_internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HASH    ((size_t)1 << 18)
#define FOREVER 1000000000u /* seconds */

struct inode {
	struct fuse_attr attr;
	uint64_t parent, nlookup;
	uint8_t *data; /* of a file, or the target */
	size_t cap;
	struct entry *first, *last; /* of a directory, by offset */
	struct entry *at;           /* where the last listing ended */
	uint64_t next_off;
};

struct entry {
	struct entry *next; /* in its hash slot */
	struct entry *after, *before;
	struct inode *dir, *ino;
	uint64_t off;
	size_t len;
	char name[];
};

/* ---- inodes ---- */

static struct inode *get(struct ceiling *c, uint64_t ino)
{
	return ino < c->ninodes ? c->inodes[ino] : NULL;
}

static void touch(struct inode *n, bool changed)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	n->attr.ctime = (uint64_t)t.tv_sec;
	n->attr.ctimensec = (uint32_t)t.tv_nsec;
	if (!changed)
		return;
	n->attr.mtime = n->attr.ctime;
	n->attr.mtimensec = n->attr.ctimensec;
}

static struct inode *make(struct ceiling *c, const struct fuse_in_header *in, uint32_t mode,
			  uint32_t rdev)
{
	struct inode *n = calloc(1, sizeof(*n));

	if (n && c->ninodes == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 1024;
		struct inode **more = realloc(c->inodes, cap * sizeof(struct inode *));

		if (!more) {
			free(n);
			return NULL;
		}
		c->inodes = more;
		c->cap = cap;
	}
	if (!n)
		return NULL;
	n->attr = (struct fuse_attr){
		.ino = c->ninodes,
		.mode = mode,
		.nlink = S_ISDIR(mode) ? 2 : 1,
		.uid = in ? in->uid : getuid(),
		.gid = in ? in->gid : getgid(),
		.rdev = rdev,
		.blksize = 128 * 1024,
	};
	n->next_off = 3; /* after . and .. */
	touch(n, true);
	n->attr.atime = n->attr.mtime;
	c->inodes[c->ninodes++] = n;
	return n;
}

static void drop(struct ceiling *c, struct inode *n)
{
	if (n->attr.nlink || n->nlookup)
		return;
	c->inodes[n->attr.ino] = NULL;
	free(n->data);
	free(n);
}

static bool resize(struct inode *n, size_t size)
{
	if (size > n->cap) {
		size_t cap = size < 4096 ? size : size < n->cap * 2 ? n->cap * 2 : size;
		uint8_t *more = realloc(n->data, cap);

		if (!more)
			return false;
		n->data = more;
		n->cap = cap;
	}
	if (size > n->attr.size)
		memset(n->data + n->attr.size, 0, size - n->attr.size);
	n->attr.size = size;
	n->attr.blocks = (size + 511) / 512;
	return true;
}

int ceiling_tree_init(struct ceiling *c)
{
	c->hash = calloc(HASH, sizeof(struct entry *));
	/* Number 0 is nobody's, 1 the root's. */
	if (!c->hash || !make(c, NULL, S_IFREG, 0) || !make(c, NULL, S_IFDIR | 0755, 0))
		return -ENOMEM;
	c->inodes[FUSE_ROOT_ID]->nlookup = 1;
	c->inodes[FUSE_ROOT_ID]->parent = FUSE_ROOT_ID;
	return 0;
}

/* ---- names ---- */

static struct entry **slot(struct ceiling *c, const struct inode *dir, const char *name)
{
	uint64_t h = dir->attr.ino * 0x9e3779b97f4a7c15u;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3u;
	return &c->hash[(h ^ h >> 32) % HASH];
}

static struct entry *find(struct ceiling *c, const struct inode *dir, const char *name)
{
	struct entry *e = *slot(c, dir, name);

	while (e && (e->dir != dir || strcmp(e->name, name) != 0))
		e = e->next;
	return e;
}

static int add(struct ceiling *c, struct inode *dir, const char *name, struct inode *n)
{
	struct entry **s = slot(c, dir, name);
	size_t len = strlen(name);
	struct entry *e = malloc(sizeof(*e) + len + 1);

	if (!e)
		return ENOMEM;
	*e = (struct entry){.next = *s, .before = dir->last, .dir = dir, .ino = n, .len = len};
	e->off = dir->next_off++;
	memcpy(e->name, name, len + 1);
	*s = e;
	if (dir->last)
		dir->last->after = e;
	else
		dir->first = e;
	dir->last = e;
	if (S_ISDIR(n->attr.mode)) {
		n->parent = dir->attr.ino;
		dir->attr.nlink++;
	}
	touch(dir, true);
	touch(n, false);
	return 0;
}

static void del(struct ceiling *c, struct entry *e)
{
	struct entry **s = slot(c, e->dir, e->name);

	while (*s != e)
		s = &(*s)->next;
	*s = e->next;
	if (e->before)
		e->before->after = e->after;
	else
		e->dir->first = e->after;
	if (e->after)
		e->after->before = e->before;
	else
		e->dir->last = e->before;
	if (e->dir->at == e)
		e->dir->at = NULL;
	if (S_ISDIR(e->ino->attr.mode))
		e->dir->attr.nlink--;
	touch(e->dir, true);
	touch(e->ino, false);
	free(e);
}

static struct fuse_entry_out entry_of(struct inode *n)
{
	n->nlookup++;
	return (struct fuse_entry_out){
		.nodeid = n->attr.ino,
		.generation = 1,
		.entry_valid = FOREVER,
		.attr_valid = FOREVER,
		.attr = n->attr,
	};
}

static void reply_entry(struct request *q, struct inode *n)
{
	struct fuse_entry_out out = entry_of(n);

	ceiling_reply(q, 0, &out, sizeof(out));
}

static void lookup(struct request *q, struct inode *dir)
{
	struct entry *e = find(q->c, dir, q->arg);
	struct fuse_entry_out none = {.entry_valid = FOREVER};

	if (e)
		reply_entry(q, e->ino);
	else
		ceiling_reply(q, 0, &none, sizeof(none));
}

static void new_name(struct request *q, struct inode *dir, const char *name, uint32_t mode,
		     uint32_t rdev, const char *target)
{
	struct inode *n = find(q->c, dir, name) ? NULL : make(q->c, q->in, mode, rdev);

	if (!n) {
		ceiling_reply(q, EEXIST, NULL, 0);
		return;
	}
	if (target && resize(n, strlen(target)))
		memcpy(n->data, target, strlen(target));
	if (add(q->c, dir, name, n))
		ceiling_reply(q, ENOMEM, NULL, 0);
	else
		reply_entry(q, n);
}

static void link_to(struct request *q, struct inode *dir)
{
	const struct fuse_link_in *in = q->arg;
	struct inode *n = get(q->c, in->oldnodeid);
	const char *name = (const char *)(in + 1);

	if (!n || find(q->c, dir, name) || add(q->c, dir, name, n)) {
		ceiling_reply(q, EEXIST, NULL, 0);
		return;
	}
	n->attr.nlink++;
	reply_entry(q, n);
}

static int take_away(struct ceiling *c, struct inode *dir, const char *name, bool is_dir)
{
	struct entry *e = find(c, dir, name);
	struct inode *n = e ? e->ino : NULL;

	if (!e)
		return ENOENT;
	if (is_dir && n->first)
		return ENOTEMPTY;
	del(c, e);
	n->attr.nlink = is_dir ? 0 : n->attr.nlink - 1;
	drop(c, n);
	return 0;
}

static int move(struct ceiling *c, struct inode *dir, const char *from, struct inode *to_dir,
		const char *to)
{
	struct entry *e = find(c, dir, from), *old;
	struct inode *n = e ? e->ino : NULL;

	if (!e || !to_dir)
		return ENOENT;
	old = find(c, to_dir, to);
	if (old == e)
		return 0;
	if (old) {
		int r = take_away(c, to_dir, to, S_ISDIR(old->ino->attr.mode));

		if (r)
			return r;
	}
	del(c, e);
	return add(c, to_dir, to, n);
}

static void rename_it(struct request *q, struct inode *dir)
{
	const struct fuse_rename2_in *in = q->arg;
	const char *from = (const char *)(in + 1), *to = from + strlen(from) + 1;
	struct inode *to_dir = get(q->c, in->newdir);

	if (in->flags)
		ceiling_reply(q, EINVAL, NULL, 0);
	else
		ceiling_reply(q, move(q->c, dir, from, to_dir, to), NULL, 0);
}

/* ---- listings ---- */

static size_t put_entry(uint8_t *out, size_t room, bool plus, struct inode *n, const char *name,
			size_t len, uint64_t off, bool counts)
{
	size_t head = plus ? offsetof(struct fuse_direntplus, dirent) : 0;
	struct fuse_dirent d = {.ino = n->attr.ino,
				.off = off,
				.namelen = (uint32_t)len,
				.type = n->attr.mode >> 12};
	size_t need = head + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + len);

	if (need > room)
		return 0;
	memset(out, 0, need);
	if (plus && counts) {
		struct fuse_entry_out e = entry_of(n);

		memcpy(out, &e, sizeof(e));
	}
	memcpy(out + head, &d, FUSE_NAME_OFFSET);
	memcpy(out + head + FUSE_NAME_OFFSET, name, len);
	return need;
}

static struct entry *behind(struct inode *dir, uint64_t off)
{
	struct entry *e = dir->at && dir->at->off <= off ? dir->at : dir->first;

	while (e && e->off <= off)
		e = e->after;
	return e;
}

static void list(struct request *q, struct inode *dir, bool plus)
{
	const struct fuse_read_in *in = q->arg;
	size_t room = in->size < CEILING_DATA ? in->size : CEILING_DATA, len = 0, k;
	struct inode *up = get(q->c, dir->parent);

	if (in->offset < 1)
		len += put_entry(q->out, room, plus, dir, ".", 1, 1, false);
	if (in->offset < 2)
		len += put_entry(q->out + len, room - len, plus, up ? up : dir, "..", 2, 2, false);
	for (struct entry *e = behind(dir, in->offset); e; e = e->after) {
		k = put_entry(q->out + len, room - len, plus, e->ino, e->name, e->len, e->off,
			      true);
		if (!k)
			break;
		len += k;
		dir->at = e;
	}
	ceiling_reply(q, 0, q->out, len);
}

/* ---- attributes and bytes ---- */

static void reply_attr(struct request *q, const struct inode *n)
{
	struct fuse_attr_out out = {.attr_valid = FOREVER, .attr = n->attr};

	ceiling_reply(q, 0, &out, sizeof(out));
}

static void set_attr(struct request *q, struct inode *n)
{
	const struct fuse_setattr_in *in = q->arg;

	touch(n, in->valid & FATTR_SIZE);
	if (in->valid & FATTR_MODE)
		n->attr.mode = in->mode;
	if (in->valid & FATTR_UID)
		n->attr.uid = in->uid;
	if (in->valid & FATTR_GID)
		n->attr.gid = in->gid;
	if (in->valid & FATTR_ATIME) {
		n->attr.atime = in->atime;
		n->attr.atimensec = in->atimensec;
	}
	if (in->valid & FATTR_MTIME) {
		n->attr.mtime = in->mtime;
		n->attr.mtimensec = in->mtimensec;
	}
	if (in->valid & FATTR_SIZE && !resize(n, in->size))
		ceiling_reply(q, ENOMEM, NULL, 0);
	else
		reply_attr(q, n);
}

static void read_it(struct request *q, const struct inode *n)
{
	const struct fuse_read_in *in = q->arg;
	size_t left = in->offset < n->attr.size ? n->attr.size - in->offset : 0;

	ceiling_reply(q, 0, left ? n->data + in->offset : NULL, left < in->size ? left : in->size);
}

static void write_it(struct request *q, struct inode *n)
{
	const struct fuse_write_in *in = q->arg;
	struct fuse_write_out out = {.size = in->size};

	if (in->offset + in->size > n->attr.size && !resize(n, in->offset + in->size)) {
		ceiling_reply(q, ENOMEM, NULL, 0);
		return;
	}
	memcpy(n->data + in->offset, in + 1, in->size);
	touch(n, true);
	ceiling_reply(q, 0, &out, sizeof(out));
}

static void forget(struct ceiling *c, uint64_t ino, uint64_t nlookup)
{
	struct inode *n = get(c, ino);

	if (!n)
		return;
	n->nlookup -= nlookup < n->nlookup ? nlookup : n->nlookup;
	drop(c, n);
}

static void forget_many(struct request *q)
{
	const struct fuse_batch_forget_in *in = q->arg;
	const struct fuse_forget_one *one = (const void *)(in + 1);

	for (uint32_t i = 0; i < in->count; i++)
		forget(q->c, one[i].nodeid, one[i].nlookup);
}

static void about_xattrs(struct request *q)
{
	const struct fuse_getxattr_in *in = q->arg;
	struct fuse_getxattr_out none = {0};

	if (q->in->opcode == FUSE_GETXATTR)
		ceiling_reply(q, ENODATA, NULL, 0);
	else
		ceiling_reply(q, 0, &none, in->size ? 0 : sizeof(none));
}

static void about_room(struct request *q)
{
	struct fuse_statfs_out out = {.st = {.blocks = 1u << 28,
					     .bfree = 1u << 28,
					     .bavail = 1u << 28,
					     .files = 1u << 28,
					     .ffree = 1u << 28,
					     .bsize = 4096,
					     .frsize = 4096,
					     .namelen = 255}};

	ceiling_reply(q, 0, &out, sizeof(out));
}

/* ---- by opcode ---- */

static void answer_names(struct request *q, struct inode *n)
{
	const struct fuse_mknod_in *nod = q->arg;
	const struct fuse_mkdir_in *dir = q->arg;
	const char *name = q->arg;

	switch (q->in->opcode) {
	case FUSE_MKNOD:
		new_name(q, n, (const char *)(nod + 1), nod->mode, nod->rdev, NULL);
		break;
	case FUSE_MKDIR:
		new_name(q, n, (const char *)(dir + 1), S_IFDIR | dir->mode, 0, NULL);
		break;
	case FUSE_SYMLINK:
		new_name(q, n, name, S_IFLNK | 0777, 0, name + strlen(name) + 1);
		break;
	case FUSE_UNLINK:
	case FUSE_RMDIR:
		ceiling_reply(q, take_away(q->c, n, name, q->in->opcode == FUSE_RMDIR), NULL, 0);
		break;
	case FUSE_LINK:
		link_to(q, n);
		break;
	case FUSE_RENAME:
		ceiling_reply(q,
			      move(q->c, n, name + 8, get(q->c, *(const uint64_t *)q->arg),
				   name + 8 + strlen(name + 8) + 1),
			      NULL, 0);
		break;
	case FUSE_RENAME2:
		rename_it(q, n);
		break;
	default: /* OPEN, OPENDIR, FLUSH and CREATE among them: then the kernel sends none any more */
		ceiling_reply(q, ENOSYS, NULL, 0);
		break;
	}
}

void ceiling_answer(struct request *q)
{
	const struct fuse_forget_in *f = q->arg;
	struct inode *n = get(q->c, q->in->nodeid);

	switch (q->in->opcode) {
	case FUSE_FORGET:
		forget(q->c, q->in->nodeid, f->nlookup);
		return;
	case FUSE_BATCH_FORGET:
		forget_many(q);
		return;
	case FUSE_INTERRUPT:
		return;
	case FUSE_STATFS:
		about_room(q);
		return;
	default:
		break;
	}
	if (!n) {
		ceiling_reply(q, ESTALE, NULL, 0);
		return;
	}
	switch (q->in->opcode) {
	case FUSE_LOOKUP:
		lookup(q, n);
		break;
	case FUSE_GETATTR:
		reply_attr(q, n);
		break;
	case FUSE_SETATTR:
		set_attr(q, n);
		break;
	case FUSE_READLINK:
		ceiling_reply(q, 0, n->data, n->attr.size);
		break;
	case FUSE_READ:
		read_it(q, n);
		break;
	case FUSE_WRITE:
		write_it(q, n);
		break;
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		list(q, n, q->in->opcode == FUSE_READDIRPLUS);
		break;
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
		ceiling_reply(q, 0, NULL, 0);
		break;
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
		about_xattrs(q);
		break;
	default:
		answer_names(q, n);
		break;
	}
}
