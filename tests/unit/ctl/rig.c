#include "tests/unit/ctl/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "fs/ctl/ctl_io.h"
#include "tests/lib/namespaces.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

void place_make(struct place *p)
{
	need_namespaces();
	(void)snprintf(p->top, sizeof(p->top), "/tmp/rattan-test-XXXXXX");
	if (!mkdtemp(p->top))
		tap_fatal("no directory");
	(void)snprintf(p->data, sizeof(p->data), "%s/data", p->top);
	(void)snprintf(p->host, sizeof(p->host), "%s/host", p->top);
	put_host(p->host, "f", "host");
	(void)setenv("XDG_RUNTIME_DIR", p->top, 1);
}

void place_remove(const struct place *p)
{
	tree_remove(p->top);
}

void put_host(const char *dir, const char *name, const char *text)
{
	cleanup_fd int fd = -1;
	char path[160];

	(void)mkdir(dir, 0755);
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || io_write_full(fd, text, strlen(text)) < 0)
		tap_fatal("no host file");
}

struct ctl *open_env(const struct place *p, const char *const *writable)
{
	struct ctl_env_opts o = {.data_dir = p->data, .create = true, .writable = writable};
	struct diag d = {0};
	struct ctl *c = NULL;
	int r = ctl_open(&o, &d, &c);

	if (r < 0)
		tap_fatal("ctl_open: %d %s\n", r, d.text);
	return c;
}

pid_t daemon_of(struct ctl *c)
{
	struct ctl_status st;
	pid_t pid;

	if (ctl_status(c, NULL, &st) < 0)
		return 0;
	pid = st.daemon_pid;
	ctl_status_release(&st);
	return pid;
}

void sock_of_default(char ret[static 4096])
{
	cleanup_free char *run = NULL;
	cleanup_dir DIR *d = ctl_runtime_dir(&run) == 0 ? opendir(run) : NULL;
	const struct dirent *e;

	ret[0] = 0;
	while (d && (e = readdir(d)))
		if (strstr(e->d_name, "-default"))
			(void)snprintf(ret, 4096, "%s/%s/sock", run, e->d_name);
}

int put_file(struct ctl *c, const char *path, const char *text)
{
	struct ctl_attach a;
	int r = ctl_attach(c, NULL, &a), fd;

	if (r < 0)
		return r;
	fd = openat(a.root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	r = fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
	if (fd >= 0)
		(void)close(fd);
	ctl_attach_release(&a);
	return r;
}

static int read_at(int dir, const char *path, char ret[static 64])
{
	cleanup_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : 0;
	ssize_t n = fd < 0 ? 0 : io_read_full(fd, ret, 63);

	ret[n > 0 ? n : 0] = 0;
	return r;
}

int get_file(struct ctl *c, const char *path, char ret[static 64])
{
	struct ctl_attach a;
	int r = ctl_attach(c, NULL, &a);

	ret[0] = 0;
	if (r < 0)
		return r;
	r = read_at(a.root_fd, path, ret);
	ctl_attach_release(&a);
	return r;
}

int slurp(const char *dir, const char *name, char ret[static 64])
{
	cleanup_fd int d = open(dir, O_PATH | O_CLOEXEC);

	return read_at(d, name, ret);
}
