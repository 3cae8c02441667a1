#include "profile/casefold.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "policy/policy.h"
#include "profile/place.h"

#ifndef FS_CASEFOLD_FL
#define FS_CASEFOLD_FL 0x40000000
#endif

#define ENTRIES_MAX 256 /* of a directory that are looked at for one with letters */

enum names {
	NAMES_EXACT,
	NAMES_FOLD,
	NAMES_SHORT /* and there are second, short ones */
};

/* ---- a directory ---- */

/* Those that always do; whether others do is found by trying. */
static enum names names_of_type(uint32_t type)
{
	static const uint32_t shortened[] = {0x4d44,     0x5346544e, 0x7366746e,
					     0xff534d42, 0xfe534d42, 0x517b};
	static const uint32_t folding[] = {0x2011bab0, 0x4244, 0xf995e849, 0xadff};

	for (size_t i = 0; i < ARRAY_SIZE(shortened); i++)
		if (type == shortened[i])
			return NAMES_SHORT;
	for (size_t i = 0; i < ARRAY_SIZE(folding); i++)
		if (type == folding[i])
			return NAMES_FOLD;
	return NAMES_EXACT;
}

/* The other case of each letter, in place; false: there is none. */
static bool flip(char *s, size_t len)
{
	bool any = false;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		any |= isalpha(c) != 0;
		s[i] = (char)(isupper(c) ? tolower(c) : toupper(c));
	}
	return any;
}

static bool is_same(int dir, const char *a, const char *b)
{
	struct stat x, y;

	return fstatat(dir, a, &x, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(dir, b, &y, AT_SYMLINK_NOFOLLOW) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino && x.st_nlink == y.st_nlink &&
	       (S_ISDIR(x.st_mode) || x.st_nlink == 1);
}

/* Takes @fd. Does the other spelling of something that is there mean the same? */
static bool finds_other_spelling(int fd)
{
	cleanup_dir DIR *d = fdopendir(fd);
	struct dirent *e;

	if (!d)
		(void)close(fd);
	for (int i = 0; d && i < ENTRIES_MAX && (e = readdir(d)); i++) {
		char other[sizeof(e->d_name)];
		size_t len = strlen(e->d_name);

		memcpy(other, e->d_name, len + 1);
		if (flip(other, len))
			return is_same(dirfd(d), e->d_name, other);
	}
	return false;
}

/* Negative: it is not there. What cannot be read is judged by its type. */
static int names_in(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC), flags = 0;
	enum names found;
	struct statfs s;

	if (fd < 0)
		return statfs(dir, &s) < 0 ? ret_nerrno() : (int)names_of_type((uint32_t)s.f_type);
	found = fstatfs(fd, &s) == 0 ? names_of_type((uint32_t)s.f_type) : NAMES_EXACT;
	if (found == NAMES_EXACT && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 &&
	    flags & FS_CASEFOLD_FL)
		found = NAMES_FOLD;
	if (found != NAMES_EXACT) {
		(void)close(fd);
		return (int)found;
	}
	return finds_other_spelling(fd) ? NAMES_FOLD : NAMES_EXACT;
}

/* ---- a rule ---- */

struct look {
	const struct policy_rules *rules;
	struct diag *diag;
	struct policy *policy; /* NULL: not yet needed */
	char *exact; /* this directory and those above it are known to take names as they are; NULL: none */
};

static int verdict(struct look *l, const char *path, enum policy_access *ret)
{
	struct policy_why why;
	int r = l->policy ? 0 : policy_new(l->rules, l->diag, &l->policy);

	if (r == 0)
		r = policy_explain(l->policy, path, &why);
	if (r == 0)
		*ret = why.access;
	return r;
}

static int refuse(const struct look *l, const struct policy_rule *x, const char *dir)
{
	return diag_set(l->diag, -EINVAL,
			"the file system of %s takes other spellings for the same name, so the "
			"rule on %s cannot be held there: leave it out, or keep the files on "
			"another file system",
			dir, x->text);
}

/* Would @x->text be allowed more with the component at @name in other letters? Those beyond ASCII have other cases as well. */
static int allows_more(struct look *l, const struct policy_rule *x, size_t name, size_t len)
{
	cleanup_free char *other = strdup(x->text);
	enum policy_access a = POLICY_NONE;
	int r = 0;

	if (!other)
		return -ENOMEM;
	for (size_t i = name; i < name + len; i++)
		if ((unsigned char)other[i] >= 0x80)
			return 1;
	if (flip(other + name, len))
		r = verdict(l, other, &a);
	return r < 0 ? r : a > x->access;
}

/* The directory @x->text[0..at) has the component [at + 1, at + 1 + len). */
static int check_in(struct look *l, const struct policy_rule *x, size_t at, size_t len, bool last)
{
	cleanup_free char *dir = strndup(x->text, at ? at : 1);
	enum policy_access a = x->access;
	int how, r;

	if (!dir)
		return -ENOMEM;
	if (l->exact && place_in(l->exact, dir))
		return 0;
	how = names_in(dir);
	if (how <= 0) {
		free(l->exact);
		l->exact = how < 0 ? NULL : steal_ptr(&dir);
		return how < 0 ? 1 : 0;
	}
	/* A second name of something can be anything, and a pattern's is not known. */
	if (how == NAMES_SHORT || (x->kind == POLICY_GLOB && last)) {
		r = verdict(l, dir, &a);
		return r < 0 ? r : a > x->access ? refuse(l, x, dir) : 0;
	}
	r = allows_more(l, x, at + 1, len);
	return r > 0 ? refuse(l, x, dir) : r;
}

/* A writable place with protected names: their spellings are known, their short names are not. */
static int check_protecting(struct look *l, const struct policy_rule *x)
{
	if (!l->rules->names || x->bare || x->access != POLICY_WRITE ||
	    names_in(x->text) != NAMES_SHORT)
		return 0;
	return diag_set(
		l->diag, -EINVAL,
		"the file system of %s has a second name for each file, by which %s could be "
		"written: keep the project on another file system",
		x->text, l->rules->names[0]);
}

static int check_rule(struct look *l, const struct policy_rule *x)
{
	size_t n = x->kind == POLICY_GLOB ? strcspn(x->text, "*?[{\\") : strlen(x->text);
	int r = 0;

	if (x->kind != POLICY_GLOB && x->access == POLICY_WRITE)
		return check_protecting(l, x);
	/* Directory by directory, to the first that is not there. */
	for (size_t at = 0; r == 0 && x->text[at + 1] && at < n;) {
		size_t len = strcspn(x->text + at + 1, "/");

		r = check_in(l, x, at, len, at + 1 + len >= n);
		at += 1 + len;
	}
	return r < 0 ? r : 0;
}

int casefold_check(const struct policy_rules *rules, struct diag *diag)
{
	struct look l = {.rules = rules, .diag = diag};
	int r = 0;

	for (size_t i = 0; r == 0 && i < rules->n; i++)
		r = check_rule(&l, &rules->v[i]);
	policy_free(l.policy);
	free(l.exact);
	return r;
}
