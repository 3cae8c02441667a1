/* What a bootstrap is to make. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "cli/bootstrap_plan.h"
#include "client/pacman.h"

#define CONFIG_MAX (1u << 20)

bool bootstrap_is_url(const char *archive)
{
	return !strncmp(archive, "https://", 8) || !strncmp(archive, "http://", 7);
}

void bootstrap_plan_release(struct bootstrap_plan *p)
{
	cJSON_Delete(p->config);
	*p = (struct bootstrap_plan){0};
}

static int read_config(struct bootstrap_plan *p, const char *path, struct diag *diag)
{
	cleanup_buf struct buf b = {0};
	int r = io_read_file(AT_FDCWD, path, CONFIG_MAX, &b);

	if (r < 0)
		return diag_set(diag, r, "cannot read %s: %s", path, err_text(r));
	p->config = cJSON_ParseWithLength((const char *)b.data, b.len);
	return cJSON_IsObject(p->config) ? 0
					 : diag_set(diag, -EINVAL, "%s is no JSON object", path);
}

static int text(const cJSON *v, const char **to, const char *key, struct diag *diag)
{
	if (!cJSON_IsString(v))
		return diag_set(diag, -EINVAL, "\"%s\" has to be a text", key);
	if (!*to)
		*to = v->valuestring;
	return 0;
}

static int take(struct bootstrap_plan *p, const cJSON *v, struct diag *diag)
{
	const struct {
		const char *key;
		const char **to;
	} texts[] = {{"archive", &p->archive},
		     {"sha256", &p->sha256},
		     {"signature", &p->signature},
		     {"keyring", &p->keyring}};
	const struct {
		const char *key;
		const cJSON **to;
	} lists[] = {{"mirrors", &p->mirrors},
		     {"packages", &p->packages},
		     {"directories", &p->directories}};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(v->string, texts[i].key))
			return text(v, texts[i].to, v->string, diag);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (!strcmp(v->string, lists[i].key)) {
			*lists[i].to = v;
			return cJSON_IsArray(v) ? 0
						: diag_set(diag, -EINVAL, "\"%s\" has to be a list",
							   v->string);
		}
	if (!strcmp(v->string, "upgrade")) {
		p->refresh = cJSON_IsTrue(v);
		return cJSON_IsBool(v)
			       ? 0
			       : diag_set(diag, -EINVAL, "\"upgrade\" has to be true or false");
	}
	return diag_set(diag, -EINVAL,
			"\"%.60s\" is nothing that a bootstrap knows: archive, sha256, signature, "
			"keyring, mirrors, packages, directories, upgrade",
			v->string);
}

static int check_mirrors(const struct bootstrap_plan *p, const char *const *own, struct diag *diag)
{
	const cJSON *v;
	int r = 0;

	cJSON_ArrayForEach(v, p->mirrors)
	{
		struct pacman_mirror m;

		if (r == 0)
			r = cJSON_IsString(v) ? pacman_check_mirror(v->valuestring, own, &m, diag)
					      : diag_set(diag, -EINVAL,
							 "each of \"mirrors\" has to be a text");
	}
	return r;
}

static int check_packages(const struct bootstrap_plan *p, struct diag *diag)
{
	const cJSON *v;
	int r = 0;

	cJSON_ArrayForEach(v, p->packages) if (r == 0) r =
		cJSON_IsString(v)
			? pacman_check_package(v->valuestring, diag)
			: diag_set(diag, -EINVAL, "each of \"packages\" has to be a text");
	if (r == 0 && p->archive && (p->refresh || cJSON_GetArraySize(p->packages)) &&
	    !cJSON_GetArraySize(p->mirrors))
		return diag_set(
			diag, -EINVAL,
			"packages come from a mirror: name one in \"mirrors\", best one of a "
			"day, as https://archive.archlinux.org/repos/2026/01/15, so that the same "
			"comes again");
	return r;
}

static int check_directories(const struct bootstrap_plan *p, struct diag *diag)
{
	const cJSON *v;

	cJSON_ArrayForEach(v, p->directories)
	{
		const char *from = cJSON_GetStringValue(
				   cJSON_GetObjectItemCaseSensitive(v, "from")),
			   *to = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(v, "to"));

		if (!from || !to || *to != '/' || strstr(to, "/..") || cJSON_GetArraySize(v) != 2)
			return diag_set(
				diag, -EINVAL,
				"each of \"directories\" has to be {\"from\": a directory here, "
				"\"to\": an absolute path in the base}");
	}
	return 0;
}

/* Without an archive. */
static int check_host(const struct bootstrap_plan *p, struct diag *diag)
{
	if (p->sha256 || p->signature)
		return diag_set(diag, -EINVAL, "%s is an archive's: name that with --archive",
				p->sha256 ? "--sha256" : "--signature");
	if (access(PACMAN_PATH, X_OK) < 0)
		return diag_set(
			diag, -EINVAL,
			"an archive is needed: --archive archlinux-bootstrap-x86_64.tar.zst; or "
			"a pacman on this host, which makes the base of packages");
	return 0;
}

int bootstrap_plan_load(struct bootstrap_plan *p, const char *config, const char *const *own,
			struct diag *diag)
{
	const cJSON *v;
	int r = config ? read_config(p, config, diag) : 0;

	cJSON_ArrayForEach(v, p->config) if (r == 0) r = take(p, v, diag);
	if (r == 0 && !p->archive)
		r = check_host(p, diag);
	else if (r == 0 && !p->sha256 && !p->signature && !bootstrap_is_url(p->archive))
		r = diag_set(diag, -EINVAL,
			     "who says that the archive is Arch's? --sha256 names its digest, "
			     "--signature a file that archlinux-keyring has signed");
	if (r == 0 && p->sha256 &&
	    (strlen(p->sha256) != 64 || strspn(p->sha256, "0123456789abcdef") != 64))
		r = diag_set(diag, -EINVAL, "'%.80s' is no SHA-256: 64 digits, 0 to 9 and a to f",
			     p->sha256);
	if (r == 0)
		r = check_mirrors(p, own, diag);
	if (r == 0)
		r = check_packages(p, diag);
	return r == 0 ? check_directories(p, diag) : r;
}
