/* core: of a host directory whose files are read one after the other from a cold disk the next ones are read ahead. */
#include <fcntl.h>
#include <sys/mman.h>

#include "fs/core/ovl_internal.h"
#include "policy/rules.h"
#include "tests/unit/core/ovl_fixture.h"

#define FILES 60
#define PAGES 4 /* of each */

static void file_path(const char *host, int i, char out[static PATH_MAX + 16])
{
	(void)snprintf(out, PATH_MAX + 16, "%s/f%02d", host, i);
}

static void make(const char *host)
{
	static char bytes[PAGES * 4096];
	char path[PATH_MAX + 16];

	memset(bytes, 'x', sizeof(bytes));
	for (int i = 0; i < FILES; i++) {
		int fd;

		file_path(host, i, path);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || write(fd, bytes, sizeof(bytes)) != sizeof(bytes) || close(fd) < 0)
			tap_fatal("%s: %m", path);
	}
}

/* Pages of the host's files that are in memory; with @drop they go first, where they can. */
static int resident(const char *host, bool drop)
{
	char path[PATH_MAX + 16];
	unsigned char in[PAGES];
	int sum = 0;

	for (int i = 0; i < FILES; i++) {
		void *map;
		int fd;

		file_path(host, i, path);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 ||
		    (drop && (fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)))
			tap_fatal("%s: %m", path);
		map = mmap(NULL, sizeof(in) * 4096, PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED || mincore(map, sizeof(in) * 4096, in) < 0)
			tap_fatal("mincore: %m");
		for (int k = 0; k < PAGES; k++)
			sum += in[k] & 1;
		(void)munmap(map, sizeof(in) * 4096);
		(void)close(fd);
	}
	return sum;
}

static int see(void *arg, const char *name, uint64_t cookie, const struct ovl_entry *e)
{
	(void)arg;
	(void)name;
	(void)cookie;
	(void)e;
	return 0;
}

/* @n files have been waited for; pages that are in memory then, when @want are or nothing more comes. */
static int wait_for(struct fx *f, const char *host, int n, int want)
{
	struct ovl_entry e;
	int got;

	(void)resident(host, true);
	for (int i = 0; i < n; i++) {
		if (fx_get(f, "f00", &e) < 0)
			tap_fatal("f00");
		/* not by reads: a disk that answers at once is not waited for */
		host_ahead(f->o, e.ino);
		ovl_forget(f->o, e.ino, 1);
	}
	/* The disk may be busy, and nobody waits for it. */
	for (int i = 0; (got = resident(host, false)) < want && i < 500; i++)
		(void)usleep(20000);
	return got;
}

/* @closed of the files are none that may be read. */
static void test_ahead(struct fx *f, const char *host, int closed)
{
	const int rest = (FILES - 12 - closed) * PAGES;

	fx_mount(f);
	if (ovl_readdir(f->o, STORE_ROOT_INO, 0, false, see, NULL) < 0)
		tap_fatal("readdir");
	eq_int(wait_for(f, host, 3, 0), 0, "three were waited for: no others are read");
	eq_int(wait_for(f, host, 1, 4 * PAGES), 4 * PAGES, "a fourth: four are");
	eq_int(wait_for(f, host, 1, 8 * PAGES), 8 * PAGES, "a fifth: the next eight");
	eq_int(wait_for(f, host, 9, rest), rest, "more: all that are left, once");
	fx_umount(f);
}

/* One that the policy closes, and two that not everybody may read. */
static void test_closed(struct fx *f, const char *host)
{
	cleanup_policy_rules struct policy_rules rules = {0};
	char path[PATH_MAX + 16];
	struct diag d = {0};

	for (int i = 40; i < 42; i++) {
		file_path(host, i, path);
		if (chmod(path, 0600) < 0)
			tap_fatal("chmod");
	}
	if (policy_rules_add(&rules, POLICY_READ, POLICY_PATH, "/", NULL, &d) < 0 ||
	    policy_rules_add(&rules, POLICY_DENY, POLICY_PATH, "/f20", NULL, &d) < 0)
		tap_fatal("rules: %s", d.text);
	f->opts.policy = &rules;
	fx_child(f, fx_host_layer(f, host, REC_ORIGIN_PUBLIC));
	test_ahead(f, host, 3);
	f->opts.policy = NULL;
}

int main(void)
{
	char host[PATH_MAX];
	struct fx f;

	fx_open(&f);
	fx_path(&f, "host", host);
	if (mkdir(host, 0755) < 0)
		tap_fatal("mkdir");
	make(host);
	fx_child(&f, fx_host_layer(&f, host, 0));
	if (resident(host, true) > 0) {
		printf("# not tried: what is in %s cannot leave the memory\n", host);
	} else {
		test_ahead(&f, host, 0);
		test_closed(&f, host);
	}
	fx_mount(&f);
	fx_close(&f);
	return tap_done();
}
