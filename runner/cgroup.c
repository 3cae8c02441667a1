#include "runner/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define NAME "rattan-run-"

struct cgroup {
	char *path;
	int procs_fd;
};

static const char *mount_point(void)
{
	static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
	struct statfs sf;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(mounts); i++) {
		if (statfs(mounts[i], &sf) == 0 && sf.f_type == CGROUP2_SUPER_MAGIC)
			return mounts[i];
	}
	return NULL;
}

/* Our own place in the hierarchy: the line "0::/path". */
static int own_path(struct buf *ret)
{
	cleanup_buf struct buf text = {0};
	const char *line;
	int r;

	r = io_read_file(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &text);
	if (r < 0)
		return r;
	line = text.len ? (const char *)text.data : "";
	while (line && strncmp(line, "0::", 3) != 0) {
		line = strchr(line, '\n');
		if (line)
			line++;
	}
	if (!line)
		return -EOPNOTSUPP;
	return buf_put(ret, line + 3, strcspn(line + 3, "\n"));
}

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	const char *p;

	for (p = text; (p = strstr(p, word)); p += n) {
		if ((p == text || p[-1] == ' ') && strchr(" \n", p[n]))
			return true;
	}
	return false;
}

/* Can children be made here, and do they have the controllers? Processes may be moved into them only
 * by those who may write here as well. */
static bool usable(const char *dir)
{
	cleanup_free char *procs = NULL, *control = NULL;
	cleanup_buf struct buf text = {0};

	if (access(dir, W_OK) < 0)
		return false;
	if (asprintf(&procs, "%s/cgroup.procs", dir) < 0) {
		procs = NULL;
		return false;
	}
	if (asprintf(&control, "%s/cgroup.subtree_control", dir) < 0) {
		control = NULL;
		return false;
	}
	if (access(procs, W_OK) < 0 || io_read_file(AT_FDCWD, control, 4096, &text) < 0)
		return false;
	return text.len && has_word((char *)text.data, "pids") &&
	       has_word((char *)text.data, "memory");
}

int cgroup_parent(char **ret)
{
	const char *mount = mount_point();
	cleanup_buf struct buf own = {0}, dir = {0};
	char *slash;
	int r;

	if (!mount)
		return -EOPNOTSUPP;
	r = own_path(&own);
	if (r == 0)
		r = buf_printf(&dir, "%s%s", mount, own.len ? (char *)own.data : "");
	if (r < 0)
		return r;
	/* From our own cgroup upwards: one that holds processes has no children with controllers, so
	 * most often it is the one above. */
	while (strlen((char *)dir.data) > strlen(mount)) {
		if (usable((char *)dir.data)) {
			*ret = strdup((char *)dir.data);
			return *ret ? 0 : -ENOMEM;
		}
		slash = strrchr((char *)dir.data, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	return -EOPNOTSUPP;
}

static int set(const char *dir, const char *file, const char *value)
{
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;

	if (asprintf(&path, "%s/%s", dir, file) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return ret_nerrno();
	return io_write_full(fd, value, strlen(value));
}

static int set_number(const char *dir, const char *file, uint64_t v)
{
	char text[24];

	if (v == UINT64_MAX)
		return 0;
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	return set(dir, file, text);
}

/* Without a limit of the caller's a command may have three quarters of the memory. */
static uint64_t memory_default(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (uint64_t)pages / 4 * 3 * (uint64_t)size : UINT64_MAX;
}

static int fill(struct cgroup *c, const struct run_limits *l)
{
	cleanup_free char *procs = NULL;
	int r;

	r = set_number(c->path, "pids.max", l->processes);
	if (r == 0)
		r = set_number(c->path, "memory.max",
			       l->memory == UINT64_MAX ? memory_default() : l->memory);
	if (r < 0)
		return r;
	(void)set(c->path, "memory.swap.max", "0"); /* swap would make the limit a slow one */
	if (asprintf(&procs, "%s/cgroup.procs", c->path) < 0) {
		procs = NULL;
		return -ENOMEM;
	}
	c->procs_fd = open(procs, O_WRONLY | O_CLOEXEC);
	return c->procs_fd < 0 ? ret_nerrno() : 0;
}

/* Empty ones of runners that were killed: nothing else removes them. A name has its maker's pid. */
static void sweep(const char *parent)
{
	DIR *d = opendir(parent);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char *end;
		long pid;

		if (strncmp(e->d_name, NAME, strlen(NAME)) != 0)
			continue;
		pid = strtol(e->d_name + strlen(NAME), &end, 10);
		if (*end == '-' && pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
			(void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	}
	if (d)
		(void)closedir(d);
}

int cgroup_new(const struct run_limits *l, struct cgroup **ret)
{
	cleanup_free char *parent = NULL;
	struct cgroup *c;
	uint64_t id;
	int r;

	r = cgroup_parent(&parent);
	if (r < 0)
		return r;
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return -EIO;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->procs_fd = -1;
	sweep(parent);
	if (asprintf(&c->path, "%s/" NAME "%ld-%016llx", parent, (long)getpid(),
		     (unsigned long long)id) < 0) {
		free(c);
		return -ENOMEM;
	}
	r = mkdir(c->path, 0755) < 0 ? ret_nerrno() : fill(c, l);
	if (r < 0) {
		cgroup_free(c);
		return r == -ENOMEM ? r : -EOPNOTSUPP;
	}
	*ret = c;
	return 0;
}

int cgroup_procs_fd(const struct cgroup *c)
{
	return c->procs_fd;
}

void cgroup_kill(const struct cgroup *c)
{
	(void)set(c->path, "cgroup.kill", "1");
}

void cgroup_free(struct cgroup *c)
{
	if (!c)
		return;
	if (c->procs_fd >= 0)
		(void)close(c->procs_fd);
	(void)rmdir(c->path);
	free(c->path);
	free(c);
}
