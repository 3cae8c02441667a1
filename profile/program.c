#include "profile/program.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "policy/policy.h"
#include "profile/place.h"

#define USUAL_PATH   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEPTH_MAX    4 /* of interpreters that have one themselves */
#define INTERP_MAX   4096u
#define SEGMENTS_MAX 256u

static int no_link(void *arg, const char *path)
{
	(void)arg;
	(void)path;
	return 0;
}

static int check_readable(struct policy *policy, const char *path, struct diag *diag)
{
	cleanup_buf struct buf rule = {0};
	struct policy_why why;
	int r = policy_explain(policy, path, &why);

	if (r < 0 || why.access >= POLICY_READ)
		return r;
	r = policy_why_text(policy, &why, &rule);
	return r < 0 ? r
		     : diag_set(diag, -EACCES,
				"%s is needed to start the command and may not be read (%s); a "
				"profile reads it with the minimal set, or the settings grant it "
				"as \"runtime\"",
				path, (const char *)rule.data);
}

/* The interpreter that the program header names; 1 and *ret, 0 for none. */
static int elf_interp(int fd, char **ret)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;

	if (io_pread_full(fd, &e, sizeof(e), 0) != (ssize_t)sizeof(e) ||
	    memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_ident[EI_CLASS] != ELFCLASS64)
		return 0;
	for (unsigned i = 0; i < e.e_phnum && i < SEGMENTS_MAX; i++) {
		off_t at = (off_t)(e.e_phoff + (uint64_t)i * sizeof(p));

		if (io_pread_full(fd, &p, sizeof(p), at) != (ssize_t)sizeof(p))
			return 0;
		if (p.p_type != PT_INTERP || p.p_filesz < 2 || p.p_filesz > INTERP_MAX)
			continue;
		*ret = calloc(1, p.p_filesz + 1);
		if (!*ret)
			return -ENOMEM;
		return io_pread_full(fd, *ret, p.p_filesz, (off_t)p.p_offset) > 1;
	}
	return 0;
}

static int script_interp(int fd, char **ret)
{
	char line[256];
	ssize_t n = io_pread_full(fd, line, sizeof(line) - 1, 0);
	char *s;

	if (n < 3 || memcmp(line, "#!", 2) != 0)
		return 0;
	line[n] = 0;
	s = line + 2 + strspn(line + 2, " \t");
	s[strcspn(s, " \t\r\n")] = 0;
	if (*s != '/')
		return 0;
	*ret = strdup(s);
	return *ret ? 1 : -ENOMEM;
}

static int check_file(struct policy *policy, const char *path, unsigned depth, struct diag *diag)
{
	cleanup_free char *real = NULL, *interp = NULL;
	cleanup_fd int fd = -1;
	int r = place_resolve(path, no_link, NULL, &real);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	r = check_readable(policy, real, diag);
	if (r < 0)
		return r;
	/* A file that is only executable says nothing of its interpreter. */
	fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return 0;
	r = elf_interp(fd, &interp);
	if (r == 0)
		r = script_interp(fd, &interp);
	if (r <= 0 || depth == 0)
		return r < 0 ? r : 0;
	return check_file(policy, interp, depth - 1, diag);
}

/* Where @name is; 0: nowhere. */
static int find(const char *name, const char *path_var, char **ret)
{
	const char *at = path_var ? path_var : USUAL_PATH;

	if (strchr(name, '/')) {
		*ret = strdup(name);
		return *ret ? 1 : -ENOMEM;
	}
	for (size_t n;; at += n + 1) {
		cleanup_free char *path = NULL;
		struct stat st;

		n = strcspn(at, ":");
		if (asprintf(&path, "%.*s/%s", (int)n, at, name) < 0) {
			path = NULL;
			return -ENOMEM;
		}
		if (n && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 0111) {
			*ret = steal_ptr(&path);
			return 1;
		}
		if (!at[n])
			return 0;
	}
}

int profile_check_program(const struct profile *p, const char *name, const char *path_var,
			  struct diag *diag)
{
	cleanup_free char *path = NULL;
	struct policy *policy;
	int r = p->full_read ? 0 : find(name, path_var, &path);

	if (r <= 0 || path[0] != '/')
		return r < 0 ? r : 0;
	r = policy_new(&p->rules, diag, &policy);
	if (r < 0)
		return r;
	r = check_file(policy, path, DEPTH_MAX, diag);
	policy_free(policy);
	return r;
}
