/* Lists of rules: making, comparing, msgpack. */
#include "policy/rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/mp.h"

#define VERSION     2
#define VERSION_OLD 1 /* which knew of a rule only whether it is bare */

enum {
	FLAG_DEEP = 1 << 0,
	FLAG_HIDE = 1 << 1,
	FLAG_STRICT = 1 << 2,
	FLAGS_ALL = FLAG_DEEP | FLAG_HIDE | FLAG_STRICT,
	/* of one rule */
	RULE_BARE = 1 << 0,
	RULE_SOLID = 1 << 1,
	RULE_FLAGS = RULE_BARE | RULE_SOLID,
};

const char *policy_access_name(enum policy_access a)
{
	static const char *const names[] = {"none", "deny", "read", "write"};

	return (unsigned)a < ARRAY_SIZE(names) ? names[a] : "?";
}

static void names_free(char **names)
{
	for (size_t i = 0; names && names[i]; i++)
		free(names[i]);
	free(names);
}

void policy_rules_release(struct policy_rules *r)
{
	for (size_t i = 0; i < r->n; i++) {
		free(r->v[i].text);
		free(r->v[i].reason);
	}
	free(r->v);
	names_free(r->names);
	*r = (struct policy_rules){0};
}

bool policy_component(const char **at, const char **ret, size_t *ret_len)
{
	for (;;) {
		const char *p = *at + strspn(*at, "/");
		size_t n = strcspn(p, "/");

		*at = p + n;
		if (n == 0)
			return false;
		if (n == 1 && p[0] == '.')
			continue;
		*ret = p;
		*ret_len = n;
		return true;
	}
}

/* With single slashes, without "." and a slash at the end. */
static int clean(const char *text, struct diag *diag, char **ret)
{
	size_t len = strlen(text), n = 0, k;
	const char *at = text, *part;
	char *s;

	if (text[0] != '/')
		return diag_set(diag, -EINVAL, "\"%s\" is not an absolute path", text);
	if (len > POLICY_TEXT_MAX)
		return diag_set(diag, -E2BIG, "the path \"%s...\" is longer than %d bytes", text,
				POLICY_TEXT_MAX);
	s = malloc(len + 2);
	if (!s)
		return -ENOMEM;
	while (policy_component(&at, &part, &k)) {
		if (k == 2 && !memcmp(part, "..", 2)) {
			free(s);
			return diag_set(diag, -EINVAL, "the path \"%s\" must not contain \"..\"",
					text);
		}
		s[n++] = '/';
		memcpy(s + n, part, k);
		n += k;
	}
	if (n == 0)
		s[n++] = '/';
	s[n] = 0;
	*ret = s;
	return 0;
}

int policy_rules_add(struct policy_rules *r, enum policy_access access, enum policy_kind kind,
		     const char *text, const char *reason, struct diag *diag)
{
	cleanup_free char *own = NULL, *why = NULL;
	struct policy_rule *more;
	size_t bytes;
	int k;

	if (access < POLICY_DENY || access > POLICY_WRITE)
		return diag_set(diag, -EINVAL, "a rule reads, writes or denies");
	if (kind == POLICY_GLOB && access != POLICY_DENY)
		return diag_set(
			diag, -EINVAL,
			"the pattern \"%s\" can only deny: name the places to %s one by one", text,
			policy_access_name(access));
	if (r->n >= POLICY_RULES_MAX)
		return diag_set(diag, -E2BIG, "more than %d rules", POLICY_RULES_MAX);
	k = clean(text, diag, &own);
	if (k < 0)
		return k;
	why = reason ? strdup(reason) : NULL;
	if (reason && !why)
		return -ENOMEM;
	bytes = strlen(own) + (why ? strlen(why) : 0);
	if (bytes > POLICY_BYTES_MAX - r->bytes)
		return diag_set(diag, -E2BIG, "the rules are longer than %u bytes together",
				POLICY_BYTES_MAX);
	more = realloc(r->v, (r->n + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	r->v = more;
	r->bytes += bytes;
	more[r->n++] = (struct policy_rule){
		.access = access, .kind = kind, .text = steal_ptr(&own), .reason = steal_ptr(&why)};
	return 0;
}

int policy_rules_protect(struct policy_rules *r, const char *name, struct diag *diag)
{
	size_t n = 0, len = strlen(name);
	char **more, *copy;

	while (r->names && r->names[n])
		n++;
	if (len == 0 || len > 255 || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return diag_set(diag, -EINVAL, "\"%s\" is no name of a file", name);
	if (n >= POLICY_NAMES_MAX)
		return diag_set(diag, -E2BIG, "more than %d protected names", POLICY_NAMES_MAX);
	more = realloc(r->names, (n + 2) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	r->names = more;
	more[n] = NULL;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	more[n] = copy;
	more[n + 1] = NULL;
	return 0;
}

int policy_rules_writable(const char *const *places, struct diag *diag, struct policy_rules *ret)
{
	struct policy_rules r = {.otherwise = places ? POLICY_READ : POLICY_WRITE};
	int k = 0;

	for (size_t i = 0; k == 0 && places && places[i]; i++)
		k = policy_rules_add(&r, POLICY_WRITE, POLICY_PATH, places[i], "a writable place",
				     diag);
	if (k < 0) {
		policy_rules_release(&r);
		return k;
	}
	*ret = r;
	return 0;
}

int policy_rules_copy(const struct policy_rules *r, struct policy_rules *ret)
{
	struct policy_rules c = {
		.otherwise = r->otherwise, .deep = r->deep, .hide = r->hide, .strict = r->strict};
	int k = 0;

	for (size_t i = 0; k == 0 && i < r->n; i++) {
		k = policy_rules_add(&c, r->v[i].access, r->v[i].kind, r->v[i].text, r->v[i].reason,
				     NULL);
		if (k == 0)
			c.v[i].bare = r->v[i].bare;
		if (k == 0)
			c.v[i].solid = r->v[i].solid;
	}
	for (size_t i = 0; k == 0 && r->names && r->names[i]; i++)
		k = policy_rules_protect(&c, r->names[i], NULL);
	if (k < 0) {
		policy_rules_release(&c);
		return k;
	}
	*ret = c;
	return 0;
}

static bool same_rule(const struct policy_rule *x, const struct policy_rule *y)
{
	return x->access == y->access && x->kind == y->kind && x->bare == y->bare &&
	       x->solid == y->solid && !strcmp(x->text, y->text);
}

static bool has_rule(const struct policy_rules *r, const struct policy_rule *x)
{
	for (size_t i = 0; i < r->n; i++)
		if (same_rule(&r->v[i], x))
			return true;
	return false;
}

static bool has_name(char *const *names, const char *name)
{
	for (; names && *names; names++)
		if (!strcmp(*names, name))
			return true;
	return false;
}

static bool covers(const struct policy_rules *a, const struct policy_rules *b)
{
	for (size_t i = 0; i < b->n; i++)
		/* Mostly in the same order, and then it costs little. */
		if (!(i < a->n && same_rule(&a->v[i], &b->v[i])) && !has_rule(a, &b->v[i]))
			return false;
	for (size_t i = 0; b->names && b->names[i]; i++)
		if (!has_name(a->names, b->names[i]))
			return false;
	return true;
}

bool policy_rules_same(const struct policy_rules *a, const struct policy_rules *b)
{
	return a->otherwise == b->otherwise && a->deep == b->deep && a->hide == b->hide &&
	       a->strict == b->strict && covers(a, b) && covers(b, a);
}

/* ---- msgpack: [version, otherwise, flags, [name...], [[access, kind, bare + 2 solid, text, reason]...]] ---- */

static int put_rule(struct buf *out, const struct policy_rule *x)
{
	int r = mp_put_array(out, 5);

	if (r == 0)
		r = mp_put_uint(out, x->access);
	if (r == 0)
		r = mp_put_uint(out, x->kind);
	if (r == 0)
		r = mp_put_uint(out, (x->bare ? RULE_BARE : 0) | (x->solid ? RULE_SOLID : 0));
	if (r == 0)
		r = mp_put_cstr(out, x->text);
	return r < 0 ? r : mp_put_cstr(out, x->reason);
}

int policy_rules_encode(const struct policy_rules *p, struct buf *out)
{
	unsigned flags = (p->deep ? FLAG_DEEP : 0) | (p->hide ? FLAG_HIDE : 0) |
			 (p->strict ? FLAG_STRICT : 0);
	size_t at = out->len;
	uint32_t n = 0;
	int r = mp_put_array(out, 5);

	while (p->names && p->names[n])
		n++;
	if (r == 0)
		r = mp_put_uint(out, VERSION);
	if (r == 0)
		r = mp_put_uint(out, p->otherwise);
	if (r == 0)
		r = mp_put_uint(out, flags);
	if (r == 0)
		r = mp_put_array(out, n);
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = mp_put_cstr(out, p->names[i]);
	if (r == 0)
		r = mp_put_array(out, (uint32_t)p->n);
	for (size_t i = 0; r == 0 && i < p->n; i++)
		r = put_rule(out, &p->v[i]);
	if (r < 0)
		out->len = at;
	return r;
}

static const msgpack_object *items(const msgpack_object *o, uint32_t n)
{
	return o->type == MSGPACK_OBJECT_ARRAY && o->via.array.size == n ? o->via.array.ptr : NULL;
}

static int get_bare(const msgpack_object *o, uint64_t *ret)
{
	bool bare;
	int r = mp_as_bool(o, &bare);

	if (r == 0)
		*ret = bare ? RULE_BARE : 0;
	return r;
}

static int get_rule(const msgpack_object *o, uint64_t version, struct policy_rules *to,
		    struct diag *diag)
{
	const msgpack_object *x = items(o, 5);
	cleanup_free char *text = NULL, *reason = NULL;
	uint64_t access, kind, flags;
	int r = x ? mp_as_uint(&x[0], POLICY_WRITE, &access) : -EBADMSG;

	if (r == 0)
		r = mp_as_uint(&x[1], POLICY_GLOB, &kind);
	if (r == 0)
		r = version == VERSION_OLD ? get_bare(&x[2], &flags)
					   : mp_as_uint(&x[2], RULE_FLAGS, &flags);
	if (r == 0)
		r = mp_dup_str(&x[3], &text);
	if (r == 0 && x[4].type != MSGPACK_OBJECT_NIL)
		r = mp_dup_str(&x[4], &reason);
	if (r == 0)
		r = policy_rules_add(to, (enum policy_access)access, (enum policy_kind)kind, text,
				     reason, diag);
	if (r == 0) {
		to->v[to->n - 1].bare = flags & RULE_BARE;
		to->v[to->n - 1].solid = flags & RULE_SOLID;
	}
	return r;
}

static int get_name(const msgpack_object *o, struct policy_rules *to, struct diag *diag)
{
	cleanup_free char *name = NULL;
	int r = mp_dup_str(o, &name);

	return r < 0 ? r : policy_rules_protect(to, name, diag);
}

static int get_rules(const msgpack_object *o, struct policy_rules *to, struct diag *diag)
{
	const msgpack_object *x = items(o, 5);
	uint64_t version, otherwise, flags;
	int r = x ? mp_as_uint(&x[0], UINT64_MAX, &version) : -EBADMSG;

	if (r == 0 && version != VERSION && version != VERSION_OLD)
		return diag_set(diag, -EPROTONOSUPPORT,
				"the policy is written in version %llu and %d is understood",
				(unsigned long long)version, VERSION);
	if (r == 0)
		r = mp_as_uint(&x[1], POLICY_WRITE, &otherwise);
	if (r == 0)
		r = mp_as_uint(&x[2], FLAGS_ALL, &flags);
	if (r == 0 && (x[3].type != MSGPACK_OBJECT_ARRAY || x[4].type != MSGPACK_OBJECT_ARRAY))
		r = -EBADMSG;
	if (r < 0)
		return r;
	to->otherwise = (enum policy_access)otherwise;
	to->deep = flags & FLAG_DEEP;
	to->hide = flags & FLAG_HIDE;
	to->strict = flags & FLAG_STRICT;
	for (uint32_t i = 0; r == 0 && i < x[3].via.array.size; i++)
		r = get_name(&x[3].via.array.ptr[i], to, diag);
	for (uint32_t i = 0; r == 0 && i < x[4].via.array.size; i++)
		r = get_rule(&x[4].via.array.ptr[i], version, to, diag);
	return r;
}

int policy_rules_decode(const void *p, size_t n, struct diag *diag, struct policy_rules *ret)
{
	struct policy_rules got = {0};
	struct mp_doc doc;
	int r = mp_parse(p, n, &doc);

	if (r == 0) {
		r = get_rules(&doc.root, &got, diag);
		mp_release(&doc);
	}
	if (r < 0) {
		policy_rules_release(&got);
		return diag_set(diag, r, "the policy makes no sense");
	}
	*ret = got;
	return 0;
}
