/*
 * profile/field.h - reading JSON that somebody else wrote: every value by name and type, nothing guessed.
 *
 * A field knows where it stands, so that an error names it: "permissionProfile.network: ...". Keys that
 * are given twice, and keys that nobody knows, are errors: what is not understood might have narrowed.
 * Errors: -EINVAL with one sentence in the diag; -ENOMEM.
 */
#pragma once

#include <stdbool.h>

#include <cjson/cJSON.h>

#include "base/err.h"

struct field {
	const cJSON *o;
	char where[160]; /* "" is the document */
	struct diag *diag;
};

/* -EINVAL with "WHERE: text". */
int field_fail(const struct field *f, const char *fmt, ...) PRINTF(2, 3);
/* @f is an object whose keys are all in @keys (NULL-terminated; NULL: any), none of them twice. */
int field_check(const struct field *f, const char *const *keys) MUST_USE;

/* Where @name stands, there or not. */
void field_at(const struct field *f, const char *name, struct field *ret);

/* All: 1 there, 0 absent or null, or -EINVAL for another type. */
int field_get(const struct field *f, const char *name, struct field *ret) MUST_USE;
int field_object(const struct field *f, const char *name, struct field *ret) MUST_USE;
int field_array(const struct field *f, const char *name, struct field *ret) MUST_USE;
int field_text(const struct field *f, const char *name, const char **ret) MUST_USE;
int field_bool(const struct field *f, const char *name, bool *ret) MUST_USE;
/* A whole number of 0 to @max. */
int field_uint(const struct field *f, const char *name, unsigned max, unsigned *ret) MUST_USE;
/* One of @words (NULL-terminated): its index. */
int field_word(const struct field *f, const char *name, const char *const *words,
	       unsigned *ret) MUST_USE;
/* As field_text and field_word, -EINVAL when absent. */
int field_need_text(const struct field *f, const char *name, const char **ret) MUST_USE;
int field_need_word(const struct field *f, const char *name, const char *const *words,
		    unsigned *ret) MUST_USE;
/* Element @i of an array, which is @o. */
void field_item(const struct field *f, unsigned i, const cJSON *o, struct field *ret);
