/* store/record: the inode codec is canonical, bounded, and copies deeply. */
#include <limits.h>

#include "base/mp.h"
#include "store/record.h"
#include "tests/lib/tap.h"

static char name_a[] = "a", name_b[] = "b", value[] = "v\0w", file_name[] = "f\xff\x01";
static char root[] = "/usr", rel[] = "lib/x";
static uint8_t bytes[] = "0123456789";

static struct rec_xattr attrs[] = {{name_a, value, 3}, {name_b, value, 0}};

static struct rec_inode full(void)
{
	return (struct rec_inode){
		.mode = 0100644,
		.uid = 1000,
		.gid = UINT32_MAX,
		.nlink = 1,
		.size = 100,
		.blocks = 8,
		.atime = {INT64_MIN, 0},
		.mtime = {INT64_MAX, 999999999},
		.ctime = {-1, 1},
		.btime = {0, 0},
		.parent = 7,
		.name = file_name,
		.name_len = 3,
		.xattrs = attrs,
		.nxattrs = 2,
		.big_xattrs = true,
		.content = REC_INLINE,
		.data = bytes,
		.data_len = 10,
		.origin = {.root = root,
			   .rel = rel,
			   .flags = REC_ORIGIN_PUBLIC,
			   .valid = 50,
			   .dev = 2049,
			   .ino = UINT64_MAX,
			   .mtime = {5, 6},
			   .size = 60},
	};
}

static void same(const struct rec_inode *x, const struct rec_inode *y, const char *what)
{
	cleanup_buf struct buf a = {0}, b = {0};

	ok(rec_inode_encode(x, &a) == 0 && rec_inode_encode(y, &b) == 0 && a.len == b.len &&
		   !memcmp(a.data, b.data, a.len),
	   "%s", what);
}

static void round_trip(void)
{
	cleanup_buf struct buf b = {0};
	struct rec_inode r = full(), got = {0}, copy = {0};

	eq_int(rec_inode_encode(&r, &b), 0, "encodes");
	eq_int(rec_inode_decode(b.data, b.len, &got), 0, "decodes");
	ok(got.mode == r.mode && got.gid == UINT32_MAX && got.atime.tv_sec == INT64_MIN &&
		   got.mtime.tv_sec == INT64_MAX && got.mtime.tv_nsec == 999999999 &&
		   got.name_len == 3 && !memcmp(got.name, file_name, 4) && got.nxattrs == 2 &&
		   got.xattrs[0].len == 3 && !memcmp(got.xattrs[0].value, value, 3) &&
		   got.xattrs[1].len == 0 && got.big_xattrs && got.content == REC_INLINE &&
		   got.data_len == 10 && !memcmp(got.data, bytes, 10) &&
		   !strcmp(got.origin.root, root) && !strcmp(got.origin.rel, rel) &&
		   got.origin.valid == 50 && got.origin.ino == UINT64_MAX &&
		   got.origin.mtime.tv_nsec == 6 && got.origin.size == 60 &&
		   got.origin.flags == REC_ORIGIN_PUBLIC,
	   "to the same values");
	eq_int(rec_inode_copy(&copy, &got), 0, "copies");
	ok(copy.name != got.name && copy.xattrs != got.xattrs && copy.data != got.data,
	   "sharing nothing");
	rec_inode_release(&got);
	same(&copy, &r, "and the copy survives the original");
	rec_inode_release(&copy);
	rec_inode_release(&copy);
}

static void each_content(void)
{
	static const enum rec_content kinds[] = {REC_EMPTY, REC_INLINE, REC_CHUNK, REC_EXTENTS};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		cleanup_buf struct buf b = {0};
		cleanup_rec_inode struct rec_inode got = {0};
		struct rec_inode r = full();

		r.content = kinds[i];
		r.chunk_len = 100;
		memset(&r.chunk, 9, sizeof(r.chunk));
		ok(rec_inode_encode(&r, &b) == 0 && rec_inode_decode(b.data, b.len, &got) == 0 &&
			   got.content == kinds[i],
		   "content kind %d", (int)kinds[i]);
		if (kinds[i] == REC_CHUNK)
			ok(got.chunk_len == 100 && !memcmp(&got.chunk, &r.chunk, DIGEST_LEN),
			   "with its chunk");
	}
}

static void symlink_rec(void)
{
	cleanup_buf struct buf b = {0};
	cleanup_rec_inode struct rec_inode got = {0};
	char target[] = "../x";
	struct rec_inode r = {.mode = 0120777, .nlink = 1, .size = 4, .target = target};

	ok(rec_inode_encode(&r, &b) == 0 && rec_inode_decode(b.data, b.len, &got) == 0 &&
		   !strcmp(got.target, target),
	   "a symlink");
}

static void refuses_to_encode(void)
{
	struct rec_inode r;
	struct rec_xattr twice[] = {{name_b, value, 1}, {name_a, value, 1}};
	char slash[] = "a/b";

#define REFUSED(change, what)                                                              \
	do {                                                                               \
		cleanup_buf struct buf b = {0};                                            \
		r = full();                                                                \
		change;                                                                    \
		ok(rec_inode_encode(&r, &b) == -EINVAL && b.len == 0, "refuses %s", what); \
	} while (0)

	REFUSED(r.mode = 0644, "a mode without a type");
	REFUSED(r.mode |= 1u << 20, "a mode with other bits");
	REFUSED(r.mtime.tv_nsec = 1000000000, "too many nanoseconds");
	REFUSED(r.mtime.tv_nsec = -1, "negative nanoseconds");
	REFUSED(r.size = (uint64_t)INT64_MAX + 1, "a size past off_t");
	REFUSED(r.data_len = REC_INLINE_MAX + 1, "too much inline");
	REFUSED(r.size = 5, "more inline than size");
	REFUSED(r.mode = 040755, "a directory with content");
	REFUSED(r.xattrs = twice, "xattrs out of order");
	REFUSED(r.target = name_a, "a target on a file");
	REFUSED((r.name = slash, r.name_len = 3), "a name with a slash");
	REFUSED(r.name_len = 300, "a long name");
	REFUSED(r.origin.root = name_a, "a relative origin");
	REFUSED(r.origin.flags = 1 << 9, "unknown origin flags");
	REFUSED((r.content = REC_CHUNK, r.chunk_len = STORE_BLOCK + 1, r.size = 1 << 20),
		"a chunk past a block");
#undef REFUSED
}

/* Every byte cut off, every byte changed: an error or another canonical record, never a crash. */
static void mutations(void)
{
	cleanup_buf struct buf b = {0}, again = {0};
	struct rec_inode r = full(), got = {0};
	int cut_ok = 0, noncanonical = 0;

	if (rec_inode_encode(&r, &b) < 0 || buf_put(&again, "", 1) < 0)
		tap_fatal("encode");
	for (size_t n = 0; n < b.len; n++)
		if (rec_inode_decode(b.data, n, &got) != -EBADMSG)
			cut_ok++;
	eq_int(cut_ok, 0, "no prefix is a record");
	if (buf_put(&b, "\xc0", 1) < 0)
		tap_fatal("put");
	eq_int(rec_inode_decode(b.data, b.len, &got), -EBADMSG, "nor with a byte more");
	b.len--;
	for (size_t i = 0; i < b.len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			b.data[i] ^= (uint8_t)(1 << bit);
			if (rec_inode_decode(b.data, b.len, &got) == 0) {
				buf_clear(&again);
				if (rec_inode_encode(&got, &again) < 0 || again.len != b.len ||
				    memcmp(again.data, b.data, b.len) != 0)
					noncanonical++;
				rec_inode_release(&got);
			}
			b.data[i] ^= (uint8_t)(1 << bit);
		}
	}
	eq_int(noncanonical, 0, "whatever decodes encodes to the same bytes");
}

static void other_spelling(void)
{
	cleanup_buf struct buf b = {0}, c = {0};
	struct rec_inode r = full(), got = {0};

	/* the version, one byte "01" after the two of the array, as a two-byte integer */
	if (rec_inode_encode(&r, &b) < 0 || buf_put(&c, b.data, 3) < 0 ||
	    buf_put(&c, "\xcc\x01", 2) < 0 || buf_put(&c, b.data + 4, b.len - 4) < 0)
		tap_fatal("build");
	ok(b.data[0] == 0xdc && b.data[3] == 1, "the record begins as expected");
	eq_int(rec_inode_decode(c.data, c.len, &got), -EBADMSG, "a longer integer is refused");
	b.data[3] = 2;
	eq_int(rec_inode_decode(b.data, b.len, &got), -EBADMSG, "another version is refused");
}

int main(void)
{
	round_trip();
	each_content();
	symlink_rec();
	refuses_to_encode();
	mutations();
	other_spelling();
	return tap_done();
}
