/* What the JSON of an image says, and what is refused. */
#include <string.h>

#include "fs/image/oci.h"
#include "tests/lib/tap.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define D(tag, os, arch)                                                                    \
	"{\"mediaType\":\"" OCI_MANIFEST "\",\"digest\":\"sha256:" HEX "\",\"size\":7," tag \
	"\"platform\":{\"os\":\"" os "\",\"architecture\":\"" arch "\"}}"
#define TAG(t) "\"annotations\":{\"" OCI_REF_NAME "\":\"" t "\"},"

static cJSON *parse(const char *text)
{
	struct diag d = {0};

	return oci_parse(text, strlen(text), "it", &d);
}

static void documents(void)
{
	static const char *const bad[] = {"", "[]", "1", "null", "{", "{}x", "{\"a\":1,}"};
	cJSON *o = parse(" {} \n");

	ok(o != NULL, "an object");
	cJSON_Delete(o);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ok(!parse(bad[i]), "none: %s", bad[i]);
}

static int descriptor(const char *text, struct oci_descriptor *ret)
{
	cJSON *o = parse(text);
	struct diag d = {0};
	int r = oci_descriptor_parse(o, ret, &d);

	cJSON_Delete(o);
	return r;
}

static void descriptors(void)
{
	static const char *const bad[] = {
		"{}",
		"{\"digest\":\"sha256:" HEX "\"}",
		"{\"digest\":\"sha256:" HEX "\",\"size\":-1}",
		"{\"digest\":\"sha256:" HEX "\",\"size\":\"7\"}",
		"{\"digest\":\"sha256:" HEX "\",\"size\":1e300}",
		"{\"digest\":\"sha256:" HEX "0\",\"size\":7}",
		"{\"digest\":\"sha256:../../../../etc/passwd\",\"size\":7}",
		"{\"digest\":7,\"size\":7}",
	};
	struct oci_descriptor d;

	eq_int(descriptor("{\"mediaType\":\"x\",\"digest\":\"sha256:" HEX "\",\"size\":7}", &d), 0,
	       "one");
	ok(d.size == 7 && !strcmp(d.type, "x") && d.digest.b[0] == 1, "what it says");
	eq_int(descriptor("{\"digest\":\"sha512:" HEX HEX "\",\"size\":7}", &d), -EOPNOTSUPP,
	       "another digest");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		eq_int(descriptor(bad[i], &d), -EBADMSG, "%s", bad[i]);
}

static int choose(const char *text, const char *tag, bool *nested)
{
	cJSON *o = parse(text);
	struct oci_descriptor d;
	struct diag dg = {0};
	int r = oci_choose(o, tag, &d, nested, &dg);

	cJSON_Delete(o);
	return r;
}

static void choices(void)
{
	char arch[32], variant[8], text[2048];
	struct oci_descriptor d;
	struct diag dg = {0};
	bool nested;
	cJSON *o;

	oci_machine(arch, variant);
	ok(*arch, "this machine has a name: %s", arch);
	eq_int(choose("{\"manifests\":[]}", NULL, &nested), -EBADMSG, "none");
	eq_int(choose("{\"manifests\":[" D("", "linux", "x") "]}", NULL, &nested), 0,
	       "the only one");
	eq_int(choose("{\"manifests\":[" D(TAG("a"), "linux", "x") "," D(TAG("b"), "linux",
									 "x") "]}",
		      NULL, &nested),
	       -EINVAL, "one of two");
	eq_int(choose("{\"manifests\":[" D(TAG("a"), "linux", "x") "," D(TAG("b"), "linux",
									 "x") "]}",
		      "b", &nested),
	       0, "by its tag");
	eq_int(choose("{\"manifests\":[" D(TAG("a"), "linux", "x") "]}", "b", &nested), -ENOENT,
	       "a tag that is not there");
	(void)snprintf(text, sizeof(text),
		       "{\"manifests\":[" D("", "windows", "%s") "," D("", "linux", "none") "," D(
			       "", "linux", "%s") "]}",
		       arch, arch);
	o = parse(text);
	eq_int(oci_choose_platform(o, &d, &nested, &dg), 0, "this machine's: %s", dg.text);
	cJSON_Delete(o);
	o = parse("{\"manifests\":[" D("", "linux", "none") "]}");
	eq_int(oci_choose_platform(o, &d, &nested, &dg), -ENOENT, "no platform of ours");
	cJSON_Delete(o);
}

static void manifests(void)
{
	struct oci_manifest m;
	struct diag dg = {0};
	cJSON *o = parse(
		"{\"config\":" D("", "", "") ",\"layers\":[" D("", "", "") "," D("", "", "") "]}");

	eq_int(oci_manifest_parse(o, &m, &dg), 0, "a manifest");
	eq_int(m.n, 2, "its layers");
	oci_manifest_release(&m);
	cJSON_Delete(o);
	o = parse("{\"config\":" D("", "", "") ",\"layers\":[" D("", "", "") ",{}]}");
	eq_int(oci_manifest_parse(o, &m, &dg), -EBADMSG, "a layer that is none");
	cJSON_Delete(o);
	o = parse("{\"layers\":[]}");
	eq_int(oci_manifest_parse(o, &m, &dg), -EBADMSG, "no configuration");
	cJSON_Delete(o);
}

int main(void)
{
	documents();
	descriptors();
	choices();
	manifests();
	return tap_done();
}
