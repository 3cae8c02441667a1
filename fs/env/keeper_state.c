/* What the keeper holds for the next daemon, and how it gets over an exec of its own. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/env/keeper_internal.h"

/* Everything that is written there, and the layouts of what daemons keep. */
#define STATE_MAGIC   UINT64_C(0x31525056454b5452) /* "RTKEVPR1" */
#define STATE_VERSION 4

struct state_head {
	uint64_t magic;
	uint32_t version, nitems;
	uint32_t own_ns, helper, quick, tries, pad;
	int32_t old_pid;
};
struct state_item {
	uint32_t kind, len;
	uint64_t id;
	int32_t fd;
	uint32_t pad;
};

/* ---- items ---- */

int keeper_hold(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd)
{
	struct keeper_item *x = malloc(sizeof(*x) + len + 1);

	if (!x) {
		if (fd >= 0)
			(void)close(fd);
		return -ENOMEM;
	}
	*x = (struct keeper_item){
		.next = k->items, .kind = kind, .len = (uint32_t)len, .id = id, .fd = fd};
	if (len)
		memcpy(x->data, data, len);
	x->data[len] = 0;
	k->items = x;
	return 0;
}

struct keeper_item *keeper_find(struct keeper_link *k, enum keeper_kind kind)
{
	struct keeper_item *x = k->items;

	while (x && x->kind != kind)
		x = x->next;
	return x;
}

void keeper_release(struct keeper_link *k)
{
	for (size_t i = 0; i < KEEPER_MOUNTS; i++) {
		if (k->mounts[i].fd >= 0)
			(void)close(k->mounts[i].fd);
		k->mounts[i].fd = -1;
	}
	while (k->items) {
		struct keeper_item *x = k->items;

		k->items = x->next;
		if (x->fd >= 0)
			(void)close(x->fd);
		free(x);
	}
}

/* ---- over an exec ---- */

static int save_item(int to, uint32_t kind, uint64_t id, const void *data, size_t len, int fd)
{
	struct state_item x = {.kind = kind, .len = (uint32_t)len, .id = id, .fd = fd};
	int r = 0;

	if (fd >= 0 && fcntl(fd, F_SETFD, 0) < 0)
		return ret_nerrno();
	r = io_write_full(to, &x, sizeof(x));
	return r == 0 && len ? io_write_full(to, data, len) : r;
}

int keeper_save(struct keeper_link *k, const struct keeper_state *st, int *ret_fd)
{
	cleanup_fd int fd = memfd_create("rattan-keeper", 0);
	struct state_head h = {.magic = STATE_MAGIC,
			       .version = STATE_VERSION,
			       .own_ns = st->own_ns,
			       .helper = k->helper,
			       .quick = st->quick,
			       .tries = st->tries,
			       .old_pid = st->old_pid};
	int r = fd < 0 ? ret_nerrno() : 0;

	for (const struct keeper_item *x = k->items; x; x = x->next)
		h.nitems++;
	for (size_t i = 0; i < KEEPER_MOUNTS; i++)
		h.nitems += k->mounts[i].fd >= 0;
	if (r == 0)
		r = io_write_full(fd, &h, sizeof(h));
	for (const struct keeper_item *x = k->items; r == 0 && x; x = x->next)
		r = save_item(fd, x->kind, x->id, x->data, x->len, x->fd);
	for (size_t i = 0; r == 0 && i < KEEPER_MOUNTS; i++)
		if (k->mounts[i].fd >= 0)
			r = save_item(fd, KEEP_FUSE, i, k->mounts[i].dir, strlen(k->mounts[i].dir),
				      k->mounts[i].fd);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = ret_nerrno();
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

static int load_mount(struct keeper_link *k, const char *dir, size_t len, int fd)
{
	for (size_t i = 0; i < KEEPER_MOUNTS; i++) {
		if (k->mounts[i].fd >= 0 || len >= sizeof(k->mounts[i].dir))
			continue;
		memcpy(k->mounts[i].dir, dir, len);
		k->mounts[i].dir[len] = 0;
		k->mounts[i].fd = fd;
		return 0;
	}
	return -EMFILE;
}

static int load_item(int from, struct keeper_link *k)
{
	cleanup_free uint8_t *data = NULL;
	struct state_item x;

	if (io_read_full(from, &x, sizeof(x)) != (ssize_t)sizeof(x) || x.len > KEEPER_DATA_MAX)
		return -EBADMSG;
	data = malloc(x.len + 1);
	if (!data)
		return -ENOMEM;
	if (io_read_full(from, data, x.len) != (ssize_t)x.len)
		return -EBADMSG;
	data[x.len] = 0;
	if (x.fd >= 0 && fcntl(x.fd, F_SETFD, FD_CLOEXEC) < 0)
		return ret_nerrno();
	return x.kind == KEEP_FUSE ? load_mount(k, (char *)data, x.len, x.fd)
				   : keeper_hold(k, x.kind, x.id, data, x.len, x.fd);
}

int keeper_load(int fd, struct keeper_link *k, struct keeper_state *st)
{
	cleanup_fd int from = fd;
	struct state_head h;
	int r = 0;

	/* First, for whoever cannot go on gives up what is in @k. */
	keeper_link_init(k, -1, false);
	if (io_read_full(from, &h, sizeof(h)) != (ssize_t)sizeof(h) || h.magic != STATE_MAGIC)
		return -EBADMSG;
	if (h.version != STATE_VERSION)
		return -EPROTONOSUPPORT;
	if (h.nitems > KEEPER_ITEMS_MAX + KEEPER_MOUNTS)
		return -EBADMSG;
	k->helper = h.helper;
	*st = (struct keeper_state){
		.own_ns = h.own_ns, .quick = h.quick, .tries = h.tries, .old_pid = h.old_pid};
	for (uint32_t i = 0; r == 0 && i < h.nitems; i++)
		r = load_item(from, k);
	return r;
}

/* ---- a process that is dying ---- */

static bool task_runs(int tasks, const char *tid)
{
	cleanup_buf struct buf b = {0};
	char path[64];
	const char *p;

	(void)snprintf(path, sizeof(path), "%.20s/stat", tid);
	if (io_read_file(tasks, path, 4096, &b) < 0)
		return false; /* it has ended */
	p = strrchr((const char *)b.data, ')');
	return p && p[1] == ' ' && p[2] != 'D' && p[2] != 'Z' && p[2] != 'X';
}

bool keeper_runs(pid_t pid)
{
	cleanup_dir DIR *d = NULL;
	const struct dirent *e;
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	/* Without memory or descriptors nobody knows; who asks does not ask for ever. */
	if (!d)
		return errno != ENOENT;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.' && task_runs(dirfd(d), e->d_name))
			return true;
	return false;
}
