/* Whatever is read as the index or the manifest of an image is refused with a sentence, or names blobs by digests. */
#include "fs/image/oci.h"
#include "tests/fuzz/fuzz.h"

bool fuzz_one(const uint8_t *data, size_t size)
{
	struct oci_descriptor d;
	struct oci_manifest m;
	struct diag diag = {0}, more = {0}, last = {0};
	bool nested, taken = false;
	cJSON *o = oci_parse(data, size, "it", &diag);

	if (!o) {
		if (!diag.text[0])
			__builtin_trap();
		return false;
	}
	taken |= oci_choose(o, NULL, &d, &nested, &diag) == 0;
	taken |= oci_choose_platform(o, &d, &nested, &more) == 0;
	if (oci_manifest_parse(o, &m, &last) == 0) {
		if (m.n > OCI_LAYERS_MAX)
			__builtin_trap();
		oci_manifest_release(&m);
		taken = true;
	}
	if (!taken && (!diag.text[0] || !more.text[0] || !last.text[0]))
		__builtin_trap();
	cJSON_Delete(o);
	return taken;
}
