/* Whatever decodes as an inode record encodes to the same bytes, and so does its copy. */
#include <string.h>

#include "store/record.h"
#include "tests/fuzz/fuzz.h"

static void same(const struct rec_inode *r, const uint8_t *data, size_t size)
{
	cleanup_buf struct buf b = {0};

	if (rec_inode_encode(r, &b) < 0 || b.len != size || memcmp(b.data, data, size) != 0)
		__builtin_trap();
}

bool fuzz_one(const uint8_t *data, size_t size)
{
	struct rec_inode r = {0}, copy = {0};

	if (rec_inode_decode(data, size, &r) < 0)
		return false;
	same(&r, data, size);
	if (rec_inode_copy(&copy, &r) == 0)
		same(&copy, data, size);
	rec_inode_release(&copy);
	rec_inode_release(&r);
	return true;
}
