#include "base/mounts.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define TABLE "/proc/self/mountinfo"

struct line {
	int id, parent;
	unsigned major, minor;
	const char *at; /* escapes undone */
	bool ours;
};

static bool is_octal(const char *s)
{
	for (int i = 0; i < 3; i++)
		if (s[i] < '0' || s[i] > '7')
			return false;
	return true;
}

/* Space, tab, newline, backslash and '#' are written as \ooo. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (*s == '\\' && is_octal(s + 1)) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = 0;
}

static bool is_ours(const char *type, const char *source)
{
	return (!strcmp(type, "fuse") || !strncmp(type, "fuse.", 5)) &&
	       (!strcmp(source, "rattan") || !strncmp(source, "rattan:", 7));
}

/* ID PARENT MAJOR:MINOR ROOT AT OPTIONS [TAGS ...] - TYPE SOURCE OPTIONS; cuts @s up. */
static bool parse(char *s, struct line *ret)
{
	char *word[5], *save = NULL, *rest = strstr(s, " - "), *type, *source;

	if (!rest)
		return false;
	*rest = 0;
	for (size_t i = 0; i < ARRAY_SIZE(word); i++, s = NULL) {
		word[i] = strtok_r(s, " ", &save);
		if (!word[i])
			return false;
	}
	type = strtok_r(rest + 3, " ", &save);
	source = strtok_r(NULL, " ", &save);
	if (sscanf(word[2], "%u:%u", &ret->major, &ret->minor) != 2)
		return false;
	ret->id = (int)strtol(word[0], NULL, 10);
	ret->parent = (int)strtol(word[1], NULL, 10);
	unescape(word[4]);
	ret->at = word[4];
	ret->ours = type && source && is_ours(type, source);
	return true;
}

/* ---- what is looked for ---- */

struct spot {
	int id, parent;
	bool ours;
};

struct look {
	const char *path; /* NULL: by device */
	unsigned major, minor;
	bool found;
	struct spot *spots; /* all that is mounted at @path */
	size_t n;
};

static int look_at(struct look *k, const struct line *l)
{
	struct spot *s;

	if (!k->path) {
		k->found |= l->ours && l->major == k->major && l->minor == k->minor;
		return 0;
	}
	if (strcmp(l->at, k->path) != 0)
		return 0;
	s = realloc(k->spots, (k->n + 1) * sizeof(*s));
	if (!s)
		return -ENOMEM;
	k->spots = s;
	s[k->n++] = (struct spot){.id = l->id, .parent = l->parent, .ours = l->ours};
	return 0;
}

/* Of several mounts at one place each stands on the one below; the order of the lines says nothing. */
static bool top_is_ours(const struct look *k)
{
	for (size_t i = 0; i < k->n; i++) {
		bool covered = false;

		for (size_t j = 0; j < k->n && !covered; j++)
			covered = j != i && k->spots[j].parent == k->spots[i].id;
		if (!covered)
			return k->spots[i].ours;
	}
	return false;
}

static int walk(FILE *f, struct look *k)
{
	cleanup_free char *line = NULL;
	size_t size = 0;
	ssize_t n;
	int r = 0;

	errno = 0;
	while (r == 0 && (n = getline(&line, &size, f)) > 0) {
		struct line l;

		if (line[n - 1] == '\n')
			line[n - 1] = 0;
		if (parse(line, &l))
			r = look_at(k, &l);
		errno = 0;
	}
	if (r == 0 && !feof(f))
		r = errno ? -errno : -EIO;
	return r;
}

static int look(const char *table, struct look *k)
{
	FILE *f =
		table ? fmemopen((void *)(uintptr_t)table, strlen(table), "r") : fopen(TABLE, "re");
	int r = f ? walk(f, k) : ret_nerrno();

	if (f)
		(void)fclose(f);
	return r;
}

int mounts_at_in(const char *table, const char *path, bool *ret_ours)
{
	struct look k = {.path = path};
	int r = look(table, &k);

	if (r == 0)
		*ret_ours = top_is_ours(&k);
	free(k.spots);
	return r;
}

int mounts_has_in(const char *table, unsigned major, unsigned minor, bool *ret)
{
	struct look k = {.major = major, .minor = minor};
	int r = look(table, &k);

	if (r == 0)
		*ret = k.found;
	return r;
}

int mounts_at(const char *path, bool *ret_ours)
{
	return mounts_at_in(NULL, path, ret_ours);
}

int mounts_has(unsigned major, unsigned minor, bool *ret)
{
	return mounts_has_in(NULL, major, minor, ret);
}
