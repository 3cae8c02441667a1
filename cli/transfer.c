/* A directory for an image on its way, and signals while it is there. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/skopeo.h"

#define PREFIX  "rattan-image-"
#define OLD_S   3600 /* younger ones may not have their lock yet */
#define OPEN_FD 16

bool transfer_stopped(void)
{
	sigset_t set;

	cli_ending_signals(&set);
	return cli_ending_came(&set);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	(void)remove(path);
	return 0;
}

static void remove_all(const char *dir)
{
	(void)nftw(dir, remove_one, OPEN_FD, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Of ours, and nobody holds it. */
static bool left_behind(int parent, const char *name)
{
	cleanup_fd int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
	       st.st_mtim.tv_sec + OLD_S < time(NULL) && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void remove_left(const char *top)
{
	DIR *d = opendir(top);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		cleanup_free char *path = NULL;

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
		    !left_behind(dirfd(d), e->d_name))
			continue;
		if (asprintf(&path, "%s/%s", top, e->d_name) < 0)
			path = NULL;
		else
			remove_all(path);
	}
	if (d)
		(void)closedir(d);
}

int transfer_begin(struct transfer *t, struct diag *diag)
{
	const char *top = getenv("TMPDIR");
	sigset_t set;

	*t = (struct transfer){.fd = -1};
	if (!top || *top != '/')
		top = "/var/tmp";
	remove_left(top);
	if (asprintf(&t->dir, "%s/" PREFIX "XXXXXX", top) < 0) {
		t->dir = NULL;
		return -ENOMEM;
	}
	/* Those that end a program wait until the directory is gone. */
	cli_ending_signals(&set);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	if (!mkdtemp(t->dir)) {
		int r = diag_set(diag, ret_nerrno(),
				 "cannot make a directory for the image in %s: %s; TMPDIR "
				 "can name another place",
				 top, err_text(errno));

		free(steal_ptr(&t->dir));
		return r;
	}
	t->fd = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->fd < 0 || flock(t->fd, LOCK_EX | LOCK_NB) < 0)
		return diag_set(diag, ret_nerrno(), "cannot use %s: %s", t->dir, err_text(errno));
	return 0;
}

void transfer_end(struct transfer *t, const char *said)
{
	sigset_t set;

	if (t->dir)
		remove_all(t->dir);
	free(steal_ptr(&t->dir));
	cleanup_fdp(&t->fd);
	t->fd = -1;
	cli_ending_signals(&set);
	if (transfer_stopped())
		fprintf(stderr, "rattan: interrupted; %s\n", said ? said : "all was done by then");
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}
