/* --limit NAME=VALUE: what a command, or an environment, may use at most. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct limit {
	const char *name;
	size_t off;     /* in struct cli_limits */
	bool bytes;     /* takes K, M, G and T */
	uint64_t least; /* with less nothing starts */
} limits[] = {
	{"cpu", offsetof(struct cli_limits, run.cpu_s), false, 1},
	{"memory", offsetof(struct cli_limits, run.memory), true, 4u << 20},
	{"processes", offsetof(struct cli_limits, run.processes), false, 1},
	{"files", offsetof(struct cli_limits, run.open_files), false, 1},
	{"file-size", offsetof(struct cli_limits, run.file_size), true, 1},
	{"output", offsetof(struct cli_limits, run.output), true, 1},
	{"disk", offsetof(struct cli_limits, disk), true, 1},
};

static int parse_value(const char *text, bool bytes, uint64_t *ret)
{
	static const char units[] = "KMGT";
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (!strcmp(text, "none")) {
		*ret = UINT64_MAX;
		return 0;
	}
	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (errno || end == text || *text == '-' || *text == '+' || !*ret)
		return -EINVAL;
	unit = *end && bytes ? strchr(units, *end) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*end || *ret > UINT64_MAX >> shift)
		return -EINVAL;
	*ret <<= shift;
	return 0;
}

static int parse_one(const char *word, struct cli_limits *ret, struct diag *diag)
{
	size_t n = strcspn(word, "=");
	uint64_t *value;

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		const struct limit *l = &limits[i];

		if (strlen(l->name) != n || strncmp(l->name, word, n) != 0)
			continue;
		value = (uint64_t *)(void *)((char *)ret + l->off);
		if (!word[n] || parse_value(word + n + 1, l->bytes, value))
			break;
		if (*value < l->least)
			return diag_set(
				diag, -EINVAL,
				"--limit %s: no program starts with less than %lluM; a number "
				"alone is of bytes, with K, M, G or T behind it of KiB, MiB, GiB "
				"or TiB",
				word, (unsigned long long)l->least >> 20);
		return 0;
	}
	return diag_set(
		diag, -EINVAL,
		"--limit %s: give NAME=NUMBER, or NAME=none; names are cpu (seconds of a process), "
		"processes and files, and with K, M, G or T memory, file-size, output and disk",
		word);
}

int cli_limits_parse(const struct cli_list *words, struct cli_limits *ret, struct diag *diag)
{
	int r = 0;

	*ret = (struct cli_limits){0};
	for (size_t i = 0; r == 0 && i < words->n; i++)
		r = parse_one(words->v[i], ret, diag);
	return r;
}
