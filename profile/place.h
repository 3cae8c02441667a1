/*
 * profile/place.h - paths as a profile writes them, and where they lead on the host.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "profile/field.h"

#define PLACE_MAX 4096

/* An absolute path or a local file URI as a clean absolute path: no "//", no ".", no slash at the end; ".." is
 * refused, since what it means depends on links. @f is what is read, for the error. */
int place_parse(const struct field *f, const char *text, char **ret) MUST_USE;
/* @path below @dir, cleaned in the same way; @path is relative. */
int place_join(const struct field *f, const char *dir, const char *path, char **ret) MUST_USE;
/* Is @path @dir or below it? Both are clean. */
bool place_in(const char *path, const char *dir);

/* Where @path leads on the host, link by link: @link is called with each link on the way, as it is named; the
 * rest of a path behind the first name that is not there stays as it is written. -ELOOP. */
int place_resolve(const char *path, int (*link)(void *arg, const char *path), void *arg,
		  char **ret) MUST_USE;
