/*
 * What a bootstrap makes on the way has a name that is its alone, and a file of that name in the data directory, which it holds a lock on
 * from before the first of it until after the last. Of a file that nobody holds the process is gone, and what it left can go.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/bootstrap.h"

#define PREFIX "bootstrap."

/* Held, and still the file of that name: 1; 0 it is another's; negative errno. */
static int hold(int dir, const char *name, int flags, int *ret)
{
	cleanup_fd int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	struct stat mine, there;

	if (fd < 0)
		return errno == EEXIST || errno == ENOENT ? 0 : ret_nerrno();
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : ret_nerrno();
	if (fstat(fd, &mine) < 0)
		return ret_nerrno();
	if (fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) < 0 || mine.st_dev != there.st_dev ||
	    mine.st_ino != there.st_ino)
		return 0;
	*ret = steal_fd(&fd);
	return 1;
}

/* ---- what others left ---- */

struct found {
	const char *prefix; /* a bootstrap's name */
	char (*names)[80];
	size_t n;
};

static int keep(struct found *f, const char *name)
{
	size_t len = strlen(f->prefix);
	char(*v)[80];

	if (strncmp(name, f->prefix, len) != 0 || (name[len] && name[len] != '.'))
		return 0;
	v = realloc(f->names, (f->n + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	f->names = v;
	(void)snprintf(f->names[f->n++], sizeof(*v), "%s", name);
	return 0;
}

static int see_env(void *arg, const struct ctl_env_info *e)
{
	return keep(arg, e->name);
}

static int see_base(void *arg, const struct ctl_base_info *i)
{
	return keep(arg, i->name);
}

/* Environments first: they are on the base. */
static int remove_all(const char *name, struct diag *diag)
{
	struct found envs = {.prefix = name}, bases = {.prefix = name};
	int r = ctl_env_list(NULL, diag, see_env, &envs);

	for (size_t i = 0; r == 0 && i < envs.n; i++)
		r = ctl_env_remove(NULL, envs.names[i], true, diag);
	if (r == 0)
		r = ctl_base_list(NULL, diag, see_base, &bases);
	for (size_t i = 0; r == 0 && i < bases.n; i++)
		r = ctl_base_remove(NULL, bases.names[i], diag);
	free(envs.names);
	free(bases.names);
	return r;
}

static void sweep_one(int dir, const char *name)
{
	cleanup_fd int fd = -1;
	struct diag diag = {0};
	int r = hold(dir, name, 0, &fd);

	if (r <= 0)
		return;
	r = remove_all(name, &diag);
	if (r < 0) {
		fprintf(stderr, "rattan: %s of a bootstrap that was killed is left: %s\n", name,
			*diag.text ? diag.text : err_text(r));
		return;
	}
	(void)unlinkat(dir, name, 0);
	fprintf(stderr, "rattan: removed %s, which a bootstrap that was killed had left\n", name);
}

static void sweep(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);

	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
		if (!strncmp(e->d_name, PREFIX, strlen(PREFIX)))
			sweep_one(dir, e->d_name);
}

/* ---- our own ---- */

static int take_name(struct boot *b, int dir)
{
	unsigned long long at = (unsigned long long)time(NULL);
	int r = 0;

	/* Who has our number in another PID namespace may have come in the same second. */
	for (unsigned i = 0; r == 0 && i < 100; i++) {
		(void)snprintf(b->name, sizeof(b->name), PREFIX "%d.%llx", (int)getpid(), at + i);
		r = hold(dir, b->name, O_CREAT | O_EXCL, &b->lock_fd);
	}
	return r == 0 ? -EAGAIN : r < 0 ? r : 0;
}

int boot_hold(struct boot *b, struct diag *diag)
{
	cleanup_free char *data = NULL;
	int r = ctl_data_dir(&data);

	if (r == 0)
		r = io_mkdir_p(data, 0700);
	if (r == 0) {
		b->data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = b->data_fd < 0 ? ret_nerrno() : 0;
	}
	if (r == 0) {
		sweep(b->data_fd);
		r = take_name(b, b->data_fd);
	}
	return r < 0 ? diag_set(diag, r, "cannot begin in the data directory %s: %s",
				data ? data : "", err_text(r))
		     : 0;
}

void boot_let_go(struct boot *b)
{
	if (b->lock_fd >= 0 && !b->left)
		(void)unlinkat(b->data_fd, b->name, 0);
	cleanup_fdp(&b->lock_fd);
	cleanup_fdp(&b->data_fd);
	b->lock_fd = b->data_fd = -1;
}
