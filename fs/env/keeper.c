#include "fs/env/keeper.h"

#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "fs/env/keeper_internal.h"

void keeper_link_init(struct keeper_link *k, int sock, bool helper)
{
	memset(k, 0, sizeof(*k));
	k->sock = sock;
	k->helper = helper;
	for (size_t i = 0; i < KEEPER_MOUNTS; i++)
		k->mounts[i].fd = -1;
}

static size_t size_of(const struct keeper_msg *m)
{
	bool item = m->op == KEEPER_KEEP || m->op == KEEPER_DROP;

	return item ? KEEPER_MSG_HEAD + m->len : sizeof(*m);
}

static int ask(struct keeper_link *k, const struct keeper_msg *m, int fd, struct diag *diag,
	       int *ret_fd)
{
	struct keeper_reply rp;
	int fds[IO_MAX_FDS], r;
	size_t nfds = 0;
	ssize_t n;

	if (k->sock < 0)
		return keeper_do(k, m, diag, ret_fd);
	r = io_send_fds(k->sock, m, size_of(m), &fd, fd >= 0);
	if (r < 0)
		return diag_set(diag, -EPIPE, "the keeper process is gone");
	if (m->quiet)
		return 0;
	n = io_recv_fds(k->sock, &rp, sizeof(rp), fds, &nfds);
	for (size_t i = ret_fd ? 1 : 0; i < nfds; i++)
		(void)close(fds[i]);
	if (n != (ssize_t)sizeof(rp)) {
		if (ret_fd && nfds)
			(void)close(fds[0]);
		return diag_set(diag, -EPIPE, "the keeper process is gone");
	}
	if (rp.r < 0 && rp.diag.text[0])
		diag_set(diag, rp.r, "%s", rp.diag.text);
	if (ret_fd && rp.r >= 0) {
		if (nfds == 0)
			return -EBADMSG;
		*ret_fd = fds[0];
	}
	return rp.r;
}

static int put(char *dst, size_t size, const char *s)
{
	size_t n = strlen(s);

	if (n >= size)
		return -ENAMETOOLONG;
	memcpy(dst, s, n + 1);
	return 0;
}

int keeper_mount(struct keeper_link *k, const struct keeper_mount_opts *o, struct diag *diag,
		 int *ret_fd)
{
	struct keeper_msg m = {
		.op = KEEPER_MOUNT, .rdonly = o->rdonly, .allow_other = o->allow_other};
	int r = put(m.dir, sizeof(m.dir), o->dir);

	if (r == 0)
		r = put(m.host, sizeof(m.host), o->name);
	return r < 0 ? r : ask(k, &m, -1, diag, ret_fd);
}

int keeper_umount(struct keeper_link *k, const char *dir, bool rmdir)
{
	struct keeper_msg m = {.op = KEEPER_UMOUNT, .rmdir = rmdir};
	int r = put(m.dir, sizeof(m.dir), dir);

	return r < 0 ? r : ask(k, &m, -1, NULL, NULL);
}

int keeper_bind(struct keeper_link *k, const char *dir, const char *path, const char *host,
		uint64_t dev, uint64_t ino, bool rw, struct diag *diag)
{
	struct keeper_msg m = {.op = KEEPER_BIND, .dev = dev, .ino = ino, .rw = rw};
	int r = put(m.dir, sizeof(m.dir), dir);

	if (r == 0)
		r = put(m.path, sizeof(m.path), path);
	if (r == 0)
		r = put(m.host, sizeof(m.host), host);
	return r < 0 ? r : ask(k, &m, -1, diag, NULL);
}

int keeper_unbind(struct keeper_link *k, const char *dir, const char *path, struct diag *diag)
{
	struct keeper_msg m = {.op = KEEPER_UNBIND};
	int r = put(m.dir, sizeof(m.dir), dir);

	if (r == 0)
		r = put(m.path, sizeof(m.path), path);
	return r < 0 ? r : ask(k, &m, -1, diag, NULL);
}

static int keep(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd, bool quiet)
{
	struct keeper_msg m;

	if (len > sizeof(m.data))
		return -E2BIG;
	memset(&m, 0, KEEPER_MSG_HEAD);
	m.op = KEEPER_KEEP;
	m.quiet = quiet;
	m.with_fd = fd >= 0;
	m.kind = kind;
	m.ino = id;
	m.len = (uint32_t)len;
	if (len)
		memcpy(m.data, data, len);
	return ask(k, &m, fd, NULL, NULL);
}

int keeper_keep(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd)
{
	return keep(k, kind, id, data, len, fd, false);
}

int keeper_tell(struct keeper_link *k, enum keeper_kind kind, uint64_t id, const void *data,
		size_t len, int fd)
{
	return keep(k, kind, id, data, len, fd, true);
}

void keeper_drop(struct keeper_link *k, enum keeper_kind kind, uint64_t id)
{
	struct keeper_msg m;

	memset(&m, 0, KEEPER_MSG_HEAD);
	m.op = KEEPER_DROP;
	m.quiet = true;
	m.kind = kind;
	m.ino = id;
	(void)!ask(k, &m, -1, NULL, NULL);
}
