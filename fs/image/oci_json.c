/* What the JSON of an OCI image says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "fs/image/oci.h"

static const char *text_of(const cJSON *o, const char *key)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
}

static int bad(struct diag *diag, const char *what)
{
	return diag_set(diag, -EBADMSG, "the image is damaged: %s", what);
}

cJSON *oci_parse(const void *p, size_t n, const char *what, struct diag *diag)
{
	const char *end = NULL;
	cJSON *o = n <= OCI_JSON_MAX ? cJSON_ParseWithLengthOpts(p, n, &end, false) : NULL;

	if (o && end)
		while (end < (const char *)p + n && strchr(" \t\r\n", *end) && *end)
			end++;
	if (!cJSON_IsObject(o) || end != (const char *)p + n) {
		cJSON_Delete(o);
		diag_set(diag, -EBADMSG, "the image is damaged: %s is no JSON object", what);
		return NULL;
	}
	return o;
}

int oci_descriptor_parse(const cJSON *o, struct oci_descriptor *ret, struct diag *diag)
{
	const char *type = text_of(o, "mediaType"), *digest = text_of(o, "digest");
	const cJSON *size = cJSON_GetObjectItemCaseSensitive(o, "size");

	*ret = (struct oci_descriptor){0};
	if (!digest || !cJSON_IsNumber(size) || !(size->valuedouble >= 0) ||
	    size->valuedouble > 9e15 || (type && strlen(type) >= sizeof(ret->type)))
		return bad(diag, "a descriptor without digest and size");
	if (strncmp(digest, "sha256:", 7) != 0)
		return diag_set(diag, -EOPNOTSUPP,
				"the image has the digest %.80s; only sha256 is read", digest);
	if (digest_parse(digest + 7, &ret->digest) < 0)
		return bad(diag, "a digest that is none");
	ret->size = (uint64_t)size->valuedouble;
	(void)snprintf(ret->type, sizeof(ret->type), "%s", type ? type : "");
	return 0;
}

static bool is_index(const char *type)
{
	return !strcmp(type, OCI_INDEX) || !strcmp(type, DOCKER_LIST);
}

static int take(const cJSON *m, struct oci_descriptor *ret, bool *ret_nested, struct diag *diag)
{
	int r = oci_descriptor_parse(m, ret, diag);

	*ret_nested = r == 0 && is_index(ret->type);
	return r;
}

static const char *tag_of(const cJSON *m)
{
	return text_of(cJSON_GetObjectItemCaseSensitive(m, "annotations"), OCI_REF_NAME);
}

/* Some of the tags, for who has to choose. */
static void tags_text(const cJSON *list, char *ret, size_t size)
{
	const cJSON *m;
	size_t n = 0;

	ret[0] = 0;
	cJSON_ArrayForEach(m, list)
	{
		const char *t = tag_of(m);
		int k = t ? snprintf(ret + n, size - n, "%s%.60s", n ? ", " : "", t) : 0;

		if (k < 0 || (size_t)k >= size - n)
			break;
		n += (size_t)k;
	}
}

int oci_choose(const cJSON *index, const char *tag, struct oci_descriptor *ret, bool *ret_nested,
	       struct diag *diag)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(index, "manifests"), *m, *found = NULL;
	char tags[300];

	if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list))
		return bad(diag, "its index names no manifest");
	tags_text(list, tags, sizeof(tags));
	if (!tag && cJSON_GetArraySize(list) == 1)
		return take(list->child, ret, ret_nested, diag);
	if (!tag && !tags[0]) /* of several platforms, without a name */
		return oci_choose_platform(index, ret, ret_nested, diag);
	if (!tag)
		return diag_set(diag, -EINVAL,
				"there are several images in it; choose one as SRC:TAG (%s)", tags);
	cJSON_ArrayForEach(m, list)
	{
		const char *t = tag_of(m);

		if (!found && t && !strcmp(t, tag))
			found = m;
	}
	if (!found)
		return diag_set(diag, -ENOENT, "there is no image \"%.80s\" in it%s%s%s", tag,
				tags[0] ? "; there is " : "", tags, "");
	return take(found, ret, ret_nested, diag);
}

void oci_machine(char ret_arch[static 32], char ret_variant[static 8])
{
	static const struct {
		const char *machine, *arch, *variant;
	} names[] = {
		{"x86_64", "amd64", ""},    {"aarch64", "arm64", "v8"},
		{"armv7l", "arm", "v7"},    {"armv6l", "arm", "v6"},
		{"i686", "386", ""},        {"i386", "386", ""},
		{"ppc64le", "ppc64le", ""}, {"s390x", "s390x", ""},
		{"riscv64", "riscv64", ""}, {"loongarch64", "loong64", ""},
	};
	struct utsname u;

	ret_arch[0] = ret_variant[0] = 0;
	if (uname(&u) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(u.machine, names[i].machine)) {
			(void)snprintf(ret_arch, 32, "%s", names[i].arch);
			(void)snprintf(ret_variant, 8, "%s", names[i].variant);
		}
}

/* How well a platform fits: 0 not at all. */
static int fits(const cJSON *m, const char *arch, const char *variant)
{
	const cJSON *p = cJSON_GetObjectItemCaseSensitive(m, "platform");
	const char *os = text_of(p, "os"), *a = text_of(p, "architecture"),
		   *v = text_of(p, "variant");

	if (!os || !a || strcmp(os, "linux") != 0 || strcmp(a, arch) != 0)
		return 0;
	return v && strcmp(v, variant) != 0 ? 1 : v ? 3 : 2;
}

int oci_choose_platform(const cJSON *index, struct oci_descriptor *ret, bool *ret_nested,
			struct diag *diag)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(index, "manifests"), *m, *found = NULL;
	char arch[32], variant[8];
	int best = 0;

	oci_machine(arch, variant);
	cJSON_ArrayForEach(m, list)
	{
		int f = fits(m, arch, variant);

		if (f > best) {
			best = f;
			found = m;
		}
	}
	/* One that says nothing is for whoever asks. */
	if (!found && cJSON_GetArraySize(list) == 1 &&
	    !cJSON_GetObjectItemCaseSensitive(list->child, "platform"))
		found = list->child;
	if (!found)
		return diag_set(
			diag, -ENOENT,
			"the image is not for this machine: none of its platforms is linux/%s",
			*arch ? arch : "(unknown)");
	return take(found, ret, ret_nested, diag);
}

void oci_manifest_release(struct oci_manifest *m)
{
	free(m->layers);
	*m = (struct oci_manifest){0};
}

int oci_manifest_parse(const cJSON *o, struct oci_manifest *ret, struct diag *diag)
{
	const cJSON *layers = cJSON_GetObjectItemCaseSensitive(o, "layers"), *l;
	int n = cJSON_GetArraySize(layers), r;

	*ret = (struct oci_manifest){0};
	if (!cJSON_IsArray(layers) || n > OCI_LAYERS_MAX)
		return bad(diag, "its manifest has no layers, or too many");
	r = oci_descriptor_parse(cJSON_GetObjectItemCaseSensitive(o, "config"), &ret->config, diag);
	ret->layers = calloc(n ? (size_t)n : 1, sizeof(*ret->layers));
	if (r == 0 && !ret->layers)
		r = -ENOMEM;
	cJSON_ArrayForEach(l, layers) if (r == 0) r =
		oci_descriptor_parse(l, &ret->layers[ret->n++], diag);
	if (r < 0)
		oci_manifest_release(ret);
	return r;
}
