#include "mcp/files/text.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum {
	SNIFF = 8192
};

uint64_t text_count_lines(const uint8_t *p, size_t n)
{
	const uint8_t *end = p + n;
	uint64_t lines = 0;

	while (p < end) {
		const uint8_t *nl = memchr(p, '\n', (size_t)(end - p));

		lines++;
		if (!nl)
			break;
		p = nl + 1;
	}
	return lines;
}

uint64_t text_line_at(const uint8_t *p, size_t n, size_t off)
{
	uint64_t line = 1;
	const uint8_t *end = p + (off < n ? off : n);

	for (;;) {
		const uint8_t *nl = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;

		if (!nl)
			return line;
		line++;
		p = nl + 1;
	}
}

/* Eight ASCII bytes at a time: most files are nothing else. */
static size_t ascii_run(const uint8_t *p, size_t n)
{
	size_t i = 0;
	uint64_t w;

	for (; i + 8 <= n; i += 8) {
		memcpy(&w, p + i, 8);
		if (w & 0x8080808080808080u)
			break;
	}
	while (i < n && p[i] < 0x80)
		i++;
	return i;
}

static uint64_t count_invalid(const uint8_t *p, size_t n)
{
	uint64_t bad = 0;

	for (size_t i = 0; i < n;) {
		i += ascii_run(p + i, n - i);
		if (i >= n)
			break;

		size_t len = utf8_len(p + i, n - i);

		bad += !len;
		i += len ? len : 1;
	}
	return bad;
}

enum text_encoding text_bom(const uint8_t *p, size_t n)
{
	if (n >= 4 && !memcmp(p, "\xff\xfe\0\0", 4))
		return TEXT_UTF32LE;
	if (n >= 4 && !memcmp(p, "\0\0\xfe\xff", 4))
		return TEXT_UTF32BE;
	if (n >= 2 && !memcmp(p, "\xff\xfe", 2))
		return TEXT_UTF16LE;
	if (n >= 2 && !memcmp(p, "\xfe\xff", 2))
		return TEXT_UTF16BE;
	if (n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3))
		return TEXT_UTF8_BOM;
	return TEXT_UTF8;
}

struct text_shape text_shape_of(const uint8_t *p, size_t n)
{
	struct text_shape s = {.encoding = text_bom(p, n)};
	uint64_t crlf = 0, lf = 0;
	const uint8_t *q = p, *end = p + n;

	while (q < end) {
		const uint8_t *nl = memchr(q, '\n', (size_t)(end - q));

		if (!nl)
			break;
		if (nl > p && nl[-1] == '\r')
			crlf++;
		else
			lf++;
		q = nl + 1;
	}
	s.lines = crlf + lf + (q < end);
	s.final_newline = n && p[n - 1] == '\n';
	s.eol = crlf && lf ? TEXT_EOL_MIXED
		: crlf     ? TEXT_EOL_CRLF
		: lf       ? TEXT_EOL_LF
			   : TEXT_EOL_NONE;
	if (s.encoding == TEXT_UTF8 || s.encoding == TEXT_UTF8_BOM) {
		s.invalid = count_invalid(p, n);
		if (s.invalid)
			s.encoding = TEXT_OTHER;
	}
	return s;
}

const char *text_encoding_name(enum text_encoding e)
{
	switch (e) {
	case TEXT_UTF8:
		return "utf-8";
	case TEXT_UTF8_BOM:
		return "utf-8-bom";
	case TEXT_UTF16LE:
		return "utf-16le";
	case TEXT_UTF16BE:
		return "utf-16be";
	case TEXT_UTF32LE:
		return "utf-32le";
	case TEXT_UTF32BE:
		return "utf-32be";
	case TEXT_OTHER:
	default:
		return "not-utf-8";
	}
}

const char *text_eol_name(enum text_eol e)
{
	switch (e) {
	case TEXT_EOL_LF:
		return "LF";
	case TEXT_EOL_CRLF:
		return "CRLF";
	case TEXT_EOL_MIXED:
		return "mixed-eol";
	case TEXT_EOL_NONE:
	default:
		return "no-eol";
	}
}

bool text_is_binary(const uint8_t *p, size_t n)
{
	enum text_encoding e = text_bom(p, n);
	size_t m = n < SNIFF ? n : SNIFF;

	if (e != TEXT_UTF8 && e != TEXT_UTF8_BOM)
		return false;
	if (!m)
		return false;
	if (memchr(p, 0, m))
		return true;

	uint64_t bad = count_invalid(p, m);

	if (m < n && bad) /* the sniffed part may end inside a character */
		bad -= bad < 3 ? bad : 3;
	return bad * 10 > (uint64_t)m * 3;
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

struct magic {
	const char *bytes;
	uint8_t len;
	uint16_t at;
	const char *name;
};
static const struct magic magics[] = {
	{"\xff\xd8\xff", 3, 0, "JPEG image"},
	{"WEBP", 4, 8, "WebP image"},
	{"%PDF-", 5, 0, "PDF document"},
	{"\x1f\x8b", 2, 0, "gzip data"},
	{"PK\3\4", 4, 0, "zip archive"},
	{"\x28\xb5\x2f\xfd", 4, 0, "zstd data"},
	{"\xfd"
	 "7zXZ",
	 5, 0, "xz data"},
	{"BZh", 3, 0, "bzip2 data"},
	{"SQLite format 3", 15, 0, "SQLite database"},
	{"\0asm", 4, 0, "WebAssembly module"},
	{"!<arch>\n", 8, 0, "ar archive"},
	{"ustar", 5, 257, "tar archive"},
	{"\xca\xfe\xba\xbe", 4, 0, "Java class or Mach-O"},
	{"\xcf\xfa\xed\xfe", 4, 0, "Mach-O 64-bit"},
	{"MZ", 2, 0, "Windows executable"},
	{"OggS", 4, 0, "Ogg media"},
	{"ID3", 3, 0, "MP3 audio"},
	{"ftyp", 4, 4, "MP4 media"},
	{"\x89HDF", 4, 0, "HDF5 data"},
};

const char *text_magic(const uint8_t *p, size_t n, char *room, size_t room_len)
{
	if (n >= 6 && !memcmp(p,
			      "\x7f"
			      "ELF",
			      4))
		return p[4] == 2 ? "ELF 64-bit" : "ELF 32-bit";
	if (n >= 24 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8)) {
		(void)snprintf(room, room_len, "PNG image %ux%u", be32(p + 16), be32(p + 20));
		return room;
	}
	if (n >= 10 && !memcmp(p, "GIF8", 4)) {
		(void)snprintf(room, room_len, "GIF image %ux%u", p[6] | (unsigned)p[7] << 8,
			       p[8] | (unsigned)p[9] << 8);
		return room;
	}
	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
		const struct magic *m = &magics[i];

		if (n >= (size_t)m->at + m->len && !memcmp(p + m->at, m->bytes, m->len))
			return m->name;
	}
	return NULL;
}

int text_put_name(struct buf *b, const char *name, size_t n)
{
	const uint8_t *p = (const uint8_t *)name;
	size_t start = 0, i = 0;
	int r = 0;

	while (r >= 0 && i < n) {
		size_t len = p[i] ? utf8_len(p + i, n - i) : 0;

		if (len && utf8_shown(p + i, len)) {
			i += len;
			continue;
		}
		r = buf_put(b, p + start, i - start);
		if (r >= 0 && (p[i] == '\n' || p[i] == '\t'))
			r = buf_puts(b, p[i] == '\n' ? "\\n" : "\\t");
		else
			for (size_t k = 0; r >= 0 && k < (len ? len : 1); k++)
				r = buf_printf(b, "\\x%02x", p[i + k]);
		i += len ? len : 1;
		start = i;
	}
	return r < 0 ? r : buf_put(b, p + start, i - start);
}

int text_put_escaped(struct buf *b, const uint8_t *p, size_t n)
{
	size_t start = 0, i = 0;
	int r;

	while (i < n) {
		size_t run = ascii_run(p + i, n - i);
		const uint8_t *nul = run ? memchr(p + i, 0, run) : NULL;
		size_t len;

		if (nul)
			run = (size_t)(nul - (p + i));
		i += run;
		if (i >= n)
			break;
		len = p[i] ? utf8_len(p + i, n - i) : 0;
		if (len) {
			i += len;
			continue;
		}
		r = buf_put(b, p + start, i - start);
		if (r >= 0)
			r = buf_printf(b, "\\x%02x", p[i]);
		if (r < 0)
			return r;
		start = ++i;
	}
	return n > start ? buf_put(b, p + start, n - start) : 0;
}

static int put_rune(struct buf *out, uint32_t c)
{
	uint8_t u[4];
	size_t n;

	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		c = 0xfffd;
	if (c < 0x80) {
		u[0] = (uint8_t)c;
		n = 1;
	} else if (c < 0x800) {
		u[0] = (uint8_t)(0xc0 | c >> 6);
		u[1] = (uint8_t)(0x80 | (c & 63));
		n = 2;
	} else if (c < 0x10000) {
		u[0] = (uint8_t)(0xe0 | c >> 12);
		u[1] = (uint8_t)(0x80 | (c >> 6 & 63));
		u[2] = (uint8_t)(0x80 | (c & 63));
		n = 3;
	} else {
		u[0] = (uint8_t)(0xf0 | c >> 18);
		u[1] = (uint8_t)(0x80 | (c >> 12 & 63));
		u[2] = (uint8_t)(0x80 | (c >> 6 & 63));
		u[3] = (uint8_t)(0x80 | (c & 63));
		n = 4;
	}
	return buf_put(out, u, n);
}

static uint32_t unit(enum text_encoding e, const uint8_t *p)
{
	switch (e) {
	case TEXT_UTF16LE:
		return p[0] | (uint32_t)p[1] << 8;
	case TEXT_UTF16BE:
		return (uint32_t)p[0] << 8 | p[1];
	case TEXT_UTF32LE:
		return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	case TEXT_UTF32BE:
	case TEXT_UTF8:
	case TEXT_UTF8_BOM:
	case TEXT_OTHER:
	default:
		return be32(p);
	}
}

int text_to_utf8(enum text_encoding e, const uint8_t *p, size_t n, struct buf *out)
{
	bool wide = e == TEXT_UTF32LE || e == TEXT_UTF32BE;
	size_t step = wide ? 4 : 2, i = step; /* the mark itself is dropped */
	int r;

	for (; i + step <= n; i += step) {
		uint32_t c = unit(e, p + i);

		if (!wide && c >= 0xd800 && c < 0xdc00 && i + 4 <= n) {
			uint32_t lo = unit(e, p + i + 2);

			if (lo >= 0xdc00 && lo < 0xe000) {
				c = 0x10000 + ((c - 0xd800) << 10) + (lo - 0xdc00);
				i += 2;
			}
		}
		r = put_rune(out, c);
		if (r < 0)
			return r;
	}
	return i < n ? put_rune(out, 0xfffd) : 0;
}

size_t text_cut(const uint8_t *p, size_t n, size_t want)
{
	if (want >= n)
		return n;
	for (size_t back = 0; back < 4 && back <= want; back++)
		if ((p[want - back] & 0xc0) != 0x80)
			return want - back ? want - back : want;
	return want;
}

int text_put_size(struct buf *b, uint64_t n)
{
	static const char units[][4] = {"KiB", "MiB", "GiB", "TiB"};
	double v = (double)n;
	size_t u = 0;

	if (n < 1024)
		return buf_printf(b, "%llu B", (unsigned long long)n);
	for (v /= 1024; v >= 1024 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
		v /= 1024;
	return buf_printf(b, "%.1f %s", v, units[u]);
}

uint32_t text_version(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t h = 0x9e3779b97f4a7c15u ^ n, w;

	/* A word at a time; the shift keeps high bits from getting lost in the multiplication. */
	for (; n >= 8; p += 8, n -= 8) {
		memcpy(&w, p, 8);
		h = (h ^ w) * 0xff51afd7ed558ccdu;
		h ^= h >> 32;
	}
	w = 0;
	memcpy(&w, p, n);
	h = (h ^ w) * 0xff51afd7ed558ccdu;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53u;
	return (uint32_t)(h >> 32);
}

static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int text_base64(const uint8_t *p, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
			     (i + 2 < n ? p[i + 2] : 0);
		char q[4] = {b64[v >> 18], b64[v >> 12 & 63], b64[v >> 6 & 63], b64[v & 63]};
		int r;

		if (i + 2 >= n)
			q[3] = '=';
		if (i + 1 >= n)
			q[2] = '=';
		r = buf_put(out, q, 4);
		if (r < 0)
			return r;
	}
	return 0;
}

int text_unbase64(const char *s, struct buf *out)
{
	uint32_t v = 0;
	unsigned have = 0, pad = 0;

	for (; *s; s++) {
		const char *at;

		if (*s == ' ' || *s == '\n' || *s == '\r' || *s == '\t')
			continue;
		if (*s == '=') {
			pad++;
			continue;
		}
		at = memchr(b64, *s, sizeof(b64) - 1);
		if (!at || pad)
			return -EINVAL;
		v = v << 6 | (uint32_t)(at - b64);
		if (++have == 4) {
			uint8_t o[3] = {(uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
			int r = buf_put(out, o, 3);

			if (r < 0)
				return r;
			v = 0;
			have = 0;
		}
	}
	if (have == 1 || pad > 2 || (pad && have + pad != 4))
		return -EINVAL;
	if (have == 2) {
		uint8_t o = (uint8_t)(v >> 4);

		return buf_put(out, &o, 1);
	}
	if (have == 3) {
		uint8_t o[2] = {(uint8_t)(v >> 10), (uint8_t)(v >> 2)};

		return buf_put(out, o, 2);
	}
	return 0;
}

int text_hex(const uint8_t *p, size_t n, uint64_t off, struct buf *out)
{
	for (size_t i = 0; i < n; i += 16) {
		size_t row = n - i < 16 ? n - i : 16;
		char line[96];
		size_t at = (size_t)snprintf(line, sizeof(line), "%08llx ",
					     (unsigned long long)(off + i));
		int r;

		for (size_t k = 0; k < 16; k++) {
			if (k == 8)
				line[at++] = ' ';
			if (k < row)
				at += (size_t)snprintf(line + at, sizeof(line) - at, " %02x",
						       p[i + k]);
			else
				at += (size_t)snprintf(line + at, sizeof(line) - at, "   ");
		}
		line[at++] = ' ';
		line[at++] = ' ';
		line[at++] = '|';
		for (size_t k = 0; k < row; k++)
			line[at++] = (char)(p[i + k] >= 32 && p[i + k] < 127 ? p[i + k] : '.');
		line[at++] = '|';
		line[at++] = '\n';
		r = buf_put(out, line, at);
		if (r < 0)
			return r;
	}
	return 0;
}
