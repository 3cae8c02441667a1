/* Rules on file systems that take other spellings for the same name: below "fold" the other case of a name finds it, "flag" is marked as
 * such and empty, "short" has second names. None of these can be mounted everywhere: what the kernel says of them is said here. */
#include "profile/casefold.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#define VFAT 0x4d44

static char top[PATH_MAX];

/* ---- the kernel's part: these stand before libc's ---- */

static bool is_below(int fd, const char *name)
{
	char link[64], path[PATH_MAX], want[PATH_MAX + 16];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	(void)snprintf(want, sizeof(want), "%s/%s", top, name);
	return !strncmp(path, want, strlen(want));
}

static bool find_folded(int dir, const char *name, char ret[NAME_MAX + 1])
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (strcasecmp(e->d_name, name) != 0)
			continue;
		(void)snprintf(ret, NAME_MAX + 1, "%s", e->d_name);
		return true;
	}
	return false;
}

int fstatat(int dir, const char *name, struct stat *ret, int flags)
{
	char found[NAME_MAX + 1];

	if (is_below(dir, "fold") && find_folded(dir, name, found))
		name = found;
	return (int)syscall(SYS_newfstatat, dir, name, ret, flags);
}

int fstatfs(int fd, struct statfs *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->f_type = is_below(fd, "short") ? VFAT : 0xef53;
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	int *flags;

	if (request != FS_IOC_GETFLAGS)
		return -1;
	va_start(ap, request);
	flags = va_arg(ap, int *);
	va_end(ap);
	*flags = is_below(fd, "flag") ? 0x40000000 : 0;
	return 0;
}

/* ---- the cases ---- */

/* "w:PATH r:PATH d:PATH g:PATTERN", '@' is the tree; .git is protected. */
static const struct {
	const char *rules, *about; /* NULL: they can be held */
} table[] = {
	{"r:/ w:@/plain d:@/plain/Vault", NULL},
	{"r:/ w:@/plain g:@/plain/**/*.env", NULL},
	{"r:/ w:@/fold", NULL},
	{"r:/ w:@/fold r:@/fold/.git", NULL},
	{"r:/ w:@/fold r:@/fold/123", NULL},
	{"r:/ w:@/fold d:@/fold/Vault", "/fold/Vault"},
	{"r:/ w:@/fold d:@/fold/none/at/all", "/fold/none/at/all"},
	{"r:/ w:@/fold r:@/fold/docs", "/fold/docs"},
	{"r:/ d:@/fold/sub/123", "/fold/sub/123"},
	{"r:/ d:@/fold/123", NULL},
	{"r:/ d:@/fold/\xc3\xa4", "/fold/\xc3\xa4"},
	{"r:/ d:@/fold w:@/fold/sub", NULL},
	{"r:/ d:@/fold d:@/fold/sub", NULL},
	{"r:/ w:@/fold g:@/fold/**/*.env", "/fold/**/*.env"},
	{"r:/ g:@/fold/sub/x/*.env", "/fold/sub/x/*.env"},
	{"r:/ w:@/flag d:@/flag/vault", "/flag/vault"},
	{"r:/ w:@/flag", NULL},
	{"r:/ d:@/short/vault", "/short/vault"},
	{"r:/ d:@/short/123", "/short/123"},
	{"r:/ w:@/short", ".git could be written"},
	{"r:/ r:@/short", NULL},
	{"d:/ r:@/plain d:@/plain/Vault d:@/fold/Vault", NULL},
	/* What was found of one rule's directories says nothing of another's. */
	{"r:/ d:@/plain/Vault/in d:@/fold/sub/a d:@/plain/b", "/fold/sub/a"},
};

static void add(struct policy_rules *r, const char *word, size_t len)
{
	enum policy_access a = word[0] == 'r'   ? POLICY_READ
			       : word[0] == 'w' ? POLICY_WRITE
						: POLICY_DENY;
	char path[2 * PATH_MAX];
	int n = word[2] == '@' ? (int)strlen(top) : 0;

	(void)snprintf(path, sizeof(path), "%.*s%.*s", n, top, (int)len - (n ? 3 : 2),
		       word + (n ? 3 : 2));
	if (policy_rules_add(r, a, word[0] == 'g' ? POLICY_GLOB : POLICY_PATH, path, NULL, NULL) <
	    0)
		tap_fatal("rule %s", path);
}

static void try(const char *rules, const char *about)
{
	cleanup_policy_rules struct policy_rules r = {0};
	struct diag d = {0};
	int got;

	for (const char *s = rules; *s; s += strspn(s, " ")) {
		size_t n = strcspn(s, " ");

		add(&r, s, n);
		s += n;
	}
	if (policy_rules_protect(&r, ".git", NULL) < 0)
		tap_fatal("protect");
	got = casefold_check(&r, &d);
	eq_int(got, about ? -EINVAL : 0, "%s", rules);
	ok(!about || strstr(d.text, about), "%s: %s", rules, about ? about : "held");
	if (about && !strstr(d.text, about))
		printf("# %s\n", d.text);
}

static void make(const char *name)
{
	char path[PATH_MAX + 32];

	(void)snprintf(path, sizeof(path), "%s/%s", top, name);
	if (mkdir(path, 0755) < 0)
		tap_fatal("%s", path);
}

int main(void)
{
	static const char *const dirs[] = {"plain",    "plain/Vault", "fold", "fold/Vault",
					   "fold/sub", "flag",        "short"};
	const char *tmp = getenv("TMPDIR");

	(void)snprintf(top, sizeof(top), "%s/rattan-fold-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(top))
		tap_fatal("mkdtemp");
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		make(dirs[i]);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		try(table[i].rules, table[i].about);
	for (size_t i = ARRAY_SIZE(dirs); i-- > 0;) {
		char path[PATH_MAX + 32];

		(void)snprintf(path, sizeof(path), "%s/%s", top, dirs[i]);
		(void)rmdir(path);
	}
	(void)rmdir(top);
	return tap_done();
}
