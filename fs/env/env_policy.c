/* Lists of paths: the places where changes are allowed. */
#include <stdlib.h>
#include <string.h>

#include "fs/env/env_internal.h"

char **env_list_dup(char *const *list)
{
	size_t n = 0;
	char **l;

	while (list[n])
		n++;
	l = calloc(n + 1, sizeof(*l));
	for (size_t i = 0; l && i < n; i++) {
		l[i] = strdup(list[i]);
		if (!l[i]) {
			env_list_free(l);
			return NULL;
		}
	}
	return l;
}

void env_list_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

static bool list_has(char *const *list, const char *s)
{
	for (; *list; list++)
		if (!strcmp(*list, s))
			return true;
	return false;
}

/* As sets; NULL is "everywhere". */
bool env_list_same(char *const *a, char *const *b)
{
	if (!a || !b)
		return a == b;
	for (size_t i = 0; a[i]; i++)
		if (!list_has(b, a[i]))
			return false;
	for (size_t i = 0; b[i]; i++)
		if (!list_has(a, b[i]))
			return false;
	return true;
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

int env_writable_parse(char *const *in, struct diag *diag, char ***ret)
{
	static const char *const agent[] = {"/workspace", "/tmp", "/var/tmp", "/home/user", NULL};
	char *const *list = in ? in : (char *const *)(uintptr_t)agent;
	size_t total = 0;

	for (size_t i = 0; list[i]; i++) {
		if (!strcmp(list[i], "/")) {
			*ret = NULL;
			return 0;
		}
		if (!env_path_clean(list[i]) || strchr(list[i], '\n'))
			return diag_set(
				diag, -EINVAL,
				"\"%.200s\" is no writable place: use an absolute path without '.', "
				"'..' or repeated slashes",
				list[i]);
		total += strlen(list[i]) + 1;
	}
	if (total >= 4096)
		return diag_set(diag, -E2BIG, "too many writable places");
	*ret = env_list_dup(list);
	return *ret ? 0 : -ENOMEM;
}

int env_writable_text(char *const *writable, char *ret, size_t size)
{
	size_t n = 0;

	ret[0] = 0;
	if (!writable) {
		memcpy(ret, "/", 2);
		return 0;
	}
	for (size_t i = 0; writable[i]; i++) {
		size_t k = strlen(writable[i]);

		if (n + k + 2 > size)
			return -E2BIG;
		if (i)
			ret[n++] = '\n';
		memcpy(ret + n, writable[i], k + 1);
		n += k;
	}
	return 0;
}
