/* What libFuzzer calls. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)fuzz_one(data, size);
	return 0; /* refused bytes are on the way to others, too */
}
