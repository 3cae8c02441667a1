#include "cli/config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "client/hostdir.h"
#include "profile/field.h"
#include "profile/place.h"

#define CONFIG_MAX (1u << 20)
#define LIST_MAX   256

static void list_free(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

void cli_config_release(struct cli_config *c)
{
	list_free(c->bind_roots);
	list_free(c->runtime);
	list_free(c->pacman_mirrors);
	net_rules_release(&c->net);
	cJSON_Delete(c->serve);
	*c = (struct cli_config){0};
}

/* The texts of an array, each as @take makes it of what is written; NULL-terminated, and the caller's also after a failure. */
static int take_list(const struct field *f, const char *name,
		     int (*take)(const struct field *item, const char *text, char **ret),
		     char ***ret)
{
	struct field list, item;
	unsigned n = 0;
	int r = field_array(f, name, &list);
	char **v;

	if (r <= 0)
		return r;
	if (cJSON_GetArraySize(list.o) > LIST_MAX)
		return field_fail(&list, "has more than %d entries", LIST_MAX);
	v = calloc((size_t)cJSON_GetArraySize(list.o) + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	*ret = v;
	for (const cJSON *o = list.o->child; o; o = o->next) {
		field_item(&list, n, o, &item);
		if (!cJSON_IsString(o))
			return field_fail(&item, "must be a text");
		r = take(&item, o->valuestring, &v[n]);
		if (r < 0)
			return r;
		n++;
	}
	return 0;
}

/* An absolute path, without links being looked at. */
static int take_path(const struct field *item, const char *text, char **ret)
{
	int r = place_parse(item, text, ret);

	if (r < 0)
		return r;
	return strcmp(*ret, "/")
		       ? 0
		       : field_fail(item, "/ is not opened as a whole: name what is needed");
}

/* "https://HOST[:PORT]": what it may be is client/pacman.h's matter. */
static int take_origin(const struct field *item, const char *text, char **ret)
{
	const char *s = strstr(text, "://");

	if (!s || strncmp(text, "http", 4) != 0 || strchr(s + 3, '/'))
		return field_fail(item, "must be an origin, as in https://mirror.example.com:8443");
	*ret = strdup(text);
	return *ret ? 0 : -ENOMEM;
}

static int take_domains(const struct field *f, const char *name,
			int (*add)(struct net_rules *r, const char *pattern, struct diag *diag),
			struct net_rules *net)
{
	struct field list, item;
	unsigned n = 0;
	int r = field_array(f, name, &list);

	for (const cJSON *o = r > 0 ? list.o->child : NULL; r >= 0 && o; o = o->next) {
		struct diag d = {0};

		field_item(&list, n++, o, &item);
		if (!cJSON_IsString(o))
			return field_fail(&item, "must be a text");
		r = add(net, o->valuestring, &d);
		if (r == -EINVAL)
			return field_fail(&item, "%s", d.text);
	}
	return r;
}

static int read_keys(const struct field *f, struct cli_config *c)
{
	static const char *const keys[] = {
		"bind_roots",      "runtime",        "landlock_only",
		"allowed_domains", "denied_domains", "allow_local_binding",
		"serve",           "pacman_mirrors", NULL};
	struct field serve;
	int r = field_check(f, keys);

	if (r == 0)
		r = take_list(f, "bind_roots", take_path, &c->bind_roots);
	if (r >= 0)
		r = take_list(f, "runtime", take_path, &c->runtime);
	if (r >= 0)
		r = take_list(f, "pacman_mirrors", take_origin, &c->pacman_mirrors);
	if (r >= 0)
		r = field_bool(f, "landlock_only", &c->landlock_only);
	if (r >= 0)
		r = take_domains(f, "allowed_domains", net_allow, &c->net);
	if (r >= 0)
		r = take_domains(f, "denied_domains", net_deny, &c->net);
	if (r >= 0)
		r = field_bool(f, "allow_local_binding", &c->net.local);
	if (r >= 0)
		r = field_object(f, "serve", &serve);
	if (r > 0 && !(c->serve = cJSON_Duplicate(serve.o, true)))
		r = -ENOMEM;
	return r < 0 ? r : 0;
}

static int check_owner(int fd, const char *path, struct diag *diag)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return ret_nerrno();
	if ((st.st_uid != getuid() && st.st_uid != 0) || st.st_mode & (S_IWOTH | S_IWGRP))
		return diag_set(diag, -EINVAL,
				"%s could be written by others, who would decide what is opened; "
				"make it yours alone: chmod go-w %s",
				path, path);
	return 0;
}

static int read_file(const char *path, struct diag *diag, struct buf *ret)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char block[65536];
	ssize_t n;
	int r;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? -ENOENT
			       : diag_set(diag, -EINVAL, "%s: %s", path, err_text(errno));
	r = check_owner(fd, path, diag);
	ret->max = CONFIG_MAX;
	while (r == 0 && (n = io_read_full(fd, block, sizeof(block))) != 0)
		r = n < 0 ? (int)n : buf_put(ret, block, (size_t)n);
	return r < 0 ? diag_set(diag, -EINVAL, "%s: %s", path,
				r == -E2BIG ? "is larger than 1 MiB" : err_text(r))
		     : 0;
}

static int parse(const char *path, const struct buf *b, struct diag *diag, struct cli_config *c)
{
	struct diag d = {0};
	struct field f = {.diag = &d};
	cJSON *o = b->len ? cJSON_ParseWithLength((const char *)b->data, b->len) : NULL;
	int r;

	if (!o)
		return diag_set(diag, -EINVAL, "%s is not JSON", path);
	f.o = o;
	r = read_keys(&f, c);
	cJSON_Delete(o);
	return r == -EINVAL ? diag_set(diag, r, "%s: %s", path, d.text) : r;
}

int cli_config_load(struct diag *diag, struct cli_config *ret)
{
	cleanup_free char *path = NULL;
	cleanup_buf struct buf b = {0};
	struct cli_config c = {0};
	int r = hostdir_settings(&path);

	if (r == 0)
		r = read_file(path, diag, &b);
	if (r == 0)
		r = parse(path, &b, diag, &c);
	if (r == -ENOENT)
		r = 0;
	if (r < 0) {
		cli_config_release(&c);
		return r;
	}
	*ret = c;
	return 0;
}
