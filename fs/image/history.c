/* What an image says of how it was made. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "fs/image/image_internal.h"
#include "fs/image/oci_steps.h"

static void cleanup_jsonp(cJSON **o)
{
	cJSON_Delete(*o);
}
#define cleanup_json __attribute__((cleanup(cleanup_jsonp)))

static const char *text_of(const cJSON *o, const char *key)
{
	const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));

	return s ? s : "";
}

/* ".5", and then "Z" or "+02:00". */
static bool rest_of_time(const char *p, struct timespec *t)
{
	int hours, minutes, n = 0;
	long unit = 100000000;

	if (*p == '.') {
		for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
			t->tv_nsec += (*p - '0') * unit;
	}
	if ((*p == 'Z' || *p == 'z') && !p[1])
		return true;
	if ((*p != '+' && *p != '-') || sscanf(p + 1, "%2d:%2d%n", &hours, &minutes, &n) != 2 ||
	    p[1 + n])
		return false;
	t->tv_sec += (*p == '+' ? -1 : 1) * (time_t)(hours * 3600 + minutes * 60);
	return true;
}

/* Of RFC 3339. Zero: none, or one that is none. */
static struct timespec time_of(const char *text)
{
	struct timespec t = {0};
	struct tm tm = {0};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

	t.tv_sec = rest ? timegm(&tm) : 0;
	return rest && rest_of_time(rest, &t) ? t : (struct timespec){0};
}

static struct image_step step_of(const cJSON *line)
{
	struct image_step s = {
		.message = text_of(line, "comment"),
		.by = text_of(line, "created_by"),
		.author = text_of(line, "author"),
		.time = time_of(text_of(line, "created")),
		.empty = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "empty_layer"))};

	s.has_id = !strncmp(s.by, OCI_BY_COMMIT, strlen(OCI_BY_COMMIT)) &&
		   digest_parse(s.by + strlen(OCI_BY_COMMIT), &s.id) == 0;
	return s;
}

int image_history(struct store *s, const char *name,
		  int (*fn)(void *arg, const struct image_step *step), void *arg)
{
	cleanup_json cJSON *config = NULL;
	const cJSON *list, *line;
	struct image_info info = {0};
	int r = image_info_read(s, name, &info);

	if (r == 0 && info.config)
		config = cJSON_Parse(info.config);
	image_info_release(&info);
	list = cJSON_GetObjectItemCaseSensitive(config, "history");
	if (r < 0 || !cJSON_IsArray(list) || !list->child)
		return r == -ENOENT ? 0 : r;
	/* The list's first knows its last. */
	for (line = list->child->prev; r == 0; line = line->prev) {
		struct image_step step = step_of(line);

		r = fn(arg, &step);
		if (line == list->child)
			break;
	}
	return r;
}
