#include "profile/field.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

int field_fail(const struct field *f, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return diag_set(f->diag, -EINVAL, "%s%s%s", f->where, *f->where ? ": " : "", text);
}

static bool known(const char *const *keys, const char *key)
{
	for (; *keys; keys++)
		if (!strcmp(*keys, key))
			return true;
	return false;
}

int field_check(const struct field *f, const char *const *keys)
{
	if (!cJSON_IsObject(f->o))
		return field_fail(f, "must be an object");
	for (const cJSON *c = f->o->child; c; c = c->next) {
		if (!c->string)
			return field_fail(f, "holds a value without a name");
		for (const cJSON *d = c->next; d; d = d->next)
			if (d->string && !strcmp(c->string, d->string))
				return field_fail(f, "'%.60s' is given twice", c->string);
		if (keys && !cJSON_IsNull(c) && !known(keys, c->string))
			return field_fail(f, "'%.60s' is not known here", c->string);
	}
	return 0;
}

void field_at(const struct field *f, const char *name, struct field *ret)
{
	struct field at = {.o = cJSON_GetObjectItemCaseSensitive(f->o, name), .diag = f->diag};

	(void)snprintf(at.where, sizeof(at.where), "%.100s%s%.50s", f->where, *f->where ? "." : "",
		       name);
	*ret = at;
}

int field_get(const struct field *f, const char *name, struct field *ret)
{
	field_at(f, name, ret);
	return ret->o && !cJSON_IsNull(ret->o);
}

int field_object(const struct field *f, const char *name, struct field *ret)
{
	int r = field_get(f, name, ret);

	return r > 0 && !cJSON_IsObject(ret->o) ? field_fail(ret, "must be an object") : r;
}

int field_array(const struct field *f, const char *name, struct field *ret)
{
	int r = field_get(f, name, ret);

	return r > 0 && !cJSON_IsArray(ret->o) ? field_fail(ret, "must be a list") : r;
}

int field_text(const struct field *f, const char *name, const char **ret)
{
	struct field at;
	int r = field_get(f, name, &at);

	if (r > 0 && !cJSON_IsString(at.o))
		return field_fail(&at, "must be a text");
	if (r > 0)
		*ret = at.o->valuestring;
	return r;
}

int field_bool(const struct field *f, const char *name, bool *ret)
{
	struct field at;
	int r = field_get(f, name, &at);

	if (r > 0 && !cJSON_IsBool(at.o))
		return field_fail(&at, "must be true or false");
	if (r > 0)
		*ret = cJSON_IsTrue(at.o);
	return r;
}

int field_uint(const struct field *f, const char *name, unsigned max, unsigned *ret)
{
	struct field at;
	int r = field_get(f, name, &at);

	if (r <= 0)
		return r;
	if (!cJSON_IsNumber(at.o) || !(at.o->valuedouble >= 0 && at.o->valuedouble <= max) ||
	    at.o->valuedouble != (double)(unsigned)at.o->valuedouble)
		return field_fail(&at, "must be a whole number from 0 to %u", max);
	*ret = (unsigned)at.o->valuedouble;
	return 1;
}

static int not_a_word(const struct field *at, const char *const *words)
{
	cleanup_buf struct buf b = {0};
	int r = 0;

	for (size_t i = 0; !r && words[i]; i++)
		r = buf_printf(&b, "%s\"%s\"", !i ? "" : words[i + 1] ? ", " : " or ", words[i]);
	return r < 0 ? r : field_fail(at, "must be %s", (const char *)b.data);
}

int field_word(const struct field *f, const char *name, const char *const *words, unsigned *ret)
{
	struct field at;
	int r = field_get(f, name, &at);

	if (r <= 0)
		return r;
	for (unsigned i = 0; cJSON_IsString(at.o) && words[i]; i++) {
		if (strcmp(words[i], at.o->valuestring) != 0)
			continue;
		*ret = i;
		return 1;
	}
	return not_a_word(&at, words);
}

static int need(const struct field *f, const char *name, int r)
{
	return r ? r : field_fail(f, "'%s' is missing", name);
}

int field_need_text(const struct field *f, const char *name, const char **ret)
{
	return need(f, name, field_text(f, name, ret));
}

int field_need_word(const struct field *f, const char *name, const char *const *words,
		    unsigned *ret)
{
	return need(f, name, field_word(f, name, words, ret));
}

void field_item(const struct field *f, unsigned i, const cJSON *o, struct field *ret)
{
	struct field at = {.o = o, .diag = f->diag};

	(void)snprintf(at.where, sizeof(at.where), "%.140s[%u]", f->where, i);
	*ret = at;
}
