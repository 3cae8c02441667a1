/* What an image says of how it came to be: for log, and base log. */
#include <string.h>
#include <time.h>

#include "cli/cli.h"

/* A stranger's first line, and not all of a long one. */
#define SHOWN_MAX 200

static void put_first_line(const char *s)
{
	size_t n = strcspn(s, "\r\n");
	char text[SHOWN_MAX + 1];

	if (n > SHOWN_MAX)
		for (n = SHOWN_MAX; n && ((unsigned char)s[n] & 0xc0) == 0x80;)
			n--;
	memcpy(text, s, n);
	text[n] = 0;
	cli_put(stdout, text);
	if (s[n])
		printf("...");
}

void cli_put_step(const struct ctl_step *s, const char *mark)
{
	const char *message = s->message && *s->message ? s->message : s->by ? s->by : "";
	char when[32] = "-";
	struct tm tm;

	if ((s->time.tv_sec || s->time.tv_nsec) && localtime_r(&s->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	printf("%-12.12s  %-19s  %s", *s->id ? s->id : "-", when, mark);
	put_first_line(message);
	if (s->author && *s->author) {
		printf("  (");
		put_first_line(s->author);
		printf(")");
	}
	printf("\n");
}

void cli_json_step(cJSON *list, const struct ctl_step *s)
{
	cJSON *o = cJSON_CreateObject();
	char when[40] = "";
	struct tm tm;

	if ((s->time.tv_sec || s->time.tv_nsec) && gmtime_r(&s->time.tv_sec, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	cli_json_str(o, "id", s->id);
	cli_json_str(o, "message", s->message ? s->message : "");
	cli_json_str(o, "created_by", s->by ? s->by : "");
	cli_json_str(o, "author", s->author ? s->author : "");
	cli_json_str(o, "time", when);
	(void)cJSON_AddBoolToObject(o, "empty", s->empty);
	(void)cJSON_AddItemToArray(list, o);
}
