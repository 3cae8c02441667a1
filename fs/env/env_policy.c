/* What a mount allows: from what a client asks for, and as text for the fence around its commands. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/mp.h"
#include "fs/env/env_internal.h"
#include "policy/policy.h"

void env_list_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

bool env_path_clean(const char *path)
{
	if (path[0] != '/' || strlen(path) >= 4096)
		return false;
	for (const char *p = path; *p;) {
		const char *part = p + 1;
		size_t n = strcspn(part, "/");

		if (n == 0 || (n == 1 && part[0] == '.') ||
		    (n == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		p = part + n;
	}
	return true;
}

/* ---- from a client ---- */

static int from_places(char *const *list, struct diag *diag, struct policy_rules *ret)
{
	for (size_t i = 0; list[i]; i++) {
		if (!strcmp(list[i], "/"))
			return policy_rules_writable(NULL, diag, ret);
		if (!env_path_clean(list[i]))
			return diag_set(
				diag, -EINVAL,
				"\"%s\" is no writable place: use an absolute path without '.', "
				"'..' or repeated slashes",
				list[i]);
	}
	return policy_rules_writable((const char *const *)(uintptr_t)list, diag, ret);
}

struct text {
	char *to;
	size_t n, size;
};

static int add_place(void *arg, const char *path)
{
	struct text *t = arg;
	size_t k = strlen(path);

	if (strchr(path, '\n'))
		return -EINVAL;
	if (t->n + k + 2 > t->size)
		return -E2BIG;
	if (t->n)
		t->to[t->n++] = '\n';
	memcpy(t->to + t->n, path, k + 1);
	t->n += k;
	return 0;
}

/* Takes @rules, when all that the mount will ask of them can be had. */
static int take(struct policy_rules *rules, struct diag *diag, struct env_policy *ret)
{
	struct env_policy got = {.rules = *rules};
	struct text t = {.to = got.writable, .size = sizeof(got.writable)};
	struct policy *p;
	int r = policy_new(rules, diag, &p);

	if (r < 0)
		return r;
	r = policy_writable(p, add_place, &t);
	policy_free(p);
	if (r == -E2BIG)
		return diag_set(diag, r, "too many writable places");
	if (r == -EINVAL)
		return diag_set(diag, r, "a writable place must not have a line break in its name");
	if (r < 0)
		return r;
	*ret = got;
	*rules = (struct policy_rules){0};
	return 0;
}

int env_policy_parse(char *const *places, const struct ctl_bytes *rules, struct diag *diag,
		     struct env_policy *ret)
{
	static const char *const agent[] = {"/workspace", "/tmp", "/var/tmp", "/home/user", NULL};
	cleanup_policy_rules struct policy_rules got = {0};
	int r;

	if (rules && rules->len)
		r = policy_rules_decode(rules->data, rules->len, diag, &got);
	else
		r = from_places(places ? places : (char *const *)(uintptr_t)agent, diag, &got);
	return r < 0 ? r : take(&got, diag, ret);
}

void env_policy_ids(const struct env_policy *p, struct session_ids *ids)
{
	if (!p->root)
		return;
	ids->root = true;
	if (ids->squash) /* the one id there is: what root makes is root's */
		ids->store_uid = ids->store_gid = 0;
}

bool env_policy_whole(const struct env_policy *p)
{
	const struct policy_rules *r = &p->rules;

	if (r->names || r->hide || r->otherwise < POLICY_READ)
		return true;
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].access != POLICY_WRITE)
			return true;
	return false;
}

/* ---- for the next daemon ---- */

int env_policy_save(const struct policy_rules *rules, int *ret_fd)
{
	cleanup_fd int fd = memfd_create("rattan-policy", MFD_CLOEXEC);
	cleanup_buf struct buf b = {0};
	int r = fd < 0 ? ret_nerrno() : policy_rules_encode(rules, &b);

	if (r == 0)
		r = io_write_full(fd, b.data, b.len);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

int env_policy_load(int fd, struct env_policy *ret)
{
	cleanup_policy_rules struct policy_rules got = {0};
	cleanup_free uint8_t *bytes = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if (st.st_size <= 0 || st.st_size > (off_t)MP_MAX_BYTES)
		return -EBADMSG;
	bytes = malloc((size_t)st.st_size);
	if (!bytes)
		return -ENOMEM;
	if (io_pread_full(fd, bytes, (size_t)st.st_size, 0) != (ssize_t)st.st_size)
		return -EBADMSG;
	r = policy_rules_decode(bytes, (size_t)st.st_size, NULL, &got);
	return r < 0 ? r : take(&got, NULL, ret);
}
